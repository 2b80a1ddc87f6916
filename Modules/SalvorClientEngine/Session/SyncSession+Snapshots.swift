import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// Groups that come as files (docs/architecture/snapshots.md).
extension SyncSession {
  private var taking: (any SnapshotTakingClientStore)? { store as? any SnapshotTakingClientStore }

  /// What a begin says of snapshots; nil: nothing.
  func snapshotTaking(_ message: BeginMessage) async throws -> SnapshotTaking? {
    guard let taking else { return nil }
    let new = Set(message.groups.filter { $0.cursor == nil }.map(\.name))
    let held = snapshots.filter { new.contains($0.group) }.map {
      SnapshotTaking.Held(group: $0.group, commit: $0.commit, scope: $0.scope)
    }
    if !held.isEmpty { return SnapshotTaking(held: held) }
    guard takesSnapshots, !new.isEmpty, await taking.takesSnapshots else { return nil }
    let codings = configuration.snapshotCompressions.map(\.token)
    return codings.isEmpty ? nil : SnapshotTaking(takes: codings)
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

  /// Fetches what is offered and examines it. What cannot be used is said, and comes by rows; a cut is thrown, and what has come
  /// stays for the next synchronization.
  mutating func fetchSnapshots(_ offers: [SnapshotOffer]) async throws {
    takesSnapshots = false
    guard let taking else { return }
    do {
      let received = try await taking.snapshotsReceived(offers)
      for offer in offers {
        try await fetch(offer, from: received[offer.id] ?? 0, taking)
        snapshots.append(offer)
      }
    } catch let error as SalvorError where error.meansRows {
      configuration.log("snapshot-unusable: \(error.message)")
      snapshots = []
      await taking.closeSnapshots(removing: error.code != .storageFull)
    }
  }

  private mutating func fetch(
    _ offer: SnapshotOffer, from received: Int64, _ taking: any SnapshotTakingClientStore
  ) async throws {
    guard let compression = configuration.snapshotCompressions.first(where: { $0.token == offer.coding }) else {
      throw SalvorError(.snapshotUnusable, "The snapshot's coding \(offer.coding) was not asked for.")
    }
    guard offer.link.hasPrefix("/") else {
      throw SalvorError(.snapshotUnusable, "The snapshot's link is no path of this server.")
    }
    if received < offer.bytes || offer.bytes == 0 { try await receive(offer, from: received, taking) }
    let bytesMax = configuration.limits.downloadBytesMax
    let coding = SnapshotCoding(token: offer.coding) { pieces in
      try ByteStream(next: pieces).decompressed(by: compression, limit: bytesMax).next
    }
    try await taking.openSnapshot(offer, decoding: coding, bytesMax: Int64(bytesMax))
  }

  private mutating func receive(
    _ offer: SnapshotOffer, from received: Int64, _ taking: any SnapshotTakingClientStore
  ) async throws {
    var headers: [String: String] = [:]
    if received > 0 { headers = ["range": "bytes=\(received)-", "if-range": "\"\(offer.id)\""] }
    let response = try await configuration.request(
      "GET", offer.link, [], isBinary: true, more: headers, counting: &report)
    // Who passes over the range sends the whole.
    var offset = response.status == 206 ? received : 0
    do {
      while let piece = try await response.body.next() {
        try await taking.keepSnapshot(piece, of: offer, at: offset)
        offset += Int64(piece.count)
        report.bytesReceived += Int64(piece.count)
        hasMadeProgress = true
        let share = Double(offset) / Double(max(1, offer.bytes))
        progress(.fetching(rows: min(offer.rows, Int64(Double(offer.rows) * share)), of: offer.rows))
        try Task.checkCancellation()
      }
    } catch {
      await response.body.close()
      throw error
    }
    await response.body.close()
    guard offset == offer.bytes else {
      throw SalvorError(.unreachable, "The snapshot was cut. The next synchronization goes on where it stopped.")
    }
  }

  /// Nothing examined is kept for a later session; what has come of a file is.
  func closeSnapshots() async {
    if takesSnapshots, snapshots.isEmpty { return }
    await taking?.closeSnapshots(removing: false)
  }
}

extension SalvorError {
  /// The same group can come by rows.
  fileprivate var meansRows: Bool {
    switch code {
    case .snapshotUnusable, .forbidden, .notFound, .malformed, .tooLarge, .storageFull: true
    default: false
    }
  }
}
