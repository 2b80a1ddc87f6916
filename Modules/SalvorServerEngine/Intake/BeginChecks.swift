import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// What the checks of a begin found that ask about the remote: sequence IDs and history.
enum BeginVerdict: Sendable, Hashable {
  case accepted(answersAgain: Bool)
  case reset(RecoveryReason)
  /// The device goes back to this commit, which both have made; nil: there is none, and it compares everything. The reason is
  /// `server-restored`, or `history-trimmed` where the server has lost nothing that the device knows of.
  case parted(Commit?, RecoveryReason)
  /// The device must say what it remembers of this.
  case historyNeeded(String)
}

extension ServerEngine {
  /// The checks of a begin, in the order of semantics 5. Throws the error that the first failing one names; nothing has
  /// been staged, applied or answered by then.
  func check(_ message: BeginMessage, principal: Principal) async throws -> SessionBegin {
    LogContext.current?.set("remote", message.remote.text)
    activity.noteBegin(message, principal)
    if case .reset(let reason) = checkServer(known: message.server, own: identity.server) {
      throw refusal(reason, message, principal, stored: nil)
    }
    let admission = try await admission(of: message, principal: principal, download: download(of: message, principal))
    if admission.remote == nil || admission.remote?.isDeleted == true {
      try await withinQuota(principal) {
        try await write(for: principal) { try await $0.register(message.remote, principal: principal.name) }
      }
      metrics.registrations.add(1)
    }
    var begin = SessionBegin(message: message)
    begin.incarnations = untold(message, admission)
    begin.heal = await healTerms(admission)
    switch try await verdict(on: message, admission) {
    case .accepted(let answersAgain): begin.answersAgain = answersAgain
    case .reset(let reason): throw refusal(reason, message, principal, stored: admission.stored)
    case .parted(let shared, let reason): throw parting(message, principal, admission, shared, reason)
    case .historyNeeded(let what): throw historyNeeded(what)
    }
    if !message.withdrawn.isEmpty { try await withdraw(message, principal, &begin.heal) }
    begin.sendsConfig = try checkSchema(message, principal, answersAgain: begin.answersAgain)
    if message.current == nil || !begin.answersAgain { begin.page = admission.page }
    activity.noteSuccess(of: message.remote)
    return begin
  }

  /// What the device does not know yet, with the incarnation of now: what this session commits is of it, and a device that is told
  /// only with its next session may meet a restored server then.
  private func untold(_ message: BeginMessage, _ admission: Admission) -> [Incarnation] {
    guard message.incarnation != identity.incarnation else { return [] }
    let present = identity.incarnation
    let isTold = admission.incarnations.contains { $0.id == present }
    guard message.upload != .none, !isTold else { return admission.incarnations }
    return admission.incarnations + [Incarnation(id: present, firstCommit: admission.head.number + 1)]
  }

  private func healTerms(_ admission: Admission) async -> HealTerms? {
    guard configuration.store is any HealingServerStore else { return nil }
    return HealTerms(
      incarnation: identity.incarnation, floor: await floor.number(configuration.store),
      waiting: admission.waitingOffers, settlings: admission.settlings, deletes: admission.waitingDeletes)
  }

  /// The device has taken back offers that wait here.
  private func withdraw(_ message: BeginMessage, _ principal: Principal, _ heal: inout HealTerms?) async throws {
    guard configuration.store is any HealingServerStore else { return }
    let count = try await write(for: principal) { store in
      try await (store as? any HealingServerStore)?.withdrawOffers(message.withdrawn, of: message.remote) ?? 0
    }
    if count > 0 { configuration.log("\(count) offers of lost rows were taken back by the device \(message.remote).") }
    guard var terms = heal else { return }
    terms.waiting = max(0, terms.waiting - count)
    terms.withdrawn = message.withdrawn
    heal = terms
  }

