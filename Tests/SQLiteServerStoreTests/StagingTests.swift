import CSQLite
import MemoryStore
import SalvorModel
import SalvorStorage
import ServerStoreSupport
import Testing

@testable import SQLiteServerStore
@testable import SQLiteSupport

/// What is staged is counted beside its remote, ends by itself, and gives its space back.
@Suite("Staging") struct StagingTests {
  enum Kind: String, CaseIterable, Sendable { case sqlite, memory }

  private final class SetClock: Clock {
    private let time = Mutex<Int64>(1_700_000_000_000)
    func now() -> Int64 { time.withLock { $0 } }
    func sleep(milliseconds: Int64) async throws { pass(milliseconds) }
    func pass(_ milliseconds: Int64) { time.withLock { $0 += milliseconds } }
  }

  private static let schema = Schema(tables: [
    Table("note", primaryKey: ["id"], columns: [Column("id", .text), Column("body", .text, nullable: true)])
  ])

  private let clock = SetClock()
  private let remote = RemoteID(from: SystemRandom())
  private let sequence = SequenceID(from: SystemRandom())

  private func open(_ kind: Kind, _ path: String, _ change: (inout Limits) -> Void = { _ in }) async throws
    -> any ServerStore
  {
    var limits = Limits()
    change(&limits)
    let store: any ServerStore =
      switch kind {
      case .sqlite:
        SQLiteServerStore(SQLiteServerStore.Options(path: path, durability: .normal, limits: limits, clock: clock))
      case .memory: MemoryServerStore(clock: clock, limits: limits)
      }
    _ = try await store.open(ServerSetup(schema: Self.schema))
    try await store.register(remote, principal: "anna")
    return store
  }

  private func chunk(_ index: Int, bytes: Int, isLast: Bool = false) -> UploadChunk {
    UploadChunk(
      bytes: [UInt8](repeating: 0x20, count: bytes), firstCounter: Int64(index * 10 + 1),
      lastCounter: Int64(index * 10 + 2), changeCount: 1, isLast: isLast)
  }

  private func stage(
    _ store: any ServerStore, _ index: Int, bytes: Int, isLast: Bool = false, _ remote: RemoteID? = nil,
    _ sequence: SequenceID? = nil
  ) async throws {
    try await store.stage(
      chunk(index, bytes: bytes, isLast: isLast), index: index, remote: remote ?? self.remote,
      sequence: sequence ?? self.sequence)
  }

