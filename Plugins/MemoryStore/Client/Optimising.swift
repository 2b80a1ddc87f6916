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
      guard places.count > 1, places.allSatisfy({ requests[$0].isPlain }) else { continue }
      // What depends on one of them could be sent before the new one.
      if waitingDependents(of: Set(places.map { requests[$0].id })).isEmpty { join(places) }
    }
    return count - requests.count
  }
}

extension Request {
  fileprivate var isPlain: Bool { state == .queued && changes.count == 1 && tag == nil }
}
