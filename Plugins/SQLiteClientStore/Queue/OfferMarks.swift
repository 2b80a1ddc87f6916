import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// The marks of offers after a counter, read ahead in pages.
struct OfferCursor {
  private let context: StoreContext
  private var page: ArraySlice<Mark> = []
  private var last: Int64
  private var isAtEnd = false
  /// The lost incarnations, and what is known of the order in which they lived.
  let incarnations: [IncarnationID]
  let order: [LostNeighbours]

  private struct Mark {
    var seq: Int64
    var version: LostVersion
    var written: [Int]
    var isForReview: Bool

    func continues(_ run: Run) -> Bool {
      seq == run.last + 1 && version == run.version && written.isEmpty && isForReview == run.isForReview
    }
  }

  struct Run {
    var last: Int64
    var version: LostVersion
    /// Slots.
    var written: [Int]
    var isForReview: Bool
  }

  init(_ context: StoreContext, after counter: Int64) throws {
    self.context = context
    last = counter
    (incarnations, order) = try context.lostIncarnations()
    isAtEnd = incarnations.isEmpty
  }

  /// The offers that begin with the change `seq`, those of one version that follow it without a gap; nil: it is none. In order.
  mutating func run(from seq: Int64) throws -> Run? {
    while let first = page.first, first.seq < seq { page.removeFirst() }
    if page.isEmpty { try read(after: max(last, seq - 1)) }
    guard let first = page.first, first.seq == seq else { return nil }
    var run = Run(last: seq, version: first.version, written: first.written, isForReview: first.isForReview)
    guard first.written.isEmpty else { return run }
    for mark in page.dropFirst() {
      guard mark.continues(run) else { break }
      run.last = mark.seq
    }
    return run
  }

  private mutating func read(after counter: Int64) throws {
    guard !isAtEnd else { return }
    var found: [Mark] = []
    try context.connection.query(
      "SELECT seq, incarnation, number, parting, written, review, origin FROM salvor_offer WHERE seq > ?1 ORDER BY seq LIMIT 1000",
      [.integer(counter)]
    ) { row in
      guard let incarnation = row.value(1).string.flatMap({ IncarnationID($0) }) else { return true }
      found.append(
        Mark(
          seq: row.int64(0),
          version: LostVersion(
            incarnation: incarnation, number: row.int64(2), parting: row.int64(3),
            origin: row.value(6).string.flatMap { LostVersion.Origin(text: $0) }),
          written: (row.value(4).string ?? "").split(separator: ",").compactMap { Int($0) },
          isForReview: row.int64(5) == 1))
      return true
    }
    page = found[...]
    last = found.last?.seq ?? counter
    isAtEnd = found.isEmpty
  }
}

extension StoreContext {
  /// Those whose commits a server has lost.
  func lostIncarnations() throws -> (incarnations: [IncarnationID], order: [LostNeighbours]) {
    let incarnations = try connection.rows("SELECT id FROM salvor_lost ORDER BY place").compactMap { row in
      row[0].string.flatMap { IncarnationID($0) }
    }
    let order = try connection.rows(
      "SELECT earlier, later, apart FROM salvor_lost_order WHERE earlier IN (SELECT id FROM salvor_lost) AND later IN (SELECT id FROM salvor_lost) ORDER BY earlier, later LIMIT ?1",
      .integer(Int64(UploadChunkReader.lostOrderMax))
    ).compactMap { row -> LostNeighbours? in
      guard let earlier = row[0].string.flatMap({ IncarnationID($0) }),
        let later = row[1].string.flatMap({ IncarnationID($0) })
      else { return nil }
      return LostNeighbours(earlier, before: later, apartFrom: row[2].integer)
    }
    return (incarnations, order)
  }

  /// Offers that the server holds, and that are not sent until it holds fewer.
  func waitingOffers() throws -> [RequestRange] {
    guard try connection.state(.healDue) == nil else { return [] }
    var requests: [RequestRange] = []
    try connection.query(
      "SELECT seq FROM salvor_offer WHERE waiting = 1 AND EXISTS (SELECT 1 FROM salvor_log l WHERE l.seq = salvor_offer.seq AND l.op IN \(Self.changeOperations)) ORDER BY seq"
    ) { row in
      requests.append(RequestRange(first: row.int64(0), last: row.int64(0)))
      return true
    }
    return requests
  }

  /// What the server holds, as far as this device knows, deletes among it.
  func waitingCount() throws -> Int64 { try waitingRows() + HeldDeletes(self).count() }

  /// Rows among it. What has left the queue meanwhile (its row left the scope) is in the archive, and asks nobody.
  func waitingRows() throws -> Int64 {
    try connection.integer(
      "SELECT count(*) FROM salvor_offer WHERE waiting = 1 AND EXISTS (SELECT 1 FROM salvor_log l WHERE l.seq = salvor_offer.seq AND l.op IN \(Self.changeOperations))"
    ) ?? 0
  }

  /// Those that the server holds: it is told with the next begin that they were taken back.
  func heldOffers(_ requests: [RequestRange]) throws -> [RequestID] {
    try requests.filter(isHeldByServer).map { try requestID(first: $0.first) }
  }

  func isHeldByServer(_ request: RequestRange) throws -> Bool {
    try connection.integer(
      "SELECT 1 FROM salvor_offer WHERE seq BETWEEN ?1 AND ?2 AND waiting = 1 LIMIT 1", .integer(request.first),
      .integer(request.last)) != nil
  }

  /// A row that was lost, and that waits at the server.
  func isHeldOffer(_ id: RequestID) throws -> Bool {
    guard let found = try? known(id, in: [.queued]) else { return false }
    return try !heldOffers([found.range]).isEmpty
  }

