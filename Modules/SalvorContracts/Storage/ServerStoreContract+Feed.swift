import SalvorModel
import SalvorStorage

extension ServerStoreContract {
  static let scope: [Case] = [
    on(ContractSchemas.inspections, "nobody reads outside their scope, inherited scopes included", rule: "semantics 7")
    {
      bench in
      try await regions(bench)
      let device = try await bench.device(parameters: ["region": ["EU"]])
      try device.expectReplica("establishment", [["eu", "e", "EU"]])
      try device.expectReplica("inspection", [["i-eu", "eu", "d", .null]])
      try device.expectReplica("infraction", [["i-eu", 1, .null, .null]])
      let both = try await bench.device("bert", parameters: ["region": ["EU", "US"]])
      try expectEqual(both.replica.rows(of: "infraction").count, 2, "the infractions of both regions")
      let any = try await bench.device("carl")
      try expectEqual(any.replica.rows(of: "establishment").count, 2, "the establishments without a limit")
    },
    on(ContractSchemas.diaries, "a row of a principal is read and written by that principal alone", rule: "semantics 7")
    {
      bench in
      var anna = try await bench.device("anna"), bert = try await bench.device("bert")
      let results = try await anna.upload(
        .insert("diary", ["id": "d1", "owner": "anna", "text": "x"]),
        .insert("diary", ["id": "d2", "owner": "bert", "text": "x"]))
      try expectRefused(results, [2: .outOfScope], accepted: 1)
      try await bert.download()
      try bert.expectNothingFed()
      try expectRefused(
        try await bert.upload(.update("diary", ["d1"], [("text", "x", "y")]), made: 99), [1: .rowDeleted], accepted: 0)
      try expectRefused(try await bert.upload(.delete("diary", ["d1"]), made: 99), [2: .rowDeleted], accepted: 0)
      try expectEqual(
        try await bert.upload(.insert("diary", ["id": "d1", "owner": "bert", "text": "y"])).refused.count, 1,
        "the refusals of an insert over another's row")
      try await bench.expectRows("diary", [["d1", "anna", "x"]])
    },
    on(ContractSchemas.inspections, "nobody writes a child of a row outside their scope", rule: "semantics 7") {
      bench in
      try await regions(bench)
      let wanted = try await bench.store.rows(of: "infraction")
      var device = try await bench.device(parameters: ["region": ["EU"]])
      let results = try await device.upload(
        .insert("inspection", ["id": "i9", "establishment_id": "us", "date": "d", "inspector": .null]),
        .update("inspection", ["i-us"], [("date", "d", "x")]), .delete("infraction", ["i-us", 1]),
        .update("inspection", ["i-eu"], [("establishment_id", "eu", "us")]))
      try expectRefused(
        results, [1: .missingParent, 2: .rowDeleted, 3: .rowDeleted, 4: .missingParent], accepted: 0)
      try await bench.expectRows("infraction", wanted)
    },
    on(
      ContractSchemas.inspections, "a row is handed to another scope only where the table allows it",
      rule: "semantics 7"
    ) { bench in
      try await regions(bench)
      var device = try await bench.device(parameters: ["region": ["EU"]])
      let results = try await device.upload(.update("establishment", ["eu"], [("region", "EU", "US")]))
      try expectRefused(results, [1: .outOfScope], accepted: 0)
      try await bench.expectRows("establishment", [["eu", "e", "EU"], ["us", "e", "US"]])
    },
    on(
      ContractSchemas.inspections(handover: true),
      "a row that was outside of the scope is not brought into it by an update", rule: "semantics 7"
    ) { bench in
      try await regions(bench)
      var device = try await bench.device(parameters: ["region": ["EU"]])
      let results = try await device.upload(
        .update("establishment", ["us"], [("region", "US", "EU")]),
        .update("inspection", ["i-us"], [("establishment_id", "us", "eu")]), made: 99)
      // A row that the sender never saw is answered like one that is not there.
      try expectRefused(results, [1: .rowDeleted, 2: .rowDeleted], accepted: 0)
      try await bench.expectRows("establishment", [["eu", "e", "EU"], ["us", "e", "US"]])
    },
    on(
      ContractSchemas.inspections(handover: true),
      "handover is for rows that are there: none is made outside of the scope",
      rule: "semantics 7"
    ) { bench in
      try await regions(bench)
      var device = try await bench.device(parameters: ["region": ["EU"]])
      let results = try await device.upload(.insert("establishment", ["id": "n", "name": "e", "region": "US"]))
      try expectRefused(results, [1: .outOfScope], accepted: 0)
      try await bench.expectRows("establishment", [["eu", "e", "EU"], ["us", "e", "US"]])
    },
    on(
      ContractSchemas.inspections(handover: true), "a row handed over leaves its sender with its descendants",
      rule: "semantics 4"
    ) { bench in
      try await regions(bench)
      var device = try await bench.device(parameters: ["region": ["EU"]])
      var other = try await bench.device("bert", parameters: ["region": ["US"]])
      try expectAccepted(try await device.upload(.update("establishment", ["eu"], [("region", "EU", "US")])), 1)
      try await device.download()
      for table in ["establishment", "inspection", "infraction"] { try device.expectReplica(table, []) }
      try expectEqual(Set(device.items.map(\.departure)), [.left], "how the rows went")
      try await other.download()
      try expectEqual(other.replica.rows(of: "infraction").count, 2, "the infractions of the receiver")
    },
    on(
      ContractSchemas.inspections(handover: true), "a row made and handed over in one upload leaves its sender",
      rule: "semantics 4"
    ) { bench in
      var device = try await bench.device(parameters: ["region": ["EU"]])
      let results = try await device.upload(
        .insert("establishment", ["id": "n", "name": "e", "region": "EU"]),
        .update("establishment", ["n"], [("region", "EU", "US")]))
      try expectAccepted(results, 2)
      try await device.download()
      try expectEqual(device.items.map(\.departure), [.left], "what is fed")
    },
  ]

