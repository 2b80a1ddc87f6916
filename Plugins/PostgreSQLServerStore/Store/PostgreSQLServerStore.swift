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
    private struct State {
      var view: View?
      /// How many wait for each reader, or are answered by it.
      var asking: [Int] = []
      /// Remotes that have not come since a restore.
      var unseen: Set<RemoteID> = []
      /// When the triggers were last looked at; milliseconds since 1970.
      var looked: Int64 = 0
      /// Somebody has altered the tables so that they do not fit the schema; nobody is served until they do again.
      var misfit: SalvorError?
      /// Up to this entry of the log rows are proven.
      var proven: Int64 = 0
      /// Does so soon.
      var proving: Task<Void, Never>?
      /// The database is being opened anew.
      var opening: Task<View, any Error>?
    }

    let options: Options
    let interruption = StoreInterruption()
    let digests = DigestMemory()
    private let writer: StoreSession
    let books: StoreSession
    private let readers: [StoreSession]
    let replica: ReadReplica?
    let keeper: ProcessKeeper
    private let state: Mutex<State>
    private let history: HistoryWatch
    private let others: OtherHosts
    let healing = Mutex(HealingState())

    /// So often the triggers are looked at, in milliseconds.
    private static let lookMilliseconds: Int64 = 60_000
    /// So long after an upload its rows are proven, in milliseconds.
    private static let proofMilliseconds: Int64 = 500
    /// And so often where the tables do not fit.
    private static let misfitLookMilliseconds: Int64 = 5000

    /// Connects to nothing yet: `open` does.
    public init(_ options: Options) {
      self.options = options
      let (settings, interruption) = (options.settings, interruption)
      let history = HistoryWatch(stateDirectory: options.stateDirectory)
      self.history = history
      writer = StoreSession("writer", settings, interruption, look: history.look)
      books = StoreSession("books", settings, interruption, look: history.look)
      readers = (0..<max(1, options.connections - 3)).map {
        StoreSession("reader.\($0)", settings, interruption, look: history.look)
      }
      replica = options.readReplica.map { ReadReplica($0, options, interruption, history) }
      keeper = ProcessKeeper(settings)
      others = OtherHosts(settings)
      state = Mutex(State(asking: readers.map { _ in 0 }))
    }

    /// With the defaults of `Options`.
    public convenience init(url: String) { self.init(Options(url: url)) }

    // MARK: Opening

    /// A store that is open with the same schema returns the opening of before.
    public func open(_ setup: ServerSetup) async throws -> ServerOpening {
      interruption.end()
      if let view = state.withLock({ $0.view }), view.setup.schema == setup.schema { return view.opening }
      try history.check(options.stateDirectory)
      let view = try await install(setup, since: nil)
      try await settleWaitingOffers()
      return view.opening
    }

    /// - Parameters:
    ///   - before: what was seen of a database that another one took the place of; nil: this is a start.
    ///   - known: the incarnations of then.
    private func install(
      _ setup: ServerSetup, since before: HistoryFacts?, knowing known: Set<IncarnationID> = []
    ) async throws -> View {
      let options = options
      let remembered = before == nil ? history.remembered : nil
      let expected = before == nil ? remembered?.server : state.withLock { $0.view?.opening.serverID }
      try await requireNotOvertaken(since: remembered?.place)
      let begins = try await keeper.begin()
      var (view, notices) = try await writer.run { connection in
        var installation = Installation(
          connection, setup, random: options.random, clock: options.clock, capturesReplicas: options.capturesReplicas,
          expecting: expected, isServing: before != nil)
        // Another process may be there all the time, and have found out nothing yet (decision 245).
        let catalog = try installation.run(beginsIncarnation: { begins || known.contains($0) })
        let incarnations = try connection.rows("SELECT id FROM salvor_incarnation").compactMap { $0[0].string }
        connection.ownsTriggers = nil
        var notices = installation.notices
        if connection.isPooled {
          notices.append(
            "A pooler stands between this server and the database. Nothing is told through it: what changed is found by looking (eventLookMilliseconds). Each statement is prepared anew."
          )
        }
        var view = View(setup: setup, opening: installation.opening, catalog: catalog)
        view.incarnations = Set(incarnations.compactMap { IncarnationID($0) } + [view.opening.incarnation])
        return (view, notices)
      }
      try await keeper.hold()
      let now = options.clock.now()
      let opened = view
      let found = try await writer.writing(view.logWidth) { connection in
        let desk = Desk(connection, opened, options)
        _ = try desk.log.sweep()
        let facts = try HistoryFacts(connection)
        let hasMoved = try facts.noteCluster(connection) && before == nil
        var lost = remembered
        if let before, let incarnation = before.incarnation, let head = before.head {
          lost = SideFile.Content(server: opened.opening.serverID, incarnation: incarnation, commit: head)
          // Nobody goes on with what he began with the database before.
          try connection.execute("DELETE FROM salvor_conversation")
        }
        let book = RestoreBook(connection: connection)
        var isRestored = false
        if let lost, lost.server == opened.opening.serverID, try !lost.isKnown(connection) {
          isRestored = true
          try book.begin(lost, now: now)
        }
        let blocked = try self.blockList?.open(connection, of: opened.opening.serverID, now: now)
        let said = try self.applyLedger(desk, opened.opening.serverID, isRestored: isRestored) + (blocked ?? [])
        if !said.isEmpty { _ = try desk.log.sweep() }
        _ = try RowProof.note(connection, opened.catalog.tables, after: 0) { _ in true }
        return (
          facts: facts, isRestored: isRestored, unseen: try book.unseen(), place: try ReadReplica.place(connection),
          notices: hasMoved && !isRestored ? said + [HistoryFacts.moved] : said
        )
      }
      view.place = found.place
      let wasRestored = before == nil && state.withLock { $0.view?.opening.isRestored } == true
      view.opening.isRestored = found.isRestored || wasRestored
      if found.isRestored, before == nil {
        notices.append("The database was restored: a commit that this process's folder remembers is not in it.")
      }
      for notice in notices + found.notices { options.log(notice) }
      history.begin(found.facts, at: now)
      let made = view
      state.withLock { ($0.view, $0.looked, $0.unseen, $0.misfit) = (made, now, found.unseen, nil) }
      try await followLedger(made.opening.serverID)
      return made
    }

    /// Throws where another server was promoted over this one, before anything is written here.
    private func requireNotOvertaken(since place: SideFile.Place?) async throws {
      let facts = try await writer.run { try HistoryFacts($0) }
      if let place, facts.isOvertaken(by: place.timeline, of: place.system) {
        throw facts.overtaken(by: place.timeline)
      }
      if let timeline = await others.promoted(over: facts) { throw facts.overtaken(by: timeline) }
    }

    /// The database as it is open. Where another history has come in its place, it is opened anew first, once for all who ask.
    func present() async throws -> View {
      guard history.hasParted else { return try view() }
      let task = try state.withLock { state in
        if let opening = state.opening { return opening }
        guard let view = state.view else { throw HistoryWatch.parted }
        let task = Task { try await self.openAnew(view) }
        state.opening = task
        return task
      }
      defer { state.withLock { if $0.opening == task { $0.opening = nil } } }
      return try await task.value
    }

    private func openAnew(_ view: View) async throws -> View {
      guard history.hasParted else { return try self.view() }
      let before = history.beginAnew()
      do {
        for session in [writer, books] + readers { await session.close() }
        await replica?.close()
        await keeper.reconnect()
        let found = try await writer.run { try before?.finding(in: $0) }
        if let found, found.finding == .overtaken { throw found.now.overtaken(by: before?.timeline ?? 0) }
        let made = try await install(view.setup, since: before, knowing: view.incarnations)
        healing.withLock { $0 = HealingState() }
        let seen = before?.head.map { "commit \($0.number)" } ?? "nothing"
        switch found?.finding {
        case .restored?:
          options.log.warning(
            "The database was restored, or another one lacks what this server has seen (up to \(seen)). Devices that have seen more say so at their next sync: salvor server restores."
          )
        case .copy?:
          options.log.warning(HistoryFacts.moved)
        default: options.log("The database goes on after a failover. Nothing of it is missing.")
        }
        return made
      } catch let error as SalvorError where error.code != .storageBusy && error.code != .cancelled {
        // Somebody may be putting it back, or is to say which one counts.
        history.giveUp(before)
        note(misfit: error.message, error)
        try checkFit()
        throw error
      } catch {
        history.giveUp(before)
        throw error
      }
    }

    /// Now and then: a trigger that somebody dropped or disabled is put back, and its group comes whole once. Nobody is served while a table
    /// does not fit.
    private func renew() async throws {
      let now = options.clock.now()
      let isTime = history.isDue(at: now)
      if isTime {
        try? await books.run { [history] in try history.look($0) }
        try? await keeper.renew()
        // Beside whoever asks now: a host that is gone does not say so at once.
        Task { await lookAtOthers() }
      }
      let view = try await present()
      // Its file is behind until then: nothing that waits for this.
      if isTime {
        try? await followLedger(view.opening.serverID)
        try? await proveRows(view)
      }
      let isDue = state.withLock { state in
        guard now - state.looked >= (state.misfit == nil ? Self.lookMilliseconds : Self.misfitLookMilliseconds) else {
          return false
        }
        state.looked = now
        return true
      }
      guard isDue else { return try checkFit() }
      let capturesReplicas = options.capturesReplicas
      let lost = try await books.run { connection in
        let (check, tables) = (DatabaseCheck(connection), view.catalog.tables)
        return try check.uncaptured(tables, capturesReplicas: capturesReplicas) + check.renewed(tables)
          + tables.filter { try !check.problems(of: $0.table).isEmpty }.map(\.name)
      }
      if !lost.isEmpty {
        do {
          _ = try await install(view.setup, since: nil)
        } catch let error as SalvorError
          where [.schemaRefused, .configuration, .storageCorrupt].contains(error.code)
        {
          note(misfit: "The database's tables were altered under the server. \(error.message)", error)
        }
      }
      if lost.isEmpty { state.withLock { $0.misfit = nil } }
      try checkFit()
    }

    /// Whether another one of the hosts in `url` was promoted over the one that is open.
    func lookAtOthers() async {
      guard let facts = history.present, await others.promoted(over: facts) != nil else { return }
      history.part()
    }

    /// What a later look, or start, compares the rows with. Nothing of tables whose triggers were away since they were looked at: what their rows
    /// are now is what is to be proven.
    func proveRows(_ view: View) async throws {
      let before = state.withLock { $0.proven }
      let capturesReplicas = options.capturesReplicas
      let last = try await books.updating("proof") { connection in
        try RowProof.note(connection, view.catalog.tables, after: before) { table in
          try DatabaseCheck(connection).uncaptured([table], capturesReplicas: capturesReplicas).isEmpty
        }
      }
      state.withLock { $0.proven = max($0.proven, last) }
    }

    /// Soon, once for all that is acknowledged meanwhile: nobody may come before somebody puts older rows back.
    private func proveRowsSoon() {
      state.withLock { state in
        guard state.proving == nil else { return }
        state.proving = Task {
          try? await options.clock.sleep(milliseconds: Self.proofMilliseconds)
          self.state.withLock { $0.proving = nil }
          if !Task.isCancelled, let view = try? view() { try? await proveRows(view) }
        }
      }
    }

    /// With the next request, however short ago it was (for tests).
    func lookAgain() { state.withLock { $0.looked = 0 } }

    private func note(misfit message: String, _ error: SalvorError) {
      let misfit = SalvorError(
        .storageBusy, message, context: error.context, retryAfterMilliseconds: Self.misfitLookMilliseconds)
      let isNew = state.withLock { state in
        defer { state.misfit = misfit }
        return state.misfit?.message != message
      }
      if isNew { options.log.error(message) }
    }

    /// Throws where somebody has altered the tables so that they do not fit the schema.
    private func checkFit() throws { if let misfit = state.withLock({ $0.misfit }) { throw misfit } }

    func view() throws -> View {
      guard let view = state.withLock({ $0.view }) else {
        throw SalvorError(.storage, "The server's database is not open. Open it first.")
      }
      return view
    }

    public func interrupt() { interruption.interrupt() }

    /// Closes every connection; waits for what each of them is doing.
    public func close() async {
      let view = state.withLock { state in
        defer { state.view = nil }
        return state.view
      }
      let proving = state.withLock { $0.proving }
      proving?.cancel()
      await proving?.value
      if let view, await writer.isConnected { try? await proveRows(view) }
      history.end()
      for session in [writer, books] + readers { await session.close() }
      await replica?.close()
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
      let view = try await present()
      return try await writer.writing(view.logWidth) { try body(desk($0, view)) }
    }

    /// A process that was cut off for a moment may have been taken for gone: then another one has begun an incarnation, and this one
    /// takes it up. There is one at a time. Where the newest commit that was seen is missing, another database was put in the place of this one
    /// since the last look: nothing is written, or numbered, as if it were the same history.
    private func desk(_ connection: PostgreSQLConnection, _ view: View) throws -> Desk {
      var view = view
      let before = view.opening.incarnation
      let seen = history.present?.head
      let row = try connection.rows(
        """
        SELECT (SELECT value FROM salvor_server WHERE key = 'incarnation'),
          EXISTS (SELECT 1 FROM salvor_commit WHERE number = ?1 AND id = ?2)
        """, .integer(seen?.number ?? 0), .text(seen?.id.text ?? "")
      ).first
      if seen != nil, row?[1] != 1 { try history.look(connection) }
      let found = row?[0].string
      if let now = found.flatMap({ IncarnationID($0) }), now != before {
        view.opening.incarnation = now
        state.withLock { if $0.view?.opening.incarnation == before { $0.view?.opening.incarnation = now } }
      }
      return Desk(connection, view, options)
    }

    func updating<Answer: Sendable>(
      _ name: String, _ body: @Sendable (PostgreSQLConnection) throws -> Answer
    ) async throws -> Answer {
      _ = try await present()
      return try await books.updating(name, body)
    }

    /// Whether the database is open or not.
    func asking<Answer: Sendable>(_ body: @Sendable (PostgreSQLConnection) throws -> Answer) async throws -> Answer {
      if (try? view()) != nil { _ = try await present() }
      return try await books.run { try body($0) }
    }

    /// Beside others, each statement by itself.
    func running<Answer: Sendable>(_ body: @Sendable (PostgreSQLConnection) throws -> Answer) async throws -> Answer {
      _ = try await present()
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

    /// One statement: it is of one moment by itself.
    func looking<Answer: Sendable>(_ body: @Sendable (PostgreSQLConnection) throws -> Answer) async throws -> Answer {
      _ = try await present()
      return try await reader { try await $0.run { try body($0) } }
    }

    func reading<Answer: Sendable>(
      _ body: @Sendable (PostgreSQLConnection, Catalog) throws -> Answer
    ) async throws -> Answer {
      let catalog = try await present().catalog
      return try await reader { try await $0.reading { try body($0, catalog) } }
    }

    // MARK: Beginning, and the log

    /// Throws where the database does not answer.
    public func answers() async throws {
      // Where a balancer asks nothing else, this is who finds out that the database fits again.
      try await renew()
      _ = try await looking { try CommitLog.state($0) }
    }

    public func admit(_ query: AdmissionQuery) async throws -> Admission {
      try await renew()
      let now = options.clock.now()
      let found = try await sealed { connection, catalog in
        let book = AdmissionBook(connection, catalog)
        if AdmissionBook.isPlain(query) { return try book.admission(query, now: now) }
        return try connection.snapshot { try book.admission(query, now: now) }
      }
      noteSeen(found.head)
      // Only after a restore, and once of each remote: when it is in step again.
      if found.cursors.allSatisfy({ $0 != .unknown }), state.withLock({ $0.unseen.remove(query.remote) }) != nil {
        try await updating(query.remote.text) { try RestoreBook(connection: $0).noteSeen(query.remote) }
      }
      return found
    }

    /// So often a moment is looked for in which everything committed has its number.
    private static let sealingsMax = 3

    /// What `body` says where everything that its snapshot shows has its number; it answers nil where that is not so. Beside many writers the
    /// moment may be one that is made for it: it holds the head.
    func sealed<Answer: Sendable>(
      _ body: @Sendable (PostgreSQLConnection, Catalog) throws -> Answer?
    ) async throws -> Answer {
      for _ in 0..<Self.sealingsMax {
        let catalog = try await present().catalog
        if let found = try await reader({ session in try await session.run { try body($0, catalog) } }) { return found }
        _ = try await number()
      }
      let found = try await writing { desk in
        _ = try desk.log.sweep()
        return try body(desk.connection, desk.catalog)
      }
      if let found { return found }
      throw SalvorError(.storageBusy, "Others number what was changed without a pause. Try again.")
    }

    private func number() async throws -> Commit {
      let head = try await writing { try $0.log.sweep() }
      noteSeen(head)
      return head
    }

    func noteSeen(_ commit: Commit) {
      if let opening = state.withLock({ $0.view?.opening }) { history.note(commit, opening) }
    }

    public func sweep() async throws -> Commit {
      let sealed = try await looking { connection -> Commit? in
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
      let catalog = try await present().catalog
      return try await reader { session in
        try await session.run { try GroupChangeQuery(connection: $0, catalog: catalog).run(since: cursors) }
      }
    }

    public func page(_ request: PageRequest) async throws -> FeedPage {
      var request = request
      let view = try await present()
      let position = ReplicaPosition(request.position)
      request.position = position.text
      if let (page, hints) = try await replicaPage(request, position, view) { return try await noting(hints, of: page) }
      let (asked, clock, limits, hasReplica) = (request, options.clock, options.limits, replica != nil)
      var (page, hints, place) = try await sealed { connection, catalog -> (FeedPage, [BlobHint], String?)? in
        let outcome = try FeedPageMaker.page(
          asked, connection, catalog, now: clock.now(), limits: limits)
        guard case .page(let page, let hints) = outcome else { return nil }
        // Where the next page may be the replica's.
        let place = hasReplica ? try connection.scalar("SELECT pg_current_wal_insert_lsn()::text")?.string : nil
        return (page, hints, place)
      }
      if let place { page.position = ReplicaPosition.joined(page.position, place) }
      return try await noting(hints, of: page)
    }

    private func noting(_ hints: [BlobHint], of page: FeedPage) async throws -> FeedPage {
      if !hints.isEmpty {
        try await updating("hints") { connection in
          for hint in hints { try BlobHints(connection: connection).note(hint) }
        }
      }
      if !page.leftOut.isEmpty {
        let catalog = try view().catalog
        try await updating("large") { try LargeRows(connection: $0).note(page.leftOut, catalog) }
      }
      return page
    }

    // MARK: Uploads

    public func register(_ remote: RemoteID, principal: String) async throws {
      let (limits, now) = (options.limits, options.clock.now())
      try await updating(principal) {
        try RemoteBook(connection: $0).register(remote, principal: principal, limits, now: now)
      }
    }

    /// A sequence that was processed last returns its results again.
    public func process(_ upload: ProcessRequest) async throws -> UploadResults {
      let (view, options, interruption) = (try await present(), options, interruption)
      let now = options.clock.now()
      let pace = try await healPace()
      let late = LateRows(options.settings)
      let results = try await writer.patiently(view.logWidth) { connection in
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
            let desk = try self.desk(connection, view)
            let results = try body(UploadRun.Desk(connection, desk.catalog, desk.log, desk.book))
            try connection.proveMoment(of: desk.catalog)
            try late.check(results, connection)
            return results
          }
        } reading: { body in
          try connection.snapshot {
            let desk = try self.desk(connection, view)
            return try body(UploadRun.Desk(connection, desk.catalog, desk.log, desk.book))
          }
        }
        self.healing.withLock { $0.note(results, intake) }
        return results
      }
      if let commit = results.commit {
        noteSeen(commit)
        proveRowsSoon()
      }
      // It is done whatever becomes of this: the next time that somebody looks removes what is left.
      try? await removeLeftOver(upload.remote)
      // It may have brought what offers of others wait for.
      try? await settleWaitingOffers()
      return results
    }

    public func results(_ remote: RemoteID, sequence: SequenceID) async throws -> UploadResults? {
      try await reading { connection, _ in try RemoteBook(connection: connection).results(remote, sequence) }
    }

    public func stats() async throws -> ServerStats {
      let id = try await present().opening.serverID
      return try await readers[0].stats(id)
    }
  }
#endif
