#if HTTPServer
  import CMicrohttpd
  import Synchronization

  /// Suspends and resumes one connection for one exchange, without a lost or a stray wake-up: libmicrohttpd may only
  /// be asked to resume what is suspended, and only while the connection is there.
  final class ConnectionGate: Sendable {
    enum Finding { case busy, left, idle }

    private struct State: @unchecked Sendable {
      /// Nil once the exchange is over: the library may have freed it.
      var connection: OpaquePointer?
      var suspendedAt: ContinuousClock.Instant?
      /// Woken between the look that found nothing and the suspension.
      var wakePending = false
    }

    private let state: Mutex<State>

    init(_ connection: OpaquePointer) {
      state = Mutex(State(connection: connection))
    }

    /// Called in a callback of the connection, after a look that found nothing to do.
    ///
    /// - Returns: false where something came meanwhile: look again.
    func suspend() -> Bool {
      state.withLock { state in
        if state.wakePending {
          state.wakePending = false
          return false
        }
        if let connection = state.connection {
          MHD_suspend_connection(connection)
          state.suspendedAt = .now
        }
        return true
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

    /// The exchange must end: also where the library waits for the client, which only a socket that is shut wakes.
    func cut() {
      state.withLock { state in
        guard let connection = state.connection else { return }
        if state.suspendedAt != nil {
          state.suspendedAt = nil
          MHD_resume_connection(connection)
        } else {
          state.wakePending = true
          cmicrohttpd_shut(cmicrohttpd_socket(connection))
        }
      }
    }

    /// The exchange is over; nothing touches the connection from here on.
    func end() { state.withLock { $0.connection = nil } }

    /// The library does not watch a suspended connection: whether its client is still there, and for how long nothing
    /// has moved, is looked at here.
    func inspect(now: ContinuousClock.Instant, idleAfter: Duration) -> Finding {
      state.withLock { state in
        guard let connection = state.connection, let since = state.suspendedAt else { return .busy }
        if cmicrohttpd_peer_left(cmicrohttpd_socket(connection)) != 0 { return .left }
        return now - since > idleAfter ? .idle : .busy
      }
    }
  }
#endif
