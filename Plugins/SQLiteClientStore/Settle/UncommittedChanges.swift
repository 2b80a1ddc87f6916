import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What the server accepted without a commit of its own: it had the rows so already, or keeps the change as a conflict version. As of which of
/// its commits is not known before the download behind it ends; until then it counts as of the one after the cursor.
extension StoreContext {
  /// - Parameter last: the last line of `salvor_history` before.
  func noteUncommitted(after last: Int64) throws {
    if try connection.state(.uncommitted) == nil { try connection.setState(.uncommitted, .integer(last)) }
  }

  /// The groups stand where a download ends. The server has the rows so there; and a copy of it from there does not have the conflict versions for
  /// certain.
  ///
  /// - Parameter before: the groups as they were.
  func confirmUncommitted(_ ends: [GroupState], from before: [GroupState]) throws {
    guard let last = try connection.state(.uncommitted)?.integer else { return }
    for group in ends {
      guard let cursor = group.cursor?.number else { continue }
      let assumed = (before.first { $0.name == group.name }?.cursor?.number ?? 0) + 1
      for table in catalog.tables where self.group(of: table.number) == group.name {
        // What the download has brought of a row is newer, or the very commit because of which the change made none.
        let keys = table.keySlots.map { "v\($0)" }.joined(separator: ", ")
        try connection.run(
          "UPDATE salvor_history AS h SET version = ifnull(n.next, ?4) FROM (SELECT id, lead(version) OVER (PARTITION BY \(keys) ORDER BY id) AS next FROM salvor_history WHERE id > ?1 AND t = ?2) n WHERE n.id = h.id AND h.version = ?3 AND h.own = 1",
          .integer(last), .integer(table.number), .integer(assumed), .integer(cursor))
        try connection.run(
          "UPDATE salvor_kept SET number = ?2, assumed = NULL WHERE t = ?1 AND assumed = 1 AND incarnation IS NULL",
          .integer(table.number), .integer(cursor + 1))
      }
    }
    let all = Set(schema.groups.map(\.name))
    if all.isSubset(of: ends.map(\.name)) { try connection.setState(.uncommitted, Value?.none) }
  }
}
