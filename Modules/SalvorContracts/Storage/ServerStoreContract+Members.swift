import SalvorModel
import SalvorStorage

/// Scopes over join tables, alternatives and fixed values (semantics 4 and 7).
extension ServerStoreContract {
  static let membership: [Case] = moving + alternatives + writingThrough

  private static let moving: [Case] = [
    on(ContractSchemas.members(), "a membership row that comes brings the rows it shows", rule: "semantics 4") {
      bench in
      try await projects(bench)
      var device = try await bench.device()
      try expectEqual(device.items.count, 0, "the rows of a first download")
      try await bench.write(.insert("member", ["id": "m1", "project_id": "p1", "person": "anna"]))
      try await device.download()
      try device.expectReplica("member", [["m1", "p1", "anna", 1]])
      try device.expectReplica("project", [["p1", 0, .null]])
      try device.expectReplica("task", [["t1", "p1", "f1", .null]])
      try device.expectReplica("form", [["f1", 0]])
      try device.expectReplica("answer", [["t1", 1, "f1", .null]])
      try await bench.write(.update("task", ["t1"], ["label": "x"]))
      try await device.download()
      try expectEqual(device.items.map(\.values), [["t1", "p1", "f1", "x"]], "what is fed after")
    },
    on(
      ContractSchemas.members(), "a membership row that goes takes the rows it showed; that is no delete",
      rule: "semantics 4"
    ) { bench in
      try await projects(bench)
      try await bench.write(.insert("member", ["id": "m1", "project_id": "p1", "person": "anna"]))
      var device = try await bench.device()
      try device.expectReplica("answer", [["t1", 1, "f1", .null]])
      try await bench.write(.delete("member", ["m1"]))
      try await device.download()
      for table in bench.schema.synchronized { try device.expectReplica(table.name, []) }
      let ways = Dictionary(grouping: device.items, by: \.table).mapValues { Set($0.map(\.departure)) }
      try expectEqual(ways["member"], [.deleted], "how the membership went")
      for table in ["project", "task", "form", "answer"] { try expectEqual(ways[table], [.left], "how \(table) went") }
    },
    on(ContractSchemas.members(), "a membership row that is changed moves rows out and in", rule: "semantics 4") {
      bench in
      try await projects(bench)
      try await bench.write(.insert("member", ["id": "m1", "project_id": "p1", "person": "anna"]))
      var anna = try await bench.device("anna"), bert = try await bench.device("bert")
      try await bench.write(.update("member", ["m1"], ["project_id": "p2"]))
      try await anna.download()
      try anna.expectReplica("task", [["t2", "p2", .null, .null]])
      try anna.expectReplica("form", [])
      try await bert.download()
      try bert.expectNothingFed()
      try await bench.write(.update("member", ["m1"], ["person": "bert"]))
      try await anna.download()
      try anna.expectReplica("task", [])
      try await bert.download()
      try bert.expectReplica("task", [["t2", "p2", .null, .null]])
      try await bench.write(.update("member", ["m1"], ["active": 0]))
      try await bert.download()
      for table in bench.schema.synchronized { try bert.expectReplica(table.name, []) }
    },
    on(
      ContractSchemas.members(), "a membership that a device uploads moves rows, of its sender too", rule: "semantics 4"
    ) { bench in
      try await projects(bench)
      try await bench.write(.insert("member", ["id": "m1", "project_id": "p1", "person": "anna"]))
      var device = try await bench.device()
      try expectAccepted(try await device.upload(.delete("member", ["m1"])), 1)
      try await device.download()
      for table in ["project", "task", "form", "answer"] { try device.expectReplica(table, []) }
      try expectEqual(
        Set(device.items.map(\.table)), ["project", "task", "form", "answer"], "the tables fed: not what it sent itself"
      )
      try expectEqual(Set(device.items.map(\.departure)), [.left], "how the rows went")
    },
    on(ContractSchemas.members(), "a row that is still shown by another way does not leave", rule: "semantics 4") {
      bench in
      try await projects(bench)
      try await bench.write(
        .insert("member", ["id": "m1", "project_id": "p1", "person": "anna"]),
        .insert("member", ["id": "m2", "project_id": "p1", "person": "anna"]))
      var device = try await bench.device()
      try await bench.write(.delete("member", ["m1"]))
      try await device.download()
      try expectEqual(device.items.map(\.table), ["member"], "the tables fed")
      try device.expectReplica("task", [["t1", "p1", "f1", .null]])
      try await bench.write(
        .insert("member", ["id": "m3", "project_id": "p1", "person": "anna"]), .delete("member", ["m2"]))
      try await device.download()
      try expectEqual(Set(device.items.map(\.table)), ["member"], "the tables fed then")
    },
    on(
      ContractSchemas.members(), "what others see is no news to a device, and its keys are never told",
      rule: "semantics 7"
    ) { bench in
      try await projects(bench)
      try await bench.write(.insert("member", ["id": "m1", "project_id": "p1", "person": "anna"]))
      var anna = try await bench.device("anna"), carl = try await bench.device("carl")
      try await bench.write(.insert("member", ["id": "m2", "project_id": "p1", "person": "bert"]))
      try await anna.download()
      try anna.expectNothingFed()
      _ = try await bench.store.sweep()
      try await bench.write(.delete("member", ["m2"]), .delete("answer", ["t1", 1]), .delete("task", ["t2"]))
      _ = try await bench.store.sweep()
      try await bench.write(.delete("project", ["p1"]), .delete("form", ["f1"]))
      try await carl.download()
      try carl.expectNothingFed()
      try await anna.download()
      try expectEqual(Set(anna.items.map(\.departure)), [.deleted], "what a member is told")
      try anna.expectReplica("task", [])
    },
  ]

