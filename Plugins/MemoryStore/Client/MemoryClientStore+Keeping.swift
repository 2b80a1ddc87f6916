import SalvorModel
import SalvorStorage

extension MemoryClientStore {
  /// What `remove` would do. Changes nothing.
  public func plan(_ removal: RequestRemoval) throws -> RemovalReport {
    var state = try read()
    return try state.remove(removal, try constraints(state), now: clock.now())
  }

  public func remove(_ removal: RequestRemoval) throws -> RemovalReport {
    var state = try read()
    let report = try state.remove(removal, try constraints(state), now: clock.now())
    database.state = state
    return report
  }

  public func retry(_ ids: Set<RequestID>?) throws -> RetryReport {
    var state = try read()
    let report = try state.retry(ids, try constraints(state), now: clock.now())
    database.state = state
    return report
  }

  public func reapply(_ kept: RequestID) throws -> RequestID? {
    var state = try read()
    let id = try state.reapply(kept, try constraints(state), now: clock.now())
    database.state = state
    return id
  }

  /// Returns how many requests were joined to others; 0 while an upload is under way, which stays as it is.
  public func optimiseQueue() throws -> Int {
    var state = try read()
    let count = state.optimise()
    try state.remake(try constraints(state))
    database.state = state
    return count
  }

  /// The request's entries; empty where the queue has no such request.
  public func request(_ id: RequestID) throws -> [QueuedRequest] {
    let state = try read()
    guard let request = state.requests.first(where: { $0.id == id }) else { return [] }
    return RequestListing(state, now: clock.now()).entries(of: request)
  }

  /// Does nothing where no upload is under way.
  public func noteUploadFailure(_ failure: UploadFailure) throws {
    var state = try read()
    guard let upload = state.upload else { return }
    state.upload = upload.failed(failure)
    database.state = state
  }
}
