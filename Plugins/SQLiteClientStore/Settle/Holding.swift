import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Requests that wait for others (semantics 7 and 8): held back behind one that has failed, and released when it is accepted
/// at last. In a transaction, with nothing under way; requests are sorted.
struct Holding {
  let context: StoreContext
  private var connection: SQLiteConnection { context.connection }

  /// Blocked requests that nothing holds any more wait for the next upload. What was sent before has a new ID, since the
  /// server has settled the old one; it keeps its place, and what it saw.
  ///
  /// - Parameter dependence: where rows are in work that the log does not have yet.
  func release(_ dependence: DependenceLookup? = nil) throws {
    let blocked = try context.requestRows(where: "state = 'blocked'")
    guard !blocked.isEmpty else { return }
    let dependence = try dependence ?? DependenceLookup(context)
    var held: Set<Int64> = []
    // Requests that were refused, and those that are sent again and not accepted yet.
    var roots = try context.requests(in: .refused) + context.sentAgain()
    let successors = try context.successors()
    while !roots.isEmpty {
      held.formUnion(try dependence.dependents(of: roots).map(\.first))
      roots = try blocked.filter { request in
        guard !held.contains(request.range.first), let id = request.blockedBy,
          let blocker = try place(of: id, successors)
        else {
          return false
        }
        return held.contains(blocker)
      }.map(\.range)
    }
    let stamp = try context.stamp(of: try connection.lastCounter() + 1)
    for request in blocked where !held.contains(request.range.first) {
      try context.change(request.range) { $0.clearState() }
      try context.restamp(request.range, stamp)
    }
  }

  /// A displaced request that was blocked by one that has left is blocked by nothing.
  func releaseDisplaced() throws {
    var successors = try context.successors()
    for request in try context.requestRows(where: "state = 'displaced' AND state_before = 'blocked'") {
      guard let id = request.blockedBy else { continue }
      let found = try context.find(id)
      if found == nil ? successors[id] != nil : found?.state != .kept { continue }
      let stamp = try context.stamp(of: try connection.lastCounter() + 1)
      // Those after it name it by the ID that it had.
      successors[try context.requestID(first: request.range.first)] = request.range.first
      try context.restamp(request.range, stamp)
      try context.change(request.range) { row in
        row.stateBefore = nil
        row.setReason(.constraint)
      }
    }
  }

  /// The first counter of the request that has, or had, an ID.
  private func place(of id: RequestID, _ successors: [RequestID: Int64]) throws -> Int64? {
    if let found = try context.find(id), !found.isArchived { return found.range.first }
    return successors[id]
  }

  /// What the next upload goes without. It costs what was captured since the last time, as long as nothing else has come to pass of
  /// the requests in error.
  func choose() throws {
    if try !isAllKnown() {
      try release()
      if try holdBack() {
        // Requests that were sent again may hold one another, in a circle: nothing else holds them now.
        try release()
        _ = try holdBack()
      }
    }
    try connection.setState(.errorsUpTo, try connection.state(.rangesUpTo))
  }

  /// Nothing that was captured since depends on a request in error.
  private func isAllKnown() throws -> Bool {
    guard let captured = try context.capturedSinceErrors() else { return false }
    if captured.isEmpty { return true }
    return try DependenceLookup(context).dependents(among: captured, on: context.failedRequests()).isEmpty
  }

  /// What depends on a failed request is not sent: it is blocked by the oldest. True: some are blocked now.
  private func holdBack() throws -> Bool {
    let failed = try context.failedRequests()
    guard !failed.isEmpty else { return false }
    let dependence = try DependenceLookup(context)
    var isBlocked = false
    var covered: Set<Int64> = []
    for request in failed where !covered.contains(request.first) {
      let dependents = try dependence.dependents(of: [request])
      isBlocked =
        try context.block(
          dependents.filter { !covered.contains($0.first) }, by: try context.requestID(first: request.first))
        || isBlocked
      covered.formUnion(dependents.map(\.first))
    }
    return isBlocked
  }
}

extension StoreContext {
  /// Of these, the ones that wait. True: there were some.
  @discardableResult
  func block(_ requests: [RequestRange], by id: RequestID) throws -> Bool {
    var isBlocked = false
    for range in requests where try state(of: range) == .queued {
      isBlocked = true
      try change(range) { row in
        (row.state, row.at) = (.blocked, clock.now())
        row.setReason(
          RefusalReason.blocked.rawValue, QueuedRequest.blockedMessage, status: RefusalReason.blocked.status,
          blockedBy: id)
      }
    }
    return isBlocked
  }
}
