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

  /// Whether any case fails; it ends with the first. The one that `named` begins comes first, and it is the one that fails; the
  /// longest ones come last.
  static func isCaught<Subject>(
    _ cases: [ContractCase<Subject>], _ subject: Subject, named: String? = nil
  ) async -> Bool {
    func isNamed(_ rule: ContractCase<Subject>) -> Bool { named.map { rule.name.hasPrefix($0) } ?? false }
    func isLong(_ rule: ContractCase<Subject>) -> Bool {
      longest.contains { String(describing: rule).contains($0) }
    }
    let others = cases.filter { !isNamed($0) }
    for rule in cases.filter(isNamed) + others.filter({ !isLong($0) }) + others.filter(isLong) {
      do {
        try await rule.run(subject)
      } catch {
        if let named { #expect(isNamed(rule), "CaughtBy says \"\(named)\", and caught it was by \"\(rule.name)\"") }
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
    #expect(await Self.isCaught(ServerStoreContract.cases, broken, named: CaughtBy.server[fault]))
  }

  @Test(
    "the client suite catches every broken store",
    arguments: BrokenClientStore.Fault.allCases.filter { !BrokenClientStore.Fault.ofSnapshots.contains($0) })
  func catches(_ fault: BrokenClientStore.Fault) async {
    let broken = memoryClient.wrapped { BrokenClientStore($0, fault) }
    #expect(await Self.isCaught(ClientStoreContract.cases, broken, named: CaughtBy.client[fault]))
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
    #expect(await Self.isCaught(StorePairContract.cases, broken, named: CaughtBy.pairOfServer[fault]))
  }

  @Test(
    "the pair suite catches broken clients",
    arguments: [
      BrokenClientStore.Fault.losesRefusals, .losesAcceptedWrites, .resendsOtherBytes, .losesLastChunk,
      .ignoresDepartures, .ignoresFull, .keepsSessionsOpen, .losesCursors,
    ])
  func pairCatches(_ fault: BrokenClientStore.Fault) async {
    let broken = StorePairSubject(client: memoryClient.wrapped { BrokenClientStore($0, fault) }, server: memoryServer)
    #expect(await Self.isCaught(StorePairContract.cases, broken, named: CaughtBy.pairOfClient[fault]))
  }

  /// The random histories, too, must see what a suite sees.
  @Test(
    "the comparison catches broken stores",
    arguments: [BrokenServerStore.Fault.forgetsTombstones, .splitsGroups, .seesNoConflicts, .showsOutOfScope, .echoes])
  func comparisonCatches(_ fault: BrokenServerStore.Fault) async {
    let broken = StorePairSubject(client: memoryClient, server: memoryServer.wrapped { BrokenServerStore($0, fault) })
    let comparison = StoreComparison(subject: broken, specification: memoryPair)
    // The first seed that shows it.
    let first: UInt64 = fault == .echoes ? 27 : 1
    #expect(await Self.isCaught(withinSeeds: 160, first: first) { try await comparison.run(seed: $0) })
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
    withinSeeds count: UInt64, first: UInt64 = 1, _ run: (_ seed: UInt64) async throws -> Void
  ) async -> Bool {
    for seed in [first] + (1...count).filter({ $0 != first }) {
      do { try await run(seed) } catch { return true }
    }
    return false
  }
}
