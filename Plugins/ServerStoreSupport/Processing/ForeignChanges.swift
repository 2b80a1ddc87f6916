import SalvorModel
import SalvorWire

/// What others than one remote changed since some commit: only rows among these can be in conflict.
///
/// Its cost follows the upload, or what was changed since, whichever is less: a short end of the change log is read once,
/// in a longer one each row is looked up by its key (`LogIndex`).
struct ForeignChanges {
  /// A row that an upload changes.
  struct Place {
    /// The table's place in the catalog.
    var table: Int
    var key: Key
  }

  /// So many entries cost about what looking up one row does.
  private static let entriesPerLookup: Int64 = 4

  private let connection: any StoreConnection
  private let catalog: Catalog
  private let remote: RemoteID
  private let trimmed: Int64
  /// The last entry before the upload.
  private let last: Int64
  /// An end of the log up to this length is read, however few rows are asked about.
  private let readAtOnce: Int64
  private var lookups: Int64 = 0
  /// Entries of the log that were looked at: what the upload has cost here.
  private(set) var entriesRead: Int64 = 0
  /// Everything after this entry is loaded.
  private var loadedAfter: Int64
  /// `RowHash` to the newest entry.
  private var newest: [UInt64: Int64] = [:]
  /// The same, of entries by which a row was written.
  private var newestWrite: [UInt64: Int64] = [:]
  /// Rows that the remote itself made since: what stood under their keys before is no one's any more.
  private var made: Set<UInt64> = []
  /// Whether rows that were looked at were there before the upload.
  private var wasThere: [UInt64: Bool] = [:]
  private var sequences: [Int64: Int64] = [:]

  /// - Parameter last: the last entry before the upload.
  init(
    _ connection: any StoreConnection, _ catalog: Catalog, besides remote: RemoteID, last: Int64,
    readAtOnce: Int64 = 1000
  ) throws {
    self.readAtOnce = readAtOnce
    self.connection = connection
    self.catalog = catalog
    self.remote = remote
    self.last = last
    loadedAfter = last
    trimmed = try FeedPageMaker.trimmed(connection)
  }

  /// The row is looked at before the upload has changed it.
  mutating func notePresence(_ isThere: Bool, of row: UInt64) {
    if wasThere[row] == nil { wasThere[row] = isThere }
  }

  /// The upload made the row, without it having been looked at, by a change on commit `made`.
  mutating func noteMade(_ row: UInt64, on made: Int64) throws {
    if try made < trimmed || sequence(of: made) < last { notePresence(false, of: row) }
  }

  /// Whether the row is newer than commit `made`, not counting this remote's own changes.
  ///
  /// - Parameters:
  ///   - isThere: the row is in the tables now. One that this very upload made is no one else's.
  ///   - place: where the row is; asked for only where it is looked up.
  mutating func isNewer(
    _ row: UInt64, than made: Int64, isThere: Bool = false, at place: @autoclosure () -> Place?
  ) throws -> Bool {
    if isThere, wasThere[row] == false { return false }
    // Older than what the log keeps: nobody can say, so the values decide.
    if made < trimmed { return true }
    let sequence = try self.sequence(of: made)
    if try isToBeLookedUp(sequence), let place = place() {
      return try lookUp(row, place, after: sequence, writesOnly: false) != nil
    }
    if newest.isEmpty { return false }
    return newest[row].map { $0 > sequence } ?? false
  }

  /// The same of a change whose row is in the tables now.
  mutating func isNewer(_ change: StagedChange, at table: Int) throws -> Bool {
    try isNewer(change.hash, than: change.made, isThere: true, at: Place(table: table, key: change.key))
  }

  /// The newest entry after commit `made` by which somebody else wrote the row, as far back as the log is kept.
  mutating func newestWrite(of row: UInt64, after made: Int64, at place: Place) throws -> Int64? {
    let sequence = try self.sequence(of: max(made, trimmed))
    if try isToBeLookedUp(sequence) { return try lookUp(row, place, after: sequence, writesOnly: true) }
    return newestWrite[row].flatMap { $0 > sequence ? $0 : nil }
  }

  /// False: what came after the entry is loaded now.
  private mutating func isToBeLookedUp(_ sequence: Int64) throws -> Bool {
    guard sequence < loadedAfter else { return false }
    guard loadedAfter - sequence <= readAtOnce + Self.entriesPerLookup * lookups else { return true }
    try load(after: sequence)
    return false
  }

  /// The newest entry between `sequence` and the upload by which somebody else changed the row, unless this remote has made
  /// the row since: what stood under its key before is no one's any more.
  private mutating func lookUp(
    _ row: UInt64, _ place: Place, after sequence: Int64, writesOnly: Bool
  ) throws -> Int64? {
    lookups += 1
    let table = catalog.tables[place.table]
    let seed = RowHash(table: table.name)
    var found: Int64?
    /// The own commit at hand, and whether the first of its entries seen so far made the row. The newest come first.
    var own: (commit: Int64, makes: Bool)?
    try connection.query(
      Self.lookUp(table, catalog), [.text(remote.text), .integer(sequence), .integer(last)] + place.key
    ) { entry in
      entriesRead += 1
      guard seed.adding(entry.values(from: 4, count: table.keyCount)) == row else { return true }
      let commit = entry.isNull(2) ? nil : entry.int64(2)
      if let own, own.makes, own.commit != commit { return false }
      guard let commit else {
        if entry.int64(3) == 1 { return true }
        own = nil
        if writesOnly, entry.int64(1) == LogOperation.differs { return true }
        found = entry.int64(0)
        return false
      }
      own = (commit, entry.int64(1) == LogOperation.insert)
      return true
    }
    return found
  }

