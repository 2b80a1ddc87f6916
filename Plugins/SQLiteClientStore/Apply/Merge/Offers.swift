import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What a recovery offers to a server that has lost it (semantics 10): for each row one more request upon the server's row, marked
/// in `salvor_offer` with the version that was lost. So the row stays in its table as it was, and goes up like every request.
///
/// An offer has a higher counter than the requests that waited, and changes no column that one of them changes: so it is as if
/// it came before them.
final class Offers {
  private let context: StoreContext
  private let order: RecoveryOrder
  private let versions: BaseVersions
  /// The server's incarnations as the device knew them, by their first commits.
  private let incarnations: [Incarnation]
  /// The same by their first commits: a temporary table.
  static let incarnationTable = "temp.salvor_offer_incarnation"
  /// Of this recovery: those that were made in one go, and single ones.
  private var block: ClosedRange<Int64>?
  private var single: Set<Int64> = []
  private(set) var count: Int64 = 0
  private let insertion: SQLiteStatement

  /// Before the history is cut.
  init(_ context: StoreContext, _ order: RecoveryOrder, _ versions: BaseVersions) throws {
    self.context = context
    self.order = order
    self.versions = versions
    let connection = context.connection
    lastBefore = try connection.lastCounter()
    isSameServer = try connection.text(.server) == order.server.text
    mayBeOffered = isSameServer && order.takesOffers
    isOn = order.heal != .off && mayBeOffered
    incarnations = try connection.rows(
      "SELECT id, first_commit FROM salvor_incarnation WHERE first_commit > 0 ORDER BY first_commit"
    ).compactMap { row in
      row[0].string.flatMap { IncarnationID($0) }.map { Incarnation(id: $0, firstCommit: row[1].integer ?? 0) }
    }
    insertion = try connection.prepare(
      "INSERT OR REPLACE INTO salvor_offer (seq, incarnation, number, parting, written, review, origin, was) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
      persistent: true)
    try connection.execute(
      "CREATE TABLE IF NOT EXISTS \(Self.incarnationTable) (first_commit INTEGER PRIMARY KEY, id TEXT); DELETE FROM \(Self.incarnationTable); "
        + "INSERT OR REPLACE INTO \(Self.incarnationTable) SELECT first_commit, id FROM salvor_incarnation WHERE first_commit > 0 ORDER BY first_commit"
    )
    // What waited there may be lost with it.
    try connection.run("UPDATE salvor_offer SET waiting = NULL WHERE waiting = 1")
    for name in [StateName.healAsked, .healDue, .healWanted, .healSeen] { try connection.setState(name, Value?.none) }
    try context.forgetThrownAway()
    // What waits of an earlier recovery is offered to a server that went back further.
    if order.shared != nil || order.absence == .lost {
      for table in ["salvor_offer", "salvor_kept", "salvor_archive"] {
        try connection.run("UPDATE \(table) SET parting = ?1 WHERE parting > ?1", .integer(order.shared ?? 0))
      }
    }
    if !isSameServer, order.absence == .lost { try giveUpVersions() }
    guard mayBeOffered, order.absence == .lost else { return }
    try noteLost(after: order.shared ?? 0)
    try noteVersions(after: order.shared ?? 0)
  }

