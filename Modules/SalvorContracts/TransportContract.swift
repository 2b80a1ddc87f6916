import SalvorModel
import SalvorTransport

/// Both ends of a transport, as a contract needs them: made fresh for each case, with the limits that it asks for.
public struct TransportSubject: Sendable {
  /// A server that does not listen yet. Each case makes its own, with the limits that it asks for, and stops it.
  public var makeServer: @Sendable (Limits) throws -> any ServerTransport
  /// A client of the server whose `start` returned `url`.
  public var makeClient: @Sendable (_ url: String, Limits) throws -> any ClientTransport

  /// Both ends must speak the same protocol. Each case makes a new server; a client belongs to one server.
  public init(
    makeServer: @escaping @Sendable (Limits) throws -> any ServerTransport,
    makeClient: @escaping @Sendable (_ url: String, Limits) throws -> any ClientTransport
  ) {
    self.makeServer = makeServer
    self.makeClient = makeClient
  }
}

/// What the two ends of a transport keep (Exchange.swift, `ClientTransport` and `ServerTransport`).
public enum TransportContract {
  /// One rule each: single exchanges, streams of bytes, how an exchange breaks off, and the server's start and stop.
  public static let cases = exchangeCases + streamingCases + endingCases + lifecycleCases

  static let exchangeRule = "Exchange.swift, TransportRequest and TransportResponse"
  static let streamRule = "Exchange.swift, ByteStream"
  static let clientRule = "Exchange.swift, ClientTransport"
  static let serverRule = "Exchange.swift, ServerTransport"

  /// Starts a server with `handler`, runs `body` with a client of it, and takes both down, whatever happened.
  static func serving(
    _ subject: TransportSubject, limits: Limits = Limits(), handler: @escaping TransportHandler,
    _ body: @escaping @Sendable (any ClientTransport, any ServerTransport) async throws -> Void
  ) async throws {
    let server = try subject.makeServer(limits)
    let url = try await server.start(handler: handler)
    let client = try subject.makeClient(url, limits)
    let result: Result<Void, any Error>
    do {
      try await patiently("the case") { try await body(client, server) }
      result = .success(())
    } catch {
      result = .failure(error)
    }
    // A broken end may never end: it must not keep the others waiting.
    _ = try? await patiently("taking down") {
      await client.close()
      await server.stop(graceMilliseconds: 0)
    }
    try result.get()
  }

  static var text: TransportResponse {
    TransportResponse(status: 200, body: .bytes(Array("done".utf8)), contentLength: 4)
  }

  /// Sends, reads the whole body, and returns status and body.
  @discardableResult
  static func exchange(
    _ client: any ClientTransport, _ request: TransportRequest
  ) async throws -> (status: Int, headers: [String: String], body: [UInt8]) {
    let response = try await client.send(request)
    return (response.status, response.headers, try await response.body.collect(upTo: 256 << 20))
  }

  static func get(_ path: String = "/") -> TransportRequest { TransportRequest(method: "GET", path: path) }

  static func post(_ body: ByteStream, length: Int? = nil) -> TransportRequest {
    TransportRequest(method: "POST", path: "/", body: body, contentLength: length)
  }

  /// "coded or not", in gzip.
  private static let coded: [UInt8] = [
    31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 75, 206, 79, 73, 77, 81, 200, 47, 82, 200,
    203, 47, 1, 0, 44, 104, 23, 159, 12, 0, 0, 0,
  ]

  // MARK: One exchange

