import SalvorModel
import SalvorStorage

/// Makes a table anew as the schema has it, with its rows: for what `ALTER TABLE` does not do, such as a column that a
/// foreign key or a UNIQUE constraint holds (lang_altertable.html, *Making Other Kinds Of Table Schema Changes*).
///
/// In a transaction of a connection with foreign keys off. Other tables' references to it stay as they are. The table's own
/// indexes and triggers come back, but for those that name what is not there any more, and so do columns that the schema neither has nor
/// has dropped: they are the application's.
public struct TableRebuild {
  private let connection: SQLiteConnection
  private let ddl: TableDDL
  private static let name = "salvor_rebuilt"

  /// Changes nothing yet: `run` does, once for each table.
  ///
  /// - Parameter ddl: makes the new table's statement.
  public init(_ connection: SQLiteConnection, _ ddl: TableDDL) {
    self.connection = connection
    self.ddl = ddl
  }

  /// - Parameter isOurs: triggers and indexes that somebody else makes anew, by name.
  /// - Returns: the names of the indexes and triggers that could not come back.
  public func run(_ table: Table, in schema: Schema, isOurs: (String) -> Bool) throws -> [String] {
    guard let shape = try connection.tableShape(table.name) else { return [] }
    let objects = try connection.rows(
      "SELECT name, sql, type FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL AND tbl_name = ?1 COLLATE NOCASE ORDER BY rowid",
      .text(table.name))
    var made = table
    made.name = Self.name
    // Statements that name no columns go on as they were.
    let places = table.columns.map { column in
      shape.columns.firstIndex { $0.name == column.name } ?? shape.columns.count
    }
    made.columns = zip(places, table.columns).enumerated()
      .sorted { ($0.element.0, $0.offset) < ($1.element.0, $1.offset) }.map(\.element.1)
    let own = shape.columns.filter { column in
      !table.hasDropped(column.name) && !table.columns.contains { $0.name.folded == column.name.folded }
    }
    var names = made.columns.map(\.name).filter { shape.column($0) != nil } + own.map(\.name)
    if let rowid = Self.rowid(shape), !ddl.isRowidKey(table) { names.insert(rowid, at: 0) }
    let columns = quotedList(names)
    try Self.replace(table.name, on: connection) {
      try connection.execute(ddl.createTable(made, in: schema))
      for column in own { try connection.add(column, to: Self.name) }
      try connection.execute("INSERT INTO \(Self.name) (\(columns)) SELECT \(columns) FROM \(quoted(table.name))")
    }
    var lost: [String] = []
    for object in objects {
      guard let name = object[0].string, let sql = object[1].string, !isOurs(name) else { continue }
      if try !connection.bringBack(sql, of: table.name) { lost.append(name) }
    }
    return lost
  }

  /// Makes a plain table with the rows of this one, and without keys, constraints, indexes and triggers.
  public static func makePlain(_ table: String, on connection: SQLiteConnection) throws {
    try replace(table, on: connection) {
      try connection.execute("CREATE TABLE \(name) AS SELECT * FROM \(quoted(table))")
    }
  }

  /// Puts the table that `make` makes in the place of this one. References of other tables, and triggers and views that name the table, stay as
  /// they are written.
  private static func replace(_ table: String, on connection: SQLiteConnection, make: () throws -> Void) throws {
    let legacy = try connection.pragma("legacy_alter_table")?.integer ?? 0
    _ = try connection.pragma("legacy_alter_table", "ON")
    defer { _ = try? connection.pragma("legacy_alter_table", "\(legacy)") }
    connection.clearStatementCache()
    try make()
    try connection.execute("DROP TABLE \(quoted(table)); ALTER TABLE \(name) RENAME TO \(quoted(table))")
  }

  /// What the rowid is called, where it is not the key: a full-text index of the application's may hold it.
  private static func rowid(_ shape: TableShape) -> String? {
    if shape.withoutRowid || shape.hasRowidKey { return nil }
    let taken = Set((shape.columns.map(\.name) + shape.generated).map { $0.folded })
    return ["rowid", "_rowid_", "oid"].first { !taken.contains($0) }
  }
}

extension SQLiteConnection {
  /// Adds a column as another table has it: its type, NOT NULL where it has a default, and the default, but for one that is computed anew for
  /// each row, which `ALTER TABLE` does not take.
  public func add(_ column: TableShape.Column, to table: String) throws {
    let head = "ALTER TABLE \(quoted(table)) ADD COLUMN \(quoted(column.name)) \(column.declaredType)"
    let value = column.defaultSQL.map { " DEFAULT (\($0))" } ?? ""
    let whole = head + (column.notNull && column.defaultSQL != nil ? " NOT NULL" : "") + value
    do { try execute(whole) } catch let error as SalvorError where error.code == .storage { try execute(head) }
  }
}
