#if HTTPServer
  import SalvorModel
  import SalvorTransport
  import Synchronization

  /// What the exchanges of one server share: the handler, the limits, and the list of those in flight.
  final class ServerCore: Sendable {
    private struct State {
      var exchanges: [ObjectIdentifier: ServerExchange] = [:]
      var handlers = 0
      var lingering = 0
      var isStopping = false
    }

    let handler: TransportHandler
    let bodyBytesMax: Int
    let idleTimeoutSeconds: Int
    let log: @Sendable (String) -> Void
    private let state = Mutex(State())

    init(
      handler: @escaping TransportHandler, bodyBytesMax: Int, idleTimeoutSeconds: Int,
      log: @escaping @Sendable (String) -> Void
    ) {
      self.handler = handler
      self.bodyBytesMax = bodyBytesMax
      self.idleTimeoutSeconds = idleTimeoutSeconds
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
      _ = state.withLock { $0.exchanges.removeValue(forKey: ObjectIdentifier(exchange)) }
    }

    func handlerBegan() { state.withLock { $0.handlers += 1 } }
    func handlerEnded() { state.withLock { $0.handlers -= 1 } }

    /// Keeps reading a connection that was answered early; `descriptor` is given away.
    func startLingering(_ descriptor: Int32) {
      let taken = state.withLock { state in
        guard state.lingering < 64 else { return false }
        state.lingering += 1
        return true
      }
      let bytesMax = taken ? bodyBytesMax : 0
      Task {
        await linger(descriptor, bytesMax: bytesMax)
        if taken { state.withLock { $0.lingering -= 1 } }
      }
    }

    /// Watches suspended connections until the task is cancelled.
    func watch() async {
      let idleAfter = Duration.seconds(idleTimeoutSeconds)
      while (try? await Task.sleep(for: .milliseconds(500))) != nil {
        let now = ContinuousClock.now
        for exchange in state.withLock({ Array($0.exchanges.values) }) {
          exchange.inspect(now: now, idleAfter: idleAfter)
        }
      }
    }

    func refuseRequests() { state.withLock { $0.isStopping = true } }

    /// Waits until no exchange and no handler is left, at most `milliseconds`. False where some are.
    func waitUntilQuiet(milliseconds: Int64) async -> Bool {
      let deadline = ContinuousClock.now + .milliseconds(milliseconds)
      while true {
        if state.withLock({ $0.exchanges.isEmpty && $0.handlers == 0 }) { return true }
        if ContinuousClock.now >= deadline { return false }
        // Not cancellable: a stop that gives up half way would abort the process.
        await Task { try? await Task.sleep(for: .milliseconds(2)) }.value
      }
    }

    func abortAll() {
      let error = SalvorError(.unreachable, "The server is stopping. Try again later.")
      for exchange in state.withLock({ Array($0.exchanges.values) }) { exchange.abort(error) }
    }
  }
#endif
