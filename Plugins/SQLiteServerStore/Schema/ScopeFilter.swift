import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What a principal may see of a table, as a condition of a statement (semantics 7). Its parameters are plain `?`, so it
/// stands after every other parameter.
struct ScopeFilter {
  private let table: ServerTable
  private let principal: Principal
  private let catalog: Catalog
  /// Of `sql`, and of the two conditions on where a row was or came to be: they ask for the same values in the same order.
  let values: [Value]

  /// Nil: every row is in the scope.
  init?(_ table: ServerTable, _ scope: ReadScope, _ catalog: Catalog) {
    let principal = scope.principal
    let isFree = table.alternatives.contains { $0.isFree(principal.allowedValues) }
    guard !table.alternatives.isEmpty, !isFree else { return nil }
    self.table = table
    self.principal = principal
    self.catalog = catalog
    values = table.alternatives.flatMap { $0.dimensions.flatMap { principal.allowedValues($0) ?? [] } }
  }

  /// - Parameter column: how the statement names a column of the row.
  func sql(_ column: (String) -> String) -> String {
    anyOf(table.alternatives.map { condition($0, depth: 1, column) })
  }

  private func condition(_ scope: ScopeAlternative, depth: Int, _ column: (String) -> String) -> String {
    var parts: [String] = []
    for condition in scope.conditions {
      if case .value(let value) = condition.source {
        parts.append("\(column(condition.column)) IS \(literal(value)) COLLATE BINARY")
      } else if let values = principal.allowedValues(condition.source) {
        parts.append(isAmong(column(condition.column), values))
      }
    }
    for join in scope.joins where !join.isFree(principal.allowedValues) {
      let alias = "p\(depth)"
      let rest = condition(join.scope, depth: depth + 1) { "\(alias).\(quoted($0))" }
      let matches = catalog.joined(alias, join, to: column(join.column))
      parts.append(
        "EXISTS (SELECT 1 FROM \(quoted(join.table)) \(alias) WHERE \(matches)\(rest.isEmpty ? "" : " AND " + rest))")
    }
    return parts.joined(separator: " AND ")
  }

  /// The same condition on where a row was, or came to be: the dimensions of `salvor_gone` and `salvor_came`.
  func sqlForDimensions(_ alias: String) -> String {
    anyOf(
      table.alternatives.enumerated().map { place, alternative in
        let dimensions = alternative.dimensions.enumerated().compactMap { dimension, source in
          principal.allowedValues(source).map { isAmong("\(alias).d\(dimension)", $0) }
        }
        let isWay = table.alternatives.count > 1 ? ["\(alias).a = \(place)"] : []
        return (isWay + dimensions).joined(separator: " AND ")
      })
  }

  private func isAmong(_ expression: String, _ values: [Value]) -> String {
    "\(expression) COLLATE BINARY IN (\(values.map { _ in "?" }.joined(separator: ", ")))"
  }

  /// An empty condition holds: by such a way the row can be seen by everyone who could see one at all.
  private func anyOf(_ conditions: [String]) -> String {
    let parts = conditions.map { $0.isEmpty ? "1" : $0 }
    return parts.count == 1 ? parts[0] : "(" + parts.map { "(\($0))" }.joined(separator: " OR ") + ")"
  }

  /// Columns of the row itself that the condition looks at.
  var columns: Set<String> {
    var columns: Set<String> = []
    for alternative in table.alternatives {
      columns.formUnion(
        alternative.conditions.filter { principal.allowedValues($0.source) != nil }.map(\.column))
      columns.formUnion(alternative.joins.filter { !$0.isFree(principal.allowedValues) }.map(\.column))
    }
    return columns
  }
}

extension Catalog {
  /// The row `alias` of the joined table is one that the join finds by `expression`.
  func joined(_ alias: String, _ join: ScopeJoin, to expression: String) -> String {
    joined(alias, join.table, join.target, isReference: join.reference != nil, to: expression)
  }

  func joined(
    _ alias: String, _ table: String, _ target: String, isReference: Bool, to expression: String
  ) -> String {
    let column = "\(alias).\(quoted(target))"
    let equal = "\(column) = \(expression)"
    // A column that is no key may compare by any collation.
    let isBinary = isReference && self.table(table)?.keyIsBinary == true
    return isBinary ? equal : equal + " AND \(column) IS \(expression) COLLATE BINARY"
  }
}
