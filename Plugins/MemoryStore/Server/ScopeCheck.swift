import SalvorModel
import SalvorStorage

/// Whether a row is within a scope (semantics 7): what the principal may see, and of that what was subscribed to. All
/// conditions must hold; a condition on a parent's column is followed through the references.
struct ScopeCheck: Sendable {
  enum Finding: Sendable { case inside, outside, parentMissing }

  let schema: Schema
  let scope: ReadScope

  /// What the principal may see, whatever was subscribed to.
  var ofPrincipal: ScopeCheck { ScopeCheck(schema: schema, scope: ReadScope(scope.principal)) }

  func finding(_ row: Row, of table: Table, in tables: MemoryTables) -> Finding {
    for condition in schema.scopeConditions(of: table) {
      guard let allowed = scope.principal.allowedValues(condition.source) else { continue }
      let finding = finding(condition, allowed, row, table, tables)
      if finding != .inside { return finding }
    }
    for choice in scope.choices(of: table, in: schema) {
      let isChosen = choice.alternatives.contains { terms in
        terms.allSatisfy { finding($0.condition, [$0.value], row, table, tables) == .inside }
      }
      if !isChosen { return .outside }
    }
    return .inside
  }

  private func finding(
    _ condition: ScopeCondition, _ allowed: [Value], _ row: Row, _ table: Table, _ tables: MemoryTables
  ) -> Finding {
    var table = table
    var row = row
    for step in condition.steps {
      let value = table.value(step.column, of: row)
      if value.isNull { return .outside }
      guard let parent = schema.table(step.table), let parentRow = tables[RowName(table: parent.name, key: [value])]
      else { return .parentMissing }
      table = parent
      row = parentRow
    }
    return allowed.contains(table.value(condition.column, of: row)) ? .inside : .outside
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
        tables.map { "\($0.name) " + scope.principal.scopeDigest(of: schema.scopeConditions(of: $0)) }
          .joined(separator: "\n").utf8)) + scope.subscriptionDigest(ofGroup: group, in: schema)
  }
}
