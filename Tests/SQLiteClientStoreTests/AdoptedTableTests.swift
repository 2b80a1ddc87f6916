import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

@Suite("Tables from before Salvor that are not what the schema would make (interfaces: schema)")
struct AdoptedTableTests {
  private static let schema = Schema(tables: [
    Table(
      "site", primaryKey: ["id"],
      columns: [Column("id", .text), Column("name", .text, nullable: true), Column("seats", .integer, nullable: true)]),
    Table(
      "visit", primaryKey: ["id"], columns: [Column("id", .text), Column("site_id", .text, nullable: true)],
      references: [Reference(column: "site_id", table: "site", onDelete: .cascade)]),
  ])

  @Test(
    "a constraint that does more than fail is refused by name",
    arguments: [
      ("id TEXT NOT NULL PRIMARY KEY, name TEXT UNIQUE ON CONFLICT REPLACE, seats INTEGER", "ON CONFLICT REPLACE"),
      ("id TEXT NOT NULL PRIMARY KEY on /* no */ conflict\n ignore, name TEXT, seats INTEGER", "ON CONFLICT IGNORE"),
    ])
  func refused(_ columns: String, _ what: String) async throws {
    let path = Scratch.path()
    try SQLiteConnection(path).execute("CREATE TABLE site (\(columns)); INSERT INTO site VALUES ('N1', 'mine', 1)")
    let store = SQLiteClientStore(path: path)
    let error = await #expect(throws: SalvorError.self) {
      try await store.open(ClientSetup(schema: Self.schema, principal: "anna"))
    }
    #expect(error?.code == .schemaRefused)
    #expect(error?.message.contains(what) == true, "\(error?.message ?? "")")
    #expect(error?.message.contains("make the table anew") == true)
    #expect(try SQLiteConnection(path).rows("SELECT name FROM sqlite_schema WHERE name LIKE 'salvor%'") == [])
  }

  @Test("a key with a collation is captured byte for byte, and what it means is said (semantics 3)")
  func collatedKey() async throws {
    let path = Scratch.path()
    try SQLiteConnection(path).execute(
      "CREATE TABLE site (id TEXT NOT NULL COLLATE NOCASE PRIMARY KEY, name TEXT, seats INTEGER)")
    let store = SQLiteClientStore(path: path)
    let opening = try await store.open(ClientSetup(schema: Self.schema, principal: "anna"))
    #expect(opening.notices.contains { $0.contains("site.id") && $0.contains("NOCASE") })
    try SQLiteConnection(path).execute("INSERT INTO site VALUES ('n1', 'mine', 1); UPDATE site SET id = 'N1'")
    let queued = try await store.requests(in: [.queued], after: nil, limit: 10)
    #expect(queued.map { "\($0.operation.rawValue) \($0.key)" }.last?.contains("N1") == true)
    await store.close()
    #expect(try await store.open(ClientSetup(schema: Self.schema, principal: "anna")).notices == [])
    await store.close()
  }

  @Test("names that differ in case only are the schema's wherever they are said")
  func otherCase() async throws {
    var bench = try await StoreBench(
      Self.schema,
      sql: """
        CREATE TABLE SITE (ID TEXT NOT NULL PRIMARY KEY, Name TEXT, seats INTEGER);
        CREATE TABLE Visit (id TEXT NOT NULL PRIMARY KEY, Site_Id TEXT REFERENCES site (id) ON DELETE CASCADE);
        INSERT INTO site VALUES ('a', 'x', 1); INSERT INTO visit VALUES ('v', 'a')
        """)
    let (text, session) = try await bench.uploadText()
    #expect(text.contains(#""table":"site""#) && text.contains(#""table":"visit""#))
    #expect(text.contains(#"["id","name","seats"]"#) && text.contains(#"["id","site_id"]"#))
    try await bench.accept(session)
    _ = try await bench.download(full: ["site", "visit"], [("site", ["a", "theirs", 2]), ("visit", ["v", "a"])])
    try bench.write("UPDATE Site SET NAME = 'y'; DELETE FROM Visit")
    #expect(
      try await bench.store.requests(in: [.queued], after: nil, limit: 10).map {
        "\($0.table) \($0.before.map(\.name))"
      }
        == [#"site ["name"]"#, #"visit ["id", "site_id"]"#])
    #expect(
      try bench.read("SELECT \"table\", operation FROM salvor_queue ORDER BY counter") == [
        ["site", "update"], ["visit", "delete"],
      ])
    let again = SQLiteClientStore(path: bench.path)
    #expect(try await again.open(ClientSetup(schema: Self.schema, principal: "anna")).restoredTriggers == [])
    await again.close()
    #expect(try bench.isWhole())
  }

  @Test(
    "a row that a unique index of the table's own takes for another is left out and named, and the others arrive",
    arguments: [
      ("name TEXT UNIQUE, seats INTEGER", "UNIQUE constraint failed: site.name"),
      ("name TEXT NOT NULL ON CONFLICT ABORT, seats INTEGER UNIQUE", "UNIQUE constraint failed: site.seats"),
    ], [true, false])
  func leftOut(_ rule: (String, String), _ isWhole: Bool) async throws {
    var schema = Self.schema
    schema.tables[0].columns[1].nullable = rule.0.contains("NOT NULL") == false
    var bench = try await StoreBench(schema, sql: "CREATE TABLE site (id TEXT NOT NULL PRIMARY KEY, \(rule.0))")
    _ = try await bench.download(full: ["site"], [("site", ["a", "x", 1])])
    let report = try await bench.download(
      full: isWhole ? ["site"] : [],
      [("site", ["a", "x", 6]), ("site", ["k'ey", "x", 6]), ("site", ["z", "other", 7])])
    let notice = try #require(report.notices.first)
    #expect(report.notices.count == 1 && notice.contains(rule.1), "\(report.notices)")
    #expect(notice.contains("The row [k'ey] of site was left out") && notice.contains("the row [a] of site for one"))
    #expect(try bench.read("SELECT id FROM site ORDER BY 1") == [["a"], ["z"]])
    #expect(try bench.isWhole())
  }

  @Test(
    "rows that a constraint of the table's own refuses are left out and named, with the way out, and the others arrive (decision 211)",
    arguments: [
      ("name TEXT, seats INTEGER CHECK (seats < 5)", "CHECK constraint failed: seats < 5"),
      ("name TEXT NOT NULL ON CONFLICT ABORT, seats INTEGER CHECK (seats <> 6)", "CHECK constraint failed: seats <> 6"),
    ], [true, false])
  func refused(_ rule: (String, String), _ isWhole: Bool) async throws {
    var schema = Self.schema
    schema.tables[0].columns[1].nullable = rule.0.contains("NOT NULL") == false
    var bench = try await StoreBench(schema, sql: "CREATE TABLE site (id TEXT NOT NULL PRIMARY KEY, \(rule.0))")
    _ = try await bench.download(full: ["site"], [("site", ["a", "x", 1])])
    let report = try await bench.download(
      full: isWhole ? ["site"] : [],
      [
        ("site", ["a", "x", 6]), ("site", ["k'ey", "x", 6]), ("site", ["z", "x", 1]), ("site", ["y", "x", 6]),
        ("site", ["y", "x", 2]),
      ])
    let notice = try #require(report.notices.first)
    #expect(report.notices.count == 1 && notice.contains(rule.1), "\(report.notices)")
    #expect(
      notice.contains("2 rows of site ([a], [k'ey]) were left out") && notice.contains("make the table here without it")
    )
    #expect(try bench.read("SELECT id FROM site ORDER BY 1") == [["y"], ["z"]])
    #expect(try bench.isWhole())
  }

  @Test("rows with a NULL key are named when they are found and in the status, and are nobody's requests")
  func withoutKey() async throws {
    let path = Scratch.path()
    try SQLiteConnection(path).execute(
      "CREATE TABLE site (id TEXT PRIMARY KEY, name TEXT, seats INTEGER); INSERT INTO site VALUES (NULL, 'a', 1), (NULL, 'b', 2), ('c', 'c', 3)"
    )
    let store = SQLiteClientStore(path: path)
    let opening = try await store.open(ClientSetup(schema: Self.schema, principal: "anna"))
    #expect(opening.adoptedRows == 1)
    #expect(opening.notices.count == 1 && opening.notices[0].hasPrefix("site: 2 rows have no key"))
    #expect(try await store.status().rowsWithoutKey == ["site": 2])
    try SQLiteConnection(path).execute("UPDATE site SET id = name WHERE id IS NULL")
    let status = try await store.status()
    #expect(status.rowsWithoutKey == [:] && status.queued == 3)
    await store.close()
  }
}
