import SalvorModel
import SalvorStorage

extension ClientStoreContract {
  static let sessions: [Case] = [
    on(
      ContractSchemas.notes(), "one session at a time, over all that have the database open",
      rule: "ClientStore.swift, beginSession"
    ) { bench in
      let other = try await bench.database(), store = bench.store
      _ = try await other.open(ClientSetup(schema: bench.schema, principal: "anna"))
      _ = try await store.beginSession(groups: nil)
      try await expectError(.sessionInUse, "a second session") { _ = try await other.beginSession(groups: nil) }
      await other.endSession()
      try await expectError(.sessionInUse, "a second session, after its own end") {
        _ = try await other.beginSession(groups: nil)
      }
      await store.endSession()
      _ = try await other.beginSession(groups: nil)
      await other.close()
      _ = try await store.beginSession(groups: nil)
      await store.endSession()
    },
    on(ContractSchemas.notes(), "a session with nothing to send draws nothing", rule: "semantics 4") { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      let begun = try await bench.begin()
      try expect(begun.session.upload == nil, "there is nothing to send")
      let state = try await bench.store.status().state
      try expect(state.current == nil && state.previous == nil, "no sequence ID may be drawn")
    },
    on(
      ContractSchemas.notes(),
      "an upload whose outcome is unknown is offered again, with the same ID and the same bytes", rule: "semantics 5"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]), .update("note", ["n1"], ["title": "b"]))
      let first = try await bench.store.beginSession(groups: nil)
      let upload = try expectSome(first.upload, "the upload")
      try expect(!upload.isResend, "it was not sent before")
      try expectEqual(try await bench.store.status().state.current, upload.sequence, "C")
      let chunks = try await ReadUpload.chunks(bench.store, bytesTarget: 1)
      try await bench.write(.update("note", ["n1"], ["title": "c"]), .insert("note", ["id": "n2", "title": "x"]))
      try await bench.restart()
      let second = try await bench.store.beginSession(groups: ["default"])
      try expectEqual(second.upload?.sequence, upload.sequence, "the sequence ID of the resend")
      try expectEqual(second.upload?.isResend, true, "it is a resend")
      try expectEqual(try await ReadUpload.chunks(bench.store, bytesTarget: 1), chunks, "the chunks of the resend")
      try await bench.expectRows("note", [["n1", "c", .null], ["n2", "x", .null]])
      try await bench.settle((second, try ReadUpload.changes(in: chunks)))
      try expectEqual(try await bench.store.status().state.previous, upload.sequence, "P")
      try expectChanges(
        try await bench.upload(),
        [#"update note ["title"] [n1, b, c]"#, #"insert note ["id", "title", "body"] [n2, x, null]"#])
    },
    on(
      ContractSchemas.notes(), "an upload is cut into chunks that make it up, whatever the target",
      rule: "ClientStore.swift, uploadChunk"
    ) { bench in
      for index in 0..<20 {
        try await bench.write(
          .beginRequest(tag: index % 3 == 0 ? "g" : nil), .insert("note", ["id": .text("n\(index)"), "title": "t"]),
          .update("note", [.text("n\(index)")], ["title": "u"]), .endRequest)
      }
      let session = try await bench.store.beginSession(groups: nil)
      await bench.store.endSession()
      try expect(session.upload != nil, "there is something to send")
      let whole = try await ReadUpload.chunks(bench.store)
      let small = try await ReadUpload.chunks(bench.store, bytesTarget: 1)
      try expectEqual(whole.count, 1, "the chunks of a large target")
      try expect(small.count > 10, "a small target must cut")
      try expectEqual(
        try ReadUpload.changes(in: small), try ReadUpload.changes(in: whole), "the changes of both")
    },
    on(
      ContractSchemas.notes(), "request IDs are never used again: a new stamp after each settle, the counter goes on",
      rule: "semantics 5"
    ) { bench in
      var ids: Set<RequestID> = []
      var counter: Int64 = 0
      var stamps: Set<RequestStamp> = []
      for index in 0..<3 {
        try await bench.write(.insert("note", ["id": .text("n\(index)"), "title": "t"]))
        let changes = try await bench.upload()
        try expectEqual(changes.count, 1, "the changes sent")
        try expect(changes[0].counter > counter, "the counter must go on")
        counter = changes[0].counter
        ids.insert(changes[0].id)
        stamps.insert(changes[0].stamp)
        try await bench.restart()
      }
      try expectEqual(ids.count, 3, "the request IDs")
      try expectEqual(stamps.count, 3, "the stamps")
    },
    on(ContractSchemas.groups, "a sync of one group sends its requests and those they depend on", rule: "semantics 4") {
      bench in
      try await bench.write(
        .insert("a", ["id": "a1"]), .insert("a", ["id": "a2"]), .insert("b", ["id": "b1", "a_id": "a2"]))
      let begun = try await bench.begin(groups: ["second"])
      try expectEqual(begun.changes.map { $0.values[0] }, ["a2", "b1"], "what is sent")
      try await bench.settle(begun)
      try expectEqual(try await bench.queued().map(\.key), [["a1"]], "what waits on")
      try await bench.expectRows("a", [["a1", .null], ["a2", .null]])
    },
    on(ContractSchemas.notes(), "a change carries the commit that its row stood at", rule: "UploadChunk.swift") {
      bench in
      try await bench.write(.insert("note", ["id": "n0", "title": "t"]))
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "b"]))
      try await bench.download(rows: [("note", ["n1", "a", "server"])])
      let changes = try await bench.upload()
      try expectEqual(changes.map(\.made), [0, 1], "made")
      try await bench.write(.update("note", ["n1"], ["title": "c"]))
      try expectEqual(try await bench.upload().map(\.made), [2], "made after the next download")
    },
    on(ContractSchemas.notes(), "a settled upload cannot be settled again", rule: "ClientStore.swift, settle") {
      bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      let begun = try await bench.begin()
      try await bench.settle(begun)
      try await bench.write(.update("note", ["n1"], ["title": "b"]))
      let store = bench.store, upload = try expectSome(begun.session.upload, "the upload")
      _ = try? await store.settle(
        sequence: upload.sequence, results: UploadResults(commit: nil, acceptedRequests: 1, refused: []))
      try expectEqual(try await bench.queued().count, 1, "the queue")
      try expectChanges(try await bench.upload(), [#"update note ["title"] [n1, a, b]"#])
      let history = try await bench.store.history()
      try expectEqual(history.olderSequences, [upload.sequence], "the older sequence IDs")
    },
  ]

  static let settling: [Case] = [
    on(ContractSchemas.notes(), "accepted requests leave the queue and stay in the rows", rule: "semantics 2") {
      bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(
        .update("note", ["n1"], ["title": "A"]), .delete("note", ["n2"]), .insert("note", ["id": "n3", "title": "c"]))
      try await bench.upload()
      try await bench.expectRows("note", [["n1", "A", .null], ["n3", "c", .null]])
      try expectEqual(try await bench.store.status().queued, 0, "the queue")
      try await bench.download(rows: [("note", ["n1", "server", .null])])
      try await bench.expectRows("note", [["n1", "server", .null], ["n3", "c", .null]])
    },
    on(ContractSchemas.notes(), "requests queued since an upload stay, made on what it made", rule: "semantics 2") {
      bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "b"]))
      let begun = try await bench.begin()
      try await bench.write(.update("note", ["n1"], ["title": "c", "body": "y"]))
      try await bench.settle(begun)
      try await bench.expectRows("note", [["n1", "c", "y"]])
      try expectChanges(try await bench.upload(), [#"update note ["title", "body"] [n1, b, c, null, y]"#])
    },
    on(
      ContractSchemas.notes(), "refused and blocked requests stay in their rows as archive entries", rule: "semantics 8"
    ) {
      bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(
        .insert("note", ["id": "n3", "title": "c"]), .update("note", ["n3"], ["title": "C"]),
        .update("note", ["n1"], ["title": "A"]), .delete("note", ["n2"]), .insert("note", ["id": "n4", "title": "d"]))
      try await bench.upload { change in
        switch (change.operation, change.values[0]) {
        case (.insert, "n3"): .constraint
        case (.update, "n3"): .blocked
        case (.update, "n1"), (.delete, _): .conflict
        default: nil
        }
      }
      try await bench.expectRows("note", [["n1", "A", .null], ["n3", "C", .null], ["n4", "d", .null]])
      let status = try await bench.store.status()
      try expectEqual(status.queued, 0, "the queue")
      try expectEqual(status.inError, 4, "the requests in error")
      let archive = try await bench.archived()
      try expectEqual(archive.map(\.state), [.refused, .blocked, .refused, .refused], "the states")
      try expectEqual(archive.map(\.reason), ["constraint", "blocked", "conflict", "conflict"], "the reasons")
      try expectEqual(archive.map(\.status), [422, 424, 409, 409], "the status codes")
      try expectEqual(archive[0].dependents, [archive[1].id], "what depends on the insert")
      try expectEqual(try await bench.begin().changes, [], "what is sent without an edit")
    },
    on(ContractSchemas.notes(), "the row of a refused request follows the server beneath it", rule: "semantics 2") {
      bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "A"]))
      try await bench.upload { _ in .conflict }
      try await bench.download(rows: [("note", ["n1", "server", "server"])])
      try await bench.expectRows("note", [["n1", "A", "server"]])
      try expectEqual(try await bench.store.status().inError, 1, "the requests in error")
      try await bench.restart()
      try await bench.expectRows("note", [["n1", "A", "server"]])
    },
  ]

  static let retrying: [Case] = [
    on(
      ContractSchemas.notes(), "an edit of a row in error is sent with the failed request, as one with a new ID",
      rule: "semantics 8"
    ) { bench in
      try await bench.write(
        .insert("note", ["id": "n1", "title": "bad"]), .insert("note", ["id": "n2", "title": "bad"]))
      let first = try await bench.upload { _ in .constraint }
      try await bench.write(.update("note", ["n1"], ["title": "good"]))
      try expectEqual(try await bench.queued().map(\.operation), [.update], "the edit is a request of its own")
      let begun = try await bench.begin()
      try expectEqual(
        begun.session.joined.isSuperset(of: [first[0].request]), true, "the session names what was joined")
      try expectEqual(begun.session.joined.contains(first[1].request), false, "and not what stays")
      try await bench.settle(begun)
      let second = begun.changes
      try expectChanges(second, [#"insert note ["id", "title", "body"] [n1, good, null]"#])
      try expect(!first.map(\.id).contains(second[0].id), "the ID must be new")
      try await bench.expectRows("note", [["n1", "good", .null], ["n2", "bad", .null]])
      try expectEqual(try await bench.archived().map(\.key), [["n2"]], "the archive")
    },
    on(ContractSchemas.notes(), "an edit after a conflict is made on the row as it is now", rule: "semantics 8") {
      bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "A"]))
      try await bench.upload { _ in .conflict }
      try await bench.download(rows: [("note", ["n1", "server", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "both"]))
      let changes = try await bench.upload()
      try expectChanges(changes, [#"update note ["title"] [n1, server, both]"#])
      try expectEqual(changes[0].made, 2, "made")
      try expectEqual(try await bench.archived(), [], "the archive")
    },
    on(ContractSchemas.notes(), "deleting a row whose insert was refused leaves nothing to send", rule: "semantics 8") {
      bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "bad"]))
      try await bench.upload { _ in .constraint }
      try await bench.write(.delete("note", ["n1"]))
      try await bench.expectRows("note", [])
      let begun = try await bench.begin()
      try expectEqual(begun.changes, [], "what is sent")
      try expectEqual(try await bench.archived(), [], "the archive")
    },
  ]
}
