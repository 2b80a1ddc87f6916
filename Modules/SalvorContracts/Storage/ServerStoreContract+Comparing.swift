import SalvorModel
import SalvorStorage
import SalvorWire

/// What a server answers to devices that compare whole tables, and the downloads that follow (semantics 4, *key-set*;
/// docs/architecture/comparison.md).
extension ServerStoreContract {
  static let wholeTables: [Case] = [
    recovering(
      ContractSchemas.inspections, "comparison: a table's digest is the sum of the rows that the principal sees",
      rule: "RecoveringServerStore.swift, digest"
    ) { bench in
      let rows: [Row] = [["e1", "One", "EU"], ["e2", "Two", "US"], ["e3", "Three", .null]]
      for row in rows {
        try await bench.write(.insert("establishment", ["id": row[0], "name": row[1], "region": row[2]]))
      }
      try await bench.expectDigest("establishment", rows)
      try await bench.expectDigest("establishment", [rows[0]], as: ServerBench.europe)
      try await bench.expectDigest("severity", [])
      try await bench.write(.update("establishment", ["e1"], ["name": "Uno"]))
      try await bench.expectDigest("establishment", [["e1", "Uno", "EU"]], as: ServerBench.europe)
      try await bench.write(.update("establishment", ["e2"], ["region": "EU"]), .delete("establishment", ["e1"]))
      try await bench.expectDigest("establishment", [["e2", "Two", "EU"]], as: ServerBench.europe)
      // A row's scope is decided by its parent's.
      try await bench.write(
        .insert("inspection", ["id": "i1", "establishment_id": "e2", "date": "d"]),
        .insert("inspection", ["id": "i2", "establishment_id": "e3", "date": "d"]))
      try await bench.expectDigest("inspection", [["i1", "e2", "d", .null]], as: ServerBench.europe)
      try await bench.write(.update("establishment", ["e2"], ["region": "US"]))
      try await bench.expectDigest("inspection", [], as: ServerBench.europe)
      var device = try await bench.device("bert", parameters: ["region": [.text("US")]])
      try expectAccepted(
        try await device.upload(.update("inspection", ["i1"], [("inspector", .null, "mine")])), 1)
      try await bench.expectDigest("inspection", [["i1", "e2", "d", "mine"]], as: device.principal)
    },
    recovering(
      ContractSchemas.notes(), "comparison: ranges within two keys, as large as is asked for",
      rule: "RecoveringServerStore.swift, ranges"
    ) { bench in
      for number in 0..<10 { try await bench.write(.insert("note", ["id": .text("n\(number)"), "title": "t"])) }
      func ranges(_ after: Key?, _ last: Key?, _ rows: Int) async throws -> [RangeDigest] {
        let range = RowQuery.Range(after: after, last: last)
        let question = RangeQuestion(table: "note", range: range, rowsPerRange: rows)
        let page = try await bench.recovering.ranges(
          question, limit: 100, for: ReadScope(Principal(name: "anna")))
        try expect(page.isLast, "all ranges fit the page")
        return page.ranges
      }
      let inner = try await ranges(["n1"], ["n6"], 2)
      try expectEqual(inner.map(\.last), [["n3"], ["n5"], ["n6"]], "the ends of the ranges")
      try expectEqual(inner.map(\.count), [2, 2, 1], "the rows of the ranges")
      let one = try await ranges(["n1"], ["n6"], 1000)
      try expectEqual(one.map(\.count), [5], "one range of all")
      let sum = inner.reduce(UInt64(0)) { $0 &+ (UInt64($1.digest, radix: 16) ?? 0) }
      try expectEqual(one[0].digest, RowDigest.text(sum), "the sum of the small ones is the large one")
      try expectEqual(try await ranges(["n6"], ["n61"], 2).map(\.count), [0], "a range without rows")
    },
    recovering(
      ContractSchemas.inspections,
      "comparison: a compared table is fed from the comparison on, the others from the cursor",
      rule: "ServerStore.swift, ComparedTables"
    ) { bench in
      var device = try await bench.device(download: true)
      try await bench.write(
        .insert("severity", ["id": 1, "name": "minor"]), .insert("establishment", ["id": "e1", "name": "One"]))
      let head = try await bench.store.sweep()
      try await bench.write(.insert("severity", ["id": 2, "name": "late"]))
      try await device.download(compared: ComparedTables(head: head, fed: ["severity"]))
      try expectEqual(device.pages.flatMap(\.full), [], "the tables that come whole")
      try expectEqual(
        Set(device.items.map { "\($0.table) \($0.values[0])" }), ["severity 2", "establishment e1"], "what is fed")
      try await device.download()
      try device.expectNothingFed()
    },
    recovering(
      ContractSchemas.inspections, "comparison: a table of which one side has no rows comes whole, without its group",
      rule: "ServerStore.swift, ComparedTables"
    ) { bench in
      try await bench.write(
        .insert("establishment", ["id": "e1", "name": "One"]),
        .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d"]))
      var device = try await bench.device(download: true)
      try await bench.write(.insert("establishment", ["id": "e2", "name": "Two"]))
      let head = try await bench.store.sweep()
      try await device.download(bytesTarget: 1, compared: ComparedTables(head: head, whole: ["establishment"]))
      try expectEqual(Set(device.pages.flatMap(\.full)), ["establishment"], "the tables that come whole")
      try device.expectReplica("establishment", [["e1", "One", .null], ["e2", "Two", .null]])
      try expectEqual(device.items.count { $0.table == "inspection" }, 0, "rows of the other table")
    },
    recovering(
      ContractSchemas.inspections, "comparison: what a look showed and is out of the scope again is told to have left",
      rule: "semantics 11"
    ) { bench in
      try await bench.write(
        .insert("establishment", ["id": "e1", "name": "One", "region": "US"]),
        .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d"]))
      let head = try await bench.store.sweep()
      let scope = ReadScope(ServerBench.europe)
      let looks: [(any RecoveringServerStore) async throws -> Void] = [
        { _ = try await $0.rows(matching: RowQuery(table: "inspection", keys: [["i1"]]), for: scope) },
        { _ = try await $0.ranges(RangeQuestion(table: "inspection", rowsPerRange: 10), limit: 10, for: scope) },
        { _ = try await $0.digest(of: "inspection", for: scope) },
      ]
      for look in looks {
        try await bench.write(.update("establishment", ["e1"], ["region": "EU"]))
        try await look(try bench.recovering)
        try await bench.write(.update("establishment", ["e1"], ["region": "US"]))
        var device = Device(bench, principal: ServerBench.europe)
        try await bench.store.register(device.remote, principal: "anna")
        try await device.download(
          compared: ComparedTables(head: head, fed: Set(bench.schema.tables.map(\.name))))
        try expectEqual(
          Set(device.items.map { "\($0.table) \($0.departure == .left)" }), ["establishment true", "inspection true"],
          "what is fed")
      }
    },
    recovering(
      ContractSchemas.notes(), "comparison: a row that is too large to be sent is none of the device's",
      rule: "semantics 11"
    ) { bench in
      let large = Value.text(String(repeating: "x", count: Limits().sentRowBytesMax))
      try await bench.write(
        .insert("note", ["id": "n1", "title": "s"]), .insert("note", ["id": "n2", "title": large]))
      let scope = ReadScope(Principal(name: "anna"))
      let queries = [
        RowQuery(table: "note", keys: [["n1"], ["n2"]]),
        RowQuery(table: "note", range: RowQuery.Range(after: nil, last: nil), keys: [["n2"]]),
      ]
      for query in queries {
        let page = try DownloadedPage(
          try await bench.recovering.rows(matching: query, for: scope), schema: bench.schema)
        try expectEqual(
          Set(page.items.map { "\($0.values[0]) \($0.departure == .dropped)" }),
          [Value.text("n1"), .text("n2")].reduce(into: Set()) { $0.insert("\($1) \($1 == .text("n2"))") }, "the rows")
      }
    },
    recovering(
      ContractSchemas.notes(), "comparison: own uploads after it are fed, for what was read before them",
      rule: "ServerStore.swift, ComparedTables"
    ) { bench in
      var device = try await bench.device(download: true)
      try expectAccepted(try await device.upload(.insert("note", ["id": "n1", "title": "before", "body": .null])), 1)
      let head = try await bench.store.sweep()
      try expectAccepted(try await device.upload(.insert("note", ["id": "n2", "title": "after", "body": .null])), 1)
      try await device.download(compared: ComparedTables(head: head, fed: ["note"], ownUpTo: head.number))
      try expectEqual(device.items.map(\.values), [["n2", "after", .null]], "what is fed")
    },
  ]
}

extension ServerBench {
  fileprivate func expectDigest(
    _ name: String, _ rows: [Row], as principal: Principal = Principal(name: "anna"), file: String = #fileID,
    line: Int = #line
  ) async throws {
    // Twice: what a store remembers is right, too.
    for _ in 1...2 {
      let found = try await recovering.digest(of: name, for: ReadScope(principal))
      let sum = rows.reduce(UInt64(0)) { $0 &+ RowDigest($1).value }
      try expectEqual(
        found, TableDigest(table: name, count: Int64(rows.count), digest: RowDigest.text(sum)), "the digest of \(name)",
        file: file, line: line)
    }
  }
}
