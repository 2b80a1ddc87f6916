import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// `salvor_outstanding`: requests that are more than one change that waits, one row each. They have several changes or a tag, were
/// refused, blocked or sent again, are in the archive, or the upload under way goes without them. A change without a row is a
/// plain request of its own.
///
/// The statements on the table stand here, besides the views (`StoreViews`), what joins it with another table, and the triggers of
/// marks.
enum OutstandingTable {
  static let definition = """
    -- Requests that are more than one change that waits. stamp: of one that was sent again. apart: 1, the upload under way
    -- reaches beyond it and goes without it. state: of one in error (refused, blocked) or in the archive (displaced, kept), with its reason.
    -- state_before: what one of the archive is when it returns. history: the IDs it had, oldest first.
    -- overtaken: 1, of a displaced one: the server has accepted a younger change of its row since.
    -- former: its first counters and contents before columns or tables were dropped (FormerContent).
    CREATE TABLE IF NOT EXISTS salvor_outstanding (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, tag TEXT, stamp TEXT, apart INTEGER, state TEXT, state_before TEXT, reason TEXT, status INTEGER, message TEXT, blocked_by TEXT, at INTEGER, since INTEGER, attempts INTEGER NOT NULL DEFAULT 0, last_attempt INTEGER, history TEXT, overtaken INTEGER, former TEXT);
    CREATE INDEX IF NOT EXISTS salvor_outstanding_state ON salvor_outstanding (state, first) WHERE state IS NOT NULL;
    CREATE INDEX IF NOT EXISTS salvor_outstanding_apart ON salvor_outstanding (first) WHERE apart = 1;
    CREATE INDEX IF NOT EXISTS salvor_outstanding_lost ON salvor_outstanding (at) WHERE reason = 'lost-on-server';
    CREATE INDEX IF NOT EXISTS salvor_outstanding_history ON salvor_outstanding (first) WHERE history IS NOT NULL;
    """

  static let inError = "state IN ('refused', 'blocked')"
  static let isArchived = "state IN ('displaced', 'kept')"
  static let isNotArchived = "(state IS NULL OR \(inError))"
  /// But for `apart` the row says no more than a change of the log (`RequestRow.isPlain`).
  fileprivate static let isPlainElse =
    "last = first AND coalesce(tag, stamp, state, since, last_attempt, history, former) IS NULL AND attempts = 0"
  static let isLost = "reason = 'lost-on-server' AND state = 'kept'"
}

// MARK: Rows

extension StoreContext {
  /// What is known of a request.
  func row(of range: RequestRange) throws -> RequestRow {
    try requestRows(where: "first = ?1", .integer(range.first)).first ?? RequestRow(range)
  }

  /// In order.
  func requestRows(where condition: String, _ values: Value...) throws -> [RequestRow] {
    try connection.rows(
      "SELECT \(RequestRow.columns) FROM salvor_outstanding WHERE \(condition) ORDER BY first", values
    ).map { try RequestRow($0) }
  }

  /// One that says no more than its change has no row.
  func store(_ row: RequestRow) throws {
    if row.isPlain { return try forget(row.range) }
    let values = row.values
    let places = (1...values.count).map { "?\($0)" }.joined(separator: ", ")
    try connection.run(
      "INSERT OR REPLACE INTO salvor_outstanding (\(RequestRow.columns)) VALUES (\(places))", values)
  }

  func change(_ range: RequestRange, _ body: (inout RequestRow) throws -> Void) throws {
    let old = try row(of: range)
    var row = old
    try body(&row)
    if row.isInError != old.isInError || row.history != old.history { try lookAtAllErrors() }
    try store(row)
  }

  /// What edits or needs requests in error is looked for from the beginning: one has come or gone, or has another name.
  func lookAtAllErrors() throws { try connection.setState(.errorsUpTo, Value?.none) }

  /// Requests captured since it was last looked at what edits or needs those in error. In order; requests are sorted. Nil: everything
  /// has to be looked at (`StateName.errorsUpTo`), or it costs less to begin at those in error, which are fewer.
  func capturedSinceErrors() throws -> [RequestRange]? {
    guard let seen = try connection.state(.errorsUpTo)?.integer else { return nil }
    let most = try count(in: .refused, .blocked)
    var captured: [RequestRange] = []
    try connection.query(
      "SELECT seq FROM salvor_log WHERE seq > ?1 AND op IN \(Self.changeOperations) ORDER BY seq", [.integer(seen)]
    ) { row in
      if captured.last.map({ $0.last < row.int64(0) }) ?? true { captured.append(try range(of: row.int64(0))) }
      return captured.count <= most
    }
    return captured.count <= most ? captured : nil
  }

