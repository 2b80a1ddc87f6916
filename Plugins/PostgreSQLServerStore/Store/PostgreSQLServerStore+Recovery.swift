#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import SalvorWire
  import ServerStoreSupport

  extension PostgreSQLServerStore: RecoveringServerStore {
    public func trimmed() async throws -> Int64 { try await ask(ReadScope(Principal(name: ""))) { try $0.trimmed() } }

    public func scopes(of groups: [String], for scope: ReadScope) async throws -> [String: String] {
      try await ask(scope) { $0.scopes(of: groups) }
    }

    public func rowCount(of groups: [String], for scope: ReadScope) async throws -> Int64 {
      try await compare(scope) { try $0.rowCount(of: groups) }
    }

    public func rows(matching query: RowQuery, for scope: ReadScope) async throws -> [UInt8] {
      try await compare(scope) { try $0.isSealed() ? $0.rows(query) : nil }
    }

    /// Errors: `usage` where `limit` or `question.rowsPerRange` is not positive.
    public func ranges(_ question: RangeQuestion, limit: Int, for scope: ReadScope) async throws -> RangePage {
      guard question.rowsPerRange > 0, limit > 0 else {
        throw SalvorError(.usage, "A range has one row at least, and a page one range.")
      }
      return try await compare(scope) { try $0.isSealed() ? $0.ranges(question, limit: limit) : nil }
    }

    /// Numbers first what was written. The digest of a table that devices compare in each synchronization is remembered until somebody writes
    /// it, also past the triggers; any other is asked by who looks for what they did not see (`salvor verify`).
    public func digest(of table: String, for scope: ReadScope) async throws -> TableDigest {
      // A row whose scope moves has an entry when the move is numbered.
      let head = try await sweep()
      let writes = try await reading { connection, catalog in
        try catalog.tables.first { $0.name == table && $0.table.download == .keySet }.map { _ in
          try connection.writes(of: table)
        }
      }
      if let writes, let known = digests.known(table, scope, at: head, writes) { return known }
      let found = try await compare(scope, at: head) { queries -> (digest: TableDigest, at: Commit)? in
        let now = try CommitLog.state(queries.connection)
        return now.isSealed ? (try queries.digest(of: table), now.head) : nil
      }
      if let writes, found.at == head { digests.keep(found.digest, scope, at: head, writes) }
      return found.digest
    }

    public func demandReset(_ remote: RemoteID) async throws -> Bool {
      let demand = options.random.positiveNumber()
      return try await updating(remote.text) { try RemoteBook(connection: $0).demandReset(remote, demand: demand) }
    }

    public func demandResets(of principal: String?) async throws -> Int64 {
      let demand = options.random.positiveNumber()
      return try await updating("resets") { try RemoteBook(connection: $0).demandResets(of: principal, demand: demand) }
    }

    public func settleReset(_ remote: RemoteID, demand: Int64) async throws -> Bool {
      try await updating(remote.text) { try RemoteBook(connection: $0).settleReset(remote, demand: demand) }
    }

    /// Always throws `usage`: PostgreSQL makes its own copies.
    public func backup(to path: String) async throws {
      throw SalvorError(
        .usage,
        "PostgreSQL makes its own copies: use pg_dump of the whole database, or pg_basebackup and its log (docs/guides/postgresql.md).\(path.isEmpty ? "" : " Nothing was written to \(path).")"
      )
    }

    func ask<Answer: Sendable>(
      _ scope: ReadScope, _ question: @Sendable (RecoveryQueries) throws -> Answer
    ) async throws -> Answer {
      let limits = options.limits
      return try await reading { connection, catalog in
        try question(
          RecoveryQueries(connection: connection, catalog: catalog, scope: scope, limits: limits))
      }
    }
  }

  extension PostgreSQLServerStore: ExplainingServerStore {
    /// Numbers first what other programs have committed.
    public func facts(of table: String, _ key: Key, in scopes: [ReadScope]) async throws -> ServerRowFacts {
      // What other programs have committed has its number then.
      _ = try await sweep()
      return try await reading { connection, catalog in
        try RowInquiry(RowReader(connection: connection, catalog: catalog)).facts(of: table, key, in: scopes)
      }
    }
  }

  extension PostgreSQLServerStore: ObservableServerStore {
    /// The size of the database in bytes, the age of its log, and what the read replica did. Never throws: what cannot be read is nil.
    public func observation() async -> StorageObservation {
      var facts = StorageObservation()
      let found = try? await reading { connection, _ in
        (
          try connection.integer("SELECT pg_database_size(current_database())"), try LogAges(connection)
        )
      }
      facts.databaseBytes = found?.0
      (facts.oldestLogEntry, facts.oldestTombstone) = (found?.1.entry, found?.1.tombstone)
      if let figures = replica?.figures {
        facts.replica = StorageObservation.Replica(
          answers: figures.answers, behind: figures.behind, failures: figures.failures)
      }
      return facts
    }
  }

  /// The digests of tables at the newest commit: computed once, and not for each device and sync.
  final class DigestMemory: Sendable {
    private struct Name: Hashable {
      var table: String
      var scope: ReadScope
    }

    private struct State {
      var head: Commit?
      var digests: [Name: (digest: TableDigest, writes: TableWrites)] = [:]
    }

    private static let entriesMax = 10_000
    private let state = Mutex(State())

    func known(_ table: String, _ scope: ReadScope, at head: Commit, _ writes: TableWrites) -> TableDigest? {
      state.withLock { state in
        guard state.head == head, let known = state.digests[Name(table: table, scope: scope)], known.writes == writes
        else { return nil }
        return known.digest
      }
    }

    /// - Parameter writes: before the table was read.
    func keep(_ digest: TableDigest, _ scope: ReadScope, at head: Commit, _ writes: TableWrites) {
      state.withLock { state in
        if state.head != head || state.digests.count >= Self.entriesMax { (state.head, state.digests) = (head, [:]) }
        state.digests[Name(table: digest.table, scope: scope)] = (digest, writes)
      }
    }
  }

  extension PostgreSQLServerStore: ReopeningServerStore {
    /// As the database was opened last; nil while the store is not open.
    public var opening: ServerOpening? { try? view().opening }
  }

  extension PostgreSQLServerStore: RestoreReportingServerStore {
    /// Can be asked while the store is not open. Empty where the database was never restored.
    public func restores(limit: Int) async throws -> [RestoreRecord] { try await lookAtRestores(limit).records }

    public func unnamedWaiting() async throws -> Int64 { try await lookAtRestores(0).unnamed }

    private func lookAtRestores(_ limit: Int) async throws -> (records: [RestoreRecord], unnamed: Int64) {
      try await asking { connection in
        try connection.snapshot {
          let table = "\(quoted(connection.settings.schema)).salvor_restore"
          guard try connection.integer("SELECT to_regclass(?1) IS NOT NULL", .text(Array(table.utf8))) == 1 else {
            return ([], 0)
          }
          var records = try RestoreBook(connection: connection).all(limit: limit)
          let waiting = try WaitingBook(connection: connection).counts()
          for index in records.indices { records[index].waiting = waiting.filter { $0.restore == records[index].id } }
          return (records, waiting.reduce(0) { $1.restore == 0 ? $0 + $1.count : $0 })
        }
      }
    }
  }
#endif
