import SalvorModel
import SalvorStorage

/// Deletes that wait, of rows that the server has lost: they stand (semantics 9, rule 3; decision 184). And updates that were made upon lost
/// versions (decision 236).
extension ClientStoreContract {
  /// - Parameter mark: what the update says of the version.
  private static func expectUpdate(bench: inout ClientBench, _ heal: HealMode, _ mark: String) async throws {
    try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
    try await bench.download(rows: [("note", ["n1", "theirs", .null])])
    try await bench.write(.update("note", ["n1"], ["title": "mine"]))
    var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", .null])])
    recovered.heal = heal
    let report = try await bench.recover(recovered)
    try expectEqual(report.counts.offered, 0, "what is offered")
    try await bench.expectRows("note", [["n1", "mine", .null]])
    let sent = try await bench.begin()
    try expectEqual(
      sent.changes.map(\.summary), ["update note [\"title\"] [n1, theirs, mine]\(mark)"], "what is sent")
    try await bench.settle(sent, commit: bench.nextCommit())
    try await bench.expectRows("note", [["n1", "mine", .null]])
    try expectEqual(try await bench.begin().changes, [], "what is sent then")
  }

  static let offeredDeletes: [Case] = [
    offering("a delete that waits stands where the server has lost its row, as one of the lost version") { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.download(rows: [("note", ["n1", "theirs", .null])])
      try await bench.write(.delete("note", ["n1"]))
      let report = try await bench.recover(lost())
      try expectEqual(
        [report.counts.merged, report.counts.discarded, report.counts.offered], [1, 0, 0],
        "merged, discarded and offered")
      try await bench.expectRows("note", [])
      try await bench.expectArchive([])
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.map(\.summary), ["delete note [n1] of 2 [\"id\", \"title\", \"body\"]"], "what is sent")
      try await bench.settle(sent, commit: bench.nextCommit())
      try await bench.expectRows("note", [])
      try expectEqual(try await bench.begin().changes, [], "what is sent then")
    },
    offering("so does the delete of a row that was changed before it, and the change is in the archive") { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.download(rows: [("note", ["n1", "theirs", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      try await bench.write(.delete("note", ["n1"]))
      try await bench.recover(lost())
      try await bench.expectRows("note", [])
      try await bench.expectArchive(["kept row-gone update note [n1] [title=theirs] > [title=mine]"])
      try expectEqual(
        try await bench.begin().changes.map(\.summary), ["delete note [n1] of 2 [\"id\", \"title\", \"body\"]"],
        "what is sent")
    },
    offering("an insert of the row after such a delete is an ordinary insert") { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.download(rows: [("note", ["n1", "theirs", .null])])
      try await bench.write(.delete("note", ["n1"]))
      try await bench.recover(lost())
      try await bench.write(.insert("note", ["id": "n1", "title": "anew"]))
      let sent = try await bench.begin()
      try expect(
        sent.changes.allSatisfy { $0.offer == nil || $0.offer?.written == ["id", "title", "body"] },
        "no value of the new row is offered: \(sent.changes.map(\.summary))")
      try await bench.settle(sent, commit: bench.nextCommit())
      try await bench.expectRows("note", [["n1", "anew", .null]])
    },
    offering("where a newer copy of the server has the row, such a delete is an ordinary one again") { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.download(rows: [("note", ["n1", "theirs", .null])])
      try await bench.write(.delete("note", ["n1"]))
      try await bench.recover(lost())
      var newer = Recovered(shared: 1, head: 4, rows: [("note", ["n1", "theirs", .null])])
      (newer.heal, newer.id) = (.own, "recovery 2")
      try await bench.recover(newer)
      try await bench.expectRows("note", [])
      try expectEqual(try await bench.begin().changes.map(\.summary), ["delete note [n1]"], "what is sent")
    },
    offering("so does one in a group beside other changes") { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.download(rows: [("note", ["n1", "theirs", .null])])
      try await bench.write(
        .beginRequest(tag: "t"), .insert("note", ["id": "n2", "title": "mine"]), .delete("note", ["n1"]), .endRequest)
      try await bench.recover(lost())
      try await bench.expectRows("note", [["n2", "mine", .null]])
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.map(\.summary),
        [
          "insert note [\"id\", \"title\", \"body\"] [n2, mine, null]",
          "delete note [n1] of 2 [\"id\", \"title\", \"body\"]",
        ], "what is sent")
      try await bench.settle(sent, commit: bench.nextCommit())
      try await bench.expectRows("note", [["n2", "mine", .null]])
    },
    offering("where nothing is offered it is in the archive") { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.download(rows: [("note", ["n1", "theirs", .null])])
      try await bench.write(.delete("note", ["n1"]))
      var recovered = lost()
      recovered.heal = .off
      try await bench.recover(recovered)
      try await bench.expectRows("note", [])
      try await bench.expectArchive(["kept row-gone delete note [n1] [id=n1, title=theirs, body=null] > []"])
      try expectEqual(try await bench.begin().changes, [], "what is sent")
    },
    offering(
      "an offer that cannot stand is displaced: it is lost, and not offered",
      ContractSchemas.notes(unique: [["title"]])
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"])])
      try await bench.write(
        .insert("note", ["id": "n2", "title": "mine"]), .insert("note", ["id": "n3", "title": "other"]))
      try await bench.commitUpload()
      var recovered = Recovered(
        shared: 1, rows: [("note", ["n9", "mine", .null])],
        departed: [("note", .lost, ["n2"]), ("note", .lost, ["n3"])])
      recovered.heal = .own
      let counts = try await bench.recover(recovered).counts
      try expectEqual(
        [counts.displaced, counts.discarded, counts.lost, counts.offered], [1, 0, 2, 1],
        "displaced, discarded, lost, offered")
      try await bench.expectItems(["displaced insert note [n2]", "offered insert note [n3]"])
      try await bench.expectRows("note", [["n1", "a", "x"], ["n3", "other", .null], ["n9", "mine", .null]])
    },
    offering("deletes that the server holds are counted, and in the archive where its operator rejects them") {
      bench in
      let begun = try await heldDeletes(&bench)
      let report = try await bench.settle(
        begun, commit: bench.nextCommit(), waiting: [begun.changes[0].counter...begun.changes[1].counter])
      try expectEqual(report.waiting, 2, "what waits")
      try expectEqual(try await bench.store.status().waiting, 2, "what waits, by the status")
      try await bench.expectRows("note", [["n1", "a", "x"], ["n2", "b", .null], ["n3", "c", .null]])
      // One of them is asked about, whenever the server has settled something.
      try expect(try await isDue(bench, settlings: 1), "something is asked")
      let asked = try await bench.begin()
      try expectEqual(asked.changes.map(\.summary), [begun.changes[0].summary], "what is asked")
      try expectEqual(asked.session.heldDeletes, 2, "what the session begins with")
      try await bench.settle(asked, waiting: [asked.changes[0].counter...asked.changes[0].counter])
      try expect(try await !isDue(bench, settlings: 1), "nothing was settled since")
      try expect(try await isDue(bench, settlings: 2), "something is asked again")
      let rejected = try await bench.settle(bench.begin()) { _ in .rejected }
      try expectEqual([rejected.refused, rejected.waiting], [1, 1], "refused, and waiting")
      try await bench.expectArchive(["kept rejected delete note [n1] [id=n1, title=a, body=x] > []"])
      // So are the others, then.
      let others = try await bench.begin()
      try expectEqual(others.changes.map(\.summary), [begun.changes[1].summary], "what is asked then")
      try expectEqual(try await bench.settle(others).waiting, 0, "what waits in the end")
      try await bench.expectRows("note", [["n1", "a", "x"], ["n2", "b", .null], ["n3", "c", .null]])
      try expectEqual(try await bench.begin().changes, [], "what is sent in the end")
    },
    offering("deletes that the server held go again, all of them, to one that was put back once more and holds none") {
      bench in
      let begun = try await heldDeletes(&bench)
      try await bench.settle(
        begun, commit: bench.nextCommit(), waiting: [begun.changes[0].counter...begun.changes[1].counter])
      try expect(try await !isDue(bench, settlings: 0, deletes: 2), "it holds them")
      try expect(try await isDue(bench, settlings: 0, in: "9"), "it has settled none, and names none")
      try expectEqual(
        try await bench.begin().changes.map(\.summary), begun.changes.map(\.summary), "what is sent again")
    },
    offering("deletes that the server holds are all asked about where it holds fewer than the device knows of") {
      bench in
      let begun = try await heldDeletes(&bench)
      try await bench.settle(
        begun, commit: bench.nextCommit(), waiting: [begun.changes[0].counter...begun.changes[1].counter])
      try expect(try await !isDue(bench, settlings: 1, deletes: 2), "somebody else's offers were settled")
      try expectEqual(try await bench.begin().changes, [], "what is sent then")
      // The operator has settled the second one alone.
      try expect(try await isDue(bench, settlings: 2, deletes: 1), "one was settled")
      let asked = try await bench.begin()
      try expectEqual(asked.changes.map(\.summary), begun.changes.map(\.summary), "what is asked")
      let counter = asked.changes[0].counter
      try expectEqual(try await bench.settle(asked, waiting: [counter...counter]).waiting, 1, "what waits then")
      try expect(try await !isDue(bench, settlings: 2, deletes: 1), "it was heard")
    },
    offering("an update that waits names the lost version that it was made upon, whoever wrote that (decision 236)") {
      bench in
      try await expectUpdate(bench: &bench, .own, " of 2 [\"title\"]")
    },
    offering("where nothing is offered it does not (decision 236)") { bench in
      try await expectUpdate(bench: &bench, .off, "")
    },
  ]

  /// What a report counts as offered, or as lost and not offered, has a line.
  static let lostVersions: [Case] = [HealMode.own, .off].map { heal in
    offering("a conflict version that the server has lost has a line in the report, heal \(heal.rawValue)") { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      let begun = try await bench.begin()
      try await bench.settle(begun, commit: bench.nextCommit(), kept: [begun.changes[0].counter])
      try await bench.download(rows: [("note", ["n1", "theirs", .null])])
      var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", .null])])
      recovered.heal = heal
      let counts = try await bench.recover(recovered).counts
      let store = try expectSome(bench.store as? any RecoveringClientStore, "a store that recovers")
      let items = try await store.recoveryItems("recovery 1", after: 0, limit: 100)
      let versions = items.filter { $0.reason == "version-lost-on-server" }
      try expectEqual(versions.map(\.fate), [heal == .off ? .lost : .offered], "what became of it")
      try expectEqual(versions.map(\.request), [begun.changes[0].id], "its request")
      try expectEqual(versions.map(\.after), [[NamedValue("title", "mine")]], "its values")
      let theirs = "kept lost-on-server update note [n1] [title=a] > [title=theirs]"
      try await bench.expectArchive(
        heal == .off ? ["kept version-lost-on-server update note [n1] [title=a] > [title=mine]", theirs] : [])
      try expectEqual(Int(counts.offered), items.count { $0.fate == .offered }, "offered, and its lines")
      try expectEqual(
        Int(counts.unoffered.values.reduce(0, +)), items.count { $0.fate == .lost }, "not offered, and its lines")
    }
  }

  /// This device deleted n1 and n2, and a restore has brought them back: what is offered.
  private static func heldDeletes(
    _ bench: inout ClientBench
  ) async throws -> (session: ClientSession, changes: [ReadChange]) {
    let rows: [(String, [Value])] = [("note", ["n1", "a", "x"]), ("note", ["n2", "b", .null])]
    try await bench.download(full: ["note"], rows: rows + [("note", ["n3", "c", .null])])
    try await bench.write(.delete("note", ["n1"]), .delete("note", ["n2"]))
    try await bench.commitUpload()
    var recovered = Recovered(shared: 1, rows: rows)
    recovered.heal = .own
    try await bench.recover(recovered)
    return try await bench.begin()
  }

  private static func isDue(
    _ bench: ClientBench, settlings: Int64, deletes: Int64? = nil, in incarnation: String = "8"
  ) async throws -> Bool {
    await bench.store.endSession()
    let terms = HealTerms(
      incarnation: IncarnationID(unchecked: String(repeating: incarnation, count: 32)), settlings: settlings,
      deletes: deletes)
    return try await bench.store.remember(terms, heal: .own, retention: .max / 2)
  }

  private static func lost() -> Recovered {
    var recovered = Recovered(shared: 1, departed: [("note", .lost, ["n1"])])
    recovered.heal = .own
    return recovered
  }
}
