import SalvorModel
import SalvorStorage
import SalvorWire

extension SyncSession {
  /// Compares what differs and stages what the server has else (semantics 4, *key-set*); a comparison that was cut goes on.
  /// Answers with the position that the download has then.
  ///
  /// - Parameter groups: those that the begin named. A table that the schema has moved to another one meanwhile was not looked at, and
  ///   comes whole with the next session.
  mutating func compareTables(
    _ offer: ComparisonOffer, _ before: ComparisonPosition?, _ download: String, groups: Set<String>
  ) async throws -> String {
    guard let recovering else {
      throw SalvorError(
        .malformed,
        "The server compares tables that this device did not name. Nothing was applied. Update the older of the two.")
    }
    differing = Set(offer.tables.map(\.name))
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
      if asked.isFed, tables.contains(where: { $0.name == asked.table && groups.contains($0.group) }) {
        try await store.stage(
          StagedChunk(download: download, bytes: [], position: position.text, compared: asked.table))
        stagedPieces += 1
      }
    }
    return position.text
  }

  /// How much of what changed since the cursors has come, as the server says; nil: it does not.
  func share(_ line: JSONValue) -> Double? {
    guard let thousandths = line["permille"]?.integer, (0...1000).contains(thousandths) else { return nil }
    return Double(thousandths) / 1000
  }
}
