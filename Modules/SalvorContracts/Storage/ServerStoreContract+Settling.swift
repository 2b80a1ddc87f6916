import SalvorModel
import SalvorStorage

/// No value is overwritten in silence: what a conflict policy settles is counted, and listed with the value that lost; and
/// inserts of one key are merged without a value lost (semantics 7).
extension ServerStoreContract {
  private static let notes = ContractSchemas.notes()
  private static let keeping = ContractSchemas.notes(conflicts: ContractPolicies.keepVersions)
  private static let asked = ContractSchemas.notes(conflicts: ContractPolicies.asked)

  /// An integer key that is the same thing wherever it is drawn.
  private static let mergedSeats: Schema = {
    let seat = ContractSchemas.seats.tables[0]
    return Schema(tables: [
      Table("seat", primaryKey: seat.primaryKey, columns: seat.columns, unique: seat.unique, sameKey: .merge)
    ])
  }()

  static let settling: [Case] = [
    on(
      notes, "client-wins: the value that lost is listed with who, when and on which commit",
      rule: "semantics 7, no value is overwritten in silence"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a", "body": "x"]))
      var anna = try await bench.device()
      var bert = try await bench.device("bert")
      let before = try expectSome(
        try await bert.upload(.update("note", ["n1"], [("title", "a", "bert's")])).commit, "the commit of bert's upload"
      )
      let made = try expectSome(anna.groups[0].cursor, "the cursor").number
      try expectAccepted(
        try await anna.upload(.update("note", ["n1"], [("title", "a", "anna's"), ("body", "x", "y")])), 1, conflicts: 1)
      try await bench.expectRows("note", [["n1", "anna's", "y"]])
      let settled = try await bench.store.conflicts(after: 0, limit: 10, state: .settled)
      try expectEqual(settled.count, 1, "the number of settled conflicts")
      let version = settled[0]
      try expectEqual(version.state, .settled, "the state")
      try expectEqual(version.settlement?.policy, ContractPolicies.clientWins, "the policy")
      try expectEqual(version.lostOfServer, [NamedValue("title", "bert's"), NamedValue("body", "x")], "what lost")
      try expectEqual(version.lostOfClient, [], "what lost of the client")
      try expectEqual(version.server.principal, "bert", "whose value lost")
      try expectEqual(version.server.remote, bert.remote, "the remote ID of the value that lost")
      try expectEqual(version.server.commit, before.number, "the commit of the value that lost")
      try expect((version.server.time ?? 0) > 1_500_000_000_000, "when the value that lost was written")
      try expectEqual(version.client.principal, "anna", "who overwrote it")
      try expectEqual(version.client.made, made, "the commit that the change was made on")
      try expectEqual(try await bench.store.stats().openConflicts, 0, "what waits for a person")
      try expectEqual(try await bench.store.conflicts(after: 0, limit: 10, state: .open), [], "the open ones")
    },
    on(notes, "client-wins: a delete over a newer row lists the whole row", rule: "semantics 7") { bench in
      var device = try await stale(bench)
      try expectAccepted(try await device.upload(.delete("note", ["n1"])), 1, conflicts: 1)
      let version = try await settledOnly(bench)
      try expectEqual(
        version.lostOfServer, [NamedValue("id", "n1"), NamedValue("title", "server"), NamedValue("body", "server")],
        "what lost")
    },
    on(notes, "what is in no conflict is not listed", rule: "semantics 7") { bench in
      var device = try await stale(bench)
      try expectAccepted(
        try await device.upload(
          .update("note", ["n1"], [("body", "x", "server")]),
          .insert("note", ["id": "n2", "title": "b", "body": .null])
        ), 2)
      try expectEqual(try await bench.store.conflicts(after: 0, limit: 10, state: nil), [], "the conflicts")
    },
    on(notes, "a conflict of a refused request is not listed", rule: "semantics 7") { bench in
      var device = try await stale(bench)
      let results = try await device.upload(
        .group([
          .update("note", ["n1"], [("title", "a", "client")]), .update("note", ["none"], [("title", "a", "b")]),
        ]))
      try expectRefused(results, [1: .rowDeleted], accepted: 0)
      try expectEqual(results.conflicts, 0, "the conflicts")
      try expectEqual(try await bench.store.conflicts(after: 0, limit: 10, state: nil), [], "what is listed")
    },
    on(asked, "a module's merge lists what lost of either side", rule: "semantics 7") { bench in
      var device = try await stale(bench)
      try expectAccepted(
        try await device.upload(.update("note", ["n1"], [("title", "a", "merged"), ("body", "x", "client")])), 1,
        conflicts: 1)
      let version = try await settledOnly(bench)
      try expectEqual(version.lostOfServer, [NamedValue("title", "server")], "what lost of the server")
      try expectEqual(version.lostOfClient, [NamedValue("body", "client")], "what lost of the client")
    },
    on(notes, "what a policy settled is not resolved by a person", rule: "ServerStore.swift, resolveConflict") {
      bench in
      var device = try await stale(bench)
      try await device.upload(.update("note", ["n1"], [("title", "a", "client")]))
      let id = try await settledOnly(bench).id
      for side in ConflictSide.allCases {
        try await expectError(.conflictResolved, "resolving it for the \(side)") {
          _ = try await bench.store.resolveConflict(id, keep: side, by: "o")
        }
      }
      try await bench.expectRows("note", [["n1", "client", "server"]])
    },
    on(keeping, "settled conflicts are trimmed by themselves, and outlive a restart", rule: "semantics 7") { bench in
      try await bench.write(.insert("note", ["id": "n9", "title": "a"]))
      var device = try await stale(bench)
      try await bench.write(.update("note", ["n9"], ["title": "server"]))
      try await device.upload(.update("note", ["n1"], [("title", "a", "client")]))
      try await bench.store.trimSettledConflicts(before: .max)
      try expectEqual(try await bench.store.conflicts(after: 0, limit: 10, state: .open).count, 1, "the open ones")
    },
    on(notes, "settled conflicts go after their own time, not with the tombstones", rule: "semantics 7") { bench in
      var device = try await stale(bench)
      try await device.upload(.update("note", ["n1"], [("title", "a", "client")]))
      let before = try await settledOnly(bench)
      try await bench.restart()
      try expectEqual(try await settledOnly(bench), before, "after a restart")
      try await bench.store.trim(before: .max)
      try await bench.store.trimSettledConflicts(before: before.client.time)
      try expectEqual(try await settledOnly(bench), before, "before its time")
      try await bench.store.trimSettledConflicts(before: .max)
      try expectEqual(try await bench.store.conflicts(after: 0, limit: 10, state: nil), [], "afterwards")
    },
    on(notes, "a merged insert overwrites nothing that it never named", rule: "semantics 7") { bench in
      var device = try await bench.device()
      try await bench.write(.insert("note", ["id": "n1", "title": "a", "body": "server"]))
      try expectAccepted(try await device.upload(.insert("note", ["id": "n1", "title": "a", "body": .null])), 1)
      try await bench.expectRows("note", [["n1", "a", "server"]])
      try await device.download()
      try device.expectReplica("note", [["n1", "a", "server"]])
    },
    on(notes, "a merged insert fills what nobody has set, without a conflict", rule: "semantics 7") { bench in
      var device = try await bench.device()
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      try expectAccepted(try await device.upload(.insert("note", ["id": "n1", "title": "a", "body": "client"])), 1)
      try await bench.expectRows("note", [["n1", "a", "client"]])
    },
    on(
      mergedSeats, "in a merged insert the schema's default counts as not set",
      rule: "semantics 7"
    ) { bench in
      var device = try await bench.device()
      try await bench.write(.insert("seat", ["id": 1, "place": 7, "seats": 4]), .insert("seat", ["id": 2]))
      try expectAccepted(
        try await device.upload(
          .insert("seat", ["id": 1, "place": .null, "seats": 1]), .insert("seat", ["id": 2, "place": 8, "seats": 2])), 2
      )
      try await bench.expectRows("seat", [[1, 7, 4], [2, 8, 2]])
    },
    on(
      keeping, "an insert that was kept overwrites nothing that it never named when it is resolved", rule: "semantics 7"
    ) { bench in
      var device = try await bench.device()
      try await bench.write(.insert("note", ["id": "n1", "title": "server", "body": "server"]))
      try expectAccepted(
        try await device.upload(.insert("note", ["id": "n1", "title": "client", "body": .null])), 1, conflicts: 1)
      let id = try expectSome(try await bench.store.conflicts(after: 0, limit: 10, state: .open).first, "a version").id
      _ = try await bench.store.resolveConflict(id, keep: .client, by: "o")
      try await bench.expectRows("note", [["n1", "client", "server"]])
    },
  ]

  private static func settledOnly(_ bench: ServerBench) async throws -> ConflictVersion {
    let versions = try await bench.store.conflicts(after: 0, limit: 10, state: .settled)
    try expectEqual(versions.count, 1, "the number of settled conflicts")
    return versions[0]
  }
}
