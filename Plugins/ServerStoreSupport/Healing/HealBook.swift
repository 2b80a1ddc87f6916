import SalvorModel
import SalvorStorage
import SalvorWire

/// What the server knows about healing (semantics 10): which columns came by offers and how new their versions are, which
/// ordinary writes changed what since some commit, and in which order lost incarnations lived. One for each upload.
///
/// An entry of the change log says which columns it changed (`m`; NULL: every one), and which of these came by an offer (`h`).
/// `salvor_healed` has one line for each lost version that columns of a row are of: their `ColumnMask`, and where in the log
/// they came (`at`: twice the number of the last entry then, and one more where nothing was written, since the row was so
/// already). A line is of no use to a device that parted from this server later, and goes with the log (`Trimming`).
package final class HealBook {
  package static let tables = """
    CREATE TABLE IF NOT EXISTS salvor_column (
      t INTEGER NOT NULL, origin TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (t, origin)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_healed (
      t INTEGER NOT NULL, key TEXT NOT NULL, incarnation TEXT NOT NULL, number INTEGER NOT NULL, mask INTEGER NOT NULL,
      at INTEGER NOT NULL, remote TEXT NOT NULL, PRIMARY KEY (t, key, incarnation, number)) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS salvor_healed_at ON salvor_healed (at);
    CREATE TABLE IF NOT EXISTS salvor_healed_delete (
      t INTEGER NOT NULL, key TEXT NOT NULL, incarnation TEXT NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL,
      remote TEXT NOT NULL, principal TEXT NOT NULL, PRIMARY KEY (t, key, incarnation, number, remote));
    CREATE INDEX IF NOT EXISTS salvor_healed_delete_at ON salvor_healed_delete (at);
    CREATE TABLE IF NOT EXISTS salvor_lost_timeline (
      earlier TEXT NOT NULL, later TEXT NOT NULL, remote TEXT NOT NULL, time INTEGER NOT NULL,
      PRIMARY KEY (earlier, later)) WITHOUT ROWID;
    """

  /// So many neighbours of lost incarnations are kept; of those beyond nobody can tell the order.
  static let neighboursMax: Int64 = 10_000

  /// Columns of a row that came by offers of one version.
  struct Mark {
    var version: LostVersion
    var mask: Int64
    /// As `salvor_healed.at`.
    var at: Int64
  }

  /// What an accepted offer leaves in the book.
  struct Healing {
    var table: Int
    var key: Key
    var version: LostVersion
    /// The columns that are of the version now.
    var mask: Int64
    /// What of an entry of the log came by the offer.
    var entryMask: Int64
    /// Others' marks may be of the same columns.
    var hadMarks: Bool
    /// An offered delete of a row that is not there, and that its sender may never have seen: it counts where he may write what
    /// somebody offers of the row.
    var isClaim = false
  }

  let rows: RowReader
  let intake: OfferIntake
  private let upload: ProcessRequest
  private let incarnation: IncarnationID
  private let last: Int64
  private let trimmed: Int64
  private let now: Int64
  private var order: LostOrder
  private var told: Set<[LostNeighbours]>?
  private var findings: [[LostVersion]: LostOrder.Finding] = [:]
  private var head: Int64?
  /// The last commit of incarnations that the server knows; nil: it does not know it.
  private var lastCommits: [IncarnationID: Int64?] = [:]
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
    order = LostOrder(own: [])
  }

  // MARK: Lost incarnations

  /// An upload tells in which order incarnations lived. Only one with offers does.
  func note(_ pairs: [LostNeighbours]) throws {
    if told == nil { try load() }
    guard told?.insert(pairs).inserted == true else { return }
    findings = [:]
    var count = try connection.integer("SELECT count(*) FROM salvor_lost_timeline") ?? 0
    for pair in pairs {
      let (earlier, later) = (pair.earlier, pair.later)
      order.add(earlier, before: later)
      guard count < Self.neighboursMax else { continue }
      try connection.run(
        """
        INSERT INTO salvor_lost_timeline (earlier, later, remote, time) VALUES (?1, ?2, ?3, ?4)
          ON CONFLICT (earlier, later) DO UPDATE SET time = excluded.time
        """, .text(earlier.text), .text(later.text), .text(upload.remote.text), .integer(now))
      count += 1
    }
  }

  private func load() throws {
    told = []
    order = LostOrder(
      own: try connection.rows("SELECT id FROM salvor_incarnation ORDER BY first_commit").compactMap { row in
        row[0].string.flatMap { IncarnationID($0) }
      })
    try connection.query("SELECT earlier, later FROM salvor_lost_timeline", []) { row in
      if let earlier = IncarnationID(row.string(0)), let later = IncarnationID(row.string(1)) {
        order.add(earlier, before: later)
      }
      return true
    }
  }

  /// What the first version is, beside the second.
  func finding(_ version: LostVersion, beside other: LostVersion) -> LostOrder.Finding {
    if let known = findings[[version, other]] { return known }
    let found = order.finding(version, beside: other)
    findings[[version, other]] = found
    return found
  }

  /// What speaks against an offer of this version; nil: the server has lost it, as far as can be known.
  func refusal(of version: LostVersion) throws -> RefusalText? {
    let head = try self.head ?? CommitLog.state(connection).head.number
    self.head = head
    guard version.incarnation != incarnation, version.parting <= head else { return .notLost(version) }
    guard let last = try lastCommit(of: version.incarnation, head: head) else { return nil }
    return version.number > last ? nil : .notLost(version)
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
    var marks = pending.reversed().filter { !$0.isClaim }.map { Mark(version: $0.version, mask: $0.mask, at: .max) }
    var covered = marks.reduce(0) { $0 | $1.mask }
    let known = try self.marks(of: key, place)
    for var mark in known where mark.at > 2 * parting {
      mark.mask &= ~covered
      covered |= mark.mask
      marks.append(mark)
    }
    // Older than what the log keeps: nobody can say what was written since.
    let writes =
      version.parting < trimmed
      ? [RowStanding.Write(sequence: 0, mask: ColumnMask.all)] : try self.writes(of: key, hash, place, after: parting)
    return RowStanding(
      version: version, writes: writes, marks: marks, isMarked: !known.isEmpty || !pending.isEmpty
    ) { [self] in
      finding($0, beside: version)
    }
  }

  /// What becomes of an offer that would make a row again, where others have offered its delete without being known to have seen it.
  ///
  /// - Parameter mayWrite: whether somebody may write the row as it is offered.
  func outcomeOfDeletes(
    of key: Key, at place: Int, for version: LostVersion, _ mayWrite: (Principal) throws -> Bool
  ) throws -> RowStanding.Outcome {
    let parting = try sequence(of: version.parting)
    var outcome = RowStanding.Outcome.applied
    for row in try connection.rows(
      "SELECT incarnation, number, principal FROM salvor_healed_delete WHERE t = ?1 AND key = ?2 AND at > ?3",
      .integer(catalog.tables[place].number), text(key), .integer(2 * parting))
    {
      guard let incarnation = row[0].string.flatMap({ IncarnationID($0) }), let number = row[1].integer,
        let principal = row[2].string.flatMap({ Principal(stored: $0) })
      else { continue }
      let deleted = LostVersion(incarnation: incarnation, number: number, parting: 0)
      switch finding(deleted, beside: version) {
      case .same, .older: continue
      case .newer: if try mayWrite(principal) { return .superseded }
      case .unranked: if try mayWrite(principal) { outcome = .conflict }
      }
    }
    return outcome
  }

  private func marks(of key: Key, _ place: Int) throws -> [Mark] {
    var marks: [Mark] = []
    try connection.query(
      "SELECT incarnation, number, mask, at FROM salvor_healed WHERE t = ?1 AND key = ?2",
      [.integer(catalog.tables[place].number), text(key)]
    ) { row in
      if let incarnation = IncarnationID(row.string(0)) {
        marks.append(
          Mark(
            version: LostVersion(incarnation: incarnation, number: row.int64(1), parting: 0), mask: row.int64(2),
            at: row.int64(3)))
      }
      return true
    }
    return marks
  }

  /// Ordinary writes between `sequence` and the upload.
  private func writes(
    of key: Key, _ hash: UInt64, _ place: Int, after sequence: Int64
  ) throws -> [RowStanding.Write] {
    guard sequence < last else { return [] }
    let table = catalog.tables[place]
    let seed = RowHash(table: table.name)
    var writes: [RowStanding.Write] = []
    try connection.query(
      """
      SELECT c.seq, c.op, c.m, c.h, \(table.logKey("c"))
      FROM salvor_change c\(connection.dialect.using(index: LogIndex.name(keyCount: table.keyCount)))
      WHERE \(LogIndex.condition(catalog.tables, keyCount: table.keyCount)) AND c.t = \(table.number)
        AND \(table.keyPlaces.indices.map { "c.v\($0) = ?\($0 + 3)" }.joined(separator: " AND "))
        AND c.seq > ?1 AND c.seq <= ?2 AND c.op > \(LogOperation.touch)
      ORDER BY c.seq
      """, [.integer(sequence), .integer(last)] + key
    ) { entry in
      guard seed.adding(entry.values(from: 4, count: table.keyCount)) == hash else { return true }
      let changed = entry.isNull(2) ? ColumnMask.all : entry.int64(2)
      let ordinary = changed & ~(entry.isNull(3) ? 0 : entry.int64(3))
      if ordinary != 0 { writes.append(RowStanding.Write(sequence: entry.int64(0), mask: ordinary)) }
      return true
    }
    return writes
  }

  /// The last entry of the commit.
  private func sequence(of number: Int64) throws -> Int64 {
    if let known = sequences[number] { return known }
    let found =
      try connection.integer(
        "SELECT last_seq FROM salvor_commit WHERE number <= ?1 ORDER BY number DESC LIMIT 1", .integer(number)) ?? 0
    sequences[number] = found
    return found
  }

  // MARK: Writing

  /// The offers' rows are written; `before` was the last entry of the log until then.
  func write(_ healings: [UInt64: [Healing]], after before: Int64) throws {
    guard !healings.isEmpty else { return }
    let end = try CommitLog.state(connection).lastSequence
    if end > before { try noteEntries(healings, after: before) }
    // Where nothing was written, others' entries of the same upload say nothing.
    let at = end > before ? 2 * end : 2 * last + 1
    for healing in healings.values.joined() where healing.mask != 0 {
      let (table, key) = (Value.integer(catalog.tables[healing.table].number), text(healing.key))
      if healing.isClaim {
        try connection.run(
          """
          INSERT INTO salvor_healed_delete (t, key, incarnation, number, at, remote, principal) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
            ON CONFLICT (t, key, incarnation, number, remote) DO UPDATE SET at = excluded.at, principal = excluded.principal
          """, table, key, .text(healing.version.incarnation.text), .integer(healing.version.number), .integer(at),
          .text(upload.remote.text), .text(upload.principal.stored))
        continue
      }
      if healing.hadMarks {
        try connection.run(
          "UPDATE salvor_healed SET mask = mask & ?3 WHERE t = ?1 AND key = ?2", table, key, .integer(~healing.mask))
        try connection.run("DELETE FROM salvor_healed WHERE t = ?1 AND key = ?2 AND mask = 0", table, key)
      }
      try connection.run(
        """
        INSERT INTO salvor_healed (t, key, incarnation, number, mask, at, remote) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
          ON CONFLICT (t, key, incarnation, number) DO UPDATE SET mask = salvor_healed.mask | excluded.mask, at = excluded.at
        """, table, key, .text(healing.version.incarnation.text), .integer(healing.version.number),
        .integer(healing.mask), .integer(at), .text(upload.remote.text))
    }
  }

  /// Says of the log's new entries what of them came by offers.
  private func noteEntries(_ healings: [UInt64: [Healing]], after before: Int64) throws {
    let seeds = catalog.tables.map { RowHash(table: $0.name) }
    let keys = (0..<(catalog.tables.map(\.keyCount).max() ?? 1)).map { "v\($0)" }.joined(separator: ", ")
    var found: [(entry: Int64, mask: Int64)] = []
    try connection.query(
      "SELECT seq, t, \(keys) FROM salvor_change WHERE seq > ?1 AND op > \(LogOperation.touch)", [.integer(before)]
    ) { row in
      guard let place = catalog.place(number: row.int64(1)) else { return true }
      let hash = seeds[place].adding(catalog.tables[place].logKey(of: row, from: 2))
      if let healings = healings[hash] { found.append((row.int64(0), healings.reduce(0) { $0 | $1.entryMask })) }
      return true
    }
    for (entry, mask) in found {
      try connection.run("UPDATE salvor_change SET h = ?2 WHERE seq = ?1", .integer(entry), .integer(mask))
    }
  }

  private func text(_ key: Key) -> Value { .text(JSONValue.array(key.map { JSONValue($0) }).text) }
}

