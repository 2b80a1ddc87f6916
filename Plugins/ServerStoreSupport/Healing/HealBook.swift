import SalvorModel
import SalvorStorage
import SalvorWire

/// What the server knows about healing (semantics 10): which columns came by offers and how new their versions are, which
/// ordinary writes changed what since some commit, and in which order lost incarnations lived. One for each upload.
///
/// An entry of the change log says which columns it changed (`m`; NULL: every one). `salvor_healed_entry` says of ranges of entries
/// which of these columns came by an offer (`entry`), and of which lost version the row's columns are since (`mask`, a
/// `ColumnMask`): entries that follow one another and say the same are one range. A column of the mask that the entry itself changed by no
/// offer was of that version before. `altered`: columns of the mask that the database itself made another value of, as a trigger that keeps the time does:
/// what stands there is no claim of anybody's. What an offer found so already has no entry:
/// `salvor_healed` has a line for each lost version then, and where in the log it came (`at`: twice the number of the last entry
/// before the upload, and one more). Both are of no use to a device that parted from this server later, and go with the log
/// (`Trimming`). Earlier builds wrote `h` into the entry, and a line for every row.
package final class HealBook {
  package static let tables = """
    CREATE TABLE IF NOT EXISTS salvor_column (
      t INTEGER NOT NULL, origin TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (t, origin)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_healed (
      t INTEGER NOT NULL, key TEXT NOT NULL, incarnation TEXT NOT NULL, number INTEGER NOT NULL, mask INTEGER NOT NULL,
      at INTEGER NOT NULL, remote TEXT NOT NULL, PRIMARY KEY (t, key, incarnation, number)) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS salvor_healed_at ON salvor_healed (at);
    CREATE TABLE IF NOT EXISTS salvor_healed_entry (
      last INTEGER NOT NULL, first INTEGER NOT NULL, incarnation TEXT NOT NULL, number INTEGER NOT NULL,
      mask INTEGER NOT NULL, entry INTEGER NOT NULL, remote TEXT NOT NULL, altered INTEGER, PRIMARY KEY (last)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_healed_delete (
      t INTEGER NOT NULL, key TEXT NOT NULL, incarnation TEXT NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL,
      remote TEXT NOT NULL, principal TEXT NOT NULL, PRIMARY KEY (t, key, incarnation, number, remote));
    CREATE INDEX IF NOT EXISTS salvor_healed_delete_at ON salvor_healed_delete (at);
    CREATE TABLE IF NOT EXISTS salvor_lost_timeline (
      earlier TEXT NOT NULL, later TEXT NOT NULL, remote TEXT NOT NULL, time INTEGER NOT NULL, apart INTEGER,
      PRIMARY KEY (earlier, later)) WITHOUT ROWID;
    """

  /// earlier, later, remote, time, apart: what is told of one pair is as `LostNeighbours.apartFrom` says.
  package static let noteOrder = """
    INSERT INTO salvor_lost_timeline (earlier, later, remote, time, apart) VALUES (?1, ?2, ?3, ?4, ?5)
      ON CONFLICT (earlier, later) DO UPDATE SET time = excluded.time,
        apart = CASE WHEN coalesce(excluded.apart, 0) > coalesce(salvor_lost_timeline.apart, 1) THEN excluded.apart
          WHEN salvor_lost_timeline.apart > 1 OR excluded.apart = 1 THEN salvor_lost_timeline.apart END
    """

  /// So many neighbours of lost incarnations are kept; of those beyond nobody can tell the order.
  static let neighboursMax: Int64 = 10_000

  /// What an accepted offer leaves in the book.
  struct Healing: Equatable {
    var table: Int
    var key: Key
    var version: LostVersion
    /// The columns that are of the version now.
    var mask: Int64
    /// What of an entry of the log came by the offer.
    var entryMask: Int64
    /// Columns that the database stored otherwise than they were offered.
    var altered: Int64 = 0
    /// Lines of `salvor_healed` may be of the same columns.
    var hasLines: Bool
    var claim: Claim?
    /// The same upload writes over it: it was there before, and no entry has come by it.
    var isBeneath = false
    /// What stands in the row after the upload.
    var isUpon: Bool { claim == nil && !isBeneath }

    /// The upload goes on to write these columns.
    func writtenOver(_ columns: Int64) -> [Healing] {
      guard claim == nil, !isBeneath, mask & columns != 0 else { return [self] }
      var (rest, beneath) = (self, self)
      (rest.mask, rest.entryMask) = (mask & ~columns, entryMask & ~columns)
      (beneath.mask, beneath.entryMask, beneath.isBeneath) = (mask & columns, 0, true)
      return [rest, beneath]
    }
  }

  /// A delete of a row that is not there, and that its sender may never have seen: it counts where he may write what somebody offers of
  /// the row.
  enum Claim: Equatable {
    /// It was lost, and is offered: its version tells which offers it stands against.
    case lost
    /// An ordinary one: it stands against every version. Its line in the book has no incarnation.
    case written
  }

  let rows: RowReader
  let intake: OfferIntake
  private let upload: ProcessRequest
  private let incarnation: IncarnationID
  /// The last entry of the log before the upload.
  let last: Int64
  private let trimmed: Int64
  private let now: Int64
  private var order: LostOrder
  private var told: Set<[LostNeighbours]>?
  /// What was told and is not in the book yet.
  private var unwritten: [[LostNeighbours]] = []
  private var relations: [[LostVersion]: LostOrder.Relation] = [:]
  private var head: Int64?
  private let histories: RowHistories
  /// Offered deletes of rows that nobody saw may stand in the book.
  private var mayHaveClaims: Bool?
  /// The version that was asked about last: whether an offer of it may be written straight.
  private var lastPassing: (version: LostVersion, sequence: Int64?)?
  /// The last commit of incarnations that the server knows; nil: it does not know it.
  private var lastCommits: [IncarnationID: Int64?] = [:]
  /// The last commit of lost incarnations; nil: not known for certain.
  private var ends: [IncarnationID: Int64?] = [:]
  private var sequences: [Int64: Int64] = [:]
  private var connection: any StoreConnection { rows.connection }
  private var catalog: Catalog { rows.catalog }

  /// - Parameters:
  ///   - incarnation: this start of the server.
  ///   - last: the last entry of the log before the upload.
  init(
    _ rows: RowReader, _ upload: ProcessRequest, incarnation: IncarnationID, last: Int64, now: Int64,
    _ intake: OfferIntake
  ) throws {
    self.rows = rows
    self.intake = intake
    self.upload = upload
    self.incarnation = incarnation
    self.last = last
    self.now = now
    trimmed = try FeedPageMaker.trimmed(rows.connection)
    histories = RowHistories(rows, last: last)
    order = LostOrder()
  }

  // MARK: Lost incarnations

  /// An upload tells in which order incarnations lived. Only one with offers does.
  func note(_ pairs: [LostNeighbours]) throws {
    if told == nil { try load() }
    guard told?.insert(pairs).inserted == true else { return }
    relations = [:]
    for pair in pairs { order.add(pair) }
    unwritten.append(pairs)
  }

  /// Where no savepoint takes it back: each is told once in an upload, however often its block is read.
  func writeOrder() throws {
    guard !unwritten.isEmpty else { return }
    var count = try connection.integer("SELECT count(*) FROM salvor_lost_timeline") ?? 0
    for pair in unwritten.joined() where count < Self.neighboursMax {
      let (earlier, later) = (pair.earlier, pair.later)
      try connection.run(
        Self.noteOrder, .text(earlier.text), .text(later.text), .text(upload.remote.text), .integer(now),
        pair.apartFrom.map { .integer($0) } ?? .null)
      count += 1
    }
    unwritten = []
  }

  private func load() throws {
    told = []
    order = LostOrder(
      own: try connection.rows("SELECT id, first_commit FROM salvor_incarnation ORDER BY first_commit").compactMap {
        row in
        guard let id = row[0].string.flatMap({ IncarnationID($0) }), let first = row[1].integer else { return nil }
        return Incarnation(id: id, firstCommit: first)
      })
    try connection.query("SELECT earlier, later, apart FROM salvor_lost_timeline", []) { row in
      if let earlier = IncarnationID(row.string(0)), let later = IncarnationID(row.string(1)) {
        order.add(LostNeighbours(earlier, before: later, apartFrom: row.value(2).integer))
      }
      return true
    }
  }

  /// What the first version is, beside the second.
  func relation(_ version: LostVersion, beside other: LostVersion) -> LostOrder.Relation {
    if let known = relations[[version, other]] { return known }
    let found = order.relation(version, beside: other)
    relations[[version, other]] = found
    return found
  }

  /// What speaks against an offer of this version; nil: the server has lost it, as far as can be known.
  func refusal(of version: LostVersion) throws -> RefusalText? {
    let head = try self.head ?? CommitLog.state(connection).head.number
    self.head = head
    guard version.incarnation != incarnation, version.parting <= head else { return .notLost(version) }
    if try known(version) != nil { return .notLost(version) }
    // What changed nothing has the number of the commit that would have come next.
    guard let end = try end(of: version.incarnation), version.number > end + 1 else { return nil }
    return .neverMade(version, end)
  }

  /// The last commit that a lost incarnation made; nil: it is not known for certain (`RestoreCertainty.end`).
  private func end(of incarnation: IncarnationID) throws -> Int64? {
    if let known = ends[incarnation] { return known }
    let found = try connection.integer(
      "SELECT CASE WHEN max(exact) = \(RestoreCertainty.end.rawValue) THEN max(last) END FROM salvor_restore WHERE incarnation = ?1",
      .text(incarnation.text))
    ends[incarnation] = .some(found)
    return found
  }

  /// The commit of the server's own history that made the row so; nil: it has none.
  func known(_ version: LostVersion) throws -> Int64? {
    let head = try self.head ?? CommitLog.state(connection).head.number
    for (incarnation, number) in [
      (version.incarnation, version.number), (version.original.incarnation, version.original.number),
    ] {
      if let last = try lastCommit(of: incarnation, head: head), number <= last { return number }
    }
    return nil
  }

  private func lastCommit(of incarnation: IncarnationID, head: Int64) throws -> Int64? {
    if let known = lastCommits[incarnation] { return known }
    let first = try connection.integer(
      "SELECT first_commit FROM salvor_incarnation WHERE id = ?1", .text(incarnation.text))
    let last = try first.map { first in
      let next = try connection.integer(
        "SELECT min(first_commit) FROM salvor_incarnation WHERE first_commit > ?1", .integer(first))
      return next.map { $0 - 1 } ?? head
    }
    lastCommits[incarnation] = .some(last)
    return last
  }

  // MARK: Rows

  /// What became of a row since the device of an offer and this server parted.
  ///
  /// - Parameter pending: what offers of the same upload have made of it.
  func standing(
    of key: Key, _ hash: UInt64, at place: Int, for version: LostVersion, pending: [Healing]
  ) throws -> RowStanding {
    let parting = try sequence(of: version.parting)
    let history = try histories.history(
      of: RowHistories.Row(place: place, key: key, hash: hash), after: parting)
    var marks: [RowStanding.Mark] = []
    var covered: Int64 = 0
    let waiting = pending.reversed().filter { $0.claim == nil }.map {
      RowStanding.Mark(version: $0.version, mask: $0.mask, at: $0.isBeneath ? 2 * last + 1 : .max)
    }
    for var mark in waiting + (history.marks + history.lines).sorted(by: { $0.at > $1.at }) where mark.at > 2 * parting
    {
      mark.mask &= ~covered
      covered |= mark.mask
      marks.append(mark)
    }
    // Older than what the log keeps: nobody can say what was written since.
    let writes =
      version.parting < trimmed
      ? [RowStanding.Write(sequence: 0, mask: ColumnMask.all)] : history.writes.filter { $0.sequence > parting }
    return RowStanding(
      version: version, writes: writes, marks: marks, hasLines: !history.lines.isEmpty || !pending.isEmpty
    ) { [self] in
      relation($0, beside: version)
    }
  }

  /// Requests are going to be decided as a set: what the book has of their rows is read together, until `endSet`.
  func beginSet(_ requests: [StagedRequest]) throws {
    var rows: [RowHistories.Row] = []
    var parting = Int64.max
    for change in requests.lazy.flatMap(\.changes) {
      guard let offer = change.offer, let place = change.table, change.refusal == nil else { continue }
      rows.append(RowHistories.Row(place: place, key: change.key, hash: change.hash))
      parting = min(parting, offer.version.parting)
    }
    guard !rows.isEmpty else { return }
    try histories.beginSet(rows, after: sequence(of: parting))
  }

  func endSet() { histories.endSet() }

  /// Whether an offer is certain to be applied in all its columns where its statement changes the row: nothing of the row is
  /// known since its device and this server parted, and the offer waits for nobody. Whether this upload has changed the row is the
  /// caller's to know.
  func isClear(_ offer: Offer, _ operation: Operation, in place: Int, _ hash: UInt64, _ key: () -> Key) throws -> Bool {
    let table = catalog.tables[place]
    guard offer.written.isEmpty, !offer.isVersion, offer.version.origin == nil, intake.isFree(offer, table) else {
      return false
    }
    if operation == .insert, !table.alternatives.isEmpty, try hasClaims() { return false }
    if lastPassing?.version != offer.version {
      let passes = try refusal(of: offer.version) == nil && offer.version.parting >= trimmed
      lastPassing = (offer.version, passes ? try sequence(of: offer.version.parting) : nil)
    }
    guard let sequence = lastPassing?.sequence else { return false }
    return try histories.isUntouched(hash, in: place, after: sequence, key)
  }

  private func hasClaims() throws -> Bool {
    if let mayHaveClaims { return mayHaveClaims }
    let found = try connection.integer("SELECT 1 FROM salvor_healed_delete LIMIT 1") != nil
    mayHaveClaims = found
    return found
  }

  /// What becomes of an offer that would make a row again, where others have offered its delete without being known to have seen it.
  ///
  /// - Parameter mayWrite: whether somebody may write the row as it is offered.
  func outcomeOfDeletes(
    of key: Key, at place: Int, for version: LostVersion, _ mayWrite: (Principal) throws -> Bool
  ) throws -> RowStanding.Outcome {
    let parting = try sequence(of: version.parting)
    guard try hasClaims() else { return .applied }
    var (isWritten, isNewer, isUnranked) = (false, false, false)
    for row in try connection.rows(
      "SELECT incarnation, number, principal FROM salvor_healed_delete WHERE t = ?1 AND key = ?2 AND at > ?3",
      .integer(catalog.tables[place].number), text(key), .integer(2 * parting))
    {
      guard let principal = row[2].string.flatMap({ Principal(stored: $0) }), try mayWrite(principal) else { continue }
      guard let incarnation = row[0].string.flatMap({ IncarnationID($0) }), let number = row[1].integer else {
        isWritten = true
        continue
      }
      let deleted = LostVersion(incarnation: incarnation, number: number, parting: 0)
      let found = relation(deleted, beside: version)
      switch found.finding {
      case .same, .older: continue
      case .newer where found.isApart: isUnranked = true
      case .newer: isNewer = true
      case .unranked: isUnranked = true
      }
    }
    return isWritten ? .conflict : isNewer ? .superseded : isUnranked ? .conflict : .applied
  }

  /// The last entry of the commit, or of the copy that a restore put back to it.
  private func sequence(of number: Int64) throws -> Int64 {
    if let known = sequences[number] { return known }
    let commit = try connection.integer(
      "SELECT last_seq FROM salvor_commit WHERE number <= ?1 ORDER BY number DESC LIMIT 1", .integer(number))
    let copy = try connection.integer("SELECT max(seq) FROM salvor_restore WHERE number = ?1", .integer(number))
    let found = max(commit ?? 0, copy ?? 0)
    sequences[number] = found
    return found
  }

  // MARK: Writing

  /// Entries of the log that came by offers of one version, each of its row.
  struct Entries: Equatable {
    var first: Int64
    var last: Int64
    var version: LostVersion
    var mask: Int64
    var entry: Int64
    var altered: Int64 = 0

    /// False: it does not go on where these end.
    mutating func append(_ other: Entries) -> Bool {
      guard other.first == last + 1, other.version == version, other.mask == mask, other.entry == entry,
        other.altered == altered
      else { return false }
      last = other.last
      return true
    }
  }

  /// The offers' rows are written; `before` was the last entry of the log until then. Answers with the rows that have entries.
  ///
  /// - Parameter altered: as `Healing.altered`, by row.
  @discardableResult
  func write(
    _ healings: [UInt64: [Healing]], after before: Int64, altered: [UInt64: Int64] = [:]
  ) throws -> Set<UInt64> {
    guard !healings.isEmpty else { return [] }
    var altered = altered
    var entries: [Entries] = []
    var written: [UInt64: Int64] = [:]
    if try CommitLog.state(connection).lastSequence > before {
      for (sequence, hash, changed) in try writtenEntries(healings, after: before) {
        guard let healings = healings[hash], let newest = Self.newest(healings) else { continue }
        // Once more: by a trigger.
        if written.updateValue(sequence, forKey: hash) != nil { altered[hash, default: 0] |= changed }
        let entry = healings.reduce(0) { $0 | $1.entryMask }
        let made = healings.reduce(altered[hash] ?? 0) { $0 | $1.altered }
        let mask = healings.filter { Self.standsWith(newest, $0) }.reduce(newest.mask) { $0 | $1.mask }
        if mask | entry == 0 { continue }
        entries.append(
          Entries(
            first: sequence, last: sequence, version: newest.version, mask: mask, entry: entry,
            altered: made & mask))
      }
    }
    for (hash, healings) in healings {
      // Of a row that has an entry the newest version stands with that, and so does what was written over it there.
      var rest = healings[...]
      var covered: Int64 = 0
      if written[hash] != nil, let newest = Self.newest(healings) {
        if let place = rest.lastIndex(of: newest) { rest.remove(at: place) }
        covered = healings.filter { Self.standsWith(newest, $0) }.reduce(newest.mask) { $0 | $1.mask }
        if newest.hasLines { try uncover(newest, covered) }
        rest.removeAll { Self.standsWith(newest, $0) }
      }
      for healing in rest where healing.mask & ~covered != 0 {
        let entry = healing.isBeneath ? nil : written[hash]
        try writeLine(healing, mask: healing.mask & ~covered, at: entry.map { 2 * $0 } ?? 2 * last + 1)
      }
    }
    histories.noteWritten(healings.keys)
    try write(entries)
    return Set(written.keys)
  }

  private static func newest(_ healings: [Healing]) -> Healing? {
    healings.last(where: \.isUpon) ?? healings.last { $0.claim == nil }
  }

  private static func standsWith(_ newest: Healing, _ other: Healing) -> Bool {
    other.isBeneath && other.version == newest.version
  }

  /// The log has so many entries after that one, and no others.
  func hasEntries(_ count: Int, after before: Int64) throws -> Bool {
    let found = try connection.rows("SELECT count(*), max(seq) FROM salvor_change WHERE seq > ?1", .integer(before))
      .first
    return found?[0].integer == Int64(count) && (count == 0 || found?[1].integer == before + Int64(count))
  }

  /// Entries of the log in their order, each of one row that came by an offer.
  func write(_ entries: [Entries]) throws {
    var ranges: [Entries] = []
    for entry in entries where ranges.isEmpty || !ranges[ranges.count - 1].append(entry) { ranges.append(entry) }
    guard !ranges.isEmpty else { return }
    histories.noteWritten([])
    for range in ranges {
      try connection.run(
        """
        INSERT INTO salvor_healed_entry (last, first, incarnation, number, mask, entry, remote, altered)
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
        """, .integer(range.last), .integer(range.first), .text(range.version.incarnation.text),
        .integer(range.version.number), .integer(range.mask), .integer(range.entry), .text(upload.remote.text),
        range.altered == 0 ? .null : .integer(range.altered))
    }
  }

  /// What offers leave of rows that they found so already.
  private func writeLine(_ healing: Healing, mask: Int64, at: Int64) throws {
    let (table, key) = (Value.integer(catalog.tables[healing.table].number), text(healing.key))
    if let claim = healing.claim {
      mayHaveClaims = true
      let incarnation = claim == .lost ? healing.version.incarnation.text : ""
      return try connection.run(
        """
        INSERT INTO salvor_healed_delete (t, key, incarnation, number, at, remote, principal) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
          ON CONFLICT (t, key, incarnation, number, remote) DO UPDATE SET at = excluded.at, principal = excluded.principal
        """, table, key, .text(incarnation), .integer(claim == .lost ? healing.version.number : 0), .integer(at),
        .text(upload.remote.text), .text(upload.principal.stored))
    }
    if healing.hasLines { try uncover(healing, mask) }
    try connection.run(
      """
      INSERT INTO salvor_healed (t, key, incarnation, number, mask, at, remote) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
        ON CONFLICT (t, key, incarnation, number) DO UPDATE SET mask = salvor_healed.mask | excluded.mask, at = excluded.at
      """, table, key, .text(healing.version.incarnation.text), .integer(healing.version.number), .integer(mask),
      .integer(at), .text(upload.remote.text))
  }

  /// Other lines are not of these columns any more.
  private func uncover(_ healing: Healing, _ mask: Int64) throws {
    let (table, key) = (Value.integer(catalog.tables[healing.table].number), text(healing.key))
    try connection.run(
      "UPDATE salvor_healed SET mask = mask & ?3 WHERE t = ?1 AND key = ?2", table, key, .integer(~mask))
    try connection.run("DELETE FROM salvor_healed WHERE t = ?1 AND key = ?2 AND mask = 0", table, key)
  }

  /// The log's new entries of these rows, in their order.
  private func writtenEntries(
    _ healings: [UInt64: [Healing]], after before: Int64
  ) throws -> [(sequence: Int64, row: UInt64, changed: Int64)] {
    let seeds = catalog.tables.map { RowHash(table: $0.name) }
    let keys = (0..<(catalog.tables.map(\.keyCount).max() ?? 1)).map { "v\($0)" }.joined(separator: ", ")
    var found: [(Int64, UInt64, Int64)] = []
    try connection.query(
      "SELECT seq, t, m, \(keys) FROM salvor_change WHERE seq > ?1 AND op > \(LogOperation.touch) ORDER BY seq",
      [.integer(before)]
    ) { row in
      guard let place = catalog.place(number: row.int64(1)) else { return true }
      let hash = seeds[place].adding(catalog.tables[place].logKey(of: row, from: 3))
      let changed = row.isNull(2) ? ColumnMask.all : row.int64(2)
      // An entry that changed none of the offered columns is another's: of a trigger, or of the device's own change.
      if let healings = healings[hash],
        healings.contains(where: { ($0.isBeneath ? $0.mask : $0.entryMask) & changed != 0 })
      {
        found.append((row.int64(0), hash, changed))
      }
      return true
    }
    return found
  }

  /// The row is erased: no entry of it says anything of offers any more.
  package static func forget(
    _ table: ServerTable, _ key: Key, _ connection: any StoreConnection, _ catalog: Catalog
  ) throws {
    let found = try connection.rows(
      """
      SELECT c.seq FROM salvor_change c\(connection.dialect.using(index: LogIndex.name(keyCount: table.keyCount)))
      WHERE \(LogIndex.condition(catalog.tables, keyCount: table.keyCount)) AND c.t = \(table.number)
        AND \(table.keyPlaces.indices.map { "c.v\($0) = ?\($0 + 1)" }.joined(separator: " AND "))
      """, key)
    try forget(entries: found.compactMap { $0[0].integer }, connection)
  }

  /// The entries are gone, or say nothing of offers any more.
  package static func forget(entries: [Int64], _ connection: any StoreConnection) throws {
    for entry in entries {
      let range = try connection.rows(
        """
        SELECT first, last, incarnation, number, mask, entry, remote, altered FROM salvor_healed_entry WHERE last >= ?1
          ORDER BY last LIMIT 1
        """, .integer(entry)
      ).first
      guard let range, let first = range[0].integer, let last = range[1].integer, first <= entry else { continue }
      try connection.run("DELETE FROM salvor_healed_entry WHERE last = ?1", .integer(last))
      for (first, last) in [(first, entry - 1), (entry + 1, last)] where first <= last {
        try connection.run(
          """
          INSERT INTO salvor_healed_entry (first, last, incarnation, number, mask, entry, remote, altered)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
          """, [.integer(first), .integer(last)] + range[2...])
      }
    }
  }

  private func text(_ key: Key) -> Value { .text(key.stored) }
}

extension RefusalText {
  static func notLost(_ version: LostVersion) -> RefusalText {
    RefusalText(
      .notLost,
      "This server has not lost commit \(version.number), or never had it. Synchronize again; the row comes as it is now."
    )
  }
}

extension RefusalText {
  /// Its device keeps it, as an error: should the record be wrong, nothing is lost.
  static func neverMade(_ version: LostVersion, _ end: Int64) -> RefusalText {
    RefusalText(
      .rejected,
      "Commit \(version.number) was never made: the history that was lost ended with commit \(end). Look at the row, and write what is right."
    )
  }
}

extension LostVersion {
  /// As `salvor_conflict.offer` has it.
  var text: String { "\(incarnation.text) \(number) \(parting)" }

  init?(text: String) {
    let parts = text.split(separator: " ")
    guard parts.count == 3, let incarnation = IncarnationID(parts[0]), let number = Int64(parts[1]),
      let parting = Int64(parts[2])
    else { return nil }
    self.init(incarnation: incarnation, number: number, parting: parting)
  }
}
