import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// What depends on what (semantics 7, *Depends on*), and what leaves with a request that cannot stand.
@Suite struct DependenceTests {
  static let schema = Schema(
    groups: [Schema.Group(name: "one"), Schema.Group(name: "two")],
    tables: [
      Table(
        "node", group: "one", primaryKey: ["id"],
        columns: [
          Column("id", .integer), Column("up", .integer, nullable: true), Column("rank", .integer, nullable: true),
        ],
        references: [Reference(column: "up", table: "node", onDelete: .cascade)], unique: [["rank"]]),
      Table(
        "leaf", group: "two", primaryKey: ["node", "line"],
        columns: [
          Column("node", .integer), Column("line", .integer), Column("other", .integer, nullable: true),
          Column("note", .text, nullable: true),
        ],
        references: [
          Reference(column: "node", table: "node", onDelete: .cascade),
          Reference(column: "other", table: "node", onDelete: .setNull),
        ], unique: [["line", "note"]]),
    ])

  /// Few keys and few values, so that requests meet.
  static func statement(_ random: inout Seeded) -> String {
    func number() -> String { "\(1 + random.below(6))" }
    func optional() -> String { random.oneIn(4) ? "NULL" : number() }
    func note() -> String { random.pick(["'a'", "'b'", "NULL"]) }
    switch random.below(9) {
    case 0, 1: return "INSERT OR IGNORE INTO node VALUES (\(number()), \(optional()), \(optional()))"
    case 2: return "UPDATE OR IGNORE node SET up = \(optional()) WHERE id = \(number())"
    case 3: return "UPDATE OR IGNORE node SET rank = \(optional()) WHERE id = \(number())"
    case 4: return "DELETE FROM node WHERE id = \(number())"
    case 5: return "INSERT OR IGNORE INTO leaf VALUES (\(number()), \(number()), \(optional()), \(note()))"
    case 6: return "UPDATE OR IGNORE leaf SET other = \(optional()), note = \(note()) WHERE node = \(number())"
    case 7: return "UPDATE OR IGNORE leaf SET line = \(number()) WHERE line = \(number())"
    default: return "DELETE FROM leaf WHERE line = \(number())"
    }
  }

  @Test("look-ups find what all requests at once give, on random histories", arguments: 1...25 as ClosedRange<UInt64>)
  func lookUpsAgree(_ seed: UInt64) async throws {
    var random = Seeded(seed)
    var bench = try await StoreBench(Self.schema)
    var compared = 0
    for _ in 0..<8 {
      for _ in 0..<8 {
        let statements = (0...random.below(3)).map { _ in Self.statement(&random) }
        let isGroup = random.oneIn(3)
        let sql =
          (isGroup ? ["INSERT INTO salvor_request VALUES (NULL)"] : []) + statements
          + (isGroup ? ["DELETE FROM salvor_request"] : [])
        // A reference may be broken: then nothing is written.
        try? bench.write(sql.joined(separator: "; "))
      }
      compared += try await bench.store.compareDependence()
      let row: Row = [.integer(Int64(1 + random.below(6))), .null, .integer(Int64(1 + random.below(6)))]
      do {
        _ = try await bench.download(
          random.oneIn(3) ? [] : [("node", row)], deleted: random.oneIn(3) ? [("node", [.integer(5)])] : [])
      } catch let error as SalvorError where error.code == .inconsistentDownload {
        try await bench.store.discardStaged()
      }
      compared += try await bench.store.compareDependence()
    }
    #expect(compared > 20)
    #expect(try bench.isWhole())
  }

  @Test func aChainOfAThousandLeavesAndReturnsAsAWhole() async throws {
    var bench = try await StoreBench(Self.schema)
    let chain = (2...1000).map { "INSERT INTO node VALUES (\($0), \($0 - 1), NULL)" }
    try bench.write((["INSERT INTO node VALUES (1, NULL, 7)"] + chain).joined(separator: "; "))
    let report = try await bench.download([("node", [5000, nil, 7])])
    #expect(report.displaced.count == 1000)
    #expect(try bench.read("SELECT id FROM node") == [[5000]])
    _ = try await bench.download([("node", [5000, nil, 8])])
    #expect(try bench.read("SELECT count(*), max(up) FROM node") == [[1001, 999]])
    #expect(try await bench.store.status().queued == 1000)
  }