  /// Which incarnations were lost, and in which order they lived: those of one list as they stand there; and one that the device met
  /// since its last recovery after all that it had lost by then. A list alone does not tell that of others: a copy of an older time
  /// may bring back what had been lost. Of both, what is in the list tells up to which commit they are of one history.
  private func noteLost(after shared: Int64) throws {
    let connection = context.connection
    let before = try connection.rows(
      "SELECT id FROM salvor_lost WHERE id NOT IN (SELECT earlier FROM salvor_lost_order)")
    let met = Set(
      try connection.rows("SELECT id FROM salvor_incarnation WHERE met = 1").compactMap { $0[0].string })
    var last: IncarnationID?
    func note(_ earlier: Value, before later: IncarnationID, apartFrom: Int64) throws {
      guard earlier != .text(later.text) else { return }
      try connection.run(
        """
        INSERT INTO salvor_lost_order (earlier, later, apart) VALUES (?1, ?2, ?3)
          ON CONFLICT DO UPDATE SET apart = CASE WHEN coalesce(excluded.apart, 0) > coalesce(apart, 1) THEN excluded.apart
            WHEN apart > 1 OR excluded.apart = 1 THEN apart END
        """,
        earlier, .text(later.text), .integer(apartFrom))
    }
    let ends = Dictionary(
      zip(incarnations, incarnations.dropFirst()).map { ($0.id.text, $1.firstCommit) }
    ) { first, _ in first }
    for (place, incarnation) in incarnations.enumerated() {
      let next = place + 1 < incarnations.count ? incarnations[place + 1].firstCommit : .max
      guard next > shared + 1 else { continue }
      try connection.run("INSERT OR IGNORE INTO salvor_lost (id) VALUES (?1)", .text(incarnation.id.text))
      if let last { try note(.text(last.text), before: incarnation.id, apartFrom: incarnation.firstCommit) }
      if met.contains(incarnation.id.text) {
        for row in before {
          let end = row[0].string.flatMap { ends[$0] } ?? LostNeighbours.allApart
          try note(row[0], before: incarnation.id, apartFrom: end)
        }
      }
      last = incarnation.id
    }
    for incarnation in try UndoneVersions(connection: connection).incarnations() {
      try connection.run("INSERT OR IGNORE INTO salvor_lost (id) VALUES (?1)", .text(incarnation.id.text))
      if let last { try note(.text(last.text), before: incarnation.id, apartFrom: incarnation.firstCommit) }
      last = incarnation.id
    }
    try connection.run("UPDATE salvor_incarnation SET met = NULL WHERE met = 1")
    try connection.run(
      "DELETE FROM salvor_lost WHERE place <= (SELECT max(place) FROM salvor_lost) - ?1", .integer(Self.incarnationsMax)
    )
    try connection.run(
      "DELETE FROM salvor_lost_order WHERE earlier NOT IN (SELECT id FROM salvor_lost) OR later NOT IN (SELECT id FROM salvor_lost)"
    )
  }

  /// What the server kept beside rows by lost commits goes with the next upload.
  private func noteVersions(after shared: Int64) throws {
    hasNotedVersions = true
    for table in context.catalog.tables {
      let isOffered = isOn && mode(of: table) != .off && context.table(table)?.maintained == .dual
      for (place, incarnation) in incarnations.enumerated() {
        let next = place + 1 < incarnations.count ? incarnations[place + 1].firstCommit : .max
        try context.connection.run(
          """
          UPDATE salvor_kept SET incarnation = ?5, parting = ?2, made = min(made, ?2), held = NULL, withheld = ?6
            WHERE t = ?1 AND incarnation IS NULL AND number > ?2 AND number >= ?3 AND number < ?4
          """,
          [
            .integer(table.number), .integer(shared), .integer(place == 0 ? 0 : incarnation.firstCommit),
            .integer(next), .text(incarnation.id.text), isOffered ? .null : .integer(context.clock.now()),
          ])
      }
    }
  }

  /// What the server of before kept beside rows is nowhere on this one, and is not offered to it.
  private func giveUpVersions() throws {
    hasNotedVersions = true
    try context.connection.run(
      "UPDATE salvor_kept SET withheld = ?1, held = NULL WHERE withheld IS NULL AND t IN (SELECT id FROM salvor_table)",
      .integer(context.clock.now()))
  }

  private func whyWithheld(_ version: LostKeptVersion) -> Unoffered {
    if !isSameServer { return .otherServer }
    if context.table(version.table)?.maintained != .dual { return .serverMaintained }
    return order.heal == .off ? .off : .tableOff
  }

  /// What was lost before and is still to be sent is no news of a recovery in which nothing was lost.
  private var hasNotedVersions = false

