#if HTTPServer
  import SalvorModel
  import SalvorTransport

  /// What the exchanges of one server share: the handler, the limits, and the list of those in flight.
  final class ServerCore: Sendable {
    private struct State {
      var exchanges: [ObjectIdentifier: ServerExchange] = [:]
      var handlers = 0
      var lingering = 0
      var isStopping = false
      /// Told once nothing is in flight any more.
      var onQuiet: AsyncStream<Bool>.Continuation?

      var isQuiet: Bool { exchanges.isEmpty && handlers == 0 }

      func tellIfQuiet() { if isQuiet { onQuiet?.yield(true) } }
    }

    /// Connections that are read to their end after an early answer.
    static let lingeringMax = 64

    let handler: TransportHandler
    let bodyBytesMax: Int
    let idleTimeoutSeconds: Int
    let bodyBytesPerSecondMin: Int
    let connections: ConnectionTable
    let proxies: ForwardedFor
    /// Health is told whatever the threads of all tasks are busy with.
    let healthChecks = OwnThread("health")
    let log: Log
    private let state = Mutex(State())

    init(
      handler: @escaping TransportHandler, limits: Limits, options: HTTPServerOptions, places: ConnectionTable.Places,
      log: Log
    ) {
      self.handler = handler
      self.bodyBytesMax = limits.bodyBytesMax
      self.idleTimeoutSeconds = options.idleTimeoutSeconds
      self.bodyBytesPerSecondMin = limits.bodyBytesPerSecondMin
      self.connections = ConnectionTable(places)
      self.proxies = ForwardedFor(options)
      self.log = log
    }

    var isStopping: Bool { state.withLock { $0.isStopping } }

    /// False where the server is stopping: the request is not taken.
    func begin(_ exchange: ServerExchange) -> Bool {
      state.withLock { state in
        if state.isStopping { return false }
        state.exchanges[ObjectIdentifier(exchange)] = exchange
        return true
      }
    }

    func end(_ exchange: ServerExchange) {
      state.withLock { state in
        state.exchanges[ObjectIdentifier(exchange)] = nil
        state.tellIfQuiet()
      }
    }

    func handlerBegan() { state.withLock { $0.handlers += 1 } }

    func handlerEnded() {
      state.withLock { state in
        state.handlers -= 1
        state.tellIfQuiet()
      }
    }

    /// Keeps reading a connection that was answered early; `descriptor` is given away.
    func startLingering(_ descriptor: Int32) {
      let taken = state.withLock { state in
        guard state.lingering < Self.lingeringMax else { return false }
        state.lingering += 1
        return true
      }
      let bytesMax = taken ? bodyBytesMax : 0
      Task {
        await linger(descriptor, bytesMax: bytesMax)
        if taken { state.withLock { $0.lingering -= 1 } }
      }
    }

    /// Watches all connections until the task is cancelled.
    func watch() async {
      let pace = ConnectionGate.Pace(
        idleAfter: .seconds(idleTimeoutSeconds), bytesPerSecondMin: bodyBytesPerSecondMin,
        window: .seconds(min(20, idleTimeoutSeconds)))
      while (try? await Task.sleep(for: .milliseconds(300))) != nil {
        let now = ContinuousClock.now
        connections.inspect(now: now)
        for exchange in state.withLock({ Array($0.exchanges.values) }) { exchange.inspect(now: now, pace: pace) }
      }
    }

    func refuseRequests() { state.withLock { $0.isStopping = true } }

    /// Waits until no exchange and no handler is left, at most `milliseconds`. False where some are. One at a time, in a
    /// task that nobody cancels.
    func waitUntilQuiet(milliseconds: Int64) async -> Bool {
      let (ends, end) = AsyncStream.makeStream(of: Bool.self)
      state.withLock { state in
        state.onQuiet = end
        state.tellIfQuiet()
      }
      let limit = Task { if (try? await Task.sleep(for: .milliseconds(milliseconds))) != nil { end.yield(false) } }
      defer { limit.cancel() }
      for await isQuiet in ends { return isQuiet }
      return false
    }

    /// Ends what is in flight: no connection of it is suspended after this, now or later.
    func abortAll() {
      let error = SalvorError(.unreachable, "The server is stopping. Try again later.")
      for exchange in state.withLock({ Array($0.exchanges.values) }) { exchange.abort(error) }
    }
  }
#endif
