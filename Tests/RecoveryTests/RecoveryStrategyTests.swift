import CopyAndResubscribeRecovery
import DiscardUnsyncedChangesRecovery
import Foundation
import ManualRecovery
import ModuleProgram
import ProgramRecovery
import RecoverUnsyncedChangesRecovery
import RecreateRecovery
import SalvorContracts
import SalvorRecovery
import SalvorStorage
import Testing
import UploadThenRecreateRecovery

/// The strategies that come with Salvor, by what a test's line shows of them.
private let strategies: [String: any RecoveryStrategy] = [
  "recreate": RecreateRecovery(),
  "copy-and-resubscribe": CopyAndResubscribeRecovery(),
  "upload-then-recreate": UploadThenRecreateRecovery(),
  "upload-then-recreate, then copy-and-resubscribe": UploadThenRecreateRecovery(then: .copyAndResubscribe),
  "recover-unsynced-changes": RecoverUnsyncedChangesRecovery(),
  "recover-or-discard-unsynced-changes": RecoverUnsyncedChangesRecovery(orDiscard: true),
  "discard-unsynced-changes": DiscardUnsyncedChangesRecovery(),
  "manual": ManualRecovery(),
  // In Python.
  "program": ProgramRecovery(
    ModuleProgram(
      path: URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appendingPathComponent("Examples/module-program/plan.py").path,
      timeoutSeconds: 60),
    guarantees: RecoverUnsyncedChangesRecovery().guarantees),
]

/// As many worlds at a time as a small machine has files and processors for.
private actor Gate {
  private var free = 3
  private var waiting: [CheckedContinuation<Void, Never>] = []

  func enter() async {
    if free > 0 { free -= 1 } else { await withCheckedContinuation { waiting.append($0) } }
  }

  func leave() {
    if waiting.isEmpty { free += 1 } else { waiting.removeFirst().resume() }
  }
}

private let gate = Gate()
private let isLong = ProcessInfo.processInfo.environment["SALVOR_LONG_TESTS"] == "1"

private func run(
  _ rule: RecoveryStrategyContract.Case, _ name: String, _ stores: StorePairSubject, placeStride: Int = 1,
  damage: @escaping @Sendable (any RecoveringClientStore) throws -> Void
) async throws {
  let strategy = try #require(strategies[name])
  await gate.enter()
  do {
    try await rule.run(
      RecoverySubject(
        strategy, stores: stores, known: Set(strategies.values.map(\.name)), placeStride: placeStride, damage: damage))
  } catch {
    await gate.leave()
    throw error
  }
  await gate.leave()
}

@Suite struct RecoveryStrategyTests {
  /// Of the places where a recovery can be struck, one in eight here and every other one on the specification;
  /// SALVOR_LONG_TESTS=1, or `salvor contract recovery-strategy NAME`, tries every one.
  @Test("RecoveryStrategyContract on SQLite", arguments: strategies.keys.sorted(), RecoveryStrategyContract.cases)
  func keepsTheContract(_ name: String, _ rule: RecoveryStrategyContract.Case) async throws {
    try await run(rule, name, sqliteStores, placeStride: isLong ? 1 : 8, damage: overwriteFile)
  }

  @Test(
    "RecoveryStrategyContract on the specification", arguments: strategies.keys.sorted(),
    RecoveryStrategyContract.cases)
  func keepsTheContractInMemory(_ name: String, _ rule: RecoveryStrategyContract.Case) async throws {
    try await run(rule, name, memoryStores, placeStride: isLong ? 1 : 2, damage: damageMemory)
  }

  /// The case that was written for each fault.
  static let caught: [BrokenStrategy.Fault: String] = [
    .discardsWhatItKeeps: "server-restored: recovers as declared, or says why it cannot",
    .claimsToSurviveSchemaChanges: "a destructive schema change is survived as declared",
    .ignoresSchemaChanges: "schema-incompatible: recovers as declared, or says why it cannot",
    .ignoresTheOperator: "the server's consent is needed as declared",
    .rebuildsEverything: "operator-requested: recovers as declared, or says why it cannot",
    .saysNothing: "a plan recovers or waits at its end, and applies nothing that was not fetched",
    .neverApplies: "a plan recovers or waits at its end, and applies nothing that was not fetched",
    .waitsInstead: "a restored server is recovered from, or a person is asked",
    .claimsToLoseSettings: "operator-requested: recovers as declared, or says why it cannot",
    .trustsDamagedFiles: "a damaged file is made anew whole, or left to a person",
    .discardsMuch:
      "what becomes of unsynced changes is as declared, however many wait and whatever is in the archive",
    .discardsBesideKeptEntries:
      "what becomes of unsynced changes is as declared, however many wait and whatever is in the archive",
    .fallsBackOnNothing: "its fall-back is a strategy of the host",
    .plansAnew: "the same incident has the same plan, however often and in whichever order it is asked",
  ]

  @Test("A strategy with a fault breaks the case that was written for it", arguments: BrokenStrategy.Fault.allCases)
  func catches(_ fault: BrokenStrategy.Fault) async throws {
    let name = try #require(Self.caught[fault])
    let rule = try #require(RecoveryStrategyContract.cases.first { $0.name == name })
    let broken = BrokenStrategy(RecoverUnsyncedChangesRecovery(), fault)
    await #expect(throws: ContractFailure.self) {
      try await rule.run(
        RecoverySubject(
          broken, stores: memoryStores, known: Set(strategies.values.map(\.name)), damage: damageMemory))
    }
  }
}
