import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import Testing

@testable import SQLiteClientStore

/// A large first download arrives in twins of its tables, page by page, and takes their place in one short transaction: a writer
/// of the application waits for none of it, and its changes stand on the rows that came.
@Suite struct ArrivalTests {
  private static let schema = ApplyTests.family

  private static func page(_ place: Int, _ rows: [(String, Row)], full: [String] = [], version: Int64? = nil)
    -> StagedChunk
  {
    var writer = DownloadChunkWriter()
    if !full.isEmpty { writer.full(full) }
    for (name, row) in rows {
      writer.table(name, columns: schema.table(name)?.travelling.map(\.name) ?? [])
      writer.beginRow(version: version)
      for value in row { writer.value(value) }
      writer.endRow()
    }
    return StagedChunk(download: "first", bytes: writer.finish(), position: "p\(place)", rows: Int64(place))
  }

  private static let pages = [
    page(1, [("parent", ["p", "x"]), ("parent", ["q", "x"])], full: ["parent", "child"]),
    page(2, [("child", ["c", "p"]), ("child", ["d", "q"])]),
    page(3, [("parent", ["q", "y"]), ("child", ["e", "q"])]),
  ]

  private static let end = DownloadEnd(
    groups: schema.groups.map {
      GroupState(name: $0.name, cursor: Commit(number: 1, id: CommitID(unchecked: String(repeating: "a", count: 32))))
    })

  /// With the first page in a twin: whoever asks for the state ends what is applied ahead.
  private func bench(_ sql: String = "") async throws -> StoreBench {
    let bench = try await StoreBench(Self.schema, sql: sql)
    try await bench.store.stage(Self.pages[0])
    _ = try await bench.store.status()
    #expect(try isArriving(bench))
    return bench
  }

  private func isArriving(_ bench: StoreBench) throws -> Bool {
    try bench.read("SELECT 1 FROM sqlite_schema WHERE name LIKE 'salvor\\_arriving\\_%' ESCAPE '\\'").isEmpty == false
  }

  private func finish(_ bench: StoreBench, from place: Int = 1) async throws -> ApplyReport {
    for page in Self.pages[place...] { try await bench.store.stage(page) }
    return try await bench.store.apply(Self.end)
  }

  private func expectClean(_ bench: StoreBench) async throws {
    #expect(try bench.isWhole())
    #expect(try !isArriving(bench))
    #expect(try bench.read("SELECT count(*) FROM salvor_staging") == [[0]])
    #expect(try bench.read("PRAGMA integrity_check") == [["ok"]])
    #expect(try bench.read("PRAGMA foreign_key_check").isEmpty)
    let state = try await bench.store.status().state
    #expect(state.stagedDownload == nil && state.stagedPosition == nil && state.stagedRows == nil)
    #expect(state.groups.allSatisfy { $0.isSynchronized })
  }

  @Test("a page that takes longer than the lock may be held is given up in its middle, and arrives in a twin")
  func longPage() async throws {
    let bench = try await StoreBench(Self.schema, clock: SteppingClock())
    let rows: [(String, Row)] = (0..<200).map { ("parent", [.text("k\($0)"), "x"]) }
    try await bench.store.stage(Self.page(1, rows, full: ["parent", "child"]))
    #expect(try isArriving(bench))
    // The lock is free.
    let application = try SQLiteConnection(bench.path, busyTimeoutMilliseconds: 0)
    try application.execute("BEGIN IMMEDIATE; COMMIT")
    application.close()
    #expect(try bench.read("SELECT count(*) FROM parent") == [[0]])
    #expect(try await bench.store.apply(Self.end).upserts == 200)
    #expect(try bench.read("SELECT count(*) FROM parent") == [[200]])
    try await expectClean(bench)
  }

