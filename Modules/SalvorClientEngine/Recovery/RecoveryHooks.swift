import SalvorModel
import SalvorRecovery

/// The callbacks of a recovery (semantics 9): each runs exactly once, or is known to have been begun.
extension RecoveryRun {
  /// Before anything is touched, and after the guards have passed. What it throws stops the recovery; the next sync begins
  /// another one, or goes on with one whose remote ID the server has forgotten.
  mutating func runBeforeReset(_ incident: Incident) async throws {
    let failure = try await runOnce(
      \.beforeReset, "beforeReset", step: "before-reset", configuration.recovery.beforeReset, before: nil)
    guard let failure else { return }
    await exchange.leave(incident.facts)
    let message =
      "beforeReset failed, so nothing was touched: \(failure.message) Correct the hook; the next sync tries again."
    // A copy of what was not touched is of no use.
    if !hasForgotten, let copy = journal.backup {
      _ = try await store.deleteBackup(copy)
      journal.backup = nil
    }
    stopped = RecoverySummary(waiting: journal)
    // By hand nothing else may ask for it.
    if !journal.isByHand { try await store.setRecoveryRequired(incident.reason, message: message) }
    if hasForgotten {
      journal.beforeReset = .pending
      try await save()
    } else {
      try await rest(attempts: journal.attempts, demand: nil)
    }
    throw SalvorError(.recoveryRequired, message, context: ["reason": incident.reason.rawValue])
  }

  /// After the database is as it will be: what it throws is told, and undoes nothing.
  mutating func runAfterReset() async throws {
    let failure = try await runOnce(
      \.afterReset, "afterReset", step: "after-reset", configuration.recovery.afterReset, before: await backupPath())
    if let failure { notices.append("afterReset failed: \(failure.message)") }
  }

  /// Calls the hook unless the journal says that it was begun. Answers with what it threw.
  private mutating func runOnce(
    _ state: WritableKeyPath<RecoveryJournal, RecoveryJournal.HookState>, _ name: String, step: String,
    _ hook: RecoveryConfiguration.Hook?, before: String?
  ) async throws -> SalvorError? {
    switch journal[keyPath: state] {
    case .none, .done: return nil
    case .begun:
      notices.append("\(name) was begun when the device stopped; whether it ended is not known. It is not run again.")
      journal[keyPath: state] = .done
      return nil
    case .pending: break
    }
    guard let hook else {
      journal[keyPath: state] = .none
      return nil
    }
    journal[keyPath: state] = .begun
    journal.step = step
    try await save()
    let notice = RecoveryConfiguration.Notice(
      id: journal.id, reason: journal.reason ?? .operatorRequested, strategy: journal.strategy,
      database: store.location, before: before)
    do {
      try await hook(notice)
    } catch {
      return asSalvorError(error)
    }
    journal[keyPath: state] = .done
    return nil
  }
}
