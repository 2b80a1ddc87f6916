import CSQLite

/// The application's own way to SQLite, as any library would have it: Salvor knows nothing of it.
final class Database {
  struct Failure: Error, CustomStringConvertible { var description: String }

  private let handle: OpaquePointer

  init(_ path: String) throws {
    var opened: OpaquePointer?
    guard sqlite3_open(path, &opened) == SQLITE_OK, let opened else {
      throw Failure(description: "\(path) does not open.")
    }
    handle = opened
    // Salvor writes to the same file now and then: wait for it.
    sqlite3_busy_timeout(handle, 30_000)
    try run("PRAGMA foreign_keys = ON")
  }

  deinit { sqlite3_close(handle) }

  /// Runs one statement; its rows as texts.
  @discardableResult
  func run(_ statement: String, _ values: String...) throws -> [[String]] {
    var prepared: OpaquePointer?
    guard sqlite3_prepare_v2(handle, statement, -1, &prepared, nil) == SQLITE_OK else { throw failure }
    defer { sqlite3_finalize(prepared) }
    let copied = unsafeBitCast(-1, to: sqlite3_destructor_type.self)
    for (place, value) in values.enumerated() { sqlite3_bind_text(prepared, Int32(place + 1), value, -1, copied) }
    var rows: [[String]] = []
    while true {
      switch sqlite3_step(prepared) {
      case SQLITE_ROW:
        rows.append(
          (0..<sqlite3_column_count(prepared)).map { column in
            sqlite3_column_text(prepared, column).map { String(cString: $0) } ?? ""
          })
      case SQLITE_DONE: return rows
      default: throw failure
      }
    }
  }

  private var failure: Failure { Failure(description: String(cString: sqlite3_errmsg(handle))) }
}
