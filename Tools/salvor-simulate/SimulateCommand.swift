import Foundation
import SalvorModel
import SalvorSimulation
import SalvorWire

@main
enum SimulateCommand {
  static func main() {
    beginWithFixedHashing()
    let options: Options
    do {
      let arguments = Array(CommandLine.arguments.dropFirst())
      if arguments.contains("--help") || arguments.contains("-h") {
        say(Options.usage)
        return
      }
      options = try Options(arguments)
    } catch {
      FileHandle.standardError.write(Data("simulate: \(error). See --help.\n".utf8))
      exit(2)
    }
    switch options.task {
    case .seeds: exit(runSeeds(options))
    case .replay(let seed): exit(replay(seed, options))
    case .shrink(let seed): exit(shrink(seed, options))
    case .mutants: exit(mutants(options))
    }
  }

  /// Sets and dictionaries have another order in each process, and so would what is drawn from them: the process begins
  /// anew with an order that is always the same.
  private static func beginWithFixedHashing() {
    let name = "SWIFT_DETERMINISTIC_HASHING"
    guard getenv(name) == nil else { return }
    setenv(name, "1", 1)
    // SQLite asks for memory and gives it back all the time: keeping it at hand saves a sixth of a history (glibc).
    let tunables = ["tcache_count=512", "trim_threshold=268435456", "mmap_threshold=268435456", "top_pad=16777216"]
    setenv("GLIBC_TUNABLES", tunables.map { "glibc.malloc." + $0 }.joined(separator: ":"), 0)
    var arguments = CommandLine.arguments.map { strdup($0) } + [nil]
    execv("/proc/self/exe", &arguments)
    if let path = arguments[0] { execvp(path, &arguments) }
  }

  /// A line at once, also where it goes into a file.
  static func say(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }

  static var platform: SimulationPlatform {
    let isThere = access("/dev/shm", W_OK) == 0
    return .sqlite(in: isThere ? "/dev/shm" : NSTemporaryDirectory())
  }

  static func simulation(_ options: Options) -> Simulation {
    Simulation(platform, features: options.features, steps: options.steps)
  }

  private static func runSeeds(_ options: Options) -> Int32 {
    let isJSON = options.isJSON
    let runner = Runner(
      simulation(options), first: options.first, last: options.minutes == nil ? options.last : nil,
      minutes: options.minutes
    ) { seed, result in
      if !isJSON { for violation in result.violations.prefix(3) { say("seed \(seed): \(violation)") } }
    }
    let threads = options.jobs ?? ProcessInfo.processInfo.activeProcessorCount
    let outcome = runner.run(threads: threads)
    let report = Report(outcome, threads: threads, swarm: options.swarm)
    say(isJSON ? String(decoding: report.json.bytes, as: UTF8.self) : report.text)
    return outcome.violations.isEmpty ? 0 : 1
  }

  private static func replay(_ seed: UInt64, _ options: Options) -> Int32 {
    var simulation = self.simulation(options)
    simulation.tellsRows = options.tellsRows
    var history = simulation.history(seed)
    if let only = options.only { history = history.keeping(history.steps.filter { only.contains($0.id) }) }
    if !options.isJSON { say(history.schema.text) }
    let show: @Sendable (String) -> Void = { line in say(line) }
    let result = simulation.run(history, tell: options.isJSON ? nil : show)
    let violations = result.violations
    if options.isJSON {
      let found = violations.map { JSONValue.string("\($0)") }
      let number = JSONValue.integer(Int64(bitPattern: seed))
      let digest = JSONValue.string(result.digest)
      let json: JSONValue = [
        "seed": number, "digest": digest, "jobs": .integer(Int64(result.jobs)), "violations": .array(found),
      ]
      say(String(decoding: json.bytes, as: UTF8.self))
    } else {
      say("digest \(result.digest)")
    }
    return violations.isEmpty ? 0 : 1
  }

  private static func shrink(_ seed: UInt64, _ options: Options) -> Int32 {
    let simulation = self.simulation(options)
    let history = simulation.history(seed)
    let result = simulation.run(history)
    guard let violation = result.violations.first else {
      say("seed \(seed) breaks no rule")
      return 0
    }
    let short = simulation.shrink(history, rule: violation.rule) { count in
      FileHandle.standardError.write(Data("\(count) steps\n".utf8))
    }
    say(short.script)
    for violation in simulation.run(short).violations { say("# \(violation)") }
    say("# --replay \(seed) --only \(short.steps.map { String($0.id) }.joined(separator: ","))")
    return 1
  }

  /// How many seeds it takes to find each fault that was put in on purpose. A seed that breaks a rule without the fault,
  /// too, does not count.
  private static func mutants(_ options: Options) -> Int32 {
    let threads = options.jobs ?? ProcessInfo.processInfo.activeProcessorCount
    var missed = 0
    var rows: [JSONValue] = []
    for mutant in options.mutants {
      let swarm = options.chosenSwarm ?? mutant.swarm
      let simulation = Simulation(platform, features: Options.features(of: swarm), steps: options.steps)
      let search = MutantSearch(simulation, mutant, first: options.first, last: options.last)
      let finding = search.run(threads: threads)
      if finding == nil { missed += 1 }
      if options.isJSON {
        rows.append([
          "mutant": .string(mutant.description), "swarm": .string(swarm),
          "seeds": finding.map { .integer(Int64($0.seeds)) } ?? .null,
          "rule": finding.map { .string($0.violation.rule.rawValue) } ?? .null,
        ])
      } else {
        let what =
          finding.map { "\($0.seeds)\t\($0.violation)" } ?? "-\tnot found in \(options.last - options.first + 1) seeds"
        say("\(mutant)\t\(swarm)\t\(what)")
      }
    }
    if options.isJSON { say(String(decoding: JSONValue.array(rows).bytes, as: UTF8.self)) }
    return missed == 0 ? 0 : 1
  }
}
