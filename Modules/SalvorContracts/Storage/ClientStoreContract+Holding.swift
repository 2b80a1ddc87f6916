import SalvorModel
import SalvorStorage

/// Requests that wait for others: held back behind one in error, released when it is accepted (semantics 7 and 8).
extension ClientStoreContract {
  /// Sends everything that waits: `refuse` of the keys is refused.
  private static func upload(_ bench: ClientBench, refusing keys: Set<String> = []) async throws -> [ReadChange] {
    try await bench.upload { change in keys.contains { change.values.first == .text($0) } ? .constraint : nil }
  }

  private static func states(_ bench: ClientBench) async throws -> [String] {
    try await bench.queued(Set(RequestState.allCases)).map { "\($0.key.first ?? .null) \($0.state.rawValue)" }
  }

  static let holding: [Case] = [
    on(
      ContractSchemas.tree, "what depends on a request in error is not sent: it is blocked by it",
      rule: "semantics 7, Depends on"
    ) { bench in
      try await bench.write(.insert("node", ["id": "p"]))
      _ = try await upload(bench, refusing: ["p"])
      try await bench.write(
        .insert("node", ["id": "c", "parent": "p"]), .insert("leaf", ["id": "l", "node": "c"]),
        .insert("node", ["id": "q"]))
      try expectEqual(try await upload(bench).map(\.values.first), ["q"], "what is sent")
      let archive = try await bench.archived()
      try expectEqual(archive.map(\.state), [.refused, .blocked, .blocked], "the archive")
      try expectEqual(archive.map(\.blockedBy), [nil, archive.first?.id, archive.first?.id], "what blocks them")
      try expectEqual(archive.map(\.status), [422, 424, 424], "their status")
      try expectEqual(archive.map(\.attempts), [1, 0, 0], "the attempts")
      try await bench.expectRows("leaf", [["l", "c", .null]])
      let quiet = try await bench.begin()
      try expect(quiet.session.upload == nil, "nothing is to be sent")
      let session = quiet.session
      try expectEqual([session.blocked.count, session.held.count], [0, 2], "what is held back anew, and by now")
      await bench.store.endSession()
      try await bench.remove(.entry(archive[0].id))
      try await bench.expectRows("node", [["q", .null, .null]])
      try expectEqual(try await bench.begin().session.held, [], "what is held back in the end")
    },
    on(
      ContractSchemas.tree, "a retried request that is accepted releases what was blocked behind it, in one step",
      rule: "semantics 8, Fix and retry"
    ) { bench in
      var writes: [ApplicationWrite] = [.insert("node", ["id": "n100"])]
      for index in 101..<140 {
        writes.append(.insert("node", ["id": .text("n\(index)"), "parent": .text("n\(index - 1)")]))
      }
      try await bench.store.write(writes)
      try await bench.upload { $0.values[0] == "n100" ? .constraint : .blocked }
      let ids = try await bench.archive(40)
      _ = try await bench.retry([ids[0]])
      try expectEqual(try await bench.status().inError, 39, "what is blocked until the outcome is known")
      try expectEqual(try await upload(bench).map(\.values.first), ["n100"], "what is sent alone")
      let released = try await bench.queued()
      try expectEqual(released.map(\.state), Array(repeating: .queued, count: 39), "what waits then")
      try expectEqual(released.map(\.history), ids.dropFirst().map { [$0] }, "their old IDs")
      try expect(Set(released.map(\.id)).isDisjoint(with: ids), "the IDs must be new")
      try await bench.restart()
      try expectEqual(try await bench.queued(), released, "the queue after a restart")
      let sent = try await upload(bench)
      try expectEqual(sent.map(\.id), released.map(\.id), "what is sent")
      try expectEqual(sent.last?.values, ["n139", "n138", .null], "the last of them")
      try expectEqual(try await bench.status().inError, 0, "the requests in error")
    },
    on(
      ContractSchemas.tree, "what is blocked stays so while the one that it depends on is refused again",
      rule: "semantics 8, Fix and retry"
    ) { bench in
      try await bench.write(.insert("node", ["id": "p"]), .insert("node", ["id": "c", "parent": "p"]))
      try await bench.upload { $0.values[0] == "p" ? .constraint : .blocked }
      for label in ["one", "two"] {
        try await bench.write(.update("node", ["p"], ["label": .text(label)]))
        let sent = try await upload(bench, refusing: label == "one" ? ["p"] : [])
        try expectEqual(sent.map(\.values.first), ["p"], "what is sent")
        try expectEqual(
          try await states(bench),
          label == "one" ? ["c blocked", "p refused"] : ["c queued"], "the requests after the label \(label)")
      }
      try expectEqual(try await upload(bench).map(\.values), [["c", "p", .null]], "what is sent at last")
      try await bench.expectRows("node", [["c", "p", .null], ["p", .null, "two"]])
    },
    on(
      ContractSchemas.tree, "a request that two hold is released when both are accepted", rule: "semantics 8"
    ) { bench in
      try await bench.write(
        .insert("node", ["id": "a"]), .insert("node", ["id": "b"]),
        .insert("leaf", ["id": "l", "node": "a", "kept": "b"]))
      try await bench.upload { $0.table == "leaf" ? .blocked : .constraint }
      let ids = try await bench.archive(3)
      _ = try await bench.retry([ids[0]])
      try expectEqual(try await upload(bench).map(\.values.first), ["a"], "what is sent first")
      try expectEqual(try await states(bench), ["b refused", "l blocked"], "what remains")
      _ = try await bench.retry([ids[1]])
      try expectEqual(try await upload(bench).map(\.values.first), ["b"], "what is sent then")
      try expectEqual(try await upload(bench).map(\.values.first), ["l"], "what is sent at last")
    },
    on(
      ContractSchemas.seats,
      "what took a unique value that a failed request freed is sent after it, however it is mended",
      rule: "semantics 7, Depends on"
    ) { bench in
      try await bench.download(full: ["seat"], rows: [("seat", [1, 7, 1])])
      try await bench.write(.update("seat", [1], ["place": 8]))
      try await bench.upload { _ in .constraint }
      try await bench.write(.insert("seat", ["id": 2, "place": 7]), .update("seat", [1], ["place": 9]))
      try expectChanges(try await bench.upload(), [#"update seat ["place"] [1, 7, 9]"#])
      try expectEqual(try await bench.queued().map(\.key), [[2]], "what waits when that is accepted")
      try expectChanges(try await bench.upload(), [#"insert seat ["id", "place", "seats"] [2, 7, 1]"#])
      try await bench.expectRows("seat", [[1, 9, 1], [2, 7, 1]])
    },
    on(
      ContractSchemas.tree, "what was captured on a row that failed to be relinked waits for it, and goes with it",
      rule: "semantics 8"
    ) { bench in
      try await bench.download(
        full: ["node", "leaf"], rows: [("node", ["a", .null, .null]), ("node", ["b", "a", .null])])
      try await bench.write(.update("node", ["b"], ["parent": .null]))
      try await bench.upload { _ in .constraint }
      try await bench.write(.insert("leaf", ["id": "l", "node": "b"]))
      let id = try await bench.oldest(.queued).id
      try expectEqual(try await bench.upload(), [], "what is sent")
      try expectEqual(try await bench.oldest(.blocked).id, id, "what is held back")
      let refused = try await bench.oldest(.refused).id
      try expectEqual(
        try await bench.store.plan(.entry(refused)).requests.map(\.id), [refused, id], "what hangs on it")
      _ = try await bench.retry([refused])
      try await bench.upload()
      try expectEqual(try await bench.upload().map(\.values), [["l", "b", .null]], "what is sent at last")
    },
  ]
}
