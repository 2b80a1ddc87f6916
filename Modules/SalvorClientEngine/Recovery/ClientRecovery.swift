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
    let told = telling(progress)
    return await alone(telling: told) {
      var report = await self.runRecovery(strategy, token, told)
      await self.tellWhatIsLeft(nil, &report)
      return report
    }
  }

  /// What `recover` would do. Nothing is written, on either side.
  public func recoveryPlan(strategy: String? = nil) async throws -> RecoveryPlan {
    _ = try await status()
    let store = try recoveringStore()
    var report = SyncReport()
    let journal = try await journal(of: store, &report)
    var plan = try await RecoveryPlanning(configuration: configuration, store: store).plan(strategy, journal)
    plan.notes = report.notices + plan.notes
    return plan
  }

  /// The recoveries of this database, newest first.
  public func recoveries(limit: Int = 100) async throws -> [RecoveryReport] {
    _ = try await status()
    return try await recoveringStore().recoveries(limit: limit)
  }

  /// One of them, however old; nil: there is none of this ID.
  public func recovery(_ id: String) async throws -> RecoveryReport? {
    try await recoveries(limit: .max).first { $0.id == id }
  }

  /// The lines of a recovery's report.
  public func recoveryItems(_ id: String, after place: Int64 = 0, limit: Int = 10_000) async throws -> [RecoveryItem] {
    _ = try await status()
    return try await recoveringStore().recoveryItems(id, after: place, limit: limit)
  }

  /// The copies that recoveries keep, newest first. Also where the database is damaged.
  public func backups() async throws -> [Backup] {
    _ = try await isReadable()
    return try await recoveringStore().backups()
  }

  /// Puts the database back to what a backup holds. The next sync finds it rewound, and recovers it.
  ///
  /// - Returns: the copy that was made of the database as it was, or the damaged database itself, which was set aside; nil: it was not
  ///   needed, since what came after the backup is in the error archive.
  @discardableResult
  public func restoreBackup(_ id: String) async throws -> Backup? {
    let isReadable = try await isReadable()
    let store = try recoveringStore()
    let copyID = hexadecimal(configuration.random.bytes(8))
    let before = try await inTurn { try await store.restoreBackup(id, copyID: copyID) }
    if !isReadable { try await reopen() }
    forgetServer()
    var report = SyncReport()
    await nameEveryTable(&report)
    broadcast.send(.rowsChanged(report.changes))
    return before
  }

  /// False: the database is damaged. What stands beside it can be read all the same.
  private func isReadable() async throws -> Bool {
    do {
      _ = try await status()
      return true
    } catch let error as SalvorError where error.code == .storageCorrupt { return false }
  }

  /// False: there is none.
  public func deleteBackup(_ id: String) async throws -> Bool {
    _ = try await status()
    return try await recoveringStore().deleteBackup(id)
  }

  func recoveringStore() throws -> any RecoveringClientStore {
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
    let journal = try await journal(of: store, &report)
    switch journal.state {
    case .none: return true
    case .required:
      var isReleased = false
      let goesOn = try await carryOut(store, journal, nil, progress, &report) { run in
        guard let result = try await run.beginWhereReleased() else { return .settled }
        isReleased = true
        return result
      }
      if isReleased { return goesOn }
      report.outcome = .recoveryRequired
      report.recovery = RecoverySummary(waiting: journal)
      report.error = SalvorError(
        .recoveryRequired,
        "\(journal.message) This database does not synchronize before it is recovered: salvor recover --token \(journal.token ?? "") --strategy S.",
        context: ["reason": journal.reason?.rawValue ?? "", "token": journal.token ?? ""])
      return false
    case .running, .waiting:
      return try await tryingAgain(store, journal, progress, &report) { run, _ in try await run.resume() }
    }
  }

  /// A recovery by itself, outside of a sync's attempts. What passes (the network, a server that opens another database, a token that
  /// has ended with it) is waited for as a sync does it, and the recovery goes on where it was.
  private func tryingAgain(
    _ store: any RecoveringClientStore, _ journal: RecoveryJournal,
    _ progress: @escaping @Sendable (SyncProgress) -> Void, _ report: inout SyncReport,
    _ body: (_ run: inout RecoveryRun, _ isFirst: Bool) async throws -> RecoveryResult
  ) async throws -> Bool {
    var (journal, attempt) = (journal, 1)
    while true {
      do {
        return try await carryOut(store, journal, nil, progress, &report) { try await body(&$0, attempt == 1) }
      } catch {
        let error = asSalvorError(error)
        guard error.isRetryable || error.isOfWhatEnded, attempt < configuration.limits.attemptsMax, !Task.isCancelled
        else { throw error }
        try await wait(attempt, error, progress)
      }
      attempt += 1
      journal = try await self.journal(of: store, &report)
    }
  }

  /// True: the sync may go on.
  func recover(
    _ requirement: SyncSession.Requirement, _ progress: @escaping @Sendable (SyncProgress) -> Void,
    _ report: inout SyncReport
  ) async throws -> Bool {
    let (reason, message) = (requirement.reason, requirement.error.message)
    guard let store = recovering else {
      try await configuration.store.setRecoveryRequired(reason, message: message)
      report.outcome = .recoveryRequired
      report.recovery = RecoverySummary(reason: reason, strategy: StrategyChain.manual, fellBackFrom: [])
      report.error = requirement.error
      report.error?.context["reason"] = reason.rawValue
      return false
    }
    let journal = try await journal(of: store, &report)
    return try await carryOut(store, journal, requirement.error.code, progress, &report) { run in
      // Begun by an attempt before this one, which the network cut.
      try await journal.state == .running
        ? run.resume()
        : run.begin(reason, message, strategy: requirement.isForAPerson ? StrategyChain.manual : nil)
    }
  }

  func rewind(
    _ progress: @escaping @Sendable (SyncProgress) -> Void, _ report: inout SyncReport
  ) async throws -> Bool {
    guard let store = recovering else {
      return try await recover(
        SyncSession.Requirement(
          reason: .serverRestored,
          error: SalvorError(.uploadFailedAtServer, "The server lost commits that this device has applied.")),
        progress, &report)
    }
    let outcome = report.outcome
    let journal = try await journal(of: store, &report)
    let goesOn = try await carryOut(store, journal, .uploadFailedAtServer, progress, &report) { run in
      try await journal.state == .running ? run.resume() : run.rewind()
    }
    // A rewind is part of a normal sync (semantics 6).
    if goesOn { report.outcome = outcome }
    return goesOn
  }

  /// A sync has succeeded: the next reset is a first one.
  func forgetAttempts(_ report: inout SyncReport) async throws {
    guard let store = recovering, try await store.journal() != nil else { return }
    if try await journal(of: store, &report).state == .none { try await store.setJournal(nil) }
  }

  /// What a recovery left beside the database. One that cannot be read is set aside and named, and the recovery starts again:
  /// the next exchange with the server finds the reason again (semantics 9).
  func journal(of store: any RecoveringClientStore, _ report: inout SyncReport) async throws -> RecoveryJournal {
    guard let bytes = try await store.journal() else { return RecoveryJournal() }
    do {
      return try RecoveryJournal(JSONValue(parsing: bytes))
    } catch {
      let file = try await store.setJournalAside()
      report.notices.append(
        "The journal of a recovery could not be read. It was set aside\(file.isEmpty ? "" : " as \(file)"), and the recovery begins anew."
      )
      return RecoveryJournal()
    }
  }

  /// - Parameter cause: what stopped this sync; nil: an earlier one, or a person who recovers by hand.
  private func carryOut(
    _ store: any RecoveringClientStore, _ journal: RecoveryJournal, _ cause: ErrorCode?,
    _ progress: @escaping @Sendable (SyncProgress) -> Void, _ report: inout SyncReport,
    _ body: (inout RecoveryRun) async throws -> RecoveryResult
  ) async throws -> Bool {
    var run = RecoveryRun(configuration, store, journal, report, progress)
    run.cause = cause ?? .recoveryRequired
    defer {
      report.roundTrips = run.exchange.report.roundTrips
      report.bytesSent = run.exchange.report.bytesSent
      report.bytesReceived = run.exchange.report.bytesReceived
      report.uploaded = run.exchange.report.uploaded
      report.refused = run.exchange.report.refused
      report.refusedCounters = run.exchange.report.refusedCounters
      report.heldCounters = run.exchange.report.heldCounters
      report.conflicts = run.exchange.report.conflicts
      report.healed = run.exchange.report.healed
      report.superseded = run.exchange.report.superseded
      report.snapshots = run.exchange.report.snapshots
      report.notices += run.notices
    }
    forgetServer()
    let result: RecoveryResult
    do { result = try await body(&run) } catch {
      report.recovery = run.stopped ?? report.recovery
      await run.closeSnapshots()
      throw error
    }
    await run.closeSnapshots()
    switch result {
    case .recovered(let summary):
      report.outcome = .recovered
      report.recovery = summary
      report.upserts += summary.report?.counts.upserts ?? 0
      report.deletes += summary.report?.counts.deletes ?? 0
      report.displaced += summary.report?.counts.displaced ?? 0
      await nameEveryTable(&report)
      return true
    case .required(let summary, let error):
      report.outcome = .recoveryRequired
      report.recovery = summary
      report.error = error
      return false
    case .settled: return true
    }
  }

  // MARK: - By hand

  private func runRecovery(
    _ strategy: String?, _ token: String?, _ progress: @escaping @Sendable (SyncProgress) -> Void
  ) async -> SyncReport {
    var report = SyncReport()
    do {
      let status = try await status()
      let store = try recoveringStore()
      let journal = try await journal(of: store, &report)
      if token != nil, journal.state == .none, status.state.recoveryRequired == nil {
        throw SalvorError(
          .usage,
          "No recovery waits for a person here, so there is no token for one. Nothing was done. A synchronization recovers by itself where it must; without a token, recover recovers now."
        )
      }
      if journal.state == .required, token != journal.token {
        throw SalvorError(
          .usage,
          token == nil
            ? "A recovery is required: give its token, which salvor status shows (--token)."
            : "This is not the token of the recovery that is required; salvor status shows it.")
      }
      let goesOn = try await tryingAgain(store, journal, progress, &report) { run, isFirst in
        try await !isFirst && run.journal.state == .running ? run.resume() : run.beginByHand(strategy)
      }
      if goesOn {
        // A group that was never synchronized stays so.
        let all = try await configuration.store.status().state.groups
        let known = Set(all.filter(\.isSynchronized).map(\.name))
        let isWhole = known.isEmpty || known.count == all.count
        try await attempt(groups: isWhole ? nil : known, progress: progress, report: &report)
      }
    } catch let error as SalvorError where error.code == .storageCorrupt && strategy != nil {
      await replaceByHand(error, strategy, progress, &report)
    } catch {
      report.fail(asSalvorError(error))
      await tellWhatWaits(&report)
    }
    return report
  }

  /// Whatever went wrong: where a person still has to decide, the report says so.
  private func tellWhatWaits(_ report: inout SyncReport) async {
    guard let store = recovering, let journal = try? await journal(of: store, &report), journal.state == .required
    else { return }
    report.outcome = .recoveryRequired
    report.recovery = RecoverySummary(waiting: journal)
  }

  // MARK: - A damaged file

  /// The file cannot be read: where the configuration names a file strategy for `local-corruption`, or a person does, the
  /// file is set aside and a new one made. False: nothing was touched, and a person has to decide.
  func replaceDamaged(_ error: SalvorError, strategy: String?, report: inout SyncReport) async throws -> Bool {
    guard let store = recovering, let name = strategy ?? configuration.recovery.reasons[.localCorruption],
      isFileStrategy(name)
    else {
      report.outcome = .recoveryRequired
      report.recovery = RecoverySummary(reason: .localCorruption, strategy: StrategyChain.manual, fellBackFrom: [])
      report.notices.append(
        "salvor recover --strategy recreate sets the damaged file aside and makes a new one; what was not sent stays in the old file."
      )
      await configuration.recovery.askPerson(
        RecoveryConfiguration.ManualReset(error: error, reason: .localCorruption, backup: nil, token: ""))
      return false
    }
    let id = hexadecimal(configuration.random.bytes(8))
    let backup = try await store.setAside(id: id, reason: "damaged, before \(name)")
    try await store.setJournal(nil)
    try await reopen()
    forgetServer()
    await nameEveryTable(&report)
    report.outcome = .recovered
    report.notices.append(
      "The file was damaged: \(error.message) It was set aside as \(backup.path). What it had not sent is in it alone."
    )
    report.recovery = RecoverySummary(
      reason: .localCorruption, strategy: name, fellBackFrom: [],
      report: RecoveryReport(id: id, time: backup.time, reason: .localCorruption, strategy: name, backup: id),
      backup: id)
    return true
  }

  /// A strategy that makes the tables anew needs nothing of the old file.
  private func isFileStrategy(_ name: String) -> Bool {
    let state = ClientState(remoteID: RemoteID(from: configuration.random), principal: configuration.principal)
    let facts = RecoveryFacts(
      token: "", server: ServerID(from: configuration.random), incarnation: IncarnationID(from: configuration.random),
      principal: configuration.principal, reason: nil, shared: nil, trimmed: 0,
      head: Commit(number: 0, id: CommitID(from: configuration.random)), stored: nil, scopes: [:], rows: 0,
      clientRecoveryEnabled: true, selfServiceRemoteDeletion: false, differences: [])
    let incident = Incident(
      reason: .localCorruption, message: "", facts: facts,
      status: ClientStatus(state: state, queued: 0, inError: 0, displaced: 0, kept: 0))
    guard case .steps(let steps) = configuration.recovery.chain[name]?.plan(for: incident) else { return false }
    return !steps.contains(.upload)
      && steps.contains { if case .apply(_, let rebuild) = $0 { rebuild != .nothing } else { false } }
  }

  private func replaceByHand(
    _ damage: SalvorError, _ strategy: String?, _ progress: @escaping @Sendable (SyncProgress) -> Void,
    _ report: inout SyncReport
  ) async {
    do {
      guard try await replaceDamaged(damage, strategy: strategy, report: &report) else {
        throw SalvorError(
          .usage,
          "The file is damaged, and the strategy \(strategy ?? "") needs it. Use recreate or copy-and-resubscribe.")
      }
      try await attempt(groups: nil, progress: progress, report: &report)
    } catch {
      report.fail(asSalvorError(error))
    }
  }
}

extension SalvorError {
  /// A session, an upload or a recovery has ended at the server under way: it begins again.
  var isOfWhatEnded: Bool { code == .sessionUnknown || code == .chunkMissing }
}

extension RecoverySummary {
  /// A recovery that waits for a person.
  init(waiting journal: RecoveryJournal) {
    self.init(
      reason: journal.reason ?? .operatorRequested, strategy: journal.strategy, fellBackFrom: journal.fellBackFrom,
      report: nil, token: journal.token, backup: journal.backup)
  }
}

extension RecoveryStatus {
  /// - Parameter bytes: the journal; one that cannot be read is unfinished, and the next sync sets it aside.
  init(reading bytes: [UInt8]?) {
    self.init()
    guard let bytes else { return }
    if let journal = try? RecoveryJournal(JSONValue(parsing: bytes)) {
      self.init(journal)
    } else {
      state = .unfinished
      step = "journal-unreadable"
    }
  }

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
