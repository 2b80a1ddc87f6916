import SalvorModel
import SalvorStorage

/// Offers: what a device brings back to a server that has lost it (semantics 10, `HealingServerStore`).
extension ServerStoreContract {
  /// Incarnations that no server of a case knows, in the order in which they lived.
  static let early = IncarnationID(unchecked: String(repeating: "a", count: 32))
  static let late = IncarnationID(unchecked: String(repeating: "b", count: 32))
  private static let other = IncarnationID(unchecked: String(repeating: "c", count: 32))

  static func version(_ number: Int64, of incarnation: IncarnationID = early, parting: Int64) -> LostVersion {
    LostVersion(incarnation: incarnation, number: parting + number, parting: parting)
  }

  /// The row of a note, as an offer.
  static func note(_ id: String, _ title: Value, _ body: Value = .null) -> Sent {
    .insert("note", ["id": .text(id), "title": title, "body": body])
  }

  /// A healing store with a row that the backup had, and the number of the commit at which everybody parts.
  static func healing(
    _ name: String, _ schema: Schema = ContractSchemas.notes(), rule: String = "semantics 10",
    _ body: @escaping @Sendable (inout ServerBench, Int64) async throws -> Void
  ) -> Case {
    on(schema, name, rule: rule) { bench in
      guard bench.store is any HealingServerStore else { return }
      if schema.tables[0].name == "note" {
        try await bench.write(.insert("note", ["id": "n1", "title": "a", "body": "b"]))
      }
      let parting = try await bench.store.sweep().number
      try await body(&bench, parting)
    }
  }

  /// A device that knows the incarnations.
  static func device(
    _ bench: ServerBench, _ name: String = "anna", lost: [IncarnationID] = [early], parameters: [String: [Value]] = [:]
  ) async throws -> Device {
    var device = try await bench.device(name, parameters: parameters)
    device.lost = lost
    return device
  }

  static func expectOffers(
    _ results: UploadResults, accepted: Int64 = 1, conflicts: Int64 = 0, healed: Int64 = 0, superseded: Int64 = 0,
    file: String = #fileID, line: Int = #line
  ) throws {
    try expectAccepted(results, accepted, conflicts: conflicts, file: file, line: line)
    try expectEqual(results.healed, healed, "the healed offers", file: file, line: line)
    try expectEqual(results.superseded, superseded, "the superseded offers", file: file, line: line)
  }

  /// The open conflict versions: operation and columns with the values that the client wants.
  static func expectOpen(
    _ bench: ServerBench, _ wanted: [String], file: String = #fileID, line: Int = #line
  ) async throws {
    let found = try await bench.store.conflicts(after: 0, limit: 100, state: .open)
    let texts = found.map { version in
      let columns = version.client.columns.map { "\($0.name)=\($0.new)" }.joined(separator: ",")
      return "\(version.client.operation.rawValue) \(columns)"
    }
    try expectEqual(texts, wanted, "the open conflict versions", file: file, line: line)
    try expect(
      found.allSatisfy { $0.client.offer != nil }, "each must say which lost version it is", file: file, line: line)
  }

