import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// What follows from a move (semantics 2, docs/architecture/settlement.md), where it went wrong once.
@Suite struct SettlementTests {
  private static let schema = DependenceTests.schema

  private static func refusal(_ id: RequestID) -> Refusal {
    Refusal(counter: id.counter, stamp: id.stamp, reason: .constraint, message: "no")
  }

  /// Node 1 has rank 5, and its change to 6 is refused; node 9 takes the 5, and waits for the change since it was sent again.
  private func waiting() async throws -> (bench: StoreBench, again: RequestID) {
    var bench = try await StoreBench(Self.schema)
    _ = try await bench.download([("node", [1, nil, 5])])
    try bench.write("UPDATE node SET rank = 6 WHERE id = 1")
    let session = try await bench.store.beginSession(groups: nil)
    let first = try #require(try await bench.store.requests(in: [.sent], after: nil, limit: 1).first?.id)
    try await bench.accept(session, refusing: [Self.refusal(first)])
    try bench.write("INSERT INTO node VALUES (9, NULL, 5)")
    let report = try await bench.store.retry([first])
    guard case .queued(let again)? = report.requests.first?.outcome else {
      throw SalvorError(.usage, "The request was not sent again.")
    }
    return (bench, again)
  }

  @Test("the view has the values of a request that a retry blocks")
  func valuesOfBlockedRequests() async throws {
    let (bench, _) = try await waiting()
    #expect(
      try bench.read("SELECT state, after FROM salvor_error_archive") == [["blocked", "id = 9, up = NULL, rank = 5"]])
  }

  @Test("a displaced request is not blocked by one that was withdrawn")
  func blockedByNothing() async throws {
    var (bench, again) = try await waiting()
    // Another row of the server's has the 5 now.
    _ = try await bench.download([("node", [1, nil, 7]), ("node", [8, nil, 5])])
    let displaced = try await bench.store.requests(in: [.displaced], after: nil, limit: 10)
    #expect(displaced.map(\.blockedBy) == [again])
    _ = try await bench.store.remove(.withdraw(again))
    let left = try await bench.store.requests(in: [.displaced], after: nil, limit: 10)
    #expect(left.map(\.key) == [[9]])
    #expect(left.map(\.blockedBy) == [nil])
    #expect(left.map(\.reason) == ["constraint"])
    // It is sent when it can stand again, under an ID that the server has not answered yet.
    _ = try await bench.download([("node", [8, nil, 55])])
    let queued = try await bench.store.requests(in: [.queued], after: nil, limit: 10)
    #expect(queued.map(\.key) == [[9]])
    #expect(try bench.read("SELECT id, rank FROM node ORDER BY id") == [[1, 7], [8, 55], [9, 5]])
  }

  @Test("an entry of a displaced request says why, and what depends on it says so")
  func reasonsOfDisplacement() async throws {
    var bench = try await StoreBench(Self.schema)
    _ = try await bench.download([("node", [1, nil, 5]), ("node", [2, nil, nil])])
    try bench.write("UPDATE node SET rank = 7 WHERE id = 1; UPDATE node SET rank = 8 WHERE id = 2")
    try bench.write("INSERT INTO node VALUES (3, 2, 9); INSERT INTO node VALUES (4, 3, NULL)")
    // Another row has the 9, and the second is gone.
    _ = try await bench.download([("node", [5, nil, 9])], deleted: [("node", [2])])
    let view =
      "SELECT key, reason, message IS NULL FROM salvor_error_archive WHERE state = 'displaced' ORDER BY counter"
    #expect(try bench.read(view) == [[2, "row-gone", 0], [3, "constraint", 0], [4, "blocked", 0]])
    #expect(try bench.read("SELECT id, rank FROM node ORDER BY id") == [[1, 7], [5, 9]])
    let message = try bench.read("SELECT message FROM salvor_error_archive WHERE key = 3")[0][0].string ?? ""
    #expect(message.contains("The row [5] of node is in its way: it has the same in rank."), "\(message)")
  }

  @Test("the view shows a blob of an archived entry as a blob")
  func blobsInTheArchive() async throws {
    let schema = Schema(tables: [
      Table(
        "scan", primaryKey: ["id"],
        columns: [Column("id", .blob), Column("name", .text), Column("image", .blob, nullable: true)],
        unique: [["name"]])
    ])
    var bench = try await StoreBench(schema)
    try bench.write("INSERT INTO scan VALUES (x'0601', 'a', x'FF')")
    _ = try await bench.download([("scan", [.blob([1]), "a", nil])])
    #expect(
      try bench.read("SELECT state, key, after FROM salvor_error_archive") == [
        ["displaced", .blob([6, 1]), "id = x'0601', name = 'a', image = x'ff'"]
      ])
  }

  @Test("what an application left referencing nothing is displaced: references of captured rows are proved")
  func capturedReferences() async throws {
    var bench = try await StoreBench(Self.schema)
    _ = try await bench.download([("node", [1, nil, 5]), ("node", [2, 1, nil]), ("node", [3, nil, nil])])
    // A connection that has foreign keys off, which is SQLite's default.
    try SQLiteConnection(bench.path).execute(
      "PRAGMA foreign_keys = OFF; DELETE FROM node WHERE id = 1; REPLACE INTO node VALUES (3, 77, NULL); UPDATE node SET rank = 6 WHERE id = 2"
    )
    #expect(try !bench.isWhole())
    let session = try await bench.store.beginSession(groups: nil)
    #expect(session.displaced.count == 2)
    #expect(try bench.read("SELECT * FROM node ORDER BY id") == [[1, nil, 5], [2, 1, 6], [3, nil, nil]])
    #expect(try bench.isWhole())
    let displaced = try await bench.store.requests(in: [.displaced], after: nil, limit: 10)
    #expect(displaced.map(\.reason) == ["referenced", "missing-parent"])
    #expect(displaced.map(\.key) == [[1], [3]])
    #expect(try await bench.store.requests(in: [.sent], after: nil, limit: 10).map(\.key) == [[2]])
    await bench.store.endSession()
    // With its parent it stands again.
    _ = try await bench.download([("node", [77, nil, nil])])
    #expect(try bench.read("SELECT up FROM node WHERE id = 3") == [[77]])
  }

  @Test("a row that Salvor has removed and the application makes again is captured, whatever was ignored before")
  func madeAgain() async throws {
    var bench = try await StoreBench(Self.schema)
    _ = try await bench.download([("node", [1, nil, 5])])
    try bench.write("INSERT OR IGNORE INTO node VALUES (1, NULL, 5)")
    _ = try await bench.download(deleted: [("node", [1])])
    try bench.write("INSERT INTO node VALUES (1, NULL, 5)")
    #expect(try await bench.store.requests(in: [.queued], after: nil, limit: 10).map(\.key) == [[1]])
    #expect(try await bench.uploadText().session.upload != nil)
  }

  @Test("a row that comes down as the device has it is not written again, and no trigger fires")
  func writtenOnce() async throws {
    var bench = try await StoreBench(Self.schema)
    try bench.write("CREATE TABLE heard (id, rank)")
    for event in ["INSERT", "UPDATE"] {
      try bench.write(
        "CREATE TRIGGER hear_\(event) AFTER \(event) ON node BEGIN INSERT INTO heard VALUES (NEW.id, NEW.rank); END")
    }
    let rows: [(String, Row)] = [("node", [1, nil, 5]), ("node", [2, 1, nil])]
    _ = try await bench.download(rows)
    #expect(try bench.read("SELECT count(*) FROM heard") == [[2]])
    _ = try await bench.download(rows)
    #expect(try bench.read("SELECT count(*) FROM heard") == [[2]])
    _ = try await bench.download([("node", [1, nil, 5]), ("node", [2, 1, 6])])
    #expect(try bench.read("SELECT * FROM heard") == [[1, 5], [2, nil], [2, 6]])
    #expect(try bench.read("SELECT version, v0 FROM salvor_history WHERE v0 = 1 ORDER BY id DESC LIMIT 1") == [[3, 1]])
  }

  @Test("two bases that want one unique value wait for the download that says which has it")
  func uniqueValueOfTwoBases() async throws {
    var bench = try await StoreBench(Self.schema)
    _ = try await bench.download([("node", [1, nil, 5])])
    try bench.write("UPDATE node SET rank = 7 WHERE id = 1")
    _ = try await bench.download([("node", [1, nil, 6])])
    try bench.write("INSERT INTO node VALUES (2, NULL, 6)")
    let session = try await bench.store.beginSession(groups: nil)
    let first = try #require(try await bench.store.requests(in: [.sent], after: nil, limit: 1).first?.id)
    // The server has given the first another value itself, and so took the second.
    try await bench.accept(session, refusing: [Self.refusal(first)])
    #expect(try bench.read("SELECT id, rank FROM node ORDER BY id") == [[1, 7], [2, 6]])
    for _ in 0..<2 {
      let error = await #expect(throws: SalvorError.self) { _ = try await bench.store.remove(.archive(first)) }
      #expect(error?.code == .cannotStand)
      #expect(error?.message.contains("synchronize") == true)
    }
    #expect(try bench.read("SELECT id, rank FROM node ORDER BY id") == [[1, 7], [2, 6]])
    _ = try await bench.download([("node", [1, nil, 8])])
    _ = try await bench.store.remove(.archive(first))
    #expect(try bench.read("SELECT id, rank FROM node ORDER BY id") == [[1, 8], [2, 6]])
    #expect(try await bench.store.status().inError == 0)
    #expect(try bench.isWhole())
  }

  /// The table of `node` has no triggers; a trigger of another one writes to it.
  private static let touching =
    "CREATE TRIGGER touch AFTER INSERT ON leaf BEGIN UPDATE node SET rank = 1000 * NEW.node + NEW.line WHERE id = NEW.node; END"

  @Test("what a trigger writes to a row of the same download is undone")
  func triggersAndDownloadedRows() async throws {
    var bench = try await StoreBench(Self.schema)
    try bench.write(Self.touching)
    _ = try await bench.download([("node", [1, nil, 7]), ("leaf", [1, 1, nil, "a"]), ("node", [2, nil, 8])])
    #expect(try bench.read("SELECT id, rank FROM node ORDER BY id") == [[1, 7], [2, 8]])
    #expect(try await bench.store.status().queued == 0)
    // The row comes after what its trigger wrote to.
    _ = try await bench.download([("leaf", [2, 1, nil, "b"]), ("node", [2, nil, 9])])
    #expect(try bench.read("SELECT id, rank FROM node ORDER BY id") == [[1, 7], [2, 9]])
    #expect(try bench.isWhole())
  }

  @Test("what a trigger writes to a row with a request is undone, and the request says what it said")
  func triggersAndRequests() async throws {
    var bench = try await StoreBench(Self.schema)
    try bench.write(Self.touching)
    _ = try await bench.download([("node", [1, nil, 7])])
    try bench.write("UPDATE node SET rank = 70 WHERE id = 1")
    _ = try await bench.download([("leaf", [1, 1, nil, "a"])])
    #expect(try bench.read("SELECT rank FROM node") == [[70]])
    let queued = try await bench.store.requests(in: [.queued], after: nil, limit: 10)
    #expect(queued.map(\.before) == [[NamedValue("rank", 7)]])
    #expect(queued.map(\.after) == [[NamedValue("rank", 70)]])
  }

  @Test("a displaced request that returns fires triggers, and what they write is undone")
  func triggersAndReturns() async throws {
    var bench = try await StoreBench(Self.schema)
    try bench.write(Self.touching + "; CREATE TABLE heard (id)")
    try bench.write("CREATE TRIGGER hear AFTER INSERT ON leaf BEGIN INSERT INTO heard VALUES (NEW.line); END")
    _ = try await bench.download([("node", [1, nil, 7])])
    try bench.write("INSERT INTO leaf VALUES (1, 1, NULL, 'a')")
    _ = try await bench.download([("node", [2, nil, 8]), ("leaf", [2, 1, nil, "a"])])
    #expect(try await bench.store.status().displaced == 1)
    let heard = try bench.read("SELECT count(*) FROM heard")
    _ = try await bench.download([("leaf", [2, 1, nil, "b"])])
    #expect(try await bench.store.status().displaced == 0)
    #expect(try bench.read("SELECT node, line, note FROM leaf ORDER BY node") == [[1, 1, "a"], [2, 1, "b"]])
    #expect(try bench.read("SELECT count(*) FROM heard") != heard)
    // The application's own insert set it before; the download did not.
    #expect(try bench.read("SELECT id, rank FROM node ORDER BY id") == [[1, 1001], [2, 8]])
    #expect(try bench.isWhole())
  }

  @Test(
    "a row with a request that an application's trigger deletes during a download is what the download makes of it",
    arguments: [false, true], ["BEFORE", "AFTER"])
  func cascadesOfTriggers(isDeleted: Bool, time: String) async throws {
    var bench = try await StoreBench(Self.schema)
    try bench.write("CREATE TRIGGER app \(time) DELETE ON node BEGIN DELETE FROM leaf WHERE note = OLD.rank; END")
    _ = try await bench.download([
      ("node", [1, nil, nil]), ("node", [2, nil, 7]), ("leaf", [1, 1, nil, "7"]), ("leaf", [1, 2, nil, "8"]),
    ])
    try bench.write("UPDATE leaf SET note = '7' WHERE line = 2")
    _ = try await bench.download(deleted: (isDeleted ? [("leaf", [1, 2])] : []) + [("node", [2])])
    #expect(
      try bench.read("SELECT line, note FROM leaf ORDER BY line") == (isDeleted ? [[1, "7"]] : [[1, "7"], [2, "7"]]))
    #expect(try await bench.store.status().displaced == (isDeleted ? 1 : 0))
    #expect(try bench.isWhole())
  }

  @Test("a removal brings back at once what nothing is in the way of any more")
  func removalsReturn() async throws {
    var bench = try await StoreBench(Self.schema)
    try bench.write("INSERT INTO node VALUES (1, NULL, 7)")
    _ = try await bench.download([("node", [2, nil, 7])])
    #expect(try await bench.store.status().displaced == 1)
    try bench.write("UPDATE node SET rank = 8 WHERE id = 2")
    try bench.write("INSERT INTO node VALUES (3, NULL, 9)")
    let last = try await bench.store.requests(in: [.queued], after: nil, limit: 10).last
    let report = try await bench.store.remove(.withdraw(try #require(last).id))
    #expect(report.returned.count == 1)
    #expect(try bench.read("SELECT id, rank FROM node ORDER BY id") == [[1, 7], [2, 8]])
    #expect(try await bench.store.status().displaced == 0)
    #expect(try bench.isWhole())
  }

  @Test("no counter is given twice, though triggers wrote while a row that a recovery made again was displaced")
  func countersOfARecovery() async throws {
    var bench = try await StoreBench(Self.schema)
    let nodes: [(String, Row)] = [
      ("node", [1, nil, 7]), ("node", [2, nil, nil]), ("node", [3, nil, nil]), ("node", [4, nil, nil]),
    ]
    _ = try await bench.download([("node", [8, nil, nil])])
    _ = try await bench.download(nodes)
    try bench.write("INSERT INTO leaf VALUES (1, 1, NULL, 'x')")
    try bench.write(Self.touching)
    // The server has lost nodes 1 to 4, and gave the rank of the first to another.
    let report = try await bench.recover(
      [
        .lost("node", [1]), .lost("node", [2]), .lost("node", [3]), .lost("node", [4]), .row("node", [9, nil, 7]),
        .row("leaf", [9, 5, nil, nil]), .row("leaf", [8, 6, nil, nil]),
      ], bench.order(shared: 1))
    #expect(report.counts.lost == 3)
    #expect(try bench.read("SELECT id, rank FROM node ORDER BY id") == [[8, nil], [9, 7]])
    let counters = try bench.read("SELECT count(*), count(DISTINCT seq) FROM salvor_archive")[0]
    #expect(counters[0] == counters[1])
    #expect(try bench.isWhole())
  }

  @Test("a row that a STRICT table does not take is left out and named, and the rest arrives")
  func strictTables() async throws {
    let schema = Schema(tables: [
      Table("size", primaryKey: ["id"], columns: [Column("id", .text), Column("width", .integer, nullable: true)])
    ])
    var bench = try await StoreBench(
      schema, sql: "CREATE TABLE size (id TEXT NOT NULL PRIMARY KEY, width INTEGER) STRICT")
    let report = try await bench.download([("size", ["a", 1]), ("size", ["b", "wide"]), ("size", ["c", 3])])
    #expect(try bench.read("SELECT id, width FROM size ORDER BY id") == [["a", 1], ["c", 3]])
    #expect(report.notices.count == 1)
    #expect(report.notices[0].contains("The row [b] of size was left out"))
    #expect(!report.notices[0].contains("wide"))
    _ = try await bench.download([("size", ["b", 2])])
    #expect(try bench.read("SELECT id, width FROM size ORDER BY id") == [["a", 1], ["b", 2], ["c", 3]])
  }

  @Test(
    "a change on a row that its table does not take any more is displaced, and returns with it; one that makes it fit stands (decision 211)"
  )
  func refusedBases() async throws {
    let schema = Schema(tables: [
      Table(
        "size", primaryKey: ["id"],
        columns: [
          Column("id", .text), Column("width", .integer, nullable: true), Column("note", .text, nullable: true),
        ])
    ])
    var bench = try await StoreBench(
      schema, sql: "CREATE TABLE size (id TEXT NOT NULL PRIMARY KEY, width INTEGER CHECK (width < 10), note TEXT)")
    _ = try await bench.download([("size", ["a", 1, nil]), ("size", ["b", 2, nil])])
    try bench.write("UPDATE size SET note = 'mine' WHERE id = 'a'")
    try bench.write("UPDATE size SET width = 4 WHERE id = 'b'")
    let report = try await bench.download([("size", ["a", 50, nil]), ("size", ["b", 50, nil])])
    #expect(report.notices.contains { $0.contains("The row [a] of size was left out") }, "\(report.notices)")
    #expect(report.displaced.count == 1 && report.leftOut == 1)
    #expect(try bench.read("SELECT * FROM size") == [["b", 4, nil]])
    // Without its change nothing of the other one fits either.
    let change = try #require(try await bench.store.requests(in: [.queued], after: nil, limit: 10).first)
    _ = try await bench.store.remove(.withdraw(change.id))
    #expect(try bench.read("SELECT * FROM size") == [])
    #expect(try await bench.store.notes().contains { $0.text.contains("The row [b] of size was left out") })
    _ = try await bench.download([("size", ["a", 5, nil]), ("size", ["b", 6, nil])])
    #expect(try bench.read("SELECT * FROM size ORDER BY id") == [["a", 5, "mine"], ["b", 6, nil]])
    #expect(try bench.isWhole())
  }
}
