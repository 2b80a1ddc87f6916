import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Answers whether this server made a commit (semantics 6): by number and ID.
struct CommitFinder {
  let connection: SQLiteConnection

  func finding(_ commit: Commit) throws -> CursorFinding {
    let trimmed = try FeedPageMaker.trimmed(connection)
    let id = try connection.scalar("SELECT id FROM salvor_commit WHERE number = ?1", .integer(commit.number))?.string
    if let id, id != commit.id.text { return .unknown }
    if commit.number < trimmed { return .trimmed }
    return id == nil ? .unknown : .known
  }

  /// The newest of `commits` that this server made and can still name.
  func lastShared(_ commits: [Commit]) throws -> Commit? {
    try commits.filter { commit in
      try connection.integer(
        "SELECT EXISTS (SELECT 1 FROM salvor_commit WHERE number = ?1 AND id = ?2)", .integer(commit.number),
        .text(commit.id.text)) == 1
    }.max { $0.number < $1.number }
  }
}

/// Removes what is older than the retention: entries of the change log, tombstones, commits, and the IDs of requests and
/// uploads settled before. The newest commit and the log's highest entry always stay, so that no number is used again.
///
/// `begin` says what counts no more; `removeSome` removes it slice by slice, so that nobody waits long for the write lock.
struct Trimming {
  let connection: SQLiteConnection

  private static let rowsPerSlice: Int64 = 2000

  /// In a transaction.
  func begin(before milliseconds: Int64) throws {
    // Cursors at this commit are in step with what is kept: everything after it.
    let floor = try connection.integer(
      """
      SELECT n.number FROM salvor_commit c JOIN salvor_commit n ON n.number = c.number + 1
      WHERE n.time < ?1 ORDER BY c.number DESC LIMIT 1
      """, .integer(milliseconds))
    guard let floor else { return }
    try connection.run("UPDATE salvor_server SET value = max(value, ?1) WHERE key = 'trimmed'", .integer(floor))
  }

  /// In a transaction. False: there was nothing left.
  func removeSome(before milliseconds: Int64) throws -> Bool {
    let trimmed = try FeedPageMaker.trimmed(connection)
    let sequence =
      try connection.integer("SELECT last_seq FROM salvor_commit WHERE number = ?1", .integer(trimmed)) ?? 0
    let last = try connection.integer("SELECT max(seq) FROM salvor_change") ?? 0
    var more = try removeSome("salvor_change", "seq", upTo: min(sequence, last - 1))
    for table in ["salvor_gone", "salvor_came"] where try removeSome(table, "seq", upTo: sequence) { more = true }
    if try removeSome("salvor_commit", "number", upTo: trimmed - 1) { more = true }
    for table in ["salvor_settled", "salvor_sequence"] where try removeOld(table, before: milliseconds) { more = true }
    return more
  }

  private func removeSome(_ table: String, _ column: String, upTo last: Int64) throws -> Bool {
    guard let first = try connection.integer("SELECT min(\(column)) FROM \(table)"), first <= last else { return false }
    try connection.run(
      "DELETE FROM \(table) WHERE \(column) <= ?1", .integer(min(last, first + Self.rowsPerSlice - 1)))
    return true
  }

  private func removeOld(_ table: String, before milliseconds: Int64) throws -> Bool {
    guard
      let found = try connection.integer("SELECT 1 FROM \(table) WHERE time < ?1 LIMIT 1", .integer(milliseconds)),
      found == 1
    else { return false }
    let key = table == "salvor_settled" ? "id" : "remote, sequence"
    try connection.run(
      "DELETE FROM \(table) WHERE (\(key)) IN (SELECT \(key) FROM \(table) WHERE time < ?1 LIMIT ?2)",
      .integer(milliseconds), .integer(Self.rowsPerSlice))
    return true
  }
}
