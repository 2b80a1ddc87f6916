import Foundation
import SalvorModel
import SalvorStorage
import SalvorWire
import Testing

@testable import SalvorSimulation

/// How many histories of each swarm the tests run: `Tools/test` as many as take 90 s on two quiet cores, a plain `swift test` some.
private let seeds = ProcessInfo.processInfo.environment["SALVOR_SIMULATION_SEEDS"].flatMap(Int.init) ?? 40

/// The faults of healing, each with the swarm and the seeds among which it is found.
private let healingFaults: [(mutant: Mutant, swarm: String, seeds: String)] = [
  (.forgottenLedger, "heal", "1-15"), (.device(.forgetsWhatItWrote), "heal", "1-15"),
  (.server(.ranksNothing), "heal", "63"), (.server(.ordersIncarnationsBackwards), "heal", "2"),
  (.server(.overlooksWrites), "heal", "36"), (.server(.putsOffersAfterTheQueue), "heal", "63"),
  (.server(.dropsWaiting), "consent", "14"),
]

@Suite("The simulator finds what must never be (semantics 11)", .serialized)
struct SimulationTests {
  @Test("the same seed gives the same trace, to the byte: 25 histories twice")
  func sameSeedSameTrace() throws {
    let first = try SimulateProcess.run("--seeds", "1-25", "--json", "--jobs", "1").json
    let second = try SimulateProcess.run("--seeds", "1-25", "--json", "--jobs", "2").json
    #expect(first["histories"]?.integer == 25)
    #expect(first["digest"]?.string?.isEmpty == false)
    #expect(first["digest"] == second["digest"])
    #expect(first["jobs"] == second["jobs"])
    let other = try SimulateProcess.run("--seeds", "26", "--json").json
    #expect(other["digest"] != first["digest"])
    expectKnown(first, swarm: "all")
  }

  @Test("no history breaks a rule, but for those that are known")
  func histories() throws {
    // The first 25 are those above.
    let report = try SimulateProcess.run("--seeds", "26-\(max(26, seeds))", "--json").json
    #expect(report["histories"]?.integer == Int64(max(26, seeds) - 25))
    expectKnown(report, swarm: "all")
  }

  private func expectKnown(_ report: JSONValue, swarm: String) {
    for violation in report["violations"]?.array ?? [] {
      let seed = UInt64(violation["seed"]?.integer ?? 0)
      let messages = (violation["messages"]?.array ?? []).compactMap(\.string)
      if let story = KnownFindings.story(of: messages, swarm: swarm, seed: seed) {
        withKnownIssue("\(story) (seed \(seed))") { Issue.record("\(messages)") }
      } else {
        Issue.record("seed \(seed): \(messages)")
      }
    }
  }

  @Test("no power cut and no disk that fails breaks a rule (semantics 5 and 9)")
  func disks() throws {
    let report = try SimulateProcess.run("--swarm", "disks", "--seeds", "1-\(seeds)", "--json").json
    #expect((report["met"]?["disk power-cut"]?.integer ?? 0) > 0)
    #expect((report["met"]?["disk power-cut of the server"]?.integer ?? 0) > 0)
    expectKnown(report, swarm: "disks")
  }

  @Test(
    "no history of scopes, subscriptions, flag columns or blobs breaks a rule (semantics 3, 4 and 7)",
    arguments: ["reach", "columns"])
  func columnsAndReach(swarm: String) throws {
    let report = try SimulateProcess.run("--swarm", swarm, "--seeds", "1-\(seeds / 2)", "--json").json
    #expect(report["histories"]?.integer == Int64(seeds / 2))
    expectKnown(report, swarm: swarm)
  }

  @Test("no history breaks a rule where groups come as files (semantics 4, 7 and 9)")
  func files() throws {
    let report = try SimulateProcess.run("--swarm", "files", "--seeds", "1-\(seeds / 2)", "--json").json
    #expect((report["met"]?["group by file"]?.integer ?? 0) > 0)
    expectKnown(report, swarm: "files")
  }

