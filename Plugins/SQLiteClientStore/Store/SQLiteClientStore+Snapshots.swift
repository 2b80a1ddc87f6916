import SalvorModel
import SalvorStorage
import SalvorWire
import SnapshotFiles

extension SQLiteClientStore: SnapshotTakingClientStore {
  /// Not with a key: what is fetched stands readable beside the database.
  public var takesSnapshots: Bool { isFile && makeKey == nil && !refusesSnapshots }

  private var received: ReceivedSnapshots { ReceivedSnapshots(database: path) }

  public func snapshotsReceived(_ offers: [SnapshotOffer]) throws -> [String: Int64] { try received.received(offers) }

  public func keepSnapshot(_ piece: [UInt8], of offer: SnapshotOffer, at offset: Int64) throws {
    hasLookedForFiles = false
    try received.keep(piece, of: offer, at: offset)
  }

  /// After `snapshot-unusable`, groups come by rows until a file can be used or the database is opened again.
  public func openSnapshot(
    _ offer: SnapshotOffer, decoding: SnapshotCoding, bytesMax: Int64, as config: SyncConfig?
  ) async throws {
    let config = try config ?? opened().config
    do {
      snapshots.append(try await received.open(offer, decoding: decoding, bytesMax: bytesMax, config))
      // The same file from another place was another one.
      refusesSnapshots = false
    } catch let error as SalvorError where error.code == .snapshotUnusable {
      refusesSnapshots = true
      throw error
    }
    wantsBlobsOfFiles = true
  }

  public func openSeed(_ path: String) throws -> SnapshotOffer {
    let seed = try ReceivedSnapshots.openSeed(path, opened().config)
    snapshots.append(seed)
    wantsBlobsOfFiles = true
    return seed.offer
  }

  /// Blobs that rows of opened files refer to are wanted like those of what is staged.
  func wantBlobsOfFiles(_ context: StoreContext) throws {
    guard wantsBlobsOfFiles else { return }
    for snapshot in snapshots {
      try snapshot.eachApart { payload in
        try BlobStaging(context: context).want(
          LargeBlobs(context: context).taken(of: payload, bytesMax: Int64(limits.blobBytesMax)))
      }
    }
    wantsBlobsOfFiles = false
  }

  /// Never throws: files that cannot be removed now are removed later.
  public func closeSnapshots(removing: Bool) {
    snapshots = []
    try? received.removeAll(partsToo: removing)
  }

  /// What a process left that was killed after its commit and before it removed its files, and what came of a file whose group
  /// came by rows after all. Under the session's lock, once.
  func removeLeftOverFiles(_ context: StoreContext) throws {
    guard !hasLookedForFiles, isFile, snapshots.isEmpty, !hasJournal,
      try context.connection.groupStates(context.schema.groups).allSatisfy(\.isSynchronized)
    else { return }
    hasLookedForFiles = true
    try? received.removeAll(partsToo: true)
  }

  /// Runs `body` with the examined files attached, as a part of what is staged. They are gone after it.
  func withSnapshots<Result>(
    for end: DownloadEnd, _ context: StoreContext, _ body: () throws -> Result
  ) throws -> Result {
    if snapshots.isEmpty {
      let result = try body()
      try? removeLeftOverFiles(context)
      return result
    }
    let wanted = usable(
      end, try context.connection.groupStates(context.schema.groups), try DownloadApply.fullTables(context), context)
    let result = try attaching(wanted, context, body)
    closeSnapshots(removing: true)
    return result
  }

  /// The same for a recovery that makes the tables anew.
  ///
  /// - Parameter keepsFiles: it is a rehearsal.
  func withSnapshots<Result>(
    for order: RecoveryOrder, _ context: StoreContext, keepsFiles: Bool = false, _ body: () throws -> Result
  ) throws -> Result {
    if snapshots.isEmpty || order.rebuild == .nothing { return try body() }
    // By name: a table may be one that the recovery makes.
    let full = try DownloadApply.fullNames(context)
    let wanted = snapshots.filter { snapshot in
      order.groups.contains { $0.name == snapshot.offer.group && $0.scopeDigest == snapshot.offer.scope }
        && !snapshot.tables.contains { full.contains($0.name.folded) }
    }
    let result = try attaching(wanted, context, body)
    if !keepsFiles { closeSnapshots(removing: true) }
    return result
  }

  private func attaching<Result>(
    _ wanted: [OpenedSnapshot], _ context: StoreContext, _ body: () throws -> Result
  ) throws -> Result {
    let connection = context.connection
    do {
      let files = try AttachedSnapshot.attach(wanted, to: connection)
      defer {
        context.files = []
        AttachedSnapshot.detach(files, from: connection)
      }
      context.files = files
      return try body()
    } catch let error as SalvorError where error.code == .storageCorrupt || error.code == .inconsistentDownload {
      // Whichever file it was: the same comes by rows.
      refusesSnapshots = true
      throw SalvorError(.inconsistentDownload, error.message, context: error.context)
    }
  }

  /// Those of groups that come for the first time, and of which the pages do not bring every row themselves.
  ///
  /// - Parameter full: tables that come whole by the pages.
  func usable(_ end: DownloadEnd, _ groups: [GroupState], _ full: Set<Int64>, _ context: StoreContext)
    -> [OpenedSnapshot]
  {
    snapshots.filter { snapshot in
      let group = snapshot.offer.group
      return end.groups.contains { $0.name == group && $0.scopeDigest == snapshot.offer.scope }
        && groups.contains { $0.name == group && $0.cursor == nil }
        && snapshot.tables.allSatisfy { table in
          context.catalog.table(table.name).map { !full.contains($0.number) } ?? false
        }
    }
  }
}
