import SalvorModel
import SalvorRecovery

/// A strategy with one deliberate fault, round one without. The suite must catch every one of them.
public struct BrokenStrategy: RecoveryStrategy {
  /// What is wrong with the strategy: one thing at a time.
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
    /// Declares that unsynced changes are kept, and discards them where more than 50 wait.
    case discardsMuch
    /// The same where the archive has kept entries.
    case discardsBesideKeptEntries
    /// Falls back on a strategy that no host has.
    case fallsBackOnNothing
    /// Plans something else when it is asked again.
    case plansAnew
  }

  private let base: any RecoveryStrategy
  private let fault: Fault
  private let asked = Asked()

  /// - Parameter base: one in place that needs the server's consent and keeps what waits.
  public init(_ base: any RecoveryStrategy, _ fault: Fault) {
    self.base = base
    self.fault = fault
  }

  /// The base's: a fault is not seen in the name.
  public var name: String { base.name }
  /// The base's, or, with `fallsBackOnNothing`, a name that no host has.
  public var fallBack: String? { fault == .fallsBackOnNothing ? "no-such-strategy" : base.fallBack }

  /// The base's, with a false claim where the fault is one: about schema changes, or about settings.
  public var guarantees: RecoveryGuarantees {
    var guarantees = base.guarantees
    if fault == .claimsToSurviveSchemaChanges { guarantees.survivesSchemaChange = true }
    if fault == .claimsToLoseSettings { guarantees.settings = .lost }
    return guarantees
  }

  /// Hides from the base what the fault does not look at, and falsifies the steps of the base's plan.
  public func plan(for incident: Incident) -> RecoveryDecision {
    var seen = incident
    if fault == .ignoresSchemaChanges { seen.facts.differences = [] }
    if fault == .ignoresTheOperator { seen.facts.clientRecoveryEnabled = true }
    if fault == .trustsDamagedFiles, seen.reason == .localCorruption { seen.reason = .operatorRequested }
    let decision = base.plan(for: seen)
    guard case .steps(let steps) = decision else { return fault == .saysNothing ? .cannot("") : decision }
    switch fault {
    case .discardsWhatItKeeps: return Self.discarding
    case .rebuildsEverything: return .steps([.copy, .fetch(.everything), .apply(.discard, .everything)])
    case .neverApplies: return .steps(steps.filter { $0.name != "apply" })
    case .discardsMuch: return seen.status.queued > 50 ? Self.discarding : decision
    case .discardsBesideKeptEntries: return seen.status.kept > 0 ? Self.discarding : decision
    case .plansAnew: return asked.times() % 3 == 0 ? Self.discarding : decision
    case .waitsInstead: return .steps([.copy, .wait])
    default: return decision
    }
  }

  private static let discarding = RecoveryDecision.steps([.fetch(.differences), .apply(.discard, .nothing)])
}

/// Which call this is.
private final class Asked: Sendable {
  private let count = Mutex(0)

  func times() -> Int {
    count.withLock { count in
      count += 1
      return count
    }
  }
}
