import LoopbackTransport
import SalvorContracts
import SalvorModel
import SalvorTransport
import Testing

/// The suite is proved on the loopback pair with one thing broken at a time: the case for it must fail.
@Suite struct TransportContractProof {
  struct Double: Sendable, CustomStringConvertible {
    var description: String
    /// The cases that must notice.
    var breaks: [String]
    var server: @Sendable (any ServerTransport) -> any ServerTransport = { $0 }
    var client: @Sendable (any ClientTransport) -> any ClientTransport = { $0 }
  }

  static let doubles: [Double] = [
    Double(
      description: "holds a request whole",
      breaks: [
        "a handler that does not read stops the request's source", "what is sent arrives before more is there, up",
      ],
      client: { client in
        BrokenClient(client) { request, next in
          var request = request
          request.body = .bytes(try await request.body.collect(upTo: 1 << 30))
          return try await next(request)
        }
      }),
    Double(
      description: "holds a response whole",
      breaks: [
        "a client that does not read stops the response's source", "what is sent arrives before more is there, down",
      ],
      client: { client in
        BrokenClient(client) { request, next in
          var response = try await next(request)
          response.body = .bytes(try await response.body.collect(upTo: 1 << 30))
          return response
        }
      }),
    Double(
      description: "takes a broken response for an end",
      breaks: ["a response that breaks is an error at the client, never an end"],
      client: { client in
        BrokenClient(client) { request, next in
          var response = try await next(request)
          let body = response.body
          response.body = ByteStream(next: { (try? await body.next()) ?? nil }, close: body.close)
          return response
        }
      }),
    Double(
      description: "takes a broken request for an end",
      breaks: ["a request that breaks is an error at both ends, never an end"],
      client: { client in
        BrokenClient(client) { request, next in
          var request = request
          let body = request.body
          request.body = ByteStream(next: { (try? await body.next()) ?? nil }, close: body.close)
          request.contentLength = nil
          return try await next(request)
        }
      }),
    Double(
      description: "cannot be cancelled",
      breaks: [
        "cancelling a wait for the head ends the exchange on both sides",
        "a task that is cancelled already sends nothing",
      ],
      client: { client in
        BrokenClient(client) { request, next in
          try await Task { try await next(request) }.value
        }
      }),
    Double(
      description: "leaves a response's source open",
      breaks: ["a response that is closed early ends its source"],
      client: { client in
        BrokenClient(client) { request, next in
          var response = try await next(request)
          response.body = ByteStream(next: response.body.next)
          return response
        }
      }),
    Double(
      description: "drops headers",
      breaks: [
        "a request reaches the handler whole, and its response the client", "names of headers arrive in lower case",
      ],
      client: { client in
        BrokenClient(client) { request, next in
          var request = request
          request.headers = [:]
          return try await next(request)
        }
      }),
    Double(
      description: "hands names of headers on in capitals",
      breaks: ["names of headers arrive in lower case"],
      client: { client in
        BrokenClient(client) { request, next in
          var request = request
          request.headers = Dictionary(uniqueKeysWithValues: request.headers.map { ($0.uppercased(), $1) })
          return try await next(request)
        }
      }),
    Double(
      description: "serves one request at a time", breaks: ["many requests are handled at once"],
      client: { client in
        let turn = Turn()
        return BrokenClient(client) { request, next in
          await turn.take()
          do {
            let answer = try await next(request)
            await turn.give()
            return answer
          } catch {
            await turn.give()
            throw error
          }
        }
      }),
    Double(
      description: "says unreachable is something else", breaks: ["a server that does not run is unreachable"],
      client: { client in
        BrokenClient(client) { request, next in
          do {
            return try await next(request)
          } catch let error as SalvorError where error.code == .unreachable {
            throw SalvorError(.failed, error.message)
          }
        }
      }),
    Double(
      description: "follows redirects and changes statuses", breaks: ["every status and method is carried"],
      client: { client in
        BrokenClient(client) { request, next in
          var response = try await next(request)
          if (300..<400).contains(response.status) { response.status = 200 }
          return response
        }
      }),
    Double(
      description: "decodes, and leaves the header", breaks: ["a coded body is what its header says"],
      client: { client in
        BrokenClient(client) { request, next in
          var response = try await next(request)
          response.body = .bytes(Array("coded or not".utf8))
          return response
        }
      }),
    Double(
      description: "gives a body to HEAD", breaks: ["HEAD has the head and no body"],
      client: { client in
        BrokenClient(client) { request, next in
          var response = try await next(request)
          if request.method == "HEAD" { response.body = .bytes([1]) }
          return response
        }
      }),
    Double(
      description: "does not let requests finish",
      breaks: ["a stop lets requests in flight finish", "stops at the same time all wait for the end"],
      server: { BrokenServer($0, grace: { _ in 0 }) }),
    Double(
      description: "does not end what outlasts the grace",
      breaks: ["a stop ends what outlasts its grace", "a stop ends an event stream"],
      server: { BrokenServer($0, grace: { _ in 1_000_000 }) }),
    Double(
      description: "starts twice", breaks: ["stop is safe before start, twice, and after a failed start"],
      server: { BrokenServer($0, startsTwice: true) }),
    Double(
      description: "goes on serving a closed client", breaks: ["closing the client ends what is in flight"],
      client: { BrokenClient($0, closes: false) { request, next in try await next(request) } }),
    Double(
      description: "swallows the last piece", breaks: ["a large response streams", "a large request streams"],
      server: { BrokenServer($0, swallowsLastPiece: true) },
      client: { client in
        BrokenClient(client) { request, next in
          var request = request
          request.body = dropLastPiece(request.body)
          request.contentLength = nil
          return try await next(request)
        }
      }),
  ]

