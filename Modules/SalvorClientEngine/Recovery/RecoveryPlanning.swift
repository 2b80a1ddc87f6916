import SalvorModel
import SalvorRecovery
import SalvorStorage
import SalvorWire

extension RecoveryRun {
  /// Recovers because a person says so.
  mutating func beginByHand(_ strategy: String?) async throws -> RecoveryResult {
    let isUnfinished = journal.state == .running || journal.state == .waiting
    if isUnfinished, strategy == nil || strategy == journal.strategy { return try await resume() }
    let (reason, message) = try await reasonByHand()
    let name = strategy ?? configuration.recovery.chain.name(for: reason)
    if name == StrategyChain.manual {
      throw SalvorError(
        .usage,
        "The configuration names no strategy for \(reason.rawValue) but \"manual\": name one with --strategy. Known: \(configuration.recovery.chain.names.joined(separator: ", "))."
      )
    }
    return try await begin(reason, message, strategy: name, isByHand: true)
  }

  /// Why: what waits, or what the device and the server find now; without a finding, because a person wants it.
  private mutating func reasonByHand() async throws -> (RecoveryReason, String) {
    if let reason = journal.reason, journal.state != .none { return (reason, journal.message) }
    let found = try await finding()
    return (found ?? .operatorRequested, found == nil ? "A person asked for it." : "Found by asking the server.")
  }

  /// What stands against a sync now; nil: nothing.
  private mutating func finding() async throws -> RecoveryReason? {
    let status = try await store.status()
    if status.state.isOlderThanIdentityFile { return .clientRewound }
    let (facts, _) = try await exchange.facts(status, try await store.history())
    await exchange.leave(facts)
    return facts.finding(status)
  }
}

extension RecoveryFacts {
  /// Why this device would have to recover or to rewind; nil: it is in step.
  func finding(_ status: ClientStatus) -> RecoveryReason? {
    if let reason { return reason }
    guard let known = status.state.serverID, known == server else { return nil }
    let isAhead = status.state.groups.contains { ($0.cursor?.number ?? 0) > (shared?.number ?? 0) }
    return isAhead ? .serverRestored : nil
  }

  /// Whether a server where this was found would let the device rewind inside a normal sync (semantics 5 and 6) instead of refusing it.
  func isRewound(_ state: ClientState, _ found: RecoveryReason) -> Bool {
    switch found {
    case .serverRestored:
      hasForgotten(state) || shared != nil && (stored == nil || stored == state.previous || stored == state.current)
    case .historyTrimmed: hasForgotten(state)
    default: false
    }
  }

  /// No S, and the device has P: the sync goes on as a first one (semantics 5, row 3).
  func hasForgotten(_ state: ClientState) -> Bool { stored == nil && state.previous != nil }
}

/// Finds out what a recovery would do, without writing on either side: the strategy plans, what differs is fetched and kept
/// aside, and the store rehearses.
struct RecoveryPlanning {
  let configuration: ClientConfiguration
  let store: any RecoveringClientStore

  func plan(_ strategy: String?, _ journal: RecoveryJournal) async throws -> RecoveryPlan {
    var run = RecoveryRun(configuration, store, journal, SyncReport()) { _ in }
    var exchange = run.exchange
    exchange.asksForFiles = true
    let (incident, config) = try await run.incident(.operatorRequested, "", &exchange)
    do {
      let plan = try await plan(strategy, &run, incident, config, &exchange)
      await exchange.leave(incident.facts)
      return plan
    } catch {
      await exchange.leave(incident.facts)
      throw error
    }
  }

