import Foundation
import NoAuthentication
import SQLiteServerStore
import SQLiteSupport
import SalvorModel
import SalvorServerEngine
import SalvorStorage
import SalvorTransport
import SalvorWire
import Testing

/// What devices begin and leave ends, and one principal has so much of it; who asks how the server is, is told at once.
@Suite("What was begun and left") struct LeftBehindTests {
  private static let schema = Schema(tables: [
    Table("note", primaryKey: ["id"], columns: [Column("id", .text), Column("body", .text, nullable: true)])
  ])

  private final class SetClock: Clock {
    private let time = Mutex<Int64>(1_700_000_000_000)
    func now() -> Int64 { time.withLock { $0 } }
    func sleep(milliseconds: Int64) async throws { try await Task.sleep(for: .milliseconds(1)) }
    func pass(_ milliseconds: Int64) { time.withLock { $0 += milliseconds } }
  }

  private final class Lines: Sendable {
    private let lines = Mutex<[String]>([])
    func add(_ line: String) { lines.withLock { $0.append(line) } }
    var all: [String] { lines.withLock { $0 } }
  }

  private struct Answer {
    var status: Int
    var code: String?
    var retryAfter: String?
    var lines: [JSONValue]
    var token: String? { lines.first?["session"]?["token"]?.string }
  }

  private final class Desk {
    let path: String
    let clock = SetClock()
    let log = Lines()
    private(set) var engine: ServerEngine
    private let limits: Limits

    init(_ change: (inout Limits) -> Void = { _ in }) async throws {
      let directory = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-left-\(UUID())")
      try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
      path = directory.appendingPathComponent("consolidated.db").path
      var limits = Limits()
      change(&limits)
      self.limits = limits
      engine = try await Self.start(path, limits, clock, log)
    }

    deinit {
      try? FileManager.default.removeItem(atPath: URL(fileURLWithPath: path).deletingLastPathComponent().path)
    }

    private static func start(
      _ path: String, _ limits: Limits, _ clock: SetClock, _ log: Lines
    ) async throws -> ServerEngine {
      let store = SQLiteServerStore(
        SQLiteServerStore.Options(
          path: path, durability: .normal, busyTimeoutMilliseconds: 600_000, limits: limits, clock: clock))
      return try await ServerEngine.start(
        ServerConfiguration(
          schema: LeftBehindTests.schema, store: store, authentication: NoAuthentication(), compressions: [],
          limits: limits, clock: clock, log: Log.lines { [log] in log.add($0) })
      ).0
    }

    func restart() async throws {
      await engine.stop()
      engine = try await Self.start(path, limits, clock, log)
    }

    func send(_ method: String, _ path: String, _ body: String = "", as principal: String = "anna") async throws
      -> Answer
    {
      let response = await engine.handle(
        TransportRequest(
          method: method, path: path, headers: ["salvor-principal": principal], body: .bytes(Array(body.utf8))))
      let bytes = try await response.body.collect(upTo: 1 << 20)
      let lines = bytes.split(separator: 0x0A).compactMap { try? JSONValue(parsing: Array($0)) }
      return Answer(
        status: response.status, code: lines.first?["code"]?.string, retryAfter: response.headers["retry-after"],
        lines: lines)
    }

    func begin(
      _ remote: RemoteID, current: SequenceID? = nil, upload: BeginMessage.Upload = .none, server: ServerID? = nil,
      as principal: String = "anna"
    ) async throws -> Answer {
      let message = BeginMessage(
        remote: remote, server: server, previous: nil, current: current, schemaVersion: 1,
        schemaDigest: SyncConfig(LeftBehindTests.schema).digest, groups: [], upload: upload, position: nil, history: nil
      )
      return try await send("POST", "/v1/sync", message.json.text + "\n", as: principal)
    }

    /// A begin that is going to stage; its token.
    func staging(_ remote: RemoteID, _ sequence: SequenceID) async throws -> String {
      try #require(try await begin(remote, current: sequence, upload: .staged).token)
    }

    func chunk(_ token: String, _ index: Int, _ body: String) async throws -> Answer {
      try await send("PUT", "/v1/sync/\(token)/chunks/\(index)?first=\(index * 10 + 1)&last=\(index * 10 + 2)", body)
    }