  private static let alternatives: [Case] = [
    on(ContractSchemas.members(), "a row is seen by any of its alternatives", rule: "semantics 7") { bench in
      try await projects(bench)
      try await bench.write(.insert("member", ["id": "m1", "project_id": "p1", "person": "anna"]))
      var anna = try await bench.device("anna"), bert = try await bench.device("bert")
      try expectEqual(bert.items.count, 0, "the rows of a first download")
      try await bench.write(.update("project", ["p1"], ["open": 1]))
      try await bert.download()
      try bert.expectReplica("task", [["t1", "p1", "f1", .null]])
      try bert.expectReplica("form", [["f1", 0]])
      try await anna.download()
      try anna.expectReplica("project", [["p1", 1, .null]])
      try await bench.write(.update("project", ["p1"], ["open": 0]))
      try await bert.download()
      for table in bench.schema.synchronized { try bert.expectReplica(table.name, []) }
      try expectEqual(Set(bert.items.map(\.departure)), [.left], "how the rows went")
      try await anna.download()
      try anna.expectReplica("task", [["t1", "p1", "f1", .null]])
      try anna.expectReplica("answer", [["t1", 1, "f1", .null]])
    },
    on(ContractSchemas.members(), "a membership row must be in scope as a whole, as one row", rule: "semantics 7") {
      bench in
      try await projects(bench)
      try await bench.write(
        .insert("member", ["id": "m1", "project_id": "p1", "person": "anna", "active": 0]),
        .insert("member", ["id": "m2", "project_id": "p1", "person": "bert", "active": 1]))
      let anna = try await bench.device("anna"), bert = try await bench.device("bert")
      try expectEqual(anna.items.count, 0, "the rows of a first download")
      try bert.expectReplica("project", [["p1", 0, .null]])
    },
    on(ContractSchemas.members(), "a row that asks for two is seen where both are", rule: "semantics 7") { bench in
      try await projects(bench)
      try await bench.write(
        .insert("member", ["id": "m1", "project_id": "p1", "person": "anna"]),
        .insert("form", ["id": "f2", "open": 0]),
        .insert("answer", ["task_id": "t1", "line": 2, "form_id": "f2"]))
      var device = try await bench.device()
      try device.expectReplica("answer", [["t1", 1, "f1", .null]])
      try await bench.write(.update("form", ["f2"], ["open": 1]))
      try await device.download()
      try device.expectReplica("answer", [["t1", 1, "f1", .null], ["t1", 2, "f2", .null]])
      try await bench.write(.update("form", ["f2"], ["open": 0]), .update("form", ["f1"], ["open": 1]))
      try await device.download()
      try device.expectReplica("answer", [["t1", 1, "f1", .null]])
      try device.expectReplica("form", [["f1", 1]])
    },
    on(
      ContractSchemas.members(regions: true), "a parameter without values is a way by which everything is seen",
      rule: "semantics 7"
    ) { bench in
      try await projects(bench)
      try await bench.write(.update("project", ["p2"], ["region": "EU"]))
      var any = try await bench.device("carl")
      var eu = try await bench.device("dora", parameters: ["region": ["EU"]])
      try expectEqual(any.replica.rows(of: "task").count, 2, "the tasks without a limit")
      try eu.expectReplica("task", [["t2", "p2", .null, .null]])
      try await bench.write(.update("project", ["p2"], ["region": .null]))
      try await any.download()
      try await eu.download()
      try expectEqual(any.replica.rows(of: "task").count, 2, "the tasks without a limit")
      try eu.expectReplica("task", [])
      try await bench.write(.delete("project", ["p2"]))
      try await any.download()
      try any.expectReplica("task", [["t1", "p1", "f1", .null]])
      try await eu.download()
      try eu.expectNothingFed()
    },
    on(ContractSchemas.members(), "a scope that is changed brings its group whole", rule: "FeedPage") { bench in
      try await projects(bench)
      let device = try await bench.device()
      try expectEqual(device.items.count, 0, "the rows of a first download")
      var schema = bench.schema
      for place in schema.tables.indices where schema.tables[place].name == "form" {
        schema.tables[place].scopeAlternatives.append([ScopeColumn(column: "id", source: .value("f1"))])
      }
      try await bench.restart(schema)
      var other = Device(bench, principal: device.principal)
      (other.remote, other.groups, other.replica) = (device.remote, device.groups, device.replica)
      try await other.download()
      try other.expectReplica("form", [["f1", 0]])
      try await other.download()
      try other.expectNothingFed()
    },
  ]

