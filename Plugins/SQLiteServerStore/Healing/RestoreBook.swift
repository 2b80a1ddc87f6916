import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// The restores of this database, and what devices have given back since each (semantics 10).
///
/// A restore is opened by `salvor server restore`, which can ask the database that goes who made the commits that are lost,
/// and by a start that finds the database older than the file beside it, which remembers the last commit alone.
struct RestoreBook {
  static let tables = """
    CREATE TABLE IF NOT EXISTS salvor_restore (
      id INTEGER PRIMARY KEY, time INTEGER NOT NULL, number INTEGER NOT NULL, commit_id TEXT NOT NULL,
      incarnation TEXT NOT NULL, last INTEGER NOT NULL, exact INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS salvor_restore_commit (
      restore INTEGER NOT NULL, number INTEGER NOT NULL, remote TEXT, offered INTEGER NOT NULL,
      PRIMARY KEY (restore, number)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_restore_offer (
      restore INTEGER NOT NULL, "table" TEXT NOT NULL, remote TEXT NOT NULL, healed INTEGER NOT NULL,
      superseded INTEGER NOT NULL, conflicts INTEGER NOT NULL, refused INTEGER NOT NULL, purged INTEGER NOT NULL,
      PRIMARY KEY (restore, "table", remote)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_restore_seen (
      restore INTEGER NOT NULL, remote TEXT NOT NULL, PRIMARY KEY (restore, remote)) WITHOUT ROWID;
    """

  /// Of one restore so many commits are remembered, the oldest ones.
  static let commitsMax: Int64 = 100_000
  /// So many restores are remembered, the newest ones.
  static let restoresMax: Int64 = 100
  /// So many ranges of commits are told of a restore.
  static let rangesMax = 1000

  let connection: SQLiteConnection

  // MARK: Opening

  /// The database does not know what the file beside it remembers. Until there is a new commit each start finds that, and one
  /// that `salvor server restore` has opened is the same.
  func begin(_ remembered: SideFile.Content, now: Int64) throws {
    let known = try connection.integer(
      "SELECT 1 FROM salvor_restore WHERE incarnation = ?1 AND last = ?2", .text(remembered.incarnation.text),
      .integer(remembered.commit.number))
    guard known == nil else { return }
    _ = try open(
      try CommitLog.state(connection).head, remembered.incarnation, last: remembered.commit.number, isExact: false,
      now: now)
  }

  private func open(
    _ parting: Commit, _ incarnation: IncarnationID, last: Int64, isExact: Bool, now: Int64
  ) throws -> Int64 {
    try connection.run(
      """
      INSERT INTO salvor_restore (time, number, commit_id, incarnation, last, exact) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
      """, .integer(now), .integer(parting.number), .text(parting.id.text), .text(incarnation.text), .integer(last),
      .integer(isExact ? 1 : 0))
    let id = connection.lastInsertRowID
    for table in ["commit", "offer", "seen"] {
      try connection.run(
        "DELETE FROM salvor_restore_\(table) WHERE restore <= ?1", .integer(id - Self.restoresMax))
    }
    try connection.run("DELETE FROM salvor_restore WHERE id <= ?1", .integer(id - Self.restoresMax))
    return id
  }

  /// This database is about to stand in the place of another one: what that one has and this one lacks is lost.
  ///
  /// - Parameter before: of the same server; one of another server lost nothing that a device would offer.
  func begin(inPlaceOf before: SQLiteConnection, now: Int64) throws {
    let (here, there) = (try CommitLog.state(connection).head, try CommitLog.state(before).head)
    guard there.number > 0 else { return }
    let parting = try self.parting(here, before, there)
    guard let incarnation = try incarnation(of: there, in: before) else { return }
    try connection.transaction(.immediate) {
      try connection.execute(Self.tables)
      let id = try open(parting, incarnation, last: there.number, isExact: true, now: now)
      let insertion = try connection.prepare(
        "INSERT OR IGNORE INTO salvor_restore_commit (restore, number, remote, offered) VALUES (\(id), ?1, ?2, 0)")
      try before.query(
        "SELECT number, remote FROM salvor_commit WHERE number > ?1 ORDER BY number LIMIT ?2",
        [.integer(parting.number), .integer(Self.commitsMax)]
      ) { row in
        try insertion.bind(1, row.int64(0))
        try insertion.bind(2, row.value(1))
        try insertion.run()
        return true
      }
    }
  }

