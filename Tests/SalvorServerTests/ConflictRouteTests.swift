import MemoryStore
import NoAuthentication
import SalvorModel
import SalvorServerEngine
import SalvorStorage
import SalvorTransport
import SalvorWire
import Testing

@Suite("Conflict versions over the administration's routes (docs/reference/protocol.md)")
struct ConflictRouteTests {
  private static let schema = Schema(tables: [
    Table("note", primaryKey: ["id"], columns: [Column("id", .text), Column("title", .text)])
  ])

  /// An engine whose store keeps `count` versions, of rows n1, n2, ….
  private func engine(keeping count: Int) async throws -> (ServerEngine, MemoryServerStore) {
    let store = MemoryServerStore()
    let (engine, _) = try await ServerEngine.start(
      ServerConfiguration(
        schema: Self.schema, conflictPolicies: ["note": UniformConflictPolicy(.both)], store: store,
        authentication: NoAuthentication(), compressions: [], administrationToken: "secret"))
    let remote = RemoteID(from: SystemRandom())
    try await store.register(remote, principal: "anna")
    var writer = UploadChunkWriter()
    for number in 0..<count {
      let key = Value.text("n\(number + 1)")
      try await store.write([
        .insert(table: "note", values: [NamedValue("id", key), NamedValue("title", "server")])
      ])
      let shape = writer.place(of: UploadShape(table: "note", operation: .update, columns: ["title"]))
      writer.beginChange(
        shape: shape, stamp: RequestStamp(from: SystemRandom()), counter: Int64(number + 1), made: 0)
      for value in [key, "a", "client"] { writer.value(value) }
      writer.endChange()
    }
    let bytes = writer.finish()
    _ = try await store.process(
      ProcessRequest(
        remote: remote, sequence: SequenceID(from: SystemRandom()), principal: Principal(name: "anna"),
        chunks: [
          UploadChunk(
            bytes: bytes, firstCounter: 1, lastCounter: Int64(count), changeCount: count, isLast: true)
        ]))
    return (engine, store)
  }

  private func send(
    _ engine: ServerEngine, _ method: String, _ path: String, _ body: String = "", token: String = "secret"
  ) async throws -> (status: Int, json: JSONValue) {
    let response = await engine.handle(
      TransportRequest(
        method: method, path: path, headers: ["authorization": "Bearer \(token)"], body: .bytes(Array(body.utf8)),
        peerIsLocal: true))
    let bytes = try await response.body.collect(upTo: 1 << 20)
    return (response.status, bytes.isEmpty ? .null : try JSONValue(parsing: bytes))
  }

  private func ids(_ json: JSONValue) -> [Int64] { (json["conflicts"]?.array ?? []).compactMap { $0["id"]?.integer } }

  @Test("the list has the open ones, page by page; state=all has every one")
  func list() async throws {
    let (engine, _) = try await engine(keeping: 5)
    let first = try await send(engine, "GET", "/admin/v1/conflicts?limit=2")
    #expect(first.status == 200)
    #expect(ids(first.json) == [1, 2])
    #expect(first.json["next"]?.integer == 2)
    let second = try await send(engine, "GET", "/admin/v1/conflicts?limit=3&after=2")
    #expect(ids(second.json) == [3, 4, 5])
    #expect(second.json["next"]?.isNull == true)
    let resolved = try await send(engine, "POST", "/admin/v1/conflicts/3/resolve", "{\"keep\":\"server\"}")
    #expect(resolved.status == 200)
    #expect(ids(try await send(engine, "GET", "/admin/v1/conflicts").json) == [1, 2, 4, 5])
    #expect(ids(try await send(engine, "GET", "/admin/v1/conflicts?state=resolved").json) == [3])
    #expect(ids(try await send(engine, "GET", "/admin/v1/conflicts?state=all").json) == [1, 2, 3, 4, 5])
    for query in ["state=closed", "limit=0", "limit=x", "after=x"] {
      #expect(try await send(engine, "GET", "/admin/v1/conflicts?" + query).status == 400, "\(query)")
    }
  }

  @Test("one version is shown with both sides and the row of now, and resolved by whom is written down")
  func showAndResolve() async throws {
    let (engine, store) = try await engine(keeping: 1)
    let shown = try await send(engine, "GET", "/admin/v1/conflicts/1")
    #expect(shown.status == 200)
    let version = try #require(shown.json["conflicts"]?.array?.first)
    #expect(version["client"]?["before"]?["title"]?.string == "a")
    #expect(version["client"]?["after"]?["title"]?.string == "client")
    #expect(version["client"]?["principal"]?.string == "anna")
    #expect(version["server"]?["row"]?["title"]?.string == "server")
    #expect(version["present"]?["title"]?.string == "server")
    #expect(version["state"]?.string == "open")

    let metrics = await engine.handle(TransportRequest(method: "GET", path: "/metrics"))
    let text = String(decoding: try await metrics.body.collect(upTo: 1 << 20), as: UTF8.self)
    #expect(text.contains("\nsalvor_conflicts_open 1\n"))

    let resolved = try await send(engine, "POST", "/admin/v1/conflicts/1/resolve", "{\"keep\":\"client\"}")
    #expect(resolved.status == 200)
    let resolution = resolved.json["resolved"]?.array?.first?["resolution"]
    #expect(resolution?["keep"]?.string == "client")
    #expect(resolution?["by"]?.string == "administrator")
    #expect(try await store.rows(of: "note") == [["n1", "client"]])
    #expect(try await send(engine, "GET", "/admin/v1/stats").json["openConflicts"]?.integer == 0)
    let again = try await send(engine, "POST", "/admin/v1/conflicts/1/resolve", "{\"keep\":\"server\"}")
    #expect(again.status == 409)
    #expect(again.json["code"]?.string == "conflict-resolved")
  }

  @Test("what cannot be done is refused by name, and nothing is changed")
  func refusals() async throws {
    let (engine, store) = try await engine(keeping: 1)
    let path = "/admin/v1/conflicts/1/resolve"
    #expect(try await send(engine, "POST", path, "{\"keep\":\"mine\"}").status == 400)
    #expect(try await send(engine, "POST", path).status == 400)
    #expect(try await send(engine, "POST", "/admin/v1/conflicts/2/resolve", "{\"keep\":\"client\"}").status == 404)
    #expect(try await send(engine, "GET", "/admin/v1/conflicts/2").status == 404)
    #expect(try await send(engine, "GET", "/admin/v1/conflicts/one").status == 404)
    #expect(try await send(engine, "DELETE", "/admin/v1/conflicts/1").status == 404)
    for (method, path) in [("GET", "/admin/v1/conflicts"), ("POST", path)] {
      #expect([401, 403].contains(try await send(engine, method, path, "{}", token: "wrong").status))
    }
    try await store.write([.delete(table: "note", key: ["n1"])])
    let deleted = try await send(engine, "POST", path, "{\"keep\":\"client\"}")
    #expect(deleted.status == 409)
    #expect(deleted.json["code"]?.string == "conflict-unresolvable")
    #expect(deleted.json["reason"]?.string == "row-deleted")
    #expect(try await store.stats().openConflicts == 1)
  }
}