  private func ranges(where condition: String) throws -> [RequestRange] {
    var ranges: [RequestRange] = []
    try connection.query("SELECT first, last, tag FROM salvor_outstanding WHERE \(condition) ORDER BY first") { row in
      ranges.append(RequestRange(first: row.int64(0), last: row.int64(1), tag: row.optionalString(2)))
      return true
    }
    return ranges
  }

  private func isAny(_ condition: String, _ values: Value...) throws -> Bool {
    try connection.rows("SELECT 1 FROM salvor_outstanding WHERE \(condition) LIMIT 1", values).first != nil
  }

  /// When the request was made; nil: nobody has looked since.
  func since(_ row: RequestRow) throws -> Int64? {
    try row.since
      ?? connection.integer(
        "SELECT at FROM salvor_met WHERE first_seq <= ?1 ORDER BY first_seq DESC LIMIT 1", .integer(row.range.first))
  }

  // MARK: Leaving

  /// The request has left, and is not in the archive.
  func forget(_ range: RequestRange) throws {
    if try row(of: range).isInError { try lookAtAllErrors() }
    try connection.run("DELETE FROM salvor_outstanding WHERE first = ?1", .integer(range.first))
  }

  /// Requests that begin between two counters have left, those in the archive excepted.
  func forgetRequests(from first: Int64, to last: Int64) throws {
    try connection.run(
      "DELETE FROM salvor_outstanding WHERE first BETWEEN ?1 AND ?2 AND \(OutstandingTable.isNotArchived)",
      .integer(first), .integer(last))
  }

  func forgetEmptyRequests() throws {
    try connection.run(
      "DELETE FROM salvor_outstanding WHERE NOT EXISTS (SELECT 1 FROM salvor_log g WHERE g.seq BETWEEN first AND last AND g.op IN \(Self.changeOperations)) AND \(OutstandingTable.isNotArchived)"
    )
    if connection.changes > 0 { try lookAtAllErrors() }
  }

  // MARK: Which changes are one request

  /// The request that a change belongs to.
  func range(of counter: Int64) throws -> RequestRange {
    var range = RequestRange(first: counter, last: counter)
    try connection.query(
      "SELECT first, last, tag FROM salvor_outstanding WHERE first <= ?1 ORDER BY first DESC LIMIT 1",
      [.integer(counter)]
    ) { row in
      if row.int64(1) >= counter {
        range = RequestRange(first: row.int64(0), last: row.int64(1), tag: row.optionalString(2))
      }
      return false
    }
    return range
  }

  /// The request has lost its first change, and is named by the next.
  func moveStart(of request: RequestRange, to first: Int64) throws {
    let old = try requestID(first: request.first)
    try lookAtAllErrors()
    try connection.run(
      "UPDATE salvor_outstanding SET first = ?1 WHERE first = ?2", .integer(first), .integer(request.first))
    try connection.run(
      "UPDATE salvor_outstanding SET blocked_by = ?1 WHERE blocked_by = ?2",
      .text(try requestID(first: first).description), .text(old.description))
  }

  /// How many changes of the log belong to requests that begin in a gap and are named by an earlier change.
  func changesBeyondFirst(of gap: RequestRange = RequestRange(first: 0, last: .max)) throws -> Int64 {
    try connection.integer(
      "SELECT coalesce(sum(max(0, (SELECT count(*) FROM salvor_log g WHERE g.seq BETWEEN o.first AND o.last AND g.op IN \(Self.changeOperations)) - 1)), 0) "
        + "FROM salvor_outstanding o WHERE o.first BETWEEN ?1 AND ?2 AND o.last > o.first", .integer(gap.first),
      .integer(gap.last)) ?? 0
  }

  // MARK: States

  func hasErrors() throws -> Bool { try isAny(OutstandingTable.inError) }

  func anyDisplaced() throws -> Bool { try isAny("state = 'displaced'") }

