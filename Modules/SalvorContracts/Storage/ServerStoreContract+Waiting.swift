import SalvorModel
import SalvorStorage

/// Offers that wait: for a parent, for the operator, while healing is paused (semantics 10, `HealingServerStore`).
extension ServerStoreContract {
  /// The store, as far as it holds offers.
  private static func holding(_ bench: ServerBench) throws -> any HealingServerStore {
    guard let store = bench.store as? any HealingServerStore else { throw ContractFailure("the store takes no offers") }
    return store
  }

  private static func expectWaiting(
    _ bench: ServerBench, _ wanted: [String], file: String = #fileID, line: Int = #line
  ) async throws {
    let found = try await holding(bench).waitingOffers(WaitingQuery(), after: 0, limit: 100)
    let texts = found.map { offer in
      let key = offer.key.map(\.description).joined(separator: ",")
      return "\(offer.operation.rawValue) \(offer.table) \(key) \(offer.reason.rawValue)"
    }
    try expectEqual(texts, wanted, "what waits", file: file, line: line)
  }

  static let healingWaiting: [Case] = [
    healing("an offered child waits for its parent, named, and is settled when that comes", ContractSchemas.tree) {
      bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      let child = Sent.insert("leaf", ["id": "l1", "node": "n1", "kept": .null])
      let results = try await anna.upload(
        .offer(version(5, parting: parting), child), .insert("leaf", ["id": "l2", "node": .null, "kept": .null]))
      try expectAccepted(results, 1)
      try expectEqual(results.waiting, [1...1], "what waits of the upload")
      try await expectWaiting(bench, ["insert leaf l1 parent"])
      let waiting = try await holding(bench).waitingOffers(WaitingQuery(), after: 0, limit: 10)
      try expectEqual(waiting.first?.parent, WaitingOffer.ParentRow(table: "node", key: ["n1"]), "the parent")
      try expectEqual(waiting.first?.present, nil, "the row as it is now")
      // Another device brings the parent.
      let parent = Sent.insert("node", ["id": "n1", "parent": .null, "label": "x"])
      try expectOffers(try await bert.upload(.offer(version(4, parting: parting), parent)), healed: 1)
      try await expectWaiting(bench, [])
      try await bench.expectRows("leaf", [["l1", "n1", .null], ["l2", .null, .null]])
      try await bert.download()
      try bert.expectReplica("leaf", [["l1", "n1", .null], ["l2", .null, .null]])
    },
    healing(
      "a parent that another program makes ends the waiting as well, and so through a whole tree", ContractSchemas.tree
    ) {
      bench, parting in
      var anna = try await device(bench)
      let results = try await anna.upload(
        .offer(version(1, parting: parting), .insert("node", ["id": "n2", "parent": "n1", "label": .null])),
        .offer(version(2, parting: parting), .insert("leaf", ["id": "l1", "node": "n2", "kept": .null])))
      try expectAccepted(results, 0)
      try expectEqual(results.waiting, [1...2], "what waits of the upload")
      try await bench.write(.insert("node", ["id": "n1"]))
      try await holding(bench).settleWaitingOffers()
      try await expectWaiting(bench, [])
      try await bench.expectRows("leaf", [["l1", "n2", .null]])
    },
    healing("an offered child does not wait for a parent that was erased for good: it is refused", ContractSchemas.tree)
    {
      bench, parting in
      guard let store = bench.store as? any PurgingServerStore else { return }
      var anna = try await device(bench)
      let child = Sent.insert("leaf", ["id": "l1", "node": "n1", "kept": .null])
      try expectEqual(
        try await anna.upload(.offer(version(5, parting: parting), child)).waiting, [1...1], "what waits")
      try await bench.write(.insert("node", ["id": "n2"]))
      _ = try await store.purge([["n2"]], of: "node")
      let other = Sent.insert("leaf", ["id": "l2", "node": "n2", "kept": .null])
      try expectRefused(
        try await anna.upload(.offer(version(5, parting: parting), other)), [2: .missingParent], accepted: 0)
      try await expectWaiting(bench, ["insert leaf l1 parent"])
    },
    healing("what waits outlives a restart, and sent again it waits once", ContractSchemas.tree) { bench, parting in
      var anna = try await device(bench)
      let offer = Sent.offer(version(5, parting: parting), .insert("leaf", ["id": "l1", "node": "n1", "kept": .null]))
      let (stamp, counter) = (anna.stamp, anna.counter)
      _ = try await anna.upload(offer)
      try await bench.restart()
      anna = bench.following(anna)
      anna.lost = [early]
      (anna.stamp, anna.counter) = (stamp, counter)
      try expectEqual(try await anna.upload(offer).waiting, [1...1], "what waits of the same upload")
      try await expectWaiting(bench, ["insert leaf l1 parent"])
      try await bench.write(.insert("node", ["id": "n1"]))
      try await holding(bench).settleWaitingOffers()
      (anna.stamp, anna.counter) = (stamp, counter)
      try expectAccepted(try await anna.upload(offer), 1)
      try await bench.expectRows("leaf", [["l1", "n1", .null]])
    },
    healing("an ordinary change that depends on an offer that waits stays with its device", ContractSchemas.tree) {
      bench, parting in
      var anna = try await device(bench)
      let results = try await anna.upload(
        .offer(version(1, parting: parting), .insert("node", ["id": "n2", "parent": "n1", "label": .null])),
        .insert("leaf", ["id": "l1", "node": "n2", "kept": .null]))
      try expectAccepted(results, 0)
      try expectEqual(results.waiting, [1...2], "what waits of the upload")
      try await expectWaiting(bench, ["insert node n2 parent"])
    },
    healing("what has waited for longer than the retention becomes a conflict version", ContractSchemas.tree) {
      bench, parting in
      var anna = try await device(bench)
      _ = try await anna.upload(
        .offer(version(5, parting: parting), .insert("leaf", ["id": "l1", "node": "n1", "kept": .null])))
      try await bench.store.trim(before: .max)
      try await expectWaiting(bench, [])
      try await expectOpen(bench, ["insert id=l1,node=n1,kept=null"])
    },
    healing("an offer for review waits for the operator, who accepts it") { bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      let results = try await anna.upload(
        .offered(Offer(version(5, parting: parting), isForReview: true), note("n2", "lost")),
        .offered(
          Offer(version(5, parting: parting), isForReview: true),
          .update("note", ["n1"], [("title", "a", "lost"), ("body", "b", "b")])))
      try expectAccepted(results, 0)
      try expectEqual(results.waiting, [1...2], "what waits of the upload")
      try await bench.expectRows("note", [["n1", "a", "b"]])
      let listed = try await holding(bench).waitingOffers(WaitingQuery(table: "note"), after: 0, limit: 10)
      try expectEqual(
        listed.last?.present,
        [NamedValue("id", "n1"), NamedValue("title", "a"), NamedValue("body", "b")], "the row as it is now")
      try expectEqual(try await holding(bench).acceptOffers(WaitingQuery(table: "other")), 0, "what another table has")
      try expectEqual(try await holding(bench).acceptOffers(WaitingQuery(table: "note")), 2, "what was accepted")
      try await bench.expectRows("note", [["n1", "lost", "b"], ["n2", "lost", .null]])
      try await expectWaiting(bench, [])
      for var device in [anna, bert] {
        try await device.download()
        try device.expectReplica("note", [["n1", "lost", "b"], ["n2", "lost", .null]])
      }
      bert.lost = [early]
      let older = try await bert.upload(.offer(version(4, parting: parting), note("n2", "older")))
      try expectOffers(older, superseded: 1)
    },
    healing("a lost row that comes with a change upon it waits with that change, and both come when it is accepted") {
      bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      func made(_ key: String) -> Sent {
        .offered(
          Offer(version(5, parting: parting), written: ["title"], isForReview: true), note(key, "changed", "lost"))
      }
      let results = try await anna.upload(made("n2"), .update("note", ["n2"], [("body", "lost", "later")]))
      try expectAccepted(results, 0)
      try expectEqual(results.waiting, [1...2], "what waits of the upload")
      try await expectWaiting(bench, ["insert note n2 review"])
      try await bench.expectRows("note", [["n1", "a", "b"]])
      try expectEqual(try await holding(bench).acceptOffers(WaitingQuery()), 1, "what was accepted")
      try await expectWaiting(bench, [])
      try await bench.expectRows("note", [["n1", "a", "b"], ["n2", "changed", "lost"]])
      // Of the column that was written since a newer version does not take the place.
      bert.lost = [early]
      _ = try await bert.upload(.offer(version(6, parting: parting), note("n2", "newer", "newer")))
      try await bench.expectRows("note", [["n1", "a", "b"], ["n2", "changed", "newer"]])
      // Where the row is there, and nothing would be brought back, the change goes on.
      try expectAccepted(try await anna.upload(made("n2")), 1)
    },
    healing("one of several changes in a request cannot be held: the request is refused, in words that say so") {
      bench, parting in
      var anna = try await device(bench)
      let offer = Offer(version(5, parting: parting), written: ["title"], isForReview: true)
      let results = try await anna.upload(.group([.offered(offer, note("n2", "changed", "lost")), note("n3", "new")]))
      try expectRefused(results, [1: .rowDeleted], accepted: 0)
      try await expectWaiting(bench, [])
      try await bench.expectRows("note", [["n1", "a", "b"]])
    },
    healing(
      "a row that comes with a change waits for a parent that it had, and is refused for one that the change names",
      ContractSchemas.tree
    ) { bench, parting in
      try await bench.write(.insert("node", ["id": "n0"]))
      var anna = try await device(bench)
      let leaf = Sent.insert("leaf", ["id": "l1", "node": "n1", "kept": "n0"])
      let other = Sent.insert("leaf", ["id": "l2", "node": "n1", "kept": .null])
      let results = try await anna.upload(
        .offer(version(5, parting: parting), leaf, written: ["kept"]),
        .offer(version(5, parting: parting), other, written: ["node"]))
      try expectRefused(results, [2: .missingParent], accepted: 0)
      try expectEqual(results.waiting, [1...1], "what waits of the upload")
      try await expectWaiting(bench, ["insert leaf l1 parent"])
      try await bench.write(.insert("node", ["id": "n1"]))
      try await holding(bench).settleWaitingOffers()
      try await bench.expectRows("leaf", [["l1", "n1", "n0"]])
    },
    healing("the deletes that wait are counted for themselves, each remote's") { bench, parting in
      try await bench.write(.insert("note", ["id": "n2", "title": "b"]), .insert("note", ["id": "n3", "title": "c"]))
      var anna = try await device(bench)
      let bert = try await device(bench, "bert")
      func delete(_ id: Value) -> Sent {
        .offered(Offer(version(5, parting: parting + 1), isForReview: true), .delete("note", [id]))
      }
      func counts(_ device: Device) async throws -> [Int64?] {
        let admission = try await bench.store.admit(
          AdmissionQuery(remote: device.remote, previous: nil, current: nil, cursors: []))
        return [admission.waitingOffers, admission.waitingDeletes]
      }
      _ = try await anna.upload(
        delete("n2"), delete("n3"),
        .offered(Offer(version(5, parting: parting + 1), isForReview: true), note("n4", "lost")))
      try expectEqual(try await counts(anna), [1, 2], "what waits: others, deletes")
      try expectEqual(try await counts(bert), [0, 0], "what waits of another remote")
      try expectEqual(try await holding(bench).acceptOffers(WaitingQuery()), 3, "what was accepted")
      try expectEqual(try await counts(anna), [0, 0], "what waits then")
    },
    healing("what a device offered is its own, also where it waited: its delete of the row is no conflict") {
      bench, parting in
      var anna = try await device(bench)
      _ = try await anna.upload(.offered(Offer(version(5, parting: parting), isForReview: true), note("n2", "lost")))
      try expectEqual(try await holding(bench).acceptOffers(WaitingQuery()), 1, "what was accepted")
      try expectAccepted(try await anna.upload(.delete("note", ["n2"]), made: parting), 1)
      try await bench.expectRows("note", [["n1", "a", "b"]])
      // Another device has not seen it.
      _ = try await anna.upload(.offered(Offer(version(6, parting: parting), isForReview: true), note("n3", "lost")))
      try expectEqual(try await holding(bench).acceptOffers(WaitingQuery()), 1, "what was accepted")
      var bert = try await device(bench, "bert")
      try expectAccepted(try await bert.upload(.delete("note", ["n3"]), made: parting), 1, conflicts: 1)
    },
    healing("an offer that waits goes on under the new names of its table and its columns") { bench, parting in
      var anna = try await device(bench)
      _ = try await anna.upload(
        .offered(Offer(version(5, parting: parting), isForReview: true), note("n2", "lost")),
        .offered(
          Offer(version(5, parting: parting), isForReview: true),
          .update("note", ["n1"], [("title", "a", "lost"), ("body", "b", "b")])))
      try await bench.evolve(to: ContractSchemas.memos)
      try await expectWaiting(bench, ["insert memo n2 review", "update memo n1 review"])
      let listed = try await holding(bench).waitingOffers(WaitingQuery(table: "memo"), after: 0, limit: 10)
      try expectEqual(
        listed.first?.values, [NamedValue("id", "n2"), NamedValue("heading", "lost"), NamedValue("body", .null)],
        "the values of the first")
      try expectEqual(try await holding(bench).acceptOffers(WaitingQuery()), 2, "what was accepted")
      try await bench.expectRows("memo", [["n1", "lost", "b"], ["n2", "lost", .null]])
      try await expectWaiting(bench, [])
    },
    healing("a rejected offer changes nothing, and its device is told when it sends it again") { bench, parting in
      var anna = try await device(bench)
      let offer = Sent.offered(Offer(version(5, parting: parting), isForReview: true), note("n2", "lost"))
      let (stamp, counter) = (anna.stamp, anna.counter)
      _ = try await anna.upload(offer)
      try expectEqual(try await holding(bench).rejectOffers(WaitingQuery(remote: anna.remote)), 1, "what was rejected")
      (anna.stamp, anna.counter) = (stamp, counter)
      try expectRefused(try await anna.upload(offer), [1: .rejected], accepted: 0)
      try await bench.expectRows("note", [["n1", "a", "b"]])
      try await expectWaiting(bench, [])
    },
    healing("what waits because healing is paused is rejected, too, and does not come when it goes on") {
      bench, parting in
      var anna = try await device(bench)
      try await holding(bench).setHealPace(HealPace(isPaused: true))
      _ = try await anna.upload(.offer(version(5, parting: parting), note("n2", "lost")))
      try expectEqual(try await holding(bench).rejectOffers(WaitingQuery()), 1, "what was rejected")
      try await expectWaiting(bench, [])
      try await holding(bench).setHealPace(HealPace())
      try await bench.expectRows("note", [["n1", "a", "b"]])
    },
    healing("a remote takes back its own offers, and nobody else's; what was settled stays") { bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      func offer(_ key: String) -> Sent {
        .offered(Offer(version(5, parting: parting), isForReview: true), note(key, "lost"))
      }
      let (mine, first) = (anna.stamp, 1 as Int64)
      _ = try await anna.upload(offer("n2"), offer("n3"))
      let (theirs, other) = (bert.stamp, 1 as Int64)
      _ = try await bert.upload(offer("n4"))
      try expectEqual(
        try await holding(bench).withdrawOffers(
          [RequestID(stamp: mine, counter: first), RequestID(stamp: theirs, counter: other)], of: anna.remote), 1,
        "what had waited")
      try await expectWaiting(bench, ["insert note n3 review", "insert note n4 review"])
      for id in [first, first + 7] {
        try expectEqual(
          try await holding(bench).withdrawOffers([RequestID(stamp: mine, counter: id)], of: anna.remote), 0,
          "what does not wait")
      }
      try expectEqual(try await holding(bench).acceptOffers(WaitingQuery()), 2, "what was accepted")
      try expectEqual(
        try await holding(bench).withdrawOffers([RequestID(stamp: mine, counter: first + 1)], of: anna.remote), 0,
        "what was settled")
      try await bench.expectRows("note", [["n1", "a", "b"], ["n3", "lost", .null], ["n4", "lost", .null]])
    },
    healing("where healing is paused every offer that would change something waits, until it goes on") {
      bench, parting in
      var anna = try await device(bench)
      try await holding(bench).setHealPace(HealPace(isPaused: true))
      let results = try await anna.upload(
        .offer(version(5, parting: parting), note("n2", "lost")), note("n3", "mine"),
        .offer(version(5, parting: parting), .delete("note", ["n9"])))
      try expectAccepted(results, 2)
      try expectEqual(results.waiting, [1...1], "what waits of the upload")
      try await bench.restart()
      try expectEqual(try await holding(bench).healPace(), HealPace(isPaused: true), "the pace after a restart")
      try await expectWaiting(bench, ["insert note n2 paused"])
      try await holding(bench).setHealPace(HealPace())
      try await bench.expectRows("note", [["n1", "a", "b"], ["n2", "lost", .null], ["n3", "mine", .null]])
    },
    healing("a purged row does not wait any more") { bench, parting in
      guard let store = bench.store as? any PurgingServerStore else { return }
      var anna = try await device(bench)
      _ = try await anna.upload(
        .offered(Offer(version(5, parting: parting), isForReview: true), note("n2", "lost")))
      _ = try await store.purge([["n2"]], of: "note")
      try await expectWaiting(bench, [])
    },
    healing(
      "a conflict version that the server lost becomes one again, once, whatever its row is",
      ContractSchemas.notes(conflicts: ContractPolicies.keepVersions)
    ) { bench, parting in
      var anna = try await device(bench)
      let offer = Offer(version(5, parting: parting), isVersion: true)
      let change = Sent.update("note", ["n1"], [("title", "x", "mine")])
      try expectOffers(try await anna.upload(.offered(offer, change)), conflicts: 1)
      try await bench.expectRows("note", [["n1", "a", "b"]])
      try await expectOpen(bench, ["update title=mine"])
      try expectOffers(try await anna.upload(.offered(offer, change)), superseded: 1)
      try await expectOpen(bench, ["update title=mine"])
    },
    healing(
      "who sends conflict versions again is told what their rows are",
      ContractSchemas.notes(conflicts: ContractPolicies.keepVersions)
    ) { bench, parting in
      var anna = try await device(bench)
      try await anna.download()
      let offer = Offer(version(5, parting: parting), isVersion: true)
      let results = try await anna.upload(
        .offered(offer, .update("note", ["n1"], [("title", "x", "mine")])), .offered(offer, .delete("note", ["n9"])))
      try expectOffers(results, accepted: 2, conflicts: 2)
      try await anna.download()
      try expectEqual(anna.items.count, 2, "the rows that are fed")
      try anna.expectReplica("note", [["n1", "a", "b"]])
    },
    healing(
      "the answer names the requests that are kept as conflict versions",
      ContractSchemas.notes(conflicts: ContractPolicies.keepVersions)
    ) { bench, _ in
      var anna = try await device(bench)
      try await anna.download()
      try await bench.write(.update("note", ["n1"], ["title": "theirs"]))
      let results = try await anna.upload(
        .update("note", ["n1"], [("body", "b", "c")]), .update("note", ["n1"], [("title", "a", "mine")]),
        note("n2", "new"))
      try expectAccepted(results, 3, conflicts: 1)
      try expectEqual(results.kept, [2], "the kept requests")
    },
  ]
}
