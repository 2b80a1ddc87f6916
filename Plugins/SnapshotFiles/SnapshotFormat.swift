import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// What a snapshot's database holds (docs/reference/protocol.md, *Snapshots*): a group's tables as a device's own statements
/// make them, and `salvor_snapshot`, which says what they are.
public enum SnapshotFormat {
  /// Raised where an older device could not read what is written.
  public static let version: Int64 = 1
  public static let factsTable = "salvor_snapshot"
  static let factsStatement =
    "CREATE TABLE salvor_snapshot (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"

  /// A group's tables, parents first.
  public static func tables(of group: String, in config: SyncConfig) -> [Table] {
    config.entries.map(\.table).filter { $0.group == group }
  }

  /// The statements that make the database, by the table's name. A device examines a file by the same.
  static func statements(_ group: String, _ config: SyncConfig) -> [(name: String, sql: String)] {
    let schema = Schema(tables: config.entries.map(\.table))
    let ddl = TableDDL(softForeignKeys: false)
    return [(factsTable, factsStatement)]
      + tables(of: group, in: config).map { ($0.name, ddl.createTable($0, in: schema)) }
  }

  static func unusable(_ what: String) -> SalvorError {
    SalvorError(.snapshotUnusable, "The snapshot cannot be used: \(what). Its group comes by rows.")
  }
}

extension SQLiteConnection {
  /// Count and digest of a table's travelling columns, as both sides compare them.
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
}
