#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// The consolidated database in PostgreSQL (module `postgresql`, seam `server-storage`). Contract: `ServerStore`.
  ///
  /// ```swift
  /// let store = PostgreSQLServerStore(url: "postgresql://salvor@db.example/app")
  /// let opening = try await store.open(ServerSetup(schema: schema))
  /// ```
  public final class PostgreSQLServerStore: ServerStore {
    public struct Options: Sendable {
      /// libpq's own: a URL or a keyword list, which may name several hosts.
      public var url: String
      /// The schema of Salvor's own tables, made where it is not there.
      public var schema: String
      /// The schema of the application's tables.
      public var tablesIn: String
      /// Connections at most, 4 to 100: one that numbers and writes uploads, one for staging, one that says that the process lives,
      /// the others for downloads.
      public var connections: Int
      /// How long another program's lock is waited for before `storage-busy`.
      public var lockTimeoutMilliseconds: Int64
      /// How long one statement may take; nil: as the role has it.
      public var statementTimeoutMilliseconds: Int64?
      /// What a logical subscriber writes (`session_replication_role = replica`) is captured, too.
      public var capturesReplicas: Bool
      public var limits: Limits
      public var random: any RandomSource
      public var clock: any Clock
      public var log: Log

      public init(
        url: String, schema: String = "salvor", tablesIn: String = "public", connections: Int = 8,
        lockTimeoutMilliseconds: Int64 = 5000, statementTimeoutMilliseconds: Int64? = nil,
        capturesReplicas: Bool = false, limits: Limits = Limits(), random: any RandomSource = SystemRandom(),
        clock: any Clock = SystemClock(), log: Log = .none
      ) {
        self.url = url
        self.schema = schema
        self.tablesIn = tablesIn
        self.connections = connections
        self.lockTimeoutMilliseconds = lockTimeoutMilliseconds
        self.statementTimeoutMilliseconds = statementTimeoutMilliseconds
        self.capturesReplicas = capturesReplicas
        self.limits = limits
        self.random = random
        self.clock = clock
        self.log = log
      }

      var settings: ConnectionSettings {
        var settings = ConnectionSettings(url: url, schema: schema, tablesIn: tablesIn)
        settings.lockTimeout = lockTimeoutMilliseconds
        settings.statementTimeout = statementTimeoutMilliseconds
        return settings
      }
    }

    /// The database as it was opened.
    struct View: Sendable {
      var setup: ServerSetup
      var opening: ServerOpening
      var catalog: Catalog
      var logWidth: Int { Catalog.logWidth(of: catalog.tables) }
    }

    private struct State {
      var view: View?
      /// How many wait for each reader, or are answered by it.
      var asking: [Int] = []
      /// Remotes that have not come since a restore.
      var unseen: Set<RemoteID> = []
      /// When the triggers were last looked at; milliseconds since 1970.
      var looked: Int64 = 0
    }

    let options: Options
    let atWork: BlobsAtWork
    let interruption = StoreInterruption()
    let digests = DigestMemory()
    private let writer: StoreSession
    private let books: StoreSession
    private let readers: [StoreSession]
    private let keeper: ProcessKeeper
    private let state: Mutex<State>
    let healing = Mutex(HealingState())

    /// So often the triggers are looked at, in milliseconds.
    private static let lookMilliseconds: Int64 = 60_000

    public init(_ options: Options) {
      self.options = options
      atWork = BlobsAtWork(options.limits)
      let (settings, interruption) = (options.settings, interruption)
      writer = StoreSession("writer", settings, interruption)
      books = StoreSession("books", settings, interruption)
      readers = (0..<max(1, options.connections - 3)).map { StoreSession("reader.\($0)", settings, interruption) }
      keeper = ProcessKeeper(settings)
      state = Mutex(State(asking: readers.map { _ in 0 }))
    }

    public convenience init(url: String) { self.init(Options(url: url)) }

    // MARK: Opening

    public func open(_ setup: ServerSetup) async throws -> ServerOpening {
      interruption.end()
      if let view = state.withLock({ $0.view }), view.setup.schema == setup.schema { return view.opening }
      let opening = try await install(setup)
      let unseen = try await writing { desk in
        _ = try desk.log.sweep()
        return try RestoreBook(connection: desk.connection).unseen()
      }
      state.withLock { $0.unseen = unseen }
      try await settleWaitingOffers()
      return opening
    }

    private func install(_ setup: ServerSetup) async throws -> ServerOpening {
      let options = options
      let begins = try await keeper.begin()
      let (view, notices) = try await writer.run { connection in
        var installation = Installation(
          connection, setup, random: options.random, clock: options.clock, capturesReplicas: options.capturesReplicas)
        let catalog = try installation.run(beginsIncarnation: begins)
        return (View(setup: setup, opening: installation.opening, catalog: catalog), installation.notices)
      }
      try await keeper.hold()
      for notice in notices { options.log(notice) }
      let now = options.clock.now()
      state.withLock { ($0.view, $0.looked) = (view, now) }
      return view.opening
    }

    /// Now and then: a trigger that somebody dropped or disabled is put back, and its group comes whole once.
    private func renew() async throws {
      let now = options.clock.now()
      let view = try view()
      let isDue = state.withLock { state in
        guard now - state.looked >= Self.lookMilliseconds else { return false }
        state.looked = now
        return true
      }
      guard isDue else { return }
      let lost = try await books.run { connection in try DatabaseCheck(connection).uncaptured(view.catalog.tables) }
      if !lost.isEmpty { _ = try await install(view.setup) }
    }

    func view() throws -> View {
      guard let view = state.withLock({ $0.view }) else {
        throw SalvorError(.storage, "The server's database is not open. Open it first.")
      }
      return view
    }

    public func interrupt() { interruption.interrupt() }

    public func close() async {
      state.withLock { $0.view = nil }
      for session in [writer, books] + readers { await session.close() }
      await keeper.end()
    }

    // MARK: Connections

    /// A transaction that holds the head.
    struct Desk {
      let connection: PostgreSQLConnection
      let catalog: Catalog
      let log: CommitLog
      let book: RemoteBook

      init(_ connection: PostgreSQLConnection, _ view: View, _ options: Options) {
        self.connection = connection
        catalog = view.catalog
        log = CommitLog(
          connection, catalog: view.catalog, incarnation: view.opening.incarnation, random: options.random,
          clock: options.clock)
        book = RemoteBook(connection: connection)
      }
    }

    func writing<Answer: Sendable>(_ body: @Sendable (Desk) throws -> Answer) async throws -> Answer {
      let (view, options) = (try view(), options)
      return try await writer.writing(view.logWidth) { try body(Desk($0, view, options)) }
    }

    func updating<Answer: Sendable>(
      _ name: String, _ body: @Sendable (PostgreSQLConnection) throws -> Answer
    ) async throws -> Answer {
      _ = try view()
      return try await books.updating(name, body)
    }

    /// Beside others, each statement by itself.
    func running<Answer: Sendable>(_ body: @Sendable (PostgreSQLConnection) throws -> Answer) async throws -> Answer {
      _ = try view()
      return try await books.run { try body($0) }
    }

    /// Asks the reader that has the least to do.
    private func reader<Answer: Sendable>(
      _ question: (StoreSession) async throws -> Answer
    ) async throws -> Answer {
      let place = state.withLock { state in
        let place = state.asking.indices.min { state.asking[$0] < state.asking[$1] } ?? 0
        state.asking[place] += 1
        return place
      }
      defer { state.withLock { $0.asking[place] -= 1 } }
      return try await question(readers[place])
    }

    func reading<Answer: Sendable>(
      _ body: @Sendable (PostgreSQLConnection, Catalog) throws -> Answer
    ) async throws -> Answer {
      let catalog = try view().catalog
      return try await reader { try await $0.reading { try body($0, catalog) } }
    }

    // MARK: Beginning, and the log

    public func answers() async throws {
      _ = try await reading { connection, _ in try CommitLog.state(connection) }
    }

    public func admit(_ query: AdmissionQuery) async throws -> Admission {
      try await renew()
      while true {
        let found = try await reading { connection, _ -> Admission? in
          let state = try CommitLog.state(connection)
          return state.isSealed ? try RemoteBook(connection: connection).admission(query, head: state.head) : nil
        }
        guard let found else {
          _ = try await number()
          continue
        }
        // Only after a restore, and once of each remote: when it is in step again.
        if found.cursors.allSatisfy({ $0 != .unknown }), state.withLock({ $0.unseen.remove(query.remote) }) != nil {
          try await updating(query.remote.text) { try RestoreBook(connection: $0).noteSeen(query.remote) }
        }
        return found
      }
    }

    private func number() async throws -> Commit { try await writing { try $0.log.sweep() } }

    public func sweep() async throws -> Commit {
      let sealed = try await reading { connection, _ -> Commit? in
        let state = try CommitLog.state(connection)
        return state.isSealed ? state.head : nil
      }
      if let sealed { return sealed }
      return try await number()
    }

    public func changedGroups(since cursors: [Commit]) async throws -> GroupChanges {
      try await renew()
      let head = try await sweep()
      if cursors.allSatisfy({ $0 == head }) { return GroupChanges(head: head, changes: []) }
      let catalog = try view().catalog
      return try await reader { session in
        try await session.run { try GroupChangeQuery(connection: $0, catalog: catalog).run(since: cursors) }
      }
    }

    public func page(_ request: PageRequest) async throws -> FeedPage {
      var request = request
      let catalog = try view().catalog
      let (clock, limits) = (options.clock, options.limits)
      while true {
        let asked = request
        let outcome = try await reader { session in
          try await session.run { connection in
            try FeedPageMaker.page(
              asked, connection, catalog, now: clock.now(), blobReferenceBytesMin: limits.blobReferenceBytesMin)
          }
        }
        switch outcome {
        case .page(let page, let hints):
          if !hints.isEmpty {
            try await updating("hints") { connection in
              for hint in hints { try BlobHints(connection: connection).note(hint) }
            }
          }
          return page
        case .unsealed(let position):
          _ = try await number()
          if let position { request.position = position.text }
        }
      }
    }

    // MARK: Uploads

    public func register(_ remote: RemoteID, principal: String) async throws {
      let (limits, now) = (options.limits, options.clock.now())
      try await updating(principal) {
        try RemoteBook(connection: $0).register(remote, principal: principal, limits, now: now)
      }
    }

    public func stage(_ chunk: UploadChunk, index: Int, remote: RemoteID, sequence: SequenceID) async throws {
      let (limits, now) = (options.limits, options.clock.now())
      try await removeLeftOver(remote, besides: sequence)
      // What a principal has staged together is limited.
      let principal = try await reading { connection, _ in try RemoteBook(connection: connection).registered(remote) }
        .principal
      try await updating(principal) { connection in
        try Staging(connection: connection).stage(
          chunk, index: index, try RemoteBook(connection: connection).registered(remote), sequence, limits, now: now)
      }
      atWork.goesOn(remote, now: now)
    }

    public func staged(_ remote: RemoteID, sequence: SequenceID) async throws -> StagedUpload {
      try await reading { connection, _ in try Staging(connection: connection).staged(remote, sequence) }
    }

    public func stagedChunk(_ index: Int, remote: RemoteID, sequence: SequenceID) async throws -> [UInt8]? {
      try await reading { connection, _ in try Staging(connection: connection).chunk(index, remote, sequence) }
    }

    public func unstage(_ remote: RemoteID, sequence: SequenceID) async throws {
      try await updating(remote.text) { try Staging(connection: $0).forget(remote, sequence) }
      atWork.ended(remote)
      try await removeLeftOver(remote)
    }

    public func process(_ upload: ProcessRequest) async throws -> UploadResults {
      let (view, options, interruption) = (try view(), options, interruption)
      let now = options.clock.now()
      atWork.goesOn(upload.remote, now: now)
      let pace = try await healPace()
      let results = try await writer.run(view.logWidth) { connection in
        let book = RemoteBook(connection: connection)
        // Again after each attempt: it may have been committed when its connection was lost, or by another process.
        func recorded() throws -> UploadResults? {
          guard let recorded = try book.results(upload.remote, upload.sequence) else { return nil }
          // It was deleted and registered again in between.
          if let known = try book.remote(upload.remote), !known.isDeleted, known.sequence == nil {
            try book.takeUp(upload.sequence, of: upload.remote)
          }
          return recorded
        }
        let intake = self.healing.withLock { $0.intake(pace, reviews: view.setup.reviewsOffers, now: now) }
        let run = UploadRun(options.limits, now: now, intake: intake, check: { try interruption.check() })
        let results = try run.process(upload) { body in
          try StoreSession.holdingHead(connection) {
            if let recorded = try recorded() { return recorded }
            let desk = Desk(connection, view, options)
            return try body(UploadRun.Desk(connection, desk.catalog, desk.log, desk.book))
          }
        } reading: { body in
          try connection.snapshot {
            let desk = Desk(connection, view, options)
            return try body(UploadRun.Desk(connection, desk.catalog, desk.log, desk.book))
          }
        }
        self.healing.withLock { $0.note(results, intake) }
        return results
      }
      atWork.ended(upload.remote)
      // It is done whatever becomes of this: the next time that somebody looks removes what is left.
      try? await removeLeftOver(upload.remote)
      // It may have brought what offers of others wait for.
      try? await settleWaitingOffers()
      return results
    }

    public func results(_ remote: RemoteID, sequence: SequenceID) async throws -> UploadResults? {
      try await reading { connection, _ in try RemoteBook(connection: connection).results(remote, sequence) }
    }

    /// Slice by slice: others write in between.
    private func removeLeftOver(_ remote: RemoteID, besides sequence: SequenceID? = nil) async throws {
      while try await reading({ connection, _ in
        try Staging(connection: connection).hasLeftOver(remote, besides: sequence)
      }) {
        try await updating(remote.text) { try Staging(connection: $0).removeLeftOver(remote, besides: sequence) }
      }
    }

    public func forgetStaged(before milliseconds: Int64) async throws {
      let left = try await reading { connection, _ in try Staging(connection: connection).left(before: milliseconds) }
      for remote in left {
        try await updating(remote.text) { try Staging(connection: $0).forget(remote) }
        atWork.ended(remote)
      }
      var last = ""
      while true {
        let after = last
        guard
          let remote = try await reading({ connection, _ in try Staging(connection: connection).remote(after: after) })
        else { return }
        if let id = RemoteID(remote) { try await removeLeftOver(id) }
        last = remote
      }
    }

    // MARK: Administration

    public func remotes() async throws -> [RemoteRecord] {
      try await reading { connection, _ in try RemoteBook(connection: connection).all() }
    }

    public func remotes(_ query: RemoteQuery) async throws -> [RemoteRecord] {
      try await reading { connection, _ in try RemoteBook(connection: connection).page(query) }
    }

    public func remote(_ id: RemoteID) async throws -> RemoteRecord? {
      try await reading { connection, _ in try RemoteBook(connection: connection).remote(id) }
    }

    public func deleteRemote(_ remote: RemoteID, block: Bool) async throws -> Bool {
      let now = options.clock.now()
      let isDeleted = try await updating(remote.text) {
        try RemoteBook(connection: $0).delete(remote, block: block, now: now)
      }
      try await removeLeftOver(remote)
      return isDeleted
    }

    public func conflicts(after id: Int64, limit: Int, state: ConflictState?) async throws -> [ConflictVersion] {
      try await reading { connection, catalog in
        try ConflictBook(RowReader(connection: connection, catalog: catalog)).list(
          after: id, limit: limit, state: state)
      }
    }

    public func conflict(_ id: Int64) async throws -> [ConflictRow] {
      try await reading { connection, catalog in
        try ConflictBook(RowReader(connection: connection, catalog: catalog)).rows(of: id)
      }
    }

    public func resolveConflict(_ id: Int64, keep: ConflictSide, by: String) async throws -> [ConflictVersion] {
      let now = options.clock.now()
      return try await writing { desk in
        // What it writes is numbered by the next look, as another program's.
        desk.connection.numbered = nil
        return try ConflictBook(RowReader(connection: desk.connection, catalog: desk.catalog)).resolve(
          id, keep: keep, by: by, now: now)
      }
    }

    public func trim(before milliseconds: Int64) async throws {
      try await giveUpWaiting(before: milliseconds)
      try await writing { desk in
        _ = try desk.log.sweep()
        try Trimming(connection: desk.connection).begin(before: milliseconds)
        try BlobStaging(connection: desk.connection).forget(before: milliseconds)
        try ConflictBook(RowReader(connection: desk.connection, catalog: desk.catalog)).trim(before: milliseconds)
      }
      while try await writing({ try Trimming(connection: $0.connection).removeSome(before: milliseconds) }) {}
    }

    public func trimSettledConflicts(before milliseconds: Int64) async throws {
      try await writing { desk in
        try ConflictBook(RowReader(connection: desk.connection, catalog: desk.catalog)).trimSettled(
          before: milliseconds)
      }
    }

    public func stats() async throws -> ServerStats {
      let id = try view().opening.serverID
      return try await readers[0].stats(id)
    }

    // MARK: Another program's statements

    public func rows(of table: String) async throws -> [Row] {
      let schema = try view().setup.schema
      return try await reading { connection, catalog in
        guard let found = catalog.table(table) else {
          // A client-only table is none of the server's.
          if schema.table(table) != nil { return [] }
          throw Self.unknown(table)
        }
        return try connection.rows(
          "SELECT \(quotedNames(found.table.columns.map(\.name))) FROM \(found.sql) ORDER BY \(found.keyList())")
      }
    }

    public func write(_ writes: [ApplicationWrite]) async throws {
      let catalog = try view().catalog
      try await books.run { connection in
        try connection.transaction { for write in writes { try Self.run(write, connection, catalog) } }
      }
    }

    private static func run(_ write: ApplicationWrite, _ connection: PostgreSQLConnection, _ catalog: Catalog) throws {
      func table(_ name: String) throws -> ServerTable {
        guard let table = catalog.table(name) else { throw unknown(name) }
        return table
      }
      switch write {
      case .insert(let name, let values):
        let slots = values.indices.map { "?\($0 + 1)" }.joined(separator: ", ")
        let target = try table(name).sql
        try connection.run(
          values.isEmpty
            ? "INSERT INTO \(target) DEFAULT VALUES"
            : "INSERT INTO \(target) (\(quotedNames(values.map(\.name)))) VALUES (\(slots))", values.map(\.value))
      case .update(let name, let key, let values):
        let table = try table(name)
        guard !values.isEmpty else { return }
        let sets = values.enumerated().map { "\(quoted($1.name)) = ?\($0 + 1)" }.joined(separator: ", ")
        let matches = table.keyMatches("x") { "?\(values.count + $0 + 1)" }
        try connection.run("UPDATE \(table.sql) AS x SET \(sets) WHERE \(matches)", values.map(\.value) + key)
      case .delete(let name, let key):
        let table = try table(name)
        try connection.run("DELETE FROM \(table.sql) AS x WHERE \(table.keyMatches("x") { "?\($0 + 1)" })", key)
      case .deferReferences: try connection.deferReferences()
      case .beginRequest, .endRequest: break
      }
    }

    private static func unknown(_ name: String) -> SalvorError {
      SalvorError(.usage, "The server has no synchronized table \(name). Check the name.", context: ["table": name])
    }
  }
#endif