  @Test func aThousandChangesOfOneRowLeaveTogether() async throws {
    var bench = try await StoreBench(Self.schema)
    let changes = (1...999).map { "UPDATE node SET up = \($0 % 2 == 0 ? "NULL" : "1") WHERE id = 1" }
    try bench.write((["INSERT INTO node VALUES (1, NULL, 7)"] + changes).joined(separator: "; "))
    #expect(try await bench.download([("node", [2, nil, 7])]).displaced.count == 1000)
    #expect(try bench.read("SELECT id FROM node") == [[2]])
  }

  @Test func diamondsAreFollowedOnce() async throws {
    let bench = try await StoreBench(Self.schema)
    // Every node is referenced twice by what follows, 2 to the power of 60 ways lead to the last.
    let layers = (2...60).map {
      "INSERT INTO node VALUES (\($0), \($0 - 1), NULL); INSERT INTO leaf VALUES (\($0), \($0), \($0 - 1), NULL)"
    }
    try bench.write((["INSERT INTO node VALUES (1, NULL, NULL)"] + layers).joined(separator: "; "))
    let first = try #require(try await bench.store.requests(in: [.queued], after: nil, limit: 1).first)
    #expect(first.dependents.count == 118)
    #expect(try await bench.store.compareDependence() == 119)
  }

  @Test func whatDependsIsDecidedOnTheNewBases() async throws {
    var bench = try await StoreBench(Self.schema)
    _ = try await bench.download([
      ("node", [1, nil, nil]), ("node", [2, nil, nil]), ("leaf", [2, 1, 1, nil]),
    ])
    // The second changes a row that references what the first relinks, until the download has it reference nothing.
    try bench.write("UPDATE node SET up = 2, rank = 4 WHERE id = 1; UPDATE leaf SET note = 'x'")
    #expect(try await bench.store.requests(in: [.queued], after: nil, limit: 1).map(\.dependents.count) == [1])
    let report = try await bench.download([("node", [3, nil, 4]), ("leaf", [2, 1, nil, nil])])
    #expect(report.displaced.count == 1)
    #expect(try bench.read("SELECT other, note FROM leaf") == [[nil, "x"]])
    #expect(try await bench.store.status().queued == 1)
  }

  @Test func aSyncOfOneGroupTakesWhatItsRequestsNeed() async throws {
    let bench = try await StoreBench(Self.schema)
    try bench.write(
      "INSERT INTO node VALUES (1, NULL, 1); INSERT INTO node VALUES (2, NULL, 2); INSERT INTO leaf VALUES (2, 1, NULL, 'x')"
    )
    _ = try await bench.store.beginSession(groups: ["two"])
    let sent = try await bench.store.requests(in: [.sent], after: nil, limit: 10)
    #expect(sent.map(\.key) == [[2], [2, 1]])
    #expect(try await bench.store.requests(in: [.queued], after: nil, limit: 10).map(\.key) == [[1]])
  }
}

extension SQLiteClientStore {
  /// The index that was kept has every change of the log, and no other.
  private func compareIndex(_ context: StoreContext) throws {
    let index = try LogIndex(context)
    var wanted: [RowRef: [Int64]] = [:]
    try context.connection.query(
      "SELECT \(context.catalog.logColumns) FROM salvor_log WHERE op IN \(StoreContext.changeOperations) ORDER BY seq"
    ) { row in
      let entry = try context.catalog.entry(from: row)
      let table = try #require(context.catalog.table(number: entry.table))
      wanted[RowRef(table: entry.table, key: entry.key(table)), default: []].append(entry.seq)
      return true
    }
    var found: [RowRef: [Int64]] = [:]
    for table in context.catalog.tables {
      try index.eachRow(of: table) { key in
        found[RowRef(table: table.number, key: key)] = try index.entries(table, key).map(\.seq)
      }
    }
    #expect(found == wanted)
    #expect(index.tables == Set(wanted.keys.map(\.table)))
  }

  /// Compares both for every request; answers how many there were.
  func compareDependence() throws -> Int {
    let context = try opened()
    return try context.connection.transaction {
      try RequestSorting(context).sort()
      try compareIndex(context)
      let all = try FullDependence(context)
      let lookup = try DependenceLookup(context)
      for (place, request) in all.requests.enumerated() {
        #expect(try lookup.dependents(of: [request]) == all.dependents(of: place))
        #expect(try lookup.needs(of: [request]) == all.needs(of: place))
        #expect(try lookup.directNeeds(of: request) == all.direct[place].sorted().map { all.requests[$0] })
      }
      return all.requests.count
    }
  }
}
