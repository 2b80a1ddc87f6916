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
    let range = try range(of: id.counter)
    guard range.first == id.counter, try stamp(of: range.first) == id.stamp else { return nil }
    let row = try row(of: range)
    if row.isArchived, let state = row.state {
      return FoundRequest(range: range, state: state, isArchived: true, isUnderWay: row.stateBefore == .sent)
    }
    guard let state = try state(of: range) else { return nil }
    return FoundRequest(
      range: range, state: state, isArchived: false, isUnderWay: state == .sent || state == .unknownOutcome)
  }

  /// Throws `not-found` with the state, or the new ID, that the request has.
  func known(_ id: RequestID, in states: Set<RequestState>) throws -> FoundRequest {
    let found = try find(id)
    if let found, states.contains(found.state) { return found }
    throw SalvorError.requestNotFound(
      id, state: found?.state, now: try successors()[id].map { try requestID(first: $0) })
  }

  /// The state of a request in the log; nil: it has no change there.
  func state(of range: RequestRange) throws -> RequestState? {
    let there = try connection.integer(
      "SELECT 1 FROM salvor_log WHERE seq BETWEEN ?1 AND ?2 AND op IN \(Self.changeOperations) LIMIT 1",
      .integer(range.first), .integer(range.last))
    guard there != nil else { return nil }
    let row = try row(of: range)
    if row.isInError { return row.state }
    guard let last = try connection.state(.uploadLast)?.integer, range.first <= last, !row.isApart else {
      return .queued
    }
    return try connection.text(.uploadState).flatMap { RequestState(rawValue: $0) } ?? .sent
  }

  /// The change of the log is a delete.
  func isDelete(_ counter: Int64) throws -> Bool {
    try connection.integer(
      "SELECT 1 FROM salvor_log WHERE seq = ?1 AND op IN \(Self.deleteOperations)", .integer(counter)) != nil
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
