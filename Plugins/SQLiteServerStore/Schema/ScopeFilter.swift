import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The way from a row's parent to the row whose column decides, as joined tables. Nil for a condition on the row itself.
struct ScopeChain {
  /// `FROM "parent" p1 JOIN "grandparent" p2 ON …`
  let from: String
  /// The first parent's key.
  let start: String
  /// The column that decides.
  let column: String

  init?(_ condition: ScopeCondition, _ catalog: Catalog) {
    guard !condition.steps.isEmpty else { return nil }
    var from = "FROM "
    var start = ""
    for (place, step) in condition.steps.enumerated() {
      guard let parent = catalog.table(step.table), let key = parent.table.primaryKey.first else { return nil }
      let alias = "p\(place + 1)"
      if place == 0 {
        from += "\(parent.sql) \(alias)"
        start = "\(alias).\(quoted(key))"
      } else {
        from += " JOIN \(parent.sql) \(alias) ON \(alias).\(quoted(key)) = p\(place).\(quoted(step.column))"
      }
    }
    self.from = from
    self.start = start
    column = "p\(condition.steps.count).\(quoted(condition.column))"
  }
}

/// What a principal may see of a table, as a condition of a statement (semantics 7). Its parameters are plain `?`, so it
/// stands after every other parameter.
struct ScopeFilter {
  private let parts: [(condition: ScopeCondition, place: Int, allowed: [Value])]
  private let catalog: Catalog

  /// Nil: every row is in the scope.
  init?(_ table: ServerTable, _ scope: ReadScope, _ catalog: Catalog) {
    let principal = scope.principal
    let parts = table.conditions.enumerated().compactMap { place, condition in
      principal.allowedValues(condition.source).map { (condition, place, $0) }
    }
    guard !parts.isEmpty else { return nil }
    self.parts = parts
    self.catalog = catalog
  }

  var values: [Value] { parts.flatMap(\.allowed) }

  /// - Parameter column: how the statement names a column of the row.
  func sql(_ column: (String) -> String) -> String {
    parts.map { part in
      let list = "IN (\(part.allowed.map { _ in "?" }.joined(separator: ", ")))"
      guard let chain = ScopeChain(part.condition, catalog) else {
        return "\(column(part.condition.column)) COLLATE BINARY \(list)"
      }
      return "EXISTS (SELECT 1 \(chain.from) WHERE \(chain.start) = \(column(part.condition.steps[0].column)) "
        + "AND \(chain.column) COLLATE BINARY \(list))"
    }.joined(separator: " AND ")
  }

  /// The same condition on where a row was: the dimensions of `salvor_gone`.
  func sqlForGone(_ alias: String) -> String {
    parts.map { part in
      "\(alias).d\(part.place) COLLATE BINARY IN (\(part.allowed.map { _ in "?" }.joined(separator: ", ")))"
    }.joined(separator: " AND ")
  }

  /// Columns of the row itself that the condition looks at.
  var columns: Set<String> {
    Set(parts.map { $0.condition.steps.first?.column ?? $0.condition.column })
  }
}
