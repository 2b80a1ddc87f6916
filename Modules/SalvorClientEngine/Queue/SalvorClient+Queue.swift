import SalvorModel
import SalvorStorage

/// The request queue and the error archive (semantics 8). None of this needs an upload; all but `retry` and `reapply` are
/// done when the call returns, and what those two make goes with the next sync.
extension SalvorClient {
  /// The request queue, in order: one element for each change, those of one request together.
  public func queue(after: RequestID? = nil, limit: Int = 1000) async throws -> [QueuedRequest] {
    try await openStore().requests(in: [.queued, .sent, .unknownOutcome], after: after, limit: limit)
  }

  /// The error archive, in order.
  public func errorArchive(after: RequestID? = nil, limit: Int = 1000) async throws -> [QueuedRequest] {
    try await openStore().requests(in: [.refused, .blocked, .displaced, .kept], after: after, limit: limit)
  }

  /// Writes an application's changes as one request (semantics 3): one transaction here, accepted or refused as a whole, in
  /// one transaction of the server. With a SQLite library of its own, an application does the same between
  /// `INSERT INTO salvor_request(tag) VALUES (…)` and `DELETE FROM salvor_request`. Throws what the database refuses;
  /// nothing is written then.
  public func write(_ changes: [ApplicationWrite], tag: String? = nil) async throws {
    try await openStore().write([.beginRequest(tag: tag)] + changes + [.endRequest])
  }

  /// Every change of one request, in any state. Empty: there is none of this ID.
  public func request(_ id: RequestID) async throws -> [QueuedRequest] { try await openStore().request(id) }

  /// What deleting this entry of the archive means: a kept one goes alone; of the others, the whole archive, or with
  /// `individualDeletion` this one and what depends on it.
  public func deletion(of entry: RequestID) async throws -> RequestRemoval {
    let isKept = try await openStore().request(entry).first?.state == .kept
    if isKept { return .kept(entry) }
    return configuration.individualDeletion ? .entry(entry) : .archive(entry)
  }

  /// What `remove` would answer; nothing is written.
  public func plan(_ removal: RequestRemoval) async throws -> RemovalReport { try await openStore().plan(removal) }

  /// Takes requests out of the queue or the archive, with everything that has to go with them. Throws `not-found` and
  /// `outcome-unknown`; nothing is changed then.
  @discardableResult
  public func remove(_ removal: RequestRemoval) async throws -> RemovalReport { try await openStore().remove(removal) }

  /// Deletes an entry of the error archive (`deletion(of:)`).
  @discardableResult
  public func delete(_ entry: RequestID) async throws -> RemovalReport { try await remove(deletion(of: entry)) }

  /// Takes a queued request back, and all that depend on it.
  @discardableResult
  public func withdraw(_ request: RequestID) async throws -> RemovalReport { try await remove(.withdraw(request)) }

  /// Makes failed requests wait again, under new IDs; nil: all of them.
  @discardableResult
  public func retry(_ entries: Set<RequestID>? = nil) async throws -> RetryReport {
    try await openStore().retry(entries)
  }

  /// Does again what a kept entry did. Nil: the rows were so already. Throws `not-found` and `cannot-stand`.
  @discardableResult
  public func reapply(_ kept: RequestID) async throws -> RequestID? { try await openStore().reapply(kept) }

  func openStore() async throws -> any ClientStore {
    if !isOpen { try await open() }
    return configuration.store
  }

  /// An upload whose outcome is not known yet has had one more try in vain: people are told of one that makes no progress
  /// (`UploadStatus.stall`). Attempts within one synchronization count as one; a session of another process that is under
  /// way, or a call that was cancelled, says nothing of the upload.
  func noteUploadFailure(_ error: SalvorError) async throws {
    guard error.code != .sessionInUse, error.code != .cancelled else { return }
    let now = configuration.clock.now()
    try await configuration.store.noteUploadFailure(
      UploadFailure(
        error: error.code.rawValue, time: now, nextAttempt: error.retryAfterMilliseconds.map { now + $0 }))
  }
}
