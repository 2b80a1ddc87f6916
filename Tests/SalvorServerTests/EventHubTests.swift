import MemoryStore
import NoAuthentication
import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire
import Testing

@testable import SalvorServerEngine

/// Server-initiated sync (semantics 1): who listens is told which groups have changed, and nothing of their rows.
@Suite("GET /v1/events")
struct EventHubTests {
  private static let schema = Schema(
    groups: [
      Schema.Group(name: "visits, all", serverInitiated: true), Schema.Group(name: "lists", serverInitiated: true),
      Schema.Group(name: "quiet"),
    ],
    tables: ["visits, all", "lists", "quiet"].map { group in
      Table(
        "\(group.prefix(5))", group: group, primaryKey: ["id"],
        columns: [Column("id", .text), Column("v", .text, nullable: true)])
    })

  /// A server over the memory store, asked without a transport: nothing is read before a test reads it.
  private struct Server {
    let store = MemoryServerStore()
    let engine: ServerEngine

    init(_ configure: (inout Limits) -> Void = { _ in }) async throws {
      var limits = Limits()
      limits.eventLookMilliseconds = 10
      configure(&limits)
      (engine, _) = try await ServerEngine.start(
        ServerConfiguration(
          schema: EventHubTests.schema, store: store, authentication: NoAuthentication(), compressions: [],
          limits: limits))
    }

    func get(_ query: String, principal: String? = "anna", lastEventID: String? = nil) async -> TransportResponse {
      var headers = ["salvor-principal": principal, "last-event-id": lastEventID].compactMapValues { $0 }
      headers["accept"] = ServerEvent.contentType
      return await engine.handle(TransportRequest(method: "GET", path: "/v1/events" + query, headers: headers))
    }

    func listen(_ query: String = "", lastEventID: String? = nil) async throws -> Listening {
      let response = await get(query, lastEventID: lastEventID)
      try #require(response.status == 200)
      #expect(response.headers["content-type"] == ServerEvent.contentType)
      return Listening(response.body)
    }

    func write(_ table: String, _ id: String) async throws -> Commit {
      try await store.write([
        .insert(table: table, values: [NamedValue("id", .text(id))])
      ])
      return try await store.sweep()
    }

    func problem(_ response: TransportResponse) async throws -> (code: String?, detail: String) {
      let json = try JSONValue(parsing: try await response.body.collect(upTo: 1 << 16))
      return (json["code"]?.string, json["detail"]?.string ?? "")
    }
  }

  /// The reading end.
  private actor Listening {
    private let body: ByteStream
    private var reader = ServerEventReader()
    private var waiting: [ServerEvent] = []

    init(_ body: ByteStream) { self.body = body }

    /// The next event; nil at the end.
    func next() async throws -> ServerEvent? {
      while waiting.isEmpty {
        guard let piece = try await body.next() else { return nil }
        waiting = try reader.read(piece)
      }
      return waiting.removeFirst()
    }

    func raw() async throws -> String? {
      try await body.next().map { String(decoding: $0, as: UTF8.self) }
    }

    func close() async { await body.close() }
  }

  @Test("A stream begins with its groups and the newest commit, then says what other programs change")
  func tells() async throws {
    let server = try await Server()
    let zero = try await server.store.sweep()
    let listening = try await server.listen()
    #expect(try await listening.next() == .connected(groups: ["visits, all", "lists"], commit: zero))
    let first = try await server.write("visit", "v1")
    #expect(try await listening.next() == .changed(groups: ["visits, all"], commit: first))
    _ = try await server.write("quiet", "q1")
    let third = try await server.write("lists", "l1")
    #expect(try await listening.next() == .changed(groups: ["lists"], commit: third))
    await listening.close()
    await server.engine.stop()
  }

