import SalvorModel
import SalvorStorage

/// Subscriptions of tables that are seen by several ways and through join tables, that are compared, and that change
/// (docs/decisions/0009-subscriptions.md).
extension ServerStoreContract {
  static let subscribingWays: [Case] = [
    on(
      ContractSchemas.members(handover: true, regions: true),
      "subscriptions: each alternative is chosen by its own columns", rule: "semantics 1"
    ) { bench in
      try await projects(bench)
      var device = try await bench.device(parameters: ["region": ["EU", "US"]], download: false)
      device.subscriptions = ResolvedSubscriptions(["project": [["region": "EU"]]])
      try await device.download()
      try device.expectProjects(["eu", "open"])
      try await bench.write(.insert("member", ["id": "m1", "project_id": "us", "person": "anna"]))
      try await device.download()
      try expectEqual(
        Set(device.items.map(\.text)), ["member m1", "project us", "task t-us"], "what a membership brings")
      device.subscriptions?.targets["project"] = [["region": "US"]]
      try await device.download()
      try expectEqual(Set(device.items.map(\.text)), ["dropped project eu", "dropped task t-eu"], "what is dropped")
      try await bench.write(.delete("member", ["m1"]))
      try await device.download()
      try expectEqual(device.items.map(\.text), ["deleted member m1"], "what goes where another way shows the rows")
      device.subscriptions?.targets["project"] = []
      try await device.download()
      try expectEqual(
        Set(device.items.map(\.text)), ["dropped project us", "dropped task t-us"], "what goes with the last")
      try device.expectProjects(["open"])
      try await bench.write(.insert("member", ["id": "m2", "project_id": "eu", "person": "anna"]))
      try await device.download()
      try device.expectProjects(["eu", "open"])
    },
    on(
      ContractSchemas.members(handover: true, regions: true),
      "subscriptions: what is seen through a join table follows the joined rows", rule: "semantics 1"
    ) { bench in
      try await projects(bench)
      try await forms(bench)
      var device = try await bench.device(download: false)
      device.subscriptions = ResolvedSubscriptions(["project": [["region": "EU"]]])
      try await device.download()
      try device.expectReplica("form", [["f-both", 0], ["f-eu", 0]])
      device.subscriptions = ResolvedSubscriptions(["project": [["region": "US"]]])
      try await device.download()
      try expectEqual(
        Set(device.items.filter { $0.table == "form" }.map(\.text)), ["form f-us", "dropped form f-eu"],
        "the forms that come and go")
      try expectEqual(device.pages.flatMap(\.full), [], "the tables that come whole")
      try device.expectReplica("form", [["f-both", 0], ["f-us", 0]])
      try await bench.write(.update("task", ["u2"], ["form_id": "f-eu"]))
      try await device.download()
      try expectEqual(
        Set(device.items.map(\.text)), ["task u2", "form f-eu", "dropped form f-both"], "what a joined row moves")
      try await device.download()
      try device.expectNothingFed()
    },
    on(
      ContractSchemas.members(handover: true, regions: true),
      "subscriptions: a row that came to be in both scopes by different ways is not overlooked",
      rule: "docs/architecture/feed.md"
    ) { bench in
      try await projects(bench)
      try await bench.write(
        .insert("form", ["id": "f"]), .insert("task", ["id": "e1", "project_id": "eu", "form_id": "f"]))
      var device = try await bench.device(download: false)
      device.subscriptions = ResolvedSubscriptions(["project": [["region": "US"]]])
      try await device.download()
      try device.expectReplica("form", [])
      // In what was had it is by a row that is new, in what is wanted by one that is not.
      try await bench.write(.insert("task", ["id": "u1", "project_id": "us", "form_id": "f"]))
      device.subscriptions = ResolvedSubscriptions(["project": [["region": "EU"]]])
      try await device.download()
      try device.expectReplica("form", [["f", 0]])
      try await bench.write(.delete("task", ["u1"]))
      device.subscriptions = ResolvedSubscriptions(["project": [["region": "US"]]])
      try await device.download()
      try device.expectReplica("form", [])
      try device.expectProjects(["open", "us"])
    },
    recovering(
      ContractSchemas.places, "subscriptions: what changed of them is read for compared tables, too",
      rule: "docs/architecture/comparison.md"
    ) { bench in
      for (id, region) in [("e1", "EU"), ("e2", "EU"), ("u1", "US")] {
        try await bench.write(
          .insert("site", ["id": .text(id), "region": .text(region), "size": 1]),
          .insert("van", ["id": .text("v-\(id)"), "region": .text(region)]))
      }
      var device = try await bench.device(download: false)
      let had = ResolvedSubscriptions(["places": [["region": "EU"]]])
      device.subscriptions = had
      try await device.download()
      let head = try await bench.store.sweep()
      for (subscriptions, count) in [(had, 2), (ResolvedSubscriptions(), 3)] {
        let digest = try await bench.recovering.digest(of: "site", for: ReadScope(device.principal, subscriptions))
        try expectEqual(digest.count, Int64(count), "the rows that are compared")
      }
      try await bench.write(.insert("site", ["id": "u2", "region": "US", "size": 1]), .delete("site", ["e1"]))
      device.subscriptions = ResolvedSubscriptions(["places": [["region": "US"]]])
      try await device.download(compared: ComparedTables(head: head, fed: ["site"], whole: ["van"]))
      try expectEqual(device.pages.flatMap(\.full), ["van"], "the tables that come whole")
      try expectEqual(
        Set(device.items.filter { $0.table == "site" }.map(\.text)),
        ["site u1", "site u2", "dropped site e2", "deleted site e1"], "what is fed of the compared table")
      try expectEqual(device.items.filter { $0.table == "van" }.map(\.text), ["van v-u1"], "what comes whole")
    },
    on(
      ContractSchemas.places, "subscriptions: a column that rows were chosen by can be dropped",
      rule: "decision 12, dropped"
    ) { bench in
      try await bench.write(.insert("van", ["id": "v1", "region": "EU"]))
      var schema = ContractSchemas.places
      schema.version = 2
      schema.tables[1].columns.removeLast()
      schema.tables[1].scope = []
      schema.tables[1].dropped = ["region"]
      try await bench.evolve(to: schema)
      var device = try await bench.device()
      try device.expectReplica("van", [["v1"]])
      try expectAccepted(try await device.upload(.insert("van", ["id": "v2"])), 1)
      try await bench.expectRows("van", [["v1"], ["v2"]])
    },
  ]

