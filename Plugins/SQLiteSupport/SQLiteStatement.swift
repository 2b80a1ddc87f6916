import CSQLite
import SalvorModel

/// A prepared statement. It belongs to one connection and is used where that is used; SQLite keeps a closed connection
/// until its last statement is gone.
///
/// Parameters are numbered from 1, columns from 0, as in SQLite. Text goes in and out as bytes; nothing here makes a
/// `String` or an array unless its name says so, so that a row costs no allocation.
public final class SQLiteStatement {
  @usableFromInline let handle: OpaquePointer
  /// As it was given. Errors carry it.
  public let sql: String
  /// 0: the statement gives no rows. Counted when the statement was prepared.
  public let columnCount: Int
  /// The largest number of a parameter, which is how many there are where none is left out.
  public let parameterCount: Int

  init(_ handle: OpaquePointer, sql: String) {
    self.handle = handle
    self.sql = sql
    self.columnCount = Int(sqlite3_column_count(handle))
    self.parameterCount = Int(sqlite3_bind_parameter_count(handle))
  }

  deinit { sqlite3_finalize(handle) }

  var isBusy: Bool { sqlite3_stmt_busy(handle) != 0 }

  /// Whether the statement leaves the database as it is.
  public var isReadOnly: Bool { sqlite3_stmt_readonly(handle) != 0 }

  /// The column's name, or its alias where it has one; empty where there is no such column.
  public func columnName(_ column: Int) -> String {
    sqlite3_column_name(handle, Int32(column)).map { String(cString: $0) } ?? ""
  }

  /// The names of all columns, in their order. Makes an array.
  public var columnNames: [String] { (0..<columnCount).map(columnName) }

  // MARK: Running

  /// True: a row is there. False: the statement is done (reset it before it runs again).
  @inlinable
  public func step() throws -> Bool {
    let code = sqlite3_step(handle)
    if code == SQLITE_ROW { return true }
    if code == SQLITE_DONE { return false }
    throw failure(code)
  }

  /// Runs a statement that gives no rows, and resets it, whether it succeeds or not.
  @inlinable
  public func run() throws {
    let code = sqlite3_step(handle)
    if code != SQLITE_DONE, code != SQLITE_ROW {
      let error = failure(code)
      sqlite3_reset(handle)
      throw error
    }
    sqlite3_reset(handle)
  }

  /// As `run`, but answers SQLite's extended code instead of throwing: `SQLITE_OK`, or the failure's.
  public func attempt() -> Int32 {
    let code = sqlite3_step(handle)
    let failed = code != SQLITE_DONE && code != SQLITE_ROW
    let extended = failed ? sqlite3_extended_errcode(sqlite3_db_handle(handle)) : SQLITE_OK
    sqlite3_reset(handle)
    return extended
  }

  /// Back to the start. Bindings stay.
  @inlinable
  public func reset() { sqlite3_reset(handle) }

  /// All parameters become NULL.
  public func clearBindings() { sqlite3_clear_bindings(handle) }

  @usableFromInline
  func failure(_ code: Int32) -> SalvorError {
    let database = sqlite3_db_handle(handle)
    let extended = sqlite3_extended_errcode(database)
    return .sqlite(extended & 0xff == code & 0xff ? extended : code, database, sql: sql)
  }

  // MARK: Binding

  @inlinable
  func check(_ code: Int32) throws {
    if code != SQLITE_OK { throw failure(code) }
  }

  /// Binds an integer. Throws where there is no such parameter, or the statement runs.
  @inlinable
  public func bind(_ parameter: Int, _ value: Int64) throws {
    try check(sqlite3_bind_int64(handle, Int32(truncatingIfNeeded: parameter), value))
  }

  /// Binds a number. SQLite binds NULL for a NaN. Throws as with an integer.
  @inlinable
  public func bind(_ parameter: Int, _ value: Double) throws {
    try check(sqlite3_bind_double(handle, Int32(truncatingIfNeeded: parameter), value))
  }

  /// Binds NULL. Throws as `bind` does.
  @inlinable
  public func bindNull(_ parameter: Int) throws {
    try check(sqlite3_bind_null(handle, Int32(truncatingIfNeeded: parameter)))
  }

  /// - Parameter copying: false where the bytes outlive the statement's next reset or rebind; they are then read in place.
  @inlinable
  public func bindText(_ parameter: Int, _ bytes: UnsafeRawBufferPointer, copying: Bool = true) throws {
    let index = Int32(truncatingIfNeeded: parameter)
    guard let base = bytes.baseAddress else {
      try check(sqlite3_bind_text(handle, index, "", 0, csqlite_transient()))
      return
    }
    try check(
      sqlite3_bind_text64(
        handle, index, base.assumingMemoryBound(to: CChar.self), UInt64(bytes.count),
        copying ? csqlite_transient() : csqlite_static(), UInt8(SQLITE_UTF8)))
  }

