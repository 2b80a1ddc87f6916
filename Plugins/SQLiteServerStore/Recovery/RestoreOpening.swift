import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import ServerStoreSupport

/// A restore by a copy of a SQLite database is written down in its `RestoreBook`.
struct RestoreOpening {
  let connection: SQLiteConnection

  /// This database is about to stand in the place of another one: what that one has and this one lacks is lost.
  ///
  /// - Parameters:
  ///   - before: of the same server; one of another server lost nothing that a device would offer.
  ///   - remembered: what the file beside it says.
  func begin(inPlaceOf before: SQLiteConnection, _ remembered: SideFile.Content?, now: Int64) throws {
    let (here, there) = (try CommitLog.state(connection).head, try CommitLog.state(before).head)
    let parting = try self.parting(here, before, there)
    let last = try incarnation(of: there, in: before)
    try connection.transaction(.immediate) {
      try connection.execute(RestoreBook.tables + HealBook.tables)
      try ServerDDL.addRestoreColumns(connection)
      try takeOrder(of: before, now)
      try takeRestores(of: before)
      try takePace(of: before)
      try takeBlocks(of: before)
      // Where it has made no commit nothing of it is lost.
      guard let incarnation = last else { return }
      let isEnd = remembered?.commit == there && remembered?.incarnation == incarnation
      let id = try RestoreBook(connection: connection).open(
        parting, incarnation, last: there.number, isEnd ? .end : .asked, now: now)
      let insertion = try connection.prepare(
        "INSERT OR IGNORE INTO salvor_restore_commit (restore, number, remote, offered) VALUES (\(id), ?1, ?2, 0)")
      try before.query(
        "SELECT number, remote FROM salvor_commit WHERE number > ?1 ORDER BY number LIMIT ?2",
        [.integer(parting.number), .integer(RestoreBook.commitsMax)]
      ) { row in
        try insertion.bind(1, row.int64(0))
        try insertion.bind(2, row.value(1))
        try insertion.run()
        return true
      }
      for number in try commitsOfPurges(in: before, after: parting.number) {
        try connection.run(
          "UPDATE salvor_restore_commit SET offered = 1 WHERE restore = ?1 AND number = ?2", .integer(id),
          .integer(number))
      }
    }
  }

  /// The copy stands where nothing was, and no file beside it remembers a later commit: what is lost is not known, and devices that
  /// offer something tell of it.
  func beginUnremembered(now: Int64) throws {
    let head = try CommitLog.state(connection).head
    guard let incarnation = try incarnation(of: head, in: connection) else { return }
    try connection.transaction(.immediate) {
      try connection.execute(RestoreBook.tables + HealBook.tables)
      try ServerDDL.addRestoreColumns(connection)
      _ = try RestoreBook(connection: connection).open(head, incarnation, last: head.number, .remembered, now: now)
    }
  }

  // MARK: What the database that goes knew

  /// In which order lost incarnations lived: what devices had told it, and its own ones. (Not what earlier restores took before what it has
  /// begun since: a newer copy has incarnations that lived before those restores.)
  private func takeOrder(of before: SQLiteConnection, _ now: Int64) throws {
    let insertion = try connection.prepare(HealBook.noteOrder)
    func note(_ earlier: Value, before later: Value, by remote: Value, apart: Value) throws {
      guard earlier != later else { return }
      for (place, value) in [earlier, later, remote, .integer(now), apart].enumerated() {
        try insertion.bind(place + 1, value)
      }
      try insertion.run()
    }
    if let shape = try before.tableShape("salvor_lost_timeline") {
      let apart = shape.column("apart") == nil ? "NULL" : "apart"
      for row in try before.rows("SELECT earlier, later, remote, \(apart) FROM salvor_lost_timeline") {
        try note(row[0], before: row[1], by: row[2], apart: row[3])
      }
    }
    let own = try before.rows("SELECT id, first_commit FROM salvor_incarnation ORDER BY first_commit")
    for (earlier, later) in zip(own, own.dropFirst()) {
      // What devices have lost of the earlier one from there on is of another history, before this one.
      try note(earlier[0], before: later[0], by: .text(""), apart: later[1])
    }
  }

