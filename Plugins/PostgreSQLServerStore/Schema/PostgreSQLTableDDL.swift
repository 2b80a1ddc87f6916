#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// The statements that make a schema's tables: in the types in which what was sent comes back to the byte.
  struct PostgreSQLTableDDL {
    let schema: Schema
    let settings: ConnectionSettings
    /// The tables that the database has already.
    var adopted: [String: TableFacts] = [:]

    private func name(_ table: String) -> String { "\(quoted(settings.tablesIn)).\(quoted(table))" }

    func createTable(_ table: Table) -> String {
      var parts = table.columns.map { definition($0, of: table) }
      parts.append("PRIMARY KEY (\(quotedNames(table.primaryKey)))")
      parts += table.unique.map { "UNIQUE (\(quotedNames($0)))" }
      parts += table.check.map { "CHECK (\($0))" }
      return "CREATE TABLE \(name(table.name)) (\n  \(parts.joined(separator: ",\n  "))\n)"
    }

    /// Of tables that are there all: references may go in circles.
    func foreignKeys(_ table: Table) -> [String] {
      table.references.compactMap { reference in
        self.reference(reference).map {
          "ALTER TABLE \(name(table.name)) ADD FOREIGN KEY (\(quoted(reference.column))) \($0)"
        }
      }
    }

    func addColumn(_ column: Column, to table: Table) -> [String] {
      ["ALTER TABLE \(name(table.name)) ADD COLUMN \(definition(column, of: table))"]
        + table.references.filter { $0.column == column.name }.compactMap { reference in
          self.reference(reference).map {
            "ALTER TABLE \(name(table.name)) ADD FOREIGN KEY (\(quoted(column.name))) \($0)"
          }
        }
    }

    private func definition(_ column: Column, of table: Table) -> String {
      let type = type(of: column, in: table)
      var sql = "\(quoted(column.name)) \(type)\(type == "text" ? " COLLATE \"C\"" : "")"
      if !column.nullable || table.primaryKey.contains(column.name) { sql += " NOT NULL" }
      if let value = column.defaultValue, value != .null { sql += " DEFAULT \(PostgreSQLDialect().literal(value))" }
      if column.type == .boolean { sql += " CHECK (\(quoted(column.name)) IN (0, 1))" }
      return sql
    }

    /// A column that references an adopted table is of its key's type where PostgreSQL has no foreign key between the two: a uuid.
    private func type(of column: Column, in table: Table, depth: Int = 0) -> String {
      let made = PostgreSQLType.made(column.type)
      // References may go in circles.
      guard made == "text", depth <= schema.tables.count,
        let reference = table.references.first(where: { $0.column == column.name }),
        let parent = schema.table(reference.table), parent.primaryKey.count == 1,
        let place = parent.columnIndex(parent.primaryKey[0])
      else { return made }
      let key = parent.columns[place]
      guard let facts = adopted[parent.name] else { return type(of: key, in: parent, depth: depth + 1) }
      guard let there = facts.column(key.name)?.type, PostgreSQLType.canBeKey(there) else { return made }
      return ["text", "character varying", "character"].contains(there) ? made : there
    }

    /// Deferrable, so that requests that reference one another can be written as a set.
    private func reference(_ reference: Reference) -> String? {
      guard let parent = schema.table(reference.table), parent.primaryKey.count == 1 else { return nil }
      let action = reference.onDelete == .noAction ? "" : " ON DELETE \(reference.onDelete.rawValue.uppercased())"
      return "REFERENCES \(name(parent.name)) (\(quoted(parent.primaryKey[0])))\(action) DEFERRABLE INITIALLY IMMEDIATE"
    }
  }
#endif
