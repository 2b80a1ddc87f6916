import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Takes rows that no capture has seen: each becomes a queued insert; one with a deleted mark a delete of what the server may
/// have, with all that is below it.
struct Adoption {
  /// A table whose rows are taken.
  struct Subject {
    var table: CapturedTable
    /// Whether the log has the row (alias `x`): then it is none of these. `0`: it has none.
    var isLogged = "0"

    fileprivate var condition: String {
      let key = table.hasKey(table.tableColumn)
      return "NOT \(isLogged)" + (key.isEmpty ? "" : " AND \(key)")
    }
    fileprivate var rows: String { "\(quoted(table.name)) x WHERE \(condition)" }
    fileprivate var columns: String { table.keySlots.map(table.tableColumn).joined(separator: ", ") }
    fileprivate var keys: String { table.keySlots.map { "k\($0)" }.joined(separator: ", ") }
  }

  private let connection: SQLiteConnection

  init(_ connection: SQLiteConnection) { self.connection = connection }

  /// - Parameter subjects: parents first.
  /// - Returns: how many rows.
  func adopt(_ subjects: [Subject]) throws -> Int64 {
    let start = try connection.lastCounter()
    for subject in subjects { try setDirty(subject) }
    let spreading = MarkSpreading(
      connection, isLogged: Dictionary(uniqueKeysWithValues: subjects.map { ($0.table.number, $0.isLogged) }))
    // A child's delete goes before its parent's, a parent's insert before its child's.
    for subject in subjects.reversed() { try adoptMarked(subject, spreading, after: start) }
    for subject in subjects {
      try log(.insert, subject, where: subject.condition + subject.table.andUnmarked())
    }
    return try connection.integer("SELECT count(*) FROM salvor_log WHERE seq > ?1", .integer(start)) ?? 0
  }

  /// Before the log has the rows: the condition may ask it.
  private func setDirty(_ subject: Subject) throws {
    guard let dirty = subject.table.dirtyFlag else { return }
    try connection.run(
      "INSERT INTO salvor_dirty (t, \(subject.keys)) SELECT \(subject.table.number), \(subject.columns) FROM \(subject.rows)"
    )
    try connection.run(
      "UPDATE \(quoted(subject.table.name)) AS x SET \(quoted(dirty)) = 1 WHERE \(subject.condition)")
  }

  private func adoptMarked(_ subject: Subject, _ spreading: MarkSpreading, after start: Int64) throws {
    let table = subject.table
    guard let deleted = table.deletedFlag else { return }
    let isMarked = CapturedTable.isSet(deleted, "x")
    if !table.descent.isEmpty {
      let slots = table.keySlots.map { "?\($0 + 1)" }.joined(separator: ", ")
      for key in try connection.rows(
        "SELECT \(subject.columns) FROM \(subject.rows) AND \(isMarked) AND \(MarkSpreading.hasRowsBelow(table))")
      {
        try spreading.take(table, key) {
          try connection.run(
            "INSERT INTO salvor_log (t, op, m0, \(table.logColumns(table.keySlots))) VALUES (\(table.number), \(LogOperation.delete.rawValue), 1, \(slots))",
            key)
        }
      }
    }
    // Those that have nothing below, or nothing that is not marked itself.
    let isTaken = table.keySlots.map { "s.k\($0) = \(table.tableColumn($0))" }.joined(separator: " AND ")
    let rest =
      "\(subject.condition) AND \(isMarked) AND NOT EXISTS (SELECT 1 FROM salvor_mark s WHERE s.t = \(table.number) AND \(isTaken) AND s.seq > \(start))"
    try log(.delete, subject, where: rest)
    try connection.run(
      "INSERT INTO salvor_mark (t, \(subject.keys)) SELECT \(table.number), \(subject.columns) FROM \(quoted(table.name)) x WHERE \(rest)"
    )
  }

  /// No base has the rows.
  private func log(_ operation: LogOperation, _ subject: Subject, where condition: String) throws {
    let mask = operation == .delete ? "1" : "NULL"
    try connection.run(
      "INSERT INTO salvor_log (t, op, m0, \(subject.table.logColumns(subject.table.keySlots))) SELECT \(subject.table.number), \(operation.rawValue), \(mask), \(subject.columns) "
        + "FROM \(quoted(subject.table.name)) x WHERE \(condition)")
  }
}
