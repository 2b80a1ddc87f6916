import SalvorModel
import SalvorStorage

/// Subscriptions (docs/decisions/0009-subscriptions.md): a download brings what is wanted and was not there, and drops what
/// is not wanted any more.
extension ServerStoreContract {
  static let subscribing: [Case] = [
    on(ContractSchemas.places, "a subscription brings what it covers, and what inherits its scope", rule: "semantics 1")
    {
      bench in
      try await places(bench)
      var device = try await bench.device(download: false)
      device.subscriptions = ResolvedSubscriptions(["site": [["region": "EU"]]])
      try await device.download()
      try device.expectSites(["eu1", "eu2"])
      try device.expectReplica("task", [["t-eu1", "eu1", .null, 0], ["t-eu2", "eu2", .null, 0]])
      // Neither the table nor its group is a target.
      try expectEqual(device.replica.rows(of: "van").count, 2, "the vans")
      try device.expectReplica("note", [["n", "for all"]])
      try expectEqual(
        device.groups.map(\.subscriptions), [device.subscriptions, device.subscriptions],
        "the subscriptions that the groups end with")
      try await device.download()
      try device.expectNothingFed()
    },
    on(ContractSchemas.places, "adding a subscription fetches only what is new", rule: "semantics 1") { bench in
      try await places(bench)
      var device = try await subscribed(bench, ["site": [["region": "EU"]]])
      device.subscriptions?.targets["site"]?.insert(["region": "US", "size": 1])
      try await device.download()
      try expectEqual(device.items.map(\.text), ["site us1", "task t-us1"], "what is fed")
      try expectEqual(device.pages.flatMap(\.full), [], "the tables that come whole")
      try device.expectSites(["eu1", "eu2", "us1"])
      // One that covers what is there already.
      device.subscriptions?.targets["site"]?.insert(["region": "EU", "size": 1])
      try await device.download()
      try expectEqual(device.items, [], "what a subscription brings that others cover")
    },
    on(ContractSchemas.places, "removing a subscription drops only what no other one covers", rule: "semantics 1") {
      bench in
      try await places(bench)
      var device = try await subscribed(bench, ["site": [["region": "EU"], ["size": 1], ["region": "US"]]])
      try device.expectSites(["eu1", "eu2", "us1", "us2"])
      device.subscriptions?.targets["site"]?.remove(["region": "EU"])
      try await device.download()
      try expectEqual(device.items.map(\.text), ["dropped site eu2", "dropped task t-eu2"], "what is fed")
      device.subscriptions?.targets["site"] = []
      try await device.download()
      try expectEqual(
        device.items.map(\.text),
        ["eu1", "us1", "us2"].map { "dropped site \($0)" } + ["eu1", "us1", "us2"].map { "dropped task t-\($0)" },
        "what the last one drops")
      try device.expectReplica("note", [["n", "for all"]])
      // Never subscribed to again: everything.
      device.subscriptions = ResolvedSubscriptions()
      try await device.download()
      try expectEqual(device.items.count { $0.departure == nil }, 8, "the rows of a target that is none any more")
      try expectEqual(device.pages.flatMap(\.full), [], "the tables that come whole")
    },
    on(
      ContractSchemas.places, "a group is a target: each of its tables is chosen by its own parameters",
      rule: "semantics 1"
    ) { bench in
      try await places(bench)
      var device = try await subscribed(bench, ["places": [["region": "EU", "size": 2]]])
      try device.expectSites(["eu2"])
      try device.expectReplica("van", [["v-eu", "EU"]])
      try device.expectReplica("note", [["n", "for all"]])
      device.subscriptions?.targets["van"] = [["region": "US"]]
      try await device.download()
      try expectEqual(device.items.map(\.text), ["van v-us"], "what the table's own subscription adds")
      device.subscriptions?.targets["places"] = []
      try await device.download()
      try expectEqual(
        device.items.map(\.text), ["dropped site eu2", "dropped van v-eu", "dropped task t-eu2"], "what the group drops"
      )
    },
    on(
      ContractSchemas.places, "no subscription brings what the principal may not see, not even a key",
      rule: "semantics 4"
    ) { bench in
      try await places(bench)
      var device = try await bench.device(parameters: ["region": ["EU"]], download: false)
      device.subscriptions = ResolvedSubscriptions(["site": [["region": "US"]]])
      try await device.download()
      try device.expectSites([])
      device.subscriptions = ResolvedSubscriptions(["site": [["region": "US"], ["region": "EU"], [:]]])
      try await device.download()
      try device.expectSites(["eu1", "eu2"])
      try expectEqual(device.items.count { $0.departure != nil }, 0, "keys of what went")
      device.subscriptions = ResolvedSubscriptions(["site": [["region": "US"]]])
      try await bench.write(.update("site", ["us1"], ["size": 9]), .delete("task", ["t-us2"]))
      try await device.download()
      try expectEqual(
        Set(device.items.map { $0.values[0] }), ["eu1", "eu2", "t-eu1", "t-eu2"], "the keys that are told")
    },
    on(ContractSchemas.places, "a subscription narrows what is read, not what may be written", rule: "semantics 7") {
      bench in
      try await places(bench)
      var device = try await subscribed(bench, ["site": [["region": "EU"]]])
      try expectAccepted(
        try await device.upload(
          .insert("site", ["id": "us9", "region": "US", "size": 9, "name": .null]),
          .insert("site", ["id": "eu9", "region": "EU", "size": 9, "name": .null]),
          .insert("task", ["id": "t9", "site_id": "us9", "note_id": .null, "done": 0]),
          .insert("task", ["id": "t8", "site_id": "eu9", "note_id": .null, "done": 0])), 4)
      try await device.download()
      try expectEqual(
        device.items.map(\.text), ["dropped site us9", "dropped task t9"], "what of one's own is outside")
      try await device.download()
      try device.expectNothingFed()
    },
    on(
      ContractSchemas.places, "what its own change brings into its subscriptions comes to a device that was told of it",
      rule: "semantics 11.4"
    ) { bench in
      try await places(bench)
      var device = try await subscribed(bench, ["site": [["region": "EU"]]])
      try expectAccepted(
        try await device.upload(.insert("site", ["id": "us9", "region": "US", "size": 9, "name": "a"])), 1)
      try await device.download()
      try expectEqual(device.items.map(\.text), ["dropped site us9"], "what of one's own is outside")
      try expectAccepted(try await device.upload(.update("site", ["us9"], [("region", "US", "EU")])), 1)
      try await device.download()
      try device.expectSites(["eu1", "eu2", "us9"])
      try expectEqual(device.items.map(\.text), ["site us9"], "what is fed")
      try await device.download()
      try device.expectNothingFed()
    },
    on(ContractSchemas.places, "what was made outside just as the server has it is told, too", rule: "semantics 4") {
      bench in
      try await places(bench)
      var device = try await subscribed(bench, ["van": [["region": "EU"]]])
      try expectAccepted(
        try await device.upload(
          .insert("van", ["id": "v-us", "region": "US"]), .insert("van", ["id": "v-eu", "region": "EU"])), 2)
      try await device.download()
      try expectEqual(device.items.filter { $0.departure != nil }.map(\.text), ["dropped van v-us"], "what goes")
      try device.expectReplica("van", [["v-eu", "EU"]])
      try await device.download()
      try device.expectNothingFed()
    },
    on(ContractSchemas.places, "what was written outside and deleted by another is told", rule: "semantics 4") {
      bench in
      try await places(bench)
      var device = try await subscribed(bench, ["site": [["region": "EU"]]])
      try expectAccepted(
        try await device.upload(
          .insert("van", ["id": "v9", "region": "US"]), .update("site", ["us1"], [("size", 1, 3)])),
        2)
      try await bench.write(.delete("site", ["us1"]))
      try await device.download()
      try expect(device.items.contains { $0.text == "deleted site us1" }, "found \(device.items.map(\.text))")
    },
    on(
      ContractSchemas.places, "another's write that moves a row out of the subscriptions drops it", rule: "semantics 4"
    ) {
      bench in
      try await places(bench)
      var device = try await subscribed(bench, ["site": [["region": "EU"]]])
      try await bench.write(.update("site", ["eu1"], ["region": "US"]), .update("site", ["us1"], ["region": "EU"]))
      try await bench.write(.delete("site", ["us2"]), .delete("task", ["t-eu2"]))
      try await device.download()
      try expectEqual(
        Set(device.items.map(\.text)),
        ["dropped site eu1", "dropped task t-eu1", "site us1", "task t-us1", "deleted task t-eu2"], "what is fed")
    },
    on(ContractSchemas.places, "rows change hands while subscriptions change", rule: "docs/architecture/feed.md") {
      bench in
      try await places(bench)
      var device = try await subscribed(bench, ["site": [["region": "EU"]]])
      device.subscriptions = ResolvedSubscriptions(["site": [["region": "US"]]])
      try await bench.write(.update("site", ["eu1"], ["region": "US"]), .update("site", ["us1"], ["region": "EU"]))
      try await bench.write(.update("site", ["eu2"], ["name": "renamed"]), .delete("site", ["us2"]))
      let store = bench.store
      // Between two pages they move on.
      var moves: [[ApplicationWrite]] = [
        [.update("site", ["eu2"], ["region": "US"])], [.update("site", ["us1"], ["region": "US"])],
        [.insert("site", ["id": "a0", "region": "US", "size": 0])], [.delete("task", ["t-us1"])],
      ]
      try await device.download(bytesTarget: 1) {
        if !moves.isEmpty { try await store.write(moves.removeFirst()) }
      }
      while !moves.isEmpty { try await store.write(moves.removeFirst()) }
      try await device.download()
      try device.expectSites(["a0", "eu1", "eu2", "us1"])
      try device.expectReplica("task", [["t-eu1", "eu1", .null, 0], ["t-eu2", "eu2", .null, 0]])
    },
    on(ContractSchemas.places, "a difference of subscriptions goes on from any position", rule: "semantics 4") {
      bench in
      for index in 0..<20 {
        try await bench.write(
          .insert("site", ["id": .text("s\(index)"), "region": index % 2 == 0 ? "EU" : "US", "size": 1]))
      }
      var device = try await subscribed(bench, ["site": [["region": "EU"]]])
      device.subscriptions = ResolvedSubscriptions(["site": [["region": "US"]]])
      let known = device
      func make(_ position: String?) async throws -> FeedPage {
        try await bench.store.page(
          PageRequest(
            remote: known.remote, principal: known.principal, subscriptions: known.subscriptions, groups: known.groups,
            position: position, bytesTarget: 50))
      }
      var pages: [DownloadedPage] = []
      var position: String?
      repeat {
        let page = try await make(position)
        try expectEqual(page.bytes, try await make(position).bytes, "the same page again")
        pages.append(try DownloadedPage(page.bytes, schema: bench.schema))
        position = page.position
        if pages.count == 2 { try await bench.restart() }
        try expect(pages.count < 1000, "a download must end")
      } while position != nil
      try device.replica.apply(pages)
      try device.expectSites((0..<20).filter { $0 % 2 == 1 }.map { "s\($0)" })
      try expectEqual(pages.flatMap(\.items).count, 20, "the rows that come and go")
    },
    on(
      ContractSchemas.places, "groups whose subscriptions are not those of their cursor come whole", rule: "semantics 4"
    ) {
      bench in
      try await places(bench)
      var device = try await subscribed(bench, ["site": [["region": "EU"]]])
      for place in device.groups.indices {
        device.groups[place].subscriptions = ResolvedSubscriptions(["site": [["region": "US"]]])
      }
      try await device.download()
      try expectEqual(Set(device.pages.flatMap(\.full)), ["site", "van", "note", "task"], "the tables that come whole")
      try device.expectSites(["eu1", "eu2"])
    },
    on(ContractSchemas.places, "without a word on subscriptions each group keeps its own", rule: "PageRequest") {
      bench in
      try await places(bench)
      var device = try await subscribed(bench, ["site": [["region": "EU"]]])
      device.subscriptions = nil
      try await bench.write(.update("site", ["eu1"], ["name": "x"]), .update("site", ["us1"], ["name": "x"]))
      try await device.download()
      try expectEqual(device.items.map(\.text), ["site eu1"], "what is fed")
    },
    recovering(ContractSchemas.places, "a recovery asks within the subscriptions", rule: "RecoveringServerStore.swift")
    {
      bench in
      try await places(bench)
      let store = try bench.recovering
      let scope = ReadScope(
        Principal(name: "anna", parameters: ["region": ["EU", "CA"]]),
        ResolvedSubscriptions(["site": [["size": 1], ["region": "US"]]]))
      try expectEqual(try await store.rowCount(of: ["places", "tasks"], for: scope), 4, "the rows in the scope")
      let page = try DownloadedPage(
        try await store.rows(matching: RowQuery(table: "site", keys: [["eu1"], ["eu2"], ["us1"]]), for: scope),
        schema: bench.schema)
      try expectEqual(page.items.map(\.text), ["site eu1", "dropped site eu2", "left site us1"], "the answer")
      let ranges = try await store.ranges(RangeQuestion(table: "task", rowsPerRange: 64), limit: 10, for: scope)
      try expectEqual(ranges.ranges.map(\.count), [1], "the rows in the ranges")
      let device = try await subscribed(bench, ["site": [["size": 1]]])
      for group in device.groups {
        let found = try await store.scopes(
          of: [group.name], for: ReadScope(device.principal, group.subscriptions))
        try expectEqual(found, [group.name: group.scopeDigest], "the scope digest of \(group.name)")
      }
    },
  ]

