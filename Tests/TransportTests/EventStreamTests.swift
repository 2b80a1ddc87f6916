#if HTTPServer && HTTPClient
  import HTTPClientTransport
  import HTTPServerTransport
  import SalvorModel
  import SalvorTransport
  import Testing

  /// Responses without an end, and without a byte for long, over real HTTP.
  @Suite struct EventStreamTests {
    /// Gives a piece whenever it is told to; counts who listens.
    private final class Source: Sendable {
      private struct State {
        var listeners: [Int: AsyncStream<[UInt8]>.Continuation] = [:]
        var last = 0
        var closed = 0
      }
      private let state = Mutex(State())

      var listeners: Int { state.withLock { $0.listeners.count } }
      var closed: Int { state.withLock { $0.closed } }

      func say(_ text: String) { for each in state.withLock({ $0.listeners.values }) { each.yield(Array(text.utf8)) } }

      func finish() { for each in state.withLock({ $0.listeners.values }) { each.finish() } }

      func response() -> TransportResponse {
        let (pieces, give) = AsyncStream.makeStream(of: [UInt8].self)
        let number = state.withLock { state in
          state.last += 1
          state.listeners[state.last] = give
          return state.last
        }
        let reader = Pieces(pieces)
        return TransportResponse(
          status: 200, headers: ["content-type": "text/event-stream"],
          body: ByteStream(
            next: { await reader.next() },
            close: { [self] in
              state.withLock { state in
                state.listeners[number] = nil
                state.closed += 1
              }
            }))
      }
    }

    private actor Pieces {
      private var iterator: AsyncStream<[UInt8]>.AsyncIterator
      init(_ pieces: AsyncStream<[UInt8]>) { iterator = pieces.makeAsyncIterator() }
      func next() async -> [UInt8]? {
        var copy = iterator
        defer { iterator = copy }
        return await copy.next(isolation: self)
      }
    }

    private func serving(
      idleTimeoutSeconds: Int = 60, clientIdleTimeoutSeconds: Int = 60, source: Source,
      _ body: (HTTPClientTransport, UInt16) async throws -> Void
    ) async throws {
      var options = HTTPServerOptions()
      options.port = 0
      options.threads = 1
      options.idleTimeoutSeconds = idleTimeoutSeconds
      let server = HTTPServerTransport(options)
      let url = try await server.start { request in
        request.path == "/events"
          ? source.response() : TransportResponse(status: 200, body: .bytes([0x6F, 0x6B]), contentLength: 2)
      }
      var clientOptions = HTTPClientOptions(url: try HTTPServerURL(url))
      clientOptions.idleTimeoutSeconds = clientIdleTimeoutSeconds
      let client = try HTTPClientTransport(clientOptions)
      do {
        try await body(client, try #require(UInt16(url.split(separator: ":").last ?? "")))
      } catch {
        await client.close()
        await server.stop(graceMilliseconds: 0)
        throw error
      }
      await client.close()
      await server.stop(graceMilliseconds: 0)
    }

    private static let get = TransportRequest(method: "GET", path: "/events")

    /// The stream, once its head has come within the client's idle timeout: on a busy machine not at the first try.
    private func listen(_ client: HTTPClientTransport) async throws -> TransportResponse {
      while true {
        do { return try await client.send(Self.get) } catch let error as SalvorError where error.code == .timeout {}
      }
    }

    @Test("A stream that says now and then that it is there outlives the idle timeouts of both ends")
    func keepAlive() async throws {
      let source = Source()
      // The pauses are a sixteenth of the timeouts: so late nobody may be.
      try await serving(idleTimeoutSeconds: 8, clientIdleTimeoutSeconds: 8, source: source) { client, _ in
        let response = try await listen(client)
        let saying = Task {
          for _ in 0..<20 {
            try await Task.sleep(for: .milliseconds(500))
            source.say(": nothing has changed\n\n")
          }
          source.say("event: changed\n\n")
          source.finish()
        }
        var text = ""
        while let piece = try await response.body.next() { text += String(decoding: piece, as: UTF8.self) }
        #expect(text.hasSuffix("event: changed\n\n"))
        try await saying.value
      }
    }

    @Test("A stream that says nothing at all ends with the client's idle timeout, and the server notices")
    func silence() async throws {
      let source = Source()
      try await serving(clientIdleTimeoutSeconds: 1, source: source) { client, _ in
        let response = try await listen(client)
        source.say("event: connected\n\n")
        await #expect(throws: SalvorError.self) { while try await response.body.next() != nil {} }
        while source.closed == 0 { try await Task.sleep(for: .milliseconds(20)) }
      }
    }

    @Test("A hundred listeners at one thread of the server leave room for requests; those that hang up are noticed")
    func manyListeners() async throws {
      let source = Source()
      try await serving(source: source) { client, port in
        var sockets: [RawSocket] = []
        for _ in 0..<100 {
          let socket = try RawSocket(port: port)
          socket.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n")
          sockets.append(socket)
        }
        while source.listeners < 100 { try await Task.sleep(for: .milliseconds(10)) }
        for _ in 0..<20 {
          let response = try await client.send(TransportRequest(method: "POST", path: "/other", contentLength: 0))
          #expect(try await response.body.collect(upTo: 10) == [0x6F, 0x6B])
        }
        source.say("event: changed\n\n")
        for socket in sockets { #expect(await socket.receive(until: "event: changed\n\n") != nil) }
        sockets = []
        while source.listeners > 0 { try await Task.sleep(for: .milliseconds(20)) }
        #expect(source.closed == 100)
      }
    }
  }
#endif
