import SalvorModel
import SalvorStorage

/// What server-initiated sync asks a store (semantics 1).
extension ServerStoreContract {
  static let changedGroups: [Case] = [
    on(
      ContractSchemas.groups, "the groups that changed since a commit are named, each with its newest commit",
      rule: "ServerStore.swift, changedGroups"
    ) { bench in
      let before = try await bench.store.sweep()
      try expectEqual(
        try await bench.store.changedGroups(since: [before]), GroupChanges(head: before, changes: []),
        "the groups where nothing was written")
      var anna = try await bench.device("anna")
      try expectAccepted(try await anna.upload(.insert("a", ["id": "a1", "v": "x"])), 1)
      let first = try await bench.store.sweep()
      try expectAccepted(try await anna.upload(.insert("b", ["id": "b1", "a_id": "a1", "v": "x"])), 1)
      let second = try await bench.store.sweep()
      var found = try await bench.store.changedGroups(since: [before])
      try expectEqual(found.head, second, "the newest commit")
      try expectEqual(found.changes?.map(\.group), ["first", "second"], "the groups")
      try expectEqual(found.changes?.map(\.newest), [first.number, second.number], "their newest commits")
      found = try await bench.store.changedGroups(since: [first])
      try expectEqual(found.changes?.map(\.group), ["second"], "the groups since the first upload")
      found = try await bench.store.changedGroups(since: [second, first])
      try expectEqual(found.changes?.map(\.group), ["second"], "the groups since the older of two")
      found = try await bench.store.changedGroups(since: [])
      try expectEqual(found, GroupChanges(head: second, changes: []), "the answer without a cursor")
    },
    on(
      ContractSchemas.groups, "a device's own uploads are told apart from those of others",
      rule: "ServerStore.swift, changedGroups"
    ) { bench in
      let before = try await bench.store.sweep()
      var anna = try await bench.device("anna"), bert = try await bench.device("bert")
      try expectAccepted(try await bert.upload(.insert("a", ["id": "b", "v": "x"])), 1)
      let berts = try await bench.store.sweep()
      try expectAccepted(try await anna.upload(.insert("a", ["id": "a", "v": "x"])), 1)
      try expectAccepted(try await anna.upload(.insert("a", ["id": "c", "v": "x"])), 1)
      let annas = try await bench.store.sweep()
      let change = try expectSome(
        try await bench.store.changedGroups(since: [before]).changes?.first, "the change of the group")
      try expectEqual(change.newest(besides: nil), annas.number, "the newest commit to anybody")
      try expectEqual(change.newest(besides: bert.remote), annas.number, "the newest commit to bert")
      try expectEqual(change.newest(besides: anna.remote), berts.number, "the newest commit to anna")
      let own = try expectSome(
        try await bench.store.changedGroups(since: [berts]).changes?.first, "the change since bert's")
      try expectEqual(own.newest(besides: anna.remote), 0, "the newest commit to anna after bert's")
    },
    on(
      ContractSchemas.groups, "what other programs write is numbered and told, to everybody",
      rule: "semantics 4, ServerStore.swift, changedGroups"
    ) { bench in
      var anna = try await bench.device("anna")
      try expectAccepted(try await anna.upload(.insert("a", ["id": "a", "v": "x"])), 1)
      let before = try await bench.store.sweep()
      try await bench.write(.update("a", ["a"], ["v": "y"]))
      let found = try await bench.store.changedGroups(since: [before])
      try expectEqual(found.head.number, before.number + 1, "the newest commit")
      let change = try expectSome(found.changes?.first, "the change of the group")
      try expectEqual(change.group, "first", "the group")
      try expectEqual(change.newest(besides: anna.remote), found.head.number, "the newest commit to anna")
    },
    on(
      ContractSchemas.groups, "since a commit that the server never made, or has trimmed, anything may have changed",
      rule: "ServerStore.swift, changedGroups"
    ) { bench in
      let before = try await bench.store.sweep()
      try await bench.write(.insert("a", ["id": "a1"]))
      let head = try await bench.store.sweep()
      let strange = Commit(number: head.number, id: CommitID(from: SystemRandom()))
      try expect(try await bench.store.changedGroups(since: [strange]).changes == nil, "another history is not known")
      try expect(
        try await bench.store.changedGroups(since: [before, strange]).changes == nil, "nor one of two cursors")
      try await bench.write(.insert("a", ["id": "a2"]))
      _ = try await bench.store.sweep()
      try await bench.store.trim(before: .max)
      try expect(try await bench.store.changedGroups(since: [before]).changes == nil, "what was trimmed is not known")
    },
  ]
}