  @Test("no history breaks a rule where some groups are synchronized alone (semantics 4)")
  func groups() throws {
    // 43 and 61: rows below another group's rows, lost with a synchronization of one group (decision 178).
    for seeds in ["1-\(seeds / 2)", "43", "61"] {
      let report = try SimulateProcess.run("--swarm", "groups", "--seeds", seeds, "--json").json
      #expect((report["met"]?["syncGroups"]?.integer ?? 0) > 0)
      expectKnown(report, swarm: "groups")
    }
  }

  @Test("no history breaks a rule where schemas change and applications rebuild their tables (semantics 5)")
  func schemas() throws {
    let report = try SimulateProcess.run("--swarm", "schemas", "--seeds", "1-\(seeds / 2)", "--json").json
    for met in [
      "schema renameTable", "schema renameColumn", "schema dropTable", "schema dropColumn", "evolveDevice", "rebuild",
    ] {
      #expect((report["met"]?[met]?.integer ?? 0) > 0, "\(met)")
    }
    expectKnown(report, swarm: "schemas")
  }

  @Test(
    "no history breaks a rule where others hold transactions open, write by triggers, and close circles of references",
    arguments: ["beside", "storm"])
  func beside(swarm: String) throws {
    let report = try SimulateProcess.run("--swarm", swarm, "--seeds", "1-\(seeds / 3)", "--json").json
    #expect((report["met"]?["writer stays open"]?.integer ?? 0) > 0)
    #expect((report["met"]?["feature circles"]?.integer ?? 0) > 0)
    expectKnown(report, swarm: swarm)
    guard swarm == "storm" else { return }
    // What depended on a refused request goes with a later upload of the same synchronization (768). Marks in a circle of tables (1480,
    // 2062), a conflict version that comes back before its row (1769). The others were the oracle's: rows that left a device (1358, 1427),
    // triggers of the server's (1592), a device with another one's file (1789), a table that was rebuilt (2050), a program's REPLACE (2605), an offer that is withdrawn (2842),
    // a row that a trigger of the server's makes (6002).
    // The end of a capture pause that a power cut takes back (2698, 2739). Rows that reference one another, one of which came by a file (6160).
    for seed in [
      "768", "1358", "1427", "1480", "1592", "1769", "1789", "2050", "2062", "2605", "2698", "2739", "2842", "6002",
      "6160",
    ] {
      expectKnown(try SimulateProcess.run("--swarm", swarm, "--seeds", seed, "--json").json, swarm: swarm)
    }
  }

  @Test("the specification of the stores, which does the same beside, has the same rows (semantics 2 to 8)")
  func specification() throws {
    let report = try SimulateProcess.run("--swarm", "specification", "--seeds", "1-\(seeds / 2)", "--json").json
    #expect((report["met"]?["specification until the end"]?.integer ?? 0) > 0)
    expectKnown(report, swarm: "specification")
    // What OR FAIL leaves of a statement, and what a transaction did besides what a savepoint took back.
    for seeds in ["31", "35"] {
      let report = try SimulateProcess.run("--swarm", "specification", "--seeds", seeds, "--json").json
      #expect(report["violations"]?.array?.isEmpty == true, "\(seeds)")
    }
  }

  @Test("no history breaks a rule where chunks are cut, lost and sent again (semantics 4)")
  func chunks() throws {
    let report = try SimulateProcess.run("--swarm", "network", "--seeds", "1-\(seeds / 2)", "--json").json
    #expect((report["met"]?["feature small-chunks"]?.integer ?? 0) > 0)
    expectKnown(report, swarm: "network")
  }

  @Test("what a restore takes comes back, or something newer took its place (semantics 10)")
  func healing() throws {
    // A history of healing is short: 200 of them where the others are 60.
    let report = try SimulateProcess.run("--swarm", "heal", "--seeds", "1-\(seeds * 10 / 3)", "--json").json
    #expect((report["met"]?["lost rows judged"]?.integer ?? 0) > 0)
    expectKnown(report, swarm: "heal")
    // Two devices delete one row, one of them by another key.
    expectKnown(try SimulateProcess.run("--swarm", "heal", "--seeds", "8131628", "--json").json, swarm: "heal")
  }

  @Test("a copy that is written into the file of a server that runs is a restore (semantics 5, 6 and 10)")
  func restoresInPlace() throws {
    let report = try SimulateProcess.run("--swarm", "in-place", "--seeds", "1-\(seeds)", "--json").json
    #expect((report["met"]?["restore in place"]?.integer ?? 0) > 0)
    expectKnown(report, swarm: "in-place")
  }

