import SalvorModel
import SalvorStorage

/// The ways by which moved rows were in scope and came to be: differences of sets, from the differences of the tables
/// that their scope asks for. A way that is said to be gone was there before, a way that came is there now; what was
/// there before and is there now is said to be neither, as far as that is cheap to find out.
///
/// CROSS JOIN: in this order, so that only what moved is looked up in the real tables.
extension ScopeMoves {
  /// A way by which rows of the joined table `y` are in scope now.
  private struct Present {
    /// ` JOIN "parent" p1 ON …`
    var joins = ""
    /// Conditions that hold for no row by themselves.
    var conditions: [String] = []
    /// The value of each dimension, as the log has it.
    var dimensions: [String] = []
  }

  private func present(_ scope: ScopeAlternative, of source: ServerTable) -> Present {
    var out = Present()
    var next = 0
    func add(_ scope: ScopeAlternative, _ alias: String, _ table: ServerTable?) {
      for condition in scope.conditions {
        let column = "\(alias).\(quoted(condition.column))"
        if case .value(let value) = condition.source {
          out.conditions.append(dialect.isSame(column, dialect.literal(value)))
        } else {
          out.dimensions.append(table?.logged(condition.column, alias) ?? column)
        }
      }
      for join in scope.joins {
        next += 1
        let joined = "p\(next)"
        let kind = join.reference != nil && join.scope.isOptional ? "LEFT JOIN" : dialect.orderedJoin
        out.joins +=
          " \(kind) \(quoted(join.table)) \(joined) ON "
          + catalog.joined(joined, join, to: "\(alias).\(quoted(join.column))")
        add(join.scope, joined, catalog.table(join.table))
      }
    }
    add(scope, "y", source)
    return out
  }

  private func matches(_ edge: ScopeEdge, _ value: String) -> String {
    catalog.joined(
      "y", edge.table, edge.target, isReference: edge.isReference,
      to: catalog.table(edge.table)?.unlogged(value, edge.target) ?? value)
  }

  // MARK: What the scope asks for

  /// Takes over what moved in the tables that the scope asks for. Which of them did so.
  func followSources(_ known: Set<Int64>) throws -> [Int] {
    var changed: [Int] = []
    for (place, edge) in table.edges.enumerated() {
      guard let source = catalog.table(edge.table), known.contains(source.number) else { continue }
      let moves = ScopeMoves(connection, catalog, source)
      let names = tail("d", source.scopeWidth), values = tail("w.d", source.scopeWidth)
      let from = "FROM \(moves.ways) w JOIN \(moves.moved) m ON m.id = w.m"
      if edge.isReference {
        try fill(
          self.edge(place),
          "INSERT INTO \(self.edge(place)) (v, k, a\(names)) SELECT DISTINCT m.v0, w.k, w.a\(values) \(from)")
      } else {
        let before = moves.old(edge.target), now = source.logged(edge.target, "y")
        try fill(
          self.edge(place),
          "INSERT INTO \(self.edge(place)) (v, k, a\(names)) SELECT DISTINCT \(before), \(Kind.gone), w.a\(values) \(from) "
            + "WHERE w.k = \(Kind.gone) AND \(before) IS NOT NULL")
        try fill(
          self.edge(place),
          "INSERT INTO \(self.edge(place)) (v, k, a\(names)) SELECT DISTINCT \(now), \(Kind.came), w.a\(values) \(from) "
            + "\(dialect.orderedJoin) \(source.sql) y ON \(source.keyMatches("y", log: "m")) WHERE w.k = \(Kind.came) AND \(now) IS NOT NULL"
        )
        try leaveOutOtherWays(place, edge, source, moves)
      }
      if try connection.integer("SELECT EXISTS (SELECT 1 FROM \(self.edge(place)))") == 1 { changed.append(place) }
    }
    return changed
  }