  /// Requests in error, in the log, in order.
  func failedRequests() throws -> [RequestRange] { try ranges(where: OutstandingTable.inError) }

  /// Nil: none is refused.
  func lastRefused() throws -> RequestID? {
    try connection.integer(
      "SELECT first FROM salvor_outstanding WHERE state = 'refused' ORDER BY last_attempt DESC, first DESC LIMIT 1"
    ).map { try requestID(first: $0) }
  }

  /// In order.
  func displacedRequests() throws -> [RequestRange] { try requests(in: .displaced) }

  /// Displaced requests that wait for a person, by their first counters.
  func overtaken() throws -> Set<Int64> {
    Set(try ranges(where: "state = 'displaced' AND overtaken = 1").map(\.first))
  }

  /// Those that are refused, blocked, displaced or kept, in order.
  func requests(in state: RequestState) throws -> [RequestRange] {
    try ranges(where: "state = '\(state.rawValue)'")
  }

  func count(in states: RequestState...) throws -> Int64 {
    let names = states.map { "'\($0.rawValue)'" }.joined(separator: ", ")
    return try connection.integer("SELECT count(*) FROM salvor_outstanding WHERE state IN (\(names))") ?? 0
  }

  /// The request is in the archive as a whole, as a displaced one: what it was before goes with it. One that was in error keeps its reason.
  /// - Parameter message: nil: the reason's.
  func setDisplaced(_ range: RequestRange, _ reason: DisplacementReason, _ message: String? = nil) throws {
    let uploadLast = try connection.state(.uploadLast)?.integer ?? 0
    try change(range) { row in
      if row.isInError {
        row.stateBefore = row.state
      } else {
        // One that was sent belongs to its upload until that is settled.
        row.stateBefore = range.first <= uploadLast && !row.isApart ? .sent : nil
        row.setReason(reason.rawValue, message ?? reason.message)
      }
      row.state = .displaced
      row.at = clock.now()
    }
  }

  /// The displaced request is in the log again, as what it was before.
  func setReturned(_ range: RequestRange) throws {
    let uploadLast = try connection.state(.uploadLast)?.integer ?? 0
    try change(range) { row in
      let before = row.stateBefore
      if before == .refused || before == .blocked {
        (row.state, row.stateBefore, row.at) = (before, nil, clock.now())
        row.isOvertaken = false
      } else {
        row.clearState()
      }
      // It returns to the queue, not to an upload that was chosen without it.
      if before != .sent, range.first <= uploadLast { row.isApart = true }
    }
  }

  /// A younger change of its row was accepted: the displaced request returns when a person asks. One that was in error keeps its reason.
  func setOvertaken(_ range: RequestRange) throws {
    try change(range) { row in
      row.isOvertaken = true
      if row.stateBefore != .refused && row.stateBefore != .blocked { row.setReason(.overtaken) }
    }
  }

  /// The request is in the archive, and returns only where somebody wants it.
  func keep(_ range: RequestRange, _ reason: String, _ message: String) throws {
    try change(range) { row in
      (row.state, row.at) = (.kept, clock.now())
      row.setReason(reason, message)
    }
  }

  /// The displaced request stays in the archive until somebody wants it, with the reason that it has.
  func keepAsItIs(_ range: RequestRange) throws {
    try change(range) { row in
      (row.state, row.stateBefore, row.at) = (.kept, nil, clock.now())
      row.isOvertaken = false
    }
  }

  /// No displaced request returns by itself any more. One that was in error keeps its message.
  func keepDisplaced(_ reason: String, _ message: String) throws {
    try connection.run(
      "UPDATE salvor_outstanding SET state = 'kept', reason = ?1, message = CASE WHEN state_before IN ('refused', 'blocked') THEN coalesce(message, ?2) ELSE ?2 END WHERE state = 'displaced'",
      .text(reason), .text(message))
  }

  /// The upload is over: requests of the archive that belonged to it do so no more.
  func forgetSentBefore() throws {
    try connection.run(
      "UPDATE salvor_outstanding SET state_before = NULL WHERE \(OutstandingTable.isArchived) AND state_before = 'sent'"
    )
  }

  /// The archive has rows that the server has lost.
  ///
  /// - Parameter time: lost until then.
  func anyLost(until time: Int64 = .max) throws -> Bool {
    try isAny("\(OutstandingTable.isLost) AND at <= ?1", .integer(time))
  }

