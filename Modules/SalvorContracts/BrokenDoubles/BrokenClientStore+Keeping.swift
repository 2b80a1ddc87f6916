import SalvorModel
import SalvorStorage

/// The faults of the queue and the error archive.
extension BrokenClientStore {
  private func falsified(_ removal: RequestRemoval) -> RequestRemoval {
    switch (fault, removal) {
    case (.empties, .entry(let id)): .archive(id)
    case (.deletesOneByOne, .archive(let id?)): .entry(id)
    default: removal
    }
  }

  private func falsified(_ report: RemovalReport) -> RemovalReport {
    var report = report
    if fault == .forgetsCauses { for place in report.requests.indices { report.requests[place].cause = .askedFor } }
    if fault == .hidesRemadeRows { report.rows = [] }
    return report
  }

  func blurred(_ entry: QueuedRequest) -> QueuedRequest {
    var entry = entry
    if fault == .hidesHistory { entry.history = [] }
    if fault == .hidesNeeds { entry.needs = [] }
    if fault == .hidesServerRows { entry.serverRow = nil }
    return entry
  }

  /// `plansForReal`: removes what it only has to plan. Three more falsify what is removed or reported, as in `remove`.
  public func plan(_ removal: RequestRemoval) async throws -> RemovalReport {
    fault == .plansForReal ? try await remove(removal) : falsified(try await base.plan(falsified(removal)))
  }

  /// `empties`, `deletesOneByOne`: another selection. `forcesRemovals`, `removesUnknown`: no error, and nothing done.
  public func remove(_ removal: RequestRemoval) async throws -> RemovalReport {
    do {
      return falsified(try await base.remove(falsified(removal)))
    } catch let error as SalvorError
      where error.code == .outcomeUnknown && fault == .forcesRemovals
      || error.code == .notFound && fault == .removesUnknown
    {
      return RemovalReport()
    }
  }

  /// `retriesNothing`: an empty report. `retriesEverything`: every failed and displaced request, whichever were named.
  public func retry(_ ids: Set<RequestID>?) async throws -> RetryReport {
    if fault == .retriesNothing { return RetryReport() }
    return try await base.retry(fault == .retriesEverything ? nil : ids)
  }

  /// `reappliesNothing`: takes the entry out of the archive, and answers nil.
  public func reapply(_ kept: RequestID) async throws -> RequestID? {
    guard fault == .reappliesNothing else { return try await base.reapply(kept) }
    _ = try await base.remove(.kept(kept))
    return nil
  }

  /// No fault changes it.
  public func optimiseQueue() async throws -> Int { try await base.optimiseQueue() }

  /// `hidesHistory`, `hidesNeeds`, `hidesServerRows`: each change without that part.
  public func request(_ id: RequestID) async throws -> [QueuedRequest] {
    try await base.request(id).map(blurred)
  }

  /// `forgetsFailures`: does nothing.
  public func noteUploadFailure(_ failure: UploadFailure) async throws {
    if fault != .forgetsFailures { try await base.noteUploadFailure(failure) }
  }
}
