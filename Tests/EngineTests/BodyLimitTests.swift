import GzipCompression
import MemoryStore
import NoAuthentication
import SalvorModel
import SalvorServerEngine
import SalvorStorage
import SalvorTransport
import SalvorWire
import Testing

/// Memory of a request is bounded before it is parsed.
@Suite("Limits of bodies and messages")
struct BodyLimitTests: Sendable {
  private let schema = Schema(tables: [Table("site", primaryKey: ["id"], columns: [Column("id", .text)])])

  private func server(
    _ configure: (inout Limits) -> Void = { _ in }, threads: OwnThread? = nil
  ) async throws -> ServerEngine {
    var limits = Limits()
    configure(&limits)
    var configuration = ServerConfiguration(
      schema: schema, store: MemoryServerStore(), authentication: NoAuthentication(),
      compressions: [GzipCompression()], limits: limits)
    (configuration.bodyReading, configuration.bodyParsing) = (threads, threads)
    return try await ServerEngine.start(configuration).0
  }

  private func request(
    _ path: String, _ body: ByteStream, gzip: Bool = false, length: Int? = nil, of principal: String = "anna"
  ) -> TransportRequest {
    var headers = ["salvor-principal": principal]
    if gzip { headers["content-encoding"] = "gzip" }
    return TransportRequest(method: "POST", path: path, headers: headers, body: body, contentLength: length)
  }

  private func code(_ response: TransportResponse) async throws -> String {
    let body = try await response.body.collect(upTo: 1 << 20)
    return try JSONValue(parsing: body)["code"]?.string ?? ""
  }

