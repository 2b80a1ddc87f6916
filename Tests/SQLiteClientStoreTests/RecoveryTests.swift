import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// What a recovery makes of rows and requests (semantics 6, 9).
@Suite struct RecoveryTests {
  static let notes = Schema(tables: [
    Table(
      "note", primaryKey: ["id"],
      columns: [Column("id", .text), Column("title", .text), Column("body", .text, nullable: true)])
  ])
  static let everything: Set<RequestState> = Set(RequestState.allCases)

  /// a and b as of commit 1, then a later a and a new c at commit 2, then b deleted at commit 3.
  private func synchronized(_ schema: Schema = notes) async throws -> StoreBench {
    var bench = try await StoreBench(schema)
    _ = try await bench.download([("note", ["a", "1", nil]), ("note", ["b", "1", nil])], versioned: false)
    _ = try await bench.download([("note", ["a", "2", "x"]), ("note", ["c", "2", nil])])
    _ = try await bench.download(deleted: [("note", ["b"])])
    return bench
  }

  private static let restored: [Said] = [
    .row("note", ["a", "1", nil], version: 1), .row("note", ["b", "1", nil], version: 1), .lost("note", ["c"]),
  ]

  @Test func whatChangedAfterTheSharedCommitIsAskedForOnceEach() async throws {
    var bench = try await synchronized()
    _ = try await bench.download([("note", ["a", "3", nil])])
    let shared = bench.commit(1)
    let starts = try await bench.store.recoveryStarts(shared: shared, trimmed: 0)
    #expect(starts == [GroupStart(name: "default", commit: shared)])
    let first = try #require(try await bench.store.changedKeys(after: starts, place: 0, limit: 2))
    #expect(first.queries == [RowQuery(table: "note", keys: [["a"], ["b"]])])
    let second = try #require(try await bench.store.changedKeys(after: starts, place: first.place, limit: 2))
    #expect(second.queries == [RowQuery(table: "note", keys: [["c"]])])
    #expect(try await bench.store.changedKeys(after: starts, place: second.place, limit: 2) == nil)
  }

  @Test func aGroupStartsNowhereWhereNothingIsSharedOrTrimmedOrItCameWholeLater() async throws {
    let bench = try await synchronized()
    func start(_ shared: Int64?, trimmed: Int64 = 0) async throws -> Int64? {
      try await bench.store.recoveryStarts(shared: shared.map { bench.commit($0) }, trimmed: trimmed)[0].commit?.number
    }
    #expect(try await start(nil) == nil)
    #expect(try await start(0) == nil)
    #expect(try await start(2) == 2)
    #expect(try await start(9) == 3)
    #expect(try await start(2, trimmed: 3) == nil)
    let fresh = try await StoreBench(Self.notes)
    #expect(try await fresh.store.recoveryStarts(shared: fresh.commit(1), trimmed: 0) == [])
  }

