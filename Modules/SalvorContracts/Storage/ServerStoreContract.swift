import SalvorModel
import SalvorStorage

/// The rules every `ServerStore` keeps (semantics 4 to 7, ServerStore.swift). The executable specification is
/// `MemoryServerStore`.
///
/// ```swift
/// @Test(arguments: ServerStoreContract.cases)
/// func keepsTheContract(_ rule: ServerStoreContract.Case) async throws { try await rule.run(subject) }
/// ```
public enum ServerStoreContract {
  /// A way to get fresh databases of a server.
  public typealias Subject = StoreSubject<any ServerStore>
  /// One rule, for a server's store.
  public typealias Case = ContractCase<Subject>

  /// One rule each. Where `recovers` is false, one case checks that it is, and the others about recovery do nothing.
  public static let cases: [Case] =
    opening + remotes + staging + processing + conflicts + policies + conflictVersions + settling + resolving + refusals
    + refusedBefore
    + dependence + circles + scope + membership + feed + parts + pages + subscribing + subscribingWays + changedGroups
    + recovering
    + blobs + evolving + purges + healing + healingSets + healingDeletes + healingBounds + healingInput + healingWaiting
    + lostTwice + madeUpon

  /// A case on one bench; the store is closed afterwards, whatever happens.
  static func on(
    _ schema: Schema, _ name: String, rule: String,
    _ body: @escaping @Sendable (inout ServerBench) async throws -> Void
  ) -> Case {
    Case(name, rule: rule) { subject in
      var bench = try await ServerBench(subject, schema)
      do {
        try await body(&bench)
      } catch {
        await bench.close()
        throw error
      }
      await bench.close()
    }
  }

  // MARK: Opening, admission and remotes

