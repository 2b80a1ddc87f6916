import SalvorModel
import SalvorRecovery
import SalvorStorage
import SalvorTransport
import SalvorWire

/// What came of a recovery.
enum RecoveryResult: Sendable {
  case recovered(RecoverySummary)
  /// A person has to decide, or the server's administrator has to act.
  case required(RecoverySummary, SalvorError)
  /// It was met before: the server had not heard so.
  case settled
}

/// One recovery: chooses the strategy, carries its steps out, journals before and after each, and goes on where a crash
/// left it (docs/architecture/recovery.md).
struct RecoveryRun {
  let configuration: ClientConfiguration
  let store: any RecoveringClientStore
  var journal: RecoveryJournal
  var exchange: RecoveryExchange
  /// The code of the error that says that a person is needed: what stopped this sync, or `recovery-required`.
  var cause = ErrorCode.recoveryRequired
  /// What a person should know besides the summary; names only.
  var notices: [String] = []
  /// A hook has stopped it before anything was touched.
  var stopped: RecoverySummary?
  /// What a fetch found, for the apply that follows it.
  private var fetched: (starts: [GroupStart], groups: [GroupState])?
  private var config: SyncConfig?
  /// The plan is past the step that makes the server forget this remote: it goes on, and does not start again.
  private(set) var hasForgotten = false
  /// The guard has let the upload's rewind pass before the server was to forget this remote.
  private var hasAskedGuard = false

  /// The name in reports of what happens without a strategy where only others' commits are gone (semantics 6).
  static let rewind = "rewind"
  /// More resets than this against one history of the server, without a sync between them, go to a person.
  private static let attemptsMax = 3
  /// The share of a table's rows that an automatic recovery may remove (semantics 9, *Guards*).
  private static let removedShareMax = 0.5

  init(
    _ configuration: ClientConfiguration, _ store: any RecoveringClientStore, _ journal: RecoveryJournal,
    _ report: SyncReport, _ progress: @escaping @Sendable (SyncProgress) -> Void
  ) {
    self.configuration = configuration
    self.store = store
    self.journal = journal
    exchange = RecoveryExchange(configuration, report, progress)
  }

  private var chain: StrategyChain { configuration.recovery.chain }

  func save() async throws { try await store.setJournal(journal.json.bytes) }

  // MARK: - Beginning

  /// Begins a recovery. `strategy` nil: as the configuration says for the reason.
  mutating func begin(
    _ reason: RecoveryReason, _ message: String, strategy: String? = nil, isByHand: Bool = false
  ) async throws -> RecoveryResult {
    let (incident, config) = try await incident(reason, message)
    if isByHand, incident.isElsewhere { return try await beginElsewhere(incident) }
    self.config = config
    if !isByHand, reason == .operatorRequested, journal.state == .none, let demand = journal.demand,
      demand == incident.facts.demand
    {
      try await exchange.end(incident.facts)
      try await rest(attempts: journal.attempts, demand: nil)
      return .settled
    }
    let first = strategy ?? firstStrategy(reason, incident.facts)
    start(incident, isByHand: isByHand)
    if strategy == nil, let passed = chain.passedOver(for: reason) { noteFall(from: passed.name, passed.why) }
    return try await choose(from: first, incident)
  }

  /// What was decided was decided about another server.
  private mutating func beginElsewhere(_ incident: Incident) async throws -> RecoveryResult {
    await exchange.leave(incident.facts)
    return try await begin(.serverReplaced, "The server is another one than the one that this recovery is about.")
  }

  /// A person has to decide, and need not any more: the operator has done so for this device (a demand for a reset that is newer than the
  /// stop), or the server has the schema again for which no strategy could run. Nil: it goes on waiting.
  mutating func beginWhereReleased() async throws -> RecoveryResult? {
    guard let reason = journal.reason, chain.name(for: reason) != StrategyChain.manual,
      let (incident, config) = try? await incident(reason, journal.message)
    else { return nil }
    let isDemanded = incident.facts.demand.map { $0 != journal.demand } ?? false
    guard isDemanded || (journal.waitsForSchema && incident.facts.differences.isEmpty) else {
      await exchange.leave(incident.facts)
      return nil
    }
    self.config = config
    start(incident, isByHand: false)
    return try await choose(from: chain.name(for: reason), incident)
  }

