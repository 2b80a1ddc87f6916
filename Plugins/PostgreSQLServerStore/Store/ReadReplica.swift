#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// A standby of the database that answers downloads and comparisons (option `readReplica`), where it has replayed what they begin at.
  ///
  /// Where it lags, is gone, or was promoted, the primary answers; it is asked again a little later.
  final class ReadReplica: Sendable {
    /// What it must have replayed before it is asked.
    enum Need: Sendable {
      /// A commit with a number: then everything before it is there, too.
      case commit(Commit)
      /// A place in the write-ahead log: what earlier pages of a download have seen, whether it had a number yet or not.
      case place(String)
    }

    /// Since the start of the process.
    struct Figures: Sendable {
      var answers: Int64 = 0
      /// It had not replayed enough.
      var behind: Int64 = 0
      var failures: Int64 = 0
    }

    private struct State {
      var asking: [Int]
      var figures = Figures()
      /// It is left alone until then; milliseconds since 1970.
      var leftUntil: Int64 = 0
      var isLeft = false
    }

    private let sessions: [StoreSession]
    private let state: Mutex<State>
    private let clock: any Clock
    private let log: Log

    /// So long it is left alone after it failed.
    private static let pauseMilliseconds: Int64 = 5000

    init(
      _ url: String, _ options: PostgreSQLServerStore.Options, _ interruption: StoreInterruption,
      _ history: HistoryWatch
    ) {
      var settings = options.settings
      settings.url = url
      settings.isWriter = false
      let made = settings
      sessions = (0..<max(1, options.connections - 3)).map { number in
        StoreSession("replica.\(number)", made, interruption) { try Self.check($0, history) }
      }
      state = Mutex(State(asking: sessions.map { _ in 0 }))
      (clock, log) = (options.clock, options.log)
    }

    var figures: Figures { state.withLock { $0.figures } }

    /// Of another cluster it would show other rows.
    private static func check(_ connection: PostgreSQLConnection, _ history: HistoryWatch) throws {
      let facts = try HistoryFacts(connection)
      guard let primary = history.present, facts.system == primary.system, facts.database == primary.database else {
        throw SalvorError(.storage, "readReplica is no standby of the database in url.")
      }
    }

    /// What the replica says, in a transaction that reads one snapshot, and the place in the write-ahead log that it had replayed then. Nil: ask
    /// the primary.
    ///
    /// - Parameter view: of the primary. A standby that still runs on a history which the primary has left does not know its incarnation; and rows
    ///   that no commit names, as of a table that was taken in, it has where it has replayed the place of the opening.
    func answer<Answer: Sendable>(
      _ need: Need, of view: PostgreSQLServerStore.View, _ body: @Sendable (PostgreSQLConnection) throws -> Answer?
    ) async throws -> (answer: Answer, place: String)? {
      guard state.withLock({ $0.leftUntil <= clock.now() }) else { return nil }
      let place = state.withLock { state in
        let place = state.asking.indices.min { state.asking[$0] < state.asking[$1] } ?? 0
        state.asking[place] += 1
        return place
      }
      defer { state.withLock { $0.asking[place] -= 1 } }
      do {
        let found = try await sessions[place].run { connection -> (answer: Answer, place: String)? in
          guard try Self.hasReplayed(need, of: view, connection), let answer = try body(connection) else { return nil }
          return (answer, try Self.replayed(connection))
        }
        takeUp(hasAnswered: found != nil)
        return found
      } catch {
        let failure = (error as? SalvorError) ?? SalvorError(.storage, "\(error)")
        switch failure.code {
        case .cancelled: throw failure
        case .storage, .storageBusy, .storageCorrupt, .storageFull: leave(failure)
        // The primary says it, too, where it is true.
        default: break
        }
        return nil
      }
    }

    /// Asked before the snapshot: what is replayed later need not be in it.
    private static func hasReplayed(
      _ need: Need, of view: PostgreSQLServerStore.View, _ connection: PostgreSQLConnection
    ) throws -> Bool {
      let incarnation = view.opening.incarnation
      let isOfHistory =
        "pg_is_in_recovery() AND pg_last_wal_replay_lsn() >= CAST(?2 AS pg_lsn) AND EXISTS (SELECT 1 FROM salvor_server WHERE key = 'incarnation' AND value = ?1)"
      return switch need {
      case .commit(let commit):
        try connection.integer(
          "SELECT \(isOfHistory) AND EXISTS (SELECT 1 FROM salvor_commit WHERE number = ?3 AND id = ?4)",
          .text(incarnation.text), .text(view.place), .integer(commit.number), .text(commit.id.text)) == 1
      case .place(let place):
        try connection.integer(
          "SELECT \(isOfHistory) AND pg_last_wal_replay_lsn() >= CAST(?3 AS pg_lsn)", .text(incarnation.text),
          .text(view.place), .text(place)) == 1
      }
    }

    /// Of the primary's write-ahead log, now.
    static func place(_ connection: PostgreSQLConnection) throws -> String {
      try connection.scalar("SELECT pg_current_wal_lsn()::text")?.string ?? ""
    }

    private static func replayed(_ connection: PostgreSQLConnection) throws -> String {
      try connection.scalar("SELECT pg_last_wal_replay_lsn()::text")?.string ?? ""
    }

    private func takeUp(hasAnswered: Bool) {
      let isBack = state.withLock { state in
        if hasAnswered { state.figures.answers += 1 } else { state.figures.behind += 1 }
        defer { if hasAnswered { state.isLeft = false } }
        return hasAnswered && state.isLeft
      }
      if isBack { log("The read replica is taken up again.") }
    }

    private func leave(_ error: SalvorError) {
      let isNew = state.withLock { state in
        state.figures.failures += 1
        state.leftUntil = clock.now() + Self.pauseMilliseconds
        defer { state.isLeft = true }
        return !state.isLeft
      }
      if isNew { log.warning("The read replica is left; the primary answers. \(error.message)") }
    }

    func close() async { for session in sessions { await session.close() } }
  }

  /// A download's position, with the place in the write-ahead log that its pages have seen so far: a standby that has not replayed it would
  /// show the next page an earlier moment.
  struct ReplicaPosition {
    /// As the feed takes it.
    var text: String?
    var place: String?

    /// Positions are JSON, and end so.
    private static let separator: Character = "@"

    init(_ position: String?) {
      text = position
      guard let position, !position.hasSuffix("}"), let at = position.lastIndex(of: Self.separator) else { return }
      text = String(position[..<at])
      let rest = String(position[position.index(after: at)...])
      let isPlace = rest.utf8.allSatisfy { $0 == UInt8(ascii: "/") || Character(UnicodeScalar($0)).isHexDigit }
      if isPlace, rest.contains("/"), rest.utf8.count <= 17 { place = rest }
    }

    static func joined(_ text: String?, _ place: String) -> String? { text.map { "\($0)\(separator)\(place)" } }
  }

  extension PostgreSQLServerStore {
    /// The page from the replica; nil: the primary makes it.
    func replicaPage(_ request: PageRequest, _ position: ReplicaPosition, _ view: View) async throws -> (
      page: FeedPage, hints: [BlobHint]
    )? {
      guard let replica, request.position == nil || position.place != nil else { return nil }
      let need: ReadReplica.Need =
        if let place = position.place { .place(place) } else { .commit(try await sweep()) }
      let (now, limits, catalog) = (options.clock.now(), options.limits, view.catalog)
      let found = try await replica.answer(need, of: view) { connection -> (page: FeedPage, hints: [BlobHint])? in
        switch try FeedPageMaker.page(request, connection, catalog, now: now, limits: limits) {
        case .page(let page, let hints): (page, hints)
        // Only the primary gives numbers.
        case .unsealed: nil
        }
      }
      guard var made = found else { return nil }
      made.answer.page.position = ReplicaPosition.joined(made.answer.page.position, made.place)
      return made.answer
    }

    /// The replica's answer where it has the newest commit, else the primary's. The question answers nil where what it saw has no number yet.
    func compare<Answer: Sendable>(
      _ scope: ReadScope, at head: Commit? = nil, _ question: @Sendable (RecoveryQueries) throws -> Answer?
    ) async throws -> Answer {
      let limits = options.limits
      @Sendable func answer(_ connection: PostgreSQLConnection, _ catalog: Catalog) throws -> Answer? {
        try connection.snapshot {
          let found = try question(
            RecoveryQueries(connection: connection, catalog: catalog, scope: scope, limits: limits))
          try connection.proveMoment(of: catalog)
          return found
        }
      }
      if let replica {
        var newest = head
        if newest == nil { newest = try await reading { connection, _ in try CommitLog.state(connection).head } }
        let view = try await present()
        if let newest,
          let found = try await replica.answer(
            .commit(newest), of: view, { try answer($0, view.catalog) })
        {
          return found.answer
        }
      }
      return try await sealed(answer)
    }
  }
#endif
