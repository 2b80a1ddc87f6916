import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The marks of offers after a counter, read ahead in pages.
struct OfferCursor {
  private let context: StoreContext
  private var page: ArraySlice<Mark> = []
  private var last: Int64
  private var isAtEnd = false
  /// The lost incarnations, in the order in which they lived.
  let incarnations: [IncarnationID]

  private struct Mark {
    var seq: Int64
    var version: LostVersion
    var written: [Int]
  }

  init(_ context: StoreContext, after counter: Int64) throws {
    self.context = context
    last = counter
    incarnations = try context.connection.rows("SELECT id FROM salvor_lost ORDER BY place").compactMap { row in
      row[0].string.flatMap { IncarnationID($0) }
    }
    isAtEnd = incarnations.isEmpty
  }

  /// The offers that begin with the change `seq`, those of one version that follow it without a gap; nil: it is none. In order.
  mutating func run(from seq: Int64) throws -> (last: Int64, version: LostVersion, written: [Int])? {
    while let first = page.first, first.seq < seq { page.removeFirst() }
    if page.isEmpty { try read(after: max(last, seq - 1)) }
    guard let first = page.first, first.seq == seq else { return nil }
    var run = (last: seq, version: first.version, written: first.written)
    guard first.written.isEmpty else { return run }
    for mark in page.dropFirst() {
      guard mark.seq == run.last + 1, mark.version == first.version, mark.written.isEmpty else { break }
      run.last = mark.seq
    }
    return run
  }

  private mutating func read(after counter: Int64) throws {
    guard !isAtEnd else { return }
    var found: [Mark] = []
    try context.connection.query(
      "SELECT seq, incarnation, number, parting, written FROM salvor_offer WHERE seq > ?1 ORDER BY seq LIMIT 1000",
      [.integer(counter)]
    ) { row in
      guard let incarnation = row.value(1).string.flatMap({ IncarnationID($0) }) else { return true }
      found.append(
        Mark(
          seq: row.int64(0),
          version: LostVersion(incarnation: incarnation, number: row.int64(2), parting: row.int64(3)),
          written: (row.value(4).string ?? "").split(separator: ",").compactMap { Int($0) }))
      return true
    }
    page = found[...]
    last = found.last?.seq ?? counter
    isAtEnd = found.isEmpty
  }
}

extension StoreContext {
  func isOffer(_ request: RequestRange) throws -> Bool {
    try connection.integer(
      "SELECT 1 FROM salvor_offer WHERE seq BETWEEN ?1 AND ?2 LIMIT 1", .integer(request.first), .integer(request.last))
      != nil
  }

  /// It is an offer, and nothing that somebody wrote since.
  func isOfferAlone(_ request: RequestRange) throws -> Bool {
    guard request.first == request.last else { return false }
    return try connection.integer(
      "SELECT 1 FROM salvor_offer WHERE seq = ?1 AND written IS NULL", .integer(request.first)) != nil
  }

  /// Of requests that have left for good.
  func forgetOffers() throws {
    try connection.run(
      "DELETE FROM salvor_offer WHERE NOT EXISTS (SELECT 1 FROM salvor_log l WHERE l.seq = salvor_offer.seq AND l.op IN \(Self.changeOperations)) AND NOT EXISTS (SELECT 1 FROM salvor_archive a WHERE a.seq = salvor_offer.seq)"
    )
  }
}