  /// Goes back to the last commit that both have made, or compares everything where there is none, inside a normal sync.
  mutating func rewind() async throws -> RecoveryResult {
    let message = "The server lost commits that this device has applied."
    var (incident, config) = try await incident(.serverRestored, message)
    if incident.facts.reason == .historyTrimmed {
      incident.reason = .historyTrimmed
      incident.message = "The server no longer keeps what has changed since this device's last download."
    }
    self.config = config
    start(incident, isByHand: false)
    journal.beforeReset = .none
    journal.afterReset = .none
    do {
      return try await carryOut(Self.rewind, Self.rewindSteps, incident)
    } catch let error as SalvorError where error.code == .massDeletion {
      return try await fallToManual(from: Self.rewind, error.message, incident)
    }
  }

  static let rewindSteps: [RecoveryStep] = [.fetch(.differences), .apply(.keep, .nothing)]

  private mutating func start(_ incident: Incident, isByHand: Bool) {
    journal = RecoveryJournal(
      state: .running, id: hexadecimal(configuration.random.bytes(8)), attempts: journal.attempts)
    journal.reason = incident.reason
    journal.message = incident.message
    journal.demand = incident.facts.demand
    journal.isByHand = isByHand
    journal.newRemoteID = RemoteID(from: configuration.random)
    journal.beforeReset = configuration.recovery.beforeReset == nil ? .none : .pending
    journal.afterReset = configuration.recovery.afterReset == nil ? .none : .pending
  }

  func incident(_ reason: RecoveryReason, _ message: String, _ exchange: inout RecoveryExchange) async throws
    -> (Incident, SyncConfig?)
  {
    let status = try await store.status()
    let history = try await store.history()
    let (facts, config) = try await exchange.facts(status, history)
    var incident = Incident(reason: reason, message: message, facts: facts, status: status)
    let own = history.olderSequences + [status.state.previous, status.state.current].compactMap { $0 }
    incident.isRemoteIDTaken = facts.stored.map { !own.contains($0) } ?? false
    incident.parting = RecoveryFetch.parting(facts, history, status)
    return (incident, config)
  }

  private mutating func incident(_ reason: RecoveryReason, _ message: String) async throws -> (Incident, SyncConfig?) {
    var exchange = self.exchange
    defer { self.exchange = exchange }
    return try await incident(reason, message, &exchange)
  }

  /// The strategy of the reason; after a reset against the same history of the server that no sync has followed, the one
  /// that it falls back to; after three, a person.
  private func firstStrategy(_ reason: RecoveryReason, _ facts: RecoveryFacts) -> String {
    let before = journal.attempts.filter { $0.incarnation == facts.incarnation.text }
    if before.count >= Self.attemptsMax { return StrategyChain.manual }
    // A rewind is no strategy that could fall back to another.
    guard let last = before.last(where: { $0.strategy != Self.rewind }) else { return chain.name(for: reason) }
    return chain[last.strategy]?.fallBack ?? StrategyChain.manual
  }

  // MARK: - Choosing

  private mutating func choose(from first: String, _ incident: Incident) async throws -> RecoveryResult {
    guard chain[first] != nil else {
      throw SalvorError(
        .unknownModule,
        "There is no recovery strategy \"\(first)\". Known: \(chain.names.joined(separator: ", ")).")
    }
    for name in chain.chain(from: first) {
      guard let strategy = chain[name] else { continue }
      switch strategy.plan(for: incident) {
      case .cannot(let why):
        // By hand a person has chosen: what follows is what the strategy itself names, never another decision.
        if journal.isByHand, strategy.fallBack == nil {
          throw SalvorError(.usage, "The strategy \(name) cannot recover here: \(why) Nothing was touched.")
        }
        try await waitForServer(incident)
        noteFall(from: name, why)
        if !incident.facts.differences.isEmpty { journal.waitsForSchema = true }
        if strategy.guarantees.needsServersConsent, !incident.facts.clientRecoveryEnabled,
          !journal.message.contains(why)
        {
          // Whoever asks later is told of the switch, too.
          journal.message = "\(incident.message) \(name) cannot run: \(why)"
        }
      case .steps(let steps):
        do {
          return try await carryOut(name, steps, incident)
        } catch let error as SalvorError where error.code == .massDeletion {
          return try await fallToManual(from: name, error.message, incident)
        } catch let error as SalvorError where error.code == .schemaIncompatible {
          // The device's own tables are in the way: the server has seen no difference.
          if journal.isByHand, strategy.fallBack == nil {
            return try await fallToManual(from: name, error.message, incident)
          }
          noteFall(from: name, error.message)
        }
      }
    }
    throw SalvorError(
      .failed, "No recovery strategy can run, not even \"manual\": it is missing in the list of modules.")
  }

