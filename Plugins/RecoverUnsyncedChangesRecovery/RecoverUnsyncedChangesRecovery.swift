import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorStorage

/// In place: the server's state becomes the bases, the queue stays (realm-client-reset-mode, recoverUnsyncedChanges and
/// recoverOrDiscardUnsyncedChanges). See README.md.
public struct RecoverUnsyncedChangesRecovery: RecoveryStrategy {
  /// `recover-unsynced-changes`, or `recover-or-discard-unsynced-changes` with `orDiscard`.
  public let name: String
  /// `discard-unsynced-changes` with `orDiscard`; else nil: `manual` follows where the strategy cannot, or the steps
  /// fail twice.
  public let fallBack: String?
  /// Unsynced changes, client-only tables and settings stay. The server's `clientRecoveryEnabled` must be on, and the
  /// schemas must not differ destructively.
  public let guarantees = RecoveryGuarantees(
    unsyncedChanges: .kept, clientOnlyTables: .kept, settings: .kept, needsServersConsent: true,
    survivesSchemaChange: false)

  /// - Parameter orDiscard: where it cannot, unsynced changes are discarded instead of a person being asked.
  public init(orDiscard: Bool = false) {
    name = orDiscard ? "recover-or-discard-unsynced-changes" : "recover-unsynced-changes"
    fallBack = orDiscard ? "discard-unsynced-changes" : nil
  }

  /// A fetch of the rows that differ, and one transaction that keeps the queue. It cannot where the server has
  /// `clientRecoveryEnabled` off, the schema has changed destructively or the database file is damaged.
  public func plan(for incident: Incident) -> RecoveryDecision {
    guard incident.facts.clientRecoveryEnabled else {
      return .cannot("the server's operator has switched client recovery off (clientRecoveryEnabled).")
    }
    guard incident.facts.differences.isEmpty else {
      return .cannot("the schema has changed destructively: \(incident.facts.differences.joined(separator: "; ")).")
    }
    if incident.reason == .localCorruption {
      return .cannot("the file is damaged; name a file strategy for the reason local-corruption.")
    }
    return .steps([.fetch(.differences), .apply(.keep, .nothing)])
  }

  /// The module `recover-unsynced-changes` of the kind recovery strategy. It takes no options.
  public static let factory = ModuleFactory.recoveryStrategy(
    RecoverUnsyncedChangesRecovery(), "In place: bases become the server's state, the queue stays.")

  /// The module `recover-or-discard-unsynced-changes` of the kind recovery strategy. It takes no options.
  public static let orDiscardFactory = ModuleFactory.recoveryStrategy(
    RecoverUnsyncedChangesRecovery(orDiscard: true), "As recover-unsynced-changes, else as discard-unsynced-changes.")
}
