import SQLiteServerStore
import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import Testing

@testable import ServerStoreSupport

/// Something happens when the time is asked for.
private final class LockingClock: SalvorModel.Clock, @unchecked Sendable {
  var onNow: (() -> Void)?

  func now() -> Int64 {
    onNow?()
    return SystemClock().now()
  }

  func sleep(milliseconds: Int64) async throws { try await SystemClock().sleep(milliseconds: milliseconds) }
}

/// No time passes, however long the machine takes.
private struct StandingClock: SalvorModel.Clock {
  func now() -> Int64 { 1_700_000_000_000 }
  func sleep(milliseconds: Int64) async throws { try await SystemClock().sleep(milliseconds: milliseconds) }
}

/// A tenth of a second passes each time that somebody asks.
private final class RunningClock: SalvorModel.Clock {
  private let time = Mutex<Int64>(1_700_000_000_000)

  func now() -> Int64 {
    time.withLock {
      $0 += 100
      return $0
    }
  }

  func pass(milliseconds: Int64) { time.withLock { $0 += milliseconds } }
  func sleep(milliseconds: Int64) async throws { try await SystemClock().sleep(milliseconds: milliseconds) }
}

/// More offers of one upload than are held in memory (semantics 10).
@Suite struct ManyOffersTests {
  private static let schema = Schema(tables: [
    Table(
      "node", primaryKey: ["id"],
      columns: [
        Column("id", .integer), Column("up", .integer, nullable: true), Column("label", .text, nullable: true),
      ], references: [Reference(column: "up", table: "node")])
  ])
  /// Two blocks of an upload, and twenty times what is held of requests that wait.
  private static let count = 20_000
  private static let label = String(repeating: "lost ", count: 30)

  private let lost = IncarnationID(unchecked: String(repeating: "d", count: 32))

  private func version(_ desk: ServerDesk) async throws -> LostVersion {
    let parting = try await desk.store.sweep().number
    return LostVersion(incarnation: lost, number: parting + 7, parting: parting)
  }

  private func node(_ id: Int, up: Int? = nil) -> HandChange {
    .insert(
      "node",
      [("id", .integer(Int64(id))), ("up", up.map { .integer(Int64($0)) } ?? .null), ("label", .text(Self.label))])
  }

  private func expectNothingStaged(_ desk: ServerDesk) throws {
    #expect(try desk.other().integer("SELECT count(*) FROM salvor_staging") == 0)
  }

  @Test("20,000 offers of one device wait where healing is paused, each once, and go on when it does")
  func paused() async throws {
    let desk = try await ServerDesk(Self.schema)
    let device = try await desk.device()
    let version = try await version(desk)
    try await desk.store.setHealPace(HealPace(isPaused: true))
    let offers = (1...Self.count).map { node($0) }
    let results = try await desk.uploaded(device, offers, version: version)
    #expect(results.waiting == [1...Int64(Self.count)])
    #expect(results.acceptedRequests == 0 && results.refused.isEmpty)
    try expectNothingStaged(desk)
    let other = try desk.other()
    #expect(try other.integer("SELECT count(DISTINCT counter) FROM salvor_heal_waiting") == Int64(Self.count))
    #expect(try other.integer("SELECT count(*) FROM node") == 0)
    try await desk.store.setHealPace(HealPace())
    #expect(try other.integer("SELECT count(*) FROM salvor_heal_waiting") == 0)
    #expect(try other.integer("SELECT count(*) FROM node") == Int64(Self.count))
  }

  @Test("20,000 offers at a rate: as many as it allows are settled, and the others wait for their turn")
  func rate() async throws {
    let desk = try await ServerDesk(Self.schema, clock: StandingClock())
    let device = try await desk.device()
    let version = try await version(desk)
    try await desk.store.setHealPace(HealPace(rowsPerSecond: 100))
    let results = try await desk.uploaded(device, (1...Self.count).map { node($0) }, version: version)
    #expect(results.healed == 100 && results.refused.isEmpty)
    #expect(results.waiting == [101...Int64(Self.count)])
    #expect(try desk.other().integer("SELECT count(*) FROM node") == 100)
    let reasons = try await desk.store.waitingOffers()
    #expect(reasons.map(\.reason) == [.rate] && reasons.map(\.count) == [Int64(Self.count) - 100])
  }

  @Test("nobody who sends, opens or accepts waits for as long as the rate holds the rest back")
  func rateKeepsNobody() async throws {
    let clock = RunningClock()
    let desk = try await ServerDesk(Self.schema, clock: clock)
    let device = try await desk.device()
    let version = try await version(desk)
    try await desk.store.setHealPace(HealPace(rowsPerSecond: 10))
    _ = try await desk.uploaded(device, (1...1000).map { node($0) }, version: version)
    func waiting() throws -> Int64? { try desk.other().integer("SELECT count(*) FROM salvor_heal_waiting") }
    var left = try #require(try waiting())
    #expect(left > 950)
    try await desk.restart()
    _ = try await desk.store.acceptOffers(WaitingQuery())
    #expect(try #require(try waiting()) > left - 50)
    left = try #require(try waiting())
    // Each second goes on.
    clock.pass(milliseconds: 1000)
    try await desk.store.settleWaitingOffers()
    #expect(try #require(try waiting()) <= left - 10)
  }

