import CSQLite
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteServerStore
@testable import SQLiteSupport
@testable import ServerStoreSupport

/// What a device with many groups costs the server that has nothing for it (decision 147).
@Suite struct IdleCostTests {
  private static func schema(_ groups: Int) -> Schema {
    Schema(
      tables: (0..<groups).map { number in
        Table("t\(number)", group: "g\(number)", primaryKey: ["id"], columns: [Column("id", .text)])
      })
  }

  /// Statements that SQLite ran.
  private final class Count {
    var statements = 0
  }

  /// A begin and its answer, of a device whose groups have these cursors.
  ///
  /// - Returns: how many statements they were.
  private func idle(groups count: Int, commits: Int = 1) throws -> Int {
    let connection = try SQLiteConnection(try freshDatabase())
    var installation = Installation(
      connection, ServerSetup(schema: Self.schema(count)), random: SystemRandom(), clock: SystemClock())
    let catalog = try installation.run()
    for number in 0..<commits {
      try connection.execute("INSERT INTO t0 VALUES ('\(number)')")
      _ = try connection.transaction {
        try CommitLog(
          connection, catalog: catalog, incarnation: IncarnationID(from: SystemRandom()), random: SystemRandom(),
          clock: SystemClock()
        ).sweep()
      }
    }
    let heads = try connection.rows("SELECT number, id FROM salvor_commit ORDER BY number DESC").compactMap { row in
      row[1].string.flatMap { CommitID($0) }.map { Commit(number: row[0].integer ?? 0, id: $0) }
    }
    let scope = ReadScope(Principal(name: "anna"))
    let groups = (0..<count).map { number in
      GroupState(
        name: "g\(number)", cursor: heads[number % commits],
        scopeDigest: catalog.digest(ofGroup: "g\(number)", for: scope))
    }
    let remote = RemoteID(from: SystemRandom())
    let incarnation = try connection.scalar("SELECT id FROM salvor_incarnation ORDER BY first_commit DESC LIMIT 1")
    let counted = Count()
    let context = Unmanaged.passUnretained(counted).toOpaque()
    sqlite3_trace_v2(
      connection.database, UInt32(SQLITE_TRACE_STMT),
      { _, context, _, _ in
        Unmanaged<Count>.fromOpaque(context!).takeUnretainedValue().statements += 1
        return 0
      }, context)
    defer { sqlite3_trace_v2(connection.database, 0, nil, nil) }
    let request = PageRequest(
      remote: remote, principal: scope.principal, groups: groups, position: nil, bytesTarget: 1 << 20)
    let admission = try AdmissionBook(connection, catalog).admission(
      AdmissionQuery(
        remote: remote, previous: nil, current: nil, cursors: groups.compactMap(\.cursor),
        incarnation: incarnation?.string.flatMap { IncarnationID($0) }, download: request), now: 0)
    #expect(admission?.cursors == groups.map { _ in .known })
    if commits == 1 {
      let page = try #require(admission?.page)
      #expect(page.groups?.map(\.cursor) == groups.map(\.cursor))
      return counted.statements
    }
    #expect(admission?.page == nil)
    let outcome = try FeedPageMaker.page(
      request, connection, catalog, now: 0, limits: Limits())
    guard case .page(let page, _) = outcome else {
      Issue.record("other programs wrote")
      return 0
    }
    #expect(page.groups?.count == count)
    #expect(page.groups?.allSatisfy { $0.cursor == heads[0] } == true)
    return counted.statements
  }

  @Test("A begin with nothing to do takes one statement, with 100 groups in 100 tables as with 10 in 10")
  func statements() throws {
    #expect(try idle(groups: 10) == 1)
    #expect(try idle(groups: 100) == 1)
  }

  @Test("Cursors of many commits are looked up together")
  func manyCommits() throws {
    #expect(try idle(groups: 100, commits: 30) < idle(groups: 100) + 20)
  }
}
