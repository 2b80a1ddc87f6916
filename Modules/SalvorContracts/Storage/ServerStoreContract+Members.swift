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
      var device = try await bench.device()
      try expectAccepted(
        try await device.upload(
          .insert("member", ["id": "m1", "project_id": "p1", "person": "anna", "active": 1])), 1)
      try await device.download()
      try expectEqual(
        Set(device.items.map(\.table)), ["project", "task", "form", "answer"], "the tables fed: not what it sent itself"
      )
      try device.expectReplica("answer", [["t1", 1, "f1", .null]])
      try expectAccepted(try await device.upload(.delete("member", ["m1"])), 1)
      try await device.download()
      for table in ["project", "task", "form", "answer"] { try device.expectReplica(table, []) }
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
        results, [1: .outOfScope, 2: .outOfScope, 3: .outOfScope, 4: .outOfScope], accepted: 0)
      try expectEqual(results.refused.flatMap(\.serverRows).count, 0, "the server's rows that are shown")
    },
    on(
      ContractSchemas.members(), "a membership counts from where it stands in the upload, to where it goes",
      rule: "semantics 7"
    ) { bench in
      try await projects(bench)
      var device = try await bench.device()
      let results = try await device.upload(
        .update("project", ["p1"], [("region", .null, "EU")]),
        .insert("member", ["id": "m1", "project_id": "p1", "person": "anna", "active": 1]),
        .update("task", ["t1"], [("label", .null, "y")]),
        .delete("member", ["m1"]), .update("task", ["t1"], [("label", "y", "z")]))
      try expectRefused(results, [1: .outOfScope, 5: .outOfScope], accepted: 3)
      try await device.download()
      for table in ["task", "project", "form"] { try device.expectReplica(table, []) }
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
