import SalvorModel

/// What a server says to a device that asks how to recover: the answer to `POST /v1/recovery`
/// (docs/reference/protocol.md).
public struct RecoveryFacts: Sendable, Hashable {
  /// Under which the questions of this recovery are asked.
  public var token: String
  /// The ID of the server, as in the *session* line of a sync.
  public var server: ServerID
  /// The server's incarnation of now.
  public var incarnation: IncarnationID
  /// The name of the principal whom the server takes the device for.
  public var principal: String
  /// What the checks of a begin say now; nil: nothing stands against a sync.
  public var reason: RecoveryReason?
  /// The newest commit that both have made; nil: none.
  public var shared: Commit?
  /// Below it the server keeps no tombstones.
  public var trimmed: Int64
  /// The server's newest commit.
  public var head: Commit
  /// S of this remote; nil: the server knows none.
  public var stored: SequenceID?
  /// Group names with the digests of the principal's scope in them.
  public var scopes: [String: String]
  /// The rows that the principal sees.
  public var rows: Int64
  /// False: on the device, strategies that need the server's consent fall through.
  public var clientRecoveryEnabled: Bool
  /// Whether the device may have its remote ID forgotten by `DELETE /v1/recovery/TOKEN/remote`.
  public var selfServiceRemoteDeletion: Bool
  /// Destructive differences of the schemas, each named; empty: additive or none.
  public var differences: [String]
  /// Names the operator's demand for a reset that this remote has not met yet; nil: there is none.
  public var demand: Int64?
  /// The server takes offers of what it lost (semantics 10); one of an older release does not say so.
  public var heals: Bool
  /// The server's incarnations that made commits after the shared one, oldest first: where the device cuts its own list, it learns them
  /// with the rows. Empty: none has, or the server is of an older release.
  public var incarnations: [Incarnation]
  /// Which groups the server has as files for whoever asks, where the begin says that the device takes them; nil: nothing was
  /// asked, or the server is of an older release.
  public var files: [File]?

  /// A group that would come as a file.
  public struct File: Sendable, Hashable {
    /// The group's name.
    public var group: String
    /// In the file, of all tables.
    public var rows: Int64
    /// Of the file as it is sent.
    public var bytes: Int64

    /// Takes the members as they are.
    public init(group: String, rows: Int64, bytes: Int64) {
      self.group = group
      self.rows = rows
      self.bytes = bytes
    }

    /// An entry of the facts' `files`: `{"group":NAME,"rows":N,"bytes":N}`.
    public var json: JSONValue { ["group": .string(group), "rows": .integer(rows), "bytes": .integer(bytes)] }
  }

  /// Takes the members as they are. Nothing is checked.
  public init(
    token: String, server: ServerID, incarnation: IncarnationID, principal: String, reason: RecoveryReason?,
    shared: Commit?, trimmed: Int64, head: Commit, stored: SequenceID?, scopes: [String: String], rows: Int64,
    clientRecoveryEnabled: Bool, selfServiceRemoteDeletion: Bool, differences: [String], demand: Int64? = nil,
    heals: Bool = false, incarnations: [Incarnation] = [], files: [File]? = nil
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
    self.incarnations = incarnations
    self.files = files
  }

  /// The line of the answer, with `recovery` around it. `files` is left out where it is nil, and `incarnations` where it is empty;
  /// other members that are nil are written as `null`.
  public var json: JSONValue {
    var facts: JSONValue = [
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
    if !incarnations.isEmpty {
      facts = .object((facts.members ?? []) + [.init("incarnations", .array(incarnations.map(\.json)))])
    }
    if let files { facts = .object((facts.members ?? []) + [.init("files", .array(files.map(\.json)))]) }
    return ["recovery": facts]
  }

  /// Reads the line, with `recovery` around it. Throws `malformed` where a needed member is missing or of another kind,
  /// or where more than 1000 files or incarnations are named, and `Problem.unknownReason` for a reason that this release does not know.
  /// Without `clientRecoveryEnabled` the reader takes true; without `selfServiceRemoteDeletion` or `heals`, false.
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
    rows = try json.count("rows")
    clientRecoveryEnabled = json["clientRecoveryEnabled"]?.bool ?? true
    selfServiceRemoteDeletion = json["selfServiceRemoteDeletion"]?.bool ?? false
    differences = try json.array("differences").compactMap(\.string)
    demand = json["demand"]?.integer
    heals = json["heals"]?.bool ?? false
    incarnations = []
    let lived = try json.optionalArray("incarnations") ?? []
    guard lived.count <= 1000 else {
      throw SalvorError(.malformed, "The server's facts name more than 1000 incarnations.")
    }
    for entry in lived { incarnations.append(try Incarnation(entry)) }
    files = nil
    guard let list = try json.optionalArray("files") else { return }
    guard list.count <= 1000 else { throw SalvorError(.malformed, "The server's facts name more than 1000 files.") }
    var named: [File] = []
    for entry in list {
      named.append(
        File(group: try entry.name("group"), rows: try entry.count("rows"), bytes: try entry.count("bytes")))
    }
    files = named
  }

  private static func commit(_ json: JSONValue?) throws(SalvorError) -> Commit? {
    guard let json, !json.isNull else { return nil }
    return try Commit(json)
  }
}
