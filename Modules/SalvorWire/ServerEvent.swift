import SalvorModel

/// What `GET /v1/events` tells, as a server-sent event (WHATWG HTML, 9.2). docs/reference/protocol.md has every field.
public enum ServerEvent: Sendable, Hashable {
  /// The first event: these groups are listened to; the server's newest commit.
  case connected(groups: [String], commit: Commit)
  /// These groups have changed, by the newest commit at the latest.
  case changed(groups: [String], commit: Commit)

  /// The media type of the answer to `GET /v1/events`.
  public static let contentType = "text/event-stream"

  /// What is sent where nothing has changed. Long enough that what measures a connection's speed sees a byte a second.
  public static let keepAlive = Array(": nothing has changed\n\n".utf8)

  /// The event as it is sent. Its ID is the newest commit: what `Last-Event-ID` and `since` give back.
  public var bytes: [UInt8] {
    let (name, groups, commit) =
      switch self {
      case .connected(let groups, let commit): ("connected", groups, commit)
      case .changed(let groups, let commit): ("changed", groups, commit)
      }
    let data: JSONValue = [
      "groups": .array(groups.map(JSONValue.string)), "commit": .integer(commit.number),
    ]
    return Array("event: \(name)\nid: \(commit.text)\ndata: \(data.text)\n\n".utf8)
  }
}

extension Commit {
  /// `NUMBER-ID`.
  public var text: String { "\(number)-\(id)" }

  /// Nil unless it is `NUMBER-ID`.
  public init?(text: some StringProtocol) {
    let parts = text.split(separator: "-", omittingEmptySubsequences: false)
    guard parts.count == 2, let number = Int64(parts[0]), number >= 0, let id = CommitID(parts[1]) else { return nil }
    self.init(number: number, id: id)
  }
}

/// Takes a stream of server-sent events apart. Fields and events that it does not know are passed over, as the format
/// asks for.
public struct ServerEventReader: Sendable {
  private var lines = LineSplitter(lineBytesMax: ServerEventReader.lineBytesMax)
  private var name = ""
  private var id = ""
  private var data: [String] = []

  private static let lineBytesMax = 1 << 20

  /// Makes a reader for one stream, from its beginning. More than 1 MiB without a line feed makes `read` throw
  /// `too-large`.
  public init() {}

  /// The events that are whole with this piece. Throws `malformed` where an event of ours has no such content.
  public mutating func read(_ piece: [UInt8]) throws -> [ServerEvent] {
    var found: [[UInt8]] = []
    try lines.split(piece) { found.append($0) }
    var events: [ServerEvent] = []
    for line in found {
      var text = String(decoding: line, as: UTF8.self)
      if text.hasSuffix("\r") { text.removeLast() }
      if text.isEmpty {
        if let event = try event() { events.append(event) }
        (name, data) = ("", [])
      } else {
        take(text)
      }
    }
    return events
  }

  /// `field: value`; a comment begins with the colon.
  private mutating func take(_ line: String) {
    let field = line.prefix { $0 != ":" }
    var value = line.dropFirst(field.count + 1)
    if value.first == " " { value = value.dropFirst() }
    switch field {
    case "event": name = String(value)
    case "id": id = String(value)
    case "data": data.append(String(value))
    default: break
    }
  }

  private func event() throws -> ServerEvent? {
    guard name == "connected" || name == "changed" else { return nil }
    let content = try JSONValue(parsing: Array(data.joined(separator: "\n").utf8))
    let groups = try content.array("groups").compactMap(\.string)
    guard let commit = Commit(text: id) else {
      throw SalvorError(.malformed, "An event's ID is not NUMBER-ID of a commit.")
    }
    return name == "connected" ? .connected(groups: groups, commit: commit) : .changed(groups: groups, commit: commit)
  }
}
