import Foundation
import SalvorModel
import SalvorSimulation
import SalvorWire
import Testing

/// How many histories the tests run: `Tools/test` runs a thousand in release, a plain `swift test` some.
private let seeds = ProcessInfo.processInfo.environment["SALVOR_SIMULATION_SEEDS"].flatMap(Int.init) ?? 40

@Suite("The simulator finds what must never be (semantics 11)", .serialized)
struct SimulationTests {
  @Test("the same seed gives the same trace, to the byte: 50 histories twice")
  func sameSeedSameTrace() throws {
    let first = try SimulateProcess.run("--seeds", "1-50", "--json", "--jobs", "1").json
    let second = try SimulateProcess.run("--seeds", "1-50", "--json", "--jobs", "2").json
    #expect(first["histories"]?.integer == 50)
    #expect(first["digest"]?.string?.isEmpty == false)
    #expect(first["digest"] == second["digest"])
    #expect(first["jobs"] == second["jobs"])
    let other = try SimulateProcess.run("--seeds", "51-55", "--json").json
    #expect(other["digest"] != first["digest"])
  }

  @Test("no history breaks a rule, but for those that are known")
  func histories() throws {
    let report = try SimulateProcess.run("--seeds", "1-\(seeds)", "--json").json
    #expect(report["histories"]?.integer == Int64(seeds))
    for violation in report["violations"]?.array ?? [] {
      let seed = UInt64(violation["seed"]?.integer ?? 0)
      let messages = (violation["messages"]?.array ?? []).compactMap(\.string)
      if let story = KnownFindings.story(of: messages) {
        withKnownIssue("\(story) (seed \(seed))") { Issue.record("\(messages)") }
      } else {
        Issue.record("seed \(seed): \(messages)")
      }
    }
  }

  @Test("a fault that is put into the product on purpose is found", arguments: Mutant.quick.map(\.description))
  func mutants(name: String) throws {
    let found = try SimulateProcess.run("--mutant", name, "--seeds", "1-200", "--json").json.array?.first
    #expect(found?["mutant"]?.string == name)
    #expect(found?["seeds"]?.integer != nil, "not found in 200 seeds")
  }

  @Test(
    "a wrong command says what is wrong, and ends with 2",
    arguments: [["--seeds", "9-1"], ["--swarm", "none"], ["--x"]])
  func wrongCommands(arguments: [String]) throws {
    #expect(try SimulateProcess.run(arguments).code == 2)
  }
}

@Suite("What a simulation is made of")
struct SimulationPartTests {
  @Test("a history is what its seed says, and each seed says something else")
  func drawing() {
    let all = Swarm.names["all"] ?? []
    func drawn(_ seed: UInt64) -> History { History.draw(seed: seed, features: all, steps: 45) }
    #expect(drawn(7) == drawn(7))
    #expect(Set((1...50).map { drawn($0).script }).count == 50)
    #expect(drawn(7).steps.count == 45)
  }

  @Test("a step stays what it is where others are left out")
  func leavingOut() {
    let history = History.draw(seed: 3, features: Swarm.names["all"] ?? [], steps: 20)
    let fewer = history.keeping(Array(history.steps.suffix(5)))
    #expect(fewer.steps.map(\.id) == Array(15..<20))
    #expect(fewer.schema == history.schema)
  }

  @Test("virtual days cost nothing, and sleepers wake in order")
  func time() async throws {
    let order = try await onThread {
      let trace = Trace()
      let schedule = SimulationSchedule(SeededGenerator(seed: 1), trace: trace)
      let clock = VirtualClock(schedule)
      let before = schedule.now
      let order = try schedule.run(jobsMax: 10_000) {
        await withTaskGroup(of: Int64.self) { group in
          for days: Int64 in [3, 1, 2] {
            group.addTask {
              try? await clock.sleep(milliseconds: days * 86_400_000)
              return days
            }
          }
          var order: [Int64] = []
          for await days in group { order.append(days) }
          return order
        }
      }
      #expect(schedule.now - before == 3 * 86_400_000)
      return order
    }
    #expect(order == [1, 2, 3])
  }

  @Test("who goes next follows from the seed")
  func order() async throws {
    func order(_ seed: UInt64) async throws -> [Int] {
      try await onThread {
        let schedule = SimulationSchedule(SeededGenerator(seed: seed), trace: Trace())
        return try schedule.run(jobsMax: 10_000) {
          await withTaskGroup(of: Int.self) { group in
            for number in 0..<20 { group.addTask { number } }
            var order: [Int] = []
            for await number in group { order.append(number) }
            return order
          }
        }
      }
    }
    #expect(try await order(1) == order(1))
    #expect(try await order(1) != order(2))
  }

  @Test("what waits for nothing that comes is a deadlock, what never ends a livelock")
  func standstill() async throws {
    await #expect(throws: SimulationSchedule.Standstill.self) {
      try await onThread {
        let schedule = SimulationSchedule(SeededGenerator(seed: 1), trace: Trace())
        return try schedule.run(jobsMax: 1000) {
          while true { await Task.yield() }
          return 0
        }
      }
    }
  }
}

/// A simulation takes a thread of its own.
private func onThread<Result: Sendable>(_ body: @escaping @Sendable () throws -> Result) async throws -> Result {
  try await withCheckedThrowingContinuation { continuation in
    Thread { continuation.resume(with: Swift.Result(catching: body)) }.start()
  }
}
