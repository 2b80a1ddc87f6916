import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// Groups that come as files (docs/architecture/snapshots.md).
extension SyncSession {
  private var taking: (any SnapshotTakingClientStore)? { store as? any SnapshotTakingClientStore }

  /// What a begin says of snapshots; nil: nothing.
  func snapshotTaking(_ message: BeginMessage) async throws -> SnapshotTaking? {
    guard taking != nil else { return nil }
    let new = Set(message.groups.filter { $0.cursor == nil }.map(\.name))
    let held = snapshots.filter { new.contains($0.group) }.map {
      SnapshotTaking.Held(group: $0.group, commit: $0.commit, scope: $0.scope)
    }
    if !held.isEmpty { return SnapshotTaking(held: held) }
    guard takesSnapshots, !new.isEmpty else { return nil }
    return await SnapshotTransfer(configuration: configuration, progress: progress).taking
  }

  /// The snapshot that the application brought along, where its group comes for the first time. One that cannot be used is said,
  /// and is as if it were not there; so is one that the server cannot go on from.
  mutating func openSeed(_ message: BeginMessage) async throws {
    guard let path = configuration.seed, let taking, !hasTriedSeed, takesSnapshots, await taking.takesSnapshots,
      message.groups.contains(where: { $0.cursor == nil })
    else { return }
    hasTriedSeed = true
    do {
      let offer = try await taking.openSeed(path)
      if message.groups.contains(where: { $0.name == offer.group && $0.cursor == nil }) { snapshots.append(offer) }
    } catch let error as SalvorError where error.code == .snapshotUnusable {
      configuration.log("snapshot-unusable: client.seed: \(error.message)")
    }
  }

  /// Fetches what is offered and examines it. What cannot be used comes by rows.
  mutating func fetchSnapshots(_ offers: [SnapshotOffer]) async throws {
    takesSnapshots = false
    let transfer = SnapshotTransfer(configuration: configuration, progress: progress)
    if try await transfer.fetch(offers, counting: &report, received: &hasMadeProgress) { snapshots = offers }
  }

  /// Nothing examined is kept for a later session; what has come of a file is.
  func closeSnapshots() async {
    if takesSnapshots, snapshots.isEmpty { return }
    await taking?.closeSnapshots(removing: false)
  }
}
