import SalvorModel
import SalvorStorage

/// What was not offered as the device was set up then, and may be offered now (semantics 10, decision 162).
extension ClientStoreContract {
  private static let terms = HealTerms(incarnation: incarnation)

  /// A row that this device changed, one that it made, one that it deleted, and one that another changed: all lost, while `heal` is off.
  private static func lose(_ bench: inout ClientBench, heal: HealMode = .off) async throws {
    try await bench.download(
      full: ["note"],
      rows: [("note", ["n1", "a", "x"]), ("note", ["n2", "b", .null]), ("note", ["n4", "d", .null])])
    try await bench.write(
      .insert("note", ["id": "n3", "title": "mine"]), .update("note", ["n1"], ["title": "mine"]),
      .delete("note", ["n2"]))
    try await bench.commitUpload()
    try await bench.download(rows: [("note", ["n4", "theirs", .null])])
    var recovered = Recovered(
      shared: 1, rows: [("note", ["n1", "a", "x"]), ("note", ["n2", "b", .null]), ("note", ["n4", "d", .null])],
      departed: [("note", .lost, ["n3"])])
    recovered.heal = heal
    try await bench.recover(recovered)
  }

  /// Two changes that the server kept as conflict versions, and lost while `heal` is off: they are in the archive.
  private static func loseVersions(
    _ bench: inout ClientBench
  ) async throws -> (session: ClientSession, changes: [ReadChange]) {
    try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
    try await bench.write(.update("note", ["n1"], ["title": "mine"]), .update("note", ["n1"], ["body": "mine"]))
    let begun = try await bench.begin()
    try await bench.settle(begun, commit: bench.nextCommit(), kept: begun.changes.map(\.counter))
    try await bench.download(rows: [("note", ["n1", "theirs", .null])])
    let report = try await bench.recover(Recovered(shared: 1, rows: [("note", ["n1", "a", .null])]))
    try expectEqual(report.counts.offered, 0, "what is offered while it is off")
    try await bench.expectArchive([
      "kept version-lost-on-server update note [n1] [title=a] > [title=mine]",
      "kept version-lost-on-server update note [n1] [body=null] > [body=mine]",
      "kept lost-on-server update note [n1] [title=a] > [title=theirs]",
    ])
    return begun
  }

  private static func heals(_ bench: ClientBench, _ heal: HealMode) async throws -> Bool {
    await bench.store.endSession()
    return try await bench.store.remember(terms, heal: heal, retention: .max / 2)
  }

