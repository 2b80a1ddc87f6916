import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorStorage
import SalvorTransport
import SalvorWire

/// One device's database and its way to the server.
///
///     let client = SalvorClient(configuration)
///     try await client.open()
///     let report = await client.attemptSync()
///
/// The application reads and writes the database with any SQLite library; nothing of it passes through here.
public actor SalvorClient {
  /// What a client is made of.
  public typealias Configuration = ClientConfiguration

  private(set) var configuration: Configuration
  nonisolated let broadcast = EventBroadcast()
  nonisolated let board = StateBoard()
  /// What calls that stay look at while they do: another user may sign in, the network may be a metered one.
  nonisolated let circumstances = Circumstances()
  var isOpen = false
  /// Of openings since the last synchronization.
  private var openingNotices: [String] = []
  private var met: JSONValue?
  private var running: Task<SyncReport, Never>?

  /// Opens nothing yet: the first call that needs the database does.
  public init(_ configuration: Configuration) {
    var configuration = configuration
    configuration.login = Login(configuration)
    self.configuration = configuration
  }

  /// Opens or makes the database. Called by the first `synchronize` otherwise.
  ///
  /// - Parameter reattaching: a database that was detached is synchronized again, each of its rows as a new one, as
  ///   `synchronize` and `subscribe` do; otherwise it throws `detached`.
  @discardableResult
  public func open(reattaching: Bool = false) async throws -> ClientOpening {
    try await open(reattaching: reattaching, pausing: false)
  }

  /// - Parameter pausing: a database that Salvor has not been in waits for the application to make its tables.
  @discardableResult
  func open(reattaching: Bool = false, pausing: Bool) async throws -> ClientOpening {
    var setup = ClientSetup(
      schema: configuration.schema, principal: configuration.principal, reattaches: reattaching)
    setup.pauses = pausing
    let opening = try await configuration.store.open(setup)
    isOpen = true
    openingNotices += opening.notices
    let notes = try await notes().map(\.text)
    if !notes.isEmpty { broadcast.send(.noted(notes)) }
    return opening
  }

  /// What a person has to know and nobody has seen yet: a synchronization has them among its notices. Whoever shows them
  /// otherwise says so with `forgetNotes`.
  public func notes() async throws -> [StoreNote] {
    if !isOpen { try await open() }
    return try await (configuration.store as? any NotingClientStore)?.notes() ?? []
  }

  /// These notes were shown to a person.
  public func forgetNotes(_ notes: [StoreNote]) async throws {
    guard let last = notes.map(\.number).max(), let store = configuration.store as? any NotingClientStore else {
      return
    }
    try await store.forgetNotes(upTo: last)
  }

  /// Sends what is queued, fetches what has changed, and applies it in one transaction. A call while another one runs waits
  /// for that one first.
  ///
  /// - Parameters:
  ///   - groups: the synchronization groups; nil: all. Groups that their rows reference come along.
  ///   - progress: told after each chunk, for a progress bar.
  /// - Returns: how it went (`outcome`), and the figures.
  /// - Throws: `SalvorError` where the sync failed or a recovery is required. Nothing is lost by it: what is queued stays
  ///   queued. `attemptSync` gives the report of a failed one, too.
  @discardableResult
  public func synchronize(
    groups: Set<String>? = nil, progress: @escaping @Sendable (SyncProgress) -> Void = { _ in }
  ) async throws -> SyncResult {
    let report = await attemptSync(groups: groups, progress: progress)
    if let error = report.error { throw error }
    return SyncResult(report)
  }

  /// `synchronize` for a system that gives an application so much time in the background. When it is over, the
  /// synchronization stops at the next safe place: what was sent is sent, what came is staged, and the next one goes on
  /// from there. What is being applied is applied. No lock of the database is held when this returns.
  ///
  /// - Returns: nil: the time was over before everything was done.
  /// - Throws: as `synchronize`.
  @discardableResult
  public func synchronize(
    within budget: Duration, groups: Set<String>? = nil,
    progress: @escaping @Sendable (SyncProgress) -> Void = { _ in }
  ) async throws -> SyncResult? {
    let clock = configuration.clock
    let parts = budget.components
    let milliseconds = max(0, parts.seconds * 1000 + parts.attoseconds / 1_000_000_000_000_000)
    let work = Task { await self.attemptSync(groups: groups, progress: progress) }
    let timing = Task {
      try await clock.sleep(milliseconds: milliseconds)
      work.cancel()
    }
    let report = await withTaskCancellationHandler {
      await work.value
    } onCancel: {
      work.cancel()
    }
    timing.cancel()
    guard let error = report.error else { return SyncResult(report) }
    if error.code == .cancelled, !Task.isCancelled { return nil }
    throw error
  }

  /// `synchronize` for who wants the figures of a failed sync, too. Never throws: what went wrong is the report's `error`.
  public func attemptSync(
    groups: Set<String>? = nil, progress: @escaping @Sendable (SyncProgress) -> Void = { _ in }
  ) async -> SyncReport {
    let groups = groups ?? (circumstances.isMetered ? configuration.meteredGroups : nil)
    let told = telling(progress)
    let report = await alone(telling: told) {
      await self.run(groups: groups, progress: told)
    }
    broadcast.send(report.error == nil ? .synchronized(report) : .failed(report))
    return report
  }

  /// `progress`, and the state with it.
  func telling(_ progress: @escaping @Sendable (SyncProgress) -> Void) -> @Sendable (SyncProgress) -> Void {
    { [board] step in
      board.progress(step)
      progress(step)
    }
  }

  /// What the database says of itself, and the recovery that is under way beside it.
  public func status() async throws -> ClientStatus {
    if !isOpen { try await open() }
    var status = try await configuration.store.status()
    if let store = recovering { status.recovery = RecoveryStatus(reading: try await store.journal()) }
    return status
  }

  /// Ends it: the sequences of events and states end, too.
  public func close() async {
    await configuration.transport.close()
    await configuration.store.close()
    broadcast.finish()
    board.finish()
    isOpen = false
  }

  /// One call at a time.
  func alone(
    telling progress: @escaping @Sendable (SyncProgress) -> Void = { _ in },
    _ work: @escaping @Sendable () async -> SyncReport
  ) async -> SyncReport {
    do { try OwnTask.refuse(self) } catch {
      var report = SyncReport()
      report.fail(error)
      return report
    }
    while let running, !Task.isCancelled { await end(of: running) }
    guard !Task.isCancelled else {
      var report = SyncReport()
      report.fail(asSalvorError(CancellationError()))
      return report
    }
    let log = configuration.log
    configuration.login?.begin()
    board.progress(nil)
    let task = Task {
      await LogContext.$current.withValue(LogContext(TraceContext())) {
        let began = ContinuousClock.now
        var report = SyncReport()
        do {
          try await takeTurn(telling: progress)
          let own = OwnTask(of: self)
          report = await OwnTask.$current.withValue(own) { await work() }
          own.end()
          await giveTurn()
        } catch {
          report.fail(asSalvorError(error))
        }
        log.tell(report, took: ContinuousClock.now - began)
        return report
      }
    }
    running = task
    let report = await withTaskCancellationHandler {
      await task.value
    } onCancel: {
      task.cancel()
    }
    if running == task { running = nil }
    if !report.changed.isEmpty { broadcast.send(.rowsChanged(report.changes)) }
    board.ended(report.error, now: configuration.clock.now())
    return report
  }

  /// Until `task` has ended, or the caller is cancelled.
  private func end(of task: Task<SyncReport, Never>) async {
    let (ends, end) = AsyncStream.makeStream(of: Never.self)
    let waiting = Task {
      _ = await task.value
      end.finish()
    }
    for await _ in ends {}
    waiting.cancel()
  }

  /// With nobody else at work on the database, in any process.
  func inTurn<Answer>(_ work: () async throws -> Answer) async throws -> Answer {
    try await waitForRunning()
    try await takeTurn()
    do {
      let answer = try await work()
      await giveTurn()
      return answer
    } catch {
      await giveTurn()
      throw error
    }
  }

  private func giveTurn() async { await (configuration.store as? any TurnTakingClientStore)?.giveTurn() }

  /// Where another process or client synchronizes the database: it is waited for as a busy server is.
  private func takeTurn(telling progress: @Sendable (SyncProgress) -> Void = { _ in }) async throws {
    guard let store = configuration.store as? any TurnTakingClientStore else { return }
    var attempt = 1
    while true {
      do { return try await store.takeTurn() } catch let error as SalvorError where error.code == .sessionInUse {
        guard attempt < configuration.limits.attemptsMax, !Task.isCancelled else { throw error }
        try await wait(attempt, error, progress)
        attempt += 1
      }
    }
  }

  /// Until no synchronization runs. Throws `usage` in a callback of the one that runs.
  func waitForRunning() async throws {
    try OwnTask.refuse(self)
    while let running { _ = await running.value }
  }

  var recovering: (any RecoveringClientStore)? { configuration.store as? any RecoveringClientStore }

  private func run(groups: Set<String>?, progress: @escaping @Sendable (SyncProgress) -> Void) async -> SyncReport {
    var report = SyncReport()
    do {
      do {
        try await session(groups: groups, progress: progress, report: &report)
      } catch let error as SalvorError where error.code == .storageCorrupt {
        guard try await replaceDamaged(error, strategy: nil, report: &report) else { throw error }
        try await session(groups: groups, progress: progress, report: &report)
      }
    } catch {
      report.fail(asSalvorError(error))
    }
    await tellWhatIsLeft(groups, &report)
    if let error = report.error, report.outcome != .recoveryRequired {
      await configuration.recovery.errorHandler?(error)
    }
    return report
  }

  /// What still waits, and why, and what a person has to know that the report does not say yet.
  func tellWhatIsLeft(_ groups: Set<String>?, _ report: inout SyncReport) async {
    guard isOpen else { return }
    let store = configuration.store
    let (queued, notes) = await Self.left(store, store as? any Actor)
    for text in openingNotices + notes.map(\.text) where !report.notices.contains(text) { report.notices.append(text) }
    openingNotices = []
    try? await forgetNotes(notes)
    guard let queued else { return }
    report.queued = queued
    guard queued > 0 else { return }
    report.queuedReason =
      if report.outcome == .recoveryRequired {
        .recoveryRequired
      } else if report.error != nil {
        .syncFailed
      } else {
        report.waiting > 0 ? .waiting : groups == nil ? .nextSync : .otherGroups
      }
  }

  /// Asked on the store's own thread: one change of threads for both.
  private static func left(
    _ store: any ClientStore, _ isolation: isolated (any Actor)?
  ) async -> (queued: Int64?, notes: [StoreNote]) {
    let queued = try? await store.queued()
    return (queued, (try? await (store as? any NotingClientStore)?.notes()) ?? [])
  }

  private func session(
    groups: Set<String>?, progress: @escaping @Sendable (SyncProgress) -> Void, report: inout SyncReport
  ) async throws {
    if !isOpen { try await open(reattaching: true) }
    if try await resumeRecovery(progress: progress, report: &report) {
      try await attempt(groups: groups, progress: progress, report: &report)
    }
  }

  /// The store has closed itself.
  func reopen() async throws {
    isOpen = false
    try await open()
  }

  /// Sessions until one ends and nothing that can be sent is left (semantics 4). Beginning again is always safe: an upload is
  /// resent with the same sequence ID, and a cut download goes on where it was cut.
  func attempt(
    groups: Set<String>?, progress: @escaping @Sendable (SyncProgress) -> Void, report: inout SyncReport
  ) async throws {
    var groups = groups
    var attempt = 1
    var rounds = Rounds()
    var hasDiscarded = false
    var recoveries = 0
    var blobFailures = 0
    var room = UploadRoom()
    while true {
      // A file may name blobs that are gone; the rows name those of now.
      var session = SyncSession(
        configuration: configuration, progress: progress, report: report, met: met, room: room,
        onlyUploads: rounds.onlyUploads, wholeRows: hasDiscarded || blobFailures > 0)
      defer { room = session.room }
      do {
        try await session.run(groups: groups)
        report = session.report
        if session.isArchiveTouched { await nameArchived(&report) }
        met = session.met
        if let requirement = session.requirement {
          guard recoveries < recoveriesMax, try await recover(requirement, progress, &report) else { return }
          report.error = nil
          recoveries += 1
          rounds.onlyUploads = false
          continue
        }
        if session.isUnfinished, !Task.isCancelled { continue }
        let waits = session.hasUploaded ? try await configuration.store.queued() > 0 : false
        guard rounds.goesOn(after: session, groups, waits), !Task.isCancelled else {
          return try await forgetAttempts(&report)
        }
      } catch {
        // A session that got further than the one before it: the attempts count anew.
        if session.hasMadeProgress { attempt = 1 }
        // What a recovery that failed says of itself stays.
        let recovery = report.recovery
        report = session.report
        report.recovery = recovery ?? report.recovery
        if session.isArchiveTouched { await nameArchived(&report) }
        if let needed = error as? GroupsNeeded, let asked = groups, !needed.groups.isSubset(of: asked) {
          groups = asked.union(needed.groups)
          rounds.onlyUploads = false
          continue
        }
        let error = asSalvorError(error)
        if error.code == .historyParted, recoveries < recoveriesMax {
          guard try await rewind(progress, &report) else { return }
          recoveries += 1
          rounds.onlyUploads = false
          continue
        }
        // A session that ended under way (its answer was lost, its connection repeated the request) is begun anew.
        // So is a download whose staged part cannot be made whole any more, once.
        let isUnderWay = error.isOfWhatEnded
        let isBegunAnew = error.code == .inconsistentDownload && !hasDiscarded
        hasDiscarded = hasDiscarded || isBegunAnew
        // Whatever else went well meanwhile: a blob that is gone, missing or wrong each time ends it.
        let isAboutBlobs = [.blobGone, .blobMissing, .blobMismatch].contains(error.code)
        if isAboutBlobs { blobFailures += 1 }
        let attemptsMax = configuration.limits.attemptsMax
        guard error.isRetryable || isUnderWay || isBegunAnew, attempt < attemptsMax,
          blobFailures < attemptsMax, !Task.isCancelled
        else {
          // What went wrong is the error, not that it could not be noted.
          try? await noteUploadFailure(error)
          throw error
        }
        try await wait(attempt, error, progress)
        attempt += 1
      }
    }
  }

  func forgetServer() { met = nil }

  /// Rows whose requests were refused or displaced are without them now.
  private func nameArchived(_ report: inout SyncReport) async {
    let limit = ChangedRows.keysMax
    guard
      let entries = try? await configuration.store.requests(
        in: [.refused, .blocked, .displaced], after: nil, limit: limit)
    else { return }
    let displaced = Set(entries.filter { $0.state == .displaced }.map(\.id.counter))
    report.displaced += Int64(displaced.intersection(report.displacedCounters).count)
    report.displacedCounters = []
    for entry in entries {
      if entries.count < limit {
        report.changed.add(entry.key, of: entry.table)
      } else {
        report.changed.whole(entry.table)
      }
    }
    // The archive is longer than is looked at.
    if entries.count >= limit { await nameEveryTable(&report) }
  }

  func nameEveryTable(_ report: inout SyncReport) async {
    for table in (try? await configuration.tablesHere()) ?? configuration.schema.tables {
      report.changed.whole(table.name)
    }
  }

  /// Another database in the place of this one (`switch(to:)`).
  func replace(_ configuration: Configuration) {
    self.configuration = configuration
    met = nil
    openingNotices = []
    board.reset()
  }

  /// Ends the synchronization that runs at its next safe place.
  func stopRunning() async throws {
    running?.cancel()
    try await waitForRunning()
  }

  func wait(
    _ attempt: Int, _ error: SalvorError, _ progress: @Sendable (SyncProgress) -> Void
  ) async throws {
    let milliseconds = delay(attempt, error)
    progress(.waiting(error.code, message: error.message, milliseconds: milliseconds))
    try await configuration.clock.sleep(milliseconds: milliseconds)
  }

  /// Full jitter over a doubling ceiling, or what the server asked for.
  private func delay(_ attempt: Int, _ error: SalvorError) -> Int64 {
    let ceiling = Int64(100) << Int64(attempt - 1)
    let random = configuration.random.bytes(2)
    let jitter = (Int64(random[0]) << 8 | Int64(random[1])) * ceiling / 65536
    // An overloaded server spreads its devices by what it asks for (semantics 9): that is waited for, up to a minute.
    let asked = error.retryAfterMilliseconds.map {
      min($0, error.code == .overloaded ? configuration.waitMillisecondsMax : 2_000)
    }
    return max(asked ?? 0, jitter)
  }
}