  /// In each of two regions two sites of sizes 1 and 2 with a task each, and a van; a note for all.
  private static func places(_ bench: ServerBench) async throws {
    for (region, name) in [("EU", "eu"), ("US", "us")] {
      for size in [1, 2] {
        let site = Value.text("\(name)\(size)")
        try await bench.write(
          .insert("site", ["id": site, "region": .text(region), "size": .integer(Int64(size))]),
          .insert("task", ["id": .text("t-\(name)\(size)"), "site_id": site]))
      }
      try await bench.write(.insert("van", ["id": .text("v-\(name)"), "region": .text(region)]))
    }
    try await bench.write(.insert("note", ["id": "n", "body": "for all"]))
  }

  /// A device that has downloaded what these cover.
  private static func subscribed(
    _ bench: ServerBench, _ targets: [String: Set<[String: Value]>]
  ) async throws -> Device {
    var device = try await bench.device(download: false)
    device.subscriptions = ResolvedSubscriptions(targets)
    try await device.download()
    return device
  }
}

extension Device {
  fileprivate func expectSites(_ keys: [String], file: String = #fileID, line: Int = #line) throws {
    try expectEqual(
      Set(replica.rows(of: "site").map { $0[0] }), Set(keys.map { Value.text($0) }), "the sites", file: file, line: line
    )
  }
}

extension DownloadedPage.Item {
  /// `site eu1`, of a row that went `dropped site eu1`.
  var text: String {
    "\(departure.map { "\($0.rawValue) " } ?? "")\(table) \(values[0])"
  }
}
