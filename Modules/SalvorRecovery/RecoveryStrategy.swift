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
  /// What each of its plans keeps to, whatever the incident.
  var guarantees: RecoveryGuarantees { get }
  /// Its next step in the chain where it cannot, or has failed twice; nil: `manual`.
  var fallBack: String? { get }
  /// The steps to recover, or why it cannot. The same incident gives the same answer. One that resumes keeps the steps that it began with, and
  /// asks again whether it cannot. Called on any thread, which waits for the answer.
  func plan(for incident: Incident) -> RecoveryDecision
}

/// What a strategy promises, shown by `salvor modules` and checked by its contract (semantics 9).
public struct RecoveryGuarantees: Sendable, Hashable {
  /// What becomes of unsynced changes. `kept`: they stay in the queue; `uploaded`: they are sent before;
  /// `archived`: they leave it for the archive; `untouched`: nothing is done.
  public enum Requests: String, Sendable, CaseIterable { case kept, uploaded, archived, untouched }
  /// What becomes of what only the device has. `archived`: it leaves the tables for the archive; `lost`: it is gone, but
  /// for the copy of the database.
  public enum Local: String, Sendable, CaseIterable { case kept, archived, lost, untouched }
  /// What becomes of the requests that are not settled.
  public var unsyncedChanges: Requests
  /// What becomes of the tables that never leave the device.
  public var clientOnlyTables: Local
  /// Subscriptions, group settings and personalization keys.
  public var settings: Local
  /// The server's `clientRecoveryEnabled` must be on.
  public var needsServersConsent: Bool
  /// It works where the schemas differ destructively.
  public var survivesSchemaChange: Bool
  /// All parts given.
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
  /// What the server, the device or a person found. `client.recovery.reasons` may name a strategy for it.
  public var reason: RecoveryReason
  /// What happened, for a person.
  public var message: String
  /// What the server knows, and allows.
  public var facts: RecoveryFacts
  /// The state of the device's database before anything is done.
  public var status: ClientStatus
  /// Somebody else has uploaded under this remote ID: the server's sequence ID is none of the device's. The recovery takes a new ID, and the
  /// old one stays with whoever uses it.
  public var isRemoteIDTaken = false
  /// The number of the last commit that both made, where the server has trimmed it and the device has newer ones that this server never made:
  /// those are lost, and `facts` names nothing shared.
  public var parting: Int64?
  /// All parts given; the remote ID is the device's own.
  public init(reason: RecoveryReason, message: String, facts: RecoveryFacts, status: ClientStatus) {
    self.reason = reason
    self.message = message
    self.facts = facts
    self.status = status
  }
}

/// What a strategy makes of an incident.
public enum RecoveryDecision: Sendable, Hashable {
  /// What the engine is to do, in this order.
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

  /// How much comes: what differs from the device's rows, or all rows.
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

extension RecoveryStep {
  /// `{"step": "fetch", "what": "everything"}`: as the journal holds it, and a program plans it.
  public var json: JSONValue {
    switch self {
    case .copy, .forget, .upload, .wait: ["step": .string(name)]
    case .fetch(let what): ["step": .string(name), "what": .string(what.rawValue)]
    case .apply(let requests, let rebuild):
      ["step": .string(name), "requests": .string(requests.rawValue), "rebuild": .string(rebuild.rawValue)]
    }
  }

  /// Reads what `json` gives; a step without parts may be its name alone. Throws `malformed` where a member is missing, and `failed` for what
  /// is none.
  public init(_ json: JSONValue) throws(SalvorError) {
    let name = if let name = json.string { name } else { try json.string("step") }
    switch name {
    case "copy": self = .copy
    case "forget": self = .forget
    case "upload": self = .upload
    case "wait": self = .wait
    case "fetch": self = .fetch(try Self.choice(json, "what"))
    case "apply": self = .apply(try Self.choice(json, "requests"), try Self.choice(json, "rebuild"))
    default: throw SalvorError(.failed, "The plan has a step that there is not: \(name.prefix(40)).")
    }
  }

  private static func choice<Choice: RawRepresentable & CaseIterable>(
    _ step: JSONValue, _ key: String
  ) throws(SalvorError) -> Choice where Choice.RawValue == String {
    let text = try step.string(key)
    guard let found = Choice(rawValue: text) else {
      throw SalvorError(
        .failed, "The plan's \"\(key)\" is none of \(Choice.allCases.map(\.rawValue).joined(separator: ", ")).")
    }
    return found
  }
}
