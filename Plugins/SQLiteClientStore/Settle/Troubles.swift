import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What keeps rows from standing (semantics 2), found in values over all rows in work before anything is written: which row a
/// table refuses first depends on the order of writing, and the first refusal hides the others. To blame is
///
/// - of an update that finds no row, itself,
/// - of a unique value that two rows want, the younger of their last changes that set it,
/// - of a row without its parent, its last change that set the reference; else the last that deleted the parent.
///
/// What only the table knows (a CHECK, a trigger that raises) it says when the row is written: its last change is to blame.
extension WorkingRows {
  /// The youngest change in the way; nil: everything in work can stand, as far as values say.
  func youngestInTheWay() throws -> Culprit? {
    let refs = unchecked.union(troubles.keys)
    unchecked = []
    troubles = [:]
    var going: [RowRef] = []
    for ref in refs {
      guard let work = rows[ref] else { continue }
      if let lost = work.timeline.lost { note(lost, .rowGone, ref) }
      if let row = work.timeline.current {
        try checkUnique(work, ref, row)
        try checkParents(work, ref, row)
      } else if work.shown != nil {
        going.append(ref)
      }
    }
    try checkChildren(of: going)
    // Of one that is to blame for several, always the same.
    return troubles.values.flatMap { $0 }.compactMap { trouble in
      trouble.culprit.map { Culprit(seq: $0, reason: trouble.reason, message: trouble.message) }
    }.max { ($0.seq, $1.reason.rawValue) < ($1.seq, $0.reason.rawValue) }
  }

  private func note(_ culprit: Int64?, _ reason: DisplacementReason, _ ref: RowRef, _ message: String? = nil) {
    troubles[ref, default: []].append(Trouble(culprit: culprit, reason: reason, message: message))
  }

  // MARK: Unique values

  private func checkUnique(_ work: Work, _ ref: RowRef, _ row: SlotRow) throws {
    for (place, unique) in work.table.uniques.enumerated() {
      guard let held = places.held(row, work.table, place), held != places.held(work.shown, work.table, place) else {
        continue
      }
      var others = places.rows(holding: held)
      others.remove(ref)
      for key in try holders(of: row, unique, work.table) where key != work.key {
        // It makes room when the row is written.
        if try context.isMarked(work.table, key) { continue }
        let other = RowRef(table: ref.table, key: key)
        if rows[other] == nil {
          try load(work.table, key)
          others.insert(other)
        }
      }
      guard !others.isEmpty else { continue }
      let slots = places.uniqueSlots(work.table)[place] ?? []
      for other in others {
        let mine = lastSetting(slots, work.timeline)
        let theirs = rows[other].flatMap { lastSetting(slots, $0.timeline) }
        let last = [mine, theirs].compactMap(\.self).max()
        note(last, .constraint, ref, Self.inTheWay(last == mine ? other.key : ref.key, slots, work.table))
      }
    }
  }

  /// The change is displaced, and that row stays.
  private static func inTheWay(_ key: Key, _ slots: [Int], _ table: CapturedTable) -> String {
    let columns = slots.map { table.columns[$0].name }.joined(separator: ", ")
    let row = key.map { "\($0)" }.joined(separator: ", ").prefix(200)
    return
      "The row [\(row)] of \(table.name) is in its way: it has the same in \(columns). Give one of the two another value. What waits here comes back by itself when the way is free; retry it after that row has changed."
  }

  // MARK: References

  private func checkParents(_ work: Work, _ ref: RowRef, _ row: SlotRow) throws {
    for reference in places.references[ref.table] ?? [] {
      let value = row[reference.slot]
      if value.isNull || (work.shown?[reference.slot] == value && !doubted.contains(ref)) { continue }
      if try isThere(reference, value) { continue }
      note(try culprit(work, reference, value), .missingParent, ref)
    }
  }

  /// - Parameter children: marked rows that stand if it is.
  func isThere(_ reference: RowPlaces.Reference, _ value: Value, _ children: Set<RowRef> = []) throws -> Bool {
    let parent = reference.parent
    if rows[RowRef(table: parent.number, key: [value])]?.timeline.current != nil { return true }
    for key in try context.connection.rows(
      "SELECT \(parent.tableColumn(0)) FROM \(quoted(parent.name)) x WHERE \(parent.tableColumn(0)) = ?1", [value])
    {
      guard let work = rows[RowRef(table: parent.number, key: key)] else { return true }
      // A row that a request deletes by its mark is still there for those that reference it.
      if try work.timeline.current != nil || context.isMarked(parent, key) { return true }
    }
    let ref = RowRef(table: parent.number, key: [value])
    return try children.contains(ref) || canReturn(ref, children)
  }

  private func culprit(_ child: Work, _ reference: RowPlaces.Reference, _ value: Value) throws -> Int64? {
    if let setter = lastSetting([reference.slot], child.timeline) { return setter }
    return try last(reference.parent, [value]) { $0.change.operation == .delete }
  }

  /// Rows that go, and those that reference them.
  private func checkChildren(of going: [RowRef]) throws {
    for (number, refs) in Dictionary(grouping: going, by: \.table) {
      for reference in places.referenced[number] ?? [] {
        for ref in refs {
          for child in places.rows(referencing: ref) where rows[child] != nil {
            try checkChild(child, reference)
          }
        }
        for start in stride(from: 0, to: refs.count, by: 500) {
          try checkChildren(reference, refs[start..<min(start + 500, refs.count)].map { $0.key[0] })
        }
      }
    }
  }

