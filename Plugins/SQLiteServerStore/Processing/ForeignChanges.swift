import SQLiteSupport
import SalvorModel

/// What others than one remote changed since some commit: only rows among these can be in conflict. Read from the change
/// log, so that its cost follows what was changed; extended backwards when a request was made on an older commit.
struct ForeignChanges {
  private let connection: SQLiteConnection
  private let catalog: Catalog
  private let remote: RemoteID
  private let trimmed: Int64
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
  init(_ connection: SQLiteConnection, _ catalog: Catalog, besides remote: RemoteID, last: Int64) throws {
    self.connection = connection
    self.catalog = catalog
    self.remote = remote
    loadedAfter = last
    trimmed = try FeedPageMaker.trimmed(connection)
  }

  /// The row is looked at before the upload has changed it.
  mutating func notePresence(_ isThere: Bool, of row: UInt64) {
    if wasThere[row] == nil { wasThere[row] = isThere }
  }

  /// Whether the row is newer than commit `made`, not counting this remote's own changes.
  ///
  /// - Parameter isThere: the row is in the tables now. One that this very upload made is no one else's.
  mutating func isNewer(_ row: UInt64, than made: Int64, isThere: Bool = false) throws -> Bool {
    if isThere, wasThere[row] == false { return false }
    // Older than what the log keeps: nobody can say, so the values decide.
    if made < trimmed { return true }
    let sequence = try self.sequence(of: made)
    if sequence < loadedAfter { try load(after: sequence) }
    if newest.isEmpty { return false }
    return newest[row].map { $0 > sequence } ?? false
  }

  /// The newest entry after commit `made` by which somebody else wrote the row, as far back as the log is kept.
  mutating func newestWrite(of row: UInt64, after made: Int64) throws -> Int64? {
    let sequence = try self.sequence(of: max(made, trimmed))
    if sequence < loadedAfter { try load(after: sequence) }
    return newestWrite[row].flatMap { $0 > sequence ? $0 : nil }
  }

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
        c.last_seq FROM salvor_commit c WHERE c.last_seq > ?1 AND c.remote = ?2 ORDER BY c.last_seq
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
      SELECT seq, t, op, \(keys) FROM salvor_change c WHERE seq > ?1 AND seq <= ?2
        AND op NOT IN (\(LogOperation.touch), \(LogOperation.scopeMoved))
        AND (op <> \(LogOperation.differs) OR NOT EXISTS (
          SELECT 1 FROM salvor_gone g WHERE g.seq = c.seq AND g.remote IS NOT NULL AND g.remote <> ?3))
      ORDER BY seq
      """, [.integer(sequence), .integer(loadedAfter), .text(remote.text)]
    ) { row in
      let entry = row.int64(0)
      while next < own.count, own[next].last < entry {
        next += 1
        ownRows = []
      }
      guard let place = catalog.place(number: row.int64(1)) else { return true }
      let hash = seeds[place].adding(row.values(from: 3, count: catalog.tables[place].keyCount))
      guard next < own.count, entry > own[next].first else {
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
