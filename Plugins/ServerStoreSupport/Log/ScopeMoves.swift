import SalvorModel
import SalvorStorage

/// The rows of one table that a range of the change log moved between scopes, in temporary tables:
///
/// - `salvor_moved_N`: a row that was written (`written` = 1; `had`: it was there before) or whose scope asks for one that
///   moved (`written` = 0). `v0`, … its key, `o0`, … what it had before in the columns that decide.
/// - `salvor_ways_N`: the ways by which such a row was in scope and is no more (`k` = 0) or came to be (`k` = 1): the
///   alternative `a`, and in `d0`, … the value of each of its dimensions.
/// - `salvor_edge_N_I`: for the I-th table that the scope asks for, by the value `v` of the row's column: the ways that
///   are gone (`k` = 0), came (`k` = 1), or, as far as they are needed, are there before and after (`k` = 2).
struct ScopeMoves {
  let connection: any StoreConnection
  let catalog: Catalog
  let table: ServerTable
  /// Others' scopes ask for it.
  private let isSource: Bool

  enum Kind {
    static let gone = 0
    static let came = 1
    static let stayed = 2
  }

  init(_ connection: any StoreConnection, _ catalog: Catalog, _ table: ServerTable) {
    self.connection = connection
    self.catalog = catalog
    self.table = table
    isSource = catalog.scopeSources.contains(table.number)
  }

  var dialect: any Dialect { catalog.dialect }
  var moved: String { dialect.temporary("salvor_moved_\(table.number)") }
  var ways: String { dialect.temporary("salvor_ways_\(table.number)") }
  func edge(_ place: Int) -> String { dialect.temporary("salvor_edge_\(table.number)_\(place)") }

  /// Names of columns, as the end of a list that has others before: `, m.d0, m.d1`.
  func tail(_ prefix: String, _ count: Int) -> String { (0..<count).map { ", \(prefix)\($0)" }.joined() }

  /// `a.d0 IS b.d0 AND …`; true without dimensions.
  func same(_ left: [String], _ right: [String]) -> String {
    left.isEmpty ? "TRUE" : zip(left, right).map { dialect.isSame($0, $1) }.joined(separator: " AND ")
  }

  func dimensions(_ alias: String, _ count: Int) -> [String] { (0..<count).map { "\(alias).d\($0)" } }

  /// What the row `m` had before in one of the columns that decide.
  func old(_ column: String, _ alias: String = "m") -> String {
    "\(alias).o\(table.relevant.firstIndex(of: column) ?? 0)"
  }

  func prepare() throws {
    let number = table.number
    func values(_ prefix: String, _ count: Int) -> [TemporaryColumn] {
      (0..<count).map { TemporaryColumn("\(prefix)\($0)", .value) }
    }
    func integers(_ names: String...) -> [TemporaryColumn] { names.map { TemporaryColumn($0, .integer) } }
    var statements = dialect.temporaryTable(
      "salvor_moved_\(number)",
      [TemporaryColumn("id", .id)] + integers("seq", "had", "written") + values("v", table.keyCount)
        + values("o", table.relevant.count), indexes: [TemporaryIndex("key", table.logKey(), isUnique: true)])
    statements += dialect.temporaryTable(
      "salvor_ways_\(number)", integers("m", "k", "a") + values("d", table.scopeWidth),
      indexes: [TemporaryIndex("row", "m, k")])
    for place in table.edges.indices {
      let width = catalog.table(table.edges[place].table)?.scopeWidth ?? 0
      statements += dialect.temporaryTable(
        "salvor_edge_\(number)_\(place)", [TemporaryColumn("v", .value)] + integers("k", "a") + values("d", width),
        indexes: [TemporaryIndex("v", "v")])
    }
    for statement in statements { try connection.execute(statement) }
  }

  /// Writes into a temporary table, which others are joined with then.
  func fill(_ temporary: String, _ sql: String, _ values: Value...) throws {
    try connection.run(sql, values)
    guard connection.changes > Self.unmeasuredMax, let measuring = dialect.measuring(temporary) else { return }
    try connection.execute(measuring)
  }

  /// With so many rows any order of a join will do.
  private static let unmeasuredMax = 500

