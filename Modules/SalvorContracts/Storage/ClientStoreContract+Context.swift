import SalvorModel
import SalvorStorage

/// Parent closure: what an upload says about rows that it does not change (semantics 4, 2).
extension ClientStoreContract {
  static let context: [Case] = [
    on(
      ContractSchemas.lineage, "every changed child travels with its parents up to the root, each once",
      rule: "semantics 4"
    ) { bench in
      try await lineage(&bench)
      try await bench.write(
        .update("leaf", ["b1", 1], ["label": "x"]), .insert("leaf", ["branch_id": "b1", "line": 9]),
        .delete("leaf", ["b2", 1]))
      try await expectContext(bench, ["branch [b1]", "branch [b2]", "root [r1]", "root [r2]"], made: 1)
    },
    on(
      ContractSchemas.lineage, "a NULL and a soft reference lead to no parent; another reference does",
      rule: "semantics 4"
    ) { bench in
      try await lineage(&bench)
      try await bench.write(.update("root", ["r1"], ["label": "x"]), .update("branch", ["b1"], ["label": "x"]))
      try await expectContext(bench, [], made: 1)
      try await bench.write(.update("leaf", ["b1", 2], ["root_id": "r3"]))
      try await expectContext(bench, ["branch [b1]", "root [r1]", "root [r3]"], made: 1)
    },
    on(
      ContractSchemas.lineage, "a parent that the upload changes itself is no context, its parents are",
      rule: "semantics 4"
    ) { bench in
      try await lineage(&bench)
      try await bench.write(
        .update("leaf", ["b1", 1], ["label": "x"]), .update("branch", ["b1"], ["label": "x"]),
        .insert("branch", ["id": "b9", "root_id": "r2"]), .insert("leaf", ["branch_id": "b9", "line": 1]))
      try await expectContext(bench, ["root [r1]", "root [r2]"], made: 1)
    },
    on(
      ContractSchemas.lineage, "a row travels with the parents of its base and of each of its changes",
      rule: "semantics 4, 7"
    ) { bench in
      try await lineage(&bench)
      try await bench.write(
        .update("branch", ["b1"], ["root_id": "r2"]), .update("branch", ["b1"], ["root_id": "r3"]),
        .update("branch", ["b1"], ["label": "x"]))
      try await expectContext(bench, ["root [r1]", "root [r2]", "root [r3]"], made: 1)
    },
    on(
      ContractSchemas.lineage, "context carries the commit that the parents stood at when the upload was chosen",
      rule: "semantics 4"
    ) { bench in
      try await lineage(&bench)
      try await bench.write(.update("leaf", ["b1", 1], ["label": "x"]))
      try await bench.download(rows: [("root", ["r1", "server"])])
      let begun = try await bench.begin()
      try expectEqual(begun.changes.map(\.made), [1], "made of the change")
      let chunks = try await ReadUpload.chunks(bench.store)
      try expectEqual(
        try ReadUpload.context(in: chunks).map(\.summary), ["branch [b1] made 2", "root [r1] made 2"], "the context")
    },
    on(
      ContractSchemas.lineage,
      "a parent in error is context as its base is; what needs one that was never confirmed waits",
      rule: "semantics 2, 4"
    ) { bench in
      try await lineage(&bench)
      try await bench.write(
        .update("branch", ["b1"], ["label": "mine"]), .insert("branch", ["id": "b9", "root_id": "r2"]))
      try await bench.upload { _ in .constraint }
      try await bench.write(
        .update("leaf", ["b1", 1], ["label": "x"]), .insert("leaf", ["branch_id": "b9", "line": 1]))
      try await expectContext(bench, ["branch [b1]", "root [r1]"], made: 1)
    },
    on(
      ContractSchemas.lineage, "small chunks have the same context, and a resend has it again whatever is written",
      rule: "semantics 4, 5"
    ) { bench in
      try await lineage(&bench)
      try await bench.write(
        .update("leaf", ["b1", 1], ["label": "x"]), .update("leaf", ["b1", 2], ["label": "x"]),
        .update("leaf", ["b2", 1], ["label": "x"]))
      _ = try await bench.begin()
      let whole = try await ReadUpload.chunks(bench.store)
      let small = try await ReadUpload.chunks(bench.store, bytesTarget: 1)
      try expectEqual(small.count, 3, "the small chunks")
      try expectEqual(
        try ReadUpload.context(in: small), try ReadUpload.context(in: whole), "the context of small chunks")
      try await bench.write(
        .update("branch", ["b1"], ["root_id": "r3"]), .update("leaf", ["b1", 1], ["root_id": "r3"]),
        .delete("leaf", ["b2", 1]), .delete("branch", ["b2"]))
      try await bench.restart()
      _ = try await bench.begin()
      try expectEqual(try await ReadUpload.chunks(bench.store, bytesTarget: 1), small, "the chunks of the resend")
    },
  ]

  /// Two branches of two roots with leaves, downloaded; a third root that only a soft reference leads to.
  private static func lineage(_ bench: inout ClientBench) async throws {
    try await bench.download(
      full: ["root", "branch", "leaf"],
      rows: [
        ("root", ["r1", .null]), ("root", ["r2", .null]), ("root", ["r3", .null]),
        ("branch", ["b1", "r1", "r3", .null]), ("branch", ["b2", "r2", .null, .null]),
        ("leaf", ["b1", 1, .null, .null]), ("leaf", ["b1", 2, .null, .null]), ("leaf", ["b2", 1, .null, .null]),
      ])
  }

  /// Uploads everything that waits; its context must be these rows.
  private static func expectContext(
    _ bench: ClientBench, _ rows: [String], made: Int64, file: String = #fileID, line: Int = #line
  ) async throws {
    let begun = try await bench.begin()
    let context = try ReadUpload.context(in: try await ReadUpload.chunks(bench.store))
    try expectEqual(context.map(\.summary), rows.map { "\($0) made \(made)" }, "the context", file: file, line: line)
    try await bench.settle(begun)
  }
}