  static let healing: [Case] = [
    healing("an offer makes a lost row again, and everybody else gets it") { bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      let results = try await anna.upload(.offer(version(5, parting: parting), note("n2", "c")))
      try expectOffers(results, healed: 1)
      try await bench.expectRows("note", [["n1", "a", "b"], ["n2", "c", .null]])
      try await anna.download()
      try anna.expectNothingFed()
      try await bert.download()
      try bert.expectReplica("note", [["n1", "a", "b"], ["n2", "c", .null]])
    },
    healing("of one row's offered versions the newest wins, in whatever order they come") { bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      let old = version(5, parting: parting), new = version(7, parting: parting)
      for (id, first, second) in [("n2", old, new), ("n3", new, old)] {
        func title(_ version: LostVersion) -> Value { version == new ? "new" : "old" }
        try expectOffers(try await anna.upload(.offer(first, note(id, title(first)))), healed: 1)
        let results = try await bert.upload(.offer(second, note(id, title(second))))
        try expectOffers(results, healed: second == new ? 1 : 0, superseded: second == new ? 0 : 1)
      }
      try await bench.expectRows("note", [["n1", "a", "b"], ["n2", "new", .null], ["n3", "new", .null]])
      try await bert.download()
      try bert.expectReplica("note", [["n1", "a", "b"], ["n2", "new", .null], ["n3", "new", .null]])
      try await expectOpen(bench, [])
    },
    healing("a column that was written after the parting stands; the other columns of the offer go on") {
      bench, parting in
      var anna = try await device(bench)
      try await bench.write(.update("note", ["n1"], ["title": "written"]))
      let results = try await anna.upload(
        .offer(version(5, parting: parting), .update("note", ["n1"], [("title", "a", "lost"), ("body", "b", "lost")])))
      try expectOffers(results, conflicts: 1, healed: 1)
      try await bench.expectRows("note", [["n1", "written", "lost"]])
      try await expectOpen(bench, ["update title=lost"])
      try await anna.download()
      try anna.expectReplica("note", [["n1", "written", "lost"]])
      let id = try expectSome(
        try await bench.store.conflicts(after: 0, limit: 1, state: .open).first?.id, "the version")
      _ = try await bench.store.resolveConflict(id, keep: .client, by: "operator")
      try await bench.expectRows("note", [["n1", "lost", "lost"]])
    },
    healing("what was written before the parting does not stand against an offer") { bench, _ in
      try await bench.write(.update("note", ["n1"], ["title": "earlier"]))
      let parting = try await bench.store.sweep().number
      var anna = try await device(bench)
      let results = try await anna.upload(
        .offer(version(5, parting: parting), .update("note", ["n1"], [("title", "earlier", "lost")])))
      try expectOffers(results, healed: 1)
      try await bench.expectRows("note", [["n1", "lost", "b"]])
    },
    healing("a device's ordinary change after the parting is such a write, the sender's own as well") {
      bench, parting in
      var anna = try await device(bench)
      try expectAccepted(try await anna.upload(.update("note", ["n1"], [("title", "a", "mine")])), 1)
      let results = try await anna.upload(
        .offer(version(5, parting: parting), .update("note", ["n1"], [("title", "a", "lost")])))
      try expectOffers(results, conflicts: 1)
      try await bench.expectRows("note", [["n1", "mine", "b"]])
      try await expectOpen(bench, ["update title=lost"])
    },
    healing("a column that came by an offer may be changed like any other, and stands against offers then") {
      bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      try expectOffers(try await anna.upload(.offer(version(5, parting: parting), note("n2", "old", "x"))), healed: 1)
      try await bert.download()
      try expectAccepted(try await bert.upload(.update("note", ["n2"], [("title", "old", "written")])), 1)
      let results = try await anna.upload(.offer(version(7, parting: parting), note("n2", "new", "y")))
      try expectOffers(results, conflicts: 1, healed: 1)
      try await bench.expectRows("note", [["n1", "a", "b"], ["n2", "written", "y"]])
      try await expectOpen(bench, ["update title=new"])
    },
    healing("the same offer twice changes nothing, whatever was written over it") { bench, parting in
      var anna = try await device(bench)
      var clone = try await device(bench, "bert")
      let offer = Sent.offer(version(5, parting: parting), note("n2", "lost"))
      try expectOffers(try await anna.upload(offer), healed: 1)
      try expectOffers(try await clone.upload(offer), superseded: 1)
      try await bench.write(.update("note", ["n2"], ["title": "written"]))
      try expectOffers(try await clone.upload(offer), superseded: 1)
      try await bench.expectRows("note", [["n1", "a", "b"], ["n2", "written", .null]])
      try await bench.write(.delete("note", ["n2"]))
      try expectOffers(try await clone.upload(offer), superseded: 1)
      try await bench.expectRows("note", [["n1", "a", "b"]])
      try await expectOpen(bench, [])
    },
    healing("an offer that became a conflict version is kept once") { bench, parting in
      var anna = try await device(bench)
      var clone = try await device(bench, "bert")
      try await bench.write(.update("note", ["n1"], ["title": "written"]))
      let offer = Sent.offer(version(5, parting: parting), .update("note", ["n1"], [("title", "a", "lost")]))
      try expectOffers(try await anna.upload(offer), conflicts: 1)
      try expectOffers(try await clone.upload(offer), superseded: 1)
      try await expectOpen(bench, ["update title=lost"])
    },
    healing("two values for one lost version: the first stands, the other is a conflict version") { bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      let version = version(5, parting: parting)
      try expectOffers(try await anna.upload(.offer(version, note("n2", "one"))), healed: 1)
      try expectOffers(try await bert.upload(.offer(version, note("n2", "two"))), conflicts: 1)
      try await bench.expectRows("note", [["n1", "a", "b"], ["n2", "one", .null]])
      try await expectOpen(bench, ["update title=two"])
      // Two claims that cannot both be true: the operator sees who made them.
      let found = try await bench.store.conflicts(after: 0, limit: 10, state: .open)
      try expectEqual(found.map { [$0.client.remote, $0.server.remote] }, [[bert.remote, anna.remote]], "the remotes")
    },
    healing("a version of a later incarnation is newer, whatever the numbers") { bench, parting in
      var anna = try await device(bench, lost: [early, late])
      var bert = try await device(bench, "bert", lost: [late])
      let old = version(9, of: early, parting: parting), new = version(3, of: late, parting: parting)
      try expectOffers(try await anna.upload(.offer(old, note("n2", "old"))), healed: 1)
      try expectOffers(try await bert.upload(.offer(new, note("n2", "new"))), healed: 1)
      try expectOffers(try await bert.upload(.offer(new, note("n3", "new"))), healed: 1)
      try expectOffers(try await anna.upload(.offer(old, note("n3", "old"))), superseded: 1)
      try await bench.expectRows("note", [["n1", "a", "b"], ["n2", "new", .null], ["n3", "new", .null]])
    },
    healing("the order of incarnations goes through others, and outlives a restart") { bench, parting in
      let first = try await device(bench, lost: [early, other])
      let second = try await device(bench, "bert", lost: [other, late])
      for var device in [first, second] {
        let results = try await device.upload(.offer(version(1, of: other, parting: parting), note("n9", "x")))
        try expectEqual(results.refused.count, 0, "the refusals")
      }
      try await bench.restart()
      var anna = try await device(bench, "cleo", lost: [late])
      var bert = try await device(bench, "dora", lost: [early])
      try expectOffers(
        try await anna.upload(.offer(version(1, of: late, parting: parting), note("n2", "late"))), healed: 1)
      try expectOffers(
        try await bert.upload(.offer(version(5, of: early, parting: parting), note("n2", "early"))), superseded: 1)
    },
    healing("where nobody can tell which incarnation lived later, the first stands and the other is a conflict version")
    {
      bench, parting in
      var anna = try await device(bench, lost: [early])
      var bert = try await device(bench, "bert", lost: [late])
      try expectOffers(try await anna.upload(.offer(version(5, parting: parting), note("n2", "one"))), healed: 1)
      let results = try await bert.upload(.offer(version(9, of: late, parting: parting), note("n2", "two", "x")))
      try expectOffers(results, conflicts: 1)
      try await expectOpen(bench, ["update title=two,body=x"])
      try await bert.download()
      try bert.expectReplica("note", [["n1", "a", "b"], ["n2", "one", .null]])
    },
    healing("incarnations whose order is told in a circle are unranked") { bench, parting in
      var anna = try await device(bench, lost: [early, late])
      var bert = try await device(bench, "bert", lost: [late, early])
      try expectOffers(try await anna.upload(.offer(version(5, parting: parting), note("n2", "one"))), healed: 1)
      let results = try await bert.upload(.offer(version(9, of: late, parting: parting), note("n2", "two")))
      try expectOffers(results, conflicts: 1)
      try await expectOpen(bench, ["update title=two"])
    },
    healing("columns that a waiting change wrote are an ordinary change, and the others are offered") {
      bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      let version = version(5, parting: parting)
      try expectOffers(
        try await anna.upload(.offer(version, note("n2", "mine", "lost"), written: ["title"])), healed: 1)
      // A newer version replaces what was offered, and not what was written.
      let results = try await bert.upload(
        .offer(Self.version(7, parting: parting), note("n2", "newer", "newer")))
      try expectOffers(results, conflicts: 1, healed: 1)
      try await bench.expectRows("note", [["n1", "a", "b"], ["n2", "mine", "newer"]])
      try await expectOpen(bench, ["update title=newer"])
    },
    healing("a waiting change meets the row that another device brought back") { bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      let version = version(5, parting: parting)
      try expectOffers(try await anna.upload(.offer(version, note("n2", "lost", "lost"))), healed: 1)
      let results = try await bert.upload(.offer(version, note("n2", "mine", "lost"), written: ["title"]))
      try expectAccepted(results, 1)
      try await bench.expectRows("note", [["n1", "a", "b"], ["n2", "mine", "lost"]])
      try await bert.download()
      try bert.expectReplica("note", [["n1", "a", "b"], ["n2", "mine", "lost"]])
    },
    healing("a waiting change of a row that was deleted after the parting is refused as any other") { bench, parting in
      var anna = try await device(bench)
      try await bench.write(.delete("note", ["n1"]))
      let results = try await anna.upload(
        .offer(version(5, parting: parting), note("n1", "mine", "lost"), written: ["title"]))
      try expectRefused(results, [1: .rowDeleted], accepted: 0)
      try await expectOpen(bench, [])
    },
  ]

