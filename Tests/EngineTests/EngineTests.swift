import GzipCompression
import LoopbackTransport
import MemoryStore
import NoAuthentication
import SalvorClientEngine
import SalvorModel
import SalvorServerEngine
import SalvorStorage
import SalvorTransport
import SalvorWire
import Testing

private let schema = Schema(tables: [
  Table(
    "site", primaryKey: ["id"],
    columns: [Column("id", .text), Column("name", .text), Column("city", .text, nullable: true)]),
  Table(
    "visit", primaryKey: ["id"],
    columns: [Column("id", .text), Column("site_id", .text), Column("note", .text, nullable: true)],
    references: [Reference(column: "site_id", table: "site", onDelete: .cascade)]),
])

/// Both engines over the memory stores and the loopback transport: the way of a change without a file or a socket.
private struct Pair {
  let server: ServerEngine
  let serverStore = MemoryServerStore()
  let transport: LoopbackServerTransport
  let network = LoopbackNetwork()
  let limits: Limits

  init(downloads: [OwnThread] = [], _ configure: (inout Limits) -> Void = { _ in }) async throws {
    var limits = Limits()
    limits.chunkBytesTarget = 4 << 10
    configure(&limits)
    self.limits = limits
    var configuration = ServerConfiguration(
      schema: schema, store: serverStore, authentication: NoAuthentication(), compressions: [GzipCompression()],
      limits: limits)
    configuration.downloads = downloads
    (server, _) = try await ServerEngine.start(configuration)
    let server = server
    transport = LoopbackServerTransport(network)
    _ = try await transport.start { await server.handle($0) }
  }

  func client(_ store: MemoryClientStore, principal: String = "anna") -> SalvorClient {
    SalvorClient(
      SalvorClient.Configuration(
        schema: schema, principal: principal, store: store, transport: LoopbackClientTransport(network),
        credentials: credentialHeaders(["principal": principal]), compressions: [GzipCompression()],
        uploadCompression: GzipCompression(), limits: limits))
  }

  func post(_ path: String, _ body: String, headers: [String: String] = [:], method: String = "POST") async throws -> (
    Int, String
  ) {
    let response = await server.handle(
      TransportRequest(
        method: method, path: path, headers: ["salvor-principal": "anna"].merging(headers) { $1 },
        body: .bytes(Array(body.utf8))))
    return (response.status, String(decoding: try await response.body.collect(upTo: 1 << 20), as: UTF8.self))
  }
}

private func insert(_ table: String, _ values: (String, Value)...) -> ApplicationWrite {
  .insert(table: table, values: values.map { NamedValue($0.0, $0.1) })
}

