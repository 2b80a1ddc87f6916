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
      /// Told once nothing is in flight any more.
      var onQuiet: AsyncStream<Bool>.Continuation?

      var isQuiet: Bool { exchanges.isEmpty && handlers == 0 }

      func tellIfQuiet() { if isQuiet { onQuiet?.yield(true) } }
    }

    let handler: TransportHandler
    let bodyBytesMax: Int
    let idleTimeoutSeconds: Int
    let log: Log
    private let state = Mutex(State())

    init(
      handler: @escaping TransportHandler, bodyBytesMax: Int, idleTimeoutSeconds: Int,
      log: Log
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
