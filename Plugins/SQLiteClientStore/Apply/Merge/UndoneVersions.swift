import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Versions of rows that a server acknowledged after a recovery which `backups restore` has undone since (decision 239).
///
/// The history that is put back has no commit of theirs: `salvor_history.undone` says which commit made the row so, and `version` is a number
/// above all commits of that history. The next recovery forgets those that the server has. The others are lost like every lost version.
struct UndoneVersions {
  let connection: SQLiteConnection

  /// A commit of an incarnation that an undone recovery had met.
  struct Commit: Sendable {
    let number: Int64
    /// The incarnation's first commit: a server that does not know it has parted before that.
    let first: Int64
    let incarnation: IncarnationID

    /// As `salvor_history.undone` has it: all parts with spaces between them.
    init?(text: String) {
      let parts = text.split(separator: " ")
      guard parts.count == 3, let number = Int64(parts[0]), let first = Int64(parts[1]),
        let incarnation = IncarnationID(parts[2])
      else { return nil }
      self.number = number
      self.first = first
      self.incarnation = incarnation
    }

    /// The row's version, of a server with which the device shares the commits up to `shared`.
    func version(sharing shared: Int64, _ origin: LostVersion.Origin?) -> LostVersion {
      LostVersion(incarnation: incarnation, number: number, parting: min(shared, first - 1), origin: origin)
    }
  }

  /// An incarnation of which versions are left, and its first commit.
  struct Incarnation {
    let id: IncarnationID
    let firstCommit: Int64
  }

  /// Expressions of a column `undone` that is not NULL.
  static func number(of column: String) -> String { "CAST(\(column) AS INTEGER)" }
  static func first(of column: String) -> String { "CAST(substr(\(column), instr(\(column), ' ') + 1) AS INTEGER)" }
  static func incarnation(of column: String) -> String { "substr(\(column), -32)" }

  /// Notes the versions from commit `first` on, which is the first of the incarnations that go. These are in `salvor_incarnation` still.
  ///
  /// - Parameter newest: of the history that is put back.
  func note(from first: Int64, above newest: Int64) throws {
    try connection.run(
      """
      UPDATE salvor_history AS h SET undone = version || ' ' || (
          SELECT i.first_commit || ' ' || i.id FROM salvor_incarnation i WHERE i.first_commit <= h.version ORDER BY i.first_commit DESC LIMIT 1)
        WHERE undone IS NULL AND version >= ?1
      """, .integer(first))
    try connection.run(
      "UPDATE salvor_history SET version = \(Self.number(of: "undone")) + ?1 WHERE undone IS NOT NULL", .integer(newest)
    )
  }

  /// Before a recovery looks at the history: what the server has is not lost.
  func forgetStanding(_ order: RecoveryOrder) throws {
    guard order.absence == .lost else {
      return try connection.execute("DELETE FROM salvor_history WHERE undone IS NOT NULL")
    }
    let known = order.incarnations.sorted { $0.firstCommit < $1.firstCommit }
    for (place, incarnation) in known.enumerated() {
      let end = place + 1 < known.count ? known[place + 1].firstCommit : .max
      try connection.run(
        "DELETE FROM salvor_history WHERE undone IS NOT NULL AND \(Self.incarnation(of: "undone")) = ?1 AND \(Self.number(of: "undone")) < ?2",
        .text(incarnation.id.text), .integer(end))
    }
    // Given back there, and of a commit that the server shares again.
    try connection.run(
      """
      DELETE FROM salvor_history WHERE undone IS NOT NULL AND EXISTS (
        SELECT 1 FROM (SELECT id, lead(first_commit, 1, ?1 + 1) OVER (ORDER BY first_commit) AS next FROM salvor_incarnation) i
        WHERE i.id = substr(origin, 1, 32) AND CAST(substr(origin, 34) AS INTEGER) < min(i.next, ?1 + 1))
      """, .integer(order.shared ?? 0))
  }

  /// Those that a recovery finds lost, and that no earlier one had found lost, in the order in which the device met them.
  func incarnations() throws -> [Incarnation] {
    try connection.rows(
      "SELECT \(Self.incarnation(of: "undone")) AS id, min(\(Self.first(of: "undone"))), max(version) FROM salvor_history WHERE undone IS NOT NULL AND \(Self.incarnation(of: "undone")) NOT IN (SELECT id FROM salvor_lost) GROUP BY 1 ORDER BY 3"
    ).compactMap { row in
      row[0].string.flatMap { IncarnationID($0) }.map { Incarnation(id: $0, firstCommit: row[1].integer ?? 0) }
    }
  }
}