@Suite("Engines over memory stores")
struct EngineTests {
  @Test("changes written together are one tagged request; one that the database refuses leaves nothing (semantics 3)")
  func writtenTogether() async throws {
    let pair = try await Pair()
    let store = MemoryClientStore()
    let client = pair.client(store)
    #expect(await client.attemptSync().error == nil)
    try await client.write(
      [
        insert("site", ("id", "s1"), ("name", "one")),
        insert("visit", ("id", "v1"), ("site_id", "s1")),
      ], tag: "visit 17")
    let queue = try await client.queue()
    #expect(queue.map(\.tag) == ["visit 17", "visit 17"])
    #expect(Set(queue.map(\.id)).count == 1)
    #expect(await client.attemptSync().uploaded == 1)
    #expect(try await pair.serverStore.rows(of: "visit").count == 1)
    await #expect(throws: SalvorError.self) {
      try await client.write([
        insert("site", ("id", "s2"), ("name", "two")), insert("visit", ("id", "v1"), ("site_id", "s2")),
      ])
    }
    #expect(try await client.queue().isEmpty)
    #expect(try await store.rows(of: "site") == (try await pair.serverStore.rows(of: "site")))
    await client.close()
  }

  @Test("rows made on both sides meet in one round trip each")
  func roundTrip() async throws {
    let pair = try await Pair()
    let store = MemoryClientStore()
    let client = pair.client(store)
    try await client.open()
    try await pair.serverStore.write([insert("site", ("id", "s1"), ("name", "one"))])
    try await store.write([
      insert("site", ("id", "s2"), ("name", "two")), insert("visit", ("id", "v1"), ("site_id", "s2")),
    ])
    let report = await client.attemptSync()
    #expect(report.error == nil)
    #expect(report.uploaded == 2)
    #expect(report.roundTrips == 1)
    for table in ["site", "visit"] {
      #expect(try await store.rows(of: table) == pair.serverStore.rows(of: table))
    }
    #expect(try await store.rows(of: "site").count == 2)
    let second = await client.attemptSync()
    #expect(second.uploaded == 0 && second.upserts == 0 && second.error == nil)
  }

  @Test("a large upload goes in chunks under a session, and a large download in pages")
  func large() async throws {
    let pair = try await Pair()
    let store = MemoryClientStore()
    let client = pair.client(store)
    try await client.open()
    try await store.write((0..<500).map { insert("site", ("id", .text("c\($0)")), ("name", .text("client's \($0)"))) })
    try await pair.serverStore.write(
      (0..<500).map { insert("site", ("id", .text("s\($0)")), ("name", .text("server's \($0)"))) })
    let report = await client.attemptSync()
    #expect(report.error == nil)
    #expect(report.uploaded == 500)
    #expect(report.roundTrips > 3)
    #expect(try await store.rows(of: "site").count == 1000)
    #expect(try await store.rows(of: "site") == pair.serverStore.rows(of: "site"))
  }

  private static let malformedBodies: [String: (body: String, code: String)] = [
    "nothing": ("", "malformed"),
    "no begin": ("{}\n", "malformed"),
    "truncated": ("[1,2", "malformed"),
    "another version": ("{\"begin\":{\"version\":99}}\n", "protocol-version"),
    "deeply nested": (String(repeating: "[", count: 10_000), "malformed"),
    "wrong types": ("{\"begin\":{\"version\":1,\"remote\":7}}\n", "malformed"),
  ]

  @Test("malformed requests are problems with a code, and nothing is applied", arguments: malformedBodies.keys.sorted())
  func malformed(name: String) async throws {
    let pair = try await Pair()
    let (body, code) = try #require(Self.malformedBodies[name])
    let (status, text) = try await pair.post("/v1/sync", body)
    #expect(status == 400)
    #expect(try JSONValue(parsing: Array(text.utf8))["code"]?.string == code)
  }

  @Test("a malformed upload is a problem; the remote is registered, nothing is applied, and the next sync is normal")
  func malformedUpload() async throws {
    let pair = try await Pair()
    let id = String(repeating: "a", count: 32)
    let begin =
      "{\"begin\":{\"version\":1,\"remote\":\"\(id)\",\"schema\":{\"version\":1,\"digest\":\"\(SyncConfig(schema).digest)\"},"
      + "\"groups\":[],\"upload\":\"inline\",\"current\":\"\(id)\"}}\n"
    for payload in ["{\"stamp\":\"\(id)\"}\n{\"first\":1,\"made\":0,\"changes\":[[0", "nonsense", "{\"shape\":5}"] {
      let (status, text) = try await pair.post("/v1/sync", begin + payload)
      #expect(status == 400, "\(text)")
    }
    #expect(try await pair.serverStore.rows(of: "site") == [])
    let (status, _) = try await pair.post("/v1/sync", begin)
    #expect(status == 200)
  }

  @Test("another version of the protocol, an unknown path and a coding that is not offered are named")
  func unknown() async throws {
    let pair = try await Pair()
    #expect(try await pair.post("/v2/sync", "").1.contains("protocol-version"))
    #expect(try await pair.post("/v1/nothing", "").0 == 404)
    #expect(try await pair.post("/v1/sync", "x", headers: ["content-encoding": "br"]).0 == 415)
    #expect(try await pair.post("/admin/v1/remotes", "", method: "GET").0 == 403)
    #expect(try await pair.post("/healthz", "", method: "GET").0 == 200)
    #expect(try await pair.post("/metrics", "", method: "GET").1.contains("salvor_requests_total"))
  }

  @Test("a body that unpacks to more than the limit is refused (compression bomb)")
  func bomb() async throws {
    let pair = try await Pair { limits in
      limits.chunkBytesMax = 100_000
      limits.rowBytesMax = 100_000
    }
    let zeros = [UInt8](repeating: 0x20, count: 50_000_000)
    let packed = try await ByteStream.bytes(zeros).compressed(by: GzipCompression()).collect(upTo: Int.max)
    let response = await pair.server.handle(
      TransportRequest(
        method: "POST", path: "/v1/sync", headers: ["salvor-principal": "anna", "content-encoding": "gzip"],
        body: .bytes(packed)))
    #expect(response.status == 413)
  }

  @Test("a remote ID belongs to its principal")
  func principal() async throws {
    let pair = try await Pair()
    let store = MemoryClientStore()
    let client = pair.client(store)
    #expect(await client.attemptSync().error == nil)
    let other = pair.client(store, principal: "bob")
    let error = await other.attemptSync().error
    #expect(error?.code == .remoteOfAnother)
    #expect(error?.code.exitCode == 4)
  }

  @Test(
    "A server that does not know a remote ID takes it for nobody else than the device says, and registers nobody (semantics 1)"
  )
  func principalOfUnknownRemote() async throws {
    let pair = try await Pair()
    let remote = RemoteID(from: SystemRandom())
    var message = BeginMessage(
      remote: remote, server: nil, previous: SequenceID(from: SystemRandom()), current: nil, schemaVersion: 1,
      schemaDigest: "", groups: [], upload: .none, position: nil,
      history: BeginMessage.History(sequences: [], incarnations: [], commits: [], tables: .array([])))
    message.principal = "anna"
    for (path, principal, status) in [
      ("/v1/sync", "bob", 403), ("/v1/recovery", "bob", 403), ("/v1/sync", "anna", 200),
    ] {
      let response = await pair.server.handle(
        TransportRequest(
          method: "POST", path: path, headers: ["salvor-principal": principal],
          body: .bytes(message.json.bytes + [0x0A])))
      #expect(response.status == status, "\(path) as \(principal)")
      #expect(try await pair.serverStore.remote(remote)?.principal == (status == 200 ? "anna" : nil))
    }
  }

  private struct Misspelt: Authentication {
    func authenticate(_ request: TransportRequest) async throws -> Principal {
      Principal(name: "anna", parameters: ["reigon": ["EU"]])
    }
    func headers(credentials: [String: String]) throws -> [String: String] { [:] }
    func principals(withoutValuesOf parameter: String) -> UnlimitedPrincipals { .everybody }
  }

  @Test(
    "A list of values for a parameter that the schema does not have protects nothing: nothing is shown (semantics 7)")
  func misspeltParameter() async throws {
    let configuration = ServerConfiguration(
      schema: schema, store: MemoryServerStore(), authentication: Misspelt(), compressions: [])
    let (server, _) = try await ServerEngine.start(configuration)
    let response = await server.handle(
      TransportRequest(method: "POST", path: "/v1/sync", headers: [:], body: .bytes(Array("{}\n".utf8))))
    #expect(response.status == 403)
    let text = String(decoding: try await response.body.collect(upTo: 10_000), as: UTF8.self)
    #expect(text.contains("reigon"), "\(text)")
  }

  @Test("a blocked remote ID is refused")
  func blocked() async throws {
    let pair = try await Pair()
    let store = MemoryClientStore()
    let client = pair.client(store)
    #expect(await client.attemptSync().error == nil)
    let remote = try await client.status().state.remoteID
    #expect(try await pair.server.delete(remote: remote, block: true))
    #expect(await client.attemptSync().error?.code == .remoteBlocked)
  }

  @Test("no server: unreachable, exit code 3, the queue is as it was")
  func unreachable() async throws {
    let pair = try await Pair()
    let store = MemoryClientStore()
    let client = pair.client(store)
    try await client.open()
    try await store.write([insert("site", ("id", "s2"), ("name", "two"))])
    await pair.transport.stop(graceMilliseconds: 0)
    let report = await client.attemptSync()
    #expect(report.error?.code == .unreachable)
    #expect(report.exitCode == 3)
    #expect(try await client.status().queued == 1)
  }

  @Test("The pages of a long download are compressed on threads of their own, and what is short where it is answered")
  func longDownloadsApart() async throws {
    let threads = OwnThread.forEachProcessor("download", isPatient: true)
    let pair = try await Pair(downloads: threads)
    try await pair.serverStore.write([insert("site", ("id", "s"), ("name", "a name"))])
    let store = MemoryClientStore()
    #expect(await pair.client(store).attemptSync().error == nil)
    #expect(threads.allSatisfy { $0.workCount == 0 })
    try await pair.serverStore.write((0..<2000).map { insert("site", ("id", .text("s\($0)")), ("name", "a name")) })
    #expect(await pair.client(store).attemptSync().error == nil)
    #expect(threads.contains { $0.workCount > 1 })
    #expect(try await store.rows(of: "site").count == 2001)
  }

  @Test("A first sync says how many of how many rows have come, as the server counted them; later ones count rows")
  func progressOfAFirstSync() async throws {
    let pair = try await Pair { $0.chunkBytesTarget = 1024 }
    try await pair.serverStore.write(
      (0..<300).map { insert("site", ("id", .text("s\($0)")), ("name", "a name")) })
    let told = Mutex<[SyncProgress]>([])
    let client = pair.client(MemoryClientStore())
    _ = try await client.synchronize(progress: { event in told.withLock { $0.append(event) } })
    let rows = told.withLock { events in
      events.compactMap { event in if case .fetching(let rows, let all) = event { (rows, all) } else { nil } }
    }
    #expect(rows.count > 3 && rows.allSatisfy { $0.1 == 300 })
    #expect(zip(rows, rows.dropFirst()).allSatisfy { $0.0 < $1.0 }, "\(rows)")
    #expect(rows.last.map { $0.0 > 200 && $0.0 <= 300 } == true, "\(rows)")
    try await pair.serverStore.write(
      (0..<300).map { insert("site", ("id", .text("t\($0)")), ("name", "a name")) })
    told.withLock { $0 = [] }
    _ = try await client.synchronize(progress: { event in told.withLock { $0.append(event) } })
    #expect(told.withLock { $0.contains { if case .receiving = $0 { true } else { false } } })
    #expect(!told.withLock { $0.contains { if case .fetching = $0 { true } else { false } } })
  }
}