  @Test func nobodySeesRowsBeforeTheyAreAllThereAndNobodyIsKeptFromWriting() async throws {
    let bench = try await bench()
    let application = try SQLiteConnection(bench.path, busyTimeoutMilliseconds: 0)
    for page in Self.pages[1...] {
      try await bench.store.stage(page)
      #expect(try bench.read("SELECT (SELECT count(*) FROM parent) + (SELECT count(*) FROM child)") == [[0]])
      // The lock is free between two pages.
      try application.execute("BEGIN IMMEDIATE; INSERT INTO draft (id) VALUES ('\(page.position)'); COMMIT")
    }
    #expect(try await bench.store.apply(Self.end).upserts == 6)
    #expect(try bench.read("SELECT * FROM parent ORDER BY id") == [["p", "x"], ["q", "y"]])
    #expect(try bench.read("SELECT id FROM child ORDER BY id") == [["c"], ["d"], ["e"]])
    #expect(try bench.read("SELECT count(*) FROM draft") == [[2]])
    #expect(try await bench.store.status().queued == 0)
    try await expectClean(bench)
    // The next downloads go their ordinary way, and what is written is captured.
    try bench.write("UPDATE parent SET name = 'mine' WHERE id = 'p'")
    #expect(try await bench.store.status().queued == 1)
  }

