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

/// What is in a scope of a table, as a condition of a statement (semantics 7). Its parameters are plain `?`, so it stands
/// after every other parameter.
struct ScopeFilter {
  /// The row that a condition leads to has one of these values.
  private struct Part {
    var condition: ScopeCondition
    /// Among the table's conditions.
    var place: Int
    var allowed: [Value]
  }

  /// All must hold: what the principal may see.
  private let parts: [Part]
  /// Of each all parts of one of the alternatives must hold: what was subscribed to.
  private let choices: [[[Part]]]
  private let chosen: [ScopeChoice]
  private let conditions: [ScopeCondition]
  private let catalog: Catalog

  /// Nil: every row is in the scope.
  init?(_ table: ServerTable, _ scope: ReadScope, _ catalog: Catalog) {
    parts = table.conditions.enumerated().compactMap { place, condition in
      scope.principal.allowedValues(condition.source).map { Part(condition: condition, place: place, allowed: $0) }
    }
    let conditions = table.conditions
    self.conditions = conditions
    chosen = scope.choices(of: table.table, in: catalog.schema)
    choices = chosen.map { Self.joined($0.alternatives, conditions) }
    self.catalog = catalog
    if parts.isEmpty && choices.isEmpty { return nil }
  }

  /// Alternatives of one part each on the same condition become one list of values, which an index serves at once.
  private static func joined(_ alternatives: [[ScopeChoice.Term]], _ conditions: [ScopeCondition]) -> [[Part]] {
    var out: [[Part]] = []
    for terms in alternatives {
      let parts = terms.map { term in
        Part(
          condition: term.condition, place: conditions.firstIndex(of: term.condition) ?? 0, allowed: [term.value])
      }
      if parts.count == 1, let place = out.firstIndex(where: { $0.count == 1 && $0[0].place == parts[0].place }) {
        out[place][0].allowed += parts[0].allowed
      } else {
        out.append(parts)
      }
    }
    return out
  }

  /// Subscriptions narrow it.
  var hasChoices: Bool { !choices.isEmpty }

  var values: [Value] { (parts + choices.flatMap { $0.flatMap { $0 } }).flatMap(\.allowed) }

  /// - Parameter column: how the statement names a column of the row.
  func sql(_ column: (String) -> String) -> String { sql { sql($0, column) } }

  /// The same condition on where a row was: the dimensions of `salvor_gone`.
  func sqlForGone(_ alias: String) -> String { sql { "\(alias).d\($0.place) COLLATE BINARY \(Self.list($0))" } }

  private func sql(_ term: (Part) -> String) -> String {
    (parts.map(term) + choices.map { Self.anyOf($0.map { Self.allOf($0.map(term)) }) }).joined(separator: " AND ")
  }

  private func sql(_ part: Part, _ column: (String) -> String) -> String {
    let list = Self.list(part)
    guard let chain = ScopeChain(part.condition, catalog) else {
      return "\(column(part.condition.column)) COLLATE BINARY \(list)"
    }
    return "EXISTS (SELECT 1 \(chain.from) WHERE \(chain.start) = \(column(part.condition.steps[0].column)) "
      + "AND \(chain.column) COLLATE BINARY \(list))"
  }

  private static func list(_ part: Part) -> String { "IN (\(part.allowed.map { _ in "?" }.joined(separator: ", ")))" }

  private static func allOf(_ terms: [String]) -> String { terms.joined(separator: " AND ") }

  private static func anyOf(_ terms: [String]) -> String {
    terms.count == 1 ? terms[0] : balanced(terms.map { "(\($0))" })
  }

  /// Columns of the row itself that the condition looks at.
  var columns: Set<String> {
    Set((parts + choices.flatMap { $0.flatMap { $0 } }).map { $0.condition.steps.first?.column ?? $0.condition.column })
  }

  // MARK: What changed subscriptions add

  /// Which rows may be in this scope and not in `other`, of the same principal, so that an index finds them: their number
  /// is that of the rows that come, whatever the table has. Nil: as good as all.
  func added(to other: ScopeFilter?, _ column: (String) -> String) -> (sql: String, values: [Value])? {
    var leads: [[ScopeChoice.Term]] = []
    for choice in other?.chosen ?? [] {
      guard let own = chosen.first(where: { $0.steps == choice.steps }) else { return nil }
      // Of several terms the first one finds the rows; the whole condition is asked of them.
      leads += own.alternatives.filter { !choice.alternatives.contains($0) }.map { Array($0.prefix(1)) }
    }
    let parts = Self.joined(leads, conditions).map { $0[0] }
    let terms = parts.map { part -> String in
      guard let chain = ScopeChain(part.condition, catalog) else {
        return "\(column(part.condition.column)) COLLATE BINARY \(Self.list(part))"
      }
      return "\(column(part.condition.steps[0].column)) IN (SELECT \(chain.start) \(chain.from) "
        + "WHERE \(chain.column) COLLATE BINARY \(Self.list(part)))"
    }
    return (terms.isEmpty ? "0" : Self.anyOf(terms), parts.flatMap(\.allowed))
  }
}
