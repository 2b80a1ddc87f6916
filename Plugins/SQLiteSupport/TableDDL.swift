import SalvorModel
import SalvorStorage

/// The statements that make a schema's tables in SQLite; the client's store and the server's make theirs alike.
public struct TableDDL: Sendable {
  /// Soft references become foreign keys too: true on the server, false on a device, where the parent may be in another
  /// scope.
  public var softForeignKeys: Bool

  /// - Parameter softForeignKeys: true on the server, false on a device.
  public init(softForeignKeys: Bool) { self.softForeignKeys = softForeignKeys }

  /// `CREATE TABLE`. A single integer key is the rowid (`INTEGER NOT NULL PRIMARY KEY`); other keys make an ordinary
  /// rowid table with key columns that are never NULL.
  ///
  /// - Parameter schema: for the key columns that references point to.
  public func createTable(_ table: Table, in schema: Schema) -> String {
    "CREATE TABLE \(quoted(table.name)) (\n  \(parts(of: table, in: schema).joined(separator: ",\n  "))\n)"
  }

  /// Its columns and constraints, as `CREATE TABLE` lists them.
  public func parts(of table: Table, in schema: Schema) -> [String] {
    let rowidKey = isRowidKey(table)
    var parts = table.columns.map { column in
      columnDefinition(column, of: table) + (rowidKey && column.name == table.primaryKey[0] ? " PRIMARY KEY" : "")
    }
    if !rowidKey { parts.append("PRIMARY KEY (\(quotedList(table.primaryKey)))") }
    parts += table.unique.map { "UNIQUE (\(quotedList($0)))" }
    parts += table.check.map { "CHECK (\($0))" }
    parts += foreignKeys(table, in: schema)
    return parts
  }

  /// `ALTER TABLE … ADD COLUMN`: for a column that is nullable or has a default, without a reference of its own unless
  /// it is nullable without default (SQLite's rule while foreign keys are on).
  public func addColumn(_ column: Column, to table: Table, in schema: Schema) -> String {
    var definition = columnDefinition(column, of: table)
    if column.nullable, column.defaultValue == nil,
      let reference = table.references.first(where: { $0.column == column.name }),
      let clause = referenceClause(reference, in: schema)
    {
      definition += " " + clause
    }
    return "ALTER TABLE \(quoted(table.name)) ADD COLUMN \(definition)"
  }

  /// Whether the key is the table's rowid.
  public func isRowidKey(_ table: Table) -> Bool {
    guard table.primaryKey.count == 1, let place = table.columnIndex(table.primaryKey[0]) else { return false }
    return table.columns[place].type.sqliteName == "INTEGER"
  }

  func columnDefinition(_ column: Column, of table: Table) -> String {
    var sql = quoted(column.name) + " " + column.type.sqliteName
    if !column.nullable || table.primaryKey.contains(column.name) { sql += " NOT NULL" }
    if let value = column.defaultValue, value != .null { sql += " DEFAULT " + literal(value) }
    return sql
  }

  func foreignKeys(_ table: Table, in schema: Schema) -> [String] {
    table.references.compactMap { reference in
      referenceClause(reference, in: schema).map { "FOREIGN KEY (\(quoted(reference.column))) \($0)" }
    }
  }

  /// Nil for a soft reference on a device, and for one that names no table with a single key column.
  public func referenceClause(_ reference: Reference, in schema: Schema) -> String? {
    guard softForeignKeys || !reference.soft, let parent = schema.table(reference.table),
      parent.primaryKey.count == 1
    else { return nil }
    let action = reference.onDelete == .noAction ? "" : " ON DELETE \(reference.onDelete.rawValue.uppercased())"
    return "REFERENCES \(quoted(parent.name)) (\(quoted(parent.primaryKey[0])))\(action)"
  }
}
