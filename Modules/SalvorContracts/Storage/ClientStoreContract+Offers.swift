import SalvorModel
import SalvorStorage

/// What a recovery offers to a server that has lost it (semantics 10).
extension ClientStoreContract {
  static let incarnation = IncarnationID(unchecked: String(repeating: "7", count: 32))

  /// The device knows the server's incarnation from its first commit on.
  static func offering(
    _ name: String, _ schema: Schema = ContractSchemas.notes(),
    _ body: @escaping @Sendable (inout ClientBench) async throws -> Void
  ) -> Case {
    recovering(schema, "offers: \(name)", rule: "semantics 10, An offer is a request") { bench in
      try await bench.store.remember(
        server: ClientBench.server, incarnations: [Incarnation(id: incarnation, firstCommit: 1)], principal: "anna")
      try await body(&bench)
    }
  }

  /// The lost parents of a row that is offered go along, up to the root, whoever wrote them: it waits for nobody.
  static let offeredParents: [Case] = [RecoveryOrder.Rebuild.nothing, .synchronizedTables, .everything].map { rebuild in
    offering(
      "a lost row goes with the lost rows of others that it references (rebuild: \(rebuild.rawValue))",
      ContractSchemas.inspections
    ) { bench in
      let tables = ["severity", "establishment", "inspection", "infraction"]
      let kept: [(String, Row)] = [("establishment", ["e1", "e", .null])]
      try await bench.download(full: tables, rows: kept)
      try await bench.download(rows: [
        ("establishment", ["e2", "theirs", "EU"]), ("establishment", ["e3", "theirs", "EU"]),
        ("inspection", ["i2", "e2", "d", .null]),
      ])
      try await bench.write(.insert("infraction", ["inspection_id": "i2", "line": 1, "note": "mine"]))
      try await bench.commitUpload()
      var recovered =
        rebuild == .nothing
        ? Recovered(
          shared: 1,
          departed: [
            ("infraction", .lost, ["i2", 1]), ("inspection", .lost, ["i2"]), ("establishment", .lost, ["e2"]),
            ("establishment", .lost, ["e3"]),
          ])
        : Recovered(shared: 1, full: tables, rows: kept)
      (recovered.heal, recovered.requests, recovered.rebuild) = (.own, .discard, rebuild)
      let report = try await bench.recover(recovered)
      try await bench.expectRows("establishment", [["e1", "e", .null], ["e2", "theirs", "EU"]])
      try await bench.expectRows("inspection", [["i2", "e2", "d", .null]])
      try await bench.expectRows("infraction", [["i2", 1, .null, "mine"]])
      try await bench.expectArchive([
        "kept lost-on-server insert establishment [e3] [] > [id=e3, name=theirs, region=EU]"
      ])
      let counts = report.counts
      try expectEqual([counts.lost, counts.offered, counts.deletes], [4, 3, 1], "lost, offered, removed")
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.map { "\($0.table) \($0.offer?.version.number ?? 0)" }.sorted(),
        ["establishment 2", "infraction 3", "inspection 2"], "the offers, and their versions")
      try await bench.settle(sent)
      try await bench.expectRows("infraction", [["i2", 1, .null, "mine"]])
      try expectEqual(try await bench.begin().changes, [], "what is sent when the offers are settled")
    }
  }

  static let offers: [Case] = [
    offering("what this device wrote at a lost commit stays, and is sent again with its version") { bench in
      try await bench.download(
        full: ["note"],
        rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null]), ("note", ["n4", "d", .null])])
      try await bench.write(
        .insert("note", ["id": "n3", "title": "mine"]), .update("note", ["n1"], ["title": "mine"]),
        .delete("note", ["n2"]))
      try await bench.commitUpload()
      // Another's change is lost, too, and is not this device's to offer.
      try await bench.download(rows: [("note", ["n4", "theirs", .null])])
      var recovered = Recovered(
        shared: 1, rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null]), ("note", ["n4", "d", .null])],
        departed: [("note", .lost, ["n3"])])
      recovered.heal = .own
      // No guard counts what stays.
      recovered.removedShareMax = 0
      let report = try await bench.recover(recovered)
      try await bench.expectRows("note", [["n1", "mine", .null], ["n3", "mine", .null], ["n4", "d", .null]])
      try await bench.expectArchive(["kept lost-on-server update note [n4] [title=d] > [title=theirs]"])
      try expectEqual([report.counts.lost, report.counts.offered], [4, 3], "lost and offered")
      try await bench.expectItems([
        "offered update note [n1]", "offered delete note [n2]", "offered insert note [n3]", "lost update note [n4]",
      ])
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.map(\.summary).sorted(),
        [
          "delete note [n2] of 2 []", "insert note [\"id\", \"title\", \"body\"] [n3, mine, null] of 2 []",
          "update note [\"title\", \"body\"] [n1, a, mine, null, null] of 2 []",
        ], "what is sent")
      try expectEqual(
        Set(sent.changes.compactMap(\.offer?.version)),
        [LostVersion(incarnation: incarnation, number: 2, parting: 1)], "the lost version")
      try await bench.settle(sent)
      try await bench.expectRows("note", [["n1", "mine", .null], ["n3", "mine", .null], ["n4", "d", .null]])
      try expectEqual(try await bench.begin().changes, [], "what is sent when the offers are settled")
    },
    offering("a change that waits needs the lost row: the row is offered with it, whoever wrote it") { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.download(rows: [("note", ["n1", "theirs", "x"])])
      try await bench.write(.update("note", ["n1"], ["body": "mine"]))
      let before = try await bench.queued()
      var recovered = Recovered(shared: 1, departed: [("note", .lost, ["n1"])])
      recovered.heal = .own
      try await bench.recover(recovered)
      try await bench.expectRows("note", [["n1", "theirs", "mine"]])
      try expectEqual(try await bench.queued().map(\.id), before.map(\.id), "the requests that wait")
      try expectEqual(
        try await bench.begin().changes.map(\.summary),
        ["insert note [\"id\", \"title\", \"body\"] [n1, theirs, mine] of 2 [\"body\"]"], "what is sent")
    },
    offering("a refused change of a row that a lost commit deleted stays in the archive while the delete is offered") {
      bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      try await bench.commitUpload { _ in .rowDeleted }
      try await bench.download(departed: [("note", .deleted, ["n1"])])
      try await bench.expectRows("note", [])
      let archive = ["displaced row-deleted update note [n1] [title=a] > [title=mine]"]
      try await bench.expectArchive(archive)
      var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", .null])])
      recovered.heal = .all
      try await bench.recover(recovered)
      try await bench.expectRows("note", [])
      try await bench.expectArchive(archive)
      let sent = try await bench.begin()
      try expectEqual(sent.changes.map(\.summary), ["delete note [n1] of 3 []"], "what is sent")
      try await bench.settle(sent)
      try await bench.expectArchive(archive)
      try expectEqual(try await bench.begin().changes, [], "what is sent when the offer is settled")
    },
    offering("an offer of what the server has after all leaves without an error, and what depends on it goes on") {
      bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "lost"]))
      try await bench.commitUpload()
      var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", .null])])
      recovered.heal = .own
      try await bench.recover(recovered)
      try await bench.write(.update("note", ["n1"], ["body": "mine"]))
      let report = try await bench.settle(try await bench.begin()) { $0.offer == nil ? .blocked : .notLost }
      try expectEqual([report.accepted, report.refused], [0, 1], "accepted and refused")
      try await bench.expectRows("note", [["n1", "a", "mine"]])
      try expectEqual(
        try await bench.begin().changes.map(\.summary), ["update note [\"body\"] [n1, null, mine]"], "what is sent then"
      )
      try await bench.expectArchive([])
    },
    offering("what a newer copy of the server has after all is this device's to offer where it is lost once more") {
      bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(
        .update("note", ["n1"], ["title": "lost"]), .delete("note", ["n2"]),
        .insert("note", ["id": "n3", "title": "lost"]))
      try await bench.commitUpload()
      var older = Recovered(
        shared: 1, rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])],
        departed: [("note", .lost, ["n3"])])
      older.heal = .own
      try await bench.recover(older)
      let offers = ["update", "delete", "insert"]
      try expectEqual(
        try await bench.begin().changes.map(\.operation.rawValue).sorted(), offers.sorted(), "the offers")
      await bench.store.endSession()
      // The newer copy comes before anything is sent.
      var newer = Recovered(
        shared: 1, rows: [("note", ["n1", "lost", .null]), ("note", ["n3", "lost", .null])],
        departed: [("note", .deleted, ["n2"])])
      (newer.heal, newer.id) = (.own, "recovery 2")
      try await bench.recover(newer)
      let report = try await bench.settle(try await bench.begin()) { _ in .notLost }
      try expectEqual([report.accepted, report.refused], [0, 0], "accepted and refused")
      try await bench.expectRows("note", [["n1", "lost", .null], ["n3", "lost", .null]])
      older.id = "recovery 3"
      try await bench.recover(older)
      try await bench.expectRows("note", [["n1", "lost", .null], ["n3", "lost", .null]])
      try await bench.expectArchive([])
      try expectEqual(
        try await bench.begin().changes.map(\.operation.rawValue).sorted(), offers.sorted(), "the offers once more")
    },
    offering("a delete whose row a still older copy of the server lacks stays an offer") { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.write(.insert("note", ["id": "n1", "title": "lost"]))
      try await bench.commitUpload()
      try await bench.write(.delete("note", ["n1"]))
      try await bench.commitUpload()
      var recovered = Recovered(shared: 2, rows: [("note", ["n1", "lost", .null])])
      recovered.heal = .own
      try await bench.recover(recovered)
      try expectEqual(try await bench.begin().changes.map(\.summary), ["delete note [n1] of 3 []"], "the offer")
      await bench.store.endSession()
      var older = Recovered(shared: 1, departed: [("note", .lost, ["n1"])])
      (older.heal, older.id) = (.own, "recovery 2")
      try await bench.recover(older)
      try await bench.expectRows("note", [])
      try await bench.expectArchive([])
      try expectEqual(
        try await bench.begin().changes.compactMap(\.offer?.version),
        [LostVersion(incarnation: incarnation, number: 3, parting: 1)], "the version that is offered still")
      await bench.store.endSession()
      // A newer copy has the row again.
      var newer = Recovered(shared: 1, rows: [("note", ["n1", "lost", .null])])
      (newer.heal, newer.id) = (.own, "recovery 3")
      try await bench.recover(newer)
      try await bench.expectRows("note", [])
      let sent = try await bench.begin()
      try expectEqual(sent.changes.map(\.summary), ["delete note [n1] of 3 []"], "what is sent then")
      try await bench.settle(sent, commit: bench.nextCommit())
      try await bench.expectRows("note", [])
      try await bench.expectArchive([])
      try expectEqual(try await bench.begin().changes, [], "what is sent when the offer is settled")
    },
    offering("what a waiting change writes is not offered; the rest of the row is") { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"])])
      try await bench.write(.update("note", ["n1"], ["title": "lost", "body": "lost"]))
      try await bench.commitUpload()
      try await bench.write(.update("note", ["n1"], ["body": "waits"]))
      var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", "x"])])
      recovered.heal = .own
      try await bench.recover(recovered)
      try await bench.expectRows("note", [["n1", "lost", "waits"]])
      try expectEqual(
        try await bench.begin().changes.map(\.summary).sorted(),
        ["update note [\"body\"] [n1, lost, waits] of 2 [\"body\"]", "update note [\"title\"] [n1, a, lost] of 2 []"],
        "what is sent")
    },
    offering("what the server has erased for good leaves the device, without a trace in the archive") { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(
        .update("note", ["n1"], ["title": "lost"]), .insert("note", ["id": "n2", "title": "a person"]))
      try await bench.commitUpload()
      var recovered = Recovered(
        shared: 1, rows: [("note", ["n1", "a", .null])], departed: [("note", .lost, ["n2"])])
      recovered.heal = .own
      try await bench.recover(recovered)
      try await bench.expectRows("note", [["n1", "lost", .null], ["n2", "a person", .null]])
      let report = try await bench.settle(try await bench.begin(), commit: bench.nextCommit()) { change in
        change.operation == .insert ? .purged : nil
      }
      try expectEqual([report.accepted, report.refused], [1, 0], "accepted and refused")
      try await bench.expectRows("note", [["n1", "lost", .null]])
      try await bench.expectArchive([])
      try expectEqual(try await bench.begin().changes, [], "what is sent then")
    },
    offering("a change of a row that the server has erased leaves the device, with all that it kept of the row") {
      bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.download(rows: [("note", ["n1", "theirs", .null]), ("note", ["n2", "theirs", .null])])
      var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      recovered.heal = .own
      try await bench.recover(recovered)
      try await bench.expectArchive([
        "kept lost-on-server update note [n1] [title=a] > [title=theirs]",
        "kept lost-on-server update note [n2] [title=b] > [title=theirs]",
      ])
      try await bench.write(.update("note", ["n1"], ["title": "a person"]), .update("note", ["n2"], ["title": "mine"]))
      let report = try await bench.settle(try await bench.begin(), commit: bench.nextCommit()) { change in
        change.values.first == "n1" ? .purged : nil
      }
      try expectEqual([report.accepted, report.refused], [1, 0], "accepted and refused")
      try await bench.expectRows("note", [["n1", "a", .null], ["n2", "mine", .null]])
      try await bench.expectArchive(["kept lost-on-server update note [n2] [title=b] > [title=theirs]"])
      let items = try await bench.recovering.recoveryItems("recovery 1", after: 0, limit: 10)
      try expectEqual(
        items.filter { !($0.before.isEmpty && $0.after.isEmpty) }.map(\.key), [["n2"]],
        "the rows with values in the report")
      try expectEqual(try await bench.begin().changes, [], "what is sent then")
    },
    offering("a new row under a key that the server has erased is an error that somebody sees") { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.write(.insert("note", ["id": "n1", "title": "new"]))
      let report = try await bench.settle(try await bench.begin(), commit: bench.nextCommit()) { _ in .purged }
      try expectEqual([report.accepted, report.refused], [0, 1], "accepted and refused")
      try await bench.expectRows("note", [["n1", "new", .null]])
    },
    offering(
      "unique values that lost changes had swapped come back, each to its row",
      ContractSchemas.notes(unique: [["title"]])
    ) { bench in
      try await bench.download(
        full: ["note"],
        rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null]), ("note", ["n3", "c", "x"])])
      try await bench.write(
        .update("note", ["n1"], ["title": "aside"]), .update("note", ["n2"], ["title": "a"]),
        .update("note", ["n1"], ["title": "b"]), .update("note", ["n3"], ["body": "mine"]))
      try await bench.commitUpload()
      var recovered = Recovered(
        shared: 1, rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null]), ("note", ["n3", "c", "x"])])
      recovered.heal = .own
      try await bench.recover(recovered)
      try await bench.expectRows("note", [["n1", "b", .null], ["n2", "a", .null], ["n3", "c", "mine"]])
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.map(\.summary),
        [
          "update note [\"title\", \"body\"] [n1, a, b, null, null] of 2 []",
          "update note [\"title\", \"body\"] [n2, b, a, null, null] of 2 []",
          "update note [\"title\", \"body\"] [n3, c, c, x, mine] of 2 []",
        ], "what is sent, in the order of the keys")
      try await bench.settle(sent)
      try await bench.expectRows("note", [["n1", "b", .null], ["n2", "a", .null], ["n3", "c", "mine"]])
    },
    offering("all that the device holds of lost commits, where it is told so") { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.download(rows: [("note", ["n1", "theirs", .null]), ("note", ["n2", "new", .null])])
      var recovered = Recovered(
        shared: 1, rows: [("note", ["n1", "a", .null])], departed: [("note", .lost, ["n2"])])
      recovered.heal = .all
      try await bench.recover(recovered)
      try await bench.expectRows("note", [["n1", "theirs", .null], ["n2", "new", .null]])
      try await bench.expectArchive([])
      try expectEqual(try await bench.begin().changes.count, 2, "the offers")
    },
    offering("a strategy that discards gives up what was not synchronized, not what was acknowledged") { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "lost"]))
      try await bench.commitUpload()
      try await bench.write(.insert("note", ["id": "n2", "title": "waits"]))
      var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", .null])])
      (recovered.heal, recovered.requests) = (.own, .discard)
      try await bench.recover(recovered)
      try await bench.expectRows("note", [["n1", "lost", .null]])
      try await bench.expectArchive(["kept discarded insert note [n2] [] > [id=n2, title=waits, body=null]"])
    },
    offering("tables that are made anew have what was acknowledged and lost, too") { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(
        .update("note", ["n1"], ["title": "lost"]), .insert("note", ["id": "n3", "title": "lost"]),
        .delete("note", ["n2"]))
      try await bench.commitUpload()
      var recovered = Recovered(
        shared: 1, full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      (recovered.heal, recovered.requests, recovered.rebuild) = (.own, .discard, .synchronizedTables)
      let report = try await bench.recover(recovered)
      try await bench.expectRows("note", [["n1", "lost", .null], ["n3", "lost", .null]])
      try await bench.expectArchive([])
      try expectEqual([report.counts.lost, report.counts.offered], [3, 3], "lost and offered")
      try expectEqual(try await bench.begin().changes.count, 3, "the offers")
    },
    offering("a column with a value that its type does not store is not named: the others of the row go on") { bench in
      let strange = Value.blob([1])
      try await bench.download(
        full: ["note"], rows: [("note", ["n1", "a", strange]), ("note", ["n2", "b", strange])])
      try await bench.write(
        .update("note", ["n1"], ["title": "mine"]), .update("note", ["n2"], ["title": "mine"]))
      try await bench.commitUpload()
      try await bench.write(.update("note", ["n2"], ["title": "b"]))
      try await bench.commitUpload()
      var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", strange])])
      recovered.heal = .own
      try await bench.recover(recovered)
      try await bench.expectRows("note", [["n1", "mine", strange], ["n2", "b", strange]])
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.map(\.summary).sorted(),
        ["update note [\"title\"] [n1, a, mine] of 2 []", "update note [\"title\"] [n2, b, b] of 3 []"], "what is sent")
      try await bench.settle(sent)
      try await bench.expectArchive([])
    },
    offering("a row that was set back to what the server has is offered, too: an older version must not take its place")
    {
      bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "lost"]))
      try await bench.commitUpload()
      try await bench.write(.update("note", ["n1"], ["title": "a"]))
      try await bench.commitUpload()
      var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", .null])])
      recovered.heal = .own
      try await bench.recover(recovered)
      try await bench.expectArchive([])
      try expectEqual(
        try await bench.begin().changes.map(\.summary),
        ["update note [\"title\", \"body\"] [n1, a, a, null, null] of 3 []"], "what is sent")
    },
    offering("a delete of a row that the server does not have is offered: an older version must not make it again") {
      bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.write(.insert("note", ["id": "n1", "title": "mine"]))
      try await bench.commitUpload()
      try await bench.write(.delete("note", ["n1"]))
      try await bench.commitUpload()
      var recovered = Recovered(shared: 1)
      recovered.heal = .own
      try await bench.recover(recovered)
      try await bench.expectArchive([])
      let sent = try await bench.begin()
      try expectEqual(sent.changes.map(\.summary), ["delete note [n1] of 3 []"], "what is sent")
      try await bench.settle(sent)
      try await bench.expectRows("note", [])
      try expectEqual(try await bench.begin().changes, [], "what is sent then")
    },
    offering("nothing of a table that says so, whatever the device says", ContractSchemas.notes(heal: .off)) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "lost"]))
      try await bench.commitUpload()
      var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", .null])])
      recovered.heal = .all
      try await bench.recover(recovered)
      try await bench.expectRows("note", [["n1", "a", .null]])
      try expectEqual(try await bench.begin().changes, [], "the offers")
    },
    offering(
      "a lost row that the server has deleted since is offered: what becomes of its values is the server's to say"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "lost"]))
      try await bench.commitUpload()
      var recovered = Recovered(shared: 1, departed: [("note", .deleted, ["n1"])])
      recovered.heal = .own
      try await bench.recover(recovered)
      try await bench.expectArchive([])
      try expectEqual(
        try await bench.begin().changes.map(\.summary),
        ["insert note [\"id\", \"title\", \"body\"] [n1, lost, null] of 2 []"], "what is sent")
    },
    offering("a lost row that both sides have deleted since is not offered: the delete was made upon it") { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "lost"]))
      try await bench.commitUpload()
      try await bench.write(.delete("note", ["n1"]))
      var recovered = Recovered(shared: 1, version: 2, departed: [("note", .deleted, ["n1"])])
      recovered.heal = .all
      let report = try await bench.recover(recovered)
      try expectEqual([report.counts.merged, report.counts.lost], [1, 0], "merged, lost")
      try await bench.expectRows("note", [])
      try await bench.expectArchive([])
      try expectChanges(try await bench.begin().changes, [])
    },
    offering("what its owner has given back leaves the archive") { bench in
      try await bench.download(
        full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.download(rows: [("note", ["n1", "theirs", .null]), ("note", ["n2", "theirs", .null])])
      var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      recovered.heal = .own
      try await bench.recover(recovered)
      try expectEqual(try await bench.store.status().kept, 2, "the entries")
      try await bench.download(rows: [("note", ["n1", "theirs", .null])])
      try await bench.expectArchive(["kept lost-on-server update note [n2] [title=b] > [title=theirs]"])
    },
    offering("a mass deletion is offered for review; while the server holds it, its rows are here again") { bench in
      let rows = (1...30).map { ("note", [.text("n\(100 + $0)"), "a", .null] as Row) }
      try await bench.download(full: ["note"], rows: rows)
      try await bench.store.write((1...20).map { .delete("note", [.text("n\(100 + $0)")]) })
      try await bench.commitUpload()
      var recovered = Recovered(shared: 1, rows: rows)
      recovered.heal = .own
      try await bench.recover(recovered)
      let begun = try await bench.begin()
      try expectEqual(begun.changes.filter { $0.offer?.isForReview == true }.count, 20, "the offers for review")
      try await bench.settle(begun, waiting: [begun.changes[0].counter...begun.changes[19].counter])
      try await bench.expectRows("note", rows.map(\.1))
      try expectEqual(try await bench.begin().changes, [], "what is sent then")
    },
    offering("what waits at the server stays in its row, and is sent again when fewer wait") { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "lost"]))
      try await bench.commitUpload()
      var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", .null])])
      recovered.heal = .own
      try await bench.recover(recovered)
      let begun = try await bench.begin()
      let report = try await bench.settle(begun, waiting: [begun.changes[0].counter...begun.changes[0].counter])
      try expectEqual([report.accepted, report.refused, report.waiting], [0, 0, 1], "accepted, refused, waiting")
      try await bench.expectRows("note", [["n1", "lost", .null]])
      try expectEqual(try await bench.queued().count, 1, "what is queued")
      try expectEqual(try await bench.begin().changes, [], "what is sent while it waits")
      await bench.store.endSession()
      let terms = HealTerms(incarnation: IncarnationID(unchecked: String(repeating: "7", count: 32)))
      try expect(try await bench.store.remember(terms, heal: .own, retention: 1), "fewer wait than the device knows of")
      let again = try await bench.begin()
      try expectEqual(again.changes, begun.changes, "what is sent again")
      _ = try await bench.settle(again, waiting: [begun.changes[0].counter...begun.changes[0].counter])
      try expect(try await !bench.store.remember(terms, heal: .own, retention: 1), "the server has said so before")
      var later = terms
      later.settlings = 1
      try expect(
        try await bench.store.remember(later, heal: .own, retention: 1), "the server has settled something since")
      let third = try await bench.begin()
      try expectEqual(third.changes, begun.changes, "what is sent then")
      try await bench.settle(third, commit: bench.nextCommit())
      try expectEqual(try await bench.queued().count, 0, "what is queued when it has come")
    },
    offering("a refused change of a row that the server has lost goes to the archive, and the row is offered as it was")
    {
      bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.write(.insert("note", ["id": "n1", "title": "a", "body": "b"]))
      try await bench.commitUpload()
      try await bench.write(.update("note", ["n1"], ["title": "wrong"]))
      var recovered = Recovered(shared: 1, departed: [("note", .lost, ["n1"])])
      recovered.heal = .own
      try await bench.recover(recovered)
      let begun = try await bench.begin()
      try expectEqual(begun.changes.map(\.offer?.written), [["title"]], "what the lost row was changed in")
      let report = try await bench.settle(begun) { _ in .constraint }
      try expectEqual(report.refused, 1, "what was refused")
      try expect(report.asksAgain, "there is more to send")
      try await bench.expectArchive(["kept constraint update note [n1] [title=a] > [title=wrong]"])
      try await bench.expectRows("note", [["n1", "a", "b"]])
      let again = try await bench.begin()
      try expectEqual(again.changes.map(\.offer?.written), [[]], "what is offered then")
      try expectEqual(again.changes.map(\.offer?.version), begun.changes.map(\.offer?.version), "its version")
      try expectEqual(again.changes.map(\.values), [["n1", "a", "b"]], "its values")
      try await bench.settle(again, commit: bench.nextCommit())
      try expectEqual(try await bench.queued().count, 0, "what is queued when it has come")
      try await bench.expectRows("note", [["n1", "a", "b"]])
    },
    offering("what the server kept as a conflict version is sent again when it has lost it") { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      let begun = try await bench.begin()
      try await bench.settle(begun, commit: bench.nextCommit(), kept: [begun.changes[0].counter])
      try await bench.download(rows: [("note", ["n1", "theirs", .null])])
      var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", .null])])
      recovered.heal = .own
      try await bench.recover(recovered)
      let again = try await bench.begin()
      let version = try expectSome(again.changes.first { $0.offer?.isVersion == true }, "the conflict version")
      try expectEqual(
        [version.counter, version.values.count > 2 ? 1 : 0], [begun.changes[0].counter, 1], "its counter and its values"
      )
      try expectEqual(version.stamp, begun.changes[0].stamp, "its stamp")
      try await bench.settle(again, commit: bench.nextCommit(), kept: [version.counter])
      try expectEqual(try await bench.begin().changes, [], "what is sent then")
    },
    offering("a second restore offers again what the first one had lost, and what it has lost itself") { bench in
      let later = IncarnationID(unchecked: String(repeating: "8", count: 32))
      try await bench.download(full: ["note"], rows: [])
      try await bench.write(.insert("note", ["id": "n1", "title": "one"]))
      try await bench.commitUpload()
      var recovered = Recovered(shared: 1, departed: [("note", .lost, ["n1"])])
      recovered.heal = .own
      try await bench.recover(recovered)
      try await bench.store.remember(
        server: ClientBench.server, incarnations: [Incarnation(id: later, firstCommit: 2)], principal: "anna")
      // The offer is settled, and lost once more.
      try await bench.settle(try await bench.begin(), commit: bench.nextCommit())
      recovered = Recovered(shared: 1, departed: [("note", .lost, ["n1"])])
      (recovered.heal, recovered.id) = (.own, "recovery 2")
      try await bench.recover(recovered)
      try await bench.expectRows("note", [["n1", "one", .null]])
      let sent = try await bench.begin()
      try expectEqual(sent.changes.map(\.offer?.version.incarnation), [later], "whose commit was lost")
    },
  ]
}
