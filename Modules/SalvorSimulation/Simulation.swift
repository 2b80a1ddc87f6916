import SalvorModel
import SalvorStorage

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Runs histories.
public struct Simulation: Sendable {
  /// What came of one history.
  public struct Result: Sendable {
    /// What was run.
    public var history: History
    /// What must never be and was: at most 20, and a standstill besides; empty: nothing was found.
    public var violations: [Violation]
    /// What the history met, also where it was broken off.
    public var coverage: Coverage
    /// Of the trace: the same history gives the same one.
    public var digest: String
    /// The lines of the trace; empty unless `run` was told to keep them.
    public var lines: [String]
    /// How many jobs of tasks and actors were run; 0 where the world could not be made.
    public var jobs: Int
  }

  /// What the histories run on: modules, databases, a directory.
  public var platform: SimulationPlatform
  /// What each seed draws from (`Swarm.names`).
  public var features: Set<Feature>
  /// How many steps a history has.
  public var steps: Int
  /// A fault that was put into the product on purpose; nil: none.
  public var mutant: Mutant?
  /// Who looks on (`tell` of `run`) is told after each step which rows are others on the server and on each device.
  public var tellsRows = false
  /// So many jobs of tasks and actors count as a livelock.
  public var jobsMax = 3_000_000

  /// Without a mutant, and with 45 steps where nothing else is said.
  public init(_ platform: SimulationPlatform, features: Set<Feature>, steps: Int = 45) {
    self.platform = platform
    self.features = features
    self.steps = steps
  }

  /// The history of a seed. The same seed, features and steps give the same history.
  public func history(_ seed: UInt64) -> History { History.draw(seed: seed, features: features, steps: steps) }

  /// Runs a history on this thread.
  public func run(
    _ history: History, keepsLines: Bool = false, tell: (@Sendable (String) -> Void)? = nil
  ) -> Result {
    let trace = Trace(keepsLines: keepsLines, tell: tell)
    var result = Result(
      history: history, violations: [], coverage: Coverage(), digest: "", lines: [], jobs: 0)
    do {
      let world = try World(history, platform, trace: trace, mutant: mutant)
      world.tellsRows = tellsRows
      defer { world.removeFiles() }
      do {
        result.violations = try world.schedule.run(jobsMax: jobsMax) { [platform] in
          let found = Mutex<[Violation]>([])
          await FileSystem.$disk.withValue(FilesOfMachines(letGo: platform.letGo)) {
            await platform.onSchedule(world.schedule) {
              let violations = await world.run()
              found.withLock { $0 = violations }
            }
          }
          return found.withLock { $0 }
        }
      } catch {
        result.violations = world.oracle.violations
        result.violations.append(
          Violation(rule: .standstill, message: "\(error)", step: world.oracle.step))
      }
      result.coverage = world.coverage
      result.jobs = world.schedule.jobsRun
    } catch {
      result.violations = [Violation(rule: .unexpected, message: "\(error)", step: nil)]
    }
    trace.add("jobs \(result.jobs)")
    for violation in result.violations { trace.add("\(violation)") }
    result.digest = trace.digest
    result.lines = trace.lines
    return result
  }

  /// The shortest history found that still breaks the same rule: steps are left out as long as it does.
  public func shrink(_ history: History, rule: Violation.Rule, progress: (Int) -> Void = { _ in }) -> History {
    func fails(_ steps: [Step]) -> Bool {
      run(history.keeping(steps)).violations.contains { $0.rule == rule }
    }
    var steps = history.steps
    if let last = run(history).violations.first(where: { $0.rule == rule })?.step {
      let shorter = steps.filter { $0.id <= last }
      if fails(shorter) { steps = shorter }
    }
    var size = max(1, steps.count / 2)
    while true {
      var place = 0
      var hasShrunk = false
      while place < steps.count {
        var fewer = steps
        fewer.removeSubrange(place..<min(place + size, steps.count))
        if fails(fewer) {
          steps = fewer
          hasShrunk = true
          progress(steps.count)
        } else {
          place += size
        }
      }
      if size == 1 && !hasShrunk { break }
      if !hasShrunk || size > steps.count { size = max(1, size / 2) }
    }
    return shrinkStatements(history.keeping(steps), fails)
  }

  /// Then statements are left out of the transactions that remain.
  private func shrinkStatements(_ history: History, _ fails: ([Step]) -> Bool) -> History {
    var steps = history.steps
    for place in steps.indices {
      var index = 0
      while case let count = steps[place].statements.count, index < count, count > 1 {
        var fewer = steps
        fewer[place].removeStatement(index)
        if fails(fewer) { steps = fewer } else { index += 1 }
      }
    }
    return history.keeping(steps)
  }
}

extension Step {
  fileprivate var statements: [String] {
    switch action {
    case .write(_, let statements), .program(let statements): statements
    default: []
    }
  }

  fileprivate mutating func removeStatement(_ index: Int) {
    switch action {
    case .write(let device, var statements):
      statements.remove(at: index)
      action = .write(device: device, statements: statements)
    case .program(var statements):
      statements.remove(at: index)
      action = .program(statements: statements)
    default: return
    }
  }
}

extension History {
  /// For a person who does it by hand: the schema, the devices, and a line for each step.
  public var script: String {
    var lines = ["# schema.json5", schema.text, ""]
    if !schema.serverCode.isEmpty { lines += ["# on the server"] + schema.serverCode + [""] }
    if schema.hasCode { lines += ["# triggers on each device"] + schema.applicationTriggers() + [""] }
    for (number, device) in devices.enumerated() {
      let replaced = device.replacedStrategy.map { ", server-replaced: \($0)" } ?? ""
      lines.append(
        "# d\(number): principal \(device.principal), strategy \(device.strategy)\(replaced), individualDeletion \(device.individualDeletion), optimise \(device.optimises)"
      )
    }
    lines += [""] + steps.map(\.description)
    lines.append("# then every device: salvor sync, until nothing moves; compare")
    return lines.joined(separator: "\n")
  }
}
