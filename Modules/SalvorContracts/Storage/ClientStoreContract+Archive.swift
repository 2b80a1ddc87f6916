import SalvorModel
import SalvorStorage

/// What a person takes out of the queue and the error archive (semantics 8).
extension ClientStoreContract {
  /// The cases about the queue and the error archive: delete, withdraw, retry, reapply. They are in `cases`, too.
  public static let archiving: [Case] =
    fourRequests + families + chains + underWay + keptEntries + sendingAgain + reapplying + holding + optimising
    + listing

  // MARK: The four requests of semantics 8

  /// #1 updates n101 and is refused, #2 updates n102 and is refused, #3 updates n101 and is blocked; #4 updates n102 and
  /// waits. Answers with their IDs.
  private static func four(_ bench: inout ClientBench) async throws -> [RequestID] {
    try await bench.download(full: ["note"], rows: [("note", ["n101", "a", .null]), ("note", ["n102", "b", .null])])
    try await bench.write(
      .update("note", ["n101"], ["title": "one"]), .update("note", ["n102"], ["title": "two"]),
      .update("note", ["n101"], ["body": "three"]))
    try await bench.upload { $0.columns == ["body"] ? .blocked : .constraint }
    try await bench.write(.update("note", ["n102"], ["body": "four"]))
    return try await bench.archive(3) + bench.queue(1)
  }

  /// What remains of the four, and the rows that it makes.
  private static func expectRemaining(
    _ bench: ClientBench, _ ids: [RequestID], without gone: Set<Int>, file: String = #fileID, line: Int = #line
  ) async throws {
    let archive = try await bench.archived().map(\.id), queue = try await bench.queued().map(\.id)
    try expectEqual(
      archive, (0..<3).filter { !gone.contains($0) }.map { ids[$0] }, "the archive", file: file, line: line)
    try expectEqual(queue, gone.contains(3) ? [] : [ids[3]], "the queue", file: file, line: line)
    try await bench.expectRows(
      "note",
      [
        ["n101", gone.contains(0) ? "a" : "one", gone.contains(2) ? .null : "three"],
        ["n102", gone.contains(1) ? "b" : "two", gone.contains(3) ? .null : "four"],
      ], file: file, line: line)
  }

