import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Deleted marks that no trigger saw being set: in a database from before, while the triggers were away, or while capture was
/// paused (semantics 3). The deletes are logged as if each mark had been set just now: those of the rows below first, joined to
/// the marked row's own, and the rows below get the mark or go.
///
/// In a transaction, with triggers off.
struct MarkSpreading {
  private let connection: SQLiteConnection
  /// As `TriggerParts.spreading` takes it.
  private let isLogged: [Int64: String]

  init(_ connection: SQLiteConnection, isLogged: [Int64: String] = [:]) {
    self.connection = connection
    self.isLogged = isLogged
  }

  /// - Parameter log: logs the delete of the row itself, as the log's next row.
  func take(_ table: CapturedTable, _ key: Key, log: () throws -> Void) throws {
    let parts = TriggerParts(table) { "?\($0 + 1)" }
    let spreading = parts.spreading(isLogged: isLogged)
    for statement in spreading.log { try connection.run(statement, key) }
    try log()
    if table.dirtyFlag != nil {
      let keys = table.keySlots.map { "k\($0)" }.joined(separator: ", ")
      let slots = table.keySlots.map { "?\($0 + 1)" }.joined(separator: ", ")
      try connection.run("INSERT INTO salvor_dirty (t, \(keys)) VALUES (\(table.number), \(slots))", key)
    }
    for statement in parts.dirtyBelow + spreading.mark { try connection.run(statement, key) }
  }

  /// An expression: a row of the table (alias `x`) has rows below that are not deleted yet.
  static func hasRowsBelow(_ table: CapturedTable) -> String {
    let terms = table.descent.flatMap { step in
      step.links.filter { $0.parent == table.number }.map { link in
        "EXISTS (SELECT 1 FROM \(quoted(step.table.name)) b WHERE b.\(quoted(step.table.columns[link.slot].name)) = \(table.tableColumn(0))\(step.table.andUnmarked("b")))"
      }
    }
    return terms.isEmpty ? "0" : "(\(terms.joined(separator: " OR ")))"
  }

  /// Rows that came with a mark while nobody looked are none: they go with the next look (`MarkedRows`).
  ///
  /// - Parameter condition: which rows of the table (alias `x`).
  func noteUnknown(_ table: CapturedTable, where condition: String = "1") throws {
    guard let deleted = table.deletedFlag else { return }
    let keys = table.keySlots.map { "k\($0)" }.joined(separator: ", ")
    let columns = table.keySlots.map(table.tableColumn).joined(separator: ", ")
    let known = table.keySlots.map { "s.k\($0) = \(table.tableColumn($0))" }.joined(separator: " AND ")
    try connection.run(
      "INSERT INTO salvor_mark (t, \(keys)) SELECT \(table.number), \(columns) FROM \(quoted(table.name)) x "
        + "WHERE \(CapturedTable.isSet(deleted, "x"))\(table.andHasKey(table.tableColumn)) AND \(condition) "
        + "AND NOT EXISTS (SELECT 1 FROM salvor_mark s WHERE s.t = \(table.number) AND \(known))")
  }
}