  @Test(arguments: doubles)
  func aBrokenTransportIsCaught(_ double: Double) async {
    await ContractPatience.$duration.withValue(.milliseconds(400)) {
      for name in double.breaks {
        let cases = TransportContract.cases.filter { $0.name == name }
        #expect(cases.count == 1, "no case has the name \(name)")
        let broken = await brokenRules(cases) {
          let pair = loopbackPair()
          return TransportSubject(
            makeServer: { double.server(try pair.makeServer($0)) },
            makeClient: { double.client(try pair.makeClient($0, $1)) })
        }
        #expect(broken == [name], "\(double) went unnoticed")
      }
    }
  }

  @Test func limitsThatAreNotKeptAreCaught() async {
    let names = [
      "a request over the limit is refused before it is read",
      "a request that outgrows the limit is an error at the handler",
      "an answer that outgrows the limit is an error at the client",
    ]
    await ContractPatience.$duration.withValue(.seconds(2)) {
      let broken = await brokenRules(TransportContract.cases.filter { names.contains($0.name) }) {
        let pair = loopbackPair()
        return TransportSubject(
          makeServer: { _ in try pair.makeServer(Limits()) },
          makeClient: { url, _ in try pair.makeClient(url, Limits()) })
      }
      #expect(broken == names)
    }
  }
}

/// Holds a piece back until the next one is there.
private func dropLastPiece(_ body: ByteStream) -> ByteStream {
  let held = Mutex<[UInt8]?>(nil)
  return ByteStream(
    next: {
      let before: [UInt8]?
      if let one = held.withLock({ $0 }) {
        before = one
      } else {
        before = try await body.next()
      }
      guard let before, let after = try await body.next() else { return nil }
      held.withLock { $0 = after }
      return before
    }, close: body.close)
}

private struct BrokenClient: ClientTransport {
  typealias Next = @Sendable (TransportRequest) async throws -> TransportResponse
  let inner: any ClientTransport
  let closes: Bool
  let sending: @Sendable (TransportRequest, @escaping Next) async throws -> TransportResponse

  init(
    _ inner: any ClientTransport, closes: Bool = true,
    sending: @escaping @Sendable (TransportRequest, @escaping Next) async throws -> TransportResponse
  ) {
    self.inner = inner
    self.closes = closes
    self.sending = sending
  }

  func send(_ request: TransportRequest) async throws -> TransportResponse {
    try await sending(request) { try await inner.send($0) }
  }

  func close() async { if closes { await inner.close() } }
}

private final class BrokenServer: ServerTransport {
  let inner: any ServerTransport
  let grace: @Sendable (Int64) -> Int64
  let startsTwice: Bool
  let swallowsLastPiece: Bool
  private let url = Mutex<String?>(nil)

  init(
    _ inner: any ServerTransport, grace: @escaping @Sendable (Int64) -> Int64 = { $0 }, startsTwice: Bool = false,
    swallowsLastPiece: Bool = false
  ) {
    self.inner = inner
    self.grace = grace
    self.startsTwice = startsTwice
    self.swallowsLastPiece = swallowsLastPiece
  }

  func start(handler: @escaping TransportHandler) async throws -> String {
    if startsTwice, let url = url.withLock({ $0 }) { return url }
    let swallowsLastPiece = swallowsLastPiece
    let started = try await inner.start { request in
      var response = await handler(request)
      if swallowsLastPiece {
        response.body = dropLastPiece(response.body)
        response.contentLength = nil
      }
      return response
    }
    url.withLock { $0 = started }
    return started
  }

  func stop(graceMilliseconds: Int64) async { await inner.stop(graceMilliseconds: grace(graceMilliseconds)) }
}

/// One at a time.
private actor Turn {
  private var isTaken = false
  private var waiting: [CheckedContinuation<Void, Never>] = []

  func take() async {
    if isTaken { await withCheckedContinuation { waiting.append($0) } }
    isTaken = true
  }

  func give() {
    isTaken = !waiting.isEmpty
    if !waiting.isEmpty { waiting.removeFirst().resume() }
  }
}
