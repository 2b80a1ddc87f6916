import SQLiteSupport
import SalvorModel
import SalvorStorage

/// A column that the schema has dropped: what waits in it goes to the archive, its slot closes, and the column goes. What
/// requests change besides stays.
struct DroppedColumn {
  let context: StoreContext
  let table: Table
  let column: String
  private var connection: SQLiteConnection { context.connection }

  /// Takes the column out of what is known, while it is still in its table: `dropColumn` takes it from there, when all columns that are
  /// dropped are out.
  ///
  /// - Returns: what a person should know.
  func drop(_ archive: inout SchemaArchive) throws -> [String] {
    let before = archive.count
    if let captured = context.catalog.table(table.name),
      let slot = captured.columns.firstIndex(where: { $0.name.folded == column.folded })
    {
      // The key stays what it is: the comparison refuses such a schema by name.
      guard slot >= captured.keyCount else { return [] }
      let retired = try retire(captured)
      try keepWaiting(captured, slot, retired, &archive)
      for memory in ["salvor_archive", "salvor_kept"] {
        try keepRemembered(memory, captured, slot, retired, &archive)
      }
      try rememberAcknowledged(captured, slot, retired, &archive)
      try closeOffers(captured, slot, retired, &archive)
      try closeSlot(captured, slot)
    }
    var notices: [String] = []
    if archive.count > before {
      notices.append(
        "\(table.name).\(column) was dropped from the schema: \(archive.count - before) waiting values are in the archive."
      )
    }
    return notices
  }

  private var message: String { "The column \(table.name).\(column) was dropped from the schema." }

  /// A table that the archive's entries belong to: with the slots as they were.
  private func retire(_ captured: CapturedTable) throws -> CapturedTable {
    let number =
      try connection.integer(
        "SELECT 1 + max(coalesce((SELECT max(id) FROM salvor_table), 0), coalesce((SELECT max(t) FROM salvor_column), 0))"
      )
      ?? 1
    try connection.run(
      "INSERT INTO salvor_retired_table (id, name, keys) VALUES (?1, ?2, ?3)", .integer(number), .text(table.name),
      .integer(Int64(captured.keyCount)))
    try connection.run(
      "INSERT INTO salvor_column (t, slot, name) SELECT ?1, slot, name FROM salvor_column WHERE t = ?2",
      .integer(number), .integer(captured.number))
    return CapturedTable(
      retired: number, name: table.name, slots: captured.columns.map(\.name), keyCount: captured.keyCount)
  }

  private func step(_ value: Value, _ slot: Int, before: SlotRow?) -> RowTimeline.Step {
    RowTimeline.Step(seq: 0, change: .update([slot: value]), isJoined: false, before: before, after: nil)
  }

  // MARK: The log

  private func keepWaiting(
    _ captured: CapturedTable, _ slot: Int, _ retired: CapturedTable, _ archive: inout SchemaArchive
  ) throws {
    let index = try LogIndex(context)
    var gone: [Int64] = []
    var values: [(seq: Int64, key: Key, step: RowTimeline.Step)] = []
    try index.eachRow(of: captured) { key in
      for change in try index.timeline(captured, key).steps {
        switch change.change {
        case .insert(let row) where !row[slot].isNull:
          values.append((change.seq, key, step(row[slot], slot, before: nil)))
        case .update(let news):
          guard let value = news[slot] else { break }
          values.append((change.seq, key, step(value, slot, before: change.saw)))
          if news.count == 1 { gone.append(change.seq) }
        case .insert, .delete: break
        }
      }
    }
    for value in values.sorted(by: { $0.seq < $1.seq }) {
      try archive.keep(value.step, retired, value.key, message, context)
    }
    try context.takeOut(gone)
  }

  // MARK: The archive, and what the server keeps

