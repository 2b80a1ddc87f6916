import SalvorModel
import SalvorStorage

/// Answers whether this server made a commit (semantics 6): by number and ID.
struct CommitFinder {
  let connection: any StoreConnection

  package init(connection: any StoreConnection) {
    self.connection = connection
  }

  /// In the order in which they are given.
  func findings(_ commits: [Commit]) throws -> [CursorFinding] {
    if commits.isEmpty { return [] }
    let trimmed = try FeedPageMaker.trimmed(connection)
    return Self.findings(commits, trimmed: trimmed, made: try FeedPageMaker.made(commits, connection).mapValues(\.id))
  }

  /// - Parameter made: the IDs that this server has of the commits' numbers.
  static func findings(_ commits: [Commit], trimmed: Int64, made: [Int64: String]) -> [CursorFinding] {
    commits.map { commit in
      let id = made[commit.number]
      if let id, id != commit.id.text { return .unknown }
      if commit.number < trimmed { return .trimmed }
      return id == nil ? .unknown : .known
    }
  }

  /// The newest commit that the device has made, too, and that this server can still name.
  func lastShared(_ query: AdmissionQuery, head: Commit) throws -> Commit? {
    let made = try FeedPageMaker.made(query.commits, connection)
    let listed = query.commits.filter { made[$0.number]?.id == $0.id.text }.max { $0.number < $1.number }
    guard !query.incarnations.isEmpty,
      let number = try timeline().lastShared(with: query.incarnations, head: head.number),
      number > listed?.number ?? 0, let id = try id(of: number)
    else { return listed }
    // A commit of the device's that was made otherwise here: its incarnations tell of another history.
    guard try !findings(query.commits.filter { $0.number <= number }).contains(.unknown) else { return listed }
    return CommitID(id).map { Commit(number: number, id: $0) }
  }

  /// What a device does not know yet whose newest known incarnation is this one.
  ///
  /// - Parameter newest: of this server; nil: it has made no commit yet.
  func untold(after known: IncarnationID?, newest: String?) throws -> [Incarnation] {
    newest == known?.text ? [] : try timeline().untold(after: known)
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
///
/// `begin` says what counts no more; `removeSome` removes it slice by slice, so that nobody waits long for the write lock.
package struct Trimming {
  let connection: any StoreConnection

  package init(connection: any StoreConnection) {
    self.connection = connection
  }

  private static let rowsPerSlice: Int64 = 2000

  /// In a transaction.
  package func begin(before milliseconds: Int64) throws {
    // Cursors at this commit are in step with what is kept: everything after it.
    let floor = try connection.integer(
      """
      SELECT n.number FROM salvor_commit c JOIN salvor_commit n ON n.number = c.number + 1
      WHERE n.time < ?1 ORDER BY c.number DESC LIMIT 1
      """, .integer(milliseconds))
    guard let floor else { return }
    guard floor > (try FeedPageMaker.trimmed(connection)) else { return }
    try connection.run("UPDATE salvor_server SET value = ?1 WHERE key = 'trimmed'", .integer(floor))
  }

  /// In a transaction. False: there was nothing left.
  package func removeSome(before milliseconds: Int64) throws -> Bool {
    let trimmed = try FeedPageMaker.trimmed(connection)
    let sequence =
      try connection.integer("SELECT last_seq FROM salvor_commit WHERE number = ?1", .integer(trimmed)) ?? 0
    let last = try connection.integer("SELECT max(seq) FROM salvor_change") ?? 0
    var more = try removeSome("salvor_change", "seq", upTo: min(sequence, last - 1))
    for table in ["salvor_gone", "salvor_came"] where try removeSome(table, "seq", upTo: sequence) { more = true }
    if try removeSome("salvor_commit", "number", upTo: trimmed - 1) { more = true }
    // Who parted from this server later has seen what was healed before.
    for table in ["salvor_healed", "salvor_healed_delete"]
    where try removeSome(table, "at", upTo: 2 * sequence) { more = true }
    if try removeSome("salvor_healed_entry", "last", upTo: sequence) { more = true }
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
