import SalvorModel
import SalvorStorage
import SalvorWire

/// What a device's database says of itself to be compared, and what it makes of the answers (semantics 4, *key-set*;
/// docs/architecture/comparison.md).
extension ClientStoreContract {
  private static var keySet: Schema {
    var schema = ContractSchemas.notes()
    schema.tables[0].download = .keySet
    return schema
  }

  static let comparing: [Case] = [
    recovering(
      keySet, "comparison: the bases are digested, whatever waits on them",
      rule: "RecoveringClientStore.swift, digest"
    ) { bench in
      try await bench.expectDigest("note", [])
      let rows: [Row] = [["n1", "a", .null], ["n2", "b", "x"], ["n3", "c", .null]]
      try await bench.download(full: ["note"], rows: rows.map { ("note", $0) })
      try await bench.expectDigest("note", rows)
      try await bench.write(
        .update("note", ["n1"], ["title": "mine"]), .delete("note", ["n2"]),
        .insert("note", ["id": "n9", "title": "new"]))
      try await bench.expectDigest("note", rows)
      try await bench.download(rows: [("note", ["n1", "theirs", .null])])
      try await bench.expectDigest("note", [["n1", "theirs", .null]] + rows.dropFirst())
      try await bench.commitUpload()
      try await bench.expectDigest("note", [["n1", "mine", .null], ["n3", "c", .null], ["n9", "new", .null]])
      try await bench.restart()
      try await bench.expectDigest("note", [["n1", "mine", .null], ["n3", "c", .null], ["n9", "new", .null]])
    },
    recovering(
      keySet, "comparison: key-set tables of synchronized groups are compared, and no others",
      rule: "RecoveringClientStore.swift, tablesToCompare"
    ) { bench in
      let groups = Set(bench.schema.groups.map(\.name))
      try expectEqual(try await bench.recovering.tablesToCompare(groups: groups), [], "before the first download")
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      let found = try await bench.recovering.tablesToCompare(groups: groups)
      try expectEqual(found, [try await bench.recovering.digest(of: "note")], "after it")
      try expectEqual(try await bench.recovering.tablesToCompare(groups: []), [], "of no group")
    },
    recovering(
      ContractSchemas.notes(), "comparison: tables that are fed by cursor are not compared",
      rule: "RecoveringClientStore.swift, tablesToCompare"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      let groups = Set(bench.schema.groups.map(\.name))
      try expectEqual(try await bench.recovering.tablesToCompare(groups: groups), [], "the tables")
    },
    recovering(
      ContractSchemas.inspections,
      "comparison: a table of which a row was left out is compared when a row that it may reference comes",
      rule: "RecoveringClientStore.swift, tablesToCompare"
    ) { bench in
      let groups = Set(bench.schema.groups.map(\.name))
      try await bench.download(full: ["establishment"], rows: [("establishment", ["e1", "e", .null])])
      try await bench.download(rows: [("inspection", ["i1", "e2", "d", .null])])
      try expectEqual(try await bench.recovering.tablesToCompare(groups: groups), [], "while it does not come")
      let report = try await bench.download(rows: [("establishment", ["e2", "e", .null])])
      try expect(report.isToCompare, "the report must say that something is to be compared")
      try await bench.restart()
      let found = try await bench.recovering.tablesToCompare(groups: groups)
      try expectEqual(found.map(\.table), ["inspection"], "the tables")
      try expect(found.allSatisfy(\.isFed), "they are fed besides")
    },
    recovering(
      ContractSchemas.circles,
      "comparison: tables that reference one another are compared when rows of both were left out one after the other",
      rule: "RecoveringClientStore.swift, tablesToCompare"
    ) { bench in
      let groups = Set(bench.schema.groups.map(\.name))
      try await bench.download(full: ["desk", "person"])
      let first = try await bench.download(rows: [("desk", ["d1", "p1"])])
      try expect(first.leftOut == 1 && !first.isToCompare, "nothing is to be compared for the first row alone")
      let second = try await bench.download(rows: [("person", ["p1", "d1"])])
      try expect(second.leftOut == 1 && second.isToCompare, "each waits for the other: both are to be compared")
      try await bench.restart()
      let found = try await bench.recovering.tablesToCompare(groups: groups)
      try expectEqual(found.map(\.table).sorted(), ["desk", "person"], "the tables")
      try expect(found.allSatisfy(\.isFed), "they are fed besides")
    },
    recovering(
      keySet, "comparison: rows without a version and lost keys are bases like any; a dirty row keeps its requests",
      rule: "semantics 4, key-set"
    ) { bench in
      try await bench.download(
        full: ["note"],
        rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null]), ("note", ["n3", "c", .null])])
      try await bench.write(.update("note", ["n1"], ["body": "mine"]), .insert("note", ["id": "n9", "title": "new"]))
      let bytes = try bench.payload(
        rows: [("note", ["n1", "theirs", .null]), ("note", ["n4", "d", .null])], version: nil)
      try await bench.store.stage(
        StagedChunk(
          download: "compared", bytes: bytes + (try bench.payload(departed: [("note", .lost, ["n2"])], version: nil)),
          position: "p"))
      let report = try await bench.apply()
      try expectEqual([report.upserts, report.deletes], [2, 1], "rows written and removed")
      try await bench.expectRows(
        "note", [["n1", "theirs", "mine"], ["n3", "c", .null], ["n4", "d", .null], ["n9", "new", .null]])
      try expectEqual(try await bench.waiting().count, 2, "the requests")
      try await bench.expectDigest("note", [["n1", "theirs", .null], ["n3", "c", .null], ["n4", "d", .null]])
    },
    recovering(
      ContractSchemas.notes(), "verification: names what differs, without what has changed since; dirty rows are told",
      rule: "RecoveringClientStore.swift, examine"
    ) { bench in
      try await bench.writeToExamine()
      let kept = try bench.examined()
      for payload in kept { try await bench.recovering.keepForRehearsal(payload) }
      let found = try await bench.recovering.examine(repairing: nil)
      try expectEqual(
        found.differences.map {
          "\($0.key[0]) \($0.kind.rawValue) \($0.columns.joined(separator: ","))\($0.isDirty ? " dirty" : "")"
        },
        ["n1 changed title", "n2 extra id,title,body", "n4 changed title dirty", "n7 missing id,title,body"],
        "the differences")
      try expectEqual(found.differences[0].here.map(\.value), ["a"], "the value here")
      try expectEqual(found.differences[0].there.map(\.value), ["theirs"], "the value there")
      try expectEqual(found.repair, nil, "what was repaired")
      try expectEqual(try await bench.recovering.dirtyRows(of: "note"), 2, "dirty rows")
      try expectEqual(
        try await bench.recovering.examine(repairing: nil).differences, [], "what was kept is forgotten")
      try await bench.recovering.keepForRehearsal(try bench.payload(full: ["note"], version: nil))
      do {
        _ = try await bench.recovering.examine(repairing: nil)
        try expect(false, "a table that comes whole cannot be examined")
      } catch let error as SalvorError { try expectEqual(error.code, .inconsistentDownload, "the error") }
    },
    recovering(
      ContractSchemas.notes(),
      "verification: a repair brings the rows that differ to the server's state, dirty ones excepted",
      rule: "RecoveringClientStore.swift, examine"
    ) { bench in
      try await bench.writeToExamine()
      for payload in try bench.examined() { try await bench.recovering.keepForRehearsal(payload) }
      var order = bench.order(Recovered(absence: .deleted, id: "repair 1"))
      order.starts = []
      order.groups = []
      let before = try await bench.store.status().state.groups
      let found = try await bench.recovering.examine(repairing: order)
      let repair = try expectSome(found.repair, "the repair's report")
      try expectEqual([repair.counts.upserts, repair.counts.deletes], [2, 1], "rows written and removed")
      try await bench.expectRows(
        "note",
        [
          ["n1", "theirs", .null], ["n3", "c", .null], ["n4", "d", "mine"], ["n5", "new", .null], ["n6", "f", .null],
          ["n7", "g", .null],
        ])
      try expectEqual(try await bench.store.status().state.groups, before, "the cursors")
      try expectEqual(try await bench.waiting().count, 2, "the requests")
      try expectEqual(try await bench.recovering.recoveries(limit: 1).map(\.id), ["repair 1"], "the recoveries")
      try expectEqual(try await bench.recovering.examine(repairing: order).repair, nil, "nothing is left to repair")
    },
  ]
}

