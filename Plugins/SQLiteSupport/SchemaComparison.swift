import SalvorModel

/// What differs between a schema and a database that exists already (semantics 6, interfaces: schema).
public struct SchemaComparison: Sendable, Hashable {
  /// What can be applied without a loss, in the schema's order.
  public enum Addition: Sendable, Hashable {
    case table(Table)
    case column(Column, table: Table)
  }

  /// What cannot: it is refused by name.
  public struct Refusal: Sendable, Hashable {
    /// The table's name in the schema.
    public var table: String
    /// Nil: the whole table.
    public var column: String?
    /// What was found and what the schema says.
    public var what: String
    /// It is of a constraint: a table that is made anew has it as the schema says.
    public var isConstraint: Bool
    /// A column that the schema does not name and that rows can do without: it may be the application's own.
    public var isUnnamed = false

    /// A refusal of the whole table where `column` is nil.
    public init(table: String, column: String? = nil, what: String, isConstraint: Bool = false) {
      self.table = table
      self.column = column
      self.what = what
      self.isConstraint = isConstraint
    }
  }

  /// In the schema's order. `apply` carries them out where there is no refusal.
  public var additions: [Addition] = []
  /// Empty: the schema can be applied.
  public var refusals: [Refusal] = []

  /// Compares every table of the schema. Tables that the schema does not name are the application's own.
  public init(_ schema: Schema, with connection: SQLiteConnection, ddl: TableDDL) throws {
    for table in schema.tables {
      guard let shape = try connection.tableShape(table.name) else {
        let view = try connection.integer(
          "SELECT 1 FROM sqlite_schema WHERE type = 'view' AND name = ?1 COLLATE NOCASE", .text(table.name))
        if view != nil {
          refuse(table, nil, "is a view in the database; only tables can be synchronized")
          continue
        }
        additions.append(.table(table))
        continue
      }
      compareColumns(table, shape)
      compareKeys(table, shape)
      compareReferences(table, shape, schema, ddl)
      try compareConflictClauses(table, shape, connection)
    }
  }

  /// Throws `schemaRefused` with every refusal in the message, applies the additions otherwise. Call it inside a
  /// transaction. Answers how many there were.
  @discardableResult
  public func apply(to connection: SQLiteConnection, schema: Schema, ddl: TableDDL) throws -> Int {
    try check()
    for addition in additions {
      switch addition {
      case .table(let table): try connection.execute(ddl.createTable(table, in: schema))
      case .column(let column, let table): try connection.execute(ddl.addColumn(column, to: table, in: schema))
      }
    }
    return additions.count
  }

  /// Throws `schemaRefused` where something cannot be applied.
  public func check() throws {
    guard let first = refusals.first else { return }
    let list = refusals.map { refusal in
      let place = refusal.column.map { "\(refusal.table).\($0)" } ?? refusal.table
      return "\(place): \(refusal.what)"
    }
    var context = ["table": first.table]
    if let column = first.column { context["column"] = column }
    throw SalvorError(
      .schemaRefused,
      "The database does not fit the schema: \(list.joined(separator: "; ")). Change the schema, or migrate the tables.",
      context: context)
  }

  private mutating func refuse(_ table: Table, _ column: String? = nil, _ what: String, isConstraint: Bool = false) {
    refusals.append(Refusal(table: table.name, column: column, what: what, isConstraint: isConstraint))
  }

  private mutating func compareColumns(_ table: Table, _ shape: TableShape) {
    for column in table.columns {
      guard let found = shape.column(column.name) else {
        if shape.generated.contains(where: { $0.folded == column.name.folded }) {
          refuse(table, column.name, "is a generated column; leave it out of the schema")
        } else if table.primaryKey.contains(column.name) {
          refuse(table, column.name, "is missing in the table and part of the schema's primary key")
        } else if column.nullable || column.defaultValue != nil {
          additions.append(.column(column, table: table))
        } else {
          refuse(table, column.name, "is missing in the table, and is neither nullable nor has a default")
        }
        continue
      }
      if !column.type.isKept(by: found.affinity) {
        refuse(
          table, column.name,
          "is \(found.declaredType) in the table, \(column.type.rawValue) in the schema (\(column.type.fittingTypes))")
      }
      if column.nullable, found.notNull {
        refuse(table, column.name, "is NOT NULL in the table, nullable in the schema", isConstraint: true)
      }
    }
    for column in shape.columns
    where !table.columns.contains(where: { $0.name.folded == column.name.folded }) {
      refuse(table, column.name, "is in the table, not in the schema (was it dropped or renamed?)")
      refusals[refusals.count - 1].isUnnamed = !column.notNull || column.defaultSQL != nil
    }
  }

