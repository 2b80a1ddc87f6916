/// What a history met: kinds of steps, states, outcomes, error codes.
public struct Coverage: Sendable, Hashable {
  /// Short texts without values, e.g. `outcome recovered`, `error unreachable`, `network delayed`.
  public private(set) var met: Set<String> = []

  mutating func meet(_ what: String) { met.insert(what) }
}

/// How often things were met over many histories, and which of them met one another.
public struct CoverageTable: Sendable {
  /// How many histories were added.
  public private(set) var histories = 0
  /// In how many histories each text of `Coverage.met` was met, and each feature as `feature NAME`.
  public private(set) var counts: [String: Int] = [:]
  private var pairs: Set<String> = []

  /// No history was added yet.
  public init() {}

  /// Counts one history: what it met, and the features of its swarm.
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