  @Test("chunks, bytes and the end are counted, whatever is sent again or replaced", arguments: Kind.allCases)
  func counts(_ kind: Kind) async throws {
    let store = try await open(kind, try freshDatabase())
    func expect(_ chunks: Int, _ bytes: Int64, whole: Bool = false, _ sequence: SequenceID? = nil) async throws {
      let staged = try await store.staged(remote, sequence: sequence ?? self.sequence)
      #expect(
        staged
          == StagedUpload(
            chunks: chunks, lastCounter: chunks == 0 ? 0 : Int64(chunks * 10 - 8), bytes: bytes, isWhole: whole))
    }
    try await expect(0, 0)
    for index in 0..<40 { try await stage(store, index, bytes: 100) }
    try await expect(40, 4000)
    try await stage(store, 20, bytes: 50)
    try await expect(40, 3950)
    await #expect(throws: SalvorError.self) { try await stage(store, 41, bytes: 1) }
    try await stage(store, 40, bytes: 1, isLast: true)
    try await expect(41, 3951, whole: true)
    #expect(try await store.stats().stagedBytes == 3951)
    // Another upload of the same remote takes its place.
    let next = SequenceID(from: SystemRandom())
    try await stage(store, 0, bytes: 7, remote, next)
    try await expect(0, 0)
    try await expect(1, 7, next)
    #expect(try await store.stagedChunk(1, remote: remote, sequence: sequence) == nil)
    #expect(try await store.stagedChunk(1, remote: remote, sequence: next) == nil)
    #expect(try await store.stats().stagedBytes == 7)
    try await store.unstage(remote, sequence: sequence)
    try await expect(1, 7, next)
    try await store.unstage(remote, sequence: next)
    try await expect(0, 0, next)
    #expect(try await store.stats().stagedBytes == 0)
  }

  @Test("quotas are those of the specification", arguments: Kind.allCases)
  func quotas(_ kind: Kind) async throws {
    let store = try await open(kind, try freshDatabase()) {
      $0.principalRemotesMax = 2
      $0.principalStagedBytesMax = 100
      $0.uploadChunksMax = 3
    }
    func limit(_ body: () async throws -> Void) async -> String? {
      do {
        try await body()
        return nil
      } catch {
        return (error as? SalvorError)?.context["limit"]
      }
    }
    let (second, third) = (RemoteID(from: SystemRandom()), RemoteID(from: SystemRandom()))
    try await store.register(second, principal: "anna")
    #expect(await limit { try await store.register(third, principal: "anna") } == "principalRemotesMax")
    // One that is known is not a further one.
    try await store.register(second, principal: "anna")
    try await store.register(third, principal: "ben")
    try await stage(store, 0, bytes: 60)
    #expect(await limit { try await stage(store, 0, bytes: 41, second) } == "principalStagedBytesMax")
    #expect(await limit { try await stage(store, 1, bytes: 41) } == "principalStagedBytesMax")
    try await stage(store, 0, bytes: 100, third)
    try await stage(store, 0, bytes: 40, second)
    try await stage(store, 0, bytes: 1)
    try await stage(store, 1, bytes: 1)
    try await stage(store, 2, bytes: 1)
    #expect(await limit { try await stage(store, 3, bytes: 1) } == "uploadChunksMax")
    _ = try await store.deleteRemote(second, block: false)
    try await stage(store, 0, bytes: 98)
    try await store.register(RemoteID(from: SystemRandom()), principal: "anna")
    #expect(await limit { try await store.register(second, principal: "anna") } == "principalRemotesMax")
  }

  @Test("what nobody continues is forgotten, and nothing else", arguments: Kind.allCases)
  func forgotten(_ kind: Kind) async throws {
    let store = try await open(kind, try freshDatabase())
    let other = RemoteID(from: SystemRandom())
    try await store.register(other, principal: "ben")
    for index in 0..<40 { try await stage(store, index, bytes: 10) }
    clock.pass(1000)
    try await stage(store, 0, bytes: 3, other)
    try await store.forgetStaged(before: clock.now())
    #expect(try await store.staged(remote, sequence: sequence) == StagedUpload())
    #expect(try await store.staged(other, sequence: sequence).chunks == 1)
    #expect(try await store.stats().stagedBytes == 3)
    try await stage(store, 0, bytes: 5)
    #expect(try await store.staged(remote, sequence: sequence).bytes == 5)
  }

  @Test("a chunk costs the same whatever came before it")
  func cost() async throws {
    let path = try freshDatabase()
    let store = try await open(.sqlite, path)
    let known = try await store.admit(AdmissionQuery(remote: remote, previous: nil, current: nil, cursors: []))
    let record = try #require(known.remote)
    let connection = try SQLiteConnection(path)
    let staging = Staging(connection: connection)
    // What SQLite does, instruction by instruction.
    let steps = UnsafeMutablePointer<Int>.allocate(capacity: 1)
    defer { steps.deallocate() }
    var costs: [Int] = []
    for index in 0..<400 {
      steps.pointee = 0
      sqlite3_progress_handler(
        connection.database, 1,
        { counted in
          counted?.assumingMemoryBound(to: Int.self).pointee += 1
          return 0
        }, steps)
      try staging.stage(chunk(index, bytes: 100), index: index, record, sequence, Limits(), now: 1)
      sqlite3_progress_handler(connection.database, 0, nil, nil)
      costs.append(steps.pointee)
    }
    #expect(costs[399] > 0 && costs[399] <= costs[3] + 10, "\(costs[3]), then \(costs[399])")
  }

  @Test("a new database gives the space back that staging took")
  func space() async throws {
    let path = try freshDatabase()
    let store = try await open(.sqlite, path)
    func pages() throws -> Int64 { try SQLiteConnection(path).integer("PRAGMA page_count") ?? 0 }
    let before = try pages()
    for index in 0..<64 { try await stage(store, index, bytes: 128 << 10) }
    #expect(try pages() > before + 2000)
    clock.pass(1)
    try await store.forgetStaged(before: clock.now())
    #expect(try pages() < before + 400)
    #expect(try SQLiteConnection(path).rows("PRAGMA integrity_check") == [["ok"]])
  }

  @Test("what a server that was killed has left over is removed, and counts for nothing")
  func leftOver() async throws {
    let path = try freshDatabase()
    let store = try await open(.sqlite, path)
    for index in 0..<40 { try await stage(store, index, bytes: 10, isLast: index == 39) }
    // Processed, and killed before its chunks were removed.
    let other = try SQLiteConnection(path)
    try other.execute("UPDATE salvor_remote SET staged_sequence = NULL, staged_bytes = 0, staged_chunks = 0")
    #expect(try await store.staged(remote, sequence: sequence) == StagedUpload())
    #expect(try await store.stagedChunk(3, remote: remote, sequence: sequence) == nil)
    let error = await #expect(throws: SalvorError.self) {
      _ = try await store.process(
        ProcessRequest(remote: remote, sequence: sequence, principal: Principal(name: "anna")))
    }
    #expect(error?.code == .chunkMissing)
    try await store.forgetStaged(before: 0)
    #expect(try other.integer("SELECT count(*) FROM salvor_staging") == 0)
    // The same, where the next upload comes first.
    for index in 0..<40 { try await stage(store, index, bytes: 10) }
    try other.execute("UPDATE salvor_remote SET staged_sequence = NULL, staged_bytes = 0, staged_chunks = 0")
    try await stage(store, 0, bytes: 10, isLast: true, remote, SequenceID(from: SystemRandom()))
    #expect(try other.integer("SELECT count(*) FROM salvor_staging") == 1)
  }

  @Test("a database of an earlier version is counted when it is opened")
  func earlier() async throws {
    let path = try freshDatabase()
    let store = try await open(.sqlite, path)
    for index in 0..<3 { try await stage(store, index, bytes: 10, isLast: index == 2) }
    await store.close()
    let other = try SQLiteConnection(path)
    try other.execute("DROP INDEX salvor_remote_staged")
    for column in ["sequence", "bytes", "chunks", "time"] {
      try other.execute("ALTER TABLE salvor_remote DROP COLUMN staged_\(column)")
    }
    let again = try await open(.sqlite, path)
    #expect(
      try await again.staged(remote, sequence: sequence)
        == StagedUpload(chunks: 3, lastCounter: 22, bytes: 30, isWhole: true))
    #expect(try await again.stats().stagedBytes == 30)
  }

  @Test("a long log is trimmed in parts, and what is left is what was to be kept")
  func trimmed() async throws {
    let path = try freshDatabase()
    let store = try await open(.sqlite, path)
    let other = try SQLiteConnection(path)
    try other.execute(
      """
      WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 7000)
      INSERT INTO note (id) SELECT 'n' || i FROM n
      """)
    _ = try await store.sweep()
    clock.pass(1000)
    try other.execute("UPDATE note SET body = 'kept' WHERE id IN ('n1', 'n2')")
    let head = try await store.sweep()
    clock.pass(1000)
    try await store.trim(before: clock.now() - 500)
    #expect(try other.rows("SELECT DISTINCT op, v0 FROM salvor_change ORDER BY v0") == [[2, "n2"]])
    #expect(try other.rows("SELECT number FROM salvor_commit") == [[.integer(head.number)]])
    #expect(try await store.stats().logEntries == 1)
    try await store.trim(before: clock.now() - 500)
    #expect(try await store.sweep() == head)
  }
}
