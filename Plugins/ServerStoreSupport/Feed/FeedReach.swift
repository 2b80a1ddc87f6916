import SalvorModel
import SalvorStorage

extension FeedPageMaker {
  /// How many entries of the log are newer than a commit, counted no further than `limit`; nil: no feed goes on from it.
  package static func changes(
    _ connection: any StoreConnection, since commit: Commit, limit: Int64
  ) throws -> Int64? {
    guard
      let last = try connection.rows(
        "SELECT last_seq FROM salvor_commit WHERE number = ?1 AND id = ?2",
        [.integer(commit.number), .text(commit.id.text)]
      ).first?[0].integer, commit.number >= (try trimmed(connection))
    else { return nil }
    return try connection.integer(
      "SELECT count(*) FROM (SELECT 1 AS one FROM salvor_change WHERE seq > ?1 LIMIT ?2) AS newer", .integer(last),
      .integer(limit))
  }
}
