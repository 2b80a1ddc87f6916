import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The application on a device: it writes the source's transactions with plain SQL.
final class EditHistoryApplication {
  private struct Shape: Hashable {
    var table: Int
    var operation: SalvorModel.Operation
    var columns: [Int]
  }

  private let history: EditHistory
  private var statements: [Shape: String] = [:]

  init(_ history: EditHistory) { self.history = history }

  /// A request's tag: transaction and writer.
  static func tag(_ transaction: Int, writer: String) -> String { "tx \(transaction) \(writer)" }

  /// Each transaction is one request.
  func write(_ transactions: [EditHistory.Transaction], to connection: SQLiteConnection) throws {
    for transaction in transactions {
      try connection.transaction(.immediate) {
        try connection.run(
          "INSERT INTO salvor_request(tag) VALUES (?)", .text(Self.tag(transaction.number, writer: transaction.writer)))
        for change in transaction.changes { try write(change, to: connection) }
        try connection.run("DELETE FROM salvor_request")
      }
    }
  }

  private func write(_ change: EditHistory.Change, to connection: SQLiteConnection) throws {
    let table = history.rows.tables[change.row]
    let key = history.rows.keys[change.row]
    switch change.operation {
    case .insert:
      guard let row = change.applied(to: nil, history) else { return }
      try connection.run(statement(Shape(table: table, operation: .insert, columns: [])), row)
    case .update:
      guard !change.columns.isEmpty else { return }
      try connection.run(
        statement(Shape(table: table, operation: .update, columns: change.columns)), change.values + key)
    case .delete: try connection.run(statement(Shape(table: table, operation: .delete, columns: [])), key)
    }
  }

  private func statement(_ shape: Shape) -> String {
    if let sql = statements[shape] { return sql }
    let table = history.tables[shape.table]
    let name = quoted(table.name)
    let isKey = table.primaryKey.map { "\(quoted($0)) = ?" }.joined(separator: " AND ")
    let sql =
      switch shape.operation {
      case .insert:
        // An insert replaces the row: in place, so that its key stays the same row.
        """
        INSERT INTO \(name)(\(quotedList(table.columns.map(\.name))))
        VALUES (\(table.columns.map { _ in "?" }.joined(separator: ", ")))
        ON CONFLICT(\(quotedList(table.primaryKey))) DO UPDATE SET
        \(table.columns.map { "\(quoted($0.name)) = excluded.\(quoted($0.name))" }.joined(separator: ", "))
        """
      case .update:
        """
        UPDATE \(name) SET \(shape.columns.map { "\(quoted(table.columns[$0].name)) = ?" }.joined(separator: ", "))
        WHERE \(isKey)
        """
      case .delete: "DELETE FROM \(name) WHERE \(isKey)"
      }
    statements[shape] = sql
    return sql
  }
}