  private mutating func compareKeys(_ table: Table, _ shape: TableShape) {
    let key = shape.primaryKey.map { $0.folded }
    if key != table.primaryKey.map({ $0.folded }) {
      let found = shape.primaryKey.isEmpty ? "none" : shape.primaryKey.joined(separator: ", ")
      refuse(
        table, nil,
        "the primary key is \(found) in the table, \(table.primaryKey.joined(separator: ", ")) in the schema")
    }
    let indexes = shape.uniqueIndexes.filter { $0.condition == nil }.map { index in
      Set(index.columns.map { $0.name?.folded ?? "" })
    }
    for unique in table.unique where !indexes.contains(Set(unique.map { $0.folded })) {
      refuse(table, unique.joined(separator: ", "), "has no UNIQUE constraint in the table", isConstraint: true)
    }
    for index in shape.uniqueIndexes
    where table.maintained != .client && index.columns.contains(where: { $0.name == nil }) {
      refuse(table, nil, "the unique index \(index.name) is on an expression, which capture cannot follow")
    }
  }

  /// A constraint that says REPLACE or IGNORE by itself would remove or leave out rows that Salvor writes, without a word.
  private mutating func compareConflictClauses(_ table: Table, _ shape: TableShape, _ connection: SQLiteConnection)
    throws
  {
    guard table.maintained != .client else { return }
    let sql = try connection.scalar(
      "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1", .text(shape.name))?.string
    for clause in Set(conflictClauses(of: sql ?? "")).sorted() {
      refuse(
        table, nil,
        "a constraint of the table says ON CONFLICT \(clause); make the table anew without it (statements may say INSERT OR \(clause) instead)"
      )
    }
  }

  private mutating func compareReferences(
    _ table: Table, _ shape: TableShape, _ schema: Schema, _ ddl: TableDDL
  ) {
    for reference in table.references where ddl.softForeignKeys || !reference.soft {
      // A column that is being added brings its own foreign key.
      guard shape.column(reference.column) != nil else { continue }
      let found = shape.foreignKeys.first {
        $0.columns.map { $0.folded } == [reference.column.folded]
          && $0.parent.folded == reference.table.folded
      }
      guard let found else {
        refuse(table, reference.column, "has no foreign key to \(reference.table) in the table", isConstraint: true)
        continue
      }
      let key = schema.table(reference.table)?.primaryKey ?? []
      if !found.parentColumns.isEmpty, found.parentColumns.map({ $0.folded }) != key.map({ $0.folded }) {
        refuse(
          table, reference.column,
          "references \(reference.table) (\(found.parentColumns.joined(separator: ", "))) in the table; a reference of the schema leads to the primary key. Leave it out of the schema",
          isConstraint: true)
      }
      if found.onDelete.folded != reference.onDelete.rawValue {
        refuse(
          table, reference.column,
          "is ON DELETE \(found.onDelete) in the table, \(reference.onDelete.rawValue) in the schema",
          isConstraint: true)
      }
    }
  }
}

extension ColumnType {
  /// The declared types that give back every value of this type, as a person looks for them (docs/guides/schema-evolution.md).
  fileprivate var fittingTypes: String {
    switch self {
    case .text, .json, .timestamp: "TEXT, VARCHAR, CHAR, CLOB or BLOB fit, or no type"
    case .integer, .boolean: "INTEGER, BIGINT or another INT, BOOLEAN, NUMERIC or BLOB fit, or no type"
    case .real: "REAL, DOUBLE, FLOAT or BLOB fit, or no type"
    case .blob: "BLOB, TEXT or VARCHAR fit, or no type"
    }
  }

  /// Whether a column of `affinity` gives back every value of this type as it was stored.
  func isKept(by affinity: Affinity) -> Bool {
    switch self {
    case .text, .json: affinity == .text || affinity == .blob
    // A declared type DATETIME has numeric affinity; text that is no number stays text in it.
    case .timestamp: affinity == .text || affinity == .blob || affinity == .numeric
    case .integer, .boolean: affinity == .integer || affinity == .numeric || affinity == .blob
    case .real: affinity == .real || affinity == .blob
    case .blob: affinity == .blob || affinity == .text
    }
  }
}

extension TableShape {
  /// One sentence for each column that is `timestamp` in the schema, and whose declared type makes numbers of some texts.
  ///
  /// - Parameters:
  ///   - place: whose table it is.
  ///   - other: who has the text as it was written.
  public func numericTimestamps(of table: Table, in place: String, other: String) -> [String] {
    table.travelling.compactMap { column in
      guard column.type == .timestamp, let found = self.column(column.name), found.affinity == .numeric else {
        return nil
      }
      return
        "\(table.name).\(column.name) is \(found.declaredType) in \(place), timestamp in the schema: SQLite makes a number of a text there that looks like one ('2024', '20240101'), and \(other) the text. Texts like '2024-05-01T10:00:00Z' stay as they are. Declare the column TEXT where others are written."
    }
  }
}