  /// Values that are short as text and large as a tree.
  private static func zeros(_ count: Int) -> [UInt8] {
    Array(#"{"begin":["#.utf8) + [UInt8](repeating: 0x30, count: 1)
      + (0..<count).flatMap { _ in [0x2C, 0x30] as [UInt8] }
      + Array("]}\n".utf8)
  }

  @Test("A begin of many values is refused before it becomes a tree, by every route that reads a message whole")
  func manyValues() async throws {
    let server = try await server { $0.valuesMax = 1000 }
    let blob = "/v1/blobs/" + String(repeating: "a", count: 64) + "?size=10"
    for path in [blob, "/v1/blobs/missing"] {
      let response = await server.handle(request(path, .bytes(Self.zeros(2000))))
      #expect(response.status == 413)
      #expect(try await code(response) == "too-large")
    }
  }

  @Test("A begin's line has a limit of its own, though an upload may follow it; what is beyond it is not read")
  func longBegin() async throws {
    let server = try await server { $0.beginBytesMax = 100_000 }
    let pieces = Mutex(0)
    let endless = ByteStream(next: {
      pieces.withLock { $0 += 1 }
      return [UInt8](repeating: 0x20, count: 64 << 10)
    })
    let response = await server.handle(request("/v1/sync", endless))
    #expect(response.status == 413)
    // The history that a server may ask for is some megabytes; a chunk and a row are twelve.
    #expect(pieces.withLock { $0 } < 80)
  }

  @Test("Names and digests of a begin have a length")
  func longNames() async throws {
    let server = try await server()
    let long = String(repeating: "x", count: 2000)
    let id = String(repeating: "a", count: 32)
    for (digest, group, table) in [(long, "g", "t"), ("d", long, "t"), ("d", "g", long)] {
      let begin =
        #"{"begin":{"version":1,"remote":"\#(id)","schema":{"version":1,"digest":"\#(digest)"},"groups":[{"name":"\#(group)"}],"upload":"none","compare":[["\#(table)",0,"0"]]}}"#
      let response = await server.handle(request("/v1/sync", .bytes(Array((begin + "\n").utf8))))
      #expect(response.status == 400)
      #expect(try await code(response) == "malformed")
    }
  }

  /// A body of 3 MiB whose last part comes when `gate` opens.
  private func large(_ principal: String, _ gate: Gate, _ read: Count, saysLength: Bool = true) -> TransportRequest {
    let given = Count()
    let size = 3 << 20
    let piece = 256 << 10
    return request(
      "/v1/sync",
      ByteStream(next: {
        let before = given.add(piece)
        if before == size - piece {
          _ = read.add(1)
          await gate.wait()
        }
        return before < size ? [UInt8](repeating: 0x20, count: piece) : nil
      }), length: saysLength ? size : nil, of: principal)
  }

  @Test("Beyond bodiesBytesMax requests wait, small ones go on, and a place that is given back goes to the next")
  func bodiesTogether() async throws {
    // Three quarters are for large bodies: two of them.
    let server = try await server {
      $0.bodiesBytesMax = 8 << 20
      $0.beginBytesMax = 64 << 20
    }
    let gate = Gate()
    let read = Count()
    await withTaskGroup(of: Void.self) { group in
      for place in 0..<5 {
        group.addTask { _ = await server.handle(large(place % 2 == 0 ? "anna" : "ben", gate, read)) }
      }
      while read.value < 2 || server.bodiesWaiting < 3 { await Task.yield() }
      let small = await server.handle(request("/v1/sync", .bytes([UInt8](repeating: 0x20, count: 100_000))))
      #expect(small.status == 400)
      #expect(read.value == 2)
      // One that is not wanted any more leaves the queue.
      let left = Task { _ = await server.handle(large("anna", gate, read)) }
      while server.bodiesWaiting < 4 { await Task.yield() }
      left.cancel()
      await left.value
      #expect(server.bodiesWaiting == 3)
      gate.open()
    }
    #expect(read.value == 5)
    #expect(server.bodiesWaiting == 0)
  }

  @Test("One principal's large bodies leave room for another's, however many wait: half of the memory is all he gets")
  func bodiesOfOnePrincipal() async throws {
    let server = try await server { $0.beginBytesMax = 64 << 20 }
    let gate = Gate()
    let other = Gate()
    let read = Count()
    await withTaskGroup(of: Void.self) { group in
      // 48 MiB are for large bodies, and one that does not say its length may become 12. While they are small, each has one
      // of 32 places.
      for _ in 0..<20 {
        group.addTask { _ = await server.handle(large("mallory", gate, read, saysLength: false)) }
      }
      while read.value < 2 || server.bodiesWaiting < 18 { await Task.yield() }
      other.open()
      let answered = Count()
      _ = await server.handle(large("anna", other, answered, saysLength: false))
      #expect(answered.value == 1)
      let small = await server.handle(request("/v1/sync", .bytes([UInt8](repeating: 0x20, count: 100_000))))
      #expect(small.status == 400)
      #expect(read.value == 2)
      gate.open()
    }
    #expect(read.value == 20)
    #expect(server.bodiesWaiting == 0)
  }

  @Test("Large bodies are read and parsed on threads of their own, one principal after the other; small ones are not")
  func ownThreads() async throws {
    let threads = OwnThread("test")
    let server = try await server(threads: threads)
    let small = await server.handle(request("/v1/blobs/missing", .bytes(Array(#"{"blobs":[]}"#.utf8))))
    #expect(small.status == 200)
    #expect(threads.workCount == 0)
    let long = Array((#"{"blobs":[]"# + String(repeating: " ", count: 200_000) + "}").utf8)
    for gzip in [false, true] {
      let before = threads.workCount
      let bytes = gzip ? try await ByteStream.bytes(long).compressed(by: GzipCompression()).collect(upTo: .max) : long
      let response = await server.handle(request("/v1/blobs/missing", .bytes(bytes), gzip: gzip))
      #expect(response.status == 200)
      #expect(threads.workCount > before)
    }
  }
}

private final class Count: Sendable {
  private let count = Mutex(0)
  var value: Int { count.withLock { $0 } }

  /// What it was before.
  func add(_ more: Int) -> Int {
    count.withLock { count in
      defer { count += more }
      return count
    }
  }
}

/// Closed until it is opened, for any number of tasks.
private final class Gate: Sendable {
  private let state = Mutex((isOpen: false, waiting: [CheckedContinuation<Void, Never>]()))

  func wait() async {
    await withCheckedContinuation { continuation in
      let isOpen = state.withLock { state in
        if !state.isOpen { state.waiting.append(continuation) }
        return state.isOpen
      }
      if isOpen { continuation.resume() }
    }
  }

  func open() {
    let waiting = state.withLock { state in
      defer { state = (true, []) }
      return state.waiting
    }
    for continuation in waiting { continuation.resume() }
  }
}
