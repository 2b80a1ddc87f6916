import SQLiteSupport
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import Synchronization

/// The consolidated database in one SQLite file (module `sqlite`, seam `server-storage`). Contract: `ServerStore`.
///
/// ```swift
/// let store = SQLiteServerStore(path: "consolidated.db")
/// let opening = try await store.open(ServerSetup(schema: schema))
/// ```
public final class SQLiteServerStore: ServerStore {
  /// What a power cut may take.
  public enum Durability: String, Sendable, CaseIterable {
    /// Nothing that was acknowledged to a client.
    case full
    /// The last commits; the database stays whole. Clients are told by the sequence and history checks.
    case normal
  }

  public struct Options: Sendable {
    public var path: String
    /// Connections that serve pages, besides the one that writes.
    public var readers: Int
    public var durability: Durability
    /// How long another program's write lock is waited for before `storage-busy`.
    public var busyTimeoutMilliseconds: Int64
    public var limits: Limits
    public var random: any RandomSource
    public var clock: any Clock
    public var log: Log

    public init(
      path: String, readers: Int = 2, durability: Durability = .full, busyTimeoutMilliseconds: Int64 = 5000,
      limits: Limits = Limits(), random: any RandomSource = SystemRandom(), clock: any Clock = SystemClock(),
      log: Log = .none
    ) {
      self.path = path
      self.readers = readers
      self.durability = durability
      self.busyTimeoutMilliseconds = busyTimeoutMilliseconds
      self.limits = limits
      self.random = random
      self.clock = clock
      self.log = log
    }

    /// A database in memory has one connection and no file beside it.
    var isFile: Bool { !path.isEmpty && !path.hasPrefix(":memory:") && !path.hasPrefix("file:") }
  }

  private struct State {
    var readers: [ServerReader] = []
    var next = 0
    /// Answers what is short: begins, and who asks how the server is. It never makes a page.
    var front: ServerReader?
  }

  let options: Options
  let writer: ServerWriter
  let digests = DigestMemory()
  let atWork: BlobsAtWork
  private let interruption = Interruption()
  private let state = Mutex(State())

  public init(_ options: Options) {
    self.options = options
    atWork = BlobsAtWork(options.limits)
    writer = ServerWriter(options, atWork, interruption)
  }

  public convenience init(path: String) { self.init(Options(path: path)) }

  public func open(_ setup: ServerSetup) async throws -> ServerOpening {
    interruption.end()
    let opened = try await writer.open(setup)
    await replaceReaders(opened.view)
    return opened.opening
  }

  private func replaceReaders(_ view: ServerReader.View?) async {
    var readers: [ServerReader] = []
    if let view, options.isFile {
      readers = (0...options.readers).map { ServerReader(options, view, place: $0, interruption) }
    }
    let front = readers.popLast()
    let before = state.withLock { state in
      defer { (state.readers, state.front) = (readers, front) }
      return state.readers + (state.front.map { [$0] } ?? [])
    }
    for reader in before { await reader.close() }
  }

  public func interrupt() { interruption.interrupt() }

  public func close() async {
    await replaceReaders(nil)
    await writer.close()
  }

  public func admit(_ query: AdmissionQuery) async throws -> Admission {
    // Who begins waits for the writer only where there is something to number.
    if let front, let admission = try await front.admit(query) { return admission }
    try await renew()
    return try await writer.admit(query)
  }

  public func register(_ remote: RemoteID, principal: String) async throws {
    try await writer.register(remote, principal: principal)
  }

  public func stage(_ chunk: UploadChunk, index: Int, remote: RemoteID, sequence: SequenceID) async throws {
    try await writer.stage(chunk, index: index, remote, sequence)
  }

  public func staged(_ remote: RemoteID, sequence: SequenceID) async throws -> StagedUpload {
    if let front { return try await front.book { try $0.staged(remote, sequence) } }
    return try await writer.staged(remote, sequence)
  }