  /// Where many rows are joined, another one may have been there before, or be there now, by the same way.
  private func leaveOutOtherWays(_ place: Int, _ edge: ScopeEdge, _ source: ServerTable, _ moves: ScopeMoves) throws {
    let name = self.edge(place)
    for kind in [Kind.came, Kind.gone] {
      for (a, way) in source.ways.enumerated() {
        let present = present(way, of: source)
        let mine = dimensions("e", present.dimensions.count)
        var other =
          "SELECT 1 FROM \(source.sql) y\(present.joins) WHERE "
          + ([matches(edge, "e.v")] + present.conditions + [same(present.dimensions, mine)]).joined(separator: " AND ")
        var before = ""
        if kind == Kind.came {
          other +=
            " AND NOT EXISTS (SELECT 1 FROM \(moves.moved) m JOIN \(moves.ways) w ON w.m = m.id WHERE "
            + source.primaryKeyMatches("m", of: "y")
            + " AND w.k = \(Kind.came) AND w.a = \(a) AND \(same(dimensions("w", mine.count), mine)))"
          before =
            "EXISTS (SELECT 1 FROM \(name) g WHERE \(dialect.isSame("g.v", "e.v")) AND g.k = \(Kind.gone) AND g.a = \(a) "
            + "AND \(same(dimensions("g", mine.count), mine))) OR "
        }
        try connection.run(
          "DELETE FROM \(name) AS e WHERE e.k = \(kind) AND e.a = \(a) AND (\(before)EXISTS (\(other)))")
      }
    }
  }

  /// The ways that were there before and are there now, for the values that the moved rows ask for.
  private func addStaying(_ changed: [Int]) throws {
    for (place, edge) in table.edges.enumerated() {
      guard let source = catalog.table(edge.table) else { continue }
      var needed = ["SELECT \(old(edge.column)) AS v FROM \(moved) m WHERE m.written = 1 AND m.had = 1"]
      if !exportsNothing {
        needed.append(
          "SELECT \(table.logged(edge.column, "x")) FROM \(moved) m \(dialect.orderedJoin) \(table.sql) x ON \(table.keyMatches("x", log: "m")) "
            + "WHERE m.written = 1")
      }
      let isBesideOthers = table.ways.contains { way in
        way.joins.count > 1 && way.joins.contains { ScopeEdge($0) == edge }
      }
      if isBesideOthers, !changed.isEmpty {
        needed.append("SELECT \(old(edge.column)) FROM \(moved) m WHERE m.written = 0")
      }
      for a in Set(table.ways.flatMap(\.joins).filter { ScopeEdge($0) == edge }.map(\.place)).sorted() {
        let present = present(source.ways[a], of: source)
        let width = present.dimensions.count
        let values = present.dimensions.map { ", \($0)" }.joined()
        let conditions =
          present.conditions + [
            "NOT EXISTS (SELECT 1 FROM \(self.edge(place)) e WHERE \(dialect.isSame("e.v", "n.v")) AND e.k = \(Kind.came) AND e.a = \(a) "
              + "AND \(same(dimensions("e", width), present.dimensions)))"
          ]
        try fill(
          self.edge(place),
          """
          INSERT INTO \(self.edge(place)) (v, k, a\(tail("d", width)))
          SELECT DISTINCT n.v, \(Kind.stayed), \(a)\(values) FROM (\(needed.joined(separator: " UNION "))) n
          \(dialect.orderedJoin) \(source.sql) y ON \(matches(edge, "n.v"))\(present.joins)
          WHERE \(conditions.joined(separator: " AND "))
          """)
      }
    }
  }

  // MARK: Ways of the rows

  private var exportsNothing: Bool { !catalog.scopeSources.contains(table.number) }

  /// - Parameter edges: the tables that the scope asks for in which something moved.
  func findWays(_ edges: [Int]) throws {
    try addStaying(edges)
    for place in table.ways.indices {
      try findWaysOfWritten(place)
      try findWaysOfFollowing(place, edges)
    }
    try leaveOutUnchanged()
  }

