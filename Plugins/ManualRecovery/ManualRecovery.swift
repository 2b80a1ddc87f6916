import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorStorage

/// Nothing but a copy: a person decides (realm-client-reset-mode, manual). See README.md.
public struct ManualRecovery: RecoveryStrategy {
  /// `manual`.
  public let name = "manual"
  /// Nil: no strategy follows this one, which never says that it cannot.
  public let fallBack: String? = nil
  /// Nothing on the device changes; a destructive schema change is no obstacle.
  public let guarantees = RecoveryGuarantees(
    unsyncedChanges: .untouched, clientOnlyTables: .untouched, settings: .untouched, needsServersConsent: false,
    survivesSchemaChange: true)

  /// The strategy has no options.
  public init() {}

  /// A copy, and a wait for `salvor recover`. It plans the same for every incident.
  public func plan(for incident: Incident) -> RecoveryDecision { .steps([.copy, .wait]) }

  /// The module `manual` of the kind recovery strategy. It takes no options.
  public static let factory = ModuleFactory.recoveryStrategy(
    ManualRecovery(), "Makes a copy, stops, and waits for a person: salvor recover.")
}
