import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

func environment(_ name: String) -> UInt64? {
  getenv(name).flatMap { UInt64(String(cString: $0)) }
}

@Suite struct CaptureFuzzTests {
  static let shards = 4
  /// SALVOR_FUZZ_HISTORIES: how many; SALVOR_FUZZ_SEED: the first (or, with one history, the only) seed.
  static let histories = environment("SALVOR_FUZZ_HISTORIES") ?? 2000
  static let firstSeed = environment("SALVOR_FUZZ_SEED") ?? 1

  @Test(arguments: 0..<shards)
  func afterEveryStatementTheLogGivesTheTablesBeforeAndAfterIt(shard: Int) throws {
    for seed in stride(from: UInt64(shard), to: Self.histories, by: Self.shards).map({ Self.firstSeed &+ $0 }) {
      var history = try CaptureHistory(seed: seed)
      do {
        try history.run(14)
      } catch let fault as CaptureFault {
        Issue.record(
          "SALVOR_FUZZ_SEED=\(seed) SALVOR_FUZZ_HISTORIES=1 world \(history.world.name): \(fault)\n\(history.statements.joined(separator: ";\n"))"
        )
        return
      }
    }
  }

  /// The harness sees faults: without the trigger that keeps rows in the way, REPLACE loses what it removed.
  @Test func withoutTheBeforeInsertTriggerHistoriesFail() throws {
    var failures = 0
    for seed in 1...UInt64(60) {
      var history = try CaptureHistory(seed: seed, withoutBeforeInsert: true)
      do { try history.run(14) } catch is CaptureFault { failures += 1 }
    }
    #expect(failures >= 6)
  }
}
