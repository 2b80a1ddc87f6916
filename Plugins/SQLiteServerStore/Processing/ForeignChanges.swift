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
  private var sequences: [Int64: Int64] = [:]

  /// - Parameter last: the last entry before the upload.
  init(_ connection: SQLiteConnection, _ catalog: Catalog, besides remote: RemoteID, last: Int64) throws {
    self.connection = connection
    self.catalog = catalog
    self.remote = remote
    loadedAfter = last
    trimmed = try FeedPageMaker.trimmed(connection)
  }

  /// Whether the row is newer than commit `made`, not counting this remote's own changes.
  mutating func isNewer(_ row: UInt64, than made: Int64) throws -> Bool {
    // Older than what the log keeps: nobody can say, so the values decide.
    if made < trimmed { return true }
    let sequence = try self.sequence(of: made)
    if sequence < loadedAfter { try load(after: sequence) }
    if newest.isEmpty { return false }
    return newest[row].map { $0 > sequence } ?? false
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
    try connection.query(
      "SELECT seq, t, \(keys) FROM salvor_change WHERE seq > ?1 AND seq <= ?2 AND op <> \(LogOperation.touch) ORDER BY seq",
      [.integer(sequence), .integer(loadedAfter)]
    ) { row in
      let entry = row.int64(0)
      while next < own.count, own[next].last < entry { next += 1 }
      if next < own.count, entry > own[next].first { return true }
      guard let place = catalog.place(number: row.int64(1)) else { return true }
      let hash = seeds[place].adding(row.values(from: 2, count: catalog.tables[place].keyCount))
      newest[hash] = max(newest[hash] ?? 0, entry)
      return true
    }
    loadedAfter = sequence
  }
}
