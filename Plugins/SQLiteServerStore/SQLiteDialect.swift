import SQLiteSupport
import SalvorModel
import SalvorStorage
import ServerStoreSupport

/// What SQLite says in its own words.
struct SQLiteDialect: Dialect {
  func isSame(_ left: String, _ right: String) -> String { "\(left) IS \(right) COLLATE BINARY" }
  func differs(_ left: String, _ right: String) -> String { "\(left) IS NOT \(right) COLLATE BINARY" }
  func bytewise(_ expression: String) -> String { "\(expression) COLLATE BINARY" }
  func literal(_ value: Value) -> String { SQLiteSupport.literal(value) }
  func using(index name: String) -> String { " INDEXED BY \(name)" }
  /// SQLite never changes the order of a CROSS JOIN.
  var orderedJoin: String { "CROSS JOIN" }
  func temporary(_ name: String) -> String { "temp.\(name)" }
  func number(_ condition: String) -> String { condition }
  func insertingNumbered(_ insert: String, id: String) -> String { "\(insert) RETURNING \(id)" }

  func ownTriggers(on table: String) -> (sql: String, values: [Value]) {
    (
      "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE AND name NOT GLOB 'salvor_*' ORDER BY name",
      [.text(Array(table.utf8))]
    )
  }

  func insertingNew(_ insert: String) -> String {
    insert.replacing("INSERT INTO", with: "INSERT OR IGNORE INTO", maxReplacements: 1)
  }

  func temporaryTable(_ name: String, _ columns: [TemporaryColumn], indexes: [TemporaryIndex]) -> [String] {
    let columns = columns.map { column in
      switch column.kind {
      case .id: "\(column.name) INTEGER PRIMARY KEY"
      case .integer: "\(column.name) INTEGER"
      case .value: column.name
      }
    }
    return ["CREATE TEMP TABLE IF NOT EXISTS \(name) (\(columns.joined(separator: ", ")))"]
      + indexes.map {
        "CREATE \($0.isUnique ? "UNIQUE " : "")INDEX IF NOT EXISTS temp.\(name)_\($0.suffix) ON \(name) (\($0.columns))"
      } + ["DELETE FROM temp.\(name)"]
  }

  /// The other columns beside `max` or `min` are those of the row that has it.
  func oneOfEach(
    key: String, numbered number: String, _ end: RangeEnd, _ columns: [String], from: String, where condition: String
  ) -> String {
    let function = end == .last ? "max" : "min"
    return "SELECT \(function)(\(number)) AS seq, \(columns.joined(separator: ", ")) FROM \(from) "
      + "WHERE \(condition) GROUP BY \(key)"
  }
}

extension SQLiteConnection: StoreConnection {
  package var dialect: any Dialect { SQLiteDialect() }
  package var writtenRows: Int? { totalChanges }

  package func prepare(_ sql: String, persistent: Bool) throws -> SQLiteStatement {
    try prepare(sql, persistent: persistent, alone: false)
  }

  package func snapshot<Result>(_ body: () throws -> Result) throws -> Result { try transaction(.deferred, body) }

  package func deferReferences() throws { try execute("PRAGMA defer_foreign_keys = ON") }
  package func checkReferences() throws { try execute("PRAGMA defer_foreign_keys = OFF") }
  package var unresolved: SalvorError? {
    hasUnresolvedForeignKeys ? SalvorError(.storage, "A foreign key is broken.") : nil
  }

  /// The numbers are those of sqlite3.h.
  package func failure(_ error: SalvorError) -> StoreFailure? {
    guard let code = error.sqliteCode else { return nil }
    switch code {
    // UNIQUE, PRIMARYKEY, ROWID
    case 2067, 1555, 2579: return .unique
    case 787: return .foreignKey
    case 275: return .check
    case 1299: return .notNull
    case 1811: return .trigger
    default: break
    }
    switch code & 0xff {
    case 19: return .constraint
    case 5, 6, 15: return .busy
    default: return nil
    }
  }
}

extension SQLiteStatement: StoreStatement {
  package func storageClass(_ column: Int) -> StorageClass { StorageClass(rawValue: type(column)) ?? .null }
  package func textBytes(_ column: Int) -> UnsafeRawBufferPointer { withText(column) { $0 } }
  package func blobBytes(_ column: Int) -> UnsafeRawBufferPointer { withBlob(column) { $0 } }
}

extension TableShape {
  /// Foreign keys by which a delete of a parent changes its rows.
  func actingKeys(_ schema: Schema) -> [ActingKey] {
    foreignKeys.compactMap { key in
      guard let onDelete = OnDelete(rawValue: key.onDelete.folded), [.cascade, .setNull].contains(onDelete) else {
        return nil
      }
      let parent = schema.tables.first { $0.name.folded == key.parent.folded }
      return ActingKey(
        columns: key.columns, parent: key.parent,
        parentColumns: key.parentColumns.isEmpty ? parent?.primaryKey ?? [] : key.parentColumns, onDelete: onDelete)
    }
  }

  /// As the shared code takes them.
  var sharedIndexes: [ServerStoreSupport.UniqueIndex] {
    uniqueIndexes.map { index in
      ServerStoreSupport.UniqueIndex(
        columns: index.columns.map { .init(name: $0.name, isBinary: $0.collation == "BINARY") },
        isPrimaryKey: index.isPrimaryKey)
    }
  }
}
