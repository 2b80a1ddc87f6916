#if HTTPServer
  import SalvorModel
  import CMicrohttpd

  /// Suspends and resumes one connection for one exchange, without a lost or a stray wake-up: libmicrohttpd may only
  /// be asked to resume what is suspended, and only while the connection is there.
  ///
  /// A connection is suspended only between `open` and `cut`, and stays in `ServerCore`'s list of exchanges in flight
  /// for as long. So a server that opens no gate any more, and has waited for that list to become empty or has cut what
  /// is left of it, has no suspended connection, and none comes: what libmicrohttpd aborts the process for.
  final class ConnectionGate: Sendable {
    enum Finding { case busy, left, idle, slow }

    /// What became of the wish to rest.
    enum Rest {
      /// The callback returns; it is called again after `wake`.
      case suspended
      /// Something came meanwhile: look again.
      case woken
      /// Nothing is waited for here any more: the callback ends the connection.
      case over
    }

    private enum Phase { case new, open, cut }

    private struct State: @unchecked Sendable {
      /// Nil once the exchange is over: the library may have freed it.
      var connection: OpaquePointer?
      var phase = Phase.new
      var suspendedAt: ContinuousClock.Instant?
      /// Woken between the look that found nothing and the suspension.
      var wakePending = false
      /// The library waits for more of the request's body.
      var isReceiving = false
      /// Counts what came, to tell a pause from a look that was too early.
      var moves = 0
      var movesSeen = -1
      /// A head has been answered with; what follows is its body.
      var isAnswered = false
      /// The answer is a stream that its reader ends by leaving.
      var isEndless = false
      var hasProbed = false
      /// Since when a body is measured, and what had moved by then.
      var window: (since: ContinuousClock.Instant, bytes: UInt64)?
    }

    /// A body that moves less than `bytesPerSecondMin` over `window` ends its connection.
    struct Pace: Sendable {
      var idleAfter: Duration
      var bytesPerSecondMin: Int
      var window: Duration
    }

    /// Whether a client that has finished sending can be asked if it is still there: `100 Continue` may be sent to it.
    private let canProbe: Bool
    private let isSecure: Bool
    private let state: Mutex<State>

    init(_ connection: OpaquePointer, canProbe: Bool, isSecure: Bool) {
      self.canProbe = canProbe
      self.isSecure = isSecure
      state = Mutex(State(connection: connection))
    }

    /// The exchange was taken into the list of those in flight.
    func open() {
      state.withLock { state in
        if case .new = state.phase { state.phase = .open }
      }
    }

    /// Called in a callback of the connection, after a look that found nothing to do.
    func suspend() -> Rest {
      state.withLock { state in
        guard let connection = state.connection, case .open = state.phase else { return .over }
        if state.wakePending {
          state.wakePending = false
          return .woken
        }
        MHD_suspend_connection(connection)
        state.suspendedAt = .now
        return .suspended
      }
    }

    /// There is something to look at. On any thread.
    func wake() {
      state.withLock { state in
        guard let connection = state.connection else { return }
        if state.suspendedAt != nil {
          state.suspendedAt = nil
          MHD_resume_connection(connection)
        } else {
          state.wakePending = true
        }
      }
    }

    /// The exchange must end, and never rests again: also where the library waits for the client, which only a socket
    /// that is shut wakes.
    func cut() {
      state.withLock { state in
        state.phase = .cut
        guard let connection = state.connection else { return }
        if state.suspendedAt != nil {
          state.suspendedAt = nil
          MHD_resume_connection(connection)
        } else {
          cmicrohttpd_shut(cmicrohttpd_socket(connection))
        }
      }
    }

    /// A part of the request came; `more`: the rest is still to come.
    func move(more: Bool) {
      state.withLock { state in
        state.moves += 1
        if state.isReceiving != more { state.window = nil }
        state.isReceiving = more
      }
    }

    /// The answer's head was queued.
    func answered(isEndless: Bool) {
      state.withLock { state in
        state.isAnswered = true
        state.isEndless = isEndless
      }
    }

    /// The exchange is over; nothing touches the connection from here on.
    func end() { state.withLock { $0.connection = nil } }

    /// What the library does not notice is looked at here: whether the client of a suspended connection is still there,
    /// for how long nothing has moved, and how fast a body moves. And the end of a connection in the middle of a body:
    /// where it comes while a suspended connection is resumed, the library sometimes misses it (seen with 0.9.75, about
    /// once in fifty).
    func inspect(now: ContinuousClock.Instant, pace: Pace) -> Finding {
      state.withLock { state in
        guard let connection = state.connection else { return .busy }
        let socket = cmicrohttpd_socket(connection)
        let look = cmicrohttpd_look(socket)
        guard let since = state.suspendedAt else {
          let isStill = state.isReceiving && state.moves == state.movesSeen
          state.movesSeen = state.moves
          if isStill && look.hasFinished { return .left }
          return Self.isSlow(&state, socket, now, pace) ? .slow : .busy
        }
        state.window = nil
        if look.isBroken || (look.hasFinished && hasLeft(&state, socket)) { return .left }
        return now - since > pace.idleAfter ? .idle : .busy
      }
    }

    /// The client sends nothing any more. One that has asked may wait for its answer all the same (a half-closed
    /// connection), which looks the same from here until something is sent to it: the system of one that has gone
    /// answers with a reset.
    private func hasLeft(_ state: inout State, _ socket: Int32) -> Bool {
      if state.isReceiving { return cmicrohttpd_unread(socket) == 0 }
      // Something is sent soon, except where the client only listens.
      if state.isAnswered { return state.isEndless }
      if isSecure { return true }
      if canProbe, !state.hasProbed {
        state.hasProbed = true
        Self.probe.withUnsafeBytes { cmicrohttpd_say(socket, $0.baseAddress, $0.count) }
      }
      return false
    }

    private static let probe = Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)

    private static func isSlow(
      _ state: inout State, _ socket: Int32, _ now: ContinuousClock.Instant, _ pace: Pace
    ) -> Bool {
      let traffic = cmicrohttpd_traffic(socket)
      guard traffic.isKnown, pace.bytesPerSecondMin > 0, state.isReceiving || state.isAnswered else { return false }
      let bytes = state.isReceiving ? traffic.received : traffic.acknowledged
      guard let window = state.window, window.bytes <= bytes else {
        state.window = (now, bytes)
        return false
      }
      guard now - window.since >= pace.window else { return false }
      let wanted = Double(pace.bytesPerSecondMin) * (pace.window / .seconds(1))
      state.window = (now, bytes)
      return Double(bytes - window.bytes) < wanted
    }
  }
#endif