  /// Lines of the report, each of a change. What is held back is in the archive from here on, and is shown there.
  func recordVersions(_ record: RecoveryRecord) throws -> RecoveryCounts {
    var counts = RecoveryCounts()
    guard hasNotedVersions else { return counts }
    try context.eachKeptVersion(where: "incarnation IS NOT NULL AND \(StoreContext.goesAgain)") { version in
      counts.lost += 1
      counts.offered += 1
      try record.version(version, .offered)
    }
    var count: Int64 = 0
    try context.eachKeptVersion(where: StoreContext.isWithheldAnew) { version in
      count += 1
      let why = whyWithheld(version)
      counts.unoffered[why, default: 0] += 1
      try record.version(version, .lost)
      try context.archiveWithheld(version, why)
    }
    if !isSameServer { try context.connection.run("DELETE FROM salvor_kept") }
    guard count > 0 else { return counts }
    counts.lost += count
    let what = count == 1 ? "1 conflict version" : "\(count) conflict versions"
    let isGivenBackLater = counts.unoffered.keys.allSatisfy { $0 == .off || $0 == .tableOff }
    try context.connection.note(
      [
        isGivenBackLater
          ? "The server has lost \(what) of this device, and heal is off: salvor errors shows them (version-lost-on-server). They are offered when heal is on again."
          : "The server does not have \(what) of this device any more, and they are not given back: salvor errors shows them (version-lost-on-server)."
      ], at: context.clock.now())
    return counts
  }

  /// What the server had acknowledged in columns that its schema has dropped since is in the archive.
  func recordDroppedValues(_ record: RecoveryRecord) throws -> RecoveryCounts {
    var counts = RecoveryCounts()
    guard order.absence == .lost else { return counts }
    let values = try context.takeDroppedValues(after: isSameServer ? order.shared ?? 0 : -1, upTo: lastBefore)
    guard !values.isEmpty else { return counts }
    for value in values { try record.dropped(value, context.archive(lost: value)) }
    counts.lost = Int64(values.count)
    counts.unoffered[.otherColumns] = Int64(values.count)
    let what = values.count == 1 ? "1 value" : "\(values.count) values"
    try context.connection.note(
      [
        "The server has lost \(what) of columns that its schema has dropped: salvor errors shows them (lost-on-server)."
      ],
      at: context.clock.now())
    return counts
  }

  /// The last counter before this recovery.
  private let lastBefore: Int64

  /// So many lost incarnations are remembered, the newest ones.
  static let incarnationsMax: Int64 = 1000

  /// Another server has lost nothing of this.
  private let isSameServer: Bool
  /// Now, or under another setting.
  private let mayBeOffered: Bool
  /// What is lost is offered, as far as its table lets it.
  let isOn: Bool

  /// The stricter of what the device and the table say.
  func mode(of table: CapturedTable) -> HealMode { order.heal.stricter(or: context.table(table)?.heal ?? .off) }

  /// The version of a row that is to be offered; nil: it is not.
  ///
  /// - Parameter isNeeded: a request needs the row, whoever wrote it.
  func version(_ table: CapturedTable, _ key: Key, isNeeded: Bool = false) throws -> LostVersion? {
    guard offers(table) else { return nil }
    return isNeeded ? try neededVersion(table, key) : try ownLoss(table, key, mode(of: table)).flatMap(version)
  }

  /// The version of a lost row that a request makes again, whoever wrote it, and whatever `heal` says: what was acknowledged has its rank, or
  /// it would stand over a newer version of another device's (decision 230).
  func neededVersion(_ table: CapturedTable, _ key: Key) throws -> LostVersion? {
    guard mayBeOffered, isOfferable(table) else { return nil }
    return try versions.lostCommit(table, key).flatMap(version)
  }

  private func isOfferable(_ table: CapturedTable) -> Bool {
    context.table(table)?.maintained == .dual && !versions.unproven.contains(table.number)
  }

  /// `heal` has something of the table offered that no request needs.
  func offers(_ table: CapturedTable) -> Bool { isOn && mode(of: table) != .off && isOfferable(table) }

  private func ownLoss(_ table: CapturedTable, _ key: Key, _ mode: HealMode) throws -> BaseVersions.Loss? {
    guard let lost = try versions.lost(table, key), lost.isOwn || mode == .all else { return nil }
    return lost
  }

  /// That of a commit that is lost; nil: of an incarnation that the device does not know.
  func version(_ loss: BaseVersions.Loss) -> LostVersion? {
    if let undone = loss.undone { return undone.version(sharing: order.shared ?? 0, loss.origin) }
    return incarnations.last { $0.firstCommit <= loss.number }.map {
      LostVersion(incarnation: $0.id, number: loss.number, parting: order.shared ?? 0, origin: loss.origin)
    }
  }

