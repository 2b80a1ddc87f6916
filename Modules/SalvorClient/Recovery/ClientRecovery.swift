import SalvorModel
import SalvorRecovery
import SalvorStorage
import SalvorWire

extension SalvorClient {
  /// Recovers by hand: what waits for a decision, what was left unfinished, or what the checks of a sync find now. Then
  /// synchronizes.
  ///
  /// Never throws, as `synchronize`.
  ///
  /// - Parameters:
  ///   - strategy: nil: the one of the configuration for the reason. By hand no guard stops a recovery that removes many
  ///     rows, and a strategy that cannot run is an error instead of a fall-back.
  ///   - token: of the recovery that is required (`ManualReset.token`, `status`). Needed where one is.
  public func recover(
    strategy: String? = nil, token: String? = nil,
    progress: @escaping @Sendable (SyncProgress) -> Void = { _ in }
  ) async -> SyncReport {
    await alone { await self.runRecovery(strategy, token, progress) }
  }

  /// What `recover` would do. Nothing is written, on either side.
  public func recoveryPlan(strategy: String? = nil) async throws -> RecoveryPlan {
    _ = try await status()
    return try await RecoveryPlanning(configuration: configuration, store: try recoveringStore()).plan(strategy)
  }

  /// The recoveries of this database, newest first.
  public func recoveries(limit: Int = 100) async throws -> [RecoveryReport] {
    _ = try await status()
    return try await recoveringStore().recoveries(limit: limit)
  }

  /// The lines of a recovery's report.
  public func recoveryItems(_ id: String, after place: Int64 = 0, limit: Int = 10_000) async throws -> [RecoveryItem] {
    _ = try await status()
    return try await recoveringStore().recoveryItems(id, after: place, limit: limit)
  }

  /// The copies that recoveries keep, newest first.
  public func backups() async throws -> [Backup] {
    _ = try await status()
    return try await recoveringStore().backups()
  }

  /// Puts the database back to what a backup holds. The next sync finds it rewound, and recovers it.
  public func restoreBackup(_ id: String) async throws {
    _ = try await status()
    try await recoveringStore().restoreBackup(id)
    forgetServer()
  }

  /// False: there is none.
  public func deleteBackup(_ id: String) async throws -> Bool {
    _ = try await status()
    return try await recoveringStore().deleteBackup(id)
  }

  private func recoveringStore() throws -> any RecoveringClientStore {
    guard let recovering else {
      throw SalvorError(
        .usage, "The storage module of this device does not recover; it synchronizes only. Use \"sqlite\".")
    }
    return recovering
  }

  // MARK: - Within a sync

  /// False: the database does not synchronize now; the report says why.
  func resumeRecovery(
    progress: @escaping @Sendable (SyncProgress) -> Void, report: inout SyncReport
  ) async throws -> Bool {
    guard let store = recovering else { return true }
    let journal = try await RecoveryRun.journal(of: store)
    switch journal.state {
    case .none: return true
    case .required:
      report.outcome = .recoveryRequired
      report.recovery = RecoverySummary(
        reason: journal.reason ?? .operatorRequested, strategy: journal.strategy, fellBackFrom: journal.fellBackFrom,
        report: nil, token: journal.token, backup: journal.backup)
      report.error = SalvorError(
        .recoveryRequired,
        "\(journal.message) This database does not synchronize before it is recovered: salvor recover --token \(journal.token ?? "") --strategy S.",
        context: ["reason": journal.reason?.rawValue ?? "", "token": journal.token ?? ""])
      return false
    case .running, .waiting:
      return try await carryOut(store, journal, progress, &report) { run in try await run.resume() }
    }
  }

