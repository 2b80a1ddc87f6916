import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorStorage

/// A new database, and a first sync (sap-rbs-synchronize-recovery, example 1). See README.md.
public struct RecreateRecovery: RecoveryStrategy {
  public let name = "recreate"
  public let fallBack: String? = nil
  public let guarantees = RecoveryGuarantees(
    unsyncedChanges: .archived, clientOnlyTables: .lost, settings: .lost, needsServersConsent: false,
    survivesSchemaChange: true)

  public init() {}

  public func plan(for incident: Incident) -> RecoveryDecision {
    .steps([.copy, .fetch(.everything), .apply(.discard, .everything)])
  }

  public static let factory = ModuleFactory.recoveryStrategy(
    RecreateRecovery(), "A new database and a first sync; what was not synchronized is in its archive.")
}
