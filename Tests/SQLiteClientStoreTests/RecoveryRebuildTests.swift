import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// Tables that a recovery makes anew (semantics 9, `recreate` and `copy-and-resubscribe`; decision 7).
@Suite struct RecoveryRebuildTests {
  static let notes = RecoveryTests.notes
  static let remote = RemoteID(unchecked: String(repeating: "8", count: 32))

  private func order(
    _ bench: StoreBench, _ rebuild: RecoveryOrder.Rebuild, shared: Int64? = nil, config: SyncConfig? = nil,
    share: Double? = nil
  ) -> RecoveryOrder {
    bench.order(
      requests: .discard, rebuild: rebuild, shared: shared, remoteID: Self.remote, config: config,
      removedShareMax: share)
  }

  @Test func rowsThatTheServerLostAreKeptWithWhatTheDeviceHad() async throws {
    var bench = try await StoreBench(Self.notes)
    _ = try await bench.download([("note", ["a", "1", nil]), ("note", ["b", "1", nil])], versioned: false)
    _ = try await bench.download([("note", ["a", "2", nil]), ("note", ["c", "2", nil])])
    _ = try await bench.download(deleted: [("note", ["b"])])
    try bench.write("UPDATE note SET body = 'mine' WHERE id = 'c'; INSERT INTO note VALUES ('n', 'new', NULL)")
    let report = try await bench.recover(
      [.full(["note"]), .row("note", ["a", "1", nil]), .row("note", ["b", "1", nil])],
      order(bench, .synchronizedTables, shared: 1))
    #expect(try bench.read("SELECT * FROM note ORDER BY id") == [["a", "1", nil], ["b", "1", nil]])
    #expect(
      try await bench.requests(RecoveryTests.everything) == [
        "kept update c discarded", "kept insert n discarded", "kept update a lost-on-server",
        "kept delete b lost-on-server", "kept insert c lost-on-server",
      ])
    let kept = try await bench.store.requests(in: [.kept], after: nil, limit: 10)
    #expect(kept[4].after == [NamedValue("id", "c"), NamedValue("title", "2"), NamedValue("body", nil)])
    #expect(report.counts.discarded == 2)
    #expect(report.counts.lost == 3)
    #expect(report.counts.upserts == 2)
    #expect(try bench.isWhole())
  }

  @Test("what was written while triggers were away is in the archive of the tables made anew (never 3)")
  func writtenWithoutTriggers() async throws {
    var bench = try await StoreBench(Self.notes)
    _ = try await bench.download([("note", ["a", "1", nil]), ("note", ["b", "1", nil])])
    for trigger in try bench.read("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'note'") {
      try bench.write("DROP TRIGGER \(trigger[0].string ?? "")")
    }
    try bench.write("INSERT INTO note VALUES ('n', 'new', 'unseen'); UPDATE note SET body = 'unseen' WHERE id = 'a'")
    _ = try await bench.uploadText()
    await bench.store.endSession()
    _ = try await bench.recover(
      [.full(["note"]), .row("note", ["a", "1", nil]), .row("note", ["b", "1", nil])],
      order(bench, .synchronizedTables, shared: 1))
    #expect(try await bench.requests(RecoveryTests.everything) == ["kept update a unproven", "kept insert n unproven"])
    #expect(try bench.read("SELECT * FROM note ORDER BY id") == [["a", "1", nil], ["b", "1", nil]])
    #expect(try bench.isWhole())
  }

  @Test func columnsOfTheApplicationsOwnAreKeptWhereTablesAreMadeAnew() async throws {
    var bench = try await StoreBench(
      Self.notes,
      sql: """
        CREATE TABLE note (id TEXT NOT NULL PRIMARY KEY, pinned INTEGER NOT NULL DEFAULT 0, title TEXT NOT NULL, body TEXT,
          seen TEXT DEFAULT CURRENT_TIMESTAMP);
        CREATE INDEX by_pinned ON note (pinned);
        """)
    _ = try await bench.download([("note", ["a", "1", nil]), ("note", ["b", "1", nil])], versioned: false)
    try bench.write(
      "UPDATE note SET pinned = 7, seen = 'yes' WHERE id = 'a'; UPDATE note SET pinned = 9 WHERE id = 'b'")
    #expect(try await bench.store.status().queued == 0)
    _ = try await bench.recover(
      [.full(["note"]), .row("note", ["a", "3", nil]), .row("note", ["c", "3", nil])],
      order(bench, .synchronizedTables, shared: 1))
    #expect(
      try bench.read(
        "SELECT id, title, pinned, iif(id = 'a', seen, typeof(seen)) FROM note INDEXED BY by_pinned WHERE pinned >= 0 ORDER BY id"
      ) == [
        ["a", "3", 7, "yes"], ["c", "3", 0, "text"],
      ])
    #expect(try await bench.store.status().queued == 0)
    #expect(try bench.isWhole())
  }

  @Test func theApplicationsIndexesAndTriggersComeBackAndSeeWhatGoes() async throws {
    var bench = try await StoreBench(
      Self.notes,
      sql: """
        CREATE TABLE note (id TEXT NOT NULL PRIMARY KEY, title TEXT NOT NULL, body TEXT);
        CREATE INDEX by_title ON note (title);
        CREATE TABLE words (id TEXT PRIMARY KEY, w TEXT);
        CREATE TRIGGER i AFTER INSERT ON note BEGIN INSERT INTO words VALUES (NEW.id, NEW.title); END;
        CREATE TRIGGER u AFTER UPDATE ON note BEGIN UPDATE words SET w = NEW.title WHERE id = NEW.id; END;
        CREATE TRIGGER d AFTER DELETE ON note BEGIN DELETE FROM words WHERE id = OLD.id; END;
        """)
    _ = try await bench.download([("note", ["a", "1", nil]), ("note", ["b", "1", nil])])
    try bench.write("UPDATE note SET title = 'mine' WHERE id = 'a'; INSERT INTO note VALUES ('n', 'new', NULL)")
    _ = try await bench.recover(
      [.full(["note"]), .row("note", ["a", "3", nil]), .row("note", ["c", "3", nil])],
      order(bench, .synchronizedTables, shared: 1))
    #expect(try bench.read("SELECT * FROM words ORDER BY id") == [["a", "3"], ["c", "3"]])
    #expect(try bench.read("SELECT 1 FROM sqlite_schema WHERE name = 'by_title'") == [[1]])
    try bench.write("UPDATE note SET title = 'later' WHERE id = 'c'; DELETE FROM note WHERE id = 'a'")
    #expect(try bench.read("SELECT * FROM words") == [["c", "later"]])
    #expect(try await bench.requests([.queued]) == ["queued update c", "queued delete a"])
    let opening = try await bench.store.open(ClientSetup(schema: Self.notes, principal: "anna"))
    #expect(opening == ClientOpening())
  }

  @Test func entriesOfTablesThatHaveOtherColumnsNowKeepTheirNames() async throws {
    var bench = try await StoreBench(Self.notes)
    _ = try await bench.download([("note", ["a", "1", "x"])])
    try bench.write("UPDATE note SET body = 'mine' WHERE id = 'a'")
    let schema = Schema(
      version: 2,
      tables: [Table("note", primaryKey: ["id"], columns: [Column("id", .text), Column("stars", .integer)])])
    let config = SyncConfig(schema)
    let order = order(bench, .synchronizedTables, config: config)
    let rehearsed = try await bench.store.rehearse(order)
    // The rehearsal left the tables as they were.
    #expect(try bench.read("SELECT * FROM note") == [["a", "1", "mine"]])
    #expect(try await bench.requests([.queued]) == ["queued update a"])
    #expect(rehearsed.counts.discarded == 1)
    _ = try await bench.recover([], order)
    let kept = try await bench.store.requests(in: [.kept], after: nil, limit: 10)
    #expect(kept.map(\.table) == ["note", "note"])
    #expect(kept[0].after == [NamedValue("body", "mine")])
    #expect(kept[1].after == [NamedValue("id", "a"), NamedValue("title", "1"), NamedValue("body", "x")])
    #expect(
      try bench.read("SELECT DISTINCT \"table\" FROM salvor_error_archive WHERE state = 'kept'") == [["note"]])
    try bench.write("INSERT INTO note VALUES ('n', 5)")
    #expect(try await bench.requests([.queued]) == ["queued insert n"])
    #expect(try bench.isWhole())
  }

  @Test func clientOnlyRowsFollowTheirOnDeleteOrAreKeptAside() async throws {
    let schema = Schema(tables: [
      Table("parent", primaryKey: ["id"], columns: [Column("id", .text)]),
      Table(
        "aside", maintained: .client, primaryKey: ["id"],
        columns: [Column("id", .text), Column("p", .text, nullable: true)],
        references: [Reference(column: "p", table: "parent")]),
      Table(
        "follows", maintained: .client, primaryKey: ["id"],
        columns: [Column("id", .text), Column("p", .text, nullable: true)],
        references: [Reference(column: "p", table: "parent", onDelete: .cascade)]),
    ])
    var bench = try await StoreBench(schema)
    _ = try await bench.download([("parent", ["p"]), ("parent", ["q"])])
    try bench.write(
      "INSERT INTO aside VALUES ('1', 'p'), ('2', 'q'), ('3', NULL); INSERT INTO follows VALUES ('1', 'p'), ('2', 'q')")
    _ = try await bench.recover([.full(["parent"]), .row("parent", ["q"])], order(bench, .synchronizedTables))
    #expect(try bench.read("SELECT * FROM aside ORDER BY id") == [["2", "q"], ["3", nil]])
    #expect(try bench.read("SELECT * FROM follows") == [["2", "q"]])
    #expect(
      try await bench.items() == [
        "lost insert parent p lost-on-server", "aside - aside 1 parent-gone", "given-up - follows 1 parent-gone",
      ])
    _ = try await bench.download([("parent", ["p"])])
    #expect(try bench.read("SELECT id FROM aside ORDER BY id") == [["1"], ["2"], ["3"]])
    #expect(try bench.isWhole())
  }

  @Test func theGuardHoldsForTablesThatAreMadeAnew() async throws {
    var bench = try await StoreBench(Self.notes)
    _ = try await bench.download((1...30).map { ("note", [.text("\($0)"), "x", nil]) })
    var code: ErrorCode?
    do {
      _ = try await bench.recover(
        (1...14).map { .row("note", [.text("\($0)"), "x", nil]) }, order(bench, .everything, share: 0.5))
    } catch let error as SalvorError { code = error.code }
    #expect(code == .massDeletion)
    #expect(try bench.read("SELECT count(*) FROM note") == [[30]])
    try bench.write("UPDATE note SET title = 'still captured' WHERE id = '1'")
    #expect(try await bench.requests([.queued]) == ["queued update 1"])
  }

  @Test func anotherConnectionSeesOneChange() async throws {
    var bench = try await StoreBench(Self.notes)
    _ = try await bench.download([("note", ["a", "1", nil])])
    let application = try SQLiteConnection(bench.path)
    try application.execute("PRAGMA foreign_keys = ON")
    let reader = try SQLiteConnection(bench.path)
    try reader.execute("BEGIN")
    #expect(try reader.rows("SELECT id FROM note") == [["a"]])
    _ = try await bench.recover([.full(["note"]), .row("note", ["b", "2", nil])], order(bench, .everything))
    #expect(try reader.rows("SELECT id FROM note") == [["a"]])
    try reader.execute("COMMIT")
    #expect(try reader.rows("SELECT id FROM note") == [["b"]])
    try application.execute("INSERT INTO note VALUES ('c', 'mine', NULL)")
    #expect(try await bench.requests([.queued]) == ["queued insert c"])
  }
}