  /// The download of a begin that sends nothing and compares nothing.
  private func download(of message: BeginMessage, _ principal: Principal) -> PageRequest? {
    guard message.upload == .none, message.position == nil, message.compare.isEmpty, message.compared == nil else {
      return nil
    }
    return PageRequest(
      remote: message.remote, principal: principal, subscriptions: message.subscriptions,
      groups: message.groups.map(\.state), position: nil, bytesTarget: configuration.limits.chunkBytesTarget,
      takesParts: message.takesParts)
  }

  /// What the store knows of the remote and its history. Throws where it is blocked, or another principal's.
  func admission(
    of message: BeginMessage, principal: Principal, download: PageRequest? = nil
  ) async throws -> Admission {
    let history = message.history
    let counts = [history?.sequences.count, history?.commits.count, history?.incarnations.count]
    guard counts.allSatisfy({ $0 ?? 0 <= RecoveryLimits.historyMax }) else {
      throw SalvorError(
        .tooLarge,
        "A begin's history names at most \(RecoveryLimits.historyMax) commits, sequence IDs and incarnations each.")
    }
    let cursors = message.groups.compactMap(\.cursor)
    var admission = try await configuration.store.admit(
      AdmissionQuery(
        remote: message.remote, previous: message.previous, current: message.current, cursors: cursors,
        olderSequences: history?.sequences ?? [], commits: history.map { $0.commits + cursors } ?? [],
        incarnations: history?.incarnations ?? [], incarnation: message.incarnation, download: download))
    try checkOwner(admission.remote, principal, named: message.principal)
    let groups = message.groups.filter { $0.cursor != nil }
    for (place, group) in groups.enumerated() where admission.cursors[place] == .trimmed {
      if isCompared(group.name, message) { admission.cursors[place] = .known }
    }
    return admission
  }

  /// Every table of the group is compared: nothing of it is fed from the cursor, and no tombstone is missed.
  private func isCompared(_ group: String, _ message: BeginMessage) -> Bool {
    guard configuration.store is any RecoveringServerStore else { return false }
    return configuration.schema.tables(inGroup: group).allSatisfy { table in
      table.download == .keySet && message.compare.contains { $0.table == table.name }
    }
  }

  /// Throws where a known remote is blocked, or another principal's.
  ///
  /// - Parameter named: whose database it is, as the device says: a server that was put back does not know its remote ID.
  func checkOwner(_ remote: RemoteRecord?, _ principal: Principal, named: String? = nil) throws {
    if let remote, remote.isBlocked {
      throw SalvorError(
        .remoteBlocked, "An administrator has blocked this remote ID. Ask the server's operator.",
        context: ["remote": remote.id.text])
    }
    let isOfAnother = remote.map { !$0.principal.isSameName(as: principal.name) && !$0.isDeleted } ?? false
    if isOfAnother || named.map({ !$0.isSameName(as: principal.name) }) ?? false {
      throw SalvorError(
        .remoteOfAnother,
        "This remote ID belongs to another principal. A device's queue is never sent as another user: sign in as the first one, or start a new database.",
        context: remote.map { ["remote": $0.id.text] } ?? [:])
    }
  }

  /// The checks that come after registration and before the schema.
  func verdict(on message: BeginMessage, _ admission: Admission) async throws -> BeginVerdict {
    if admission.remote?.isResetDemanded == true { return .reset(.operatorRequested) }
    let answersAgain: Bool
    switch try await checkSequence(message, admission) {
    case .inStep: answersAgain = false
    case .remoteForgotten: return try await forgottenVerdict(message, admission)
    case .answerAgain: answersAgain = true
    case .historyNeeded: return .historyNeeded("sequences")
    case .reset(let reason): return .reset(reason)
    }
    return historyVerdict(message, admission, answersAgain: answersAgain)
  }