  /// Throws `schema-ahead` where the server was put back to before a rename, and nobody says what to do: the device waits for it (decision 208).
  private func waitForServer(_ incident: Incident, isByHand: Bool? = nil) async throws {
    guard !(isByHand ?? journal.isByHand), incident.reason != .localCorruption, !incident.facts.differences.isEmpty,
      let config
    else { return }
    let known = Schema(version: incident.status.state.schemaVersion, tables: try await store.history().tables)
    if let error = config.isBehind(known, own: configuration.schema) { throw error }
  }

  private mutating func fallToManual(from name: String, _ why: String, _ incident: Incident) async throws
    -> RecoveryResult
  {
    noteFall(from: name, why)
    journal.message = Self.stopped(why, incident.reason)
    guard case .steps(let steps) = chain[StrategyChain.manual]?.plan(for: incident) else {
      throw SalvorError(.recoveryRequired, why)
    }
    return try await carryOut(StrategyChain.manual, steps, incident)
  }

  /// What a person is told where the guard has stopped a recovery.
  static func stopped(_ why: String, _ reason: RecoveryReason) -> String {
    guard reason == .serverRestored else { return why }
    return why
      + " Rows that are newer than the server's backup count as gone, and so do rows that this device may not see any more, by another credential or another scope of the schema. salvor recover --plan says how many of them the server has lost. Where they are to go, on every device: salvor remotes reset --all, on the server."
  }

  private mutating func noteFall(from name: String, _ why: String) {
    notices.append("\(name): \(why)")
    journal.fellBackFrom.append(name)
    journal.stepsDone = 0
    journal.steps = []
  }

  // MARK: - Resuming

  /// Goes on where a crash, a cut network or a full disk left a recovery.
  mutating func resume() async throws -> RecoveryResult {
    let reason = journal.reason ?? .operatorRequested
    if let done = try await store.recoveries(limit: 10).first(where: { $0.id == journal.id }) {
      return .recovered(try await finish(done, incarnation: nil, isHeard: false))
    }
    let (incident, config) = try await incident(reason, journal.message)
    if incident.isElsewhere { return try await beginElsewhere(incident) }
    self.config = config
    // One that its deletion has ended meanwhile was a person's word all the same.
    journal.demand = incident.facts.demand ?? journal.demand
    hasAskedGuard = journal.state == .waiting
    var decision =
      journal.strategy == Self.rewind ? .steps(Self.rewindSteps) : chain[journal.strategy]?.plan(for: incident)
    // What it began with: the configuration may say something else of the strategy by now, or nothing.
    if case .cannot = decision {} else if !journal.steps.isEmpty { decision = .steps(journal.steps) }
    journal.state = .running
    switch decision {
    case .steps(let steps):
      // What was fetched is fetched anew: the server may be another one by now.
      let fetch = steps.firstIndex { if case .fetch = $0 { true } else { false } } ?? 0
      var first = min(journal.stepsDone, fetch)
      // An upload under way to a server that knows the remote ID: it was restored, or has taken the upload unheard. It has
      // to forget again; what it has taken it knows by the requests' IDs.
      if Self.isRemembered(incident.facts), steps.dropFirst(first).first == .upload {
        first = steps.firstIndex(of: .forget) ?? first
      }
      do {
        return try await carryOut(journal.strategy, steps, incident, from: first)
      } catch let error as SalvorError where error.code == .massDeletion {
        return try await fallToManual(from: journal.strategy, error.message, incident)
      } catch let error as SalvorError where error.code == .schemaIncompatible {
        noteFall(from: journal.strategy, error.message)
        return try await choose(from: chain[journal.strategy]?.fallBack ?? StrategyChain.manual, incident)
      }
    case .cannot(let why):
      try await waitForServer(incident)
      noteFall(from: journal.strategy, why)
      return try await choose(from: chain[journal.strategy]?.fallBack ?? StrategyChain.manual, incident)
    case nil:
      return try await choose(from: chain.name(for: reason), incident)
    }
  }

  // MARK: - Carrying out

