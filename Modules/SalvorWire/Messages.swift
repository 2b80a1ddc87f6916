import SalvorModel

/// The protocol's version, in the path (`/v1`) and in each begin.
public let protocolVersion: Int64 = 1

/// What a device says first (semantics 4, begin). docs/reference/protocol.md has every member.
public struct BeginMessage: Sendable, Hashable {
  /// Whether the begin has an upload, and how its payload comes.
  public enum Upload: String, Sendable {
    case none
    /// The upload's payload follows in this body.
    case inline
    /// Chunks will be sent one by one under the session's token.
    case staged
  }

  /// A group that the device synchronizes.
  public struct Group: Sendable, Hashable {
    /// The name of the group, of at most `Limits.nameBytesMax` bytes.
    public var name: String
    /// The commit that the last *end* gave; nil: a first sync of the group, or one from a snapshot.
    public var cursor: Commit?
    /// The digest of the scope that the last *end* gave; nil: none is known.
    public var scope: String?
    /// What the cursor was made with.
    public var subscriptions: ResolvedSubscriptions
    /// Takes the members as they are.
    public init(
      name: String, cursor: Commit?, scope: String?, subscriptions: ResolvedSubscriptions = ResolvedSubscriptions()
    ) {
      self.name = name
      self.cursor = cursor
      self.scope = scope
      self.subscriptions = subscriptions
    }
  }

  /// Sent only when the server asked for it (`history-needed`).
  public struct History: Sendable, Hashable {
    /// Older sequence IDs of this remote. The protocol allows at most 10,000.
    public var sequences: [SequenceID]
    /// The incarnations of the server that the device knows. The protocol allows at most 10,000.
    public var incarnations: [Incarnation]
    /// A sparse list of the commits that the device remembers. The protocol allows at most 10,000.
    public var commits: [Commit]
    /// The definitions of the device's tables, as a JSON tree.
    public var tables: JSONValue
    /// Takes the members as they are.
    public init(sequences: [SequenceID], incarnations: [Incarnation], commits: [Commit], tables: JSONValue) {
      self.sequences = sequences
      self.incarnations = incarnations
      self.commits = commits
      self.tables = tables
    }
  }

  /// What `history-needed` says (`need`) where the device must take the server's SyncConfig before it uploads.
  public static let needsAdoption = "adoption"

  /// The version of the protocol. `init` sets `protocolVersion`; another one that is read throws.
  public var version: Int64
  /// The remote ID of the device's database.
  public var remote: RemoteID
  /// The server that the device knows; nil: the device knows none yet.
  public var server: ServerID?
  /// The newest incarnation of the server that the device knows.
  public var incarnation: IncarnationID?
  /// Whose database this is, as the server has said: it takes nothing of it for another's (semantics 1). Nil: it has not said it yet.
  public var principal: String?
  /// The sequence ID of the last upload that the device knows to be committed; nil: the device knows none.
  public var previous: SequenceID?
  /// The sequence ID of this upload. It may be nil only where `upload` is `none`.
  public var current: SequenceID?
  /// The version of the device's tables.
  public var schemaVersion: Int64
  /// The digest of the SyncConfig that the device has.
  public var schemaDigest: String
  /// The groups to synchronize, at most 1000.
  public var groups: [Group]
  /// What the device subscribes to now; nil: its groups go on with what their cursors were made with.
  public var subscriptions: ResolvedSubscriptions?
  /// Whether an upload follows here, comes in chunks, or is none.
  public var upload: Upload
  /// Where a cut download goes on.
  public var position: String?
  /// What the device remembers; nil unless the server asked for it, or the begin is one of a recovery.
  public var history: History?
  /// Tables whose bases are to be compared before the download.
  public var compare: [TableDigest]
  /// A part of that was fetched by a download that was cut, as of this commit or newer: the new one goes on from it.
  public var compared: Commit?
  /// Which snapshots the device takes or holds; nil: it knows none.
  public var snapshot: SnapshotTaking?
  /// Of rows that the device has it takes the changed columns alone.
  public var takesParts = false
  /// Offers that the server holds, and that the device has taken back, at most `withdrawnMax`.
  public var withdrawn: [RequestID] = []

  /// So many offers are taken back with one begin.
  public static let withdrawnMax = 1000

