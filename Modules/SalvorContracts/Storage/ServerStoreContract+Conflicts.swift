import SalvorModel
import SalvorStorage

/// Conflict versions: what they say, how they are listed and resolved (semantics 7, ServerStore.swift).
extension ServerStoreContract {
  private static let keeping = ContractSchemas.notes(conflicts: ContractPolicies.keepVersions)

  static let conflictVersions: [Case] = [
    on(keeping, "a version says who, when, on which commit, and what both sides have", rule: "semantics 7") { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a", "body": "x"]))
      var anna = try await bench.device()
      var bert = try await bench.device("bert")
      let before = try expectSome(
        try await bert.upload(.update("note", ["n1"], [("title", "a", "server")])).commit, "the commit of bert's upload"
      )
      let made = try expectSome(anna.groups[0].cursor, "the cursor").number
      let stamp = anna.stamp
      try expectAccepted(
        try await anna.upload(.update("note", ["n1"], [("title", "a", "client"), ("body", "x", .null)])), 1,
        conflicts: 1)
      let versions = try await bench.store.conflicts(after: 0, limit: 10, state: nil)
      try expectEqual(versions.count, 1, "the number of conflict versions")
      let version = versions[0]
      try expectEqual(version.id, 1, "the ID")
      try expectEqual(version.first, 1, "the ID of the request's first version")
      try expectEqual(version.table, "note", "the table")
      try expectEqual(version.key, ["n1"], "the key")
      try expectEqual(version.request, RequestID(stamp: stamp, counter: 1), "the request")
      try expectEqual(version.state, .open, "the state")
      let client = version.client, server = version.server
      try expectEqual(client.remote, anna.remote, "the client's remote ID")
      try expectEqual(client.principal, "anna", "who sent it")
      try expectEqual(client.made, made, "the commit that the change was made on")
      try expectEqual(client.operation, .update, "the operation")
      try expectEqual(
        client.columns,
        [ConflictColumn("title", old: "a", new: "client"), ConflictColumn("body", old: "x", new: .null)], "the columns")
      try expectEqual(
        server.row, [NamedValue("id", "n1"), NamedValue("title", "server"), NamedValue("body", "x")],
        "the server's row")
      try expectEqual(server.commit, before.number, "the commit that made the server's row")
      try expectEqual(server.remote, bert.remote, "the server's remote ID")
      try expectEqual(server.principal, "bert", "who made the server's row")
      let time = try expectSome(server.time, "when the server's row was made")
      try expect(time > 1_500_000_000_000 && time <= client.time, "both times are milliseconds since 1970, in order")
    },
    on(keeping, "a row that another program wrote is nobody's upload", rule: "semantics 7") { bench in
      var device = try await stale(bench)
      let head = try await bench.store.sweep()
      try await device.upload(.update("note", ["n1"], [("title", "a", "client")]))
      let server = try await only(bench).server
      try expectEqual(server.commit, head.number, "the commit")
      try expect(server.remote == nil && server.principal == nil, "no remote ID and no principal")
    },
    on(keeping, "what is kept makes the row no newer for others, but for its sender", rule: "semantics 7") { bench in
      var anna = try await stale(bench)
      var bert = try await bench.device("bert")
      try expectAccepted(
        try await anna.upload(.update("note", ["n1"], [("title", "a", "client")])), 1, conflicts: 1)
      try expectAccepted(try await anna.upload(.delete("note", ["n1"])), 1, conflicts: 1)
      try expectAccepted(try await bert.upload(.delete("note", ["n1"])), 1)
      try await bench.expectRows("note", [])
    },
    on(
      keeping, "a delete made before the history that is kept meets a row that may be newer", rule: "semantics 6, 7"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "a"]))
      var device = try await bench.device()
      try await bench.write(.insert("note", ["id": "n3", "title": "a"]))
      _ = try await bench.store.sweep()
      try await bench.store.trim(before: Int64.max)
      // The values decide about an update.
      try expectAccepted(
        try await device.upload(.delete("note", ["n1"]), .update("note", ["n2"], [("title", "a", "b")])), 2,
        conflicts: 1)
      try await bench.expectRows("note", [["n1", "a", .null], ["n2", "b", .null], ["n3", "a", .null]])
    },
    on(keeping, "a delete and an insert are kept with what they are", rule: "semantics 7") { bench in
      var device = try await stale(bench)
      try await bench.write(.insert("note", ["id": "n2", "title": "server"]))
      try expectAccepted(
        try await device.upload(
          .delete("note", ["n1"]), .insert("note", ["id": "n2", "title": "client", "body": .null])),
        2, conflicts: 2)
      let versions = try await bench.store.conflicts(after: 0, limit: 10, state: .open)
      try expectEqual(versions.map(\.client.operation), [.delete, .insert], "the operations")
      try expectEqual(versions[0].client.columns, [], "the columns of a delete")
      try expectEqual(
        versions[1].client.columns,
        [
          ConflictColumn("id", old: nil, new: "n2"), ConflictColumn("title", old: nil, new: "client"),
          ConflictColumn("body", old: nil, new: .null),
        ], "the columns of an insert")
      try expectEqual(versions.map(\.first), versions.map(\.id), "each is a request of its own")
    },
    on(
      ContractSchemas.odd.settled(by: ContractPolicies.keepVersions), "values are kept to the byte", rule: "semantics 3"
    ) { bench in
      let table = bench.schema.tables[0]
      var device = try await bench.device()
      var sent: [Sent] = []
      for row in bench.hardRows {
        var server = row
        server[8] = 7
        try await bench.write(
          .insert(table: table.name, values: zip(table.columns, server).map { NamedValue($0.name, $1) }))
        sent.append(
          .update(
            table.name, table.key(of: row),
            zip(table.columns, row).filter { !table.primaryKey.contains($0.0.name) }.map {
              ($0.name, $1, $1)
            }))
      }
      let rows = bench.hardRows
      let chunk = device.chunk(sent, made: 0)
      let results = try await device.process([chunk], as: SequenceID(from: SystemRandom()))
      try expectEqual(results.conflicts, Int64(rows.count), "the conflicts")
      let versions = try await bench.store.conflicts(after: 0, limit: 100, state: .open)
      for version in versions {
        let row = try expectSome(rows.first { table.key(of: $0) == version.key }, "the row of a version's key")
        let wanted = zip(table.columns, row).filter { !table.primaryKey.contains($0.0.name) }.map {
          ConflictColumn($0.name, old: $1, new: $1)
        }
        try expectEqual(version.client.columns, wanted, "the client's values")
        var server = row
        server[8] = 7
        try expectEqual(version.server.row?.map(\.value), server, "the server's values")
      }
      for version in versions { _ = try await bench.store.resolveConflict(version.id, keep: .client, by: "o") }
      for row in try await bench.store.rows(of: table.name) {
        try expect(rows.contains(row), "a resolved row is not what the client sent: \(row)")
      }
    },
    on(keeping, "versions are listed in order, page by page, by state", rule: "ServerStore.swift, conflicts") { bench in
      let ids = try await keep(5, bench)
      func list(_ after: Int64, _ limit: Int, _ state: ConflictState?) async throws -> [Int64] {
        try await bench.store.conflicts(after: after, limit: limit, state: state).map(\.id)
      }
      try expectEqual(try await list(0, 2, nil), Array(ids[..<2]), "the first page")
      try expectEqual(try await list(ids[1], 2, nil), Array(ids[2..<4]), "the second page")
      try expectEqual(try await list(ids[3], 2, nil), [ids[4]], "the last page")
      try expectEqual(try await list(ids[4], 2, nil), [], "after the last one")
      _ = try await bench.store.resolveConflict(ids[2], keep: .server, by: "o")
      try expectEqual(try await list(0, 10, .open), [ids[0], ids[1], ids[3], ids[4]], "the open ones")
      try expectEqual(try await list(0, 10, .resolved), [ids[2]], "the resolved ones")
      try expectEqual(try await list(0, 10, nil), ids, "all")
      try expectEqual(try await bench.store.stats().openConflicts, 4, "the open ones that stats count")
    },
    on(keeping, "a version is shown beside its row as it is now", rule: "ServerStore.swift, conflict") { bench in
      var device = try await stale(bench)
      try await device.upload(.update("note", ["n1"], [("title", "a", "client")]))
      let id = try await only(bench).id
      try await bench.write(.update("note", ["n1"], ["title": "later"]))
      let shown = try await bench.store.conflict(id)
      try expectEqual(shown.map(\.version.id), [id], "the versions")
      try expectEqual(shown[0].version.server.row?.map(\.value), ["n1", "server", "server"], "the row of then")
      try expectEqual(shown[0].present?.map(\.value), ["n1", "later", "server"], "the row of now")
      try await bench.write(.delete("note", ["n1"]))
      try expect(try await bench.store.conflict(id)[0].present == nil, "the row is gone")
      try expectEqual(try await bench.store.conflict(id + 1), [], "a version that is not there")
    },
    on(keeping, "versions, open and resolved, outlive a restart", rule: "semantics 11.2") { bench in
      let ids = try await keep(2, bench)
      _ = try await bench.store.resolveConflict(ids[0], keep: .client, by: "olga")
      let before = try await bench.store.conflicts(after: 0, limit: 10, state: nil)
      try await bench.restart()
      try expectEqual(try await bench.store.conflicts(after: 0, limit: 10, state: nil), before, "the versions")
    },
    on(keeping, "resolved versions go with the tombstones, open ones stay, no ID is used again", rule: "semantics 5") {
      bench in
      let ids = try await keep(2, bench)
      _ = try await bench.store.resolveConflict(ids[1], keep: .server, by: "o")
      try await bench.store.trim(before: 1)
      try expectEqual(
        try await bench.store.conflicts(after: 0, limit: 10, state: nil).map(\.id), ids, "before their time")
      try await bench.store.trim(before: .max)
      try expectEqual(
        try await bench.store.conflicts(after: 0, limit: 10, state: nil).map(\.id), [ids[0]], "afterwards")
      try await bench.restart()
      try expectEqual(try await keep(1, bench, from: 7), [ids[1] + 1], "the next ID")
    },
  ]

  static let resolving: [Case] = [
    on(keeping, "the client's: its columns are written, and reach every device, the sender's too", rule: "semantics 7")
    {
      bench in
      var anna = try await stale(bench)
      var bert = try await bench.device("bert")
      try await anna.upload(.update("note", ["n1"], [("title", "a", "client")]))
      try await anna.download()
      try anna.expectReplica("note", [["n1", "server", "server"]])
      let head = try await bench.store.sweep()
      // What others have written since, elsewhere in the row, stays.
      try await bench.write(.update("note", ["n1"], ["body": "later"]))
      let resolved = try await bench.store.resolveConflict(try await only(bench).id, keep: .client, by: "olga")
      try expectEqual(resolved.map(\.state), [.resolved], "the states")
      let resolution = try expectSome(resolved[0].resolution, "the resolution")
      try expectEqual(resolution.keep, .client, "what was kept")
      try expectEqual(resolution.by, "olga", "who resolved it")
      try expect(resolution.time >= resolved[0].client.time, "the time is milliseconds since 1970")
      try await bench.expectRows("note", [["n1", "client", "later"]])
      try expect(try await bench.store.sweep().number > head.number, "it is a change of the server")
      try await anna.download()
      try anna.expectReplica("note", [["n1", "client", "later"]])
      try await bert.download()
      try bert.expectReplica("note", [["n1", "client", "later"]])
      try expectEqual(try await bench.store.stats().openConflicts, 0, "the open versions")
    },
    on(keeping, "the server's: nothing is written but the mark", rule: "semantics 7") { bench in
      var device = try await stale(bench)
      try await device.upload(.update("note", ["n1"], [("title", "a", "client")]))
      try await device.download()
      let head = try await bench.store.sweep()
      let resolved = try await bench.store.resolveConflict(try await only(bench).id, keep: .server, by: "olga")
      try expectEqual(resolved[0].resolution?.keep, .server, "what was kept")
      try await bench.expectRows("note", [["n1", "server", "server"]])
      try expectEqual(try await bench.store.sweep(), head, "the head")
      try await device.download()
      try device.expectNothingFed()
    },
    on(keeping, "the client's delete deletes, for every device", rule: "semantics 7") { bench in
      var anna = try await stale(bench)
      var bert = try await bench.device("bert")
      try await anna.upload(.delete("note", ["n1"]))
      try await anna.download()
      _ = try await bench.store.resolveConflict(try await only(bench).id, keep: .client, by: "o")
      try await bench.expectRows("note", [])
      try await anna.download()
      try expectEqual(anna.items.map(\.departure), [.deleted], "what the sender is fed")
      try await bert.download()
      try bert.expectReplica("note", [])
    },
    on(keeping, "a request is resolved as a whole, by any of its versions", rule: "semantics 1, 7") { bench in
      try await bench.write(.insert("note", ["id": "n2", "title": "b"]))
      var device = try await stale(bench)
      try await device.upload(
        .group([
          .insert("note", ["id": "n3", "title": "new", "body": .null]), .delete("note", ["n2"]),
          .update("note", ["n1"], [("title", "a", "client")]),
        ]))
      let versions = try await bench.store.conflicts(after: 0, limit: 10, state: .open)
      try expectEqual(versions.map(\.key), [["n3"], ["n2"], ["n1"]], "the rows")
      try expectEqual(Set(versions.map(\.first)), [versions[0].id], "the ID of the request's first version")
      try expect(versions[0].server.row == nil, "the server has no row n3")
      try expectEqual(
        try await bench.store.conflict(versions[1].id).map(\.version), versions, "what is shown of one of them")
      let resolved = try await bench.store.resolveConflict(versions[1].id, keep: .client, by: "o")
      try expectEqual(resolved.map(\.id), versions.map(\.id), "what was resolved")
      try await bench.expectRows("note", [["n1", "client", "server"], ["n3", "new", .null]])
      try await device.download()
      try device.expectReplica("note", [["n1", "client", "server"], ["n3", "new", .null]])
    },
    on(keeping, "what was resolved, or is not there, cannot be resolved", rule: "ServerStore.swift, resolveConflict") {
      bench in
      var device = try await stale(bench)
      try await device.upload(.update("note", ["n1"], [("title", "a", "client")]))
      let id = try await only(bench).id
      _ = try await bench.store.resolveConflict(id, keep: .server, by: "olga")
      let store = bench.store
      for keep in ConflictSide.allCases {
        try await expectError(.conflictResolved, "resolving twice") {
          _ = try await store.resolveConflict(id, keep: keep, by: "other")
        }
        try await expectError(.notFound, "resolving what is not there") {
          _ = try await store.resolveConflict(id + 1, keep: keep, by: "other")
        }
      }
      let kept = try await store.conflicts(after: 0, limit: 10, state: nil)
      try expectEqual(kept.map { $0.resolution?.by }, ["olga"], "who resolved it")
      try await bench.expectRows("note", [["n1", "server", "server"]])
    },
    on(keeping, "the client's of a row that was deleted since cannot be written", rule: "semantics 7") { bench in
      var device = try await stale(bench)
      try await device.upload(.update("note", ["n1"], [("title", "a", "client")]))
      try await bench.write(.delete("note", ["n1"]))
      let store = bench.store, id = try await only(bench).id
      let error = try await expectError(.conflictUnresolvable, "writing over a deleted row") {
        _ = try await store.resolveConflict(id, keep: .client, by: "o")
      }
      try expectEqual(error.context["reason"], RefusalReason.rowDeleted.rawValue, "the reason")
      try await bench.expectRows("note", [])
      try expectEqual(try await only(bench).state, .open, "the state")
      _ = try await store.resolveConflict(id, keep: .server, by: "o")
      try expectEqual(try await store.stats().openConflicts, 0, "the open versions")
    },
    on(
      ContractSchemas.notes(conflicts: ContractPolicies.keepVersions, unique: [["title"]]),
      "the client's that breaks a constraint is not written, none of its rows", rule: "semantics 7"
    ) { bench in
      var device = try await stale(bench)
      try await device.upload(
        .group([
          .insert("note", ["id": "n2", "title": "free", "body": .null]),
          .update("note", ["n1"], [("title", "a", "taken")]),
        ]))
      try await bench.write(.insert("note", ["id": "n3", "title": "taken"]))
      let head = try await bench.store.sweep()
      let store = bench.store, id = try await store.conflicts(after: 0, limit: 10, state: .open)[0].id
      try await expectError(.conflictUnresolvable, "writing a value that another row has") {
        _ = try await store.resolveConflict(id, keep: .client, by: "o")
      }
      try await bench.expectRows("note", [["n1", "server", "server"], ["n3", "taken", .null]])
      try expectEqual(try await store.sweep(), head, "the head")
      try expectEqual(try await store.stats().openConflicts, 2, "the open versions")
      try await bench.write(.update("note", ["n3"], ["title": "given back"]))
      _ = try await store.resolveConflict(id, keep: .client, by: "o")
      try await bench.expectRows(
        "note", [["n1", "taken", "server"], ["n2", "free", .null], ["n3", "given back", .null]])
    },
    on(
      ContractSchemas.tree.settled(by: ContractPolicies.keepVersions),
      "the client's delete takes no rows along", rule: "semantics 7"
    ) { bench in
      try await bench.write(.insert("node", ["id": "p"]))
      var device = try await bench.device()
      try await bench.write(.update("node", ["p"], ["label": "server"]))
      try await device.upload(.delete("node", ["p"]))
      try await bench.write(.insert("node", ["id": "child", "parent": "p"]))
      let store = bench.store, id = try await only(bench).id
      try await expectError(.conflictUnresolvable, "deleting a parent") {
        _ = try await store.resolveConflict(id, keep: .client, by: "o")
      }
      try await bench.expectRows("node", [["child", "p", .null], ["p", .null, "server"]])
    },
    on(
      ContractSchemas.inspections.settled(by: ContractPolicies.keepVersions),
      "the client's that moves a row between scopes leaves one and enters the other", rule: "semantics 4, 7"
    ) { bench in
      try await bench.write(.insert("establishment", ["id": "e1", "name": "a", "region": "EU"]))
      var everywhere = try await bench.device()
      var europe = try await bench.device("bert", parameters: ["region": ["EU"]])
      var states = try await bench.device("carl", parameters: ["region": ["US"]])
      try await bench.write(.update("establishment", ["e1"], ["region": "AS", "name": "server"]))
      try await everywhere.upload(.update("establishment", ["e1"], [("region", "EU", "US"), ("name", "a", "client")]))
      try await europe.download()
      try europe.expectReplica("establishment", [])
      _ = try await bench.store.resolveConflict(try await only(bench).id, keep: .client, by: "o")
      try await states.download()
      try states.expectReplica("establishment", [["e1", "client", "US"]])
      try await europe.download()
      try europe.expectReplica("establishment", [])
    },
  ]

  // MARK: Scenes

  /// The only version there is.
  private static func only(_ bench: ServerBench) async throws -> ConflictVersion {
    let versions = try await bench.store.conflicts(after: 0, limit: 10, state: nil)
    try expectEqual(versions.count, 1, "the number of conflict versions")
    return versions[0]
  }

  /// So many requests of one row each, kept. Their IDs.
  private static func keep(_ count: Int, _ bench: ServerBench, from first: Int = 1) async throws -> [Int64] {
    let known = try await bench.store.conflicts(after: 0, limit: 100, state: nil).map(\.id)
    let keys = (first..<first + count).map { Value.text("k\($0)") }
    for key in keys { try await bench.write(.insert("note", ["id": key, "title": "a"])) }
    var device = try await bench.device("device \(first)")
    for key in keys { try await bench.write(.update("note", [key], ["title": "server"])) }
    for key in keys { try await device.upload(.update("note", [key], [("title", "a", "client")])) }
    return try await bench.store.conflicts(after: 0, limit: 100, state: nil).map(\.id).filter { !known.contains($0) }
  }
}
