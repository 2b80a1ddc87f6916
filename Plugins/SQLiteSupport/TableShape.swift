import SalvorModel
import SalvorStorage

/// A table as the database has it.
public struct TableShape: Sendable, Hashable {
  /// An ordinary column, as `PRAGMA table_xinfo` describes it.
  public struct Column: Sendable, Hashable {
    /// As the database writes it; SQLite compares names without case.
    public var name: String
    /// As it was written; empty where none was.
    public var declaredType: String
    /// The column is declared NOT NULL.
    public var notNull: Bool
    /// The DEFAULT clause as SQL; nil without one.
    public var defaultSQL: String?
    /// The place in the primary key, from 1; 0: not in it.
    public var keyPosition: Int
    /// The column is ANY in a STRICT table: it keeps each value as it is.
    public var isAny = false
    /// What SQLite converts values to that are stored in the column.
    public var affinity: Affinity { isAny ? .blob : Affinity(declaredType) }
  }

  /// A unique index, whether a constraint or `CREATE UNIQUE INDEX` made it. The key of a rowid table that is the rowid
  /// has none.
  public struct UniqueIndex: Sendable, Hashable {
    /// `sqlite_autoindex_…` where a constraint made it.
    public var name: String
    /// Columns and the collation that the index compares them with; a nil name is an expression.
    public var columns: [IndexedColumn]
    /// The WHERE expression of a partial index, as it was written.
    public var condition: String?
    /// It is the primary key's.
    public var isPrimaryKey: Bool
  }

  /// One column of an index.
  public struct IndexedColumn: Sendable, Hashable {
    /// Nil: an expression.
    public var name: String?
    /// `BINARY`, `NOCASE`, `RTRIM`, or one of the application's.
    public var collation: String
  }

  /// A reference to another table.
  public struct ForeignKey: Sendable, Hashable {
    /// The columns that refer, in the order of the key.
    public var columns: [String]
    /// The name of the table that is referred to. The database need not have it.
    public var parent: String
    /// Empty: the parent's primary key.
    public var parentColumns: [String]
    /// As SQLite writes it: `NO ACTION`, `CASCADE`, …
    public var onDelete: String
    /// As `onDelete`.
    public var onUpdate: String
  }

  /// As the database writes it, whatever case was asked for.
  public var name: String
  /// Ordinary columns in the table's order. Generated columns are in `generated`.
  public var columns: [Column]
  /// The names of the generated columns, virtual and stored.
  public var generated: [String]
  /// Those of the primary key and of UNIQUE constraints too.
  public var uniqueIndexes: [UniqueIndex]
  /// In the order of the table's statement.
  public var foreignKeys: [ForeignKey]
  /// The table is declared WITHOUT ROWID.
  public var withoutRowid: Bool

  /// The primary key's columns, in the key's order; empty without a primary key.
  public var primaryKey: [String] {
    columns.filter { $0.keyPosition > 0 }.sorted { $0.keyPosition < $1.keyPosition }.map(\.name)
  }

  /// Whether the primary key is the rowid.
  public var hasRowidKey: Bool { !withoutRowid && !primaryKey.isEmpty && !uniqueIndexes.contains { $0.isPrimaryKey } }

  /// The ordinary column of this name: with the same case where there is one, else without case. Nil: there is none.
  public func column(_ name: String) -> Column? {
    columns.first { $0.name == name } ?? columns.first { $0.name.folded == name.folded }
  }
}

/// SQLite's rule from a declared type to a column's affinity (datatype3.html, section 3.1).
public enum Affinity: String, Sendable, Hashable {
  case text, numeric, integer, real, blob

  /// A type of no name gives `blob`; a type that fits no rule gives `numeric`.
  public init(_ declaredType: String) {
    let type = declaredType.uppercased()
    if type.contains("INT") {
      self = .integer
    } else if type.contains("CHAR") || type.contains("CLOB") || type.contains("TEXT") {
      self = .text
    } else if type.contains("BLOB") || type.isEmpty {
      self = .blob
    } else if type.contains("REAL") || type.contains("FLOA") || type.contains("DOUB") {
      self = .real
    } else {
      self = .numeric
    }
  }
}

/// What a table is follows from the SQL of the table and of its indexes: the shapes that were asked for, by that. Asking takes
/// a handful of PRAGMAs, each compiled anew, and each step of a store wants to know.
private let knownShapes = Mutex<[String: TableShape]>([:])
private let knownShapesMax = 1000