  private mutating func carryOut(
    _ name: String, _ steps: [RecoveryStep], _ asked: Incident, from first: Int = 0
  ) async throws -> RecoveryResult {
    var incident = asked
    journal.strategy = name
    journal.steps = steps
    let waits = steps.contains(.wait)
    if journal.afterReset == .pending, !waits, journal.backup == nil { try await copy() }
    var done: RecoveryReport?
    for (place, step) in steps.enumerated().dropFirst(first) {
      journal.step = step.name
      journal.stepsDone = place
      hasForgotten = steps.prefix(place).contains(.forget)
      try await save()
      switch step {
      case .copy: try await copy()
      case .forget:
        if let waiting = try await forget(incident) { return waiting }
      case .upload: incident = try await upload(incident)
      case .fetch(let what): fetched = try await fetch(what, incident)
      case .apply(let requests, let rebuild): done = try await apply(requests, rebuild, incident)
      case .wait: return try await wait(incident)
      }
    }
    exchange.report.snapshots += done?.snapshots ?? 0
    guard let done else {
      throw SalvorError(.failed, "The strategy \(name) planned no step that recovers: its plan must apply or wait.")
    }
    // First the server, then the journal: it remembers a demand until the server is known to have heard that it was met.
    let isHeard = (try? await exchange.end(incident.facts, (journal.reason, journal.strategy))) != nil
    return .recovered(try await finish(done, incarnation: incident.facts.incarnation, isHeard: isHeard))
  }

  private mutating func copy() async throws {
    let backup = try await store.makeCopy(
      id: journal.id, reason: "before \(journal.strategy) (\(journal.reason?.rawValue ?? "by hand"))")
    journal.backup = backup.id
  }

  /// Until the server knows no sequence ID of this remote, and demands no reset of it. Nil: it is so.
  private mutating func forget(_ incident: Incident) async throws -> RecoveryResult? {
    try await askGuard(incident)
    if !Self.isRemembered(incident.facts) { return nil }
    if incident.facts.selfServiceRemoteDeletion {
      try await exchange.deleteRemote(incident.facts)
      return nil
    }
    journal.state = .waiting
    try await save()
    await exchange.leave(incident.facts)
    let id = incident.status.state.remoteID
    var message =
      "This recovery waits for the server's administrator to delete the remote ID: salvor remotes delete \(id). The next sync then goes on."
    let configured = chain.name(for: incident.reason)
    if !journal.isByHand, configured != journal.strategy, !journal.fellBackFrom.contains(configured) {
      message +=
        " It goes on with \(journal.strategy), which it began with; to recover by \(configured), as the configuration says now: salvor recover --strategy \(configured)."
    }
    try await store.setRecoveryRequired(journal.reason, message: message)
    return .required(
      summary(nil), SalvorError(cause, message, context: ["reason": incident.reason.rawValue, "remote": id.text]))
  }

  /// The guard stops an automatic recovery before the server is to forget this remote: nothing was changed then, and the server knows whom
  /// its operator releases (decision 190).
  private mutating func askGuard(_ incident: Incident) async throws {
    if hasAskedGuard || !isGuarded(incident, journal) { return }
    if let config, incident.facts.differences.isEmpty { notices += try await store.adopt(config) }
    try await store.forgetRehearsal()
    let store = store
    var fetching = RecoveryFetch(
      store: store, questions: exchange.questions(incident.facts), facts: incident.facts, status: incident.status)
    defer { exchange.report = fetching.questions.report }
    let (starts, groups) = try await fetching.run(.differences, reason: incident.reason, config: config) { bytes, _ in
      try await store.keepForRehearsal(bytes)
    }
    var order = self.order(.keep, .nothing, incident, starts, groups, journal, nil)
    order.id = "guard"
    _ = try await store.rehearse(order)
    hasAskedGuard = true
  }

  /// The server would refuse an upload.
  private static func isRemembered(_ facts: RecoveryFacts) -> Bool { facts.stored != nil || facts.demand != nil }

  /// Everything that waits, put on the server's rows first: what the server lost of its parents is made again and goes with
  /// it, and what was lost until now is in the archive. A server that is restored after this meets a device that was in
  /// step with it. Answers with what both sides know then.
  private mutating func upload(_ incident: Incident) async throws -> Incident {
    let fetched = try await fetch(.differences, incident)
    var order = self.order(.keep, .nothing, incident, fetched.starts, fetched.groups, journal, nil)
    order.id = "\(uploadPrefix)\(try await uploads().count + 1)"
    order.strategy = Self.rewind
    // The guard was asked before the server forgot this remote.
    order.removedShareMax = nil
    _ = try await replace(order, incident)
    await exchange.leave(incident.facts)
    try await send()
    let (next, config) = try await self.incident(incident.reason, incident.message)
    self.config = config
    return next
  }

