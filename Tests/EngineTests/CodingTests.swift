import GzipCompression
import LoopbackTransport
import MemoryStore
import NoAuthentication
import SalvorClientEngine
import SalvorModel
import SalvorServerEngine
import SalvorStorage
import SalvorTransport
import Testing

/// In which coding bodies travel where both ends have several (decision 165).
@Suite struct CodingTests {
  /// A better one than gzip, which both ends have.
  private struct Better: Compression {
    let token = "better"
    func makeCompressor() throws -> any StreamCoder { try GzipCompression().makeCompressor() }
    func makeDecompressor() throws -> any StreamCoder { try GzipCompression().makeDecompressor() }
  }

  /// What came, and whether the better coding is taken: another server may stand behind the address by now.
  private struct Seen {
    var codings: [String] = []
    var refusesBetter = false
  }

  private static let schema = Schema(
    tables: [Table("site", primaryKey: ["id"], columns: [Column("id", .text), Column("name", .text)])])

  private static func rows(_ prefix: String) -> [ApplicationWrite] {
    (0..<100).map {
      .insert(
        table: "site",
        values: [NamedValue("id", .text("\(prefix)\($0)")), NamedValue("name", .text("a name of \(prefix)"))])
    }
  }

  @Test("a device sends gzip until the server has answered in a better coding, and gzip again where that is refused")
  func sends() async throws {
    let network = LoopbackNetwork()
    let (serverStore, store) = (MemoryServerStore(), MemoryClientStore())
    let (server, _) = try await ServerEngine.start(
      ServerConfiguration(
        schema: Self.schema, store: serverStore, authentication: NoAuthentication(),
        compressions: [Better(), GzipCompression()]))
    let seen = Mutex(Seen())
    let transport = LoopbackServerTransport(network)
    _ = try await transport.start { request in
      var request = request
      if let coding = request.headers["content-encoding"] {
        let isRefused = seen.withLock { seen in
          seen.codings.append(coding)
          return seen.refusesBetter && coding == "better"
        }
        if isRefused { request.headers["content-encoding"] = "unknown" }
      }
      return await server.handle(request)
    }
    let client = SalvorClient(
      SalvorClient.Configuration(
        schema: Self.schema, principal: "anna", store: store, transport: LoopbackClientTransport(network),
        credentials: credentialHeaders(["principal": "anna"]), compressions: [Better(), GzipCompression()],
        uploadCompression: GzipCompression()))
    try await client.open()
    func synchronize(_ prefix: String) async throws -> [String] {
      seen.withLock { $0.codings = [] }
      try await store.write(Self.rows(prefix))
      let report = await client.attemptSync()
      #expect(report.error == nil, "\(prefix)")
      #expect(report.uploaded == 100, "\(prefix)")
      return seen.withLock { $0.codings }
    }
    try await serverStore.write(Self.rows("theirs"))
    // Nothing is known of the server, until its rows have come.
    #expect(try await synchronize("first").allSatisfy { $0 == "gzip" })
    let second = try await synchronize("second")
    #expect(!second.isEmpty && second.allSatisfy { $0 == "better" })
    seen.withLock { $0.refusesBetter = true }
    let third = try await synchronize("third")
    #expect(third.first == "better" && third.dropFirst().first == "gzip")
    #expect(try await serverStore.rows(of: "site") == (try await store.rows(of: "site")))
    #expect(try await store.rows(of: "site").count == 400)
    await client.close()
  }

  @Test("a server that takes no coding gets bodies as they are, once it has refused one")
  func identity() async throws {
    let network = LoopbackNetwork()
    let (serverStore, store) = (MemoryServerStore(), MemoryClientStore())
    let (server, _) = try await ServerEngine.start(
      ServerConfiguration(
        schema: Self.schema, store: serverStore, authentication: NoAuthentication(), compressions: []))
    let codings = Mutex<[String?]>([])
    let transport = LoopbackServerTransport(network)
    _ = try await transport.start { request in
      codings.withLock { $0.append(request.headers["content-encoding"]) }
      return await server.handle(request)
    }
    let client = SalvorClient(
      SalvorClient.Configuration(
        schema: Self.schema, principal: "anna", store: store, transport: LoopbackClientTransport(network),
        credentials: credentialHeaders(["principal": "anna"]), compressions: [Better(), GzipCompression()],
        uploadCompression: GzipCompression()))
    try await client.open()
    for prefix in ["first", "second"] {
      codings.withLock { $0 = [] }
      try await store.write(Self.rows(prefix))
      let report = await client.attemptSync()
      #expect(report.error == nil && report.uploaded == 100, "\(prefix)")
      #expect(codings.withLock { $0.compactMap(\.self) } == (prefix == "first" ? ["gzip"] : []))
    }
    #expect(try await serverStore.rows(of: "site") == (try await store.rows(of: "site")))
    await client.close()
  }
}
