import CSQLite
import SalvorModel

/// One connection to a SQLite database.
///
/// Not thread-safe: it belongs to one actor (see `SQLiteQueue`), and everything on it is synchronous, so that no `await`
/// is ever inside a transaction. Result codes are extended ones. The connection is closed when the last reference to it
/// is gone, or by `close`.
public final class SQLiteConnection {
  /// What a connection may do with the file, and whether it makes a missing one.
  public struct Mode: Sendable, Hashable {
    var flags: Int32
    /// Reads and writes; the file is created where it is missing.
    public static let create = Mode(flags: SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)
    /// Reads and writes; a missing file is an error.
    public static let readWrite = Mode(flags: SQLITE_OPEN_READWRITE)
    /// Reads alone; a missing file is an error.
    public static let readOnly = Mode(flags: SQLITE_OPEN_READONLY)
  }

  /// As it was given to `init`: a path, `:memory:` or a `file:` URI.
  public let path: String
  let database: OpaquePointer
  private var isOpen = true
  private(set) var cache: [String: SQLiteStatement] = [:]
  private let cachedStatementsMax = 512
  private let interruption: SQLiteInterrupter
  var authorizer: AuthorizerBox?
  /// What the file is encrypted with; copies of it are made with the same one.
  public internal(set) var key: SQLiteKey?
  /// Where the connection goes when it is closed; nil: it is gone then.
  private let place: SQLiteShelf.Place?
  /// True where the connection was opened with a key.
  public var isEncrypted: Bool { key != nil }

  /// - Parameters:
  ///   - path: a file's path, `:memory:`, or a `file:` URI.
  ///   - busyTimeoutMilliseconds: how long a lock of another connection is waited for before `storageBusy`.
  ///   - key: of an encrypted file. Throws `key-refused` where it cannot be used: it is never passed over.
  ///   - use: what the connection is for. Where there is a shelf (`SQLiteShelf`), one that was closed is taken again for the same use,
  ///     with the settings that it had. Nil: it is always a new one.
  public init(
    _ path: String, mode: Mode = .create, busyTimeoutMilliseconds: Int32 = 5000, key: SQLiteKey? = nil,
    for use: String? = nil
  ) throws {
    let place = key == nil ? use.flatMap { SQLiteShelf.place(of: path, $0) } : nil
    self.place = place
    if let kept = place?.take() {
      self.path = path
      database = kept.database
      cache = kept.statements
      interruption = SQLiteInterrupter(kept.database)
      sqlite3_busy_timeout(database, busyTimeoutMilliseconds)
      return
    }
    var database: OpaquePointer?
    if key != nil { try Self.proveEncryption(for: path) }
    if mode == .create { PrivateFile.make(path) }
    // NOMUTEX: one actor uses it. `interrupt` is the one call that SQLite allows from elsewhere.
    let code = sqlite3_open_v2(path, &database, mode.flags | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nil)
    guard code == SQLITE_OK, let database else {
      let error = SalvorError.sqlite(
        database.map { sqlite3_extended_errcode($0) } ?? code, database, file: path)
      sqlite3_close_v2(database)
      throw error
    }
    self.path = path
    self.database = database
    self.key = key
    interruption = SQLiteInterrupter(database)
    sqlite3_extended_result_codes(database, 1)
    sqlite3_busy_timeout(database, busyTimeoutMilliseconds)
    if let key { try unlock(key) }
  }

  deinit { close() }

  /// Closes the connection; statements that are still referenced keep it until they go. Safe to call twice.
  public func close() {
    guard isOpen else { return }
    interruption.forget()
    let isKept = authorizer == nil && place.map { isIdle && $0.keep(database, cache) } == true
    isOpen = false
    cache.removeAll()
    if !isKept { sqlite3_close_v2(database) }
  }

  /// Nothing of it is open, and no other file is attached.
  private var isIdle: Bool {
    var statement = sqlite3_next_stmt(database, nil)
    while let found = statement {
      if sqlite3_stmt_busy(found) != 0 { return false }
      statement = sqlite3_next_stmt(database, found)
    }
    let files = try? rows("PRAGMA database_list")
    return !isInTransaction && files?.allSatisfy { $0[1] == "main" || $0[1] == "temp" } == true
  }

