import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// What is known of one request beside its changes: a row of `OutstandingTable`.
struct RequestRow {
  var range: RequestRange
  /// Of a request that was sent again; nil: that of its counter.
  var stamp: RequestStamp?
  /// The upload under way reaches beyond it, and goes without it.
  var isApart = false
  /// Refused or blocked, displaced or kept; nil: it waits, or was sent.
  var state: RequestState?
  /// Of a request in the archive: what it is when it returns. Nil: it waits.
  var stateBefore: RequestState?
  /// Of a displaced request: the server has accepted a younger change of its row since, and it returns when a person asks.
  var isOvertaken = false
  var reason: String?
  var status: Int?
  var message: String?
  var blockedBy: RequestID?
  /// Since when it is in this state.
  var at: Int64?
  var since: Int64?
  var attempts = 0
  var lastAttempt: Int64?
  /// The IDs that it had, oldest first.
  var history: [RequestID] = []
  /// What it was under its stamp before columns or tables were dropped, oldest first.
  var former: [FormerContent] = []

  init(_ range: RequestRange) { self.range = range }

  var isInError: Bool { state == .refused || state == .blocked }
  var isArchived: Bool { state == .displaced || state == .kept }

  /// It says no more than a change of the log does.
  var isPlain: Bool {
    range.last == range.first && range.tag == nil && stamp == nil && !isApart && state == nil && since == nil
      && attempts == 0 && lastAttempt == nil && history.isEmpty && former.isEmpty
  }

  mutating func setReason(_ reason: String?, _ message: String?, status: Int? = nil, blockedBy: RequestID? = nil) {
    self.reason = reason
    self.message = message
    self.status = status
    self.blockedBy = blockedBy
  }

  mutating func setReason(_ reason: DisplacementReason) { setReason(reason.rawValue, reason.message) }

  /// It is neither in error nor in the archive any more.
  mutating func clearState() {
    (state, stateBefore, at) = (nil, nil, nil)
    isOvertaken = false
    setReason(nil, nil)
  }

  // MARK: In the file

  static let columns =
    "first, last, tag, stamp, apart, state, state_before, reason, status, message, blocked_by, at, since, attempts, last_attempt, history, overtaken, former"

  /// - Parameter row: its `columns`.
  init(_ row: [Value]) throws {
    range = RequestRange(first: row[0].integer ?? 0, last: row[1].integer ?? 0, tag: row[2].string)
    stamp = row[3].string.flatMap { RequestStamp($0) }
    isApart = row[4].integer == 1
    state = row[5].string.flatMap { RequestState(rawValue: $0) }
    stateBefore = row[6].string.flatMap { RequestState(rawValue: $0) }
    reason = row[7].string
    status = row[8].integer.map { Int($0) }
    message = row[9].string
    blockedBy = row[10].string.flatMap { RequestID($0) }
    at = row[11].integer
    since = row[12].integer
    attempts = Int(row[13].integer ?? 0)
    lastAttempt = row[14].integer
    history = try unpayload(row[15]).compactMap { $0.string.flatMap { RequestID($0) } }
    isOvertaken = row[16].integer == 1
    former = try FormerContent.list(row[17])
  }

  var values: [Value] {
    func text(_ value: String?) -> Value { value.map { .text($0) } ?? .null }
    func integer(_ value: Int64?) -> Value { value.map { .integer($0) } ?? .null }
    return [
      .integer(range.first), .integer(range.last), text(range.tag), text(stamp?.text), isApart ? 1 : .null,
      text(state?.rawValue), text(stateBefore?.rawValue), text(reason), integer(status.map { Int64($0) }),
      text(message), text(blockedBy?.description), integer(at), integer(since), .integer(Int64(attempts)),
      integer(lastAttempt),
      history.isEmpty ? .null : .text(payload(history.map { .text($0.description) })),
      isOvertaken ? 1 : .null,
      former.isEmpty
        ? .null : .text(payload(former.flatMap { [.integer($0.first), .integer(Int64($0.content))] })),
    ]
  }
}

extension FormerContent {
  /// From the column `former`.
  static func list(_ value: Value) throws -> [FormerContent] {
    let numbers = try unpayload(value).compactMap(\.integer)
    return stride(from: 0, to: numbers.count - 1, by: 2).map { place in
      FormerContent(first: numbers[place], content: UInt32(truncatingIfNeeded: numbers[place + 1]))
    }
  }
}
