import MemoryStore
import NoAuthentication
import SalvorModel
import SalvorServerEngine
import SalvorStorage
import SalvorTransport
import SalvorWire
import Testing

/// `/v1/blobs`, request by request.
@Suite("Blobs over the wire") struct BlobRouteTests {
  /// The SHA-256 of "abc", as FIPS 180-2 has it.
  private static let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

  private static let schema = Schema(tables: [
    Table(
      "photo", primaryKey: ["id"],
      columns: [Column("id", .text), Column("owner", .text), Column("image", .blob, nullable: true)],
      scope: [ScopeColumn(column: "owner", source: .principal)])
  ])

  private let store = MemoryServerStore()

  private func engine(_ limits: Limits = Limits()) async throws -> ServerEngine {
    let (engine, _) = try await ServerEngine.start(
      ServerConfiguration(
        schema: Self.schema, store: store, authentication: NoAuthentication(), compressions: [], limits: limits))
    return engine
  }

  private func ask(
    _ engine: ServerEngine, _ method: String, _ path: String, _ body: String = "", as principal: String? = "anna"
  ) async throws -> (status: Int, body: String, code: String?) {
    let bytes = Array(body.utf8)
    let response = await engine.handle(
      TransportRequest(
        method: method, path: path, headers: principal.map { ["salvor-principal": $0] } ?? [:], body: .bytes(bytes),
        contentLength: bytes.count))
    let text = try await response.body.collect(upTo: 1 << 20)
    return (response.status, String(decoding: text, as: UTF8.self), (try? JSONValue(parsing: text))?["code"]?.string)
  }

  @Test("a part that would end beyond the numbers, or beyond its blob, is malformed")
  func offsets() async throws {
    let engine = try await engine()
    for (size, offset) in [("9223372036854775807", "9223372036854775807"), ("3", "9223372036854775807"), ("3", "2")] {
      let answer = try await ask(engine, "PUT", "/v1/blobs/\(Self.abc)?size=\(size)&offset=\(offset)", "ab")
      #expect(answer.code == (size == "3" ? "malformed" : "too-large"))
    }
  }

  @Test("what is missing is sent in parts, and is not missing then; another principal learns nothing of it")
  func sent() async throws {
    let engine = try await engine()
    let question = #"{"blobs":[{"ref":"\#(Self.abc)","size":3}]}"#
    let all = #"{"blobs":[{"ref":"\#(Self.abc)","size":3,"have":0}]}"# + "\n"
    #expect(try await ask(engine, "POST", "/v1/blobs/missing", question).body == all)
    #expect(try await ask(engine, "PUT", "/v1/blobs/\(Self.abc)?size=3&offset=0", "ab").status == 204)
    let rest = #"{"blobs":[{"ref":"\#(Self.abc)","size":3,"have":2}]}"# + "\n"
    #expect(try await ask(engine, "POST", "/v1/blobs/missing", question).body == rest)
    #expect(try await ask(engine, "PUT", "/v1/blobs/\(Self.abc)?size=3&offset=2", "c").status == 204)
    #expect(try await ask(engine, "POST", "/v1/blobs/missing", question).body == "{\"blobs\":[]}\n")
    #expect(try await ask(engine, "POST", "/v1/blobs/missing", question, as: "ben").body == all)
    #expect(try await ask(engine, "GET", "/v1/blobs/\(Self.abc)?size=3", as: "ben").code == "blob-gone")
  }

  @Test("a blob is read from its row, from any offset, by those who may read the row")
  func read() async throws {
    let engine = try await engine()
    try await store.write([
      .insert(
        table: "photo",
        values: [
          NamedValue("id", "a b"), NamedValue("owner", "anna"), NamedValue("image", .blob(Array("abc".utf8))),
        ])
    ])
    let path = "/v1/blobs/\(Self.abc)?size=3&table=photo&key=\(percentEncoded("[\"a b\"]"))&column=image"
    #expect(try await ask(engine, "GET", path).body == "abc")
    #expect(try await ask(engine, "GET", path + "&offset=1").body == "bc")
    #expect(try await ask(engine, "GET", path + "&offset=3").body == "")
    #expect(try await ask(engine, "GET", path + "&offset=4").code == "malformed")
    // A key may be longer than an address: then the place is the body.
    let place = #"{"table":"photo","key":["a b"],"column":"image"}"#
    #expect(try await ask(engine, "POST", "/v1/blobs/\(Self.abc)?size=3&offset=1", place).body == "bc")
    #expect(try await ask(engine, "POST", "/v1/blobs/\(Self.abc)?size=3", place, as: "ben").code == "blob-gone")
    for wrong in [#"{"table":"photo","key":[],"column":"image"}"#, #"{"table":"photo"}"#, "[]", "x"] {
      #expect(try await ask(engine, "POST", "/v1/blobs/\(Self.abc)?size=3", wrong).code == "malformed")
    }
    let foreign = try await ask(engine, "GET", path, as: "ben")
    #expect(foreign.status == 404)
    #expect(foreign.code == "blob-gone")
    try await store.write([.update(table: "photo", key: ["a b"], values: [NamedValue("image", nil)])])
    #expect(try await ask(engine, "GET", path).code == "blob-gone")
  }

  @Test("what is wrong is refused by name, and nothing of it is kept")
  func refused() async throws {
    var limits = Limits()
    limits.chunkBytesMax = 1024
    let engine = try await engine(limits)
    let path = "/v1/blobs/\(Self.abc)"
    let wrong = try await ask(engine, "PUT", path + "?size=3&offset=0", "abd")
    #expect(wrong.status == 409)
    #expect(wrong.code == "blob-mismatch")
    #expect(try await ask(engine, "PUT", path + "?size=3&offset=1", "bc").code == "chunk-missing")
    #expect(try await ask(engine, "PUT", path + "?size=3&offset=2", "cd").code == "malformed")
    #expect(try await ask(engine, "PUT", path + "?size=3&offset=0", "").code == "malformed")
    #expect(try await ask(engine, "PUT", path + "?offset=0", "abc").code == "malformed")
    #expect(try await ask(engine, "PUT", "/v1/blobs/ABC?size=3&offset=0", "abc").code == "malformed")
    #expect(try await ask(engine, "DELETE", path + "?size=3").code == "not-found")
    #expect(try await ask(engine, "PUT", path + "?size=3&offset=0", "abc", as: nil).status == 401)
    let large = String(repeating: "a", count: 1025)
    #expect(try await ask(engine, "PUT", path + "?size=5000&offset=0", large).code == "too-large")
    #expect(
      try await ask(engine, "POST", "/v1/blobs/missing", #"{"blobs":[{"ref":"x","size":3}]}"#).code == "malformed")
    #expect(try await store.stats().stagedBytes == 0)
  }
}
