import SalvorModel
import SalvorStorage

/// The application's own dirty and deleted columns (semantics 3). Rows of `form` end with IsDirty, IsDeleted.
extension ClientStoreContract {
  static let flags: [Case] = dirty + marking + unmarking + marked + going

  // MARK: Dirty

  private static let dirty: [Case] = [
    on(ContractSchemas.marked, "a row is dirty while it has a request, and only then", rule: "semantics 3") { bench in
      try await bench.prepare()
      try await bench.write(.update("form", ["f"], ["title": "b"]), .insert("form", ["id": "g"]))
      try await bench.expectRows("form", [["f", "b", 1, 0], ["g", .null, 1, 0]])
      let begun = try await bench.begin()
      try await bench.expectRows("form", [["f", "b", 1, 0], ["g", .null, 1, 0]])
      try await bench.settle(begun)
      try await bench.expectRows("form", [["f", "b", 0, 0], ["g", .null, 0, 0]])
    },
    on(ContractSchemas.marked, "a refused request leaves its row dirty, its deletion cleans it", rule: "semantics 3, 8")
    {
      bench in
      try await bench.prepare()
      try await bench.write(.update("form", ["f"], ["title": "b"]))
      try await bench.upload { _ in .constraint }
      try await bench.expectRows("form", [["f", "b", 1, 0]])
      try await bench.remove(.archive(nil))
      try await bench.expectRows("form", [["f", "a", 0, 0]])
    },
    on(ContractSchemas.marked, "flags are the application's to write, and nothing is sent for it", rule: "semantics 3")
    {
      bench in
      try await bench.prepare()
      try await bench.write(.update("form", ["f"], ["IsDirty": 1]))
      try expectEqual(try await bench.status().queued, 0, "the queue")
      try expectChanges(try await bench.upload(), [])
      try await bench.expectRows("form", [["f", "a", 0, 0]])
      try await bench.write(.update("form", ["f"], ["title": "b", "IsDirty": 1]))
      try await bench.write(.update("form", ["f"], ["IsDirty": 0]))
      try expectChanges(try await bench.begin().changes, [#"update form ["title"] [f, a, b]"#])
      try await bench.expectRows("form", [["f", "b", 1, 0]])
    },
    on(ContractSchemas.marked, "a withdrawn request leaves a clean row", rule: "semantics 3, 8") { bench in
      try await bench.prepare()
      try await bench.write(.update("form", ["f"], ["title": "b"]), .update("section", ["s"], ["name": "n"]))
      let ids = try await bench.queue(2)
      try await bench.remove(.withdraw(ids[0]))
      try await bench.expectRows("form", [["f", "a", 0, 0]])
      try await bench.expectRows("section", [["s", "f", "n", 1, 0]])
    },
  ]

  // MARK: The columns go

  private static let going: [Case] = [
    on(
      ContractSchemas.marked,
      "where flag columns go, a delete by mark that waits is a delete: its rows are not shown again",
      rule: "semantics 3, decision 187"
    ) { bench in
      try await bench.prepare()
      try await bench.write(.update("form", ["f"], ["IsDeleted": 1]))
      var later = bench.schema
      later.version = 2
      for place in later.tables.indices {
        later.tables[place].flags = FlagColumns()
        later.tables[place].columns.removeAll { $0.name.hasPrefix("Is") }
        later.tables[place].dropped = ["IsDirty", "IsDeleted"]
      }
      try await bench.store.adopt(SyncConfig(later))
      bench.adopt(later)
      for table in ["form", "section"] { try await bench.expectRows(table, []) }
      let sent = try await bench.upload()
      try expect(sent.contains { $0.summary == "delete form [f]" }, "the delete is sent")
      for table in ["form", "section"] { try await bench.expectRows(table, []) }
    }
  ]

  // MARK: The mark is set

  private static let marking: [Case] = [
    on(ContractSchemas.marked, "a marked row is a delete with all that is below it, one request", rule: "semantics 3") {
      bench in
      try await bench.prepare()
      try await bench.write(.update("form", ["f"], ["IsDeleted": 1]))
      try await bench.expectRows("form", [["f", "a", 1, 1]])
      try await bench.expectRows("section", [["s", "f", .null, 1, 1]])
      try await bench.expectRows("answer", [["s", 1, "x", 1], ["s", 2, .null, 1]])
      // Where no column can say it, the rows go at once.
      try await bench.expectRows("remark", [])
      try await bench.expectRows("photo", [])
      _ = try await bench.queue(1)
      let begun = try await bench.begin()
      try expectEqual(
        Set(begun.changes.map(\.summary)),
        [
          "delete form [f]", "delete section [s]", "delete answer [s, 1]", "delete answer [s, 2]",
          "delete remark [r]", "delete photo [p]",
        ], "what is sent")
      try expectEqual(Set(begun.changes.map(\.request)).count, 1, "requests")
      try await bench.expectRows("form", [["f", "a", 1, 1]])
      try await bench.settle(begun)
      for table in ["form", "section", "answer", "remark", "photo"] { try await bench.expectRows(table, []) }
    },
    on(ContractSchemas.marked, "the mark with other columns is a delete of the row as it was", rule: "semantics 3") {
      bench in
      try await bench.prepare()
      try await bench.write(.update("form", ["f"], ["title": "b", "IsDeleted": 1, "IsDirty": 1]))
      try expect(
        try await bench.upload().allSatisfy { $0.summary.hasPrefix("delete") }, "only deletes are sent")
      try await bench.expectRows("form", [])
    },
    on(ContractSchemas.marked, "rows below that are marked already stay requests of their own", rule: "semantics 3") {
      bench in
      try await bench.prepare()
      try await bench.write(
        .update("answer", ["s", 1], ["IsDeleted": 1]), .update("section", ["s"], ["IsDeleted": 1]))
      try expectEqual(Set(try await bench.queued().map(\.id)).count, 2, "requests")
      try expectEqual(
        Set(try await bench.upload().map(\.summary)),
        [
          "delete answer [s, 1]", "delete section [s]", "delete answer [s, 2]", "delete remark [r]",
          "delete photo [p]",
        ], "what is sent")
      try await bench.expectRows("answer", [])
      try await bench.expectRows("form", [["f", "a", 0, 0]])
    },
    on(ContractSchemas.marked, "inside an open group the mark is part of it", rule: "semantics 3") { bench in
      try await bench.prepare()
      try await bench.write(
        .beginRequest(tag: "visit"), .update("form", ["f"], ["title": "b"]),
        .update("section", ["s"], ["IsDeleted": 1]), .endRequest)
      let queued = try await bench.queued()
      try expectEqual(Set(queued.map(\.id)).count, 1, "requests")
      try expectEqual(Set(queued.map(\.tag)), ["visit"], "the tag")
      try expectEqual(queued.count, 6, "changes")
    },
    on(ContractSchemas.folders, "a table that references itself is followed to the end", rule: "semantics 3") { bench in
      try await bench.download(
        full: ["folder"],
        rows: [
          ("folder", ["a", .null, "1", 0, 0]), ("folder", ["b", "a", "2", 0, 0]), ("folder", ["c", "b", "3", 0, 0]),
          ("folder", ["d", .null, "4", 0, 0]),
        ])
      try await bench.write(.update("folder", ["a"], ["IsDeleted": 1]))
      try await bench.expectRows(
        "folder",
        [["a", .null, "1", 1, 1], ["b", "a", "2", 1, 1], ["c", "b", "3", 1, 1], ["d", .null, "4", 0, 0]])
      _ = try await bench.queue(1)
      try await bench.write(.update("folder", ["a"], ["IsDeleted": 0]))
      try expectChanges(try await bench.upload(), [])
      try await bench.expectRows(
        "folder",
        [["a", .null, "1", 0, 0], ["b", "a", "2", 0, 0], ["c", "b", "3", 0, 0], ["d", .null, "4", 0, 0]])
    },
    on(ContractSchemas.marked, "a row that was never sent and is marked is sent like one deleted", rule: "semantics 3")
    {
      bench in
      try await bench.write(.insert("form", ["id": "g"]), .update("form", ["g"], ["IsDeleted": 1]))
      try expectChanges(
        try await bench.upload(), [#"insert form ["id", "title"] [g, null]"#, "delete form [g]"])
      try await bench.expectRows("form", [])
    },
  ]

  // MARK: It is taken back

  private static let unmarking: [Case] = [
    on(
      ContractSchemas.marked, "taken back before the upload, nothing is sent and all is as before", rule: "semantics 3"
    ) {
      bench in
      try await bench.prepare()
      try await bench.write(.update("form", ["f"], ["IsDeleted": 1]))
      try await bench.write(.update("form", ["f"], ["IsDeleted": 0]))
      try expectEqual(try await bench.status().queued, 0, "the queue")
      try expectChanges(try await bench.upload(), [])
      try await bench.expectPrepared()
    },
    on(
      ContractSchemas.marked, "what was written to a marked row counts when the mark is taken back", rule: "semantics 3"
    ) {
      bench in
      try await bench.prepare()
      try await bench.write(
        .update("form", ["f"], ["IsDeleted": 1]), .update("form", ["f"], ["title": "b"]),
        .update("section", ["s"], ["name": "n"]))
      try expect(try await bench.queued().allSatisfy { $0.operation == .delete }, "nothing but deletes")
      try await bench.write(.update("form", ["f"], ["IsDeleted": 0]))
      try expectEqual(
        Set(try await bench.upload().map(\.summary)),
        [#"update form ["title"] [f, a, b]"#, #"update section ["name"] [s, null, n]"#], "what is sent")
      try await bench.expectRows("form", [["f", "b", 0, 0]])
    },
    on(ContractSchemas.marked, "a row below alone comes back alone", rule: "semantics 3") { bench in
      try await bench.prepare()
      try await bench.write(
        .update("section", ["s"], ["IsDeleted": 1]), .update("answer", ["s", 2], ["IsDeleted": 0]))
      try expectEqual(
        Set(try await bench.queued().map { "\($0.table) \($0.key)" }).count, 4, "rows that are to be deleted")
      try await bench.write(.update("section", ["s"], ["IsDeleted": 0]))
      try expectChanges(try await bench.upload(), [])
      try await bench.expectPrepared()
    },
    on(ContractSchemas.marked, "what a group did beside the mark stays", rule: "semantics 3") { bench in
      try await bench.prepare()
      try await bench.write(
        .beginRequest(tag: "visit"), .update("answer", ["s", 1], ["IsDeleted": 1]),
        .update("form", ["f"], ["title": "b"]), .endRequest)
      _ = try await bench.queue(1)
      try await bench.write(.update("answer", ["s", 1], ["IsDeleted": 0]))
      try expectChanges(try await bench.upload(), [#"update form ["title"] [f, a, b]"#])
    },
    on(
      ContractSchemas.marked, "taken back while the outcome is unknown, it is a new request that follows",
      rule: "semantics 3, 5"
    ) { bench in
      try await bench.prepare()
      try await bench.write(.update("section", ["s"], ["IsDeleted": 1]))
      let sent = try await bench.begin()
      try await bench.write(.update("section", ["s"], ["IsDeleted": 0]))
      try await bench.expectRows("section", [["s", "f", .null, 1, 0]])
      try await bench.expectRows("remark", [["r", "s", "t"]])
      try expectEqual(Set(try await bench.queued([.queued]).map(\.id)).count, 1, "requests that wait")
      try await bench.settle(sent)
      try await bench.expectRows("section", [["s", "f", .null, 1, 0]])
      try expectEqual(
        Set(try await bench.upload().map(\.summary)),
        [
          #"insert section ["id", "form_id", "name"] [s, f, null]"#,
          #"insert answer ["section_id", "line", "note"] [s, 1, x]"#,
          #"insert answer ["section_id", "line", "note"] [s, 2, null]"#,
          #"insert remark ["id", "section_id", "text"] [r, s, t]"#,
          #"insert photo ["id", "remark_id", "name"] [p, r, null]"#,
        ], "what is sent")
      try await bench.expectPrepared()
    },
    on(ContractSchemas.marked, "restarted in between, it is withdrawn all the same", rule: "semantics 3") { bench in
      try await bench.prepare()
      try await bench.write(.update("form", ["f"], ["IsDeleted": 1]))
      _ = try await bench.queue(1)
      try await bench.restart()
      try await bench.expectRows("form", [["f", "a", 1, 1]])
      try await bench.write(.update("form", ["f"], ["IsDeleted": 0]))
      try await bench.restart()
      try expectChanges(try await bench.upload(), [])
      try await bench.expectPrepared()
    },
  ]

  // MARK: While it is marked

  private static let marked: [Case] = [
    on(ContractSchemas.marked, "a refused delete keeps its mark; its deletion takes it back", rule: "semantics 3, 8") {
      bench in
      try await bench.prepare()
      try await bench.write(.update("section", ["s"], ["IsDeleted": 1]))
      try await bench.upload { _ in .conflict }
      try await bench.expectRows("section", [["s", "f", .null, 1, 1]])
      try expectEqual(try await bench.status().inError, 1, "in error")
      try await bench.remove(.archive(nil))
      try await bench.expectPrepared()
    },
    on(ContractSchemas.marked, "a refused delete is sent again by retry", rule: "semantics 3, 8") { bench in
      try await bench.prepare()
      try await bench.write(.update("section", ["s"], ["IsDeleted": 1]))
      try await bench.upload { _ in .conflict }
      _ = try await bench.store.retry(nil)
      try await bench.expectRows("section", [["s", "f", .null, 1, 1]])
      try expectEqual(try await bench.upload().count, 5, "changes sent")
      try await bench.expectRows("section", [])
    },
    on(
      ContractSchemas.marked,
      "a delete that was refused, retried and refused is taken back with all that it took along",
      rule: "semantics 3, 8"
    ) { bench in
      try await bench.prepare()
      try await bench.write(.update("section", ["s"], ["IsDeleted": 1]))
      try await bench.upload { _ in .conflict }
      _ = try await bench.store.retry(nil)
      try await bench.upload { _ in .conflict }
      try await bench.write(.update("section", ["s"], ["IsDeleted": 0]))
      try await bench.expectRows("remark", [["r", "s", "t"]])
      try expectChanges(try await bench.upload(), [])
      try await bench.expectPrepared()
    },
    on(
      ContractSchemas.marked, "a refused delete whose mark is taken back has nothing left to send", rule: "semantics 8"
    ) {
      bench in
      try await bench.prepare()
      try await bench.write(.update("answer", ["s", 1], ["IsDeleted": 1]))
      try await bench.upload { _ in .conflict }
      try await bench.write(.update("answer", ["s", 1], ["IsDeleted": 0]))
      try await bench.expectRows("answer", [["s", 1, "x", 0], ["s", 2, .null, .null]])
      try expectChanges(try await bench.upload(), [])
      try expectEqual(try await bench.status().inError, 0, "in error")
    },
    on(ContractSchemas.marked, "a marked row keeps its mark and follows the base", rule: "semantics 2, 3") { bench in
      try await bench.prepare()
      try await bench.write(
        .update("section", ["s"], ["IsDeleted": 1]), .update("answer", ["s", 1], ["note": "edited"]))
      try await bench.download(rows: [("section", ["s", "f", "server", 0, 0]), ("answer", ["s", 1, "x", .null])])
      try await bench.expectRows("section", [["s", "f", "server", 1, 1]])
      try await bench.expectRows("answer", [["s", 1, "edited", 1], ["s", 2, .null, 1]])
      try await bench.write(.update("section", ["s"], ["IsDeleted": 0]))
      try expectChanges(try await bench.upload(), [#"update answer ["note"] [s, 1, x, edited]"#])
    },
    on(ContractSchemas.marked, "a marked row that the server deletes goes", rule: "semantics 3") { bench in
      try await bench.prepare()
      try await bench.write(.update("answer", ["s", 1], ["IsDeleted": 1]))
      try await bench.download(departed: [("answer", .deleted, ["s", 1])])
      try await bench.expectRows("answer", [["s", 2, .null, .null]])
      try expectChanges(try await bench.upload(), ["delete answer [s, 1]"])
    },
    on(ContractSchemas.marked, "deleting a marked row physically captures nothing more", rule: "semantics 3") { bench in
      try await bench.prepare()
      try await bench.write(.update("answer", ["s", 1], ["IsDeleted": 1]))
      try await bench.write(.delete("answer", ["s", 1]))
      try expectChanges(try await bench.upload(), ["delete answer [s, 1]"])
      try await bench.expectRows("answer", [["s", 2, .null, .null]])
    },
    on(ContractSchemas.marked, "its key is free for a new row once the marked one is deleted", rule: "semantics 3") {
      bench in
      try await bench.prepare()
      try await bench.write(
        .update("answer", ["s", 1], ["IsDeleted": 1]), .delete("answer", ["s", 1]),
        .insert("answer", ["section_id": "s", "line": 1, "note": "new"]))
      try expectChanges(
        try await bench.upload(),
        ["delete answer [s, 1]", #"insert answer ["section_id", "line", "note"] [s, 1, new]"#])
      try await bench.expectRows("answer", [["s", 1, "new", .null], ["s", 2, .null, .null]])
    },
    on(ContractSchemas.marked, "a row that comes with a mark is never sent, and goes", rule: "semantics 3") { bench in
      try await bench.prepare()
      try await bench.write(.insert("form", ["id": "g", "IsDeleted": 1]))
      try expectEqual(try await bench.status().queued, 0, "the queue")
      try await bench.expectRows("form", [["f", "a", 0, 0], ["g", .null, 0, 1]])
      try expectChanges(try await bench.upload(), [])
      try await bench.expectRows("form", [["f", "a", 0, 0]])
    },
    on(ContractSchemas.marked, "a row that was made with a mark is there when the server sends it", rule: "semantics 3")
    { bench in
      try await bench.download(full: ["form"])
      try await bench.write(.insert("form", ["id": "g", "IsDeleted": 1]))
      try await bench.download(rows: [("form", ["g", "theirs", 0, 0])])
      try await bench.expectRows("form", [["g", "theirs", 0, 0]])
      try expectChanges(try await bench.upload(), [])
    },
    on(
      ContractSchemas.marked, "a row below one that is none waits for it, and an upload never has it alone",
      rule: "semantics 2, 3, 4"
    ) { bench in
      try await bench.write(
        .insert("form", ["id": "g", "IsDeleted": 1]), .insert("section", ["id": "s", "form_id": "g"]))
      try expect(try await bench.begin().session.upload == nil, "nothing can be sent: no upload")
      try expectEqual(try await bench.status().displaced, 1, "displaced")
      try await bench.write(.insert("form", ["id": "h"]))
      try expectChanges(try await bench.upload(), [#"insert form ["id", "title"] [h, null]"#])
      try await bench.write(.insert("form", ["id": "g"]))
      try expectEqual(
        Set(try await bench.upload().map(\.summary)),
        [#"insert form ["id", "title"] [g, null]"#, #"insert section ["id", "form_id", "name"] [s, g, null]"#],
        "what is sent")
      try await bench.expectRows("section", [["s", "g", .null, 0, 0]])
      try expectEqual(try await bench.status().displaced, 0, "displaced")
    },
    on(ContractSchemas.folders, "a marked row makes room for one that the server sends", rule: "semantics 2, 3") {
      bench in
      try await bench.download(full: ["folder"], rows: [("folder", ["a", .null, "1", 0, 0])])
      try await bench.write(.update("folder", ["a"], ["IsDeleted": 1]))
      let report = try await bench.download(
        rows: [("folder", ["a", .null, "2", 0, 0]), ("folder", ["b", .null, "1", 0, 0])])
      try expectEqual(report.displaced, [], "what is displaced")
      try await bench.expectRows("folder", [["a", .null, "2", 1, 1], ["b", .null, "1", 0, 0]])
    },
    on(
      ContractSchemas.folders, "a marked row that the server's row needs stays until the download that follows",
      rule: "semantics 2, 3, 11.6"
    ) { bench in
      try await bench.download(
        full: ["folder"], rows: [("folder", ["a", .null, "1", 0, 0]), ("folder", ["b", "a", "2", 0, 0])])
      try await bench.write(.update("folder", ["a"], ["IsDeleted": 1]))
      try await bench.download(rows: [("folder", ["c", "b", "3", 0, 0])])
      let begun = try await bench.begin()
      try await bench.settle(begun, kept: begun.changes.map(\.request).prefix(1).map { $0 })
      try await bench.expectRows(
        "folder", [["a", .null, "1", 0, 1], ["b", "a", "2", 0, 1], ["c", "b", "3", 0, 0]])
      try expectEqual(try await bench.queued().count, 0, "the queue")
      var again = bench
      try await again.download(rows: [("folder", ["a", .null, "4", 0, 0]), ("folder", ["b", "a", "2", 0, 0])])
      try await again.expectRows("folder", [["a", .null, "4", 0, 0], ["b", "a", "2", 0, 0], ["c", "b", "3", 0, 0]])
    },
    on(
      ContractSchemas.folders, "a marked row that is needed no more goes, and one that is taken back is inserted",
      rule: "semantics 2, 3"
    ) { bench in
      try await bench.download(
        full: ["folder"], rows: [("folder", ["a", .null, "1", 0, 0]), ("folder", ["d", .null, "4", 0, 0])])
      try await bench.write(.update("folder", ["a"], ["IsDeleted": 1]), .update("folder", ["d"], ["IsDeleted": 1]))
      try await bench.download(rows: [("folder", ["b", "a", "2", 0, 0]), ("folder", ["c", "d", "3", 0, 0])])
      try await bench.upload()
      try await bench.write(.update("folder", ["d"], ["IsDeleted": 0]))
      try expectChanges(try await bench.upload(), [#"insert folder ["id", "above", "label"] [d, null, 4]"#])
      try await bench.expectRows(
        "folder",
        [["a", .null, "1", 0, 1], ["b", "a", "2", 0, 0], ["c", "d", "3", 0, 0], ["d", .null, "4", 0, 0]])
      try await bench.download(departed: [("folder", .deleted, ["b"])])
      try await bench.expectRows("folder", [["c", "d", "3", 0, 0], ["d", .null, "4", 0, 0]])
    },
    on(
      ContractSchemas.marked, "a row below one that was made with the mark is not sent, and comes back with its parent",
      rule: "semantics 2, 3"
    ) { bench in
      try await bench.write(
        .insert("form", ["id": "f", "IsDeleted": 1]), .insert("section", ["id": "s", "form_id": "f"]))
      let session = try await bench.store.beginSession(groups: nil)
      await bench.store.endSession()
      try expect(session.upload == nil, "nothing is sent")
      try expectEqual(try await bench.store.status().displaced, 1, "the displaced requests")
      try await bench.write(.insert("form", ["id": "f"]))
      let sent = try await bench.upload().map(\.summary)
      try expectEqual(sent.count, 2, "the changes sent: \(sent)")
      try expectEqual(try await bench.store.status().displaced, 0, "the displaced requests")
    },
  ]

}

extension ClientBench {
  /// One row of every synchronized table, two answers.
  fileprivate mutating func prepare() async throws {
    try await download(
      full: schema.synchronized.map(\.name),
      rows: [
        ("form", ["f", "a", 0, 0]), ("section", ["s", "f", .null, 0, 0]), ("answer", ["s", 1, "x", .null]),
        ("answer", ["s", 2, .null, .null]), ("remark", ["r", "s", "t"]), ("photo", ["p", "r", .null, 0, 0]),
      ])
  }

  /// The rows are as they came, with no mark; where one was, it is 0.
  fileprivate func expectPrepared(file: String = #fileID, line: Int = #line) async throws {
    try await expectRows("form", [["f", "a", 0, 0]], file: file, line: line)
    try await expectRows("section", [["s", "f", .null, 0, 0]], file: file, line: line)
    try await expectRows("answer", [["s", 1, "x", 0], ["s", 2, .null, 0]], file: file, line: line)
    try await expectRows("remark", [["r", "s", "t"]], file: file, line: line)
    try await expectRows("photo", [["p", "r", .null, 0, 0]], file: file, line: line)
  }
}