  private func checkChildren(_ reference: RowPlaces.Reference, _ parents: [Value]) throws {
    let child = reference.child
    let keys = child.keySlots.map(child.tableColumn).joined(separator: ", ")
    let list = parents.indices.map { "?\($0 + 1)" }.joined(separator: ", ")
    for key in try context.connection.rows(
      "SELECT \(keys) FROM \(quoted(child.name)) x WHERE \(child.tableColumn(reference.slot)) IN (\(list))", parents)
    {
      // It goes with its parent, when that is gone.
      if try context.isMarked(child, key) { continue }
      let ref = RowRef(table: child.number, key: key)
      guard rows[ref] == nil else { continue }
      try load(child, key)
      try checkChild(ref, reference)
    }
  }

  private func checkChild(_ ref: RowRef, _ reference: RowPlaces.Reference) throws {
    guard ref.table == reference.child.number, let work = rows[ref], let row = work.timeline.current,
      !row[reference.slot].isNull
    else { return }
    doubted.insert(ref)
    if try isThere(reference, row[reference.slot]) { return }
    note(try culprit(work, reference, row[reference.slot]), .missingParent, ref)
  }

  // MARK: Who is in the way

  func lastSetting(_ slots: [Int], _ timeline: RowTimeline) -> Int64? {
    timeline.steps.last { step in
      switch step.change {
      case .insert: true
      case .update(let news): slots.contains { news[$0] != nil }
      case .delete: false
      }
    }?.seq
  }

  /// The last change of a row that meets `isMeant`.
  func last(_ table: CapturedTable, _ key: Key, _ isMeant: (RowTimeline.Step) -> Bool) throws -> Int64? {
    try load(table, key).timeline.steps.last(where: isMeant)?.seq
  }

  /// Of a reference that was proved in the tables: the last change that set it, else the one that deleted the parent.
  func culprit(_ violation: ReferenceProof.Violation) throws -> Int64? {
    let names = Set(violation.rule.childColumns.map { $0.folded })
    let slots = violation.table.columns.indices.filter { names.contains(violation.table.columns[$0].name.folded) }
    if let setter = lastSetting(slots, try load(violation.table, violation.key).timeline) { return setter }
    guard let parent = violation.rule.capturedParent, violation.rule.parentColumnsAreKey else { return nil }
    return try last(parent, violation.reference) { $0.change.operation == .delete }
  }

  /// Of a row that its table refuses: its last change; of one that another is in the way of, the younger of theirs.
  func culprit(_ ref: RowRef, _ outcome: RowWriter.Outcome?) throws -> Int64? {
    guard let work = rows[ref], let row = work.timeline.current else { return nil }
    if outcome == .invalid { return work.timeline.steps.last { $0.change.operation != .delete }?.seq }
    var found: [Int64] = []
    for unique in work.table.uniques {
      let names = Set(unique.parts.map { $0.name.folded })
      let slots = work.table.columns.indices.filter { names.contains(work.table.columns[$0].name.folded) }
      if let own = lastSetting(slots, work.timeline) { found.append(own) }
      guard slots.count == unique.parts.count else { continue }
      for holder in try holders(of: row, unique, work.table) where holder != work.key {
        if let theirs = lastSetting(slots, try load(work.table, holder).timeline) { found.append(theirs) }
      }
    }
    return found.max()
  }

  /// The keys of the rows that the table has with the unique values of `row`.
  func holders(of row: SlotRow, _ unique: CapturedTable.Unique, _ table: CapturedTable) throws -> [Key] {
    let keys = (0..<table.keyCount).map(table.tableColumn).joined(separator: ", ")
    var values: [Value] = []
    var terms: [String] = []
    for part in unique.parts {
      guard let slot = table.columns.firstIndex(where: { $0.name.folded == part.name.folded }) else {
        return []
      }
      values.append(row[slot])
      terms.append("x.\(quoted(part.name)) COLLATE \(quoted(part.collation)) = ?\(values.count)")
    }
    return try context.connection.rows(
      "SELECT \(keys) FROM \(quoted(table.name)) x WHERE \(terms.joined(separator: " AND "))", values)
  }

  // MARK: Errors

  /// A row of the server's that this device's table does not take.
  ///
  /// - Parameter what: the constraint in SQLite's words.
  static func inconsistent(_ table: String, _ key: Key, _ what: String) -> SalvorError {
    SalvorError(
      .inconsistentDownload,
      "The table \(table) of this device does not take the server's row [\(key.map { "\($0)" }.joined(separator: ", "))]: \(what). Where the schema has this constraint, another program wrote the row at the server: mend it there. Where it has not, the constraint is this device's own: take it out of the table (salvor capture pause and resume), or give it to the schema. Then sync again.",
      context: ["table": table])
  }

  /// Two rows as the server last said them cannot stand side by side: one of them is older than what the server has accepted
  /// since, and the download that says so did not come yet.
  static func outdated(_ table: String, _ key: Key, _ what: String) -> SalvorError {
    SalvorError(
      .cannotStand,
      "The row [\(key.map { "\($0)" }.joined(separator: ", "))] of \(table) cannot be shown as the server last said it: \(what). The server has accepted other changes since. Nothing was changed: synchronize, then do it again.",
      context: ["table": table])
  }

  static func dangling(_ violation: ReferenceProof.Violation) -> SalvorError {
    func text(_ key: Key) -> String { "[\(key.map { "\($0)" }.joined(separator: ", "))]" }
    return SalvorError(
      .inconsistentDownload,
      "The server's row \(text(violation.key)) of \(violation.table.name) references \(text(violation.reference)) of \(violation.rule.parent), which did not come: the server does not have it, it is too large to be sent (server.limits.rowBytesMax; the server's log names the table), or a recovery or repair left it out. Mend it at the server (where it does not have it, PRAGMA foreign_key_check there names such rows: another program wrote with foreign keys off), then sync again.",
      context: ["table": violation.table.name])
  }
}