extension SQLiteConnection {
  /// The names of the ordinary tables, without SQLite's own.
  public func tableNames() throws -> [String] {
    try rows(
      "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    )
    .compactMap { $0[0].string }
  }

  /// The table's shape; nil where there is no such table. Names compare as SQLite compares them, without case.
  public func tableShape(_ name: String) throws -> TableShape? {
    var (text, found): (String, String?) = ("", nil)
    try query(
      "SELECT type, name, sql FROM sqlite_schema WHERE tbl_name = ?1 COLLATE NOCASE AND type IN ('table', 'index')",
      [.text(name)]
    ) { row in
      if row.string(0) == "table" { found = row.string(1) }
      text += "\(row.string(1))\u{0}\(row.string(2))\u{0}"
      return true
    }
    guard let found else { return nil }
    if let known = knownShapes.withLock({ $0[text] }) { return known }
    let shape = try askedShape(found)
    knownShapes.withLock { shapes in
      if shapes.count >= knownShapesMax { shapes.removeAll() }
      shapes[text] = shape
    }
    return shape
  }

  private func askedShape(_ found: String) throws -> TableShape {
    var shape = TableShape(
      name: found, columns: [], generated: [], uniqueIndexes: [], foreignKeys: [], withoutRowid: false)
    let columns = try pragmaRows("table_xinfo", found)
    // schema, name, type, ncol, wr, strict; a SQLite without STRICT tables has no such pragma. It looks at every view, so
    // it is asked only where it matters.
    let isStrict =
      try columns.contains { $0[2].string?.uppercased() == "ANY" }
      && pragmaRows("table_list", found).contains { $0.count > 5 && $0[5].integer == 1 }
    for row in columns {
      // cid, name, type, notnull, dflt_value, pk, hidden
      let name = row[1].string ?? ""
      switch row[6].integer ?? 0 {
      case 0:
        shape.columns.append(
          TableShape.Column(
            name: name, declaredType: row[2].string ?? "", notNull: row[3].integer != 0, defaultSQL: row[4].string,
            keyPosition: Int(row[5].integer ?? 0), isAny: isStrict && row[2].string?.uppercased() == "ANY"))
      case 2, 3: shape.generated.append(name)
      default: break
      }
    }
    // seq, name, unique, origin, partial
    for row in try pragmaRows("index_list", found) where row[2].integer == 1 {
      let name = row[1].string ?? ""
      let condition = row[4].integer == 1 ? indexCondition(of: try indexSQL(name)) : nil
      try shape.add(index: name, isPrimaryKey: row[3].string == "pk", condition: condition, self)
    }
    shape.foreignKeys = try foreignKeys(of: found)
    return shape
  }

  private func indexSQL(_ index: String) throws -> String {
    try scalar("SELECT sql FROM sqlite_schema WHERE type = 'index' AND name = ?1", .text(index))?.string ?? ""
  }

  private func foreignKeys(of table: String) throws -> [TableShape.ForeignKey] {
    var keys: [Int64: TableShape.ForeignKey] = [:]
    // id, seq, table, from, to, on_update, on_delete, match; by id and seq
    for row in try pragmaRows("foreign_key_list", table) {
      let id = row[0].integer ?? 0
      var key =
        keys[id]
        ?? TableShape.ForeignKey(
          columns: [], parent: row[2].string ?? "", parentColumns: [], onDelete: row[6].string ?? "",
          onUpdate: row[5].string ?? "")
      key.columns.append(row[3].string ?? "")
      if let column = row[4].string { key.parentColumns.append(column) }
      keys[id] = key
    }
    // SQLite numbers them from the last of the CREATE TABLE to the first.
    return keys.sorted { $0.key > $1.key }.map(\.value)
  }

  func pragmaRows(_ pragma: String, _ name: String) throws -> [[Value]] {
    let statement = try prepare("PRAGMA \(pragma)(\(quoted(name)))")
    var rows: [[Value]] = []
    while try statement.step() { rows.append(statement.values()) }
    return rows
  }
}

extension TableShape {
  fileprivate mutating func add(
    index: String, isPrimaryKey: Bool, condition: String?, _ connection: SQLiteConnection
  ) throws {
    var columns: [IndexedColumn] = []
    var hasRowid = false
    // seqno, cid (-1: rowid, -2: expression), name, desc, coll, key
    for row in try connection.pragmaRows("index_xinfo", index) {
      if row[5].integer == 1 {
        columns.append(IndexedColumn(name: row[2].string, collation: row[4].string ?? "BINARY"))
      } else if row[1].integer == -1 {
        hasRowid = true
      }
    }
    if isPrimaryKey, !hasRowid { withoutRowid = true }
    uniqueIndexes.append(UniqueIndex(name: index, columns: columns, condition: condition, isPrimaryKey: isPrimaryKey))
  }
}
