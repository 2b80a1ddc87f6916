import SalvorModel
import SalvorStorage

/// The rules every `ClientStore` keeps (semantics 2 to 5 and 8, ClientStore.swift). The executable specification is
/// `MemoryClientStore`.
public enum ClientStoreContract {
  /// A way to get fresh databases of a device.
  public typealias Subject = StoreSubject<any ClientStore>
  /// One rule, for a client's store.
  public typealias Case = ContractCase<Subject>

  /// One rule each. Where `recovers` is false, one case checks that it is, and the others about recovery do nothing.
  public static let cases: [Case] =
    opening + capture + sessions + settling + applying + parts + dropping + displacing + retrying + watching
    + recovering + archiving + circles + flags + blobs + evolving

  /// A case on one bench; the store is closed afterwards, whatever happens.
  static func on(
    _ schema: Schema, _ name: String, rule: String,
    _ body: @escaping @Sendable (inout ClientBench) async throws -> Void
  ) -> Case {
    Case(name, rule: rule) { subject in
      var bench = try await ClientBench(subject, schema)
      do {
        try await body(&bench)
      } catch {
        await bench.close()
        throw error
      }
      await bench.close()
    }
  }

  static let opening: [Case] = [
    on(
      ContractSchemas.groups, "a new database has its tables, a remote ID and nothing to send",
      rule: "ClientStore.swift, open"
    ) { bench in
      try expectEqual(Set(bench.opening.createdTables), ["a", "b", "draft", "stub"], "the tables made")
      let status = try await bench.store.status()
      try expectEqual(status.queued, 0, "the queue")
      try expectEqual(status.state.groups, bench.schema.groups.map { GroupState(name: $0.name) }, "the groups")
      try expectEqual(status.state.principal, "anna", "the principal")
      try expect(status.state.previous == nil && status.state.current == nil, "no sequence ID was drawn")
      try expectEqual(status.state.configDigest, SyncConfig(bench.schema).digest, "the digest of the tables")
      try await bench.expectRows("a", [])
    },
    on(ContractSchemas.notes(), "rows, queue and identity outlive a restart", rule: "ClientStore.swift, open") {
      bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      let before = try await bench.store.status()
      let queue = try await bench.queued()
      try await bench.restart()
      try expectEqual(bench.opening, ClientOpening(), "what opening again did")
      try expectEqual(try await bench.store.status(), before, "the status")
      try expectEqual(try await bench.queued(), queue, "the queue")
      try await bench.expectRows("note", [["n1", "a", .null]])
    },
    on(
      ContractSchemas.notes(), "an additive difference of the schema is applied, to what waits too", rule: "semantics 6"
    ) {
      bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.insert("note", ["id": "n2", "title": "b"]), .update("note", ["n1"], ["title": "c"]))
      var schema = bench.schema
      schema.tables[0].columns.append(Column("stars", .integer, defaultValue: 3))
      try await bench.restart(schema)
      try expectEqual(bench.opening.addedColumns, ["note.stars"], "the columns added")
      try await bench.expectRows("note", [["n1", "c", .null, 3], ["n2", "b", .null, 3]])
      try expectChanges(
        try await bench.upload(),
        [#"insert note ["id", "title", "body", "stars"] [n2, b, null, 3]"#, #"update note ["title"] [n1, a, c]"#])
    },
    on(ContractSchemas.notes(), "a destructive difference of the schema is refused by name", rule: "semantics 6") {
      bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      var schema = bench.schema
      schema.tables[0].columns.removeLast()
      await bench.close()
      let other = try await bench.database(), changed = schema
      let error = try await expectError(.schemaRefused, "opening without the column body") {
        _ = try await other.open(ClientSetup(schema: changed, principal: "anna"))
      }
      try expect(error.message.contains("body"), "the column must be named")
      await other.close()
      try await bench.restart()
      try await bench.expectRows("note", [["n1", "a", .null]])
    },
    on(
      ContractSchemas.notes(), "a SyncConfig brings new tables and columns; a destructive one changes nothing",
      rule: "semantics 4"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      var schema = bench.schema
      schema.tables[0].columns.append(Column("stars", .integer, nullable: true))
      schema.tables.append(Table("more", primaryKey: ["id"], columns: [Column("id", .text)]))
      try await bench.store.adopt(SyncConfig(schema))
      try await bench.expectRows("note", [["n1", "a", .null, .null]])
      try await bench.expectRows("more", [])
      let digest = SyncConfig(schema).digest
      try expectEqual(try await bench.store.status().state.configDigest, digest, "the digest")
      try await bench.write(.insert("more", ["id": "m"]))
      var less = schema
      less.tables[0].columns.remove(at: 2)
      let store = bench.store, destructive = SyncConfig(less)
      let error = try await expectError(.schemaIncompatible, "a SyncConfig without a column") {
        try await store.adopt(destructive)
      }
      try expect(error.message.contains("body"), "the column must be named")
      try expectEqual(try await bench.store.status().state.configDigest, digest, "the digest after the refusal")
      try await bench.restart()
      try await bench.expectRows("more", [["m"]])
      try expectEqual(try await bench.queued().map(\.table), ["note", "more"], "the queue")
    },
    on(
      ContractSchemas.notes(),
      "a SyncConfig of before columns and tables that the device has changes nothing: it waits",
      rule: "decision 208"
    ) { bench in
      var schema = bench.schema
      schema.version += 1
      schema.tables[0].columns.append(Column("stars", .integer, nullable: true))
      schema.tables.append(Table("more", primaryKey: ["id"], columns: [Column("id", .text)]))
      let later = SyncConfig(schema), before = SyncConfig(bench.schema)
      try await bench.store.adopt(later)
      try await bench.write(.insert("note", ["id": "n1", "title": "a", "stars": 3]), .insert("more", ["id": "m"]))
      let store = bench.store
      let error = try await expectError(.schemaAhead, "a SyncConfig of before") { try await store.adopt(before) }
      for name in ["stars", "more"] { try expect(error.message.contains(name), "\(name) must be named") }
      try expectEqual(try await bench.store.status().state.configDigest, later.digest, "the digest after the refusal")
      try await bench.restart()
      try await bench.expectRows("note", [["n1", "a", .null, 3]])
      try await bench.store.adopt(later)
      try expectEqual(try await bench.queued().map(\.table), ["note", "more"], "the queue")
      // A later version drops both.
      var last = bench.schema
      last.version += 2
      last.tables[0].dropped = ["stars"]
      last.dropped = ["more"]
      try await bench.store.adopt(SyncConfig(last))
      try await bench.expectRows("note", [["n1", "a", .null]])
    },
    on(
      ContractSchemas.notes(),
      "what a later file of the application's added stays when that file is withdrawn, and what was written in it waits",
      rule: "decision 214"
    ) { bench in
      let own = bench.schema
      try await bench.store.adopt(SyncConfig(own))
      var later = own
      later.version += 1
      later.tables[0].columns.append(Column("stars", .integer, nullable: true))
      later.tables.append(Table("more", primaryKey: ["id"], columns: [Column("id", .text)]))
      try await bench.restart(later)
      try await bench.write(
        .insert("note", ["id": "n1", "title": "a", "stars": 3]), .insert("more", ["id": "m"]),
        .insert("note", ["id": "n2", "title": "b"]))
      try await bench.restart(own)
      try await bench.expectRows("note", [["n1", "a", .null, 3], ["n2", "b", .null, .null]])
      try await bench.expectRows("more", [["m"]])
      try expectChanges(
        try await bench.upload(), [#"insert note ["id", "title", "body"] [n2, b, null]"#])
    },
    on(
      ContractSchemas.notes(), "what the server is, is remembered; so is that a recovery is needed",
      rule: "semantics 6, 9"
    ) {
      bench in
      let server = ServerID(from: SystemRandom())
      let incarnation = Incarnation(id: IncarnationID(from: SystemRandom()), firstCommit: 1)
      try await bench.store.remember(server: server, incarnations: [incarnation], principal: "anna")
      try await bench.store.setRecoveryRequired(.serverRestored, message: "why")
      try await bench.restart()
      var state = try await bench.store.status().state
      try expectEqual(state.serverID, server, "the server ID")
      try expectEqual(state.recoveryRequired, .serverRestored, "the reason")
      try expectEqual(state.recoveryMessage, "why", "the message")
      try expectEqual(try await bench.store.history().incarnations, [incarnation], "the incarnations")
      try await bench.store.setRecoveryRequired(nil, message: "")
      state = try await bench.store.status().state
      try expect(state.recoveryRequired == nil, "it must be taken back")
      try expectEqual(state.incarnation, incarnation.id, "the newest incarnation")
      let later = Incarnation(id: IncarnationID(from: SystemRandom()), firstCommit: 7)
      try await bench.store.remember(server: server, incarnations: [incarnation, later], principal: "anna")
      try await bench.restart()
      try expectEqual(try await bench.store.history().incarnations, [incarnation, later], "the incarnations")
      try expectEqual(try await bench.store.status().state.incarnation, later.id, "the newest incarnation")
    },
    on(ContractSchemas.notes(), "a database belongs to one principal", rule: "semantics 1") { bench in
      let store = bench.store
      try await expectError(.remoteOfAnother, "a server that takes the device for another's") {
        try await store.remember(server: ServerID(from: SystemRandom()), incarnations: [], principal: "bert")
      }
      try expect(try await store.status().state.serverID == nil, "nothing of it is remembered")
      await store.close()
      let other = try await bench.database(), schema = bench.schema
      try await expectError(.remoteOfAnother, "opening as another") {
        _ = try await other.open(ClientSetup(schema: schema, principal: "bert"))
      }
      await other.close()
      try await bench.restart()
    },
    on(
      ContractSchemas.notes(), "a database without a principal takes the one that the server names", rule: "ClientSetup"
    ) {
      bench in
      await bench.close()
      let other = try await bench.fresh()
      _ = try await other.open(ClientSetup(schema: bench.schema, principal: ""))
      let server = ServerID(from: SystemRandom())
      try await other.remember(server: server, incarnations: [], principal: "bert")
      try await other.remember(server: server, incarnations: [], principal: "bert")
      try expectEqual(try await other.status().state.principal, "bert", "the principal")
      try await expectError(.remoteOfAnother, "another principal than before") {
        try await other.remember(server: server, incarnations: [], principal: "carl")
      }
      let third = try await bench.fresh()
      _ = try await third.open(ClientSetup(schema: bench.schema, principal: "jos\u{e9}"))
      try await expectError(.remoteOfAnother, "a name of the same look in other bytes") {
        try await third.remember(server: server, incarnations: [], principal: "jose\u{301}")
      }
      await third.close()
      await other.close()
    },
  ]

  static let capture: [Case] = [
    on(
      ContractSchemas.notes(), "insert, update and delete are captured with the changed columns and their old values",
      rule: "semantics 3"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"]), ("note", ["n2", "b", .null])])
      try await bench.write(
        .insert("note", ["id": "n3", "title": "c"]), .update("note", ["n1"], ["title": "A"]), .delete("note", ["n2"]))
      try await bench.expectRows("note", [["n1", "A", "x"], ["n3", "c", .null]])
      let queue = try await bench.queued()
      try expectEqual(queue.map(\.operation), [.insert, .update, .delete], "the operations")
      try expectEqual(queue[1].before, [NamedValue("title", "a")], "the update's old values")
      try expectEqual(queue[1].after, [NamedValue("title", "A")], "the update's new values")
      try expectEqual(queue.map(\.key), [["n3"], ["n1"], ["n2"]], "the keys")
      try expectChanges(
        try await bench.upload(),
        [
          #"insert note ["id", "title", "body"] [n3, c, null]"#, #"update note ["title"] [n1, a, A]"#,
          "delete note [n2]",
        ])
    },
    on(ContractSchemas.notes(), "updates that change nothing capture nothing", rule: "semantics 3") { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"])])
      try await bench.write(
        .update("note", ["n1"], ["title": "a", "body": "x"]), .update("note", ["n9"], ["title": "z"]),
        .delete("note", ["n9"]))
      try expectEqual(try await bench.store.status().queued, 0, "the queue")
    },
    on(ContractSchemas.odd, "changed means another storage class or other bytes", rule: "semantics 3") { bench in
      let table = bench.schema.tables[0]
      try await bench.download(full: [table.name], rows: ContractSchemas.hardRows.map { (table.name, $0) })
      try expectEqual(
        Set(try await bench.store.rows(of: table.name)), Set(ContractSchemas.hardRows), "the rows downloaded")
      try await bench.write(
        .update(table.name, ["é", -1], ["select": "é"]), .update(table.name, ["é", -1], ["ganz": 0]),
        .update(table.name, ["", 0], ["x'y": .blob([])]))
      let changes = try await bench.upload()
      try expectEqual(changes.map(\.columns), [["select"], ["x'y"]], "the changed columns")
      try expectEqual(changes[0].values, ["é", -1, "e\u{301}", "é"], "key, old and new value")
    },
    on(ContractSchemas.odd, "captured values keep their storage class and bytes", rule: "Value.swift") { bench in
      let table = bench.schema.tables[0]
      for row in ContractSchemas.hardRows {
        let values = zip(table.columns, row).map { NamedValue($0.name, $1) }
        try await bench.store.write([.insert(table: table.name, values: values)])
      }
      let changes = try await bench.upload()
      try expectEqual(changes.map(\.values), ContractSchemas.hardRows, "the rows sent")
    },
    on(ContractSchemas.inspections, "a cascade is one request, the children with their parent", rule: "semantics 3") {
      bench in
      try await inspection(&bench)
      try await bench.write(.delete("establishment", ["e1"]))
      for table in ["establishment", "inspection", "infraction"] { try await bench.expectRows(table, []) }
      let changes = try await bench.upload()
      try expectEqual(
        Set(changes.map(\.summary)),
        ["delete establishment [e1]", "delete inspection [i1]", "delete infraction [i1, 1]"],
        "the changes")
      try expectEqual(Set(changes.map(\.request)).count, 1, "the number of requests")
    },
    on(ContractSchemas.tree, "SET NULL of a cascade is captured", rule: "semantics 3") { bench in
      try await bench.download(
        full: ["node", "leaf"],
        rows: [("node", ["a", .null, .null]), ("node", ["b", "a", .null]), ("leaf", ["l", "b", .null])])
      try await bench.write(.delete("node", ["a"]))
      try await bench.expectRows("leaf", [["l", .null, .null]])
      let changes = try await bench.upload()
      try expectEqual(
        Set(changes.map(\.summary)),
        ["delete node [a]", "delete node [b]", #"update leaf ["node"] [l, b, null]"#], "the changes")
      try expectEqual(Set(changes.map(\.request)).count, 1, "the number of requests")
    },
    on(ContractSchemas.notes(), "a key change is a delete and an insert, as one request", rule: "semantics 3") {
      bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"])])
      try await bench.write(.update("note", ["n1"], ["id": "n2"]))
      let changes = try await bench.upload()
      try expectChanges(
        changes, ["delete note [n1]", #"insert note ["id", "title", "body"] [n2, a, x]"#])
      try expectEqual(Set(changes.map(\.request)).count, 1, "the number of requests")
    },
    on(
      ContractSchemas.circles, "deferred references are proved at the end of the application's transaction",
      rule: "semantics 3, ClientStore.swift, ApplicationWrite"
    ) { bench in
      let child = ApplicationWrite.insert("node", ["id": "n1", "above": "n2"])
      try await expectError(nil, "a child before its parent") {
        try await bench.store.write([child, .insert("node", ["id": "n2"])])
      }
      try await expectError(nil, "a child without its parent") {
        try await bench.store.write([.deferReferences, .insert("node", ["id": "n3"]), child])
      }
      try expectEqual(try await bench.store.rows(of: "node"), [], "the rows of what failed")
      try await bench.write(.deferReferences, child, .update("node", ["n1"], ["id": "n2"]))
      try expectEqual(try await bench.store.rows(of: "node"), [["n2", "n2", .null]], "the rows")
      try expectEqual(Set(try await bench.upload().map(\.request)).count, 2, "the number of requests")
    },
    on(
      ContractSchemas.notes(), "a group is one request with its tag; a second begin closes the first",
      rule: "semantics 3"
    ) {
      bench in
      try await bench.write(
        .beginRequest(tag: "visit 17"), .insert("note", ["id": "n1", "title": "a"]),
        .insert("note", ["id": "n2", "title": "a"]), .beginRequest(tag: nil),
        .insert("note", ["id": "n3", "title": "a"]),
        .insert("note", ["id": "n4", "title": "a"]), .endRequest, .insert("note", ["id": "n5", "title": "a"]))
      let queue = try await bench.queued()
      try expectEqual(queue.map(\.tag), ["visit 17", "visit 17", nil, nil, nil], "the tags in the queue")
      let changes = try await bench.upload()
      try expectEqual(changes.map(\.tag), ["visit 17", "visit 17", nil, nil, nil], "the tags sent")
      let ids = changes.map(\.request)
      try expect(ids[0] == ids[1] && ids[2] == ids[3], "a group must be one request")
      try expectEqual(Set(ids).count, 3, "the number of requests")
    },
    on(
      ContractSchemas.notes(), "a group left open is closed by the next sync, split, and reported", rule: "semantics 3"
    ) {
      bench in
      try await bench.write(
        .beginRequest(tag: "t"), .insert("note", ["id": "n1", "title": "a"]),
        .insert("note", ["id": "n2", "title": "a"]))
      let begun = try await bench.begin()
      try expectEqual(begun.session.notices.count, 1, "the notices")
      try expectEqual(Set(begun.changes.map(\.request)).count, 2, "the number of requests")
    },
    on(ContractSchemas.groups, "client-only tables are not captured", rule: "semantics 1") { bench in
      try await bench.write(.insert("draft", ["id": "d"]), .insert("a", ["id": "a1"]), .delete("draft", ["d"]))
      try expectEqual(try await bench.queued().map(\.table), ["a"], "the queue")
    },
    on(
      ContractSchemas.seats, "a write that breaks a constraint changes and captures nothing",
      rule: "ClientStore.swift, write"
    ) {
      bench in
      try await bench.write(.insert("seat", ["id": 1, "place": 7]))
      let store = bench.store
      let broken: [ApplicationWrite] = [
        .insert("seat", ["id": 2, "place": 7]), .insert("seat", ["id": 1, "place": 8]),
        .update("seat", [1], ["seats": 100]), .update("seat", [1], ["seats": .null]),
      ]
      for write in broken {
        try await expectError(nil, "a write that breaks a constraint") {
          try await store.write([.insert("seat", ["id": 9, "place": 9]), write])
        }
      }
      try await bench.expectRows("seat", [[1, 7, 1]])
      try expectEqual(try await bench.store.status().queued, 1, "the queue")
    },
    on(ContractSchemas.wide, "only the changed one of 200 columns is sent", rule: "semantics 3") { bench in
      let table = bench.schema.tables[0]
      let row: Row = table.columns.enumerated().map { $0.offset == 0 ? 1 : .text("v\($0.offset)") }
      try await bench.download(full: ["wide"], rows: [("wide", row)])
      try await bench.write(
        .update("wide", [1], ["column_198": "last", "column_62": "x"]), .update("wide", [1], ["column_0": .null]))
      let changes = try await bench.upload()
      try expectEqual(changes.flatMap(\.columns), ["column_62", "column_198", "column_0"], "the columns")
      try expectEqual(changes[0].values, [1, "v63", "x", "v199", "last"], "key, old and new values")
    },
  ]

  /// A whole inspection, downloaded.
  static func inspection(_ bench: inout ClientBench) async throws {
    try await bench.download(
      full: ["severity", "establishment", "inspection", "infraction"],
      rows: [
        ("severity", [1, "low"]), ("establishment", ["e1", "e", .null]), ("inspection", ["i1", "e1", "d", .null]),
        ("infraction", ["i1", 1, 1, .null]),
      ])
  }
}
