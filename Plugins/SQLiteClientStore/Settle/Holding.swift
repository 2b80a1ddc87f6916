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
    var blocked: [(range: RequestRange, by: RequestID?)] = []
    for row in try connection.rows(
      "SELECT first, blocked_by FROM salvor_request_state WHERE state = 'blocked' ORDER BY first")
    {
      guard let first = row[0].integer else { continue }
      blocked.append((try context.range(of: first), row[1].string.flatMap { RequestID($0) }))
    }
    guard !blocked.isEmpty else { return }
    let dependence = try dependence ?? DependenceLookup(context)
    var held: Set<Int64> = []
    var roots = try holders()
    while !roots.isEmpty {
      held.formUnion(try dependence.dependents(of: roots).map(\.first))
      roots = try blocked.filter { request in
        guard !held.contains(request.range.first), let id = request.by, let blocker = try place(of: id) else {
          return false
        }
        return held.contains(blocker)
      }.map(\.range)
    }
    let stamp = try context.stamp(of: try connection.lastCounter() + 1)
    for (range, _) in blocked where !held.contains(range.first) {
      try connection.run("DELETE FROM salvor_request_state WHERE first = ?1", .integer(range.first))
      try context.restamp(range, stamp)
    }
  }

  /// A displaced request that was blocked by one that has left is blocked by nothing.
  func releaseDisplaced() throws {
    let blocked =
      "SELECT DISTINCT first, last, tag, blocked_by FROM salvor_archive WHERE state = 'displaced' AND state_before = 'blocked' ORDER BY first"
    for row in try connection.rows(blocked) {
      guard let first = row[0].integer, let last = row[1].integer, let id = row[3].string.flatMap({ RequestID($0) })
      else { continue }
      let found = try context.find(id)
      if try found == nil ? successor(of: id) != nil : found?.state != .kept { continue }
      let range = RequestRange(first: first, last: last, tag: row[2].string)
      let stamp = try context.stamp(of: try connection.lastCounter() + 1)
      try context.restamp(range, stamp)
      try connection.run(
        "UPDATE salvor_archive SET stamp = ?2, state_before = NULL, reason = ?3, status = NULL, message = ?4, blocked_by = NULL WHERE first = ?1",
        .integer(first), .text(stamp.text), .text(DisplacementReason.constraint.rawValue),
        .text(DisplacementReason.constraint.message))
    }
  }

  /// Requests that were refused, and those that are sent again and not accepted yet.
  private func holders() throws -> [RequestRange] {
    try connection.rows(
      """
      SELECT first FROM salvor_request_state WHERE state = 'refused'
      UNION SELECT first FROM salvor_request_history h WHERE NOT EXISTS (SELECT 1 FROM salvor_request_state s WHERE s.first = h.first)
        AND NOT EXISTS (SELECT 1 FROM salvor_archive a WHERE a.first = h.first)
      """
    ).compactMap { try $0[0].integer.map { try context.range(of: $0) } }
  }

  /// The first counter of the request that has, or had, an ID.
  private func place(of id: RequestID) throws -> Int64? {
    if let found = try context.find(id), !found.isArchived { return found.range.first }
    return try successor(of: id)
  }

  /// The first counter of the request that had an ID.
  private func successor(of id: RequestID) throws -> Int64? {
    try connection.integer("SELECT first FROM salvor_request_history WHERE id = ?1 LIMIT 1", .text(id.description))
  }

  /// What depends on a failed request is not sent: it is blocked by the oldest. True: some are blocked now.
  func holdBack() throws -> Bool {
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
      try connection.run(
        "INSERT INTO salvor_request_state (first, last, state, reason, status, message, blocked_by, at) VALUES (?1, ?2, 'blocked', ?3, ?4, ?5, ?6, ?7)",
        .integer(range.first), .integer(range.last), .text(RefusalReason.blocked.rawValue),
        .integer(Int64(RefusalReason.blocked.status)), .text(QueuedRequest.blockedMessage), .text(id.description),
        .integer(clock.now()))
    }
    return isBlocked
  }

  /// The request has this stamp from here on; the ID it had is its history.
  func restamp(_ range: RequestRange, _ stamp: RequestStamp) throws {
    let old = try requestID(first: range.first)
    guard old.stamp != stamp else { return }
    try connection.run(
      "INSERT OR REPLACE INTO salvor_restamped (first, last, stamp) VALUES (?1, ?2, ?3)", .integer(range.first),
      .integer(range.last), .text(stamp.text))
    try connection.run(
      "INSERT INTO salvor_request_history (first, place, id) SELECT ?1, count(*), ?2 FROM salvor_request_history WHERE first = ?1",
      .integer(range.first), .text(old.description))
  }
}
