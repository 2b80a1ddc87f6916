import SalvorRecovery

/// A strategy with one deliberate fault, round one without. The suite must catch every one of them.
public struct BrokenStrategy: RecoveryStrategy {
  public enum Fault: String, Sendable, CaseIterable {
    /// Declares that unsynced changes are kept, and discards them.
    case discardsWhatItKeeps
    /// Declares that it works over a destructive schema change, and does not.
    case claimsToSurviveSchemaChanges
    /// Works in place where the schema has changed destructively.
    case ignoresSchemaChanges
    /// Recovers where the server's operator forbids it.
    case ignoresTheOperator
    /// Declares that client-only tables stay, and makes everything anew.
    case rebuildsEverything
    /// Says that it cannot, and not why.
    case saysNothing
    /// Fetches, and leaves it at that.
    case neverApplies
    /// Declares that it does something, and waits for a person.
    case waitsInstead
    /// Declares that subscriptions and settings are lost, and keeps them.
    case claimsToLoseSettings
    /// Works in place on a file that nobody can read.
    case trustsDamagedFiles
  }

  private let base: any RecoveryStrategy
  private let fault: Fault

  /// - Parameter base: one in place that needs the server's consent and keeps what waits.
  public init(_ base: any RecoveryStrategy, _ fault: Fault) {
    self.base = base
    self.fault = fault
  }

  public var name: String { base.name }
  public var fallBack: String? { base.fallBack }

  public var guarantees: RecoveryGuarantees {
    var guarantees = base.guarantees
    if fault == .claimsToSurviveSchemaChanges { guarantees.survivesSchemaChange = true }
    if fault == .claimsToLoseSettings { guarantees.settings = .lost }
    return guarantees
  }

  public func plan(for incident: Incident) -> RecoveryDecision {
    var seen = incident
    if fault == .ignoresSchemaChanges { seen.facts.differences = [] }
    if fault == .ignoresTheOperator { seen.facts.clientRecoveryEnabled = true }
    if fault == .trustsDamagedFiles, seen.reason == .localCorruption { seen.reason = .operatorRequested }
    let decision = base.plan(for: seen)
    guard case .steps(let steps) = decision else { return fault == .saysNothing ? .cannot("") : decision }
    switch fault {
    case .discardsWhatItKeeps: return .steps([.fetch(.differences), .apply(.discard, .nothing)])
    case .rebuildsEverything: return .steps([.copy, .fetch(.everything), .apply(.discard, .everything)])
    case .neverApplies: return .steps(steps.filter { $0.name != "apply" })
    case .waitsInstead: return .steps([.copy, .wait])
    default: return decision
    }
  }
}
