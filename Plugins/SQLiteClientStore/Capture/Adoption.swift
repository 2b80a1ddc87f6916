import SQLiteSupport
import SalvorStorage

/// Takes rows that no capture has seen: each becomes a queued insert, one with a deleted mark a delete of what the server may
/// have.
struct Adoption {
  private let connection: SQLiteConnection

  init(_ connection: SQLiteConnection) { self.connection = connection }

  /// - Parameter condition: which rows of the table (alias `x`); nil: all.
  /// - Returns: how many.
  func adopt(_ table: CapturedTable, where condition: String? = nil) throws -> Int64 {
    let columns = table.keySlots.map(table.tableColumn).joined(separator: ", ")
    let conditions = [table.hasKey(table.tableColumn), condition ?? ""].filter { !$0.isEmpty }
    let source =
      "FROM \(quoted(table.name)) x" + (conditions.isEmpty ? "" : " WHERE \(conditions.joined(separator: " AND "))")
    let keys = table.keySlots.map { "k\($0)" }.joined(separator: ", ")
    // Before the log has the rows: the condition may ask it.
    if let dirty = table.dirtyFlag {
      try connection.run("INSERT INTO salvor_dirty (t, \(keys)) SELECT \(table.number), \(columns) \(source)")
      try connection.run(
        "UPDATE \(quoted(table.name)) AS x SET \(quoted(dirty)) = 1"
          + (conditions.isEmpty ? "" : " WHERE \(conditions.joined(separator: " AND "))"))
    }
    let isMarked = table.deletedFlag.map { CapturedTable.isSet($0, "x") }
    if let isMarked {
      try connection.run(
        "INSERT INTO salvor_mark (t, \(keys)) SELECT \(table.number), \(columns) \(source) \(conditions.isEmpty ? "WHERE" : "AND") \(isMarked)"
      )
    }
    let operation =
      isMarked.map {
        "CASE WHEN \($0) THEN \(LogOperation.deleteOfNothing.rawValue) ELSE \(LogOperation.insert.rawValue) END"
      } ?? "\(LogOperation.insert.rawValue)"
    try connection.run(
      "INSERT INTO salvor_log (t, op, \(table.logColumns(table.keySlots))) SELECT \(table.number), \(operation), \(columns) \(source)"
    )
    return Int64(connection.changes)
  }
}
