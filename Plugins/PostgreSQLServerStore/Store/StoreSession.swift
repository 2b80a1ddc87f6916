#if PostgreSQL
  import CPQ
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Darwin)
    import Darwin
  #endif

  /// One connection of the store's, made when it is first needed and again where it was lost.
  actor StoreSession {
    private let queue: ConnectionQueue
    nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }

    private let settings: ConnectionSettings
    private let interruption: StoreInterruption
    /// At each connection that is made, before anything else is asked on it.
    private let look: @Sendable (PostgreSQLConnection) throws -> Void
    private var connection: PostgreSQLConnection?
    /// It was connected once: what is in the way now passes, such as a database that is put back.
    private var wasConnected = false
    private var logCount = LogCount()

    /// So often a transaction is begun anew that another one was in the way of.
    private static let attemptsMax = 12
    /// And so often where a function of the application's says that another one was.
    private static let raisedAttemptsMax = 4

    init(
      _ label: String, _ settings: ConnectionSettings, _ interruption: StoreInterruption,
      look: @escaping @Sendable (PostgreSQLConnection) throws -> Void
    ) {
      self.look = look
      queue = ConnectionQueue(label)
      self.settings = settings
      self.interruption = interruption
    }

    /// Runs `body` on the connection. It is tried once more where the connection turns out to be lost, so nothing of it may count
    /// before its transaction has ended.
    func run<Answer: Sendable>(
      _ logWidth: Int = 1, _ body: @Sendable (PostgreSQLConnection) throws -> Answer
    ) throws -> Answer {
      for attempt in 1... {
        try interruption.check()
        let wasOpen = connection != nil
        let connection = try opened(logWidth)
        connection.isLastAttempt = attempt > Self.raisedAttemptsMax
        do {
          return try body(connection)
        } catch {
          // What was cut off by `interrupt` says so.
          try interruption.check()
          if connection.isAlive {
            guard let error = error as? SalvorError, attempt < Self.attemptsMax else { throw error }
            if error.isOfAlteredTable, attempt == 1 {
              // What is prepared on it is of the table as it was.
              drop()
              continue
            }
            if let index = error.fullIndex {
              try connection.transaction { try PostgreSQLTables.holdingLongKeys(index).forEach(connection.execute) }
              continue
            }
            guard connection.failure(error) == .serialization else { throw error }
            // Others in the way are through by then, more or less.
            usleep(UInt32.random(in: 1000...(4000 << UInt32(min(attempt, 6)))))
          } else {
            drop()
            guard wasOpen, attempt < Self.attemptsMax else { throw error }
          }
        }
      }
      throw SalvorError(.storageBusy, "Other transactions are in the way. Try again.")
    }

    /// Runs `body` in a transaction that reads one snapshot.
    func reading<Answer: Sendable>(
      _ body: @Sendable (PostgreSQLConnection) throws -> Answer
    ) throws -> Answer {
      try run { connection in try connection.snapshot { try body(connection) } }
    }

    /// Runs `body` in a transaction that holds the head: after it has numbered what others have committed nothing is committed that
    /// the transaction does not see and that could be numbered before its own entries.
    func writing<Answer: Sendable>(
      _ logWidth: Int, _ body: @Sendable (PostgreSQLConnection) throws -> Answer
    ) async throws -> Answer {
      try await patiently(logWidth) { connection in try Self.holdingHead(connection) { try body(connection) } }
    }

    /// As `run`, of what holds the head. Where another program has the lock of a row or a table for long, it is tried again until `lockTimeout` is
    /// over, and others have the head and the connection in between.
    func patiently<Answer: Sendable>(
      _ logWidth: Int, _ body: @Sendable (PostgreSQLConnection) throws -> Answer
    ) async throws -> Answer {
      let end = ContinuousClock.now + .milliseconds(settings.lockTimeout)
      var pause: Int64 = 100
      while true {
        do { return try run(logWidth, body) } catch let error as SalvorError
          where error.isOfLock && ContinuousClock.now < end
        {
          try await Task.sleep(for: .milliseconds(Int64.random(in: pause / 2...pause)))
          pause = min(2 * pause, 1600)
        }
      }
    }

    static func holdingHead<Answer>(_ connection: PostgreSQLConnection, _ body: () throws -> Answer) throws -> Answer {
      let sealing = Sealing(connection: connection)
      defer { connection.numbered = nil }
      let answer = try connection.transaction(sealing.begin()) {
        let before = try sealing.numberOthers(isFirst: connection.isFirstSealing).before
        connection.numbered = 0
        let answer = try body()
        try sealing.tell(since: before)
        return answer
      }
      connection.isFirstSealing = false
      return answer
    }

    /// Runs `body` in a transaction beside others; those of the same name one after the other.
    func updating<Answer: Sendable>(
      _ name: String, _ body: @Sendable (PostgreSQLConnection) throws -> Answer
    ) throws -> Answer {
      try run { connection in
        try connection.transaction {
          _ = try connection.scalar("SELECT pg_advisory_xact_lock(hashtextextended(?1, 1))::text", .text(name))
          return try body(connection)
        }
      }
    }

    func stats(_ serverID: ServerID) throws -> ServerStats {
      let before = logCount
      let (stats, count) = try reading { connection in
        var count = before
        return (try ServerStats(connection, serverID: serverID, logCount: &count), count)
      }
      logCount = count
      return stats
    }

    private func opened(_ logWidth: Int) throws -> PostgreSQLConnection {
      if let connection, connection.isAlive {
        connection.logWidth = logWidth
        return connection
      }
      drop()
      let made = try connected()
      do {
        try look(made)
      } catch {
        made.close()
        throw error
      }
      made.logWidth = logWidth
      interruption.add(made)
      connection = made
      wasConnected = true
      return made
    }

    private func connected() throws -> PostgreSQLConnection {
      do {
        return try PostgreSQLConnection(settings)
      } catch var error as SalvorError where wasConnected && error.code == .storage {
        error.code = .storageBusy
        throw error
      }
    }

    private func drop() {
      if let connection {
        interruption.remove(connection)
        connection.close()
      }
      connection = nil
    }

    /// As far as is known without asking.
    var isConnected: Bool { connection?.isAlive == true }

    func close() { drop() }
  }

  /// Interrupts what the connections of one store do.
  final class StoreInterruption: Sendable {
    private struct State {
      var isOn = false
      var cancellers: [ObjectIdentifier: Canceller] = [:]
    }

    private let state = Mutex(State())

    func add(_ connection: PostgreSQLConnection) {
      guard let canceller = connection.canceller() else { return }
      let name = ObjectIdentifier(connection)
      state.withLock { $0.cancellers[name] = canceller }
    }

    func remove(_ connection: PostgreSQLConnection) {
      let name = ObjectIdentifier(connection)
      _ = state.withLock { $0.cancellers.removeValue(forKey: name) }
    }

    func interrupt() {
      let cancellers = state.withLock { state in
        state.isOn = true
        return Array(state.cancellers.values)
      }
      for canceller in cancellers { canceller.cancel() }
    }

    /// The store is opened anew.
    func end() { state.withLock { $0.isOn = false } }

    func check() throws {
      guard !state.withLock({ $0.isOn }) else {
        throw SalvorError(.cancelled, "The server is stopping; nothing of this was done. Try again later.")
      }
    }
  }

  /// Ends what a connection does, from another thread.
  final class Canceller: @unchecked Sendable {
    // libpq's own object for this: it may be used from any thread.
    private let handle: OpaquePointer

    init(_ handle: OpaquePointer) { self.handle = handle }
    deinit { PQfreeCancel(handle) }

    func cancel() {
      var words = [CChar](repeating: 0, count: 256)
      _ = PQcancel(handle, &words, Int32(words.count))
    }
  }
#endif
