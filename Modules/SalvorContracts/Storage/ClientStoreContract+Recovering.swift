import SalvorModel
import SalvorStorage

/// Recovery in place (semantics 5, 6 and 9): what becomes of rows and of requests. Taken up by every store that is a
/// `RecoveringClientStore`; a subject of one that is not says so (`StoreSubject.recovers`).
extension ClientStoreContract {
  static let recovering: [Case] =
    [declaration] + keeping + mergeRules + losing + offers + offeredParents + withheld + newestOffers + offeredDeletes
    + lostVersions + offersUnderChanges
    + copiesInTurns
    + remaking + orders + guards + parting
    + backups + comparing

  /// A case for stores that recover.
  static func recovering(
    _ schema: Schema, _ name: String, rule: String,
    _ body: @escaping @Sendable (inout ClientBench) async throws -> Void
  ) -> Case {
    let rule = on(schema, name, rule: rule, body)
    return Case(name, rule: rule.rule) { subject in if subject.recovers { try await rule.run(subject) } }
  }

  private static let declaration = Case(
    "a store recovers exactly where its subject says so", rule: "semantics 9, RecoveringClientStore.swift"
  ) { subject in
    let store = try await subject.makeDatabase()()
    try expectEqual(store is any RecoveringClientStore, subject.recovers, "whether the store recovers")
  }

  // MARK: Keep

