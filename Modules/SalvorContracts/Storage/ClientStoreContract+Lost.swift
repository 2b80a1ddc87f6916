import SalvorModel
import SalvorStorage

/// Lost is not deleted (semantics 6 and 9): what the server acknowledged and lost.
extension ClientStoreContract {
  static let losing: [Case] = [
    recovering(
      ContractSchemas.notes(), "recovery: what the server lost is kept with its values, and counts as no error",
      rule: "semantics 9; 6, Lost is not deleted"
    ) { bench in
      try await bench.download(
        full: ["note"],
        rows: [("note", ["n1", "a", "x"]), ("note", ["n2", "b", "y"]), ("note", ["n3", "c", .null])])
      try await bench.download(
        rows: [("note", ["n1", "later", "x"]), ("note", ["n4", "new", .null])], departed: [("note", .deleted, ["n2"])])
      let report = try await bench.recover(
        Recovered(
          shared: 1, rows: [("note", ["n1", "a", "x"]), ("note", ["n2", "b", "y"])],
          departed: [("note", .lost, ["n4"])]))
      try await bench.expectRows("note", [["n1", "a", "x"], ["n2", "b", "y"], ["n3", "c", .null]])
      try await bench.expectArchive([
        "kept lost-on-server update note [n1] [title=a] > [title=later]",
        "kept lost-on-server delete note [n2] [id=n2, title=b, body=y] > []",
        "kept lost-on-server insert note [n4] [] > [id=n4, title=new, body=null]",
      ])
      let status = try await bench.store.status()
      try expectEqual(
        [status.queued, status.inError, status.displaced, status.kept], [0, 0, 0, 3],
        "queued, in error, displaced, kept")
      try expectEqual(report.counts.lost, 3, "the rows lost")
      try expectEqual([report.counts.upserts, report.counts.deletes], [2, 1], "the rows written and removed")
      try await bench.expectItems(["lost update note [n1]", "lost delete note [n2]", "lost insert note [n4]"])
      let ids = try await bench.archived().map(\.id)
      try expectEqual(Set(ids).count, 3, "the entries' IDs")
      try expectEqual(try await bench.begin().changes, [], "what is sent")
      await bench.store.endSession()
      try await bench.restart()
      try expectEqual(Set(try await bench.archived().map(\.id)), Set(ids), "the entries after a restart")
      // No ID is given twice.
      try await bench.write(.insert("note", ["id": "n5", "title": "e"]))
      try expect(!ids.contains(try await bench.queued()[0].id), "an ID was given again")
    },
    recovering(
      ContractSchemas.notes(), "recovery: a lost row that a change makes again counts as lost, and not as removed",
      rule: "semantics 9, Report"
    ) { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.download(rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      let report = try await bench.recover(
        Recovered(shared: 1, departed: [("note", .lost, ["n1"]), ("note", .lost, ["n2"])]))
      try await bench.expectRows("note", [["n1", "mine", .null]])
      let counts = report.counts
      try expectEqual(
        [counts.merged, counts.upserts, counts.deletes, counts.lost], [1, 0, 1, 2], "merged, upserts, deletes, lost")
    },
    recovering(
      ContractSchemas.notes(), "recovery: what this device wrote at a lost commit is lost, too", rule: "semantics 9"
    ) { bench in
      try await bench.download(
        full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(
        .insert("note", ["id": "n3", "title": "mine"]), .update("note", ["n1"], ["title": "mine"]),
        .update("note", ["n2"], ["title": "mine"]), .delete("note", ["n2"]))
      try await bench.commitUpload()
      try await bench.recover(
        Recovered(
          shared: 1, rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])],
          departed: [("note", .lost, ["n3"])]))
      try await bench.expectRows("note", [["n1", "a", .null], ["n2", "b", .null]])
      try await bench.expectArchive([
        "kept lost-on-server update note [n1] [title=a] > [title=mine]",
        "kept lost-on-server delete note [n2] [id=n2, title=b, body=null] > []",
        "kept lost-on-server insert note [n3] [] > [id=n3, title=mine, body=null]",
      ])
    },
    recovering(
      ContractSchemas.notes(), "recovery: a row that left the scope at a lost commit was not deleted",
      rule: "semantics 4"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.download(departed: [("note", .left, ["n1"])])
      try await bench.recover(Recovered(shared: 1, rows: [("note", ["n1", "a", .null])]))
      try await bench.expectRows("note", [["n1", "a", .null]])
      try await bench.expectArchive([])
    },
    recovering(
      ContractSchemas.notes(),
      "recovery: what was accepted without a commit is asked for, and lost where it is not there",
      rule: "semantics 7, keep-versions; 11.4"
    ) { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.write(.insert("note", ["id": "n1", "title": "mine"]))
      try await bench.upload()
      let starts = [GroupStart(name: "default", commit: bench.commits[1])]
      let page = try await bench.recovering.changedKeys(after: starts, place: 0, limit: 10)
      try expectEqual(page?.queries.flatMap(\.keys), [["n1"]], "the keys asked for")
      try await bench.recover(Recovered(shared: 1, departed: [("note", .lost, ["n1"])]))
      try await bench.expectRows("note", [])
      try await bench.expectArchive(["kept lost-on-server insert note [n1] [] > [id=n1, title=mine, body=null]"])
    },
    recovering(
      ContractSchemas.notes(), "recovery: what the server changed since the shared commit is not lost",
      rule: "semantics 6, Lost is not deleted"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.download(rows: [("note", ["n2", "lost", .null])])
      try await bench.recover(
        Recovered(
          shared: 1, rows: [("note", ["n1", "changed since", .null]), ("note", ["n3", "new since", .null])],
          departed: [("note", .deleted, ["n2"])]))
      try await bench.expectRows("note", [["n1", "changed since", .null], ["n3", "new since", .null]])
      try await bench.expectArchive([])
    },
    recovering(
      ContractSchemas.notes(),
      "recovery: a row is as new as the newest commit that changed it, whenever that was heard of",
      rule: "semantics 6, Lost is not deleted"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      // Another's change is commit 2, this device's is commit 3, and the feed names its own part of the row only.
      bench.nextCommit()
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      try await bench.commitUpload()
      let fed = try bench.payload(rows: [("note", ["n1", "mine", "theirs"])], version: 2)
      try await bench.store.stage(StagedChunk(download: "d", bytes: fed, position: "p"))
      _ = try await bench.apply()
      try await bench.recover(Recovered(shared: 2, rows: [("note", ["n1", "a", "theirs"])]))
      try await bench.expectRows("note", [["n1", "a", "theirs"]])
      try await bench.expectArchive(["kept lost-on-server update note [n1] [title=a] > [title=mine]"])
    },
    recovering(
      ContractSchemas.notes(), "recovery: what comes as lost and then as deleted was deleted",
      rule: "recovery.md, What is fetched"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.download(rows: [("note", ["n1", "later", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      try await bench.recover(
        Recovered(shared: 1, departed: [("note", .lost, ["n1"]), ("note", .deleted, ["n1"])]))
      try await bench.expectRows("note", [])
      try await bench.expectArchive(["kept row-deleted update note [n1] [title=later] > [title=mine]"])
    },
    recovering(
      ContractSchemas.notes(), "recovery: in the same history what is not there was deleted",
      rule: "RecoveryOrder.Absence"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(.update("note", ["n2"], ["title": "mine"]))
      let report = try await bench.recover(
        Recovered(
          absence: .deleted, shared: nil, compared: ["default"], rows: [("note", ["n3", "c", .null])],
          departed: [("note", .lost, ["n1"]), ("note", .lost, ["n2"])]))
      try await bench.expectRows("note", [["n3", "c", .null]])
      try await bench.expectArchive(["kept row-deleted update note [n2] [title=b] > [title=mine]"])
      try expectEqual(report.counts.lost, 0, "the rows lost")
    },
    recovering(
      ContractSchemas.notes(), "recovery: where nothing is shared, every row that differs is lost",
      rule: "semantics 6, Lost is not deleted"
    ) { bench in
      try await bench.download(
        full: ["note"],
        rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", "y"]), ("note", ["n3", "c", .null])])
      try await bench.recover(
        Recovered(
          shared: nil, compared: ["default"], rows: [("note", ["n2", "b", "theirs"]), ("note", ["n9", "z", .null])],
          departed: [("note", .lost, ["n1"])]))
      try await bench.expectRows("note", [["n2", "b", "theirs"], ["n3", "c", .null], ["n9", "z", .null]])
      try await bench.expectArchive([
        "kept lost-on-server insert note [n1] [] > [id=n1, title=a, body=null]",
        "kept lost-on-server update note [n2] [body=theirs] > [body=y]",
      ])
    },
    recovering(
      ContractSchemas.notes(), "recovery: a row that does not come with a whole table is lost where its commit is",
      rule: "semantics 6, Lost is not deleted"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.download(rows: [("note", ["n3", "c", .null])])
      try await bench.recover(Recovered(shared: 1, full: ["note"], rows: [("note", ["n1", "a", .null])]))
      try await bench.expectRows("note", [["n1", "a", .null]])
      // n2 is of a commit that the server has made: it was deleted there.
      try await bench.expectArchive(["kept lost-on-server insert note [n3] [] > [id=n3, title=c, body=null]"])
    },
  ]

  // MARK: Lost rows that are needed

  static let remaking: [Case] = [
    recovering(
      ContractSchemas.notes(), "recovery: a lost row with a change becomes an insert under the change's ID",
      rule: "semantics 6, Lost is not deleted"
    ) { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.download(rows: [("note", ["n1", "a", "x"])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      try await bench.write(.update("note", ["n1"], ["body": "mine"]))
      let ids = try await bench.queued().map(\.id)
      let report = try await bench.recover(Recovered(shared: 1, departed: [("note", .lost, ["n1"])]))
      try await bench.expectRows("note", [["n1", "mine", "mine"]])
      try await bench.expectArchive([])
      try await bench.expectItems(["remade insert note [n1]", "merged update note [n1]"])
      try expectEqual([report.counts.merged, report.counts.lost], [2, 1], "merged and lost")
      let changes = try await bench.begin().changes
      try expectChanges(
        changes,
        [#"insert note ["id", "title", "body"] [n1, mine, x]"#, #"update note ["body"] [n1, x, mine]"#])
      try expectEqual(changes.map(\.id), ids, "the IDs")
    },
    recovering(
      ContractSchemas.notes(), "recovery: a lost row with a change in a group keeps the group whole",
      rule: "semantics 9, Merge rules"
    ) { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.download(rows: [("note", ["n1", "a", "x"])])
      try await bench.write(
        .beginRequest(tag: "visit"), .insert("note", ["id": "n2", "title": "b"]),
        .update("note", ["n1"], ["title": "mine"]), .endRequest)
      let waiting = try await bench.queued().map(\.id)
      try await bench.recover(Recovered(shared: 1, departed: [("note", .lost, ["n1"])]))
      try await bench.expectRows("note", [["n1", "mine", "x"], ["n2", "b", .null]])
      try expectEqual(try await bench.queued().map(\.id), waiting, "the IDs")
      let changes = try await bench.begin().changes
      try expectEqual(changes.map(\.operation), [.insert, .insert], "the changes sent")
      try expectEqual(changes.map(\.tag), ["visit", "visit"], "the tags sent")
    },
    recovering(
      ContractSchemas.notes(),
      "recovery: a lost row whose change goes with its group is lost, and the change as it was",
      rule: "semantics 9, Merge rules"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n2", "b", .null])])
      try await bench.download(rows: [("note", ["n1", "a", "x"]), ("note", ["n3", "c", "x"])])
      // A lost row before the deleted one, in the order of the keys, and one after it.
      try await bench.write(
        .beginRequest(tag: "visit"), .update("note", ["n1"], ["title": "mine"]),
        .update("note", ["n2"], ["title": "mine"]), .update("note", ["n3"], ["title": "mine"]), .endRequest)
      let report = try await bench.recover(
        Recovered(
          shared: 1, departed: [("note", .lost, ["n1"]), ("note", .deleted, ["n2"]), ("note", .lost, ["n3"])]))
      try await bench.expectRows("note", [])
      try await bench.expectArchive([
        "kept row-deleted update note [n1] [title=a] > [title=mine]",
        "kept row-deleted update note [n2] [title=b] > [title=mine]",
        "kept row-deleted update note [n3] [title=c] > [title=mine]",
        "kept lost-on-server insert note [n1] [] > [id=n1, title=a, body=x]",
        "kept lost-on-server insert note [n3] [] > [id=n3, title=c, body=x]",
      ])
      try expectEqual([report.counts.discarded, report.counts.lost], [1, 2], "discarded and lost")
    },
    recovering(
      ContractSchemas.notes(), "recovery: a lost row that was changed and then deleted here stays gone",
      rule: "semantics 6, Lost is not deleted; 9, rule 3"
    ) { bench in
      try await bench.download(full: ["note"], rows: [])
      try await bench.download(rows: [("note", ["n1", "a", "x"])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      try await bench.write(.delete("note", ["n1"]))
      try await bench.recover(Recovered(shared: 1, departed: [("note", .lost, ["n1"])]))
      try await bench.expectRows("note", [])
      // A newer copy of the server may bring the row back: neither request is forgotten.
      try expectEqual(try await bench.store.status().queued, 0, "the queue")
      try expectEqual(try await bench.archived().map(\.operation), [.update, .delete], "the archive")
    },
    recovering(
      ContractSchemas.notes(), "recovery: a lost row that was deleted here leaves nothing to do",
      rule: "semantics 6, Lost is not deleted"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n2", "b", .null])])
      try await bench.download(rows: [("note", ["n1", "a", "x"])])
      try await bench.write(.delete("note", ["n1"]), .update("note", ["n2"], ["title": "mine"]))
      let id = try await bench.queued()[0].id
      let report = try await bench.recover(Recovered(shared: 1, departed: [("note", .lost, ["n1"])]))
      try await bench.expectRows("note", [["n2", "mine", .null]])
      // A newer copy of the server may bring the row back: the delete is not forgotten.
      try await bench.expectArchive(["kept row-gone delete note [n1] [id=n1, title=a, body=x] > []"])
      try expectEqual(try await bench.archived().map(\.id), [id], "the entry's ID")
      try expectEqual(
        [report.counts.kept, report.counts.merged, report.counts.discarded, report.counts.lost], [1, 0, 1, 0],
        "kept, merged, discarded, lost")
      try await bench.expectItems(["discarded delete note [n1]", "kept update note [n2]"])
      try expectChanges(try await bench.upload(), [#"update note ["title"] [n2, b, mine]"#])
    },
    recovering(
      ContractSchemas.notes(), "recovery: an own delete is kept that the server forgot with its row",
      rule: "semantics 6, Lost is not deleted; 10"
    ) { bench in
      for rebuild in [RecoveryOrder.Rebuild.nothing, .everything] {
        var other = try await ClientBench(bench.subject, bench.schema)
        try await other.download(full: ["note"], rows: [])
        try await other.download(rows: [("note", ["n1", "a", "x"]), ("note", ["n2", "b", .null])])
        try await other.write(.delete("note", ["n1"]))
        try await other.commitUpload()
        try await other.download(departed: [("note", .deleted, ["n2"])])
        let report = try await other.recover(
          Recovered(
            requests: rebuild == .nothing ? .keep : .discard, rebuild: rebuild, shared: 1,
            full: rebuild == .nothing ? [] : ["note"],
            departed: rebuild == .nothing ? [("note", .lost, ["n1"]), ("note", .lost, ["n2"])] : []))
        // Its values are not known any more. What others deleted is theirs.
        try await other.expectArchive(["kept lost-on-server delete note [n1] [] > []"])
        try expectEqual(report.counts.lost, 1, "lost")
        await other.close()
      }
    },
    recovering(
      ContractSchemas.notes(), "recovery: a delete is remembered when the tables come whole, until the row comes again",
      rule: "semantics 6, Lost is not deleted; 10"
    ) { bench in
      try await bench.download(
        full: ["note"],
        rows: [("note", ["n1", "a", "x"]), ("note", ["n2", "b", .null]), ("note", ["n3", "c", .null])])
      try await bench.write(.delete("note", ["n1"]), .delete("note", ["n3"]))
      try await bench.commitUpload()
      // Everything is made anew from the same server, on which n3 is there again.
      try await bench.recover(
        Recovered(
          requests: .discard, rebuild: .everything, shared: 2, id: "anew", full: ["note"],
          rows: [("note", ["n2", "b", .null]), ("note", ["n3", "again", .null])]))
      // It was put back to before the deletes.
      try await bench.recover(
        Recovered(
          shared: 1, id: "restored", compared: ["default"],
          rows: [("note", ["n1", "a", "x"]), ("note", ["n3", "c", .null])]))
      try await bench.expectRows("note", [["n1", "a", "x"], ["n2", "b", .null], ["n3", "c", .null]])
      try await bench.expectArchive([
        "kept lost-on-server delete note [n1] [id=n1, title=a, body=x] > []",
        "kept lost-on-server update note [n3] [title=c] > [title=again]",
      ])
    },
    recovering(
      ContractSchemas.inspections, "recovery: lost parents of a row with a change are made again, up to the root",
      rule: "semantics 6, Lost is not deleted"
    ) { bench in
      try await bench.download(
        full: ["severity", "establishment", "inspection", "infraction"],
        rows: [("establishment", ["e1", "e", .null])])
      try await bench.download(rows: [
        ("establishment", ["e2", "lost", "EU"]), ("inspection", ["i2", "e2", "d", .null]),
        ("infraction", ["i2", 1, .null, "lost"]),
      ])
      try await bench.write(.insert("infraction", ["inspection_id": "i2", "line": 2, "note": "mine"]))
      let id = try await bench.queued()[0].id
      let report = try await bench.recover(
        Recovered(
          shared: 1,
          departed: [
            ("infraction", .lost, ["i2", 1]), ("inspection", .lost, ["i2"]), ("establishment", .lost, ["e2"]),
          ]))
      try await bench.expectRows("establishment", [["e1", "e", .null], ["e2", "lost", "EU"]])
      try await bench.expectRows("inspection", [["i2", "e2", "d", .null]])
      try await bench.expectRows("infraction", [["i2", 2, .null, "mine"]])
      // A lost row that nothing needs is kept, under its key of two columns.
      try await bench.expectArchive([
        "kept lost-on-server insert infraction [i2, 1] [] > [inspection_id=i2, line=1, severity_id=null, note=lost]"
      ])
      try await bench.expectItems([
        "remade insert establishment [e2]", "remade insert inspection [i2]", "kept insert infraction [i2, 2]",
        "lost insert infraction [i2, 1]",
      ])
      try expectEqual([report.counts.kept, report.counts.lost], [1, 3], "kept and lost")
      let changes = try await bench.commitUpload()
      try expectEqual(
        Set(changes.map(\.summary)),
        [
          #"insert establishment ["id", "name", "region"] [e2, lost, EU]"#,
          #"insert inspection ["id", "establishment_id", "date", "inspector"] [i2, e2, d, null]"#,
          #"insert infraction ["inspection_id", "line", "severity_id", "note"] [i2, 2, null, mine]"#,
        ], "the changes sent")
      try expectEqual(changes.first { $0.table == "infraction" }?.id, id, "the change's ID")
      try expectEqual(Set(changes.map(\.id)).count, 3, "the requests")
      try await bench.expectRows("inspection", [["i2", "e2", "d", .null]])
    },
    recovering(
      ContractSchemas.inspections, "recovery: a lost parent that a request inserted, too, is not made a second time",
      rule: "semantics 9, rule 4; 6, Lost is not deleted"
    ) { bench in
      try await bench.download(full: ["severity", "establishment", "inspection", "infraction"], rows: [])
      try await bench.write(
        .insert("establishment", ["id": "e1", "name": "mine"]),
        .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d"]))
      let waiting = try await bench.waiting()
      try await bench.download(rows: [("establishment", ["e1", "theirs", .null])])
      try await bench.recover(Recovered(shared: 1, departed: [("establishment", .lost, ["e1"])]))
      try await bench.expectRows("establishment", [["e1", "mine", .null]])
      try await bench.expectRows("inspection", [["i1", "e1", "d", .null]])
      try expectEqual(try await bench.waiting(), waiting, "what waits, by ID")
      try await bench.expectArchive([
        "kept lost-on-server insert establishment [e1] [] > [id=e1, name=theirs, region=null]"
      ])
      try await bench.commitUpload()
      try await bench.expectRows("establishment", [["e1", "mine", .null]])
    },
    recovering(
      ContractSchemas.inspections, "recovery: a lost row with a key of two columns is made again for its change",
      rule: "semantics 6, Lost is not deleted"
    ) { bench in
      try await bench.download(
        full: ["severity", "establishment", "inspection", "infraction"],
        rows: [("establishment", ["e1", "e", .null]), ("inspection", ["i1", "e1", "d", .null])])
      try await bench.download(rows: [("infraction", ["i1", 1, .null, "a"]), ("infraction", ["i1", 2, .null, "b"])])
      try await bench.write(.update("infraction", ["i1", 2], ["note": "mine"]))
      let ids = try await bench.queued().map(\.id)
      try await bench.recover(
        Recovered(shared: 1, departed: [("infraction", .lost, ["i1", 1]), ("infraction", .lost, ["i1", 2])]))
      try await bench.expectRows("infraction", [["i1", 2, .null, "mine"]])
      try await bench.expectArchive([
        "kept lost-on-server insert infraction [i1, 1] [] > [inspection_id=i1, line=1, severity_id=null, note=a]"
      ])
      try expectEqual(try await bench.queued().map(\.id), ids, "the IDs")
      try expectChanges(
        try await bench.upload(),
        [#"insert infraction ["inspection_id", "line", "severity_id", "note"] [i1, 2, null, mine]"#])
    },
    recovering(
      ContractSchemas.groups, "recovery: client-only rows follow the rows that go, or are kept aside by name",
      rule: "semantics 9"
    ) { bench in
      try await bench.download(full: ["a", "b"], rows: [])
      try await bench.download(rows: [("a", ["a1", "v"])])
      try await bench.write(.insert("draft", ["id": "d", "a_id": "a1"]), .insert("stub", ["id": "s", "a_id": "a1"]))
      try await bench.recover(Recovered(shared: 1, departed: [("a", .lost, ["a1"])]))
      try await bench.expectRows("draft", [])
      try await bench.expectRows("stub", [])
      try await bench.expectItems(["lost insert a [a1]", "aside - stub [s]", "given-up - draft [d]"])
      try await bench.download(rows: [("a", ["a1", "back"])])
      try await bench.expectRows("stub", [["s", "a1"]])
    },
  ]
}
