import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorStorage

/// In place: the server's state becomes the rows, unsynced changes go to the archive (realm-client-reset-mode,
/// discardUnsyncedChanges). See README.md.
public struct DiscardUnsyncedChangesRecovery: RecoveryStrategy {
  /// `discard-unsynced-changes`.
  public let name = "discard-unsynced-changes"
  /// Nil: `manual` follows where the strategy cannot, or the steps fail twice.
  public let fallBack: String? = nil
  /// Unsynced changes go to the archive; client-only tables and settings stay; the schemas must not differ
  /// destructively.
  public let guarantees = RecoveryGuarantees(
    unsyncedChanges: .archived, clientOnlyTables: .kept, settings: .kept, needsServersConsent: false,
    survivesSchemaChange: false)

  /// The strategy has no options.
  public init() {}

  /// A fetch of the rows that differ, and one transaction that discards the queue. It cannot where the schema has
  /// changed destructively or the database file is damaged.
  public func plan(for incident: Incident) -> RecoveryDecision {
    guard incident.facts.differences.isEmpty else {
      return .cannot("the schema has changed destructively: \(incident.facts.differences.joined(separator: "; ")).")
    }
    if incident.reason == .localCorruption {
      return .cannot("the file is damaged; name a file strategy for the reason local-corruption.")
    }
    return .steps([.fetch(.differences), .apply(.discard, .nothing)])
  }

  /// The module `discard-unsynced-changes` of the kind recovery strategy. It takes no options.
  public static let factory = ModuleFactory.recoveryStrategy(
    DiscardUnsyncedChangesRecovery(), "In place: rows become the server's state, unsynced changes go to the archive.")
}
