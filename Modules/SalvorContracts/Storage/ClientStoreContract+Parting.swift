import SalvorModel
import SalvorStorage
import SalvorWire

/// Where two histories part, and what a recovery keeps beside the database (semantics 6 and 9).
extension ClientStoreContract {
  static let parting: [Case] = [
    recovering(
      ContractSchemas.groups,
      "an incarnation that was told and has made nothing gives way to the one that the server has instead",
      rule: "semantics 6"
    ) { bench in
      func tell(_ incarnations: (String, Int64)...) async throws {
        try await bench.store.remember(
          server: ServerID(unchecked: String(repeating: "5", count: 32)),
          incarnations: incarnations.map {
            Incarnation(id: IncarnationID(unchecked: String(repeating: $0.0, count: 32)), firstCommit: $0.1)
          }, principal: "anna")
      }
      func expect(_ names: String...) async throws {
        try expectEqual(
          try await bench.store.history().incarnations.map { String($0.id.text.prefix(1)) }, names, "the incarnations")
      }
      try await tell(("e", 1), ("b", 6))
      // Put back, it has another one from there on, whatever its name.
      try await tell(("e", 1), ("8", 6))
      try await expect("e", "8")
      try await tell(("c", 9))
      try await tell(("e", 1), ("8", 6), ("9", 8))
      try await expect("e", "8", "9")
      // From the newest that is known on.
      try await tell(("9", 8), ("a", 12))
      try await expect("e", "8", "9", "a")
    },
    recovering(
      ContractSchemas.groups, "recovery starts at the cursor, or at the shared commit before it",
      rule: "RecoveringClientStore.swift, recoveryStarts"
    ) { bench in
      try await bench.download(full: ["a", "b"], rows: [("a", ["a1", .null])])
      try await bench.download(rows: [("a", ["a2", .null])])
      // Only the first group goes on.
      let third = bench.nextCommit()
      try await bench.stage(rows: [("a", ["a3", .null])])
      _ = try await bench.store.apply(
        DownloadEnd(groups: [GroupState(name: "first", cursor: third, scopeDigest: "all")]))
      let second = try expectSome(bench.commits[2], "a commit"), first = try expectSome(bench.commits[1], "a commit")
      try await bench.expectStarts(shared: third, [third, second])
      try await bench.expectStarts(shared: second, [second, second])
      try await bench.expectStarts(shared: first, [first, first])
      try await bench.expectStarts(shared: nil, [nil, nil])
      try await bench.expectStarts(shared: third, trimmed: 2, [third, second])
      try await bench.expectStarts(shared: third, trimmed: 3, [third, nil])
      try await bench.expectStarts(shared: first, trimmed: 2, [nil, nil])
      try await bench.restart()
      try await bench.expectStarts(shared: second, [second, second])
    },
    recovering(
      ContractSchemas.groups, "recovery has no start for a group that came whole after the shared commit",
      rule: "RecoveringClientStore.swift, recoveryStarts"
    ) { bench in
      try await bench.download(full: ["a", "b"], rows: [("a", ["a1", .null])])
      try await bench.download(full: ["b"], rows: [("b", ["b1", "a1", .null])])
      try await bench.download()
      let first = try expectSome(bench.commits[1], "a commit"), second = try expectSome(bench.commits[2], "a commit")
      try await bench.expectStarts(shared: second, [second, second])
      try await bench.expectStarts(shared: first, [first, nil])
      // What was compared is as of the cursor then.
      try await bench.recover(Recovered(shared: 1, compared: ["second"], rows: [("b", ["b2", "a1", .null])]))
      let head = try expectSome(bench.commits[2], "the head")
      try await bench.expectStarts(shared: head, [head, head])
      try await bench.expectStarts(shared: first, [first, nil])
    },
    recovering(
      ContractSchemas.groups, "recovery names each row whose base changed after its group's start, in pages",
      rule: "RecoveringClientStore.swift, changedKeys"
    ) { bench in
      try await bench.download(full: ["a", "b"], rows: [("a", ["a1", .null]), ("a", ["a2", .null])])
      try await bench.download(rows: [("a", ["a3", .null]), ("b", ["b1", "a1", .null])])
      try await bench.download(
        rows: [("a", ["a3", "again"]), ("a", ["a4", .null]), ("b", ["b1", "a1", "again"])],
        departed: [("a", .deleted, ["a2"])])
      try await bench.write(.update("a", ["a1"], ["v": "mine"]), .insert("a", ["id": "a5"]))
      try await bench.commitUpload { $0.operation == .insert ? .constraint : nil }
      let first = try expectSome(bench.commits[1], "a commit"), third = try expectSome(bench.commits[3], "a commit")
      func starts(_ a: Commit?, _ b: Commit?) -> [GroupStart] {
        [GroupStart(name: "first", commit: a), GroupStart(name: "second", commit: b)]
      }
      let all: Set<[Value]> = [["a", "a1"], ["a", "a2"], ["a", "a3"], ["a", "a4"], ["b", "b1"]]
      for limit in [1, 2, 100] {
        try await bench.expectChanged(starts(first, first), limit: limit, all)
      }
      try await bench.expectChanged(starts(third, first), limit: 100, [["a", "a1"], ["b", "b1"]])
      try await bench.expectChanged(starts(nil, first), limit: 100, [["b", "b1"]])
      try await bench.expectChanged(starts(nil, nil), limit: 100, [])
      // Lost commits are forgotten with what they changed.
      try await bench.recover(
        Recovered(shared: 1, rows: [("a", ["a1", .null]), ("a", ["a2", .null])], departed: [("b", .deleted, ["b1"])]))
      // What a recovery brought by its key was so at the commit from which its feed went on.
      try await bench.expectChanged(starts(first, first), limit: 100, [["b", "b1"]])
      let before = Commit(number: 0, id: first.id)
      try await bench.expectChanged(starts(before, before), limit: 100, [["a", "a1"], ["a", "a2"], ["b", "b1"]])
    },
    recovering(
      ContractSchemas.inspections, "recovery finds the ranges that differ: a row changed, missing, or more",
      rule: "semantics 6, history-trimmed"
    ) { bench in
      let rows = ClientBench.infractions
      let parents: [(String, Row)] =
        [("establishment", ["e", "e", .null])] + (0..<3).map { ("inspection", [.text("i\($0)"), "e", "d", .null]) }
      try await bench.download(
        full: ["establishment", "inspection", "infraction"],
        rows: parents + rows.map { ("infraction", $0) })
      // Changes that wait are not compared: bases are.
      try await bench.write(.update("infraction", ["i0", 0], ["note": "mine"]), .delete("infraction", ["i0", 1]))
      try await bench.expectDifferences(rows, [])
      var changed = rows
      changed[1][3] = "changed"
      try await bench.expectDifferences(changed, [0])
      try await bench.expectDifferences(rows.filter { $0[1] != 5 }, [1])
      try await bench.expectDifferences(rows + [["i2", 99, .null, .null]], [2])
      // The storage class counts.
      changed = rows
      changed[11][2] = 1
      try await bench.expectDifferences(changed, [2])
      try await bench.expectDifferences([], [0])
    },
  ]