  /// Uploads everything that waits, with nothing downloaded.
  private mutating func send() async throws {
    var room = UploadRoom()
    var isUnfinished = false
    repeat {
      var session = SyncSession(
        configuration: configuration, progress: exchange.progress, report: exchange.report, room: room,
        downloads: false)
      defer { exchange.report = session.report }
      try await session.run(groups: nil)
      if let requirement = session.requirement {
        throw SalvorError(
          .uploadFailedAtServer, requirement.error.message, context: ["reason": requirement.reason.rawValue])
      }
      (room, isUnfinished) = (session.room, session.isUnfinished)
    } while isUnfinished
  }

  /// What this recovery has put on the server's rows before its uploads, which have reports of their own.
  private func uploads() async throws -> [RecoveryReport] {
    try await store.recoveries(limit: 100).filter { $0.id.hasPrefix(uploadPrefix) }
  }

  private var uploadPrefix: String { "\(journal.id)-upload-" }

  private mutating func fetch(
    _ what: RecoveryStep.Fetch, _ incident: Incident
  ) async throws -> (starts: [GroupStart], groups: [GroupState]) {
    // What the server's schema has more is added, as by any sync; a rebuild makes its tables from it.
    if what == .differences, let config {
      if incident.facts.differences.isEmpty {
        notices += try await store.adopt(config)
      } else {
        try await waitForServer(incident, isByHand: false)
      }
    }
    var attempt = 1
    while true {
      // A file may name blobs that are gone; the rows name those of now.
      let fetched = try await fetchRows(what, incident, takesSnapshots: attempt == 1)
      if try await fetchBlobs(isLastAttempt: attempt >= exchange.configuration.limits.attemptsMax) { return fetched }
      attempt += 1
    }
  }

  private mutating func fetchRows(
    _ what: RecoveryStep.Fetch, _ incident: Incident, takesSnapshots: Bool
  ) async throws -> (starts: [GroupStart], groups: [GroupState]) {
    try await store.discardStaged()
    try await store.forgetRehearsal()
    await closeSnapshots()
    let download = "recovery-\(journal.id)"
    let rehearses = rehearses(incident)
    let store = store
    var fetching = RecoveryFetch(
      store: store, questions: exchange.questions(incident.facts), facts: incident.facts, status: incident.status,
      takesSnapshots: takesSnapshots)
    defer { exchange.report = fetching.questions.report }
    return try await fetching.run(what, reason: incident.reason, config: config) { bytes, position in
      try await store.stage(StagedChunk(download: download, bytes: bytes, position: position))
      if rehearses { try await store.keepForRehearsal(bytes) }
    }
  }

  /// The blobs that the rows refer to. False: one is gone, so the rows must be fetched anew; what came of blobs stays.
  private mutating func fetchBlobs(isLastAttempt: Bool) async throws -> Bool {
    var received = false
    do {
      try await BlobTransfer(configuration: exchange.configuration).fetch(
        counting: &exchange.report, received: &received, progress: exchange.progress)
      return true
    } catch let error as SalvorError where error.code == .blobGone && !isLastAttempt {
      return false
    }
  }

  private mutating func apply(
    _ requests: RecoveryOrder.Requests, _ rebuild: RecoveryOrder.Rebuild, _ incident: Incident
  ) async throws -> RecoveryReport {
    guard let fetched else {
      throw SalvorError(.failed, "The strategy \(journal.strategy) applies without a fetch before it.")
    }
    return try await replace(
      order(requests, rebuild, incident, fetched.starts, fetched.groups, journal, config), incident)
  }

  /// The one transaction. A hook is told of it only where the guard lets it pass: that is tried before.
  private mutating func replace(_ order: RecoveryOrder, _ incident: Incident) async throws -> RecoveryReport {
    exchange.progress(.applying)
    if rehearses(incident) { _ = try await store.rehearse(order) }
    try await runBeforeReset(incident)
    return try await store.recover(order)
  }

  /// What is open is not taken over; what has come of a file stays.
  func closeSnapshots() async {
    await (store as? any SnapshotTakingClientStore)?.closeSnapshots(removing: false)
  }

  private func rehearses(_ incident: Incident) -> Bool {
    journal.beforeReset == .pending && isGuarded(incident, journal)
  }