  private func historyVerdict(
    _ message: BeginMessage, _ admission: Admission, answersAgain: Bool
  ) -> BeginVerdict {
    guard configuration.historyCheck else { return .accepted(answersAgain: answersAgain) }
    let canRewind = configuration.store is any RecoveringServerStore
    let history = checkHistory(
      cursors: admission.cursors, historyIsGiven: message.history != nil, shared: canRewind ? admission.lastShared : nil
    )
    return switch history {
    case .inStep: .accepted(answersAgain: answersAgain)
    case .historyNeeded: .historyNeeded("commits")
    case .reset(let reason): .reset(reason)
    case .parted(let shared): .parted(shared, .serverRestored)
    }
  }

  /// No S, and the device has P: an administrator deleted the remote ID, or this server is older than the remote's first
  /// sync. That is accepted, whatever the history check finds (semantics 5): where the device knows of commits that this
  /// server has not made, or has trimmed, it goes back to the newest one that both have, or to none.
  ///
  /// The cursor alone does not tell: it may be older than the device's own upload, whose commit the server lost.
  private func forgottenVerdict(_ message: BeginMessage, _ admission: Admission) async throws -> BeginVerdict {
    guard configuration.historyCheck, let store = configuration.store as? any RecoveringServerStore else {
      return historyVerdict(message, admission, answersAgain: false)
    }
    guard let history = message.history else { return .historyNeeded("commits") }
    let newest = history.commits.map(\.number).max() ?? 0
    if admission.cursors.contains(.unknown) { return .parted(admission.lastShared, .serverRestored) }
    // What is older than the change log may have been made here, and counts as that.
    if newest > admission.lastShared?.number ?? 0, newest >= (try await store.trimmed()) {
      return .parted(admission.lastShared, .serverRestored)
    }
    return admission.cursors.contains(.trimmed)
      ? .parted(admission.lastShared, .historyTrimmed) : .accepted(answersAgain: false)
  }

  private func checkSequence(_ message: BeginMessage, _ admission: Admission) async throws -> SequenceVerdict {
    let stored = admission.stored
    var isRecorded = false
    if let current = message.current, stored != current, admission.remote?.isDeleted == true {
      isRecorded = try await configuration.store.results(message.remote, sequence: current) != nil
    }
    return SalvorServerEngine.checkSequence(
      stored: stored, previous: message.previous, current: message.current, isRecorded: isRecorded,
      previousIsOlder: admission.previousIsOlder, remembered: message.history?.sequences,
      cursorIsKnown: !admission.cursors.isEmpty && admission.cursors.allSatisfy { $0 != .unknown })
  }

  /// Whether the device needs the SyncConfig.
  private func checkSchema(_ message: BeginMessage, _ principal: Principal, answersAgain: Bool) throws -> Bool {
    if message.schemaDigest == config.digest { return false }
    let needsAdoption: Bool
    if let known = compatibleDigests.withLock({ $0[message.schemaDigest] }) {
      needsAdoption = known
    } else {
      let differences = try schemaDifferences(message)
      guard differences.ahead.isEmpty else {
        throw SalvorError(
          .schemaAhead,
          "The application's schema is ahead of the server's: \(differences.ahead.joined(separator: "; ")) on this device. Nothing is lost, and what is written waits. Give the server the schema of the application, and synchronize then."
        )
      }
      guard differences.destructive.isEmpty else {
        let list = differences.destructive.joined(separator: "; ")
        log(refused: message, principal, stored: nil, reason: .schemaIncompatible)
        throw SalvorError(
          .schemaIncompatible,
          "The schemas of this device and of the server differ in a way that the device's database cannot follow: \(list). Where it was the device's schema file that changed, put it back; where it was the server's, change that, or recover. The next synchronization goes on when they fit.",
          context: ["reason": RecoveryReason.schemaIncompatible.rawValue])
      }
      needsAdoption = differences.needsAdoption
      compatibleDigests.withLock { digests in
        if digests.count >= 1000 { digests = [:] }
        digests[message.schemaDigest] = needsAdoption
      }
    }
    // What was processed before is answered as it was; nothing else is taken in names that are not this schema's.
    if needsAdoption, message.upload != .none, !answersAgain { throw historyNeeded(BeginMessage.needsAdoption) }
    return true
  }