  static let keeping: [Case] = [
    recovering(
      ContractSchemas.notes(), "recovery, keep: bases become the server's, and what waits stays under its IDs",
      rule: "semantics 9"
    ) { bench in
      try await bench.download(
        full: ["note"],
        rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null]), ("note", ["n4", "d", .null])])
      try await bench.write(
        .update("note", ["n2"], ["title": "mine"]), .insert("note", ["id": "n3", "title": "c"]),
        .update("note", ["n4"], ["body": "mine"]))
      let waiting = try await bench.waiting()
      let report = try await bench.recover(
        Recovered(shared: 1, rows: [("note", ["n1", "restored", .null]), ("note", ["n2", "b", "restored"])]))
      try await bench.expectRows(
        "note",
        [["n1", "restored", .null], ["n2", "mine", "restored"], ["n3", "c", .null], ["n4", "d", "mine"]])
      try expectEqual(try await bench.waiting(), waiting, "what waits, by ID")
      try expectEqual(report.id, "recovery 1", "the report's ID")
      try expectEqual(report.reason, .serverRestored, "the report's reason")
      try expectEqual(report.strategy, "a strategy", "the report's strategy")
      let counts = report.counts
      try expectEqual(
        [counts.kept, counts.merged, counts.discarded, counts.upserts, counts.deletes, counts.lost],
        [2, 1, 0, 2, 0, 0], "kept, merged, discarded, upserts, deletes, lost")
      try await bench.expectItems(["merged update note [n2]", "kept insert note [n3]", "kept update note [n4]"])
      try await bench.expectArchive([])
      try await bench.restart()
      try expectEqual(try await bench.waiting(), waiting, "what waits after a restart, by ID")
      try await bench.download(rows: [("note", ["n1", "later", .null])])
      try await bench.commitUpload()
      try await bench.expectRows(
        "note", [["n1", "later", .null], ["n2", "mine", "restored"], ["n3", "c", .null], ["n4", "d", "mine"]])
      try expectEqual(try await bench.store.status().queued, 0, "the queue after a sync")
    },
    recovering(
      ContractSchemas.notes(), "recovery, keep: P := S, C unset, requests in flight wait again with their IDs",
      rule: "semantics 9, After a recovery"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.insert("note", ["id": "n2", "title": "b"]))
      try await bench.commitUpload()
      let lost = try expectSome(try await bench.store.status().state.previous, "P before")
      try await bench.write(.update("note", ["n1"], ["title": "A"]), .insert("note", ["id": "n3", "title": "c"]))
      let sent = try await bench.begin()
      try await bench.store.setRecoveryRequired(.serverRestored, message: "restored")
      await bench.store.endSession()
      let stored = SequenceID(from: SystemRandom())
      try await bench.recover(
        Recovered(shared: 1, previous: stored, departed: [("note", .lost, ["n2"])]))
      let state = try await bench.store.status().state
      try expectEqual(state.previous, stored, "P")
      try expect(state.current == nil, "C must be unset")
      try expect(!state.isOlderThanIdentityFile, "the identity file must not be newer than the database")
      try expect(state.recoveryRequired == nil, "no recovery is needed any more")
      try expectEqual(state.serverID, ClientBench.server, "the server")
      try expect(
        try await bench.store.history().olderSequences.contains(lost), "the P that the server lost must be remembered")
      try expectEqual(
        Set(try await bench.queued().map(\.state)), [.queued], "the states of what was under way")
      let again = try await bench.begin()
      let upload = try expectSome(again.session.upload, "an upload")
      try expect(!upload.isResend && upload.sequence != sent.session.upload?.sequence, "a new upload")
      try expectEqual(again.changes.map(\.id), sent.changes.map(\.id), "the IDs")
      try expectEqual(again.changes.map(\.summary), sent.changes.map(\.summary), "the changes")
    },
    recovering(
      ContractSchemas.notes(), "recovery, keep: cursor, list of commits and versions are cut to the shared commit",
      rule: "semantics 9, After a recovery"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "early"]))
      try await bench.download()
      try await bench.download()
      try await bench.write(.update("note", ["n1"], ["body": "late"]))
      let lost = try expectSome(bench.commits[3], "the lost commit")
      try await bench.recover(Recovered(shared: 2))
      try expectEqual(try await bench.store.status().state.groups[0].cursor, bench.commits[3], "the cursor")
      let commits = try await bench.store.history().commits
      try expect(!commits.contains(lost), "the lost commit must go")
      try expect(
        commits.contains { $0 == bench.commits[2] } && commits.contains { $0 == bench.commits[3] }, "others stay")
      try expectEqual(try await bench.begin().changes.map(\.made), [1, 2], "the versions")
    },
    recovering(
      ContractSchemas.notes(), "recovery, keep: versions are 0 where nothing is shared", rule: "RecoveryOrder.shared"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      let lost = try expectSome(bench.commits[1], "the commit")
      try await bench.recover(Recovered(shared: nil, compared: ["default"]))
      try expectEqual(try await bench.begin().changes.map(\.made), [0], "the versions")
      try expect(!(try await bench.store.history().commits.contains(lost)), "no commit of the other history may stay")
    },
    recovering(
      ContractSchemas.notes(), "recovery, keep: versions stay where the history is the same and was trimmed",
      rule: "RecoveryOrder.shared"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      try await bench.recover(Recovered(absence: .deleted, shared: nil, compared: ["default"]))
      try expectEqual(try await bench.begin().changes.map(\.made), [1], "the versions")
    },
    recovering(
      ContractSchemas.notes(), "recovery, keep: a new remote ID is taken, and request IDs stay",
      rule: "semantics 9, client-rewound"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      let before = try await bench.store.status().state.remoteID
      let waiting = try await bench.waiting()
      try await bench.recover(Recovered(shared: nil, id: "keeps its own"))
      try expectEqual(try await bench.store.status().state.remoteID, before, "the remote ID where none is given")
      let remote = RemoteID(from: SystemRandom())
      try await bench.recover(Recovered(shared: nil, remoteID: remote))
      try expectEqual(try await bench.store.status().state.remoteID, remote, "the remote ID")
      try expectEqual(try await bench.waiting(), waiting, "what waits, by ID")
      try await bench.restart()
      try expectEqual(try await bench.store.status().state.remoteID, remote, "the remote ID after a restart")
      try expect(!(try await bench.store.status().state.isOlderThanIdentityFile), "the identity file must agree")
    },
    recovering(
      ContractSchemas.inspections, "recovery: a row whose parent does not come is left out, and the rest is recovered",
      rule: "semantics 11.5"
    ) { bench in
      try await bench.download(
        full: ["establishment"], rows: [("establishment", ["e1", "e", .null])])
      try await bench.write(.insert("establishment", ["id": "e2", "name": "mine"]))
      try await bench.recover(
        Recovered(
          shared: 1,
          rows: [("inspection", ["i1", "nowhere", "d", .null]), ("establishment", ["e1", "renamed", .null])]))
      try await bench.expectRows("establishment", [["e1", "renamed", .null], ["e2", "mine", .null]])
      try await bench.expectRows("inspection", [])
      try expectEqual(try await bench.recovering.recoveries(limit: 10).count, 1, "the recoveries")
    },
  ]

  // MARK: Merge rules

  static let mergeRules: [Case] = [
    recovering(ContractSchemas.inspections, "recovery, rule 1: rows made locally stay", rule: "semantics 9, rule 1") {
      bench in
      try await bench.download(full: ["establishment"], rows: [("establishment", ["e1", "e", .null])])
      try await bench.write(
        .insert("establishment", ["id": "e2", "name": "mine"]),
        .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d"]),
        .insert("infraction", ["inspection_id": "i1", "line": 1]))
      let waiting = try await bench.waiting()
      try await bench.recover(Recovered(shared: 1, rows: [("establishment", ["e1", "restored", .null])]))
      try await bench.expectRows("establishment", [["e1", "restored", .null], ["e2", "mine", .null]])
      try await bench.expectRows("inspection", [["i1", "e1", "d", .null]])
      try await bench.expectRows("infraction", [["i1", 1, .null, .null]])
      try expectEqual(try await bench.waiting(), waiting, "what waits, by ID")
    },
    recovering(
      ContractSchemas.notes(), "recovery, rule 2: deleted on the server and changed here, the change is kept aside",
      rule: "semantics 9, rule 2"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"]), ("note", ["n2", "b", .null])])
      try await bench.write(
        .update("note", ["n1"], ["title": "mine"]), .update("note", ["n2"], ["title": "stays"]),
        .update("note", ["n1"], ["body": "depends"]))
      let ids = try await bench.queued().map(\.id)
      let report = try await bench.recover(Recovered(shared: 1, departed: [("note", .deleted, ["n1"])]))
      try await bench.expectRows("note", [["n2", "stays", .null]])
      try await bench.expectArchive([
        "kept row-deleted update note [n1] [title=a] > [title=mine]",
        "kept row-deleted update note [n1] [body=x] > [body=depends]",
      ])
      try expectEqual(Set(try await bench.archived().map(\.id)), [ids[0], ids[2]], "the IDs kept aside")
      let status = try await bench.store.status()
      try expectEqual(
        [status.queued, status.inError, status.displaced, status.kept], [1, 0, 0, 2],
        "queued, in error, displaced, kept")
      try expectEqual(report.counts.discarded, 2, "the requests that left the queue")
      try expectEqual(report.counts.deletes, 1, "the rows removed")
      try await bench.expectItems([
        "discarded update note [n1]", "kept update note [n2]", "discarded update note [n1]",
      ])
      // Kept is not displaced: the row's return does not bring it back.
      try await bench.download(rows: [("note", ["n1", "again", .null])])
      try await bench.expectRows("note", [["n1", "again", .null], ["n2", "stays", .null]])
      try expectChanges(try await bench.upload(), [#"update note ["title"] [n2, b, stays]"#])
    },
    recovering(
      ContractSchemas.notes(), "recovery, rule 2: a group stands or falls as a whole", rule: "semantics 9, Merge rules"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(
        .beginRequest(tag: "visit"), .update("note", ["n1"], ["title": "mine"]),
        .insert("note", ["id": "n3", "title": "c"]), .endRequest)
      try await bench.write(.update("note", ["n3"], ["title": "depends"]), .update("note", ["n2"], ["title": "stays"]))
      try await bench.recover(Recovered(shared: 1, departed: [("note", .deleted, ["n1"])]))
      try await bench.expectRows("note", [["n2", "stays", .null]])
      let archive = try await bench.archived()
      try expectEqual(Set(archive.map(\.state)), [.kept], "the states")
      try expectEqual(
        archive.map { "\($0.operation.rawValue) \($0.key)" }.sorted(), ["insert [n3]", "update [n1]", "update [n3]"],
        "the changes kept aside")
      try expectEqual(archive.filter { $0.tag == "visit" }.count, 2, "the changes of the group")
      try expectEqual(Set(archive.filter { $0.tag == "visit" }.map(\.id)).count, 1, "the group's IDs")
      try expectEqual(try await bench.store.status().kept, 2, "the requests kept aside")
      try expectChanges(try await bench.upload(), [#"update note ["title"] [n2, b, stays]"#])
    },
    recovering(
      ContractSchemas.notes(), "recovery, rule 2: a row deleted and made again here is a row made here",
      rule: "semantics 9, rules 1 and 2"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"])])
      try await bench.write(.delete("note", ["n1"]))
      try await bench.write(.insert("note", ["id": "n1", "title": "again"]))
      try await bench.recover(Recovered(shared: 1, departed: [("note", .deleted, ["n1"])]))
      try await bench.expectRows("note", [["n1", "again", .null]])
      try await bench.expectArchive([])
      let changes = try await bench.upload()
      try expectEqual(
        changes.last?.summary, #"insert note ["id", "title", "body"] [n1, again, null]"#, "the last change sent")
    },
    recovering(
      ContractSchemas.notes(), "recovery, rule 3: deleted here and not on the server, the delete stands",
      rule: "semantics 9, rule 3"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(.delete("note", ["n1"]), .delete("note", ["n2"]))
      try await bench.recover(Recovered(shared: 1, rows: [("note", ["n1", "restored", .null])]))
      try await bench.expectRows("note", [])
      try await bench.expectArchive([])
      try expectChanges(try await bench.upload(), ["delete note [n1]", "delete note [n2]"])
    },
    recovering(
      ContractSchemas.notes(), "recovery: deleted on both sides, nothing is left of it",
      rule: "semantics 9, Merge rules"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.delete("note", ["n1"]))
      try await bench.recover(Recovered(shared: 1, departed: [("note", .deleted, ["n1"])]))
      try await bench.expectRows("note", [])
      try await bench.expectArchive([])
      try expectEqual(try await bench.queued(), [], "the queue")
      try await bench.expectItems(["merged delete note [n1]"])
    },
    recovering(
      ContractSchemas.notes(), "recovery, rule 4: the same field changed on both sides, the client's value stands",
      rule: "semantics 9, rule 4"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      let waiting = try await bench.waiting()
      try await bench.recover(Recovered(shared: 1, rows: [("note", ["n1", "theirs", "theirs"])]))
      try await bench.expectRows("note", [["n1", "mine", "theirs"]])
      try await bench.expectArchive([])
      try expectEqual(try await bench.waiting(), waiting, "what waits, by ID")
      let changes = try await bench.begin().changes
      try expectEqual(changes.map(\.columns), [["title"]], "the columns sent")
      try expectEqual(changes.map { $0.values.last }, ["mine"], "the value sent")
    },
    recovering(
      ContractSchemas.inspections, "recovery, rule 4: the same key inserted on both sides, the client's row is shown",
      rule: "semantics 9, rule 4"
    ) { bench in
      try await bench.download(
        full: ["establishment", "inspection"],
        rows: [("establishment", ["e1", "e", .null]), ("inspection", ["i1", "e1", "d", .null])])
      try await bench.write(.insert("infraction", ["inspection_id": "i1", "line": 1, "note": "mine"]))
      let waiting = try await bench.waiting()
      try await bench.recover(Recovered(shared: 1, rows: [("infraction", ["i1", 1, .null, "theirs"])]))
      try await bench.expectRows("infraction", [["i1", 1, .null, "mine"]])
      try expectEqual(try await bench.waiting(), waiting, "what waits, by ID")
      try await bench.expectItems(["merged insert infraction [i1, 1]"])
    },
    recovering(
      ContractSchemas.notes(),
      "recovery: a row that left the scope stays with its changes until they were sent, as in any sync",
      rule: "semantics 9"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null]), ("note", ["n2", "b", .null])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      let report = try await bench.recover(
        Recovered(shared: 1, departed: [("note", .left, ["n1"]), ("note", .left, ["n2"])]))
      try expectEqual([report.counts.kept, report.counts.discarded], [1, 0], "the requests kept and discarded")
      try expectEqual(report.counts.deletes, 1, "the rows that went")
      try await bench.expectRows("note", [["n1", "mine", .null]])
      try expectEqual(try await bench.archived().count, 0, "the archive")
      try expectChanges(try await bench.commitUpload(), [#"update note ["title"] [n1, a, mine]"#])
      try await bench.download()
      try await bench.expectRows("note", [])
    },
    recovering(
      ContractSchemas.notes(unique: [["title"]]), "recovery: where two rows want one unique value, the base stands",
      rule: "semantics 2"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      try await bench.write(.insert("note", ["id": "n2", "title": "b"]), .insert("note", ["id": "n3", "title": "c"]))
      let report = try await bench.recover(Recovered(shared: 1, rows: [("note", ["n9", "b", .null])]))
      try await bench.expectRows("note", [["n1", "a", .null], ["n3", "c", .null], ["n9", "b", .null]])
      try expectEqual(try await bench.archived().map(\.state), [.displaced], "the states")
      try expectEqual([report.counts.displaced, report.counts.discarded], [1, 0], "displaced and discarded")
      try await bench.expectItems(["displaced insert note [n2]", "kept insert note [n3]"])
    },
  ]
}