  /// Why the archive has a loss in the place of an offer; and its version, where another setting would offer it.
  func unoffered(
    _ table: CapturedTable, _ key: Key, isForReview: Bool
  ) throws -> (why: Unoffered, version: WithheldLoss.Version?) {
    guard context.catalog.table(number: table.number) != nil else { return (.otherColumns, nil) }
    guard isSameServer else { return (.otherServer, nil) }
    guard order.takesOffers else { return (.notTaken, nil) }
    guard context.table(table)?.maintained == .dual else { return (.serverMaintained, nil) }
    guard !versions.unproven.contains(table.number) else { return (.unproven, nil) }
    guard let lost = try versions.lostCommit(table, key), let newest = version(lost) else {
      return (.unknownVersion, nil)
    }
    let mode = mode(of: table)
    if mode == .all || mode != .off && lost.isOwn { return (.changedHere, nil) }
    let version = WithheldLoss.Version(lost: newest, isOwn: lost.isOwn, isForReview: isForReview)
    return (order.heal == .off ? .off : mode == .off ? .tableOff : .notOwn, version)
  }

  /// The change `counter` is an offer.
  ///
  /// - Parameters:
  ///   - written: slots that are an ordinary change.
  ///   - was: their values as the server had acknowledged them; empty: it is no change of a row that was there.
  ///   - isForReview: the server's operator is to accept it.
  func mark(
    _ counter: Int64, _ version: LostVersion, written: [Int] = [], was: [Value] = [], isForReview: Bool = false
  ) throws {
    keep(counter)
    try note(counter, version, written: written, was: was, isForReview: isForReview)
  }

  /// The same of a request that waited, and that the recovery does not count among its offers.
  func note(
    _ counter: Int64, _ version: LostVersion, written: [Int], was: [Value] = [], isForReview: Bool = false
  ) throws {
    try insertion.bind(1, counter)
    try insertion.bind(2, .text(version.incarnation.text))
    try insertion.bind(3, version.number)
    try insertion.bind(4, version.parting)
    try insertion.bind(5, written.isEmpty ? .null : .text(written.map(String.init).joined(separator: ",")))
    try insertion.bind(6, isForReview ? .integer(1) : .null)
    try insertion.bind(7, version.origin.map { .text($0.text) } ?? .null)
    try insertion.bind(8, was.isEmpty ? .null : .text(payload(was)))
    try insertion.run()
  }

  /// The change `counter` was an offer before, and is one of this recovery, with the version that it has.
  func keep(_ counter: Int64) { if single.insert(counter).inserted { count += 1 } }

  func isOffer(_ counter: Int64) -> Bool { block?.contains(counter) == true || single.contains(counter) }

  /// Whether anything of the table may be offered.
  func mayOffer(_ table: CapturedTable) -> Bool { order.absence == .lost && offers(table) }

  /// An expression: this commit is of an incarnation that the device knows.
  func isKnown(_ number: String) -> String { "\(number) >= \(incarnations.first?.firstCommit ?? .max)" }

  /// The changes of `counters` are offers: those that `source` has, a table with the columns `seq`, `number` (the lost commit), `review`,
  /// `origin` and `undone`.
  func markAll(_ counters: ClosedRange<Int64>, from source: String) throws {
    block = counters
    count += Int64(counters.count)
    try context.connection.run(
      "INSERT OR REPLACE INTO salvor_offer (seq, incarnation, number, parting, written, review, origin) "
        + "SELECT seq, coalesce(\(UndoneVersions.incarnation(of: "undone")), (SELECT id FROM \(Self.incarnationTable) WHERE first_commit <= number ORDER BY first_commit DESC LIMIT 1)), "
        + "coalesce(\(UndoneVersions.number(of: "undone")), number), coalesce(min(?1, \(UndoneVersions.first(of: "undone")) - 1), ?1), NULL, review, origin FROM \(source) ORDER BY seq",
      .integer(order.shared ?? 0))
  }
}