  func order(
    _ requests: RecoveryOrder.Requests, _ rebuild: RecoveryOrder.Rebuild, _ incident: Incident, _ starts: [GroupStart],
    _ groups: [GroupState], _ journal: RecoveryJournal, _ config: SyncConfig?
  ) -> RecoveryOrder {
    let isNewRemote = rebuild != .nothing || incident.reason == .clientRewound || incident.isRemoteIDTaken
    var order = RecoveryOrder(
      id: journal.id, reason: incident.reason, strategy: journal.strategy, requests: requests, rebuild: rebuild,
      absence: RecoveryFetch.absence(incident), starts: starts, groups: groups,
      previous: isNewRemote ? nil : incident.facts.stored, shared: incident.facts.shared?.number ?? incident.parting,
      remoteID: isNewRemote ? journal.newRemoteID : nil, server: incident.facts.server,
      config: rebuild == .nothing ? nil : config,
      removedShareMax: isGuarded(incident, journal) ? Self.removedShareMax : nil,
      keepsBeforeImages: journal.backup == nil,
      copy: journal.backup, heal: configuration.recovery.heal,
      incarnations: incident.facts.incarnations.filter { $0.firstCommit > incident.parting ?? 0 })
    order.takesOffers = incident.facts.heals
    let isRewound = incident.reason == .clientRewound || incident.status.state.isOlderThanIdentityFile
    order.isOutcomeUnknown = isRewound && RecoveryFetch.isForgotten(incident)
    return order
  }

  /// No guard stops what a person wants, at the device or at the server (decision 33), nor the first sync with a server that has forgotten
  /// this remote (semantics 5, row 3; decision 32).
  func isGuarded(_ incident: Incident, _ journal: RecoveryJournal) -> Bool {
    if journal.isByHand || journal.demand != nil { return false }
    return !(journal.strategy == Self.rewind && incident.facts.hasForgotten(incident.status.state))
  }

  // MARK: - Waiting and finishing

  private mutating func wait(_ incident: Incident) async throws -> RecoveryResult {
    journal.state = .required
    journal.token = journal.token ?? hexadecimal(configuration.random.bytes(8))
    try await save()
    await exchange.leave(incident.facts)
    let error = SalvorError(
      cause,
      "\(journal.message) A recovery by hand is required: salvor recover --plan --strategy S shows what a strategy would do, salvor recover --token \(journal.token ?? "") --strategy S does it.",
      context: ["reason": incident.reason.rawValue, "token": journal.token ?? ""])
    try await store.setRecoveryRequired(incident.reason, message: journal.message)
    await configuration.recovery.askPerson(
      RecoveryConfiguration.ManualReset(
        error: error, reason: incident.reason, backup: await backupPath(), token: journal.token ?? ""))
    return .required(summary(nil), error)
  }

  func backupPath() async -> String? {
    guard let id = journal.backup else { return nil }
    return try? await store.backups().first { $0.id == id }?.path
  }

  /// - Parameters:
  ///   - incarnation: of the server that it recovered from, where that is known.
  ///   - isHeard: the server knows that the device has recovered.
  private mutating func finish(
    _ report: RecoveryReport, incarnation: IncarnationID?, isHeard: Bool
  ) async throws -> RecoverySummary {
    var done = report
    for upload in try await uploads() {
      done.counts.lost += upload.counts.lost
      done.counts.offered += upload.counts.offered
      done.counts.deletes += upload.counts.deletes
    }
    if journal.backup == nil { journal.backup = done.backup }
    try await runAfterReset()
    try await store.setRecoveryRequired(nil, message: "")
    try await store.prune(keeping: configuration.recovery.backupsKept)
    let summary = summary(done)
    var attempts = journal.attempts
    if let incarnation {
      attempts.append(RecoveryJournal.Attempt(incarnation: incarnation.text, strategy: journal.strategy))
    }
    try await rest(attempts: attempts, demand: isHeard ? nil : journal.demand)
    return summary
  }

  /// Nothing is under way.
  mutating func rest(attempts: [RecoveryJournal.Attempt], demand: Int64?) async throws {
    journal = RecoveryJournal(attempts: attempts)
    journal.demand = demand
    try await store.setJournal(attempts.isEmpty && demand == nil ? nil : journal.json.bytes)
  }

  private func summary(_ done: RecoveryReport?) -> RecoverySummary {
    RecoverySummary(
      reason: journal.reason ?? .operatorRequested, strategy: journal.strategy, fellBackFrom: journal.fellBackFrom,
      report: done, token: journal.token, backup: journal.backup)
  }
}

extension Incident {
  /// The server is not the one that this device synchronized with, and the recovery is about something else: nothing of it is to go on
  /// there (semantics 6).
  var isElsewhere: Bool {
    reason != .serverReplaced && status.state.serverID.map { $0 != facts.server } ?? false
  }
}