  static let healingDeletes: [Case] = [
    healing(
      "a person's delete of a lost row stands over every offer of it, which becomes a conflict version"
    ) {
      bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      let version = version(5, parting: parting)
      let all = ["id", "title", "body"]
      try expectAccepted(try await anna.upload(.offer(version, .delete("note", ["n2"]), written: all)), 1)
      try expectOffers(try await bert.upload(.offer(version, note("n2", "theirs"))), conflicts: 1)
      try await bench.expectRows("note", [["n1", "a", "b"]])
      try await expectOpen(bench, ["insert id=n2,title=theirs,body=null"])
      try expectOffers(
        try await bert.upload(.offer(Self.version(7, parting: parting), note("n2", "newer"))), conflicts: 1)
      try await bench.restart()
      var cleo = try await device(bench, "cleo")
      try expectOffers(
        try await cleo.upload(.offer(Self.version(4, parting: parting), note("n2", "older"))), conflicts: 1)
      try await bench.expectRows("note", [["n1", "a", "b"]])
    },
    healing("such a delete has a commit: a restore that takes it can be told") { bench, parting in
      var anna = try await device(bench)
      let results = try await anna.upload(
        .offer(version(5, parting: parting), .delete("note", ["n2"]), written: ["id", "title", "body"]))
      try expectAccepted(results, 1)
      try expectEqual(results.superseded, 0, "the superseded offers")
      let commit = try expectSome(results.commit, "a commit")
      try expect(commit.number > parting, "the commit is a new one")
    },
    healing("in a group beside other changes such a delete stands, too") { bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      let version = version(5, parting: parting)
      try expectAccepted(
        try await anna.upload(
          .group([
            note("n3", "beside"), .offer(version, .delete("note", ["n2"]), written: ["id", "title", "body"]),
          ])), 1)
      try expectOffers(try await bert.upload(.offer(version, note("n2", "theirs"))), conflicts: 1)
      try await bench.expectRows("note", [["n1", "a", "b"], ["n3", "beside", .null]])
    },
    healing("a person's delete takes the row that another device has brought back") { bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      let version = version(5, parting: parting)
      try expectOffers(try await anna.upload(.offer(version, note("n2", "lost"))), healed: 1)
      try expectAccepted(
        try await bert.upload(.offer(version, .delete("note", ["n2"]), written: ["id", "title", "body"])), 1)
      try await bench.expectRows("note", [["n1", "a", "b"]])
      try await bench.restart()
      var cleo = try await device(bench, "cleo")
      _ = try await cleo.upload(.offer(version, note("n2", "lost")))
      try await bench.expectRows("note", [["n1", "a", "b"]])
    },
    healing("a person's delete of a row that a newer copy has after all is an ordinary one") { bench, parting in
      let before = bench.opening.incarnation
      try await bench.restart()
      try await bench.write(.insert("note", ["id": "n5", "title": "x"]))
      _ = try await bench.store.sweep()
      let version = LostVersion(incarnation: before, number: parting, parting: parting - 1)
      var anna = try await device(bench, lost: [before])
      let deletes = ["n1", "n7"].map { key in
        Sent.offer(version, .delete("note", [.text(key)]), written: ["id", "title", "body"])
      }
      try expectAccepted(try await anna.upload(deletes[0], deletes[1]), 2)
      try await bench.expectRows("note", [["n5", "x", .null]])
    },
    healing("a delete after the parting wins over offers, which become conflict versions") { bench, parting in
      var anna = try await device(bench)
      try await bench.write(.delete("note", ["n1"]))
      try expectOffers(
        try await anna.upload(.offer(version(5, parting: parting), note("n1", "lost", "b"))), conflicts: 1)
      try expectOffers(
        try await anna.upload(
          .offer(version(6, parting: parting), .update("note", ["n1"], [("title", "a", "lost")]))), conflicts: 1)
      try await bench.expectRows("note", [])
      try await expectOpen(bench, ["insert id=n1,title=lost,body=b", "update title=lost"])
      try await anna.download()
      try anna.expectReplica("note", [])
    },
    healing("an offered delete deletes a row that nobody wrote since, and older versions do not make it again") {
      bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      try expectOffers(
        try await anna.upload(.offer(version(6, parting: parting), .delete("note", ["n1"]))), healed: 1)
      try await bench.expectRows("note", [])
      try expectOffers(
        try await bert.upload(.offer(version(5, parting: parting), note("n1", "old"))), superseded: 1)
      try await bench.expectRows("note", [])
      try expectOffers(
        try await bert.upload(.offer(version(7, parting: parting), note("n1", "new"))), healed: 1)
      try await bench.expectRows("note", [["n1", "new", .null]])
      try expectOffers(
        try await anna.upload(.offer(version(6, parting: parting), .delete("note", ["n1"]))), superseded: 1)
      try await bench.expectRows("note", [["n1", "new", .null]])
      try await expectOpen(bench, [])
    },
    healing("an offered delete of a row that is not there keeps older versions away") { bench, parting in
      var anna = try await device(bench)
      try expectOffers(
        try await anna.upload(.offer(version(6, parting: parting), .delete("note", ["n2"]))), superseded: 1)
      try expectOffers(try await anna.upload(.offer(version(5, parting: parting), note("n2", "old"))), superseded: 1)
      try await bench.expectRows("note", [["n1", "a", "b"]])
    },
    healing("over a column that was written after the parting an offered delete does not win") { bench, parting in
      var anna = try await device(bench)
      try await bench.write(.update("note", ["n1"], ["body": "written"]))
      let results = try await anna.upload(.offer(version(5, parting: parting), .delete("note", ["n1"])))
      try expectOffers(results, conflicts: 1)
      try await bench.expectRows("note", [["n1", "a", "written"]])
      try await expectOpen(bench, ["delete "])
      try await anna.download()
      try anna.expectReplica("note", [["n1", "a", "written"]])
    },
    healing("an offered delete wins over an older offered column and loses to a newer one") { bench, parting in
      try await bench.write(.insert("note", ["id": "n2", "title": "a"]))
      let head = try await bench.store.sweep().number
      var anna = try await device(bench)
      func change(_ id: Value, _ number: Int64) -> Sent {
        .offer(version(number, parting: head), .update("note", [id], [("title", "a", "lost")]))
      }
      _ = try await anna.upload(change("n1", 5), change("n2", 7))
      let results = try await anna.upload(
        .offer(version(6, parting: head), .delete("note", ["n1"])),
        .offer(version(6, parting: head), .delete("note", ["n2"])))
      try expectOffers(results, accepted: 2, healed: 1, superseded: 1)
      try await bench.expectRows("note", [["n2", "lost", .null]])
    },
    healing("an offered delete of a row that others need is a conflict version", ContractSchemas.inspections) {
      bench, _ in
      try await bench.write(.insert("establishment", ["id": "e1", "name": "x", "region": "EU"]))
      let parting = try await bench.store.sweep().number
      try await bench.write(.insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d"]))
      var anna = try await device(bench)
      let results = try await anna.upload(.offer(version(5, parting: parting), .delete("establishment", ["e1"])))
      try expectOffers(results, conflicts: 1)
      try await bench.expectRows("establishment", [["e1", "x", "EU"]])
      try await expectOpen(bench, ["delete "])
    },
    healing(
      "a row whose parent is lost comes with it, in whatever order, and waits without it",
      ContractSchemas.inspections
    ) { bench, parting in
      var anna = try await device(bench)
      let child = Sent.offer(
        version(5, parting: parting),
        .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d", "inspector": .null]))
      let parent = Sent.offer(
        version(4, parting: parting), .insert("establishment", ["id": "e1", "name": "x", "region": "EU"]))
      try expectEqual(try await anna.upload(child).waiting, [1...1], "what waits")
      try expectOffers(try await anna.upload(child, parent), accepted: 2, healed: 2)
      try await bench.expectRows("inspection", [["i1", "e1", "d", .null]])
    },
    healing("what its sender may not write today is refused, offered or not", ContractSchemas.inspections) {
      bench, parting in
      var anna = try await device(bench, parameters: ["region": ["EU"]])
      let results = try await anna.upload(
        .offer(version(5, parting: parting), .insert("establishment", ["id": "e1", "name": "x", "region": "US"])),
        .offer(version(5, parting: parting), .insert("severity", ["id": 1, "name": "x"])),
        .offer(version(5, parting: parting), .insert("nothing", ["id": 1])),
        .offer(version(5, parting: parting), .insert("establishment", ["id": "e2", "name": 7, "region": "EU"])))
      try expectRefused(
        results, [1: .outOfScope, 2: .serverMaintained, 3: .unknownTable, 4: .notStorable], accepted: 0)
    },
    healing(
      "nor is it kept as a conflict version that was lost: nobody settles for what its sender may not write",
      ContractSchemas.inspections
    ) { bench, parting in
      try await bench.write(
        .insert("establishment", ["id": "u1", "name": "x", "region": "US"]),
        .insert("establishment", ["id": "e1", "name": "x", "region": "EU"]))
      var anna = try await device(bench, parameters: ["region": ["EU"]])
      let offer = Offer(version(5, parting: parting), isVersion: true)
      let results = try await anna.upload(
        .offered(offer, .insert("establishment", ["id": "e2", "name": "x", "region": "US"])),
        .offered(offer, .update("establishment", ["e1"], [("region", "EU", "US")])),
        .offered(
          offer, .insert("inspection", ["id": "i1", "establishment_id": "u1", "date": "d", "inspector": .null])),
        .offered(
          offer, .insert("inspection", ["id": "i2", "establishment_id": "gone", "date": "d", "inspector": .null])))
      try expectRefused(results, [1: .outOfScope, 2: .outOfScope, 3: .missingParent], accepted: 1)
      let open = try await bench.store.conflicts(after: 0, limit: 10, state: .open)
      try expectEqual(open.map(\.key), [["i2"]], "the open conflict versions")
    },
    healing(
      "an offer whose unique value another row has is a conflict version, and others go on",
      ContractSchemas.notes(unique: [["title"]])
    ) { bench, parting in
      var anna = try await device(bench)
      let results = try await anna.upload(
        .offer(version(5, parting: parting), note("n2", "a")), .offer(version(5, parting: parting), note("n3", "c")))
      try expectOffers(results, accepted: 2, conflicts: 1, healed: 1)
      try await bench.expectRows("note", [["n1", "a", "b"], ["n3", "c", .null]])
      try await expectOpen(bench, ["insert id=n2,title=a,body=null"])
    },
    healing(
      "a drawn key that another row has taken after the parting: the offer is a conflict version", ContractSchemas.seats
    ) { bench, parting in
      var anna = try await device(bench)
      try await bench.write(.insert("seat", ["id": 1, "place": 7]))
      let results = try await anna.upload(
        .offer(version(5, parting: parting), .insert("seat", ["id": 1, "place": 8, "seats": 2])))
      try expectOffers(results, conflicts: 1)
      try await bench.expectRows("seat", [[1, 7, 1]])
      try await expectOpen(bench, ["insert id=1,place=8,seats=2"])
    },
  ]

  static let healingBounds: [Case] = [
    healing("an offer of a commit that the server has, or cannot have lost, is refused") { bench, parting in
      let before = bench.opening.incarnation
      try await bench.restart()
      try await bench.write(.insert("note", ["id": "n5", "title": "x"]))
      let head = try await bench.store.sweep().number
      var anna = try await device(bench, lost: [early, before, bench.opening.incarnation])
      let results = try await anna.upload(
        .offer(LostVersion(incarnation: before, number: parting, parting: parting - 1), note("n2", "c")),
        .offer(version(1, parting: head + 1), note("n3", "c")),
        .offer(LostVersion(incarnation: bench.opening.incarnation, number: head + 1, parting: head), note("n4", "c")),
        .offer(LostVersion(incarnation: before, number: parting + 1, parting: parting), note("n6", "c")))
      try expectRefused(results, [1: .notLost, 2: .notLost, 3: .notLost], accepted: 1)
      try await bench.expectRows("note", [["n1", "a", "b"], ["n5", "x", .null], ["n6", "c", .null]])
    },
    healing(
      "an offer of a row of which another change is refused goes on",
      ContractSchemas.notes(conflicts: ContractPolicies.serverWins)
    ) { bench, parting in
      var anna = try await device(bench)
      try await bench.write(.update("note", ["n1"], ["body": "theirs"]))
      _ = try await bench.store.sweep()
      let results = try await anna.upload(
        .update("note", ["n1"], [("body", "b", "mine")]),
        .offer(version(5, parting: parting), .update("note", ["n1"], [("title", "a", "lost")])), made: parting)
      try expectRefused(results, [1: .conflict], accepted: 1)
      try expectEqual(results.healed, 1, "the healed offers")
      try await bench.expectRows("note", [["n1", "lost", "theirs"]])
    },
    healing("what a device wrote upon a row that a newer copy has after all is an ordinary change of these columns") {
      bench, parting in
      let before = bench.opening.incarnation
      try await bench.restart()
      try await bench.write(.update("note", ["n1"], ["body": "theirs"]))
      _ = try await bench.store.sweep()
      let version = LostVersion(incarnation: before, number: parting, parting: parting - 1)
      var anna = try await device(bench, lost: [before])
      try expectOffers(try await anna.upload(.offer(version, note("n1", "mine", "b"), written: ["title"])))
      try await bench.expectRows("note", [["n1", "mine", "theirs"]])
      // Somebody else has written the column since that version: it is a conflict.
      var bert = try await device(bench, "bert", lost: [before])
      try expectOffers(
        try await bert.upload(.offer(version, note("n1", "his", "b"), written: ["title"])), conflicts: 1)
      try await bench.expectRows("note", [["n1", "his", "theirs"]])
      try await bench.write(.delete("note", ["n1"]))
      _ = try await bench.store.sweep()
      var cleo = try await device(bench, "cleo", lost: [before])
      try expectRefused(
        try await cleo.upload(.offer(version, note("n1", "hers", "b"), written: ["title"])), [1: .rowDeleted],
        accepted: 0)
      try await bench.expectRows("note", [])
    },
    healing("ranks and written columns outlive a restart") { bench, parting in
      var anna = try await device(bench)
      _ = try await anna.upload(
        .offer(version(5, parting: parting), .update("note", ["n1"], [("title", "a", "lost")])))
      try await bench.write(.update("note", ["n1"], ["body": "written"]))
      try await bench.restart()
      var bert = try await device(bench, "bert")
      let results = try await bert.upload(
        .offer(
          version(4, parting: parting), .update("note", ["n1"], [("title", "a", "older"), ("body", "b", "older")])))
      try expectOffers(results, conflicts: 1)
      try await bench.expectRows("note", [["n1", "lost", "written"]])
      try await expectOpen(bench, ["update body=older"])
    },
    healing("who parted before what the log still has finds every column written") { bench, parting in
      try await bench.write(.insert("note", ["id": "n7", "title": "x"]))
      _ = try await bench.store.sweep()
      try await bench.store.trim(before: .max)
      var anna = try await device(bench)
      let results = try await anna.upload(
        .offer(version(5, parting: parting - 1), .update("note", ["n1"], [("title", "a", "lost")])))
      try expectOffers(results, conflicts: 1)
      try await bench.expectRows("note", [["n1", "a", "b"], ["n7", "x", .null]])
    },
    healing("a purged row comes back by no offer, and what was known of its versions is gone") { bench, parting in
      guard let store = bench.store as? any PurgingServerStore else { return }
      var anna = try await device(bench)
      let offer = Sent.offer(version(5, parting: parting), note("n2", "lost"))
      try expectOffers(try await anna.upload(offer), healed: 1)
      _ = try await store.purge([["n2"]], of: "note")
      try expectRefused(try await anna.upload(offer), [2: .purged], accepted: 0)
      try await bench.expectRows("note", [["n1", "a", "b"]])
    },
    healing("the answer to an upload of offers is recorded, and repeated") { bench, parting in
      var anna = try await device(bench)
      let chunk = anna.chunk([.offer(version(5, parting: parting), note("n2", "lost"))])
      let sequence = SequenceID(from: SystemRandom())
      let results = try await anna.process([chunk], as: sequence)
      try expectOffers(results, healed: 1)
      try expectEqual(try await anna.process([chunk], as: sequence), results, "the answer to the same upload")
      try await bench.restart()
      try expectEqual(
        try await bench.store.results(anna.remote, sequence: sequence), results, "the recorded answer")
    },
    Case("what a restore has lost comes back, and what is lost again comes back again", rule: "semantics 10") {
      subject in
      guard subject.makeRestorable != nil else { return }
      var bench = try await ServerBench(subject, ContractSchemas.notes())
      guard bench.store is any HealingServerStore else { return await bench.close() }
      try await bench.write(.insert("note", ["id": "n1", "title": "a", "body": "b"]))
      let parting = try await bench.store.sweep().number
      try await bench.copy(to: 0)
      let first = bench.opening.incarnation
      try await bench.write(.update("note", ["n1"], ["title": "lost"]))
      let lost = try await bench.store.sweep().number
      try await bench.putBack(from: 0)
      func offer(_ incarnation: IncarnationID, _ number: Int64, _ title: Value) -> Sent {
        .offer(
          LostVersion(incarnation: incarnation, number: number, parting: parting),
          .update("note", ["n1"], [("title", "a", title)]))
      }
      var anna = try await device(bench, lost: [first])
      let results = try await anna.upload(offer(first, lost, "lost"))
      try expectOffers(results, healed: 1)
      let healed = try expectSome(results.commit, "a commit of the present incarnation")
      let second = bench.opening.incarnation
      try await bench.putBack(from: 0)
      // The healing is lost as well: the device's row is of its commit now, and wins over older ones of before.
      var bert = try await device(bench, "bert", lost: [first])
      try expectOffers(try await bert.upload(offer(first, lost + 1, "older timeline")), healed: 1)
      var again = try await device(bench, "cleo", lost: [first, second])
      again.apartFrom = LostNeighbours.allApart
      // Nobody there had seen what it takes the place of: that is listed.
      try expectOffers(try await again.upload(offer(second, healed.number, "lost")), conflicts: 1, healed: 1)
      try await bench.expectRows("note", [["n1", "lost", "b"]])
      let settled = try await bench.store.conflicts(after: 0, limit: 10, state: .settled)
      try expectEqual(
        settled.map { $0.server.row?.first { $0.name == "title" }?.value }, ["older timeline"],
        "the values that were overwritten")
      await bench.close()
    },
  ]
}