    /// As the administration says it.
    func stagedBytes() throws -> Int64 {
      try SQLiteConnection(path).integer("SELECT coalesce(sum(length(bytes)), 0) FROM salvor_staging") ?? -1
    }
  }

  private func remote() -> RemoteID { RemoteID(from: SystemRandom()) }
  private func sequence() -> SequenceID { SequenceID(from: SystemRandom()) }

  @Test("a session that nobody continues ends, and its token with it; one that is continued goes on")
  func idle() async throws {
    let desk = try await Desk()
    let (remote, sequence) = (remote(), sequence())
    let token = try await desk.staging(remote, sequence)
    #expect(try await desk.chunk(token, 0, "first").status == 204)
    desk.clock.pass(29_000)
    #expect(try await desk.chunk(token, 1, "second").status == 204)
    desk.clock.pass(29_000)
    #expect(try await desk.chunk(token, 2, "third").status == 204)
    desk.clock.pass(30_000)
    let late = try await desk.chunk(token, 3, "fourth")
    #expect(late.status == 404)
    #expect(late.code == "session-unknown")
    // The device begins again, and goes on where it was.
    let again = try await desk.begin(remote, current: sequence, upload: .staged)
    #expect(again.lines.first?["session"]?["staged"]?["chunks"]?.integer == 3)
    // One that nobody asks about is gone, too.
    desk.clock.pass(30_000)
    await desk.engine.tidy(stagingMilliseconds: 86_400_000)
    let metrics = try await desk.engine.handle(TransportRequest(method: "GET", path: "/metrics")).body
      .collect(upTo: 1 << 20)
    #expect(String(decoding: metrics, as: UTF8.self).contains("salvor_sessions 0\n"))
  }

  @Test("staging that nobody continues is emptied after its retention, also over restarts; one that is continued stays")
  func stagingEnds() async throws {
    let desk = try await Desk()
    let day: Int64 = 86_400_000
    let (left, continued) = ((remote(), sequence()), (remote(), sequence()))
    #expect(try await desk.chunk(try await desk.staging(left.0, left.1), 0, "left").status == 204)
    #expect(try await desk.chunk(try await desk.staging(continued.0, continued.1), 0, "goes").status == 204)
    desk.clock.pass(day / 2)
    try await desk.restart()
    #expect(try await desk.chunk(try await desk.staging(continued.0, continued.1), 1, "on").status == 204)
    desk.clock.pass(day / 2 + 1)
    await desk.engine.tidy(stagingMilliseconds: day)
    #expect(try desk.stagedBytes() == 6)
    let again = try await desk.begin(left.0, current: left.1, upload: .staged)
    #expect(again.lines.first?["session"]?["staged"]?["chunks"]?.integer == 0)
    desk.clock.pass(day)
    try await desk.restart()
    await desk.engine.tidy(stagingMilliseconds: day)
    #expect(try desk.stagedBytes() == 0)
  }

  @Test("an empty chunk is refused, and nothing of it is kept")
  func emptyChunk() async throws {
    let desk = try await Desk()
    let token = try await desk.staging(remote(), sequence())
    let answer = try await desk.chunk(token, 0, "")
    #expect(answer.status == 400)
    #expect(answer.code == "malformed")
    #expect(try await desk.chunk(token, 0, "x").status == 204)
  }

