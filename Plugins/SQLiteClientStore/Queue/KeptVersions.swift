import SQLiteSupport
import SalvorModel
import SalvorStorage

/// A change that a server had kept as a conflict version, or an offered delete that it held for its operator, and that it has lost
/// (semantics 10).
struct LostKeptVersion {
  var seq: Int64
  var first: Int64
  var last: Int64
  var stamp: RequestStamp
  var tag: String?
  var table: CapturedTable
  var operation: Operation
  var slots: [Int]
  var key: Key
  var before: [Value]
  var after: [Value]
  var made: Int64
  /// Nil: the server has not lost it, and is asked what became of it.
  var version: LostVersion?
  /// Of an offered delete: the version that it is of; nil: it is a conflict version.
  var review: LostVersion?

  /// Nil: nobody knows which version it is of.
  var offer: Offer? {
    guard var deleted = review else { return version.map { Offer($0, isVersion: true) } }
    if let version { deleted.parting = min(deleted.parting, version.parting) }
    return Offer(deleted, isForReview: true)
  }
}

/// What `salvor_kept` has, a page at a time, in order.
struct KeptVersionPages {
  private let context: StoreContext
  private let condition: String
  private var page: ArraySlice<LostKeptVersion> = []
  /// Nil: there are no more.
  private var last: Int64?
  private static let limit = 100

  init(_ context: StoreContext, _ condition: String, after counter: Int64 = 0) {
    self.context = context
    self.condition = condition
    last = counter
  }

  /// What goes again, with an upload that has the counters up to `upTo`.
  static func lost(_ context: StoreContext, after counter: Int64 = 0, upTo: Int64) -> KeptVersionPages {
    KeptVersionPages(context, "seq <= \(upTo) AND \(StoreContext.goesAgain)", after: counter)
  }

  /// The next one, which stays the next one; nil: there is none.
  mutating func first() throws -> LostKeptVersion? {
    while page.isEmpty, let from = last {
      let found = try context.keptVersions(where: condition, after: from, limit: Self.limit)
      (page, last) = (found.versions[...], found.last)
    }
    return page.first
  }

  mutating func next() throws -> LostKeptVersion? {
    defer { page = page.dropFirst() }
    return try first()
  }
}

/// What a server keeps beside its rows is this device's acknowledged change: the device remembers what it sent, until no listed
/// backup is from before it. So it does with deletes that wait for the operator's consent.
extension StoreContext {
  /// The server has lost it; or it is asked what became of a delete that it holds.
  static let goesAgain =
    "(held = 2 OR (incarnation IS NOT NULL AND withheld IS NULL AND incarnation IN (SELECT id FROM salvor_lost))) AND t IN (SELECT id FROM salvor_table)"

  /// The highest counter of those that the server has lost, or is asked about; nil: there are none.
  func lastLostVersion() throws -> Int64? {
    try connection.integer("SELECT max(seq) FROM salvor_kept WHERE \(Self.goesAgain)")
  }

  /// One by one, in order; no more than a page of them is in memory. The body may write.
  func eachKeptVersion(where condition: String, _ body: (LostKeptVersion) throws -> Void) throws {
    var pages = KeptVersionPages(self, condition)
    while let version = try pages.next() { try body(version) }
  }

  /// The first of those after the counter, at most so many, and the last counter that was looked at; nil: there are none.
  fileprivate func keptVersions(
    where condition: String, after counter: Int64, limit: Int
  ) throws -> (versions: [LostKeptVersion], last: Int64?) {
    let rows = try connection.rows(
      "SELECT seq, first, last, stamp, tag, t, op, slots, key, before, after, made, number, incarnation, parting, review FROM salvor_kept WHERE seq > ?1 AND (\(condition)) ORDER BY seq LIMIT ?2",
      .integer(counter), .integer(Int64(limit)))
    let versions = try rows.compactMap { row -> LostKeptVersion? in
      guard let seq = row[0].integer, let stamp = row[3].string.flatMap({ RequestStamp($0) }),
        let table = row[5].integer.flatMap({ catalog.table(number: $0) }),
        let operation = row[6].string.flatMap({ Operation(rawValue: $0) }), let number = row[12].integer
      else { return nil }
      let lost = row[13].string.flatMap { IncarnationID($0) }
      return LostKeptVersion(
        seq: seq, first: row[1].integer ?? seq, last: row[2].integer ?? seq, stamp: stamp, tag: row[4].string,
        table: table, operation: operation,
        slots: (row[7].string ?? "").split(separator: ",").compactMap { Int($0) }, key: try unpayload(row[8]),
        before: try unpayload(row[9]), after: try unpayload(row[10]), made: row[11].integer ?? 0,
        version: lost.map { LostVersion(incarnation: $0, number: number, parting: row[14].integer ?? 0) },
        review: row[15].string.flatMap(Self.version))
    }
    return (versions, rows.last?[0].integer)
  }

