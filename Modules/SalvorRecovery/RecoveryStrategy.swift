import SalvorModel
import SalvorStorage
import SalvorWire

/// Decides how a device recovers: a planner (docs/architecture/recovery.md). Incident in, a list of named steps out. The
/// engine carries them out, journals them and resumes them after a crash, so a strategy does no input or output and keeps
/// no state.
///
/// The contract suite `recovery-strategy` checks what it guarantees.
public protocol RecoveryStrategy: Sendable {
  /// As in the configuration file.
  var name: String { get }
  var guarantees: RecoveryGuarantees { get }
  /// Its next step in the chain where it cannot, or has failed twice; nil: `manual`.
  var fallBack: String? { get }
  func plan(for incident: Incident) -> RecoveryDecision
}

/// What a strategy promises, shown by `salvor modules` and checked by its contract (semantics 9).
public struct RecoveryGuarantees: Sendable, Hashable {
  public enum Requests: String, Sendable, CaseIterable { case kept, uploaded, archived, untouched }
  public enum Local: String, Sendable, CaseIterable { case kept, archived, lost, untouched }
  public var unsyncedChanges: Requests
  public var clientOnlyTables: Local
  /// Subscriptions, group settings and personalization keys.
  public var settings: Local
  /// The server's `clientRecoveryEnabled` must be on.
  public var needsServersConsent: Bool
  /// It works where the schemas differ destructively.
  public var survivesSchemaChange: Bool
  public init(
    unsyncedChanges: Requests, clientOnlyTables: Local, settings: Local, needsServersConsent: Bool,
    survivesSchemaChange: Bool
  ) {
    self.unsyncedChanges = unsyncedChanges
    self.clientOnlyTables = clientOnlyTables
    self.settings = settings
    self.needsServersConsent = needsServersConsent
    self.survivesSchemaChange = survivesSchemaChange
  }

  /// One phrase each, for `salvor modules`.
  public var phrases: [String] {
    [
      "unsynced changes: \(unsyncedChanges.rawValue)", "client-only tables: \(clientOnlyTables.rawValue)",
      "subscriptions and settings: \(settings.rawValue)",
      needsServersConsent ? "needs the server's clientRecoveryEnabled" : "needs nothing from the server's operator",
      survivesSchemaChange ? "works over a destructive schema change" : "falls through at a destructive schema change",
    ]
  }
}

/// Why a recovery is needed, and what both sides know.
public struct Incident: Sendable {
  public var reason: RecoveryReason
  public var message: String
  public var facts: RecoveryFacts
  public var status: ClientStatus
  public init(reason: RecoveryReason, message: String, facts: RecoveryFacts, status: ClientStatus) {
    self.reason = reason
    self.message = message
    self.facts = facts
    self.status = status
  }
}

public enum RecoveryDecision: Sendable, Hashable {
  case steps([RecoveryStep])
  /// This strategy cannot: why, naming tables and columns where they are the cause.
  case cannot(String)
}

/// One step of a plan. Each may be begun again after a crash, and then ends the same.
public enum RecoveryStep: Sendable, Hashable {
  /// A checked copy of the database.
  case copy
  /// Until the server has forgotten the remote ID: asks it to where it allows that, else waits for its administrator.
  case forget
  /// Uploads everything that waits, from the database as it is.
  case upload
  /// Fetches what differs, or everything, to staging.
  case fetch(Fetch)
  /// The one transaction.
  case apply(RecoveryOrder.Requests, RecoveryOrder.Rebuild)
  /// Stops here until `recover` is called with the token.
  case wait

  public enum Fetch: String, Sendable, CaseIterable { case differences, everything }

  /// As the journal and `status` name it.
  public var name: String {
    switch self {
    case .copy: "copy"
    case .forget: "forget"
    case .upload: "upload"
    case .fetch: "fetch"
    case .apply: "apply"
    case .wait: "wait"
    }
  }
}
