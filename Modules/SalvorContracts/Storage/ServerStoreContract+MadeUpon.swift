import SalvorModel
import SalvorStorage

/// Ordinary changes that were made upon a version that the server lost: that version is superseded, whoever offers it (semantics 10, decision 236).
extension ServerStoreContract {
  private static func made(_ title: Value, over old: Value, upon version: LostVersion) -> Sent {
    .offer(version, .update("note", ["n1"], [("title", old, title)]), written: ["title"])
  }

  private static func lost(_ title: Value, _ version: LostVersion) -> Sent {
    .offer(version, .update("note", ["n1"], [("title", "a", title), ("body", "b", "b")]))
  }

  static let madeUpon: [Case] = [
    healing(
      "a lost version that an ordinary change was made upon is superseded, and so is an older one; a newer one is a conflict version"
    ) {
      bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      let version = version(5, parting: parting)
      try expectOffers(try await anna.upload(made("written", over: "lost", upon: version)))
      try await bench.expectRows("note", [["n1", "written", "b"]])
      try expectOffers(try await bert.upload(lost("lost", version)), superseded: 1)
      try expectOffers(try await bert.upload(lost("older", Self.version(4, parting: parting))), superseded: 1)
      try await expectOpen(bench, [])
      try expectOffers(try await bert.upload(lost("newer", Self.version(6, parting: parting))), conflicts: 1)
      try await bench.expectRows("note", [["n1", "written", "b"]])
      try await expectOpen(bench, ["update title=newer"])
      try await bert.download()
      try bert.expectReplica("note", [["n1", "written", "b"]])
    },
    healing(
      "such a change is an ordinary one: it waits for no consent, is counted nowhere, and stands against what its sender had not seen"
    ) {
      bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      let version = version(5, parting: parting)
      try expectOffers(try await bert.upload(lost("lost", version)), healed: 1)
      // What another device has given back is what this one had seen.
      try expectOffers(try await anna.upload(made("written", over: "lost", upon: version)))
      try await bench.expectRows("note", [["n1", "written", "b"]])
      try await expectOpen(bench, [])
      try await bench.write(.delete("note", ["n1"]))
      try expectRefused(
        try await anna.upload(made("again", over: "written", upon: version)), [2: .rowDeleted], accepted: 0)
    },
    healing("of a version that the server has after all, or never had, it is an ordinary change, too") {
      bench, parting in
      var anna = try await device(bench)
      let known = LostVersion(incarnation: early, number: parting + 2, parting: parting + 1)
      try expectOffers(try await anna.upload(made("written", over: "a", upon: known)))
      try await bench.expectRows("note", [["n1", "written", "b"]])
    },
    healing("what a device gives back and writes over in one upload is superseded for others, too") { bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert")
      let version = version(5, parting: parting)
      let results = try await anna.upload(
        lost("lost", version), .update("note", ["n1"], [("title", "lost", "written")]))
      try expectOffers(results, accepted: 2, healed: 1)
      try expectOffers(try await bert.upload(lost("lost", version)), superseded: 1)
      try expectOffers(
        try await anna.upload(.offer(version, note("n2", "written", "lost"), written: ["title"])), healed: 1)
      try expectOffers(try await bert.upload(.offer(version, note("n2", "lost", "lost"))), superseded: 1)
      try await bench.expectRows("note", [["n1", "written", "b"], ["n2", "written", "lost"]])
      try await expectOpen(bench, [])
    },
  ]
}
