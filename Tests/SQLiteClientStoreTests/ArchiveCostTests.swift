import CSQLite
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore
@testable import SQLiteSupport

/// What requests in error cost the sessions that have nothing to do with them (semantics 8).
@Suite("A session costs what was captured since the last one, not what is in the error archive")
struct ArchiveCostTests {
  private static let schema = Schema(tables: [
    Table("site", primaryKey: ["id"], columns: [Column("id", .integer), Column("name", .text)]),
    Table(
      "visit", primaryKey: ["id"], columns: [Column("id", .integer), Column("site", .integer)],
      references: [Reference(column: "site", table: "site")]),
  ])

  /// Sites of which as many inserts were refused, and one that was accepted: site 0.
  private static func bench(refused count: Int) async throws -> StoreBench {
    let bench = try await StoreBench(schema)
    try bench.write(
      "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < \(count)) INSERT INTO site SELECT i, 'old' FROM n"
    )
    let session = try await bench.store.beginSession(groups: nil)
    let sent = try await bench.store.requests(in: [.sent], after: nil, limit: .max)
    try await bench.accept(
      session,
      refusing: sent.filter { $0.key != [0] }.map {
        Refusal(counter: $0.id.counter, stamp: $0.id.stamp, reason: .constraint, message: "no")
      })
    // The first one looks at all of them.
    _ = try await bench.store.beginSession(groups: nil)
    await bench.store.endSession()
    return bench
  }

  @Test("nothing to do, and one change of another row")
  func statements() async throws {
    let few = try await Self.bench(refused: 4)
    let many = try await Self.bench(refused: 400)
    #expect(try await few.store.statementsOfABegin() == many.store.statementsOfABegin())
    for bench in [few, many] { try bench.write("UPDATE site SET name = 'new' WHERE id = 0") }
    #expect(try await few.store.statementsOfABegin() == many.store.statementsOfABegin())
  }

  @Test("what is captured later is looked at: an edit is joined, and what needs a refused request is blocked")
  func later() async throws {
    let bench = try await Self.bench(refused: 40)
    try bench.write("INSERT INTO visit VALUES (1, 7), (2, 0)")
    try bench.write("UPDATE site SET name = 'mended' WHERE id = 9")
    let session = try await bench.store.beginSession(groups: nil)
    #expect(session.blocked.count == 1)
    // The refused one and its edit.
    #expect(session.joined.count == 2)
    let blocked = try await bench.store.requests(in: [.blocked], after: nil, limit: 10)
    #expect(blocked.map(\.key) == [[1]])
    #expect(try await bench.store.requests(in: [.refused], after: nil, limit: .max).count == 39)
    let sent = try await bench.store.requests(in: [.sent], after: nil, limit: 10)
    #expect(Set(sent.map { "\($0.table) \($0.key)" }).count == 2)
    #expect(sent.contains { $0.table == "visit" && $0.key == [2] } && sent.contains { $0.key == [9] })
  }
}

extension SQLiteClientStore {
  /// How many statements SQLite runs as a session begins.
  fileprivate func statementsOfABegin() async throws -> Int {
    final class Count {
      var statements = 0
    }
    let database = try opened().connection.database
    let counted = Count()
    sqlite3_trace_v2(
      database, UInt32(SQLITE_TRACE_STMT),
      { _, context, _, _ in
        Unmanaged<Count>.fromOpaque(context!).takeUnretainedValue().statements += 1
        return 0
      }, Unmanaged.passUnretained(counted).toOpaque())
    defer { sqlite3_trace_v2(database, 0, nil, nil) }
    _ = try await beginSession(groups: nil)
    await endSession()
    return counted.statements
  }
}