  // MARK: Statements

  /// Compiles one statement, which is not kept. `persistent`: it is going to run often. `alone`: nothing may follow it.
  public func prepare(_ sql: String, persistent: Bool = false, alone: Bool = false) throws -> SQLiteStatement {
    guard isOpen else { throw SalvorError(.storage, "The database \(path) is closed: open it again.") }
    var sql = sql
    var handle: OpaquePointer?
    let flags = persistent ? UInt32(SQLITE_PREPARE_PERSISTENT) : 0
    var hasMore = false
    let code = sql.withUTF8 { text in
      text.withMemoryRebound(to: CChar.self) { text in
        var tail: UnsafePointer<CChar>?
        let code = sqlite3_prepare_v3(database, text.baseAddress, Int32(text.count), flags, &handle, &tail)
        if alone, let start = text.baseAddress, let tail {
          hasMore = text[(tail - start)...].contains { ![0x20, 0x09, 0x0A, 0x0D].contains($0) }
        }
        return code
      }
    }
    guard !hasMore || code != SQLITE_OK else {
      sqlite3_finalize(handle)
      throw SalvorError(.storage, "SQLite: something follows the statement.", context: ["sql": sql])
    }
    guard code == SQLITE_OK else { throw SalvorError.sqlite(code, database, sql: sql) }
    guard let handle else { throw SalvorError(.storage, "SQLite: the statement is empty.", context: ["sql": sql]) }
    return SQLiteStatement(handle, sql: sql)
  }

  /// A statement from the cache, reset and without bindings; a new one where the cached one is in use.
  public func cached(_ sql: String) throws -> SQLiteStatement {
    if let statement = cache[sql], !statement.isBusy {
      statement.reset()
      statement.clearBindings()
      return statement
    }
    let statement = try prepare(sql, persistent: true)
    if cache.count >= cachedStatementsMax { cache.removeAll() }
    cache[sql] = statement
    return statement
  }

  /// Finalizes the cached statements, e.g. before a `DROP TABLE` or `VACUUM`.
  public func clearStatementCache() { cache.removeAll() }

  /// Runs any number of statements without parameters; their rows are thrown away.
  public func execute(_ sql: String) throws {
    guard isOpen else { throw SalvorError(.storage, "The database \(path) is closed: open it again.") }
    let code = sqlite3_exec(database, sql, nil, nil, nil)
    guard code == SQLITE_OK else {
      throw SalvorError.sqlite(sqlite3_extended_errcode(database), database, sql: sql)
    }
  }

  /// Runs one statement to its end, with `values` bound from parameter 1 on.
  public func run(_ sql: String, _ values: Value...) throws { try run(sql, values) }

  /// Runs one statement to its end, with `values` bound from parameter 1 on. Rows are thrown away. The statement is
  /// kept in the cache.
  public func run(_ sql: String, _ values: [Value]) throws {
    let statement = try cached(sql)
    try statement.bind(values)
    defer { statement.reset() }
    while try statement.step() {}
  }

  /// Calls `body` with each row of a query, as long as it answers true.
  public func query(_ sql: String, _ values: [Value] = [], _ body: (SQLiteStatement) throws -> Bool) throws {
    let statement = try cached(sql)
    try statement.bind(values)
    defer { statement.reset() }
    while try statement.step() {
      guard try body(statement) else { return }
    }
  }

  /// All rows of a query. For small results.
  public func rows(_ sql: String, _ values: Value...) throws -> [[Value]] { try rows(sql, values) }

  /// All rows of a query, each with its columns in the query's order. For small results.
  public func rows(_ sql: String, _ values: [Value]) throws -> [[Value]] {
    var rows: [[Value]] = []
    try query(sql, values) {
      rows.append($0.values())
      return true
    }
    return rows
  }

  /// The first column of the first row; nil where there is no row.
  public func scalar(_ sql: String, _ values: Value...) throws -> Value? {
    var result: Value?
    try query(sql, values) {
      result = $0.value(0)
      return false
    }
    return result
  }

  /// The first column of the first row as an integer, converted as SQLite does; nil where there is no row, or NULL in
  /// it.
  public func integer(_ sql: String, _ values: Value...) throws -> Int64? { try integer(sql, values) }