  @Test("Only the groups that were asked for are told of; names are percent-encoded")
  func tellsOfTheGroupsAskedFor() async throws {
    let server = try await Server()
    let listening = try await server.listen("?groups=\(percentEncoded("visits, all"))")
    #expect(try await listening.next() == .connected(groups: ["visits, all"], commit: server.store.sweep()))
    _ = try await server.write("lists", "l1")
    let second = try await server.write("visit", "v1")
    #expect(try await listening.next() == .changed(groups: ["visits, all"], commit: second))
    await server.engine.stop()
  }

  @Test("A group that does not tell of its changes is refused by name", arguments: ["quiet", "nosuch", "lists,quiet"])
  func refusesByName(groups: String) async throws {
    let server = try await Server()
    let response = await server.get("?groups=\(groups)")
    #expect(response.status == 400)
    let problem = try await server.problem(response)
    #expect(problem.code == "usage")
    #expect(problem.detail.contains(groups == "nosuch" ? "nosuch" : "quiet"))
    #expect(server.engine.events.count == 0)
  }

  @Test("It is authenticated like a sync, and a remote ID of another principal is refused")
  func isAuthenticated() async throws {
    let server = try await Server()
    #expect(await server.get("", principal: nil).status == 401)
    let remote = RemoteID(from: SystemRandom())
    try await server.store.register(remote, principal: "bert")
    let response = await server.get("?remote=\(remote)")
    #expect(response.status == 403)
    #expect(try await server.problem(response).code == "remote-of-another-principal")
  }

  @Test(
    "What is no commit, remote ID or list of commits is malformed",
    arguments: ["since=7", "since=x-y", "since=-1-0", "remote=1", "groups=lists&since=,"])
  func malformed(query: String) async throws {
    let response = await (try await Server()).get("?\(query)")
    #expect(response.status == 400)
  }

  @Test("What changed while nobody listened is told at once, group by group, by since and by Last-Event-ID")
  func tellsWhatWasMissed() async throws {
    let server = try await Server()
    let first = try await server.write("visit", "v1")
    let second = try await server.write("lists", "l1")
    var listening = try await server.listen("?since=\(first.text)")
    #expect(try await listening.next() == .connected(groups: ["visits, all", "lists"], commit: second))
    #expect(try await listening.next() == .changed(groups: ["lists"], commit: second))
    listening = try await server.listen("?since=\(first.text)", lastEventID: second.text)
    _ = try await listening.next()
    let third = try await server.write("visit", "v2")
    #expect(try await listening.next() == .changed(groups: ["visits, all"], commit: third))
    // The lists are where they were when the second commit was made; the visits are not.
    listening = try await server.listen("?since=\(first.text),\(second.text)")
    _ = try await listening.next()
    #expect(try await listening.next() == .changed(groups: ["visits, all"], commit: third))
    await server.engine.stop()
  }

  @Test("Since a commit that this server never made, every group may have changed")
  func anotherHistory() async throws {
    let server = try await Server()
    let head = try await server.write("visit", "v1")
    let lost = Commit(number: head.number, id: CommitID(from: SystemRandom()))
    let listening = try await server.listen("?since=\(lost.text)")
    _ = try await listening.next()
    #expect(try await listening.next() == .changed(groups: ["visits, all", "lists"], commit: head))
    await server.engine.stop()
  }

  @Test("A burst that comes before it is read is one event")
  func aBurstIsOneEvent() async throws {
    let server = try await Server()
    let listening = try await server.listen()
    _ = try await listening.next()
    var last = try await server.write("visit", "v0")
    for number in 1...20 { last = try await server.write(number % 2 == 0 ? "visit" : "lists", "v\(number)") }
    // What the hub has seen by now is one event, and what it has not seen yet another one.
    var told: [ServerEvent] = []
    while true {
      let event = try #require(try await listening.next())
      told.append(event)
      if case .changed(_, let commit) = event, commit == last { break }
    }
    #expect(told.count <= 2)
    await server.engine.stop()
  }

