import SalvorModel
import SalvorStorage

/// Offers that wait, before a recovery that discards requests or rebuilds tables (decision 241).
extension ClientContent {
  /// What these strategies give up is what was not synchronized. An offer was: it becomes the acknowledged version again that it is made
  /// of, and the recovery offers it like every other lost one. False: there are none.
  mutating func takeBackOffers(for order: RecoveryOrder) -> Bool {
    let offers = requests.filter { isTakenBack($0, order) }
    for request in offers {
      let change = request.changes[0]
      guard let version = change.offer?.version, let table = schema.table(change.row.table) else { continue }
      bases[change.row] = change.applied(to: bases[change.row], of: table)
      if request.isHeldByServer { withdrawn.append(request.id) }
      guard !isStanding(version, order) else { continue }
      baseChanges.append(
        BaseChange(
          row: change.row, version: .max, isDeleted: change.operation == .delete, isOwn: true, origin: version.origin,
          lost: version))
    }
    let ids = Set(offers.map(\.id))
    requests.removeAll { ids.contains($0.id) }
    return !ids.isEmpty
  }

  /// A newer version of the row that is lost now takes an older one's place (`olderOffers`): that goes as the strategy says.
  private func isTakenBack(_ request: Request, _ order: RecoveryOrder) -> Bool {
    guard [.queued, .sent, .unknownOutcome].contains(request.state), request.changes.count == 1,
      let offer = request.changes[0].offer, offer.written.isEmpty
    else { return false }
    return order.absence != .lost
      || !baseChanges.contains {
        $0.row == request.changes[0].row && $0.version > order.shared ?? 0 && !$0.cameWhole
      }
  }

  /// A newer copy of the server has what was lost.
  private func isStanding(_ version: LostVersion, _ order: RecoveryOrder) -> Bool {
    let known = order.incarnations.sorted { $0.firstCommit < $1.firstCommit }
    if let place = known.firstIndex(where: { $0.id == version.incarnation }) {
      let end = place + 1 < known.count ? known[place + 1].firstCommit : .max
      if version.number < end { return true }
    }
    guard let origin = version.origin, let place = incarnations.firstIndex(where: { $0.id == origin.incarnation })
    else {
      return false
    }
    let bound = order.absence == .lost ? (order.shared ?? 0) + 1 : .max
    return origin.number < min(place + 1 < incarnations.count ? incarnations[place + 1].firstCommit : bound, bound)
  }
}