  /// Of `salvor_archive`, or of `salvor_kept`: a server that is put back may lose what it keeps beside its rows, and has no place for this value
  /// then.
  private func keepRemembered(
    _ memory: String, _ captured: CapturedTable, _ slot: Int, _ retired: CapturedTable, _ archive: inout SchemaArchive
  ) throws {
    let isArchive = memory == "salvor_archive"
    for row in try connection.rows(
      "SELECT seq, slots, key, before, after, op, first, \(isArchive ? "whole" : "withheld") FROM \(memory) WHERE t = ?1 ORDER BY seq",
      .integer(captured.number))
    {
      var slots = (row[1].string ?? "").split(separator: ",").compactMap { Int($0) }
      var before = try unpayload(row[3])
      var after = try unpayload(row[4])
      if let place = slots.firstIndex(of: slot) {
        // A version that is withheld is an entry of the archive, too.
        let isEntryToo = !isArchive && row[7] != .null
        if place < after.count, !isEntryToo, !after[place].isNull || row[5].string == Operation.update.rawValue {
          let old = place < before.count ? before[place] : .null
          var seen = SlotRow(repeating: .null, count: captured.columns.count)
          seen[slot] = old
          try archive.keep(step(after[place], slot, before: seen), retired, try unpayload(row[2]), message, context)
        }
        slots.remove(at: place)
        if place < before.count { before.remove(at: place) }
        if place < after.count { after.remove(at: place) }
        if slots.isEmpty {
          if isArchive {
            try context.takeFromArchive(seq: row[0].integer ?? 0, of: row[6].integer ?? 0)
          } else {
            try connection.run("DELETE FROM salvor_kept WHERE seq = ?1", row[0])
          }
          continue
        }
      }
      let text = slots.map { String($0 > slot ? $0 - 1 : $0) }.joined(separator: ",")
      guard isArchive else {
        try connection.run(
          "UPDATE salvor_kept SET slots = ?2, before = ?3, after = ?4 WHERE seq = ?1", row[0], .text(text),
          .text(payload(before)), .text(payload(after)))
        continue
      }
      let shown = [before, after].map { context.shown($0, slots, captured) }
      var whole = try unpayload(row[7])
      if slot < whole.count { whole.remove(at: slot) }
      try connection.run(
        "UPDATE salvor_archive SET slots = ?2, before = ?3, after = ?4, shown_before = ?5, shown_after = ?6, whole = ?7 WHERE seq = ?1",
        row[0], .text(text), .text(payload(before)), .text(payload(after)), shown[0], shown[1],
        row[7] == .null ? .null : .text(payload(whole)))
    }
  }

  /// What the server has acknowledged in the column, of rows that this device wrote: nobody knows yet whether the server, which may have been put
  /// back, still has it. It is remembered as long as the versions of its rows are.
  private func rememberAcknowledged(
    _ captured: CapturedTable, _ slot: Int, _ retired: CapturedTable, _ archive: inout SchemaArchive
  ) throws {
    let index = try LogIndex(context)
    let keys = captured.keySlots.map { "v\($0)" }.joined(separator: ", ")
    for row in try connection.rows(
      "SELECT max(version), \(keys) FROM salvor_history WHERE t = ?1 GROUP BY \(keys) HAVING max(own AND deleted = 0)",
      .integer(captured.number))
    {
      let key = Array(row[1...])
      guard let value = try index.timeline(captured, key).base?[slot], !value.isNull else { continue }
      try context.remember(
        DroppedValue(seq: archive.next(), table: retired, key: key, slot: slot, value: value),
        number: row[0].integer ?? 0)
    }
  }

  /// What offers say of the columns that requests have written besides. What the server had acknowledged there, and has lost, is in no row.
  private func closeOffers(
    _ captured: CapturedTable, _ slot: Int, _ retired: CapturedTable, _ archive: inout SchemaArchive
  ) throws {
    for row in try connection.rows(
      """
      SELECT seq, written, was FROM salvor_offer o WHERE written IS NOT NULL
        AND (EXISTS (SELECT 1 FROM salvor_log l WHERE l.seq = o.seq AND l.t = ?1)
          OR EXISTS (SELECT 1 FROM salvor_archive a WHERE a.seq = o.seq AND a.t = ?1))
      """, .integer(captured.number))
    {
      var written = (row[1].string ?? "").split(separator: ",").compactMap { Int($0) }
      var was = try row[2] == .null ? [] : unpayload(row[2])
      if let place = written.firstIndex(of: slot) {
        written.remove(at: place)
        if place < was.count {
          let value = was.remove(at: place)
          if !value.isNull, let key = try key(of: row[0].integer ?? 0, captured) {
            try archive.keep(
              step(value, slot, before: nil), retired, key,
              "The server acknowledged this value and has lost it. \(message)", context, reason: "lost-on-server")
          }
        }
      }
      if try written.isEmpty && isUpdate(row[0]) {
        // Nothing is left of what was made upon the version.
        try connection.run("DELETE FROM salvor_offer WHERE seq = ?1", row[0])
        continue
      }
      let text = written.map { String($0 > slot ? $0 - 1 : $0) }.joined(separator: ",")
      try connection.run(
        "UPDATE salvor_offer SET written = ?2, was = ?3 WHERE seq = ?1", row[0],
        written.isEmpty ? .null : .text(text), was.isEmpty ? .null : .text(payload(was)))
    }
  }

