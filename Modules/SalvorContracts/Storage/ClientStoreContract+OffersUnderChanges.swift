import SalvorModel
import SalvorStorage

/// What a recovery offers of rows that this device's own requests change, waiting ones and refused ones (semantics 10).
extension ClientStoreContract {
  /// A server has lost a version of a row, one of whose columns a refused change has written since.
  private static func lossBesideRefusal(
    _ bench: inout ClientBench, lost: KeyValuePairs<String, Value> = ["title": "lost"]
  ) async throws {
    try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"])])
    try await bench.write(.update("note", ["n1"], lost))
    try await bench.commitUpload()
    try await bench.write(.update("note", ["n1"], ["body": "refused"]))
    try await bench.commitUpload { _ in .conflict }
    var recovered = Recovered(shared: 1, rows: [("note", ["n1", "a", "x"])])
    recovered.heal = .own
    try await bench.recover(recovered)
  }

  /// A server has lost the row n1, which somebody else had changed, and which a request that waits changes.
  private static func lossUnderChange(_ bench: inout ClientBench, heal: HealMode) async throws {
    try await bench.download(full: ["note"], rows: [])
    try await bench.download(rows: [("note", ["n1", "theirs", "x"])])
    try await bench.write(.update("note", ["n1"], ["body": "mine"]))
    var recovered = Recovered(shared: 1, departed: [("note", .lost, ["n1"])])
    recovered.heal = heal
    try await bench.recover(recovered)
  }

  private static let madeAgain = "insert note [\"id\", \"title\", \"body\"] [n1, theirs, mine] of 2 [\"body\"]"

  static let offersUnderChanges: [Case] = [
    offering("what is offered of a row with a refused change is an offer, and the change stays refused") { bench in
      try await lossBesideRefusal(&bench)
      let archive = ["refused conflict update note [n1] [body=x] > [body=refused]"]
      try await bench.expectRows("note", [["n1", "lost", "refused"]])
      try await bench.expectArchive(archive)
      let sent = try await bench.begin()
      try expectEqual(sent.changes.map(\.summary), ["update note [\"title\"] [n1, a, lost] of 2 []"], "what is sent")
      try await bench.settle(sent, commit: bench.nextCommit())
      try await bench.expectRows("note", [["n1", "lost", "refused"]])
      try await bench.expectArchive(archive)
      try expectEqual(try await bench.begin().changes, [], "what is sent when the offer is settled")
    },
    offering("a lost value comes back, and the refused change of it is in the archive with its reason") { bench in
      try await lossBesideRefusal(&bench, lost: ["title": "lost", "body": "lost"])
      let archive = ["kept conflict update note [n1] [body=lost] > [body=refused]"]
      try await bench.expectRows("note", [["n1", "lost", "lost"]])
      try await bench.expectArchive(archive)
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.map(\.summary), ["update note [\"title\", \"body\"] [n1, a, lost, x, lost] of 2 []"],
        "what is sent")
      try await bench.settle(sent, commit: bench.nextCommit())
      try await bench.expectRows("note", [["n1", "lost", "lost"]])
      try await bench.expectArchive(archive)
      try expectEqual(try await bench.begin().changes, [], "what is sent when the offer is settled")
    },
    offering("what a person writes beside a refused change and an offer is sent with the change, and after the offer") {
      bench in
      try await lossBesideRefusal(&bench)
      try await bench.write(.update("note", ["n1"], ["title": "mended", "body": "mended"]))
      let sent = try await bench.begin()
      try expectEqual(
        sent.changes.map(\.summary),
        [
          "update note [\"title\"] [n1, a, lost] of 2 []",
          "update note [\"title\", \"body\"] [n1, lost, mended, x, mended]",
        ], "what is sent")
      let report = try await bench.settle(sent, commit: bench.nextCommit()) { $0.offer == nil ? .conflict : nil }
      try expectEqual([report.accepted, report.refused], [1, 1], "accepted and refused")
      try await bench.expectRows("note", [["n1", "mended", "mended"]])
      try await bench.expectArchive([
        "refused conflict update note [n1] [title=lost, body=x] > [title=mended, body=mended]"
      ])
      try expectEqual(try await bench.begin().changes, [], "what is sent when the offer is settled")
    },
    offering("a lost row that a request makes again is an offer with that change, though heal is off") { bench in
      try await lossUnderChange(&bench, heal: .off)
      let sent = try await bench.begin()
      try expectEqual(sent.changes.map(\.summary), [madeAgain], "what is sent")
      // Whoever takes the change back takes the row along.
      try await bench.settle(sent) { _ in .constraint }
      try await bench.expectRows("note", [["n1", "theirs", "mine"]])
      try await bench.remove(.entry(sent.changes[0].id))
      try await bench.expectRows("note", [])
      try expectEqual(try await bench.begin().changes, [], "what is sent then")
    },
    offering("a lost row that a request makes again waits at the server with that change, and is not sent meanwhile") {
      bench in
      try await lossUnderChange(&bench, heal: .own)
      let sent = try await bench.begin()
      let counter = sent.changes[0].counter
      try expectEqual(try await bench.settle(sent, waiting: [counter...counter]).waiting, 1, "what waits")
      try await bench.write(.update("note", ["n1"], ["title": "later"]))
      try expectEqual(try await bench.begin().changes, [], "what is sent")
      await bench.store.endSession()
      try await bench.expectRows("note", [["n1", "later", "mine"]])
      // Taken back, it leaves the row.
      try await bench.remove(.withdraw(sent.changes[0].id))
      try await bench.expectRows("note", [["n1", "theirs", "x"]])
      let again = try await bench.begin()
      try expectEqual(
        again.changes.map(\.summary), ["insert note [\"id\", \"title\", \"body\"] [n1, theirs, x] of 2 []"],
        "what is sent then")
    },
    offering("where the operator rejects a lost row that a request makes again, the row and the change are named") {
      bench in
      try await lossUnderChange(&bench, heal: .review)
      let sent = try await bench.begin()
      try expectEqual(sent.changes.map(\.summary), [madeAgain], "what is sent")
      try expectEqual(sent.changes.map { $0.offer?.isForReview }, [true], "for review")
      try expectEqual(try await bench.settle(sent) { _ in .rejected }.refused, 1, "refused")
      try await bench.expectRows("note", [["n1", "theirs", "x"]])
      try await bench.expectArchive([
        "refused rejected insert note [n1] [] > [id=n1, title=theirs, body=x]",
        "kept rejected update note [n1] [body=x] > [body=mine]",
      ])
      try expectEqual(try await bench.begin().changes, [], "what is sent then")
      await bench.store.endSession()
      let row = try expectSome(try await bench.archived().first { $0.state == .refused }, "the row's entry")
      try await bench.remove(.entry(row.id))
      try await bench.expectRows("note", [])
      try expectEqual(try await bench.begin().changes, [], "what is sent in the end")
    },
  ]
}
