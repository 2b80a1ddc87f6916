#if HTTPServer
  import CMicrohttpd
  import Synchronization

  /// Suspends and resumes one connection for one exchange, without a lost or a stray wake-up: libmicrohttpd may only
  /// be asked to resume what is suspended, and only while the connection is there.
  ///
  /// A connection is suspended only between `open` and `cut`, and stays in `ServerCore`'s list of exchanges in flight
  /// for as long. So a server that opens no gate any more, and has waited for that list to become empty or has cut what
  /// is left of it, has no suspended connection, and none comes: what libmicrohttpd aborts the process for.
  final class ConnectionGate: Sendable {
    enum Finding { case busy, left, idle }

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
    }

    private let state: Mutex<State>

    init(_ connection: OpaquePointer) {
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
        state.isReceiving = more
      }
    }

    /// The exchange is over; nothing touches the connection from here on.
    func end() { state.withLock { $0.connection = nil } }

    /// What the library does not notice is looked at here: whether the client of a suspended connection is still there,
    /// and for how long nothing has moved. And the end of a connection in the middle of a body: where it comes while a
    /// suspended connection is resumed, the library sometimes misses it (seen with 0.9.75, about once in fifty).
    func inspect(now: ContinuousClock.Instant, idleAfter: Duration) -> Finding {
      state.withLock { state in
        guard let connection = state.connection else { return .busy }
        guard let since = state.suspendedAt else {
          let isStill = state.isReceiving && state.moves == state.movesSeen
          state.movesSeen = state.moves
          return isStill && cmicrohttpd_peer_left(cmicrohttpd_socket(connection)) != 0 ? .left : .busy
        }
        if cmicrohttpd_peer_left(cmicrohttpd_socket(connection)) != 0 { return .left }
        return now - since > idleAfter ? .idle : .busy
      }
    }
  }
#endif
