import SalvorModel
import SalvorModuleKit
import SalvorTransport

/// The names under which servers of one process can be reached: what the ports of a machine are to HTTP. Whoever
/// composes a system makes one and gives it to both factories.
public final class LoopbackNetwork: Sendable {
  private let servers = Mutex<[String: LoopbackServerTransport]>([:])

  /// A network of no servers. Networks do not share names.
  public init() {}

  /// False where the name is taken.
  func add(_ server: LoopbackServerTransport, name: String) -> Bool {
    servers.withLock { servers in
      if servers[name] != nil { return false }
      servers[name] = server
      return true
    }
  }

  func remove(_ server: LoopbackServerTransport, name: String) {
    servers.withLock { servers in
      if servers[name] === server { servers[name] = nil }
    }
  }

  func server(_ name: String) -> LoopbackServerTransport? { servers.withLock { $0[name] } }
}

/// The server's end of a transport within one process.
public final class LoopbackServerTransport: ServerTransport, ListeningAddress {
  private struct State {
    var handler: TransportHandler?
    var exchanges: [ObjectIdentifier: LoopbackExchange] = [:]
  }

  private let network: LoopbackNetwork
  private let name: String
  private let limits: Limits
  private let state = Mutex(State())

  /// Takes no name in the network yet: `start` does.
  ///
  /// - Parameter limits: `bodyBytesMax` bounds the body of a request.
  public init(_ network: LoopbackNetwork, name: String = "default", limits: Limits = Limits()) {
    self.network = network
    self.name = name
    self.limits = limits
  }

  /// True: only clients in this process reach the server.
  public var isLoopback: Bool { true }

  /// Errors: `configuration` where another server has the name; `usage` where it runs already.
  public func start(handler: @escaping TransportHandler) async throws -> String {
    let isFirst = state.withLock { state in
      guard state.handler == nil else { return false }
      state.handler = handler
      return true
    }
    guard isFirst else { throw SalvorError(.usage, "This loopback server runs already. Stop it first.") }
    guard network.add(self, name: name) else {
      state.withLock { $0.handler = nil }
      throw SalvorError(
        .configuration, "Another loopback server of this process has the name \(name). Choose another name.",
        context: ["name": name])
    }
    return "loopback:\(name)"
  }

  /// Gives the name back, so that another server can take it. An exchange that goes on after `graceMilliseconds` ends
  /// with `unreachable` for the client; its handler has 2 seconds more to notice the cancellation. Never throws.
  public func stop(graceMilliseconds: Int64) async {
    network.remove(self, name: name)
    state.withLock { $0.handler = nil }
    if await isQuiet(within: graceMilliseconds) { return }
    for exchange in state.withLock({ Array($0.exchanges.values) }) {
      exchange.end(SalvorError(.unreachable, "The server is stopping. Try again later."))
    }
    // A handler that does not notice its cancellation is not waited for any longer.
    _ = await isQuiet(within: 2000)
  }

  private func isQuiet(within milliseconds: Int64) async -> Bool {
    let deadline = ContinuousClock.now + .milliseconds(milliseconds)
    while !state.withLock({ $0.exchanges.isEmpty }) {
      if ContinuousClock.now >= deadline { return false }
      await Task { try? await Task.sleep(for: .milliseconds(2)) }.value
    }
    return true
  }

  /// A client's request, as an exchange that the client is told of. Errors: as `ClientTransport.send`.
  func take(
    _ request: TransportRequest, responseBytesMax: Int, begin: (LoopbackExchange) -> Void
  ) async throws -> TransportResponse {
    guard !Task.isCancelled else {
      await request.body.close()
      throw SalvorError(.cancelled, "The exchange was cancelled.")
    }
    let limit = limits.bodyBytesMax
    if let length = request.contentLength, length > limit {
      await request.body.close()
      let detail = "{\"type\":\"about:blank\",\"status\":413,\"code\":\"too-large\",\"limit\":\"\(limit)\"}"
      return TransportResponse(
        status: 413, headers: ["content-type": "application/problem+json"], body: .bytes(Array(detail.utf8)),
        contentLength: detail.utf8.count)
    }
    let exchange = LoopbackExchange(requestBytesMax: limit, responseBytesMax: responseBytesMax) {
      [weak self] exchange in
      self?.end(exchange)
    }
    let handler = state.withLock { state in
      if state.handler != nil { state.exchanges[ObjectIdentifier(exchange)] = exchange }
      return state.handler
    }
    guard let handler else {
      await request.body.close()
      throw unreachable(name)
    }
    begin(exchange)
    return try await exchange.run(request, handler)
  }

