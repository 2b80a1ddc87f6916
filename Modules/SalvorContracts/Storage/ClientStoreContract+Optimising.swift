import SalvorModel
import SalvorStorage

/// Several requests on one row become one before they are sent.
extension ClientStoreContract {
  static let optimising: [Case] = [
    on(
      ContractSchemas.notes(), "requests on one row become one, from what the first saw to what the last wrote",
      rule: "RequestRemoval.swift, optimiseQueue"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "x", .null])])
      try await bench.write(
        .update("note", ["n1"], ["title": "b"]), .update("note", ["n2"], ["title": "y"]),
        .update("note", ["n1"], ["title": "c"]), .update("note", ["n1"], ["body": "text"]))
      let ids = try await bench.queue(4)
      try expectEqual(try await bench.store.optimiseQueue(), 2, "how many requests there are less")
      try expectEqual(
        try await bench.queued().map(\.history), [[], [ids[0], ids[2], ids[3]]], "what they were made from")
      try await bench.expectRows("note", [["n1", "c", "text"], ["n2", "y", .null]])
      try expectChanges(
        try await bench.upload(),
        [#"update note ["title"] [n2, x, y]"#, #"update note ["title", "body"] [n1, a, c, null, text]"#])
    },
    on(
      ContractSchemas.notes(), "what was made before a download stays itself: it may be in conflict",
      rule: "semantics 7, optimiseQueue"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "b"]), .update("note", ["n1"], ["title": "c"]))
      try await bench.download(rows: [("note", ["n1", "theirs", .null])])
      try expectEqual(try await bench.store.optimiseQueue(), 0, "how many requests there are less")
      try expectChanges(
        try await bench.upload(),
        [#"update note ["title"] [n1, a, b]"#, #"update note ["title"] [n1, b, c]"#])
    },
    on(
      ContractSchemas.notes(), "an insert and its delete vanish, and nothing is sent",
      rule: "RequestRemoval.swift, optimiseQueue"
    ) { bench in
      try await bench.write(
        .insert("note", ["id": "n1", "title": "a"]), .update("note", ["n1"], ["title": "b"]), .delete("note", ["n1"]))
      try expectEqual(try await bench.store.optimiseQueue(), 3, "how many requests there are less")
      try expect(try await bench.begin().session.upload == nil, "nothing is to be sent")
      await bench.store.endSession()
    },
    on(
      ContractSchemas.notes(), "tagged and grouped requests stay themselves, and nothing is merged across them",
      rule: "RequestRemoval.swift, optimiseQueue"
    ) { bench in
      try await bench.write(
        .insert("note", ["id": "n1", "title": "a"]), .beginRequest(tag: "visit"),
        .update("note", ["n1"], ["title": "b"]), .endRequest, .update("note", ["n1"], ["title": "c"]))
      try await bench.write(
        .insert("note", ["id": "n2", "title": "a"]), .beginRequest(tag: nil), .update("note", ["n2"], ["title": "b"]),
        .insert("note", ["id": "n3", "title": "a"]), .endRequest, .update("note", ["n2"], ["title": "c"]))
      let ids = try await bench.queue(6)
      try expectEqual(try await bench.store.optimiseQueue(), 0, "how many requests there are less")
      try expectEqual(try await bench.queue(6), ids, "the queue")
    },
    on(
      ContractSchemas.tree, "what others were built on stays as it is, and so does what has failed or is under way",
      rule: "RequestRemoval.swift, optimiseQueue"
    ) { bench in
      try await bench.write(
        .insert("node", ["id": "p"]), .insert("node", ["id": "c", "parent": "p"]),
        .update("node", ["p"], ["label": "x"]))
      try expectEqual(try await bench.store.optimiseQueue(), 0, "with a child between")
      let begun = try await bench.begin()
      try await bench.write(.update("node", ["c"], ["label": "y"]), .update("node", ["c"], ["label": "z"]))
      try expectEqual(try await bench.store.optimiseQueue(), 0, "while an upload is under way")
      try await bench.settle(begun) { $0.operation == .update ? .constraint : nil }
      try await bench.write(.update("node", ["p"], ["label": "again"]))
      try expectEqual(try await bench.store.optimiseQueue(), 1, "the two that wait on one row")
      try expectEqual(try await bench.status().inError, 1, "the requests in error")
      try await bench.expectRows("node", [["c", "p", "z"], ["p", .null, "again"]])
    },
  ]
}
