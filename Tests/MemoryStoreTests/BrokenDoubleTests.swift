import MemoryStore
import SalvorContracts
import SalvorStorage
import Testing

/// The suites are tested with stores that they must catch (architecture, rule 6).
@Suite struct BrokenDoubleTests {
  /// Cases of thousands of rows: eight of ten seconds that the suite of servers takes.
  private static let longest = [
    "however much was written since", "among many others, ends as its newest version",
    "count for offers of many rows, too", "a row that is too large to be sent", "a circle in a large upload",
  ]

  /// Whether any case fails; it ends with the first. The longest ones come last.
  static func isCaught<Subject>(_ cases: [ContractCase<Subject>], _ subject: Subject) async -> Bool {
    func isLong(_ rule: ContractCase<Subject>) -> Bool {
      longest.contains { String(describing: rule).contains($0) }
    }
    for rule in cases.filter({ !isLong($0) }) + cases.filter(isLong) {
      do {
        try await rule.run(subject)
      } catch {
        return true
      }
    }
    return false
  }

  // What is wrong with snapshots is caught by a suite of its own, on stores that make them.
  @Test(
    "the server suite catches every broken store",
    arguments: BrokenServerStore.Fault.allCases.filter {
      !BrokenServerStore.Fault.ofSnapshots.union(BrokenServerStore.Fault.ofSimulations).contains($0)
    })
  func catches(_ fault: BrokenServerStore.Fault) async {
    let broken = memoryServer.wrapped { BrokenServerStore($0, fault) }
    #expect(await Self.isCaught(ServerStoreContract.cases, broken))
  }

  @Test(
    "the client suite catches every broken store",
    arguments: BrokenClientStore.Fault.allCases.filter { !BrokenClientStore.Fault.ofSnapshots.contains($0) })
  func catches(_ fault: BrokenClientStore.Fault) async {
    let broken = memoryClient.wrapped { BrokenClientStore($0, fault) }
    #expect(await Self.isCaught(ClientStoreContract.cases, broken))
  }

  /// Faults of one side that a pair shows, too: rows that differ, requests applied twice, keys leaked.
  @Test(
    "the pair suite catches broken servers",
    arguments: [
      BrokenServerStore.Fault.dropsRefusals, .appliesResendsTwice, .acceptsOutOfScope, .showsOutOfScope, .leaksKeys,
      .echoes,
      .forgetsTombstones, .forgetsDepartures, .endsDownloadsEarly, .roundsIntegers,
    ])
  func pairCatches(_ fault: BrokenServerStore.Fault) async {
    let broken = StorePairSubject(client: memoryClient, server: memoryServer.wrapped { BrokenServerStore($0, fault) })
    #expect(await Self.isCaught(StorePairContract.cases, broken))
  }

  @Test(
    "the pair suite catches broken clients",
    arguments: [
      BrokenClientStore.Fault.losesRefusals, .losesAcceptedWrites, .resendsOtherBytes, .losesLastChunk,
      .ignoresDepartures, .ignoresFull, .keepsSessionsOpen, .losesCursors,
    ])
  func pairCatches(_ fault: BrokenClientStore.Fault) async {
    let broken = StorePairSubject(client: memoryClient.wrapped { BrokenClientStore($0, fault) }, server: memoryServer)
    #expect(await Self.isCaught(StorePairContract.cases, broken))
  }

  /// The random histories, too, must see what a suite sees.
  @Test(
    "the comparison catches broken stores",
    arguments: [BrokenServerStore.Fault.forgetsTombstones, .splitsGroups, .seesNoConflicts, .showsOutOfScope, .echoes])
  func comparisonCatches(_ fault: BrokenServerStore.Fault) async {
    let broken = StorePairSubject(client: memoryClient, server: memoryServer.wrapped { BrokenServerStore($0, fault) })
    let comparison = StoreComparison(subject: broken, specification: memoryPair)
    #expect(await Self.isCaught(withinSeeds: 160) { try await comparison.run(seed: $0) })
  }

  @Test(
    "the comparison about conflicts catches broken stores",
    arguments: [
      BrokenServerStore.Fault.asksNoPolicy, .forgetsConflicts, .resolvesNothing, .resolvesForTheClientAlways,
    ])
  func conflictComparisonCatches(_ fault: BrokenServerStore.Fault) async {
    let broken = StorePairSubject(client: memoryClient, server: memoryServer.wrapped { BrokenServerStore($0, fault) })
    let comparison = StoreComparison(subject: broken, specification: memoryPair, about: .conflicts)
    #expect(await Self.isCaught(withinSeeds: 40) { try await comparison.run(seed: $0) })
  }

  @Test(
    "the comparison of recoveries catches broken stores",
    arguments: [
      BrokenClientStore.Fault.archivesNoLostRows, .takesLostForDeleted, .namesOnlyTheFirstKeys, .comparesCounts,
      .keepsLostCommits, .discardsWhatWaits,
    ])
  func recoveryComparisonCatches(_ fault: BrokenClientStore.Fault) async {
    let broken = StorePairSubject(client: memoryClient.wrapped { BrokenClientStore($0, fault) }, server: memoryServer)
    let comparison = RecoveryComparison(subject: broken, specification: memoryPair)
    #expect(await Self.isCaught(withinSeeds: 60) { try await comparison.run(seed: $0) })
  }

  private static func isCaught(
    withinSeeds count: UInt64, _ run: (_ seed: UInt64) async throws -> Void
  ) async -> Bool {
    for seed in 1...count {
      do { try await run(seed) } catch { return true }
    }
    return false
  }
}
