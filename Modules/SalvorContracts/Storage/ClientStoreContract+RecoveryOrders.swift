import SalvorModel
import SalvorStorage

/// Recovery that discards or rebuilds, and what keeps a recovery from doing harm (semantics 9).
extension ClientStoreContract {
  static let orders: [Case] = [
    recovering(
      ContractSchemas.notes(unique: [["title"]]),
      "recovery, discard: everything is archived with its values, and bases are the rows",
      rule: "semantics 9, discard-unsynced-changes"
    ) { bench in
      try await bench.download(
        full: ["note"],
        rows: [("note", ["n1", "a", "x"]), ("note", ["n2", "b", "y"]), ("note", ["n3", "c", .null])])
      // Refused and blocked, displaced, sent, queued.
      try await bench.write(.insert("note", ["id": "n4", "title": "bad"]), .update("note", ["n4"], ["body": "worse"]))
      try await bench.upload { $0.operation == .insert ? .constraint : .blocked }
      try await bench.write(.insert("note", ["id": "n5", "title": "taken"]))
      try await bench.download(rows: [("note", ["n6", "taken", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      _ = try await bench.begin()
      await bench.store.endSession()
      try await bench.write(
        .beginRequest(tag: "visit"), .delete("note", ["n2"]), .insert("note", ["id": "n7", "title": "g"]), .endRequest)
      let ids = Set(try await bench.queued(Set(RequestState.allCases)).map(\.id))
      let report = try await bench.recover(
        Recovered(requests: .discard, shared: 2, rows: [("note", ["n3", "restored", .null])]))
      try await bench.expectRows(
        "note",
        [["n1", "a", "x"], ["n2", "b", "y"], ["n3", "restored", .null], ["n6", "taken", .null]])
      try await bench.expectArchive([
        "kept discarded insert note [n4] [] > [id=n4, title=bad, body=null]",
        "kept discarded update note [n4] [body=null] > [body=worse]",
        "kept discarded insert note [n5] [] > [id=n5, title=taken, body=null]",
        "kept discarded update note [n1] [title=a] > [title=mine]",
        "kept discarded delete note [n2] [id=n2, title=b, body=y] > []",
        "kept discarded insert note [n7] [] > [id=n7, title=g, body=null]",
      ])
      try expectEqual(Set(try await bench.archived().map(\.id)), ids, "the IDs")
      let status = try await bench.store.status()
      try expectEqual(
        [status.queued, status.inError, status.displaced, status.kept], [0, 0, 0, 5],
        "queued, in error, displaced, kept")
      try expectEqual(report.counts.discarded, 5, "the requests discarded")
      try expectEqual(try await bench.begin().changes, [], "what is sent")
      try expect(try await bench.store.status().state.current == nil, "C must be unset")
    },
    recovering(
      ContractSchemas.notes(), "recovery, discard: what was lost is kept, whatever waited on it", rule: "semantics 9"
    ) { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.download(rows: [("note", ["n1", "a", "x"])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      let report = try await bench.recover(
        Recovered(requests: .discard, shared: 1, departed: [("note", .lost, ["n1"])]))
      try await bench.expectRows("note", [])
      try await bench.expectArchive([
        "kept discarded update note [n1] [title=a] > [title=mine]",
        "kept lost-on-server insert note [n1] [] > [id=n1, title=a, body=x]",
      ])
      try expectEqual([report.counts.discarded, report.counts.lost], [1, 1], "discarded and lost")
      try await bench.expectItems(["discarded update note [n1]", "lost insert note [n1]"])
    },
    recovering(
      ContractSchemas.groups, "recovery, rebuild of the synchronized tables: client-only rows stay",
      rule: "semantics 9, copy-and-resubscribe"
    ) { bench in
      try await bench.download(
        full: ["a", "b"], rows: [("a", ["a1", "v"]), ("a", ["a2", "v"]), ("b", ["b1", "a1", "v"])])
      try await bench.write(
        .insert("draft", ["id": "d"]), .insert("draft", ["id": "d1", "a_id": "a1"]),
        .insert("draft", ["id": "d2", "a_id": "a2"]), .update("b", ["b1"], ["v": "mine"]))
      let remote = RemoteID(from: SystemRandom())
      try await bench.recover(rebuilt(.synchronizedTables, remote))
      try await bench.expectRows("a", [["a1", "restored"]])
      try await bench.expectRows("b", [["b2", "a1", "restored"]])
      try await bench.expectRows("draft", [["d", .null], ["d1", "a1"]])
      try await expectRebuilt(&bench, remote)
    },
    recovering(
      ContractSchemas.groups, "recovery, rebuild of everything: only what the server has is there",
      rule: "semantics 9, recreate"
    ) { bench in
      try await bench.download(full: ["a", "b"], rows: [("a", ["a1", "v"]), ("b", ["b1", "a1", "v"])])
      try await bench.write(.insert("draft", ["id": "d"]), .update("b", ["b1"], ["v": "mine"]))
      let remote = RemoteID(from: SystemRandom())
      try await bench.recover(rebuilt(.everything, remote))
      try await bench.expectRows("a", [["a1", "restored"]])
      try await bench.expectRows("b", [["b2", "a1", "restored"]])
      try await bench.expectRows("draft", [])
      try await expectRebuilt(&bench, remote)
      try await bench.write(.insert("draft", ["id": "new", "a_id": "a1"]))
      try await bench.expectRows("draft", [["new", "a1"]])
    },
    recovering(
      ContractSchemas.notes(), "recovery, rebuild: the tables are made as the server's SyncConfig says",
      rule: "semantics 6, schema-incompatible"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"])])
      try await bench.write(.update("note", ["n1"], ["body": "mine"]))
      let schema = Schema(
        version: 2,
        tables: [
          Table("note", primaryKey: ["id"], columns: [Column("id", .text), Column("stars", .integer)]),
          Table("more", primaryKey: ["id"], columns: [Column("id", .text)]),
        ])
      let order = bench.order(
        Recovered(
          requests: .discard, rebuild: .everything, absence: .deleted, shared: nil,
          config: SyncConfig(schema), keepsBeforeImages: false))
      try await bench.restageAs(schema, full: ["note", "more"], rows: [("note", ["n1", 5]), ("more", ["m1"])])
      _ = try await bench.recovering.recover(order)
      try await bench.expectRows("note", [["n1", 5]])
      try await bench.expectRows("more", [["m1"]])
      let state = try await bench.store.status().state
      try expectEqual(state.configDigest, SyncConfig(schema).digest, "the digest of the tables")
      try expectEqual(state.schemaVersion, 2, "the schema's version")
      try await bench.expectArchive(["kept discarded update note [n1] [body=x] > [body=mine]"])
      try await bench.write(.update("note", ["n1"], ["stars": 6]))
      try expectChanges(try await bench.upload(), [#"update note ["stars"] [n1, 5, 6]"#])
      try await bench.restart(schema)
      try await bench.expectRows("note", [["n1", 6]])
    },
  ]

  private static func rebuilt(_ rebuild: RecoveryOrder.Rebuild, _ remote: RemoteID) -> Recovered {
    Recovered(
      requests: .discard, rebuild: rebuild, shared: 1, remoteID: remote, keepsBeforeImages: false,
      compared: ["first", "second"], full: ["a", "b"],
      rows: [("a", ["a1", "restored"]), ("b", ["b2", "a1", "restored"])])
  }

  /// New remote ID, whole groups, the change in the archive, and capture at work.
  private static func expectRebuilt(_ bench: inout ClientBench, _ remote: RemoteID) async throws {
    try await bench.expectArchive(["kept discarded update b [b1] [v=v] > [v=mine]"])
    let status = try await bench.store.status()
    try expectEqual(status.state.remoteID, remote, "the remote ID")
    try expect(status.state.previous == nil && status.state.current == nil, "a new remote has no sequence IDs")
    try expectEqual(
      status.state.groups.map(\.cursor), [bench.commits[2], bench.commits[2]], "the cursors")
    try expectEqual(try await bench.recovering.recoveries(limit: 10).map(\.id), ["recovery 1"], "the recoveries")
    try await bench.write(.update("b", ["b2"], ["v": "later"]))
    try expectChanges(try await bench.commitUpload(), [#"update b ["v"] [b2, restored, later]"#])
    try await bench.restart()
    try await bench.expectRows("b", [["b2", "a1", "later"]])
  }

  // MARK: Guards

  static let guards: [Case] = [
    recovering(
      ContractSchemas.notes(), "recovery: the same recovery twice changes nothing the second time",
      rule: "semantics 9, Journal"
    ) { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.download(rows: [("note", ["n1", "a", .null])])
      try await bench.write(.insert("note", ["id": "n2", "title": "mine"]))
      let recovered = Recovered(shared: 1, rows: [("note", ["n3", "c", .null])], departed: [("note", .lost, ["n1"])])
      let order = bench.order(recovered)
      try await bench.store.stage(
        StagedChunk(download: "r", bytes: try bench.payload(recovered, head: 2), position: "p"))
      let report = try await bench.recovering.recover(order)
      let status = try await bench.store.status()
      try await bench.restart()
      try expectEqual(try await bench.recovering.recover(order), report, "the report")
      try expectEqual(try await bench.store.status(), status, "the status")
      try await bench.expectRows("note", [["n2", "mine", .null], ["n3", "c", .null]])
      try await bench.expectArchive(["kept lost-on-server insert note [n1] [] > [id=n1, title=a, body=null]"])
      try expectEqual(try await bench.recovering.recoveries(limit: 10), [report], "the recoveries")
    },
    recovering(
      ContractSchemas.seats, "recovery: one after which too much of a table is gone is refused and changes nothing",
      rule: "semantics 9, Guards"
    ) { bench in
      let rows = (1...30).map { ("seat", [.integer($0), .integer($0), 1] as Row) }
      try await bench.download(full: ["seat"], rows: rows)
      let before = try await bench.store.rows(of: "seat")
      let status = try await bench.store.status()
      var recovered = Recovered(
        shared: 1, removedShareMax: 0.5, departed: (1...16).map { ("seat", .deleted, [.integer($0)]) })
      let current = bench, refused = recovered
      let error = try await expectError(.massDeletion, "16 of 30 rows") {
        var bench = current
        try await bench.recover(refused)
      }
      try expect(error.message.contains("seat"), "the table must be named")
      try await bench.store.discardStaged()
      try expectEqual(try await bench.store.rows(of: "seat"), before, "the rows")
      try expectEqual(try await bench.store.status(), status, "the status")
      recovered.removedShareMax = nil
      try await bench.recover(recovered)
      try expectEqual(try await bench.store.rows(of: "seat"), Array(before.dropFirst(16)), "the rows, without a guard")
    },
    recovering(
      ContractSchemas.seats, "recovery: the guard begins at exactly 20 rows", rule: "semantics 9, Guards"
    ) { bench in
      let rows = (1...20).map { ("seat", [.integer($0), .integer($0), 1] as Row) }
      try await bench.download(full: ["seat"], rows: rows)
      let current = bench
      try await expectError(.massDeletion, "11 of 20 rows") {
        var bench = current
        try await bench.recover(
          Recovered(shared: 1, removedShareMax: 0.5, departed: (1...11).map { ("seat", .deleted, [.integer($0)]) }))
      }
      try await bench.store.discardStaged()
      try await bench.recover(
        Recovered(
          shared: 1, id: "one", removedShareMax: 0.5, departed: [("seat", .deleted, [.integer(1)])]))
      try await bench.recover(
        Recovered(
          shared: 1, id: "all of 19", removedShareMax: 0.5,
          departed: (2...20).map { ("seat", .deleted, [.integer($0)]) }))
      try await bench.expectRows("seat", [])
    },
    recovering(
      ContractSchemas.seats, "recovery: half of a table may go, and all of one that has less than 20 rows",
      rule: "semantics 9, Guards"
    ) { bench in
      let rows = (1...30).map { ("seat", [.integer($0), .integer($0), 1] as Row) }
      try await bench.download(full: ["seat"], rows: rows)
      try await bench.recover(
        Recovered(shared: 1, removedShareMax: 0.5, departed: (1...15).map { ("seat", .deleted, [.integer($0)]) }))
      try expectEqual(try await bench.store.rows(of: "seat").count, 15, "the rows left")
      try await bench.recover(
        Recovered(
          shared: 1, id: "recovery 2", removedShareMax: 0.5,
          departed: (16...30).map { ("seat", .deleted, [.integer($0)]) }))
      try await bench.expectRows("seat", [])
    },
    recovering(
      ContractSchemas.notes(), "recovery: a rehearsal changes nothing and gives the report that the recovery gives",
      rule: "semantics 9, Plan"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n4", "d", .null])])
      try await bench.download(rows: [("note", ["n2", "b", .null])])
      try await bench.write(
        .insert("note", ["id": "n3", "title": "mine"]), .update("note", ["n1"], ["title": "mine"]),
        .update("note", ["n4"], ["title": "mine"]))
      let rows = try await bench.store.rows(of: "note")
      let queue = try await bench.queued()
      let recovered = Recovered(
        shared: 1, rows: [("note", ["n1", "a", "restored"])],
        departed: [("note", .lost, ["n2"]), ("note", .deleted, ["n4"])])
      let order = bench.order(recovered)
      let bytes = try bench.payload(recovered, head: 2)
      try await bench.store.stage(StagedChunk(download: "under way", bytes: bytes, position: "p"))
      let status = try await bench.store.status()
      try await bench.recovering.keepForRehearsal(bytes)
      var rehearsed = try await bench.recovering.rehearse(order)
      try expectEqual(
        try await bench.recovering.rehearse(order).counts.upserts, 0, "the rows written by a rehearsal without payload")
      try expectEqual(try await bench.store.rows(of: "note"), rows, "the rows after the rehearsal")
      try expectEqual(try await bench.queued(), queue, "the queue after the rehearsal")
      try expectEqual(try await bench.store.status(), status, "the status after the rehearsal")
      try await bench.expectArchive([])
      try expectEqual(try await bench.recovering.recoveries(limit: 10), [], "the recoveries after the rehearsal")
      try expectEqual(try await bench.recovering.backups(), [], "the backups after the rehearsal")
      let report = try await bench.recovering.recover(order)
      rehearsed.time = report.time
      rehearsed.backup = report.backup
      try expectEqual(report, rehearsed, "the report")
      let counts = report.counts
      try expectEqual(
        [counts.kept, counts.merged, counts.discarded, counts.upserts, counts.deletes, counts.lost],
        [1, 1, 1, 1, 2, 1], "kept, merged, discarded, upserts, deletes, lost")
    },
    recovering(
      ContractSchemas.notes(),
      "recovery: a rehearsal joins a refused request and its later edit, as the session before a recovery does",
      rule: "semantics 9, Plan"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "refused"]))
      try await bench.upload { _ in .constraint }
      try await bench.write(.update("note", ["n1"], ["body": "mine"]))
      let recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", .null])])
      let order = bench.order(recovered)
      let bytes = try bench.payload(recovered, head: 2)
      try await bench.recovering.keepForRehearsal(bytes)
      let rehearsed = try await bench.recovering.rehearse(order).counts
      try expectEqual(
        [rehearsed.kept + rehearsed.merged, rehearsed.discarded, rehearsed.displaced], [1, 0, 0],
        "kept, discarded, displaced")
      try expectEqual(try await bench.archived().count, 1, "the archive after the rehearsal")
      _ = try await bench.begin()
      await bench.store.endSession()
      try await bench.store.stage(StagedChunk(download: "recovery", bytes: bytes, position: "p"))
      let report = try await bench.recovering.recover(order).counts
      try expectEqual(report, rehearsed, "the counts of the recovery")
    },
    recovering(
      ContractSchemas.notes(), "recovery: subscriptions and settings go only where everything is made anew",
      rule: "semantics 9, the strategies"
    ) { bench in
      var chosen = DeviceSettings(
        settings: ["old": 1], subscriptions: [Subscription(target: "note", parameters: ["old": .value("x")])],
        subscribed: ["gone"])
      try await bench.store.setDeviceSettings(chosen)
      chosen = DeviceSettings(
        settings: ["city": "Guelph", "none": .null],
        subscriptions: [
          Subscription(target: "note", parameters: ["city": .value("Guelph"), "stars": .value(5)]),
          Subscription(target: "note", parameters: ["city": .value("Toronto"), "stars": .value(5)]),
          Subscription(target: "note", parameters: ["city": .setting("city")]), Subscription(target: "note"),
          Subscription(target: "default", parameters: ["raw": .value(.blob([0, 255]))]),
        ], subscribed: ["once"])
      try await bench.store.setDeviceSettings(chosen)
      try await bench.restart()
      try expectEqual(try await bench.store.deviceSettings(), chosen, "the settings after a restart")
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.recover(Recovered(shared: 1, id: "in place"))
      try expectEqual(try await bench.store.deviceSettings(), chosen, "the settings after a recovery in place")
      try await bench.recover(
        Recovered(requests: .discard, rebuild: .synchronizedTables, shared: 1, id: "tables", full: ["note"]))
      try expectEqual(try await bench.store.deviceSettings(), chosen, "the settings when the tables were made anew")
      try await bench.recover(
        Recovered(requests: .discard, rebuild: .everything, shared: 1, id: "everything", full: ["note"]))
      try expectEqual(
        try await bench.store.deviceSettings(), DeviceSettings(), "the settings when everything was made anew")
    },
    recovering(
      ContractSchemas.notes(), "recovery: rows are counted that only this device has", rule: "semantics 9, Plan"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try expectEqual(try await bench.recovering.rowsMadeHere(), 0, "the rows that only this device has")
      try await bench.write(
        .insert("note", ["id": "n3", "title": "c"]), .insert("note", ["id": "n4", "title": "d"]),
        .update("note", ["n1"], ["title": "mine"]), .update("note", ["n3"], ["title": "mine"]))
      try await bench.write(.delete("note", ["n2"]), .delete("note", ["n4"]))
      try await bench.write(.insert("note", ["id": "n2", "title": "again"]))
      try expectEqual(try await bench.recovering.rowsMadeHere(), 1, "the rows that only this device has")
    },
    recovering(
      ContractSchemas.notes(), "recovery: reports are remembered, newest first, and their lines come in pages",
      rule: "semantics 9, Report"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(
        .insert("note", ["id": "n2", "title": "b"]), .insert("note", ["id": "n3", "title": "c"]),
        .update("note", ["n1"], ["title": "mine"]))
      let first = try await bench.recover(Recovered(shared: 1, id: "first", departed: [("note", .deleted, ["n1"])]))
      let second = try await bench.recover(Recovered(requests: .discard, shared: 1, id: "second"))
      try await bench.restart()
      try expectEqual(try await bench.recovering.recoveries(limit: 10), [second, first], "the recoveries")
      try expectEqual(try await bench.recovering.recoveries(limit: 1), [second], "one recovery")
      let all = try await bench.recovering.recoveryItems("first", after: 0, limit: 10)
      try expectEqual(all.count, 3, "the lines")
      let pages =
        try await bench.recovering.recoveryItems("first", after: 0, limit: 2)
        + bench.recovering.recoveryItems("first", after: 2, limit: 2)
      try expectEqual(pages, all, "the lines in pages")
      try expectEqual(
        all.first { $0.fate == .discarded },
        RecoveryItem(
          fate: .discarded, request: try await bench.archived().first { $0.key == ["n1"] }?.id, table: "note",
          key: ["n1"], operation: .update, before: [NamedValue("title", "a")], after: [NamedValue("title", "mine")],
          reason: "row-deleted"), "the line of the change that went")
      try expectEqual(
        try await bench.recovering.recoveryItems("other", after: 0, limit: 9), [], "an unknown recovery's")
    },
  ]
}