  @Test("a purge stands where one copy is put into the open file twice; who is told to try again is not wrong")
  func purgesInPlace() throws {
    // What goes with a purged row is purged (9160672).
    for seed in ["9151024", "9151090", "9160672"] {
      expectKnown(try SimulateProcess.run("--swarm", "in-place", "--seeds", seed, "--json").json, swarm: "in-place")
    }
  }

  @Test(
    "the oracle of healing: a lost value that stands beside a newer copy's row, column by column, has come back; a key that a program gives; rows that are compared; two notes in one step",
    arguments: [("heal", "3105"), ("heal", "3342"), ("heal", "8120192"), ("settings", "9251003")])
  func healingMended(swarm: String, seed: String) throws {
    let report = try SimulateProcess.run("--swarm", swarm, "--seeds", seed, "--json").json
    #expect(report["violations"]?.array?.isEmpty == true, "\(report["violations"]?.text ?? "")")
    #expect((report["met"]?["lost rows judged"]?.integer ?? 0) > 0)
  }

  @Test("what was not given back is, once a device or a table is set to, and once only (semantics 10)")
  func healingSettings() throws {
    let report = try SimulateProcess.run("--swarm", "settings", "--seeds", "1-\(seeds / 2)", "--json").json
    #expect((report["met"]?["lost rows judged"]?.integer ?? 0) > 0)
    #expect((report["met"]?["heal changed"]?.integer ?? 0) > 0)
    expectKnown(report, swarm: "settings")
  }

  @Test("what an operator consents to leaves its device, also where the server had held it before (semantics 10)")
  func consent() throws {
    for seeds in ["1-\(max(1, seeds / 6))", "700056"] {
      expectKnown(try SimulateProcess.run("--swarm", "consent", "--seeds", seeds, "--json").json, swarm: "consent")
    }
  }

  @Test(
    "a lost row of a table that has a column more by now is kept, where tables are made anew (it ended the process)")
  func lostRowsOfOlderTables() throws {
    expectKnown(try SimulateProcess.run("--seeds", "901816", "--json").json, swarm: "all")
  }

  @Test(
    "what was found, and is mended",
    arguments: [
      (
        "written while the triggers were away, of rows that no subscription covers any more",
        [901_621, 7_000_593, 7_002_507, 7_006_525]
      ),
      ("before the first download, a row that was sent, and written while the triggers were away", [7_001_484]),
      ("a mark that was set while the triggers were away, and a recovery", [7_008_941, 7_110_724]),
      ("a request that is taken back while the triggers are away, by a client that runs", [7_006_004, 7_006_599]),
      ("a remote ID that was deleted, and whose last download is older than the change log", [7_000_826, 7_001_407]),
      (
        "the oracle: two devices with one remote ID, a displaced request that is refused, one note in many rows",
        [7_001_320, 7_003_628, 7_004_603, 7_009_581, 7_010_541]
      ),
      (
        "the oracle: a row that another device gave back before its own sent it, a file put back from before a column",
        [7_032_725, 7_033_583]
      ),
      ("the delete of a marked row that the server's row needs is kept as a conflict version", [7_030_948]),
      ("the oracle: a queue on two devices, and a new database that knows neither", [7_110_101]),
      ("a row that was dropped, and that a change which waited brought into the subscriptions", [7_150_522]),
      ("written while the triggers were away once more, after a comparison that was cut", [7_163_128]),
    ])
  func mended(story: String, seeds: [Int]) throws {
    for seed in seeds {
      let report = try SimulateProcess.run("--seeds", "\(seed)", "--json").json
      #expect(report["violations"]?.array?.isEmpty == true, "\(story): \(seed)")
    }
  }

