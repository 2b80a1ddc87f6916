import SalvorModel
import SalvorStorage
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

extension SyncSession {
  /// Compares what differs and stages what the server has else (semantics 4, *key-set*); a comparison that was cut goes on.
  /// Answers with the position that the download has then.
  mutating func compareTables(
    _ offer: ComparisonOffer, _ before: ComparisonPosition?, _ download: String
  ) async throws -> String {
    guard let recovering else {
      throw SalvorError(
        .malformed,
        "The server compares tables that this device did not name. Nothing was applied. Update the older of the two.")
    }
    var position = ComparisonPosition(head: offer.head)
    if let before {
      // The server knows the commit no more that the first part was read at: it is of no use.
      if before.head == offer.head { position = before } else { try await store.discardStaged() }
    }
    // Only what the session knows of is compared: a table that is new here comes with the next one.
    let tables = try await store.history().tables
    for asked in compare where !position.done.contains(asked.table) {
      if let offered = offer.tables.first(where: { $0.name == asked.table }),
        let table = tables.first(where: { $0.name == asked.table })
      {
        let after = position.table == asked.table ? position.after : nil
        position.table = asked.table
        var comparison = TableComparison(
          store: recovering,
          questions: Questions(configuration, path: "/v1/sync/\(offer.token)", report, progress))
        let store = store
        var pieces = 0
        var place = position
        let unproven = asked.isFed ? asked.table : nil
        try await comparison.run(
          asked.table, columns: table.travelling.map(\.name), serverCount: offered.count, after: after
        ) { bytes, _ in
          try await store.stage(
            StagedChunk(download: download, bytes: bytes, position: place.text, compared: unproven))
          pieces += 1
        } passed: { key in
          place.after = key
          // What is through stays so: the position goes on with a piece.
          try await store.stage(
            StagedChunk(download: download, bytes: [], position: place.text, compared: unproven))
          pieces += 1
        }
        report = comparison.questions.report
        stagedPieces += pieces
        hasMadeProgress = hasMadeProgress || pieces > 0
      }
      position.done.append(asked.table)
      position.table = nil
      position.after = nil
      if asked.isFed {
        try await store.stage(
          StagedChunk(download: download, bytes: [], position: position.text, compared: asked.table))
        stagedPieces += 1
      }
    }
    return position.text
  }
}
