import SalvorModel
import SalvorStorage
import SalvorWire

extension WaitingBook {
  /// Settles offers in the caller's transaction, by whom they came from.
  package func settle(
    _ places: [Int64], _ purpose: OfferIntake.Purpose, _ catalog: Catalog, log: CommitLog, limits: Limits, now: Int64
  ) throws {
    var groups: [(remote: RemoteID, principal: String, payloads: [[UInt8]])] = []
    for place in places {
      try connection.query(
        "SELECT remote, principal, payload FROM salvor_heal_waiting WHERE place = ?1", [.integer(place)]
      ) { row in
        guard let remote = RemoteID(row.string(0)) else { return false }
        let principal = row.string(1)
        let payload = row.withBlob(2) { Array($0) }
        if let group = groups.firstIndex(where: { $0.remote == remote && $0.principal == principal }) {
          groups[group].payloads.append(payload)
        } else {
          groups.append((remote, principal, [payload]))
        }
        return false
      }
    }
    for group in groups {
      guard let principal = Principal(stored: group.principal) else { continue }
      let upload = ProcessRequest(
        remote: group.remote, sequence: SequenceID(unchecked: String(repeating: "0", count: 32)), principal: principal)
      let processor = try UploadProcessor(
        upload, connection, catalog, log: log, book: RemoteBook(connection: connection), limits: limits, now: now,
        waiving: [], intake: OfferIntake(purpose))
      for payload in group.payloads { try processor.add(payload) }
      _ = try processor.finish()
    }
  }
}
