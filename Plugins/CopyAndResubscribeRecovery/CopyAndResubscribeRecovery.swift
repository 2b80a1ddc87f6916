import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorStorage

/// New synchronized tables and a first sync; client-only tables, subscriptions and settings stay
/// (sap-rbs-synchronize-recovery, example 2). See README.md.
public struct CopyAndResubscribeRecovery: RecoveryStrategy {
  /// `copy-and-resubscribe`.
  public let name = "copy-and-resubscribe"
  /// Nil: `manual` follows where the steps fail twice.
  public let fallBack: String? = nil
  /// Unsynced changes go to the archive; client-only tables and settings stay; a destructive schema change is no
  /// obstacle.
  public let guarantees = RecoveryGuarantees(
    unsyncedChanges: .archived, clientOnlyTables: .kept, settings: .kept, needsServersConsent: false,
    survivesSchemaChange: true)

  /// The strategy has no options.
  public init() {}

  /// A copy, a fetch of all rows, and new synchronized tables. It plans the same for every incident and never says that
  /// it cannot.
  public func plan(for incident: Incident) -> RecoveryDecision {
    .steps([.copy, .fetch(.everything), .apply(.discard, .synchronizedTables)])
  }

  /// The module `copy-and-resubscribe` of the kind recovery strategy. It takes no options.
  public static let factory = ModuleFactory.recoveryStrategy(
    CopyAndResubscribeRecovery(),
    "New synchronized tables and a first sync; client-only tables, subscriptions and settings stay.")
}
