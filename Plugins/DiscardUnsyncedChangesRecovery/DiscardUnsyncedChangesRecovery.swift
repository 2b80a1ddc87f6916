import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorStorage

/// In place: the server's state becomes the rows, unsynced changes go to the archive (realm-client-reset-mode,
/// discardUnsyncedChanges). See README.md.
public struct DiscardUnsyncedChangesRecovery: RecoveryStrategy {
  public let name = "discard-unsynced-changes"
  public let fallBack: String? = nil
  public let guarantees = RecoveryGuarantees(
    unsyncedChanges: .archived, clientOnlyTables: .kept, settings: .kept, needsServersConsent: false,
    survivesSchemaChange: false)

  public init() {}

  public func plan(for incident: Incident) -> RecoveryDecision {
    guard incident.facts.differences.isEmpty else {
      return .cannot("the schema has changed destructively: \(incident.facts.differences.joined(separator: "; ")).")
    }
    if incident.reason == .localCorruption {
      return .cannot("the file is damaged; name a file strategy for the reason local-corruption.")
    }
    return .steps([.fetch(.differences), .apply(.discard, .nothing)])
  }

  public static let factory = ModuleFactory.recoveryStrategy(
    DiscardUnsyncedChangesRecovery(), "In place: rows become the server's state, unsynced changes go to the archive.")
}
