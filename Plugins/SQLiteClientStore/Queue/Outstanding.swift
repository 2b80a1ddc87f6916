import SQLiteSupport
import SalvorModel
import SalvorStorage

/// An outstanding request with its changes decoded.
struct OutstandingRequest {
  struct Change {
    var table: CapturedTable
    var key: Key
    var step: RowTimeline.Step
  }
  var range: RequestRange
  var changes: [Change]
  var state: RequestState
}

extension StoreContext {
  /// The requests in the log after `counter`, decoded, in order; at most `limit` of those that `isWanted`.
  ///
  /// - Parameter index: nil: one of its own.
  func outstanding(
    after counter: Int64 = 0, limit: Int = .max, index: LogIndex? = nil,
    where isWanted: (RequestState) -> Bool = { _ in true }
  ) throws -> [OutstandingRequest] {
    let steps = StepReader(try index ?? LogIndex(self))
    var states: [Int64: RequestState] = [:]
    for state in [RequestState.refused, .blocked] {
      for range in try requests(in: state) { states[range.first] = state }
    }
    let uploadLast = try connection.state(.uploadLast)?.integer ?? 0
    let uploadState = try connection.text(.uploadState).flatMap { RequestState(rawValue: $0) } ?? .sent
    let leftOut = Set(try leftOut().map(\.first))
    var ranges = try RangeCursor(self, after: counter)
    var found: [OutstandingRequest] = []
    try connection.query(
      "SELECT \(catalog.logColumns) FROM salvor_log WHERE seq > ?1 AND op IN \(Self.changeOperations) ORDER BY seq",
      [.integer(counter)]
    ) { row in
      let entry = try catalog.entry(from: row)
      guard let table = catalog.table(number: entry.table) else { return true }
      let range = try ranges.range(of: entry.seq) ?? RequestRange(first: entry.seq, last: entry.seq)
      let state =
        states[range.first] ?? (range.first <= uploadLast && !leftOut.contains(range.first) ? uploadState : .queued)
      guard isWanted(state) else { return true }
      if found.last?.range.first != range.first {
        if found.count >= limit { return false }
        found.append(OutstandingRequest(range: range, changes: [], state: state))
      }
      let key = entry.key(table)
      guard let step = try steps.step(entry, table, key) else { return true }
      found[found.count - 1].changes.append(OutstandingRequest.Change(table: table, key: key, step: step))
      return true
    }
    return found
  }

  /// One request in the log, decoded, with the old values that each change saw; nil: it is not there.
  func outstanding(_ range: RequestRange, index: LogIndex) throws -> OutstandingRequest? {
    guard let state = try state(of: range) else { return nil }
    let steps = StepReader(index)
    var request = OutstandingRequest(range: range, changes: [], state: state)
    try connection.query(
      "SELECT \(catalog.logColumns) FROM salvor_log WHERE seq BETWEEN ?1 AND ?2 AND op IN \(Self.changeOperations) ORDER BY seq",
      [.integer(range.first), .integer(range.last)]
    ) { row in
      let entry = try catalog.entry(from: row)
      guard let table = catalog.table(number: entry.table) else { return true }
      let key = entry.key(table)
      if let step = try steps.step(entry, table, key) {
        request.changes.append(OutstandingRequest.Change(table: table, key: key, step: step))
      }
      return true
    }
    return request
  }

  /// The rows that a request in the log changes, each once, with the counter of its first change there.
  func rows(changedBy range: RequestRange) throws -> [(table: CapturedTable, key: Key, first: Int64)] {
    var found: [(CapturedTable, Key, Int64)] = []
    var known: Set<RowRef> = []
    try connection.query(
      "SELECT \(catalog.logColumns) FROM salvor_log WHERE seq BETWEEN ?1 AND ?2 AND op IN \(Self.changeOperations) ORDER BY seq",
      [.integer(range.first), .integer(range.last)]
    ) { row in
      let entry = try catalog.entry(from: row)
      guard let table = catalog.table(number: entry.table) else { return true }
      let key = entry.key(table)
      if known.insert(RowRef(table: table.number, key: key)).inserted { found.append((table, key, entry.seq)) }
      return true
    }
    return found
  }
}

/// Decodes log entries, each row's together, with the old values that each change saw.
private final class StepReader {
  private let index: LogIndex
  private var timelines: [RowRef: [Int64: RowTimeline.Step]] = [:]

  init(_ index: LogIndex) { self.index = index }

  func step(_ entry: LogEntry, _ table: CapturedTable, _ key: Key) throws -> RowTimeline.Step? {
    let ref = RowRef(table: table.number, key: key)
    if timelines[ref]?[entry.seq] == nil {
      timelines[ref] = Dictionary(
        uniqueKeysWithValues: try index.timeline(table, key).steps.map { ($0.seq, $0.asCaptured) })
    }
    return timelines[ref]?[entry.seq]
  }
}
