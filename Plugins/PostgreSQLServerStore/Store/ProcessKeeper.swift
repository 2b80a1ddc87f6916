#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// Says in the database that this process has it open, by a lock that ends with its connection. Who finds nobody else begins an
  /// incarnation; who comes later takes it up.
  actor ProcessKeeper {
    private let queue = ConnectionQueue("keeper")
    nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }

    private let settings: ConnectionSettings
    private var connection: PostgreSQLConnection?
    private var isAlone = false

    init(_ settings: ConnectionSettings) { self.settings = settings }

    private static let lock = "\(PostgreSQLTables.processLock)"

    /// True: no other process has the database open, and none opens it before `hold`.
    func begin() throws -> Bool {
      if let connection, connection.isAlive { return false }
      connection?.close()
      let made = try PostgreSQLConnection(settings)
      do {
        // A pooler leaves a connection of the database's to whoever has a transaction open on it. It holds nothing else up.
        if made.isPooled { try made.link.begin("BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0") }
        // Who is about to begin one is waited for.
        try made.execute("SET lock_timeout = 60000")
        isAlone = try made.integer("SELECT pg_try_advisory_lock(\(Self.lock))") == 1
        if !isAlone { try made.execute("SELECT pg_advisory_lock_shared(\(Self.lock))") }
      } catch {
        isAlone = false
        made.close()
        throw error
      }
      connection = made
      return isAlone
    }

    /// Somebody may have ended the connection: then it is made again, and the lock with it.
    func renew() throws {
      if let connection, (try? connection.execute("SELECT 1")) != nil { return }
      connection?.close()
      connection = nil
      if try begin() { try hold() }
    }

    func hold() throws {
      guard isAlone, let connection else { return }
      isAlone = false
      try connection.execute(
        "SELECT pg_advisory_lock_shared(\(Self.lock)); SELECT pg_advisory_unlock(\(Self.lock))")
    }

    /// The database behind it is another one: its lock is none of this one's.
    func reconnect() {
      connection?.close()
      connection = nil
      isAlone = false
    }

    func end() {
      // At once, and not when the database has found out that the connection is gone.
      try? connection?.execute("SELECT pg_advisory_unlock_all()")
      connection?.close()
      connection = nil
      isAlone = false
    }
  }
#endif
