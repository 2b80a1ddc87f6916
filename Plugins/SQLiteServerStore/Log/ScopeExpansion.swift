import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Follows the moves of rows between scopes (semantics 4): where a row's scope changed, its descendants moved with it,
/// though nothing was written in them; and where a row was before decides who is told that it left.
///
/// It works by set over a range of the change log, table by table, parents first. For each scoped table a temporary table
/// `salvor_moved_N` takes the rows that moved, were deleted (`had` = 1, with where they were: `d0`, … one for each
/// condition of the scope) or were inserted (`had` = 0). `changed`: they are not where they were. `at`: the entry that
/// says so, for a descendant its ancestor's.
struct ScopeExpansion {
  private let connection: SQLiteConnection
  private let catalog: Catalog
  private let scoped: [ServerTable]
  /// Tables whose inserted rows matter: others inherit from them, or they inherit.
  private let linked: Set<Int64>

  init(_ connection: SQLiteConnection, _ catalog: Catalog) {
    self.connection = connection
    self.catalog = catalog
    scoped = catalog.tables.filter(\.isScoped)
    var linked: Set<Int64> = []
    for table in scoped {
      for reference in table.table.references where reference.inheritsScope {
        linked.insert(table.number)
        if let parent = catalog.table(reference.table) { linked.insert(parent.number) }
      }
    }
    self.linked = linked
  }

  /// - Parameter own: the entries are one upload's own, which its sender is not fed: rows that are still there get a
  ///   touch of their own, which it is fed.
  func expand(after first: Int64, to last: Int64, own: Bool) throws {
    guard !scoped.isEmpty, last > first, try isNeeded(first, last) else { return }
    try makeTables()
    for table in scoped {
      try collect(table, first, last)
      try collectDescendants(table)
      try write(table, own: own)
    }
  }

  private func moved(_ table: ServerTable) -> String { "temp.salvor_moved_\(table.number)" }

  /// Tables without a scope pay one look at the range's operations; plain updates of scoped ones too.
  private func isNeeded(_ first: Int64, _ last: Int64) throws -> Bool {
    let moving = scoped.map { "\($0.number)" }.joined(separator: ", ")
    let linked = linked.map { "\($0)" }.sorted().joined(separator: ", ")
    return try connection.integer(
      """
      SELECT EXISTS (SELECT 1 FROM salvor_change WHERE seq > ?1 AND seq <= ?2
        AND (op >= \(LogOperation.delete) AND t IN (\(moving)) OR op = \(LogOperation.insert) AND t IN (\(linked))))
      """, .integer(first), .integer(last)) == 1
  }

  private func makeTables() throws {
    for table in scoped {
      let keys = (0..<table.keyCount).map { "v\($0)" }
      let dimensions = table.conditions.indices.map { "d\($0)" }
      try connection.execute(
        """
        CREATE TEMP TABLE IF NOT EXISTS salvor_moved_\(table.number) (id INTEGER PRIMARY KEY, seq INTEGER,
          at INTEGER, had INTEGER, changed INTEGER, deleted INTEGER, \((keys + dimensions).joined(separator: ", ")));
        CREATE INDEX IF NOT EXISTS temp.salvor_moved_\(table.number)_key
          ON salvor_moved_\(table.number) (\(keys.joined(separator: ", ")));
        DELETE FROM \(moved(table));
        """)
    }
  }

  private func list(_ prefix: String, _ count: Int) -> String {
    (0..<count).map { "\(prefix)\($0)" }.joined(separator: ", ")
  }

  private func collect(_ table: ServerTable, _ first: Int64, _ last: Int64) throws {
    let keys = table.logKey(), dimensions = list("d", table.conditions.count)
    let before = dimensionsBefore(table) { name in
      "e.v\(table.keyCount + (table.relevant.firstIndex(of: name) ?? 0))"
    }
    try connection.run(
      """
      INSERT INTO \(moved(table)) (seq, at, had, changed, deleted, \(keys), \(dimensions))
      SELECT e.seq, e.seq, 1, 1, e.op = \(LogOperation.delete), \(table.logKey("e")), \(before.joined(separator: ", "))
      FROM salvor_change e
      WHERE e.seq > ?1 AND e.seq <= ?2 AND e.t = \(table.number) AND e.op >= \(LogOperation.delete)
      """, .integer(first), .integer(last))
    // A row that is where it was takes no descendants along.
    let now = table.conditions.map { currentDimension($0, of: table) { "x.\(quoted($0))" } }
    try connection.run(
      """
      UPDATE \(moved(table)) AS m SET changed = 0
      WHERE EXISTS (SELECT 1 FROM \(table.sql) x WHERE \(table.keyMatches("x", log: "m"))
        AND \(zip(table.conditions.indices, now).map { "m.d\($0) IS \($1) COLLATE BINARY" }.joined(separator: " AND ")))
      """)
    guard linked.contains(table.number) else { return }
    try connection.run(
      """
      INSERT INTO \(moved(table)) (seq, at, had, changed, deleted, \(keys))
      SELECT min(e.seq), min(e.seq), 0, 1, 0, \(table.logKey("e")) FROM salvor_change e
      WHERE e.seq > ?1 AND e.seq <= ?2 AND e.t = \(table.number) AND e.op = \(LogOperation.insert)
      GROUP BY \(table.logKey("e"))
      """, .integer(first), .integer(last))
  }

