import Foundation
import SQLiteServerStore
import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import Testing

/// What a device that recovers asks the server's database (semantics 6 and 9).
@Suite struct RecoveryQueryTests {
  static let schema = Schema(tables: [
    Table(
      "site", primaryKey: ["id"],
      columns: [Column("id", .text), Column("owner", .text), Column("name", .text, nullable: true)],
      scope: [ScopeColumn(column: "owner", source: .principal)]),
    Table(
      "part", primaryKey: ["site_id", "line"],
      columns: [Column("site_id", .text), Column("line", .integer), Column("weight", .real, nullable: true)]),
  ])

  private let anna = ReadScope(Principal(name: "anna"))

  private func desk(_ statements: String) async throws -> ServerDesk {
    let desk = try await ServerDesk(Self.schema)
    try desk.other().execute(statements)
    return desk
  }

  private func lines(_ desk: ServerDesk, _ query: RowQuery) async throws -> [String] {
    try await desk.store.rows(matching: query, for: anna).withUnsafeBufferPointer { try Handset.lines($0) }
  }

  private func digest(_ values: Value...) -> String { RowDigest(values).text }

  @Test("Keys: rows with another digest are sent; rows that are gone are lost, and another's have left")
  func keys() async throws {
    let desk = try await desk(
      "INSERT INTO site VALUES ('s1', 'anna', 'one'), ('s2', 'anna', NULL), ('s3', 'berta', 'hers')")
    let keys: [Key] = [["s1"], ["s2"], ["s3"], ["s4"]]
    let all = try await lines(desk, RowQuery(table: "site", keys: keys))
    #expect(all == ["site s1 anna one", "site s2 anna null", "<site s3", "?site s4"])
    let some = try await lines(
      desk,
      RowQuery(
        table: "site", keys: keys,
        digests: [digest("s1", "anna", "one"), digest("s2", "anna", "x"), digest("s3", "berta", "hers"), digest()]))
    #expect(some == ["site s2 anna null", "<site s3", "?site s4"])
  }

  /// Goes back by an hour with each look.
  private final class BackwardsClock: SalvorModel.Clock, @unchecked Sendable {
    private let lock = NSLock()
    private var time: Int64 = 1_800_000_000_000
    func now() -> Int64 {
      lock.withLock {
        time -= 3_600_000
        return time
      }
    }
    func sleep(milliseconds: Int64) async throws {}
  }

  @Test("The shared commit is the one with the highest number, whatever the server's clock said when they were made")
  func sharedByNumber() async throws {
    let path = try freshDatabase()
    let store = SQLiteServerStore(
      SQLiteServerStore.Options(path: path, durability: .normal, clock: BackwardsClock()))
    _ = try await store.open(ServerSetup(schema: Self.schema))
    var commits: [Commit] = [try await store.sweep()]
    for number in 1...3 {
      try SQLiteConnection(path).execute("INSERT INTO site VALUES ('s\(number)', 'anna', NULL)")
      commits.append(try await store.sweep())
    }
    let unknown = Commit(number: 99, id: CommitID(from: SystemRandom()))
    for known in [commits, commits.reversed(), [commits[2], commits[3], commits[1]]] {
      let admission = try await store.admit(
        AdmissionQuery(
          remote: RemoteID(from: SystemRandom()), previous: nil, current: nil, cursors: [],
          commits: [unknown] + known))
      #expect(admission.lastShared == commits[3])
    }
    await store.close()
  }

  @Test("A range: named rows where their digests differ, all the others, and what is lost; nothing beyond it")
  func range() async throws {
    let desk = try await desk(
      "INSERT INTO site VALUES ('a', 'anna', '1'), ('b', 'anna', '2'), ('c', 'anna', '3'), ('d', 'berta', '4'), ('e', 'anna', '5')"
    )
    let found = try await lines(
      desk,
      RowQuery(
        table: "site", range: RowQuery.Range(after: ["a"], last: ["d"]), keys: [["b"], ["bb"]],
        digests: [digest("b", "anna", "2"), digest("bb", "anna", "2")]))
    #expect(found == ["site c anna 3", "?site bb"])
    let whole = try await lines(desk, RowQuery(table: "site", range: RowQuery.Range(after: nil, last: nil), keys: []))
    #expect(whole == ["site a anna 1", "site b anna 2", "site c anna 3", "site e anna 5"])
  }