  /// Makes a begin of this release's protocol. Nothing is checked. Members that have no parameter are nil, or false.
  public init(
    remote: RemoteID, server: ServerID?, previous: SequenceID?, current: SequenceID?, schemaVersion: Int64,
    schemaDigest: String, groups: [Group], upload: Upload, position: String?, history: History?,
    compare: [TableDigest] = [], compared: Commit? = nil
  ) {
    self.compare = compare
    self.compared = compared
    version = protocolVersion
    self.remote = remote
    self.server = server
    self.previous = previous
    self.current = current
    self.schemaVersion = schemaVersion
    self.schemaDigest = schemaDigest
    self.groups = groups
    self.upload = upload
    self.position = position
    self.history = history
  }

  /// The line that the device sends, with `begin` around it. Members that are nil, empty or false are left out,
  /// `groups` aside.
  public var json: JSONValue {
    var members: [JSONValue.Member] = [
      .init("version", .integer(version)),
      .init("remote", .string(remote.text)),
      .init("schema", ["version": .integer(schemaVersion), "digest": .string(schemaDigest)]),
      .init("groups", .array(groups.map(\.json))),
      .init("upload", .string(upload.rawValue)),
    ]
    if let server { members.append(.init("server", .string(server.text))) }
    if let incarnation { members.append(.init("incarnation", .string(incarnation.text))) }
    if let principal { members.append(.init("principal", .string(principal))) }
    if let previous { members.append(.init("previous", .string(previous.text))) }
    if let current { members.append(.init("current", .string(current.text))) }
    if let position { members.append(.init("position", .string(position))) }
    if let subscriptions { members.append(.init("subscriptions", subscriptions.json)) }
    if let history { members.append(.init("history", history.json)) }
    if !compare.isEmpty { members.append(.init("compare", .array(compare.map(\.json)))) }
    if let compared { members.append(.init("compared", compared.json)) }
    if let snapshot { members.append(.init("snapshot", snapshot.json)) }
    if takesParts { members.append(.init("parts", .bool(true))) }
    if !withdrawn.isEmpty { members.append(.init("withdrawn", .array(withdrawn.map { .string("\($0)") }))) }
    return ["begin": .object(members)]
  }

  /// Reads the line, with `begin` around it. Throws `protocol-version` where the version is another one, `too-large`
  /// beyond 1000 groups or 1000 tables to compare, and `malformed` for what else is wrong, such as an upload without
  /// `current`. The limits of `history` are not checked here.
  public init(_ line: JSONValue) throws(SalvorError) {
    guard let json = line["begin"] else { throw SalvorError(.malformed, "The first line must be a \"begin\".") }
    version = try json.integer("version")
    guard version == protocolVersion else {
      throw SalvorError(
        .protocolVersion,
        "The device speaks version \(version) of the protocol, this server speaks \(protocolVersion). Update the older of the two."
      )
    }
    remote = try json.identifier("remote")
    server = try json.optionalIdentifier("server")
    incarnation = try json.optionalIdentifier("incarnation")
    principal = json["principal"]?.string
    previous = try json.optionalIdentifier("previous")
    current = try json.optionalIdentifier("current")
    schemaVersion = try (json["schema"] ?? .null).integer("version")
    schemaDigest = try (json["schema"] ?? .null).name("digest")
    groups = []
    for group in try json.array("groups") { groups.append(try Group(group)) }
    guard groups.count <= 1000 else { throw SalvorError(.tooLarge, "A begin names at most 1000 groups.") }
    guard let upload = Upload(rawValue: try json.string("upload")) else {
      throw SalvorError(.malformed, "The begin's \"upload\" must be none, inline or staged.")
    }
    self.upload = upload
    if upload != .none, current == nil {
      throw SalvorError(.malformed, "An upload needs a current sequence ID.")
    }
    position = try json.optionalString("position")
    subscriptions = try json["subscriptions"].map { value throws(SalvorError) in try ResolvedSubscriptions(value) }
    history = try json["history"].map { history throws(SalvorError) in try History(history) }
    compare = []
    for entry in try json.optionalArray("compare") ?? [] { compare.append(try TableDigest(entry)) }
    guard compare.count <= 1000 else { throw SalvorError(.tooLarge, "A begin compares at most 1000 tables.") }
    compared = try json["compared"].map { commit throws(SalvorError) in try Commit(commit) }
    snapshot = try json["snapshot"].map { value throws(SalvorError) in try SnapshotTaking(value) }
    takesParts = json["parts"]?.bool ?? false
    for entry in try json.optionalArray("withdrawn") ?? [] {
      guard let id = entry.string.flatMap({ RequestID($0) }) else {
        throw SalvorError(.malformed, "\"withdrawn\" must be an array of request IDs.")
      }
      withdrawn.append(id)
    }
    guard withdrawn.count <= Self.withdrawnMax else {
      throw SalvorError(.tooLarge, "A begin takes back at most \(Self.withdrawnMax) offers.")
    }
  }
}