  /// True: the sync may go on.
  func recover(
    _ reason: RecoveryReason, _ message: String, _ progress: @escaping @Sendable (SyncProgress) -> Void,
    _ report: inout SyncReport
  ) async throws -> Bool {
    guard let store = recovering else {
      try await configuration.store.setRecoveryRequired(reason, message: message)
      report.outcome = .recoveryRequired
      report.recovery = RecoverySummary(reason: reason, strategy: StrategyChain.manual, fellBackFrom: [])
      report.error =
        report.error ?? SalvorError(.recoveryRequired, message, context: ["reason": reason.rawValue])
      return false
    }
    let journal = try await RecoveryRun.journal(of: store)
    return try await carryOut(store, journal, progress, &report) { run in try await run.begin(reason, message) }
  }

  func rewind(
    _ progress: @escaping @Sendable (SyncProgress) -> Void, _ report: inout SyncReport
  ) async throws -> Bool {
    guard let store = recovering else {
      return try await recover(
        .serverRestored, "The server lost commits that this device has applied.", progress, &report)
    }
    let outcome = report.outcome
    let journal = try await RecoveryRun.journal(of: store)
    let goesOn = try await carryOut(store, journal, progress, &report) { run in try await run.rewind() }
    // A rewind is part of a normal sync (semantics 6).
    if goesOn { report.outcome = outcome }
    return goesOn
  }

  /// A sync has succeeded: the next reset is a first one.
  func forgetAttempts() async throws {
    guard let store = recovering, let bytes = try await store.journal() else { return }
    if try RecoveryJournal(JSONValue(parsing: bytes)).state == .none { try await store.setJournal(nil) }
  }

  private func carryOut(
    _ store: any RecoveringClientStore, _ journal: RecoveryJournal,
    _ progress: @escaping @Sendable (SyncProgress) -> Void, _ report: inout SyncReport,
    _ body: (inout RecoveryRun) async throws -> RecoveryResult
  ) async throws -> Bool {
    var run = RecoveryRun(configuration, store, journal, report, progress)
    defer {
      report.roundTrips = run.exchange.report.roundTrips
      report.bytesSent = run.exchange.report.bytesSent
      report.bytesReceived = run.exchange.report.bytesReceived
      report.uploaded = run.exchange.report.uploaded
      report.refused = run.exchange.report.refused
      report.conflicts = run.exchange.report.conflicts
      report.notices += run.notices
    }
    forgetServer()
    switch try await body(&run) {
    case .recovered(let summary):
      report.outcome = .recovered
      report.recovery = summary
      report.upserts += summary.report?.counts.upserts ?? 0
      report.deletes += summary.report?.counts.deletes ?? 0
      return true
    case .required(let summary, let error):
      report.outcome = .recoveryRequired
      report.recovery = summary
      report.error = error
      return false
    }
  }

  // MARK: - By hand

  private func runRecovery(
    _ strategy: String?, _ token: String?, _ progress: @escaping @Sendable (SyncProgress) -> Void
  ) async -> SyncReport {
    var report = SyncReport()
    do {
      _ = try await status()
      let store = try recoveringStore()
      let journal = try await RecoveryRun.journal(of: store)
      if journal.state == .required, token != journal.token {
        throw SalvorError(
          .usage,
          token == nil
            ? "A recovery is required: give its token, which salvor status shows (--token)."
            : "This is not the token of the recovery that is required; salvor status shows it.")
      }
      let goesOn = try await carryOut(store, journal, progress, &report) { run in
        try await run.beginByHand(strategy)
      }
      if goesOn { try await attempt(groups: nil, progress: progress, report: &report) }
    } catch {
      report.error = asSalvorError(error)
      if report.error?.code == .recoveryRequired { report.outcome = .recoveryRequired }
    }
    return report
  }
}

extension RecoveryStatus {
  init(_ journal: RecoveryJournal) {
    self.init()
    switch journal.state {
    case .none: return
    case .running, .waiting: state = .unfinished
    case .required: state = .required
    }
    reason = journal.reason
    strategy = journal.strategy.isEmpty ? nil : journal.strategy
    step = journal.step.isEmpty ? nil : journal.step
    token = journal.token
    backup = journal.backup
  }
}
