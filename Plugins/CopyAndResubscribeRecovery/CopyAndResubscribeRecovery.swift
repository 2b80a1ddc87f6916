import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorStorage

/// New synchronized tables and a first sync; client-only tables, subscriptions and settings stay
/// (sap-rbs-synchronize-recovery, example 2). See README.md.
public struct CopyAndResubscribeRecovery: RecoveryStrategy {
  public let name = "copy-and-resubscribe"
  public let fallBack: String? = nil
  public let guarantees = RecoveryGuarantees(
    unsyncedChanges: .archived, clientOnlyTables: .kept, settings: .kept, needsServersConsent: false,
    survivesSchemaChange: true)

  public init() {}

  public func plan(for incident: Incident) -> RecoveryDecision {
    .steps([.copy, .fetch(.everything), .apply(.discard, .synchronizedTables)])
  }

  public static let factory = ModuleFactory.recoveryStrategy(
    CopyAndResubscribeRecovery(),
    "New synchronized tables and a first sync; client-only tables, subscriptions and settings stay.")
}