  func forgetLost(until time: Int64) throws {
    let old = "salvor_outstanding WHERE \(OutstandingTable.isLost) AND at <= ?1"
    try connection.run("DELETE FROM salvor_archive WHERE first IN (SELECT first FROM \(old))", .integer(time))
    try connection.run("DELETE FROM \(old)", .integer(time))
  }

  // MARK: The upload under way

  /// Runs of counters that the upload under way leaves out: requests in error, and those of other groups. In order.
  func leftOut() throws -> [RequestRange] {
    try ranges(
      where:
        "first IN (SELECT first FROM salvor_outstanding WHERE \(OutstandingTable.inError) UNION SELECT first FROM salvor_outstanding WHERE apart = 1)"
    )
  }

  func leaveOut(_ requests: [RequestRange]) throws {
    guard !requests.isEmpty else { return }
    let statement = try connection.prepare(
      "INSERT INTO salvor_outstanding (first, last, tag, apart) VALUES (?1, ?2, ?3, 1) ON CONFLICT (first) DO UPDATE SET apart = 1"
    )
    for request in requests {
      try statement.bind(1, request.first)
      try statement.bind(2, request.last)
      try statement.bind(3, request.tag.map { .text($0) } ?? Value.null)
      try statement.run()
    }
  }

  /// There is no upload that goes without them.
  func forgetLeftOut() throws {
    try connection.run("DELETE FROM salvor_outstanding WHERE apart = 1 AND \(OutstandingTable.isPlainElse)")
    try connection.run("UPDATE salvor_outstanding SET apart = NULL WHERE apart = 1")
  }

  // MARK: Names

  /// The stamp that a request has since it was sent again; nil: that of its counter.
  func ownStamp(of counter: Int64) throws -> String? {
    try connection.scalar(
      "SELECT CASE WHEN last >= ?1 THEN stamp END FROM salvor_outstanding WHERE first <= ?1 ORDER BY first DESC LIMIT 1",
      .integer(counter))?.string
  }

  /// The request has this stamp from here on; the ID it had is its history.
  func restamp(_ range: RequestRange, _ stamp: RequestStamp) throws {
    let old = try requestID(first: range.first)
    guard old.stamp != stamp else { return }
    try change(range) { row in
      row.stamp = stamp
      row.history.append(old)
      // The server may have settled it under the ID that it had.
      row.former = []
    }
  }

  /// The first counters of requests that were sent again, by each ID that they had.
  func successors() throws -> [RequestID: Int64] {
    var found: [RequestID: Int64] = [:]
    for row in try requestRows(where: "history IS NOT NULL") {
      for id in row.history { found[id] = row.range.first }
    }
    return found
  }

  /// Requests that were sent again, are not in error, and are in the log. In order.
  func sentAgain() throws -> [RequestRange] { try ranges(where: "history IS NOT NULL AND state IS NULL") }
}

/// The requests of several changes, tagged ones, and those that were others before, met in order.
struct RangeCursor {
  private let statement: SQLiteStatement
  private var current: RequestRange?
  /// Of the range that was found last.
  private(set) var former: [FormerContent] = []
  private var isDone = false

  init(_ context: StoreContext, after counter: Int64) throws {
    statement = try context.connection.prepare(
      """
      SELECT first, last, tag, former FROM salvor_outstanding WHERE first >= coalesce((SELECT max(first) FROM salvor_outstanding WHERE first <= ?1), 0)
        AND last > ?1 AND (last > first OR coalesce(tag, former) IS NOT NULL) ORDER BY first
      """)
    try statement.bind(1, counter)
  }

  /// The range that holds `counter`; nil for a plain request of one change.
  mutating func range(of counter: Int64) throws -> RequestRange? {
    while !isDone, (current?.last ?? 0) < counter {
      if try statement.step() {
        current = RequestRange(
          first: statement.int64(0), last: statement.int64(1), tag: statement.optionalString(2))
        former = statement.isNull(3) ? [] : try FormerContent.list(statement.value(3))
      } else {
        isDone = true
        current = nil
      }
    }
    guard let current, current.first <= counter, counter <= current.last else { return nil }
    return current
  }
}