  @Test(
    "a principal has so many sessions, remote IDs, staged bytes and chunks; beyond is quota, and the operator reads whose"
  )
  func quotas() async throws {
    let desk = try await Desk {
      $0.principalSessionsMax = 2
      $0.principalRemotesMax = 3
      $0.principalStagedBytesMax = 10
      $0.uploadChunksMax = 2
    }
    func expectQuota(_ answer: Answer, _ limit: String) {
      #expect(answer.status == 429)
      #expect(answer.code == "quota")
      #expect(answer.lines.first?["limit"]?.string == limit)
    }
    let (first, second) = ((remote(), sequence()), (remote(), sequence()))
    let token = try await desk.staging(first.0, first.1)
    let other = try await desk.staging(second.0, second.1)
    let third = try await desk.begin(remote(), current: sequence(), upload: .staged)
    expectQuota(third, "principalSessionsMax")
    #expect(third.retryAfter == "30")
    // Another principal is not concerned.
    #expect(try await desk.begin(remote(), current: sequence(), upload: .staged, as: "ben").status == 200)

    #expect(try await desk.chunk(token, 0, "123456").status == 204)
    expectQuota(try await desk.chunk(other, 0, "12345"), "principalStagedBytesMax")
    #expect(try await desk.chunk(other, 0, "1234").status == 204)
    // The same chunk again counts once.
    #expect(try await desk.chunk(token, 0, "654321").status == 204)
    #expect(try await desk.chunk(token, 0, "6").status == 204)
    #expect(try await desk.chunk(token, 1, "7").status == 204)
    expectQuota(try await desk.chunk(token, 2, "8"), "uploadChunksMax")

    // The third remote of this principal was registered, though its session was refused.
    desk.clock.pass(30_000)
    expectQuota(try await desk.begin(remote()), "principalRemotesMax")
    #expect(try await desk.engine.delete(remote: second.0))
    #expect(try await desk.begin(remote()).status == 200)
    for limit in ["principalSessionsMax", "principalStagedBytesMax", "uploadChunksMax", "principalRemotesMax"] {
      #expect(desk.log.all.contains { $0.contains("'anna'") && $0.contains(limit) }, "\(limit)")
    }
    #expect(!desk.log.all.contains { $0.contains("'ben'") })
  }

  @Test("1,000 refused begins are not 1,000 lines of the log, and what is left out is counted")
  func logLines() async throws {
    let desk = try await Desk()
    let remote = remote()
    for _ in 0..<1000 {
      #expect(try await desk.begin(remote, server: ServerID(from: SystemRandom())).status == 409)
    }
    #expect(try await desk.begin(remote, server: ServerID(from: SystemRandom()), as: "ben").status == 409)
    #expect(desk.log.all.filter { $0.contains("-10400") }.count == 21)
    desk.clock.pass(60_000)
    #expect(try await desk.begin(remote, server: ServerID(from: SystemRandom())).status == 409)
    #expect(desk.log.all.contains("980 more lines of this kind about 'anna' were left out."))
  }

  @Test("who begins, or asks how the server is, waits for nobody who writes")
  func readersDoNotWait() async throws {
    let desk = try await Desk()
    let remotes = (remote(), remote())
    #expect(try await desk.begin(remotes.0).status == 200)
    #expect(try await desk.begin(remotes.1, as: "ben").status == 200)
    let other = try SQLiteConnection(desk.path)
    try other.execute("BEGIN IMMEDIATE; INSERT INTO note (id) VALUES ('n1')")
    // An upload waits for the other program.
    let engine = desk.engine
    let waiting = Task {
      await engine.handle(
        TransportRequest(
          method: "POST", path: "/v1/sync", headers: ["salvor-principal": "carl"],
          body: .bytes(
            BeginMessage(
              remote: RemoteID(from: SystemRandom()), server: nil, previous: nil, current: nil, schemaVersion: 1,
              schemaDigest: SyncConfig(Self.schema).digest, groups: [], upload: .none, position: nil, history: nil
            ).json.bytes + [0x0A])))
    }
    #expect(try await desk.send("GET", "/readyz").status == 200)
    #expect(try await desk.send("GET", "/metrics").status == 200)
    #expect(try await desk.begin(remotes.0).status == 200)
    #expect(try await desk.begin(remotes.1, as: "ben").status == 200)
    #expect(try await desk.send("GET", "/readyz").status == 200)
    try other.execute("COMMIT")
    #expect(await waiting.value.status == 200)
  }

  @Test("a stop drops what waits for its turn, and whoever comes then is told to come back")
  func stops() async throws {
    let desk = try await Desk()
    desk.engine.endWaiting()
    let answer = try await desk.begin(remote())
    #expect(answer.status == 503)
    #expect(answer.code == "overloaded")
    #expect(answer.retryAfter == "1")
  }
}