  private func end(_ exchange: LoopbackExchange) {
    _ = state.withLock { $0.exchanges.removeValue(forKey: ObjectIdentifier(exchange)) }
  }
}

private func unreachable(_ name: String) -> SalvorError {
  SalvorError(
    .unreachable, "No loopback server with the name \(name) runs in this process. Start it, or correct the name.",
    context: ["server": name])
}

/// The device's end of a transport within one process.
public final class LoopbackClientTransport: ClientTransport, CompressionPreference {
  private let network: LoopbackNetwork
  private let name: String
  private struct State {
    var isClosed = false
    var exchanges: [Weak] = []
  }
  private struct Weak { weak var exchange: LoopbackExchange? }
  private let state = Mutex(State())

  /// The content coding that `init` was given: `identity` where nothing else is.
  public let preferredCompression: String

  private let limits: Limits

  /// - Parameters:
  ///   - name: the server's name in the network. The server need not run yet.
  ///   - compression: the content coding that the client sends and asks for.
  ///   - limits: `downloadBytesMax` bounds the body of a response.
  public init(
    _ network: LoopbackNetwork, name: String = "default", compression: String = "identity", limits: Limits = Limits()
  ) {
    self.network = network
    self.limits = limits
    self.name = name
    self.preferredCompression = compression
  }

  /// Hands the request to the server of that name, in this process. Errors: those of `ClientTransport`; `unreachable`
  /// where no server has the name, `cancelled` after `close`.
  public func send(_ request: TransportRequest) async throws -> TransportResponse {
    guard !state.withLock({ $0.isClosed }) else {
      await request.body.close()
      throw SalvorError(.cancelled, "The loopback transport was closed.")
    }
    guard let server = network.server(name) else {
      await request.body.close()
      throw unreachable(name)
    }
    return try await server.take(request, responseBytesMax: limits.downloadBytesMax) { exchange in
      state.withLock { state in
        state.exchanges.removeAll { $0.exchange == nil }
        state.exchanges.append(Weak(exchange: exchange))
      }
    }
  }

  /// Ends what is in flight with `cancelled`. Later requests throw `cancelled`. Safe twice.
  public func close() async {
    let left = state.withLock { state in
      state.isClosed = true
      defer { state.exchanges = [] }
      return state.exchanges.compactMap(\.exchange)
    }
    for exchange in left { exchange.end(SalvorError(.cancelled, "The loopback transport was closed.")) }
  }
}

extension LoopbackNetwork {
  private static var nameOption: ModuleOption {
    ModuleOption("name", type: "string", default: "\"default\"", "the server's name in this process")
  }

  /// The module `loopback` of kind `server-transport`, on this network.
  public var serverFactory: ModuleFactory {
    ModuleFactory(
      ModuleDescriptor(
        kind: .serverTransport, name: "loopback", summary: "A server for clients in the same process",
        options: [Self.nameOption],
        guarantees: ["bodies stream both ways with back-pressure", "no socket is opened"]),
      product: (any ServerTransport).self
    ) { reader, context in
      let name = reader.string("name", default: "default")
      return { LoopbackServerTransport(self, name: name, limits: context.limits) }
    }
  }

  /// The module `loopback` of kind `client-transport`, on this network.
  public var clientFactory: ModuleFactory {
    ModuleFactory(
      ModuleDescriptor(
        kind: .clientTransport, name: "loopback", summary: "A client of a server in the same process",
        options: [
          Self.nameOption,
          ModuleOption(
            "compression", type: "string", default: "\"identity\"", "the content coding to send and to ask for"),
        ],
        guarantees: ["bodies stream both ways with back-pressure", "no socket is opened"]),
      product: (any ClientTransport).self
    ) { reader, context in
      let name = reader.string("name", default: "default")
      let compression = reader.string("compression", default: "identity")
      return { LoopbackClientTransport(self, name: name, compression: compression, limits: context.limits) }
    }
  }
}
