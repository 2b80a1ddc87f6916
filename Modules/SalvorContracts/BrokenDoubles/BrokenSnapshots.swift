import SalvorModel
import SalvorStorage
import SalvorWire

/// The faults of snapshots. The store without one must make them.
extension BrokenServerStore: SnapshotServerStore {
  private var snapshots: any SnapshotServerStore {
    get throws {
      guard let store = base as? any SnapshotServerStore else {
        throw SalvorError(.usage, "The store that is to be broken makes no snapshots. Give one that does.")
      }
      return store
    }
  }

  /// `knowsEveryCommit`: 0 where the base says that it cannot count.
  public func changes(since commit: Commit, limit: Int64) async throws -> Int64? {
    let count = try await snapshots.changes(since: commit, limit: limit)
    return fault == .knowsEveryCommit ? count ?? 0 : count
  }

  /// A folder with the fault. Throws `usage` where the base makes no snapshots.
  nonisolated public func snapshotFolder(at path: String?) throws -> any SnapshotFolder {
    guard let store = base as? any SnapshotServerStore else {
      throw SalvorError(.usage, "The store that is to be broken makes no snapshots. Give one that does.")
    }
    return BrokenSnapshotFolder(base: try store.snapshotFolder(at: path), fault: fault)
  }
}

private struct BrokenSnapshotFolder: SnapshotFolder {
  let base: any SnapshotFolder
  let fault: BrokenServerStore.Fault

  func list() throws -> [Snapshot] { try base.list() }
  func removeUnfinished() throws { try base.removeUnfinished() }

  func make(
    _ order: SnapshotOrder, page: @Sendable (PageRequest) async throws -> FeedPage
  ) async throws -> Snapshot {
    var order = order
    if fault == .makesForEverybody { order.scope.principal.parameters = [:] }
    return try await base.make(order, page: page)
  }

  func open(_ snapshot: Snapshot, from offset: Int64, count: Int64, pieceBytes: Int) throws -> OpenSnapshot? {
    try base.open(
      snapshot, from: fault == .readsFromTheStart ? 0 : offset, count: count, pieceBytes: pieceBytes)
  }

  func write(_ snapshot: Snapshot, to path: String) async throws { try await base.write(snapshot, to: path) }
  func remove(_ id: String) throws { if fault != .keepsRemovedFiles { try base.remove(id) } }
  func removeAll() throws { if fault != .keepsRemovedFiles { try base.removeAll() } }
  func signature(of text: String) throws -> String { try base.signature(of: fault == .signsAlike ? "" : text) }
}

/// The faults of a device that takes files over. The store without one must take them.
extension BrokenClientStore: SnapshotTakingClientStore {
  private var taking: any SnapshotTakingClientStore {
    get throws {
      guard let store = base as? any SnapshotTakingClientStore else {
        throw SalvorError(.usage, "The store that is to be broken takes no snapshots. Give one that does.")
      }
      return store
    }
  }

  /// The base's; false where the base takes no snapshots.
  public var takesSnapshots: Bool {
    get async { await (base as? any SnapshotTakingClientStore)?.takesSnapshots ?? false }
  }

  /// `forgetsFileParts`: nothing is here of any file.
  public func snapshotsReceived(_ offers: [SnapshotOffer]) async throws -> [String: Int64] {
    let received = try await taking.snapshotsReceived(offers)
    return fault == .forgetsFileParts ? received.mapValues { _ in 0 } : received
  }

  /// No fault changes it. Throws `usage` where the base takes no snapshots.
  public func keepSnapshot(_ piece: [UInt8], of offer: SnapshotOffer, at offset: Int64) async throws {
    try await taking.keepSnapshot(piece, of: offer, at: offset)
  }

  /// `takesAnyFile`: returns where the base throws `snapshot-unusable`.
  public func openSnapshot(
    _ offer: SnapshotOffer, decoding: SnapshotCoding, bytesMax: Int64, as config: SyncConfig?
  ) async throws {
    do {
      try await taking.openSnapshot(offer, decoding: decoding, bytesMax: bytesMax, as: config)
    } catch let error as SalvorError where error.code == .snapshotUnusable && fault == .takesAnyFile {}
  }

  /// No fault changes it. Throws `usage` where the base takes no snapshots.
  public func openSeed(_ path: String) async throws -> SnapshotOffer { try await taking.openSeed(path) }

  /// `takesClosedFiles`: does nothing. The same where the base takes no snapshots.
  public func closeSnapshots(removing: Bool) async {
    if fault != .takesClosedFiles { await (base as? any SnapshotTakingClientStore)?.closeSnapshots(removing: removing) }
  }
}
