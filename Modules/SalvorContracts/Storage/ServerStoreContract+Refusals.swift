import SalvorModel
import SalvorStorage

extension ServerStoreContract {
  static let refusals: [Case] = [
    on(ContractSchemas.inspections, "a server-maintained table is read-only to clients", rule: "semantics 1") { bench in
      try await bench.write(.insert("severity", ["id": 1, "name": "low"]))
      var device = try await bench.device()
      let results = try await device.upload(
        .update("severity", [1], [("name", "low", "high")]), .insert("severity", ["id": 2, "name": "x"]),
        .delete("severity", [1]))
      try expectEqual(Set(results.refused.map(\.counter)), [1, 2, 3], "the refused requests")
      try expectEqual(results.refused[0].reason, .serverMaintained, "the reason")
      try await bench.expectRows("severity", [[1, "low"]])
    },
    on(ContractSchemas.groups, "client-only and unknown tables are refused as unknown-table", rule: "semantics 7") {
      bench in
      var device = try await bench.device()
      let results = try await device.upload(
        .insert("draft", ["id": "d", "a_id": .null]), .delete("nothing", ["x"]), .insert("a", ["id": "a1", "v": .null]))
      try expectRefused(results, [1: .unknownTable, 2: .unknownTable], accepted: 1)
    },
    on(ContractSchemas.notes(), "an unknown column is refused", rule: "semantics 7") { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      var device = try await bench.device()
      let results = try await device.upload(
        .update("note", ["n1"], [("colour", .null, "red")]),
        .insert("note", ["id": "n2", "title": "b", "body": .null, "colour": "red"]))
      try expectRefused(results, [1: .unknownColumn, 2: .unknownColumn], accepted: 0)
      try await bench.expectRows("note", [["n1", "a", .null]])
    },
    on(ContractSchemas.seats, "a value that its column does not store is refused", rule: "semantics 7") { bench in
      try await bench.write(.insert("seat", ["id": 1, "place": 7]))
      var device = try await bench.device()
      let results = try await device.upload(
        .update("seat", [1], [("place", 7, "seven")]), .insert("seat", ["id": 2, "place": .real(1.5), "seats": 1]),
        .insert("seat", ["id": 3, "place": .blob([1]), "seats": 1]))
      try expectRefused(results, [1: .notStorable, 2: .notStorable, 3: .notStorable], accepted: 0)
      try await bench.expectRows("seat", [[1, 7, 1]])
    },
    on(ContractSchemas.seats, "unique, check and NOT NULL: refused, and the others go through", rule: "semantics 7") {
      bench in
      try await bench.write(.insert("seat", ["id": 1, "place": 7]))
      var device = try await bench.device()
      let results = try await device.upload(
        .insert("seat", ["id": 2, "place": 7, "seats": 1]), .insert("seat", ["id": 3, "place": 8, "seats": 100]),
        .insert("seat", ["id": 4, "place": 9, "seats": 1]), .insert("seat", ["id": 5, "place": 10, "seats": 99]))
      try expectRefused(results, [1: .constraint, 2: .constraint], accepted: 2)
      try await bench.expectRows("seat", [[1, 7, 1], [4, 9, 1], [5, 10, 99]])
      let null = try await device.upload(.insert("seat", ["id": 6, "place": 11, "seats": .null]))
      try expectEqual(null.refused.count, 1, "the refusals of a NULL in a NOT NULL column")
      try await bench.expectRows("seat", [[1, 7, 1], [4, 9, 1], [5, 10, 99]])
    },
    on(ContractSchemas.inspections, "a row whose parent is not there is refused as missing-parent", rule: "semantics 7")
    { bench in
      try await bench.write(
        .insert("establishment", ["id": "e1", "name": "e"]),
        .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d"]))
      var device = try await bench.device()
      let results = try await device.upload(
        .insert("inspection", ["id": "i2", "establishment_id": "e9", "date": "d", "inspector": .null]),
        .insert("infraction", ["inspection_id": "i1", "line": 1, "severity_id": 5, "note": .null]),
        .update("inspection", ["i1"], [("establishment_id", "e1", "e8")]))
      try expectRefused(results, [1: .missingParent, 2: .missingParent, 3: .missingParent], accepted: 0)
      try await bench.expectRows("inspection", [["i1", "e1", "d", .null]])
    },
    on(ContractSchemas.inspections, "a delete never cascades to rows the client did not see", rule: "semantics 7") {
      bench in
      try await bench.write(.insert("establishment", ["id": "e1", "name": "e"]))
      var device = try await bench.device()
      try await bench.write(.insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d"]))
      let results = try await device.upload(.delete("establishment", ["e1"]))
      try expectRefused(results, [1: .conflict], accepted: 0)
      try await bench.expectRows("establishment", [["e1", "e", .null]])
      try await bench.expectRows("inspection", [["i1", "e1", "d", .null]])
    },
    on(
      ContractSchemas.tree, "a delete never unlinks rows that the client did not see (on delete set null)",
      rule: "semantics 7"
    ) { bench in
      try await bench.write(.insert("node", ["id": "a"]), .insert("leaf", ["id": "seen", "node": "a"]))
      var device = try await bench.device()
      try await bench.write(.insert("leaf", ["id": "unseen", "node": "a"]))
      let results = try await device.upload(
        .group([.update("leaf", ["seen"], [("node", "a", .null)]), .delete("node", ["a"])]))
      try expectRefused(results, [1: .conflict], accepted: 0)
      try await bench.expectRows("node", [["a", .null, .null]])
      try await bench.expectRows("leaf", [["seen", "a", .null], ["unseen", "a", .null]])
    },
    on(ContractSchemas.inspections, "a cascade that the client saw goes through as one request", rule: "semantics 7") {
      bench in
      try await bench.write(
        .insert("establishment", ["id": "e1", "name": "e"]),
        .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d"]),
        .insert("infraction", ["inspection_id": "i1", "line": 1]))
      var device = try await bench.device()
      let results = try await device.upload(
        .group([
          .delete("infraction", ["i1", 1]), .delete("inspection", ["i1"]), .delete("establishment", ["e1"]),
        ]))
      try expectAccepted(results, 1)
      for table in ["establishment", "inspection", "infraction"] { try await bench.expectRows(table, []) }
    },
    on(ContractSchemas.tree, "a delete of a parent that children reference is refused", rule: "semantics 7") { bench in
      try await bench.write(.insert("node", ["id": "a"]), .insert("leaf", ["id": "l", "kept": "a"]))
      var device = try await bench.device()
      let results = try await device.upload(.delete("node", ["a"]))
      try expectRefused(results, [1: .constraint], accepted: 0)
      try await bench.expectRows("node", [["a", .null, .null]])
    },
    on(ContractSchemas.notes(), "a group is accepted or refused as a whole", rule: "semantics 1") { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      var device = try await bench.device()
      let results = try await device.upload(
        .group([
          .update("note", ["n1"], [("title", "a", "b")]), .insert("note", ["id": "n2", "title": "b", "body": .null]),
          .update("note", ["n9"], [("title", "a", "b")]),
        ]), .insert("note", ["id": "n3", "title": "c", "body": .null]))
      try expectRefused(results, [1: .rowDeleted], accepted: 1)
      try await bench.expectRows("note", [["n1", "a", .null], ["n3", "c", .null]])
    },
    on(ContractSchemas.notes(), "a refusal carries the request's own ID", rule: "semantics 5") { bench in
      var device = try await bench.device()
      let stamp = device.stamp
      let results = try await device.upload(
        .insert("note", ["id": "n1", "title": "a", "body": .null]), .update("note", ["n9"], [("title", "a", "b")]))
      try expectEqual(results.refused.map(\.id), [RequestID(stamp: stamp, counter: 2)], "the refused request")
    },
  ]

  // MARK: Dependence and order

  static let dependence: [Case] = [
    on(
      ContractSchemas.notes(unique: [["title"]]), "a later request on the same row is blocked, others are not",
      rule: "semantics 7"
    ) { bench in
      try await bench.write(
        .insert("note", ["id": "101", "title": "a"]), .insert("note", ["id": "102", "title": "b"]),
        .insert("note", ["id": "103", "title": "taken"]))
      var device = try await bench.device()
      // #1 update 101 (fails), #2 update 102 (fails), #3 update 101, #4 update 103.
      let results = try await device.upload(
        .update("note", ["101"], [("title", "a", "taken")]), .update("note", ["102"], [("title", "b", "taken")]),
        .update("note", ["101"], [("body", .null, "x")]), .update("note", ["103"], [("body", .null, "y")]))
      try expectRefused(results, [1: .constraint, 2: .constraint, 3: .blocked], accepted: 1)
      try expectEqual(
        results.refused.first { $0.counter == 3 }?.blockedBy?.counter, 1, "what the blocked request depends on")
      try await bench.expectRows(
        "note", [["101", "a", .null], ["102", "b", .null], ["103", "taken", "y"]])
    },
    on(ContractSchemas.inspections, "a child of a refused row is blocked, transitively", rule: "semantics 7") { bench in
      var device = try await bench.device(parameters: ["region": ["EU"]])
      let results = try await device.upload(
        .insert("establishment", ["id": "e1", "name": "e", "region": "US"]),
        .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d", "inspector": .null]),
        .insert("infraction", ["inspection_id": "i1", "line": 1, "severity_id": .null, "note": .null]),
        .insert("establishment", ["id": "e2", "name": "e", "region": "EU"]))
      try expectRefused(results, [1: .outOfScope, 2: .blocked, 3: .blocked], accepted: 1)
      try await bench.expectRows("inspection", [])
    },
    on(
      ContractSchemas.inspections,
      "a child is blocked by its refused parent that comes later, whatever speaks against it",
      rule: "semantics 7"
    ) { bench in
      try await bench.write(
        .insert("establishment", ["id": "us", "name": "e", "region": "US"]),
        .insert("inspection", ["id": "theirs", "establishment_id": "us", "date": "d"]))
      // In a small upload and in a large one, which a store may look at in parts.
      for others in [0, 300] {
        var device = try await bench.device(parameters: ["region": ["EU"]])
        let name = "new \(others)"
        let long = Value.text(String(repeating: "name", count: 100))
        var sent: [Sent] = [
          .insert("inspection", ["id": "theirs", "establishment_id": .text(name), "date": "d", "inspector": .null])
        ]
        for other in 0..<others {
          sent.append(.insert("establishment", ["id": .text("eu \(other)"), "name": long, "region": "EU"]))
        }
        sent.append(.insert("establishment", ["id": .text(name), "name": "e", "region": "US"]))
        let results = try await device.process([device.chunk(sent)], as: SequenceID(from: SystemRandom()))
        try expectRefused(results, [1: .blocked, Int64(others) + 2: .outOfScope], accepted: Int64(others))
        try await bench.expectRows("inspection", [["theirs", "us", "d", .null]])
      }
    },
    on(
      ContractSchemas.inspections, "a child of a row that is there is not blocked by a refused insert of that row",
      rule: "semantics 7"
    ) { bench in
      try await bench.write(
        .insert("severity", ["id": 5, "name": "high"]), .insert("establishment", ["id": "e1", "name": "e"]),
        .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d"]))
      var device = try await bench.device()
      // The first waits for its parent, so that all are looked at together.
      let results = try await device.upload(
        .insert("inspection", ["id": "i2", "establishment_id": "e2", "date": "d", "inspector": .null]),
        .insert("infraction", ["inspection_id": "i1", "line": 1, "severity_id": 5, "note": .null]),
        .insert("severity", ["id": 5, "name": "other"]),
        .insert("establishment", ["id": "e2", "name": "e", "region": .null]))
      try expectRefused(results, [3: .serverMaintained], accepted: 3)
      try await bench.expectRows("infraction", [["i1", 1, 5, .null]])
    },
    on(
      ContractSchemas.notes(conflicts: ContractPolicies.serverWins),
      "a request whose effect is there already makes its row no newer", rule: "semantics 7"
    ) { bench in
      var one = try await bench.device(), other = try await bench.device()
      let insert = Sent.insert("note", ["id": "n1", "title": "a", "body": .null])
      try expectAccepted(try await one.upload(insert), 1)
      try await one.download()
      try expectAccepted(try await other.upload(insert, made: 0), 1)
      try expectAccepted(try await one.upload(.delete("note", ["n1"])), 1)
      try await bench.expectRows("note", [])
    },
    on(ContractSchemas.seats, "a request that takes a value which a refused one frees is blocked", rule: "semantics 7")
    {
      bench in
      try await bench.write(.insert("seat", ["id": 1, "place": 7]), .insert("seat", ["id": 2, "place": 8]))
      var device = try await bench.device()
      let results = try await device.upload(
        .group([
          .update("seat", [1], [("place", 7, 9)]), .insert("seat", ["id": 5, "place": 10, "seats": 500]),
        ]), .update("seat", [2], [("place", 8, 7)]))
      try expectRefused(results, [1: .constraint, 3: .blocked], accepted: 0)
      try await bench.expectRows("seat", [[1, 7, 1], [2, 8, 1]])
    },
    on(
      ContractSchemas.inspections, "a delete is blocked by the refused delete of a row that references it",
      rule: "semantics 7"
    ) { bench in
      try await bench.write(
        .insert("establishment", ["id": "e1", "name": "e"]),
        .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d"]))
      var device = try await bench.device()
      try await bench.write(.insert("infraction", ["inspection_id": "i1", "line": 1]))
      let results = try await device.upload(.delete("inspection", ["i1"]), .delete("establishment", ["e1"]))
      try expectRefused(results, [1: .conflict, 2: .blocked], accepted: 0)
    },
    on(
      ContractSchemas.inspections, "a request goes after the one that makes the row it references", rule: "semantics 7"
    ) { bench in
      var device = try await bench.device()
      let results = try await device.upload(
        .insert("infraction", ["inspection_id": "i1", "line": 1, "severity_id": .null, "note": .null]),
        .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d", "inspector": .null]),
        .insert("establishment", ["id": "e1", "name": "e", "region": .null]))
      try expectAccepted(results, 3)
      try await bench.expectRows("infraction", [["i1", 1, .null, .null]])
    },
    on(ContractSchemas.seats, "unique values may be swapped", rule: "semantics 7") { bench in
      try await bench.write(.insert("seat", ["id": 1, "place": 7]), .insert("seat", ["id": 2, "place": 8]))
      var device = try await bench.device()
      let group = try await device.upload(
        .group([.update("seat", [1], [("place", 7, 8)]), .update("seat", [2], [("place", 8, 7)])]))
      try expectAccepted(group, 1)
      try await bench.expectRows("seat", [[1, 8, 1], [2, 7, 1]])
      let steps = try await device.upload(
        .update("seat", [1], [("place", 8, .null)]), .update("seat", [2], [("place", 7, 8)]),
        .update("seat", [1], [("place", .null, 7)]))
      try expectAccepted(steps, 3)
      try await bench.expectRows("seat", [[1, 7, 1], [2, 8, 1]])
    },
    on(ContractSchemas.seats, "a key change is one request: the delete and the insert", rule: "semantics 3") { bench in
      try await bench.write(.insert("seat", ["id": 1, "place": 7]))
      var device = try await bench.device()
      let results = try await device.upload(
        .group([.delete("seat", [1]), .insert("seat", ["id": 3, "place": 7, "seats": 1])]))
      try expectAccepted(results, 1)
      try await bench.expectRows("seat", [[3, 7, 1]])
    },
    on(ContractSchemas.tree, "rows of a table that references itself arrive in any order", rule: "semantics 7") {
      bench in
      var device = try await bench.device()
      let results = try await device.upload(
        .insert("node", ["id": "a", "parent": "b", "label": .null]),
        .insert("node", ["id": "b", "parent": "c", "label": .null]),
        .insert("node", ["id": "c", "parent": .null, "label": .null]))
      try expectAccepted(results, 3)
      let gone = try await device.upload(
        .group([.delete("node", ["a"]), .delete("node", ["b"]), .delete("node", ["c"])]))
      try expectAccepted(gone, 1)
      try await bench.expectRows("node", [])
    },
  ]
}
