import MemoryStore
import SalvorModel
import SalvorServerEngine
import SalvorStorage
import SalvorTransport
import SalvorWire
import Testing

@Suite("Parameters that are taken from a token are gone from sessions under way (semantics 7)")
struct NarrowedParameterTests {
  /// Anna, with whatever regions she has at the moment.
  private final class Regions: Authentication {
    let allowed = Mutex<[Value]>(["EU", "US"])
    func authenticate(_ request: TransportRequest) async throws -> Principal {
      Principal(name: "anna", parameters: ["region": allowed.withLock { $0 }])
    }
    func headers(credentials: [String: String]) throws -> [String: String] { [:] }
  }

  private static let schema = Schema(
    parameters: [Schema.Parameter(name: "region", type: .text)],
    tables: [
      Table(
        "site", primaryKey: ["id"], columns: [Column("id", .text), Column("region", .text)],
        scope: [ScopeColumn(column: "region", source: .parameter("region"))])
    ])

  private func send(_ engine: ServerEngine, _ method: String, _ path: String, _ body: [UInt8]) async throws -> (
    status: Int, body: String
  ) {
    let response = await engine.handle(
      TransportRequest(method: method, path: path, headers: [:], body: .bytes(body), contentLength: body.count))
    return (response.status, String(decoding: try await response.body.collect(upTo: 1 << 20), as: UTF8.self))
  }

  @Test("an upload that was begun before is processed, and answered, with the regions of now")
  func staged() async throws {
    let store = MemoryServerStore(), regions = Regions()
    let (engine, _) = try await ServerEngine.start(
      ServerConfiguration(schema: Self.schema, store: store, authentication: regions, compressions: []))
    for region in ["EU", "US"] as [Value] {
      try await store.write([
        .insert(table: "site", values: [NamedValue("id", region), NamedValue("region", region)])
      ])
    }
    let begin = BeginMessage(
      remote: RemoteID(from: SystemRandom()), server: nil, previous: nil, current: SequenceID(from: SystemRandom()),
      schemaVersion: 1, schemaDigest: SyncConfig(Self.schema).digest,
      groups: [BeginMessage.Group(name: Schema.defaultGroup, cursor: nil, scope: nil)], upload: .staged, position: nil,
      history: nil)
    let begun = try await send(engine, "POST", "/v1/sync", Array(begin.json.text.utf8) + [0x0A])
    let token = try #require(
      try JSONValue(parsing: Array(begun.body.utf8))["session"]?["token"]?.string, "\(begun.body)")
    var writer = UploadChunkWriter()
    for (counter, region) in [(1, "EU"), (2, "US")] as [(Int64, String)] {
      let shape = writer.place(of: UploadShape(table: "site", operation: .insert, columns: ["id", "region"]))
      writer.beginChange(shape: shape, stamp: RequestStamp(from: SystemRandom()), counter: counter, made: 0)
      for value in ["new \(region)", region] { writer.value(.text(Array(value.utf8))) }
      writer.endChange()
    }
    let chunk = writer.finish()
    let path = "/v1/sync/\(token)"
    #expect(try await send(engine, "PUT", "\(path)/chunks/0?first=1&last=2&final=true", chunk).status == 204)

    regions.allowed.withLock { $0 = ["EU"] }
    let answer = try await send(engine, "POST", "\(path)/process", [])
    #expect(answer.status == 200)
    #expect(answer.body.contains("\"accepted\":1"))
    #expect(answer.body.contains("out-of-scope"))
    #expect(answer.body.contains("[\"EU\",\"EU\"]") && !answer.body.contains("[\"US\",\"US\"]"), "\(answer.body)")
    #expect(try await store.rows(of: "site") == [["EU", "EU"], ["US", "US"], ["new EU", "EU"]])
  }
}
