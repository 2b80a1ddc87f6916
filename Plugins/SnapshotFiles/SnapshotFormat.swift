import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// What a snapshot's database holds (docs/reference/protocol.md, *Snapshots*): a group's tables with the columns and keys of a
/// device's own statements, each key once (decision 104), and `salvor_snapshot`, which says what they are.
public enum SnapshotFormat {
  /// Raised where an older device could not read what is written.
  public static let version: Int64 = 2
  /// The table with a snapshot's facts: one row for each key, with a text value.
  public static let factsTable = "salvor_snapshot"
  static let factsStatement =
    "CREATE TABLE salvor_snapshot (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"

  /// Rows with large values, each as the lines of a download that refer to them: no such value is in the file.
  public static let apartTable = "salvor_apart"
  static let apartStatement =
    "CREATE TABLE salvor_apart (\"table\" TEXT NOT NULL, key TEXT NOT NULL, payload TEXT NOT NULL, PRIMARY KEY (\"table\", key)) WITHOUT ROWID"

  /// A group's tables, parents first.
  public static func tables(of group: String, in config: SyncConfig) -> [Table] {
    config.entries.map(\.table).filter { $0.group == group }
  }

  /// The statements that make the database, by the table's name. A device examines a file by the same.
  static func statements(_ group: String, _ config: SyncConfig) -> [(name: String, sql: String)] {
    let schema = Schema(tables: config.entries.map(\.table))
    let ddl = TableDDL(softForeignKeys: false)
    return [(factsTable, factsStatement), (apartTable, apartStatement)]
      + tables(of: group, in: config).map { ($0.name, statement($0, ddl, in: schema)) }
  }

  /// A table whose key is its rowid is as on the device: SQLite copies its records. In any other the key would stand in the row and
  /// in its index: the file has the row in the index. What is unique besides, the device's own table proves.
  private static func statement(_ table: Table, _ ddl: TableDDL, in schema: Schema) -> String {
    if ddl.isRowidKey(table) { return ddl.createTable(table, in: schema) }
    var bare = table
    bare.unique = []
    return ddl.createTable(bare, in: schema) + " WITHOUT ROWID"
  }

  static func unusable(_ what: String) -> SalvorError {
    let what = what.hasSuffix(".") ? String(what.dropLast()) : what
    return SalvorError(.snapshotUnusable, "The snapshot cannot be used: \(what). Its group comes by rows.")
  }
}

extension SQLiteConnection {
  /// How many rows of a table stand apart.
  func apartCount(of table: String) throws -> Int64 {
    try integer("SELECT count(*) FROM \(SnapshotFormat.apartTable) WHERE \"table\" = ?1", .text(table)) ?? 0
  }

  /// Count and digest of a table's travelling columns, as both sides compare them; without rows that stand apart.
  func snapshotDigest(of table: Table) throws -> TableDigest {
    let columns = table.travelling.map { quoted($0.name) }.joined(separator: ", ")
    var count: Int64 = 0
    var sum: UInt64 = 0
    try query("SELECT \(columns) FROM \(quoted(table.name))") { row in
      count += 1
      sum &+= RowDigest(row.values()).value
      return true
    }
    return TableDigest(table: table.name, count: count, digest: RowDigest.text(sum))
  }

  /// The sum of what stands apart, whatever its order.
  func apartDigest() throws -> String {
    var sum: UInt64 = 0
    try query("SELECT \"table\", key, payload FROM \(SnapshotFormat.apartTable)") { row in
      sum &+= RowDigest(row.values()).value
      return true
    }
    return RowDigest.text(sum)
  }
}
