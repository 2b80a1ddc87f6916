import CSQLite
import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

extension SalvorError {
  /// The error of a failed SQLite call. The message has SQLite's own message, its extended code and the SQL text; bound
  /// values are not in it. `context["sqlite"]` is the extended code, `context["sql"]` the text, `context["detail"]` SQLite's
  /// own message.
  ///
  /// - Parameter code: an extended result code.
  static func sqlite(_ code: Int32, _ database: OpaquePointer?, sql: String? = nil, file: String? = nil) -> SalvorError
  {
    let primary = code & 0xff
    var detail = database.flatMap { sqlite3_errmsg($0) }.map { String(cString: $0) } ?? ""
    // After an API misuse, or where SQLite rolled back by itself, the connection's message is of another call.
    if detail.isEmpty || detail == "not an error" { detail = sqlite3_errstr(code).map { String(cString: $0) } ?? "" }
    let systemError = database.map { sqlite3_system_errno($0) } ?? 0
    let noSpace = primary == SQLITE_IOERR && (systemError == ENOSPC || systemError == EDQUOT)
    let (kind, advice) = noSpace ? classification(of: SQLITE_FULL) : classification(of: primary)
    var context = ["sqlite": String(code), "detail": detail]
    if let sql { context["sql"] = sql }
    // Of the file, and not of the statement.
    let isOfFile = primary == SQLITE_CANTOPEN || primary == SQLITE_READONLY
    let name =
      file ?? (isOfFile ? database.flatMap { sqlite3_db_filename($0, "main") }.map { String(cString: $0) } : nil)
    if let name, !name.isEmpty { context["file"] = name }
    let place =
      isOfFile && name?.isEmpty == false
      ? " with \(name ?? "")" : sql.map { " in: \(shortened($0))" } ?? file.map { " for \($0)" } ?? ""
    return SalvorError(kind, "SQLite: \(detail) (code \(code))\(place).\(advice)", context: context)
  }

  /// SQLite's extended result code, where this error came from SQLite.
  public var sqliteCode: Int32? { context["sqlite"].flatMap { Int32($0) } }

  /// SQLite's own message: of a constraint it names the constraint or its columns.
  public var sqliteDetail: String { context["detail"] ?? message }

  /// A UNIQUE, PRIMARY KEY, NOT NULL, CHECK or FOREIGN KEY constraint refused the statement, or a trigger's RAISE did.
  public var isConstraintViolation: Bool { sqliteCode.map { $0 & 0xff == SQLITE_CONSTRAINT } ?? false }
}

private func classification(of primary: Int32) -> (ErrorCode, String) {
  switch primary {
  case SQLITE_FULL: (.storageFull, " The disk is full: free some space and try again; nothing was lost.")
  // PROTOCOL: a lock of the write-ahead log that stayed with another connection for all of SQLite's tries.
  case SQLITE_BUSY, SQLITE_LOCKED, SQLITE_PROTOCOL:
    (.storageBusy, " Another connection holds the database: try again, or end its transaction.")
  case SQLITE_CORRUPT, SQLITE_NOTADB:
    (.storageCorrupt, " The file is damaged or not a SQLite database: restore it from a copy, or recover.")
  case SQLITE_INTERRUPT: (.cancelled, " The operation was interrupted.")
  case SQLITE_TOOBIG: (.tooLarge, " A value is longer than SQLite allows.")
  case SQLITE_CANTOPEN: (.storage, " Check that the directory exists and may be written.")
  case SQLITE_READONLY: (.storage, " Check the permissions of the file and its directory.")
  case SQLITE_IOERR: (.storage, " Check the disk and the file's permissions.")
  default: (.storage, "")
  }
}

private func shortened(_ sql: String) -> String {
  let limit = 600
  return sql.utf8.count <= limit ? sql : String(sql.prefix(limit)) + "…"
}
