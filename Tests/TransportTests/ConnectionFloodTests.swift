#if HTTPServer && HTTPClient
  import Foundation
  import SalvorModel
  import SalvorTransport
  import Testing

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Darwin)
    import Darwin
  #endif

  @testable import HTTPServerTransport

  /// What a client without a credential can do with connections (internals: HTTPServerTransport's README).
  @Suite(.serialized) struct ConnectionFloodTests {
    private static let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

    private func serving(
      limits: Limits, idleTimeoutSeconds: Int = 60, forwardedFor: [String] = [],
      handler: @escaping TransportHandler = { TransportResponse.text("for \($0.path)") },
      _ body: (UInt16) async throws -> Void
    ) async throws {
      var options = HTTPServerOptions()
      options.port = 0
      options.idleTimeoutSeconds = idleTimeoutSeconds
      options.forwardedFor = forwardedFor
      let server = HTTPServerTransport(options, limits: limits)
      let url = try await server.start(handler: handler)
      let result: Result<Void, any Error>
      do {
        try await body(try #require(UInt16(url.split(separator: ":").last ?? "")))
        result = .success(())
      } catch {
        result = .failure(error)
      }
      await server.stop(graceMilliseconds: 0)
      try result.get()
    }

    @Test("Unfinished heads of one address lock nobody out: those that have waited longest are closed")
    func unfinishedHeads() async throws {
      var limits = Limits()
      limits.connectionsMax = 64
      limits.headTimeoutMilliseconds = 3_600_000
      try await serving(limits: limits) { port in
        var flood: [RawSocket] = []
        for _ in 0..<300 {
          let socket = try RawSocket(port: port)
          socket.send("GET /hea")
          flood.append(socket)
        }
        for path in ["/healthz", "/any"] {
          let honest = try RawSocket(port: port)
          honest.send("GET \(path) HTTP/1.1\r\nHost: a\r\n\r\n")
          #expect(try #require(await honest.receive(until: "for \(path)")).hasPrefix("HTTP/1.1 200"))
        }
        // The first one is not open any more.
        #expect((await flood[0].receive() ?? "") == "")
      }
    }

    @Test(
      "A head that does not come in its time ends the connection, with a problem; also the second head of a connection")
    func slowHeads() async throws {
      var limits = Limits()
      limits.headTimeoutMilliseconds = 100
      try await serving(limits: limits) { port in
        let first = try RawSocket(port: port)
        first.send("GET /hea")
        #expect(try #require(await first.receive()).hasPrefix("HTTP/1.1 408"))
        let second = try RawSocket(port: port)
        second.send(Self.get)
        #expect(try #require(await second.receive(until: "for /")).hasPrefix("HTTP/1.1 200"))
        second.send("GET /hea")
        let answer = try #require(await second.receive())
        #expect(answer.contains("408") && answer.contains("\"title\":\"timeout\"") && answer.contains("\"number\":"))
      }
    }

    @Test("A body that hardly moves ends its exchange")
    func slowBodies() async throws {
      let broken = AsyncStream.makeStream(of: Bool.self)
      // The window of the measurement is the idle timeout where that is short.
      try await serving(limits: Limits(), idleTimeoutSeconds: 1) { request in
        let body = try? await request.body.collect(upTo: 1 << 20)
        broken.continuation.yield(body == nil)
        return .text("done")
      } _: { port in
        let socket = try RawSocket(port: port)
        socket.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
        let drip = Task {
          while !Task.isCancelled {
            socket.send("x")
            try? await Task.sleep(for: .milliseconds(50))
          }
        }
        for await isBroken in broken.stream {
          #expect(isBroken)
          break
        }
        drip.cancel()
        await drip.value
      }
    }

    @Test(
      "Requests beyond connectionsMax wait for their turn, the next are told to come back, health checks are answered")
    func fullServer() async throws {
      var limits = Limits()
      limits.connectionsMax = 16
      let gate = Gate()
      let arrived = Mutex(0)
      try await serving(limits: limits) { request in
        if request.path == "/healthz" { return .text("well") }
        arrived.withLock { $0 += 1 }
        await gate.wait()
        return .text("done")
      } _: { port in
        var working: [RawSocket] = []
        for _ in 0..<16 {
          let socket = try RawSocket(port: port)
          socket.send(Self.get)
          working.append(socket)
        }
        while arrived.withLock({ $0 }) < 16 { try await Task.sleep(for: .milliseconds(2)) }
        // As many as may wait, and one more.
        var waiting: [RawSocket] = []
        var refused = 0
        for _ in 0..<25 {
          let socket = try RawSocket(port: port)
          socket.send(Self.get)
          waiting.append(socket)
        }
        try await withThrowingTaskGroup(of: String?.self) { group in
          for socket in waiting { group.addTask { await socket.receive() } }
          let first = try #require(try await group.next() ?? nil)
          #expect(first.hasPrefix("HTTP/1.1 503") && first.lowercased().contains("retry-after: "))
          #expect(arrived.withLock { $0 } == 16)
          let health = try RawSocket(port: port)
          health.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
          #expect(try #require(await health.receive(until: "well")).hasPrefix("HTTP/1.1 200"))
          gate.open()
          refused = 1
          for try await answer in group {
            if answer?.hasPrefix("HTTP/1.1 503") == true { refused += 1 }
          }
        }
        #expect(refused == 1)
        #expect(arrived.withLock { $0 } == 40)
        _ = working
      }
    }

    @Test("A health check is answered while every thread that tasks share is busy")
    func busyThreads() async throws {
      let cores = ProcessInfo.processInfo.activeProcessorCount
      let arrived = DispatchSemaphore(value: 0)
      let end = DispatchSemaphore(value: 0)
      try await serving(limits: Limits()) { request in
        if request.path == "/healthz" { return .text("well") }
        // What takes long and never waits: from here on the thread is of no use to others.
        block(arrived, end)
        return .text("done")
      } _: { port in
        // Nothing of this runs on such a thread.
        let answer: Result<String?, any Error> = await withCheckedContinuation { continuation in
          Thread.detachNewThread {
            defer { for _ in 0..<cores { end.signal() } }
            continuation.resume(
              returning: Result {
                var busy: [RawSocket] = []
                for _ in 0..<cores {
                  let socket = try RawSocket(port: port)
                  socket.send(Self.get)
                  busy.append(socket)
                }
                for _ in 0..<cores { arrived.wait() }
                let health = try RawSocket(port: port)
                health.send("GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                return health.receiveNow()
              })
          }
        }
        let text = try answer.get()
        #expect(text?.hasPrefix("HTTP/1.1 200") == true)
      }
    }

    @Test(
      "A client that has left is noticed whatever its connection does: no head, a part of one, between two requests")
    func leftConnections() async throws {
      let table = ConnectionTable(.init(requests: 100, perAddress: 100, headTimeout: .seconds(3600)))
      let daemon = DaemonStart(
        ServerCore(
          handler: { _ in TransportResponse(status: 200) }, limits: Limits(), options: HTTPServerOptions(),
          places: table.places, log: .none), isSecure: false)
      var pair: [Int32] = [0, 0]
      #expect(socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &pair) == 0)
      table.add(ClientConnection(pair[0], nil, isOfProxy: false, daemon: daemon))
      table.inspect(now: .now)
      close(pair[1])
      // The first look may see the end before the library has read what came before it.
      table.inspect(now: .now)
      table.inspect(now: .now)
      // It is shut: a write fails.
      var byte: UInt8 = 0
      #expect(send(pair[0], &byte, 1, Int32(MSG_NOSIGNAL)) < 0)
      close(pair[0])
    }

    @Test("A half-closed client gets its answer, however long the handler works")
    func halfClosed() async throws {
      let goOn = AsyncStream.makeStream(of: Void.self)
      let arrived = AsyncStream.makeStream(of: Void.self)
      try await serving(limits: Limits()) { request in
        arrived.continuation.yield()
        for await _ in goOn.stream { break }
        return .text(Task.isCancelled ? "cancelled" : "done")
      } _: { port in
        for body in ["", "Content-Length: 2\r\n\r\n{}"] {
          let socket = try RawSocket(port: port)
          socket.send("POST / HTTP/1.1\r\nHost: a\r\n" + (body.isEmpty ? "Content-Length: 0\r\n\r\n" : body))
          socket.finishSending()
          for await _ in arrived.stream { break }
          // The server asks whether the client is still there; then it has looked.
          #expect(try #require(await socket.receive(until: "\r\n\r\n")).hasPrefix("HTTP/1.1 100"))
          goOn.continuation.yield()
          let answer = try #require(await socket.receive())
          #expect(answer.hasPrefix("HTTP/1.1 200") && answer.hasSuffix("done"))
        }
      }
    }

    @Test("The limit of an address behind a named proxy is its own; what others say of themselves is not believed")
    func forwarded() async throws {
      var limits = Limits()
      limits.connectionsPerAddressMax = 2
      limits.connectionsMax = 100
      let gate = Gate()
      let arrived = Mutex(0)
      let locals = Mutex<[Bool]>([])
      try await serving(limits: limits, forwardedFor: ["127.0.0.1"]) { request in
        locals.withLock { $0.append(request.peerIsLocal) }
        if request.path == "/local" { return .text("done") }
        arrived.withLock { $0 += 1 }
        await gate.wait()
        return .text("done")
      } _: { port in
        func ask(_ path: String, _ forwarded: String) throws -> RawSocket {
          let socket = try RawSocket(port: port)
          socket.send("GET \(path) HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Forwarded-For: \(forwarded)\r\n\r\n")
          return socket
        }
        // Whatever stands before the proxy's own word is the client's.
        let first = [try ask("/", "192.0.2.1"), try ask("/", "10.9.9.9, 192.0.2.1")]
        while arrived.withLock({ $0 }) < 2 { try await Task.sleep(for: .milliseconds(2)) }
        #expect(try #require(await ask("/", "192.0.2.1, 127.0.0.1").receive()).hasPrefix("HTTP/1.1 503"))
        let other = try ask("/", "192.0.2.2")
        while arrived.withLock({ $0 }) < 3 { try await Task.sleep(for: .milliseconds(2)) }
        gate.open()
        for socket in first + [other] { #expect(try #require(await socket.receive()).hasPrefix("HTTP/1.1 200")) }
        #expect(locals.withLock { $0 } == [false, false, false])
        _ = await (try ask("/local", "127.0.0.1")).receive()
        #expect(locals.withLock { $0.last } == true)
      }
    }

    @Test("A caller that a proxy of this machine forwards is not of this machine, also where no proxy is named")
    func forwardedWithoutName() async throws {
      let locals = Mutex<[Bool]>([])
      try await serving(limits: Limits()) { request in
        locals.withLock { $0.append(request.peerIsLocal) }
        return .text("done")
      } _: { port in
        for header in ["", "X-Forwarded-For: 192.0.2.1\r\n", "Forwarded: for=192.0.2.1\r\n"] {
          let socket = try RawSocket(port: port)
          socket.send("GET / HTTP/1.1\r\nHost: a\r\n\(header)\r\n")
          _ = await socket.receive(until: "done")
        }
        #expect(locals.withLock { $0 } == [true, false, false])
      }
    }

    @Test("What can be read in two ways, or not at all, is a problem with status 400, and the connection is closed")
    func ambiguousHeads() async throws {
      let calls = Mutex(0)
      let post = "POST / HTTP/1.1\r\nHost: a\r\n"
      let heads = [
        post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        post + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
        post + "Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
        post + "Content-Length: 4, 4\r\n\r\nabcd", post + "Content-Length: +4\r\n\r\nabcd",
        post + "Content-Length: -4\r\n\r\nabcd", post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        post + "Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
      ]
      try await serving(limits: Limits()) { _ in
        calls.withLock { $0 += 1 }
        return .text("done")
      } _: { port in
        for head in heads {
          let socket = try RawSocket(port: port)
          socket.send(head + "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
          let answer = try #require(await socket.receive(), "\(head)")
          #expect(answer.hasPrefix("HTTP/1.1 400"), "\(head) \(answer)")
          try Self.expectOneProblem(answer, "malformed", 400)
        }
        #expect(calls.withLock { $0 } == 0)
      }
    }

    @Test("The library's own refusals are problems, too")
    func refusalsOfTheLibrary() async throws {
      try await serving(limits: Limits()) { port in
        let long = String(repeating: "x", count: 40_000)
        for (head, status, code) in [
          ("GET / HTTP/9.9\r\nHost: a\r\n\r\n", 505, "protocol-version"),
          ("GET /\(long) HTTP/1.1\r\nHost: a\r\n\r\n", 414, "too-large"),
          ("GET / HTTP/1.1\r\nHost: a\r\nX: \(long)\r\n\r\n", 431, "too-large"),
        ] {
          let socket = try RawSocket(port: port)
          socket.send(head)
          let answer = try #require(await socket.receive())
          try Self.expectOneProblem(answer, code, status)
        }
      }
    }

    /// One answer, whole, a problem with title and number, and nothing behind it.
    private static func expectOneProblem(_ answer: String, _ code: String, _ status: Int) throws {
      let parts = answer.components(separatedBy: "\r\n\r\n")
      #expect(parts.count == 2, "\(answer)")
      #expect(parts[0].hasPrefix("HTTP/1.1 \(status) "), "\(answer)")
      let head = parts[0].lowercased()
      #expect(head.contains("content-type: application/problem+json") && head.contains("connection: close"))
      let json = try #require(JSONSerialization.jsonObject(with: Data(parts[1].utf8)) as? [String: Any])
      #expect(json["title"] as? String == code && json["status"] as? Int == status && json["number"] is Int)
      #expect(head.contains("content-length: \(parts[1].utf8.count)"))
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

  extension TransportResponse {
    static func text(_ text: String) -> TransportResponse {
      TransportResponse(status: 200, body: .bytes(Array(text.utf8)), contentLength: text.utf8.count)
    }
  }

  private func block(_ arrived: DispatchSemaphore, _ end: DispatchSemaphore) {
    arrived.signal()
    end.wait()
  }
#endif
