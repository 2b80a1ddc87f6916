import SQLiteSupport
import SalvorContracts
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// Inspections with the flag columns of an application, as a database from before Salvor may have them.
let inspectionTables = Schema(tables: [
  Table(
    "inspection", primaryKey: ["id"],
    columns: [
      Column("id", .text), Column("title", .text, nullable: true), Column("modified", .text, nullable: true),
      Column("IsDirty", .boolean, nullable: true), Column("IsDeleted", .boolean, nullable: true),
    ], flags: FlagColumns(dirty: "IsDirty", deleted: "IsDeleted")),
  Table(
    "answer", primaryKey: ["id"],
    columns: [
      Column("id", .text), Column("inspection_id", .text), Column("note", .text, nullable: true),
      Column("IsDirty", .boolean, nullable: true), Column("IsDeleted", .boolean, nullable: true),
    ], references: [Reference(column: "inspection_id", table: "inspection")],
    flags: FlagColumns(dirty: "IsDirty", deleted: "IsDeleted")),
  Table(
    "comment", primaryKey: ["id"],
    columns: [Column("id", .text), Column("answer_id", .text), Column("text", .text, nullable: true)],
    references: [Reference(column: "answer_id", table: "answer", onDelete: .cascade)]),
])

/// What an application's own SQL does to its flag columns (semantics 3).
@Suite struct FlagTests {
  /// An inspection `i` with the answers `a` and `b`, and a comment on `a`; clean.
  private static func bench(_ sql: String = "") async throws -> StoreBench {
    var bench = try await StoreBench(inspectionTables, sql: sql)
    _ = try await bench.download(
      full: ["inspection", "answer", "comment"],
      [
        ("inspection", ["i", "x", .null]), ("answer", ["a", "i", "1"]), ("answer", ["b", "i", "2"]),
        ("comment", ["c", "a", "t"]),
      ])
    return bench
  }

  private static func queue(_ bench: StoreBench) throws -> [[Value]] {
    try bench.read("SELECT operation, \"table\", \"key\" FROM salvor_queue ORDER BY counter")
  }