  @Test func changesThatAreMadeMeanwhileStandOnTheRowsThatCame() async throws {
    let bench = try await bench()
    try bench.write(
      "INSERT INTO parent VALUES ('q', 'mine'), ('own', 'mine'), ('gone', 'x'); DELETE FROM parent WHERE id = 'gone'")
    try bench.write("INSERT INTO child VALUES ('oc', 'own')")
    #expect(try await finish(bench).upserts == 6)
    #expect(
      try bench.read("SELECT * FROM parent ORDER BY id") == [["own", "mine"], ["p", "x"], ["q", "mine"]])
    #expect(try bench.read("SELECT id FROM child ORDER BY id") == [["c"], ["d"], ["e"], ["oc"]])
    let queued = try await bench.store.requests(in: [.queued], after: nil, limit: 10)
    #expect(Set(queued.map { "\($0.operation.rawValue) \($0.key[0])" }).isSuperset(of: ["insert own", "insert oc"]))
    try await expectClean(bench)
  }

  @Test func aRowThatWasMadeAndDeletedHereIsDeletedAtTheServerToo() async throws {
    let one = try await bench()
    try one.write("INSERT INTO child VALUES ('c', 'p0'); DELETE FROM child WHERE id = 'c'", parent: "p0")
    _ = try await finish(one)
    // The same history on the way through staging.
    let other = try await StoreBench(Self.schema)
    try other.write("INSERT INTO child VALUES ('c', 'p0'); DELETE FROM child WHERE id = 'c'", parent: "p0")
    _ = try await finish(other, from: 0)
    for sql in ["SELECT * FROM child ORDER BY id", "SELECT * FROM parent ORDER BY id"] {
      #expect(try one.read(sql) == other.read(sql))
    }
    #expect(try await one.store.status().queued == other.store.status().queued)
    try await expectClean(one)
  }

  @Test func aProcessThatEndsGoesOnWhereItWas() async throws {
    let bench = try await bench()
    try await bench.store.stage(Self.pages[1])
    await bench.store.close()
    let store = SQLiteClientStore(path: bench.path)
    _ = try await store.open(ClientSetup(schema: Self.schema, principal: "anna"))
    let state = try await store.beginSession(groups: nil).state
    #expect(state.stagedDownload == "first" && state.stagedPosition == "p2" && state.stagedRows == 2)
    try await store.stage(Self.pages[2])
    #expect(try isArriving(bench))
    #expect(try await store.apply(Self.end).upserts == 6)
    await store.endSession()
    #expect(try bench.read("SELECT * FROM parent ORDER BY id") == [["p", "x"], ["q", "y"]])
    #expect(try !isArriving(bench))
    await store.close()
  }

  @Test(arguments: [
    "ALTER TABLE child ADD COLUMN extra TEXT", "CREATE INDEX own ON parent (name)",
    "CREATE TRIGGER own AFTER INSERT ON parent BEGIN INSERT INTO draft (id) VALUES (new.id || 'd'); END",
  ])
  func aTableThatIsChangedMeanwhileTakesItsRowsAllTheSame(sql: String) async throws {
    let bench = try await bench()
    try await bench.store.stage(Self.pages[1])
    try bench.write(sql)
    // Each row once: what had arrived is told by its rows then.
    #expect(try await finish(bench, from: 2).upserts == 5)
    #expect(try bench.read("SELECT id, name FROM parent ORDER BY id") == [["p", "x"], ["q", "y"]])
    #expect(try bench.read("SELECT id, p FROM child ORDER BY id") == [["c", "p"], ["d", "q"], ["e", "q"]])
    if sql.contains("TRIGGER") { #expect(try bench.read("SELECT id FROM draft ORDER BY id") == [["pd"], ["qd"]]) }
    try await expectClean(bench)
  }

  @Test func aLineThatNeedsMoreThanAnEmptyTableGoesThroughStagingWithAllBefore() async throws {
    let bench = try await bench()
    try await bench.store.stage(Self.pages[1])
    try await bench.store.stage(Self.page(3, [("parent", ["q", "y"]), ("child", ["e", "q"])], version: 7))
    #expect(try !isArriving(bench))
    #expect(try await bench.store.status().state.stagedPosition == "p3")
    #expect(try await bench.store.apply(Self.end).upserts == 6)
    #expect(try bench.read("SELECT * FROM parent ORDER BY id") == [["p", "x"], ["q", "y"]])
    try await expectClean(bench)
  }

  @Test func aRowThatReferencesNothingIsLeftOutAndTheRestIsApplied() async throws {
    let bench = try await bench()
    try await bench.store.stage(Self.page(2, [("child", ["c", "nobody"])]))
    let report = try await bench.store.apply(Self.end)
    #expect(report.leftOut == 1)
    #expect(report.notices.contains { $0.contains("[nobody] of parent") })
    #expect(try bench.read("SELECT count(*) FROM child WHERE p = 'nobody'") == [[0]])
    #expect(try bench.read("SELECT count(*) > 0 FROM parent") == [[1]])
    #expect(try bench.isWhole())
  }

  @Test func whatIsGivenUpLeavesNothing() async throws {
    let bench = try await bench()
    try await bench.store.discardStaged()
    #expect(try !isArriving(bench))
    #expect(try await bench.store.status().state.stagedDownload == nil)
    // Another download in its place.
    try await bench.store.stage(Self.pages[0])
    _ = try await bench.store.status()
    var other = Self.pages[1]
    other.download = "second"
    try await bench.store.stage(other)
    #expect(try await bench.store.status().state.stagedDownload == "second")
    #expect(
      try bench.read("SELECT name FROM sqlite_schema WHERE name LIKE 'salvor\\_arriving\\_1%' ESCAPE '\\'").count <= 1)
  }

  @Test func columnsAndConstraintsOfTheApplicationsOwnAreKept() async throws {
    let sql = """
      CREATE TABLE parent (id TEXT PRIMARY KEY NOT NULL, own INTEGER DEFAULT 7, name TEXT, shout TEXT AS (upper(name)) STORED);
      CREATE INDEX by_own ON parent (own, name COLLATE NOCASE);
      """
    let bench = try await bench(sql)
    #expect(try await finish(bench).upserts == 6)
    #expect(try bench.read("SELECT * FROM parent ORDER BY id") == [["p", 7, "x", "X"], ["q", 7, "y", "Y"]])
    #expect(try bench.read("SELECT id FROM parent INDEXED BY by_own WHERE own = 7 ORDER BY id") == [["p"], ["q"]])
    try await expectClean(bench)
  }
}

extension StoreBench {
  fileprivate func write(_ sql: String, parent: String) throws {
    try write("INSERT INTO parent VALUES ('\(parent)', 'here'); \(sql)")
  }
}

/// A millisecond has passed each time that somebody looks; nobody who sleeps wakes.
private final class SteppingClock: SalvorModel.Clock {
  private let time = Mutex<Int64>(1_700_000_000_000)
  func now() -> Int64 {
    time.withLock { time in
      time += 1
      return time
    }
  }
  func sleep(milliseconds: Int64) async throws { try await Task.sleep(for: .seconds(3600)) }
}
