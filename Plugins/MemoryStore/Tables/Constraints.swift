import SalvorModel

/// One constraint that the rows of a database break.
enum Violation: Sendable, Hashable {
  case notNull(RowName, column: String)
  case check(RowName, expression: String)
  /// Two rows with the same unique values; the lower key first.
  case unique(RowName, RowName, columns: [String])
  /// The row references one that is not there.
  case missingParent(RowName, Reference)
}

/// Finds what the rows of a database break. All of them are looked at: plain, not fast.
struct Constraints: Sendable {
  var schema: Schema
  /// Soft references are foreign keys on the server and none on a device.
  var softForeignKeys: Bool
  private var checks: [String: [(text: String, expression: CheckExpression)]] = [:]

  /// Throws `schema-refused` where a check is not in the part of SQL that this store evaluates.
  init(_ schema: Schema, softForeignKeys: Bool) throws {
    self.schema = schema
    self.softForeignKeys = softForeignKeys
    for table in schema.tables {
      checks[table.name] = try table.check.map { ($0, try CheckExpression($0, table: table)) }
    }
  }

  /// The references of a table that are foreign keys here.
  func foreignKeys(of table: Table) -> [Reference] {
    table.references.filter { reference in
      guard softForeignKeys || !reference.soft, let parent = schema.table(reference.table) else { return false }
      return parent.primaryKey.count == 1
    }
  }

  /// What `table`'s rows that name `parent` reference it with.
  func references(to parent: String) -> [(child: Table, reference: Reference)] {
    schema.tables.flatMap { child in
      foreignKeys(of: child).filter { $0.table == parent }.map { (child, $0) }
    }
  }

  func violations(in tables: MemoryTables) -> Set<Violation> {
    var found: Set<Violation> = []
    for table in schema.tables {
      let rows = tables.rows(of: table.name)
      for (key, row) in rows {
        let name = RowName(table: table.name, key: key)
        found.formUnion(rowViolations(name, row, table))
        for reference in foreignKeys(of: table) {
          let value = table.value(reference.column, of: row)
          if !value.isNull, tables[RowName(table: reference.table, key: [value])] == nil {
            found.insert(.missingParent(name, reference))
          }
        }
      }
      for columns in table.unique { found.formUnion(collisions(columns, rows, table)) }
    }
    return found
  }

  private func rowViolations(_ name: RowName, _ row: Row, _ table: Table) -> [Violation] {
    var found: [Violation] = []
    for (column, value) in zip(table.columns, row) where value.isNull {
      if !column.nullable || table.primaryKey.contains(column.name) {
        found.append(.notNull(name, column: column.name))
      }
    }
    for check in checks[table.name] ?? [] where check.expression.value(of: row).isFalse {
      found.append(.check(name, expression: check.text))
    }
    return found
  }

  /// Rows with a NULL among the columns never collide.
  private func collisions(_ columns: [String], _ rows: [Key: Row], _ table: Table) -> [Violation] {
    var holders: [[Value]: [Key]] = [:]
    for (key, row) in rows {
      let values = columns.map { table.value($0, of: row) }
      if !values.contains(.null) { holders[values, default: []].append(key) }
    }
    return holders.values.filter { $0.count > 1 }.flatMap { keys in
      let keys = keys.sorted(by: keyPrecedes)
      return keys.dropFirst().map { key in
        Violation.unique(
          RowName(table: table.name, key: keys[0]), RowName(table: table.name, key: key), columns: columns)
      }
    }
  }
}