/// What became of a row since a device and this server parted, as far as it counts for the device's offer.
struct RowStanding {
  struct Write {
    /// Of the entry in the log.
    var sequence: Int64
    var mask: Int64
  }

  /// What becomes of an offered column.
  enum Outcome {
    case applied
    /// It stands as it is, and the offered value is kept nowhere.
    case superseded
    /// It stands as it is, and the offered value is a conflict version.
    case conflict
  }

  let version: LostVersion
  /// Ordinary ones, oldest first.
  let writes: [Write]
  /// No two are of the same column.
  let marks: [HealBook.Mark]
  /// The row has marks, also such that do not count here.
  let isMarked: Bool
  /// What a mark's version is beside the offered one.
  let finding: (LostVersion) -> LostOrder.Finding

  func isWritten(_ bit: Int) -> Bool { writes.contains { $0.mask.has(bit) } }

  /// The table of `HealingServerStore`.
  ///
  /// - Parameter isSame: the server has the offered value.
  func outcome(_ bit: Int, isSame: Bool) -> Outcome {
    let stands: Outcome = isSame ? .superseded : .conflict
    guard let mark = marks.first(where: { $0.mask.has(bit) }) else { return isWritten(bit) ? stands : .applied }
    if bit == ColumnMask.shared { return stands }
    switch finding(mark.version) {
    // Once more: whatever was written over it, it was there. Two values of one version are two claims.
    case .same: return isWritten(bit, after: mark) ? .superseded : stands
    // Unless it was made where an ordinary write that did not know the offered value had gone before.
    case .newer: return isWritten(bit, before: mark) ? stands : .superseded
    case .older: return isWritten(bit) ? stands : .applied
    case .unranked: return stands
    }
  }

  private func isWritten(_ bit: Int, after mark: HealBook.Mark) -> Bool {
    mark.at != .max && writes.contains { $0.mask.has(bit) && 2 * $0.sequence > mark.at }
  }

  private func isWritten(_ bit: Int, before mark: HealBook.Mark) -> Bool {
    writes.contains { $0.mask.has(bit) && (mark.at == .max || 2 * $0.sequence < mark.at) }
  }

  /// For a change of the device's own that it made on the offered version: the server's value is one that it has not seen.
  func isUnseen(_ bit: Int) -> Bool {
    if isWritten(bit) { return true }
    guard let mark = marks.first(where: { $0.mask.has(bit) }) else { return false }
    return switch finding(mark.version) {
    case .same, .older: false
    case .newer, .unranked: true
    }
  }
}

extension RefusalText {
  static func notLost(_ version: LostVersion) -> RefusalText {
    RefusalText(
      .notLost,
      "This server has not lost commit \(version.number), or never had it. Synchronize again; the row comes as it is now."
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
