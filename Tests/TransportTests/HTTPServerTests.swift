#if HTTPServer && HTTPClient
  import HTTPClientTransport
  import HTTPServerTransport
  import SalvorContracts
  import SalvorModel
  import SalvorModuleKit
  import SalvorTransport
  import Testing

  /// What only HTTP has; the rest is the transport contract's.
  @Suite struct HTTPServerTests {
    /// Runs `body` against a server on any free port.
    private func serving(
      threads: Int = 2, idleTimeoutSeconds: Int = 60, limits: Limits = Limits(),
      handler: @escaping TransportHandler, _ body: (UInt16) async throws -> Void
    ) async throws {
      var options = HTTPServerOptions()
      options.port = 0
      options.threads = threads
      options.idleTimeoutSeconds = idleTimeoutSeconds
      let server = HTTPServerTransport(options, limits: limits)
      let url = try await server.start(handler: handler)
      do {
        try await body(try #require(UInt16(url.split(separator: ":").last ?? "")))
      } catch {
        await server.stop(graceMilliseconds: 0)
        throw error
      }
      await server.stop(graceMilliseconds: 0)
    }

    private static func text(_ text: String) -> TransportResponse {
      TransportResponse(status: 200, body: .bytes(Array(text.utf8)), contentLength: text.utf8.count)
    }

    private static let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

    @Test func aConnectionIsKeptAliveAndHeadHasTheLengthOfGet() async throws {
      try await serving { request in
        Self.text("for \(request.path)")
      } _: { port in
        let socket = try RawSocket(port: port)
        socket.send("GET /one?x=%20 HTTP/1.1\r\nHost: a\r\n\r\n")
        let first = try #require(await socket.receive(until: "for /one")).lowercased()
        #expect(first.hasSuffix("for /one?x=%20"))
        #expect(first.hasPrefix("http/1.1 200 "))
        #expect(first.contains("\r\ncontent-length: 14\r\n"))
        #expect(!first.contains("connection: close"))
        socket.send("HEAD /three HTTP/1.1\r\nHost: a\r\n\r\nGET /four HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        let rest = try #require(await socket.receive())
        #expect(rest.lowercased().contains("\r\ncontent-length: 10\r\n"))
        #expect(!rest.contains("for /three"))
        #expect(rest.hasSuffix("for /four"))
      }
    }

    @Test func namesOfHeadersAreLowerCaseAndRepeatedOnesJoined() async throws {
      let seen = Mutex<[String: String]>([:])
      try await serving { request in
        seen.withLock { $0 = request.headers }
        return Self.text("done")
      } _: { port in
        let socket = try RawSocket(port: port)
        socket.send("GET / HTTP/1.1\r\nHOST: a\r\nX-Two: 1\r\nx-two: 2\r\nX-Empty:\r\n\r\n")
        _ = await socket.receive(until: "done")
        #expect(seen.withLock { $0 } == ["host": "a", "x-two": "1, 2", "x-empty": ""])
      }
    }

    @Test func theAbsoluteFormIsTakenAndOthersRefused() async throws {
      try await serving {
        Self.text("for \($0.path)")
      } _: { port in
        for (target, answer) in [("http://a.b:1/x?y", "for /x?y"), ("http://a.b", "for /"), ("*", "malformed")] {
          let socket = try RawSocket(port: port)
          socket.send("OPTIONS \(target) HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
          #expect(try #require(await socket.receive()).contains(answer))
        }
      }
    }

    @Test func aBodyOverTheLimitIsRefusedBeforeItComesAndTheConnectionCloses() async throws {
      var limits = Limits()
      limits.bodyBytesMax = 1000
      try await serving(limits: limits) { _ in
        Self.text("done")
      } _: { port in
        for length in ["1001", "99999999999999999999999999"] {
          let socket = try RawSocket(port: port)
          socket.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \(length)\r\n\r\nonly a part")
          let answer = try #require(await socket.receive()).lowercased()
          #expect(answer.hasPrefix("http/1.1 413 "))
          #expect(answer.contains("connection: close"))
        }
      }
    }

    @Test func aLargeHeadIsRefused() async throws {
      let calls = Mutex(0)
      try await serving { _ in
        calls.withLock { $0 += 1 }
        return Self.text("done")
      } _: { port in
        let socket = try RawSocket(port: port)
        socket.send("GET / HTTP/1.1\r\nHost: a\r\nX-Large: " + String(repeating: "x", count: 40_000) + "\r\n\r\n")
        let answer = await socket.receive()
        #expect(answer.map { $0.isEmpty || $0.hasPrefix("HTTP/1.1 431") || $0.hasPrefix("HTTP/1.1 413") } ?? true)
        #expect(calls.withLock { $0 } == 0)
      }
    }

    @Test func expectIsAnsweredWhenTheHandlerWantsTheBody() async throws {
      try await serving { request in
        if request.path == "/refused" { return TransportResponse(status: 401) }
        return Self.text("got \(((try? await request.body.collect(upTo: 1 << 20)) ?? []).count)")
      } _: { port in
        let head = "HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 20000\r\n\r\n"
        let refused = try RawSocket(port: port)
        refused.send("POST /refused \(head)")
        #expect(try #require(await refused.receive(until: "\r\n\r\n")).hasPrefix("HTTP/1.1 401"))
        let taken = try RawSocket(port: port)
        taken.send("POST /taken \(head)")
        #expect(try #require(await taken.receive(until: "\r\n\r\n")).hasPrefix("HTTP/1.1 100"))
        taken.send(String(repeating: "x", count: 20_000))
        #expect(try #require(await taken.receive(until: "got 20000")).contains("got 20000"))
      }
    }

    @Test func aClientThatLeavesWhileTheHandlerWorksCancelsIt() async throws {
      let (arrived, cancelled) = (AsyncStream.makeStream(of: Void.self), AsyncStream.makeStream(of: Void.self))
      try await serving { _ in
        arrived.continuation.yield()
        await untilCancelled()
        cancelled.continuation.yield()
        return TransportResponse(status: 200)
      } _: { port in
        var socket: RawSocket? = try RawSocket(port: port)
        socket?.send(Self.get)
        for await _ in arrived.stream { break }
        socket = nil
        for await _ in cancelled.stream { break }
      }
    }

    @Test func aClientThatLeavesInTheMiddleOfItsBodyIsAnErrorAtTheHandler() async throws {
      let arrived = AsyncStream.makeStream(of: Void.self)
      let goOn = AsyncStream.makeStream(of: Void.self)
      let broken = AsyncStream.makeStream(of: Bool.self)
      try await serving { request in
        arrived.continuation.yield()
        for await _ in goOn.stream { break }
        let body = try? await request.body.collect(upTo: 1 << 20)
        broken.continuation.yield(body == nil)
        return Self.text("done")
      } _: { port in
        for framing in ["Content-Length: 30000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n7000\r\n"] {
          let socket = try RawSocket(port: port)
          socket.send("POST / HTTP/1.1\r\nHost: a\r\n\(framing)")
          for await _ in arrived.stream { break }
          // A part and the end at once, while nobody reads: one look of the server finds both.
          socket.send("only a part")
          socket.finishSending()
          try await Task.sleep(for: .milliseconds(20))
          goOn.continuation.yield()
          for await isBroken in broken.stream {
            #expect(isBroken)
            break
          }
        }
      }
    }

    @Test func anExchangeInWhichNothingMovesIsEnded() async throws {
      let cancelled = AsyncStream.makeStream(of: Void.self)
      try await serving(idleTimeoutSeconds: 1) { _ in
        await untilCancelled()
        cancelled.continuation.yield()
        return TransportResponse(status: 200)
      } _: { port in
        let socket = try RawSocket(port: port)
        socket.send(Self.get)
        for await _ in cancelled.stream { break }
        #expect(await socket.receive() == "")
      }
    }

    @Test func aStopWithManyWaitingConnectionsEndsThemAll() async throws {
      // libmicrohttpd aborts the process where one is still suspended.
      let arrived = Mutex(0)
      try await serving { _ in
        arrived.withLock { $0 += 1 }
        await untilCancelled()
        return TransportResponse(status: 200)
      } _: { port in
        let sockets = try (0..<60).map { _ in try RawSocket(port: port) }
        for socket in sockets { socket.send(Self.get) }
        while arrived.withLock({ $0 }) < sockets.count { try await Task.sleep(for: .milliseconds(1)) }
      }
    }

    @Test func aRequestThatComesWhileTheServerStopsIsRefusedOrCutAndNeverHoldsUpTheStop() async throws {
      // The library drops what is answered while it is being stopped, and asks again: a request with a body was then
      // suspended for good, and the process aborted.
      let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"
      for _ in 0..<20 {
        var options = HTTPServerOptions()
        options.port = 0
        let server = HTTPServerTransport(options)
        let url = try await server.start { _ in Self.text("done") }
        let port = try #require(UInt16(url.split(separator: ":").last ?? ""))
        // Each says its head when it is there: a connection without one is closed after some seconds.
        var sockets: [RawSocket] = []
        for _ in 0..<30 {
          let socket = try RawSocket(port: port)
          sockets.append(socket)
          socket.send(post)
          #expect(try #require(await socket.receive(until: "done")).hasPrefix("HTTP/1.1 200"))
        }
        let stop = Task { await server.stop(graceMilliseconds: 10_000) }
        for socket in sockets { socket.send(post) }
        await stop.value
        for socket in sockets {
          let answer = await socket.receive() ?? ""
          #expect(answer.isEmpty || answer.hasPrefix("HTTP/1.1 200") || answer.hasPrefix("HTTP/1.1 503"))
        }
      }
    }

    @Test func noMoreConnectionsAreServedThanAllowed() async throws {
      var limits = Limits()
      limits.connectionsMax = 16
      let counts = Mutex((now: 0, most: 0))
      try await serving(threads: 1, limits: limits) { _ in
        counts.withLock { counts in
          counts.now += 1
          counts.most = max(counts.most, counts.now)
        }
        try? await Task.sleep(for: .milliseconds(10))
        counts.withLock { $0.now -= 1 }
        return Self.text("done")
      } _: { port in
        await withTaskGroup(of: Bool.self) { group in
          for _ in 0..<36 {
            group.addTask {
              guard let socket = try? RawSocket(port: port) else { return false }
              socket.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
              return await socket.receive()?.hasSuffix("done") == true
            }
          }
          for await isServed in group { #expect(isServed) }
        }
        #expect(counts.withLock { $0.most } <= 16)
      }
    }

    @Test func aHeaderThatHTTPDoesNotAllowIsNotSent() async throws {
      try await serving { _ in
        TransportResponse(status: 200, headers: ["x-split": "a\r\nx-injected: b"])
      } _: { port in
        let socket = try RawSocket(port: port)
        socket.send(Self.get)
        #expect(await socket.receive().map { !$0.contains("injected") } ?? true)
      }
    }

    @Test func anAddressThatIsTakenOrWrongIsAConfigurationError() async throws {
      try await serving { _ in
        Self.text("done")
      } _: { port in
        for (address, port) in [("127.0.0.1", port), ("192.0.2.1", 0), ("no such host.invalid", 0)]
          as [(String, UInt16)]
        {
          var options = HTTPServerOptions()
          options.address = address
          options.port = port
          let server = HTTPServerTransport(options)
          let error = await #expect(throws: SalvorError.self) { _ = try await server.start { _ in Self.text("") } }
          #expect(error?.code == .configuration)
          #expect(error?.message.contains(address) == true)
          await server.stop(graceMilliseconds: 0)
        }
      }
    }

    @Test func aStoppedServerStartsAgain() async throws {
      var options = HTTPServerOptions()
      options.port = 0
      let server = HTTPServerTransport(options)
      for _ in 0..<3 {
        let url = try await server.start { _ in Self.text("done") }
        let client = try HTTPClientTransport(HTTPClientOptions(url: HTTPServerURL(url)))
        let response = try await client.send(TransportRequest(method: "GET", path: "/"))
        #expect(try await response.body.collect(upTo: 10) == Array("done".utf8))
        await client.close()
        await server.stop(graceMilliseconds: 1000)
      }
    }

    @Test(arguments: [
      ("127.0.0.1", true), ("127.8.9.1", true), ("localhost", true), ("::1", true), ("0.0.0.0", false), ("::", false),
      ("192.168.1.4", false), ("example.org", false),
    ])
    func loopbackIsToldFromTheAddress(address: String, isLoopback: Bool) {
      var options = HTTPServerOptions()
      options.address = address
      #expect(
        (HTTPServerTransport(options) as (any ServerTransport) as? any ListeningAddress)?.isLoopback == isLoopback)
    }

    @Test("Others than this machine are not served in clear text, unless that is said or a proxy is named")
    func clearText() async throws {
      var options = HTTPServerOptions()
      options.address = "0.0.0.0"
      options.port = 0
      let refused = HTTPServerTransport(options)
      let error = await #expect(throws: SalvorError.self) { _ = try await refused.start { _ in Self.text("") } }
      #expect(error?.code == .configuration && error?.message.contains("without TLS") == true)
      options.forwardedFor = ["10.0.0.5"]
      #expect(HTTPServerTransport(options).clearTextReach == nil)
      options.forwardedFor = []
      options.insecure = true
      #expect(HTTPServerTransport(options).clearTextReach == nil)
    }

    @Test func everyOptionIsRead() throws {
      let text = """
        { address: "::1", port: 0, threads: 1, idleTimeoutSeconds: 5, tls: { certificate: "c.pem", key: "/k.pem" } }
        """
      let (made, diagnostics) = try prepare(text)
      // The files are not there: a warning, as the server may run elsewhere.
      #expect(diagnostics.errors.isEmpty)
      #expect(diagnostics.map(\.path) == ["listen.tls.certificate", "listen.tls.key"])
      #expect((made as? any ListeningAddress)?.isLoopback == true)
      let wrong = try prepare("{ port: 70000, threads: 0, idleTimeoutSeconds: 0, tls: { key: 1 }, adress: 1 }").1
      #expect(
        Set(wrong.map(\.path)) == [
          "listen.port", "listen.threads", "listen.idleTimeoutSeconds", "listen.tls.certificate", "listen.tls.key",
          "listen.adress",
        ])
    }

    private func prepare(_ text: String) throws -> ((any ServerTransport)?, [Diagnostic]) {
      let value = try JSON5Reader.read(Array(text.utf8), file: "f")
      var reader = OptionReader(value, file: "f", path: "listen")
      let make = HTTPServerTransport.factory.prepare(&reader, ModuleContext(), as: (any ServerTransport).self)
      reader.reportUnknownKeys()
      return (try make?(), reader.diagnostics)
    }
  }

  func untilCancelled() async {
    while !Task.isCancelled { try? await Task.sleep(for: .seconds(60)) }
  }
#endif
