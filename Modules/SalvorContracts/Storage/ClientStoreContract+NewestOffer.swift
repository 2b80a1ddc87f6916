import SalvorModel
import SalvorStorage

/// Of one row's lost versions the newest is offered, whatever was offered before and waits yet (semantics 10, decision 183).
extension ClientStoreContract {
  private static let later = IncarnationID(unchecked: String(repeating: "8", count: 32))

  private static func heals(_ bench: ClientBench, _ heal: HealMode) async throws -> Bool {
    await bench.store.endSession()
    return try await bench.store.remember(HealTerms(incarnation: later), heal: heal, retention: .max / 2)
  }

  /// This device changes n1, deletes n2 and makes n3; all of it is lost while it gives nothing back.
  private static func lose(_ bench: inout ClientBench, heal: HealMode = .off, deletes: Bool = true) async throws {
    try await bench.download(
      full: ["note"],
      rows: [("note", ["n1", "a", "x"]), ("note", ["n2", "b", .null]), ("note", ["n4", "d", .null])])
    try await bench.write(
      .insert("note", ["id": "n3", "title": "old"]), .update("note", ["n1"], ["title": "old"]))
    if deletes { try await bench.write(.delete("note", ["n2"])) }
    try await bench.commitUpload()
    try await bench.recover(restore(1, heal))
    try await bench.store.remember(
      server: ClientBench.server, incarnations: [Incarnation(id: later, firstCommit: 2)], principal: "anna")
    _ = try await heals(bench, heal)
  }

  private static func restore(_ number: Int, _ heal: HealMode) -> Recovered {
    var recovered = Recovered(
      shared: 1, rows: [("note", ["n1", "a", "x"]), ("note", ["n2", "b", .null]), ("note", ["n4", "d", .null])],
      departed: [("note", .lost, ["n3"])])
    (recovered.heal, recovered.id) = (heal, "recovery \(number)")
    return recovered
  }

  /// The same, once more by a strategy that gives up the requests that wait.
  private static func restore(
    _ number: Int, discarding rebuild: RecoveryOrder.Rebuild, absence: RecoveryOrder.Absence = .lost
  ) -> Recovered {
    var recovered = restore(number, .own)
    (recovered.requests, recovered.rebuild, recovered.absence) = (.discard, rebuild, absence)
    if rebuild != .nothing { (recovered.full, recovered.departed) = (["note"], []) }
    return recovered
  }

  /// n1 and n3 as they were lost.
  private static func expectOfferedAgain(_ bench: ClientBench, _ report: RecoveryReport) async throws {
    try expectEqual(
      [report.counts.discarded, report.counts.lost, report.counts.offered], [1, 2, 2], "discarded, lost, offered")
    try await bench.expectArchive(["kept discarded update note [n4] [title=d] > [title=mine]"])
    try await bench.expectRows(
      "note", [["n1", "old", "x"], ["n2", "b", .null], ["n3", "old", .null], ["n4", "d", .null]])
    let sent = try await bench.begin()
    try expectEqual(
      sent.changes.map { [$0.offer?.version.number, $0.offer?.version.parting] }, [[2, 1], [2, 1]],
      "what is offered again")
  }