  /// - Parameter copying: as in `bindText`.
  @inlinable
  public func bindBlob(_ parameter: Int, _ bytes: UnsafeRawBufferPointer, copying: Bool = true) throws {
    let index = Int32(truncatingIfNeeded: parameter)
    // A null pointer would bind NULL, which is not an empty blob.
    guard let base = bytes.baseAddress, bytes.count > 0 else {
      try check(sqlite3_bind_zeroblob(handle, index, 0))
      return
    }
    try check(
      sqlite3_bind_blob64(
        handle, index, base, UInt64(bytes.count), copying ? csqlite_transient() : csqlite_static()))
  }

  /// Binds a copy of the text's UTF-8. Throws as with an integer.
  public func bind(_ parameter: Int, _ text: String) throws {
    var text = text
    try text.withUTF8 { try bindText(parameter, UnsafeRawBufferPointer($0)) }
  }

  /// Binds any value, with a copy of a text's or a blob's bytes. Throws as with an integer.
  public func bind(_ parameter: Int, _ value: Value) throws {
    switch value {
    case .null: try bindNull(parameter)
    case .integer(let integer): try bind(parameter, integer)
    case .real(let real): try bind(parameter, real)
    case .text(let bytes): try bytes.withUnsafeBytes { try bindText(parameter, $0) }
    case .blob(let bytes): try bytes.withUnsafeBytes { try bindBlob(parameter, $0) }
    }
  }

  /// Binds `values` to the parameters from `first` on.
  public func bind(_ values: some Sequence<Value>, from first: Int = 1) throws {
    var parameter = first
    for value in values {
      try bind(parameter, value)
      parameter += 1
    }
  }

  /// Binds a column of another statement's current row, without a copy in between.
  @inlinable
  public func bind(_ parameter: Int, column: Int, of row: SQLiteStatement) throws {
    try check(
      sqlite3_bind_value(
        handle, Int32(truncatingIfNeeded: parameter),
        sqlite3_column_value(row.handle, Int32(truncatingIfNeeded: column))))
  }

  // MARK: Columns of the current row

  /// `SQLITE_INTEGER`, `SQLITE_FLOAT`, `SQLITE_TEXT`, `SQLITE_BLOB` or `SQLITE_NULL`.
  @inlinable
  public func type(_ column: Int) -> Int32 { sqlite3_column_type(handle, Int32(truncatingIfNeeded: column)) }

  /// True also where there is no such column.
  @inlinable
  public func isNull(_ column: Int) -> Bool { type(column) == SQLITE_NULL }

  /// The column as an integer, converted as SQLite does: 0 for NULL.
  @inlinable
  public func int64(_ column: Int) -> Int64 { sqlite3_column_int64(handle, Int32(truncatingIfNeeded: column)) }

  /// The column as a number, converted as SQLite does: 0 for NULL.
  @inlinable
  public func double(_ column: Int) -> Double { sqlite3_column_double(handle, Int32(truncatingIfNeeded: column)) }

  /// The bytes of a text; they are valid until the next step or reset.
  @inlinable
  public func withText<Result>(_ column: Int, _ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
    let index = Int32(truncatingIfNeeded: column)
    let base = sqlite3_column_text(handle, index)
    return try body(UnsafeRawBufferPointer(start: base, count: Int(sqlite3_column_bytes(handle, index))))
  }

  /// The bytes of a blob; they are valid until the next step or reset.
  @inlinable
  public func withBlob<Result>(_ column: Int, _ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
    let index = Int32(truncatingIfNeeded: column)
    let base = sqlite3_column_blob(handle, index)
    return try body(UnsafeRawBufferPointer(start: base, count: Int(sqlite3_column_bytes(handle, index))))
  }

  /// A copy of the column, of the type that it has.
  public func value(_ column: Int) -> Value {
    switch type(column) {
    case SQLITE_INTEGER: .integer(int64(column))
    case SQLITE_FLOAT: .real(double(column))
    case SQLITE_TEXT: .text(withText(column) { Array($0) })
    case SQLITE_BLOB: .blob(withBlob(column) { Array($0) })
    default: .null
    }
  }

  /// The columns from `first`, `count` of them (all that follow where nil).
  public func values(from first: Int = 0, count: Int? = nil) -> [Value] {
    let end = count.map { first + $0 } ?? columnCount
    return (first..<end).map(value)
  }

  /// Text as a string (invalid UTF-8 repaired); an empty string for NULL.
  public func string(_ column: Int) -> String { withText(column) { String(decoding: $0, as: UTF8.self) } }

  /// Text as a string, as `string` makes it; nil for NULL.
  public func optionalString(_ column: Int) -> String? { isNull(column) ? nil : string(column) }
}
