import CSQLite
import SalvorModel

/// Records what a connection changes, row by row, with SQLite's session extension: before-images that put it back.
///
/// Only tables with a PRIMARY KEY are recorded, of rows whose key is not NULL; no change of the schema is. Old values are
/// held in memory until the recorder goes.
public final class SQLiteChangeRecorder {
  private var session: OpaquePointer?
  private let connection: SQLiteConnection
  private let skipped: SkippedTables

  /// - Parameter skipping: tables that are not recorded.
  public init(_ connection: SQLiteConnection, skipping: Set<String> = []) throws {
    self.connection = connection
    skipped = SkippedTables(skipping)
    var session: OpaquePointer?
    try check(sqlite3session_create(connection.database, "main", &session))
    self.session = session
    sqlite3session_table_filter(
      session,
      { tables, name in
        guard let tables, let name else { return 1 }
        let skipped = Unmanaged<SkippedTables>.fromOpaque(tables).takeUnretainedValue()
        return skipped.names.contains(String(cString: name)) ? 0 : 1
      }, Unmanaged.passUnretained(skipped).toOpaque())
    try check(sqlite3session_attach(session, nil))
  }

  deinit { sqlite3session_delete(session) }

  /// What was changed since, as SQLite's changeset; empty: nothing.
  public func changeset() throws -> [UInt8] {
    var size: Int32 = 0
    var bytes: UnsafeMutableRawPointer?
    try check(sqlite3session_changeset(session, &size, &bytes))
    defer { sqlite3_free(bytes) }
    return bytes.map { Array(UnsafeRawBufferPointer(start: $0, count: Int(size))) } ?? []
  }

  private func check(_ code: Int32) throws {
    if code != SQLITE_OK { throw SalvorError.sqlite(code, connection.database, file: connection.path) }
  }
}

private final class SkippedTables {
  let names: Set<String>
  init(_ names: Set<String>) { self.names = names }
}

extension SQLiteConnection {
  /// A row that a changeset is of.
  public struct ChangedRow {
    public var table: String
    public var operation: Operation
    /// Of its key, by the places of the columns in the table; of an inserted row all values.
    public var values: [Int: Value]

    public enum Operation { case insert, update, delete }
  }

  /// Calls `body` with each row that a changeset is of.
  public func eachRow(of changeset: [UInt8], _ body: (ChangedRow) throws -> Void) throws {
    var changeset = changeset
    try changeset.withUnsafeMutableBytes { bytes in
      var rows: OpaquePointer?
      let code = sqlite3changeset_start(&rows, Int32(bytes.count), bytes.baseAddress)
      guard code == SQLITE_OK, let rows else { throw SalvorError.sqlite(code, database, file: path) }
      defer { sqlite3changeset_finalize(rows) }
      while true {
        let code = sqlite3changeset_next(rows)
        if code == SQLITE_DONE { return }
        guard code == SQLITE_ROW else { throw SalvorError.sqlite(code, database, file: path) }
        var (name, count, operation, indirect): (UnsafePointer<CChar>?, Int32, Int32, Int32) = (nil, 0, 0, 0)
        sqlite3changeset_op(rows, &name, &count, &operation, &indirect)
        var isKey: UnsafeMutablePointer<UInt8>?
        sqlite3changeset_pk(rows, &isKey, nil)
        guard let name, let isKey else { continue }
        let isInsert = operation == SQLITE_INSERT
        var row = ChangedRow(
          table: String(cString: name),
          operation: isInsert ? .insert : operation == SQLITE_DELETE ? .delete : .update, values: [:])
        for column in 0..<Int(count) where isInsert || isKey[column] != 0 {
          var value: OpaquePointer?
          if isInsert {
            sqlite3changeset_new(rows, Int32(column), &value)
          } else {
            sqlite3changeset_old(rows, Int32(column), &value)
          }
          row.values[column] = Self.copied(value)
        }
        try body(row)
      }
    }
  }

  private static func copied(_ value: OpaquePointer?) -> Value {
    let count = Int(sqlite3_value_bytes(value))
    switch sqlite3_value_type(value) {
    case SQLITE_INTEGER: return .integer(sqlite3_value_int64(value))
    case SQLITE_FLOAT: return .real(sqlite3_value_double(value))
    case SQLITE_TEXT:
      guard let text = sqlite3_value_text(value) else { return .text("") }
      return .text(String(decoding: UnsafeBufferPointer(start: text, count: count), as: UTF8.self))
    case SQLITE_BLOB:
      return .blob(Array(UnsafeRawBufferPointer(start: sqlite3_value_blob(value), count: count)))
    default: return .null
    }
  }

  /// Puts back what a changeset recorded, in a transaction or as one. Rows that have changed since take their
  /// before-image; what is gone since and was only updated stays gone. Where a row made since is in the way by another
  /// unique key, it throws `cannot-stand` and nothing is changed.
  public func undo(_ changeset: [UInt8]) throws {
    var changeset = changeset
    let code = changeset.withUnsafeMutableBytes { bytes in
      sqlite3changeset_apply_v2(
        database, Int32(bytes.count), bytes.baseAddress, nil,
        { _, conflict, _ in
          switch conflict {
          case SQLITE_CHANGESET_DATA, SQLITE_CHANGESET_CONFLICT: SQLITE_CHANGESET_REPLACE
          case SQLITE_CHANGESET_NOTFOUND: SQLITE_CHANGESET_OMIT
          default: SQLITE_CHANGESET_ABORT
          }
        }, nil, nil, nil, SQLITE_CHANGESETAPPLY_INVERT)
    }
    guard code != SQLITE_ABORT else {
      throw SalvorError(
        .cannotStand,
        "What was written since is in the way of what is to be put back: a unique value, a check, or a row that others need. Nothing was changed. Sync first, or restore a copy.",
        context: ["file": path])
    }
    guard code == SQLITE_OK else { throw SalvorError.sqlite(code, database, file: path) }
  }
}