  private func isUpdate(_ seq: Value) throws -> Bool {
    try connection.integer(
      "SELECT 1 WHERE EXISTS (SELECT 1 FROM salvor_log WHERE seq = ?1 AND op IN \(StoreContext.updateOperations)) OR EXISTS (SELECT 1 FROM salvor_archive WHERE seq = ?1 AND op = 'update')",
      seq) != nil
  }

  /// The row of an offer, in the log or in the archive.
  private func key(of seq: Int64, _ captured: CapturedTable) throws -> Key? {
    let keys = captured.keySlots.map { "v\($0)" }.joined(separator: ", ")
    if let key = try connection.rows("SELECT \(keys) FROM salvor_log WHERE seq = ?1", .integer(seq)).first {
      return key
    }
    return try connection.rows("SELECT key FROM salvor_archive WHERE seq = ?1", .integer(seq)).first.map {
      try unpayload($0[0])
    }
  }

  // MARK: The slot

  /// The slots after it move up by one, in the log and what belongs to it.
  private func closeSlot(_ captured: CapturedTable, _ slot: Int) throws {
    let count = captured.columns.count
    var sets = (slot..<count).map { "v\($0) = " + ($0 + 1 < count ? "v\($0 + 1)" : "NULL") }
    let bits = LogMask.bitsPerColumn
    for word in (slot / bits)..<captured.maskCount {
      let low = word == slot / bits ? slot % bits : 0
      let kept = "(coalesce(m\(word), 0) & \((Int64(1) << Int64(low)) - 1))"
      let moved = "((coalesce(m\(word), 0) >> \(low + 1)) << \(low))"
      let carried = word + 1 < captured.maskCount ? " | ((coalesce(m\(word + 1), 0) & 1) << \(bits - 1))" : ""
      sets.append("m\(word) = \(kept) | \(moved)\(carried)")
    }
    let values = sets.filter { $0.hasPrefix("v") }.joined(separator: ", ")
    let masks = sets.filter { $0.hasPrefix("m") }.joined(separator: ", ")
    for table in ["salvor_log", "salvor_value", "salvor_base"] {
      try connection.run("UPDATE \(table) SET \(values) WHERE t = ?1", .integer(captured.number))
    }
    for (table, condition) in [("salvor_log", "op IN \(StoreContext.updateOperations)"), ("salvor_value", "1")] {
      try connection.run("UPDATE \(table) SET \(masks) WHERE t = ?1 AND \(condition)", .integer(captured.number))
    }
    try connection.run(
      "DELETE FROM salvor_column WHERE t = ?1 AND slot = ?2", .integer(captured.number), .integer(Int64(slot)))
    try connection.closePausedSlot(captured.number, slot, of: count)
    // One step over the others: they would meet on the way.
    try connection.run(
      "UPDATE salvor_column SET slot = -slot WHERE t = ?1 AND slot > ?2", .integer(captured.number),
      .integer(Int64(slot)))
    try connection.run(
      "UPDATE salvor_column SET slot = -slot - 1 WHERE t = ?1 AND slot < 0", .integer(captured.number))
  }

  // MARK: The table

  /// A column that SQLite does not take out by itself (a key, a constraint, an index or a trigger names it) goes when the
  /// table is made anew, and all others that are dropped with it.
  ///
  /// - Returns: what a person should know.
  func dropColumn() throws -> [String] {
    guard try connection.tableShape(table.name)?.column(column) != nil else { return [] }
    connection.clearStatementCache()
    do {
      try connection.savepoint("salvor_column") {
        try connection.execute("ALTER TABLE \(quoted(table.name)) DROP COLUMN \(quoted(column))")
      }
      return []
    } catch let error as SalvorError where error.code == .storage {
      return try context.rebuild(table)
    }
  }
}
