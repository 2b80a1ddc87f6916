import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Answers whether this server made a commit (semantics 6): by number and ID.
struct CommitFinder {
  let connection: SQLiteConnection

  func finding(_ commit: Commit) throws -> CursorFinding {
    let trimmed = try FeedPageMaker.trimmed(connection)
    let id = try id(of: commit.number)
    if let id, id != commit.id.text { return .unknown }
    if commit.number < trimmed { return .trimmed }
    return id == nil ? .unknown : .known
  }

  /// The newest commit that the device has made, too, and that this server can still name.
  func lastShared(_ query: AdmissionQuery, head: Commit) throws -> Commit? {
    let listed = try query.commits.filter { try id(of: $0.number) == $0.id.text }.max { $0.number < $1.number }
    guard !query.incarnations.isEmpty,
      let number = try timeline().lastShared(with: query.incarnations, head: head.number),
      number > listed?.number ?? 0, let id = try id(of: number)
    else { return listed }
    // A commit of the device's that was made otherwise here: its incarnations tell of another history.
    guard try !query.commits.contains(where: { try $0.number <= number && finding($0) == .unknown }) else {
      return listed
    }
    return CommitID(id).map { Commit(number: number, id: $0) }
  }

  /// What a device does not know yet whose newest known incarnation is this one.
  func untold(after known: IncarnationID?) throws -> [Incarnation] {
    let newest = try connection.scalar("SELECT id FROM salvor_incarnation ORDER BY first_commit DESC LIMIT 1")?.string
    return newest == known?.text ? [] : try timeline().untold(after: known)
  }

  private func timeline() throws -> Timeline {
    Timeline(
      try connection.rows("SELECT id, first_commit FROM salvor_incarnation ORDER BY first_commit").compactMap { row in
        row[0].string.flatMap { IncarnationID($0) }.map { Incarnation(id: $0, firstCommit: row[1].integer ?? 0) }
      })
  }

  private func id(of number: Int64) throws -> String? {
    try connection.scalar("SELECT id FROM salvor_commit WHERE number = ?1", .integer(number))?.string
  }
}

/// Removes what is older than the retention: entries of the change log, tombstones, commits, and the IDs of requests and
/// uploads settled before. The newest commit and the log's highest entry always stay, so that no number is used again.
struct Trimming {
  let connection: SQLiteConnection

  func run(before milliseconds: Int64) throws {
    try connection.run("DELETE FROM salvor_settled WHERE time < ?1", .integer(milliseconds))
    try connection.run("DELETE FROM salvor_sequence WHERE time < ?1", .integer(milliseconds))
    try removeHistory(before: milliseconds)
  }

  private func removeHistory(before milliseconds: Int64) throws {
    // Cursors at this commit are in step with what is kept: everything after it.
    var floor: (number: Int64, sequence: Int64)?
    try connection.query(
      """
      SELECT c.number, c.last_seq FROM salvor_commit c JOIN salvor_commit n ON n.number = c.number + 1
      WHERE n.time < ?1 ORDER BY c.number DESC LIMIT 1
      """, [.integer(milliseconds)]
    ) {
      floor = ($0.int64(0) + 1, $0.int64(1))
      return false
    }
    guard let floor else { return }
    let sequence =
      try connection.integer("SELECT last_seq FROM salvor_commit WHERE number = ?1", .integer(floor.number)) ?? 0
    try connection.run(
      "DELETE FROM salvor_change WHERE seq <= ?1 AND seq < (SELECT max(seq) FROM salvor_change)", .integer(sequence))
    for table in ["salvor_gone", "salvor_came"] {
      try connection.run("DELETE FROM \(table) WHERE seq <= ?1", .integer(sequence))
    }
    try connection.run("DELETE FROM salvor_commit WHERE number < ?1", .integer(floor.number))
    try connection.run(
      "UPDATE salvor_server SET value = max(value, ?1) WHERE key = 'trimmed'", .integer(floor.number))
  }
}