  /// The newest commit that both have: what comes before it they share, and nothing after it.
  private func parting(_ here: Commit, _ before: SQLiteConnection, _ there: Commit) throws -> Commit {
    func shared(_ number: Int64) throws -> Commit? {
      let find = "SELECT id FROM salvor_commit WHERE number = ?1"
      guard let id = try connection.scalar(find, .integer(number))?.string,
        try before.scalar(find, .integer(number))?.string == id
      else { return nil }
      return CommitID(id).map { Commit(number: number, id: $0) }
    }
    var (low, high) = (Int64(0), min(here.number, there.number))
    var found = Commit(number: 0, id: here.id)
    while low < high {
      let middle = low + (high - low + 1) / 2
      if let commit = try shared(middle) { (low, found) = (middle, commit) } else { high = middle - 1 }
    }
    return found
  }

  private func incarnation(of commit: Commit, in database: SQLiteConnection) throws -> IncarnationID? {
    try database.scalar("SELECT incarnation FROM salvor_commit WHERE number = ?1", .integer(commit.number))?.string
      .flatMap { IncarnationID($0) }
  }

  // MARK: Since then

  /// Remotes that have not come since one of the restores, as far as they are known; none where there was none.
  func unseen() throws -> Set<RemoteID> {
    var found: Set<RemoteID> = []
    for id in try connection.rows("SELECT id FROM salvor_restore").compactMap({ $0[0].integer }) {
      found.formUnion(try absent(id).map(\.remote))
    }
    return found
  }

  func noteSeen(_ remote: RemoteID) throws {
    try connection.run(
      "INSERT OR IGNORE INTO salvor_restore_seen (restore, remote) SELECT id, ?1 FROM salvor_restore",
      .text(remote.text))
  }

  /// What became of an upload's offers, and of which lost commits they are.
  func count(
    _ offers: OfferCount, _ versions: [IncarnationID: Set<Int64>], of remote: RemoteID, _ catalog: Catalog
  ) throws {
    guard !versions.isEmpty, let newest = try connection.integer("SELECT max(id) FROM salvor_restore") else { return }
    for (incarnation, numbers) in versions {
      let restore =
        try connection.integer(
          "SELECT max(id) FROM salvor_restore WHERE incarnation = ?1", .text(incarnation.text)) ?? newest
      let insertion = try connection.prepare(
        """
        INSERT INTO salvor_restore_commit (restore, number, offered)
          SELECT id, ?2, 1 FROM salvor_restore WHERE id = ?1 AND ?2 > number AND ?2 <= last
            AND ?2 <= number + \(Self.commitsMax)
          ON CONFLICT (restore, number) DO UPDATE SET offered = 1
        """, persistent: true)
      for number in numbers {
        try insertion.bind(1, restore)
        try insertion.bind(2, number)
        try insertion.run()
      }
    }
    // The offers of one upload are of one restore, nearly always.
    let incarnations = versions.keys.map(\.text)
    var restore = newest
    for text in incarnations {
      if let found = try connection.integer("SELECT max(id) FROM salvor_restore WHERE incarnation = ?1", .text(text)) {
        restore = found
      }
    }
    for (place, count) in offers.tables {
      try connection.run(
        """
        INSERT INTO salvor_restore_offer (restore, "table", remote, healed, superseded, conflicts, refused, purged)
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
          ON CONFLICT (restore, "table", remote) DO UPDATE SET healed = healed + excluded.healed,
            superseded = superseded + excluded.superseded, conflicts = conflicts + excluded.conflicts,
            refused = refused + excluded.refused, purged = purged + excluded.purged
        """, .integer(restore), .text(catalog.tables[place].name), .text(remote.text), .integer(count.healed),
        .integer(count.superseded), .integer(count.conflicts), .integer(count.refused), .integer(count.purged))
    }
  }

  // MARK: Telling

  /// Newest first.
  func all(limit: Int) throws -> [RestoreRecord] {
    guard try connection.tableShape("salvor_restore") != nil else { return [] }
    return try connection.rows(
      """
      SELECT id, time, number, commit_id, incarnation, last, exact FROM salvor_restore ORDER BY id DESC LIMIT ?1
      """, .integer(Int64(max(0, limit)))
    ).compactMap { row in
      guard let id = row[0].integer, let number = row[2].integer, let last = row[5].integer,
        let commit = row[3].string.flatMap({ CommitID($0) }),
        let incarnation = row[4].string.flatMap({ IncarnationID($0) })
      else { return nil }
      let isExact = row[6] == 1
      return RestoreRecord(
        id: id, time: row[1].integer ?? 0, parting: Commit(number: number, id: commit), lostIncarnation: incarnation,
        lostLast: last, isExact: isExact, counts: try counts(id), seen: try seen(id), absent: try absent(id),
        commitsNotOffered: try notOffered(id, after: number, to: last),
        commitsOfPrograms: isExact
          ? try connection.integer(
            """
            SELECT count(*) FROM salvor_restore_commit c, salvor_restore s WHERE s.id = ?1 AND c.restore = s.id
              AND c.number <= s.last AND c.remote IS NULL
            """, .integer(id)) : nil)
    }
  }