extension BeginMessage.Group {
  /// The entry of a begin's `groups`. Members that are nil or empty are left out.
  public var json: JSONValue {
    var members: [JSONValue.Member] = [.init("name", .string(name))]
    if let cursor { members.append(.init("cursor", cursor.json)) }
    if let scope { members.append(.init("scope", .string(scope))) }
    if !subscriptions.isEmpty { members.append(.init("subscriptions", subscriptions.json)) }
    return .object(members)
  }

  /// Reads an entry of `groups`. Throws `malformed` where a member has another shape, and `too-large` for too many
  /// subscriptions.
  public init(_ json: JSONValue) throws(SalvorError) {
    name = try json.name("name")
    cursor = try json["cursor"].map { cursor throws(SalvorError) in try Commit(cursor) }
    scope = try json["scope"].map { $0.isNull } ?? true ? nil : json.name("scope")
    subscriptions =
      try json["subscriptions"].map { value throws(SalvorError) in try ResolvedSubscriptions(value) }
      ?? ResolvedSubscriptions()
  }
}

extension BeginMessage.History {
  /// The member `history` of a begin.
  public var json: JSONValue {
    [
      "sequences": .array(sequences.map { .string($0.text) }),
      "incarnations": .array(incarnations.map(\.json)),
      "commits": .array(commits.map(\.json)),
      "tables": tables,
    ]
  }

  /// Reads the member `history`. Throws `malformed` where a list is missing, or an entry has another shape. Missing
  /// `tables` are read as `null`, and the content of `tables` is not checked.
  public init(_ json: JSONValue) throws(SalvorError) {
    sequences = []
    for text in try json.array("sequences") {
      guard let id = text.string.flatMap({ SequenceID($0) }) else {
        throw SalvorError(.malformed, "A remembered sequence ID is not 32 hexadecimal digits.")
      }
      sequences.append(id)
    }
    incarnations = []
    for incarnation in try json.array("incarnations") { incarnations.append(try Incarnation(incarnation)) }
    commits = []
    for commit in try json.array("commits") { commits.append(try Commit(commit)) }
    tables = json["tables"] ?? .null
  }
}

extension Commit {
  /// The commit as a message has it: `[NUMBER,ID]`.
  public var json: JSONValue { .array([.integer(number), .string(id.text)]) }

  /// Reads `[NUMBER,ID]`. Throws `malformed` where it is something else, or the number is negative.
  public init(_ json: JSONValue) throws(SalvorError) {
    guard let pair = json.array, pair.count == 2, let number = pair[0].integer, number >= 0,
      let id = pair[1].string.flatMap({ CommitID($0) })
    else { throw SalvorError(.malformed, "A commit must be [number, ID].") }
    self.init(number: number, id: id)
  }
}

extension Incarnation {
  /// The incarnation as a message has it: `[ID,FIRST COMMIT]`.
  public var json: JSONValue { .array([.string(id.text), .integer(firstCommit)]) }

  /// Reads `[ID,FIRST COMMIT]`. Throws `malformed` where it is something else.
  public init(_ json: JSONValue) throws(SalvorError) {
    guard let pair = json.array, pair.count == 2, let first = pair[1].integer,
      let id = pair[0].string.flatMap({ IncarnationID($0) })
    else { throw SalvorError(.malformed, "An incarnation must be [ID, first commit].") }
    self.init(id: id, firstCommit: first)
  }
}

/// An error as RFC 9457 has it.
public enum Problem {
  /// The media type of a problem.
  public static let contentType = "application/problem+json"

  /// The problem that tells of an error. The facts of the error's context stand beside the standard members, in the
  /// order of their names; a delay stands there as `retryAfterMilliseconds`.
  public static func json(_ error: SalvorError) -> JSONValue {
    // A statement of the server's database is its own: the log has it.
    var error = error
    if let sql = error.context.removeValue(forKey: "sql") {
      error.message = error.message.replacing(" in: \(sql)", with: "").replacing(" in: \(sql.prefix(600))…", with: "")
    }
    var members: [JSONValue.Member] = [
      .init("type", .string("about:blank")),
      .init("title", .string(error.code.rawValue)),
      .init("status", .integer(Int64(error.code.httpStatus))),
      .init("detail", .string(error.message)),
      .init("code", .string(error.code.rawValue)),
      .init("number", .integer(Int64(error.code.number))),
    ]
    // A member stands once: `detail` of a database's error is in the words of this one.
    let standard = Set(members.map(\.key))
    for (key, value) in error.context.sorted(by: { $0.key < $1.key }) where !standard.contains(key) {
      members.append(.init(key, .string(value)))
    }
    if let delay = error.retryAfterMilliseconds { members.append(.init("retryAfterMilliseconds", .integer(delay))) }
    return .object(members)
  }