  static let withheld: [Case] = [
    offering("what another server had kept as a conflict version is in the archive, and this one is not offered it") {
      bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      let begun = try await bench.begin()
      try await bench.settle(begun, commit: bench.nextCommit(), kept: begun.changes.map(\.counter))
      try await bench.download(rows: [("note", ["n1", "theirs", .null])])
      var recovered = Recovered(rows: [("note", ["n1", "another", .null])])
      (recovered.heal, recovered.server) = (.all, ServerID(unchecked: String(repeating: "6", count: 32)))
      let report = try await bench.recover(recovered)
      let versions = try await bench.archived().filter { $0.reason == "version-lost-on-server" }
      try expectEqual(versions.map(\.after), [[NamedValue("title", "mine")]], "the conflict versions in the archive")
      try expect(report.counts.unoffered[.otherServer] ?? 0 > 0, "the report says why they are not offered")
      try expectEqual(try await bench.begin().changes, [], "what is sent to the other server")
    },
    offering("a conflict version of a table that the schema drops is in the archive", ContractSchemas.shelves) {
      bench in
      try await bench.download(
        full: ["shelf", "book"], rows: [("shelf", ["s1", "left"]), ("book", ["b1", "a", "s1"])])
      try await bench.write(
        .update("shelf", ["s1"], ["place": "mine"]), .update("book", ["b1"], ["name": "mine"]))
      let begun = try await bench.begin()
      try await bench.settle(begun, commit: bench.nextCommit(), kept: begun.changes.map(\.counter))
      try await bench.download(rows: [("shelf", ["s1", "theirs"]), ("book", ["b1", "theirs", "s1"])])
      try await bench.store.adopt(SyncConfig(ContractSchemas.books))
      bench.adopt(ContractSchemas.books)
      let archive = ["kept schema-dropped update shelf [s1] [place=left] > [place=mine]"]
      try await bench.expectArchive(archive)
      try await bench.recover(Recovered(shared: 1, heal: .own, rows: [("book", ["b1", "theirs", "s1"])]))
      try await bench.expectArchive(archive)
      let sent = try await bench.begin().changes
      try expectEqual(
        sent.filter { $0.offer?.isVersion == true }.map(\.table), ["book"], "the version that is offered again")
    },
    offering("a value that the server lost, of a column that its schema has dropped since, is in the archive") {
      bench in
      try await bench.download(
        full: ["note"], rows: [("note", ["n1", "a", "x"]), ("note", ["n2", "b", "y"]), ("note", ["n3", "c", .null])])
      try await bench.write(.update("note", ["n2"], ["body": "early"]))
      try await bench.commitUpload()
      try await bench.download()
      try await bench.write(
        .update("note", ["n1"], ["body": "mine"]), .update("note", ["n3"], ["title": "mine"]))
      try await bench.commitUpload()
      try await bench.download()
      try await bench.store.adopt(SyncConfig(ContractSchemas.shortNotes))
      bench.adopt(ContractSchemas.shortNotes)
      try await bench.expectArchive([])
      let report = try await bench.recover(
        Recovered(shared: 2, heal: .own, rows: [("note", ["n1", "a"]), ("note", ["n3", "c"])]))
      try await bench.expectArchive(["kept lost-on-server update note [n1] [body=null] > [body=mine]"])
      try expectEqual(report.counts.unoffered, [.otherColumns: 1], "what is not offered")
      try expectEqual(
        [report.counts.lost, report.counts.offered], [3, 2], "lost and offered: both rows, and the value, which is not")
      try await bench.expectItems(["offered update note [n1]", "offered update note [n3]", "lost update note [n1]"])
      try await bench.expectRows("note", [["n1", "a"], ["n2", "b"], ["n3", "mine"]])
      try await bench.recover(Recovered(shared: 2, id: "recovery 2"))
      try await bench.expectArchive(["kept lost-on-server update note [n1] [body=null] > [body=mine]"])
    },
    offering(
      "a lost value that a change which waits has written over is in the archive when the schema drops its column, and so is the change"
    ) { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.write(.insert("note", ["id": "n1", "title": "a", "body": "lost"]))
      try await bench.commitUpload()
      try await bench.download()
      try await bench.write(.update("note", ["n1"], ["title": "mine", "body": "waits"]))
      try await bench.recover(Recovered(shared: 1, heal: .own, departed: [("note", .lost, ["n1"])]))
      try await bench.store.adopt(SyncConfig(ContractSchemas.shortNotes))
      bench.adopt(ContractSchemas.shortNotes)
      try await bench.expectArchive([
        "kept lost-on-server update note [n1] [body=null] > [body=lost]",
        "kept schema-dropped update note [n1] [body=null] > [body=waits]",
      ])
      try expectEqual(
        try await bench.begin().changes.map(\.summary),
        ["insert note [\"id\", \"title\"] [n1, mine] of 2 [\"title\"]"], "what is sent")
    },
    offering("what was kept while healing was off is offered when it is switched on, with its version") { bench in
      try await lose(&bench)
      try expect(try await !heals(bench, .off), "nothing is offered while it is off")
      try expectEqual(try await bench.begin().changes, [], "what is sent while it is off")
      try expect(try await heals(bench, .own), "there is something to offer")
      try await bench.restart()
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.map(\.summary),
        [
          "update note [\"title\", \"body\"] [n1, a, mine, x, x] of 2 []",
          "insert note [\"id\", \"title\", \"body\"] [n3, mine, null] of 2 []", "delete note [n2] of 2 []",
        ], "what is sent")
      try expectEqual(
        sent.changes.map(\.offer?.version),
        Array(repeating: LostVersion(incarnation: incarnation, number: 2, parting: 1), count: 3), "the versions")
      try await bench.expectRows("note", [["n1", "mine", "x"], ["n3", "mine", .null], ["n4", "d", .null]])
      try await bench.expectArchive(["kept lost-on-server update note [n4] [title=d] > [title=theirs]"])
      try await bench.settle(sent, commit: bench.nextCommit())
      try expect(try await !heals(bench, .own), "nothing is left to offer")
      try expectEqual(try await bench.begin().changes, [], "what is sent then")
      try expect(try await heals(bench, .all), "another's row is to be offered where all are")
      try expectEqual(
        try await bench.begin().changes.map(\.summary),
        ["update note [\"title\", \"body\"] [n4, d, theirs, null, null] of 3 []"], "what all adds")
      try await bench.expectArchive([])
    },
    offering("twice off and on: nothing is offered twice, and what could not be offered yet is asked for once") {
      bench in
      try await lose(&bench)
      try await bench.write(.delete("note", ["n1"]))
      try expect(try await heals(bench, .own), "there is something to offer")
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.filter { $0.offer != nil }.map(\.values[0]), ["n3", "n2"],
        "a row that a request deletes is that request's")
      try await bench.settle(sent, commit: bench.nextCommit())
      try expect(try await !heals(bench, .own), "it was looked at")
      try expect(try await !heals(bench, .off), "off offers nothing")
      try expect(try await heals(bench, .own), "the entry of n1 may be offered now")
      let again = try await bench.begin()
      try expectEqual(again.changes.map(\.values[0]), ["n1"], "what is offered then")
      try await bench.settle(again, commit: bench.nextCommit())
      try expect(try await !heals(bench, .off), "off offers nothing")
      try expect(try await !heals(bench, .own), "nothing is left")
    },
    offering(
      "a table that is switched on gives back what it kept, whatever the device says", ContractSchemas.notes(heal: .off)
    ) {
      bench in
      try await lose(&bench, heal: .all)
      try expect(try await !heals(bench, .all), "the table offers nothing")
      try await bench.restart(ContractSchemas.notes(heal: .own))
      try expect(try await heals(bench, .all), "the table offers what this device wrote")
      try expectEqual(try await bench.begin().changes.map(\.values[0]), ["n1", "n3", "n2"], "what is offered")
    },
    offering("what this device wrote is kept where the server lost it, and another device has deleted the row since") {
      bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"]), ("note", ["n2", "b", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]), .update("note", ["n2"], ["title": "mine"]))
      try await bench.commitUpload()
      // It waits, and says what becomes of n2.
      try await bench.write(.delete("note", ["n2"]))
      try await bench.recover(
        Recovered(shared: 1, head: 3, departed: [("note", .deleted, ["n1"]), ("note", .deleted, ["n2"])]))
      try await bench.expectRows("note", [])
      try await bench.expectArchive([
        "kept lost-on-server insert note [n1] [] > [id=n1, title=mine, body=x]"
      ])
      try expect(try await heals(bench, .own), "there is something to offer")
      let sent = try await bench.begin().changes.filter { $0.offer?.written.isEmpty == true }
      try expectEqual(
        sent.map(\.summary), ["insert note [\"id\", \"title\", \"body\"] [n1, mine, x] of 2 []"], "what is offered then"
      )
    },
    offering("for review where the setting says so") { bench in
      try await lose(&bench)
      try expect(try await heals(bench, .review), "there is something to offer")
      try expectEqual(try await bench.begin().changes.map(\.offer?.isForReview), [true, true, true], "for review")
    },
    offering("a mass of deletes that was kept while healing was off waits for the operator") { bench in
      let rows = (1...30).map { ("note", [.text("n\(100 + $0)"), "a", .null] as Row) }
      try await bench.download(full: ["note"], rows: rows)
      try await bench.store.write((1...20).map { .delete("note", [.text("n\(100 + $0)")]) })
      try await bench.commitUpload()
      try await bench.recover(Recovered(shared: 1, rows: rows))
      try await bench.expectRows("note", rows.map(\.1))
      try expect(try await heals(bench, .own), "there is something to offer")
      let sent = try await bench.begin()
      try expectEqual(sent.changes.filter { $0.offer?.isForReview == true }.count, 20, "the offers for review")
      try await bench.expectArchive([])
    },
    offering("what was written or deleted since, and what waits, keeps what it has of the row") { bench in
      try await lose(&bench)
      // Another device has written n1 since the restore, and deleted n2, as this one had; this one writes a column of n4.
      try await bench.download(rows: [("note", ["n1", "since", "y"])], departed: [("note", .deleted, ["n2"])])
      try await bench.write(.update("note", ["n4"], ["title": "waits"]))
      try expect(try await heals(bench, .all), "there is something to offer")
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.filter { $0.offer != nil }.map(\.summary),
        [
          "update note [\"title\"] [n1, since, mine] of 2 []",
          "insert note [\"id\", \"title\", \"body\"] [n3, mine, null] of 2 []",
          "update note [\"body\"] [n4, null, null] of 3 []",
        ], "what is offered")
      try expectEqual(
        sent.changes.filter { $0.offer == nil }.map(\.summary), ["update note [\"title\"] [n4, d, waits]"],
        "what waited")
    },
    offering("a second restore: the newest version of a row is offered, as one that this device wrote once") { bench in
      let later = IncarnationID(unchecked: String(repeating: "8", count: 32))
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      try await bench.commitUpload()
      try await bench.recover(Recovered(shared: 1, rows: [("note", ["n1", "a", .null])]))
      try await bench.store.remember(
        server: ClientBench.server, incarnations: [Incarnation(id: later, firstCommit: 2)], principal: "anna")
      try await bench.download(rows: [("note", ["n1", "theirs", .null])])
      var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", .null])])
      recovered.id = "recovery 2"
      try await bench.recover(recovered)
      try expect(try await heals(bench, .own), "there is something to offer")
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.map(\.offer?.version), [LostVersion(incarnation: later, number: 3, parting: 1)], "the version")
      try await bench.expectRows("note", [["n1", "theirs", .null]])
      try await bench.expectArchive(["kept lost-on-server update note [n1] [title=a] > [title=mine]"])
    },
    offering("a conflict version that was lost while healing was off goes again when it is switched on") { bench in
      let begun = try await loseVersions(&bench)
      try expectEqual(try await bench.begin().changes, [], "what is sent while it is off")
      try expect(try await heals(bench, .own), "there is something to offer")
      let again = try await bench.begin()
      try expectEqual(
        again.changes.filter { $0.offer?.isVersion == true }.map(\.counter), begun.changes.map(\.counter),
        "the conflict versions")
      try await bench.expectArchive([])
      try await bench.settle(again, commit: bench.nextCommit(), kept: begun.changes.map(\.counter))
      try expectEqual(try await bench.begin().changes, [], "what is sent then")
    },
    offering("a lost conflict version whose entry a person has deleted or reapplied is not given back") { bench in
      let begun = try await loseVersions(&bench)
      _ = try await bench.store.remove(.kept(begun.changes[0].id))
      _ = try await bench.store.reapply(begun.changes[1].id)
      var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", .null])])
      recovered.id = "recovery 2"
      try await bench.recover(recovered)
      try await bench.expectArchive(["kept lost-on-server update note [n1] [title=a] > [title=theirs]"])
      _ = try await heals(bench, .own)
      // Its row goes up, too.
      let sent = try await bench.begin().changes
      try expect(!sent.contains { $0.offer?.isVersion == true }, "a conflict version is given back")
      try expectEqual(
        sent.filter { $0.offer == nil }.map(\.summary), ["update note [\"body\"] [n1, null, mine]"], "what is sent")
    },
    offering(
      "what was accepted without a commit counts as of where the download ends, and a conflict version as of the commit after that"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]), .update("note", ["n2"], ["title": "mine"]))
      let begun = try await bench.begin()
      try await bench.settle(begun, kept: [begun.changes[1].counter])
      bench.nextCommit(3)
      try await bench.download(rows: [("note", ["n2", "theirs", .null])])
      var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      recovered.heal = .own
      try await bench.recover(recovered)
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.filter { $0.offer?.isVersion == true }.map(\.offer?.version.number), [5], "the conflict version's")
      try expectEqual(
        sent.changes.first { $0.offer?.isVersion == false && $0.values[0] == "n1" }?.offer?.version.number, 4,
        "the row's")
    },
    offering("while an upload's outcome is unknown nothing is added to it") { bench in
      try await lose(&bench)
      try await bench.write(.update("note", ["n4"], ["body": "waits"]))
      let first = try await bench.begin()
      try expect(try await heals(bench, .own), "there is something to offer")
      let again = try await bench.begin()
      try expectEqual(again.changes, first.changes, "the same upload")
      try await bench.settle(again, commit: bench.nextCommit())
      try expectEqual(try await bench.begin().changes.map(\.values[0]), ["n1", "n3", "n2"], "the next one")
    },
    offering("an offer that waits at the server is taken back: its row goes, and the server is told of it") { bench in
      try await lose(&bench, heal: .own)
      let begun = try await bench.begin()
      let held = try expectSome(begun.changes.first { $0.values[0] == "n3" }, "the insert")
      try await bench.settle(begun, commit: bench.nextCommit(), waiting: [held.counter...held.counter])
      _ = try await bench.store.remove(.kept(held.id))
      try await bench.expectRows("note", [["n1", "mine", "x"], ["n4", "d", .null]])
      try expectEqual(try await bench.queued().count, 0, "what is queued")
      try await bench.restart()
      let again = try await bench.begin()
      try expectEqual(again.session.state.withdrawn, [held.id], "what the server is to be told")
      try expectEqual(again.changes, [], "what is sent")
      var known = terms
      known.withdrawn = [held.id]
      await bench.store.endSession()
      try expect(try await !bench.store.remember(known, heal: .own, retention: .max / 2), "nothing is due")
      try expectEqual(try await bench.begin().session.state.withdrawn, [], "what is left to tell")
    },
  ]
}
