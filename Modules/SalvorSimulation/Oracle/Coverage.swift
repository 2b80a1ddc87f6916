/// What a history met: kinds of steps, states, outcomes, error codes.
public struct Coverage: Sendable, Hashable {
  public private(set) var met: Set<String> = []

  mutating func meet(_ what: String) { met.insert(what) }
}

/// How often things were met over many histories, and which of them met one another.
public struct CoverageTable: Sendable {
  public private(set) var histories = 0
  public private(set) var counts: [String: Int] = [:]
  private var pairs: Set<String> = []

  public init() {}

  public mutating func add(_ coverage: Coverage, _ swarm: Swarm) {
    histories += 1
    let all = (Array(coverage.met) + swarm.features.map { "feature " + $0.rawValue }).sorted()
    for what in all { counts[what, default: 0] += 1 }
    let features = all.filter { $0.hasPrefix("feature ") }
    for (place, a) in features.enumerated() {
      for b in features[(place + 1)...] { pairs.insert(a + "|" + b) }
    }
  }

  /// Pairs of features that were never in one history.
  public var pairsNeverMet: [String] {
    let names = Feature.allCases.filter { !Feature.healing.contains($0) }.map { "feature " + $0.rawValue }.sorted()
    var never: [String] = []
    for (place, a) in names.enumerated() {
      for b in names[(place + 1)...] where !pairs.contains(a + "|" + b) {
        never.append(a.dropFirst(8) + " with " + b.dropFirst(8))
      }
    }
    return never
  }
}
