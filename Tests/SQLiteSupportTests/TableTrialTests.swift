import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@Suite("What SQLite would refuse of a schema is found in an empty database in memory")
struct TableTrialTests {
  private static func visit(_ check: [String]) -> Table {
    Table(
      "visit", primaryKey: ["id"],
      columns: [
        Column("id", .text), Column("line", .integer), Column("note", .text, nullable: true),
        Column("day", .timestamp, nullable: true), Column("body", .json, nullable: true),
        Column("dirty", .boolean, defaultValue: 0),
      ], check: check, flags: FlagColumns(dirty: "dirty"))
  }

  private static func problems(_ check: String...) -> [SchemaProblem] {
    TableTrial.problems(in: Schema(tables: [visit(check)]), ddl: TableDDL(softForeignKeys: true))
  }

  @Test(
    "a condition that cannot be kept is refused, in SQLite's own words where they are SQLite's",
    arguments: [
      ("line <", "syntax error"), ("nosuch < 100", "no such column: nosuch"),
      ("\"nosuch\" < 100", "nosuch"), ("site.line < 5", "no such column: site.line"),
      ("(SELECT 1)", "subqueries prohibited in CHECK constraints"), ("line IN (SELECT 1)", "subqueries prohibited"),
      ("line < :a", "parameters prohibited in CHECK constraints"), ("line < ?1", "parameters prohibited"),
      ("foo(line)", "no such function: foo"), ("sum(line) > 1", "misuse of aggregate"), ("line < 5, 1", "syntax error"),
      ("line < random()", "random has another value each time"),
      ("day < current_timestamp", "current_timestamp has another value each time"),
      ("line < changes()", "changes has another value each time"),
      ("day < datetime('now')", "non-deterministic use of datetime()"),
      ("day < date()", "non-deterministic use of date()"),
      ("raise(abort, 'no')", "RAISE() may only be used within a trigger-program"),
      ("visit.line < 5", "no such column: visit.line"), ("rowid > 0", "no such column: rowid"),
      ("line < 100 --", "it has a comment in it"), ("line < 100 /* most */", "it has a comment in it"),
      ("line < 100) --", "it closes a bracket that it does not open"),
      ("1); DROP TABLE site; --", "it closes a bracket that it does not open"),
      ("1) CHECK (1", "it closes a bracket that it does not open"),
      ("(line < 100", "it has a bracket that is not closed"),
      ("line < 100; DELETE FROM visit", "it has a semicolon in it"),
      ("note <> 'open", "it has a quotation that is not closed"),
      ("note <> 'a\0b'", "it has the character U+0000 in it"),
      ("dirty = 0", "it names a flag column, which never travels"),
    ])
  func refused(condition: String, reason: String) throws {
    let problem = try #require(Self.problems(condition).first)
    #expect(problem.table == "visit" && problem.check == 0)
    #expect(problem.message.hasPrefix("is not a condition for the table's rows: "), "\(problem.message)")
    #expect(problem.message.contains(reason), "\(problem.message)")
    #expect(!problem.message.contains("CREATE TABLE"))
  }

  @Test(
    "a condition on the row's columns is none of a problem, whether this or that row fulfils it",
    arguments: [
      "line < 100", "\"line\" < 100", "[line] BETWEEN 1 AND 5", "note <> 'it''s; -- (not /* a comment'",
      "note LIKE 'a%'",
      "length(note) > 3 OR note IS NULL", "line IN (1, 2, 3)", "line - -1 > 0", "date(day) IS NOT NULL", "1", "0",
      "json_extract(body, '$.a') > 1 OR body IS NULL", "abs(line) < 9 AND (note IS NULL OR (line > 0))",
      "note COLLATE NOCASE <> 'x'", "coalesce(note, '') NOT GLOB '*;*'",
    ])
  func accepted(condition: String) { #expect(Self.problems(condition) == []) }

  @Test("each condition is named by its place, and the others are not blamed")
  func places() {
    #expect(Self.problems("line < 9", "line <", "line > 0", "nosuch").map(\.check) == [1, 3])
  }

  @Test("a column may be called as the trial's own key, and a table as a keyword")
  func oddNames() {
    let table = Table(
      "select", primaryKey: ["salvor_key"], columns: [Column("salvor_key", .text), Column("Salvor_Key_", .integer)],
      check: ["salvor_key <> '' AND \"Salvor_Key_\" > 0"])
    #expect(TableTrial.problems(in: Schema(tables: [table]), ddl: TableDDL(softForeignKeys: false)) == [])
  }

  @Test("what SQLite refuses of a table as a whole is the table's problem")
  func wholeTable() throws {
    var table = Self.visit([])
    table.columns += (0..<2500).map { Column("c\($0)", .integer, nullable: true) }
    let found = TableTrial.problems(in: Schema(tables: [table]), ddl: TableDDL(softForeignKeys: true))
    #expect(found == [SchemaProblem(table: "visit", message: "cannot be made by SQLite: too many columns on visit")])
  }
}
