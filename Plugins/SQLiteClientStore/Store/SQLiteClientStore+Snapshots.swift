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
    try received.keep(piece, of: offer, at: offset)
  }

  public func openSnapshot(_ offer: SnapshotOffer, decoding: SnapshotCoding, bytesMax: Int64) async throws {
    let config = try opened().config
    do {
      snapshots.append(try await received.open(offer, decoding: decoding, bytesMax: bytesMax, config))
    } catch let error as SalvorError where error.code == .snapshotUnusable {
      refusesSnapshots = true
      throw error
    }
  }

  public func openSeed(_ path: String) throws -> SnapshotOffer {
    let seed = try ReceivedSnapshots.openSeed(path, opened().config)
    snapshots.append(seed)
    return seed.offer
  }

  public func closeSnapshots(removing: Bool) {
    snapshots = []
    try? received.removeAll(partsToo: removing)
  }

  /// Runs `body` with the examined files attached, as a part of what is staged. They are gone after it.
  func withSnapshots<Result>(
    for end: DownloadEnd, _ context: StoreContext, _ body: () throws -> Result
  ) throws -> Result {
    if snapshots.isEmpty { return try body() }
    let connection = context.connection
    let wanted = usable(
      end, try connection.groupStates(context.schema.groups), try DownloadApply.fullTables(context), context)
    let result: Result
    do {
      let files = try AttachedSnapshot.attach(wanted, to: connection)
      defer {
        context.files = []
        AttachedSnapshot.detach(files, from: connection)
      }
      context.files = files
      result = try body()
    } catch let error as SalvorError where error.code == .storageCorrupt || error.code == .inconsistentDownload {
      // Whichever file it was: the same comes by rows.
      refusesSnapshots = true
      throw SalvorError(.inconsistentDownload, error.message, context: error.context)
    }
    closeSnapshots(removing: true)
    return result
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