  private static func version(_ text: String) -> LostVersion? {
    let parts = text.split(separator: " ")
    guard parts.count == 3, let incarnation = IncarnationID(parts[0]), let number = Int64(parts[1]),
      let parting = Int64(parts[2])
    else { return nil }
    return LostVersion(incarnation: incarnation, number: number, parting: parting)
  }

  /// Offered deletes that the server holds now, and that are still in the log.
  func rememberHeld(_ deletes: [RequestRange], _ results: UploadResults, index: LogIndex) throws {
    for range in deletes {
      guard let request = try outstanding(range, index: index),
        let offer = try connection.rows(
          "SELECT incarnation || ' ' || number || ' ' || parting FROM salvor_offer WHERE seq = ?1",
          .integer(range.first)
        ).first?[0].string
      else { continue }
      let stamp = try stamp(of: range.first)
      for change in request.changes {
        try keep(change, of: range, stamp, of: results, review: offer)
      }
    }
  }

  /// An upload was settled, and its requests are still in the log. After `HeldDeletes.settle`.
  func rememberKept(_ results: UploadResults, upTo last: Int64) throws {
    for table in catalog.tables {
      try connection.run(
        "UPDATE salvor_kept SET number = ?2, assumed = ?4, incarnation = NULL, parting = NULL WHERE t = ?1 AND seq <= ?3 AND incarnation IS NOT NULL AND \(Self.goesAgain)",
        .integer(table.number), .integer(try version(of: results, table)), .integer(last), assumed(results))
    }
    let new = try results.kept.filter { counter in
      try counter <= last
        && connection.integer("SELECT 1 FROM salvor_kept WHERE first = ?1 LIMIT 1", .integer(counter)) == nil
    }
    guard !new.isEmpty else { return }
    let index = try LogIndex(self)
    for counter in new {
      let range = try self.range(of: counter)
      guard let request = try outstanding(range, index: index) else { continue }
      let stamp = try stamp(of: range.first)
      for change in request.changes { try keep(change, of: range, stamp, of: results) }
    }
  }

  /// The number is not the commit's: nothing was changed.
  private func assumed(_ results: UploadResults) -> Value { results.commit == nil ? .integer(1) : .null }

  /// As of which commit the server has what it accepted.
  private func version(of results: UploadResults, _ table: CapturedTable) throws -> Int64 {
    if let commit = results.commit { return commit.number }
    return try 1
      + (connection.integer("SELECT number FROM salvor_group WHERE name = ?1", .text(group(of: table.number))) ?? 0)
  }

  private func keep(
    _ change: OutstandingRequest.Change, of range: RequestRange, _ stamp: RequestStamp, of results: UploadResults,
    review: String? = nil
  ) throws {
    let table = change.table
    var slots: [Int] = []
    var before: [Value] = []
    var after: [Value] = []
    switch change.step.change {
    case .insert(let row):
      slots = Array(table.columns.indices)
      after = row
    case .update(let news):
      slots = news.keys.sorted()
      before = slots.map { change.step.before?[$0] ?? .null }
      after = slots.map { news[$0] ?? .null }
    case .delete: break
    }
    try connection.run(
      """
      INSERT OR REPLACE INTO salvor_kept (seq, first, last, stamp, tag, t, op, slots, key, before, after, made, number,
          review, assumed, held)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
      """,
      [
        .integer(change.step.seq), .integer(range.first), .integer(range.last), .text(stamp.text),
        range.tag.map { .text($0) } ?? .null, .integer(table.number), .text(change.step.change.operation.rawValue),
        .text(slots.map(String.init).joined(separator: ",")), .text(payload(change.key)), .text(payload(before)),
        .text(payload(after)), .integer(try made(change.step.seq, group: group(of: table.number))),
        .integer(try version(of: results, table)), review.map { .text($0) } ?? .null, assumed(results),
        review == nil ? .null : .integer(1),
      ])
  }
}
