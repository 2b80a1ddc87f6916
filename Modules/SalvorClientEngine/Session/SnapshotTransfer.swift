import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// Fetches groups that come as files (docs/architecture/snapshots.md), for a synchronization or a recovery.
struct SnapshotTransfer {
  let configuration: ClientConfiguration
  let progress: @Sendable (SyncProgress) -> Void

  private var store: (any SnapshotTakingClientStore)? { configuration.store as? any SnapshotTakingClientStore }

  /// In which codings the device takes files; nil: it takes none.
  var taking: SnapshotTaking? {
    get async {
      guard let store, await store.takesSnapshots else { return nil }
      let codings = configuration.snapshotCompressions.map(\.token)
      return codings.isEmpty ? nil : SnapshotTaking(takes: codings)
    }
  }

  /// Fetches what is offered and examines it. False: one cannot be used, the log says why, and all comes by rows. A cut is thrown, and
  /// what has come stays for the next attempt.
  ///
  /// - Parameters:
  ///   - received: set once a piece has come.
  ///   - config: what the tables are going to be; nil: what they are.
  func fetch(
    _ offers: [SnapshotOffer], counting report: inout SyncReport, received: inout Bool, as config: SyncConfig? = nil
  ) async throws -> Bool {
    guard let store else { return false }
    do {
      let here = try await store.snapshotsReceived(offers)
      for offer in offers {
        let count = here[offer.id] ?? 0
        try await fetch(offer, from: count, store, counting: &report, received: &received, as: config)
      }
      return true
    } catch let error as SalvorError where error.meansRows {
      configuration.log("snapshot-unusable: \(error.message)")
      await store.closeSnapshots(removing: error.code != .storageFull)
      return false
    }
  }

  private func fetch(
    _ offer: SnapshotOffer, from count: Int64, _ store: any SnapshotTakingClientStore,
    counting report: inout SyncReport,
    received: inout Bool, as config: SyncConfig?
  ) async throws {
    guard let compression = configuration.snapshotCompressions.first(where: { $0.token == offer.coding }) else {
      throw SalvorError(.snapshotUnusable, "The snapshot's coding \(offer.coding) was not asked for.")
    }
    guard offer.link.hasPrefix("/") else {
      throw SalvorError(.snapshotUnusable, "The snapshot's link is no path of this server.")
    }
    if count < offer.bytes || offer.bytes == 0 {
      try await receive(offer, from: count, store, counting: &report, received: &received)
    }
    let bytesMax = configuration.limits.downloadBytesMax
    let coding = SnapshotCoding(token: offer.coding) { pieces in
      try ByteStream(next: pieces).decompressed(by: compression, limit: bytesMax).next
    }
    try await store.openSnapshot(offer, decoding: coding, bytesMax: Int64(bytesMax), as: config)
  }

  private func receive(
    _ offer: SnapshotOffer, from count: Int64, _ store: any SnapshotTakingClientStore,
    counting report: inout SyncReport,
    received: inout Bool
  ) async throws {
    var headers: [String: String] = [:]
    if count > 0 { headers = ["range": "bytes=\(count)-", "if-range": "\"\(offer.id)\""] }
    let response = try await configuration.request(
      "GET", offer.link, [], isBinary: true, more: headers, counting: &report)
    // Who passes over the range sends the whole.
    var offset = response.status == 206 ? count : 0
    do {
      while let piece = try await response.body.next() {
        try await store.keepSnapshot(piece, of: offer, at: offset)
        offset += Int64(piece.count)
        report.bytesReceived += Int64(piece.count)
        received = true
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
