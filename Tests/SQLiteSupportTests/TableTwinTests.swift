import SalvorModel
import Testing

@testable import SQLiteSupport

/// A table's content is exchanged for its twin's at once, and nothing else of the table changes.
@Suite struct TableTwinTests {
  @Test(arguments: [
    ("CREATE TABLE site(id TEXT PRIMARY KEY, p TEXT REFERENCES parent)", "CREATE TABLE t(id TEXT PRIMARY KEY, p TEXT)"),
    (
      "CREATE TABLE \"a (b\"(\"x,y\" TEXT NOT NULL REFERENCES \"p)\" (\"q\") ON DELETE SET NULL ON UPDATE NO ACTION NOT DEFERRABLE INITIALLY DEFERRED DEFAULT ')', PRIMARY KEY (\"x,y\")) WITHOUT ROWID, STRICT",
      "CREATE TABLE t(\"x,y\" TEXT NOT NULL DEFAULT ')', PRIMARY KEY (\"x,y\")) WITHOUT ROWID, STRICT"
    ),
    (
      "CREATE TABLE c(id, p, -- a comment\n CHECK (p > 1.5), CONSTRAINT one FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE, UNIQUE (id, p))",
      "CREATE TABLE t(id, p, CHECK (p > 1.5), CONSTRAINT one, UNIQUE (id, p))"
    ),
    (
      "CREATE TABLE c(id, p, UNIQUE (id) FOREIGN KEY (p) REFERENCES parent MATCH FULL DEFERRABLE)",
      "CREATE TABLE t(id, p, UNIQUE (id))"
    ),
    ("CREATE TABLE `it``s`([id] TEXT)", "CREATE TABLE t([id] TEXT)"),
  ])
  func aStatementKeepsEverythingButReferences(sql: String, expected: String) {
    #expect(createTable(sql, as: "t") == expected)
  }

  @Test(arguments: [
    "CREATE VIRTUAL TABLE f USING fts5(body)", "CREATE TABLE a(id INTEGER PRIMARY KEY AUTOINCREMENT)",
    "CREATE TABLE a(",
    "CREATE TABLE",
  ])
  func whatIsNoPlainTableHasNoTwin(sql: String) { #expect(createTable(sql, as: "t") == nil) }

  @Test func anIndexGetsANameAndATableOfItsOwn() {
    #expect(
      createIndex("CREATE UNIQUE INDEX \"i 1\" ON \"s i\" (lower(name) DESC) WHERE name IS NOT NULL", as: "i", on: "t")
        == "CREATE UNIQUE INDEX i ON t (lower(name) DESC) WHERE name IS NOT NULL")
  }

  private static let schema = """
    CREATE TABLE parent (id TEXT PRIMARY KEY, name TEXT UNIQUE COLLATE NOCASE, size REAL CHECK (size > 0));
    CREATE INDEX parent_size ON parent (size DESC) WHERE size > 2;
    CREATE INDEX parent_b ON parent (name);
    CREATE TABLE child (k INTEGER, id TEXT, p TEXT REFERENCES parent (id) ON DELETE CASCADE, PRIMARY KEY (k, id)) WITHOUT ROWID;
    CREATE TABLE seen (id TEXT);
    CREATE TRIGGER noted AFTER INSERT ON parent BEGIN INSERT INTO seen VALUES (new.id); END;
    CREATE VIEW large AS SELECT * FROM parent WHERE size > 5;
    """

  private func filled(_ connection: SQLiteConnection, rows: Int) throws -> [TableTwin] {
    let twins = try connection.transaction {
      try ["parent", "child"].map { try #require(try TableTwin.make(of: $0, as: "salvor_\($0)", on: connection)) }
    }
    try connection.transaction {
      for row in 1...rows {
        try connection.run(
          "INSERT INTO salvor_parent VALUES (?1, ?2, ?3)", .text("p\(row)"), .text("n\(row)"), .real(Double(row)))
        try connection.run(
          "INSERT INTO salvor_child VALUES (?1, ?2, ?3)", .integer(Int64(row)), .text("c"), .text("p\(row)"))
      }
    }
    return twins
  }

  @Test(arguments: ["0", "1", "2"])
  func theExchangeIsWholeForEveryConnectionAndUndoneByARollback(vacuum: String) throws {
    let directory = try Directory()
    defer { directory.remove() }
    let connection = try SQLiteConnection(directory.path + "/a.db")
    try connection.execute("PRAGMA auto_vacuum = \(vacuum); PRAGMA journal_mode = WAL; \(Self.schema)")
    try connection.pragma("foreign_keys", "OFF")
    let other = try SQLiteConnection(directory.path + "/a.db")
    try other.pragma("foreign_keys", "ON")
    let count = "SELECT (SELECT count(*) FROM parent) * 1000 + (SELECT count(*) FROM child)"
    let twins = try filled(connection, rows: 300)
    let schema = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE '%salvor%' ORDER BY name"
    let before = try connection.rows(schema)
    #expect(try other.rows("PRAGMA foreign_key_check").isEmpty)
    struct Undone: Error {}
    #expect(throws: Undone.self) {
      try connection.transaction {
        try TableTwin.exchange(twins, on: connection)
        #expect(try connection.integer(count) == 300_300)
        throw Undone()
      }
    }
    #expect(try connection.integer(count) == 0)
    #expect(try connection.integer("SELECT count(*) FROM salvor_parent") == 300)
    try other.execute("BEGIN")
    #expect(try other.integer(count) == 0)
    try connection.transaction { try TableTwin.exchange(twins, on: connection) }
    // One view of the file until its end.
    #expect(try other.integer(count) == 0)
    try other.execute("COMMIT")
    #expect(try other.integer(count) == 300_300)
    #expect(try other.integer("SELECT count(*) FROM parent INDEXED BY parent_size WHERE size > 2") == 298)
    #expect(try other.integer("SELECT count(*) FROM large") == 295)
    #expect(try connection.rows(schema) == before)
    try other.execute("INSERT INTO parent VALUES ('new', 'N', 1)")
    #expect(try other.rows("SELECT id FROM seen") == [["new"]])
    #expect(throws: SalvorError.self) { try other.execute("INSERT INTO parent VALUES ('again', 'n7', 1)") }
    try other.execute("DELETE FROM parent WHERE id = 'p7'")
    #expect(try other.integer("SELECT count(*) FROM child") == 299)
    for each in [connection, other] { #expect(try each.rows("PRAGMA integrity_check") == [["ok"]]) }
    #expect(try connection.integer("SELECT count(*) FROM sqlite_schema WHERE name LIKE '%salvor%'") == 0)
  }

  @Test func aTableThatHasChangedHasNoStandingTwin() throws {
    let connection = try SQLiteConnection(":memory:")
    try connection.execute(Self.schema)
    _ = try filled(connection, rows: 1)
    #expect(try TableTwin.standing(of: "parent", as: "salvor_parent", on: connection) != nil)
    try connection.execute("CREATE INDEX another ON parent (size)")
    #expect(try TableTwin.standing(of: "parent", as: "salvor_parent", on: connection) == nil)
    try connection.execute("DROP INDEX another; ALTER TABLE parent ADD COLUMN note TEXT")
    #expect(try TableTwin.standing(of: "parent", as: "salvor_parent", on: connection) == nil)
    #expect(try TableTwin.standing(of: "nobody", as: "salvor_parent", on: connection) == nil)
  }
}
