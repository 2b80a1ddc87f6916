import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorStorage

/// A new database, and a first sync (sap-rbs-synchronize-recovery, example 1). See README.md.
public struct RecreateRecovery: RecoveryStrategy {
  /// `recreate`.
  public let name = "recreate"
  /// Nil: `manual` follows where the steps fail twice.
  public let fallBack: String? = nil
  /// Unsynced changes go to the archive; client-only tables and settings are lost, but for the copy of the database; a
  /// destructive schema change is no obstacle.
  public let guarantees = RecoveryGuarantees(
    unsyncedChanges: .archived, clientOnlyTables: .lost, settings: .lost, needsServersConsent: false,
    survivesSchemaChange: true)

  /// The strategy has no options.
  public init() {}

  /// A copy, a fetch of all rows, and a new database. It plans the same for every incident and never says that it
  /// cannot.
  public func plan(for incident: Incident) -> RecoveryDecision {
    .steps([.copy, .fetch(.everything), .apply(.discard, .everything)])
  }

  /// The module `recreate` of the kind recovery strategy. It takes no options.
  public static let factory = ModuleFactory.recoveryStrategy(
    RecreateRecovery(), "A new database and a first sync; what was not synchronized is in its archive.")
}
