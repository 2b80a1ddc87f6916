import SalvorModel
import SalvorStorage

/// What a reader's scope asks of a row by one alternative of its table, and of the rows that it joins.
struct ScopeDemand {
  /// A row has one of these values in the column of a condition.
  struct Part {
    var place: Int
    var values: [Value]
  }

  let scope: ScopeAlternative
  /// Whose rows it asks for.
  let table: String
  /// By condition: the values that the principal may see; nil: any.
  let allowed: [[Value]?]
  /// What was subscribed to, of which all parts of one option must hold; nil: nothing is asked.
  let options: [[Part]]?
  /// By join; nil: it asks nothing.
  let joins: [ScopeDemand?]
  private let choice: ScopeChoice?

  init(_ scope: ScopeAlternative, of table: String, _ reader: ScopeReader, _ catalog: Catalog) {
    self.scope = scope
    self.table = table
    allowed = scope.conditions.map { condition in
      reader.allowedValues(condition.source)?.map { catalog.written($0, in: table, condition.column) }
    }
    choice = reader.choice(of: table, by: scope)
    options = choice.map {
      Self.joined($0.options) { catalog.written($0.value, in: table, scope.conditions[$0.place].column) }
    }
    joins = scope.joins.map { reader.isFree($0) ? nil : ScopeDemand($0.scope, of: $0.table, reader, catalog) }
    self.catalog = catalog
  }

  private let catalog: Catalog

  /// Options of one term each on the same condition become one list of values, which an index serves at once.
  private static func joined(_ options: [[ScopeChoice.Term]], _ written: (ScopeChoice.Term) -> Value) -> [[Part]] {
    var out: [[Part]] = []
    var lists: [Int: Int] = [:]
    for terms in options {
      if terms.count == 1, let list = lists[terms[0].place] {
        out[list][0].values.append(written(terms[0]))
      } else {
        if terms.count == 1 { lists[terms[0].place] = out.count }
        out.append(terms.map { Part(place: $0.place, values: [written($0)]) })
      }
    }
    return out
  }

  /// In the order in which the conditions ask for them. Fixed ones are in their text.
  var values: [Value] {
    var values: [Value] = []
    for (condition, allowed) in zip(scope.conditions, allowed) where !condition.source.isFixed {
      values += catalog.dialect.bound(allowed ?? [])
    }
    for part in options?.flatMap(\.self) ?? [] { values += catalog.dialect.bound(part.values) }
    return values + joins.flatMap { $0?.values ?? [] }
  }

  var hasChoices: Bool { options != nil || joins.contains { $0?.hasChoices == true } }

  // MARK: Differences

  /// A value that rows may have come by, in a column of the row that the joins lead to.
  struct Lead {
    var path: [ScopeJoin]
    var column: String
    var values: [Value]
  }

  /// What finds the rows that this asks for and `other`, of the same principal, does not. Nil: nothing narrows them.
  func leads(beyond other: ScopeDemand, path: [ScopeJoin] = []) -> [Lead]? {
    var leads: [Lead] = []
    if let before = other.choice {
      guard let choice else { return nil }
      let known = Set(before.options)
      // Of several terms the first one finds the rows; the whole condition is asked of them.
      for terms in choice.options where !known.contains(terms) {
        guard let term = terms.first else { return nil }
        let column = scope.conditions[term.place].column
        leads.append(Lead(path: path, column: column, values: [catalog.written(term.value, in: table, column)]))
      }
    }
    for (place, join) in scope.joins.enumerated() {
      guard let before = other.joins[place] else { continue }
      guard let next = joins[place], let found = next.leads(beyond: before, path: path + [join]) else { return nil }
      leads += found
    }
    return leads
  }
}
