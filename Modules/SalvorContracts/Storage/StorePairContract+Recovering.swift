import SalvorModel
import SalvorStorage

/// Recovery of a device from what a server answers (semantics 6 and 9).
extension StorePairContract {
  static let recovering: [Case] = [
    recovering(
      ContractSchemas.notes(), "recovery: a device whose cursor is trimmed fetches what differs, and keeps what waits",
      rule: "semantics 6, history-trimmed"
    ) { bench in
      for number in 10..<40 {
        try await bench.server.write(.insert("note", ["id": .text("n\(number)"), "title": "a", "body": "x"]))
      }
      for index in 0..<2 { try await bench.sync(index) }
      try await bench.write(
        0, .update("note", ["n11"], ["title": "mine"]), .update("note", ["n12"], ["title": "mine"]),
        .insert("note", ["id": "m1", "title": "mine"]), .delete("note", ["n13"]))
      try await bench.server.write(
        .update("note", ["n11"], ["body": "theirs"]), .delete("note", ["n12"]), .delete("note", ["n14"]),
        .insert("note", ["id": "n145", "title": "new"]))
      _ = try await bench.server.store.sweep()
      try await bench.server.store.trim(before: Int64.max)
      var driver = try RecoveryDriver(bench, 0)
      try expectEqual(try await driver.reason(), .historyTrimmed, "the reason")
      let report = try await driver.recover()
      // Five rows differ, in ranges of two.
      try expect(driver.answered.count <= 10, "\(driver.answered.count) of 30 rows moved")
      let counts = report.counts
      try expectEqual(
        [counts.kept, counts.merged, counts.discarded, counts.lost], [2, 1, 1, 0], "kept, merged, discarded, lost")
      let archive = try await bench.clients[0].store.requests(in: [.kept], after: nil, limit: 10)
      try expectEqual(archive.map { "\($0.key) \($0.reason ?? "")" }, ["[n12] row-deleted"], "what is kept aside")
      try await bench.expectConverged(0)
      let rows = try await bench.server.store.rows(of: "note")
      try expect(
        rows.contains(["n11", "mine", "theirs"]) && rows.contains(["m1", "mine", .null]), "the changes arrive")
      try expect(!rows.contains { ["n12", "n13", "n14"].contains($0[0]) }, "the deletes arrive")
    },
    recovering(
      ContractSchemas.inspections, "recovery: a device gets no row that its principal does not see",
      rule: "semantics 7", parameters: [["region": ["EU"]], [:]]
    ) { bench in
      try await bench.server.write(
        .insert("establishment", ["id": "e1", "name": "one", "region": "EU"]),
        .insert("establishment", ["id": "e2", "name": "two", "region": "US"]),
        .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d"]),
        .insert("inspection", ["id": "i2", "establishment_id": "e2", "date": "d"]))
      for index in 0..<2 { try await bench.sync(index) }
      // What it saw leaves its scope while no one keeps the history.
      try await bench.server.write(
        .update("establishment", ["e1"], ["region": "US"]), .update("establishment", ["e2"], ["region": "EU"]))
      _ = try await bench.server.store.sweep()
      try await bench.server.store.trim(before: Int64.max)
      for index in 0..<2 {
        var driver = try RecoveryDriver(bench, index)
        _ = try await driver.recover()
        try await bench.expectConverged(index)
      }
      try expectEqual(
        try await bench.clients[0].store.rows(of: "inspection"), [["i2", "e2", "d", .null]], "the rows in scope")
    },
    recovering(
      ContractSchemas.groups, "recovery that makes everything anew ends as a first sync does",
      rule: "semantics 9, recreate"
    ) { bench in
      try await bench.server.write(.insert("a", ["id": "a1", "v": "x"]), .insert("b", ["id": "b1", "a_id": "a1"]))
      for index in 0..<2 { try await bench.sync(index) }
      try await bench.write(0, .insert("a", ["id": "a2"]), .insert("draft", ["id": "d", "a_id": "a2"]))
      try await bench.write(1, .update("a", ["a1"], ["v": "one"]))
      try await bench.sync(1)
      var driver = try RecoveryDriver(bench, 0)
      let before = try await bench.clients[0].store.status().state.remoteID
      _ = try await driver.recover(RecoveryWish(requests: .discard, rebuild: .everything, takesNewRemoteID: true))
      let status = try await bench.clients[0].store.status()
      try expect(status.state.remoteID != before, "the remote ID must be new")
      try expectEqual([status.queued, status.kept], [0, 1], "queued and kept")
      try expectEqual(try await bench.clients[0].store.rows(of: "draft"), [], "the client-only rows")
      try await bench.expectConverged(0)
      try await bench.write(0, .update("a", ["a1"], ["v": "zero"]))
      for index in 0..<2 { try await bench.expectConverged(index) }
      try expectEqual(try await bench.clients[1].store.rows(of: "a"), [["a1", "zero"]], "the other device's rows")
    },
  ]

  /// A case for pairs of which both recover.
  private static func recovering(
    _ schema: Schema, _ name: String, rule: String, parameters: [[String: [Value]]] = [],
    _ body: @escaping @Sendable (inout PairBench) async throws -> Void
  ) -> Case {
    let rule = on(schema, parameters: parameters, name, rule: rule, body)
    return Case(name, rule: rule.rule) { subject in
      if subject.client.recovers && subject.server.recovers { try await rule.run(subject) }
    }
  }
}
