import SalvorModel
import SalvorStorage

extension ServerStoreContract {
  /// Of a row of `ContractSchemas.odd`.
  private static func insertion(of row: Row, into table: Table) -> Sent {
    .insert(
      table.name,
      [
        "key a": row[0], "select": row[1], "key \"b\"": row[2], "real.": row[3], "x'y": row[4], "is": row[5],
        "when": row[6], "json": row[7], "ganz": row[8],
      ])
  }

  static let processing: [Case] = [
    on(ContractSchemas.notes(), "insert, update and delete reach the real tables", rule: "semantics 7") { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "b"]))
      var device = try await bench.device()
      let results = try await device.upload(
        .insert("note", ["id": "n3", "title": "c", "body": "x"]), .update("note", ["n1"], [("title", "a", "A")]),
        .delete("note", ["n2"]))
      try expectAccepted(results, 3)
      try expect(results.commit != nil, "the commit must be named")
      try await bench.expectRows("note", [["n1", "A", .null], ["n3", "c", "x"]])
    },
    on(ContractSchemas.notes(), "only the changed columns are written", rule: "semantics 7") { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a", "body": "x"]))
      var device = try await bench.device()
      try await bench.write(.update("note", ["n1"], ["body": "server"]))
      try expectAccepted(try await device.upload(.update("note", ["n1"], [("title", "a", "A")])), 1)
      try await bench.expectRows("note", [["n1", "A", "server"]])
    },
    on(
      ContractSchemas.notes(), "the same upload again changes nothing and gives the recorded results",
      rule: "semantics 5"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      var device = try await bench.device()
      let chunk = device.chunk([
        .update("note", ["n1"], [("title", "a", "b")]), .update("note", ["n9"], [("title", "a", "b")]),
      ])
      let sequence = SequenceID(from: SystemRandom())
      let results = try await device.process([chunk], as: sequence)
      try expectRefused(results, [2: .rowDeleted], accepted: 1)
      try await bench.write(.update("note", ["n1"], ["title": "c"]))
      let head = try await bench.store.sweep()
      let again = try await device.process([chunk], as: sequence)
      try expectEqual(again, results, "the results of the second time")
      try await bench.expectRows("note", [["n1", "c", .null]])
      try expectEqual(try await bench.store.sweep(), head, "the head")
      try await bench.store.stage(chunk, index: 0, remote: device.remote, sequence: sequence)
      try expectEqual(try await device.process(nil, as: sequence), results, "the results when it was staged")
      try await bench.expectRows("note", [["n1", "c", .null]])
    },
    on(ContractSchemas.notes(), "an upload without a change makes no commit", rule: "semantics 4") { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      var device = try await bench.device()
      let head = try await bench.store.sweep()
      let results = try await device.upload(.update("note", ["n1"], [("title", "x", "a")]), .delete("note", ["n2"]))
      try expectAccepted(results, 2)
      try expect(results.commit == nil, "nothing was changed")
      try expectEqual(try await bench.store.sweep(), head, "the head")
    },
    on(ContractSchemas.odd, "every value keeps its storage class and bytes", rule: "Value.swift") { bench in
      var device = try await bench.device()
      let table = bench.schema.tables[0]
      for row in bench.hardRows {
        let named = zip(table.columns, row).map { NamedValue($0.name, $1) }
        try await bench.store.write([.insert(table: table.name, values: named)])
      }
      let rows = try await bench.store.rows(of: table.name)
      try expectEqual(Set(rows), Set(bench.hardRows), "the rows written")
      try await device.download()
      try device.expectReplica(table.name, bench.hardRows)
      for row in rows { try await device.upload(.delete(table.name, table.key(of: row))) }
      try await bench.expectRows(table.name, [])
      for row in rows {
        let results = try await device.upload(insertion(of: row, into: table))
        try expectAccepted(results, 1)
      }
      try await bench.expectRows(table.name, rows)
    },
    on(
      ContractSchemas.odd, "a text of any bytes is kept, or refuses its request alone where the store cannot hold it",
      rule: "semantics 7; StoreSubject.holdsAnyText"
    ) { bench in
      var device = try await bench.device()
      let table = bench.schema.tables[0]
      let rows = ContractSchemas.hardRows
      let chunk = device.chunk(rows.map { insertion(of: $0, into: table) })
      let results = try await device.process([chunk], as: SequenceID(from: SystemRandom()))
      try expectEqual(
        results.refused.map(\.reason), rows.filter { !bench.holds($0) }.map { _ in .notStorable },
        "why requests are refused")
      try expectEqual(Set(try await bench.store.rows(of: table.name)), Set(rows.filter(bench.holds)), "the rows")
    },
    on(ContractSchemas.notes(), "an upload in many chunks is one transaction with one result", rule: "semantics 4") {
      bench in
      var device = try await bench.device()
      let chunks = (0..<10).map { index in
        device.chunk(
          [.insert("note", ["id": .text("n\(index)"), "title": "t", "body": .null])], isLast: index == 9)
      }
      try expectAccepted(try await device.process(chunks, as: SequenceID(from: SystemRandom())), 10)
      let rows = try await bench.store.rows(of: "note")
      try expectEqual(rows, (0..<10).map { [.text("n\($0)"), "t", .null] }, "the rows")
    },
  ]

  // MARK: Conflicts

  static let conflicts: [Case] =
    [
      on(ContractSchemas.notes(), "client-wins: the changed fields are the client's", rule: "semantics 7") { bench in
        var device = try await stale(bench)
        try expectAccepted(
          try await device.upload(.update("note", ["n1"], [("title", "a", "client")])), 1, conflicts: 1)
        try await bench.expectRows("note", [["n1", "client", "server"]])
        try await device.download()
        try device.expectReplica("note", [["n1", "client", "server"]])
      },
      on(
        ContractSchemas.notes(conflicts: ContractPolicies.serverWins), "server-wins: a change in conflict is refused",
        rule: "semantics 7"
      ) { bench in
        var device = try await stale(bench)
        let results = try await device.upload(.update("note", ["n1"], [("title", "a", "client")]))
        try expectRefused(results, [1: .conflict], accepted: 0)
        try expect(results.commit == nil, "nothing was changed")
        try await bench.expectRows("note", [["n1", "server", "server"]])
      },
      on(
        ContractSchemas.notes(conflicts: ContractPolicies.keepVersions),
        "keep-versions: the server's row stands, the request counts as accepted and as a conflict, the row is fed",
        rule: "semantics 7"
      ) { bench in
        var device = try await stale(bench)
        try expectAccepted(
          try await device.upload(.update("note", ["n1"], [("title", "a", "client")])), 1, conflicts: 1)
        try await bench.expectRows("note", [["n1", "server", "server"]])
        try await device.download()
        try device.expectReplica("note", [["n1", "server", "server"]])
      },
      on(
        ContractSchemas.notes(conflicts: ContractPolicies.keepVersions),
        "keep-versions: the row is fed even where the device has its newer version already", rule: "semantics 4"
      ) { bench in
        var device = try await stale(bench)
        let made = device.groups[0].cursor?.number
        try await device.download()
        let results = try await device.upload(.update("note", ["n1"], [("title", "a", "client")]), made: made)
        try expectAccepted(results, 1, conflicts: 1)
        try await device.download()
        try expectEqual(device.items.map(\.values), [["n1", "server", "server"]], "what is fed")
      },
      on(
        ContractSchemas.notes(conflicts: ContractPolicies.serverWins),
        "there is no conflict where other columns were changed", rule: "semantics 7"
      ) { bench in
        try await bench.write(.insert("note", ["id": "n1", "title": "a", "body": "x"]))
        var device = try await bench.device()
        try await bench.write(.update("note", ["n1"], ["body": "server"]))
        try expectAccepted(try await device.upload(.update("note", ["n1"], [("title", "a", "client")])), 1)
        try await bench.expectRows("note", [["n1", "client", "server"]])
        try await device.download()
        try device.expectReplica("note", [["n1", "client", "server"]])
      },
      on(
        ContractSchemas.notes(conflicts: ContractPolicies.serverWins),
        "there is no conflict with this remote's own earlier requests", rule: "semantics 7"
      ) { bench in
        try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
        var device = try await bench.device()
        try expectAccepted(try await device.upload(.update("note", ["n1"], [("title", "a", "b")])), 1)
        try expectAccepted(
          try await device.upload(
            .update("note", ["n1"], [("title", "b", "c")]), .update("note", ["n1"], [("title", "c", "d")])), 2)
        try expectAccepted(try await device.upload(.delete("note", ["n1"])), 1)
        try await bench.expectRows("note", [])
      },
      on(
        ContractSchemas.notes(conflicts: ContractPolicies.serverWins),
        "there is no conflict where the server's value is the old one or the new one", rule: "semantics 7"
      ) { bench in
        var device = try await stale(bench)
        try expectAccepted(try await device.upload(.update("note", ["n1"], [("title", "a", "server")])), 1)
        try expectAccepted(
          try await device.upload(.update("note", ["n1"], [("title", "server", "client")]), made: 0), 1)
        try await bench.expectRows("note", [["n1", "client", "server"]])
      },
      on(
        ContractSchemas.notes(conflicts: ContractPolicies.serverWins),
        "a conflict counts from when the change was made, though the device has downloaded since", rule: "semantics 7"
      ) { bench in
        var device = try await stale(bench)
        let made = device.groups[0].cursor?.number
        try await device.download()
        let results = try await device.upload(.update("note", ["n1"], [("title", "a", "client")]), made: made)
        try expectRefused(results, [1: .conflict], accepted: 0)
      },
      on(
        ContractSchemas.notes(conflicts: ContractPolicies.serverWins), "a delete conflicts with any newer version",
        rule: "semantics 7"
      ) { bench in
        var device = try await stale(bench)
        try expectRefused(try await device.upload(.delete("note", ["n1"])), [1: .conflict], accepted: 0)
        try await bench.expectRows("note", [["n1", "server", "server"]])
        try await device.download()
        try expectAccepted(try await device.upload(.delete("note", ["n1"])), 1)
        try await bench.expectRows("note", [])
      },
      on(
        ContractSchemas.notes(conflicts: ContractPolicies.serverWins),
        "a row that this remote made is no one else's, whatever stood under its key before", rule: "semantics 7"
      ) { bench in
        var device = try await bench.device()
        try await bench.write(.insert("note", ["id": "n1", "title": "theirs"]))
        _ = try await bench.store.sweep()
        try await bench.write(.delete("note", ["n1"]))
        let results = try await device.upload(
          .insert("note", ["id": "n1", "title": "mine", "body": .null]),
          .update("note", ["n1"], [("title", "mine", "x")]),
          .delete("note", ["n1"]), .insert("note", ["id": "n1", "title": "y", "body": .null]))
        try expectAccepted(results, 4)
        try expectAccepted(try await device.upload(.delete("note", ["n1"])), 1)
        try await bench.expectRows("note", [])
      },
      on(ContractSchemas.notes(), "client-wins: a delete of a newer version goes through", rule: "semantics 7") {
        bench in
        var device = try await stale(bench)
        try expectAccepted(try await device.upload(.delete("note", ["n1"])), 1, conflicts: 1)
        try await bench.expectRows("note", [])
      },
      on(
        ContractSchemas.notes(conflicts: ContractPolicies.keepVersions),
        "keep-versions: a delete of a newer version leaves the row, and feeds it", rule: "semantics 7"
      ) { bench in
        var device = try await stale(bench)
        try expectAccepted(try await device.upload(.delete("note", ["n1"])), 1, conflicts: 1)
        try await bench.expectRows("note", [["n1", "server", "server"]])
        try await device.download()
        try device.expectReplica("note", [["n1", "server", "server"]])
      },
    ]
    + [ContractPolicies.clientWins, ContractPolicies.serverWins, ContractPolicies.keepVersions].map { policy in
      on(
        ContractSchemas.notes(conflicts: policy), "\(policy): an update of a deleted row is refused as row-deleted",
        rule: "semantics 7"
      ) { bench in
        try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
        var device = try await bench.device()
        try await bench.write(.delete("note", ["n1"]))
        let results = try await device.upload(.update("note", ["n1"], [("title", "a", "client")]))
        try expectRefused(results, [1: .rowDeleted], accepted: 0)
        try await bench.expectRows("note", [])
        try await device.download()
        try expectEqual(device.items.map(\.departure), [.deleted], "the tombstone")
      }
    } + [
      on(
        ContractSchemas.notes(conflicts: ContractPolicies.keepVersions),
        "keep-versions: a group is kept as a whole, none of its rows is written", rule: "semantics 1, 7"
      ) { bench in
        try await bench.write(.insert("note", ["id": "n2", "title": "b"]))
        var device = try await stale(bench)
        let results = try await device.upload(
          .group([
            .update("note", ["n2"], [("title", "b", "client")]), .update("note", ["n1"], [("title", "a", "client")]),
          ]))
        try expectAccepted(results, 1, conflicts: 1)
        try await bench.expectRows("note", [["n1", "server", "server"], ["n2", "b", .null]])
        try await device.download()
        try expectEqual(Set(device.items.map { $0.values[0] }), ["n1", "n2"], "what is fed")
      },
      on(ContractSchemas.notes(), "a delete of a row that is gone is accepted", rule: "semantics 7") { bench in
        try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
        var device = try await bench.device()
        try await bench.write(.delete("note", ["n1"]))
        try expectAccepted(try await device.upload(.delete("note", ["n1"])), 1)
      },
      on(ContractSchemas.notes(), "text keys: an insert of a key the server holds is merged", rule: "semantics 7") {
        bench in
        var device = try await bench.device()
        try await bench.write(.insert("note", ["id": "n1", "title": "server", "body": "server"]))
        try expectAccepted(
          try await device.upload(.insert("note", ["id": "n1", "title": "client", "body": "server"])), 1, conflicts: 1)
        try await bench.expectRows("note", [["n1", "client", "server"]])
        try await device.download()
        try device.expectReplica("note", [["n1", "client", "server"]])
      },
      on(
        ContractSchemas.notes(conflicts: ContractPolicies.serverWins),
        "text keys under server-wins: an insert of a key the server holds with other values is refused",
        rule: "semantics 7"
      ) { bench in
        var device = try await bench.device()
        try await bench.write(.insert("note", ["id": "n1", "title": "server"]))
        let results = try await device.upload(.insert("note", ["id": "n1", "title": "client", "body": .null]))
        try expectRefused(results, [1: .conflict], accepted: 0)
        try await bench.expectRows("note", [["n1", "server", .null]])
      },
      on(ContractSchemas.seats, "integer keys: an insert of a key the server holds is refused", rule: "semantics 7") {
        bench in
        var device = try await bench.device()
        try await bench.write(.insert("seat", ["id": 1, "place": 7]), .insert("seat", ["id": 2, "place": 8]))
        let results = try await device.upload(
          .insert("seat", ["id": 1, "place": 9, "seats": 1]), .insert("seat", ["id": 2, "place": 8, "seats": 1]))
        try expectRefused(results, [1: .keyExists], accepted: 1)
        try await bench.expectRows("seat", [[1, 7, 1], [2, 8, 1]])
      },
      on(
        ContractSchemas.notes(sameKey: .refuse), "sameKey settles what an insert of a held key means",
        rule: "semantics 7"
      ) { bench in
        var device = try await bench.device()
        try await bench.write(.insert("note", ["id": "n1", "title": "server"]))
        let results = try await device.upload(.insert("note", ["id": "n1", "title": "client", "body": .null]))
        try expectRefused(results, [1: .keyExists], accepted: 0)
      },
      on(ContractSchemas.notes(), "whoever deletes a newer row is told that it is deleted", rule: "semantics 4, 7") {
        bench in
        var device = try await stale(bench)
        try expectAccepted(try await device.upload(.delete("note", ["n1"])), 1, conflicts: 1)
        try await device.download()
        try expectEqual(device.items.map(\.departure), [.deleted], "what is told of the row")
      },
      on(ContractSchemas.notes(), "a delete of a row that is gone feeds nothing back", rule: "semantics 4") { bench in
        var device = try await stale(bench)
        var other = try await bench.device("bert")
        try expectAccepted(try await other.upload(.delete("note", ["n1"])), 1)
        try await device.download()
        try expectAccepted(try await device.upload(.delete("note", ["n1"]), made: 0), 1)
        try await device.download()
        try device.expectNothingFed()
      },
    ]

  /// A device that has (n1, a, x) where the server has (n1, server, server).
  static func stale(_ bench: ServerBench) async throws -> Device {
    try await bench.write(.insert("note", ["id": "n1", "title": "a", "body": "x"]))
    let device = try await bench.device()
    try await bench.write(.update("note", ["n1"], ["title": "server", "body": "server"]))
    return device
  }
}
