import SalvorModel
import SalvorWire

/// How far the comparison of a download went: the position of staged pieces, before the server's own positions follow.
struct ComparisonPosition {
  /// What was compared is as of this commit of the server, or newer.
  var head: Commit
  /// Tables that are through.
  var done: [String] = []
  /// The table under way, and the key up to which it is through.
  var table: String?
  var after: Key?

  private static let prefix = "compare:"

  init(head: Commit) { self.head = head }

  var text: String {
    let json: JSONValue = [
      "head": head.json, "done": .array(done.map(JSONValue.string)), "table": table.map(JSONValue.string) ?? .null,
      "after": after.map { .array($0.map { JSONValue($0) }) } ?? .null,
    ]
    return Self.prefix + json.text
  }

  /// Nil: the position is one of the server's.
  init?(_ text: String) {
    guard text.hasPrefix(Self.prefix),
      let json = try? JSONValue(parsing: Array(text.utf8.dropFirst(Self.prefix.utf8.count))),
      let head = try? Commit(json["head"] ?? .null)
    else { return nil }
    self.head = head
    done = json["done"]?.array?.compactMap(\.string) ?? []
    table = json["table"]?.string
    after = json["after"]?.array?.compactMap(\.rowValue)
  }
}
