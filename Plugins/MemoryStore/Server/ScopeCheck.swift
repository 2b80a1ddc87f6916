import SalvorModel
import SalvorStorage

/// Whether a row is within a scope (semantics 7): what the principal may see, and of that what was subscribed to. By plain
/// search through the tables.
struct ScopeCheck: Sendable {
  let schema: Schema
  let scope: ReadScope

  /// What the principal may see, whatever was subscribed to.
  var ofPrincipal: ScopeCheck { ScopeCheck(schema: schema, scope: ReadScope(scope.principal)) }

  private var reader: ScopeReader { ScopeReader(schema, scope) }

  func finding(_ row: Row, of table: Table, in tables: MemoryTables) -> ScopeFinding {
    ScopeSearch(
      by: reader,
      value: { column, row, name in schema.table(name)?.value(column, of: row) ?? .null },
      rows: { join, value in
        if join.reference != nil {
          return tables[RowName(table: join.table, key: [value])].map { [$0] } ?? []
        }
        guard let joined = schema.table(join.table) else { return [] }
        return tables.rows(of: join.table).values.filter { joined.value(join.target, of: $0) == value }
      }
    ).finding(row, of: table.name, by: schema.scopeAlternatives(of: table))
  }

  /// Some rows of the table may be outside.
  func isLimited(_ table: Table) -> Bool {
    let alternatives = schema.scopeAlternatives(of: table)
    return !alternatives.isEmpty && !alternatives.contains { reader.isFree($0, of: table.name) }
  }

  /// Subscriptions narrow what is seen of the table.
  func isNarrowed(_ table: Table) -> Bool {
    schema.scopeAlternatives(of: table).contains { reader.chooses(by: $0, of: table.name) }
  }

  /// The rows of `names` that are in the scope.
  func visible(_ names: [Table], in tables: MemoryTables) -> Set<RowName> {
    var visible: Set<RowName> = []
    for table in names {
      for (key, row) in tables.rows(of: table.name) where finding(row, of: table, in: tables) == .inside {
        visible.insert(RowName(table: table.name, key: key))
      }
    }
    return visible
  }

  /// Names the scope of a group: the same where the same tables have the same conditions for this principal, and the same
  /// subscriptions.
  func digest(ofGroup group: String) -> String {
    let tables = schema.tables(inGroup: group)
    return SalvorStorage.digest(
      Array(
        tables.map { "\($0.origin) " + scope.principal.scopeDigest(of: [schema.scopeAlternatives(of: $0)]) }
          .joined(separator: "\n").utf8)) + scope.subscriptionDigest(ofGroup: group, in: schema)
  }
}