  @Test("what depends on one of many offers that wait stays with its device; what does not is accepted")
  func dependents() async throws {
    let desk = try await ServerDesk(Self.schema)
    let device = try await desk.device()
    let version = try await version(desk)
    try await desk.store.setHealPace(HealPace(isPaused: true))
    // One upload: offers, and after them ordinary changes.
    let many = 6000
    let plain: [HandChange] = [
      node(many + 1, up: 3), .update("node", [5], [("label", .text(Self.label), "mine")]), node(many + 2),
      node(many + 3, up: many + 2), node(many + 4, up: many + 1),
    ]
    let results = try await desk.uploaded(
      device, (1...many).map { node($0) } + plain, version: version, offers: many)
    let (first, last) = (Int64(many), Int64(many + plain.count))
    #expect(results.refused.isEmpty)
    #expect(results.waiting == [1...(first + 2), last...last])
    #expect(results.acceptedRequests == 2)
    #expect(
      try desk.other().rows("SELECT id FROM node ORDER BY id") == [[.integer(first + 2)], [.integer(first + 3)]])
    // They are sent again when what they need is there.
    try await desk.store.setHealPace(HealPace())
    let again = try await desk.uploaded(device, [plain[0], plain[1], plain[4]])
    #expect(again.acceptedRequests == 3 && again.refused.isEmpty && again.waiting.isEmpty)
  }

  @Test("of many offered children whose parent comes last, in the same upload, none is left behind")
  func parentLast() async throws {
    let desk = try await ServerDesk(Self.schema)
    let device = try await desk.device()
    let version = try await version(desk)
    let many = 6000
    let children = (2...many).map { node($0, up: 1) }
    let results = try await desk.uploaded(device, children + [node(1)], version: version)
    #expect(results.refused.isEmpty)
    #expect(results.acceptedRequests + results.waitingRequests == Int64(many))
    try await desk.store.settleWaitingOffers()
    #expect(try await desk.store.waitingOffers().isEmpty)
    #expect(try desk.other().integer("SELECT count(*) FROM node WHERE id = 1 OR up = 1") == Int64(many))
  }

  @Test("what waits for a parent is found after a restart, however much waits, and whatever the log has since")
  func restart() async throws {
    let desk = try await ServerDesk(Self.schema)
    let device = try await desk.device()
    let version = try await version(desk)
    // More than are looked at in one go.
    let many = 12_000
    let results = try await desk.uploaded(
      device, (1...many).map { node($0, up: $0 > many - 10 ? 100_001 : 100_002) }, version: version)
    #expect(results.waitingRequests == Int64(many))
    try await desk.restart()
    try desk.other().execute("INSERT INTO node (id) VALUES (100001)")
    try await desk.store.settleWaitingOffers()
    #expect(try desk.other().integer("SELECT count(*) FROM node WHERE up = 100001") == 10)
    try desk.other().execute(
      "INSERT INTO node (id) WITH RECURSIVE n(i) AS (SELECT 200000 UNION ALL SELECT i + 1 FROM n WHERE i < 211000) SELECT i FROM n; INSERT INTO node (id) VALUES (100002)"
    )
    try await desk.store.settleWaitingOffers()
    #expect(try desk.other().integer("SELECT count(*) FROM node WHERE up = 100002") == Int64(many - 10))
    #expect(try await desk.store.waitingOffers().isEmpty)
  }

  @Test("many offers that become conflict versions are each kept once, and named to their device")
  func conflicts() async throws {
    let desk = try await ServerDesk(Self.schema)
    let device = try await desk.device()
    let many = 3000
    try desk.other().execute(
      "INSERT INTO node (id, label) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(many)) SELECT i, 'a' FROM n"
    )
    let version = try await version(desk)
    try desk.other().execute("UPDATE node SET label = 'written'")
    let offers = (1...many).map { id in
      HandChange.update("node", [.integer(Int64(id))], [("label", "a", .text(Self.label))])
    }
    let results = try await desk.uploaded(device, offers, version: version)
    #expect(results.conflicts == Int64(many) && results.refused.isEmpty)
    #expect(results.kept == (1...Int64(many)).map { $0 })
    let other = try desk.other()
    #expect(try other.integer("SELECT count(DISTINCT id) FROM salvor_conflict") == Int64(many))
    #expect(try other.integer("SELECT count(*) FROM node WHERE label = 'written'") == Int64(many))
  }

  @Test("a pace holds, and is no error, where another process has the database while what waits is settled")
  func paceBesideAServer() async throws {
    let clock = LockingClock()
    let desk = try await ServerDesk(Self.schema, busyTimeoutMilliseconds: 1, clock: clock)
    let device = try await desk.device()
    let version = try await version(desk)
    try await desk.store.setHealPace(HealPace(isPaused: true))
    #expect(try await desk.uploaded(device, [node(1)], version: version).waitingRequests == 1)
    let other = try desk.other()
    clock.onNow = { try? other.execute("BEGIN IMMEDIATE") }
    try await desk.store.setHealPace(HealPace())
    clock.onNow = nil
    #expect(try await desk.store.healPace() == HealPace())
    #expect(try other.integer("SELECT count(*) FROM salvor_heal_waiting") == 1)
    try other.execute("ROLLBACK")
    try await desk.store.settleWaitingOffers()
    #expect(try other.integer("SELECT count(*) FROM node") == 1)
  }

  @Test("the sketch of rows that wait forgets none, and takes hardly any other for one of them")
  func sketch() {
    var rows = WaitingRows()
    #expect(rows.isEmpty && !rows.mayHold(1))
    let table = RowHash(table: "node")
    func hash(_ id: Int) -> UInt64 { table.adding(CollectionOfOne(Value.integer(Int64(id)))) }
    for id in 0..<100_000 { rows.add(hash(id)) }
    #expect((0..<100_000).allSatisfy { rows.mayHold(hash($0)) })
    #expect((100_000..<200_000).count { rows.mayHold(hash($0)) } < 20)
  }
}