/// Which sessions follow one that went through, within one synchronization.
private struct Rounds {
  /// The next session is for what waits in the queue alone: where nothing does, there is none.
  var onlyUploads = false
  private var hasRepeated = false
  private var comparisons = 0
  private var count = 0

  /// An application that writes all the time does not hold a synchronization for ever.
  private static let roundsMax = 16
  /// Rows that wait for others may come one after the other.
  private static let comparisonsMax = 3

  /// - Parameter waits: requests are in the queue after an upload.
  mutating func goesOn(after session: SyncSession, _ groups: Set<String>?, _ waits: Bool) -> Bool {
    count += 1
    guard count < Self.roundsMax else { return false }
    // A SyncConfig with new groups came with the answer, or changes were found: they are a session of their own.
    if session.hasNewGroups && groups == nil || session.hasNewRequests, !hasRepeated {
      hasRepeated = true
      onlyUploads = false
      return true
    }
    // Rows came that others may wait for.
    if session.isToCompare, comparisons < Self.comparisonsMax {
      comparisons += 1
      onlyUploads = false
      return true
    }
    // What was written while an upload was under way, or while its outcome was unknown, goes up now.
    onlyUploads = waits
    return waits
  }
}

/// Recoveries within one synchronization: each is against a history of the server's, and the journal guards against cycles.
private let recoveriesMax = 4

/// Any error as one of the catalogue.
func asSalvorError(_ error: any Error) -> SalvorError {
  switch error {
  case let error as SalvorError: error
  case is CancellationError: SalvorError(.cancelled, "The synchronization was cancelled.")
  default: SalvorError(.failed, "Something failed inside.", context: ["error": "\(type(of: error))"])
  }
}
