import SalvorModel
import SalvorStorage

/// How many entries the change log has, counted on from the last time.
package struct LogCount: Sendable {
  private var first: Int64 = 0
  private var last: Int64 = 0
  private var count: Int64 = 0

  package init() {}

  mutating func entries(_ connection: any StoreConnection) throws -> Int64 {
    let first = try connection.integer("SELECT min(seq) FROM salvor_change") ?? 0
    let last = try connection.integer("SELECT max(seq) FROM salvor_change") ?? 0
    // What was trimmed, or another database under the same name: from the beginning.
    if first != self.first || last < self.last { (self.last, count) = (first - 1, 0) }
    count +=
      try connection.integer(
        "SELECT count(*) FROM salvor_change WHERE seq > ?1 AND seq <= ?2", .integer(self.last), .integer(last)) ?? 0
    (self.first, self.last) = (first, last)
    return count
  }
}

extension ServerStats {
  package init(_ connection: any StoreConnection, serverID: ServerID, logCount: inout LogCount) throws {
    self.init(
      serverID: serverID, head: try CommitLog.state(connection).head,
      remotes: try connection.integer("SELECT count(*) FROM salvor_remote WHERE deleted = 0") ?? 0,
      logEntries: try logCount.entries(connection),
      stagedBytes: try connection.integer(
        """
        SELECT coalesce(sum(staged_bytes), 0) + (SELECT coalesce(sum(received), 0) FROM salvor_blob)
        FROM salvor_remote WHERE staged_bytes > 0
        """
      ) ?? 0,
      openConflicts: try connection.integer("SELECT count(*) FROM salvor_conflict WHERE resolution IS NULL") ?? 0)
  }
}
