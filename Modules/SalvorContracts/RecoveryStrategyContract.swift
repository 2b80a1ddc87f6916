import SalvorClientEngine
import SalvorModel
import SalvorRecovery
import SalvorStorage

/// What every recovery strategy keeps (semantics 9 and 11), and exactly what it declares (`RecoveryGuarantees`). It is run
/// by the real engines over the subject's stores, within the process.
public enum RecoveryStrategyContract {
  /// One rule, for a strategy with the stores that it is run on.
  public typealias Case = ContractCase<RecoverySubject>

  /// What passing does not prove.
  public static let unproven = [
    "what a strategy does at amounts and reasons that the suite does not try, or by the clock",
    "stores of others: the steps are carried out on the subject's",
    "databases larger than some dozen rows, and how long a recovery takes",
  ]

  /// One rule each: the plans alone, every reason to recover, and recoveries that are struck in the middle.
  public static let cases: [Case] = planCases + reasonCases + faultCases

  /// What is recovered from with the device's own database. `local-corruption` has a case of its own.
  static let reasons: [RecoveryReason] = [
    .serverRestored, .serverReplaced, .clientRewound, .historyTrimmed, .schemaIncompatible, .operatorRequested,
  ]

  /// One case for each reason: all that can wait on the device.
  static let reasonCases: [Case] =
    reasons.map { reason in
      Case("\(reason.rawValue): recovers as declared, or says why it cannot", rule: "semantics 9") { subject in
        for work in UnsyncedWork.allCases { try await meet(reason, work, subject) }
      }
    } + [
      Case("a restored server is recovered from, or a person is asked", rule: "semantics 9") { subject in
        let outcome = try await meet(.serverRestored, .queued, subject)
        try expect(outcome != .cannot, "it has no plan for a server that was restored")
      },
      Case("a destructive schema change is survived as declared", rule: "RecoveryGuarantees, survivesSchemaChange") {
        subject in
        let outcome = try await meet(.schemaIncompatible, .queued, subject)
        try expectEqual(
          outcome != .cannot, subject.strategy.guarantees.survivesSchemaChange, "whether it works over the change")
      },
      Case("the server's consent is needed as declared", rule: "RecoveryGuarantees, needsServersConsent") { subject in
        let outcome = try await meet(.serverRestored, .queued, subject, hasConsent: false)
        try expectEqual(
          outcome == .cannot, subject.strategy.guarantees.needsServersConsent, "whether it falls through without")
      },
      Case("a server that lets devices delete their remote ID needs no administrator", rule: "semantics 9") { subject in
        try await meet(.serverRestored, .unanswered, subject, deletesItself: true)
      },
      Case("local-corruption: a damaged file is set aside and made anew, or a person is asked", rule: "semantics 9") {
        subject in
        let world = try await RecoveryWorld(subject, deletesItself: true)
        do {
          try await meetDamage(world)
        } catch {
          await world.close()
          throw error
        }
        await world.close()
      },
    ]

  private static func meetDamage(_ world: RecoveryWorld) async throws {
    let strategy = world.subject.strategy
    let story = try await world.tell(.localCorruption, .queued)
    try await world.damageDevice()
    var recovers = false
    if case .steps(let steps) = strategy.plan(for: incident(.localCorruption)) { recovers = makesAnew(steps) }
    let report = await world.sync()
    try expectEqual(report.recovery?.reason, .localCorruption, "the reason")
    guard recovers else {
      try expectEqual(report.outcome, .recoveryRequired, "the outcome of a damaged file that the strategy leaves")
      try expectEqual(report.error?.code, .storageCorrupt, "the error of a damaged file")
      try expectEqual(await world.sync().outcome, .recoveryRequired, "the outcome of the next sync")
      try expectEqual(try await world.device.backups(), [], "what was set aside of a file that nobody decided on")
      return
    }
    try expectEqual(report.outcome, .recovered, "the outcome (\(report.error.map { "\($0)" } ?? "no error"))")
    try expectEqual(report.recovery?.strategy, strategy.name, "the strategy that runs")
    let backup = try expectSome(report.recovery?.backup, "the file that was set aside")
    try expect(
      try await world.device.backups().contains { $0.id == backup }, "the file that was set aside is not listed")
    try await world.settle()
    try await world.expectMadeAnew(story)
  }

  enum Outcome: Sendable, Hashable { case recovered, waits, cannot }

  /// Brings the device to `reason` and syncs. What then is must be what the strategy declares.
  @discardableResult
  static func meet(
    _ reason: RecoveryReason, _ work: UnsyncedWork, _ subject: RecoverySubject, hasConsent: Bool = true,
    deletesItself: Bool = false
  ) async throws -> Outcome {
    let world = try await RecoveryWorld(subject, hasConsent: hasConsent, deletesItself: deletesItself)
    let what = "\(reason.rawValue), \(work.rawValue)"
    let outcome: Outcome
    do {
      let story = try await world.tell(reason, work)
      let before = try await world.view()
      let plan = try await world.client.recoveryPlan()
      try expectEqual(plan.reason, reason, "\(what): the reason that the plan names")
      try expectEqual(try await world.view(), before, "\(what): rows and requests after a plan, which writes nothing")
      outcome = try await face(story, before, plan, world, isAskedForNothing: deletesItself)
    } catch let failure as ContractFailure {
      await world.close()
      throw failure
    } catch {
      await world.close()
      throw ContractFailure("\(what): \(error)")
    }
    await world.close()
    return outcome
  }

  private static func face(
    _ story: RecoveryStory, _ before: DeviceView, _ plan: RecoveryPlan, _ world: RecoveryWorld,
    isAskedForNothing: Bool
  ) async throws -> Outcome {
    let what = "\(story.reason.rawValue), \(story.work.rawValue)"
    let name = world.subject.strategy.name
    let report = await world.sync()
    if let error = report.error, report.outcome != .recoveryRequired {
      throw ContractFailure("\(what): the sync ends with \(error)")
    }
    let recovery = try expectSome(report.recovery, "\(what): the report's recovery")
    try expectEqual(recovery.reason, story.reason, "\(what): the reason")
    if recovery.fellBackFrom.contains(name) {
      let why = report.notices.first { $0.hasPrefix("\(name): ") }?.dropFirst(name.count + 2) ?? ""
      try expect(why.count > 10, "\(what): it cannot, and does not say why")
      try await world.expectUntouched(before, what)
      return .cannot
    }
    try expectEqual(recovery.strategy, name, "\(what): the strategy that runs")
    if report.outcome == .recoveryRequired, try await world.client.status().recovery.state == .required {
      let guarantees = world.subject.strategy.guarantees
      try expectEqual(guarantees.unsyncedChanges, .untouched, "\(what): it waits for a person; the guarantee")
      try await world.expectUntouched(before, what)
      try expectEqual(await world.sync().outcome, .recoveryRequired, "\(what): the sync after one that waits")
      try await world.expectUntouched(before, what)
      return .waits
    }
    if isAskedForNothing { try expectEqual(report.outcome, .recovered, "\(what): the outcome without waiting") }
    if report.outcome == .recovered, let done = recovery.report, plan.bytes != nil {
      try expectEqual(
        [done.counts.kept + done.counts.merged, done.counts.discarded, done.counts.lost],
        [plan.counts.kept + plan.counts.merged, plan.counts.discarded, plan.counts.lost],
        "\(what): requests kept and discarded, rows lost, compared with the plan")
    }
    try await world.settle()
    try await world.expectRecovered(story)
    return .recovered
  }
}