  static let feed: [Case] = [
    on(ContractSchemas.notes(), "a first download brings the tables whole, and says so", rule: "semantics 4") { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "b"]))
      var device = try await bench.device(download: false)
      try await device.download()
      try expectEqual(device.pages.flatMap(\.full), ["note"], "the tables that come whole")
      try expectEqual(device.items.map { $0.values[0] }, ["n1", "n2"], "the rows in key order")
      try expectEqual(device.items.map(\.version), [nil, nil], "rows of the snapshot carry no version")
      try await device.download()
      try device.expectNothingFed()
    },
    on(ContractSchemas.inspections, "a first download brings parents before children", rule: "SyncConfig.swift") {
      bench in
      try await regions(bench)
      let device = try await bench.device()
      let order = device.items.map(\.table)
      try expectEqual(
        order.map { ["severity", "establishment", "inspection", "infraction"].firstIndex(of: $0) ?? -1 }.sorted(),
        order.map { ["severity", "establishment", "inspection", "infraction"].firstIndex(of: $0) ?? -1 }, "the order")
    },
    on(ContractSchemas.notes(), "what was changed since the cursor is fed, and nothing else", rule: "semantics 4") {
      bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "b"]))
      var reader = try await bench.device("anna"), writer = try await bench.device("bert")
      try expectAccepted(
        try await writer.upload(
          .update("note", ["n1"], [("title", "a", "A")]), .insert("note", ["id": "n3", "title": "c", "body": .null])), 2
      )
      let head = try await bench.store.sweep()
      try await reader.download()
      try expectEqual(Set(reader.items.map { $0.values[0] }), ["n1", "n3"], "what is fed")
      try expectEqual(Set(reader.items.map(\.version)), [head.number], "the versions")
      try expectEqual(reader.pages.flatMap(\.full), [], "the tables that come whole")
      try reader.expectReplica("note", [["n1", "A", .null], ["n2", "b", .null], ["n3", "c", .null]])
    },
    on(ContractSchemas.notes(), "a deleted row is fed as a tombstone", rule: "semantics 4") { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "b"]))
      var reader = try await bench.device("anna"), writer = try await bench.device("bert")
      try expectAccepted(try await writer.upload(.delete("note", ["n1"])), 1)
      try await bench.write(.delete("note", ["n2"]))
      try await reader.download()
      try expectEqual(reader.items.map(\.departure), [.deleted, .deleted], "what is fed")
      try reader.expectReplica("note", [])
      let later = try await bench.device("carl")
      try later.expectReplica("note", [])
    },
    on(ContractSchemas.notes(), "a row deleted and made again is fed as it is now", rule: "semantics 4") { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      var reader = try await bench.device()
      try await bench.write(.delete("note", ["n1"]))
      _ = try await bench.store.sweep()
      try await bench.write(.insert("note", ["id": "n1", "title": "b"]))
      try await reader.download()
      try reader.expectReplica("note", [["n1", "b", .null]])
    },
    on(ContractSchemas.notes(), "a device is not fed what it sent itself", rule: "semantics 4") { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "b"]))
      var device = try await bench.device()
      let results = try await device.upload(
        .insert("note", ["id": "n3", "title": "c", "body": .null]), .update("note", ["n1"], [("title", "a", "A")]),
        .delete("note", ["n2"]))
      try expectAccepted(results, 3)
      try await device.download()
      try device.expectNothingFed()
      try expectEqual(device.groups[0].cursor, try await bench.store.sweep(), "the cursor moves all the same")
    },
    on(
      ContractSchemas.notes(), "a row is fed where the server holds more than the device's base and what it sent",
      rule: "semantics 4"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a", "body": "x"]))
      var device = try await bench.device()
      try await bench.write(.update("note", ["n1"], ["body": "server"]))
      try expectAccepted(try await device.upload(.update("note", ["n1"], [("title", "a", "A")])), 1)
      try await device.download()
      try expectEqual(device.items.map(\.values), [["n1", "A", "server"]], "what is fed")
    },
    on(ContractSchemas.notes(), "what other programs write in the real tables is fed", rule: "semantics 4") { bench in
      var device = try await bench.device()
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      try await device.download()
      try device.expectReplica("note", [["n1", "a", .null]])
      try await bench.write(.update("note", ["n1"], ["title": "b"]), .insert("note", ["id": "n2", "title": "c"]))
      try await device.download()
      try device.expectReplica("note", [["n1", "b", .null], ["n2", "c", .null]])
      try await bench.write(.delete("note", ["n1"]))
      try await device.download()
      try device.expectReplica("note", [["n2", "c", .null]])
      try await bench.write(.update("note", ["n2"], ["id": "n4"]))
      try await device.download()
      try device.expectReplica("note", [["n4", "c", .null]])
    },
    on(ContractSchemas.tree, "what a cascade in the server's tables did is fed", rule: "semantics 4") { bench in
      try await bench.write(
        .insert("node", ["id": "a"]), .insert("node", ["id": "b", "parent": "a"]),
        .insert("leaf", ["id": "l", "node": "b"]))
      var device = try await bench.device()
      try await bench.write(.delete("node", ["a"]))
      try await device.download()
      try device.expectReplica("node", [])
      try device.expectReplica("leaf", [["l", .null, .null]])
    },
    on(ContractSchemas.notes(), "statements of another program are all or nothing", rule: "ServerStore.swift, write") {
      bench in
      let store = bench.store
      try await expectError(nil, "a second insert of the same key") {
        try await store.write([
          .insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n1", "title": "b"]),
        ])
      }
      try await bench.expectRows("note", [])
    },
    on(
      ContractSchemas.inspections, "a row that moves out of the scope leaves, with its descendants; that is no delete",
      rule: "semantics 4"
    ) { bench in
      try await regions(bench)
      var device = try await bench.device(parameters: ["region": ["EU"]])
      try await bench.write(.update("establishment", ["eu"], ["region": "US"]))
      try await device.download()
      for table in ["establishment", "inspection", "infraction"] { try device.expectReplica(table, []) }
      try expectEqual(Set(device.items.map(\.departure)), [.left], "how the rows went")
    },
    on(ContractSchemas.inspections, "a row that moves into the scope comes with its descendants", rule: "semantics 4") {
      bench in
      try await regions(bench)
      var device = try await bench.device(parameters: ["region": ["EU"]])
      try await bench.write(.update("establishment", ["us"], ["region": "EU"]))
      try await device.download()
      try device.expectReplica("establishment", [["eu", "e", "EU"], ["us", "e", "EU"]])
      try expectEqual(device.replica.rows(of: "infraction").count, 2, "the infractions")
      try await bench.write(.update("inspection", ["i-us"], ["date": "later"]))
      try await device.download()
      try expectEqual(device.items.map(\.values), [["i-us", "us", "later", .null]], "what is fed after")
    },
    on(ContractSchemas.inspections, "a child that is given another parent moves with it", rule: "semantics 4") {
      bench in
      try await regions(bench)
      var device = try await bench.device(parameters: ["region": ["EU"]])
      try await bench.write(.update("inspection", ["i-eu"], ["establishment_id": "us"]))
      try await device.download()
      try device.expectReplica("establishment", [["eu", "e", "EU"]])
      try device.expectReplica("inspection", [])
      try device.expectReplica("infraction", [])
    },
    on(ContractSchemas.inspections, "keys outside the scope are never told", rule: "semantics 7") { bench in
      try await regions(bench)
      var device = try await bench.device(parameters: ["region": ["EU"]])
      try await bench.write(
        .update("establishment", ["us"], ["name": "x"]), .update("inspection", ["i-us"], ["date": "x"]),
        .delete("infraction", ["i-us", 1]), .insert("establishment", ["id": "us2", "name": "x", "region": "US"]))
      _ = try await bench.store.sweep()
      try await bench.write(.delete("establishment", ["us2"]), .delete("establishment", ["us"]))
      try await device.download()
      try device.expectNothingFed()
    },
    on(ContractSchemas.inspections, "another scope brings its groups whole, the others go on", rule: "FeedPage") {
      bench in
      try await regions(bench)
      try await bench.write(.insert("severity", ["id": 1, "name": "low"]))
      var device = try await bench.device(parameters: ["region": ["EU"]])
      device.principal.parameters = ["region": ["US"]]
      try await device.download()
      try expectEqual(
        Set(device.pages.flatMap(\.full)), ["establishment", "inspection", "infraction"], "the tables that come whole")
      try device.expectReplica("establishment", [["us", "e", "US"]])
      try device.expectReplica("severity", [[1, "low"]])
    },
    on(ContractSchemas.groups, "only the groups that are asked for are fed", rule: "semantics 1") { bench in
      try await bench.write(.insert("a", ["id": "a1"]), .insert("b", ["id": "b1"]))
      var device = try await bench.device(download: false)
      let all = device.groups
      device.groups = all.filter { $0.name == "first" }
      try await device.download()
      try expectEqual(device.items.map(\.table), ["a"], "the tables fed")
      device.groups += all.filter { $0.name == "second" }
      try await device.download()
      try expectEqual(device.items.map(\.table), ["b"], "the tables fed then")
      try expectEqual(device.pages.flatMap(\.full), ["b"], "the tables that come whole")
    },
  ]

  static let pages: [Case] = [
    on(ContractSchemas.notes(), "many pages bring the same as one", rule: "ServerStore.swift, page") { bench in
      for index in 0..<40 {
        try await bench.write(.insert("note", ["id": .text("n\(index)"), "title": .text("t\(index)")]))
      }
      let rows = try await bench.store.rows(of: "note")
      var device = try await bench.device(download: false)
      try await device.download(bytesTarget: 100)
      try expect(device.pages.count > 5, "a small target must cut pages")
      try device.expectReplica("note", rows)
      for index in 0..<40 { try await bench.write(.update("note", [.text("n\(index)")], ["title": "x"])) }
      try await device.download(bytesTarget: 100)
      try expect(device.pages.count > 5, "a small target must cut the feed")
      try device.expectReplica("note", try await bench.store.rows(of: "note"))
    },
    on(
      ContractSchemas.notes(), "what is written during a download is in it, or in the next",
      rule: "ServerStore.swift, page"
    ) { bench in
      for index in 0..<30 {
        try await bench.write(.insert("note", ["id": .text("n\(index + 10)"), "title": "t"]))
      }
      var device = try await bench.device(download: false)
      let store = bench.store
      let counter = Counter()
      try await device.download(bytesTarget: 120) {
        let count = await counter.next()
        guard count <= 8 else { return }
        try await store.write([
          .update("note", [.text("n\(10 + count)")], ["title": .text("u\(count)")]),
          .insert("note", ["id": .text("a\(count)"), "title": "new"]), .delete("note", [.text("n\(39 - count)")]),
        ])
      }
      try device.expectReplica("note", try await bench.store.rows(of: "note"))
      try expectEqual(device.groups[0].cursor, try await bench.store.sweep(), "the cursor")
    },
    on(
      ContractSchemas.inspections, "rows whose scope moves during a download end up right",
      rule: "ServerStore.swift, page"
    ) { bench in
      for index in 0..<10 {
        try await bench.write(
          .insert(
            "establishment", ["id": .text("e\(index)"), "name": "e", "region": .text(index % 2 == 0 ? "EU" : "US")]),
          .insert("inspection", ["id": .text("i\(index)"), "establishment_id": .text("e\(index)"), "date": "d"]))
      }
      var device = try await bench.device(parameters: ["region": ["EU"]], download: false)
      let store = bench.store
      let counter = Counter()
      try await device.download(bytesTarget: 60) {
        let count = await counter.next()
        guard count <= 9 else { return }
        try await store.write([
          .update("establishment", [.text("e\(count)")], ["region": .text(count % 2 == 0 ? "US" : "EU")]),
          .update("establishment", [.text("e\(9 - count)")], ["region": "EU"]),
        ])
      }
      let inScope = try await store.rows(of: "establishment").filter { $0[2] == "EU" }
      try device.expectReplica("establishment", inScope)
      let keys = Set(inScope.map { $0[0] })
      try device.expectReplica("inspection", try await store.rows(of: "inspection").filter { keys.contains($0[1]) })
    },
    on(
      ContractSchemas.inspections, "what comes into the scope during a download and leaves it again is not there",
      rule: "semantics 11"
    ) { bench in
      try await regions(bench)
      var device = try await bench.device(parameters: ["region": ["EU"]])
      let store = bench.store
      try await store.write([.update("inspection", ["i-eu"], ["date": "later"])])
      try await store.write([.update("inspection", ["i-us"], ["date": "later"])])
      _ = try await store.sweep()
      let counter = Counter()
      // Nobody numbers what is written in between but the download itself.
      try await device.download(bytesTarget: 1) {
        switch await counter.next() {
        case 1: try await store.write([.update("establishment", ["us"], ["region": "EU"])])
        case 2: try await store.write([.update("establishment", ["us"], ["region": "US"])])
        default: break
        }
      }
      try device.expectReplica("establishment", [["eu", "e", "EU"]])
      try device.expectReplica("inspection", [["i-eu", "eu", "later", .null]])
      try device.expectReplica("infraction", [["i-eu", 1, .null, .null]])
    },
    on(ContractSchemas.notes(), "a download goes on from any position, also after a restart", rule: "semantics 4") {
      bench in
      for index in 0..<20 { try await bench.write(.insert("note", ["id": .text("n\(index)"), "title": "t"])) }
      let device = try await bench.device(download: false)
      func page(_ position: String?) async throws -> FeedPage {
        try await bench.store.page(
          PageRequest(
            remote: device.remote, principal: device.principal, groups: device.groups, position: position,
            bytesTarget: 150))
      }
      let first = try await page(nil)
      let position = try expectSome(first.position, "the position after the first page")
      let second = try await page(position)
      let again = try await page(position)
      try expectEqual(second.bytes, again.bytes, "the same page, asked for twice")
      try await bench.restart()
      var pages = [try DownloadedPage(first.bytes, schema: bench.schema)]
      var next: String? = position
      while let place = next {
        let page = try await page(place)
        pages.append(try DownloadedPage(page.bytes, schema: bench.schema))
        next = page.position
        try expect(pages.count < 1000, "a download must end")
      }
      var replica = Replica(bench.schema)
      try replica.apply(pages)
      try expectEqual(replica.rows(of: "note"), Set(try await bench.store.rows(of: "note")), "the rows")
    },
    on(
      ContractSchemas.notes(), "a position that the server never gave is refused: its download begins again",
      rule: "ServerStore.swift, page"
    ) {
      bench in
      let device = try await bench.device()
      let store = bench.store
      try await expectError(.inconsistentDownload, "an invented position") {
        _ = try await store.page(
          PageRequest(
            remote: device.remote, principal: device.principal, groups: device.groups, position: "{\"x\":[",
            bytesTarget: 1000))
      }
    },
    on(
      ContractSchemas.notes(), "a row that is too large to be sent is left out and named, and the rest arrives",
      rule: "semantics 11"
    ) { bench in
      let large = Value.text(String(repeating: "x", count: Limits().sentRowBytesMax))
      try await bench.write(
        .insert("note", ["id": "n1", "title": "small"]), .insert("note", ["id": "n2", "title": "s"]))
      var device = try await bench.device()
      try await bench.write(
        .update("note", ["n1"], ["body": large]), .insert("note", ["id": "n3", "title": large]),
        .insert("note", ["id": "n4", "title": "s"]))
      let asked = PageRequest(
        remote: device.remote, principal: device.principal, groups: device.groups, position: nil, bytesTarget: 1 << 20)
      let named = Set(["n1", "n3"].map { RowPlace(table: "note", key: [.text($0)]) })
      try expectEqual(Set(try await bench.store.page(asked).leftOut), named, "the rows that are named")
      try await device.download()
      try device.expectReplica("note", [["n2", "s", .null], ["n4", "s", .null]])
      let later = try await bench.device("carl")
      try later.expectReplica("note", [["n2", "s", .null], ["n4", "s", .null]])
      // In parts, too, and when it is small again.
      device.takesParts = true
      try await bench.write(.update("note", ["n2"], ["body": large]), .update("note", ["n1"], ["body": "small"]))
      try await device.download()
      try device.expectReplica("note", [["n1", "small", "small"], ["n4", "s", .null]])
    },
    on(ContractSchemas.wide, "200 columns and no rows", rule: "Limits.swift, columnsMax") { bench in
      var device = try await bench.device(download: false)
      try await device.download()
      try device.expectReplica("wide", [])
      let table = bench.schema.tables[0]
      let values = table.columns.enumerated().map { NamedValue($1.name, $0 == 0 ? 1 : .text("v\($0)")) }
      try await bench.store.write([.insert(table: "wide", values: values)])
      try await device.download()
      try device.expectReplica("wide", [values.map(\.value)])
      try expectAccepted(
        try await device.upload(.update("wide", [1], [("column_198", "v199", "last"), ("column_0", "v1", "first")])), 1)
      let row = try await bench.store.rows(of: "wide")
      try expectEqual(row.first?[1], "first", "the first column")
      try expectEqual(row.first?[199], "last", "the last column")
    },
  ]

  /// An establishment, an inspection and an infraction in each of two regions.
  private static func regions(_ bench: ServerBench) async throws {
    for region in ["eu", "us"] {
      try await bench.write(
        .insert("establishment", ["id": .text(region), "name": "e", "region": .text(region.uppercased())]),
        .insert("inspection", ["id": .text("i-\(region)"), "establishment_id": .text(region), "date": "d"]),
        .insert("infraction", ["inspection_id": .text("i-\(region)"), "line": 1]))
    }
  }
}

actor Counter {
  private var count = 0
  func next() -> Int {
    count += 1
    return count
  }
}
