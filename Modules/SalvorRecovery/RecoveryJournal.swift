import SalvorModel
import SalvorWire

/// What the journal holds: a small document beside the database (semantics 9, *Journal*).
public struct RecoveryJournal: Sendable, Hashable {
  /// Whether a recovery is under way, and whom it waits for.
  public enum State: String, Sendable {
    /// Steps are being carried out; a crash leaves this, and whoever opens the database resumes.
    case running
    /// It waits for `recover` with the token.
    case required
    /// It waits for the server's administrator; each sync asks again.
    case waiting
    /// Nothing is under way: only the attempts are remembered.
    case none
  }

  /// How far a callback of a recovery has come. `begun` is saved before it is called, so that a crash does not
  /// make it run twice; `none`: the configuration has none.
  public enum HookState: String, Sendable { case pending, begun, done, none }

  /// A reset of this database against one history of the server, remembered until a sync has succeeded.
  public struct Attempt: Sendable, Hashable {
    /// The server's incarnation at that time, as text.
    public var incarnation: String
    /// The strategy that the reset was made with.
    public var strategy: String
    /// Both parts given.
    public init(incarnation: String, strategy: String) {
      self.incarnation = incarnation
      self.strategy = strategy
    }
  }

  /// With `none`, only `attempts` and `demand` mean anything.
  public var state: State
  /// Of the recovery.
  public var id: String
  /// Why the database is recovered; nil where nothing is under way.
  public var reason: RecoveryReason?
  /// What happened, for a person; empty where nothing is under way.
  public var message: String
  /// The name of the strategy that is carried out; empty before one is chosen.
  public var strategy: String
  /// What the strategy planned when it was chosen: that is carried out, whatever its options are by then. Empty in a journal of an
  /// earlier release.
  public var steps: [RecoveryStep]
  /// The strategies that could not, in the order in which they were tried.
  public var fellBackFrom: [String]
  /// The number of steps done, and of the plan's the name of the one under way.
  public var stepsDone: Int
  /// The name of the step or callback that is under way (`RecoveryStep.name`, `before-reset`, `after-reset`);
  /// empty: none was begun.
  public var step: String
  /// The callback before anything is touched.
  public var beforeReset: HookState
  /// The callback after the database is as it will be.
  public var afterReset: HookState
  /// What `recover` wants where a person has to decide; nil: nobody was asked.
  public var token: String?
  /// The ID of the copy that was made of the database; nil: none was made.
  public var backup: String?
  /// Drawn at the plan, so that a step that is begun again takes the same.
  public var newRemoteID: RemoteID?
  /// A person chose it (`recover`): no guard against mass deletion.
  public var isByHand: Bool
  /// The operator's demand that this recovery meets (`RecoveryFacts.demand`); with nothing under way, one that was met and
  /// whose end the server may not have heard.
  public var demand: Int64?
  /// A strategy could not run since the server's schema differs from the device's: it runs once the server has the schema.
  public var waitsForSchema = false
  /// Resets since the last sync that succeeded, in order.
  public var attempts: [Attempt]

  /// Nothing done yet, both callbacks pending, chosen by nobody. By default nothing is under way.
  public init(state: State = .none, id: String = "", attempts: [Attempt] = []) {
    self.state = state
    self.id = id
    message = ""
    strategy = ""
    steps = []
    fellBackFrom = []
    stepsDone = 0
    step = ""
    beforeReset = .pending
    afterReset = .pending
    isByHand = false
    self.attempts = attempts
  }

  /// As the file beside the database holds it. `init(_:)` reads it back.
  public var json: JSONValue {
    [
      "state": .string(state.rawValue), "id": .string(id), "reason": reason.map { .string($0.rawValue) } ?? .null,
      "message": .string(message), "strategy": .string(strategy),
      "steps": .array(steps.map(\.json)),
      "fellBackFrom": .array(fellBackFrom.map(JSONValue.string)), "stepsDone": .integer(Int64(stepsDone)),
      "step": .string(step), "beforeReset": .string(beforeReset.rawValue), "afterReset": .string(afterReset.rawValue),
      "token": token.map(JSONValue.string) ?? .null, "backup": backup.map(JSONValue.string) ?? .null,
      "newRemoteID": newRemoteID.map { .string($0.text) } ?? .null, "isByHand": .bool(isByHand),
      "demand": demand.map(JSONValue.integer) ?? .null, "waitsForSchema": .bool(waitsForSchema),
      "attempts": .array(attempts.map { .array([.string($0.incarnation), .string($0.strategy)]) }),
    ]
  }

  /// Reads what `json` wrote. Throws `storage-corrupt` where the state is not known or a recovery has no reason, and
  /// `malformed` where a member is missing or of another type.
  public init(_ json: JSONValue) throws(SalvorError) {
    guard let state = State(rawValue: try json.string("state")) else {
      throw SalvorError(.storageCorrupt, "The journal of a recovery beside the database cannot be read.")
    }
    self.init(state: state, id: try json.string("id"))
    reason = json["reason"]?.string.flatMap { RecoveryReason(rawValue: $0) }
    guard reason != nil || state == .none else {
      throw SalvorError(.storageCorrupt, "The journal of a recovery beside the database names no reason.")
    }
    message = try json.string("message")
    strategy = try json.string("strategy")
    // A later release may have steps that this one does not know. Then the strategy is asked for a plan again.
    steps = (try? json["steps"]?.array?.map { try RecoveryStep($0) }) ?? []
    fellBackFrom = try json.array("fellBackFrom").compactMap(\.string)
    stepsDone = Int(clamping: try json.integer("stepsDone"))
    guard stepsDone >= 0 else {
      throw SalvorError(.storageCorrupt, "The journal of a recovery beside the database counts \(stepsDone) steps.")
    }
    step = try json.string("step")
    beforeReset = HookState(rawValue: try json.string("beforeReset")) ?? .pending
    afterReset = HookState(rawValue: try json.string("afterReset")) ?? .pending
    token = try json.optionalString("token")
    backup = try json.optionalString("backup")
    newRemoteID = try json.optionalIdentifier("newRemoteID")
    isByHand = json["isByHand"]?.bool ?? false
    demand = json["demand"]?.integer
    waitsForSchema = json["waitsForSchema"]?.bool ?? false
    for entry in try json.array("attempts") {
      if let pair = entry.array, pair.count == 2, let incarnation = pair[0].string, let strategy = pair[1].string {
        attempts.append(Attempt(incarnation: incarnation, strategy: strategy))
      }
    }
  }
}