  /// The first column of the first row as an integer, converted as SQLite does; nil where there is no row, or NULL in
  /// it.
  public func integer(_ sql: String, _ values: [Value]) throws -> Int64? {
    var result: Int64?
    try query(sql, values) {
      result = $0.isNull(0) ? nil : $0.int64(0)
      return false
    }
    return result
  }

  // MARK: State

  /// Rows changed by the last statement, without those of triggers and foreign key actions.
  public var changes: Int { Int(sqlite3_changes(database)) }
  /// Rows changed since the connection was opened, with those of triggers and foreign key actions.
  public var totalChanges: Int { Int(sqlite3_total_changes(database)) }
  /// The rowid of this connection's last successful INSERT into a rowid table; 0 before the first one.
  public var lastInsertRowID: Int64 { sqlite3_last_insert_rowid(database) }
  /// False also after an error at which SQLite rolled the transaction back by itself.
  public var isInTransaction: Bool { sqlite3_get_autocommit(database) == 0 }

  /// Sets a PRAGMA, e.g. `pragma("journal_mode", "WAL")`, and answers the value it gives back, if any.
  @discardableResult
  public func pragma(_ name: String, _ value: String) throws -> Value? {
    let statement = try prepare("PRAGMA \(name)=\(value)")
    return try statement.step() ? statement.value(0) : nil
  }

  /// Reads a PRAGMA.
  public func pragma(_ name: String) throws -> Value? {
    let statement = try prepare("PRAGMA \(name)")
    return try statement.step() ? statement.value(0) : nil
  }

  /// Sets a PRAGMA that is on or off. One that is so already is left alone: setting it makes SQLite compile every statement anew.
  public func set(_ pragma: String, _ on: Bool) throws {
    guard try integer("PRAGMA \(pragma)") != (on ? 1 : 0) else { return }
    try execute("PRAGMA \(pragma) = \(on ? "ON" : "OFF")")
  }

  /// Grows whenever the schema changes, by whatever connection.
  public func schemaVersion() throws -> Int64 { try integer("PRAGMA schema_version") ?? 0 }

  /// Whether triggers fire for what this connection writes. All triggers, the application's too; foreign key actions
  /// and other connections are not touched by it.
  public var triggersEnabled: Bool {
    get {
      var on: Int32 = 0
      return csqlite_enable_trigger(database, -1, &on) == SQLITE_OK && on != 0
    }
    set {
      // A change makes SQLite compile all prepared statements anew at their next run.
      var on: Int32 = 0
      _ = csqlite_enable_trigger(database, newValue ? 1 : 0, &on)
    }
  }

  /// Runs `body` with triggers on or off, and puts the switch back.
  public func withTriggers<Result>(_ enabled: Bool, _ body: () throws -> Result) rethrows -> Result {
    let before = triggersEnabled
    triggersEnabled = enabled
    defer { triggersEnabled = before }
    return try body()
  }

  /// Refuses what could damage the file's format (`PRAGMA writable_schema`, writes to shadow tables).
  public func setDefensive(_ on: Bool) { _ = csqlite_config_defensive(database, on ? 1 : 0) }

  /// Stops what the connection is doing, from any thread; the running call throws `cancelled`.
  public var interrupter: SQLiteInterrupter { interruption }

  /// How far a checkpoint goes, as in `sqlite3_wal_checkpoint_v2`. `passive` waits for nobody; `full` waits for
  /// writers; `restart` waits for readers as well; `truncate` empties the log file besides.
  public enum Checkpoint: Sendable {
    case passive, full, restart, truncate
    var code: Int32 {
      switch self {
      case .passive: SQLITE_CHECKPOINT_PASSIVE
      case .full: SQLITE_CHECKPOINT_FULL
      case .restart: SQLITE_CHECKPOINT_RESTART
      case .truncate: SQLITE_CHECKPOINT_TRUNCATE
      }
    }
  }

  /// Moves the write-ahead log into the database file.
  public func checkpoint(_ kind: Checkpoint = .passive) throws {
    let code = sqlite3_wal_checkpoint_v2(database, nil, kind.code, nil, nil)
    guard code == SQLITE_OK else { throw SalvorError.sqlite(code, database, file: path) }
  }
}