  /// They were taken back, and have left the log.
  func noteWithdrawn(_ ids: [RequestID]) throws {
    guard !ids.isEmpty else { return }
    for id in ids { try connection.run("DELETE FROM salvor_offer WHERE seq = ?1", .integer(id.counter)) }
    try connection.setWithdrawn(connection.withdrawn() + ids)
  }

  /// The requests in the log that are no waiting offers, in order; nil: they are not fewer than `count`.
  func requestsBesideWaitingOffers(fewerThan count: Int) throws -> [RequestRange]? {
    var requests: [RequestRange] = []
    var ranges = try RangeCursor(self, after: 0)
    try connection.query(
      "SELECT seq FROM salvor_log l WHERE l.op IN \(Self.changeOperations) AND NOT EXISTS (SELECT 1 FROM salvor_offer o WHERE o.seq = l.seq AND o.waiting = 1) ORDER BY seq"
    ) { row in
      let seq = row.int64(0)
      let request = try ranges.range(of: seq) ?? RequestRange(first: seq, last: seq)
      if requests.last?.first != request.first { requests.append(request) }
      return requests.count < count
    }
    return requests.count < count ? requests : nil
  }

  /// It brings something back, or is a delete made upon a lost version.
  func isOffer(_ request: RequestRange) throws -> Bool {
    try connection.integer(
      "SELECT 1 FROM salvor_offer o WHERE o.seq BETWEEN ?1 AND ?2 AND (o.written IS NULL OR NOT EXISTS (SELECT 1 FROM salvor_log l WHERE l.seq = o.seq AND l.op IN \(Self.updateOperations))) LIMIT 1",
      .integer(request.first), .integer(request.last)) != nil
  }

  /// The change names a lost version, as an offer or since it was made upon that (decision 236).
  func isMarked(_ seq: Int64) throws -> Bool {
    try connection.integer("SELECT 1 FROM salvor_offer WHERE seq = ?1", .integer(seq)) != nil
  }

  /// The change, wherever it is, is nothing but an offer.
  func isNothingButOffer(_ seq: Int64) throws -> Bool {
    try connection.integer("SELECT 1 FROM salvor_offer WHERE seq = ?1 AND written IS NULL", .integer(seq)) != nil
  }

  /// The change, which waits, is nothing but an offer: nobody wrote it here since.
  func isPlainOffer(_ seq: Int64) throws -> Bool {
    try connection.integer(
      "SELECT 1 FROM salvor_offer o JOIN salvor_log l ON l.seq = o.seq WHERE o.seq = ?1 AND o.written IS NULL AND l.op IN \(Self.changeOperations)",
      .integer(seq)) != nil
  }

  /// The server has what these offers would have brought back: this device wrote the rows by commits that count again, and offers
  /// them where they are lost once more.
  func rememberOffered(_ range: RequestRange) throws {
    for table in catalog.tables {
      let keys = table.keySlots.map { "v\($0)" }.joined(separator: ", ")
      try connection.run(
        "INSERT INTO salvor_history (t, version, origin, own, deleted, \(keys)) SELECT l.t, \(Self.knownNumber), \(Self.knownOrigin), 1, l.op IN \(Self.deleteOperations), \(table.keySlots.map { "l.v\($0)" }.joined(separator: ", ")) "
          + "FROM salvor_log l JOIN salvor_offer o ON o.seq = l.seq WHERE l.seq BETWEEN ?1 AND ?2 AND l.t = ?3 AND l.op IN \(Self.changeOperations)",
        .integer(range.first), .integer(range.last), .integer(table.number))
    }
  }

  /// Of an offer `o` that the server has not lost: the commit of the server's history that made the row so, and what stays its origin.
  private static let knownNumber =
    "CASE WHEN \(isOfKnown) THEN o.number ELSE CAST(substr(o.origin, instr(o.origin, ' ') + 1) AS INTEGER) END"
  private static let knownOrigin = "CASE WHEN \(isOfKnown) THEN o.origin END"
  private static let isOfKnown = "o.origin IS NULL OR o.incarnation IN (SELECT id FROM salvor_incarnation)"

  /// The row is gone at the server as of this commit, and this device deleted it, too.
  func rememberOwnDelete(_ table: CapturedTable, _ key: Key, version: Int64) throws {
    let keys = table.keySlots.map { "v\($0)" }.joined(separator: ", ")
    let places = table.keySlots.map { "?\($0 + 3)" }.joined(separator: ", ")
    try connection.run(
      "INSERT INTO salvor_history (t, version, own, deleted, \(keys)) VALUES (?1, ?2, 1, 1, \(places))",
      [.integer(table.number), .integer(version)] + key)
  }

  /// Of requests that have left for good.
  func forgetOffers() throws {
    try connection.run(
      "DELETE FROM salvor_offer WHERE NOT EXISTS (SELECT 1 FROM salvor_log l WHERE l.seq = salvor_offer.seq AND l.op IN \(Self.changeOperations)) AND NOT EXISTS (SELECT 1 FROM salvor_archive a WHERE a.seq = salvor_offer.seq)"
    )
  }
}

extension SQLiteConnection {
  /// Offers that the server held when they were taken back, and of which it does not know that yet.
  func withdrawn() throws -> [RequestID] {
    try (text(.healWithdrawn) ?? "").split(separator: " ").compactMap { RequestID(String($0)) }
  }

  func setWithdrawn(_ ids: [RequestID]) throws {
    try setState(.healWithdrawn, ids.isEmpty ? nil : ids.map { "\($0)" }.joined(separator: " "))
  }
}
