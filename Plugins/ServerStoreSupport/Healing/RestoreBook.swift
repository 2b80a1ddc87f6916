import SalvorModel
import SalvorStorage
import SalvorWire

/// The restores of this database, and what devices have given back since each (semantics 10).
///
/// A restore is opened by `salvor server restore`, which can ask the database that goes who made the commits that are lost,
/// and by a start that finds the database older than the file beside it, which remembers the last commit alone.
package struct RestoreBook {
  package static let tables = """
    CREATE TABLE IF NOT EXISTS salvor_restore (
      id INTEGER PRIMARY KEY, time INTEGER NOT NULL, number INTEGER NOT NULL, commit_id TEXT NOT NULL,
      incarnation TEXT NOT NULL, last INTEGER NOT NULL, exact INTEGER NOT NULL, seq INTEGER);
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
  package static let commitsMax: Int64 = 100_000
  /// So many restores are remembered, the newest ones.
  package static let restoresMax: Int64 = 100
  /// So many ranges of commits are told of a restore.
  static let rangesMax = 1000

  private let connection: any StoreConnection

  package init(connection: any StoreConnection) { self.connection = connection }

  // MARK: Beginning

  /// The database does not know what somebody remembers of it. Until there is a new commit each start finds that, and one that
  /// `salvor server restore` has opened is the same. Several processes may remember different commits: the last one counts.
  package func begin(_ remembered: SideFile.Content, now: Int64) throws {
    let parting = try parting(from: remembered.incarnation)
    let known = try connection.rows(
      "SELECT id, last FROM salvor_restore WHERE incarnation = ?1 AND (last = ?2 OR number = ?3) ORDER BY id DESC LIMIT 1",
      .text(remembered.incarnation.text), .integer(remembered.commit.number), .integer(parting.number)
    ).first
    if let known, let id = known[0].integer {
      guard (known[1].integer ?? 0) < remembered.commit.number else { return }
      return try connection.run(
        "UPDATE salvor_restore SET last = ?2 WHERE id = ?1 AND exact = \(RestoreCertainty.remembered.rawValue)",
        .integer(id), .integer(remembered.commit.number))
    }
    _ = try open(
      parting, remembered.incarnation, last: remembered.commit.number, .remembered, now: now, isSwept: true)
  }

  /// The last commit before the first incarnation of now that is later than the lost one: the database may have gone on since, where another
  /// process found the restore first.
  private func parting(from incarnation: IncarnationID) throws -> Commit {
    let row = try connection.rows(
      """
      SELECT number, id FROM salvor_commit WHERE number < (SELECT min(first_commit) FROM salvor_incarnation
        WHERE first_commit > coalesce((SELECT first_commit FROM salvor_incarnation WHERE id = ?1),
          (SELECT max(number) FROM salvor_restore WHERE incarnation = ?1))) ORDER BY number DESC LIMIT 1
      """, .text(incarnation.text)
    ).first
    guard let row, let number = row[0].integer, let id = row[1].string.flatMap({ CommitID($0) }) else {
      return try CommitLog.state(connection).head
    }
    return Commit(number: number, id: id)
  }

  /// Writes down a restore to `parting`, and forgets the oldest ones. What other programs had written before the copy was made, and no commit
  /// had numbered, is of the copy (`seq`): the commit that numbers it comes after the restore.
  ///
  /// - Parameters:
  ///   - incarnation: of the newest commit that was lost.
  ///   - last: its number.
  ///   - isSwept: a start may have numbered already what no commit had.
  /// - Returns: its ID.
  package func open(
    _ parting: Commit, _ incarnation: IncarnationID, last: Int64, _ certainty: RestoreCertainty, now: Int64,
    isSwept: Bool = false
  ) throws -> Int64 {
    let id = (try connection.integer("SELECT max(id) FROM salvor_restore") ?? 0) + 1
    try connection.run(
      """
      INSERT INTO salvor_restore (id, time, number, commit_id, incarnation, last, exact, seq) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
      """, .integer(id), .integer(now), .integer(parting.number), .text(parting.id.text), .text(incarnation.text),
      .integer(last), .integer(certainty.rawValue),
      try endOfCopy(after: parting.number, isSwept: isSwept).map { .integer($0) } ?? .null)
    for table in ["commit", "offer", "seen"] {
      try connection.run("DELETE FROM salvor_restore_\(table) WHERE restore <= ?1", .integer(id - Self.restoresMax))
    }
    try connection.run("DELETE FROM salvor_restore WHERE id <= ?1", .integer(id - Self.restoresMax))
    return id
  }

  /// The last entry of the log, where it is of the copy; nil: commits have been made since.
  private func endOfCopy(after parting: Int64, isSwept: Bool) throws -> Int64? {
    let since = try connection.rows(
      "SELECT remote FROM salvor_commit WHERE number > ?1 ORDER BY number LIMIT 2", .integer(parting))
    guard since.isEmpty || isSwept && since.count == 1 && since[0][0].isNull else { return nil }
    return try connection.integer("SELECT max(seq) FROM salvor_change")
  }

  // MARK: Since then

  /// Remotes that have not come since one of the restores, as far as they are known; none where there was none.
  package func unseen() throws -> Set<RemoteID> {
    var found: Set<RemoteID> = []
    for id in try connection.rows("SELECT id FROM salvor_restore").compactMap({ $0[0].integer }) {
      found.formUnion(try absent(id).map(\.remote))
    }
    return found
  }

  package func noteSeen(_ remote: RemoteID) throws {
    try connection.run(
      connection.dialect.insertingNew(
        "INSERT INTO salvor_restore_seen (restore, remote) SELECT id, ?1 FROM salvor_restore"), .text(remote.text))
  }

  /// Lost commits that conflict versions are of. They are the sender's own, or none: what made nothing but conflict versions has no
  /// commit, and its number is another one's.
  func noteKept(_ versions: [IncarnationID: Set<Int64>], of remote: RemoteID) throws {
    let losses = try losses()
    for (incarnation, numbers) in versions {
      for number in numbers {
        guard let restore = losses.restore(of: number, incarnation) else { continue }
        try connection.run(
          "UPDATE salvor_restore_commit SET offered = 1 WHERE number = ?1 AND remote = ?2 AND restore = ?3",
          .integer(number), .text(remote.text), .integer(restore))
      }
    }
  }

  /// Lost commits that offers are of.
  func noteOffered(_ versions: [IncarnationID: Set<Int64>]) throws {
    let losses = try losses()
    guard !losses.list.isEmpty else { return }
    let insertion = try connection.prepare(
      """
      INSERT INTO salvor_restore_commit (restore, number, offered)
        SELECT id, CAST(?2 AS BIGINT), 1 FROM salvor_restore WHERE id = ?1 AND ?2 > number AND ?2 <= last
          AND ?2 <= number + \(Self.commitsMax)
        ON CONFLICT (restore, number) DO UPDATE SET offered = 1
      """, persistent: true)
    for (incarnation, numbers) in versions {
      for number in numbers {
        guard let restore = losses.restore(of: number, incarnation) else { continue }
        try insertion.bind(1, restore)
        try insertion.bind(2, number)
        try insertion.run()
      }
    }
  }

  /// Which restore lost which commits.
  struct Losses {
    /// Newest first.
    fileprivate var list: [(id: Int64, commits: Range<Int64>, incarnation: IncarnationID)] = []

    /// The newest that can have lost the commit, one that names its incarnation before others. A restore names the last one that it lost
    /// alone, and one that lost nothing names what the one before had lost: where none has the number, its incarnation counts, else the newest.
    func restore(of number: Int64, _ incarnation: IncarnationID) -> Int64? {
      let of = list.filter { $0.incarnation == incarnation }
      let found = of.first { $0.commits.contains(number) } ?? list.first { $0.commits.contains(number) }
      return (found ?? of.first ?? list.first)?.id
    }
  }

  func losses() throws -> Losses {
    try Losses(
      list: connection.rows("SELECT id, number, last, incarnation FROM salvor_restore ORDER BY id DESC").compactMap {
        row in
        guard let id = row[0].integer, let number = row[1].integer, let last = row[2].integer,
          let incarnation = row[3].string.flatMap({ IncarnationID($0) })
        else { return nil }
        return (id, number + 1..<max(number, last) + 1, incarnation)
      })
  }

  /// What became of an upload's offers. They are of one restore, nearly always.
  ///
  /// - Parameter version: of one of them.
  func count(
    _ offers: OfferCount, of version: (incarnation: IncarnationID, number: Int64)?, by remote: RemoteID,
    _ catalog: Catalog
  ) throws {
    guard let version, let restore = try losses().restore(of: version.number, version.incarnation) else { return }
    for (place, count) in offers.tables {
      try connection.run(
        """
        INSERT INTO salvor_restore_offer (restore, "table", remote, healed, superseded, conflicts, refused, purged)
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
          ON CONFLICT (restore, "table", remote) DO UPDATE SET healed = salvor_restore_offer.healed + excluded.healed,
            superseded = salvor_restore_offer.superseded + excluded.superseded,
            conflicts = salvor_restore_offer.conflicts + excluded.conflicts,
            refused = salvor_restore_offer.refused + excluded.refused,
            purged = salvor_restore_offer.purged + excluded.purged
        """, .integer(restore), .text(catalog.tables[place].name), .text(remote.text), .integer(count.healed),
        .integer(count.superseded), .integer(count.conflicts), .integer(count.refused), .integer(count.purged))
    }
  }

  // MARK: Telling

  /// Newest first.
  package func all(limit: Int) throws -> [RestoreRecord] {
    try connection.rows(
      """
      SELECT id, time, number, commit_id, incarnation, last, exact FROM salvor_restore ORDER BY id DESC LIMIT ?1
      """, .integer(Int64(max(0, limit)))
    ).compactMap { row in
      guard let id = row[0].integer, let number = row[2].integer, let last = row[5].integer,
        let commit = row[3].string.flatMap({ CommitID($0) }),
        let incarnation = row[4].string.flatMap({ IncarnationID($0) })
      else { return nil }
      let isExact = row[6].integer != RestoreCertainty.remembered.rawValue
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
      SELECT k.id, CASE WHEN s.exact <> \(RestoreCertainty.remembered.rawValue) THEN coalesce(l.commits, 0) END
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
