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
        let coding = try coding(of: offer)
        let bytesMax = configuration.limits.downloadBytesMax
        guard offer.size <= Int64(bytesMax) else {
          throw SalvorError(
            .snapshotUnusable,
            "The snapshot of the group \(offer.group) becomes larger than \(bytesMax) bytes (client.limits.downloadBytesMax)."
          )
        }
        var count = here[offer.id] ?? 0
        if count < offer.bytes {
          let isTaken = try await fetchElsewhere(
            offer, coding, here: &count, store, counting: &report, received: &received, as: config)
          if isTaken { continue }
        }
        try await fetch(offer, coding, from: count, store, counting: &report, received: &received, as: config)
      }
      return true
    } catch let error as SalvorError where error.meansRows {
      configuration.log("snapshot-unusable: \(error.message)")
      await store.closeSnapshots(removing: error.code != .storageFull)
      return false
    }
  }

  /// From the server itself.
  private func fetch(
    _ offer: SnapshotOffer, _ coding: SnapshotCoding, from count: Int64, _ store: any SnapshotTakingClientStore,
    counting report: inout SyncReport, received: inout Bool, as config: SyncConfig?
  ) async throws {
    guard offer.link.hasPrefix("/") else {
      throw SalvorError(.snapshotUnusable, "The snapshot's link is no path of this server.")
    }
    if count < offer.bytes || offer.bytes == 0 {
      let response = try await configuration.request(
        "GET", offer.link, [], isBinary: true, more: range(of: offer, from: count), counting: &report)
      var here = count
      try await keep(response, of: offer, here: &here, store, counting: &report, received: &received)
    }
    try await examine(offer, coding, store, as: config)
  }

  /// From the other address that the server has named, without a credential (decision 144). False: it goes on from the server
  /// itself; the log says why.
  ///
  /// - Parameter count: how much of the file is here, before and after.
  private func fetchElsewhere(
    _ offer: SnapshotOffer, _ coding: SnapshotCoding, here count: inout Int64, _ store: any SnapshotTakingClientStore,
    counting report: inout SyncReport, received: inout Bool, as config: SyncConfig?
  ) async throws -> Bool {
    guard let url = offer.url, let transport = configuration.transport as? any FileFetchingTransport else {
      return false
    }
    do {
      // No If-Range: who knows the file by its name alone has a tag of his own. It never changes under its ID, and is looked at.
      var headers = count > 0 ? ["range": "bytes=\(count)-"] : [:]
      headers["user-agent"] = "salvor/\(salvorVersion)"
      report.roundTrips += 1
      let response = try await transport.fetch(url, headers: headers)
      guard response.status == 200 || response.status == 206 else {
        await response.body.close()
        throw SalvorError(.snapshotUnusable, "The status of its answer is \(response.status).")
      }
      try await keep(response, of: offer, here: &count, store, counting: &report, received: &received)
      // One that is another file is removed.
      count = 0
      try await examine(offer, coding, store, as: config)
      return true
    } catch let error as SalvorError
      where error.code != .cancelled && error.code != .storageFull && !error.isOfFile(offer)
    {
      // Nothing of the address: it is as good as the rows.
      configuration.log(
        "The file of a group does not come from server.snapshots.url, the server itself is asked: \(error.message)")
      return false
    }
  }

  private func range(of offer: SnapshotOffer, from count: Int64) -> [String: String] {
    count > 0 ? ["range": "bytes=\(count)-", "if-range": "\"\(offer.id)\""] : [:]
  }

  private func coding(of offer: SnapshotOffer) throws -> SnapshotCoding {
    guard let compression = configuration.snapshotCompressions.first(where: { $0.token == offer.coding }) else {
      throw SalvorError(.snapshotUnusable, "The snapshot's coding \(offer.coding) was not asked for.")
    }
    let bytesMax = configuration.limits.downloadBytesMax
    return SnapshotCoding(token: offer.coding) { pieces, _ in
      try ByteStream(next: pieces).decompressed(by: compression, limit: bytesMax).next
    }
  }

  private func examine(
    _ offer: SnapshotOffer, _ coding: SnapshotCoding, _ store: any SnapshotTakingClientStore, as config: SyncConfig?
  ) async throws {
    try await store.openSnapshot(
      offer, decoding: coding, bytesMax: Int64(configuration.limits.downloadBytesMax), as: config)
  }

  /// Writes what comes behind what is here.
  ///
  /// - Parameter count: how much of the file is here, before and after.
  private func keep(
    _ response: TransportResponse, of offer: SnapshotOffer, here count: inout Int64,
    _ store: any SnapshotTakingClientStore, counting report: inout SyncReport, received: inout Bool
  ) async throws {
    // Who passes over the range sends the whole.
    var offset = response.status == 206 ? count : 0
    let before = count
    do {
      if response.status == 206, response.headers["content-range"]?.hasPrefix("bytes \(count)-") != true {
        throw SalvorError(.snapshotUnusable, "The answer has another range of the snapshot than was asked for.")
      }
      while let piece = try await response.body.next() {
        // A piece that cannot be kept takes the file with it.
        count = 0
        try await store.keepSnapshot(piece, of: offer, at: offset)
        offset += Int64(piece.count)
        count = offset
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
      // Whoever is asked for the rest and has no more than is here keeps a shorter file.
      guard offset > before else {
        throw SalvorError(.snapshotUnusable, "The snapshot is shorter than the server has said.")
      }
      throw SalvorError(.unreachable, "The snapshot was cut. The next synchronization goes on where it stopped.")
    }
  }
}

extension SalvorError {
  /// The same group can come by rows.
  fileprivate var meansRows: Bool {
    switch code {
    case .snapshotUnusable, .forbidden, .notFound, .malformed, .tooLarge, .storageFull, .failed: true
    default: false
    }
  }

  /// The file is the one that the server has named, and cannot be used: the server has no other.
  fileprivate func isOfFile(_ offer: SnapshotOffer) -> Bool {
    code == .snapshotUnusable && context[SnapshotOffer.itselfUnusable] == offer.id
  }
}
