import Foundation
import SalvorSimulation
import SalvorModel

/// Runs histories on several threads, each history on one.
final class Runner: Sendable {
  private struct State {
    var next: UInt64
    var outcome = Outcome()
  }

  /// What came of all of them.
  struct Outcome: Sendable {
    var coverage = CoverageTable()
    /// By seed.
    var violations: [UInt64: [Violation]] = [:]
    var jobs = 0
    /// Of the traces of all of them, whatever the order in which they ended.
    var digest: UInt64 = 0
    var seconds = 0.0
  }

  private let simulation: Simulation
  private let last: UInt64?
  private let deadline: Date?
  private let stopsAtFirst: Bool
  private let found: @Sendable (UInt64, Simulation.Result) -> Void
  private let state: Mutex<State>

  /// - Parameters:
  ///   - last: nil: until the time is over.
  ///   - found: told of each history that broke a rule.
  init(
    _ simulation: Simulation, first: UInt64, last: UInt64?, minutes: Double?, stopsAtFirst: Bool = false,
    found: @escaping @Sendable (UInt64, Simulation.Result) -> Void = { _, _ in }
  ) {
    self.simulation = simulation
    self.last = last
    deadline = minutes.map { Date().addingTimeInterval($0 * 60) }
    self.found = found
    self.stopsAtFirst = stopsAtFirst
    state = Mutex(State(next: first))
  }

  /// Blocks until all have run.
  func run(threads count: Int) -> Outcome {
    let begun = Date()
    let group = DispatchGroup()
    for _ in 0..<max(1, count) {
      group.enter()
      let thread = Thread {
        self.work()
        group.leave()
      }
      thread.stackSize = 16 << 20
      thread.start()
    }
    group.wait()
    return state.withLock { state in
      state.outcome.seconds = Date().timeIntervalSince(begun)
      return state.outcome
    }
  }

  private func next() -> UInt64? {
    state.withLock { state in
      if stopsAtFirst, !state.outcome.violations.isEmpty { return nil }
      if let deadline, Date() >= deadline { return nil }
      if let last, state.next > last { return nil }
      defer { state.next += 1 }
      return state.next
    }
  }

  private func work() {
    while let seed = next() {
      let result = simulation.run(simulation.history(seed))
      state.withLock { state in
        state.outcome.coverage.add(result.coverage, result.history.swarm)
        state.outcome.jobs += result.jobs
        state.outcome.digest ^= (UInt64(result.digest, radix: 16) ?? 0) &* (seed &* 2 &+ 1)
        if !result.violations.isEmpty { state.outcome.violations[seed] = result.violations }
      }
      if !result.violations.isEmpty { found(seed, result) }
    }
  }
}
