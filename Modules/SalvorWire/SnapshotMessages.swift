import SalvorModel

/// What a begin says of snapshots (docs/reference/protocol.md, *Snapshots*): in which codings the device takes one for its
/// groups without a cursor, or which it has fetched for this download.
public struct SnapshotTaking: Sendable, Hashable {
  /// A group's snapshot that the device holds: the download brings what has changed since.
  public struct Held: Sendable, Hashable {
    /// The name of the group.
    public var group: String
    /// The commit that the file's rows are as of.
    public var commit: Commit
    /// The scope digest that the file was made for.
    public var scope: String

    /// Takes the members as they are.
    public init(group: String, commit: Commit, scope: String) {
      self.group = group
      self.commit = commit
      self.scope = scope
    }
  }

  /// Tokens of content codings; empty: the device takes none.
  public var takes: [String]
  /// The snapshots that the device holds. The device sends no cursor for their groups.
  public var held: [Held]

  /// Takes both members as they are.
  public init(takes: [String] = [], held: [Held] = []) {
    self.takes = takes
    self.held = held
  }

  /// The member `snapshot` of a begin: `{"take":[…],"have":[…]}`. An empty list is left out.
  public var json: JSONValue {
    var members: [JSONValue.Member] = []
    if !takes.isEmpty { members.append(.init("take", .array(takes.map(JSONValue.string)))) }
    if !held.isEmpty {
      members.append(
        .init(
          "have",
          .array(
            held.map { ["group": .string($0.group), "commit": $0.commit.json, "scope": .string($0.scope)] })))
    }
    return .object(members)
  }

  /// Reads the member `snapshot`. Throws `malformed` where an entry has another shape, and `too-large` beyond 100
  /// codings or 1000 snapshots.
  public init(_ json: JSONValue) throws(SalvorError) {
    takes = []
    held = []
    for token in try json.optionalArray("take") ?? [] {
      guard let token = token.string, token.utf8.count <= Limits.nameBytesMax else {
        throw SalvorError(.malformed, "A begin's \"snapshot\" takes content codings by their names.")
      }
      takes.append(token)
    }
    for entry in try json.optionalArray("have") ?? [] {
      held.append(
        Held(
          group: try entry.name("group"), commit: try Commit(entry["commit"] ?? .null), scope: try entry.name("scope")))
    }
    guard takes.count <= 100, held.count <= 1000 else {
      throw SalvorError(.tooLarge, "A begin names at most 100 codings and 1000 snapshots.")
    }
  }
}

/// A snapshot that the server offers in the place of a group's rows.
public struct SnapshotOffer: Sendable, Hashable {
  /// The SHA-256 of the file as it is sent, as 64 hexadecimal digits.
  public var id: String
  /// The name of the group.
  public var group: String
  /// The commit that the file's rows are as of. The download that follows brings what has changed since.
  public var commit: Commit
  /// The scope digest that the file was made for. The next begin gives it back.
  public var scope: String
  /// The token of the file's content coding.
  public var coding: String
  /// Of the file as it is sent.
  public var bytes: Int64
  /// Of the database in it.
  public var size: Int64
  /// Count and digest of each table.
  public var tables: [TableDigest]
  /// A path on this server, with its query.
  public var link: String
  /// An absolute URL of the same file at another address (`server.snapshots.url`); nil: there is none.
  public var url: String?

  /// The member of a `snapshot-unusable` error's context that has the ID of a file which is the very one that was named: its
  /// SHA-256 is right.
  public static let itselfUnusable = "snapshot"

  /// Takes the members as they are. Nothing is checked.
  public init(
    id: String, group: String, commit: Commit, scope: String, coding: String, bytes: Int64, size: Int64,
    tables: [TableDigest], link: String, url: String? = nil
  ) {
    self.id = id
    self.group = group
    self.commit = commit
    self.scope = scope
    self.coding = coding
    self.bytes = bytes
    self.size = size
    self.tables = tables
    self.link = link
    self.url = url
  }

  /// Of all tables.
  public var rows: Int64 { tables.reduce(0) { $0 + $1.count } }

  /// An entry of the answer's `snapshots`. Its `rows` is the sum of the tables' counts.
  public var json: JSONValue {
    var members: [JSONValue.Member] = [
      .init("id", .string(id)), .init("group", .string(group)), .init("commit", commit.json),
      .init("scope", .string(scope)), .init("coding", .string(coding)), .init("bytes", .integer(bytes)),
      .init("size", .integer(size)), .init("rows", .integer(rows)), .init("tables", .array(tables.map(\.json))),
      .init("link", .string(link)),
    ]
    if let url { members.append(.init("url", .string(url))) }
    return .object(members)
  }

  /// Reads an entry of `snapshots`. Throws `malformed` where a member is missing, the ID is not `isID`, `bytes`,
  /// `size` or a table's count is no count (`JSONValue.count`), there are more than 1000 tables, or `link` or `url` has more than 4096 bytes.
  public init(_ json: JSONValue) throws(SalvorError) {
    id = try json.name("id")
    group = try json.name("group")
    commit = try Commit(json["commit"] ?? .null)
    scope = try json.name("scope")
    coding = try json.name("coding")
    bytes = try json.count("bytes")
    size = try json.count("size")
    link = try json.string("link")
    url = try json.optionalString("url")
    tables = []
    for entry in try json.array("tables") { tables.append(try TableDigest(entry)) }
    guard Self.isID(id), tables.count <= 1000, link.utf8.count <= 4096,
      url?.utf8.count ?? 0 <= 4096
    else {
      throw SalvorError(
        .malformed, "The server offers a snapshot that is not of the protocol. Update the older of the two.")
    }
  }

  /// 64 lower-case hexadecimal digits: it becomes a part of a file's name.
  public static func isID(_ text: String) -> Bool {
    text.utf8.count == 64 && text.utf8.allSatisfy { (48...57).contains($0) || (97...102).contains($0) }
  }
}
