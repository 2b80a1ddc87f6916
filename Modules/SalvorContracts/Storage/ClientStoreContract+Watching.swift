import SalvorModel
import SalvorStorage

/// What a watching client asks its store (semantics 1, server-initiated sync).
extension ClientStoreContract {
  static let watching: [Case] = [
    on(
      ContractSchemas.groups, "what applications write is found by its groups, once",
      rule: "ClientStore.swift, captured"
    ) { bench in
      let start = try await bench.store.captured(after: 0)
      try expectEqual(start.groups, [], "the groups of an unwritten database")
      try await bench.write(.insert("a", ["id": "a1"]), .insert("draft", ["id": "d1"]))
      let first = try await bench.store.captured(after: start.counter)
      try expectEqual(first.groups, ["first"], "the groups of the first change")
      try await bench.write(.insert("b", ["id": "b1"]))
      let second = try await bench.store.captured(after: first.counter)
      try expectEqual(second.groups, ["second"], "the groups of the second change")
      try expect(second.counter > first.counter, "the counter must grow")
      try expectEqual(try await bench.store.captured(after: start.counter).groups, ["first", "second"], "both")
      try expectEqual(
        try await bench.store.captured(after: second.counter), CapturedChanges(counter: second.counter),
        "what was written since")
      try expectEqual(
        try await bench.store.captured(after: second.counter + 1),
        CapturedChanges(counter: second.counter, groups: ["first", "second"]),
        "the groups of a database that was put back")
    },
    on(
      ContractSchemas.groups, "what a sync changes is nothing that an application wrote",
      rule: "semantics 3, engine writes are never captured"
    ) { bench in
      try await bench.write(.insert("a", ["id": "a1"]))
      let before = try await bench.store.captured(after: 0)
      try await bench.upload()
      try await bench.download(full: ["b"], rows: [("b", ["b9", .null, "x"])])
      try expectEqual(try await bench.store.captured(after: before.counter).groups, [], "the groups after a sync")
      try await bench.restart()
      try await bench.write(.insert("a", ["id": "a2"]))
      try expectEqual(try await bench.store.captured(after: before.counter).groups, ["first"], "a later change")
    },
    on(
      ContractSchemas.groups, "the SyncConfig says of whose changes the server tells", rule: "semantics 1, 4"
    ) { bench in
      try expectEqual(try await bench.store.status().state.serverInitiated, [], "the groups at first")
      var schema = bench.schema
      schema.groups = schema.groups.map { Schema.Group(name: $0.name, serverInitiated: $0.name == "second") }
      try expect(SyncConfig(schema).digest != SyncConfig(bench.schema).digest, "the digest must tell them apart")
      try await bench.store.adopt(SyncConfig(schema))
      try expectEqual(try await bench.store.status().state.serverInitiated, ["second"], "the groups delivered")
      try await bench.restart()
      let state = try await bench.store.status().state
      try expectEqual(state.serverInitiated, ["second"], "the groups after a restart")
      try expectEqual(state.configDigest, SyncConfig(schema).digest, "the digest after a restart")
    },
  ]
}
