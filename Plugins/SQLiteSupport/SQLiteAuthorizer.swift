/// What a statement that is being compiled wants to do: SQLite's action code and its arguments.
public struct SQLiteAccess: Sendable {
  /// `SQLITE_READ`, `SQLITE_INSERT`, … of sqlite3.h.
  public var action: Int32
  /// For reads and writes: the table.
  public var first: String?
  /// For reads and updates: the column.
  public var second: String?
  /// `main`, `temp` or an attached name.
  public var database: String?
  /// The innermost trigger or view that asks; nil for the statement itself.
  public var source: String?
}

final class AuthorizerBox {
  let allows: (SQLiteAccess) -> Bool
  init(_ allows: @escaping (SQLiteAccess) -> Bool) { self.allows = allows }
}
