import SQLiteSupport
import SalvorModel
import SalvorStorage

/// A request that is in the log or in the archive.
struct FoundRequest {
  var range: RequestRange
  var state: RequestState
  /// Displaced and kept ones are not in the log.
  var isArchived: Bool
  /// It belongs to the upload whose outcome is not known.
  var isUnderWay: Bool
}

extension StoreContext {
  /// Nil: there is no such request.
  func find(_ id: RequestID) throws -> FoundRequest? {
    if let found = try findArchived(first: id.counter, stamp: id.stamp) { return found }
    let range = try range(of: id.counter)
    guard range.first == id.counter, let state = try state(of: range), try stamp(of: range.first) == id.stamp else {
      return nil
    }
    return FoundRequest(
      range: range, state: state, isArchived: false, isUnderWay: state == .sent || state == .unknownOutcome)
  }

  private func findArchived(first: Int64, stamp: RequestStamp) throws -> FoundRequest? {
    guard
      let row = try connection.rows(
        "SELECT last, tag, state, state_before FROM salvor_archive WHERE first = ?1 AND stamp = ?2 LIMIT 1",
        .integer(first), .text(stamp.text)
      ).first, let last = row[0].integer, let state = row[2].string.flatMap({ RequestState(rawValue: $0) })
    else { return nil }
    return FoundRequest(
      range: RequestRange(first: first, last: last, tag: row[1].string), state: state, isArchived: true,
      isUnderWay: row[3].string == RequestState.sent.rawValue)
  }

  /// Throws `not-found` with the state, or the new ID, that the request has.
  func known(_ id: RequestID, in states: Set<RequestState>) throws -> FoundRequest {
    let found = try find(id)
    if let found, states.contains(found.state) { return found }
    let successor = try connection.integer(
      "SELECT first FROM salvor_request_history WHERE id = ?1 LIMIT 1", .text(id.description))
    throw SalvorError.requestNotFound(
      id, state: found?.state, now: try successor.map { try requestID(first: $0) })
  }

  /// The state of a request in the log; nil: it has no change there.
  func state(of range: RequestRange) throws -> RequestState? {
    let there = try connection.integer(
      "SELECT 1 FROM salvor_log WHERE seq BETWEEN ?1 AND ?2 AND op IN \(Self.changeOperations) LIMIT 1",
      .integer(range.first), .integer(range.last))
    guard there != nil else { return nil }
    let failed = try connection.scalar(
      "SELECT state FROM salvor_request_state WHERE first = ?1", .integer(range.first))
    if let failed = failed?.string { return RequestState(rawValue: failed) }
    guard let last = try connection.state(.uploadLast)?.integer, range.first <= last,
      try connection.integer("SELECT 1 FROM salvor_upload_excluded WHERE first = ?1", .integer(range.first)) == nil
    else { return .queued }
    return try connection.text(.uploadState).flatMap { RequestState(rawValue: $0) } ?? .sent
  }

  /// Requests in error, in the log, in order.
  func failedRequests() throws -> [RequestRange] {
    try connection.rows("SELECT first FROM salvor_request_state ORDER BY first").compactMap {
      try $0[0].integer.map { try range(of: $0) }
    }
  }

  /// In order.
  func displacedRequests() throws -> [RequestRange] { try archivedRequests(.displaced) }

  /// The requests of the archive that are in a state, in order.
  func archivedRequests(_ state: RequestState) throws -> [RequestRange] {
    try connection.rows(
      "SELECT DISTINCT first, last, tag FROM salvor_archive WHERE state = '\(state.rawValue)' ORDER BY first"
    ).compactMap { row in
      guard let first = row[0].integer, let last = row[1].integer else { return nil }
      return RequestRange(first: first, last: last, tag: row[2].string)
    }
  }

  /// Throws `outcome-unknown` for the first of these that belongs to an upload whose outcome is not known.
  func refuseUnderWay(_ requests: [RequestRange]) throws {
    guard let sequence: SequenceID = try connection.identifier(.current) else { return }
    for request in requests {
      let id = try requestID(first: request.first)
      if try find(id)?.isUnderWay == true { throw SalvorError.outcomeUnknown(id, sequence) }
    }
  }
}