  private func counts(_ id: Int64) throws -> [RestoreRecord.Count] {
    try connection.rows(
      """
      SELECT "table", remote, healed, superseded, conflicts, refused, purged FROM salvor_restore_offer
        WHERE restore = ?1 ORDER BY "table", remote
      """, .integer(id)
    ).compactMap { row in
      row[1].string.flatMap { RemoteID($0) }.map { remote in
        RestoreRecord.Count(
          table: row[0].string ?? "", remote: remote, healed: row[2].integer ?? 0, superseded: row[3].integer ?? 0,
          conflicts: row[4].integer ?? 0, refused: row[5].integer ?? 0, purged: row[6].integer ?? 0)
      }
    }
  }

  private func seen(_ id: Int64) throws -> [RemoteID] {
    try connection.rows("SELECT remote FROM salvor_restore_seen WHERE restore = ?1 ORDER BY remote", .integer(id))
      .compactMap { row in row[0].string.flatMap { RemoteID($0) } }
  }

  /// Those that the database knew then, and those that the database before knew.
  private func absent(_ id: Int64) throws -> [RestoreRecord.Absent] {
    try connection.rows(
      """
      WITH lost AS (SELECT remote, count(*) AS commits FROM salvor_restore_commit
          WHERE restore = ?1 AND remote IS NOT NULL GROUP BY remote),
        known AS (SELECT r.id FROM salvor_remote r, salvor_restore s
            WHERE s.id = ?1 AND r.registered < s.time AND r.deleted = 0
          UNION SELECT remote FROM lost)
      SELECT k.id, CASE WHEN s.exact THEN coalesce(l.commits, 0) END
        FROM known k LEFT JOIN lost l ON l.remote = k.id, salvor_restore s
        WHERE s.id = ?1 AND k.id NOT IN (SELECT remote FROM salvor_restore_seen WHERE restore = ?1) ORDER BY k.id
      """, .integer(id)
    ).compactMap { row in
      row[0].string.flatMap { RemoteID($0) }.map { RestoreRecord.Absent(remote: $0, commits: row[1].integer) }
    }
  }

  private func notOffered(_ id: Int64, after first: Int64, to last: Int64) throws -> [ClosedRange<Int64>] {
    let end = min(last, first + Self.commitsMax)
    var ranges: [ClosedRange<Int64>] = []
    var next = first + 1
    try connection.query(
      "SELECT number FROM salvor_restore_commit WHERE restore = ?1 AND offered = 1 AND number <= ?2 ORDER BY number",
      [.integer(id), .integer(end)]
    ) { row in
      if row.int64(0) > next { ranges.append(next...row.int64(0) - 1) }
      next = row.int64(0) + 1
      return ranges.count < Self.rangesMax
    }
    if next <= last, ranges.count < Self.rangesMax { ranges.append(next...last) }
    return ranges
  }
}

extension DatabaseCopy {
  func restores(of path: String, limit: Int, busyTimeoutMilliseconds: Int64) throws -> [RestoreRecord] {
    guard Files.exists(path) else { return [] }
    let connection = try SQLiteConnection(
      path, mode: .readWrite, busyTimeoutMilliseconds: Int32(clamping: busyTimeoutMilliseconds))
    defer { connection.close() }
    return try connection.transaction(.deferred) { try RestoreBook(connection: connection).all(limit: limit) }
  }
}

extension SQLiteServerStore: RestoreReportingServerStore {
  public func restores(limit: Int) async throws -> [RestoreRecord] {
    guard options.isFile else { return [] }
    return try await DatabaseCopy().restores(
      of: options.path, limit: limit, busyTimeoutMilliseconds: options.busyTimeoutMilliseconds)
  }
}

extension ServerWriter {
  func unseenSinceRestore() throws -> Set<RemoteID> { try RestoreBook(connection: try opened().connection).unseen() }

  func noteSeen(_ remote: RemoteID) throws {
    try transaction(durable: false) { try RestoreBook(connection: $0.connection).noteSeen(remote) }
  }
}