  private static let exchangeCases: [ContractCase<TransportSubject>] = [
    ContractCase("a request reaches the handler whole, and its response the client", rule: exchangeRule) { subject in
      let seen = Signal<TransportRequest>()
      try await serving(subject) { request in
        seen.send(request)
        let body = (try? await request.body.collect(upTo: 1000)) ?? []
        return TransportResponse(
          status: 207, headers: ["content-type": "text/plain", "x-answer": "a, b; c=\"d\""],
          body: .bytes(Array(body.reversed())), contentLength: body.count)
      } _: { client, _ in
        var request = post(.bytes([1, 2, 3]), length: 3)
        request.path = "/v1/things?name=a%20b&other=%2F"
        request.headers = ["x-first": "one", "authorization": "Bearer x.y-z=", "content-type": "application/json"]
        let found = try await exchange(client, request)
        let got = await seen.value
        try expectEqual(got.method, "POST", "the method")
        try expectEqual(got.path, request.path, "the path with its query")
        for (name, value) in request.headers { try expectEqual(got.headers[name], value, "the header \(name)") }
        try expect(got.headers.keys.allSatisfy { $0 == $0.lowercased() }, "header names must be lower-case")
        try expect(got.peerIsLocal, "a caller on this machine must be local")
        try expectEqual(got.contentLength, 3, "the request's length")
        try expectEqual(found.status, 207, "the status")
        try expectEqual(found.headers["x-answer"], "a, b; c=\"d\"", "the response's header")
        try expectEqual(found.headers["content-type"], "text/plain", "the response's content type")
        try expectEqual(found.body, [3, 2, 1], "the response's body")
      }
    },
    ContractCase("names of headers arrive in lower case", rule: exchangeRule) { subject in
      let seen = Signal<[String: String]>()
      try await serving(subject) { request in
        seen.send(request.headers)
        return text
      } _: { client, _ in
        var request = get()
        request.headers = ["x-lower": "1"]
        try await exchange(client, request)
        let headers = await seen.value
        try expectEqual(headers["x-lower"], "1", "a header")
        try expect(headers.keys.allSatisfy { $0 == $0.lowercased() }, "found names: \(headers.keys.sorted())")
      }
    },
    ContractCase("every status and method is carried", rule: exchangeRule) { subject in
      try await serving(subject) { request in
        let status = Int(request.path.dropFirst()) ?? 0
        return TransportResponse(status: status, headers: ["x-method": request.method])
      } _: { client, _ in
        for status in [200, 201, 202, 301, 307, 400, 401, 403, 404, 409, 413, 415, 423, 429, 500, 503, 507] {
          let found = try await exchange(client, get("/\(status)"))
          try expectEqual(found.status, status, "the status")
        }
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
          let found = try await exchange(client, TransportRequest(method: method, path: "/200"))
          try expectEqual(found.headers["x-method"], method, "the method")
        }
      }
    },
    ContractCase("a coded body is what its header says", rule: exchangeRule) { subject in
      // One who has the system decode what it can says so: the header goes then.
      try await serving(subject) { request in
        TransportResponse(
          status: 200, headers: ["content-encoding": "gzip"], body: .bytes(coded),
          contentLength: request.path == "/known" ? coded.count : nil)
      } _: { client, _ in
        for path in ["/known", "/unknown"] {
          for accepted in ["gzip", nil] {
            var request = get(path)
            request.headers["accept-encoding"] = accepted
            let found = try await exchange(client, request)
            let isCoded = found.headers["content-encoding"] != nil
            try expectEqual(found.body, isCoded ? coded : Array("coded or not".utf8), "the body of \(path)")
          }
        }
      }
    },
    ContractCase("empty bodies are empty, with and without a length", rule: exchangeRule) { subject in
      try await serving(subject) { request in
        guard let body = try? await request.body.collect(upTo: 10), body.isEmpty else {
          return TransportResponse(status: 400)
        }
        return TransportResponse(status: 200, body: .empty, contentLength: request.path == "/known" ? 0 : nil)
      } _: { client, _ in
        for path in ["/known", "/unknown"] {
          for length in [0, nil] {
            for method in ["POST", "GET", "DELETE"] {
              let found = try await exchange(
                client, TransportRequest(method: method, path: path, contentLength: length))
              try expectEqual(found.status, 200, "\(method) \(path) without a body")
              try expectEqual(found.body, [], "\(method) \(path), the response's body")
            }
          }
        }
      }
    },
    ContractCase("HEAD has the head and no body", rule: exchangeRule) { subject in
      let closed = Signal<Void>()
      try await serving(subject) { request in
        guard request.method == "HEAD" else { return text }
        return TransportResponse(
          status: 200, headers: ["x-there": "yes"],
          body: ByteStream(next: { [9] }, close: { closed.send() }), contentLength: 1_000_000)
      } _: { client, _ in
        let response = try await client.send(TransportRequest(method: "HEAD", path: "/"))
        try expectEqual(response.status, 200, "the status")
        try expectEqual(response.headers["x-there"], "yes", "the header")
        try expectEqual(try await response.body.collect(upTo: 10), [], "the body of an answer to HEAD")
        await closed.value
        try expectEqual(try await exchange(client, get("/")).body, Array("done".utf8), "the next exchange")
      }
    },
    ContractCase("many requests are handled at once", rule: serverRule) { subject in
      let arrived = Mutex(0)
      let all = Signal<Void>()
      try await serving(subject) { request in
        let count = arrived.withLock { count in
          count += 1
          return count
        }
        if count == 16 { all.send() }
        await all.value
        let body = (try? await request.body.collect(upTo: 100)) ?? []
        return TransportResponse(status: 200, body: .bytes(body), contentLength: body.count)
      } _: { client, _ in
        try await withThrowingTaskGroup(of: Void.self) { group in
          for number in 0..<16 {
            group.addTask {
              let body: [UInt8] = [UInt8(number), 1, 2]
              let found = try await exchange(client, post(.bytes(body), length: 3))
              try expectEqual(found.body, body, "the body of request \(number)")
            }
          }
          try await group.waitForAll()
        }
      }
    },
    ContractCase("exchange follows exchange", rule: clientRule) { subject in
      try await serving(subject) { request in
        let body = (try? await request.body.collect(upTo: 100_000)) ?? []
        return TransportResponse(
          status: 200, body: .bytes(body), contentLength: request.path == "/known" ? body.count : nil)
      } _: { client, _ in
        for number in 0..<60 {
          let body = [UInt8](repeating: UInt8(number), count: number * number)
          var request = post(.bytes(body), length: number % 2 == 0 ? body.count : nil)
          request.path = number % 3 == 0 ? "/known" : "/unknown"
          try expectEqual(try await exchange(client, request).body, body, "the body of exchange \(number)")
        }
      }
    },
  ]
}