  static let newestOffers: [Case] = [
    offering("a strategy that gives up what waits does not give up offers, whether they were sent or not") { bench in
      for (number, rebuild) in [RecoveryOrder.Rebuild.nothing, .synchronizedTables, .everything].enumerated() {
        if number == 0 { try await lose(&bench, heal: .own, deletes: false) }
        let id = 2 + 2 * number
        try await bench.write(.update("note", ["n4"], ["title": "mine"]))
        let report = try await bench.recover(restore(id, discarding: rebuild))
        try await expectOfferedAgain(bench, report)
        await bench.store.endSession()
        _ = try await bench.store.remove(.allKept)
        // The server holds them.
        let begun = try await bench.begin()
        try await bench.settle(
          begun, commit: bench.nextCommit(), waiting: [begun.changes[0].counter...begun.changes[1].counter])
        try await bench.write(.update("note", ["n4"], ["title": "mine"]))
        try await expectOfferedAgain(bench, bench.recover(restore(id + 1, discarding: rebuild)))
        await bench.store.endSession()
        _ = try await bench.store.remove(.allKept)
      }
    },
    offering("offers stay where nothing more was lost, and a strategy gives up what waits") { bench in
      for (number, rebuild) in [RecoveryOrder.Rebuild.nothing, .everything].enumerated() {
        if number == 0 { try await lose(&bench, heal: .own, deletes: false) }
        try await bench.write(.update("note", ["n4"], ["title": "mine"]))
        let report = try await bench.recover(restore(2 + number, discarding: rebuild, absence: .deleted))
        try await expectOfferedAgain(bench, report)
        await bench.store.endSession()
        _ = try await bench.store.remove(.allKept)
      }
    },
    offering("what a later restore lost of a row is offered in the place of an older version that waits") { bench in
      try await lose(&bench)
      try await bench.write(
        .insert("note", ["id": "n3", "title": "new"]), .update("note", ["n1"], ["title": "new"]),
        .update("note", ["n2"], ["title": "new"]))
      try await bench.commitUpload()
      try expect(try await heals(bench, .own), "there is something to offer")
      try expectEqual(
        try await bench.begin().changes.map(\.offer?.version.number), [2, 2, 2], "the versions that are offered late")
      await bench.store.endSession()
      let report = try await bench.recover(restore(2, .own))
      try expectEqual(report.counts.discarded, 3, "the older offers")
      try expectEqual(report.counts.offered, 3, "the newer ones")
      try await bench.expectRows(
        "note", [["n1", "new", "x"], ["n2", "new", .null], ["n3", "new", .null], ["n4", "d", .null]])
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.map(\.offer?.version),
        Array(repeating: LostVersion(incarnation: later, number: 3, parting: 1), count: 3), "the versions")
      try expectEqual(sent.changes.map { $0.values[0] }, ["n1", "n2", "n3"], "the rows")
      try await bench.expectArchive([
        "kept lost-on-server update note [n3] [title=new, body=null] > [title=old, body=null]",
        "kept lost-on-server update note [n1] [title=new, body=x] > [title=old, body=x]",
        "kept lost-on-server delete note [n2] [id=n2, title=new, body=null] > []",
      ])
      try await bench.settle(sent, commit: bench.nextCommit())
      try expectEqual(try await bench.begin().changes, [], "what is sent then")
    },
    offering("so is a delete, and what waits on the row keeps what it has") { bench in
      try await lose(&bench)
      try await bench.write(.update("note", ["n1"], ["title": "new"]), .insert("note", ["id": "n3", "title": "new"]))
      try await bench.commitUpload()
      try await bench.write(.delete("note", ["n3"]))
      try await bench.commitUpload()
      try expect(try await heals(bench, .own), "there is something to offer")
      _ = try await bench.begin()
      try await bench.write(.update("note", ["n1"], ["body": "waits"]))
      await bench.store.endSession()
      try await bench.recover(restore(2, .own))
      try await bench.expectRows("note", [["n1", "new", "waits"], ["n4", "d", .null]])
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.filter { $0.offer?.written == [] && $0.values[0] != "n2" }.map(\.summary),
        ["update note [\"title\"] [n1, a, new] of 3 []", "delete note [n3] of 4 []"], "what is offered")
      try expectEqual(
        sent.changes.filter { $0.offer?.written != [] }.map(\.summary),
        ["update note [\"body\"] [n1, x, waits] of 3 [\"body\"]"],
        "what waited")
    },
    offering("an older version that nothing newer was lost of stays the one that is offered") { bench in
      try await lose(&bench)
      try expect(try await heals(bench, .own), "there is something to offer")
      _ = try await bench.begin()
      await bench.store.endSession()
      let report = try await bench.recover(restore(2, .own))
      try expectEqual(report.counts.discarded, 0, "what is discarded")
      try await bench.expectRows("note", [["n1", "old", "x"], ["n3", "old", .null], ["n4", "d", .null]])
      try expectEqual(
        try await bench.begin().changes.map(\.offer?.version.number), [2, 2, 2], "the versions that are offered")
    },
    offering("so it stays where the tables were compared since") { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"])])
      try await bench.write(.update("note", ["n1"], ["title": "shared"]))
      try await bench.commitUpload()
      try await bench.write(.update("note", ["n1"], ["title": "old"]))
      try await bench.commitUpload()
      var first = Recovered(shared: 2, head: 5, rows: [("note", ["n1", "shared", "x"])])
      (first.heal, first.compared) = (.own, ["main"])
      (first.incarnations) = [Incarnation(id: later, firstCommit: 3)]
      try await bench.recover(first)
      _ = try await heals(bench, .own)
      try expectEqual(try await bench.begin().changes.map(\.offer?.version.number), [3], "what is offered")
      await bench.store.endSession()
      var second = Recovered(shared: 2, rows: [("note", ["n1", "shared", "x"])])
      (second.heal, second.id) = (.own, "recovery 2")
      try await bench.recover(second)
      try await bench.expectRows("note", [["n1", "old", "x"]])
      try expectEqual(try await bench.begin().changes.map(\.offer?.version.number), [3], "what is offered again")
    },
    offering("a newer version that was withheld takes the place of an older one that waits at the server") { bench in
      try await lose(&bench, heal: .own)
      let begun = try await bench.begin()
      try expectEqual(begun.changes.map(\.offer?.version.number), [2, 2, 2], "what is offered")
      try await bench.settle(
        begun, commit: bench.nextCommit(), waiting: [begun.changes[0].counter...begun.changes[2].counter])
      try await bench.download(rows: [("note", ["n1", "theirs", "y"])])
      try await bench.recover(restore(2, .off))
      // The copy of the server holds them, too.
      let again = try await bench.begin()
      try expectEqual(again.changes.map { $0.values[0] }, ["n1", "n3"], "what is sent to the copy")
      try await bench.settle(
        again, commit: bench.nextCommit(), waiting: [again.changes[0].counter...again.changes[1].counter])
      try expect(try await heals(bench, .all), "there is something to offer")
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.filter { $0.values[0] == "n1" }.map(\.offer?.version),
        [LostVersion(incarnation: later, number: 4, parting: 1)], "what is offered of n1")
      try expectEqual(sent.session.state.withdrawn, [again.changes[0].id], "what the server is to be told")
      try expectEqual(
        try await bench.store.rows(of: "note").filter { $0[0] != "n2" },
        [["n1", "theirs", "y"], ["n3", "old", .null], ["n4", "d", .null]], "the rows")
    },
  ]
}
