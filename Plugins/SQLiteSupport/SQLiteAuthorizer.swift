import CSQLite
import SalvorModel

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

extension SQLiteConnection {
  /// Runs `body` while every statement that is compiled on this connection is asked about; one that is refused fails
  /// with `SQLITE_AUTH`. Statements compiled before are not asked, so use `prepare`, not `cached`, inside.
  public func withAuthorizer<Result>(
    _ allows: @escaping (SQLiteAccess) -> Bool, _ body: () throws -> Result
  ) throws -> Result {
    let box = AuthorizerBox(allows)
    let before = authorizer
    install(box)
    defer { install(before) }
    return try body()
  }

  private func install(_ box: AuthorizerBox?) {
    authorizer = box
    guard let box else {
      sqlite3_set_authorizer(database, nil, nil)
      return
    }
    sqlite3_set_authorizer(database, authorizeAccess, Unmanaged.passUnretained(box).toOpaque())
  }
}

private func authorizeAccess(
  _ box: UnsafeMutableRawPointer?, _ action: Int32, _ first: UnsafePointer<CChar>?, _ second: UnsafePointer<CChar>?,
  _ database: UnsafePointer<CChar>?, _ source: UnsafePointer<CChar>?
) -> Int32 {
  guard let box else { return SQLITE_DENY }
  func text(_ pointer: UnsafePointer<CChar>?) -> String? { pointer.map { String(cString: $0) } }
  let access = SQLiteAccess(
    action: action, first: text(first), second: text(second), database: text(database), source: text(source))
  let authorizer = Unmanaged<AuthorizerBox>.fromOpaque(box).takeUnretainedValue()
  return authorizer.allows(access) ? SQLITE_OK : SQLITE_DENY
}
