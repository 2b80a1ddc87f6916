import SalvorModel

/// Which strategy recovers from a reason, and what follows where it cannot (semantics 9).
public struct StrategyChain: Sendable {
  /// The strategy at the end of every chain: it stops, and leaves the decision to a person.
  public static let manual = "manual"

  private let strategies: [String: any RecoveryStrategy]
  private let standard: String
  private let byReason: [RecoveryReason: String]

  /// - Parameters:
  ///   - standard: for reasons that `byReason` does not name.
  public init(_ strategies: [any RecoveryStrategy], standard: String, byReason: [RecoveryReason: String]) {
    self.strategies = Dictionary(strategies.map { ($0.name, $0) }) { first, _ in first }
    self.standard = standard
    self.byReason = byReason
  }

  /// The strategy of this name; nil: the chain was not given one.
  public subscript(name: String) -> (any RecoveryStrategy)? { strategies[name] }

  /// Of all strategies, sorted.
  public var names: [String] { strategies.keys.sorted() }

  /// The strategy for a reason. `server-replaced` is manual unless the file names one for it, and a file strategy runs over
  /// a destructive schema change only where it is named for that reason (semantics 6).
  public func name(for reason: RecoveryReason) -> String {
    if let named = byReason[reason] { return named }
    return reason == .serverReplaced || passedOver(for: reason) != nil ? Self.manual : standard
  }

  /// The general strategy, where it is a file strategy and the reason is a destructive schema change for which nobody has
  /// named it; with why, for a person.
  public func passedOver(for reason: RecoveryReason) -> (name: String, why: String)? {
    guard reason == .schemaIncompatible, byReason[reason] == nil, standard != Self.manual,
      strategies[standard]?.guarantees.survivesSchemaChange == true
    else { return nil }
    return (
      standard,
      "it replaces the tables, so it runs over a destructive schema change only where client.recovery.reasons names it for \(reason.rawValue)."
    )
  }

  /// The chosen strategy and those that follow it, `manual` last, each once.
  public func chain(from first: String) -> [String] {
    var names: [String] = []
    var next: String? = first
    while let name = next, !names.contains(name), let strategy = strategies[name] {
      names.append(name)
      next = strategy.fallBack
    }
    if !names.contains(Self.manual) { names.append(Self.manual) }
    return names
  }
}
