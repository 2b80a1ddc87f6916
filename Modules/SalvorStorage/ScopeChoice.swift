import SalvorModel

/// What subscriptions ask of a table's rows by the columns of one owner: the table itself, or an ancestor whose scope it
/// inherits (docs/decisions/0009-subscriptions.md). A row is chosen where all terms of one of the alternatives hold; none:
/// no row is.
public struct ScopeChoice: Sendable, Hashable {
  /// The row that `condition` leads to has this value in its column.
  public struct Term: Sendable, Hashable {
    /// One of the table's (`Schema.scopeConditions`).
    public var condition: ScopeCondition
    public var value: Value
    public init(condition: ScopeCondition, value: Value) {
      self.condition = condition
      self.value = value
    }
  }

  /// The references that lead to the owner; empty: the table itself.
  public var steps: [Reference]
  /// In a fixed order; equal choices are equal.
  public var alternatives: [[Term]]
  public init(steps: [Reference], alternatives: [[Term]]) {
    self.steps = steps
    self.alternatives = alternatives
  }
}

extension Schema {
  /// The tables whose own columns decide which of a table's rows a subscription covers, each with the table's conditions
  /// on them. Only parameters can be chosen; a table without a condition on one is nobody's owner.
  func owners(of table: Table) -> [(owner: Table, conditions: [ScopeCondition])] {
    var owners: [(owner: Table, steps: [Reference], conditions: [ScopeCondition])] = []
    for condition in scopeConditions(of: table) {
      guard case .parameter = condition.source else { continue }
      if let place = owners.firstIndex(where: { $0.steps == condition.steps }) {
        owners[place].conditions.append(condition)
      } else if let owner = condition.steps.last.map({ self.table($0.table) }) ?? table {
        owners.append((owner, condition.steps, [condition]))
      }
    }
    return owners.map { ($0.owner, $0.conditions) }
  }

  /// The targets, tables and groups, whose subscriptions decide which rows of a group a device gets.
  public func subscriptionTargets(ofGroup group: String) -> Set<String> {
    var targets: Set<String> = []
    for table in tables(inGroup: group) {
      for (owner, _) in owners(of: table) { targets.formUnion([owner.name, owner.group]) }
    }
    return targets
  }
}

extension Schema {
  /// The groups that must be synchronized with `names`: those that their rows reference, and where the subscriptions of one
  /// of these have changed, the synchronized ones whose rows reference its. Else rows that reference what is dropped
  /// would go without their own group's cursor saying so.
  ///
  /// - Parameter states: the groups as the device has them.
  public func groups(
    synchronizedWith names: Set<String>, states: [GroupState], subscriptions: ResolvedSubscriptions
  ) -> Set<String> {
    var wanted = closure(ofGroups: names)
    var grew = true
    while grew {
      grew = false
      for state in states where state.isSynchronized && !wanted.contains(state.name) {
        let reached = closure(ofGroups: [state.name])
        let hasChanged = states.contains { other in
          wanted.contains(other.name) && reached.contains(other.name)
            && subscriptions.only(subscriptionTargets(ofGroup: other.name)) != other.subscriptions
        }
        if hasChanged {
          wanted.formUnion(reached)
          grew = true
        }
      }
    }
    return wanted
  }
}

extension ReadScope {
  /// What the subscriptions ask of a table's rows, beside what the principal may see. All must hold; empty: nothing.
  public func choices(of table: Table, in schema: Schema) -> [ScopeChoice] {
    if subscriptions.isEmpty { return [] }
    return schema.owners(of: table).compactMap { owner, conditions in
      guard let wanted = subscriptions.alternatives(forTable: owner) else { return nil }
      var alternatives: Set<[ScopeChoice.Term]> = []
      for values in wanted {
        let terms = conditions.compactMap { condition -> ScopeChoice.Term? in
          guard case .parameter(let name) = condition.source, let value = values[name] else { return nil }
          return ScopeChoice.Term(condition: condition, value: value)
        }
        // It gives no value to what this owner's rows are chosen by: it covers all of them.
        if terms.isEmpty { return nil }
        alternatives.insert(terms)
      }
      return ScopeChoice(
        steps: conditions.first?.steps ?? [], alternatives: alternatives.sorted { Self.order($0) < Self.order($1) })
    }
  }

  private static func order(_ terms: [ScopeChoice.Term]) -> String { "\(terms.map(\.value))" }

  /// Those of the subscriptions that matter for a group.
  public func subscriptions(ofGroup group: String, in schema: Schema) -> ResolvedSubscriptions {
    subscriptions.isEmpty ? subscriptions : subscriptions.only(schema.subscriptionTargets(ofGroup: group))
  }

  /// What a group's scope digest says of the subscriptions; empty where none matters for it.
  public func subscriptionDigest(ofGroup group: String, in schema: Schema) -> String {
    let relevant = subscriptions(ofGroup: group, in: schema)
    return relevant.isEmpty ? "" : "+" + digest(relevant.json.bytes)
  }
}
