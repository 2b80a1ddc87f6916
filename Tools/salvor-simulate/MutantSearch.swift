import SalvorSimulation

/// Looks for the first seed on which a fault breaks a rule that is not broken without it.
struct MutantSearch {
  struct Finding {
    /// How many seeds were run.
    var seeds: UInt64
    var violation: Violation
  }

  private let plain: Simulation
  private let mutated: Simulation
  private let first: UInt64
  private let last: UInt64

  init(_ simulation: Simulation, _ mutant: Mutant, first: UInt64, last: UInt64) {
    plain = simulation
    var mutated = simulation
    mutated.mutant = mutant
    self.mutated = mutated
    (self.first, self.last) = (first, last)
  }

  func run(threads: Int) -> Finding? {
    var next = first
    while next <= last {
      let runner = Runner(mutated, first: next, last: last, minutes: nil, stopsAtFirst: true)
      guard let (seed, violations) = runner.run(threads: threads).violations.min(by: { $0.key < $1.key }) else {
        return nil
      }
      let known = Set(plain.run(plain.history(seed)).violations)
      if let violation = violations.first(where: { !known.contains($0) }) {
        return Finding(seeds: seed - first + 1, violation: violation)
      }
      next = seed + 1
    }
    return nil
  }
}
