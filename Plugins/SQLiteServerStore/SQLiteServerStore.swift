import SQLiteSupport
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import ServerStoreSupport

/// The consolidated database in one SQLite file (module `sqlite`, seam `server-storage`). Contract: `ServerStore`.
///
/// ```swift
/// let store = SQLiteServerStore(path: "consolidated.db")
/// let opening = try await store.open(ServerSetup(schema: schema))
/// ```
public final class SQLiteServerStore: ServerStore {
  /// Where the database is, how many connections read it, and how durable a commit is.
  public typealias Options = SQLiteServerOptions
  /// What a power cut may take.
  public typealias Durability = SQLiteServerOptions.Durability

  private struct State {
    var readers: [ServerReader] = []
    /// How many wait for each of them, or are answered by it.
    var asking: [Int] = []
    /// Answers what is short: begins, and who asks how the server is. It never makes a page.
    var front: ServerReader?
    /// Makes the first page of a download, which often is the only one. It never waits for the pages of long downloads.
    var opener: ServerReader?
    /// How the database is open; nil: it is not.
    var opened: (setup: ServerSetup, opening: ServerOpening)?
    /// The database is being reopened.
    var reopening: Task<Void, any Error>?
  }

  let options: Options
  let writer: ServerWriter
  let digests = DigestMemory()
  /// Remotes that have not come since a restore.
  private let unseen = Mutex<Set<RemoteID>>([])
  let atWork: BlobsAtWork
  private let interruption: Interruption
  private let state = Mutex(State())

  /// Opens no file yet: `open` does.
  public init(_ options: Options) {
    self.options = options
    atWork = BlobsAtWork(options.limits)
    interruption = Interruption(options.path, log: options.log)
    writer = ServerWriter(options, atWork, interruption)
  }

  /// With the defaults of `Options`.
  public convenience init(path: String) { self.init(Options(path: path)) }

  /// Makes a missing file and Salvor's tables, takes over rows that are there, and ends an `interrupt`.
  public func open(_ setup: ServerSetup) async throws -> ServerOpening {
    interruption.end()
    let opening = try await openFile(setup)
    state.withLock { $0.opened = (setup, opening) }
    return opening
  }

  private func openFile(_ setup: ServerSetup) async throws -> ServerOpening {
    let opened = try await writer.open(setup)
    await replaceReaders(opened.view)
    try await settleWaitingOffers()
    let missing = try await writer.unseenSinceRestore()
    unseen.withLock { $0 = missing }
    return opened.opening
  }

  private func replaceReaders(_ view: ServerReader.View?) async {
    var readers: [ServerReader] = []
    if let view, options.isFile {
      readers = (0..<options.readers + 2).map { ServerReader(options, view, place: $0, interruption) }
    }
    let (front, opener) = (readers.popLast(), readers.popLast())
    let before = state.withLock { state in
      defer {
        (state.readers, state.front, state.opener) = (readers, front, opener)
        state.asking = readers.map { _ in 0 }
      }
      return state.readers + [state.front, state.opener].compactMap(\.self)
    }
    for reader in before { await reader.close() }
  }

  /// Where another copy was put into the open file (`Interruption.hasParted`), the database is reopened first, once for all who
  /// ask, as at a start: it gets a new incarnation, and a restore is written down.
  func present() async throws {
    guard interruption.hasParted else { return }
    let task = state.withLock { state in
      if let reopening = state.reopening { return reopening }
      let task = Task { try await self.reopen() }
      state.reopening = task
      return task
    }
    defer { state.withLock { if $0.reopening == task { $0.reopening = nil } } }
    try await task.value
  }

  private func reopen() async throws {
    guard interruption.hasParted, let before = state.withLock({ $0.opened }) else { return }
    let opening = try await openFile(before.setup)
    state.withLock { $0.opened?.opening = opening }
    options.log.warning(
      "Another copy was put into the database \(options.path) while the server had it open: commits that it had are gone. Devices that have seen them say so at their next sync: salvor server restores."
    )
  }

  /// Asks, and once more where the answer was that another copy stands in the file.
  private func asking<Answer: Sendable>(_ question: () async throws -> Answer) async throws -> Answer {
    try await present()
    do { return try await question() } catch {
      guard interruption.hasParted else { throw error }
      try await present()
      return try await question()
    }
  }

  public func interrupt() { interruption.interrupt() }

  /// Closes every connection, after what each of them is doing.
  public func close() async {
    await replaceReaders(nil)
    await writer.close()
    state.withLock { $0.opened = nil }
  }

  public func admit(_ query: AdmissionQuery) async throws -> Admission {
    try await asking { try await admitted(query) }
  }

  private func admitted(_ query: AdmissionQuery) async throws -> Admission {
    // Who begins waits for the writer only where there is something to number.
    let admission: Admission
    if let front, let found = try await front.admit(query) {
      admission = found
    } else {
      try await renew()
      admission = try await writer.admit(query)
    }
    // Only after a restore, and once of each remote: when it is in step again.
    if admission.cursors.allSatisfy({ $0 != .unknown }), unseen.withLock({ $0.remove(query.remote) }) != nil {
      try await writer.noteSeen(query.remote)
    }
    return admission
  }

