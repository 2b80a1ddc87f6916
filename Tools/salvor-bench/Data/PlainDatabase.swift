import SQLiteSupport
import SalvorModel
import SalvorStorage

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// What other programs do with the databases: a plain connection that knows nothing of Salvor. The limits are measured
/// with it, and it makes the changes that are synchronized.
enum PlainDatabase {
  /// The settings of the device's own connection (SQLiteClientStore), so that a limit pays for the same durability.
  static func open(_ path: String) throws -> SQLiteConnection {
    let connection = try SQLiteConnection(path, busyTimeoutMilliseconds: 60_000)
    try connection.pragma("journal_mode", "WAL")
    try connection.pragma("synchronous", "NORMAL")
    return connection
  }

  /// The settings of the server's connection (SQLiteServerStore): every commit durable, a larger cache.
  static func openAsServer(_ path: String) throws -> SQLiteConnection {
    let connection = try open(path)
    try connection.pragma("synchronous", "FULL")
    try connection.pragma("cache_size", "-32768")
    return connection
  }

  /// The statements that made the tables of `schema` in an existing database, parents first.
  static func tableDDL(of path: String, _ schema: Schema) throws -> [String] {
    let connection = try open(path)
    defer { connection.close() }
    return try schema.tables.map { table in
      let sql = try connection.scalar(
        "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1", .text(table.name))
      guard let text = sql?.string else { throw SalvorError(.failed, "\(path) has no table \(table.name).") }
      return text
    }
  }

  static func insertStatement(_ table: Table) -> String {
    let slots = table.columns.indices.map { "?\($0 + 1)" }.joined(separator: ", ")
    return "INSERT INTO \(quoted(table.name)) (\(quotedList(table.columns.map(\.name)))) VALUES (\(slots))"
  }

  /// Makes the tables and loads them, in one transaction: a database as an application has it before Salvor comes.
  static func seed(_ path: String, _ data: DataSet) throws {
    let connection = try open(path)
    defer { connection.close() }
    let ddl = TableDDL(softForeignKeys: true)
    for table in data.schema.tables { try connection.execute(ddl.createTable(table, in: data.schema)) }
    try connection.transaction {
      try data.eachBatch(inKeyOrder: false) { table, rows in try rows.run(connection.cached(insertStatement(table))) }
    }
    try connection.checkpoint(.truncate)
  }

  /// What it takes to insert the rows, with everything but BEGIN, binding, stepping and COMMIT left out of the time.
  static func timedInsert(_ path: String, ddl: [String], _ data: DataSet, inKeyOrder: Bool) throws -> Cost {
    let connection = try open(path)
    defer { connection.close() }
    for sql in ddl { try connection.execute(sql) }
    let statements = Dictionary(
      uniqueKeysWithValues: try data.schema.tables.map { ($0.name, try connection.prepare(insertStatement($0))) })
    var cost = try Cost.of { try connection.execute("BEGIN IMMEDIATE") }
    try data.eachBatch(inKeyOrder: inKeyOrder) { table, rows in
      guard let statement = statements[table.name] else { return }
      try cost.add { try rows.run(statement) }
    }
    try cost.add { try connection.execute("COMMIT") }
    return cost
  }

  /// Writes a new quantity into the rows at `places`, by key, in one transaction. Binding and stepping only are timed.
  @discardableResult
  static func updateQuantities(
    _ connection: SQLiteConnection, _ data: RecordData, places: [Int], quantity: Int64
  ) throws -> Cost {
    try updateQuantities(connection, data, places: places) { _ in quantity }
  }

  /// - Parameter quantity: of each by its index among `places`.
  @discardableResult
  static func updateQuantities(
    _ connection: SQLiteConnection, _ data: RecordData, places: [Int], quantity: (Int) -> Int64
  ) throws -> Cost {
    var rows = RowArena(columnCount: 2)
    for (index, place) in places.enumerated() {
      rows.append(quantity(index))
      rows.append(data.key(place))
    }
    let statement = try connection.prepare("UPDATE record SET quantity = ?1 WHERE id = ?2")
    return try Cost.of { try connection.transaction { try rows.run(statement) } }
  }

  /// Throws where the tables of two databases are not equal, row for row.
  static func requireEqual(_ first: String, _ second: String, _ schema: Schema) throws {
    for table in schema.tables {
      let (a, b) = (try fingerprint(first, table), try fingerprint(second, table))
      guard a == b else {
        throw SalvorError(
          .failed,
          "After the synchronization \(table.name) differs: \(a.rows) rows on the server, \(b.rows) on the device, or other values."
        )
      }
    }
  }

  struct Fingerprint: Equatable {
    var rows = 0
    var hash: UInt64 = 0xCBF2_9CE4_8422_2325
  }

  /// Every value of every row in key order, with its storage class.
  private static func fingerprint(_ path: String, _ table: Table) throws -> Fingerprint {
    let connection = try SQLiteConnection(path, mode: .readOnly)
    defer { connection.close() }
    var result = Fingerprint()
    func mix(_ byte: UInt8) { result.hash = (result.hash ^ UInt64(byte)) &* 0x100_0000_01B3 }
    func mix(_ word: UInt64) {
      result.hash = (result.hash ^ word) &* 0x100_0000_01B3
      result.hash ^= result.hash >> 29
    }
    let names = quotedList(table.columns.map(\.name))
    try connection.query("SELECT \(names) FROM \(quoted(table.name)) ORDER BY \(quotedList(table.primaryKey))") { row in
      result.rows += 1
      for column in 0..<row.columnCount {
        let type = row.type(column)
        mix(UInt64(type))
        switch type {
        case 1: mix(UInt64(bitPattern: row.int64(column)))
        case 2: mix(row.double(column).bitPattern)
        case 5: break
        default: row.withBlob(column) { for byte in $0 { mix(byte) } }
        }
      }
      return true
    }
    return result
  }

  /// Removes a database with what SQLite and Salvor keep beside it: `NAME-wal`, `NAME.identity` and the like.

  /// Copies a database that nobody has open.
  static func copy(_ path: String, to target: String) throws {
    let source = try SQLiteConnection(path)
    try source.checkpoint(.truncate)
    source.close()
    try copyFile(path, to: target)
  }

  /// Rows that nobody captures, as a download writes them.
  static func load(_ data: DataSet, into path: String) throws {
    let connection = try open(path)
    defer { connection.close() }
    connection.triggersEnabled = false
    try connection.transaction {
      try data.eachBatch(inKeyOrder: false) { table, batch in
        try batch.run(connection.cached(insertStatement(table)))
      }
    }
    try connection.checkpoint(.truncate)
  }
}
