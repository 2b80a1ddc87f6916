import SalvorModel
import SalvorStorage

/// Follows the moves of rows between scopes (semantics 4): where a row's scope changed, the rows whose scope asks for it
/// moved with it, though nothing was written in them; and where a row was before decides who is told that it left.
///
/// It works by set over a range of the change log, table by table, each after those that its scope asks for
/// (`ScopeMoves`). Its cost follows the rows that moved and the ways by which they did.
struct ScopeExpansion {
  private let connection: any StoreConnection
  private let catalog: Catalog
  private let tracked: [ServerTable]

  init(_ connection: any StoreConnection, _ catalog: Catalog) {
    self.connection = connection
    self.catalog = catalog
    tracked = catalog.scopeOrder.map { catalog.tables[$0] }
  }

  /// What the log says of a table whose rows decide what is seen.
  private struct Entries {
    var haveInserts = false
    /// With old values.
    var haveMoves = false
    var haveReplaced = false
  }

  func expand(after first: Int64, to last: Int64) throws {
    let entries = try entries(after: first, to: last)
    guard isNeeded(entries) else { return }
    /// Tables whose moved rows are known.
    var moved: Set<Int64> = []
    for table in tracked {
      let found = entries[table.number] ?? Entries()
      let isSource = catalog.scopeSources.contains(table.number)
      let follows = table.edges.contains { edge in catalog.table(edge.table).map { moved.contains($0.number) } ?? false
      }
      guard follows || found.haveMoves || isSource && found.haveInserts else { continue }
      let moves = ScopeMoves(connection, catalog, table)
      try moves.prepare()
      let edges = try moves.followSources(moved)
      if found.haveMoves || found.haveInserts {
        try moves.collectWritten(
          after: first, to: last, inserted: isSource || !edges.isEmpty || found.haveReplaced)
        if found.haveReplaced { try moves.correctReplaced(after: first, to: last) }
      }
      try moves.collectFollowing(edges)
      try moves.findWays(edges)
      moved.insert(table.number)
      if table.isScoped { try moves.write() }
    }
    try connection.proveMoment(of: tracked.map(\.name))
  }

  /// Whether something may have left somebody's scope by the entries of the range.
  func mayTakeAway(after first: Int64, to last: Int64) throws -> Bool {
    try entries(after: first, to: last).values.contains(where: \.haveMoves)
  }

  /// Tables without a scope pay one look at the range's operations; plain updates of scoped ones too.
  private func isNeeded(_ entries: [Int64: Entries]) -> Bool {
    entries.contains { number, found in
      found.haveMoves || found.haveInserts && catalog.scopeSources.contains(number)
    }
  }

  private func entries(after first: Int64, to last: Int64) throws -> [Int64: Entries] {
    var found: [Int64: Entries] = [:]
    guard !tracked.isEmpty, last > first else { return found }
    let numbers = tracked.map { "\($0.number)" }.joined(separator: ", ")
    let dialect = catalog.dialect
    try connection.query(
      """
      SELECT t, max(\(dialect.number("op = \(LogOperation.insert)"))),
        max(\(dialect.number("op >= \(LogOperation.delete)"))),
        max(\(dialect.number("op = \(LogOperation.replaced)"))) FROM salvor_change
      WHERE seq > ?1 AND seq <= ?2 AND (op = \(LogOperation.insert) OR op >= \(LogOperation.delete))
        AND t IN (\(numbers)) GROUP BY t
      """, [.integer(first), .integer(last)]
    ) { row in
      found[row.int64(0)] = Entries(
        haveInserts: row.int64(1) == 1, haveMoves: row.int64(2) == 1,
        haveReplaced: row.int64(3) == 1)
      return true
    }
    return found
  }
}