  public func register(_ remote: RemoteID, principal: String) async throws {
    try await writer.register(remote, principal: principal)
  }

  public func stage(_ chunk: UploadChunk, index: Int, remote: RemoteID, sequence: SequenceID) async throws {
    try await removeLeftOver(remote, besides: sequence)
    try await writer.stage(chunk, index: index, remote, sequence)
  }

  public func staged(_ remote: RemoteID, sequence: SequenceID) async throws -> StagedUpload {
    if let front { return try await front.staging { try $0.staged(remote, sequence) } }
    return try await writer.staged(remote, sequence)
  }

  public func stagedChunk(_ index: Int, remote: RemoteID, sequence: SequenceID) async throws -> [UInt8]? {
    let answer = try await reading { reader in try await reader.staging { try $0.chunk(index, remote, sequence) } }
    if let answer { return answer }
    return try await writer.stagedChunk(index, remote, sequence)
  }

  public func unstage(_ remote: RemoteID, sequence: SequenceID) async throws {
    try await writer.unstage(remote, sequence)
    try await removeLeftOver(remote)
  }

  /// One transaction, and others after it for offers that waited for what came.
  public func process(_ upload: ProcessRequest) async throws -> UploadResults {
    let results = try await writer.process(upload)
    // It is done whatever becomes of this: the next time that somebody looks removes what is left.
    try? await removeLeftOver(upload.remote)
    // It may have brought what others wait for.
    try? await settleWaitingOffers()
    // What a large upload has left in the write-ahead log comes into the file while its sender reads the answer.
    if upload.chunks == nil { Task { [writer] in await writer.checkpoint() } }
    return results
  }

  /// Slice by slice: others write in between.
  private func removeLeftOver(_ remote: RemoteID, besides sequence: SequenceID? = nil) async throws {
    while try await writer.removeLeftOver(remote, besides: sequence) {}
  }

  /// In several transactions; gives the space that is free then back to the system.
  public func forgetStaged(before milliseconds: Int64) async throws {
    try await writer.forgetStaged(before: milliseconds)
    var last = ""
    while let remote = try await writer.remoteWithChunks(after: last) {
      if let id = RemoteID(remote) { try await removeLeftOver(id) }
      last = remote
    }
    while try await writer.giveBackSpace() {}
  }

  public func results(_ remote: RemoteID, sequence: SequenceID) async throws -> UploadResults? {
    if let front { return try await front.book { try $0.results(remote, sequence) } }
    return try await writer.results(remote, sequence)
  }

  /// Where another program changed the database's schema.
  private func renew() async throws {
    if let view = try await writer.renewed() { await replaceReaders(view) }
  }

  /// Nil: the one connection of a database in memory does everything.
  private var front: ServerReader? { state.withLock { $0.front } }

  /// Asks the reader that has the least to do. Nil: the one connection of a database in memory does everything.
  func reading<Answer: Sendable>(
    _ question: (ServerReader) async throws -> Answer
  ) async throws -> Answer? {
    try await present()
    let found = state.withLock { state -> (ServerReader, Int)? in
      guard let place = state.asking.indices.min(by: { state.asking[$0] < state.asking[$1] }) else { return nil }
      state.asking[place] += 1
      return (state.readers[place], place)
    }
    guard let (reader, place) = found else { return nil }
    defer {
      state.withLock { state in
        // Others may have taken its place meanwhile.
        if state.readers.indices.contains(place), state.readers[place] === reader { state.asking[place] -= 1 }
      }
    }
    return try await question(reader)
  }

  public func page(_ request: PageRequest) async throws -> FeedPage {
    while true {
      let outcome: FeedPageMaker.Outcome
      if let opener = request.position == nil ? state.withLock({ $0.opener }) : nil {
        outcome = try await opener.page(request)
      } else if let found = try await reading({ try await $0.page(request) }) {
        outcome = found
      } else {
        outcome = try await writer.page(request)
      }
      switch outcome {
      case .page(let page, let hints):
        if !hints.isEmpty || !page.leftOut.isEmpty { try await writer.note(hints, leftOut: page.leftOut) }
        return page
      case .unsealed: _ = try await writer.sweep()
      }
    }
  }

  /// Numbers what other programs have committed, and returns the newest commit.
  public func sweep() async throws -> Commit { try await asking { try await writer.sweep() } }

  /// Numbers first what other programs have committed.
  public func changedGroups(since cursors: [Commit]) async throws -> GroupChanges {
    try await present()
    if let front, let changes = try await front.changedGroupsOfSealed(since: cursors) { return changes }
    try await renew()
    let head = try await writer.sweep()
    if cursors.allSatisfy({ $0 == head }) { return GroupChanges(head: head, changes: []) }
    if let answer = try await reading({ try await $0.changedGroups(since: cursors) }) { return answer }
    return try await writer.changedGroups(since: cursors)
  }

