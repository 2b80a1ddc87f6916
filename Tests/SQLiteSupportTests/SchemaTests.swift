import SalvorModel
import Testing

@testable import SQLiteSupport

@Suite struct SchemaTests {
  static let parent = Table("parent", primaryKey: ["id"], columns: [Column("id", .integer), Column("name", .text)])
  static let child = Table(
    "child", primaryKey: ["parent_id", "line"],
    columns: [
      Column("parent_id", .integer), Column("line", .integer), Column("note", .text, nullable: true),
      Column("rank", .real, defaultValue: 1.5), Column("tag", .text, defaultValue: "it's"),
    ],
    references: [Reference(column: "parent_id", table: "parent", onDelete: .cascade)], unique: [["parent_id", "tag"]],
    check: ["rank < 100"])
  let schema = Schema(tables: [parent, child])

  @Test func aTableMadeFromTheSchemaFitsIt() throws {
    let connection = try SQLiteConnection(":memory:")
    try connection.pragma("foreign_keys", "ON")
    let ddl = TableDDL(softForeignKeys: false)
    #expect(
      try SchemaComparison(schema, with: connection, ddl: ddl).apply(to: connection, schema: schema, ddl: ddl) == 2)
    let again = try SchemaComparison(schema, with: connection, ddl: ddl)
    #expect(again.additions.isEmpty && again.refusals.isEmpty)
    #expect(try #require(try connection.tableShape("parent")).hasRowidKey)
    #expect(try !#require(try connection.tableShape("child")).hasRowidKey)
    try connection.execute("INSERT INTO parent VALUES (1, 'a'); INSERT INTO child (parent_id, line) VALUES (1, 1)")
    #expect(try connection.rows("SELECT * FROM child") == [[1, 1, nil, 1.5, "it's"]])
    #expect(throws: SalvorError.self) { try connection.execute("INSERT INTO child (parent_id, line) VALUES (9, 1)") }
    #expect(throws: SalvorError.self) { try connection.execute("UPDATE child SET rank = 100") }
    #expect(throws: SalvorError.self) { try connection.execute("INSERT INTO child (parent_id) VALUES (1)") }
    try connection.execute("DELETE FROM parent")
    #expect(try connection.rows("SELECT * FROM child").isEmpty)
  }

  @Test func missingColumnsThatMayBeEmptyAreAdded() throws {
    let connection = try SQLiteConnection(":memory:")
    try connection.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY); INSERT INTO parent VALUES (1)")
    var schema = schema
    schema.tables = [
      Table(
        "parent", primaryKey: ["id"],
        columns: [
          Column("id", .integer), Column("name", .text, defaultValue: "none"), Column("up", .integer, nullable: true),
        ], references: [Reference(column: "up", table: "parent")])
    ]
    let ddl = TableDDL(softForeignKeys: false)
    #expect(
      try SchemaComparison(schema, with: connection, ddl: ddl).apply(to: connection, schema: schema, ddl: ddl) == 2)
    #expect(try connection.rows("SELECT * FROM parent") == [[1, "none", nil]])
    let again = try SchemaComparison(schema, with: connection, ddl: ddl)
    #expect(again.additions.isEmpty && again.refusals.isEmpty)
  }

  @Test(
    arguments: [
      ("CREATE TABLE parent (id TEXT PRIMARY KEY, name TEXT)", "id", "TEXT"),
      ("CREATE TABLE parent (id INTEGER PRIMARY KEY)", "name", "missing"),
      ("CREATE TABLE parent (id INTEGER PRIMARY KEY, name TEXT, extra TEXT)", "extra", "not in the schema"),
      ("CREATE TABLE parent (id INTEGER, name TEXT PRIMARY KEY)", nil, "primary key is name"),
      ("CREATE TABLE parent (id INTEGER PRIMARY KEY, name TEXT AS ('x'))", "name", "generated"),
      (
        "CREATE TABLE parent (id INTEGER PRIMARY KEY, name TEXT); CREATE UNIQUE INDEX u ON parent (lower(name))", nil,
        "u is on"
      ),
      (
        "CREATE TABLE parent (id INTEGER PRIMARY KEY, name TEXT NOT NULL ON CONFLICT ABORT UNIQUE ON CONFLICT replace)",
        nil, "ON CONFLICT REPLACE"
      ),
    ] as [(String, String?, String)])
  func destructiveDifferencesAreRefusedByName(sql: String, column: String?, what: String) throws {
    let connection = try SQLiteConnection(":memory:")
    try connection.execute(sql)
    var schema = schema
    schema.tables = [Self.parent]
    let comparison = try SchemaComparison(schema, with: connection, ddl: TableDDL(softForeignKeys: false))
    #expect(comparison.refusals.contains { $0.table == "parent" && $0.column == column && $0.what.contains(what) })
    let error = failure { try comparison.check() }
    #expect(error?.code == .schemaRefused)
    #expect(error?.context["table"] == "parent")
  }

  @Test(
    "a clause is one outside of names, texts and comments only",
    arguments: [
      ("CREATE TABLE t (a PRIMARY KEY ON CONFLICT ROLLBACK, b UNIQUE\non conflict\tFail)", ["ROLLBACK", "FAIL"]),
      (
        "CREATE TABLE t (a UNIQUE ON CONFLICT ABORT, \"on conflict\" REPLACE, [on] conflict DEFAULT 'on conflict ignore')",
        []
      ),
      (
        "CREATE TABLE t (a -- on conflict replace\n, b /* on conflict fail */ TEXT, conflict REFERENCES t ON DELETE CASCADE)",
        []
      ),
      ("CREATE TABLE t (a UNIQUE ON CONFLICT", []), ("", []),
    ] as [(String, [String])])
  func clausesAreFound(sql: String, clauses: [String]) { #expect(conflictClauses(of: sql) == clauses) }

  @Test func aSoftReferenceIsAForeignKeyOnTheServerOnly() throws {
    let soft = Table(
      "soft", primaryKey: ["id"], columns: [Column("id", .text), Column("up", .integer, nullable: true)],
      references: [Reference(column: "up", table: "parent", soft: true)])
    let schema = Schema(tables: [Self.parent, soft])
    #expect(!TableDDL(softForeignKeys: false).createTable(soft, in: schema).contains("FOREIGN KEY"))
    #expect(TableDDL(softForeignKeys: true).createTable(soft, in: schema).contains("FOREIGN KEY"))
  }

  @Test func shapesOfOtherHandsAreRead() throws {
    let connection = try SQLiteConnection(":memory:")
    try connection.execute(
      """
      CREATE TABLE "a""b" (k TEXT COLLATE NOCASE, "x y" INT, g AS (k || 'x'), PRIMARY KEY ("x y", k)) WITHOUT ROWID;
      CREATE UNIQUE INDEX p ON "a""b" /* WHERE ( */ (k COLLATE NOCASE) where k > 'm)WHERE'
      """)
    let shape = try #require(try connection.tableShape("A\"B"))
    #expect(shape.name == "a\"b" && shape.withoutRowid && shape.generated == ["g"])
    #expect(shape.primaryKey == ["x y", "k"])
    #expect(shape.columns.map(\.affinity) == [.text, .integer])
    let partial = try #require(shape.uniqueIndexes.first { $0.name == "p" })
    #expect(partial.condition == " k > 'm)WHERE'")
    #expect(partial.columns == [TableShape.IndexedColumn(name: "k", collation: "NOCASE")])
    #expect(try connection.tableShape("none") == nil)
  }
}
