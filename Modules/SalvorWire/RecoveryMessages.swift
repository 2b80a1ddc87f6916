import SalvorModel

/// What a server says to a device that asks how to recover: the answer to `POST /v1/recovery`
/// (docs/reference/protocol.md).
public struct RecoveryFacts: Sendable, Hashable {
  /// Under which the questions of this recovery are asked.
  public var token: String
  public var server: ServerID
  public var incarnation: IncarnationID
  public var principal: String
  /// What the checks of a begin say now; nil: nothing stands against a sync.
  public var reason: RecoveryReason?
  /// The newest commit that both have made; nil: none.
  public var shared: Commit?
  /// Below it the server keeps no tombstones.
  public var trimmed: Int64
  public var head: Commit
  /// S of this remote; nil: the server knows none.
  public var stored: SequenceID?
  /// Group names with the digests of the principal's scope in them.
  public var scopes: [String: String]
  /// The rows that the principal sees.
  public var rows: Int64
  public var clientRecoveryEnabled: Bool
  public var selfServiceRemoteDeletion: Bool
  /// Destructive differences of the schemas, each named; empty: additive or none.
  public var differences: [String]
  /// Names the operator's demand for a reset that this remote has not met yet; nil: there is none.
  public var demand: Int64?
  /// The server takes offers of what it lost (semantics 10); one of an older release does not say so.
  public var heals: Bool

  public init(
    token: String, server: ServerID, incarnation: IncarnationID, principal: String, reason: RecoveryReason?,
    shared: Commit?, trimmed: Int64, head: Commit, stored: SequenceID?, scopes: [String: String], rows: Int64,
    clientRecoveryEnabled: Bool, selfServiceRemoteDeletion: Bool, differences: [String], demand: Int64? = nil,
    heals: Bool = false
  ) {
    self.token = token
    self.server = server
    self.incarnation = incarnation
    self.principal = principal
    self.reason = reason
    self.shared = shared
    self.trimmed = trimmed
    self.head = head
    self.stored = stored
    self.scopes = scopes
    self.rows = rows
    self.clientRecoveryEnabled = clientRecoveryEnabled
    self.selfServiceRemoteDeletion = selfServiceRemoteDeletion
    self.differences = differences
    self.demand = demand
    self.heals = heals
  }

  public var json: JSONValue {
    [
      "recovery": [
        "token": .string(token), "server": .string(server.text), "incarnation": .string(incarnation.text),
        "principal": .string(principal), "reason": reason.map { .string($0.rawValue) } ?? .null,
        "shared": shared.map(\.json) ?? .null, "trimmed": .integer(trimmed), "head": head.json,
        "stored": stored.map { .string($0.text) } ?? .null,
        "scopes": .object(scopes.sorted { $0.key < $1.key }.map { .init($0.key, .string($0.value)) }),
        "rows": .integer(rows), "clientRecoveryEnabled": .bool(clientRecoveryEnabled),
        "selfServiceRemoteDeletion": .bool(selfServiceRemoteDeletion),
        "differences": .array(differences.map(JSONValue.string)), "demand": demand.map(JSONValue.integer) ?? .null,
        "heals": .bool(heals),
      ]
    ]
  }

  public init(_ line: JSONValue) throws(SalvorError) {
    guard let json = line["recovery"] else {
      throw SalvorError(.malformed, "The server's answer does not begin with a \"recovery\".")
    }
    token = try json.string("token")
    server = try json.identifier("server")
    incarnation = try json.identifier("incarnation")
    principal = try json.string("principal")
    reason = try json.optionalString("reason").map { text throws(SalvorError) in
      guard let reason = RecoveryReason(rawValue: text) else { throw Problem.unknownReason(text) }
      return reason
    }
    shared = try Self.commit(json["shared"])
    trimmed = try json.integer("trimmed")
    head = try Commit(json["head"] ?? .null)
    stored = try json.optionalIdentifier("stored")
    scopes = [:]
    for member in json["scopes"]?.members ?? [] { scopes[member.key] = member.value.string }
    rows = try json.integer("rows")
    clientRecoveryEnabled = json["clientRecoveryEnabled"]?.bool ?? true
    selfServiceRemoteDeletion = json["selfServiceRemoteDeletion"]?.bool ?? false
    differences = try json.array("differences").compactMap(\.string)
    demand = json["demand"]?.integer
    heals = json["heals"]?.bool ?? false
  }

  private static func commit(_ json: JSONValue?) throws(SalvorError) -> Commit? {
    guard let json, !json.isNull else { return nil }
    return try Commit(json)
  }
}
