import SalvorModel
import SalvorStorage

/// A server's database follows the declared rules of its schema (semantics 6).
extension ServerStoreContract {
  static let evolving: [Case] = [
    on(
      ContractSchemas.notes(), "a renamed table and column keep rows and history: devices get what changed, no more",
      rule: "decision 12, renamedFrom"
    ) { bench in
      try await bench.write(
        .insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "b"]),
        .insert("note", ["id": "n3", "title": "c"]))
      let anna = try await bench.device()
      try await bench.evolve(to: ContractSchemas.memos)
      try expectEqual(bench.opening.createdTables, [], "the tables made")
      try expectEqual(bench.opening.addedColumns, [], "the columns added")
      try await bench.expectRows("memo", [["n1", "a", .null], ["n2", "b", .null], ["n3", "c", .null]])
      var later = bench.following(anna)
      try await later.download()
      try later.expectNothingFed()
      try await bench.write(.update("memo", ["n1"], ["heading": "d"]), .delete("memo", ["n2"]))
      later = bench.following(anna)
      try await later.download()
      try later.expectReplica("memo", [["n1", "d", .null]])
      try expectEqual(later.items.count, 2, "what is fed: the row and the delete")
      try expectAccepted(try await later.upload(.update("memo", ["n3"], [("heading", "c", "e")])), 1)
      try await bench.evolve(to: ContractSchemas.memos)
      try await bench.expectRows("memo", [["n1", "d", .null], ["n3", "e", .null]])
    },
    on(
      ContractSchemas.notes(), "a request that was settled before a rename is not applied again after it",
      rule: "semantics 11.1"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      var anna = try await bench.device()
      let stamp = anna.stamp
      try expectAccepted(try await anna.upload(.update("note", ["n1"], [("title", "a", "b")])), 1)
      try await bench.write(.update("note", ["n1"], ["title": "c"]))
      try await bench.evolve(to: ContractSchemas.memos)
      var later = bench.following(anna)
      later.stamp = stamp
      later.counter = 0
      try expectAccepted(try await later.upload(.update("memo", ["n1"], [("heading", "a", "b")]), made: 0), 1)
      try await bench.expectRows("memo", [["n1", "c", .null]])
    },
    on(
      ContractSchemas.notes(),
      "an insert that was settled is not applied again with the columns that its table got since",
      rule: "semantics 11.1"
    ) { bench in
      var anna = try await bench.device()
      let stamp = anna.stamp
      try expectAccepted(try await anna.upload(.insert("note", ["id": "n1", "title": "a", "body": .null])), 1)
      try await bench.write(.delete("note", ["n1"]))
      var wider = ContractSchemas.notes()
      wider.tables[0].columns += [
        Column("colour", .text, nullable: true), Column("stars", .integer, defaultValue: 3),
      ]
      try await bench.evolve(to: wider)
      var later = bench.following(anna)
      later.stamp = stamp
      later.counter = 0
      let sent = Sent.insert("note", ["id": "n1", "title": "a", "body": .null, "colour": .null, "stars": 3])
      try expectAccepted(try await later.upload(sent), 1)
      try await bench.expectRows("note", [])
      // With a value of its own it is another request of that ID.
      later.stamp = stamp
      later.counter = 0
      try expectAccepted(
        try await later.upload(
          .insert("note", ["id": "n1", "title": "a", "body": .null, "colour": "red", "stars": 3])), 1)
      try await bench.expectRows("note", [["n1", "a", .null, "red", 3]])
    },
    on(
      ContractSchemas.notes(conflicts: ContractPolicies.keepVersions),
      "conflict versions are resolved under the new names",
      rule: "decision 12, renamedFrom"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      var anna = try await bench.device()
      try await bench.write(.update("note", ["n1"], ["title": "theirs"]))
      _ = try await anna.upload(.update("note", ["n1"], [("title", "a", "mine")]))
      try await bench.evolve(to: ContractSchemas.memos.settled(by: ContractPolicies.keepVersions))
      let kept = try await bench.store.conflicts(after: 0, limit: 10, state: .open)
      try expectEqual(kept.map(\.table), ["memo"], "the table of the version")
      let id = try expectSome(kept.first, "a conflict version").id
      _ = try await bench.store.resolveConflict(id, keep: .client, by: "ann")
      try await bench.expectRows("memo", [["n1", "mine", .null]])
    },
    on(
      ContractSchemas.notes(), "settled conflicts are listed under the new names", rule: "decision 12, renamedFrom"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      var anna = try await bench.device()
      try await bench.write(.update("note", ["n1"], ["title": "theirs"]))
      _ = try await anna.upload(.update("note", ["n1"], [("title", "a", "mine")]))
      try await bench.evolve(to: ContractSchemas.memos)
      let settled = try expectSome(
        try await bench.store.conflicts(after: 0, limit: 10, state: .settled).first, "a settled conflict")
      try expectEqual(settled.table, "memo", "the table")
      try expectEqual(settled.lostOfServer, [NamedValue("heading", "theirs")], "what lost")
    },
    on(
      ContractSchemas.notes(), "a dropped column is synchronized no more, and new rows need no value for it",
      rule: "decision 12, dropped"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a", "body": "x"]))
      let anna = try await bench.device()
      var schema = ContractSchemas.notes()
      schema.version = 2
      // One that every row has a value for, and one that may be left out.
      schema.tables[0].columns.removeLast(2)
      schema.tables[0].dropped = ["title", "body"]
      try await bench.evolve(to: schema)
      try await bench.expectRows("note", [["n1"]])
      try await bench.write(.insert("note", ["id": "n2"]))
      var later = bench.following(anna)
      try await later.download()
      try later.expectReplica("note", [["n2"]])
      try expectAccepted(try await later.upload(.insert("note", ["id": "n3"])), 1)
      try await bench.evolve(to: schema)
      try await bench.expectRows("note", [["n1"], ["n2"], ["n3"]])
    },
    on(
      ContractSchemas.shelves, "a dropped table is synchronized no more; its group goes on",
      rule: "decision 12, dropped"
    ) { bench in
      try await bench.write(
        .insert("shelf", ["id": "s1", "place": "left"]), .insert("book", ["id": "b1", "name": "a", "shelf_id": "s1"]))
      let anna = try await bench.device()
      try await bench.write(.update("shelf", ["s1"], ["place": "right"]))
      _ = try await bench.store.sweep()
      try await bench.evolve(to: ContractSchemas.books)
      try await bench.write(.update("book", ["b1"], ["name": "b"]))
      var later = bench.following(anna)
      try await later.download()
      try later.expectReplica("book", [["b1", "b", "s1"]])
      let results = try await later.upload(.insert("shelf", ["id": "s2", "place": "top"]))
      try expectEqual(results.refused.map(\.reason), [.unknownTable], "why it is refused")
    },
    on(
      ContractSchemas.notes(), "without a declared rule a dropped table or column is refused by name",
      rule: "semantics 6"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      await bench.close()
      for (schema, name) in [
        (Schema(version: 2, tables: [ContractSchemas.laterNotes.tables[1]]), "note"),
        (
          {
            var less = ContractSchemas.shortNotes; less.tables[0].dropped = []; return less
          }(), "body"
        ),
      ] {
        let store = try await bench.database(), setup = ContractPolicies.setup(schema)
        let error = try await expectError(.schemaRefused, "opening without \(name)") { _ = try await store.open(setup) }
        try expect(error.message.contains(name), "\(name) must be named")
        await store.close()
      }
      try await bench.restart()
      try await bench.expectRows("note", [["n1", "a", .null]])
    },
    on(
      ContractSchemas.notes(), "a download that began before the schema changed is begun anew",
      rule: "docs/architecture/feed.md"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "b"]))
      let anna = try await bench.device(download: false)
      let first = try await bench.store.page(
        PageRequest(
          remote: anna.remote, principal: anna.principal, groups: anna.groups, position: nil, bytesTarget: 1))
      let position = try expectSome(first.position, "a position")
      try await bench.evolve(to: ContractSchemas.memos)
      let store = bench.store, remote = anna.remote, principal = anna.principal, groups = anna.groups
      _ = try await expectError(.inconsistentDownload, "going on") {
        _ = try await store.page(
          PageRequest(remote: remote, principal: principal, groups: groups, position: position, bytesTarget: 1))
      }
      var later = bench.following(anna)
      try await later.download()
      try later.expectReplica("memo", [["n1", "a", .null], ["n2", "b", .null]])
    },
  ]
}