  @Test("what was found and is not mended is still what it was", arguments: KnownFindings.all)
  func knownFindings(finding: KnownFindings.Finding) throws {
    let report = try SimulateProcess.run("--swarm", finding.swarm, "--seeds", "\(finding.seed)", "--json").json
    let violations = report["violations"]?.array ?? []
    withKnownIssue("\(finding)") { #expect(violations.isEmpty) }
    expectKnown(report, swarm: finding.swarm)
  }

  @Test("a fault that is put into the product on purpose is found", arguments: Mutant.quick.map(\.description))
  func mutants(name: String) throws {
    let found = try SimulateProcess.run("--mutant", name, "--seeds", "1-200", "--json").json.array?.first
    #expect(found?["mutant"]?.string == name)
    #expect(found?["seeds"]?.integer != nil, "not found in 200 seeds")
  }

  @Test("a fault of healing is found by its named seed", arguments: healingFaults.indices)
  func healingMutants(place: Int) throws {
    let (mutant, swarm, seeds) = healingFaults[place]
    let found = try SimulateProcess.run(
      "--swarm", swarm, "--mutant", mutant.description, "--seeds", seeds, "--json"
    ).json.array?.first
    #expect(found?["seeds"]?.integer != nil, "\(mutant) is not found in the seeds \(seeds)")
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

@Suite("Disks that fail")
struct DiskTests {
  private func file(_ bytes: [UInt8]) throws -> String {
    let path = FileManager.default.temporaryDirectory.appendingPathComponent("disk-\(UUID().uuidString).db").path
    try Data(bytes).write(to: URL(fileURLWithPath: path))
    return path
  }

  /// Writes over a whole file of `count` sectors, syncs it or not, and cuts the power.
  private func cut(_ seed: UInt64, count: Int, grownBy more: Int = 0, syncs: Bool) throws -> [UInt8] {
    let path = try file([UInt8](repeating: 1, count: count * MachineDisk.sector))
    defer { try? FileManager.default.removeItem(atPath: path) }
    let disk = MachineDisk(path, SeededGenerator(seed: seed))
    let size = count * MachineDisk.sector
    let whole = (count + more) * MachineDisk.sector
    let sectors = try #require(disk.unknownSectors(path, 0..<whole))
    disk.willWrite(path, sectors, content: [UInt8](repeating: 1, count: size), size: size)
    try Data([UInt8](repeating: 2, count: whole)).write(to: URL(fileURLWithPath: path))
    if syncs { disk.synced(path) }
    disk.arm(.init(fault: .powerCut, call: 1, times: 1))
    let life = disk.life
    #expect(disk.ask(.write, life: life) == .dead)
    #expect(disk.ask(.read, life: life) == .dead)
    // What a dead process wrote afterwards was never written.
    try Data([9]).write(to: URL(fileURLWithPath: path))
    try disk.revive()
    #expect(disk.ask(.read, life: life) == .dead)
    #expect(disk.ask(.read, life: disk.life) == .done)
    return Array(try Data(contentsOf: URL(fileURLWithPath: path)))
  }

  @Test("a power cut takes any of the sectors that were not synced, each as a whole")
  func unsynced() throws {
    var found: Set<UInt8> = []
    for seed: UInt64 in 1...20 {
      let bytes = try cut(seed, count: 8, syncs: false)
      #expect(bytes.count == 8 * MachineDisk.sector)
      for sector in 0..<8 {
        let part = Set(bytes[sector * MachineDisk.sector..<(sector + 1) * MachineDisk.sector])
        #expect(part.count == 1)
        found.formUnion(part)
      }
    }
    #expect(found == [1, 2])
  }

  @Test("a power cut takes nothing that was synced, and a file that grew may end anywhere")
  func synced() throws {
    var lengths: Set<Int> = []
    for seed: UInt64 in 1...20 {
      #expect(try cut(seed, count: 4, syncs: true) == [UInt8](repeating: 2, count: 4 * MachineDisk.sector))
      lengths.insert(try cut(seed, count: 2, grownBy: 6, syncs: false).count / MachineDisk.sector)
    }
    #expect(lengths.isSubset(of: Set(2...8)) && lengths.count > 2)
  }

  @Test("each fault strikes the calls that it can strike, as often as it should")
  func plans() throws {
    let disk = MachineDisk("/nowhere/x.db", SeededGenerator(seed: 1))
    func answers(_ fault: MachineDisk.Fault, _ call: MachineDisk.Call) -> [MachineDisk.Answer] {
      disk.arm(.init(fault: fault, call: 2, times: 2))
      return (0..<4).map { _ in disk.ask(call, life: disk.life) }
    }
    #expect(answers(.full, .write) == [.done, .full, .full, .done])
    #expect(answers(.full, .read) == [.done, .done, .done, .done])
    #expect(answers(.readError, .read) == [.done, .failed, .failed, .done])
    #expect(answers(.writeError, .sync) == [.done, .failed, .failed, .done])
    #expect(answers(.locked, .lock) == [.done, .locked, .locked, .done])
    disk.arm(nil)
    #expect(disk.ask(.write, life: disk.life) == .done)
  }
}

@Suite("Files that are written past SQLite lose what was not synced, too (semantics 5 and 9)")
struct OwnFileTests {
  /// A file's content after a power cut; nil: there is none.
  private typealias Found = [UInt8]?

  private let old = [UInt8](repeating: 1, count: 1500)
  private let new = [UInt8](repeating: 2, count: 1500)

  /// Puts a new file into the place of an old one, as the identity file and the journal are, and cuts the power in the end.
  private func replace(_ seed: UInt64, syncsFile: Bool, syncsFolder: Bool) throws -> Found {
    let folder = FileManager.default.temporaryDirectory.appendingPathComponent("own-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    let disk = MachineDisk(folder.path + "/d.db", SeededGenerator(seed: seed))
    SimulatedDisks.add(disk)
    defer { SimulatedDisks.remove(disk) }
    let (path, aside) = (disk.path + ".salvor-identity", disk.path + ".salvor-identity.new")
    try Data(old).write(to: URL(fileURLWithPath: path))
    try FileSystem.$disk.withValue(FilesOfMachines(letGo: { _ in })) {
      let file = FileSystem.open(aside, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
      #expect(FileSystem.write(new, to: file, of: aside))
      if syncsFile { #expect(FileSystem.sync(file, of: aside)) }
      close(file)
      #expect(FileSystem.rename(aside, to: path))
      if syncsFolder { FileSystem.syncFolder(of: path) }
      disk.arm(.init(fault: .powerCut, call: 1, times: 1))
      // Whatever is asked for now is not done.
      #expect(!FileSystem.remove(path))
      #expect(FileSystem.open(path, O_RDONLY) < 0)
      try disk.revive()
    }
    return try? Array(Data(contentsOf: URL(fileURLWithPath: path)))
  }

  @Test("what was synced, and its folder, is there; a folder that was not synced may have the file of before")
  func synced() throws {
    var found: Set<Found> = []
    for seed: UInt64 in 1...20 {
      #expect(try replace(seed, syncsFile: true, syncsFolder: true) == new)
      found.insert(try replace(seed, syncsFile: true, syncsFolder: false))
    }
    #expect(found == [old, new])
  }

  @Test("a file that was put in place unsynced may be torn or empty")
  func unsynced() throws {
    let found = Set(try (1...20).map { try replace($0, syncsFile: false, syncsFolder: true) })
    #expect(found.contains { $0 != new && $0 != old })
  }

  @Test("a disk that is full, and one that fails, say so where a file is written")
  func faults() throws {
    let path = FileManager.default.temporaryDirectory.path + "/own-\(UUID().uuidString).db"
    let disk = MachineDisk(path, SeededGenerator(seed: 1))
    SimulatedDisks.add(disk)
    defer {
      SimulatedDisks.remove(disk)
      try? FileManager.default.removeItem(atPath: path + ".salvor-side")
    }
    FileSystem.$disk.withValue(FilesOfMachines(letGo: { _ in })) {
      let file = FileSystem.open(path + ".salvor-side", O_RDWR | O_CREAT, 0o600)
      defer { close(file) }
      for (fault, code) in [(MachineDisk.Fault.full, ENOSPC), (.writeError, EIO)] {
        disk.arm(.init(fault: fault, call: 1, times: 1))
        #expect(!FileSystem.write([1], to: file, of: path + ".salvor-side"))
        #expect(errno == code)
      }
      #expect(FileSystem.write([1], to: file, of: path + ".salvor-side"))
    }
  }
}

/// A simulation takes a thread of its own.
private func onThread<Result: Sendable>(_ body: @escaping @Sendable () throws -> Result) async throws -> Result {
  try await withCheckedThrowingContinuation { continuation in
    Thread { continuation.resume(with: Swift.Result(catching: body)) }.start()
  }
}
