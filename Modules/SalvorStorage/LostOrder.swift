import SalvorModel

/// In which order incarnations of a server lived, as far as anybody has told (semantics 10): devices tell of those that a
/// restore has lost (`UploadChunkWriter.lost`), the server knows its own.
public struct LostOrder: Sendable {
  /// How one version stands to another. `unranked`: nobody can tell which is newer.
  public enum Finding: Sendable, Hashable {
    case same, older, newer, unranked
  }

  /// How one version stands to another, and what that says.
  public struct Relation: Sendable, Hashable {
    /// Which is newer.
    public var finding: Finding
    /// They are of different histories: who made the newer one had not seen the older one.
    public var isApart: Bool

    /// Both parts given.
    public init(finding: Finding, isApart: Bool) {
      self.finding = finding
      self.isApart = isApart
    }
  }

  /// Whether each is of another history.
  private var next: [IncarnationID: [IncarnationID: Bool]] = [:]
  /// Places in the server's own history.
  private let own: [IncarnationID: Int]
  private let ownOrder: [IncarnationID]

  /// - Parameter own: the server's incarnations, oldest first.
  public init(own: [IncarnationID]) {
    ownOrder = own
    self.own = Dictionary(own.enumerated().map { ($1, $0) }) { first, _ in first }
  }

  /// Takes what somebody has told.
  public mutating func add(_ pair: LostNeighbours) {
    guard pair.earlier != pair.later else { return }
    next[pair.earlier, default: [:]][pair.later] = pair.isApart && next[pair.earlier]?[pair.later] ?? true
  }

  /// What the first version is, beside the second: in one incarnation the higher number is newer, of two the one that lived
  /// later. Where nobody has told which did, or tales contradict each other, they are unranked. A version that was given back, and
  /// lost again, stands in the history that made it as well as in the one that got it back: what both versions are of decides.
  public func relation(_ version: LostVersion, beside other: LostVersion) -> Relation {
    let pairs = version.commits.flatMap { one in other.commits.map { (one: one, two: $0) } }
    if let pair = pairs.first(where: { $0.one.incarnation == $0.two.incarnation }) {
      let (one, two) = (pair.one.number, pair.two.number)
      return Relation(finding: one == two ? .same : one < two ? .older : .newer, isApart: false)
    }
    for pair in pairs {
      let found = finding(pair.one.incarnation, beside: pair.two.incarnation, isOneHistory: true)
      if found != .unranked { return Relation(finding: found, isApart: false) }
    }
    let found = finding(version.original.incarnation, beside: other.original.incarnation, isOneHistory: false)
    return Relation(finding: found, isApart: true)
  }

  /// `relation`, as far as it says which is newer.
  public func finding(_ version: LostVersion, beside other: LostVersion) -> Finding {
    relation(version, beside: other).finding
  }

  private func finding(_ one: IncarnationID, beside two: IncarnationID, isOneHistory: Bool) -> Finding {
    switch (leads(one, to: two, isOneHistory), leads(two, to: one, isOneHistory)) {
    case (true, false): .older
    case (false, true): .newer
    default: .unranked
    }
  }

  private func leads(_ earlier: IncarnationID, to later: IncarnationID, _ isOneHistory: Bool) -> Bool {
    var seen: Set<IncarnationID> = [earlier]
    var open = [earlier]
    while let incarnation = open.popLast() {
      var after = Set((next[incarnation] ?? [:]).filter { !isOneHistory || !$0.value }.keys)
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

extension LostVersion {
  /// The commits that made the row so: the newest one first.
  fileprivate var commits: [Origin] {
    [Origin(incarnation: incarnation, number: number)] + (origin.map { [$0] } ?? [])
  }
}
