import SalvorModel
import SalvorStorage

/// Of one row's lost versions the newest is offered (semantics 10, decision 183): an offer that waits leaves for the archive where a newer
/// version of its row was lost, too.
extension ClientContent {
  /// Those of the row that wait and are older than `version`, but for those that other requests need. In order.
  ///
  /// - Parameter base: the row that they are upon.
  func olderOffers(of name: RowName, than version: LostVersion, upon base: Row?) -> [Int] {
    var order = LostOrder()
    for found in lostOrder { order.add(found) }
    let steps = outstanding.flatMap(\.changes).filter { $0.row == name }
    return requests.indices.filter { index in
      guard requests[index].changes.count == 1, let change = requests[index].changes.first, change.row == name,
        requests[index].state == .queued, let offer = change.offer, offer.written.isEmpty,
        order.finding(offer.version, beside: version) == .older
      else { return false }
      let others = steps.filter { $0.counter != change.counter }
      // What was written since stands upon the server's row, too, or the offer stays.
      return others.isEmpty || (base != nil && others.allSatisfy { $0.operation == .update })
    }
  }

  mutating func replaceOffer(_ index: Int) {
    requests[index].state = .kept
    requests[index].stateBefore = nil
    requests[index].isWaiting = false
    requests[index].changes[0].offer = nil
    requests[index].refusal = Request.Refused(
      reason: "lost-on-server", status: nil,
      message: "A newer version of the row is offered in the place of this one. Reapply it, or delete the entry.")
  }
}

extension ClientRecovery {
  /// Before anything is made of the requests.
  mutating func replaceOlderOffers(_ arrivals: Arrivals, downloaded: Set<String>) {
    for name in sorted(Set(before.baseChanges.map(\.row))) {
      guard isWritable(name), let version = lostVersion(of: name), let newest = newestChange(of: name),
        newest.isDeleted == (before.bases[name] == nil), !hasLeft(name, arrivals, downloaded),
        before.baseChanges.contains(where: { $0.row == name && $0.version == newest.version && !$0.cameWhole })
      else { continue }
      for index in content.olderOffers(of: name, than: version, upon: before.bases[name]) {
        content.replaceOffer(index)
        requests[content.requests[index].id] = (.discarded, "lost-on-server")
        replaced.insert(name)
      }
    }
  }

  private func hasLeft(_ name: RowName, _ arrivals: Arrivals, _ downloaded: Set<String>) -> Bool {
    guard before.bases[name] != nil, content.bases[name] == nil else { return false }
    switch arrivals.departures[name] {
    case .left, .dropped: return true
    case .deleted, .lost: return false
    case nil: return !downloaded.contains(content.schema.table(name.table)?.group ?? "")
    }
  }
}
