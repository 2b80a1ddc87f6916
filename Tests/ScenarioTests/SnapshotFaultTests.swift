import ContentHash
import Foundation
import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorServerEngine
import SalvorStorage
import SalvorTransport
import SalvorWire
import Testing

/// What may happen between a file and the feed that goes on from it.
@Suite("Snapshots: what happens meanwhile")
struct SnapshotFaultTests {
  private static let tables = ["place", "shelf"]

  private static func schema(_ more: String = "") -> String {
    """
    {
      version: 1,
      groups: { stock: {} },
      tables: {
        place: { maintained: "dual", group: "stock", primaryKey: "id",
                 columns: { id: "text", name: "text", city: "text?"\(more) }, unique: [["name"]] },
        shelf: { maintained: "dual", group: "stock", primaryKey: ["place_id", "number"],
                 columns: { place_id: "text", number: "integer", note: "text?" },
                 references: { place_id: { table: "place", onDelete: "cascade" } } },
      },
    }
    """
  }

  private func fleet(_ options: String = "") async throws -> Fleet {
    let fleet = try Fleet(
      schema: Self.schema(),
      serverOptions: "authentication: { module: \"none\" }, snapshots: { minRows: 10, maxBehind: 100\(options) },")
    try await fleet.start()
    try fill(fleet, "p")
    return fleet
  }

  private func fill(_ fleet: Fleet, _ prefix: String) throws {
    try fleet.serverConnection().execute(
      """
      WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 100)
      INSERT INTO place SELECT '\(prefix)' || i, 'place \(prefix)' || i, NULL FROM n;
      INSERT INTO shelf SELECT id, 1, 'a' FROM place WHERE id LIKE '\(prefix)%';
      """)
  }

  /// What becomes of the server while a device has the file, or the half of it, and is away.
  enum Event: String, CaseIterable, Sendable { case schemaGrew, restored, purged, replaced, trimmed }