  /// The error that a problem tells of.
  ///
  /// The server's `storage-busy` is `overloaded` for who asked: the device's own database is another thing.
  /// A code that is not of this catalogue gives `failed`, whose `context["unknown"]` is that code: it is never tried again,
  /// and nothing is done about it. An answer without a code comes from something on the way: `overloaded` or `unreachable`
  /// where its status says that it may go through later.
  ///
  /// - Parameters:
  ///   - retryAfter: the header `retry-after`, in seconds.
  ///   - asked: what was asked, for a person: method and path, without what is secret in it.
  public static func error(
    _ json: JSONValue, status: Int, retryAfter: String? = nil, asked: String
  ) -> SalvorError {
    guard let name = json["code"]?.string else {
      return SalvorError(
        code(ofStatus: status),
        json["detail"]?.string
          ?? "\(asked) was answered with status \(status) and no explanation. A Salvor server explains itself: look at what answers at this address (a proxy on the way and its limits, another program, a server of another version) and at its log, then sync again.",
        retryAfterMilliseconds: retryAfter.flatMap { Int64($0) }.map { min(max($0, 0), 86_400) * 1000 })
    }
    var error: SalvorError
    let detail = json["detail"]?.string
    let words = detail ?? "\(asked) was answered with \(name) and no explanation."
    if let code = ErrorCode(rawValue: name) {
      // Whose database it is: for whoever asked, the server is busy.
      error =
        code == .storageBusy
        ? SalvorError(.overloaded, "The server's database is busy. It says: \(words)") : SalvorError(code, words)
    } else {
      error = SalvorError(
        .failed,
        "The server answered with the error \"\(name.prefix(100))\", which this release does not know\(detail.map { ": \($0)" } ?? ".") Nothing was done about it. Update this device's Salvor.",
        context: ["unknown": String(name.prefix(100))])
    }
    for member in json.members ?? [] where !standardKeys.contains(member.key) {
      error.context[member.key] = member.value.string
    }
    error.retryAfterMilliseconds = json["retryAfterMilliseconds"]?.integer
    return error
  }

  /// A recovery for a reason that this release does not know: nothing is done about it (semantics 5).
  public static func unknownReason(_ reason: String) -> SalvorError {
    SalvorError(
      .uploadFailedAtServer,
      "The server refuses to synchronize this database for the reason \"\(reason.prefix(100))\", which this release does not know. Nothing was touched. Update this device's Salvor, then sync again.",
      context: ["reason": String(reason.prefix(100))])
  }

  private static func code(ofStatus status: Int) -> ErrorCode {
    switch status {
    case 429, 503: .overloaded
    case 502, 504: .unreachable
    default: .failed
    }
  }

  private static let standardKeys: Set<String> = [
    "type", "title", "status", "detail", "code", "number", "retryAfterMilliseconds",
  ]
}

/// Cuts a stream of bytes into lines.
public struct LineSplitter: Sendable {
  private var pending: [UInt8] = []
  private let lineBytesMax: Int

  /// Makes a splitter. At most `lineBytesMax` bytes may wait for their line feed after a piece. A line that ends in the
  /// same piece is not measured.
  public init(lineBytesMax: Int) { self.lineBytesMax = lineBytesMax }

  /// Gives each whole line, without its line feed. A line over the limit throws `too-large`.
  public mutating func split(_ piece: [UInt8], line: ([UInt8]) throws -> Void) throws {
    var start = 0
    while let end = piece[start...].firstIndex(of: 0x0A) {
      if pending.isEmpty {
        try line(Array(piece[start..<end]))
      } else {
        pending += piece[start..<end]
        let whole = pending
        pending = []
        try line(whole)
      }
      start = end + 1
    }
    pending += piece[start...]
    guard pending.count <= lineBytesMax else {
      throw SalvorError(.tooLarge, "A line is longer than \(lineBytesMax) bytes.")
    }
  }

  /// What follows the last line feed.
  public mutating func rest() -> [UInt8] {
    defer { pending = [] }
    return pending
  }
}
