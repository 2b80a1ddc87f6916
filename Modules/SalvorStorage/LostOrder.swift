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

  /// Of each pair the number from which on both are apart.
  private var next: [IncarnationID: [IncarnationID: Int64?]] = [:]

  /// - Parameter own: the server's incarnations, oldest first.
  public init(own: [Incarnation] = []) {
    // Its own neighbour is enough: that one leads to the next.
    for (earlier, later) in zip(own, own.dropFirst()) {
      add(LostNeighbours(earlier.id, before: later.id, apartFrom: later.firstCommit))
    }
  }

  /// Takes what somebody has told.
  public mutating func add(_ pair: LostNeighbours) {
    guard pair.earlier != pair.later else { return }
    let known = next[pair.earlier]?[pair.later]
    next[pair.earlier, default: [:]][pair.later] = .some(
      known.map { LostNeighbours.apartFrom($0, pair.apartFrom) } ?? pair.apartFrom)
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
      let found = finding(
        leads(pair.one.incarnation, to: pair.two.incarnation, with: pair.one.number),
        leads(pair.two.incarnation, to: pair.one.incarnation, with: pair.two.number))
      if found != .unranked { return Relation(finding: found, isApart: false) }
    }
    let (one, two) = (version.original.incarnation, other.original.incarnation)
    return Relation(finding: finding(leads(one, to: two), leads(two, to: one)), isApart: true)
  }

  /// `relation`, as far as it says which is newer.
  public func finding(_ version: LostVersion, beside other: LostVersion) -> Finding {
    relation(version, beside: other).finding
  }

  private func finding(_ isOlder: Bool, _ isNewer: Bool) -> Finding {
    switch (isOlder, isNewer) {
    case (true, false): .older
    case (false, true): .newer
    default: .unranked
    }
  }

  /// - Parameter number: only where the later one's history has this commit of the earlier one's. Numbers go on along a history, so what is
  ///   below each number on the way is in all of it.
  private func leads(_ earlier: IncarnationID, to later: IncarnationID, with number: Int64? = nil) -> Bool {
    var seen: Set<IncarnationID> = [earlier]
    var open = [earlier]
    while let incarnation = open.popLast() {
      for (found, apartFrom) in next[incarnation] ?? [:] {
        if let number, let apartFrom, number >= apartFrom { continue }
        guard seen.insert(found).inserted else { continue }
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
