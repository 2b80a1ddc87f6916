import SalvorModel
import SalvorStorage

/// Deletes that wait, of rows that the server has lost: they stand (semantics 9, rule 3; decision 184).
extension ClientStoreContract {
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
  ]

  private static func lost() -> Recovered {
    var recovered = Recovered(shared: 1, departed: [("note", .lost, ["n1"])])
    recovered.heal = .own
    return recovered
  }
}