  private static let columns = "id, time, number, commit_id, incarnation, last, exact"

  private func restores(of database: SQLiteConnection) throws -> [[Value]] {
    guard try database.tableShape("salvor_restore") != nil else { return [] }
    return try database.rows("SELECT \(Self.columns) FROM salvor_restore ORDER BY id")
  }

  /// Restores that the copy is older than: what came back since each, and what is missing, is still to be told.
  private func takeRestores(of before: SQLiteConnection) throws {
    let known = Set(try restores(of: connection).map { Array($0.dropFirst()) })
    for restore in try restores(of: before) where !known.contains(Array(restore.dropFirst())) {
      let id = (try connection.integer("SELECT max(id) FROM salvor_restore") ?? 0) + 1
      try insert([.integer(id)] + restore.dropFirst(), into: "salvor_restore (\(Self.columns))")
      for table in ["commit", "offer", "seen"] {
        for row in try before.rows("SELECT * FROM salvor_restore_\(table) WHERE restore = ?1", restore[0]) {
          try insert([.integer(id)] + row.dropFirst(), into: "salvor_restore_\(table)")
        }
      }
    }
  }

  /// An operator has paused healing, or bounded it: he has not done so for one of the copies.
  private func takePace(of before: SQLiteConnection) throws {
    try connection.run("DELETE FROM salvor_server WHERE key IN ('heal-paused', 'heal-rate')")
    for row in try before.rows("SELECT key, value FROM salvor_server WHERE key IN ('heal-paused', 'heal-rate')") {
      try insert(row, into: "salvor_server (key, value)")
    }
  }

  /// Whom an administrator keeps out, or has let in again since, the copy does not know.
  private func takeBlocks(of before: SQLiteConnection) throws {
    let columns = "id, principal, blocked, deleted, registered"
    let insertion = try connection.prepare(
      "INSERT INTO salvor_remote (\(columns)) SELECT ?1, ?2, ?3, ?4, ?5 WHERE ?3 = 1 OR EXISTS (SELECT 1 FROM salvor_remote WHERE id = ?1) "
        + "ON CONFLICT (id) DO UPDATE SET blocked = excluded.blocked, deleted = excluded.deleted WHERE blocked <> excluded.blocked"
    )
    try before.query("SELECT \(columns) FROM salvor_remote") { row in
      for (place, value) in row.values().enumerated() { try insertion.bind(place + 1, value) }
      try insertion.run()
      return true
    }
  }

  private func insert(_ row: [Value], into table: String) throws {
    let slots = row.indices.map { "?\($0 + 1)" }.joined(separator: ", ")
    try connection.run("INSERT INTO \(table) VALUES (\(slots))", row)
  }

  /// Lost commits that are purges: the ledger does them again, and no device offers anything of them. Each act has the time at which its
  /// transaction began, and the next commit is its own, if it is of deletes alone.
  private func commitsOfPurges(in before: SQLiteConnection, after parting: Int64) throws -> [Int64] {
    guard try before.tableShape("salvor_purge") != nil else { return [] }
    let known =
      try connection.tableShape("salvor_purge") == nil
      ? 0 : try connection.integer("SELECT max(n) FROM salvor_purge") ?? 0
    return try before.rows(
      "SELECT DISTINCT time FROM salvor_purge WHERE act = 'purge' AND n > ?1", .integer(known)
    ).compactMap { act in
      try before.rows(
        """
        SELECT c.number FROM salvor_commit c WHERE c.number = (SELECT min(number) FROM salvor_commit
            WHERE number > ?1 AND time >= ?2 AND time < ?2 + \(Self.purgeMilliseconds))
          AND c.remote IS NULL AND NOT EXISTS (SELECT 1 FROM salvor_change e WHERE e.seq <= c.last_seq
            AND e.seq > (SELECT max(last_seq) FROM salvor_commit p WHERE p.number < c.number) AND e.op <> \(LogOperation.delete))
        """, .integer(parting), act[0]
      ).first?[0].integer
    }
  }

  /// A purge takes no longer.
  private static let purgeMilliseconds = 60_000

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
}