  /// Entries of one row, the newest first: number, operation, the own commit that it belongs to, whether
  /// the remote has offered it, key. Parameters: the remote,
  /// the first entry that is left out, the last one, the key.
  static func lookUp(_ table: ServerTable, _ catalog: Catalog) -> String {
    """
    SELECT c.seq, c.op, (SELECT CASE WHEN k.remote = ?1 AND k.number > \(ownAfter("?1")) THEN k.number END FROM salvor_commit k
        WHERE k.last_seq >= c.seq ORDER BY k.last_seq LIMIT 1),
      CASE WHEN \(isOffered) THEN 1 ELSE 0 END, \(table.logKey("c"))
    FROM salvor_change c\(catalog.dialect.using(index: LogIndex.name(keyCount: table.keyCount)))
    WHERE \(LogIndex.condition(catalog.tables, keyCount: table.keyCount)) AND c.t = \(table.number)
      AND \(table.keyPlaces.indices.map { "c.v\($0) = ?\($0 + 4)" }.joined(separator: " AND "))
      AND c.seq > ?2 AND c.seq <= ?3 AND \(counts)
    ORDER BY c.seq DESC
    """
  }

  /// What of the log `c` says that a row was changed, or that the remote `?1` holds something else.
  private static let counts = """
    c.op NOT IN (\(LogOperation.touch), \(LogOperation.scopeMoved))
      AND (c.op <> \(LogOperation.differs) OR NOT EXISTS (
        SELECT 1 FROM salvor_gone g WHERE g.seq = c.seq AND g.remote IS NOT NULL AND g.remote <> ?1))
    """

  /// An expression: what was sent under the ID of a remote until it was deleted may be another copy's.
  private static func ownAfter(_ remote: String) -> String {
    "coalesce((SELECT own_after FROM salvor_remote WHERE id = \(remote)), 0)"
  }

  /// An expression: the remote `?1` has offered what the entry `c` changed. That is its own also where it waited, and somebody accepted it.
  private static let isOffered = """
    EXISTS (SELECT 1 FROM salvor_healed_entry r WHERE r.first <= c.seq AND r.remote = ?1
      AND r.last = (SELECT min(x.last) FROM salvor_healed_entry x WHERE x.last >= c.seq))
    """

  /// The last entry of the commit.
  private mutating func sequence(of made: Int64) throws -> Int64 {
    if let known = sequences[made] { return known }
    let found =
      try connection.integer(
        "SELECT last_seq FROM salvor_commit WHERE number <= ?1 ORDER BY number DESC LIMIT 1", .integer(made)) ?? 0
    sequences[made] = found
    return found
  }

  private mutating func load(after sequence: Int64) throws {
    var own: [(first: Int64, last: Int64)] = []
    try connection.query(
      """
      SELECT coalesce((SELECT p.last_seq FROM salvor_commit p WHERE p.number < c.number ORDER BY p.number DESC LIMIT 1), 0),
        c.last_seq FROM salvor_commit c WHERE c.last_seq > ?1 AND c.remote = ?2 AND c.number > \(Self.ownAfter("?2")) ORDER BY c.last_seq
      """, [.integer(sequence), .text(remote.text)]
    ) {
      own.append(($0.int64(0), $0.int64(1)))
      return true
    }
    let seeds = catalog.tables.map { RowHash(table: $0.name) }
    let keys = (0..<(catalog.tables.map(\.keyCount).max() ?? 1)).map { "v\($0)" }.joined(separator: ", ")
    var next = 0
    var found: [UInt64: Int64] = [:]
    var written: [UInt64: Int64] = [:]
    var madeHere: Set<UInt64> = []
    /// Rows of the own commit at hand.
    var ownRows: Set<UInt64> = []
    try connection.query(
      """
      SELECT seq, t, op, CASE WHEN \(Self.isOffered) THEN 1 ELSE 0 END, \(keys) FROM salvor_change c WHERE seq > ?2 AND seq <= ?3 AND \(Self.counts) ORDER BY seq
      """, [.text(remote.text), .integer(sequence), .integer(loadedAfter)]
    ) { row in
      entriesRead += 1
      let entry = row.int64(0)
      while next < own.count, own[next].last < entry {
        next += 1
        ownRows = []
      }
      guard let place = catalog.place(number: row.int64(1)) else { return true }
      let hash = seeds[place].adding(catalog.tables[place].logKey(of: row, from: 4))
      guard next < own.count, entry > own[next].first else {
        if row.int64(3) == 1 { return true }
        found[hash] = entry
        if row.int64(2) != LogOperation.differs { written[hash] = entry }
        return true
      }
      // The first that the commit did to the row was to make it.
      if ownRows.insert(hash).inserted, row.int64(2) == LogOperation.insert {
        found[hash] = nil
        written[hash] = nil
        madeHere.insert(hash)
      }
      return true
    }
    for (hash, entry) in found where !made.contains(hash) { newest[hash] = max(newest[hash] ?? 0, entry) }
    for (hash, entry) in written where !made.contains(hash) { newestWrite[hash] = max(newestWrite[hash] ?? 0, entry) }
    made.formUnion(madeHere)
    loadedAfter = sequence
  }
}
