import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Finds rows whose changes were captured in another order than they were made (`UnfitRows`), mends them, and lets their
/// tables be compared.
struct CaptureOrder {
  let context: StoreContext

  /// Of what was captured since requests were sorted last. In a transaction; answers what a person should know, by table.
  func mend() throws -> [String] {
    let connection = context.connection
    let done = try connection.state(.rangesUpTo)?.integer ?? 0
    guard try connection.lastCounter() > done else { return [] }
    for table in context.catalog.tables { try CaptureCatalog.logRemoved(table, on: connection) }
    // A trigger does not set the column of what the application's triggers write while it sets another row's.
    for table in context.catalog.tables { try context.noteDirty(table, after: done, onlyClean: true) }
    let last = try connection.lastCounter()
    let unknown = try rows(with: isDoubt, after: done)
    let doubtful = try unknown + doubtfulRows(after: done)
    guard !doubtful.isEmpty else { return [] }
    let index = try LogIndex(context)
    var counts: [Int64: Int] = [:]
    for (table, key) in unknown {
      // Whether the row was made or replaced the comparison tells; what was captured before goes on from the row as it is.
      let all = try index.entries(table, key)
      let entries = all.filter { $0.seq > done }
      if entries.count < all.count {
        try UnfitRows(context: context).cut(entries, key: key, table, areAll: false)
      } else {
        for entry in entries { try context.deleteChange(entry.seq) }
      }
      counts[table.number, default: 0] += 1
    }
    for (table, key) in doubtful.dropFirst(unknown.count) {
      let entries = try index.entries(table, key).filter { $0.seq > done }
      let row = try context.currentRow(table, key)
      if (try? RowTimeline(current: row, entries: entries, table: table)) != nil { continue }
      try UnfitRows(context: context).cut(entries, key: key, table, areAll: false)
      counts[table.number, default: 0] += 1
    }
    let tables = context.catalog.tables.filter { counts[$0.number] != nil }
    guard !tables.isEmpty else { return [] }
    try context.keepCounter(last)
    try context.noteLogChange()
    try UnprovenTables(context).mark(tables.map(\.name))
    return tables.map { table in
      "\(table.name): a trigger of the application's wrote to \(counts[table.number] ?? 0) rows before the change that fired it was captured. Each such row's changes are one now, and the table is compared with the server. Make such triggers as plain ones, not TEMP ones; Salvor's are newer than them from its next look on."
    }
  }

  /// An update of no column: `TriggerParts.logDoubt`.
  private var isDoubt: String {
    let masks = (0..<context.catalog.maskCount).map { "ifnull(m\($0), 0) = 0" }
    return "op = \(LogOperation.update.rawValue) AND " + masks.joined(separator: " AND ")
  }

  private func rows(with condition: String, after done: Int64) throws -> [(CapturedTable, Key)] {
    try context.connection.rows(
      "SELECT DISTINCT t, \((0..<context.catalog.valueCount).map { "v\($0)" }.joined(separator: ", ")) FROM salvor_log WHERE seq > ?1 AND \(condition)",
      .integer(done)
    ).compactMap { row in
      row[0].integer.flatMap { context.catalog.table(number: $0) }.map { ($0, Array(row[1...].prefix($0.keyCount))) }
    }
  }

  /// Rows whose changes may stand in another order than they were made: those with several, and an insert that is not the
  /// first or a delete that is not the last.
  private func doubtfulRows(after done: Int64) throws -> [(CapturedTable, Key)] {
    var found: [(CapturedTable, Key)] = []
    let isDelete =
      "op IN (\(LogOperation.delete.rawValue), \(LogOperation.joinedDelete.rawValue), \(LogOperation.cascadedDelete.rawValue))"
    let isInsert = "op = \(LogOperation.insert.rawValue)"
    guard try mayHaveSeveral(after: done, with: "\(isInsert) OR \(isDelete)") else { return [] }
    for (count, tables) in Dictionary(grouping: context.catalog.tables, by: \.keyCount) {
      let keys = (0..<count).map { "v\($0)" }.joined(separator: ", ")
      let types = (0..<count).map { "typeof(v\($0))" }.joined(separator: ", ")
      let numbers = tables.map { "\($0.number)" }.joined(separator: ", ")
      let rows = try context.connection.rows(
        """
        SELECT t, \(keys) FROM salvor_log WHERE seq > ?1 AND t IN (\(numbers)) AND op IN \(StoreContext.changeOperations)
        GROUP BY t, \(keys), \(types) HAVING count(*) > 1 AND max(\(isInsert) OR \(isDelete))
          AND NOT (sum(\(isDelete)) = 0 AND sum(\(isInsert)) = 1 AND min(CASE WHEN \(isInsert) THEN seq END) = min(seq))
          AND NOT (sum(\(isInsert)) = 0 AND sum(\(isDelete)) = 1 AND max(CASE WHEN \(isDelete) THEN seq END) = max(seq))
        """, .integer(done))
      for row in rows {
        guard let table = row[0].integer.flatMap({ context.catalog.table(number: $0) }) else { continue }
        found.append((table, Array(row[1...])))
      }
    }
    return found
  }

  /// False for nearly every log: no row has several changes, or there are updates alone. To sort all rows costs much more than to
  /// look for that.
  private func mayHaveSeveral(after done: Int64, with condition: String) throws -> Bool {
    let connection = context.connection
    let anySuch = "SELECT 1 FROM salvor_log WHERE seq > ?1 AND (\(condition)) LIMIT 1"
    guard try connection.integer(anySuch, .integer(done)) != nil else { return false }
    var seen = RowSketch(rows: try connection.lastCounter() - done)
    var isRepeated = false
    try context.eachChangedRow(after: done) { hash, _ in
      if seen.insert(hash) { isRepeated = true }
      return !isRepeated
    }
    return isRepeated
  }
}