  /// An alternative over the tables of ways that its joins lead to.
  ///
  /// - Parameters:
  ///   - kinds: which ways count, by the place of the join.
  ///   - column: what the row has in a column.
  private func select(
    _ place: Int, kind: Int, from: String, where conditions: [String], first: Int? = nil,
    kinds: (Int) -> String, _ column: (String) -> String
  ) -> String {
    let way = table.ways[place]
    var conditions = conditions
    var values: [String] = []
    for condition in way.conditions {
      if case .value(let value) = condition.source {
        conditions.append(dialect.isSame(column(condition.column), dialect.literal(value)))
      } else {
        values.append(column(condition.column))
      }
    }
    var from = from
    // The one that moved goes first, the others follow from it.
    let order = way.joins.indices.sorted { a, b in a == first && b != first }
    for number in order {
      let join = way.joins[number]
      let kept = number != first && join.reference != nil && join.scope.isOptional
      from +=
        " \(kept ? "LEFT JOIN" : "JOIN") \(edge(edgePlace(join))) e\(number) ON e\(number).v = \(column(join.column)) "
        + "AND e\(number).a = \(join.place) AND e\(number).k IN (\(kinds(number)))"
    }
    for (number, join) in way.joins.enumerated() {
      values += dimensions("e\(number)", join.scope.dimensions.count)
    }
    let list = values.map { ", \($0)" }.joined()
    return "SELECT DISTINCT m.id, \(kind), \(place)\(list) FROM \(from) WHERE \(conditions.joined(separator: " AND "))"
  }

  private func edgePlace(_ join: ScopeJoin) -> Int { table.edges.firstIndex(of: ScopeEdge(join)) ?? 0 }

  private func insert(_ place: Int, _ selects: [String]) throws {
    guard !selects.isEmpty else { return }
    let names = tail("d", table.ways[place].dimensions.count)
    try fill(ways, "INSERT INTO \(ways) (m, k, a\(names)) \(selects.joined(separator: " UNION "))")
  }

  /// All ways that there were; and, where others ask for them, all that there are.
  private func findWaysOfWritten(_ place: Int) throws {
    try insert(
      place,
      [
        select(
          place, kind: Kind.gone, from: "\(moved) m", where: ["m.written = 1", "m.had = 1"],
          kinds: { _ in "\(Kind.gone), \(Kind.stayed)" }, { old($0) })
      ])
    guard !exportsNothing else { return }
    try insert(
      place,
      [
        select(
          place, kind: Kind.came,
          from: "\(moved) m \(dialect.orderedJoin) \(table.sql) x ON \(table.keyMatches("x", log: "m"))",
          where: ["m.written = 1"], kinds: { _ in "\(Kind.came), \(Kind.stayed)" }, { table.logged($0, "x") })
      ])
  }

  /// What one of the joins lost or gained, with what the others had or have.
  private func findWaysOfFollowing(_ place: Int, _ edges: [Int]) throws {
    let joins = table.ways[place].joins
    for kind in [Kind.gone, Kind.came] {
      try insert(
        place,
        joins.indices.filter { edges.contains(edgePlace(joins[$0])) }.map { changed in
          select(
            place, kind: kind, from: "\(moved) m", where: ["m.written = 0"], first: changed,
            kinds: { $0 == changed ? "\(kind)" : "\(kind), \(Kind.stayed)" }, { old($0) })
        })
    }
  }

  /// A way that a row had before and has now. Where it led others by a column that is another now, it is both all the same.
  private func leaveOutUnchanged() throws {
    var leads = ""
    if !table.exports.isEmpty {
      let differs = table.exports.map { dialect.differs(old($0), table.logged($0, "x")) }
      leads =
        " AND NOT EXISTS (SELECT 1 FROM \(moved) m \(dialect.orderedJoin) \(table.sql) x ON \(table.keyMatches("x", log: "m")) "
        + "WHERE m.id = w.m AND m.written = 1 AND (\(differs.joined(separator: " OR "))))"
    }
    let width = table.scopeWidth
    try connection.run(
      """
      DELETE FROM \(ways) AS w WHERE EXISTS (SELECT 1 FROM \(ways) o WHERE o.m = w.m AND o.k = 1 - w.k AND o.a = w.a
        AND \(same(dimensions("o", width), dimensions("w", width))))\(leads)
      """)
  }
}

extension ServerTable {
  /// The log's key `other` is that of the row `row`.
  func primaryKeyMatches(_ other: String, of row: String) -> String {
    table.primaryKey.enumerated().map { "\(unlogged("\(other).v\($0)", $1)) = \(row).\(quoted($1))" }
      .joined(separator: " AND ")
  }
}