  @Test("A key of another width and an unknown table are refused by name")
  func malformed() async throws {
    let desk = try await desk("")
    for query in [RowQuery(table: "part", keys: [["x"]]), RowQuery(table: "nothing", keys: [])] {
      let error = await #expect(throws: SalvorError.self) { try await lines(desk, query) }
      #expect(error?.code == .malformed)
      #expect(error?.context["table"] == query.table)
    }
  }

  private func parts(_ desk: ServerDesk, limit: Int = 1000, after: Key? = nil) async throws -> RangePage {
    let range = RowQuery.Range(after: after, last: nil)
    return try await desk.store.ranges(
      RangeQuestion(table: "part", range: range, rowsPerRange: 16), limit: limit, for: anna)
  }

  private static let rows = """
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99)
    INSERT INTO part SELECT 'p' || (i / 10), i % 10, i * 0.5 FROM n ORDER BY
    """

  @Test("Equal rows give equal ranges, in whatever order they came; a changed row changes exactly one")
  func ranges() async throws {
    let one = try await desk(Self.rows + " i")
    let other = try await desk(Self.rows + " -i")
    let before = try await parts(one)
    #expect(try await parts(other) == before)
    #expect(before.columns == ["site_id", "line", "weight"])
    #expect(before.isLast)
    #expect(before.ranges.map(\.count) == [16, 16, 16, 16, 16, 16, 4])
    #expect(before.ranges.map(\.last) == [["p1", 5], ["p3", 1], ["p4", 7], ["p6", 3], ["p7", 9], ["p9", 5], nil])
    try other.other().execute("UPDATE part SET weight = 3 WHERE site_id = 'p4' AND line = 0")
    let after = try await parts(other)
    #expect(zip(before.ranges, after.ranges).map { $0 == $1 } == [true, true, false, true, true, true, true])
    let sum = try one.other().rows("SELECT * FROM part WHERE (site_id, line) > ('p9', 5)").reduce(UInt64(0)) {
      $0 &+ RowDigest($1).value
    }
    #expect(before.ranges.last?.digest == RowDigest.text(sum))
  }

  @Test("Pages of ranges follow one another; the last range goes to the table's end, even where it is full")
  func pages() async throws {
    let desk = try await desk(Self.rows + " i")
    let whole = try await parts(desk)
    var ranges: [RangeDigest] = []
    var after: Key?
    while true {
      let page = try await parts(desk, limit: 3, after: after)
      ranges += page.ranges
      if page.isLast { break }
      after = try #require(page.ranges.last?.last)
    }
    #expect(ranges == whole.ranges)
    try desk.other().execute("DELETE FROM part WHERE (site_id, line) > ('p9', 5)")
    let full = try await parts(desk)
    #expect(full.ranges.last == RangeDigest(last: nil, count: 16, digest: whole.ranges[5].digest))
    try desk.other().execute("DELETE FROM part")
    let empty = try await parts(desk)
    #expect(empty.ranges == [RangeDigest(last: nil, count: 0, digest: RowDigest.text(0))])
  }

  @Test("Keys are in binary order whatever their collation, and only rows in scope are there")
  func binaryOrder() async throws {
    let desk = try await ServerDesk(
      Self.schema,
      before: """
        CREATE TABLE site (id TEXT NOT NULL COLLATE NOCASE PRIMARY KEY, owner TEXT NOT NULL, name TEXT);
        INSERT INTO site VALUES ('b', 'anna', 1), ('A', 'anna', 2), ('c', 'berta', 3), ('C2', 'anna', 4), ('a2', 'anna', 5);
        """)
    let page = try await desk.store.ranges(
      RangeQuestion(table: "site", rowsPerRange: 1), limit: 10, for: anna)
    #expect(page.ranges.map(\.last) == [["A"], ["C2"], ["a2"], nil])
    let found = try await lines(
      desk, RowQuery(table: "site", range: RowQuery.Range(after: ["A"], last: ["a2"]), keys: [["a"]]))
    #expect(found == ["site C2 anna 4", "site a2 anna 5", "?site a"])
    #expect(try await desk.store.rowCount(of: ["default"], for: anna) == 4)
    #expect(try await desk.store.rowCount(of: [], for: anna) == 0)
    let scopes = try await desk.store.scopes(of: ["default", "unknown"], for: anna)
    #expect(Array(scopes.keys) == ["default"])
    let berta = try await desk.store.scopes(of: ["default"], for: ReadScope(Principal(name: "berta")))
    #expect(scopes["default"] != berta["default"])
  }
}