  /// An open project, and one of each of three regions, with a task each.
  private static func projects(_ bench: ServerBench) async throws {
    for (id, region) in [("open", "CA"), ("eu", "EU"), ("us", "US"), ("ca", "CA")] {
      let isOpen: Value = id == "open" ? 1 : 0
      try await bench.write(
        .insert("project", ["id": .text(id), "open": isOpen, "region": .text(region)]),
        .insert("task", ["id": .text("t-\(id)"), "project_id": .text(id)]))
    }
  }

  /// A form that tasks of one region name, one of the other, and one of both.
  private static func forms(_ bench: ServerBench) async throws {
    for form in ["f-eu", "f-us", "f-both"] { try await bench.write(.insert("form", ["id": .text(form)])) }
    for (task, project, form) in [
      ("e1", "eu", "f-eu"), ("e2", "eu", "f-both"), ("u1", "us", "f-us"), ("u2", "us", "f-both"),
    ] {
      try await bench.write(
        .insert("task", ["id": .text(task), "project_id": .text(project), "form_id": .text(form)]))
    }
  }
}

extension Device {
  /// The projects, and the task of each.
  fileprivate func expectProjects(_ ids: [String], file: String = #fileID, line: Int = #line) throws {
    try expectEqual(
      Set(replica.rows(of: "project").map { $0[0] }), Set(ids.map { Value.text($0) }), "the projects", file: file,
      line: line)
    for id in ids {
      try expect(
        replica.rows(of: "task").contains { $0[0] == .text("t-\(id)") }, "the task of \(id)", file: file, line: line)
    }
    try expect(
      replica.rows(of: "task").allSatisfy { row in ids.contains { .text($0) == row[1] } }, "tasks of no project",
      file: file, line: line)
  }
}
