import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What a person does with requests that are not settled (semantics 8).
extension SQLiteClientStore {
  /// Does what `remove` does, in a transaction that is rolled back.
  public func plan(_ removal: RequestRemoval) throws -> RemovalReport {
    let context = try opened()
    // What is rolled back would be read anew by the removal.
    try context.connection.transaction(.deferred) { _ = try LogIndex(context) }
    do {
      return try context.connection.transaction {
        throw Planned(report: try removed(removal, context))
      }
    } catch let planned as Planned {
      return planned.report
    }
  }

  /// Takes back what was written to find out.
  private struct Planned: Error {
    var report: RemovalReport
  }

  /// Closes and splits an open group first. Gives free pages back to the system afterwards, where Salvor made the file.
  public func remove(_ removal: RequestRemoval) throws -> RemovalReport {
    let context = try opened()
    uploadPlan = nil
    let report = try context.connection.transaction { try removed(removal, context) }
    // It is done, whether there is time for this or not.
    try? giveBackSpace()
    return report
  }

  /// Gives free pages back to the system, where they are more than what is written next needs: after a mass deletion that a
  /// restore undid, or an archive that was emptied. In short transactions of 256 pages each. A file that the application has
  /// made keeps its free pages for what comes: giving those back would move its rows (VACUUM), which is the application's to do.
  func giveBackSpace(stepsMax: Int = .max) throws {
    guard let connection = context?.connection, try connection.integer("PRAGMA auto_vacuum") == 2 else { return }
    for _ in 0..<stepsMax {
      let free = try connection.integer("PRAGMA freelist_count") ?? 0
      let pages = try connection.integer("PRAGMA page_count") ?? 0
      guard free > max(256, pages / 20) else { return }
      try connection.execute("PRAGMA incremental_vacuum(256)")
    }
  }

  /// An open group is closed and split first, as the next sync would.
  private func removed(_ removal: RequestRemoval, _ context: StoreContext) throws -> RemovalReport {
    try straighten(context)
    return try Removal(context).run(removal)
  }

  /// Closes and splits an open group first, in the same transaction.
  public func retry(_ ids: Set<RequestID>?) throws -> RetryReport {
    let context = try opened()
    uploadPlan = nil
    return try context.connection.transaction {
      try straighten(context)
      return try Retry(context).run(ids)
    }
  }

  /// With foreign keys on, in one transaction. Closes and splits an open group first.
  public func reapply(_ kept: RequestID) throws -> RequestID? {
    let context = try opened()
    uploadPlan = nil
    try context.connection.pragma("foreign_keys", "ON")
    defer { _ = try? context.connection.pragma("foreign_keys", "OFF") }
    return try context.connection.transaction {
      try straighten(context)
      return try Reapplying(context: context).run(kept)
    }
  }

  /// Returns how many requests were joined to others; 0 while an upload is under way, which stays as it is.
  public func optimiseQueue() throws -> Int {
    let context = try opened()
    guard try context.connection.state(.current) == nil else { return 0 }
    return try context.connection.transaction {
      try straighten(context)
      var move = Move()
      move.joins = .waiting
      return try context.settle(move).joinedCount
    }
  }

  /// The request's entries; empty where the queue has no such request.
  public func request(_ id: RequestID) throws -> [QueuedRequest] {
    let context = try opened()
    return try context.connection.transaction { try RequestListing(context).entries(of: id) }
  }

  /// Does nothing where no upload is under way.
  public func noteUploadFailure(_ failure: UploadFailure) throws {
    let connection = try opened().connection
    guard let upload = try connection.uploadStatus(now: clock.now()) else { return }
    try connection.transaction { try connection.setUploadStatus(upload.failed(failure)) }
  }
}