  @Test(
    "a device that has a file, or the half of it, comes back to another server: it has its rows, and no others",
    arguments: Event.allCases, [false, true])
  func meanwhile(_ event: Event, isWhole: Bool) async throws {
    let fleet = try await fleet()
    try await fleet.backup("night")
    try fill(fleet, "q")
    try await fleet.warm()
    let id = try #require(fleet.snapshots.first)
    let size = try Data(contentsOf: URL(fileURLWithPath: try fleet.snapshotFile(id))).count
    let device = try fleet.device("second") { $0.limits.attemptsMax = 1 }
    // The begin, the file, the begin that goes on from it.
    fleet.faults.pass(isWhole ? 2 : 1)
    fleet.faults.inject(isWhole ? .loseRequest : .cutAnswer(after: size / 2))
    #expect(try await device.sync().error?.code == .unreachable)
    #expect(try fleet.snapshotLeftovers().contains { $0.hasSuffix("\(id).part") })
    #expect(try device.rows("place") == [])
    switch event {
    case .schemaGrew:
      fleet.schemaText = Self.schema(", size: \"integer = 7\"")
      try await fleet.restart()
      try fleet.serverConnection().execute("UPDATE place SET size = 8 WHERE id = 'p5'")
    case .restored: try await fleet.restore("night")
    case .purged: _ = try await fleet.server?.engine.purge([["p10"], ["q10"]], of: "place")
    case .replaced:
      try fleet.serverConnection().execute("DELETE FROM place WHERE id = 'p9'; UPDATE shelf SET note = 'b'")
      try await fleet.warm("third", count: 1)
      for name in try FileManager.default.contentsOfDirectory(atPath: fleet.snapshotFolder)
      where name.hasPrefix(id) { removeFile(fleet.snapshotFolder + "/" + name) }
      try await fleet.warm("fourth")
    case .trimmed:
      try fleet.serverConnection().execute("DELETE FROM place WHERE id = 'p9'; UPDATE shelf SET note = 'b'")
      _ = try await fleet.device("third").sync()
      try fleet.serverConnection().execute("UPDATE place SET city = 'z' WHERE id = 'p3'")
      _ = try await fleet.device("fourth").sync()
      await fleet.server?.engine.trim(retentionMilliseconds: -1000)
    }
    await device.close()
    let report = try await device.sync()
    #expect(report.error == nil)
    try fleet.expectEqual(Self.tables, [device])
    if event == .purged { #expect(try device.rows("place").contains { $0[0] == "p10" } == false) }
    if event == .schemaGrew { #expect(try device.rows("place").contains { $0[0] == "p5" && $0[3] == 8 }) }
    #expect(try await device.sync().upserts == 0)
    #expect(try fleet.snapshotLeftovers() == [])
  }

  @Test(
    "something on the way has the file cut short: it is given up within the same synchronization, and the rows come one by one",
    arguments: [206, 416])
  func shortFile(status: Int) async throws {
    let fleet = try await fleet()
    try await fleet.warm()
    let size = try fileSize(fleet)
    let device = try fleet.device("second")
    fleet.faults.pass(1)
    // The file, the next begin, and whoever has the file is asked for the rest.
    fleet.faults.inject(
      .endAnswer(after: size - 20), .meanwhile {},
      .answer(status: status, headers: ["content-range": "bytes \(size - 20)-\(size - 1)/\(size)"]))
    let report = try await device.sync()
    #expect(report.error == nil)
    #expect(report.snapshots == 0)
    #expect(fleet.faults.left == 0)
    try fleet.expectEqual(Self.tables, [device])
    #expect(try fleet.snapshotLeftovers() == [])
  }

  @Test("a device that says it holds a file of a commit that this server never made gets every row")
  func unknownCommit() async throws {
    let fleet = try await fleet()
    let engine = try #require(fleet.server?.engine)
    let digits = String(repeating: "a", count: 32)
    for (remote, commit) in [("b", "[1,\"\(digits)\"]"), ("c", "[999999,\"\(digits)\"]")] {
      let begin = """
        {"begin":{"version":1,"remote":"\(String(repeating: remote, count: 32))","schema":{"version":1,"digest":"none"},"groups":[{"name":"stock"}],"upload":"none","history":{"sequences":[],"incarnations":[],"commits":[],"tables":[]},"snapshot":{"have":[{"group":"stock","commit":\(commit),"scope":"x"}]}}}

        """
      let answer = await engine.handle(
        TransportRequest(
          method: "POST", path: "/v1/sync", headers: ["salvor-principal": "anna"], body: .bytes(Array(begin.utf8)),
          contentLength: begin.utf8.count))
      let text = String(decoding: try await answer.body.collect(upTo: 1 << 20), as: UTF8.self)
      #expect(text.contains("{\"full\":[\"place\",\"shelf\"]}"), "\(text.prefix(400))")
      #expect(text.contains("\"p100\""))
    }
  }

  @Test("the application writes at each step of it: what it wrote stays, goes up, and nothing of the file is lost")
  func writesMeanwhile() async throws {
    let fleet = try await fleet()
    let first = try await fleet.warm()
    for step in 0...2 {
      let device = try fleet.device("at\(step)")
      _ = try await device.open()
      let path = device.path
      fleet.faults.pass(step)
      fleet.faults.inject(
        .meanwhile {
          let connection = try SQLiteConnection(path, busyTimeoutMilliseconds: 5000)
          try connection.execute(
            """
            PRAGMA foreign_keys = ON; INSERT INTO place VALUES ('own\(step)', 'own\(step)', 'here');
            INSERT INTO shelf VALUES ('own\(step)', 1, 'mine'); INSERT INTO place VALUES ('p\(step + 1)', 'mine\(step)', 'here');
            """)
        })
      #expect(try await device.sync().error == nil, "\(step)")
      #expect(fleet.faults.left == 0)
      #expect(try await device.sync().error == nil, "\(step)")
      #expect(try await first.sync().error == nil)
      try fleet.expectEqual(Self.tables, [first, device])
      #expect(try fleet.serverRows("shelf").contains { $0[0] == .text("own\(step)") }, "\(step)")
      #expect(try fleet.snapshotLeftovers() == [])
    }
  }

  @Test(
    "the application writes while the file comes, while the feed comes, and before all is applied"
  )
  func writesWithin() async throws {
    let fleet = try await fleet()
    let first = try await fleet.warm()
    let size = try fileSize(fleet)
    for (step, bytes) in [(1, size / 2), (1, size - 1), (2, 1), (2, 40)] {
      let name = "at\(step)-\(bytes)"
      let device = try fleet.device(name)
      let client = try await device.open()
      let path = device.path
      try fleet.serverConnection().execute("UPDATE place SET city = '\(name)' WHERE id = 'p7'")
      fleet.faults.pass(step)
      fleet.faults.inject(.meanwhileAnswer(after: bytes) { try Self.write(path, "own\(name)") })
      let isWritten = Mutex(false)
      let report = await client.attemptSync { progress in
        let isFirst = isWritten.withLock { written in
          defer { if case .applying = progress { written = true } }
          return !written
        }
        guard case .applying = progress, isFirst else { return }
        do { try Self.write(path, "late\(name)") } catch { Issue.record(error) }
      }
      #expect(report.error == nil, "\(name)")
      #expect(fleet.faults.left == 0)
      #expect(isWritten.withLock { $0 }, "\(name)")
      #expect(try await device.sync().error == nil, "\(name)")
      #expect(try await first.sync().error == nil)
      try fleet.expectEqual(Self.tables, [first, device])
      for own in ["own", "late"] {
        #expect(try fleet.serverRows("shelf").contains { $0[0] == .text(own + name) }, "\(name)")
      }
      #expect(try fleet.snapshotLeftovers() == [])
    }
  }

  private static func write(_ path: String, _ id: String) throws {
    try SQLiteConnection(path, busyTimeoutMilliseconds: 5000).execute(
      """
      PRAGMA foreign_keys = ON; INSERT INTO place VALUES ('\(id)', '\(id)', 'here');
      INSERT INTO shelf VALUES ('\(id)', 1, 'mine');
      """)
  }

  private func fileSize(_ fleet: Fleet) throws -> Int {
    try Data(contentsOf: URL(fileURLWithPath: try fleet.snapshotFile(try #require(fleet.snapshots.first)))).count
  }

  @Test(
    "a link's expiry is the server's clock alone: a device whose clock is a day, or a year, off takes a good link's file",
    arguments: [-366, -1, 1, 366] as [Int64])
  func otherClock(days: Int64) async throws {
    let fleet = try await fleet(", linkExpires: \"1h\"")
    let first = try await fleet.warm()
    let device = try fleet.device("off") { $0.clock = ShiftedClock(days: days) }
    let report = try await device.sync()
    #expect(report.error == nil)
    #expect(report.snapshots == 1)
    #expect(fleet.snapshotsSent == 1)
    try fleet.expectEqual(Self.tables, [first, device])
    #expect(try fleet.snapshotLeftovers() == [])
  }

  @Test("a device whose clock is a day behind asks for a link that has expired once, and goes on by rows")
  func expiredForTheServer() async throws {
    let fleet = try await fleet(", linkExpires: \"1s\"")
    let first = try await fleet.warm()
    let seen = Requests()
    let device = try fleet.device("behind") { configuration in
      configuration.clock = ShiftedClock(days: -1)
      configuration.transport = NotingTransport(base: configuration.transport, seen: seen)
    }
    fleet.faults.pass(1)
    // Longer than the link, whatever it was rounded up to.
    fleet.faults.inject(.meanwhile { Thread.sleep(forTimeInterval: 1.5) })
    let report = try await device.sync()
    #expect(report.error == nil)
    #expect(report.snapshots == 0)
    #expect(seen.files == 1)
    try fleet.expectEqual(Self.tables, [first, device])
    #expect(try fleet.snapshotLeftovers() == [])
    #expect(try await device.sync().error == nil)
    #expect(seen.files == 1)
  }

  @Test("a file that the server itself has named, and that cannot be used, is fetched once, from whichever place")
  func namedUnusable() async throws {
    let fleet = try await fleet(", compression: \"identity\", url: \"https://files.invalid/f\"")
    let first = try await fleet.warm()
    let id = try #require(fleet.snapshots.first)
    // The same rows, and a view: the server's ID is that of the file as it is.
    let path = try fleet.snapshotFile(id)
    try SQLiteConnection(path).execute("CREATE VIEW more AS SELECT * FROM place")
    let bytes = Array(try Data(contentsOf: URL(fileURLWithPath: path)))
    let named = bytes.withUnsafeBytes { BlobHash(of: $0).text }
    let facts = fleet.snapshotFolder + "/\(id).json"
    let size = Int64(bytes.count)
    var snapshot = try Snapshot(JSONValue(parsing: Array(try Data(contentsOf: URL(fileURLWithPath: facts)))))
    (snapshot.id, snapshot.bytes, snapshot.size) = (named, size, size)
    try FileManager.default.moveItem(atPath: path, toPath: path.replacing(id, with: named))
    removeFile(facts)
    try Data(snapshot.json.bytes).write(to: URL(fileURLWithPath: fleet.snapshotFolder + "/\(named).json"))
    let seen = Requests()
    let device = try fleet.device("device") { configuration in
      configuration.transport = NotingTransport(base: configuration.transport, seen: seen)
    }
    let report = try await device.sync()
    #expect(report.error == nil)
    #expect(report.snapshots == 0)
    #expect(seen.elsewhere == 1)
    #expect(seen.files == 0)
    try fleet.expectEqual(Self.tables, [first, device])
    #expect(try fleet.snapshotLeftovers() == [])
    // Another one's bytes at that address say nothing of the server's own.
    let other = try fleet.device("other") { configuration in
      configuration.transport = NotingTransport(base: configuration.transport, seen: seen, alters: true)
    }
    seen.forget()
    #expect(try await other.sync().error == nil)
    #expect((seen.elsewhere, seen.files) == (1, 1))
    try fleet.expectEqual(Self.tables, [first, other])
  }

  @Test("two programs that open one device's database take its group over once")
  func twoPrograms() async throws {
    let fleet = try await fleet()
    try await fleet.warm()
    let (one, other) = (try fleet.device("both"), try fleet.device("both"))
    let clients = (try await one.open(), try await other.open())
    async let first = clients.0.attemptSync()
    async let second = clients.1.attemptSync()
    let reports = await [first, second]
    // The second may find the first at work; it does not take what that one has begun.
    #expect(reports.contains { $0.error == nil })
    for device in [one, other] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(Self.tables, [one, other])
    #expect(try fleet.snapshotLeftovers() == [])
    #expect(reports.map(\.snapshots).reduce(0, +) == 1)
  }

  @Test("a link that expires before the file is fetched: the same synchronization goes on by rows")
  func expired() async throws {
    let fleet = try await fleet(", linkExpires: \"1s\"")
    let first = try await fleet.warm()
    let device = try fleet.device("late")
    fleet.faults.pass(1)
    // Longer than the link, whatever it was rounded up to.
    fleet.faults.inject(.meanwhile { Thread.sleep(forTimeInterval: 1.5) })
    let report = try await device.sync()
    #expect(report.error == nil)
    #expect(report.snapshots == 0)
    #expect(fleet.snapshotsSent == 0)
    try fleet.expectEqual(Self.tables, [first, device])
    #expect(try fleet.snapshotLeftovers() == [])
  }

  @Test("a proxy that passes over Range, or answers with another one, does no harm to a file that is gone on with")
  func ranges() async throws {
    let fleet = try await fleet()
    let first = try await fleet.warm()
    let size = try Data(contentsOf: URL(fileURLWithPath: try fleet.snapshotFile(try #require(fleet.snapshots.first))))
      .count
    for change in [RangeChange.ignored, .other] {
      let device = try fleet.device("\(change)") { configuration in
        configuration.limits.attemptsMax = 1
        configuration.transport = ChangingTransport(base: configuration.transport, change: change)
      }
      fleet.faults.pass(1)
      fleet.faults.inject(.cutAnswer(after: size / 2))
      #expect(try await device.sync().error?.code == .unreachable)
      let report = try await device.sync()
      #expect(report.error == nil, "\(change)")
      #expect(report.snapshots == (change == .ignored ? 1 : 0), "\(change)")
      try fleet.expectEqual(Self.tables, [first, device])
      #expect(try fleet.snapshotLeftovers() == [])
    }
  }
}

private enum RangeChange { case ignored, other }

/// What a proxy makes of a request for a part.
private struct ChangingTransport: ClientTransport {
  let base: any ClientTransport
  let change: RangeChange

  func send(_ request: TransportRequest) async throws -> TransportResponse {
    var request = request
    if request.headers["range"] != nil { request.headers["range"] = change == .ignored ? nil : "bytes=1-" }
    return try await base.send(request)
  }

  func close() async { await base.close() }
}

/// The system's clock, so many days later.
private struct ShiftedClock: Clock {
  let days: Int64
  func now() -> Int64 { SystemClock().now() + days * 86_400_000 }
  func sleep(milliseconds: Int64) async throws { try await SystemClock().sleep(milliseconds: milliseconds) }
}

/// What a device has asked for of files.
private final class Requests: Sendable {
  private let state = Mutex<(files: Int, elsewhere: Int, ranges: [String])>((0, 0, []))
  var files: Int { state.withLock { $0.files } }
  var elsewhere: Int { state.withLock { $0.elsewhere } }
  var ranges: [String] { state.withLock { $0.ranges } }
  func forget() { state.withLock { $0 = (0, 0, []) } }
  func note(elsewhere: Bool, _ headers: [String: String]) {
    state.withLock { state in
      if elsewhere { state.elsewhere += 1 } else { state.files += 1 }
      if let range = headers["range"] { state.ranges.append(range) }
    }
  }
}

/// Notes what is asked for of files; the other address has what the server has.
private struct NotingTransport: FileFetchingTransport {
  let base: any ClientTransport
  let seen: Requests
  var alters = false

  func send(_ request: TransportRequest) async throws -> TransportResponse {
    if request.path.hasPrefix("/v1/snapshots/") { seen.note(elsewhere: false, request.headers) }
    return try await base.send(request)
  }

  func fetch(_ address: String, headers: [String: String]) async throws -> TransportResponse {
    seen.note(elsewhere: true, headers)
    let path = address.replacing("https://files.invalid/f", with: "/v1/snapshots")
    var response = try await base.send(TransportRequest(method: "GET", path: path, headers: headers))
    guard alters else { return response }
    var bytes = try await response.body.collect(upTo: Int.max)
    bytes[bytes.count / 2] ^= 1
    response.body = .bytes(bytes)
    return response
  }

  func close() async { await base.close() }
}
