import SalvorModel
import SalvorStorage

/// The faults of the queue and the error archive. The store without one must be a `RequestKeepingClientStore`.
extension BrokenClientStore: RequestKeepingClientStore {
  private var keeping: any RequestKeepingClientStore {
    get throws {
      guard let store = base as? any RequestKeepingClientStore else {
        throw SalvorError(.usage, "The store that is to be broken keeps no requests for people. Give one that does.")
      }
      return store
    }
  }

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

  public func plan(_ removal: RequestRemoval) async throws -> RemovalReport {
    fault == .plansForReal ? try await remove(removal) : falsified(try await keeping.plan(falsified(removal)))
  }

  public func remove(_ removal: RequestRemoval) async throws -> RemovalReport {
    do {
      return falsified(try await keeping.remove(falsified(removal)))
    } catch let error as SalvorError
      where error.code == .outcomeUnknown && fault == .forcesRemovals
      || error.code == .notFound && fault == .removesUnknown
    {
      return RemovalReport()
    }
  }

  public func retry(_ ids: Set<RequestID>?) async throws -> RetryReport {
    if fault == .retriesNothing { return RetryReport() }
    return try await keeping.retry(fault == .retriesEverything ? nil : ids)
  }

  public func reapply(_ kept: RequestID) async throws -> RequestID? {
    guard fault == .reappliesNothing else { return try await keeping.reapply(kept) }
    _ = try await keeping.remove(.kept(kept))
    return nil
  }

  public func optimiseQueue() async throws -> Int { try await keeping.optimiseQueue() }

  public func request(_ id: RequestID) async throws -> [QueuedRequest] {
    try await keeping.request(id).map(blurred)
  }

  public func noteUploadFailure(_ failure: UploadFailure) async throws {
    if fault != .forgetsFailures { try await keeping.noteUploadFailure(failure) }
  }
}
