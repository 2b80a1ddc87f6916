import SalvorModel
import SalvorStorage

extension ClientStoreContract {
  static let chains: [Case] = [
    on(
      ContractSchemas.notes(), "created, updated, deleted: a withdrawal takes what came after it on the row",
      rule: "semantics 8"
    ) { bench in
      try await bench.write(
        .insert("note", ["id": "n1", "title": "a"]), .update("note", ["n1"], ["title": "b"]), .delete("note", ["n1"]))
      let ids = try await bench.queue(3)
      try expectEqual(
        try await bench.store.plan(.withdraw(ids[0])).requests.map(\.id), ids, "what the insert would take along")
      try await bench.remove(.withdraw(ids[2]))
      try await bench.expectRows("note", [["n1", "b", .null]])
      try await bench.remove(.withdraw(ids[1]))
      try await bench.expectRows("note", [["n1", "a", .null]])
      try expectChanges(try await bench.upload(), [#"insert note ["id", "title", "body"] [n1, a, null]"#])
    },
    on(
      ContractSchemas.notes(), "what remains after a withdrawal is sent with what it saw itself", rule: "semantics 2, 8"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(
        .update("note", ["n1"], ["title": "b"]), .update("note", ["n1"], ["title": "c", "body": "x"]))
      let ids = try await bench.queue(2)
      try await bench.remove(.withdraw(ids[1]))
      try await bench.expectRows("note", [["n1", "b", .null]])
      try await bench.write(.update("note", ["n1"], ["body": "y"]))
      try expectChanges(
        try await bench.upload(),
        [#"update note ["title"] [n1, a, b]"#, #"update note ["body"] [n1, null, y]"#])
    },
    on(
      ContractSchemas.tree, "a deep chain of references goes from the withdrawn link on", rule: "semantics 8"
    ) { bench in
      var writes: [ApplicationWrite] = [.insert("node", ["id": "n100"])]
      for index in 101..<160 {
        writes.append(.insert("node", ["id": .text("n\(index)"), "parent": .text("n\(index - 1)")]))
      }
      try await bench.store.write(writes)
      let ids = try await bench.queue(60)
      let report = try await bench.remove(.withdraw(ids[20]))
      try expectEqual(report.requests.map(\.id), Array(ids[20...]), "what goes")
      try expectEqual(report.rows.count, 40, "the rows made anew")
      try expectEqual(try await bench.store.rows(of: "node").count, 20, "the rows that remain")
      try expectEqual(try await bench.queued().count, 20, "the queue")
    },
    on(
      ContractSchemas.notes(), "a row that failed twice is one entry, and its deletion brings the base back",
      rule: "semantics 8"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "b"]))
      let first = try await bench.upload { _ in .constraint }
      try await bench.write(.update("note", ["n1"], ["body": "x"]))
      try await bench.upload { _ in .constraint }
      let failed = try await bench.oldest(.refused)
      try expectEqual(try await bench.archive(1), [failed.id], "the archive")
      try expectEqual(failed.history.first, first.first?.id, "the first of its old IDs")
      try expectEqual(failed.history.count, 2, "its old IDs")
      try expectEqual(failed.attempts, 2, "the attempts")
      try await bench.remove(.entry(failed.id))
      try await bench.expectRows("note", [["n1", "a", .null]])
      try expectEqual(try await bench.status().inError, 0, "the requests in error")
    },
    on(
      ContractSchemas.notes(), "rows are made anew on the base as it is now", rule: "semantics 2, 8"
    ) { bench in
      try await bench.download(
        full: ["note"],
        rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null]), ("note", ["n3", "c", .null])]
      )
      try await bench.write(
        .update("note", ["n1"], ["title": "mine"]), .delete("note", ["n2"]), .update("note", ["n3"], ["title": "mine"]),
        .insert("note", ["id": "n4", "title": "mine"]))
      try await bench.upload { _ in .conflict }
      try await bench.download(
        rows: [("note", ["n1", "server", "x"]), ("note", ["n2", "server", "x"]), ("note", ["n4", "server", "x"])],
        departed: [("note", .deleted, ["n3"])])
      try await bench.remove(.archive(nil))
      try await bench.expectRows("note", [["n1", "server", "x"], ["n2", "server", "x"], ["n4", "server", "x"]])
      let status = try await bench.status()
      try expectEqual([status.queued, status.inError, status.displaced], [0, 0, 0], "queued, in error, displaced")
    },
    on(
      ContractSchemas.notes(), "a group left open is closed and split before anything goes", rule: "semantics 3, 8"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      let id = try await bench.oldest(.queued, .sent).id
      try await bench.write(.beginRequest(tag: "open"), .insert("note", ["id": "n2", "title": "b"]))
      try await bench.remove(.withdraw(id))
      try await bench.expectRows("note", [["n2", "b", .null]])
      try expectChanges(try await bench.upload(), [#"insert note ["id", "title", "body"] [n2, b, null]"#])
    },
  ]

  // MARK: Uploads whose outcome is unknown

  static let underWay: [Case] = [
    on(
      ContractSchemas.notes(), "what belongs to an upload whose outcome is unknown cannot go; the error names it",
      rule: "semantics 8"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      let begun = try await bench.begin()
      let id = try expectSome(begun.changes.first?.id, "a change")
      let store = bench.store
      for attempt in 0..<2 {
        let error = try await expectError(.outcomeUnknown, "a withdrawal") { _ = try await store.remove(.withdraw(id)) }
        try expectEqual(error.context["request"], "\(id)", "the request that the error names")
        try await expectError(.outcomeUnknown, "its plan") { _ = try await store.plan(.withdraw(id)) }
        try await bench.expectRows("note", [["n1", "a", .null]])
        try expectEqual(try await bench.queued().map(\.id), [id], "the queue")
        // Once more when it is to be sent again.
        if attempt == 0 { _ = try await bench.begin() }
      }
      let resend = try await bench.begin()
      try expectEqual(resend.changes, begun.changes, "what is sent again")
      try await bench.settle(resend) { _ in .constraint }
      try await bench.remove(.entry(id))
      try await bench.expectRows("note", [])
    },
    on(
      ContractSchemas.notes(),
      "what was queued since an upload that is under way can be withdrawn, and the upload stays",
      rule: "semantics 4, 8"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "b"]))
      let begun = try await bench.begin()
      let chunks = try await ReadUpload.chunks(bench.store)
      try await bench.write(.update("note", ["n1"], ["title": "c"]), .insert("note", ["id": "n2", "title": "x"]))
      let waiting = try await bench.queued([.queued]).map(\.id)
      for id in waiting { try await bench.remove(.withdraw(id)) }
      try await bench.expectRows("note", [["n1", "b", .null]])
      try expectEqual(try await ReadUpload.chunks(bench.store), chunks, "the upload's bytes")
      try await bench.settle(begun)
      try await bench.expectRows("note", [["n1", "b", .null]])
      try expectEqual(try await bench.status().queued, 0, "the queue")
    },
    on(
      ContractSchemas.seats, "an entry that was displaced while its upload is under way cannot go either",
      rule: "semantics 2, 8"
    ) { bench in
      try await bench.write(.insert("seat", ["id": 1, "place": 7]))
      let begun = try await bench.begin()
      try await bench.download(full: ["seat"], rows: [("seat", [2, 7, 1])])
      let id = try await bench.oldest(.refused, .displaced).id
      let store = bench.store
      for removal in [RequestRemoval.archive(nil), .entry(id)] {
        try await expectError(.outcomeUnknown, "\(removal)") { _ = try await store.remove(removal) }
      }
      try expectEqual(try await bench.archived().map(\.state), [.displaced], "the archive")
      try await bench.settle(begun) { _ in .constraint }
      try await bench.remove(.entry(id))
      try await bench.expectRows("seat", [[2, 7, 1]])
    },
    on(
      ContractSchemas.notes(), "a removal names a request that is not there, or not in its state",
      rule: "RequestRemoval.swift, remove"
    ) { bench in
      try await bench.write(
        .insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "b"]))
      try await bench.upload { $0.values[0] == "n1" ? .constraint : nil }
      try await bench.write(.insert("note", ["id": "n3", "title": "c"]))
      let refused = try await bench.oldest(.refused, .displaced).id, queued = try await bench.oldest(.queued, .sent).id
      let unknown = RequestID(stamp: RequestStamp(from: SystemRandom()), counter: 7)
      let store = bench.store
      let removals: [RequestRemoval] = [
        .archive(unknown), .archive(queued), .entry(unknown), .entry(queued), .withdraw(unknown), .withdraw(refused),
        .kept(unknown), .kept(refused), .kept(queued),
      ]
      for removal in removals {
        let error = try await expectError(.notFound, "\(removal)") { _ = try await store.remove(removal) }
        try expect(error.context["request"] != nil, "the request must be named")
      }
      try expectEqual(
        try await bench.archived().map(\.id) + bench.queued().map(\.id), [refused, queued], "what is there")
    },
  ]

  // MARK: Kept entries

  /// Three changes that a recovery discarded: an update of n1, a delete of n2, an insert of n3.
  private static func discarded(_ bench: inout ClientBench) async throws -> [RequestID] {
    let rows: [(String, Row)] = [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])]
    try await bench.download(full: ["note"], rows: rows)
    try await bench.write(
      .update("note", ["n1"], ["title": "mine"]), .delete("note", ["n2"]), .beginRequest(tag: "visit"),
      .insert("note", ["id": "n3", "title": "c"]), .endRequest)
    try await bench.recover(Recovered(requests: .discard, shared: 1))
    try await bench.expectRows("note", rows.map(\.1))
    return try await bench.archive(3)
  }

  static let keptEntries: [Case] = [
    recovering(
      ContractSchemas.notes(), "kept entries go one by one or all, and by no other deletion", rule: "semantics 8"
    ) { bench in
      let ids = try await discarded(&bench)
      let store = bench.store
      try await expectError(.notFound, "a kept entry as one in error") { _ = try await store.remove(.entry(ids[0])) }
      try expectEqual(try await bench.remove(.archive(nil)), RemovalReport(), "what a whole deletion takes")
      let one = try await bench.remove(.kept(ids[1]))
      try expectEqual(one.requests.map(\.id), [ids[1]], "what goes")
      try expectEqual(one.rows, [], "the rows made anew")
      try expectEqual(try await bench.archived().map(\.id), [ids[0], ids[2]], "the archive")
      try expectEqual(try await bench.remove(.allKept).requests.map(\.id), [ids[0], ids[2]], "what goes then")
      try expectEqual(try await bench.status().kept, 0, "the kept entries")
      try await bench.expectRows("note", [["n1", "a", .null], ["n2", "b", .null]])
    }
  ]

  static let reapplying: [Case] = [
    recovering(
      ContractSchemas.notes(), "a kept entry is reapplied as a new request on the rows as they are now",
      rule: "semantics 8, Fix and retry"
    ) { bench in
      let ids = try await discarded(&bench)
      try await bench.download(rows: [("note", ["n1", "server", "server"])])
      let store = bench.store
      var made: [RequestID] = []
      for id in ids { made.append(try expectSome(try await store.reapply(id), "the new request")) }
      try await bench.expectRows("note", [["n1", "mine", "server"], ["n3", "c", .null]])
      let queue = try await bench.queued()
      try expectEqual(queue.map(\.id), made, "the queue")
      try expectEqual(queue.map(\.history), ids.map { [$0] }, "what they were made from")
      try expectEqual(queue.map(\.tag), [nil, nil, "visit"], "the tags")
      try expectEqual(queue.first?.before, [NamedValue("title", "server")], "what the update saw")
      try expect(Set(made).isDisjoint(with: ids), "the IDs must be new")
      try expectEqual(try await bench.status().kept, 0, "the kept entries")
      let error = try await expectError(.notFound, "once more") { _ = try await store.reapply(ids[0]) }
      try expect(error.message.contains("\(made[0])"), "the request that it became must be named")
      try expectEqual(try await bench.upload().count, 3, "what is sent")
    },
    recovering(
      ContractSchemas.notes(), "a kept entry whose effect is there leaves nothing to send", rule: "RequestRemoval.swift"
    ) { bench in
      let ids = try await discarded(&bench)
      try await bench.download(
        rows: [("note", ["n1", "mine", .null]), ("note", ["n3", "c", .null])], departed: [("note", .deleted, ["n2"])])
      let store = bench.store
      for id in ids { try expectEqual(try await store.reapply(id), nil, "the new request") }
      let status = try await bench.status()
      try expectEqual([status.queued, status.kept], [0, 0], "queued and kept")
    },
    recovering(
      ContractSchemas.notes(unique: [["title"]]), "a kept entry that cannot stand stays, and the error says why",
      rule: "RequestRemoval.swift, reapply"
    ) { bench in
      let ids = try await discarded(&bench)
      try await bench.download(rows: [("note", ["n9", "c", .null])], departed: [("note", .deleted, ["n1"])])
      let store = bench.store
      try await expectError(.cannotStand, "an update of a row that is gone") { _ = try await store.reapply(ids[0]) }
      try await expectError(.cannotStand, "a unique value that is taken") { _ = try await store.reapply(ids[2]) }
      try expectEqual(try await bench.archived().map(\.id), ids, "the archive")
      try expectEqual(try await bench.status().queued, 0, "the queue")
      try await bench.expectRows("note", [["n2", "b", .null], ["n9", "c", .null]])
    },
  ]
}
