import SalvorModel
import SalvorStorage

/// Offers of several histories: a server was restored, and restored again (semantics 10, *Rank*).
extension ServerStoreContract {
  static let lostTwice: [Case] = [
    healing("a value of a later history takes the place of an earlier one's, whoever comes first, and both are there") {
      bench, parting in
      var anna = try await device(bench, lost: [early, late])
      anna.apartFrom = LostNeighbours.allApart
      func offer(_ incarnation: IncarnationID, _ id: Value, _ title: Value) -> Sent {
        .offer(
          version(5, of: incarnation, parting: parting), .insert("note", ["id": id, "title": title, "body": .null]))
      }
      try expectOffers(
        try await anna.upload(offer(late, "n2", "later"), offer(early, "n3", "earlier")), accepted: 2, healed: 2)
      try expectOffers(
        try await anna.upload(offer(early, "n2", "earlier"), offer(late, "n3", "later")), accepted: 2, conflicts: 2,
        healed: 1)
      try await bench.expectRows("note", [["n1", "a", "b"], ["n2", "later", .null], ["n3", "later", .null]])
      try await expectOpen(bench, ["update title=earlier"])
      let settled = try await bench.store.conflicts(after: 0, limit: 10, state: .settled)
      try expectEqual(settled.map(\.key), [["n3"]], "the rows with a value that was overwritten")
    },
    healing("a version that was given back, and lost again, is as old as when it was made") { bench, parting in
      var anna = try await device(bench, lost: [early, late])
      anna.apartFrom = LostNeighbours.allApart
      var bert = try await device(bench, "bert", lost: [early])
      func again(_ number: Int64) -> LostVersion {
        var version = version(2, of: late, parting: parting)
        version.origin = LostVersion.Origin(incarnation: early, number: parting + number)
        return version
      }
      // Made at 5 and given back in the later history; another device wrote upon it at 6, and was not there then.
      try expectOffers(
        try await anna.upload(.offer(again(5), note("n2", "older")), .offer(again(5), note("n3", "older"))),
        accepted: 2, healed: 2)
      try expectOffers(try await bert.upload(.offer(version(6, parting: parting), note("n2", "newer"))), healed: 1)
      try expectOffers(try await bert.upload(.offer(version(4, parting: parting), note("n3", "oldest"))), superseded: 1)
      try expectOffers(try await anna.upload(.offer(again(5), note("n2", "older"))), superseded: 1)
      try await bench.expectRows("note", [["n1", "a", "b"], ["n2", "newer", .null], ["n3", "older", .null]])
      // Who wrote in the later history upon what was given back there is newer than that.
      try expectOffers(
        try await anna.upload(.offer(version(3, of: late, parting: parting), note("n3", "written there"))),
        conflicts: 1, healed: 1)
      try expectOffers(try await anna.upload(.offer(again(5), note("n3", "older"))), superseded: 1)
      try await expectOpen(bench, [])
    },
    healing("of two histories that are one up to a commit, those after it are apart, and those before it are not") {
      bench, parting in
      var anna = try await device(bench, lost: [early, late])
      anna.apartFrom = parting + 6
      // Another device was told of the two before anybody knew the number.
      var bert = try await device(bench, "bert", lost: [early, late])
      bert.apartFrom = LostNeighbours.allApart
      func offer(_ incarnation: IncarnationID, _ number: Int64, _ id: String, _ title: Value) -> Sent {
        .offer(version(number, of: incarnation, parting: parting), note(id, title))
      }
      try expectOffers(
        try await anna.upload(
          offer(late, 7, "n2", "later"), offer(early, 5, "n3", "seen"), offer(early, 6, "n4", "unseen")),
        accepted: 3, healed: 3)
      try expectOffers(try await bert.upload(offer(early, 5, "n2", "seen")), superseded: 1)
      try expectOffers(try await bert.upload(offer(early, 6, "n2", "unseen")), conflicts: 1)
      try expectOffers(
        try await anna.upload(offer(late, 7, "n3", "later"), offer(late, 7, "n4", "later")), accepted: 2, conflicts: 1,
        healed: 2)
      try await bench.expectRows(
        "note", [["n1", "a", "b"], ["n2", "later", .null], ["n3", "later", .null], ["n4", "later", .null]])
      let settled = try await bench.store.conflicts(after: 0, limit: 10, state: .settled)
      try expectEqual(settled.map(\.key), [["n4"]], "the rows with a value that was overwritten")
    },
    healing("what a newer copy of the server has by its origin is not lost") { bench, parting in
      let before = bench.opening.incarnation
      try await bench.restart()
      try await bench.write(.insert("note", ["id": "n5", "title": "x"]))
      _ = try await bench.store.sweep()
      var anna = try await device(bench, lost: [late, before])
      var version = version(2, of: late, parting: parting - 1)
      version.origin = LostVersion.Origin(incarnation: before, number: parting)
      try expectRefused(try await anna.upload(.offer(version, note("n1", "other"))), [1: .notLost], accepted: 0)
      try await bench.expectRows("note", [["n1", "a", "b"], ["n5", "x", .null]])
    },
  ]
}
