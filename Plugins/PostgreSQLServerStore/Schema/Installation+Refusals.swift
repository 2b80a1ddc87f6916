#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// What keeps a table of the database from being synchronized as the schema says.
  extension Installation {
    static func worded(_ refusal: (place: String, what: String)) -> String {
      refusal.what.hasPrefix(refusal.place) ? refusal.what : "\(refusal.place): \(refusal.what)"
    }

    /// Of a table that is to be made.
    func refusalsOfNew(_ table: Table) throws -> [(place: String, what: String)] {
      var found: [(place: String, what: String)] = []
      if let long = ([table.name] + table.columns.map(\.name)).first(where: {
        $0.utf8.count > DatabaseCheck.nameBytesMax
      }) {
        found.append((long, "has more than \(DatabaseCheck.nameBytesMax) bytes, and PostgreSQL would cut it"))
      }
      if try !DatabaseCheck(connection).canMakeTables() {
        found.append(
          (
            table.name,
            "is not there, and the role may not make tables in the schema \(settings.tablesIn): GRANT CREATE, USAGE ON SCHEMA, or make the table"
          ))
      }
      return found
    }

    /// Of a table that is there.
    mutating func refusals(of table: Table, _ facts: TableFacts, _ known: Known?) throws -> [(
      place: String, what: String
    )] {
      var found = try DatabaseCheck(connection).problems(of: table).map { (place: table.name, what: $0) }
      let isReadable = found.isEmpty
      let isOwn = try DatabaseCheck(connection).owns(table)
      if known == nil, !isOwn {
        found.append(
          (
            table.name,
            "\(table.name): only the table's owner can make, replace and disable its triggers; ALTER TABLE … OWNER TO, or GRANT the owner's role to this one"
          ))
      }
      for column in table.columns where facts.column(column.name) == nil {
        if known?.columns.contains(column.name) == true {
          found.append(
            (
              "\(table.name).\(column.name)",
              "was synchronized, and is not in the table; rename it back, or say in the schema what became of it (renamedFrom, dropped)"
            ))
        } else if !isAddable(column, to: table) {
          found.append(
            ("\(table.name).\(column.name)", "is missing in the table, and is neither nullable nor has a default"))
        } else if !isOwn {
          found.append(
            (
              "\(table.name).\(column.name)",
              "is missing in the table, and only the table's owner can add it; add it, or give the role the owner's rights"
            ))
        }
      }
      found += problems(of: table, facts, known)
      found += try unfitFixedValues(of: table, facts)
      if isReadable { try refuseNulls(of: table, facts, &found) }
      return found
    }

    func isAddable(_ column: Column, to table: Table) -> Bool {
      !table.primaryKey.contains(column.name) && (column.nullable || column.defaultValue != nil)
    }

    private func problems(of table: Table, _ facts: TableFacts, _ known: Known?) -> [(place: String, what: String)] {
      var found: [(place: String, what: String)] = []
      for column in table.columns {
        guard let there = facts.column(column.name) else { continue }
        let place = "\(table.name).\(column.name)"
        if let problem = PostgreSQLType.problem(column.type, there.type) { found.append((place, problem)) }
        if there.isGenerated { found.append((place, "is a generated column; leave it out of the schema")) }
        if table.primaryKey.contains(column.name), !PostgreSQLType.canBeKey(there.type) {
          found.append(
            (place, "is \(there.type), which a key cannot travel as; use an integer type, text, uuid or bytea"))
        }
        if column.nullable, there.notNull { found.append((place, "is NOT NULL in the table, nullable in the schema")) }
      }
      found += problemsOfScopes(of: table, facts)
      for column in facts.columns
      where table.columnIndex(column.name) == nil && !table.hasDropped(column.name) {
        let place = "\(table.name).\(column.name)"
        if known?.columns.contains(column.name) == true {
          found.append((place, "is in the table, not in the schema (was it dropped or renamed?)"))
        } else if column.notNull, !column.hasDefault, !column.isGenerated {
          found.append(
            (place, "is in the table and not in the schema, and new rows need a value for it; give it a default"))
        }
      }
      let uniques = facts.uniques.filter { !$0.isPartial }.map { Set($0.columns.compactMap(\.self)) }
      for unique in table.unique where !uniques.contains(Set(unique)) {
        found.append(("\(table.name).\(unique.joined(separator: ", "))", "has no UNIQUE constraint in the table"))
      }
      for reference in table.references where facts.column(reference.column) != nil {
        guard schema.table(reference.table)?.primaryKey.count == 1 else { continue }
        let place = "\(table.name).\(reference.column)"
        guard
          let key = facts.foreignKeys.first(where: { $0.column == reference.column && $0.parent == reference.table })
        else {
          found.append((place, "has no foreign key to \(reference.table) in the table"))
          continue
        }
        if key.onDelete != reference.onDelete.rawValue {
          found.append(
            (
              place,
              "is ON DELETE \(key.onDelete.uppercased()) in the table, \(reference.onDelete.rawValue) in the schema"
            ))
        }
      }
      for key in facts.foreignKeys
      where key.onDelete == "cascade" && known == nil && schema.table(key.parent) != nil
        && table.columnIndex(key.column) != nil
        && !table.references.contains(where: { $0.column == key.column && $0.table == key.parent })
      {
        found.append(
          (
            "\(table.name).\(key.column)",
            "is ON DELETE CASCADE to \(key.parent) in the table, and no reference in the schema: a delete of a device would take rows along that it did not see; declare it"
          ))
      }
      return found
    }

    /// A fixed value of a scope stands in the text of statements: each of them would fail with it.
    private func unfitFixedValues(of table: Table, _ facts: TableFacts) throws -> [(place: String, what: String)] {
      var found: [(place: String, what: String)] = []
      for scope in table.scopeColumns {
        guard case .value(let value) = scope.source, let type = facts.column(scope.column)?.type else { continue }
        let read = "SELECT CAST(\(connection.dialect.literal(value)) AS \(type)) IS NULL"
        do {
          _ =
            try connection.isInTransaction
            ? connection.attempt { try connection.rows(read) } : connection.transaction { try connection.rows(read) }
        } catch let error as SalvorError where connection.refusesRow(error) {
          found.append(
            (
              "\(table.name).\(scope.column)",
              "is \(type) in the table, which has no value written as its scope's. Correct the value in the schema"
            ))
        }
      }
      return found
    }

    /// A scope compares values in the table and in the log: whoever may see one may not see another that is equal to it by its type.
    private func problemsOfScopes(of table: Table, _ facts: TableFacts) -> [(place: String, what: String)] {
      let names = schema.columnsOfScopes(of: table)
      var found: [(place: String, what: String)] = []
      for name in names {
        guard let column = facts.column(name) else { continue }
        let why: String
        if column.isFolding {
          why = "its collation holds texts equal that are not the same bytes. Give the column COLLATE \"C\""
        } else if column.isEnum {
          guard column.isDomain else { continue }
          why = "PostgreSQL compares a domain over an enum with no value of the enum. Make it the enum itself"
        } else if !PostgreSQLType.tellsValuesApart(column.type) {
          why =
            "\(column.type) holds values equal that are not the same bytes. Make it text COLLATE \"C\", uuid or an integer type"
        } else {
          continue
        }
        found.append(
          ("\(table.name).\(name)", "decides who sees a row (scope), and \(why), or take it out of the scope"))
      }
      // Two columns of different collations, neither of them the database's own, are compared by none (42P22).
      for name in (table.primaryKey + names).withoutRepetitions {
        guard let column = facts.column(name), column.hasOwnCollation, !column.isFolding else { continue }
        found.append(
          (
            "\(table.name).\(name)",
            "has a collation of its own, and PostgreSQL does not compare it with the change log's. Give the column COLLATE \"C\", or the database's own collation"
          ))
      }
      return found
    }

    /// Devices enforce what the schema says of a row.
    private mutating func refuseNulls(
      of table: Table, _ facts: TableFacts, _ refusals: inout [(place: String, what: String)]
    ) throws {
      let lax = table.columns.filter { !$0.nullable && facts.column($0.name)?.notNull == false }
      guard !lax.isEmpty else { return }
      let counts = lax.map { "count(*) FILTER (WHERE \(quoted($0.name)) IS NULL)" }.joined(separator: ", ")
      let nulls = try connection.rows("SELECT \(counts) FROM \(name(table.name))").first ?? []
      for (column, count) in zip(lax, nulls) where count.integer ?? 0 > 0 {
        refusals.append(
          (
            "\(table.name).\(column.name)",
            "is NULL in \(count.integer ?? 0) rows and not nullable in the schema; give them a value"
          ))
      }
      notices.append(
        "\(table.name): \(lax.map(\.name).joined(separator: ", ")) may be NULL in the table and not in the schema; a row that another program writes so could not come to devices."
      )
    }
  }
#endif
