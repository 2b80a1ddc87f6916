import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Files of format 1, whose log was written again whenever a base changed: its old values were the base's, three operations
/// said what the base was, and what a change had seen stood beside it. Now the log says what was seen, and `StoredRow` the rest.
struct FormerLog {
  let context: StoreContext
  private var connection: SQLiteConnection { context.connection }

  /// Over a row that the base had; a delete of what it had not, and one of those that is joined to the next change.
  private enum Operation: Int64 {
    case insertOverRow = 7
    case deleteOfNothing = 8
    case joinedDeleteOfNothing = 9
  }
  private static let operations = "(7, 8, 9)"
  private static let changeOperations = "(1, 2, 3, 6, 7, 8, 9, 10, 11)"

  /// In a transaction.
  func bringOver() throws {
    let sawApart = try connection.tableShape("salvor_seen") != nil
    let keyWidth = max(1, context.catalog.tables.map(\.keyCount).max() ?? 1)
    let keys = (0..<keyWidth).map { "v\($0)" }.joined(separator: ", ")
    let seen = sawApart ? " OR seq IN (SELECT seq FROM salvor_seen)" : ""
    let rows = try connection.rows(
      "SELECT DISTINCT t, \(keys) FROM salvor_log WHERE op IN \(Self.operations)\(seen) ORDER BY t, \(keys)")
    if !rows.isEmpty {
      try connection.execute("CREATE INDEX salvor_former ON salvor_log (t, v0)")
      // A table with a shorter key comes with what its other columns had.
      var done: Set<RowRef> = []
      for row in rows {
        guard let table = row[0].integer.flatMap({ context.catalog.table(number: $0) }) else { continue }
        let key = Array(row[1...].prefix(table.keyCount))
        if done.insert(RowRef(table: table.number, key: key)).inserted { try bringOver(table, key, sawApart) }
      }
      // Of tables that are not there, and of rows that their changes do not fit: those are mended as such.
      try connection.execute(
        """
        UPDATE salvor_log SET m0 = CASE op WHEN 7 THEN NULL ELSE 1 END, op = CASE op WHEN 7 THEN 1 WHEN 8 THEN 3 ELSE 6 END
          WHERE op IN \(Self.operations);
        DROP INDEX salvor_former;
        """)
      try context.noteLogChange()
    }
    if sawApart { try connection.execute("DROP TABLE salvor_seen") }
  }

  private func bringOver(_ table: CapturedTable, _ key: Key, _ sawApart: Bool) throws {
    let isRow = table.keySlots.map { "v\($0) IS ?\($0 + 2)" }.joined(separator: " AND ")
    let masks = (0..<table.maskCount).map { "m\($0)" }.joined(separator: ", ")
    let rows = try connection.rows(
      "SELECT seq, op, \(masks), \(table.logColumns(table.columns.indices)) FROM salvor_log WHERE t = ?1 AND \(isRow) AND op IN \(Self.changeOperations) ORDER BY seq DESC",
      [.integer(table.number)] + key)
    var state: SlotRow?
    do { state = try current(table, key) } catch { return }
    var steps: [RowTimeline.Step] = []
    var entries: [LogEntry] = []
    for row in rows {
      guard let seq = row[0].integer, let code = row[1].integer else { return }
      let mask = LogMask(words: row[2..<(2 + table.maskCount)].map { $0.integer ?? 0 })
      let former = Operation(rawValue: code)
      var entry = LogEntry(
        seq: seq, table: table.number, operation: LogOperation(rawValue: code) ?? .insert, mask: mask,
        values: Array(row[(2 + table.maskCount)...]))
      let after = state
      switch former {
      case .insertOverRow:
        state = entry.values
        entry.values = key + Array(repeating: .null, count: table.columns.count - table.keyCount)
      case .deleteOfNothing, .joinedDeleteOfNothing:
        entry.operation = former == .deleteOfNothing ? .delete : .joinedDelete
        entry.mask = .nothing
      case nil:
        if entry.operation.isUpdate {
          guard var row = state else { return }
          for slot in mask.slots(below: row.count) { row[slot] = entry.values[slot] }
          state = row
        } else {
          state = entry.operation.isDelete ? entry.values : nil
        }
      }
      if (after != nil) == entry.operation.isDelete { return }
      if sawApart { try takeSeen(&entry, table) }
      let change: RowChange
      switch entry.operation {
      case .insert: change = .insert(after ?? [])
      case .delete, .joinedDelete, .cascadedDelete: change = .delete
      default:
        change = .update(
          Dictionary(uniqueKeysWithValues: mask.slots(below: table.columns.count).map { ($0, after?[$0] ?? .null) }))
      }
      entries.append(entry)
      steps.insert(
        RowTimeline.Step(
          seq: seq, change: change, isJoined: entry.operation.isJoined, before: state, after: after, saw: entry.saw),
        at: 0)
    }
    try context.writeLog(entries)
    try context.store(RowTimeline(base: state, steps: steps), table, key)
  }

  /// The row that the changes lead to: while capture is paused the one that was kept aside.
  private func current(_ table: CapturedTable, _ key: Key) throws -> SlotRow? {
    guard try connection.pausedSince() != nil else { return try context.currentRow(table, key) }
    let isRow = table.keySlots.map { "v\($0) IS ?\($0 + 1)" }.joined(separator: " AND ")
    let values = table.logColumns(table.columns.indices)
    return try connection.rows("SELECT \(values) FROM salvor_paused_\(table.number) WHERE \(isRow)", key).first
  }

  private func takeSeen(_ entry: inout LogEntry, _ table: CapturedTable) throws {
    guard
      let text = try connection.scalar("SELECT before FROM salvor_seen WHERE seq = ?1", .integer(entry.seq))
    else { return }
    let values = try unpayload(text)
    if entry.operation.isUpdate {
      for (slot, value) in zip(entry.mask.slots(below: table.columns.count), values) { entry.values[slot] = value }
    } else if entry.operation.isDelete {
      entry.mask = LogMask(words: [])
      // A column that was added since was not put into it.
      entry.values = context.padded(values, table)
    }
  }
}
