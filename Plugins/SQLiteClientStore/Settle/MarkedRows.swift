import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Rows that a request deletes and that are still in their tables, with a deleted mark (semantics 3). Nothing depends on
/// what they hold: where one is in the way of a row that is there, or its parent is gone, it goes.
extension WorkingRows {
  /// A marked row that was taken out of its table, as it is to be when it comes back.
  struct MarkedOut {
    var table: CapturedTable
    var key: Key
    var row: SlotRow
    var remains: RowWriter.Remains
  }

  /// Takes a marked row out of its table.
  ///
  /// - Parameter row: as it is to be when it comes back; nil: as it is.
  func removeMarked(_ table: CapturedTable, _ key: Key, as row: SlotRow? = nil) throws {
    prepareWrite(table)
    guard let (was, remains) = try writer(table).removeMarked(key) else { return }
    markedOut[RowRef(table: table.number, key: key)] = MarkedOut(
      table: table, key: key, row: row ?? was, remains: remains)
    try touched.removed(table, key)
  }

  /// Marked rows of these tables go, and do not come back: nothing marks them any more.
  func removeMarked(of tables: Set<Int64>) throws {
    for table in context.catalog.tables where tables.contains(table.number) {
      guard let deleted = table.deletedFlag else { continue }
      let columns = table.keySlots.map(table.tableColumn).joined(separator: ", ")
      for key in try context.connection.rows(
        "SELECT \(columns) FROM \(quoted(table.name)) x WHERE \(CapturedTable.isSet(deleted, "x"))\(table.andHasKey(table.tableColumn))"
      ) {
        try removeMarked(table, key)
        markedOut[RowRef(table: table.number, key: key)] = nil
      }
      try context.connection.run("DELETE FROM salvor_mark WHERE t = ?1", .integer(table.number))
    }
  }

  /// A marked row that was taken out could stand beside the rows in work as these are to be: what was in its way has been
  /// displaced since.
  func canReturn(_ ref: RowRef, _ children: Set<RowRef> = []) throws -> Bool {
    guard let out = markedOut[ref], try load(out.table, out.key).timeline.steps.last?.change == .delete else {
      return false
    }
    for (place, unique) in out.table.uniques.enumerated() {
      if let held = places.held(out.row, out.table, place), !places.rows(holding: held).isEmpty { return false }
      for key in try holders(of: out.row, unique, out.table)
      where try rows[RowRef(table: ref.table, key: key)] == nil || context.isMarked(out.table, key) {
        return false
      }
    }
    return try (places.references[ref.table] ?? []).allSatisfy { reference in
      try out.row[reference.slot].isNull || isThere(reference, out.row[reference.slot], children.union([ref]))
    }
  }

  /// After rows were displaced and the others are written.
  func returnMarked() throws {
    context.connection.triggersEnabled = false
    for (ref, out) in markedOut.sorted(by: { ($0.key.table, "\($0.key.key)") < ($1.key.table, "\($1.key.key)") })
    where try canReturn(ref) && writer(out.table).insert(out.row, out.remains) == .written {
      markedOut[ref] = nil
      try touched.written(out.table, out.key)
    }
  }

  /// The base of a marked row has changed: it follows in the columns that did, and goes with its base.
  ///
  /// - Parameter old: the base before.
  func followBase(_ table: CapturedTable, _ key: Key, from old: SlotRow?, to new: SlotRow?) throws {
    guard table.deletedFlag != nil, try context.isMarked(table, key) else { return }
    guard let new else {
      if old != nil {
        try removeMarked(table, key)
        markedOut[RowRef(table: table.number, key: key)] = nil
      }
      return
    }
    let slots = table.otherSlots.filter { old?[$0] != new[$0] }
    guard !slots.isEmpty, var row = try context.markedRow(table, key) else { return }
    prepareWrite(table)
    let outcome = try writer(table).updateMarked(key, slots.map { ($0, new[$0]) })
    if outcome == .written { return }
    for slot in slots { row[slot] = new[slot] }
    try removeMarked(table, key, as: row)
  }

  /// Marked rows that hold the unique values of a row make room. True: there were some.
  func makeRoom(for row: SlotRow, _ table: CapturedTable) throws -> Bool {
    guard table.deletedFlag != nil else { return false }
    var found = false
    for unique in table.uniques {
      for key in try holders(of: row, unique, table) where try context.isMarked(table, key) {
        try removeMarked(table, key)
        found = true
      }
    }
    return found
  }

