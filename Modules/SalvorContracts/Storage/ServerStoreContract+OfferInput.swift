import SalvorModel
import SalvorStorage

/// Offers that no device of this release makes (semantics 10).
extension ServerStoreContract {
  private static let unheardOf = IncarnationID(unchecked: String(repeating: "d", count: 32))

  static let healingInput: [Case] = [
    healing(
      "a row that a later lost commit deleted stays deleted in a table with a scope, too", ContractSchemas.inspections
    ) { bench, parting in
      let row = Sent.insert("establishment", ["id": "e1", "name": "older", "region": "EU"])
      var deleter = try await device(bench, "deleter", parameters: ["region": ["EU"]])
      try expectOffers(
        try await deleter.upload(.offer(version(9, parting: parting), .delete("establishment", ["e1"]))), superseded: 1)
      try await bench.restart()
      var older = try await device(bench, "older", parameters: ["region": ["EU"]])
      try expectOffers(try await older.upload(.offer(version(5, parting: parting), row)), superseded: 1)
      try await bench.expectRows("establishment", [])
      // A newer version makes it again.
      var newer = try await device(bench, "newer", parameters: ["region": ["EU"]])
      try expectOffers(try await newer.upload(.offer(version(12, parting: parting), row)), healed: 1)
      try await bench.expectRows("establishment", [["e1", "older", "EU"]])
    },
    healing(
      "who may not write a row keeps nobody from giving it back by an offered delete", ContractSchemas.inspections
    ) {
      bench, parting in
      var liar = try await device(bench, "liar", parameters: ["region": ["US"]])
      try expectOffers(
        try await liar.upload(.offer(version(9, parting: parting), .delete("establishment", ["e1"]))), superseded: 1)
      var owner = try await device(bench, "owner", parameters: ["region": ["EU"]])
      try expectOffers(
        try await owner.upload(
          .offer(
            version(5, parting: parting), .insert("establishment", ["id": "e1", "name": "mine", "region": "EU"]))),
        healed: 1)
      try await bench.expectRows("establishment", [["e1", "mine", "EU"]])
    },
    healing("an offer with a key of another type, or of a column that is not there any more, is refused; others go on")
    {
      bench, parting in
      var anna = try await device(bench)
      let results = try await anna.upload(
        .offer(version(1, parting: parting), .insert("note", ["id": 7, "title": "x"])),
        .offer(version(2, parting: parting), .insert("note", ["id": "n2", "title": "x", "dropped": "y"])),
        .offer(version(3, parting: parting), .update("note", ["n1"], [("dropped", "a", "b")])),
        .offer(version(4, parting: parting), note("n3", "c")))
      try expectRefused(results, [1: .notStorable, 2: .unknownColumn, 3: .unknownColumn], accepted: 1)
      try await bench.expectRows("note", [["n1", "a", "b"], ["n3", "c", .null]])
    },
    healing("an offer of a table that only the server writes is refused; others go on", ContractSchemas.inspections) {
      bench, parting in
      var anna = try await device(bench, parameters: ["region": ["EU"]])
      let mine = Sent.insert("establishment", ["id": "e1", "name": "mine", "region": "EU"])
      let results = try await anna.upload(
        .offer(version(1, parting: parting), .insert("severity", ["id": 1, "name": "high"])),
        .offer(version(1, parting: parting), .delete("severity", [2])), .offer(version(1, parting: parting), mine))
      try expectRefused(results, [1: .serverMaintained, 2: .serverMaintained], accepted: 1)
      try await bench.expectRows("severity", [])
      try await bench.expectRows("establishment", [["e1", "mine", "EU"]])
    },
    healing("of a timeline that nobody has told of the first version stands, whatever its number") { bench, parting in
      var anna = try await device(bench)
      var bert = try await device(bench, "bert", lost: [unheardOf])
      try expectOffers(try await anna.upload(.offer(version(5, parting: parting), note("n2", "told"))), healed: 1)
      let unknown = version(1 << 50, of: unheardOf, parting: parting)
      try expectOffers(try await bert.upload(.offer(unknown, note("n2", "untold"))), conflicts: 1)
      try await bench.expectRows("note", [["n1", "a", "b"], ["n2", "told", .null]])
    },
    healing(
      "who offers what another wrote gets no more than a write that he may make today", ContractSchemas.inspections
    ) { bench, parting in
      var office = try await device(bench, "office")
      let theirs = Sent.insert("establishment", ["id": "e1", "name": "theirs", "region": "US"])
      try expectOffers(try await office.upload(.offer(version(5, parting: parting), theirs)), healed: 1)
      var liar = try await device(bench, "liar", parameters: ["region": ["EU"]])
      let results = try await liar.upload(
        .offer(version(9, parting: parting), .update("establishment", ["e1"], [("name", "theirs", "mine")])),
        .offer(version(9, parting: parting), .update("establishment", ["e1"], [("region", "US", "EU")])),
        .offer(version(9, parting: parting), .insert("establishment", ["id": "e1", "name": "mine", "region": "EU"])))
      try expectEqual(results.healed, 0, "what came of it")
      try await bench.expectRows("establishment", [["e1", "theirs", "US"]])
    },
  ]
}
