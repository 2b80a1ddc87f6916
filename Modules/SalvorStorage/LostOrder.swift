import SalvorModel

/// In which order incarnations of a server lived, as far as anybody has told (semantics 10): devices tell of those that a
/// restore has lost (`UploadChunkWriter.lost`), the server knows its own.
public struct LostOrder: Sendable {
  /// How one version stands to another. `unranked`: nobody can tell which is newer.
  public enum Finding: Sendable, Hashable {
    case same, older, newer, unranked
  }

  private var next: [IncarnationID: Set<IncarnationID>] = [:]
  /// Places in the server's own history.
  private let own: [IncarnationID: Int]
  private let ownOrder: [IncarnationID]

  /// - Parameter own: the server's incarnations, oldest first.
  public init(own: [IncarnationID]) {
    ownOrder = own
    self.own = Dictionary(own.enumerated().map { ($1, $0) }) { first, _ in first }
  }

  /// `later` lived after `earlier`.
  public mutating func add(_ earlier: IncarnationID, before later: IncarnationID) {
    if earlier != later { next[earlier, default: []].insert(later) }
  }

  /// What the first version is, beside the second: in one incarnation the higher number is newer, of two the one that lived
  /// later. Where nobody has told which did, or tales contradict each other, they are unranked.
  public func finding(_ version: LostVersion, beside other: LostVersion) -> Finding {
    if version.incarnation == other.incarnation {
      return version.number == other.number ? .same : version.number < other.number ? .older : .newer
    }
    switch (leads(version.incarnation, to: other.incarnation), leads(other.incarnation, to: version.incarnation)) {
    case (true, false): return .older
    case (false, true): return .newer
    default: return .unranked
    }
  }

  private func leads(_ earlier: IncarnationID, to later: IncarnationID) -> Bool {
    var seen: Set<IncarnationID> = [earlier]
    var open = [earlier]
    while let incarnation = open.popLast() {
      var after = next[incarnation] ?? []
      // Its own neighbour is enough: that one leads to the next.
      if let place = own[incarnation], place + 1 < ownOrder.count { after.insert(ownOrder[place + 1]) }
      for found in after where seen.insert(found).inserted {
        if found == later { return true }
        open.append(found)
      }
    }
    return false
  }
}
