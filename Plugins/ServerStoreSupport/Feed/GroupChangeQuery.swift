import SalvorModel
import SalvorStorage

/// Which groups have changed since a commit, by whom (`ServerStore.changedGroups`). Cost follows what changed since.
package struct GroupChangeQuery {
  let connection: any StoreConnection
  let catalog: Catalog

  package init(connection: any StoreConnection, catalog: Catalog) {
    self.connection = connection
    self.catalog = catalog
  }

  /// Of more commits than this nobody is told in detail: something of everything has changed.
  static let commitsMax: Int64 = 10_000

  package func run(since cursors: [Commit]) throws -> GroupChanges {
    try connection.snapshot {
      let head = try CommitLog.state(connection).head
      guard let oldest = cursors.map(\.number).min() else { return GroupChanges(head: head, changes: []) }
      guard head.number - oldest <= Self.commitsMax,
        try CommitFinder(connection: connection).findings(cursors).allSatisfy({ $0 == .known })
      else { return GroupChanges(head: head, changes: nil) }
      return GroupChanges(head: head, changes: try changes(after: oldest))
    }
  }

  /// A commit's entries are those after the last one of the commit before it. \(connection.dialect.orderedJoin): in this order, so that only
  /// what was written since is read. What tells a sender of a difference (`differs`) is in the answer that it got.
  private func changes(after number: Int64) throws -> [GroupChange] {
    var found: [String: GroupChange] = [:]
    try connection.query(
      """
      SELECT g.t, c.remote, max(c.number) FROM salvor_commit p
      \(connection.dialect.orderedJoin) salvor_commit c ON c.number = p.number + 1
      \(connection.dialect.orderedJoin) salvor_change g ON g.seq > p.last_seq AND g.seq <= c.last_seq
      WHERE p.number >= ?1 AND c.number > ?1 AND g.op <> \(LogOperation.differs) GROUP BY g.t, c.remote
      """, [.integer(number)]
    ) { row in
      guard let place = catalog.place(number: row.int64(0)) else { return true }
      let group = catalog.tables[place].table.group
      let remote = row.isNull(1) ? nil : RemoteID(row.string(1))
      found[group, default: GroupChange(group: group)].add(row.int64(2), by: remote)
      return true
    }
    return catalog.schema.groups.compactMap { found[$0.name] }
  }
}