  // MARK: Rows

  /// The rows that the range wrote: where a row was before is what its first entry says.
  func collectWritten(after first: Int64, to last: Int64, inserted: Bool) throws {
    let had = dialect.number("e.op <> \(LogOperation.insert)") + " AS had"
    let olds = table.relevant.indices.map { "e.v\(table.keyCount + $0)" }
    let names = table.relevant.indices.map { ", o\($0)" }.joined()
    try fill(
      moved,
      """
      INSERT INTO \(moved) (seq, had, written, \(table.logKey())\(names))
      SELECT * FROM (
        \(dialect.oneOfEach(
          key: table.logKey("e"), numbered: "e.seq", .first, [had, "1", table.logKey("e")] + olds,
          from: "salvor_change e",
          where: "e.seq > ?1 AND e.seq <= ?2 AND e.t = \(table.number) "
            + "AND (e.op = \(LogOperation.insert) OR e.op >= \(LogOperation.delete))"))) e\(inserted ? "" : " WHERE had = 1")
      """, .integer(first), .integer(last))
  }

  /// A row that took the key of one that it replaced is logged as inserted first.
  func correctReplaced(after first: Int64, to last: Int64) throws {
    let sets = table.relevant.indices.map { ", o\($0) = e.v\(table.keyCount + $0)" }.joined()
    try connection.run(
      """
      UPDATE \(moved) AS m SET had = 1\(sets) FROM salvor_change e
      WHERE e.seq > ?1 AND e.seq <= ?2 AND e.t = \(table.number) AND e.op = \(LogOperation.replaced) AND m.had = 0
        AND \((0..<table.keyCount).map { "m.v\($0) = e.v\($0)" }.joined(separator: " AND "))
      """, .integer(first), .integer(last))
  }

  /// The rows whose scope asks for one that moved, and that the range did not write.
  func collectFollowing(_ edges: [Int]) throws {
    let names = table.relevant.indices.map { ", o\($0)" }.joined()
    let now = table.relevant.map { ", " + table.logged($0, "x") }.joined()
    let keys = table.table.primaryKey.map { table.logged($0, "x") }.joined(separator: ", ")
    for place in edges {
      try fill(
        moved,
        dialect.insertingNew(
          """
          INSERT INTO \(moved) (had, written, \(table.logKey())\(names))
          SELECT 1, 0, \(keys)\(now) FROM (SELECT DISTINCT v FROM \(edge(place))) e
          \(dialect.orderedJoin) \(table.sql) x
            ON x.\(quoted(table.edges[place].column)) = \(table.unlogged("e.v", table.edges[place].column))
          """))
    }
  }

  // MARK: Result

  /// Rows that the range did not write get an entry of the log that says so. A row that was written has one.
  func write() throws {
    let base = try connection.integer("SELECT max(seq) FROM salvor_change") ?? 0
    let keys = table.logKey()
    try connection.run(
      "UPDATE \(moved) SET seq = ?1 + id WHERE written = 0 AND id IN (SELECT m FROM \(ways))", .integer(base))
    try connection.run(
      "INSERT INTO salvor_change (seq, t, op, \(keys)) SELECT seq, \(table.number), \(LogOperation.scopeMoved), \(keys) "
        + "FROM \(moved) WHERE written = 0 AND seq IS NOT NULL")
    let names = tail("d", table.scopeWidth), values = tail("w.d", table.scopeWidth)
    try connection.run(
      """
      INSERT INTO salvor_gone (seq, t, deleted, a, \(keys)\(names))
      SELECT m.seq, \(table.number),
        \(dialect.number("NOT EXISTS (SELECT 1 FROM \(table.sql) x WHERE \(table.keyMatches("x", log: "m")))")),
        w.a, \(table.logKey("m"))\(values)
      FROM \(ways) w JOIN \(moved) m ON m.id = w.m WHERE w.k = \(Kind.gone)
      """)
    try connection.run(
      """
      INSERT INTO salvor_came (seq, a\(names)) SELECT m.seq, w.a\(values)
      FROM \(ways) w JOIN \(moved) m ON m.id = w.m WHERE w.k = \(Kind.came) AND m.written = 0
      """)
  }
}