  @Test("a mark is seen in the queue within the application's own transaction, and so is its taking back")
  func isCapturedAtOnce() async throws {
    let bench = try await Self.bench()
    try bench.write("UPDATE inspection SET IsDeleted = 1 WHERE id = 'i'")
    #expect(
      try Self.queue(bench) == [
        ["delete", "comment", "c"], ["delete", "answer", "b"], ["delete", "answer", "a"],
        ["delete", "inspection", "i"],
      ])
    #expect(try bench.read("SELECT id, IsDirty, IsDeleted FROM answer ORDER BY id") == [["a", 1, 1], ["b", 1, 1]])
    #expect(
      try bench.read("SELECT \"key\", deleted FROM salvor_row_state WHERE \"table\" = 'answer' ORDER BY 1") == [
        ["a", 1], ["b", 1],
      ])
    try bench.write("UPDATE inspection SET IsDeleted = 0")
    #expect(try Self.queue(bench) == [])
    #expect(try bench.read("SELECT id, answer_id, text FROM comment") == [["c", "a", "t"]])
    #expect(try bench.read("SELECT id, IsDeleted FROM answer ORDER BY id") == [["a", 0], ["b", 0]])
    #expect(try await bench.store.beginSession(groups: nil).upload == nil)
    #expect(try bench.read("SELECT count(*) FROM answer WHERE IsDirty") == [[0]])
    #expect(try bench.isWhole())
  }

  @Test("a transaction that is rolled back leaves no mark", arguments: ["ROLLBACK", "ROLLBACK TO s"])
  func isRolledBack(_ end: String) async throws {
    let bench = try await Self.bench()
    let connection = try SQLiteConnection(bench.path)
    try connection.execute(
      "BEGIN; SAVEPOINT s; UPDATE inspection SET IsDeleted = 1; UPDATE answer SET IsDeleted = 0 WHERE id = 'a'; \(end)")
    if end != "ROLLBACK" { try connection.execute("COMMIT") }
    #expect(try Self.queue(bench) == [])
    #expect(
      try bench.read("SELECT count(*) FROM salvor_mark UNION ALL SELECT count(*) FROM salvor_marking") == [[0], [0]])
    #expect(try bench.read("SELECT count(*) FROM answer WHERE IsDeleted OR IsDirty") == [[0]])
  }

  @Test(
    "an application's own trigger without a column list neither loops nor breaks it", arguments: ["ON", "OFF"])
  func livesWithApplicationTriggers(_ recursive: String) async throws {
    let bench = try await Self.bench()
    try bench.write(
      """
      CREATE TRIGGER touch AFTER UPDATE ON inspection WHEN NEW.modified IS NOT 'now'
        BEGIN UPDATE inspection SET modified = 'now', IsDirty = 1 WHERE id = NEW.id; END;
      CREATE TRIGGER touch_parent AFTER UPDATE ON answer
        BEGIN UPDATE inspection SET title = NEW.id WHERE id = NEW.inspection_id; END
      """)
    let connection = try SQLiteConnection(bench.path)
    try connection.execute("PRAGMA recursive_triggers = \(recursive); PRAGMA foreign_keys = ON")
    try connection.execute("UPDATE answer SET note = '3' WHERE id = 'a'")
    try connection.execute("UPDATE inspection SET IsDeleted = 1, title = 'y'")
    try connection.execute("UPDATE inspection SET IsDeleted = 0")
    try connection.execute("UPDATE answer SET IsDeleted = 1 WHERE id = 'b'")
    let found = try await bench.store.bases()
    #expect(found["inspection"] == [["i", "x", .null]])
    #expect(found["answer"] == [["a", "i", "1"], ["b", "i", "2"]])
    let (text, session) = try await bench.uploadText()
    #expect(text.contains("\"b\""))
    try await bench.accept(session)
    #expect(try bench.read("SELECT id, note, IsDirty FROM answer") == [["a", "3", 0]])
    #expect(try bench.isWhole())
  }

  @Test("whatever statement sets the mark, it is a delete")
  func marksByAnyStatement() async throws {
    let bench = try await Self.bench()
    try bench.write(
      "INSERT INTO answer (id, inspection_id, IsDeleted) VALUES ('a', 'i', 1) ON CONFLICT (id) DO UPDATE SET IsDeleted = 1"
    )
    try bench.write("INSERT OR REPLACE INTO answer (id, inspection_id, note, IsDeleted) VALUES ('b', 'i', '2', 1)")
    #expect(
      try Self.queue(bench) == [["delete", "comment", "c"], ["delete", "answer", "a"], ["delete", "answer", "b"]])
    try bench.write("INSERT OR REPLACE INTO answer (id, inspection_id, note) VALUES ('b', 'i', '4')")
    #expect(try Self.queue(bench).last == ["insert", "answer", "b"])
    #expect(try await bench.store.bases()["answer"] == [["a", "i", "1"], ["b", "i", "2"]])
    let (_, session) = try await bench.uploadText()
    try await bench.accept(session)
    #expect(try bench.read("SELECT id, note, IsDirty, IsDeleted FROM answer") == [["b", "4", 0, .null]])
  }

  @Test("a statement that marks many rows is a request for each, with what is below it")
  func marksMany() async throws {
    let bench = try await Self.bench()
    try bench.write("INSERT INTO inspection (id) VALUES ('j'), ('k'); UPDATE inspection SET IsDeleted = true")
    #expect(try await bench.store.status().queued == 5)
    try bench.write("UPDATE inspection SET IsDeleted = false WHERE id <> 'k'")
    #expect(
      try Self.queue(bench) == [
        ["insert", "inspection", "j"], ["insert", "inspection", "k"], ["delete", "inspection", "k"],
      ])
    let (_, session) = try await bench.uploadText()
    try await bench.accept(session)
    #expect(try bench.read("SELECT id FROM inspection ORDER BY id") == [["i"], ["j"]])
  }

  @Test("the key of a marked row may change: the row under the new key is none")
  func changesKeys() async throws {
    let bench = try await Self.bench()
    try bench.write("UPDATE answer SET IsDeleted = 1 WHERE id = 'b'; UPDATE answer SET id = 'd' WHERE id = 'b'")
    #expect(try Self.queue(bench) == [["delete", "answer", "b"]])
    #expect(try await bench.store.bases()["answer"] == [["a", "i", "1"], ["b", "i", "2"]])
    let (_, session) = try await bench.uploadText()
    #expect(try bench.read("SELECT id FROM answer ORDER BY id") == [["a"]])
    try await bench.accept(session)
    #expect(try bench.read("SELECT id FROM answer") == [["a"]])
  }

  @Test("an application's triggers see rows with marks go, and what they write meanwhile is undone")
  func firesWhenMarkedRowsGo() async throws {
    var bench = try await Self.bench()
    try bench.write(
      """
      CREATE TABLE seen (what TEXT);
      CREATE TRIGGER gone AFTER DELETE ON answer BEGIN
        INSERT INTO seen VALUES (OLD.id); UPDATE inspection SET title = 'touched'; END
      """)
    try bench.write("UPDATE answer SET IsDeleted = 1 WHERE id = 'a'; UPDATE answer SET IsDeleted = 1 WHERE id = 'b'")
    _ = try await bench.download([("answer", ["b", "i", "server"])])
    #expect(
      try bench.read("SELECT id, note, IsDeleted FROM answer ORDER BY id") == [["a", "1", 1], ["b", "server", 1]])
    let (_, session) = try await bench.uploadText()
    try await bench.accept(session)
    #expect(try bench.read("SELECT what FROM seen ORDER BY what") == [["a"], ["b"]])
    #expect(try bench.read("SELECT title, IsDirty FROM inspection") == [["x", .null]])
    #expect(try await bench.store.status().queued == 0)
  }

  @Test("what an application's trigger writes when Salvor sets a dirty column is captured, also in the same table")
  func triggersOfTheDirtyColumn() async throws {
    let bench = try await Self.bench()
    try bench.write(
      """
      CREATE TRIGGER old AFTER UPDATE ON inspection WHEN NEW.id NOT LIKE '%.old' BEGIN
        INSERT OR IGNORE INTO inspection (id, title) VALUES (NEW.id || '.old', OLD.title);
        UPDATE answer SET note = 'seen' WHERE inspection_id = NEW.id;
      END
      """)
    // Salvor's triggers are newer again, and fire first.
    _ = try await bench.store.beginSession(groups: nil)
    await bench.store.endSession()
    try bench.write(
      "INSERT INTO inspection (id, title) VALUES ('j', 'y'); UPDATE inspection SET title = 'z' WHERE id = 'i'")
    #expect(try bench.read("SELECT id FROM inspection ORDER BY id") == [["i"], ["i.old"], ["j"], ["j.old"]])
    #expect(
      try Set(Self.queue(bench)) == [
        ["insert", "inspection", "j"], ["insert", "inspection", "j.old"], ["update", "inspection", "i"],
        ["insert", "inspection", "i.old"], ["update", "answer", "a"], ["update", "answer", "b"],
      ])
    _ = try await bench.store.beginSession(groups: nil)
    #expect(try bench.read("SELECT DISTINCT IsDirty FROM inspection") == [[1]])
  }

  @Test("a database from before: what another program marked is to be deleted, the rest is sent, and all is dirty")
  func adoptsMarks() async throws {
    let bench = try await StoreBench(
      inspectionTables,
      sql: """
        CREATE TABLE inspection (id TEXT PRIMARY KEY NOT NULL, title TEXT, modified TEXT, IsDirty INTEGER, IsDeleted INTEGER);
        CREATE TABLE answer (id TEXT PRIMARY KEY NOT NULL, inspection_id TEXT NOT NULL REFERENCES inspection(id), note TEXT, IsDirty INTEGER, IsDeleted INTEGER);
        INSERT INTO inspection VALUES ('i', 'x', NULL, 0, 0), ('j', 'y', NULL, 1, 1);
        INSERT INTO answer VALUES ('a', 'i', '1', NULL, 1), ('b', 'i', '2', 0, NULL), ('d', 'j', '3', 0, 0);
        """)
    #expect(
      try Self.queue(bench) == [
        ["delete", "answer", "a"], ["delete", "answer", "d"], ["delete", "inspection", "j"],
        ["insert", "inspection", "i"], ["insert", "answer", "b"],
      ])
    #expect(try bench.read("SELECT count(*) FROM answer WHERE IsDirty = 1") == [[3]])
    let (text, session) = try await bench.uploadText()
    #expect(!text.contains("IsD") && !text.contains(#""y""#))
    try await bench.accept(session)
    #expect(try bench.read("SELECT id, IsDirty, IsDeleted FROM inspection") == [["i", 0, 0]])
    #expect(try bench.read("SELECT id, IsDirty, IsDeleted FROM answer") == [["b", 0, .null]])
  }

  @Test("a trigger of the flag columns that is missing is put back")
  func restoresTriggers() async throws {
    let bench = try await Self.bench()
    let name = try #require(
      try bench.read("SELECT name FROM sqlite_schema WHERE name LIKE 'salvor_ms_%'").first?.first?.string)
    try bench.write("DROP TRIGGER \(name)")
    let notices = try await bench.store.beginSession(groups: nil).notices
    #expect(notices.count == 1 && notices[0].contains(name))
  }

  @Test("a mark with twenty thousand rows below it is one request")
  func marksLargeTrees() async throws {
    let count = 20_000
    let bench = try await Self.bench()
    try bench.write(
      """
      CREATE INDEX answer_inspection ON answer (inspection_id); CREATE INDEX comment_answer ON comment (answer_id);
      INSERT INTO inspection (id) VALUES ('j');
      WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n WHERE v < \(count))
        INSERT INTO answer (id, inspection_id) SELECT 'j' || v, 'j' FROM n
      """)
    let connection = try SQLiteConnection(bench.path)
    try connection.execute("UPDATE inspection SET IsDeleted = 1 WHERE id = 'j'")
    #expect(try connection.rows("SELECT count(*) FROM answer WHERE ifnull(IsDeleted, 0) = 0") == [[2]])
    #expect(try await bench.store.status().queued == Int64(count) + 2)
    try connection.execute("UPDATE inspection SET IsDeleted = 0 WHERE id = 'j'")
    #expect(try connection.rows("SELECT count(*) FROM answer WHERE IsDeleted") == [[0]])
    #expect(try await bench.store.status().queued == Int64(count) + 1)
  }
}

extension SQLiteClientStore {
  /// The rows of each table as the server last confirmed them, decoded from the log; in the order of their keys.
  func bases() throws -> [String: [SlotRow]] {
    let context = try opened()
    return try context.connection.rolledBack {
      try RequestSorting(context).sort()
      let index = try LogIndex(context)
      var found: [String: [SlotRow]] = [:]
      for table in context.catalog.tables {
        var rows: [Key: SlotRow] = [:]
        let columns = (0..<table.columns.count).map(table.tableColumn).joined(separator: ", ")
        for row in try context.connection.rows(
          "SELECT \(columns) FROM \(quoted(table.name)) x WHERE 1\(table.andUnmarked())")
        {
          rows[Array(row.prefix(table.keyCount))] = row
        }
        try index.eachRow(of: table) { key in rows[key] = try index.timeline(table, key).base }
        found[table.name] = rows.sorted { keyPrecedes($0.key, $1.key) }.map(\.value)
      }
      return found
    }
  }
}
