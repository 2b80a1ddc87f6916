import SalvorModel
import SalvorStorage
import SalvorWire

/// Failed requests that are sent again, and what a person reads of the queue (semantics 8).
extension ClientStoreContract {
  static let sendingAgain: [Case] = [
    on(
      Schema(tables: [
        Table(
          "note", primaryKey: ["id"],
          columns: [
            Column("id", .text), Column("title", .text, nullable: true), Column("number", .integer, nullable: true),
          ], unique: [["number"]])
      ]), "a displaced request does not return below older changes of its row that are sent again",
      rule: "semantics 8, Fix and retry"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "old", 1])])
      try await bench.write(.update("note", ["n1"], ["number": 2]))
      try await bench.write(.delete("note", ["n1"]))
      try await bench.write(.insert("note", ["id": "n1", "title": "mine", "number": 2]))
      try await bench.upload { _ in .constraint }
      try await bench.download(rows: [("note", ["n3", "theirs", 2])])
      try expectEqual(try await bench.archived().map(\.state).filter { $0 == .displaced }.count, 1, "what cannot stand")
      _ = try await bench.retry(nil)
      try await bench.expectRows("note", [["n3", "theirs", 2]])
      try expectEqual(
        try await bench.archived().map { entry in entry.after.first { $0.name == "title" }?.value }, ["mine"],
        "what waits in the archive")
      try expectChanges(try await bench.commitUpload(), ["delete note [n1]"])
      try expectEqual(try await bench.archived().count, 1, "the archive")
      // When nothing is in its way any more, it goes up.
      try await bench.download(rows: [("note", ["n3", "theirs", 3])])
      _ = try await bench.retry(nil)
      try await bench.expectRows("note", [["n1", "mine", 2], ["n3", "theirs", 3]])
      try expectEqual(try await bench.archived(), [], "the archive")
    },
    on(
      ContractSchemas.notes(), "retry sends one failed request again, under a new ID; the others stay",
      rule: "semantics 8, Fix and retry"
    ) { bench in
      try await bench.write(
        .insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "b"]))
      try await bench.upload { _ in .constraint }
      let ids = try await bench.archive(2)
      let report = try await bench.retry([ids[0]])
      let waiting = try await bench.queued()
      let again = try await bench.queue(1)[0]
      try expectEqual(waiting.map(\.key), [["n1"]], "the queue")
      try expectEqual(waiting.map(\.history), [[ids[0]]], "its history")
      try expectEqual(report.requests, [RetriedRequest(id: ids[0], outcome: .queued(again))], "the report")
      try expect(again != ids[0], "the ID must be new")
      try expectEqual(try await bench.archived().map(\.id), [ids[1]], "the archive")
      try await bench.restart()
      try expectEqual(try await bench.queued(), waiting, "the queue after a restart")
      try await bench.expectRows("note", [["n1", "a", .null], ["n2", "b", .null]])
      let sent = try await bench.upload()
      try expectEqual(sent.map(\.id), [again], "what is sent")
      try expectChanges(sent, [#"insert note ["id", "title", "body"] [n1, a, null]"#])
      try expectEqual(try await bench.status().inError, 1, "the requests in error")
    },
    on(
      ContractSchemas.notes(), "retry sends all failed requests again, each as a request of its own",
      rule: "semantics 8, Fix and retry"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(
        .update("note", ["n1"], ["title": "A"]), .delete("note", ["n2"]), .insert("note", ["id": "n3", "title": "c"]))
      try await bench.upload { _ in .conflict }
      try await bench.download(rows: [("note", ["n1", "server", .null])])
      try expectEqual(try await bench.retry(nil).requests.count, 3, "the report")
      let sent = try await bench.upload()
      try expectChanges(
        sent,
        [
          #"update note ["title"] [n1, server, A]"#, "delete note [n2]",
          #"insert note ["id", "title", "body"] [n3, c, null]"#,
        ])
      try expectEqual(Set(sent.map(\.request)).count, 3, "the number of requests")
      try expectEqual(sent.map(\.made), [2, 2, 2], "made on the rows as they are now")
      try expectEqual(try await bench.archived(), [], "the archive")
    },
    on(
      Schema(tables: [
        Table(
          "note", primaryKey: ["id"],
          columns: [
            Column("id", .text), Column("title", .text, nullable: true),
            Column("body", .text, nullable: true, defaultValue: "empty"),
          ])
      ]),
      "an insert of a row that is there by now, sent again or edited, writes what it sets, and nothing that nobody has set",
      rule: "semantics 7; 8, Fix and retry"
    ) { bench in
      try await bench.write(
        .insert("note", ["id": "n1", "body": "mine"]), .insert("note", ["id": "n2", "title": "t"]),
        .insert("note", ["id": "n3"]))
      try await bench.upload { _ in .conflict }
      try await bench.download(
        rows: [("note", ["n1", "theirs", "b"]), ("note", ["n2", "theirs", "b"]), ("note", ["n3", "theirs", "b"])])
      let ids = try await bench.archive(3)
      let report = try await bench.retry([ids[0], ids[2]])
      try expectEqual(report.requests.map { $0.outcome == .nothingLeft }, [false, true], "what sets nothing")
      try await bench.expectRows("note", [["n1", "theirs", "mine"], ["n2", "t", "empty"], ["n3", "theirs", "b"]])
      try await bench.restart()
      try expectChanges(try await bench.upload(), [#"update note ["body"] [n1, b, mine]"#])
      try await bench.write(.update("note", ["n2"], ["title": .null]))
      try expectChanges(try await bench.upload(), [#"update note ["title"] [n2, theirs, null]"#])
      try await bench.expectRows("note", [["n1", "theirs", "mine"], ["n2", .null, "b"], ["n3", "theirs", "b"]])
    },
    on(
      ContractSchemas.notes(), "the later edits of its rows go with a request that is sent again",
      rule: "semantics 8, Fix and retry"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(
        .beginRequest(tag: "visit"), .update("note", ["n1"], ["title": "A"]), .update("note", ["n2"], ["title": "B"]),
        .endRequest)
      try await bench.upload { _ in .constraint }
      try await bench.write(.update("note", ["n2"], ["body": "y"]), .insert("note", ["id": "n3", "title": "c"]))
      let before = try await bench.archive(1) + bench.queue(2)
      let report = try await bench.retry([before[0]])
      try expectEqual(report.requests.map(\.id), [before[0], before[1]], "what went into the new request")
      let sent = try await bench.upload()
      try expectChanges(
        sent.filter { $0.tag == "visit" },
        [#"update note ["title"] [n1, a, A]"#, #"update note ["title", "body"] [n2, b, B, null, y]"#])
      try expectEqual(sent.count, 3, "the changes sent")
      try await bench.expectRows("note", [["n1", "A", .null], ["n2", "B", "y"], ["n3", "c", .null]])
    },
    on(
      ContractSchemas.tree,
      "retry of a blocked request brings along the failed ones that it depends on, and goes after them",
      rule: "RequestRemoval.swift, retry"
    ) { bench in
      try await bench.write(
        .insert("node", ["id": "p"]), .insert("node", ["id": "c", "parent": "p"]), .insert("node", ["id": "q"]))
      try await bench.upload { $0.values[0] == "c" ? .blocked : .constraint }
      let ids = try await bench.archive(3)
      let report = try await bench.retry([ids[1]])
      try expectEqual(report.requests.map(\.id), [ids[0], ids[1]], "what is sent again")
      try expectChanges(
        try await bench.upload(),
        [
          #"insert node ["id", "parent", "label"] [p, null, null]"#,
          #"insert node ["id", "parent", "label"] [c, p, null]"#,
        ])
      try expectEqual(try await bench.archived().map(\.id), [ids[2]], "the archive")
    },
    on(
      ContractSchemas.notes(), "a failed request whose effect the server has meanwhile leaves nothing to send",
      rule: "RequestRemoval.swift, retry"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "b"]))
      try await bench.upload { _ in .conflict }
      let id = try await bench.oldest(.refused, .displaced).id
      try await bench.download(rows: [("note", ["n1", "b", .null])])
      try expectEqual(
        try await bench.retry([id]).requests, [RetriedRequest(id: id, outcome: .nothingLeft)], "the report")
      let status = try await bench.status()
      try expectEqual([status.queued, status.inError], [0, 0], "queued and in error")
      try await bench.expectRows("note", [["n1", "b", .null]])
    },
    on(
      ContractSchemas.notes(), "a failed delete of a row that has left is sent again: the server has the row still",
      rule: "semantics 8"
    ) { bench in
      for (departure, isSent) in [(Departure.left, true), (.deleted, false)] {
        try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
        try await bench.write(.delete("note", ["n1"]))
        try await bench.upload { _ in .outOfScope }
        let id = try await bench.oldest(.refused, .displaced).id
        try await bench.download(departed: [("note", departure, ["n1"])])
        let outcome = try await bench.retry([id]).requests.first?.outcome
        try expectEqual(outcome == .nothingLeft, !isSent, "the outcome (\(departure.rawValue))")
        try expectChanges(try await bench.upload(), isSent ? [#"delete note [n1]"#] : [])
        try expectEqual(try await bench.status().queued, 0, "the queue")
      }
    },
    on(
      ContractSchemas.seats, "retry of a displaced request: it stands where it can, and stays where it cannot",
      rule: "semantics 2, 8"
    ) { bench in
      try await bench.write(.insert("seat", ["id": 1, "place": 7]))
      try await bench.download(full: ["seat"], rows: [("seat", [2, 7, 1])])
      let id = try await bench.oldest(.refused, .displaced).id
      try expectEqual(
        try await bench.retry([id]).requests, [RetriedRequest(id: id, outcome: .displaced)], "while it is in the way")
      try await bench.write(.update("seat", [2], ["place": 8]))
      try expectEqual(
        try await bench.retry(nil).requests, [RetriedRequest(id: id, outcome: .stands)], "when it is gone")
      try await bench.expectRows("seat", [[1, 7, 1], [2, 8, 1]])
      try expectEqual(try await bench.status().queued, 2, "the queue")
    },
    on(
      ContractSchemas.notes(), "retry names a request that has not failed, and changes nothing",
      rule: "RequestRemoval.swift, retry"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      try await bench.upload { _ in .constraint }
      try await bench.write(.insert("note", ["id": "n2", "title": "b"]))
      let refused = try await bench.oldest(.refused, .displaced).id, queued = try await bench.oldest(.queued, .sent).id
      let store = bench.store
      try await expectError(.notFound, "a queued request") { _ = try await store.retry([refused, queued]) }
      try expectEqual(try await bench.archived().map(\.id), [refused], "the archive")
      let again = try await bench.retry([refused]).requests.first?.outcome
      let error = try await expectError(.notFound, "an old ID") { _ = try await store.retry([refused]) }
      guard case .queued(let id) = again else { throw ContractFailure("it must be in the queue") }
      try expect(error.message.contains("\(id)"), "the request that it became must be named")
    },
  ]

  // MARK: What a person reads

  static let listing: [Case] = [
    on(
      ContractSchemas.tree, "each request says what it depends on, what depends on it, and what it waits for",
      rule: "semantics 8"
    ) { bench in
      try await bench.write(
        .insert("node", ["id": "p"]), .insert("node", ["id": "c", "parent": "p"]), .insert("node", ["id": "q"]))
      try await bench.upload { $0.values[0] == "q" ? nil : $0.values[0] == "p" ? .constraint : .blocked }
      try await bench.write(.insert("leaf", ["id": "l", "node": "c"]), .update("node", ["q"], ["label": "x"]))
      let ids = try await bench.archive(2) + bench.queue(2)
      let all = try await bench.archived() + bench.queued()
      try expectEqual(all.map(\.needs), [[], [ids[0]], [ids[0], ids[1]], []], "what they depend on")
      try expectEqual(all.map(\.dependents), [[ids[1], ids[2]], [ids[2]], [], []], "what depends on them")
      try expectEqual(all.map(\.blockedBy), [nil, ids[0], nil, nil], "what they are blocked by")
      try expectEqual(all.map(\.waitsFor), [.person, .request, .nextSync, .nextSync], "what they wait for")
      try expectEqual(all.map(\.attempts), [1, 0, 0, 0], "the attempts")
      try expectEqual(all.map { $0.lastAttempt != nil }, [true, false, false, false], "only what was tried has a time")
      for entry in all {
        try expectEqual(try await bench.store.request(entry.id), [entry], "the request \(entry.id) by its ID")
      }
      let unknown = RequestID(stamp: ids[0].stamp, counter: 1_000_000)
      try expectEqual(try await bench.store.request(unknown), [], "a request that is not there")
    },
    on(
      ContractSchemas.notes(), "entries of the archive say the server's row, as far as it is known", rule: "semantics 8"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(
        .update("note", ["n1"], ["title": "A"]), .delete("note", ["n2"]), .insert("note", ["id": "n3", "title": "c"]))
      try expectEqual(try await bench.queued().map(\.serverRow), [nil, nil, nil], "of what waits")
      try await bench.upload { _ in .conflict }
      try await bench.download(rows: [("note", ["n1", "server", "x"])])
      func row(_ id: Value, _ title: Value, _ body: Value) -> [NamedValue] {
        [NamedValue("id", id), NamedValue("title", title), NamedValue("body", body)]
      }
      try expectEqual(
        try await bench.archived().map(\.serverRow), [row("n1", "server", "x"), row("n2", "b", .null), []],
        "the server's rows")
    },
    on(
      ContractSchemas.notes(), "an upload that makes no progress is named, with its attempts, until it is settled",
      rule: "UploadStatus.swift"
    ) { bench in
      try await bench.store.noteUploadFailure(UploadFailure(error: "unreachable", time: 1))
      try expect(try await bench.status().upload == nil, "no upload is under way")
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      let begun = try await bench.begin()
      var upload = try expectSome(try await bench.status().upload, "the upload")
      try expectEqual(upload.sequence, begun.session.upload?.sequence, "its sequence ID")
      try expectEqual(upload.stall(now: upload.since), nil, "whether it stalls when it has begun")
      try expectEqual(
        upload.stall(now: upload.since + UploadStatus.ageMaxMilliseconds), .unknownForLong, "whether it stalls later")
      let failure = UploadFailure(error: "unreachable", time: 42, nextAttempt: 99)
      try await bench.store.noteUploadFailure(failure)
      try await bench.restart()
      var entry = try await bench.oldest(.queued, .sent)
      try expectEqual(
        [entry.attempts, entry.waitsFor == .answer ? 1 : 0], [1, 1], "attempts, and waiting for the answer")
      try expectEqual([entry.lastAttempt, entry.nextAttempt], [42, 99], "the last attempt and the next one")
      for _ in 1..<UploadStatus.failuresMax { try await bench.store.noteUploadFailure(failure) }
      upload = try expectSome(try await bench.status().upload, "the upload")
      try expectEqual(upload.lastFailure, failure, "the last failure")
      try expectEqual(upload.stall(now: upload.since), .failedAttempts, "why it stalls")
      entry = try await bench.oldest(.queued, .sent)
      try expectEqual(entry.waitsFor, .stalledUpload, "what the request waits for")
      let resend = try await bench.begin()
      try expectEqual(
        try await bench.status().upload?.failures, UploadStatus.failuresMax, "the failures while it is sent again")
      try await bench.settle(resend) { _ in .constraint }
      try expect(try await bench.status().upload == nil, "it is settled")
      try expectEqual(
        try await bench.oldest(.refused, .displaced).attempts, UploadStatus.failuresMax + 1, "the attempts of the entry"
      )
    },
  ]
}

extension ClientBench {
  func retry(_ ids: Set<RequestID>?) async throws -> RetryReport { try await store.retry(ids) }
}
