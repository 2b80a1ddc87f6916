import SalvorModel
import SalvorStorage

/// What a device is to have of the server's rows, found row by row from what the schema says (semantics 1 and 7), with
/// nothing of what the stores find it by.
struct ScopeOracle {
  let schema: Schema
  let principal: Principal
  let subscriptions: ResolvedSubscriptions
  /// By table.
  let tables: [String: [Row]]

  func rows(of table: Table) -> [Row] { (tables[table.name] ?? []).filter { sees($0, of: table) } }

  private func sees(_ row: Row, of table: Table) -> Bool {
    ways(of: table).contains { columns in
      columns.allSatisfy { holds($0, row, table) } && isChosen(row, of: table, by: columns)
    } && table.references.filter(\.inheritsScope).allSatisfy { follows($0, row, table) }
  }

  /// Of the table's own columns, each all that must hold.
  private func ways(of table: Table) -> [[ScopeColumn]] {
    table.scopeAlternatives.isEmpty ? [table.scope] : table.scopeAlternatives.map { table.scope + $0 }
  }

  private func holds(_ scope: ScopeColumn, _ row: Row, _ table: Table) -> Bool {
    let value = value(scope.column, row, table)
    if case .via(let name, let target) = scope.source {
      guard let joined = schema.table(name), !value.isNull else { return false }
      return (tables[name] ?? []).contains { self.value(target, $0, joined) == value && sees($0, of: joined) }
    }
    return principal.allowedValues(scope.source)?.contains(value) ?? true
  }

  /// Whether a subscription to the table, or to its group, covers what it has in these columns. Where neither was ever
  /// subscribed to, or none of the columns is a parameter's, every row is covered.
  private func isChosen(_ row: Row, of table: Table, by columns: [ScopeColumn]) -> Bool {
    choices(of: table, by: columns).map { choices in
      choices.contains { values in
        columns.allSatisfy { scope in
          wanted(scope, values).map { $0 == value(scope.column, row, table) } ?? true
        }
      }
    } ?? true
  }

  private func choices(of table: Table, by columns: [ScopeColumn]) -> [[String: Value]]? {
    let named = [subscriptions.targets[table.name], subscriptions.targets[table.group]].compactMap(\.self)
    return named.isEmpty || !columns.contains(where: \.source.isParameter) ? nil : named.flatMap(\.self)
  }

  private func wanted(_ scope: ScopeColumn, _ values: [String: Value]) -> Value? {
    if case .parameter(let name) = scope.source { values[name] } else { nil }
  }

  private func follows(_ reference: Reference, _ row: Row, _ table: Table) -> Bool {
    guard let parent = schema.table(reference.table) else { return true }
    let key: Key = [value(reference.column, row, table)]
    guard let found = tables[parent.name]?.first(where: { parent.key(of: $0) == key }) else { return isOpen(parent) }
    return sees(found, of: parent)
  }

  /// Nothing is asked of the table's rows: what references none is seen all the same.
  private func isOpen(_ table: Table) -> Bool {
    ways(of: table).contains { columns in
      columns.allSatisfy { scope in
        if case .via = scope.source { return false }
        return principal.allowedValues(scope.source) == nil
      }
        && (choices(of: table, by: columns)?.contains { values in columns.allSatisfy { wanted($0, values) == nil } }
          ?? true)
    }
      && table.references.filter(\.inheritsScope).allSatisfy { reference in
        schema.table(reference.table).map(isOpen) ?? true
      }
  }

  private func value(_ column: String, _ row: Row, _ table: Table) -> Value {
    table.columnIndex(column).map { row[$0] } ?? .null
  }
}
