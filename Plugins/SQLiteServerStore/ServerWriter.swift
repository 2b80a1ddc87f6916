import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import ServerStoreSupport

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The one connection that writes: opening, numbering, staging, processing, administration. Its own serial queue is the
/// one serial place in which commits get their numbers.
actor ServerWriter {
  private let queue: SQLiteQueue
  nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }

  let options: SQLiteServerOptions
  let atWork: BlobsAtWork
  let interruption: Interruption
  private var logCount = LogCount()
  private var pause = WritePause()
  private var open: Open?
  var healing = HealingState()

  struct Open {
    var connection: SQLiteConnection
    /// Names the connection.
    var number: Int64
    var catalog: Catalog
    var opening: ServerOpening
    var setup: ServerSetup
    var log: CommitLog
    var book: RemoteBook
    var side: SideFile?
    /// The newest commit that was seen, which the side file names.
    var written: Commit?
    /// The last act of the ledger of purged rows that was seen: what a restore has erased again makes no commit.
    var purged: PurgeEnd?
    /// SQLite's own count of what other connections have written, when `written` was last looked for.
    var others: Int64?
    /// SQLite's own count, when the triggers were last looked at.
    var schemaVersion: Int64
    var isFull: Bool?

    var view: ServerReader.View {
      ServerReader.View(serverID: opening.serverID, catalog: catalog, schemaVersion: schemaVersion)
    }
  }

  init(_ options: SQLiteServerOptions, _ atWork: BlobsAtWork, _ interruption: Interruption) {
    self.options = options
    self.interruption = interruption
    self.atWork = atWork
    queue = SQLiteQueue("server.writer")
  }

  // MARK: Opening

  /// The view is what readers need.
  func open(_ setup: ServerSetup) throws -> (opening: ServerOpening, view: ServerReader.View) {
    if let open, interruption.hasParted {
      try requireSameServer(open)
    } else if let open, open.setup.schema == setup.schema {
      return (open.opening, open.view)
    }
    close()
    let open = try makeOpen(setup, sameStart: nil)
    self.open = open
    if options.isFile { interruption.watchFile(open.written) }
    healing = HealingState()
    return (open.opening, open.view)
  }

  /// - Parameter before: the opening of this same start of the server, where there was one.
  private func makeOpen(_ setup: ServerSetup, sameStart before: ServerOpening?) throws -> Open {
    if before == nil, options.isFile { try RememberedDatabase(path: options.path).requireThere() }
    let connection = try SQLiteConnection(
      options.path, busyTimeoutMilliseconds: Int32(clamping: options.busyTimeoutMilliseconds), for: "server-writer")
    // A new database can give space back (`giveBackSpace`); an adopted one keeps to what it is.
    if try connection.integer("PRAGMA page_count") == 0 { try connection.execute("PRAGMA auto_vacuum = INCREMENTAL") }
    try connection.pragma("journal_mode", "WAL")
    try connection.pragma("journal_size_limit", "\(64 << 20)")
    try connection.execute(
      "PRAGMA synchronous = FULL; PRAGMA temp_store = FILE; PRAGMA cache_size = -32768")
    try connection.set("foreign_keys", true)
    if options.isFile, let renaming = try NewIdentity.complete(connection, options.path) {
      options.log(
        "The server ID of \(options.path) was being changed when salvor server adopt --new-id ended. It was completed: \(renaming.now); it was \(renaming.before)."
      )
    }
    var installation = Installation(connection, setup, random: options.random, clock: options.clock)
    let catalog = try connection.transaction(.immediate) { try installation.run() }
    for notice in installation.notices { options.log(notice) }
    let beside = options.path + sideSuffix
    let side = options.isFile ? SideFile(beside, mode: PrivateFile.mode(at: beside)) : nil
    var opening = before ?? installation.opening
    if before == nil, options.isFile, try (side?.read() == nil && CommitLog.state(connection).head.number > 0) {
      let what = side == nil ? "cannot be opened for writing" : "was not there, or is damaged"
      options.log(
        "\(beside) \(what). Where the database was put back from a copy by hand, nobody knows it until a device comes that has seen more. \(side == nil ? "Give the server's user the right to write it." : "It is written anew with the next commit.")"
      )
    }
    if before == nil, let content = side?.read(), content.server == opening.serverID {
      opening.isRestored = try !content.isKnown(connection)
      if opening.isRestored {
        let now = options.clock.now()
        try connection.transaction(.immediate) { try RestoreBook(connection: connection).begin(content, now: now) }
        options.log(
          "The server's database is older than \(options.path)\(sideSuffix): it came from a backup (commit \(content.commit.number) is not in it)."
        )
      }
    }
    if before == nil, options.isFile {
      let replay = PurgeReplay(
        connection, catalog, opening.serverID, purgeLedger, isRestored: opening.isRestored,
        witness: side?.read().flatMap { content in
          content.server == opening.serverID ? content.purged.map { .init(path: beside, last: $0) } : nil
        }
      ) { Purge(connection, catalog) }
      let notices = try Purge.overwriting(connection) {
        try replay.run { body in try connection.transaction(.immediate) { try body() } }
      }
      for notice in notices { options.log(notice) }
    }
    if before == nil, options.isFile {
      let (list, server, now) = (blockList, opening.serverID, options.clock.now())
      let notices = try connection.transaction(.immediate) {
        try list.open(connection, of: server, now: now)
      }
      for notice in notices { options.log(notice) }
    }
    let log = CommitLog(
      connection, catalog: catalog, incarnation: opening.incarnation, random: options.random, clock: options.clock
    ) { try catalog.clearPending(connection) }
    var open = Open(
      connection: connection, number: options.random.positiveNumber(), catalog: catalog, opening: opening, setup: setup,
      log: log,
      book: RemoteBook(connection: connection), side: side, schemaVersion: try connection.schemaVersion())
    // What was written while no server ran.
    let head = try connection.transaction(.immediate) { try log.sweep() }
    // What the side file remembers of a later time stays until there is a new commit: each start says so until then.
    if opening.isRestored { open.written = head }
    open.purged = try PurgeBook(connection).last()
    note(try newCommit(open), &open)
    interruption.add(connection)
    return open
  }

  /// Where another program changed the database's schema, its triggers may be gone: they are looked at and put back. Nil:
  /// nothing was changed.
  func renewed() throws -> ServerReader.View? {
    let before = try opened()
    guard try before.connection.schemaVersion() != before.schemaVersion else { return nil }
    let open = try makeOpen(before.setup, sameStart: before.opening)
    interruption.remove(before.connection)
    before.connection.close()
    self.open = open
    return open.view
  }

  func close() {
    guard let open else { return }
    self.open = nil
    interruption.remove(open.connection)
    // SQLite leaves the log of a file that was moved where it is: another database in its place would take it for its own.
    try? open.connection.checkpoint(interruption.isMoved ? .truncate : .passive)
    open.connection.close()
  }

  func opened() throws -> Open {
    do { try interruption.checkFile() } catch {
      if interruption.isMoved { try? open?.connection.checkpoint(.truncate) }
      throw error
    }
    guard var open else { throw SalvorError(.storage, "The server's database is not open. Open it first.") }
    try checkHistory(&open)
    self.open = open
    return open
  }

  /// Throws where another program has put an older copy of the database, or that of another history, into the file (semantics 6):
  /// SQLite's own means of restoring do, and every connection goes on with what is there then.
  private func checkHistory(_ open: inout Open) throws {
    guard options.isFile, let written = open.written else { return }
    let others = try open.connection.integer("PRAGMA data_version")
    guard others != open.others else { return }
    let seen = SideFile.Content(
      server: open.opening.serverID, incarnation: open.log.incarnation, commit: written)
    guard try open.connection.tableShape("salvor_commit") != nil, try seen.isKnown(open.connection) else {
      throw interruption.part()
    }
    let purges = try PurgeBook(open.connection)
    guard try open.purged.map(purges.has) ?? true else { throw interruption.part() }
    (open.others, open.purged) = (others, try purges.last())
  }

  /// Before anything is written into what somebody has put into the file.
  private func requireSameServer(_ open: Open) throws {
    let isSalvors = try open.connection.tableShape("salvor_server") != nil
    let id =
      isSalvors ? try open.connection.scalar("SELECT value FROM salvor_server WHERE key = 'id'")?.string : nil
    guard id != open.opening.serverID.text else { return }
    throw interruption.part(
      "Another database was put into the server's file (server ID \(id ?? "none")). Put the right one back, or start the server again if that is meant."
    )
  }

  // MARK: Transactions

  /// `durable`: the transaction is acknowledged to somebody, so a power cut may not take it.
  func transaction<Result>(durable: Bool, _ body: (Open) throws -> Result) throws -> Result {
    try interruption.check()
    var open = try opened()
    let isFull = durable && options.durability == .full
    if open.isFull != isFull {
      try open.connection.execute("PRAGMA synchronous = \(isFull ? "FULL" : "NORMAL")")
      open.isFull = isFull
    }
    // This queue's own thread waits. A database in memory is nobody else's.
    if options.isFile, pause.isDue(.now) { usleep(UInt32(WritePause.pause / .microseconds(1))) }
    let began = ContinuousClock.now
    defer { pause.add(from: began, to: .now) }
    let (result, news) = try open.connection.transaction(.immediate) {
      // It may have waited for one who restored.
      try checkHistory(&open)
      let result = try body(open)
      return (result, durable ? try newCommit(open) : nil)
    }
    note(news, &open)
    self.open = open
    return result
  }

  /// Nil: the newest commit is the one that was seen last.
  private func newCommit(_ open: Open) throws -> SideFile.Content? {
    let head = try CommitLog.state(open.connection).head
    guard head.number > 0, head != open.written else { return nil }
    // The incarnation that made the commit: this one makes none before its first change.
    let incarnation = try open.connection.scalar(
      "SELECT incarnation FROM salvor_commit WHERE number = ?1", .integer(head.number))?.string.flatMap {
        IncarnationID($0)
      }
    var news = SideFile.Content(
      server: open.opening.serverID, incarnation: incarnation ?? open.opening.incarnation, commit: head)
    news.purged = open.purged.flatMap { $0.count > 0 ? $0 : nil }
    return news
  }

  /// The ledger of purged rows has another last act.
  func notePurges() throws {
    guard let open else { return }
    let last = try PurgeBook(open.connection).last()
    self.open?.purged = last
    guard last.count > 0, var content = open.side?.read(), content.server == open.opening.serverID else { return }
    content.purged = last
    open.side?.write(content)
  }

  private func note(_ news: SideFile.Content?, _ open: inout Open) {
    guard let news else { return }
    open.side?.write(news)
    open.written = news.commit
    interruption.see(news.commit)
  }

  // MARK: Contract

  func sweep() throws -> Commit {
    let open = try opened()
    let state = try CommitLog.state(open.connection)
    if state.isSealed { return state.head }
    return try transaction(durable: true) { try $0.log.sweep() }
  }

  func admit(_ query: AdmissionQuery) throws -> Admission {
    let now = options.clock.now()
    while true {
      _ = try sweep()
      let open = try opened()
      let found = try open.connection.transaction(.deferred) {
        try AdmissionBook(open.connection, open.catalog).admission(query, now: now)
      }
      // Others have written between the two.
      if let found { return found }
    }
  }

  func register(_ remote: RemoteID, principal: String) throws {
    let now = options.clock.now()
    let limits = options.limits
    try transaction(durable: true) { try $0.book.register(remote, principal: principal, limits, now: now) }
  }

  func stage(_ chunk: UploadChunk, index: Int, _ remote: RemoteID, _ sequence: SequenceID) throws {
    let (limits, now) = (options.limits, options.clock.now())
    try transaction(durable: false) { open in
      try Staging(connection: open.connection).stage(
        chunk, index: index, try open.book.registered(remote), sequence, limits, now: now)
    }
    atWork.goesOn(remote, now: now)
  }

  func unstage(_ remote: RemoteID, _ sequence: SequenceID) throws {
    try transaction(durable: true) { try Staging(connection: $0.connection).forget(remote, sequence) }
    atWork.ended(remote)
  }

  func staged(_ remote: RemoteID, _ sequence: SequenceID) throws -> StagedUpload {
    try Staging(connection: try opened().connection).staged(remote, sequence)
  }

  func stagedChunk(_ index: Int, _ remote: RemoteID, _ sequence: SequenceID) throws -> [UInt8]? {
    try Staging(connection: try opened().connection).chunk(index, remote, sequence)
  }

  /// Removes some of the chunks that count for nothing. False: there are none.
  func removeLeftOver(_ remote: RemoteID, besides sequence: SequenceID?) throws -> Bool {
    guard try Staging(connection: try opened().connection).hasLeftOver(remote, besides: sequence) else { return false }
    try transaction(durable: false) {
      try Staging(connection: $0.connection).removeLeftOver(remote, besides: sequence)
    }
    return true
  }

  func forgetStaged(before milliseconds: Int64) throws {
    let left = try Staging(connection: try opened().connection).left(before: milliseconds)
    guard !left.isEmpty else { return }
    try transaction(durable: false) { open in
      for remote in left { try Staging(connection: open.connection).forget(remote) }
    }
    for remote in left { atWork.ended(remote) }
  }

  func remoteWithChunks(after remote: String) throws -> String? {
    try Staging(connection: try opened().connection).remote(after: remote)
  }

  /// Gives some free pages back to the system. False: there are few, or the database cannot.
  func giveBackSpace() throws -> Bool {
    try interruption.check()
    let connection = try opened().connection
    guard try connection.integer("PRAGMA auto_vacuum") == 2 else { return false }
    let free = try connection.integer("PRAGMA freelist_count") ?? 0
    let pages = try connection.integer("PRAGMA page_count") ?? 0
    // What is written next needs some.
    guard free > max(256, pages / 50) else { return false }
    try connection.execute("PRAGMA incremental_vacuum(256)")
    return true
  }

  func process(_ upload: ProcessRequest) throws -> UploadResults {
    if let recorded = try opened().book.results(upload.remote, upload.sequence) {
      // It was deleted and registered again in between.
      if let known = try opened().book.remote(upload.remote), !known.isDeleted, known.sequence == nil {
        try transaction(durable: true) { try $0.book.takeUp(upload.sequence, of: upload.remote) }
      }
      return recorded
    }
    atWork.goesOn(upload.remote, now: options.clock.now())
    // What other programs have committed gets its number first, by itself: who begins while this upload is processed finds
    // nothing to number, and need not wait for it.
    _ = try sweep()
    if upload.chunks == nil { try checkpoints(false) }
    let results: UploadResults
    do { results = try processWithBlobs(upload) } catch {
      checkpoint()
      throw error
    }
    atWork.ended(upload.remote)
    return results
  }

  /// Whether a commit that leaves much in the write-ahead log brings it into the file.
  private func checkpoints(_ itself: Bool) throws {
    try opened().connection.pragma("wal_autocheckpoint", itself ? "1000" : "0")
  }

  /// After `process`. Never throws: a later commit does it.
  func checkpoint() {
    guard let open else { return }
    try? checkpoints(true)
    try? open.connection.checkpoint(.passive)
  }

  func results(_ remote: RemoteID, _ sequence: SequenceID) throws -> UploadResults? {
    try opened().book.results(remote, sequence)
  }

  func page(_ request: PageRequest) throws -> FeedPageMaker.Outcome {
    let open = try opened()
    return try FeedPageMaker.page(
      request, open.connection, open.catalog, now: options.clock.now(),
      limits: options.limits)
  }

  func changedGroups(since cursors: [Commit]) throws -> GroupChanges {
    let open = try opened()
    return try GroupChangeQuery(connection: open.connection, catalog: open.catalog).run(since: cursors)
  }

  func remotes() throws -> [RemoteRecord] { try opened().book.all() }

  func deleteRemote(_ remote: RemoteID, block: Bool) throws -> Bool {
    let now = options.clock.now()
    guard options.isFile else {
      return try transaction(durable: true) { try $0.book.delete(remote, block: block, now: now) }
    }
    let list = blockList
    return try transaction(durable: true) {
      try list.delete(remote, block: block, $0.connection, of: $0.opening.serverID, now: now)
    }
  }

  private var blockList: BlockList {
    let path = options.path + blockListSuffix
    return BlockList(path: path, mode: PrivateFile.mode(at: path))
  }

  func demandReset(_ remote: RemoteID, demand: Int64) throws -> Bool {
    try transaction(durable: true) { try $0.book.demandReset(remote, demand: demand) }
  }

  func demandResets(of principal: String?, demand: Int64) throws -> Int64 {
    try transaction(durable: true) { try $0.book.demandResets(of: principal, demand: demand) }
  }

  func settleReset(_ remote: RemoteID, demand: Int64) throws -> Bool {
    try transaction(durable: true) { try $0.book.settleReset(remote, demand: demand) }
  }

  func ask<Answer>(
    _ scope: ReadScope, _ question: (RecoveryQueries) throws -> Answer
  ) throws -> Answer {
    let open = try opened()
    return try open.connection.transaction(.deferred) {
      try question(
        RecoveryQueries(
          connection: open.connection, catalog: open.catalog, scope: scope,
          limits: options.limits))
    }
  }

  /// What has been written, and whether that has changed nothing of a table, or of what decides its scope, since.
  func writes(to table: String, since known: WriteState?) throws -> (now: WriteState, isSame: Bool) {
    // A row whose scope moves has an entry when the move is numbered.
    _ = try sweep()
    let open = try opened()
    return try open.connection.transaction(.deferred) {
      let now = WriteState(
        connection: open.number, others: try open.connection.integer("PRAGMA data_version") ?? 0,
        sequence: try CommitLog.state(open.connection).lastSequence)
      guard let known, known.connection == now.connection, known.others == now.others,
        let place = open.catalog.place(of: table)
      else { return (now, false) }
      let entry = open.catalog.tables[place]
      let deciding = entry.alternatives.flatMap(\.tables).compactMap { open.catalog.table($0)?.number }
      let numbers = Set([entry.number] + deciding).sorted().map { "\($0)" }.joined(separator: ", ")
      let change = try open.connection.integer(
        "SELECT 1 FROM salvor_change WHERE seq > ?1 AND t IN (\(numbers)) LIMIT 1", .integer(known.sequence))
      return (now, change == nil)
    }
  }

  func backup(to path: String) throws {
    try DatabaseCopy.make(from: try opened().connection, to: path)
    let now = options.clock.now()
    try withBackups { try $0.note(copyAt: path, now: now) }
  }

  /// Of a database in memory.
  func withBackups<Answer>(_ body: (BackupBook) throws -> Answer) throws -> Answer {
    try transaction(durable: true) { try body(BackupBook($0.connection, database: nil)) }
  }

  func trim(before milliseconds: Int64) throws {
    _ = try sweep()
    try transaction(durable: false) { open in
      try Trimming(connection: open.connection).begin(before: milliseconds)
      try BlobStaging(connection: open.connection).forget(before: milliseconds)
      try conflictBook(open).trim(before: milliseconds)
    }
    try endPurges(before: milliseconds)
  }

  func trimSettledConflicts(before milliseconds: Int64) throws {
    try transaction(durable: false) { try conflictBook($0).trimSettled(before: milliseconds) }
  }

  /// False: there is nothing left to remove.
  func trimSome(before milliseconds: Int64) throws -> Bool {
    try transaction(durable: false) { try Trimming(connection: $0.connection).removeSome(before: milliseconds) }
  }

  private func conflictBook(_ open: Open) -> ConflictBook {
    ConflictBook(RowReader(connection: open.connection, catalog: open.catalog))
  }

  func conflicts(after id: Int64, limit: Int, state: ConflictState?) throws -> [ConflictVersion] {
    try conflictBook(try opened()).list(after: id, limit: limit, state: state)
  }

  func conflict(_ id: Int64) throws -> [ConflictRow] {
    let open = try opened()
    return try open.connection.transaction(.deferred) { try conflictBook(open).rows(of: id) }
  }

  func resolveConflict(_ id: Int64, keep: ConflictSide, by: String) throws -> [ConflictVersion] {
    let now = options.clock.now()
    return try transaction(durable: true) { try conflictBook($0).resolve(id, keep: keep, by: by, now: now) }
  }

  func facts(of table: String, _ key: Key, in scopes: [ReadScope]) throws -> ServerRowFacts {
    let open = try opened()
    return try open.connection.transaction(.deferred) {
      try RowInquiry(RowReader(connection: open.connection, catalog: open.catalog)).facts(of: table, key, in: scopes)
    }
  }

  func book<Answer>(_ question: (RemoteBook) throws -> Answer) throws -> Answer {
    try question(opened().book)
  }

  func stats() throws -> ServerStats {
    let open = try opened()
    return try ServerStats(open.connection, serverID: open.opening.serverID, logCount: &logCount)
  }

  func rows(of name: String) throws -> [Row] {
    let open = try opened()
    guard let table = open.catalog.table(name) else {
      // A client-only table is none of the server's.
      if open.setup.schema.table(name) != nil { return [] }
      throw unknownTable(name)
    }
    return try open.connection.rows(
      "SELECT \(table.table.columns.map { quoted($0.name) }.joined(separator: ", ")) FROM \(table.sql) ORDER BY \(table.keyList())"
    )
  }

  func write(_ writes: [ApplicationWrite]) throws {
    try transaction(durable: true) { open in
      for write in writes { try run(write, open) }
    }
  }

  private func run(_ write: ApplicationWrite, _ open: Open) throws {
    switch write {
    case .insert(let name, let values):
      let table = try table(name, open)
      let slots = values.indices.map { "?\($0 + 1)" }.joined(separator: ", ")
      try open.connection.run(
        values.isEmpty
          ? "INSERT INTO \(table.sql) DEFAULT VALUES"
          : "INSERT INTO \(table.sql) (\(quotedList(values.map(\.name)))) VALUES (\(slots))", values.map(\.value))
    case .update(let name, let key, let values):
      let table = try table(name, open)
      guard !values.isEmpty else { return }
      let sets = values.enumerated().map { "\(quoted($1.name)) = ?\($0 + 1)" }.joined(separator: ", ")
      let matches = table.keyMatches("x") { "?\(values.count + $0 + 1)" }
      try open.connection.run("UPDATE \(table.sql) AS x SET \(sets) WHERE \(matches)", values.map(\.value) + key)
    case .delete(let name, let key):
      let table = try table(name, open)
      try open.connection.run("DELETE FROM \(table.sql) AS x WHERE \(table.keyMatches("x") { "?\($0 + 1)" })", key)
    case .deferReferences: try open.connection.execute("PRAGMA defer_foreign_keys = ON")
    case .beginRequest, .endRequest: break
    }
  }

  private func table(_ name: String, _ open: Open) throws -> ServerTable {
    guard let table = open.catalog.table(name) else { throw unknownTable(name) }
    return table
  }

  private func unknownTable(_ name: String) -> SalvorError {
    SalvorError(.usage, "The server has no synchronized table \(name). Check the name.", context: ["table": name])
  }
}