  // MARK: Beside the database

  static let backups: [Case] = [
    recovering(
      ContractSchemas.groups, "recovery keeps before-images that put everything back",
      rule: "semantics 9, Backup before anything is touched"
    ) { bench in
      try await bench.download(
        full: ["a", "b"], rows: [("a", ["a1", "v"]), ("a", ["a2", "v"]), ("b", ["b1", "a1", "v"])])
      try await bench.download(rows: [("a", ["a3", "lost"])])
      try await bench.write(
        .insert("draft", ["id": "d", "a_id": "a2"]), .insert("stub", ["id": "s", "a_id": "a2"]),
        .update("a", ["a1"], ["v": "mine"]), .insert("b", ["id": "b2", "a_id": "a1"]), .delete("b", ["b1"]),
        .update("a", ["a2"], ["v": "mine"]))
      let before = try await bench.snapshot()
      let report = try await bench.recover(
        Recovered(
          shared: 1, rows: [("a", ["a1", "restored"])],
          departed: [("a", .deleted, ["a2"]), ("a", .lost, ["a3"])]))
      let backup = try expectSome(report.backup, "the backup's ID")
      try expect(try await bench.snapshot() != before, "the recovery must change something")
      let listed = try await bench.recovering.backups()
      try expectEqual(listed.map(\.id), [backup], "the backups")
      try expectEqual(listed.map(\.content), [.beforeImages], "what they are")
      try expectEqual(listed.map(\.reason), ["server-restored"], "why they were made")
      _ = try await bench.recovering.restoreBackup(backup, copyID: "copied")
      try expectEqual(try await bench.snapshot(), before, "what was put back")
      try expect(try await bench.store.status().state.isOlderThanIdentityFile, "the next sync must find it rewound")
      try await bench.restart()
      try expectEqual(try await bench.snapshot(), before, "what was put back, after a restart")
      // What was put back is captured as before.
      try await bench.write(.update("b", ["b2"], ["v": "later"]))
      try expectEqual(try await bench.store.status().queued, Int64(before.queue.count) + 1, "the queue")
    },
    recovering(
      ContractSchemas.notes(), "recovery: before-images put back what a later change was made on",
      rule: "semantics 9, Backup before anything is touched"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", .null])])
      let before = try await bench.snapshot()
      let report = try await bench.recover(
        Recovered(shared: 1, rows: [("note", ["n1", "restored", .null]), ("note", ["n2", "new", .null])]))
      try await bench.write(
        .update("note", ["n2"], ["title": "later"]), .insert("note", ["id": "n3", "title": "later"]))
      _ = try await bench.recovering.restoreBackup(
        try expectSome(report.backup, "the backup's ID"), copyID: "copied")
      try expectEqual(try await bench.store.rows(of: "note").first, before.rows["note"]?.first, "the row put back")
    },
    recovering(
      ContractSchemas.groups, "recovery: a copy puts everything back, and replaces the copy under its ID",
      rule: "semantics 9, Backup before anything is touched"
    ) { bench in
      try await bench.download(full: ["a", "b"], rows: [("a", ["a1", "v"])])
      try await bench.write(.insert("draft", ["id": "d"]))
      let first = try await bench.recovering.makeCopy(id: "copy 1", reason: "operator-requested")
      try await bench.write(.insert("a", ["id": "a2", "v": "mine"]))
      let again = try await bench.recovering.makeCopy(id: "copy 1", reason: "operator-requested")
      try expectEqual([first.id, again.id], ["copy 1", "copy 1"], "the IDs")
      try expectEqual(again.content, .copy, "what it is")
      try expect(again.bytes > 0, "a copy has bytes")
      let before = try await bench.snapshot()
      let second = try await bench.recovering.makeCopy(id: "copy 2", reason: "operator-requested")
      try expectEqual(
        try await bench.recovering.backups().map(\.id), ["copy 2", "copy 1"], "the backups, newest first")
      try await bench.recover(
        Recovered(
          requests: .discard, rebuild: .everything, shared: nil, remoteID: RemoteID(from: SystemRandom()),
          keepsBeforeImages: false, compared: ["first", "second"], full: ["a", "b"], rows: [("a", ["a9", "v"])]))
      try expectEqual(try await bench.recovering.backups().map(\.id), ["copy 2", "copy 1"], "no before-images")
      try await bench.write(.insert("a", ["id": "a3", "v": "written since"]))
      let since = try await bench.snapshot()
      let copy = try expectSome(
        try await bench.recovering.restoreBackup(second.id, copyID: "copy 3"), "the copy of what was there")
      try expectEqual([copy.id, copy.content.rawValue], ["copy 3", "copy"], "the copy of what was there")
      try expectEqual(try await bench.snapshot(), before, "what was put back")
      try expect(try await bench.store.status().state.isOlderThanIdentityFile, "the next sync must find it rewound")
      _ = try await bench.recovering.restoreBackup(copy.id, copyID: "copy 4")
      try expectEqual(try await bench.snapshot(), since, "what was there before, put back")
      _ = try await bench.recovering.restoreBackup("copy 4", copyID: "copy 5")
      try expectEqual(try await bench.snapshot(), before, "the first one again")
      for number in 3...5 { _ = try await bench.recovering.deleteBackup("copy \(number)") }
      try await bench.restart()
      try expectEqual(try await bench.snapshot(), before, "what was put back, after a restart")
      try expect(try await bench.recovering.deleteBackup("copy 1"), "a backup must go")
      try expect(!(try await bench.recovering.deleteBackup("copy 1")), "a backup goes once")
      try expectEqual(try await bench.recovering.backups().map(\.id), ["copy 2"], "the backups left")
      let store = try bench.recovering
      try await expectError(.notFound, "an unknown backup") {
        _ = try await store.restoreBackup("copy 1", copyID: "copy 6")
      }
      try expectEqual(try await bench.recovering.backups().map(\.id), ["copy 2"], "no copy for an unknown backup")
    },
    recovering(
      ContractSchemas.notes(), "the journal of a recovery is replaced as a whole, and is read without opening",
      rule: "semantics 9, Journal"
    ) { bench in
      let store = try bench.recovering
      try expect(try await store.journal() == nil, "there is no journal at first")
      try await store.setJournal(Array(#"{"state":"running","id":"long enough to leave something"}"#.utf8))
      try await store.setJournal(Array(#"{"id":"ü"}"#.utf8))
      try expectEqual(try await store.journal(), Array(#"{"id":"ü"}"#.utf8), "the journal")
      await store.close()
      let unopened = try expectSome(
        try await bench.database() as? any RecoveringClientStore, "the store as a RecoveringClientStore")
      try expectEqual(try await unopened.journal(), Array(#"{"id":"ü"}"#.utf8), "the journal, unopened")
      try await unopened.setJournal(nil)
      try expect(try await unopened.journal() == nil, "the journal is gone")
      await unopened.close()
      try await bench.restart()
      try expect(try await bench.recovering.journal() == nil, "the journal stays gone")
      try await bench.recovering.setJournal(Array("{ damaged".utf8))
      let aside = try await bench.recovering.setJournalAside()
      try expect(try await bench.recovering.journal() == nil, "a journal that is set aside is no journal")
      try expect(aside.isEmpty || aside.hasPrefix(bench.recovering.location), "it stands beside the database")
    },
  ]
}

extension ClientBench {
  /// What an application and a person see.
  struct Snapshot: Equatable {
    var rows: [String: [Row]]
    var queue: [QueuedRequest]
    var archive: [QueuedRequest]
    var groups: [GroupState]
    var remoteID: RemoteID
    var previous: SequenceID?
    var commits: [Commit]
  }

  fileprivate func snapshot() async throws -> Snapshot {
    let state = try await store.status().state
    var rows: [String: [Row]] = [:]
    for table in schema.tables { rows[table.name] = try await store.rows(of: table.name) }
    // What came since is compared by the next recovery: no scope is known then.
    let groups = state.groups.map { group in
      var group = group
      group.scopeDigest = nil
      return group
    }
    return Snapshot(
      rows: rows, queue: try await queued(), archive: try await archived(), groups: groups,
      remoteID: state.remoteID, previous: state.previous, commits: try await store.history().commits)
  }

  /// Where the groups start, in their order.
  fileprivate func expectStarts(
    shared: Commit?, trimmed: Int64 = 0, _ commits: [Commit?], file: String = #fileID, line: Int = #line
  ) async throws {
    let starts = try await recovering.recoveryStarts(shared: shared, trimmed: trimmed)
    try expectEqual(
      starts, zip(schema.groups, commits).map { GroupStart(name: $0.name, commit: $1) }, "the starts", file: file,
      line: line)
  }

  /// The rows named, as table and key, over all pages.
  fileprivate func expectChanged(
    _ starts: [GroupStart], limit: Int, _ keys: Set<[Value]>, file: String = #fileID, line: Int = #line
  ) async throws {
    var found: Set<[Value]> = []
    var place: Int64 = 0
    while let page = try await recovering.changedKeys(after: starts, place: place, limit: limit) {
      try expect(page.place > place, "a page must go on", file: file, line: line)
      try expect(
        page.queries.reduce(0) { $0 + $1.keys.count } <= limit, "a page holds at most the limit", file: file, line: line
      )
      place = page.place
      for query in page.queries {
        try expect(query.range == nil, "keys are named, no range", file: file, line: line)
        for key in query.keys { found.insert([.text(query.table)] + key) }
      }
    }
    try expectEqual(found, keys, "the keys named", file: file, line: line)
  }

  /// Four of each of three inspections.
  fileprivate static let infractions: [Row] = (0..<12).map { [.text("i\($0 / 4)"), .integer($0), .null, "note"] }

  /// Compares `infraction` with a server that has these rows, in three ranges, on one page and on three.
  fileprivate func expectDifferences(
    _ rows: [Row], _ ranges: [Int], file: String = #fileID, line: Int = #line
  ) async throws {
    let table = try expectSome(schema.table("infraction"), "the table")
    // In another order than the table's: both sides go by the page's.
    let columns = ["note", "line", "severity_id", "inspection_id"]
    func digest(_ row: Row) -> RowDigest {
      RowDigest(columns.map { row[table.columnIndex($0) ?? 0] })
    }
    let bounds: [Key?] = rows.isEmpty ? [nil] : [["i0", 3], ["i1", 7], nil]
    var all: [RangeDigest] = []
    for (place, last) in bounds.enumerated() {
      let members = rows.isEmpty ? [] : rows.filter { $0[0] == .text("i\(place)") }
      let sum = members.reduce(UInt64(0)) { $0 &+ digest($1).value }
      all.append(RangeDigest(last: last, count: Int64(members.count), digest: RowDigest.text(sum)))
    }
    let mine = try await store.requests(in: [.queued], after: nil, limit: 10)
    let whole = try await recovering.differences(
      from: RangePage(columns: columns, ranges: all, isLast: true), after: nil, of: "infraction")
    var single: [RowQuery] = []
    for (place, range) in all.enumerated() {
      single += try await recovering.differences(
        from: RangePage(columns: columns, ranges: [range], isLast: range.last == nil),
        after: place == 0 ? nil : all[place - 1].last, of: "infraction")
    }
    try expectEqual(single, whole, "page by page and at once", file: file, line: line)
    try expectEqual(
      whole.map(\.range),
      ranges.map { RowQuery.Range(after: $0 == 0 ? nil : all[$0 - 1].last, last: all[$0].last) },
      "the ranges that differ", file: file, line: line)
    for (query, place) in zip(whole, ranges) {
      let bases = Self.infractions.filter { rows.isEmpty || $0[0] == .text("i\(place)") }
      try expectEqual(query.keys, bases.map(table.key), "the keys of the bases", file: file, line: line)
      try expectEqual(
        query.digests, bases.map { digest($0).text }, "the digests of the bases", file: file, line: line)
    }
    try expectEqual(
      try await store.requests(in: [.queued], after: nil, limit: 10), mine, "the queue", file: file, line: line)
  }

  /// Stages rows of another schema than this database's.
  mutating func restageAs(_ schema: Schema, full: [String], rows: [(String, Row)]) async throws {
    var other = self
    other.adopt(schema)
    let bytes = try other.payload(full: full, rows: rows, version: nil)
    try await store.stage(StagedChunk(download: "rebuilt", bytes: bytes, position: "p"))
  }
}
