import SalvorModel
import SalvorStorage

/// Copies of a server that come in turns, one older than the other: of which version an offer is (semantics 10).
extension ClientStoreContract {
  static let copiesInTurns: [Case] = [
    offering("an offer that an older copy of the server makes an insert is of the version that it was of") { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.download(rows: [("note", ["n1", "theirs", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      try await bench.commitUpload()
      // Another history than the device's, which has the row.
      let other = Incarnation(id: IncarnationID(unchecked: String(repeating: "8", count: 32)), firstCommit: 2)
      var newer = Recovered(shared: 1, rows: [("note", ["n1", "theirs", .null])], version: 2)
      (newer.heal, newer.incarnations) = (.own, [other])
      try await bench.recover(newer)
      let lost = LostVersion(incarnation: incarnation, number: 3, parting: 1)
      let offer = try await bench.begin().changes
      try expectEqual(offer.map(\.operation), [.update], "the offer upon the row")
      try expectEqual(offer.compactMap(\.offer?.version), [lost], "its version")
      await bench.store.endSession()
      // The row beneath the offer is lost with its history.
      var older = Recovered(shared: 1, departed: [("note", .lost, ["n1"])])
      (older.heal, older.id) = (.own, "recovery 2")
      try await bench.recover(older)
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.map(\.summary), ["insert note [\"id\", \"title\", \"body\"] [n1, mine, null] of 3 []"],
        "what is sent")
      try expectEqual(sent.changes.compactMap(\.offer?.version), [lost], "the version that is offered still")
      try await bench.settle(sent, commit: bench.nextCommit())
      try await bench.expectRows("note", [["n1", "mine", .null]])
      try expectEqual(try await bench.begin().changes, [], "what is sent when the offer is settled")
    },
    offering("what comes with a recovery is of the incarnation that the server names") { bench in
      try await bench.download(full: ["note"], rows: [])
      let other = Incarnation(id: IncarnationID(unchecked: String(repeating: "8", count: 32)), firstCommit: 2)
      var recovered = Recovered(shared: 1, rows: [("note", ["n1", "theirs", .null])], version: 2)
      (recovered.heal, recovered.incarnations) = (.all, [other])
      try await bench.recover(recovered)
      try expectEqual(
        try await bench.store.history().incarnations, [Incarnation(id: incarnation, firstCommit: 1), other],
        "the incarnations that the device knows")
      var older = Recovered(shared: 1, departed: [("note", .lost, ["n1"])])
      (older.heal, older.id) = (.all, "recovery 2")
      try await bench.recover(older)
      try expectEqual(
        try await bench.begin().changes.compactMap(\.offer?.version),
        [LostVersion(incarnation: other.id, number: 2, parting: 1)], "the lost version")
      try expectEqual(
        try await bench.store.history().incarnations, [Incarnation(id: incarnation, firstCommit: 1)],
        "the incarnations that are left")
    },
  ]
}
