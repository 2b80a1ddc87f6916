import SalvorModel
import SalvorStorage

extension ClientStoreContract {
  static let applying: [Case] = [
    on(
      ContractSchemas.notes(), "rows, deletes and departures change the bases; nothing is captured", rule: "semantics 4"
    ) {
      bench in
      var report = try await bench.download(
        full: ["note"],
        rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", "x"]), ("note", ["n3", "c", .null])])
      try expectEqual([report.upserts, report.deletes], [3, 0], "the report of the first download")
      report = try await bench.download(
        rows: [("note", ["n1", "A", "y"]), ("note", ["n4", "d", .null])],
        departed: [("note", .deleted, ["n2"]), ("note", .left, ["n3"]), ("note", .deleted, ["n9"])])
      try await bench.expectRows("note", [["n1", "A", "y"], ["n4", "d", .null]])
      try expectEqual(report.displaced, [], "the requests displaced")
      try expectEqual(try await bench.store.status().queued, 0, "the queue")
      try expectEqual(try await bench.store.status().state.groups[0].cursor?.number, 2, "the cursor")
    },
    on(
      ContractSchemas.notes(), "a table that comes whole loses the rows that do not come, but not queued inserts",
      rule: "semantics 4"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(.insert("note", ["id": "n3", "title": "c"]), .update("note", ["n1"], ["title": "A"]))
      let report = try await bench.download(full: ["note"], rows: [("note", ["n4", "d", .null])])
      try await bench.expectRows("note", [["n3", "c", .null], ["n4", "d", .null]])
      try expectEqual(report.displaced.count, 1, "the update of the row that is gone is displaced")
      try expectChanges(try await bench.upload(), [#"insert note ["id", "title", "body"] [n3, c, null]"#])
    },
    on(
      ContractSchemas.notes(), "a later chunk of a download replaces what an earlier one said of a row",
      rule: "semantics 4"
    ) {
      bench in
      try await bench.stage(
        full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])], download: "d")
      try await bench.stage(
        rows: [("note", ["n1", "A", .null])], departed: [("note", .deleted, ["n2"])], download: "d")
      try await bench.stage(rows: [("note", ["n3", "c", .null])], download: "d")
      try await bench.expectRows("note", [])
      _ = try await bench.apply()
      try await bench.expectRows("note", [["n1", "A", .null], ["n3", "c", .null]])
    },
    on(ContractSchemas.notes(), "staging outlives a restart and knows where it goes on", rule: "semantics 4") { bench in
      try await bench.stage(full: ["note"], rows: [("note", ["n1", "a", .null])], download: "d", counted: 1)
      try await bench.restart()
      let state = try await bench.store.status().state
      try expectEqual(state.stagedDownload, "d", "the download")
      try expectEqual(state.stagedPosition, "p1", "the position")
      try expectEqual(state.stagedRows, 1, "the rows up to there")
      try await bench.stage(rows: [("note", ["n2", "b", .null])], download: "d", counted: 2)
      try expectEqual(try await bench.store.status().state.stagedPosition, "p2", "the next position")
      try expectEqual(try await bench.store.status().state.stagedRows, 2, "the rows up to the next")
      _ = try await bench.apply()
      try await bench.expectRows("note", [["n1", "a", .null], ["n2", "b", .null]])
      let after = try await bench.store.status().state
      try expect(
        after.stagedDownload == nil && after.stagedPosition == nil && after.stagedRows == nil, "staging must be empty")
    },
    on(
      ContractSchemas.notes(), "another download empties staging, and so does discarding",
      rule: "ClientStore.swift, stage"
    ) {
      bench in
      try await bench.stage(full: ["note"], rows: [("note", ["n1", "a", .null])], download: "d")
      try await bench.stage(rows: [("note", ["n2", "b", .null])], download: "e")
      _ = try await bench.apply()
      try await bench.expectRows("note", [["n2", "b", .null]])
      try await bench.stage(rows: [("note", ["n3", "c", .null])], download: "f")
      try await bench.store.discardStaged()
      try expect(try await bench.store.status().state.stagedPosition == nil, "nothing is staged")
      _ = try await bench.apply()
      try await bench.expectRows("note", [["n2", "b", .null]])
    },
    on(
      ContractSchemas.notes(), "an unsent change stays over what the server sends, column by column",
      rule: "semantics 2"
    ) {
      bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      try await bench.download(rows: [("note", ["n1", "theirs", "theirs"])])
      try await bench.expectRows("note", [["n1", "mine", "theirs"]])
      let changes = try await bench.upload()
      try expectEqual(changes.map(\.columns), [["title"]], "the columns sent")
      try expectEqual(changes.map { $0.values.last }, ["mine"], "the new value sent")
    },
    on(ContractSchemas.notes(), "a request keeps what it saw apart from the base", rule: "semantics 2") { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      try await bench.download(rows: [("note", ["n1", "theirs", "theirs"])])
      let changes = try await bench.upload()
      try expectChanges(changes, [#"update note ["title"] [n1, a, mine]"#])
      try expectEqual(changes[0].made, 1, "made")
    },
    on(ContractSchemas.notes(), "an unsent delete stays over what the server sends", rule: "semantics 2") { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"])])
      try await bench.write(.delete("note", ["n1"]))
      try await bench.download(rows: [("note", ["n1", "theirs", "x"])])
      try await bench.expectRows("note", [])
      try expectChanges(try await bench.upload(), ["delete note [n1]"])
    },
    on(
      ContractSchemas.notes(), "an unsent insert stays over a row that the server made under the same key",
      rule: "semantics 2"
    ) {
      bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "mine"]))
      try await bench.download(full: ["note"], rows: [("note", ["n1", "theirs", "theirs"])])
      try await bench.expectRows("note", [["n1", "mine", .null]])
      try expectChanges(try await bench.upload(), [#"insert note ["id", "title", "body"] [n1, mine, null]"#])
      try await bench.expectRows("note", [["n1", "mine", .null]])
    },
    on(ContractSchemas.seats, "unique values swapped on the server arrive", rule: "semantics 2") { bench in
      try await bench.download(
        full: ["seat"], rows: [("seat", [1, 7, 1]), ("seat", [2, 8, 1]), ("seat", [3, 9, 1])])
      try await bench.download(rows: [("seat", [1, 8, 1]), ("seat", [2, 9, 1]), ("seat", [3, 7, 1])])
      try await bench.expectRows("seat", [[1, 8, 1], [2, 9, 1], [3, 7, 1]])
    },
    on(ContractSchemas.inspections, "a parent that is sent again keeps its children", rule: "semantics 2") { bench in
      try await inspection(&bench)
      try await bench.write(.insert("infraction", ["inspection_id": "i1", "line": 2]))
      try await bench.download(rows: [
        ("establishment", ["e1", "renamed", .null]), ("inspection", ["i1", "e1", "later", .null]),
      ])
      try await bench.expectRows("infraction", [["i1", 1, 1, .null], ["i1", 2, .null, .null]])
      try expectEqual(try await bench.store.status().queued, 1, "the queue")
    },
    on(ContractSchemas.tree, "rows arrive in any order of their references", rule: "semantics 2") { bench in
      try await bench.download(
        full: ["node", "leaf"],
        rows: [("leaf", ["l", "a", "b"]), ("node", ["a", "b", .null]), ("node", ["b", .null, .null])])
      try await bench.expectRows("node", [["a", "b", .null], ["b", .null, .null]])
      try await bench.download(departed: [
        ("node", .deleted, ["b"]), ("node", .deleted, ["a"]), ("leaf", .deleted, ["l"]),
      ])
      try await bench.expectRows("node", [])
    },
    on(
      ContractSchemas.inspections,
      "a row whose parent does not come is left out and said, with those below; the rest is applied",
      rule: "semantics 11.5"
    ) {
      bench in
      try await inspection(&bench)
      try await bench.stage(
        rows: [
          ("inspection", ["i2", "nowhere", "d", .null]), ("infraction", ["i2", 1, .null, .null]),
          ("establishment", ["e1", "renamed", .null]),
        ])
      let report = try await bench.apply()
      try expect(report.notices.contains { $0.contains("[i2] of inspection") }, "a notice must name the row")
      try expect(report.notices.contains { $0.contains("[i2, 1] of infraction") }, "and the one below it")
      try await bench.expectRows("establishment", [["e1", "renamed", .null]])
      try await bench.expectRows("inspection", [["i1", "e1", "d", .null]])
      try await bench.expectRows("infraction", [["i1", 1, 1, .null]])
      try expectEqual(try await bench.store.status().state.groups[0].cursor?.number, 2, "the cursor")
    },
    on(
      ContractSchemas.inspections,
      "rows below one that leaves go with it; a change of one waits in the archive, and returns",
      rule: "semantics 2, 11.5"
    ) {
      bench in
      try await inspection(&bench)
      try await bench.write(.update("inspection", ["i1"], ["date": "mine"]))
      let report = try await bench.download(departed: [("establishment", .left, ["e1"])])
      try expectEqual(report.displaced.count, 1, "displaced requests")
      try await bench.expectRows("establishment", [])
      try await bench.expectRows("inspection", [])
      try await bench.download(
        rows: [("establishment", ["e1", "e", .null]), ("inspection", ["i1", "e1", "d", .null])])
      try await bench.expectRows("inspection", [["i1", "e1", "mine", .null]])
    },
    on(ContractSchemas.groups, "client-only rows follow the rows they reference", rule: "semantics 9") { bench in
      try await bench.download(full: ["a"], rows: [("a", ["a1", .null]), ("a", ["a2", .null])])
      try await bench.write(.insert("draft", ["id": "d", "a_id": "a1"]), .insert("stub", ["id": "s", "a_id": "a1"]))
      try await bench.download(departed: [("a", .left, ["a1"])])
      try await bench.expectRows("draft", [])
      try await bench.expectRows("stub", [])
      try await bench.download(rows: [("a", ["a1", "back"])])
      try await bench.expectRows("draft", [])
      try await bench.expectRows("stub", [["s", "a1"]])
    },
    on(
      ContractSchemas.groups,
      "a client-only row kept aside never takes the place of one that the application made since",
      rule: "semantics 9"
    ) { bench in
      try await bench.download(full: ["a"], rows: [("a", ["a1", .null]), ("a", ["a2", .null])])
      try await bench.write(.insert("stub", ["id": "s", "a_id": "a1"]))
      try await bench.download(departed: [("a", .left, ["a1"])])
      try await bench.expectRows("stub", [])
      try await bench.write(.insert("stub", ["id": "s", "a_id": "a2"]))
      try await bench.download(rows: [("a", ["a3", .null])])
      try await bench.expectRows("stub", [["s", "a2"]])
      try await bench.download(rows: [("a", ["a1", "back"])])
      try await bench.expectRows("stub", [["s", "a2"]])
    },
    on(ContractSchemas.notes(), "an empty download moves the cursor", rule: "ClientStore.swift, apply") { bench in
      _ = try await bench.apply()
      _ = try await bench.apply()
      let state = try await bench.store.status().state
      try expectEqual(state.groups[0].cursor?.number, 2, "the cursor")
      try expectEqual(state.groups[0].scopeDigest, "all", "the scope")
      let commits = try await bench.store.history().commits
      try expect(commits.map(\.number).starts(with: [2]), "the commits, newest first")
    },
  ]

  /// Row 1 has place 7, and its update, which takes place 9, is displaced by row 2 of the server's.
  private static func displacedByAPlace(
    _ bench: inout ClientBench, _ news: KeyValuePairs<String, Value>, refuse: ((ReadChange) -> RefusalReason?)? = nil
  ) async throws {
    try await bench.download(full: ["seat"], rows: [("seat", [1, 7, 1])])
    try await bench.write(.update("seat", [1], news))
    if let refuse { try await bench.upload(refuse: refuse) }
    try await bench.download(rows: [("seat", [2, 9, 1])])
    try await bench.expectRows("seat", [[1, 7, 1], [2, 9, 1]])
  }

  static let displacing: [Case] = [
    on(
      ContractSchemas.notes(), "an update of a row that the server deleted is displaced with its values",
      rule: "semantics 2"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]), .insert("note", ["id": "n2", "title": "b"]))
      let report = try await bench.download(departed: [("note", .deleted, ["n1"])])
      try expectEqual(report.displaced.count, 1, "the requests displaced")
      try await bench.expectRows("note", [["n2", "b", .null]])
      let archive = try await bench.archived()
      try expectEqual(archive.map(\.state), [.displaced], "the states")
      try expectEqual(archive.map(\.id), report.displaced, "the request")
      try expectEqual(archive[0].after, [NamedValue("title", "mine")], "the values")
      let status = try await bench.store.status()
      try expectEqual([status.queued, status.inError, status.displaced], [1, 0, 1], "queued, in error and displaced")
    },
    on(ContractSchemas.seats, "where two rows want one unique value, the base stands", rule: "semantics 2") { bench in
      try await bench.write(
        .insert("seat", ["id": 1, "place": 7]), .update("seat", [1], ["seats": 5]),
        .insert("seat", ["id": 3, "place": 9]))
      let report = try await bench.download(full: ["seat"], rows: [("seat", [2, 7, 1])])
      try await bench.expectRows("seat", [[2, 7, 1], [3, 9, 1]])
      try expectEqual(report.displaced.count, 2, "the insert and the update that depends on it")
      try expectEqual(try await bench.archived().map(\.state), [.displaced, .displaced], "the archive")
      try expectEqual(try await bench.queued().map(\.key), [[3]], "the queue")
    },
    on(ContractSchemas.inspections, "a child of a row that the server deleted is displaced", rule: "semantics 2") {
      bench in
      try await inspection(&bench)
      try await bench.write(
        .insert("inspection", ["id": "i2", "establishment_id": "e1", "date": "d"]),
        .insert("infraction", ["inspection_id": "i2", "line": 1]), .insert("establishment", ["id": "e2", "name": "x"]))
      let report = try await bench.download(
        departed: [
          ("infraction", .deleted, ["i1", 1]), ("inspection", .deleted, ["i1"]), ("establishment", .deleted, ["e1"]),
        ])
      try expectEqual(report.displaced.count, 2, "the child and its own child")
      try await bench.expectRows("establishment", [["e2", "x", .null]])
      try await bench.expectRows("inspection", [])
      try await bench.expectRows("infraction", [])
    },
    on(
      ContractSchemas.inspections, "a delete of a parent is displaced by a child that the server made",
      rule: "semantics 2"
    ) {
      bench in
      try await inspection(&bench)
      try await bench.write(.delete("establishment", ["e1"]))
      let report = try await bench.download(rows: [("inspection", ["i2", "e1", "d", .null])])
      try expectEqual(report.displaced.count, 1, "the cascade is one request")
      try await bench.expectRows("establishment", [["e1", "e", .null]])
      try await bench.expectRows("inspection", [["i1", "e1", "d", .null], ["i2", "e1", "d", .null]])
      try await bench.expectRows("infraction", [["i1", 1, 1, .null]])
    },
    on(ContractSchemas.seats, "a displaced request returns when what was in its way is gone", rule: "semantics 2") {
      bench in
      try await bench.write(.insert("seat", ["id": 1, "place": 7]))
      try await bench.download(full: ["seat"], rows: [("seat", [2, 7, 1])])
      try await bench.expectRows("seat", [[2, 7, 1]])
      try expectEqual(try await bench.begin().changes, [], "what is sent meanwhile")
      try await bench.download(rows: [("seat", [2, 8, 1])])
      try await bench.expectRows("seat", [[1, 7, 1], [2, 8, 1]])
      try expectChanges(try await bench.upload(), [#"insert seat ["id", "place", "seats"] [1, 7, 1]"#])
    },
    on(ContractSchemas.notes(), "what depends on a displaced request returns only with it", rule: "semantics 2") {
      bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(
        .beginRequest(tag: nil), .update("note", ["n1"], ["title": "x"]), .update("note", ["n2"], ["title": "y"]),
        .endRequest, .update("note", ["n2"], ["body": "z"]))
      try await bench.download(departed: [("note", .deleted, ["n1"])])
      try await bench.expectRows("note", [["n2", "b", .null]])
      try await bench.download(rows: [("note", ["n3", "c", .null])])
      try await bench.expectRows("note", [["n2", "b", .null], ["n3", "c", .null]])
      try expectEqual(try await bench.store.status().displaced, 2, "the requests displaced")
      try await bench.download(rows: [("note", ["n1", "back", .null])])
      try await bench.expectRows("note", [["n1", "x", .null], ["n2", "y", "z"], ["n3", "c", .null]])
      try expectEqual(try await bench.store.status().queued, 2, "the queue")
    },
    on(
      ContractSchemas.seats, "a displaced request does not come back over a younger accepted change of its row",
      rule: "semantics 2"
    ) { bench in
      try await displacedByAPlace(&bench, ["place": 9, "seats": 3])
      try await bench.write(.update("seat", [1], ["seats": 5]))
      try expectChanges(try await bench.commitUpload(), [#"update seat ["seats"] [1, 1, 5]"#])
      try await bench.download(rows: [("seat", [2, 8, 1])])
      try await bench.expectRows("seat", [[1, 7, 5], [2, 8, 1]])
      let id = try await bench.oldest(.displaced).id
      try expectEqual(try await bench.begin().changes, [], "what is sent meanwhile")
      // A person asks for it.
      let outcomes = try await bench.retry([id]).requests
      try expectEqual(outcomes, [RetriedRequest(id: id, outcome: .stands)], "the report")
      try await bench.expectRows("seat", [[1, 9, 3], [2, 8, 1]])
      try expectChanges(try await bench.upload(), [#"update seat ["place", "seats"] [1, 7, 9, 1, 3]"#])
    },
    on(
      ContractSchemas.seats, "a displaced delete does not come back over a younger accepted change of its row",
      rule: "semantics 2"
    ) { bench in
      try await bench.download(full: ["seat"], rows: [("seat", [1, 7, 1])])
      try await bench.write(
        .beginRequest(tag: nil), .delete("seat", [1]), .insert("seat", ["id": 3, "place": 9]), .endRequest)
      try await bench.download(rows: [("seat", [2, 9, 1])])
      try await bench.write(.update("seat", [1], ["seats": 5]))
      try await bench.commitUpload()
      try await bench.download(rows: [("seat", [2, 8, 1])])
      try await bench.expectRows("seat", [[1, 7, 5], [2, 8, 1]])
      try expectEqual(try await bench.store.status().displaced, 1, "displaced")
    },
    on(
      ContractSchemas.seats, "a displaced request comes back beside an accepted change of other columns",
      rule: "semantics 2"
    ) { bench in
      try await displacedByAPlace(&bench, ["place": 9])
      try await bench.write(.update("seat", [1], ["seats": 5]))
      try await bench.commitUpload()
      try await bench.download(rows: [("seat", [2, 8, 1])])
      try await bench.expectRows("seat", [[1, 9, 5], [2, 8, 1]])
    },
    on(
      ContractSchemas.seats, "what an edit of its row brings back goes with that edit", rule: "semantics 2, 8"
    ) { bench in
      try await displacedByAPlace(&bench, ["place": 9, "seats": 3])
      try await bench.write(.update("seat", [1], ["place": 10]))
      try expectChanges(try await bench.commitUpload(), [#"update seat ["place", "seats"] [1, 7, 10, 1, 3]"#])
      try await bench.expectRows("seat", [[1, 10, 3], [2, 9, 1]])
      try expectEqual(try await bench.archived(), [], "the archive")
    },
    on(
      ContractSchemas.seats, "a refused request that was displaced is sent again by one retry", rule: "semantics 8"
    ) { bench in
      try await displacedByAPlace(&bench, ["place": 9]) { _ in .conflict }
      try await bench.write(.update("seat", [2], ["place": 8]))
      let id = try await bench.oldest(.displaced).id
      let outcomes = try await bench.retry([id]).requests
      let made = try expectSome(try await bench.queued().last?.id, "the new request")
      try expectEqual(outcomes, [RetriedRequest(id: id, outcome: .queued(made))], "the report")
      try expectChanges(
        try await bench.upload(), [#"update seat ["place"] [2, 9, 8]"#, #"update seat ["place"] [1, 7, 9]"#])
      try expectEqual(try await bench.archived(), [], "the archive")
    },
    on(
      ContractSchemas.seats, "a displaced request waits for a younger change of its row that is under way",
      rule: "semantics 2"
    ) { bench in
      try await displacedByAPlace(&bench, ["place": 9, "seats": 3])
      try await bench.write(.update("seat", [1], ["seats": 5]))
      let begun = try await bench.begin()
      try await bench.write(.update("seat", [2], ["place": 8]))
      let id = try await bench.oldest(.displaced).id
      try expectEqual(
        try await bench.retry([id]).requests, [RetriedRequest(id: id, outcome: .displaced)], "the report")
      try await bench.settle(begun, commit: bench.nextCommit())
      try await bench.expectRows("seat", [[1, 7, 5], [2, 8, 1]])
    },
    on(
      ContractSchemas.seats, "a displaced insert whose key is inserted again keeps its values in the archive",
      rule: "semantics 2, 8"
    ) { bench in
      try await bench.write(
        .insert("seat", ["id": 3, "place": 9, "seats": 4]), .update("seat", [3], ["seats": 5]))
      try await bench.download(full: ["seat"], rows: [("seat", [2, 9, 1])])
      try await bench.write(.insert("seat", ["id": 3, "place": 10]))
      try expectChanges(try await bench.commitUpload(), [#"insert seat ["id", "place", "seats"] [3, 10, 1]"#])
      try await bench.download(rows: [("seat", [2, 8, 1])])
      try await bench.expectRows("seat", [[2, 8, 1], [3, 10, 1]])
      let entries = try await bench.archived()
      try expectEqual(
        entries.map(\.after),
        [
          [NamedValue("id", 3), NamedValue("place", 9), NamedValue("seats", 4)], [NamedValue("seats", 5)],
        ], "the archive")
      // A person asks for both.
      let outcomes = try await bench.retry(Set(entries.map(\.id))).requests.map(\.outcome)
      try expectEqual(outcomes, [.stands, .stands], "the report")
      try await bench.expectRows("seat", [[2, 8, 1], [3, 9, 5]])
    },
    on(
      ContractSchemas.circles, "what references a displaced row comes back when the row is inserted again",
      rule: "semantics 2"
    ) { bench in
      try await bench.write(
        .insert("node", ["id": "a", "label": "x"]), .insert("node", ["id": "b", "above": "a"]))
      try await bench.download(full: ["node"], rows: [("node", ["c", .null, "x"])])
      try await bench.write(.insert("node", ["id": "a"]))
      try await bench.commitUpload()
      try await bench.expectRows("node", [["a", .null, .null], ["b", "a", .null], ["c", .null, "x"]])
      try expectEqual(try await bench.archived().map(\.key), [["a"]], "the archive")
    },
    on(ContractSchemas.seats, "a group is displaced as a whole", rule: "semantics 1, 2") { bench in
      try await bench.write(
        .beginRequest(tag: "both"), .insert("seat", ["id": 1, "place": 7]), .insert("seat", ["id": 3, "place": 9]),
        .endRequest)
      try await bench.download(full: ["seat"], rows: [("seat", [2, 7, 1])])
      try await bench.expectRows("seat", [[2, 7, 1]])
      try expectEqual(try await bench.archived().map(\.tag), ["both", "both"], "the archive")
    },
  ]
}