  /// Marked rows whose parent is not there any more go. False: no row is marked.
  @discardableResult
  func removeDanglingMarked(_ proof: ReferenceProof) throws -> Bool {
    let connection = context.connection
    guard try connection.integer("SELECT 1 FROM salvor_mark LIMIT 1") != nil else { return false }
    var again = true
    while again {
      again = false
      for rule in proof.rules {
        guard let child = rule.capturedChild, let deleted = child.deletedFlag else { continue }
        let columns = child.keySlots.map(child.tableColumn).joined(separator: ", ")
        let marked =
          "salvor_mark s CROSS JOIN \(quoted(child.name)) x WHERE s.t = \(child.number) AND \(child.rowAt(markedToo: true) { "s.k\($0)" })"
        for key in try connection.rows(
          "SELECT \(columns) FROM \(marked) AND \(CapturedTable.isSet(deleted, "x")) AND \(rule.isDangling("x"))")
        {
          try removeMarked(child, key)
          again = true
        }
      }
    }
    return true
  }

  /// Marked rows that no request deletes go physically: the server has accepted their delete, or is not to hear of them.
  /// Marks of rows that are there are forgotten. One that the bases still need stays until the download says what became of it
  /// (`basesMayBreak`). True: rows went.
  @discardableResult
  func sweepMarks() throws -> Bool {
    let connection = context.connection
    guard try connection.integer("SELECT 1 FROM salvor_mark LIMIT 1") != nil else { return false }
    var isSwept = false
    for table in context.catalog.tables {
      let keys = table.keySlots.map { "k\($0)" }.joined(separator: ", ")
      for key in try connection.rows(
        "SELECT DISTINCT \(keys) FROM salvor_mark WHERE t = ?1 ORDER BY \(keys)", .integer(table.number))
      {
        let work = rows[RowRef(table: table.number, key: key)]
        let isOutstanding = try work.map { !$0.timeline.steps.isEmpty } ?? index.mayContain(table, key)
        let isMarked = try context.isMarked(table, key)
        // One that is going to be there again is written over.
        if isMarked, isOutstanding || work?.timeline.current != nil { continue }
        if isMarked, basesMayBreak, try isNeeded(RowRef(table: table.number, key: key), table) { continue }
        // A row that went at once comes back from its delete.
        if isOutstanding, try context.currentRow(table, key) == nil { continue }
        if isMarked {
          try removeMarked(table, key)
          isSwept = true
        }
        try connection.run(
          "DELETE FROM salvor_mark WHERE t = \(table.number) AND "
            + table.keySlots.map { "k\($0) = ?\($0 + 1)" }.joined(separator: " AND "), key)
      }
    }
    try connection.run("DELETE FROM salvor_mark WHERE t NOT IN (SELECT id FROM salvor_table)")
    return isSwept
  }

  /// A row that is there references this one, and no request is to blame for it: that reference is the server's, which keeps the row
  /// or takes both. A marked row between them is needed, too.
  private func isNeeded(_ ref: RowRef, _ table: CapturedTable) throws -> Bool {
    var found: Set<RowRef> = [ref]
    var waiting = [ref]
    while let parent = waiting.popLast() {
      for reference in places.referenced[parent.table] ?? [] {
        for child in try children(of: parent, reference) where !found.contains(child) {
          if try context.isMarked(reference.child, child.key) {
            found.insert(child)
            waiting.append(child)
            continue
          }
          let timeline = try load(reference.child, child.key).timeline
          if timeline.current?[reference.slot] == parent.key[0], lastSetting([reference.slot], timeline) == nil {
            return true
          }
        }
      }
    }
    return false
  }

  /// In their table, or in work.
  private func children(of parent: RowRef, _ reference: RowPlaces.Reference) throws -> Set<RowRef> {
    let child = reference.child
    let keys = child.keySlots.map(child.tableColumn).joined(separator: ", ")
    let found = try context.connection.rows(
      "SELECT \(keys) FROM \(quoted(child.name)) x WHERE \(child.tableColumn(reference.slot)) = ?1", parent.key)
    return places.rows(referencing: parent).filter { $0.table == child.number }
      .union(found.map { RowRef(table: child.number, key: $0) })
  }
}