  static let fourRequests: [Case] =
    (0..<3).map { asked in
      on(
        ContractSchemas.notes(), "whole deletion: of #\(asked + 1) removes #1, #2 and #3, and leaves #4",
        rule: "semantics 8, Delete, whole"
      ) { bench in
        let ids = try await four(&bench)
        let report = try await bench.remove(.archive(ids[asked]))
        try expectEqual(report.requests.map(\.id), Array(ids.prefix(3)), "what goes")
        try expectEqual(
          report.requests.map(\.cause), (0..<3).map { $0 == asked ? .askedFor : .archived }, "why it goes")
        try expectEqual(
          report.rows, [RemadeRow(table: "note", key: ["n101"]), RemadeRow(table: "note", key: ["n102"])], "the rows")
        try await expectRemaining(bench, ids, without: [0, 1, 2])
        try await bench.restart()
        try await expectRemaining(bench, ids, without: [0, 1, 2])
        try expectChanges(try await bench.upload(), [#"update note ["body"] [n102, null, four]"#])
        try await bench.expectRows("note", [["n101", "a", .null], ["n102", "b", "four"]])
      }
    }
    + zip(0..., [[0, 2], [1, 3], [2]]).map { asked, gone in
      on(
        ContractSchemas.notes(),
        "individual deletion: of #\(asked + 1) removes \(gone.map { "#\($0 + 1)" }.joined(separator: " and "))",
        rule: "semantics 8, Delete, individual"
      ) { bench in
        let ids = try await four(&bench)
        let report = try await bench.remove(.entry(ids[asked]))
        try expectEqual(report.requests.map(\.id), gone.map { ids[$0] }, "what goes")
        try expectEqual(
          report.requests.map(\.cause), gone.map { $0 == asked ? .askedFor : .dependsOn(ids[asked]) }, "why it goes")
        try expectEqual(
          report.rows, [RemadeRow(table: "note", key: [asked == 1 ? "n102" : "n101"])], "the rows made anew")
        try await expectRemaining(bench, ids, without: Set(gone))
        try await bench.restart()
        try await expectRemaining(bench, ids, without: Set(gone))
      }
    } + [everyOrder, planning, oneOrAll]

  private static let everyOrder = on(
    ContractSchemas.notes(), "individual deletion in every order removes what depends, and leaves the base at the end",
    rule: "semantics 8, Delete, individual"
  ) { bench in
    let closures = [[0, 2], [1, 3], [2]]
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
      let ids = try await four(&bench)
      var gone: Set<Int> = []
      for asked in order where !gone.contains(asked) {
        try await bench.remove(.entry(ids[asked]))
        gone.formUnion(closures[asked])
        try await expectRemaining(bench, ids, without: gone)
      }
      try expectEqual(gone.count, 4, "what has gone")
      try expectEqual(try await bench.begin().changes, [], "what is sent")
      await bench.store.endSession()
    }
  }

  private static let planning = on(
    ContractSchemas.notes(), "a plan says what the removal would answer, and writes nothing",
    rule: "RequestRemoval.swift, plan"
  ) { bench in
    let ids = try await four(&bench)
    let store = bench.store
    let whole = try await store.plan(.archive(nil))
    let one = try await store.plan(.entry(ids[1]))
    let waiting = try await store.plan(.withdraw(ids[3]))
    try await expectRemaining(bench, ids, without: [])
    try expectEqual(whole.requests.map(\.cause), [.archived, .archived, .archived], "why all go")
    try expectEqual(
      one.requests.first?.changes.map(\.after), [[NamedValue("title", "two")]], "the values that would go")
    try expectEqual(waiting.requests.map(\.id), [ids[3]], "what a withdrawal would take")
    try expectEqual(try await store.remove(.entry(ids[1])), one, "the removal after its plan")
  }

  private static let oneOrAll = on(
    ContractSchemas.notes(), "whole deletion of an empty archive changes nothing", rule: "RequestRemoval.swift"
  ) { bench in
    try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
    try expectEqual(try await bench.remove(.archive(nil)), RemovalReport(), "the report")
    try expectEqual(try await bench.remove(.allKept), RemovalReport(), "the report on kept entries")
    try expectEqual(try await bench.queued().count, 1, "the queue")
    try await bench.expectRows("note", [["n1", "a", .null]])
  }

  // MARK: Parents, children, groups

  /// A parent and its child made offline, refused and blocked; then unsent: an update of the parent, a leaf of the child, an
  /// update of the leaf, and a node of its own.
  private static func family(_ bench: inout ClientBench) async throws -> [RequestID] {
    try await bench.write(.insert("node", ["id": "p"]), .insert("node", ["id": "c", "parent": "p"]))
    try await bench.upload { $0.values[0] == "p" ? .constraint : .blocked }
    try await bench.write(
      .update("node", ["p"], ["label": "x"]), .insert("leaf", ["id": "l", "node": "c"]),
      .update("leaf", ["l"], ["kept": "p"]), .insert("node", ["id": "q"]))
    return try await bench.archive(2) + bench.queue(4)
  }

  static let families: [Case] = [
    on(
      ContractSchemas.tree, "whole deletion takes along what cannot stand without an insert that goes, and names it",
      rule: "semantics 8, Delete, whole"
    ) { bench in
      let ids = try await family(&bench)
      let report = try await bench.remove(.archive(ids[1]))
      try expectEqual(report.requests.map(\.id), Array(ids.prefix(5)), "what goes")
      try expectEqual(
        report.requests.map(\.cause),
        [.archived, .askedFor] + Array(repeating: .cannotStand(without: ids[0]), count: 3), "why it goes")
      try await bench.expectRows("node", [["q", .null, .null]])
      try await bench.expectRows("leaf", [])
      try expectEqual(try await bench.queued().map(\.key), [["q"]], "the queue")
      try expectEqual(try await bench.archived(), [], "the archive")
    },
    on(
      ContractSchemas.tree, "individual deletion of a parent takes along all that were built on it, sent or unsent",
      rule: "semantics 8, Delete, individual"
    ) { bench in
      let ids = try await family(&bench)
      let report = try await bench.remove(.entry(ids[0]))
      try expectEqual(
        report.requests.map(\.cause), [.askedFor] + Array(repeating: .dependsOn(ids[0]), count: 4), "why it goes")
      try await bench.expectRows("node", [["q", .null, .null]])
      try await bench.expectRows("leaf", [])
    },
    on(
      ContractSchemas.tree, "individual deletion of a child leaves its parent", rule: "semantics 8, Delete, individual"
    ) { bench in
      let ids = try await family(&bench)
      let report = try await bench.remove(.entry(ids[1]))
      try expectEqual(report.requests.map(\.id), [ids[1], ids[3], ids[4]], "what goes")
      try await bench.expectRows("node", [["p", .null, "x"], ["q", .null, .null]])
      try await bench.expectRows("leaf", [])
    },
    on(
      ContractSchemas.tree, "a diamond of references: each corner takes along what hangs on it",
      rule: "semantics 8, Delete, individual"
    ) { bench in
      try await bench.write(
        .insert("node", ["id": "a"]), .insert("node", ["id": "b", "parent": "a"]),
        .insert("node", ["id": "c", "parent": "a"]), .insert("leaf", ["id": "l", "node": "b", "kept": "c"]))
      let ids = try await bench.queue(4)
      try await bench.upload { $0.values[0] == "a" ? .constraint : .blocked }
      let store = bench.store
      try expectEqual(try await store.plan(.entry(ids[0])).requests.map(\.id), ids, "what hangs on the top")
      try expectEqual(
        try await store.plan(.entry(ids[2])).requests.map(\.id), [ids[2], ids[3]], "what hangs on a side")
      try expectEqual(try await bench.remove(.entry(ids[1])).requests.map(\.id), [ids[1], ids[3]], "what goes")
      try await bench.expectRows("node", [["a", .null, .null], ["c", "a", .null]])
      try await bench.expectRows("leaf", [])
    },
    on(
      ContractSchemas.notes(), "a grouped request goes as a whole; in whole mode what came after it stays",
      rule: "semantics 1, 8"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(
        .beginRequest(tag: "visit"), .update("note", ["n1"], ["title": "A"]), .update("note", ["n2"], ["title": "B"]),
        .insert("note", ["id": "n3", "title": "c"]), .endRequest)
      try await bench.upload { _ in .constraint }
      try await bench.write(.update("note", ["n2"], ["body": "later"]))
      let group = try await bench.oldest(.refused, .displaced).id
      let individually = try await bench.store.plan(.entry(group))
      try expectEqual(
        individually.requests.map(\.changes.count), [3, 1], "the changes that would go in individual mode")
      let report = try await bench.remove(.archive(group))
      try expectEqual(report.requests.map(\.changes.count), [3], "the changes that go")
      try expectEqual(report.requests.first?.changes.map(\.tag), ["visit", "visit", "visit"], "the tag")
      try await bench.expectRows("note", [["n1", "a", .null], ["n2", "b", "later"]])
    },
    on(
      ContractSchemas.inspections, "a withdrawn cascade brings every row back", rule: "semantics 3, 8"
    ) { bench in
      try await inspection(&bench)
      try await bench.write(.delete("establishment", ["e1"]))
      let id = try await bench.oldest(.queued, .sent).id
      let report = try await bench.remove(.withdraw(id))
      try expectEqual(
        report.rows,
        [
          RemadeRow(table: "establishment", key: ["e1"]), RemadeRow(table: "inspection", key: ["i1"]),
          RemadeRow(table: "infraction", key: ["i1", 1]),
        ], "the rows made anew")
      try await bench.expectRows("establishment", [["e1", "e", .null]])
      try await bench.expectRows("inspection", [["i1", "e1", "d", .null]])
      try await bench.expectRows("infraction", [["i1", 1, 1, .null]])
      try expectEqual(try await bench.status().queued, 0, "the queue")
    },
    on(
      ContractSchemas.seats, "whole deletion: what took a unique value that comes back goes too",
      rule: "semantics 8, Delete, whole"
    ) { bench in
      try await bench.download(full: ["seat"], rows: [("seat", [1, 7, 1])])
      try await bench.write(.update("seat", [1], ["place": 8]))
      try await bench.upload { _ in .constraint }
      try await bench.write(.insert("seat", ["id": 2, "place": 7]), .insert("seat", ["id": 3, "place": 9]))
      let refused = try await bench.oldest(.refused, .displaced).id
      let report = try await bench.remove(.archive(refused))
      try expectEqual(report.requests.map(\.cause), [.askedFor, .cannotStand(without: refused)], "why it goes")
      try await bench.expectRows("seat", [[1, 7, 1], [3, 9, 1]])
    },
    on(
      ContractSchemas.seats, "deletion takes displaced entries: all in whole mode, one in individual mode",
      rule: "semantics 8"
    ) { bench in
      try await bench.write(
        .insert("seat", ["id": 1, "place": 7]), .insert("seat", ["id": 2, "place": 8]),
        .insert("seat", ["id": 3, "place": 9]), .insert("seat", ["id": 4, "place": 6]))
      try await bench.download(
        full: ["seat"], rows: [("seat", [11, 7, 1]), ("seat", [12, 8, 1]), ("seat", [13, 9, 1])])
      let ids = try await bench.archive(3)
      try expectEqual(try await bench.remove(.entry(ids[1])).requests.map(\.id), [ids[1]], "what goes alone")
      try expectEqual(try await bench.remove(.archive(nil)).requests.map(\.id), [ids[0], ids[2]], "what goes then")
      try await bench.expectRows("seat", [[4, 6, 1], [11, 7, 1], [12, 8, 1], [13, 9, 1]])
      try expectEqual(try await bench.status().displaced, 0, "the displaced entries")
    },
  ]
}

extension ClientBench {
  /// The IDs of the archive's requests, in order; there must be so many.
  func archive(_ count: Int) async throws -> [RequestID] { try distinct(try await archived(), count, "the archive") }

  /// The IDs of the queue's requests, in order; there must be so many.
  func queue(_ count: Int) async throws -> [RequestID] { try distinct(try await queued(), count, "the queue") }

  private func distinct(_ entries: [QueuedRequest], _ count: Int, _ what: String) throws -> [RequestID] {
    let ids = entries.map(\.id).reduce(into: [RequestID]()) { if $0.last != $1 { $0.append($1) } }
    try expectEqual(ids.count, count, "the requests in \(what)")
    return ids
  }

  /// The first change in one of these states.
  func oldest(_ states: RequestState...) async throws -> QueuedRequest {
    try expectSome(try await queued(Set(states)).first, "a request that is \(states)")
  }

  @discardableResult
  func remove(_ removal: RequestRemoval) async throws -> RemovalReport { try await store.remove(removal) }

  func status() async throws -> ClientStatus { try await store.status() }
}