  /// How the device's schema differs from this server's.
  func schemaDifferences(_ message: BeginMessage) throws -> SchemaDifferences {
    if message.schemaDigest == config.digest { return SchemaDifferences() }
    guard let tables = message.history?.tables.array else { throw historyNeeded("tables") }
    return SchemaDifferences(
      device: try tables.map { try TableDefinition.table($0) }, deviceVersion: message.schemaVersion,
      server: config.entries.map(\.table), dropped: config.dropped, serverVersion: config.schemaVersion)
  }

  func historyNeeded(_ what: String) -> SalvorError {
    SalvorError(.historyNeeded, "Begin again with the history that the device remembers.", context: ["need": what])
  }

  private func refusal(
    _ reason: RecoveryReason, _ message: BeginMessage, _ principal: Principal, stored: SequenceID?
  ) -> SalvorError {
    log(refused: message, principal, stored: stored, reason: reason)
    metrics.resets.add(1)
    operatorEvents.send("reset", ["remote": message.remote.text, "reason": reason.rawValue])
    metrics.resetsByReason.add(MetricsText.label("reason", reason.rawValue))
    return SalvorError(
      .uploadFailedAtServer,
      "The device and the server do not have the same history (\(reason.rawValue)). The device must be recovered: salvor recover --plan says what that would do.",
      context: ["reason": reason.rawValue, "remote": message.remote.text])
  }

  /// The server lost commits that the device has seen, or has forgotten the remote and what came after its cursor: no error to a person.
  private func parting(
    _ message: BeginMessage, _ principal: Principal, _ admission: Admission, _ shared: Commit?, _ reason: RecoveryReason
  ) -> SalvorError {
    metrics.rewinds.add(1)
    operatorEvents.send(
      "rewind", ["remote": message.remote.text, "shared": shared.map { "\($0.number)" } ?? "none"])
    let isTrimmed = reason == .historyTrimmed
    deviceLog.say(
      "Remote ID '\(message.remote)' has "
        + (isTrimmed
          ? "a cursor older than the change log, and no sequence ID here. "
          : "seen commits that this server lost (the server's newest: \(admission.head.number)). ")
        + (shared.map { "It rewinds to commit \($0.number), the newest that both have." }
          ?? "They share none: it compares everything."),
      about: principal.name)
    return SalvorError(
      .historyParted,
      (isTrimmed
        ? "The server no longer keeps the changes since the device's last download, nor its sequence ID. The device "
        : "The server lost commits that the device has seen. The device ")
        + (shared.map { "goes back to commit \($0.number), which both have." }
          ?? "compares everything: they share none."),
      context: [
        "reason": reason.rawValue, "remote": message.remote.text,
        "shared": shared.map { "\($0.number)" } ?? "none",
      ])
  }

  /// The line that an administrator looks for, with the three IDs and the remote ID.
  private func log(
    refused message: BeginMessage, _ principal: Principal, stored: SequenceID?, reason: RecoveryReason
  ) {
    deviceLog.say(
      "[-10400] Invalid sync sequence ID for remote ID '\(message.remote)' (\(reason.rawValue)). "
        + "The sync sequence ID in the consolidated database: \(stored?.text ?? "none"); "
        + "the remote previous sequence ID: \(message.previous?.text ?? "none"), "
        + "and the current sequence ID: \(message.current?.text ?? "none")", about: principal.name, level: .warning,
      ["reason": reason.rawValue, "remote": message.remote.text])
  }
}

extension Admission {
  /// S; nil where the remote is unknown, or an administrator deleted it.
  var stored: SequenceID? { remote.flatMap { $0.isDeleted ? nil : $0.sequence } }
}
