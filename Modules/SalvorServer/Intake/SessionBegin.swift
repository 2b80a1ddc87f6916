import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// A begin that has passed every check.
struct SessionBegin: Sendable {
  var message: BeginMessage
  /// S = C: the recorded results are given again.
  var answersAgain = false
  /// The device's schema differs, additively: the SyncConfig goes with the answer.
  var sendsConfig = false
}

extension ServerEngine {
  /// The checks of a begin, in the order of semantics 5. Throws the error that the first failing one names; nothing has
  /// been staged, applied or answered by then.
  func check(_ message: BeginMessage, principal: Principal) async throws -> SessionBegin {
    if case .reset(let reason) = checkServer(known: message.server, own: identity.server) {
      throw refusal(reason, message, stored: nil)
    }
    let admission = try await configuration.store.admit(
      AdmissionQuery(
        remote: message.remote, previous: message.previous, current: message.current,
        cursors: message.groups.compactMap(\.cursor), olderSequences: message.history?.sequences ?? [],
        commits: message.history?.commits ?? []))
    if let remote = admission.remote {
      if remote.isBlocked {
        throw SalvorError(
          .remoteBlocked, "An administrator has blocked this remote ID. Ask the server's operator.",
          context: ["remote": message.remote.text])
      }
      if remote.principal != principal.name && !remote.isDeleted {
        throw SalvorError(
          .remoteOfAnother,
          "This remote ID belongs to another principal. A device's queue is never sent as another user: sign in as the first one, or start a new database.",
          context: ["remote": message.remote.text])
      }
    }
    if admission.remote == nil || admission.remote?.isDeleted == true {
      try await configuration.store.register(message.remote, principal: principal.name)
      metrics.registrations.add(1)
    }
    var begin = SessionBegin(message: message)
    begin.answersAgain = try await checkSequence(message, admission)
    if configuration.historyCheck {
      switch checkHistory(cursors: admission.cursors, historyIsGiven: message.history != nil) {
      case .inStep: break
      case .historyNeeded: throw historyNeeded("commits")
      case .reset(let reason): throw refusal(reason, message, stored: admission.remote?.sequence)
      }
    }
    begin.sendsConfig = try checkSchema(message)
    return begin
  }

  private func checkSequence(_ message: BeginMessage, _ admission: Admission) async throws -> Bool {
    let stored = admission.remote.flatMap { $0.isDeleted ? nil : $0.sequence }
    var isRecorded = false
    if let current = message.current, stored != current, admission.remote?.isDeleted == true {
      isRecorded = try await configuration.store.results(message.remote, sequence: current) != nil
    }
    let verdict = SalvorServer.checkSequence(
      stored: stored, previous: message.previous, current: message.current, isRecorded: isRecorded,
      previousIsOlder: admission.previousIsOlder, remembered: message.history?.sequences,
      cursorIsKnown: !admission.cursors.isEmpty && admission.cursors.allSatisfy { $0 != .unknown })
    switch verdict {
    case .inStep, .remoteForgotten: return false
    case .answerAgain: return true
    case .historyNeeded: throw historyNeeded("sequences")
    case .reset(let reason): throw refusal(reason, message, stored: stored)
    }
  }

  /// Whether the device needs the SyncConfig.
  private func checkSchema(_ message: BeginMessage) throws -> Bool {
    if message.schemaDigest == config.digest { return false }
    if compatibleDigests.withLock({ $0.contains(message.schemaDigest) }) { return true }
    guard let tables = message.history?.tables.array else { throw historyNeeded("tables") }
    let device = try tables.map { try TableDefinition.table($0) }
    let differences = destructiveDifferences(
      device: device, deviceVersion: message.schemaVersion, server: config.entries.map(\.table),
      serverVersion: config.schemaVersion)
    guard differences.isEmpty else {
      let list = differences.joined(separator: "; ")
      log(refused: message, stored: nil, reason: .schemaIncompatible)
      throw SalvorError(
        .schemaIncompatible,
        "The server's schema has changed in a way that this database cannot follow: \(list).",
        context: ["reason": RecoveryReason.schemaIncompatible.rawValue])
    }
    compatibleDigests.withLock { digests in
      if digests.count >= 1000 { digests = [] }
      digests.insert(message.schemaDigest)
    }
    return true
  }

  private func historyNeeded(_ what: String) -> SalvorError {
    SalvorError(.historyNeeded, "Begin again with the history that the device remembers.", context: ["need": what])
  }

  private func refusal(_ reason: RecoveryReason, _ message: BeginMessage, stored: SequenceID?) -> SalvorError {
    log(refused: message, stored: stored, reason: reason)
    metrics.resets.add(1)
    return SalvorError(
      .uploadFailedAtServer,
      "The device and the server do not have the same history (\(reason.rawValue)). The device must be recovered: salvor recover --plan says what that would do.",
      context: ["reason": reason.rawValue, "remote": message.remote.text])
  }

  /// The line that an administrator looks for, with the three IDs and the remote ID.
  private func log(refused message: BeginMessage, stored: SequenceID?, reason: RecoveryReason) {
    configuration.log(
      "[-10400] Invalid sync sequence ID for remote ID '\(message.remote)' (\(reason.rawValue)). "
        + "The sync sequence ID in the consolidated database: \(stored?.text ?? "none"); "
        + "the remote previous sequence ID: \(message.previous?.text ?? "none"), "
        + "and the current sequence ID: \(message.current?.text ?? "none")")
  }
}