  public func remotes() async throws -> [RemoteRecord] {
    if let answer = try await reading({ try await $0.book { try $0.all() } }) { return answer }
    return try await writer.remotes()
  }

  public func remotes(_ query: RemoteQuery) async throws -> [RemoteRecord] {
    if let answer = try await reading({ try await $0.book { try $0.page(query) } }) { return answer }
    return try await writer.book { try $0.page(query) }
  }

  public func remote(_ id: RemoteID) async throws -> RemoteRecord? {
    if let answer = try await reading({ try await $0.book { try $0.remote(id) } }) { return answer }
    return try await writer.book { try $0.remote(id) }
  }

  /// Removes what the remote has staged, too, in several transactions.
  public func deleteRemote(_ remote: RemoteID, block: Bool) async throws -> Bool {
    let isDeleted = try await writer.deleteRemote(remote, block: block)
    try await removeLeftOver(remote)
    return isDeleted
  }

  public func conflicts(after id: Int64, limit: Int, state: ConflictState?) async throws -> [ConflictVersion] {
    let answer = try await reading { reader in
      try await reader.conflictBook { try $0.list(after: id, limit: limit, state: state) }
    }
    if let answer { return answer }
    return try await writer.conflicts(after: id, limit: limit, state: state)
  }

  public func conflict(_ id: Int64) async throws -> [ConflictRow] {
    if let answer = try await reading({ try await $0.conflictBook { try $0.rows(of: id) } }) { return answer }
    return try await writer.conflict(id)
  }

  public func resolveConflict(_ id: Int64, keep: ConflictSide, by: String) async throws -> [ConflictVersion] {
    try await writer.resolveConflict(id, keep: keep, by: by)
  }

  /// In several transactions: others write in between.
  public func trim(before milliseconds: Int64) async throws {
    try await giveUpWaiting(before: milliseconds)
    try await writer.trim(before: milliseconds)
    while try await writer.trimSome(before: milliseconds) {}
  }

  public func trimSettledConflicts(before milliseconds: Int64) async throws {
    try await writer.trimSettledConflicts(before: milliseconds)
  }

  public func stats() async throws -> ServerStats {
    try await present()
    if let front { return try await front.stats() }
    return try await writer.stats()
  }

  /// Throws where the database cannot be read, and where its disk has no room for a write (`overloaded`).
  public func answers() async throws {
    try await present()
    try checkRoom()
    if let front { return try await front.answers() }
    _ = try await writer.stats()
  }

  public func rows(of table: String) async throws -> [Row] { try await writer.rows(of: table) }
  public func write(_ writes: [ApplicationWrite]) async throws { try await writer.write(writes) }
}

extension SQLiteServerStore {
  /// What `salvor modules` shows of the module `sqlite`: its options with their defaults, what it guarantees, and the
  /// SQLite that is linked.
  public static let descriptor = ModuleDescriptor(
    kind: .serverStorage, name: "sqlite", summary: "The consolidated database in one SQLite file.",
    options: [
      ModuleOption("path", type: "string", default: nil, "The database's file, relative to the configuration."),
      ModuleOption("readers", type: "integer", default: "2", "Connections that serve downloads, 1 to 16."),
      ModuleOption(
        "durability", type: "full | normal", default: "\"full\"",
        "full: a power cut takes nothing that was acknowledged; normal: it may take the last commits."),
      ModuleOption(
        "busyTimeoutMilliseconds", type: "integer", default: "5000",
        "How long another program's write lock is waited for."),
    ],
    guarantees: [
      "An upload is one transaction; what it acknowledges is durable.",
      "What any program writes in the real tables reaches the clients.",
      "A page is one snapshot; a download is whole at its end.",
      "A database put back from a backup is noticed at start.",
    ], libraries: sqliteLibrary)

  /// The module `sqlite` of the kind server storage. `path` must be given.
  public static let factory = ModuleFactory(descriptor, product: (any ServerStore).self) { reader, context in
    let path = reader.path("path")
    let readers = reader.integer("readers", in: 1...16, default: 2)
    let durability: Durability = reader.choice("durability", default: .full)
    let timeout = reader.integer("busyTimeoutMilliseconds", in: 0...600_000, default: 5000)
    guard let path else { return nil }
    let options = Options(
      path: context.resolve(path), readers: Int(readers), durability: durability, busyTimeoutMilliseconds: timeout,
      limits: context.limits, random: context.random, clock: context.clock, log: context.log)
    return { SQLiteServerStore(options) }
  }
}

extension SQLiteServerStore: ReopeningServerStore {
  /// As the database was opened last.
  public var opening: ServerOpening? { state.withLock { $0.opened?.opening } }
}

extension SQLiteServerStore: SchemaExamining, FileDatabase {
  /// Nil: the database is in memory, or named by a URI.
  public var databaseFile: String? { options.isFile ? options.path : nil }

  /// Of the synchronized tables: what SQLite refuses, and conditions that would not hold alike in every SQLite. The store
  /// need not be open.
  public func problems(in schema: Schema) -> [SchemaProblem] {
    TableTrial.problems(in: schema.synchronizedPart, ddl: Installation.ddl)
  }
}
