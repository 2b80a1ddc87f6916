import CSQLite

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
