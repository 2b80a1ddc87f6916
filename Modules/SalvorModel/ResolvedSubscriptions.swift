/// The subscriptions of a device as a server reads them: parameter values only, personalization keys already replaced by
/// theirs (semantics 1, docs/decisions/0009-subscriptions.md).
public struct ResolvedSubscriptions: Sendable, Hashable {
  /// By target, the name of a table or a group: the parameter values of each of its subscriptions, which are alternatives.
  /// One without values covers everything that the principal may see; a target without subscriptions brings nothing;
  /// what is no target brings everything that the principal may see.
  public var targets: [String: Set<[String: Value]>]

  /// No target where none is given: everything that the principal may see.
  public init(_ targets: [String: Set<[String: Value]>] = [:]) {
    self.targets = targets
  }

  /// True where there is no target, so that everything comes that the principal may see.
  public var isEmpty: Bool { targets.isEmpty }

  /// Those of these targets alone.
  public func only(_ names: Set<String>) -> ResolvedSubscriptions {
    ResolvedSubscriptions(targets.filter { names.contains($0.key) })
  }

  /// With other names of targets.
  public func renamed(_ name: (String) -> String) -> ResolvedSubscriptions {
    ResolvedSubscriptions(Dictionary(targets.map { (name($0.key), $0.value) }) { one, other in one.union(other) })
  }

  /// The alternatives for the rows of a table by its own columns; nil: neither the table nor its group is a target.
  public func alternatives(forTable table: Table) -> Set<[String: Value]>? {
    switch (targets[table.name], targets[table.group]) {
    case (nil, nil): nil
    case (let one, let other): (one ?? []).union(other ?? [])
    }
  }
}
