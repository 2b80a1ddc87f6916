import SalvorModel

/// A reader's scope in the terms of a schema: what it asks of rows, by each of the ways by which they may be in scope.
public struct ScopeReader: Sendable {
  /// The schema whose tables are read.
  public let schema: Schema
  /// What the reader may see and has subscribed to.
  public let scope: ReadScope

  /// A reader of these tables with this scope.
  public init(_ schema: Schema, _ scope: ReadScope) {
    self.schema = schema
    self.scope = scope
  }

  /// The values that `source` allows the reader; nil: any.
  public func allowedValues(_ source: ScopeSource) -> [Value]? { scope.principal.allowedValues(source) }

  /// What subscriptions ask of a table's rows by one of its alternatives, beside what the principal may see; nil: nothing.
  /// They choose by the table's own columns alone: by an alternative without a parameter whoever needs the row has it.
  public func choice(of table: String, by alternative: ScopeAlternative) -> ScopeChoice? {
    guard !scope.subscriptions.isEmpty, alternative.conditions.contains(where: \.source.isParameter),
      let owner = schema.table(table), let wanted = scope.subscriptions.alternatives(forTable: owner)
    else { return nil }
    var options: Set<[ScopeChoice.Term]> = []
    for values in wanted {
      let terms = alternative.conditions.enumerated().compactMap { place, condition -> ScopeChoice.Term? in
        guard case .parameter(let name) = condition.source, let value = values[name] else { return nil }
        return ScopeChoice.Term(place: place, value: value)
      }
      // It gives no value to what rows are chosen by here: it covers all of them.
      if terms.isEmpty { return nil }
      options.insert(terms)
    }
    return ScopeChoice(options: options.sorted { Self.order($0) < Self.order($1) })
  }

  private static func order(_ terms: [ScopeChoice.Term]) -> String { "\(terms.map { "\($0.place) \($0.value)" })" }

  /// Whether subscriptions ask something by it, of the row itself or of one that it joins.
  public func chooses(by alternative: ScopeAlternative, of table: String) -> Bool {
    choice(of: table, by: alternative) != nil || alternative.joins.contains { chooses(by: $0.scope, of: $0.table) }
  }

  /// Whether every row of `table` is in scope by it.
  public func isFree(_ alternative: ScopeAlternative, of table: String) -> Bool {
    alternative.conditions.allSatisfy { allowedValues($0.source) == nil } && choice(of: table, by: alternative) == nil
      && alternative.joins.allSatisfy(isFree)
  }

  /// It says nothing about a parent; where many rows may be joined there must be one, whoever reads.
  public func isFree(_ join: ScopeJoin) -> Bool { join.reference != nil && isFree(join.scope, of: join.table) }
}

/// What subscriptions ask of a table's rows by one of its alternatives (docs/decisions/0009-subscriptions.md): a row is
/// chosen where all terms of one of the options hold; none: no row is.
public struct ScopeChoice: Sendable, Hashable {
  /// The row has this value in the column of a condition.
  public struct Term: Sendable, Hashable {
    /// Of the condition among the alternative's own (`ScopeAlternative.conditions`).
    public var place: Int
    /// What the subscription gives the condition's parameter.
    public var value: Value
    /// The condition at `place`, and the value that it asks for.
    public init(place: Int, value: Value) {
      self.place = place
      self.value = value
    }
  }

  /// In a fixed order; equal choices are equal.
  public var options: [[Term]]
  /// Give the options in a fixed order, or equal choices may differ.
  public init(options: [[Term]]) { self.options = options }
}
