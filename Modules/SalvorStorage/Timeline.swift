import SalvorModel

/// The incarnations of a consolidated database that have made commits, oldest first: each grew from the one before it, at the
/// commit before its own first one (semantics 6).
public struct Timeline: Sendable, Hashable {
  /// In the order of their first commits.
  public var incarnations: [Incarnation]

  /// A device is told of so many, the newest ones.
  public static let toldMax = 1000

  /// - Parameter incarnations: in the order of their first commits.
  public init(_ incarnations: [Incarnation]) { self.incarnations = incarnations }

  /// What a device does not know yet whose newest known incarnation is this one; that one is told again, with its first
  /// commit. Empty: it knows all.
  public func untold(after known: IncarnationID?) -> [Incarnation] {
    if let known, incarnations.last?.id == known { return [] }
    let place = known.flatMap { known in incarnations.lastIndex { $0.id == known } } ?? incarnations.startIndex
    return Array(incarnations[place...].suffix(Self.toldMax))
  }

  /// The number of the newest commit that this database and a device have both made, who know of each other's incarnations:
  /// histories part where the first incarnation begins that the other side does not know. Nil: they share none.
  ///
  /// - Parameters:
  ///   - other: what the device knows; a first commit of 0 is one that it was never told.
  ///   - head: the number of this database's newest commit.
  public func lastShared(with other: [Incarnation], head: Int64) -> Int64? {
    let own = Dictionary(incarnations.map { ($0.id, $0.firstCommit) }) { first, _ in first }
    let unknown = other.filter { own[$0.id] == nil }
    guard let newest = other.filter({ own[$0.id] == $0.firstCommit }).map(\.firstCommit).max(),
      unknown.allSatisfy({ $0.firstCommit > 0 })
    else { return nil }
    let theirs = Set(other.map(\.id))
    // Before the newest incarnation that both know there is one history.
    let parting = (unknown + incarnations.filter { !theirs.contains($0.id) }).map(\.firstCommit).filter { $0 > newest }
    return min(head, parting.min().map { $0 - 1 } ?? head)
  }
}