  static let opening: [Case] = [
    on(ContractSchemas.notes(), "a new database gets its tables and a server ID", rule: "ServerStore.swift, open") {
      bench in
      try expectEqual(bench.opening.createdTables, ["note"], "the tables made")
      try expectEqual(bench.opening.adoptedRows, 0, "the rows adopted")
      try await bench.expectRows("note", [])
      let again = try await bench.store.open(ServerSetup(schema: bench.schema))
      try expectEqual(again.serverID, bench.opening.serverID, "the server ID of a second open")
      try expectEqual(again.incarnation, bench.opening.incarnation, "the incarnation of a second open")
    },
    on(
      ContractSchemas.notes(), "server ID, rows and history outlive a restart; the incarnation is new",
      rule: "semantics 6"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      let head = try await bench.store.sweep()
      let before = bench.opening
      try await bench.restart()
      try expectEqual(bench.opening.serverID, before.serverID, "the server ID")
      try expect(bench.opening.incarnation != before.incarnation, "each start must draw an incarnation")
      try expectEqual(bench.opening.createdTables, [], "the tables made")
      try expect(!bench.opening.isRestored, "a plain restart is no restore")
      try await bench.expectRows("note", [["n1", "a", .null]])
      try expectEqual(try await bench.store.sweep(), head, "the head")
    },
    on(ContractSchemas.notes(), "an additive difference of the schema is applied", rule: "semantics 6") { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      var schema = bench.schema
      schema.tables[0].columns.append(Column("stars", .integer, defaultValue: 3))
      schema.tables.append(Table("more", primaryKey: ["id"], columns: [Column("id", .text)]))
      try await bench.restart(schema)
      try expectEqual(bench.opening.createdTables, ["more"], "the tables made")
      try expectEqual(bench.opening.addedColumns, ["note.stars"], "the columns added")
      try await bench.expectRows("note", [["n1", "a", .null, 3]])
    },
    on(ContractSchemas.notes(), "a destructive difference of the schema is refused by name", rule: "semantics 6") {
      bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      var schema = bench.schema
      schema.tables[0].columns.removeLast()
      let store = bench.store
      await store.close()
      let changed = schema
      let other = try await bench.database()
      let error = try await expectError(.schemaRefused, "opening without the column body") {
        _ = try await other.open(ServerSetup(schema: changed))
      }
      try expect(error.message.contains("body"), "the column must be named")
      await other.close()
      try await bench.restart()
      try await bench.expectRows("note", [["n1", "a", .null]])
    },
    on(ContractSchemas.notes(), "a cursor is known by its number and its ID", rule: "semantics 6") { bench in
      var device = try await bench.device()
      let first = try expectSome(device.groups[0].cursor, "the cursor of an empty download")
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      let head = try await bench.store.sweep()
      try expect(head.number > first.number, "a direct write must get a number")
      try await device.download()
      try expectEqual(device.groups[0].cursor, head, "the cursor")
      let foreign = Commit(number: head.number, id: CommitID(from: SystemRandom()))
      let later = Commit(number: head.number + 1, id: CommitID(from: SystemRandom()))
      let admission = try await bench.store.admit(
        AdmissionQuery(
          remote: device.remote, previous: nil, current: nil, cursors: [first, head, foreign, later],
          commits: [later, foreign, head, first]))
      try expectEqual(admission.cursors, [.known, .known, .unknown, .unknown], "the findings")
      try expectEqual(admission.lastShared, head, "the last shared commit")
      try expectEqual(admission.head, head, "the head")
    },
    on(ContractSchemas.notes(), "an admission numbers what other programs committed first", rule: "semantics 4") {
      bench in
      let before = try await bench.store.sweep()
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      let admission = try await bench.store.admit(
        AdmissionQuery(remote: RemoteID(from: SystemRandom()), previous: nil, current: nil, cursors: []))
      try expect(admission.head.number > before.number, "the head must have moved")
      try expect(admission.remote == nil, "an unknown remote has no record")
      let again = try await bench.store.sweep()
      try expectEqual(again, admission.head, "the head where nothing was written")
    },
    on(
      ContractSchemas.notes(), "an admission that has the download has it whole, and only where nothing is to come",
      rule: "semantics 4"
    ) { bench in
      var device = try await bench.device()
      func admitted(_ groups: [GroupState], _ subscriptions: ResolvedSubscriptions? = nil) async throws -> Admission {
        let request = PageRequest(
          remote: device.remote, principal: device.principal, subscriptions: subscriptions, groups: groups,
          position: nil,
          bytesTarget: 1 << 20)
        return try await bench.store.admit(
          AdmissionQuery(
            remote: device.remote, previous: nil, current: nil, cursors: groups.compactMap(\.cursor), download: request)
        )
      }
      func expectNoPage(_ groups: [GroupState], _ what: String) async throws {
        try expect(try await admitted(groups).page == nil, "\(what): the download must be asked for")
      }
      try await device.download()
      // A store need not answer so.
      if let page = try await admitted(device.groups).page {
        try expectEqual(page.groups?.map(\.cursor), device.groups.map(\.cursor), "the cursors")
        try expectEqual(page.groups?.map(\.scopeDigest), device.groups.map(\.scopeDigest), "the scopes")
        try expectEqual(page.groups?.map(\.subscriptions), device.groups.map(\.subscriptions), "the subscriptions")
        try expectEqual(page.position, nil, "the position after it")
        try expectEqual(try DownloadedPage(page.bytes, schema: bench.schema).items, [], "the rows")
      }
      try await expectNoPage(device.groups.map { GroupState(name: $0.name) }, "a first synchronization")
      var another = device.groups
      another[0].scopeDigest = "another"
      try await expectNoPage(another, "another scope")
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      try await expectNoPage(device.groups, "what another program has written")
      try await device.download()
      device.groups[0].cursor = Commit(number: device.groups[0].cursor?.number ?? 0, id: CommitID(from: SystemRandom()))
      try await expectNoPage(device.groups, "a commit of another server")
    },
    on(ContractSchemas.notes(), "a cursor older than the tombstones kept is trimmed", rule: "semantics 6") { bench in
      var device = try await bench.device()
      let old = try expectSome(device.groups[0].cursor, "the cursor")
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "b"]))
      _ = try await bench.store.sweep()
      try await bench.write(.delete("note", ["n1"]))
      let head = try await bench.store.sweep()
      try await bench.store.trim(before: .max)
      let admission = try await bench.store.admit(
        AdmissionQuery(remote: device.remote, previous: nil, current: nil, cursors: [old, head]))
      try expectEqual(admission.cursors, [.trimmed, .known], "the findings")
      try await bench.expectRows("note", [["n2", "b", .null]])
      device.groups[0].cursor = nil
      try await device.download()
      try device.expectReplica("note", [["n2", "b", .null]])
    },
  ]

  static let remotes: [Case] = [
    on(
      ContractSchemas.notes(), "a remote belongs to the principal that registered it",
      rule: "ServerStore.swift, register"
    ) { bench in
      let remote = RemoteID(from: SystemRandom())
      try await bench.store.register(remote, principal: "anna")
      try await bench.store.register(remote, principal: "anna")
      let store = bench.store
      try await expectError(.remoteOfAnother, "registering another's remote ID") {
        try await store.register(remote, principal: "bert")
      }
      // One look, other bytes: another one.
      let composed = RemoteID(from: SystemRandom())
      try await store.register(composed, principal: "jos\u{e9}")
      try await expectError(.remoteOfAnother, "registering the remote ID of a name of the same look") {
        try await store.register(composed, principal: "jose\u{301}")
      }
      let records = try await store.remotes().filter { $0.id == remote }
      try expectEqual(records.map(\.id), [remote], "the remotes")
      try expectEqual(records[0].principal, "anna", "the principal")
      try expect(records[0].sequence == nil, "no upload, no sequence ID")
    },
    on(
      ContractSchemas.notes(), "the stored sequence ID is that of the last upload; older ones are known",
      rule: "semantics 5"
    ) {
      bench in
      var device = try await bench.device()
      try await device.upload(.insert("note", ["id": "n1", "title": "a", "body": .null]))
      let first = try expectSome(device.sequence, "the first sequence ID")
      try await device.upload(.insert("note", ["id": "n2", "title": "a", "body": .null]))
      func admit(_ previous: SequenceID?) async throws -> Admission {
        try await bench.store.admit(
          AdmissionQuery(remote: device.remote, previous: previous, current: nil, cursors: []))
      }
      var admission = try await admit(first)
      try expectEqual(admission.remote?.sequence, device.sequence, "S")
      try expect(admission.previousIsOlder, "the first upload's ID must be known as an older one")
      admission = try await admit(device.sequence)
      try expect(!admission.previousIsOlder, "S itself is not an older one")
      admission = try await admit(SequenceID(from: SystemRandom()))
      try expect(!admission.previousIsOlder, "an ID never heard of is not an older one")
    },
    on(ContractSchemas.notes(), "a deleted remote keeps its request IDs: nothing is applied twice", rule: "semantics 5")
    {
      bench in
      var device = try await bench.device()
      let chunk = device.chunk([.insert("note", ["id": "n1", "title": "a", "body": .null])])
      let sequence = SequenceID(from: SystemRandom())
      try expectAccepted(try await device.process([chunk], as: sequence), 1)
      try await bench.write(.delete("note", ["n1"]))
      let forgotten = try await bench.store.deleteRemote(device.remote, block: false)
      try expect(forgotten, "the remote was there to delete")
      let admission = try await bench.store.admit(
        AdmissionQuery(remote: device.remote, previous: sequence, current: nil, cursors: []))
      try expect(admission.remote?.sequence == nil, "S must be gone")
      try expect(admission.previousIsOlder, "the deleted remote's sequence ID must be kept as an older one")
      try await bench.store.register(device.remote, principal: "anna")
      try expectAccepted(try await device.process([chunk], as: sequence), 1)
      try await bench.expectRows("note", [])
    },
    on(
      ContractSchemas.notes(), "what was sent under a deleted remote ID is fed to the copy that has the ID next",
      rule: "semantics 4, 5"
    ) {
      bench in
      var device = try await bench.device()
      var copy = device
      try expectAccepted(try await device.upload(.insert("note", ["id": "n1", "title": "a", "body": .null])), 1)
      _ = try await bench.store.deleteRemote(device.remote, block: false)
      try await bench.store.register(device.remote, principal: "anna")
      try await copy.download()
      try copy.expectReplica("note", [["n1", "a", .null]])
      try expectAccepted(try await copy.upload(.insert("note", ["id": "n2", "title": "b", "body": .null])), 1)
      try await copy.download()
      try copy.expectNothingFed()
    },
    on(
      ContractSchemas.notes(conflicts: ContractPolicies.keepVersions),
      "what was sent under a deleted remote ID is no own change of the copy that has the ID next",
      rule: "semantics 5, 7"
    ) {
      bench in
      var device = try await bench.device()
      try expectAccepted(try await device.upload(.insert("note", ["id": "n1", "title": "a", "body": .null])), 1)
      try await device.download()
      var copy = device
      try expectAccepted(try await device.upload(.update("note", ["n1"], [("title", "a", "b")])), 1)
      _ = try await bench.store.deleteRemote(device.remote, block: false)
      try await bench.store.register(device.remote, principal: "anna")
      let results = try await copy.upload(.update("note", ["n1"], [("title", "a", "c")]))
      try expectEqual(results.conflicts, 1, "conflicts")
      try await bench.expectRows("note", [["n1", "b", .null]])
    },
    on(
      ContractSchemas.notes(), "a blocked remote is known as blocked; an unknown one cannot be deleted",
      rule: "semantics 5"
    ) {
      bench in
      let device = try await bench.device()
      let missing = try await bench.store.deleteRemote(RemoteID(from: SystemRandom()), block: true)
      try expect(!missing, "there was no such remote")
      _ = try await bench.store.deleteRemote(device.remote, block: true)
      let admission = try await bench.store.admit(
        AdmissionQuery(remote: device.remote, previous: nil, current: nil, cursors: []))
      try expectEqual(admission.remote?.isBlocked, true, "blocked")
    },
    on(ContractSchemas.notes(), "remotes, sequence IDs and results outlive a restart", rule: "semantics 5") { bench in
      var device = try await bench.device()
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      let results = try await device.upload(
        .update("note", ["n9"], [("title", "a", "b")]), .insert("note", ["id": "n2", "title": "b", "body": .null]))
      try expectRefused(results, [1: .rowDeleted], accepted: 1)
      let sequence = try expectSome(device.sequence, "the sequence ID")
      try await bench.restart()
      let recorded = try await bench.store.results(device.remote, sequence: sequence)
      try expectEqual(recorded, results, "the recorded results")
      let other = try await bench.store.results(device.remote, sequence: SequenceID(from: SystemRandom()))
      try expect(other == nil, "another sequence ID has no results")
    },
  ]

  // MARK: Staging

  static let staging: [Case] = [
    on(ContractSchemas.notes(), "nothing staged is in the tables before it is processed", rule: "semantics 4") {
      bench in
      var device = try await bench.device()
      let chunk = device.chunk([.insert("note", ["id": "n1", "title": "a", "body": .null])])
      let sequence = SequenceID(from: SystemRandom())
      try await bench.store.stage(chunk, index: 0, remote: device.remote, sequence: sequence)
      let staged = try await bench.store.staged(device.remote, sequence: sequence)
      try expectEqual(
        staged, StagedUpload(chunks: 1, lastCounter: 1, bytes: Int64(chunk.bytes.count), isWhole: true),
        "what is staged")
      try await bench.expectRows("note", [])
      try expectAccepted(try await device.process(nil, as: sequence), 1)
      try await bench.expectRows("note", [["n1", "a", .null]])
      try expectEqual(
        try await bench.store.staged(device.remote, sequence: sequence), StagedUpload(), "staging after processing")
    },
    on(ContractSchemas.notes(), "a chunk that is sent again replaces itself", rule: "ServerStore.swift, stage") {
      bench in
      var device = try await bench.device()
      let first = device.chunk([.insert("note", ["id": "n1", "title": "a", "body": .null])], isLast: false)
      let second = device.chunk([.insert("note", ["id": "n2", "title": "b", "body": .null])])
      let sequence = SequenceID(from: SystemRandom())
      for (chunk, index) in [(first, 0), (first, 0), (second, 1), (second, 1)] {
        try await bench.store.stage(chunk, index: index, remote: device.remote, sequence: sequence)
      }
      try expectEqual(
        try await bench.store.staged(device.remote, sequence: sequence).chunks, 2, "the chunks staged")
      try expectAccepted(try await device.process(nil, as: sequence), 2)
      try await bench.expectRows("note", [["n1", "a", .null], ["n2", "b", .null]])
    },
    on(
      ContractSchemas.notes(), "a chunk of another sequence ID empties staging first", rule: "ServerStore.swift, stage"
    ) { bench in
      var device = try await bench.device()
      let first = device.chunk([.insert("note", ["id": "n1", "title": "a", "body": .null])])
      let second = device.chunk([.insert("note", ["id": "n2", "title": "b", "body": .null])])
      let given = SequenceID(from: SystemRandom()), taken = SequenceID(from: SystemRandom())
      try await bench.store.stage(first, index: 0, remote: device.remote, sequence: given)
      try await bench.store.stage(second, index: 0, remote: device.remote, sequence: taken)
      try expectEqual(
        try await bench.store.staged(device.remote, sequence: given), StagedUpload(), "the upload given up")
      try expectAccepted(try await device.process(nil, as: taken), 1)
      try await bench.expectRows("note", [["n2", "b", .null]])
    },
    on(ContractSchemas.notes(), "a gap between chunks is chunk-missing", rule: "ServerStore.swift, stage") { bench in
      var device = try await bench.device()
      let first = device.chunk([.insert("note", ["id": "n1", "title": "a", "body": .null])], isLast: false)
      let second = device.chunk([.insert("note", ["id": "n2", "title": "b", "body": .null])])
      let sequence = SequenceID(from: SystemRandom())
      let store = bench.store, remote = device.remote
      try await store.stage(second, index: 0, remote: remote, sequence: sequence)
      try await expectError(.chunkMissing, "a chunk whose counters do not follow") {
        try await store.stage(first, index: 1, remote: remote, sequence: sequence)
      }
    },
    on(ContractSchemas.notes(), "two remotes stage side by side", rule: "semantics 4") { bench in
      var anna = try await bench.device("anna"), bert = try await bench.device("bert")
      let a = anna.chunk([.insert("note", ["id": "a", "title": "a", "body": .null])])
      let b = bert.chunk([.insert("note", ["id": "b", "title": "b", "body": .null])])
      let sequenceA = SequenceID(from: SystemRandom()), sequenceB = SequenceID(from: SystemRandom())
      try await bench.store.stage(a, index: 0, remote: anna.remote, sequence: sequenceA)
      try await bench.store.stage(b, index: 0, remote: bert.remote, sequence: sequenceB)
      try expectAccepted(try await bert.process(nil, as: sequenceB), 1)
      try await bench.expectRows("note", [["b", "b", .null]])
      try expectAccepted(try await anna.process(nil, as: sequenceA), 1)
      try await bench.expectRows("note", [["a", "a", .null], ["b", "b", .null]])
    },
    on(
      ContractSchemas.notes(), "an upload that comes after a later one of its remote is not applied",
      rule: "semantics 5; ServerStore.swift, ProcessRequest.previous"
    ) { bench in
      var device = try await bench.device()
      let first = SequenceID(from: SystemRandom()), second = SequenceID(from: SystemRandom())
      let chunk = device.chunk([.insert("note", ["id": "n1", "title": "a", "body": .null])])
      try expectAccepted(try await device.process([chunk], as: first), 1)
      try await device.upload(.insert("note", ["id": "n2", "title": "b", "body": .null]))
      let stored = try expectSome(device.sequence, "the last upload")
      let store = bench.store
      let (remote, principal) = (device.remote, device.principal)
      // The same once more, and one that nobody has seen, of a begin of before.
      let other = device.chunk([.insert("note", ["id": "n3", "title": "c", "body": .null])])
      for late in [
        ProcessRequest(remote: remote, sequence: first, principal: principal, chunks: [chunk]),
        ProcessRequest(remote: remote, sequence: second, previous: first, principal: principal, chunks: [other]),
      ] {
        try await expectError(.sessionUnknown, "an upload that comes late") { _ = try await store.process(late) }
        try expectEqual(try await store.remote(remote)?.sequence, stored, "the remote's last upload")
      }
      try await bench.expectRows("note", [["n1", "a", .null], ["n2", "b", .null]])
      try await device.upload(.insert("note", ["id": "n4", "title": "d", "body": .null]))
    },
    on(ContractSchemas.notes(), "staging outlives a restart", rule: "semantics 4") { bench in
      var device = try await bench.device()
      let chunk = device.chunk([.insert("note", ["id": "n1", "title": "a", "body": .null])])
      let sequence = SequenceID(from: SystemRandom())
      try await bench.store.stage(chunk, index: 0, remote: device.remote, sequence: sequence)
      try await bench.restart()
      let results = try await bench.store.process(
        ProcessRequest(remote: device.remote, sequence: sequence, principal: device.principal))
      try expectAccepted(results, 1)
      try await bench.expectRows("note", [["n1", "a", .null]])
    },
  ]
}