  private func plan(
    _ strategy: String?, _ run: inout RecoveryRun, _ asked: Incident, _ config: SyncConfig?,
    _ exchange: inout RecoveryExchange
  ) async throws -> RecoveryPlan {
    var incident = asked
    incident.reason = run.journal.reason ?? .operatorRequested
    let isNew = run.journal.state == .none || incident.isElsewhere
    let found =
      isNew
      ? (asked.status.state.isOlderThanIdentityFile ? .clientRewound : asked.facts.finding(asked.status))
      : run.journal.reason
    var plan = RecoveryPlan(
      reason: found, strategy: "", fellBackFrom: [], notes: [], steps: [], counts: RecoveryCounts(), sent: 0,
      rowsToFetch: 0, bytes: nil, files: [])
    incident.reason = found ?? .operatorRequested
    let waits = try await waits(incident, for: config)
    if found == nil, strategy == nil {
      plan.waits = waits
      return plan
    }
    let isUnfinished =
      strategy == nil && !asked.isElsewhere && [.running, .waiting].contains(run.journal.state)
      && !run.journal.steps.isEmpty
    if isUnfinished, try await store.recoveries(limit: 10).contains(where: { $0.id == run.journal.id }) {
      plan.strategy = run.journal.strategy
      plan.notes.append(
        "\(plan.strategy) is through, and did not get to its end (\(run.journal.step)): the next synchronization does what is left. salvor recover --list tells what it has done."
      )
      plan.counts.kept = incident.status.queued
      return plan
    }
    let isRewind =
      strategy == nil
      && (isNew
        ? found.map { asked.facts.isRewound(asked.status.state, $0) } ?? false
        : run.journal.strategy == RecoveryRun.rewind)
    let steps =
      isUnfinished
      ? goOn(with: run.journal, &plan) : try decide(strategy, incident, isRewind: isRewind, &plan)
    let fallsForSchema = strategy == nil && !plan.fellBackFrom.isEmpty && !incident.facts.differences.isEmpty
    if let waits, fallsForSchema || steps.contains(.fetch(.differences)) {
      if fallsForSchema { plan.strategy = plan.fellBackFrom[0] }
      (plan.waits, plan.fellBackFrom, plan.notes) = (waits, [], [])
      plan.counts.kept = incident.status.queued
      return plan
    }
    plan.steps = steps.map(\.name)
    plan.sent = steps.contains(.upload) ? incident.status.queued : 0
    guard
      let (requests, rebuild) = steps.lazy.compactMap({ step in
        if case .apply(let requests, let rebuild) = step { (requests, rebuild) } else { nil }
      }).first
    else {
      plan.counts.kept = incident.status.queued - plan.sent
      return plan
    }
    // What a rebuilt database would lack is what an in-place recovery would: only the rows come whole. Not where tables differ: there the
    // rebuild itself is rehearsed.
    let isOtherSchema = rebuild != .nothing && !incident.facts.differences.isEmpty
    let isFollowedFirst = config != nil && incident.facts.differences.isEmpty
    if isFollowedFirst {
      plan.notes.append(
        "the server has another schema, which is followed first: the counts come with it")
    } else {
      // What is uploaded before is no loss. Rows of other tables cannot be applied in place.
      let what: RecoveryStep.Fetch = isOtherSchema ? .everything : .differences
      let requests = plan.sent > 0 && !isOtherSchema ? .keep : requests
      do {
        try await rehearse(
          what, (requests, isOtherSchema ? rebuild : .nothing), &run, incident, config, &exchange, &plan,
          isByHand: strategy != nil)
      } catch let error as SalvorError where error.code == .massDeletion {
        stop(&plan, RecoveryRun.stopped(error.message, incident.reason), incident)
        return plan
      }
    }
    if rebuild != .nothing {
      plan.rowsToFetch = incident.facts.rows
      plan.bytes = nil
      let wanted = RecoveryFetch.everyGroup(incident.status, config, try await store.history().tables)
      plan.files = (incident.facts.files ?? []).filter { wanted.contains($0.group) }
      let all = incident.status.queued + incident.status.inError + incident.status.displaced
      var counts = RecoveryCounts()
      // Offers that wait are none of them.
      let discarded = isFollowedFirst ? all : plan.counts.discarded
      counts.discarded = plan.sent > 0 ? incident.status.inError + incident.status.displaced : discarded
      counts.upserts = incident.facts.rows
      counts.deletes = plan.counts.deletes
      let made = try await store.rowsMadeHere()
      if isOtherSchema, plan.sent > 0 { counts.deletes = max(0, counts.deletes - made) }
      if !isOtherSchema, plan.sent == 0 { counts.deletes += made }
      counts.lost = plan.counts.lost
      counts.offered = plan.counts.offered
      counts.unoffered = plan.counts.unoffered
      plan.counts = counts
    }
    return plan
  }

  /// Why the device waits for its server, and what a recovery by hand would do instead. Nil: it does not wait.
  private func waits(_ incident: Incident, for config: SyncConfig?) async throws -> String? {
    guard let config else { return nil }
    let known = Schema(version: incident.status.state.schemaVersion, tables: try await store.history().tables)
    guard let error = config.isBehind(known, own: configuration.schema) else { return nil }
    let chain = configuration.recovery.chain
    let others = chain.names.filter { name in
      guard case .steps(let steps)? = chain[name]?.plan(for: incident) else { return false }
      return steps.contains(.fetch(.everything))
    }
    guard let first = others.first else { return error.message }
    return
      "\(error.message) A recovery by hand does not wait where it makes the tables anew (\(others.joined(separator: ", "))): it takes the server's schema and rows as they are. salvor recover --plan --strategy \(first) shows what becomes of what waits here."
  }

