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
    offering("a delete that was offered, and that a copy of another history has, is offered where that is lost") {
      try await deletedInCopy(&$0, isOffer: true)
    },
    offering("a delete that waited, and that a copy of another history has, is offered where that is lost") {
      try await deletedInCopy(&$0, isOffer: false)
    },
  ]

  /// The row is gone in a copy of the server whose numbers say nothing of the device's own commits. Then comes one that has the row
  /// yet, and shares those numbers.
  private static func deletedInCopy(_ bench: inout ClientBench, isOffer: Bool) async throws {
    try await bench.download(full: ["note"], rows: [])
    try await bench.write(.insert("note", ["id": "n1", "title": "mine"]))
    try await bench.commitUpload()
    try await bench.write(.delete("note", ["n1"]))
    if isOffer {
      try await bench.commitUpload()
      var older = Recovered(shared: 2, rows: [("note", ["n1", "mine", .null])])
      older.heal = .own
      try await bench.recover(older)
      try expectEqual(
        try await bench.begin().changes.compactMap(\.offer?.version),
        [LostVersion(incarnation: incarnation, number: 3, parting: 2)], "the version that is offered")
      await bench.store.endSession()
    }
    let other = Incarnation(id: IncarnationID(unchecked: String(repeating: "8", count: 32)), firstCommit: 3)
    var newer = Recovered(shared: 2, head: 6, departed: [("note", .deleted, ["n1"])])
    (newer.heal, newer.incarnations, newer.id) = (.own, [other], "recovery 2")
    try await bench.recover(newer)
    try await bench.expectItems(["merged delete note [n1]"], of: "recovery 2")
    try expectEqual(try await bench.begin().changes, [], "what is sent to the copy that has the delete")
    await bench.store.endSession()
    bench.nextCommit(4)
    var again = Recovered(shared: 4, rows: [("note", ["n1", "mine", .null])])
    (again.heal, again.id) = (.own, "recovery 3")
    try await bench.recover(again)
    try await bench.expectRows("note", [])
    try await bench.expectArchive([])
    let sent = try await bench.begin()
    try expectEqual(sent.changes.map(\.summary), ["delete note [n1] of 6 []"], "what is sent to the one with the row")
    try expectEqual(
      sent.changes.compactMap(\.offer?.version), [LostVersion(incarnation: other.id, number: 6, parting: 4)],
      "the lost version")
    try await bench.settle(sent, commit: bench.nextCommit())
    try await bench.expectRows("note", [])
    try expectEqual(try await bench.begin().changes, [], "what is sent when the offer is settled")
  }
}