  @Test("A device is not told of its own uploads; others are")
  func noEcho() async throws {
    let server = try await Server()
    let (anna, bert) = (RemoteID(from: SystemRandom()), RemoteID(from: SystemRandom()))
    try await server.store.register(anna, principal: "anna")
    let own = try await server.listen("?remote=\(anna)")
    let others = try await server.listen("?remote=\(bert)")
    _ = try await own.next()
    _ = try await others.next()
    var writer = UploadChunkWriter()
    let place = writer.place(of: UploadShape(table: "visit", operation: .insert, columns: ["id", "v"]))
    writer.beginChange(shape: place, stamp: RequestStamp(from: SystemRandom()), counter: 1, made: 0)
    writer.value("v1")
    writer.value(.null)
    writer.endChange()
    let chunk = UploadChunk(bytes: writer.finish(), firstCounter: 1, lastCounter: 1, changeCount: 1, isLast: true)
    let results = try await server.store.process(
      ProcessRequest(
        remote: anna, sequence: SequenceID(from: SystemRandom()), principal: Principal(name: "anna"), chunks: [chunk]))
    let upload = try #require(results.commit)
    #expect(try await others.next() == .changed(groups: ["visits, all"], commit: upload))
    let later = try await server.write("lists", "l1")
    #expect(try await own.next() == .changed(groups: ["lists"], commit: later))
    await server.engine.stop()
  }

  @Test("A stream that has nothing to say says so")
  func keepsAlive() async throws {
    let server = try await Server { $0.eventKeepAliveMilliseconds = 100 }
    let listening = try await server.listen()
    #expect(try await listening.raw()?.hasPrefix("event: connected\n") == true)
    for _ in 0..<3 { #expect(try await listening.raw() == ": nothing has changed\n\n") }
    await server.engine.stop()
  }

  @Test("No more streams than eventListenersMax, nor than half of the connections; one that is closed makes room")
  func limits() async throws {
    let server = try await Server { limits in
      limits.eventListenersMax = 5
      limits.connectionsMax = 4
    }
    let first = try await server.listen()
    _ = try await server.listen()
    let response = await server.get("")
    #expect(response.status == 503)
    #expect(response.headers["retry-after"] != nil)
    let problem = try await server.problem(response)
    #expect(problem.code == "too-many-listeners")
    #expect(problem.detail.contains("eventListenersMax"))
    await first.close()
    _ = try await server.listen()
    await server.engine.stop()
  }

  @Test("A remote ID's fifth stream ends its first")
  func streamsOfOneRemote() async throws {
    let server = try await Server()
    let remote = RemoteID(from: SystemRandom())
    let first = try await server.listen("?remote=\(remote)")
    for _ in 0..<EventHub.listenersOfRemoteMax { _ = try await server.listen("?remote=\(remote)") }
    #expect(try await first.next() == nil)
    await server.engine.stop()
  }

  @Test("A stream ends after its time, so that a credential is shown again")
  func endsAfterItsTime() async throws {
    let server = try await Server { $0.eventStreamMilliseconds = 200 }
    let listening = try await server.listen()
    while let event = try await listening.next() {
      guard case .connected = event else {
        Issue.record("\(event) was told")
        break
      }
    }
    await server.engine.stop()
  }

  @Test("A server that stops ends its streams, and begins none")
  func stopEndsStreams() async throws {
    let server = try await Server()
    let listening = try await server.listen()
    _ = try await listening.next()
    async let end = listening.next()
    server.engine.endWaiting()
    #expect(try await end == nil)
    let response = await server.get("")
    #expect(response.status == 503)
    #expect(try await server.problem(response).code == "overloaded")
    await server.engine.stop()
  }

  @Test("A reader that is cancelled is gone, and nothing is asked of the store while nobody listens")
  func nobodyListens() async throws {
    let server = try await Server()
    let listening = try await server.listen()
    let reading = Task {
      while try await listening.next() != nil {}
      await listening.close()
    }
    while server.engine.events.count == 0 { try await Task.sleep(for: .milliseconds(5)) }
    reading.cancel()
    _ = try await reading.value
    #expect(server.engine.events.count == 0)
    #expect(!server.engine.events.isWatching)
    await server.engine.stop()
  }
}
