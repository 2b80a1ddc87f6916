import SalvorModel
import SalvorStorage

/// Several requests on one row become one before they are sent, where a person has asked for it.
extension ClientContent {
  mutating func optimise() -> Int {
    if current != nil { return 0 }
    _ = splitOpenGroup()
    let count = requests.count
    var seen: Set<RowName> = []
    for row in outstanding.flatMap({ $0.changes.map(\.row) }) where seen.insert(row).inserted {
      let places = requests.indices.filter {
        requests[$0].state != .displaced && requests[$0].state != .kept && requests[$0].rows.contains(row)
      }
      // One that was made on an older row stays itself: the server has to find that it is in conflict.
      let now = schema.table(row.table).flatMap { groups[$0.group]?.cursor?.number } ?? 0
      guard places.count > 1, places.allSatisfy({ requests[$0].isPlain && requests[$0].changes[0].made == now }) else {
        continue
      }
      // What depends on one of them could be sent before the new one.
      if waitingDependents(of: Set(places.map { requests[$0].id })).isEmpty { join(places) }
    }
    return count - requests.count
  }
}

extension Request {
  fileprivate var isPlain: Bool { state == .queued && changes.count == 1 && tag == nil && changes[0].offer == nil }
}