/// What the operator does with the server's database.
@Suite struct OperatorTests {
  private let schema = RecoveryQueryTests.schema

  @Test("A copy made while others write is whole, of one moment, and never replaces a file")
  func backup() async throws {
    let desk = try await ServerDesk(schema)
    let store = desk.store
    let file = desk.path + ".copy"
    let writing = Task {
      for place in 0..<200 {
        let name = Value(stringLiteral: "s\(place)")
        try await store.write([
          .insert(
            table: "site", values: [NamedValue("id", name), NamedValue("owner", "anna"), NamedValue("name", "x")]),
          .insert(table: "part", values: [NamedValue("site_id", name), NamedValue("line", 1)]),
        ])
      }
    }
    while try desk.other().integer("SELECT count(*) FROM site") ?? 0 < 5 { await Task.yield() }
    try await store.backup(to: file)
    try await writing.value
    let copy = try SQLiteConnection(file, mode: .readOnly)
    let sites = try copy.integer("SELECT count(*) FROM site")
    #expect(try copy.integer("SELECT count(*) FROM part") == sites)
    #expect(try copy.integer("SELECT count(*) FROM salvor_change") == (sites ?? 0) * 2)
    #expect(try copy.scalar("PRAGMA integrity_check")?.string == "ok")
    #expect(try copy.pragma("journal_mode")?.string == "delete")
    #expect(!FileManager.default.fileExists(atPath: file + ".partial"))
    let before = try Data(contentsOf: URL(fileURLWithPath: file))
    let error = await #expect(throws: SalvorError.self) { try await store.backup(to: file) }
    #expect(error?.code == .usage)
    #expect(try Data(contentsOf: URL(fileURLWithPath: file)) == before)
  }

  @Test(
    "A reset can be demanded and met, also in a database of an earlier version; deleting a remote ID ends it")
  func reset() async throws {
    let desk = try await ServerDesk(schema)
    let remote = try await desk.device().remote
    await desk.store.close()
    try desk.other().execute("ALTER TABLE salvor_remote DROP COLUMN reset")
    try await desk.restart()
    func demand() async throws -> Int64? { try await desk.store.remotes().first { $0.id == remote }?.resetDemand }
    #expect(try await demand() == nil)
    #expect(try await desk.store.demandReset(remote))
    let first = try #require(try await demand())
    try await desk.restart()
    #expect(try await demand() == first)
    #expect(try await desk.store.settleReset(remote, demand: first))
    #expect(try await demand() == nil)
    _ = try await desk.store.demandReset(remote)
    _ = try await desk.store.deleteRemote(remote, block: false)
    #expect(try await demand() == nil)
    // A deleted one is told when it comes back; a blocked one is not let in.
    #expect(try await desk.store.demandReset(remote))
    _ = try await desk.store.deleteRemote(remote, block: true)
    #expect(try await desk.store.demandReset(remote) == false)
    #expect(try await desk.store.demandReset(RemoteID(from: SystemRandom())) == false)
  }

  @Test("A restored database says so at each start until it has a new commit")
  func restored() async throws {
    let desk = try await ServerDesk(schema)
    let file = desk.path + ".copy"
    try desk.other().execute("INSERT INTO site VALUES ('s1', 'anna', NULL)")
    _ = try await desk.store.sweep()
    try await desk.store.backup(to: file)
    try desk.other().execute("INSERT INTO site VALUES ('s2', 'anna', NULL)")
    _ = try await desk.store.sweep()
    await desk.store.close()
    try FileManager.default.removeItem(atPath: desk.path)
    try FileManager.default.copyItem(atPath: file, toPath: desk.path)
    try await desk.restart()
    #expect(desk.opening.isRestored)
    try await desk.restart()
    #expect(desk.opening.isRestored)
    try desk.other().execute("INSERT INTO site VALUES ('s3', 'anna', NULL)")
    _ = try await desk.store.sweep()
    try await desk.restart()
    #expect(!desk.opening.isRestored)
  }
}