  private static let writingThrough: [Case] = [
    on(
      ContractSchemas.members(), "a write through a membership is allowed, without one it is refused",
      rule: "semantics 7"
    ) { bench in
      try await projects(bench)
      try await bench.write(.insert("member", ["id": "m1", "project_id": "p1", "person": "anna"]))
      var anna = try await bench.device("anna"), bert = try await bench.device("bert")
      try expectAccepted(
        try await anna.upload(
          .update("task", ["t1"], [("label", .null, "x")]),
          .insert("task", ["id": "t3", "project_id": "p1", "form_id": .null, "label": .null])), 2)
      let results = try await bert.upload(
        .update("task", ["t1"], [("label", "x", "y")]), .delete("answer", ["t1", 1]),
        .insert("task", ["id": "t4", "project_id": "p1", "form_id": .null, "label": .null]),
        .insert("member", ["id": "m9", "project_id": "p1", "person": "anna", "active": 1]))
      try expectRefused(
        results, [1: .rowDeleted, 2: .rowDeleted, 3: .missingParent, 4: .outOfScope], accepted: 0)
      try await bench.expectRows("answer", [["t1", 1, "f1", .null]])
      try expectEqual(results.refused.flatMap(\.serverRows).count, 0, "the server's rows that are shown")
    },
    on(
      ContractSchemas.members(), "a membership counts from where it stands in the upload, to where it goes",
      rule: "semantics 7"
    ) { bench in
      try await projects(bench)
      var device = try await bench.device()
      let results = try await device.upload(
        .insert("project", ["id": "p8", "open": 0, "region": .null]),
        .insert("member", ["id": "m9", "project_id": "p9", "person": "anna", "active": 1]),
        .insert("project", ["id": "p9", "open": 0, "region": .null]),
        .insert("task", ["id": "t9", "project_id": "p9", "form_id": .null, "label": .null]),
        .delete("member", ["m9"]), .update("task", ["t9"], [("label", .null, "z")]))
      // The last row is the device's own upload's, so it is told the truth of it.
      try expectRefused(results, [1: .outOfScope, 6: .outOfScope], accepted: 4)
      try await device.download()
      for table in ["task", "project", "form"] { try device.expectReplica(table, []) }
    },
    on(
      ContractSchemas.members(handover: true),
      "a write never brings its writer into a scope that he was not in before it", rule: "semantics 7"
    ) { bench in
      try await projects(bench)
      try await bench.write(.insert("member", ["id": "m1", "project_id": "p1", "person": "anna"]))
      var device = try await bench.device()
      // Into a project, by an insert and by a change of his own row; to a form, by a task of his own.
      let results = try await device.upload(
        .insert("member", ["id": "m2", "project_id": "p2", "person": "anna", "active": 1]),
        .update("member", ["m1"], [("project_id", "p1", "p2")]))
      try expectRefused(results, [1: .outOfScope, 2: .outOfScope], accepted: 0)
      try await bench.write(.insert("form", ["id": "f2", "open": 0]))
      let forms = try await device.upload(
        .insert("task", ["id": "t8", "project_id": "p1", "form_id": "f2", "label": .null]),
        .insert("task", ["id": "t9", "project_id": "p1", "form_id": "none", "label": .null]),
        .update("task", ["t1"], [("form_id", "f1", "f2")]))
      try expectRefused(forms, [3: .missingParent, 4: .missingParent, 5: .missingParent], accepted: 0)
      try expectEqual(forms.refused[0].message, forms.refused[1].message, "a form unseen, and none at all")
      try await bench.expectRows("member", [["m1", "p1", "anna", 1]])
      try await device.download()
      try device.expectReplica("task", [["t1", "p1", "f1", .null]])
      try device.expectReplica("form", [["f1", 0]])
      // What he sees already he may show to himself again, and others may be let in.
      try expectAccepted(
        try await device.upload(
          .insert("member", ["id": "m3", "project_id": "p1", "person": "anna", "active": 1]),
          .insert("task", ["id": "t7", "project_id": "p1", "form_id": "f1", "label": .null]),
          .update("member", ["m3"], [("person", "anna", "bert")])), 3)
      var bert = try await bench.device("bert")
      try await bert.download()
      try bert.expectReplica("project", [["p1", 0, .null]])
    },
    on(
      ContractSchemas.members(), "the answer does not tell whether a row is there that its sender could not see",
      rule: "semantics 7"
    ) { bench in
      try await projects(bench)
      var bert = try await bench.device("bert")
      let there = try await bert.upload(
        .update("task", ["t1"], [("label", .null, "x")]), .delete("task", ["t2"]),
        .insert("answer", ["task_id": "t1", "line": 9, "form_id": "f1", "text": .null]),
        .insert("task", ["id": "t5", "project_id": "p1", "form_id": .null, "label": .null]))
      let gone = try await bert.upload(
        .update("task", ["n1"], [("label", .null, "x")]), .delete("task", ["n2"]),
        .insert("answer", ["task_id": "n1", "line": 9, "form_id": "n1", "text": .null]),
        .insert("task", ["id": "t6", "project_id": "n1", "form_id": .null, "label": .null]))
      try expectRefused(there, [1: .rowDeleted, 2: .rowDeleted, 3: .missingParent, 4: .missingParent], accepted: 0)
      try expectEqual(there.refused.map(\.reason), gone.refused.map(\.reason), "the reasons")
      try expectEqual(there.refused.map(\.message), gone.refused.map(\.message), "the messages")
      try expectEqual(there.refused.flatMap(\.serverRows).count, 0, "the server's rows that are shown")
      try expectEqual(
        [there.acceptedRequests, there.conflicts], [gone.acceptedRequests, gone.conflicts], "the counts")
      try await bert.download()
      try bert.expectNothingFed()
      try await bench.expectRows("task", [["t1", "p1", "f1", .null], ["t2", "p2", .null, .null]])
    },
    on(
      ContractSchemas.members(), "two who could see a row delete it: both are accepted", rule: "semantics 7"
    ) { bench in
      try await projects(bench)
      for person in ["anna", "bert"] as [Value] {
        try await bench.write(.insert("member", ["id": person, "project_id": "p1", "person": person]))
      }
      var anna = try await bench.device("anna"), bert = try await bench.device("bert")
      for _ in 0..<2 { try expectAccepted(try await anna.upload(.delete("answer", ["t1", 1])), 1) }
      try expectAccepted(try await bert.upload(.delete("answer", ["t1", 1])), 1)
    },
    on(
      ContractSchemas.members(handover: true), "a row that its sender has hidden himself is not told to be gone",
      rule: "semantics 7"
    ) { bench in
      try await projects(bench)
      try await bench.write(.insert("member", ["id": "m1", "project_id": "p1", "person": "anna"]))
      var anna = try await bench.device("anna")
      let results = try await anna.upload(
        .group([
          .insert("task", ["id": "t8", "project_id": "p1", "form_id": .null, "label": .null]),
          .update("member", ["m1"], [("person", "anna", "bert")]), .delete("task", ["t8"]),
        ]))
      try expectRefused(results, [1: .outOfScope], accepted: 0)
      try await bench.expectRows("member", [["m1", "p1", "anna", 1]])
    },
    on(
      ContractSchemas.members(), "who could see a row that has left since is told that it is out of his scope",
      rule: "semantics 7"
    ) { bench in
      try await projects(bench)
      try await bench.write(.insert("member", ["id": "m1", "project_id": "p1", "person": "anna"]))
      var anna = try await bench.device("anna")
      try await bench.write(.delete("member", ["m1"]))
      let results = try await anna.upload(
        .update("task", ["t1"], [("label", .null, "x")]), .delete("answer", ["t1", 1]))
      try expectRefused(results, [1: .outOfScope, 2: .outOfScope], accepted: 0)
    },
    on(
      ContractSchemas.members(handover: true), "a row written and then hidden in one upload leaves its sender",
      rule: "semantics 4"
    ) { bench in
      try await projects(bench)
      try await bench.write(.insert("member", ["id": "m1", "project_id": "p1", "person": "anna"]))
      var anna = try await bench.device("anna"), bert = try await bench.device("bert")
      try expectAccepted(
        try await anna.upload(
          .insert("task", ["id": "t3", "project_id": "p1", "form_id": .null, "label": .null]),
          .update("task", ["t1"], [("label", .null, "x")]),
          .update("member", ["m1"], [("person", "anna", "bert")])), 3)
      try await anna.download()
      for table in bench.schema.synchronized { try anna.expectReplica(table.name, []) }
      try expect(anna.items.contains { $0.table == "task" && $0.values == ["t3"] }, "the row it made must leave it")
      try await bert.download()
      try bert.expectReplica("task", [["t1", "p1", "f1", "x"], ["t3", "p1", .null, .null]])
    },
  ]

  /// Two projects: one with a task that has a form and an answer, one with a bare task.
  private static func projects(_ bench: ServerBench) async throws {
    try await bench.write(
      .insert("project", ["id": "p1", "open": 0]), .insert("project", ["id": "p2", "open": 0]),
      .insert("form", ["id": "f1", "open": 0]),
      .insert("task", ["id": "t1", "project_id": "p1", "form_id": "f1"]),
      .insert("task", ["id": "t2", "project_id": "p2"]),
      .insert("answer", ["task_id": "t1", "line": 1, "form_id": "f1"]))
  }
}