extension ClientBench {
  func expectDigest(
    _ name: String, _ rows: [Row], file: String = #fileID, line: Int = #line
  ) async throws {
    let sum = rows.reduce(UInt64(0)) { $0 &+ RowDigest($1).value }
    let digest = TableDigest(table: name, count: Int64(rows.count), digest: RowDigest.text(sum))
    // Twice: what a store remembers is right, too.
    for _ in 1...2 {
      try expectEqual(try await recovering.digest(of: name), digest, "the digest of \(name)", file: file, line: line)
    }
  }

  fileprivate mutating func writeToExamine() async throws {
    try await download(
      full: ["note"],
      rows: [
        ("note", ["n1", "a", .null]), ("note", ["n2", "b", .null]), ("note", ["n3", "c", .null]),
        ("note", ["n4", "d", .null]), ("note", ["n6", "f", .null]),
      ])
    try await write(.update("note", ["n4"], ["body": "mine"]), .insert("note", ["id": "n5", "title": "new"]))
  }

  /// A comparison's answers, and the feed after it: n6 has changed meanwhile.
  fileprivate func examined() throws -> [[UInt8]] {
    [
      try payload(
        rows: [
          ("note", ["n1", "theirs", .null]), ("note", ["n3", "c", .null]), ("note", ["n4", "theirs", .null]),
          ("note", ["n6", "since", .null]), ("note", ["n7", "g", .null]),
        ], version: nil), try payload(departed: [("note", .lost, ["n2"])], version: nil),
      try payload(rows: [("note", ["n6", "since", .null])], version: commit + 1),
    ]
  }
}