  /// Fetches what differs and lets the store try, in a transaction that it rolls back.
  private func rehearse(
    _ what: RecoveryStep.Fetch, _ applied: (requests: RecoveryOrder.Requests, rebuild: RecoveryOrder.Rebuild),
    _ run: inout RecoveryRun, _ incident: Incident, _ config: SyncConfig?,
    _ exchange: inout RecoveryExchange, _ plan: inout RecoveryPlan, isByHand: Bool
  ) async throws {
    var bytes: Int64 = 0
    let store = store
    var fetching = RecoveryFetch(
      store: store, questions: exchange.questions(incident.facts), facts: incident.facts, status: incident.status)
    let (starts, groups) = try await fetching.run(what, reason: incident.reason, config: config) { payload, _ in
      bytes += Int64(payload.count)
      try await store.keepForRehearsal(payload)
    }
    exchange.report = fetching.questions.report
    var journal = RecoveryJournal(state: .running, id: "plan")
    journal.strategy = plan.strategy
    // What waits for a person goes on by hand alone, and what waits for the administrator has passed the guard.
    journal.isByHand = isByHand || run.journal.isByHand || [.required, .waiting].contains(run.journal.state)
    journal.demand = incident.facts.demand ?? (run.journal.state == .none ? nil : run.journal.demand)
    journal.newRemoteID = RemoteID(from: configuration.random)
    let order = run.order(applied.requests, applied.rebuild, incident, starts, groups, journal, config)
    let report = try await store.rehearse(order)
    if order.isOutcomeUnknown, incident.status.queued > 0 {
      plan.notes.append(
        "The copy is older than what the server remembers of uploads (its commit \(incident.facts.trimmed)): what waits here may have been accepted before, and goes to the archive as outcome-unknown."
      )
    }
    plan.counts = report.counts
    plan.rowsToFetch = report.counts.upserts
    plan.bytes = bytes
  }

  /// The guard would stop the strategy: a person decides, and nothing becomes of the rows.
  private func stop(_ plan: inout RecoveryPlan, _ why: String, _ incident: Incident) {
    plan.guarded = why
    plan.fellBackFrom.append(plan.strategy)
    plan.notes.append(
      "\(plan.strategy): \(why) salvor recover --plan --strategy S shows what a strategy would do by hand."
    )
    plan.strategy = StrategyChain.manual
    plan.steps = []
    if case .steps(let steps)? = configuration.recovery.chain[StrategyChain.manual]?.plan(for: incident) {
      plan.steps = steps.map(\.name)
    }
    plan.sent = 0
    plan.counts = RecoveryCounts()
    plan.counts.kept = incident.status.queued
  }

  /// What has begun goes on as it began, whatever the configuration says by then.
  private func goOn(with journal: RecoveryJournal, _ plan: inout RecoveryPlan) -> [RecoveryStep] {
    plan.strategy = journal.strategy
    let at = journal.step.isEmpty ? "" : ", and is at the step \(journal.step)"
    plan.notes.append(
      "\(journal.strategy) has begun\(at): the next synchronization goes on with it, whatever the configuration says by now."
    )
    let fetch = journal.steps.firstIndex { if case .fetch = $0 { true } else { false } } ?? 0
    return Array(journal.steps.dropFirst(min(journal.stepsDone, fetch)))
  }

  private func decide(
    _ strategy: String?, _ incident: Incident, isRewind: Bool, _ plan: inout RecoveryPlan
  ) throws -> [RecoveryStep] {
    if isRewind {
      plan.strategy = RecoveryRun.rewind
      return RecoveryRun.rewindSteps
    }
    let chain = configuration.recovery.chain
    let first = strategy ?? chain.name(for: incident.reason)
    if strategy == nil, let passed = chain.passedOver(for: incident.reason) {
      plan.fellBackFrom.append(passed.name)
      plan.notes.append("\(passed.name): \(passed.why)")
    }
    guard chain[first] != nil else {
      throw SalvorError(
        .unknownModule,
        "There is no recovery strategy \"\(first)\". Known: \(chain.names.joined(separator: ", ")).")
    }
    for name in chain.chain(from: first) {
      switch chain[name]?.plan(for: incident) {
      case .steps(let steps):
        plan.strategy = name
        return steps
      case .cannot(let why):
        plan.fellBackFrom.append(name)
        plan.notes.append("\(name): \(why)")
      case nil: continue
      }
    }
    return []
  }
}
