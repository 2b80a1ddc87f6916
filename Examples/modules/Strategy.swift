import SalvorModules

/// A recovery strategy: in place, with what waits kept; without the server's consent a person decides.
struct GentleRecovery: RecoveryStrategy {
  let name = "gentle"
  let fallBack: String? = "manual"
  let guarantees = RecoveryGuarantees(
    unsyncedChanges: .kept, clientOnlyTables: .kept, settings: .kept, needsServersConsent: true,
    survivesSchemaChange: false)

  func plan(for incident: Incident) -> RecoveryDecision {
    guard incident.facts.clientRecoveryEnabled else {
      return .cannot("the server's operator has switched recovery off.")
    }
    guard incident.facts.differences.isEmpty else { return .cannot("the schema has changed destructively.") }
    guard incident.reason != .localCorruption else { return .cannot("the file is damaged: a person decides.") }
    return .steps([.fetch(.differences), .apply(.keep, .nothing)])
  }

  static let factory = ModuleFactory.recoveryStrategy(GentleRecovery(), "In place; what waits stays.")
}
