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
  Table("photo", primaryKey: ["id"], columns: [Column("id", .text), Column("image", .blob, nullable: true)])
])

/// Sees what a validator is asked about, and refuses photographs that begin with a zero.
private final class ImageRules: RequestValidator {
  private let seen = Mutex<[Value]>([])
  var images: [Value] { seen.withLock { $0 } }

  func validate(_ batch: ValidationBatch) async throws -> [ValidationRefusal] {
    batch.requests.compactMap { request in
      let images = request.changes.flatMap(\.columns).filter { $0.name == "image" }.map(\.new)
      seen.withLock { $0 += images }
      guard case .blob(let bytes)? = images.first, bytes.first == 0 else { return nil }
      return ValidationRefusal(id: request.id, message: "It is black.")
    }
  }
}

/// Both engines over the stores that are the specification.
@Suite("Blobs through both engines, over the memory stores")
struct BlobEngineTests {
  private let rules = ImageRules()
  private let store = MemoryServerStore()
  private let network = LoopbackNetwork()

  private func serve(validating: Bool) async throws {
    let validators =
      validating
      ? [
        ConfiguredValidator(
          name: "images", validator: rules, tables: ["photo"], onFailure: .retryLater, batchRequestsMax: 500)
      ] : []
    let (engine, _) = try await ServerEngine.start(
      ServerConfiguration(
        schema: schema, store: store, authentication: NoAuthentication(), compressions: [], validators: validators))
    _ = try await LoopbackServerTransport(network).start { await engine.handle($0) }
  }

  private func device() async throws -> (store: MemoryClientStore, client: SalvorClient) {
    let store = MemoryClientStore()
    var limits = Limits()
    limits.attemptsMax = 1
    limits.chunkBytesMax = 16 << 10
    limits.chunkBytesTarget = 1024
    let client = SalvorClient(
      SalvorClient.Configuration(
        schema: schema, principal: "anna", store: store, transport: LoopbackClientTransport(network),
        credentials: credentialHeaders(["principal": "anna"]), compressions: [], uploadCompression: nil, limits: limits)
    )
    try await client.open()
    return (store, client)
  }

  private func image(_ first: UInt8, _ count: Int) -> Value { .blob([first] + [UInt8](repeating: 7, count: count - 1)) }

  private func insert(_ id: String, _ image: Value) -> ApplicationWrite {
    .insert(table: "photo", values: [NamedValue("id", .text(id)), NamedValue("image", image)])
  }

  @Test("from one device to another, with one image in two rows")
  func thereAndBack() async throws {
    try await serve(validating: false)
    let a = try await device(), b = try await device()
    let images = [image(1, 40_000), image(1, 40_000), image(2, 100)]
    try await a.store.write(images.enumerated().map { insert("p\($0)", $1) })
    let up = await a.client.attemptSync()
    #expect(up.error == nil)
    // The question, three parts of 16 KiB, and the sync.
    #expect(up.roundTrips == 5)
    let down = await b.client.attemptSync()
    #expect(down.error == nil)
    #expect(down.roundTrips == 2)
    #expect(try await b.store.rows(of: "photo") == images.enumerated().map { [.text("p\($0)"), $1] })
    #expect(try await store.stats().stagedBytes == 0)
  }

  @Test("a validator sees ordinary blobs")
  func validated() async throws {
    try await serve(validating: true)
    let a = try await device()
    let images = [image(0, 50_000), image(3, 50_000), image(4, 50)]
    try await a.store.write(images.enumerated().map { insert("p\($0)", $1) })
    let report = await a.client.attemptSync()
    #expect(report.error == nil)
    #expect(report.refused == 1)
    #expect(rules.images == images)
    #expect(try await store.rows(of: "photo") == [["p1", images[1]], ["p2", images[2]]])
  }
}
