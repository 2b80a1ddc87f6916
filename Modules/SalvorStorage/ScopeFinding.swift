import SalvorModel

/// Where a row stands to a reader's scope (semantics 7).
public enum ScopeFinding: Sendable, Hashable {
  case inside, outside
  /// The row that this reference names is not there.
  case parentMissing(Reference)
  /// The row that this reference names is outside itself. Whoever writes is answered as if it were not there.
  case parentOutside(Reference)
}

/// Finds by plain search whether rows are in scope: joined row by joined row, over whatever holds the rows.
public struct ScopeSearch<Failure: Error> {
  let reader: ScopeReader
  /// What a row of a table has in a column.
  let value: (_ column: String, _ row: Row, _ table: String) -> Value
  /// The rows that a join finds by the value of its column. More than have it in scope may be given, never fewer.
  let rows: (ScopeJoin, Value) throws(Failure) -> [Row]

  /// - Parameters:
  ///   - reader: whose scope is asked about.
  ///   - value: what a row of a table has in a column; `Value.null` where there is no such column.
  ///   - rows: the rows that a join finds by the value of its column, in scope or not; by a reference the parent, or
  ///     none.
  public init(
    by reader: ScopeReader,
    value: @escaping (_ column: String, _ row: Row, _ table: String) -> Value,
    rows: @escaping (ScopeJoin, Value) throws(Failure) -> [Row]
  ) {
    self.reader = reader
    self.value = value
    self.rows = rows
  }

  /// By any of the alternatives; where there are none, the row is everyone's. Of one that is in scope by none, a missing
  /// parent is said where it is what an alternative fails by.
  public func finding(_ row: Row, of table: String, by alternatives: [ScopeAlternative]) throws(Failure) -> ScopeFinding
  {
    guard !alternatives.isEmpty else { return .inside }
    var found = ScopeFinding.outside
    for alternative in alternatives {
      let finding = try finding(row, of: table, by: alternative)
      if finding == .inside { return .inside }
      if found == .outside { found = finding }
    }
    return found
  }

  private func finding(_ row: Row, of table: String, by scope: ScopeAlternative) throws(Failure) -> ScopeFinding {
    for condition in scope.conditions {
      if let values = reader.allowedValues(condition.source), !values.contains(value(condition.column, row, table)) {
        return .outside
      }
    }
    if let choice = reader.choice(of: table, by: scope) {
      let isChosen = choice.options.contains { terms in
        terms.allSatisfy { value(scope.conditions[$0.place].column, row, table) == $0.value }
      }
      if !isChosen { return .outside }
    }
    for join in scope.joins where !reader.isFree(join) {
      let value = value(join.column, row, table)
      if value.isNull { return .outside }
      let found = try rows(join, value)
      if let reference = join.reference {
        guard let parent = found.first else { return .parentMissing(reference) }
        let finding = try finding(parent, of: join.table, by: join.scope)
        switch finding {
        case .inside: break
        case .outside, .parentOutside: return .parentOutside(reference)
        case .parentMissing: return finding
        }
      } else if try !isAny(of: found, in: join) {
        return .outside
      }
    }
    return .inside
  }

  private func isAny(of rows: [Row], in join: ScopeJoin) throws(Failure) -> Bool {
    for row in rows where try finding(row, of: join.table, by: join.scope) == .inside { return true }
    return false
  }
}