  /// Rows whose parent moved and that no entry of the range names with old values. A row that was made under its parent
  /// before that moved was where the parent was.
  private func collectDescendants(_ table: ServerTable) throws {
    let before = dimensionsBefore(table) { "x.\(quoted($0))" }
    for reference in table.table.references where reference.inheritsScope {
      guard let parent = catalog.table(reference.table) else { continue }
      try connection.run(
        """
        INSERT INTO \(moved(table)) (seq, at, had, changed, deleted, \(table.logKey()), \(list("d", table.conditions.count)))
        SELECT NULL, p.at, p.had, 1, 0, \(table.keyList("x")), \(before.joined(separator: ", "))
        FROM (SELECT v0, max(had) AS had, max(at) AS at FROM \(moved(parent)) WHERE changed = 1 GROUP BY v0) p
        JOIN \(table.sql) x ON x.\(quoted(reference.column)) = p.v0
        WHERE NOT EXISTS (SELECT 1 FROM \(moved(table)) m WHERE \(table.keyMatches("x", log: "m"))
          AND (m.had = 1 OR p.had = 0 OR m.at > p.at))
        """)
    }
  }

  private func write(_ table: ServerTable, own: Bool) throws {
    if own {
      try connection.run(
        """
        UPDATE \(moved(table)) AS m SET seq = NULL WHERE had = 1 AND changed = 1
        AND EXISTS (SELECT 1 FROM \(table.sql) x WHERE \(table.keyMatches("x", log: "m")))
        """)
    }
    let base = try connection.integer("SELECT max(seq) FROM salvor_change") ?? 0
    let keys = table.logKey(), dimensions = list("d", table.conditions.count)
    try connection.run("UPDATE \(moved(table)) SET seq = ?1 + id WHERE seq IS NULL", .integer(base))
    try connection.run(
      "INSERT INTO salvor_change (seq, t, op, \(keys)) SELECT seq, \(table.number), \(LogOperation.touch), \(keys) "
        + "FROM \(moved(table)) WHERE seq > ?1", .integer(base))
    try connection.run(
      "INSERT INTO salvor_gone (seq, t, deleted, \(keys), \(dimensions)) "
        + "SELECT seq, \(table.number), deleted, \(keys), \(dimensions) FROM \(moved(table)) WHERE had = 1 AND changed = 1"
    )
  }

  // MARK: Where a row was and is

  /// One expression for each condition of the table: its value before the range. A parent that moved in the range is
  /// taken from where it was, any other from where it is.
  private func dimensionsBefore(_ table: ServerTable, _ old: (String) -> String) -> [String] {
    var out: [String] = []
    for condition in table.conditions {
      guard let step = condition.steps.first, let parent = catalog.table(step.table) else {
        out.append(old(condition.column))
        continue
      }
      let rest = ScopeCondition(
        steps: Array(condition.steps.dropFirst()), column: condition.column, source: condition.source)
      let place = parent.conditions.firstIndex(of: rest) ?? 0
      let from = "FROM \(moved(parent)) q WHERE q.v0 = \(old(step.column)) AND q.had = 1"
      out.append(
        "CASE WHEN EXISTS (SELECT 1 \(from)) THEN (SELECT q.d\(place) \(from) ORDER BY q.id LIMIT 1) "
          + "ELSE \(currentDimension(condition, of: table, old)) END")
    }
    return out
  }

  private func currentDimension(
    _ condition: ScopeCondition, of table: ServerTable, _ own: (String) -> String
  ) -> String {
    guard let chain = ScopeChain(condition, catalog) else { return own(condition.column) }
    return "(SELECT \(chain.column) \(chain.from) WHERE \(chain.start) = \(own(condition.steps[0].column)))"
  }
}
