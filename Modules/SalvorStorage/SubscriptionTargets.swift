import SalvorModel

extension Table {
  /// The parameters that its own columns are compared with, by whichever alternative: the table can be subscribed to where
  /// there is one.
  public var scopeParameters: [String] {
    scopeColumns.compactMap { scope in
      if case .parameter(let name) = scope.source { name } else { nil }
    }
  }
}

extension Schema {
  /// The parameters that tables of a target, a table or a group, are chosen by.
  public func parameters(ofTarget target: String) -> Set<String> {
    Set(tables.filter { $0.name == target || $0.group == target }.flatMap(\.scopeParameters))
  }

  /// The targets, tables and groups, whose subscriptions decide which rows of a group a device gets.
  public func subscriptionTargets(ofGroup group: String) -> Set<String> {
    var deciding: Set<String> = []
    for table in tables(inGroup: group) {
      let alternatives = scopeAlternatives(of: table)
      if !alternatives.isEmpty { deciding.insert(table.name) }
      for alternative in alternatives { deciding.formUnion(alternative.tables) }
    }
    var targets: Set<String> = []
    for owner in deciding.compactMap(table) where !owner.scopeParameters.isEmpty {
      targets.formUnion([owner.name, owner.group])
    }
    return targets
  }

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

extension Schema {
  /// What a recovery makes the rows of a group with that was never synchronized: what the first of the groups that reference it was
  /// synchronized with, so that both have the same rows. Nil: none references it.
  ///
  /// - Parameter had: the groups that were synchronized, each with the subscriptions that its cursor was made with.
  public func subscriptions(
    ofNewGroup group: String, beside had: [String: ResolvedSubscriptions]
  ) -> ResolvedSubscriptions? {
    had.keys.sorted().first { closure(ofGroups: [$0]).contains(group) }.flatMap { had[$0] }
  }
}

extension ReadScope {
  /// Those of the subscriptions that matter for a group.
  public func subscriptions(ofGroup group: String, in schema: Schema) -> ResolvedSubscriptions {
    subscriptions.isEmpty ? subscriptions : subscriptions.only(schema.subscriptionTargets(ofGroup: group))
  }

  /// What a group's scope digest says of the subscriptions; empty where none matters for it. Tables go by their oldest
  /// names.
  public func subscriptionDigest(ofGroup group: String, in schema: Schema) -> String {
    let relevant = subscriptions(ofGroup: group, in: schema)
    if relevant.isEmpty { return "" }
    let texts = relevant.targets.map { target, alternatives in
      let table = schema.table(target)
      let named = ResolvedSubscriptions([table?.origin ?? target: alternatives])
      return (table == nil ? "group " : "table ") + named.json.text
    }
    return "+" + digest(Array(texts.sorted().joined(separator: "\n").utf8))
  }
}

extension ResolvedSubscriptions {
  /// With the names that the tables have in `schema`, where they had others in an earlier version of it, and without what
  /// it has no parameter for.
  public func following(_ schema: Schema) -> ResolvedSubscriptions {
    renamed { target in
      let isKnown = schema.table(target) != nil || schema.groups.contains { $0.name == target }
      return isKnown ? target : schema.tables.table(formerly: target)?.name ?? target
    }.usable(in: schema)
  }

  /// Without alternatives that name a parameter by which no table of the target is chosen (any more): they bring nothing,
  /// rather than everything.
  public func usable(in schema: Schema) -> ResolvedSubscriptions {
    ResolvedSubscriptions(
      Dictionary(
        uniqueKeysWithValues: targets.map { target, alternatives in
          let known = schema.parameters(ofTarget: target)
          return (target, alternatives.filter { known.isSuperset(of: $0.keys) })
        }))
  }
}
