import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorStorage

/// Nothing but a copy: a person decides (realm-client-reset-mode, manual). See README.md.
public struct ManualRecovery: RecoveryStrategy {
  public let name = "manual"
  public let fallBack: String? = nil
  public let guarantees = RecoveryGuarantees(
    unsyncedChanges: .untouched, clientOnlyTables: .untouched, settings: .untouched, needsServersConsent: false,
    survivesSchemaChange: true)

  public init() {}

  public func plan(for incident: Incident) -> RecoveryDecision { .steps([.copy, .wait]) }

  public static let factory = ModuleFactory.recoveryStrategy(
    ManualRecovery(), "Makes a copy, stops, and waits for a person: salvor recover.")
}