  public func stagedChunk(_ index: Int, remote: RemoteID, sequence: SequenceID) async throws -> [UInt8]? {
    if let reader = nextReader() { return try await reader.book { try $0.stagedChunk(index, remote, sequence) } }
    return try await writer.stagedChunk(index, remote, sequence)
  }

  public func unstage(_ remote: RemoteID, sequence: SequenceID) async throws {
    try await writer.unstage(remote, sequence)
  }

  public func process(_ upload: ProcessRequest) async throws -> UploadResults { try await writer.process(upload) }

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

  /// Nil: the one connection of a database in memory does everything.
  func nextReader() -> ServerReader? {
    state.withLock { state in
      guard !state.readers.isEmpty else { return nil }
      state.next = (state.next + 1) % state.readers.count
      return state.readers[state.next]
    }
  }

  public func page(_ request: PageRequest) async throws -> FeedPage {
    var request = request
    while true {
      let outcome =
        if let reader = nextReader() { try await reader.page(request) } else { try await writer.page(request) }
      switch outcome {
      case .page(let page, let hints):
        if !hints.isEmpty { try await writer.note(hints) }
        return page
      case .unsealed(let position):
        _ = try await writer.sweep()
        if let position { request.position = position.text }
      }
    }
  }

  public func sweep() async throws -> Commit { try await writer.sweep() }

  public func changedGroups(since cursors: [Commit]) async throws -> GroupChanges {
    if let front, let changes = try await front.changedGroupsOfSealed(since: cursors) { return changes }
    try await renew()
    let head = try await writer.sweep()
    if cursors.allSatisfy({ $0 == head }) { return GroupChanges(head: head, changes: []) }
    if let reader = nextReader() { return try await reader.changedGroups(since: cursors) }
    return try await writer.changedGroups(since: cursors)
  }

  public func remotes() async throws -> [RemoteRecord] {
    if let reader = nextReader() { return try await reader.book { try $0.all() } }
    return try await writer.remotes()
  }

  public func remotes(_ query: RemoteQuery) async throws -> [RemoteRecord] {
    if let reader = nextReader() { return try await reader.book { try $0.page(query) } }
    return try await writer.book { try $0.page(query) }
  }

  public func remote(_ id: RemoteID) async throws -> RemoteRecord? {
    if let reader = nextReader() { return try await reader.book { try $0.remote(id) } }
    return try await writer.book { try $0.remote(id) }
  }

  public func deleteRemote(_ remote: RemoteID, block: Bool) async throws -> Bool {
    try await writer.deleteRemote(remote, block: block)
  }

  public func conflicts(after id: Int64, limit: Int, state: ConflictState?) async throws -> [ConflictVersion] {
    if let reader = nextReader() {
      return try await reader.conflictBook { try $0.list(after: id, limit: limit, state: state) }
    }
    return try await writer.conflicts(after: id, limit: limit, state: state)
  }

  public func conflict(_ id: Int64) async throws -> [ConflictRow] {
    if let reader = nextReader() { return try await reader.conflictBook { try $0.rows(of: id) } }
    return try await writer.conflict(id)
  }

  public func resolveConflict(_ id: Int64, keep: ConflictSide, by: String) async throws -> [ConflictVersion] {
    try await writer.resolveConflict(id, keep: keep, by: by)
  }

  public func trim(before milliseconds: Int64) async throws { try await writer.trim(before: milliseconds) }
  public func stats() async throws -> ServerStats {
    if let front { return try await front.stats() }
    return try await writer.stats()
  }

  public func answers() async throws {
    if let front { return try await front.answers() }
    _ = try await writer.stats()
  }

  public func rows(of table: String) async throws -> [Row] { try await writer.rows(of: table) }
  public func write(_ writes: [ApplicationWrite]) async throws { try await writer.write(writes) }
}

extension SQLiteServerStore {
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

extension SQLiteServerStore: SchemaExamining, FileDatabase {
  public var databaseFile: String? { options.isFile ? options.path : nil }

  public func problems(in schema: Schema) -> [SchemaProblem] {
    TableTrial.problems(in: schema.synchronizedPart, ddl: Installation.ddl)
  }
}