  @Test("a row that was made again after its tombstone, by a commit that the server lost, is lost, not deleted")
  func madeAfterItsTombstone() async throws {
    let bench = try await synchronized()
    let report = try await bench.recover(
      [.row("note", ["a", "1", nil], version: 1), .deleted("note", ["c"], version: 1)], bench.order(shared: 1))
    #expect(report.counts.lost == 2)
    #expect(
      try await bench.requests(Self.everything) == ["kept update a lost-on-server", "kept insert c lost-on-server"])
    #expect(try bench.read("SELECT id FROM note ORDER BY id") == [["a"]])
  }

  @Test(
    "what was written while triggers were away, and a recovery takes, is in the archive (semantics 3, never 3)",
    arguments: [(RecoveryOrder.Absence.deleted, nil), (.lost, Int64(1))])
  func writtenWithoutTriggers(absence: RecoveryOrder.Absence, shared: Int64?) async throws {
    var bench = try await StoreBench(Self.notes)
    _ = try await bench.download([
      ("note", ["a", "1", nil]), ("note", ["b", "1", nil]), ("note", ["c", "1", nil]), ("note", ["d", "1", nil]),
    ])
    try bench.write("UPDATE note SET title = 'waits' WHERE id = 'd'")
    for trigger in try bench.read("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'note'") {
      try bench.write("DROP TRIGGER \(trigger[0].string ?? "")")
    }
    try bench.write(
      """
      INSERT INTO note VALUES ('n', 'new', 'unseen'); UPDATE note SET body = 'unseen' WHERE id IN ('a', 'b', 'd');
      """)
    _ = try await bench.uploadText()
    await bench.store.endSession()
    let report = try await bench.recover(
      [
        .row("note", ["a", "2", nil]), .deleted("note", ["b"]), .row("note", ["d", "2", nil]), .lost("note", ["n"]),
      ], bench.order(absence: absence, shared: shared))
    #expect(
      try await bench.requests(Self.everything) == [
        "queued update d", "kept update a unproven", "kept insert b unproven", "kept update d unproven",
        "kept insert n unproven",
      ])
    let kept = try await bench.store.requests(in: [.kept], after: nil, limit: 10)
    #expect(kept.map { $0.after.last?.value } == ["unseen", "unseen", "unseen", "unseen"])
    #expect(
      try bench.read("SELECT * FROM note ORDER BY id") == [["a", "2", nil], ["c", "1", nil], ["d", "waits", nil]])
    #expect(report.counts.lost == 0)
    #expect(try await bench.items().filter { $0.hasSuffix("unproven") }.count == 4)
    #expect(try bench.isWhole())
  }

  @Test("what was acknowledged before the first download of its group, and the server has lost, is in the archive")
  func lostBeforeTheFirstDownload() async throws {
    let bench = try await StoreBench(Self.notes)
    try bench.write("INSERT INTO note VALUES ('n', 'mine', NULL); INSERT INTO note VALUES ('m', 'mine', NULL)")
    try await bench.accept(try await bench.uploadText().session)
    try bench.write("UPDATE note SET title = 'again' WHERE id = 'm'")
    var order = bench.order(shared: 1)
    order.groups = []
    order.starts = []
    let report = try await bench.recover([], order)
    #expect(report.counts.lost == 2)
    #expect(try await bench.requests(Self.everything) == ["queued insert m", "kept insert n lost-on-server"])
    #expect(try bench.read("SELECT id, title FROM note") == [["m", "again"]])
  }

  @Test func whatTheServerLostIsKeptAsEntriesAndTheBasesAreTheServers() async throws {
    let bench = try await synchronized()
    let report = try await bench.recover(Self.restored, bench.order(shared: 1))
    #expect(try bench.read("SELECT * FROM note ORDER BY id") == [["a", "1", nil], ["b", "1", nil]])
    let kept = try await bench.store.requests(in: Self.everything, after: nil, limit: 10)
    #expect(kept.map(\.state) == [.kept, .kept, .kept])
    #expect(kept.map(\.reason) == Array(repeating: "lost-on-server", count: 3))
    #expect(kept.map(\.operation) == [.update, .delete, .insert])
    #expect(kept[0].before == [NamedValue("title", "1"), NamedValue("body", nil)])
    #expect(kept[0].after == [NamedValue("title", "2"), NamedValue("body", "x")])
    #expect(kept[1].before == [NamedValue("id", "b"), NamedValue("title", "1"), NamedValue("body", nil)])
    #expect(kept[2].after == [NamedValue("id", "c"), NamedValue("title", "2"), NamedValue("body", nil)])
    #expect(Set(kept.map(\.id)).count == 3)
    #expect(report.counts.lost == 3)
    #expect(report.counts.upserts == 2)
    #expect(report.counts.deletes == 1)
    #expect(
      try await bench.items() == [
        "lost update note a lost-on-server", "lost delete note b lost-on-server", "lost insert note c lost-on-server",
      ])
    // What came has the version that it came with; the row that the server lost is known as lost (2).
    let history = try bench.read("SELECT version, deleted, v0 FROM salvor_history ORDER BY v0")
    #expect(history == [[1, 0, "a"], [1, 0, "b"], [1, 2, "c"]], "\(history)")
    #expect(try bench.read("SELECT number FROM salvor_commit ORDER BY 1") == [[1], [50]])
    #expect(try bench.isWhole())
  }

  @Test func aRowThatIsGoneOfASharedVersionWasDeletedNotLost() async throws {
    let bench = try await synchronized()
    _ = try await bench.recover([.lost("note", ["a"]), .lost("note", ["c"])], bench.order(shared: 2))
    #expect(try bench.read("SELECT * FROM note") == [])
    #expect(try await bench.requests(Self.everything) == [])
  }

  @Test func withAbsenceDeletedNothingIsLostAndTheHistoryStays() async throws {
    let bench = try await synchronized()
    _ = try await bench.recover([.lost("note", ["a"])], bench.order(absence: .deleted, shared: nil))
    #expect(try bench.read("SELECT id FROM note") == [["c"]])
    #expect(try await bench.requests(Self.everything) == [])
    #expect(try bench.read("SELECT count(*) FROM salvor_commit") == [[4]])
  }

  @Test func rule1RowsMadeHereAreKept() async throws {
    let bench = try await synchronized()
    try bench.write("INSERT INTO note VALUES ('n', 'new', NULL)")
    let report = try await bench.recover(Self.restored, bench.order(shared: 1))
    #expect(try bench.read("SELECT id FROM note ORDER BY id") == [["a"], ["b"], ["n"]])
    #expect(try await bench.requests([.queued]) == ["queued insert n"])
    #expect(report.counts.kept == 1)
  }

  @Test func rule2DeletedOnTheServerAndChangedHereTheDeleteWins() async throws {
    let bench = try await synchronized()
    try bench.write("UPDATE note SET title = 'mine' WHERE id = 'a'")
    try bench.write("UPDATE note SET body = 'later' WHERE id = 'a'")
    let report = try await bench.recover([.deleted("note", ["a"], version: 40)], bench.order(shared: 3))
    #expect(try bench.read("SELECT id FROM note") == [["c"]])
    let kept = try await bench.store.requests(in: Self.everything, after: nil, limit: 10)
    #expect(kept.map(\.state) == [.kept, .kept])
    #expect(kept.map(\.reason) == ["row-deleted", "row-deleted"])
    #expect(kept.map(\.after) == [[NamedValue("title", "mine")], [NamedValue("body", "later")]])
    #expect(report.counts.discarded == 2)
    #expect(
      try await bench.items() == [
        "discarded update note a row-deleted", "discarded update note a row-deleted",
      ])
  }

  @Test func rule3DeletedHereAndNotOnTheServerStaysDeleted() async throws {
    let bench = try await synchronized()
    try bench.write("DELETE FROM note WHERE id = 'a'")
    let report = try await bench.recover(Self.restored, bench.order(shared: 1))
    #expect(try bench.read("SELECT id FROM note") == [["b"]])
    #expect(try await bench.requests([.queued]) == ["queued delete a"])
    #expect(report.counts.merged == 1)
  }

  @Test func rule4TheClientsValueStandsInTheSameFieldAndTheServersInOthers() async throws {
    let bench = try await synchronized()
    try bench.write("UPDATE note SET title = 'mine' WHERE id = 'a'")
    _ = try await bench.recover(
      [.row("note", ["a", "theirs", "theirs"], version: 9)], bench.order(shared: 3))
    #expect(try bench.read("SELECT * FROM note WHERE id = 'a'") == [["a", "mine", "theirs"]])
    let queued = try await bench.store.requests(in: [.queued], after: nil, limit: 10)
    #expect(queued.map(\.after) == [[NamedValue("title", "mine")]])
    #expect(queued.map(\.before) == [[NamedValue("title", "2")]])
    #expect(try await bench.items() == ["merged update note a -"])
  }

  @Test func aLostRowWithAnUpdateIsMadeAgainUnderTheRequestsOwnID() async throws {
    let bench = try await synchronized()
    try bench.write("UPDATE note SET body = 'mine' WHERE id = 'c'")
    let before = try await bench.store.requests(in: [.queued], after: nil, limit: 10).map(\.id)
    let report = try await bench.recover(Self.restored, bench.order(shared: 1))
    let queued = try await bench.store.requests(in: [.queued], after: nil, limit: 10)
    #expect(queued.map(\.id) == before)
    #expect(queued.map(\.operation) == [.insert])
    #expect(queued[0].after == [NamedValue("id", "c"), NamedValue("title", "2"), NamedValue("body", "mine")])
    #expect(try bench.read("SELECT * FROM note WHERE id = 'c'") == [["c", "2", "mine"]])
    #expect(try await bench.items().first == "remade insert note c -")
    #expect(report.counts.lost == 3)
    let text = try await bench.uploadText().text
    #expect(text.contains(#""c","2","mine""#))
  }

  @Test func aDeleteOfALostRowHasNothingToDo() async throws {
    let bench = try await synchronized()
    try bench.write("DELETE FROM note WHERE id = 'c'")
    let report = try await bench.recover(Self.restored, bench.order(shared: 1))
    #expect(try await bench.requests([.queued]) == [])
    #expect(
      try await bench.requests([.kept]) == [
        "kept delete c row-gone", "kept update a lost-on-server", "kept delete b lost-on-server",
      ])
    #expect(try await bench.items().first == "discarded delete note c row-gone")
    #expect(report.counts.discarded == 1)
  }

  @Test func aLostParentThatARequestNeedsIsMadeAgainUpToTheRoot() async throws {
    func table(_ name: String, _ parent: String?) -> Table {
      Table(
        name, primaryKey: ["id"], columns: [Column("id", .text), Column("p", .text, nullable: true)],
        references: parent.map { [Reference(column: "p", table: $0, onDelete: .cascade)] } ?? [])
    }
    let schema = Schema(tables: [table("root", nil), table("middle", "root"), table("leaf", "middle")])
    var bench = try await StoreBench(schema)
    _ = try await bench.download([("root", ["old", nil])], versioned: false)
    _ = try await bench.download([
      ("root", ["r", nil]), ("root", ["other", nil]), ("middle", ["m", "r"]), ("leaf", ["l", "m"]),
    ])
    try bench.write("INSERT INTO leaf VALUES ('new', 'm')")
    let report = try await bench.recover(
      [.lost("root", ["r"]), .lost("root", ["other"]), .lost("middle", ["m"]), .lost("leaf", ["l"])],
      bench.order(shared: 1))
    #expect(try bench.read("SELECT id FROM root ORDER BY id") == [["old"], ["r"]])
    #expect(try bench.read("SELECT * FROM middle") == [["m", "r"]])
    #expect(try bench.read("SELECT * FROM leaf") == [["new", "m"]])
    #expect(try await bench.requests([.queued]) == ["queued insert new", "queued insert m", "queued insert r"])
    #expect(
      try await bench.items() == [
        "kept insert leaf new -", "remade insert middle m lost-on-server", "remade insert root r lost-on-server",
        "lost insert root other lost-on-server", "lost insert leaf l lost-on-server",
      ])
    #expect(report.counts.kept == 1)
    #expect(report.counts.lost == 4)
    #expect(try bench.isWhole())
  }

  @Test func aGroupStandsOrFallsAsAWhole() async throws {
    let bench = try await synchronized()
    try bench.write(
      "INSERT INTO salvor_request (tag) VALUES ('visit'); UPDATE note SET title = 'mine' WHERE id = 'a'; INSERT INTO note VALUES ('n', 'x', NULL); DELETE FROM salvor_request"
    )
    _ = try await bench.recover([.deleted("note", ["a"], version: 40)], bench.order(shared: 3))
    #expect(try bench.read("SELECT id FROM note") == [["c"]])
    #expect(try await bench.requests(Self.everything) == ["kept update a row-deleted", "kept insert n row-deleted"])
  }

  @Test func whatLeftTheScopeStaysUntilItsChangesWereSent() async throws {
    let bench = try await synchronized()
    try bench.write("UPDATE note SET title = 'mine' WHERE id = 'a'")
    let report = try await bench.recover(
      [.left("note", ["a"], version: 40), .left("note", ["c"], version: 40)], bench.order(shared: 3))
    #expect(try await bench.requests(Self.everything) == ["queued update a"])
    #expect(try await bench.items() == ["kept update note a -"])
    #expect(report.counts.deletes == 1)
    #expect(try bench.read("SELECT id, title FROM note") == [["a", "mine"]])
    // It was made on the newest commit that both have.
    #expect(try bench.read("SELECT number FROM salvor_leaving") == [[3]])
    try await bench.accept(try await bench.uploadText().session)
    _ = try await bench.store.beginSession(groups: nil)
    #expect(try bench.read("SELECT id FROM note").isEmpty)
  }

  @Test func whatLeftTheScopeGoesWhereRequestsAreDiscarded() async throws {
    let bench = try await synchronized()
    try bench.write("UPDATE note SET title = 'mine' WHERE id = 'a'")
    _ = try await bench.recover([.left("note", ["a"], version: 40)], bench.order(requests: .discard, shared: 3))
    #expect(try await bench.requests(Self.everything) == ["kept update a discarded"])
    #expect(try bench.read("SELECT id FROM note") == [["c"]])
  }

  @Test func refusedRequestsStayRefused() async throws {
    let bench = try await synchronized()
    try bench.write("UPDATE note SET title = 'bad' WHERE id = 'a'")
    let session = try await bench.uploadText().session
    let entry = try #require(try await bench.store.requests(in: [.sent], after: nil, limit: 1).first)
    try await bench.accept(
      session,
      refusing: [Refusal(counter: entry.id.counter, stamp: entry.id.stamp, reason: .constraint, message: "no")])
    _ = try await bench.recover([.row("note", ["a", "9", "y"], version: 9)], bench.order(shared: 3))
    #expect(try await bench.requests(Self.everything) == ["refused update a constraint"])
    #expect(try bench.read("SELECT * FROM note WHERE id = 'a'") == [["a", "bad", "y"]])
  }

  @Test func discardedRequestsAreInTheArchiveWithTheirValues() async throws {
    let bench = try await synchronized()
    try bench.write(
      "INSERT INTO note VALUES ('n', 'new', NULL); UPDATE note SET title = 'mine' WHERE id = 'a'; DELETE FROM note WHERE id = 'c'"
    )
    _ = try await bench.store.beginSession(groups: nil)
    let report = try await bench.recover([], bench.order(requests: .discard, shared: 3))
    #expect(try bench.read("SELECT * FROM note ORDER BY id") == [["a", "2", "x"], ["c", "2", nil]])
    let kept = try await bench.store.requests(in: Self.everything, after: nil, limit: 10)
    #expect(kept.map(\.state) == [.kept, .kept, .kept])
    #expect(kept.map(\.reason) == ["discarded", "discarded", "discarded"])
    #expect(kept[0].after == [NamedValue("id", "n"), NamedValue("title", "new"), NamedValue("body", nil)])
    #expect(kept[1].before == [NamedValue("title", "2")])
    #expect(kept[2].before == [NamedValue("id", "c"), NamedValue("title", "2"), NamedValue("body", nil)])
    #expect(report.counts.discarded == 3)
    #expect(try await bench.store.beginSession(groups: nil).upload == nil)
    // No counter is given again.
    try bench.write("INSERT INTO note VALUES ('k', 'later', NULL)")
    let next = try #require(try await bench.store.requests(in: [.queued], after: nil, limit: 1).first)
    #expect(next.id.counter > (kept.map(\.id.counter).max() ?? 0))
  }

  @Test func anUploadUnderWayReturnsToTheQueueWithItsIDs() async throws {
    let bench = try await synchronized()
    try bench.write("UPDATE note SET title = 'mine' WHERE id = 'a'")
    let sent = try await bench.uploadText()
    let before = try await bench.store.requests(in: [.sent], after: nil, limit: 10).map(\.id)
    let stored = SequenceID(unchecked: String(repeating: "7", count: 32))
    _ = try await bench.recover([], bench.order(shared: 2, previous: stored))
    #expect(try await bench.store.requests(in: [.queued], after: nil, limit: 10).map(\.id) == before)
    let state = try await bench.store.status().state
    #expect(state.previous == stored)
    #expect(state.current == nil)
    #expect(try await bench.store.history().commits.map(\.number) == [50, 2, 1])
    #expect(try await bench.store.history().olderSequences == [try #require(sent.session.upload?.sequence)])
    #expect(try bench.read("SELECT min(number), max(number) FROM salvor_epoch WHERE number > 1") == [[2, 50]])
    let again = try await bench.uploadText()
    #expect(again.session.upload?.isResend == false)
    #expect(again.session.upload?.sequence != sent.session.upload?.sequence)
  }

  @Test func theIdentityIsWhatTheOrderSays() async throws {
    let bench = try await synchronized()
    try await bench.store.setRecoveryRequired(.clientRewound, message: "m")
    let stored = SequenceID(unchecked: String(repeating: "7", count: 32))
    let remote = RemoteID(unchecked: String(repeating: "8", count: 32))
    let stamp = IdentityFile(path: IdentityFile.path(of: bench.path))?.stamp
    _ = try await bench.recover(Self.restored, bench.order(shared: 1, previous: stored, remoteID: remote))
    let state = try await bench.store.status().state
    #expect(state.remoteID == remote)
    #expect(state.previous == stored)
    #expect(state.serverID == StoreBench.server)
    #expect(state.recoveryRequired == nil)
    #expect(state.groups[0].cursor == bench.commit(50))
    #expect(state.stagedDownload == nil)
    let file = try #require(IdentityFile(path: IdentityFile.path(of: bench.path)))
    #expect(file.remote == remote)
    #expect(file.previous == stored)
    #expect(file.stamp != stamp)
  }

  @Test func aSecondCallAnswersWithTheReportOfTheFirst() async throws {
    let bench = try await synchronized()
    let report = try await bench.recover(Self.restored, bench.order(shared: 1))
    let again = try await bench.recover([.lost("note", ["a"])], bench.order(shared: 1))
    #expect(again == report)
    #expect(try bench.read("SELECT id FROM note ORDER BY id") == [["a"], ["b"]])
    #expect(try await bench.store.recoveries(limit: 5) == [report])
  }

  @Test func aRehearsalAnswersWithTheReportAndChangesNothing() async throws {
    let bench = try await synchronized()
    try bench.write("UPDATE note SET body = 'mine' WHERE id = 'c'")
    let tables = [
      "note", "salvor_log", "salvor_state", "salvor_history", "salvor_archive", "salvor_group", "salvor_outstanding",
    ]
    let before = try tables.map { try bench.read("SELECT * FROM \($0)") }
    try await bench.store.keepForRehearsal(bench.payload(Self.restored))
    let rehearsed = try await bench.store.rehearse(bench.order(shared: 1))
    #expect(try tables.map { try bench.read("SELECT * FROM \($0)") } == before)
    #expect(try await bench.recover(Self.restored, bench.order(shared: 1)).counts == rehearsed.counts)
  }

  @Test func moreThanTheShareOfATablesRowsDoesNotGo() async throws {
    var bench = try await StoreBench(Self.notes)
    _ = try await bench.download((1...30).map { ("note", [.text("\($0)"), "x", nil]) })
    func gone(_ count: Int) -> [Said] { (1...count).map { .lost("note", [.text("\($0)")]) } }
    var code: ErrorCode?
    do {
      _ = try await bench.recover(gone(16), bench.order(shared: nil, removedShareMax: 0.5))
    } catch let error as SalvorError {
      code = error.code
      #expect(error.context["tables"] == "note")
    }
    #expect(code == .massDeletion)
    #expect(try bench.read("SELECT count(*) FROM note") == [[30]])
    try await bench.store.discardStaged()
    _ = try await bench.recover(gone(15), bench.order(shared: nil, removedShareMax: 0.5))
    #expect(try bench.read("SELECT count(*) FROM note") == [[15]])
  }

  @Test func theJournalIsReplacedAsAWholeAndWorksWithoutOpening() async throws {
    let store = SQLiteClientStore(path: Scratch.path())
    #expect(try await store.journal() == nil)
    try await store.setJournal(Array("one".utf8))
    try await store.setJournal(Array("two".utf8))
    #expect(try await store.journal() == Array("two".utf8))
    try await store.setJournal(nil)
    #expect(try await store.journal() == nil)
  }
}
