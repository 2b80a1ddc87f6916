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
  /// Of all downloads together; nil: there is no limit.
  nonisolated let pace: BytePace?
  private var waiting: [(place: Place, scope: ReadScope)] = []
  private var making: Place?
  private var work: Task<Void, Never>?
  /// Places of which none could be made, until when.
  private var failed: [Place: Int64] = [:]
  private var isStopped = false

  private static let waitingMax = 64
  private static let failureMilliseconds: Int64 = 600_000

  /// Nil: the server offers none, or its storage module cannot.
  init?(
    _ configuration: ServerConfiguration, _ identity: ServerIdentity, _ metrics: ServerMetrics, schemaDigest: String
  )
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
    pace = BytePace(settings.bytesPerSecondTotal)
    folder = try store.snapshotFolder(at: settings.path)
    try folder.removeUnfinished()
  }

  /// Newest first.
  func list() throws -> [Snapshot] {
    try folder.list().filter { $0.server == identity.server && $0.schemaDigest == schemaDigest }
  }

  func snapshot(_ id: String) throws -> Snapshot? { try list().first { $0.id == id } }

  /// What a device may have in the place of these rows. Where there is nothing, or nothing new enough, it is made beside.
  ///
  /// - Parameter rows: how many there are now.
  func find(_ place: Place, for scope: ReadScope, rows: @Sendable () async throws -> Int64) async throws -> Snapshot? {
    if let found = try newest(place) {
      switch try await age(of: found) {
      case .fresh: return found
      case .old:
        order(place, scope)
        return found
      case .useless:
        order(place, scope)
        return nil
      case .unreachable:
        try remove(found.id)
        return try await find(place, for: scope, rows: rows)
      }
    }
    if failed[place].map({ $0 > configuration.clock.now() }) ?? false { return nil }
    if making != place, !waiting.contains(where: { $0.place == place }), try await rows() >= settings.minRows {
      order(place, scope)
    }
    return nil
  }

  /// What a device would have in the place of these rows now. Nothing is made for the question, and nothing removed.
  func standing(_ place: Place) async throws -> Snapshot? {
    guard let found = try newest(place) else { return nil }
    return switch try await age(of: found) {
    case .fresh, .old: found
    case .useless, .unreachable: nil
    }
  }

  private func newest(_ place: Place) throws -> Snapshot? {
    try list().first { $0.group == place.group && $0.scope == place.scope }
  }

  /// How a file serves now.
  private enum Age {
    case fresh
    /// It serves, and is to be replaced.
    case old
    /// More changes than rows: the rows alone are fewer.
    case useless
    /// No feed can go on from it.
    case unreachable
  }

  private func age(of found: Snapshot) async throws -> Age {
    let limit = max(1, found.rows)
    guard let behind = try await store.changes(since: found.commit, limit: limit) else { return .unreachable }
    if behind >= limit { return .useless }
    let isBehind = 100 * Double(behind) > Double(settings.maxBehindPercent) * Double(found.rows)
    return isBehind || configuration.clock.now() - found.made > settings.maxAgeMilliseconds ? .old : .fresh
  }

  private func order(_ place: Place, _ scope: ReadScope) {
    guard !isStopped, making != place, !waiting.contains(where: { $0.place == place }),
      waiting.count < Self.waitingMax
    else { return }
    waiting.append((place, scope))
    guard work == nil else { return }
    // Nothing of the request that gave cause to it.
    work = LogContext.$current.withValue(nil) {
      BodyLease.$current.withValue(nil) { Task(priority: .background) { await self.makeWaiting() } }
    }
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
    do {
      let store = store
      let made = try await folder.make(
        SnapshotOrder(
          schema: configuration.schema, server: identity.server, incarnation: identity.incarnation, group: place.group,
          scope: scope, coding: settings.coding, bytesMax: settings.bytesMax, clock: configuration.clock,
          random: configuration.random)
      ) { try await store.page($0) }
      failed[place] = nil
      try removeOld()
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

  /// What another server or another schema has left goes, too.
  private func removeOld() throws {
    let usable = Set(try list().map(\.id))
    var (count, bytes) = (0, Int64(0))
    for snapshot in try folder.list() {
      if usable.contains(snapshot.id), count < settings.keep, count == 0 || bytes + snapshot.bytes <= settings.bytesMax
      {
        count += 1
        bytes += snapshot.bytes
      } else {
        try folder.remove(snapshot.id)
      }
    }
  }

  func remove(_ id: String) throws { try folder.remove(id) }

  /// Removes every file, the one that is being made included: rows were purged, and any file may hold them.
  func discardAll() throws { try folder.removeAll() }

  /// Ends what is being made.
  func stop() async {
    isStopped = true
    work?.cancel()
    await work?.value
  }

  /// For `/metrics`.
  var facts: (count: Int64, bytes: Int64) {
    let all = (try? list()) ?? []
    return (Int64(all.count), all.reduce(0) { $0 + $1.bytes })
  }
}
