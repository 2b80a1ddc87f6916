import SalvorModel
import SalvorStorage

/// A schema that leads on from an earlier version of itself: declared renames and drops carry requests along, and what the
/// server does not know yet waits (semantics 6 and 11.3).
extension ClientStoreContract {
  static let evolving: [Case] = [
    on(
      ContractSchemas.notes(), "a renamed table and column carry rows, queue and archive along",
      rule: "decision 12, renamedFrom"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n3", "x", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]), .insert("note", ["id": "n2", "title": "b"]))
      try await bench.upload { $0.operation == .update ? .constraint : nil }
      try await bench.write(.update("note", ["n2"], ["title": "later", "body": "text"]), .delete("note", ["n3"]))
      try await bench.store.adopt(SyncConfig(ContractSchemas.memos))
      bench.adopt(ContractSchemas.memos)
      try await bench.expectRows("memo", [["n1", "mine", .null], ["n2", "later", "text"]])
      try await bench.expectArchive(["refused constraint update memo [n1] [heading=a] > [heading=mine]"])
      try await bench.restart()
      try await bench.expectArchive(["refused constraint update memo [n1] [heading=a] > [heading=mine]"])
      _ = try await bench.store.retry(nil)
      try expectEqual(
        Set(try await bench.upload().map(\.summary)),
        [
          #"update memo ["heading"] [n1, a, mine]"#, #"update memo ["heading", "body"] [n2, b, later, null, text]"#,
          "delete memo [n3]",
        ], "the changes sent")
      try await bench.download(rows: [("memo", ["n1", "theirs", .null])])
      try await bench.expectRows("memo", [["n1", "theirs", .null], ["n2", "later", "text"]])
    },
    on(
      ContractSchemas.notes(),
      "two renames in a row are followed at once, and what is captured afterwards has the new names",
      rule: "decision 12, renamedFrom"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      var schema = ContractSchemas.memos
      schema.version = 3
      schema.tables[0].name = "card"
      schema.tables[0].renamedFrom = ["note", "memo"]
      schema.tables[0].columns[1].name = "caption"
      schema.tables[0].columns[1].renamedFrom = ["title", "heading"]
      try await bench.store.adopt(SyncConfig(schema))
      try await bench.write(.update("card", ["n1"], ["caption": "b"]))
      try expectChanges(
        try await bench.upload(),
        [#"insert card ["id", "caption", "body"] [n1, a, null]"#, #"update card ["caption"] [n1, a, b]"#])
    },
    on(
      ContractSchemas.notes(), "an upload of unknown outcome is the same after a rename, under the new names",
      rule: "semantics 5"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]), .update("note", ["n1"], ["title": "b"]))
      let sent = try await bench.begin()
      try await bench.store.adopt(SyncConfig(ContractSchemas.memos))
      bench.adopt(ContractSchemas.memos)
      try await bench.restart()
      let again = try await bench.begin()
      try expectEqual(again.session.upload?.sequence, sent.session.upload?.sequence, "the sequence ID")
      try expectEqual(again.session.upload?.isResend, true, "that it is sent again")
      try expectEqual(again.changes.map(\.id), sent.changes.map(\.id), "the request IDs")
      try expectEqual(again.changes.map(\.values), sent.changes.map(\.values), "the values")
      try expectEqual(Set(again.changes.map(\.table)), ["memo"], "the table")
      try await bench.settle(again)
      try await bench.expectRows("memo", [["n1", "b", .null]])
    },
    on(
      ContractSchemas.notes(),
      "a dropped column: its waiting values are kept in the archive, the rest of the requests stays",
      rule: "decision 12, dropped"
    ) { bench in
      try await bench.download(
        full: ["note"], rows: ["n1", "n2", "n4"].map { ("note", [.text($0), "a", "text"]) })
      try await bench.write(
        .update("note", ["n1"], ["title": "b", "body": "one"]), .update("note", ["n2"], ["body": "two"]),
        .insert("note", ["id": "n3", "title": "c", "body": "three"]))
      try await bench.write(
        .beginRequest(tag: "both"), .update("note", ["n4"], ["body": "four"]),
        .update("note", ["n4"], ["title": "d"]), .endRequest)
      try await bench.store.adopt(SyncConfig(ContractSchemas.shortNotes))
      bench.adopt(ContractSchemas.shortNotes)
      let rows: [Row] = [["n1", "b"], ["n2", "a"], ["n3", "c"], ["n4", "d"]]
      try await bench.expectRows("note", rows)
      let archive = [
        "kept schema-dropped update note [n1] [body=text] > [body=one]",
        "kept schema-dropped update note [n2] [body=text] > [body=two]",
        "kept schema-dropped update note [n3] [body=null] > [body=three]",
        "kept schema-dropped update note [n4] [body=text] > [body=four]",
      ]
      try await bench.expectArchive(archive)
      try await bench.restart()
      try await bench.expectArchive(archive)
      let sent = try await bench.upload()
      try expectChanges(
        sent,
        [
          #"update note ["title"] [n1, a, b]"#, #"insert note ["id", "title"] [n3, c]"#,
          #"update note ["title"] [n4, a, d]"#,
        ])
      try expectEqual(sent.last?.tag, "both", "the tag of the request that lost a change")
      // A server that has settled them with the column knows them by what they were.
      func content(_ changes: (String, SalvorModel.Operation, [UploadedColumn])...) -> UInt32 {
        RequestContent(
          changes.map { id, operation, columns in
            UploadedChange(
              counter: 1, made: 0, table: "note", key: [.text(id)], operation: operation, columns: columns
            ).content(ContractSchemas.notes().tables[0])
          }
        ).bits
      }
      func column(_ name: String, _ value: String) -> UploadedColumn { UploadedColumn(name, new: .text(value)) }
      try expectEqual(
        sent.flatMap(\.former).map(\.content),
        [
          content(("n1", .update, [column("title", "b"), column("body", "one")])),
          content(("n3", .insert, [column("id", "n3"), column("title", "c"), column("body", "three")])),
          content(("n4", .update, [column("body", "four")]), ("n4", .update, [column("title", "d")])),
        ], "what the requests were")
      try expectEqual(
        sent.map { $0.former.first?.first }, [sent[0].counter, sent[1].counter, sent[2].counter - 1],
        "the first counters that they had")
      try await bench.expectRows("note", rows)
    },
    on(
      ContractSchemas.notes(),
      "a new column with a default in a table that moves to a new group: nobody wrote here, and nothing is sent",
      rule: "semantics 3 and 11.2"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(.update("note", ["n2"], ["title": "mine"]))
      var schema = ContractSchemas.notes()
      schema.version = 2
      schema.groups.append(Schema.Group(name: "two"))
      schema.tables[0].group = "two"
      schema.tables[0].columns.append(Column("size", .integer, defaultValue: 5))
      try await bench.store.adopt(SyncConfig(schema))
      bench.adopt(schema)
      try expectEqual(try await bench.status().queued, 1, "the queue")
      try expectChanges(try await bench.upload(), [#"update note ["title"] [n2, b, mine]"#])
      // They come whole with their new group; one that was deleted meanwhile is not made again.
      try await bench.download(full: ["note"], rows: [("note", ["n2", "mine", .null, 5])])
      try await bench.expectRows("note", [["n2", "mine", .null, 5]])
      try expectEqual(try await bench.status().queued, 0, "the queue")
    },
    on(
      ContractSchemas.shelves, "a dropped table: its waiting changes are kept in the archive, and other tables go on",
      rule: "decision 12, dropped"
    ) { bench in
      try await bench.download(
        full: ["shelf", "book"], rows: [("shelf", ["s1", "left"]), ("book", ["b1", "a", "s1"])])
      try await bench.write(
        .update("shelf", ["s1"], ["place": "right"]), .insert("shelf", ["id": "s2", "place": "top"]),
        .insert("book", ["id": "b2", "name": "b", "shelf_id": "s2"]))
      try await bench.store.adopt(SyncConfig(ContractSchemas.books))
      bench.adopt(ContractSchemas.books)
      try await bench.expectRows("book", [["b1", "a", "s1"], ["b2", "b", "s2"]])
      let archive = [
        "kept schema-dropped update shelf [s1] [place=left] > [place=right]",
        "kept schema-dropped insert shelf [s2] [] > [id=s2, place=top]",
      ]
      try await bench.expectArchive(archive)
      try await bench.restart()
      try await bench.expectArchive(archive)
      try await bench.write(.insert("book", ["id": "b3", "name": "c", "shelf_id": "nowhere"]))
      try expectEqual(try await bench.upload().map(\.table), ["book", "book"], "the changes sent")
    },
    on(
      ContractSchemas.notes(), "a kept value of a dropped column is reapplied once the column is back, and not before",
      rule: "RequestRemoval.swift, reapply"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "text"])])
      try await bench.write(.update("note", ["n1"], ["body": "one"]))
      try await bench.store.adopt(SyncConfig(ContractSchemas.shortNotes))
      let kept = try expectSome(try await bench.archived().first, "the kept entry").id
      let store = bench.store
      let error = try await expectError(.cannotStand, "without the column") { _ = try await store.reapply(kept) }
      try expect(error.message.contains("no column body"), "the column is named")
      var again = ContractSchemas.notes()
      again.version = 3
      try await bench.store.adopt(SyncConfig(again))
      bench.adopt(again)
      let made = try expectSome(try await store.reapply(kept), "the new request")
      try await bench.expectRows("note", [["n1", "a", "one"]])
      try expectEqual(try await bench.queued().map(\.id), [made], "the queue")
      try expectEqual(try await bench.queued().map(\.history), [[kept]], "what it was made from")
      try expectEqual(try await bench.status().kept, 0, "the kept entries")
      try expectChanges(try await bench.upload(), [#"update note ["body"] [n1, null, one]"#])
    },
    on(
      ContractSchemas.shelves,
      "a kept change of a dropped table is reapplied as far as its columns are there, and the rest stays",
      rule: "RequestRemoval.swift, reapply"
    ) { bench in
      try await bench.write(.insert("shelf", ["id": "s1", "place": "right"]))
      try await bench.store.adopt(SyncConfig(ContractSchemas.books))
      let kept = try expectSome(try await bench.archived().first, "the kept entry").id
      let store = bench.store
      let error = try await expectError(.cannotStand, "without the table") { _ = try await store.reapply(kept) }
      try expect(error.message.contains("no such table"), "that the table is missing is said")
      var again = ContractSchemas.shelves
      again.version = 3
      again.tables[0].columns[1] = Column("room", .text, nullable: true)
      again.tables[1].references = []
      try await bench.store.adopt(SyncConfig(again))
      bench.adopt(again)
      _ = try expectSome(try await store.reapply(kept), "the new request")
      try await bench.expectRows("shelf", [["s1", .null]])
      try await bench.expectArchive(["kept schema-dropped update shelf [s1] [place=null] > [place=right]"])
      try await expectError(.cannotStand, "what is left of it") { _ = try await store.reapply(kept) }
      try expectChanges(try await bench.upload(), [#"insert shelf ["id", "room"] [s1, null]"#])
    },
    on(
      ContractSchemas.notes(),
      "what only the device's later schema has waits until the server knows it, and goes up then",
      rule: "semantics 11.3"
    ) { bench in
      let config = SyncConfig(bench.schema)
      try await bench.store.adopt(config)
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      let served = bench.schema
      try await bench.restart(ContractSchemas.laterNotes)
      try expectEqual(bench.opening.addedColumns, ["note.stars"], "the columns added")
      try expectEqual(bench.opening.createdTables, ["extra"], "the tables made")
      try expectEqual(try await bench.store.status().state.configDigest, config.digest, "the digest is the server's")
      try await bench.write(
        .insert("note", ["id": "n2", "title": "b"]), .insert("note", ["id": "n3", "title": "c", "stars": 5]),
        .update("note", ["n3"], ["title": "d"]), .update("note", ["n1"], ["stars": 4]),
        .insert("extra", ["id": "e1", "note_id": "n2"]))
      try expectChanges(try await bench.upload(), [#"insert note ["id", "title", "body"] [n2, b, null]"#])
      try expectEqual(try await bench.queued().count, 4, "the changes that wait")
      bench.adopt(served)
      try await bench.download(rows: [("note", ["n1", "theirs", "x"])])
      let rows: [Row] = [["n1", "theirs", "x", 4], ["n2", "b", .null, 0], ["n3", "d", .null, 5]]
      try await bench.expectRows("note", rows)
      try expectChanges(try await bench.upload(), [])
      try await bench.restart(ContractSchemas.laterNotes)
      try await bench.store.adopt(SyncConfig(ContractSchemas.laterNotes))
      try await bench.expectRows("note", rows)
      try expectChanges(
        try await bench.upload(),
        [
          #"insert note ["id", "title", "body", "stars"] [n3, c, null, 5]"#, #"update note ["title"] [n3, c, d]"#,
          #"update note ["stars"] [n1, 0, 4]"#, #"insert extra ["id", "note_id"] [e1, n2]"#,
        ])
    },
    on(
      ContractSchemas.laterNotes,
      "an upload that a server of an earlier schema has not taken goes without what it does not know",
      rule: "semantics 11.3"
    ) { bench in
      try await bench.write(
        .insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "b", "stars": 2]))
      let drawn = try await bench.begin()
      try expectEqual(drawn.changes.count, 2, "the changes drawn")
      try await bench.store.adopt(SyncConfig(ContractSchemas.notes()))
      let again = try await bench.begin()
      try expectEqual(again.session.upload?.sequence, drawn.session.upload?.sequence, "the sequence ID")
      try expectChanges(again.changes, [#"insert note ["id", "title", "body"] [n1, a, null]"#])
      try await bench.settle(again)
      try await bench.expectRows("note", [["n1", "a", .null, 0], ["n2", "b", .null, 2]])
      try expectEqual(try await bench.queued().map(\.key), [["n2"]], "what waits")
    },
    on(
      ContractSchemas.laterNotes, "an upload of which the server knows nothing is taken back",
      rule: "semantics 11.3"
    ) { bench in
      try await bench.write(.insert("extra", ["id": "e1"]))
      let drawn = try await bench.begin()
      try expect(drawn.session.upload != nil, "the upload is drawn")
      try await bench.store.adopt(SyncConfig(ContractSchemas.notes()))
      let again = try await bench.begin()
      try expect(again.session.upload == nil && again.session.state.current == nil, "nothing is under way")
      try await bench.restart()
      try expectEqual(
        try await bench.queued().map { "\($0.state.rawValue) \($0.table)" }, ["queued extra"], "what waits")
      try expect(try await !bench.store.status().state.isOlderThanIdentityFile, "the identity file is in step")
    },
    on(
      ContractSchemas.notes(), "what a later file renames comes with the server's schema, once a server was met",
      rule: "decision 187"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.store.remember(
        server: ClientBench.server, incarnations: [], principal: "anna")
      try await bench.write(.update("note", ["n1"], ["title": "b"]))
      try await bench.restart(ContractSchemas.memos)
      try await bench.expectRows("note", [["n1", "b", .null]])
      try expectChanges(try await bench.upload(), [#"update note ["title"] [n1, a, b]"#])
      try await bench.store.adopt(SyncConfig(ContractSchemas.memos))
      try await bench.expectRows("memo", [["n1", "b", .null]])
    },
    on(
      ContractSchemas.notes(),
      "flag columns that a later file of the device names are its own, whatever the server knows",
      rule: "semantics 3, decision 187"
    ) { bench in
      try await bench.store.adopt(SyncConfig(bench.schema))
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      let served = bench.schema
      var later = bench.schema
      later.version = 2
      later.tables[0].columns += [
        Column("IsDirty", .boolean, defaultValue: 0), Column("IsDeleted", .boolean, defaultValue: 0),
      ]
      later.tables[0].flags = FlagColumns(dirty: "IsDirty", deleted: "IsDeleted")
      try await bench.restart(later)
      try await bench.write(.update("note", ["n1"], ["IsDeleted": 1]), .update("note", ["n2"], ["title": "c"]))
      try await bench.expectRows("note", [["n1", "a", .null, 1, 1], ["n2", "c", .null, 1, 0]])
      try expectEqual(
        try await bench.queued().map { "\($0.operation.rawValue) \($0.key)" }, ["delete [n1]", "update [n2]"],
        "what waits")
      try await bench.store.adopt(SyncConfig(served))
      try await bench.expectRows("note", [["n1", "a", .null, 1, 1], ["n2", "c", .null, 1, 0]])
    },
  ]
}
