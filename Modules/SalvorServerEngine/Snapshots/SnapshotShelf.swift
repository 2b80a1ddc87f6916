import SalvorModel
import SalvorStorage

/// The snapshots that there are, and the one that is being made: one at a time, each once, whoever asks.
actor SnapshotShelf {
  /// Whoever has the scope digest in the group sees the same rows.
  struct Place: Hashable {
    var group: String
    var scope: String
  }

  nonisolated let settings: SnapshotSettings
  nonisolated let folder: any SnapshotFolder
  private let store: any SnapshotServerStore
  private let configuration: ServerConfiguration
  private let identity: ServerIdentity
  private let metrics: ServerMetrics
  private let schemaDigest: String
  /// Newest first; nil: the folder has not been looked at.
  private var known: [Snapshot]?
  private var waiting: [(place: Place, scope: ReadScope)] = []
  private var making: Place?
  private var work: Task<Void, Never>?
  /// Places of which none could be made, until when.
  private var failed: [Place: Int64] = [:]
  /// Rises whenever what was read before must not be kept any more.
  private var discards = 0
  private var isStopped = false

  private static let waitingMax = 64
  private static let failureMilliseconds: Int64 = 600_000

  /// Nil: the server offers none, or its storage module cannot.
  init?(_ configuration: ServerConfiguration, _ identity: ServerIdentity, _ metrics: ServerMetrics, schemaDigest: String)
    throws
  {
    guard let settings = configuration.snapshots, let store = configuration.store as? any SnapshotServerStore else {
      return nil
    }
    self.settings = settings
    self.store = store
    self.configuration = configuration
    self.identity = identity
    self.metrics = metrics
    self.schemaDigest = schemaDigest
    folder = try store.snapshotFolder(at: settings.path)
  }

  /// Newest first.
  func list() throws -> [Snapshot] {
    if let known { return known }
    let found = try folder.list().filter { $0.server == identity.server && $0.schemaDigest == schemaDigest }
    known = found
    return found
  }

  func snapshot(_ id: String) throws -> Snapshot? { try list().first { $0.id == id } }

  /// What a device may have in the place of these rows. Where there is nothing, or nothing new enough, it is made beside.
  ///
  /// - Parameter rows: how many there are now.
  func find(_ place: Place, for scope: ReadScope, rows: @Sendable () async throws -> Int64) async throws -> Snapshot? {
    let now = configuration.clock.now()
    if let found = try list().first(where: { $0.group == place.group && $0.scope == place.scope }) {
      // More changes than rows, and the rows alone are fewer.
      let limit = max(1, found.rows)
      guard let behind = try await store.changes(since: found.commit, limit: limit) else {
        try remove(found.id)
        return try await find(place, for: scope, rows: rows)
      }
      if Double(behind) > settings.maxBehind * Double(found.rows) || now - found.made > settings.maxAgeMilliseconds {
        order(place, scope)
      }
      return behind < limit ? found : nil
    }
    if failed[place].map({ $0 > now }) ?? false { return nil }
    if making != place, !waiting.contains(where: { $0.place == place }), try await rows() >= settings.minRows {
      order(place, scope)
    }
    return nil
  }

  private func order(_ place: Place, _ scope: ReadScope) {
    guard !isStopped, making != place, !waiting.contains(where: { $0.place == place }),
      waiting.count < Self.waitingMax
    else { return }
    waiting.append((place, scope))
    if work == nil { work = Task(priority: .background) { await self.makeWaiting() } }
  }

  private func makeWaiting() async {
    while !isStopped, !waiting.isEmpty {
      let next = waiting.removeFirst()
      _ = try? await make(next.place, next.scope)
    }
    work = nil
  }

  /// Makes one now. Throws `overloaded` where one is being made.
  @discardableResult
  func make(_ place: Place, _ scope: ReadScope) async throws -> Snapshot {
    guard making == nil else {
      throw SalvorError(
        .overloaded, "A snapshot is being made. Ask again when it is done.", retryAfterMilliseconds: 5000)
    }
    making = place
    defer { making = nil }
    let before = discards
    do {
      let store = store
      let made = try await folder.make(
        SnapshotOrder(
          schema: configuration.schema, server: identity.server, incarnation: identity.incarnation, group: place.group,
          scope: scope, coding: settings.coding, bytesMax: settings.bytesMax, clock: configuration.clock,
          random: configuration.random)
      ) { try await store.page($0) }
      guard before == discards, !isStopped else {
        try folder.remove(made.id)
        throw SalvorError(
          .overloaded, "Rows were erased while the snapshot was made. Ask again.", retryAfterMilliseconds: 1000)
      }
      failed[place] = nil
      try put(made)
      metrics.snapshotsMade.add(1)
      metrics.snapshotMilliseconds.add(made.milliseconds)
      configuration.log.notice(
        "A snapshot was made.",
        ["group": made.group, "rows": "\(made.rows)", "bytes": "\(made.bytes)", "milliseconds": "\(made.milliseconds)"])
      return made
    } catch {
      let error = asSalvorError(error)
      if error.code != .overloaded, error.code != .cancelled {
        if failed.count >= 10_000 { failed = [:] }
        failed[place] = configuration.clock.now() + Self.failureMilliseconds
        metrics.snapshotFailures.add(1)
        configuration.log("No snapshot of the group \(place.group) was made, its rows go one by one: \(error)")
      }
      throw error
    }
  }

  private func put(_ made: Snapshot) throws {
    var all = try list().filter { $0.id != made.id }
    all.insert(made, at: 0)
    var bytes: Int64 = 0
    var kept: [Snapshot] = []
    for snapshot in all {
      bytes += snapshot.bytes
      if kept.count < settings.keep, bytes <= settings.bytesMax || kept.isEmpty {
        kept.append(snapshot)
      } else {
        try folder.remove(snapshot.id)
      }
    }
    known = kept
  }

  func remove(_ id: String) throws {
    try folder.remove(id)
    known?.removeAll { $0.id == id }
  }

  /// Rows were erased for good: no file that may hold one stays, nor does one that is being made.
  func discardAll() throws {
    discards += 1
    for snapshot in try list() { try folder.remove(snapshot.id) }
    known = []
  }

  /// Ends what is being made.
  func stop() async {
    isStopped = true
    work?.cancel()
    await work?.value
  }

  /// For `/metrics`.
  var facts: (count: Int64, bytes: Int64) {
    let all = known ?? []
    return (Int64(all.count), all.reduce(0) { $0 + $1.bytes })
  }
}
