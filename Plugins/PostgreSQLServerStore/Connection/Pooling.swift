#if PostgreSQL
  import CPQ
  import SalvorModel

  /// What is other on a connection that a pooler gives out (PgBouncer in transaction mode): each transaction may run on another
  /// connection of the database's, so nothing may last longer than one. Settings are each transaction's own, statements have no
  /// names, temporary tables go with their transaction, and nothing is told by `LISTEN`.
  extension PostgreSQLConnection {
    /// A pooler answers between this process and the database.
    var isPooled: Bool { link.transactionSettings != nil }

    /// A pooler names a process of its own invention when a connection is made.
    func isBehindPooler() throws -> Bool {
      guard let handle = link.handle else { return false }
      let result = try PQexec(link.live(), "SELECT pg_catalog.pg_backend_pid()")
      try link.check(result, sql: nil)
      defer { PQclear(result) }
      return PQgetvalue(result, 0, 0).flatMap { Int32(String(cString: $0)) } != PQbackendPID(handle)
    }
  }

  extension PostgreSQLConnection.Link {
    /// Runs `body` in a transaction, where none is open and one is needed for it to be on one connection of the database's.
    func pinned<Result>(_ body: () throws -> Result) throws -> Result {
      guard transactionSettings != nil, state == PQTRANS_IDLE else { return try body() }
      try begin("BEGIN ISOLATION LEVEL READ COMMITTED")
      do {
        let result = try body()
        try send("COMMIT")
        return result
      } catch {
        if state == PQTRANS_INTRANS || state == PQTRANS_INERROR { try? send("ROLLBACK") }
        throw error
      }
    }

    /// - Parameter text: `BEGIN …`, and what else belongs to it. Settings follow the first statement.
    func begin(_ text: String) throws {
      firesOthers = nil
      guard let transactionSettings else { return try send(text) }
      let parts = text.split(separator: ";", maxSplits: 1)
      let mode = parts[0].contains("READ ONLY") ? "" : transactionMode
      do {
        try send(
          ([String(parts[0]) + mode, transactionSettings] + parts.dropFirst().map(String.init)).joined(separator: "; "))
      } catch let error as SalvorError where error.sqlState == "0A000" && !mode.isEmpty {
        throw SalvorError(
          .storage, "PostgreSQL: the database behind the pooler takes no writes: it is a standby.",
          context: ["sqlstate": "25006"])
      }
    }

    private func send(_ sql: String) throws {
      let result = try PQexec(live(), sql)
      try check(result, sql: sql)
      PQclear(result)
    }
  }
#endif
