#if HTTPServer
  import CMicrohttpd
  import SalvorModel

  /// A connection of a client's, from the moment it is accepted until it is closed. What changes is the table's.
  final class ClientConnection: @unchecked Sendable {
    fileprivate enum Phase {
      /// A head is coming.
      case head(since: ContinuousClock.Instant)
      /// A request is worked on; its exchange looks after the connection.
      case busy
      /// Between two requests; `received`: the bytes that had come by then.
      case idle(since: ContinuousClock.Instant, received: UInt64)
    }

    let descriptor: Int32
    let address: PeerAddress?
    /// It came from a proxy that the configuration names: whom it speaks for is said by each request.
    let isOfProxy: Bool
    var isSecure: Bool { daemon.isSecure }
    /// Which start of the library has it (`HTTPServerTransport.reload`).
    let daemon: DaemonStart
    fileprivate var phase: Phase
    fileprivate var isCounted = false
    fileprivate var isShut = false
    fileprivate var wasFinished = false

    init(_ descriptor: Int32, _ address: PeerAddress?, isOfProxy: Bool, daemon: DaemonStart) {
      self.descriptor = descriptor
      self.address = address
      self.isOfProxy = isOfProxy
      self.daemon = daemon
      phase = .head(since: .now)
    }
  }

  /// How many connections there may be, of all clients and of each, and what becomes of those that do nothing.
  ///
  /// | a connection | beyond the limit |
  /// | --- | --- |
  /// | in which a head is coming, or none | those of the busiest address that have waited longest are closed for new ones |
  /// | with a request | waits for its turn; a few do, the next ones are told to come back |
  /// | with a health check | is answered |
  final class ConnectionTable: Sendable {
    struct Places: Sendable {
      /// Requests that are worked on at one time.
      var requests: Int
      /// Beyond those: requests that wait, health checks, heads that are coming.
      var reserve = 32
      /// Connections of one address.
      var perAddress: Int
      var headTimeout: Duration = .seconds(5)

      var all: Int { requests + reserve }
      /// From here on old connections make room for new ones, so that a health check always finds a place.
      var crowded: Int { all - max(2, reserve / 8) }
      var waitingMax: Int { reserve * 3 / 4 }
    }

    enum Admission {
      case taken, waits
      case refused(SalvorError)
    }

    private struct State {
      var connections: [ObjectIdentifier: ClientConnection] = [:]
      var ofAddress: [[UInt8]: Int] = [:]
      /// Requests that are worked on, and those of each address behind a proxy.
      var requests = 0
      var ofForwarded: [[UInt8]: Int] = [:]
      var waiting: [ServerExchange] = []
      var streams = 0
    }

    let places: Places
    private let state = Mutex(State())

    init(_ places: Places) { self.places = places }

    var count: Int { state.withLock { $0.connections.count } }

    func count(of daemon: DaemonStart) -> Int {
      state.withLock { $0.connections.values.reduce(0) { $0 + ($1.daemon === daemon ? 1 : 0) } }
    }

    /// Nobody may keep a connection for later: others wait for one.
    var isCrowded: Bool { state.withLock { $0.connections.count >= places.requests || !$0.waiting.isEmpty } }

    // MARK: Connections, on the library's threads

    func add(_ connection: ClientConnection) {
      state.withLock { state in
        state.connections[ObjectIdentifier(connection)] = connection
        if !connection.isOfProxy, let network = connection.address?.network {
          connection.isCounted = true
          let count = (state.ofAddress[network] ?? 0) + 1
          state.ofAddress[network] = count
          if count > places.perAddress, !makeRoom(&state, places.perAddress, of: network, for: connection) {
            return refuse(
              connection, .overloaded,
              "Too many connections come from this address (connectionsPerAddressMax). Close some.",
              retryAfterSeconds: 5)
          }
        }
        if state.connections.count > places.crowded { makeRoom(&state, places.requests, for: connection) }
      }
    }

    func remove(_ connection: ClientConnection) {
      state.withLock { state in
        state.connections[ObjectIdentifier(connection)] = nil
        guard connection.isCounted, let network = connection.address?.network else { return }
        let count = (state.ofAddress[network] ?? 1) - 1
        state.ofAddress[network] = count > 0 ? count : nil
      }
    }

    /// Closes connections without a request: of the address that has most of them those that have waited longest. False:
    /// there is none.
    ///
    /// - Parameters:
    ///   - network: only of this address; nil: of all.
    ///   - onlyIdle: only those between two requests, not those in which a head is coming.
    @discardableResult
    private func makeRoom(
      _ state: inout State, _ count: Int, of network: [UInt8]? = nil, for newest: ClientConnection? = nil,
      onlyIdle: Bool = false
    ) -> Bool {
      typealias Candidate = (connection: ClientConnection, share: Int, since: ContinuousClock.Instant)
      var candidates: [Candidate] = []
      for connection in state.connections.values where !connection.isShut && connection !== newest {
        let since: ContinuousClock.Instant
        switch connection.phase {
        case .busy: continue
        case .head(let head):
          if onlyIdle { continue }
          since = head
        case .idle(let idle, let received):
          if onlyIdle, cmicrohttpd_traffic(connection.descriptor).received > received { continue }
          since = idle
        }
        let own = connection.address?.network
        if let network, own != network { continue }
        candidates.append((connection, own.flatMap { state.ofAddress[$0] } ?? 0, since))
      }
      candidates.sort { a, b in (a.share, b.since) > (b.share, a.since) }
      // Some at once, so that a flood is not looked through for each of its connections.
      for candidate in candidates.prefix(max(1, count / 64)) { shut(candidate.connection) }
      return !candidates.isEmpty
    }

    /// The library notices, and closes it.
    private func shut(_ connection: ClientConnection) {
      connection.isShut = true
      cmicrohttpd_shut(connection.descriptor)
    }

    private func refuse(
      _ connection: ClientConnection, _ code: ErrorCode, _ detail: String, retryAfterSeconds: Int? = nil
    ) {
      if !connection.isSecure {
        let bytes = refusalBytes(code, status: code.httpStatus, detail, retryAfterSeconds: retryAfterSeconds)
        bytes.withUnsafeBytes { cmicrohttpd_say(connection.descriptor, $0.baseAddress, $0.count) }
      }
      shut(connection)
    }

    // MARK: Requests

    /// A head is whole that is refused whatever else there is to do.
    func begin(on connection: ClientConnection?) {
      state.withLock { _ in connection?.phase = .busy }
    }

    /// A head is whole. `waits`: `ServerExchange.goOn` is called when it is the request's turn.
    ///
    /// - Parameters:
    ///   - isHealthCheck: it is answered whatever else there is to do.
    ///   - client: for whom a proxy asks; nil: nobody is counted.
    func begin(
      _ exchange: ServerExchange, on connection: ClientConnection?, isHealthCheck: Bool, client: PeerAddress?
    ) -> Admission {
      state.withLock { state in
        connection?.phase = .busy
        if isHealthCheck { return .taken }
        if let client, (state.ofForwarded[client.network] ?? 0) >= places.perAddress {
          return .refused(
            SalvorError(
              .overloaded, "Too many requests come from this address (connectionsPerAddressMax). Try again later.",
              retryAfterMilliseconds: 5000))
        }
        let waits = state.requests >= places.requests
        if waits, state.waiting.count >= places.waitingMax {
          return .refused(
            SalvorError(
              .overloaded, "The server has as many requests as it may work on (connectionsMax). Try again later.",
              retryAfterMilliseconds: 5000))
        }
        if let client { state.ofForwarded[client.network, default: 0] += 1 }
        if waits {
          state.waiting.append(exchange)
          // Whoever keeps a connection for later stands in its way.
          makeRoom(&state, places.requests, onlyIdle: true)
          return .waits
        }
        state.requests += 1
        return .taken
      }
    }

    /// The request's work is over. `admission`: what `begin` said; nil: it was not asked.
    func end(
      _ exchange: ServerExchange, on connection: ClientConnection?, _ admission: Admission?, isHealthCheck: Bool,
      client: PeerAddress?
    ) {
      let next = state.withLock { state -> ServerExchange? in
        if let connection {
          // What nobody has read yet is of the next request.
          let unread = UInt64(max(0, cmicrohttpd_unread(connection.descriptor)))
          let received = cmicrohttpd_traffic(connection.descriptor).received
          connection.phase = .idle(since: .now, received: received - min(unread, received))
        }
        switch admission {
        case .taken where !isHealthCheck, .waits: break
        default: return nil
        }
        if let client {
          let count = (state.ofForwarded[client.network] ?? 1) - 1
          state.ofForwarded[client.network] = count > 0 ? count : nil
        }
        if let place = state.waiting.firstIndex(where: { $0 === exchange }) {
          state.waiting.remove(at: place)
          return nil
        }
        // The next one takes its place.
        if !state.waiting.isEmpty { return state.waiting.removeFirst() }
        state.requests -= 1
        return nil
      }
      next?.goOn()
    }

    /// A stream without an end, of which there are never more than half of the requests. False: no room.
    func beginStream() -> Bool {
      state.withLock { state in
        guard state.streams < max(1, places.requests / 2) else { return false }
        state.streams += 1
        return true
      }
    }

    func endStream() { state.withLock { $0.streams -= 1 } }

    // MARK: The watch

    /// Ends the connections whose head does not come, and those that the client has left. The exchanges look after the
    /// busy ones.
    func inspect(now: ContinuousClock.Instant) {
      // Under the lock: a connection that is in the table has its descriptor.
      state.withLock { state in
        for connection in state.connections.values where !connection.isShut {
          switch connection.phase {
          case .busy: continue
          case .head(let since):
            if now - since > places.headTimeout {
              refuse(connection, .timeout, "The request's head did not come in time. Send it again.")
              continue
            }
          case .idle(_, let received):
            if cmicrohttpd_traffic(connection.descriptor).received > received { connection.phase = .head(since: now) }
          }
          let look = cmicrohttpd_look(connection.descriptor)
          // The second time: what came before the end may be a head that is about to be read.
          if look.isBroken || (look.hasFinished && connection.wasFinished) { shut(connection) }
          connection.wasFinished = look.hasFinished
        }
      }
    }

    /// Closes the connections of `daemon` that no request is on.
    func closeIdle(of daemon: DaemonStart) {
      state.withLock { state in
        for connection in state.connections.values where connection.daemon === daemon && !connection.isShut {
          if case .idle = connection.phase { shut(connection) }
        }
      }
    }
  }
#endif
