import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

@Suite("Migrations of the application's own, and detaching (semantics 3)")
struct MigrationTests {
  private static let captureTriggers =
    "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND tbl_name NOT LIKE 'salvor\\_%' ESCAPE '\\'"

  private static let notes = Schema(tables: [
    Table(
      "folder", primaryKey: ["id"], columns: [Column("id", .text), Column("name", .text)]),
    Table(
      "note", primaryKey: ["id"],
      columns: [
        Column("id", .text), Column("folder_id", .text, nullable: true), Column("title", .text),
        Column("body", .text, nullable: true),
      ], references: [Reference(column: "folder_id", table: "folder", onDelete: .cascade)]),
  ])

  /// With rows that the server has, and one change that waits.
  private func bench() async throws -> StoreBench {
    var bench = try await StoreBench(Self.notes)
    _ = try await bench.download(
      full: ["folder", "note"],
      [
        ("folder", ["f1", "one"]), ("folder", ["f2", "two"]), ("note", ["n1", "f1", "a", .null]),
        ("note", ["n2", "f2", "b", "x"]), ("note", ["n3", .null, "c", "y"]),
      ])
    try bench.write("UPDATE note SET title = 'queued' WHERE id = 'n1'")
    return bench
  }

  /// The queue, as text.
  private func queue(_ store: SQLiteClientStore) async throws -> [String] {
    try await store.requests(in: [.queued], after: nil, limit: 100).map { entry in
      func text(_ values: [NamedValue]) -> String { values.map { "\($0.name)=\($0.value)" }.joined(separator: " ") }
      return "\(entry.operation.rawValue) \(entry.table) \(entry.key): \(text(entry.before)) > \(text(entry.after))"
    }
  }

  @Test(
    "tables made anew without a pause, as SQLite's manual says, neither fail nor lose", arguments: ["folder", "note"])
  func twelveSteps(table: String) async throws {
    let bench = try await bench()
    let connection = try SQLiteConnection(bench.path, busyTimeoutMilliseconds: 120_000)
    let columns =
      table == "folder"
      ? "id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL"
      : "id TEXT NOT NULL PRIMARY KEY, folder_id TEXT REFERENCES folder (id) ON DELETE CASCADE, title TEXT NOT NULL, body TEXT"
    let names = table == "folder" ? "id, name" : "id, folder_id, title, body"
    try connection.execute(
      """
      PRAGMA foreign_keys = OFF; BEGIN;
      CREATE TABLE new_one (\(columns), colour TEXT DEFAULT 'red');
      INSERT INTO new_one (\(names)) SELECT \(names) FROM \(table);
      DROP TABLE \(table); ALTER TABLE new_one RENAME TO \(table);
      CREATE INDEX mine ON \(table) (colour);
      COMMIT;
      """)
    // Before Salvor looks again, the application goes on.
    try bench.write("UPDATE folder SET name = 'later' WHERE id = 'f2'")
    let session = try await bench.store.beginSession(groups: nil)
    await bench.store.endSession()
    #expect(session.notices.contains { $0.contains("salvor_ai_") })
    #expect(try bench.read("SELECT name FROM salvor_unproven") == [[.text(table)]])
    #expect(try await queue(bench.store).contains { $0.contains("update note") && $0.contains("queued") })
    try bench.write("DELETE FROM folder WHERE id = 'f1'; UPDATE \(table) SET colour = 'blue'")
    let found = try await bench.store.requests(in: [.queued], after: nil, limit: 100)
    #expect(found.contains { $0.operation == .delete && $0.table == "folder" })
    #expect(found.contains { $0.operation == .delete && $0.table == "note" })
    #expect(try bench.read("SELECT DISTINCT colour FROM \(table)") == [["blue"]])
    // As a store that is opened anew finds it.
    _ = try await bench.store.open(ClientSetup(schema: bench.schema, principal: "anna"))
    #expect(try bench.isWhole())
  }

  @Test("a rename of a parent's table and back is in no trigger's way")
  func renamedAndBack() async throws {
    let bench = try await bench()
    try bench.write("ALTER TABLE folder RENAME TO other; ALTER TABLE other RENAME TO folder")
    let session = try await bench.store.beginSession(groups: nil)
    await bench.store.endSession()
    #expect(session.upload != nil)
  }

  @Test("on a fresh file the application's migration makes the tables itself")
  func freshFile() async throws {
    let path = Scratch.path()
    let store = SQLiteClientStore(path: path)
    var setup = ClientSetup(schema: Self.notes, principal: "anna")
    setup.pauses = true
    _ = try await store.open(setup)
    _ = try await store.pauseCapture()
    #expect(try await store.status().capturePausedSince != nil)
    let connection = try SQLiteConnection(path)
    try connection.execute(
      """
      CREATE TABLE folder (id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, mine INTEGER);
      INSERT INTO folder VALUES ('f', 'first', 7)
      """)
    let resumption = try await store.resumeCapture()
    #expect(resumption.inserts == 1)
    #expect(resumption.added == ["note"])
    #expect(try await queue(store).count == 1)
    // The second run finds a database that Salvor is in.
    _ = try await store.open(setup)
    #expect(try await store.status().capturePausedSince == nil)
    #expect(try connection.rows("SELECT mine FROM folder") == [[7]])
  }

  @Test(
    "columns, indexes and triggers of the application's own stay, however they are written, and say nothing to the server",
    arguments: ["colour", "\"colour\""])
  func ownColumns(name: String) async throws {
    var bench = try await bench()
    try bench.write(
      """
      ALTER TABLE folder ADD COLUMN \(name) TEXT; CREATE INDEX mine ON folder (colour);
      CREATE TRIGGER mine_too AFTER UPDATE OF colour ON folder BEGIN UPDATE folder SET colour = upper(NEW.colour) WHERE id = NEW.id AND colour <> upper(colour); END;
      UPDATE folder SET colour = 'red' WHERE id = 'f1';
      """)
    _ = try await bench.store.open(ClientSetup(schema: bench.schema, principal: "anna"))
    try bench.write("UPDATE folder SET colour = 'blue' WHERE id = 'f2'")
    #expect(try await queue(bench.store).allSatisfy { $0.contains("note") })
    let report = try await bench.download([("folder", ["f1", "uno"]), ("folder", ["f3", "three"])])
    #expect(report.upserts == 2)
    #expect(
      try bench.read("SELECT id, name, colour FROM folder ORDER BY id") == [
        ["f1", "uno", "RED"], ["f2", "two", "BLUE"], ["f3", "three", nil],
      ])
    #expect(try bench.read("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'mine%'") == [[2]])
  }

  @Test(
    "who watches hears of a table without Salvor's triggers: nothing captures what is written there (semantics 3)"
  )
  func watchedWithoutTriggers() async throws {
    let bench = try await bench()
    let counter = try await bench.store.captured(after: 0).counter
    #expect(try await bench.store.captured(after: counter).groups.isEmpty)
    let ours = "type = 'trigger' AND tbl_name = 'folder' AND name LIKE 'salvor%'"
    for row in try bench.read("SELECT name FROM sqlite_schema WHERE \(ours)") {
      try bench.write("DROP TRIGGER \(row[0].string ?? "")")
    }
    let found = try await bench.store.captured(after: counter)
    #expect(!found.groups.isEmpty && found.counter == counter)
    #expect(try await bench.store.captured(after: counter).groups.isEmpty)
  }

  @Test("a column of the application's own that every row must have a value for is refused by name")
  func ownColumnWithoutAValue() async throws {
    let path = Scratch.path()
    try SQLiteConnection(path).execute(
      "CREATE TABLE folder (id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, must INTEGER NOT NULL)")
    await #expect {
      _ = try await SQLiteClientStore(path: path).open(ClientSetup(schema: Self.notes, principal: "anna"))
    } throws: { ($0 as? SalvorError)?.code == .schemaRefused && "\($0)".contains("folder.must") }
  }

  @Test("what a migration does to rows is captured when it ends; what waited before waits on")
  func rows() async throws {
    let bench = try await bench()
    let since = try await bench.store.pauseCapture()
    #expect(try await bench.store.pauseCapture() == since)
    #expect(try await bench.store.status().capturePausedSince == since)
    #expect(try bench.read(Self.captureTriggers) == [[0]])
    try bench.write(
      """
      UPDATE note SET title = upper(title), body = NULL WHERE id <> 'n1'; UPDATE note SET title = 'again' WHERE id = 'n1';
      DELETE FROM note WHERE id = 'n3'; INSERT INTO folder VALUES ('f3', 'three');
      INSERT INTO note VALUES ('n4', 'f3', 'd', NULL); UPDATE folder SET name = name WHERE id = 'f1'
      """)
    let found = try await bench.store.resumeCapture()
    #expect(found.inserts == 2 && found.updates == 2 && found.deletes == 1)
    #expect(
      try await queue(bench.store) == [
        "update note [n1]: title=a > title=queued", "insert folder [f3]:  > id=f3 name=three",
        "insert note [n4]:  > id=n4 folder_id=f3 title=d body=null",
        "update note [n1]: title=queued > title=again", "update note [n2]: title=b body=x > title=B body=null",
        "delete note [n3]: id=n3 folder_id=null title=c body=y > ",
      ])
    #expect(try await bench.store.status().capturePausedSince == nil)
    #expect(try bench.read("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'salvor_paused%'") == [[0]])
    try bench.write("UPDATE note SET title = 'after' WHERE id = 'n2'")
    #expect(try await queue(bench.store).count == 7)
    let (text, session) = try await bench.uploadText()
    #expect(text.contains("again") && text.contains("after"))
    try await bench.accept(session)
    #expect(try await queue(bench.store) == [])
    #expect(try bench.isWhole())
  }

  @Test("a migration that changes nothing captures nothing")
  func nothing() async throws {
    let bench = try await bench()
    _ = try await bench.store.pauseCapture()
    try bench.write("CREATE TABLE mine (id); CREATE INDEX by_title ON note (title)")
    #expect(try await bench.store.resumeCapture() == CaptureResumption())
    #expect(try await queue(bench.store).count == 1)
  }

  @Test("everything but the status refuses while capture is paused, by name; a restart does not end it")
  func refusing() async throws {
    let bench = try await bench()
    let since = try await bench.store.pauseCapture()
    let paused = await #expect(throws: SalvorError.self) { try await bench.store.beginSession(groups: nil) }
    #expect(paused?.code == .capturePaused)
    #expect(paused?.code.exitCode == 2)
    // Half way through: a table is not there.
    try bench.write("ALTER TABLE note RENAME TO half_way")
    let other = SQLiteClientStore(path: bench.path)
    _ = try await other.open(ClientSetup(schema: Self.notes, principal: "anna"))
    #expect(try await other.status().capturePausedSince == since)
    #expect(try bench.read(Self.captureTriggers) == [[0]])
    let adopting = await #expect(throws: SalvorError.self) { try await other.adopt(SyncConfig(Self.notes)) }
    #expect(adopting?.code == .capturePaused)
    try bench.write("ALTER TABLE half_way RENAME TO note; DELETE FROM note WHERE id = 'n2'")
    #expect(try await other.resumeCapture().deletes == 1)
    let again = await #expect(throws: SalvorError.self) { try await other.resumeCapture() }
    #expect(again?.code == .usage)
    await other.close()
  }

  @Test("a column that the application adds itself is taken where its schema names it, with the values that rows got")
  func addedColumn() async throws {
    let bench = try await bench()
    try await bench.store.adopt(SyncConfig(Self.notes))
    var later = Self.notes
    later.version = 2
    later.tables[1].columns.append(Column("stars", .integer, defaultValue: 3))
    try bench.write("DELETE FROM note WHERE id = 'n3'")
    _ = try await bench.store.pauseCapture()
    try bench.write(
      "ALTER TABLE note ADD COLUMN stars INTEGER NOT NULL DEFAULT 3; UPDATE note SET stars = 5 WHERE id = 'n2'")
    let store = SQLiteClientStore(path: bench.path)
    _ = try await store.open(ClientSetup(schema: later, principal: "anna"))
    #expect(try await store.resumeCapture().updates == 1)
    #expect(
      try await queue(store) == [
        "update note [n1]: title=a > title=queued", "delete note [n3]: id=n3 folder_id=null title=c body=y stars=3 > ",
        "update note [n2]: stars=3 > stars=5",
      ])
    // The server does not know the column yet.
    let session = try await store.beginSession(groups: nil)
    #expect(session.upload != nil)
    await store.endSession()
    await store.close()
  }

  @Test("a table and a column that the application renames itself are followed by their declared rule")
  func renamed() async throws {
    let bench = try await bench()
    var later = Self.notes
    later.version = 2
    later.tables[1].name = "memo"
    later.tables[1].renamedFrom = ["note"]
    later.tables[1].columns[2] = Column("heading", .text, renamedFrom: ["title"])
    _ = try await bench.store.pauseCapture()
    try bench.write(
      "ALTER TABLE note RENAME TO memo; ALTER TABLE memo RENAME COLUMN title TO heading; UPDATE memo SET heading = 'z' WHERE id = 'n2'"
    )
    let store = SQLiteClientStore(path: bench.path)
    _ = try await store.open(ClientSetup(schema: later, principal: "anna"))
    #expect(try await store.resumeCapture().updates == 1)
    #expect(
      try await queue(store) == [
        "update memo [n1]: heading=a > heading=queued", "update memo [n2]: heading=b > heading=z",
      ])
    try bench.write("UPDATE memo SET heading = 'later' WHERE id = 'n2'")
    #expect(try await queue(store).count == 3)
    await store.close()
  }

  @Test("what the schema does not allow is refused by name, and capture stays paused")
  func refused() async throws {
    let bench = try await bench()
    let since = try await bench.store.pauseCapture()
    // A column of the application's own is allowed, but not one that the server's rows would need a value for.
    try bench.write(
      """
      ALTER TABLE note RENAME TO former;
      CREATE TABLE note (id TEXT NOT NULL PRIMARY KEY, folder_id TEXT REFERENCES folder (id) ON DELETE CASCADE,
        title TEXT NOT NULL, body TEXT, colour TEXT NOT NULL);
      INSERT INTO note SELECT id, folder_id, title, body, 'red' FROM former;
      DROP TABLE former;
      """)
    let error = await #expect(throws: SalvorError.self) { try await bench.store.resumeCapture() }
    #expect(error?.code == .schemaRefused)
    #expect(error?.message.contains("note.colour") == true)
    #expect(try await bench.store.status().capturePausedSince == since)
    try bench.write("ALTER TABLE note DROP COLUMN colour")
    #expect(try await bench.store.resumeCapture() == CaptureResumption())
  }

  @Test("a table or column that is gone without a declared rule is refused by name, and counts as nobody's delete")
  func losses() async throws {
    let bench = try await bench()
    try await bench.store.adopt(SyncConfig(Self.notes))
    _ = try await bench.store.pauseCapture()
    try bench.write("ALTER TABLE note RENAME TO memo")
    var error = await #expect(throws: SalvorError.self) { try await bench.store.resumeCapture() }
    #expect(error?.code == .schemaRefused && error?.message.contains("note is not there") == true)
    try bench.write("ALTER TABLE memo RENAME TO note; ALTER TABLE note RENAME COLUMN body TO text")
    error = await #expect(throws: SalvorError.self) { try await bench.store.resumeCapture() }
    #expect(error?.code == .schemaRefused && error?.message.contains("note.body is not there") == true)
    try bench.write("ALTER TABLE note RENAME COLUMN text TO body")
    #expect(try await bench.store.resumeCapture() == CaptureResumption())
    #expect(try await queue(bench.store).count == 1)
  }

  // MARK: Detaching

  @Test(
    "detaching leaves plain tables and nothing of Salvor's; it refuses while requests wait, unless they are discarded")
  func detaching() async throws {
    let bench = try await bench()
    let plan = try await bench.store.planDetachment()
    #expect(plan.queued == 1 && plan.unsynced == 1)
    #expect(plan.files.contains(bench.path + ".salvor-identity"))
    let error = await #expect(throws: SalvorError.self) { try await bench.store.detach(discarding: false) }
    #expect(error?.code == .usage)
    #expect(error?.message.contains("1 wait") == true)
    #expect(try bench.read("SELECT count(*) FROM salvor_queue") == [[1]])
    _ = try await bench.store.detach(discarding: true)
    #expect(try bench.read("SELECT name FROM sqlite_schema WHERE name LIKE '%salvor%' OR sql LIKE '%salvor%'") == [])
    #expect(try bench.read("SELECT title FROM note ORDER BY id") == [["queued"], ["b"], ["c"]])
    for suffix in [".salvor-identity", ".salvor-lock", ".salvor-recovery"] {
      #expect(access(bench.path + suffix, F_OK) != 0, "\(suffix)")
    }
    try bench.write("DELETE FROM folder WHERE id = 'f1'")
    #expect(try bench.read("SELECT count(*) FROM note") == [[2]])
    #expect(try bench.isWhole())
  }

  @Test("a detached database is taken in again only by who says so, each row as a new one; others hear of it by name")
  func detachedTwice() async throws {
    let bench = try await bench()
    let open = SQLiteClientStore(path: bench.path)
    _ = try await open.open(ClientSetup(schema: Self.notes, principal: "anna"))
    _ = try await bench.store.detach(discarding: true)
    let again = SQLiteClientStore(path: bench.path)
    for _ in 0..<2 {
      let error = await #expect(throws: SalvorError.self) {
        try await again.open(ClientSetup(schema: Self.notes, principal: "anna"))
      }
      #expect(error?.code == .detached && error?.code.exitCode == 2)
    }
    // One that had it open all the time.
    for _ in 0..<2 {
      let error = await #expect(throws: SalvorError.self) { try await open.beginSession(groups: nil) }
      #expect(error?.code == .detached)
      let asking = await #expect(throws: SalvorError.self) { try await open.status() }
      #expect(asking?.code == .detached)
    }
    await open.close()
    #expect(try bench.read("SELECT name FROM sqlite_schema WHERE name LIKE '%salvor%'") == [])
    let setup = ClientSetup(schema: Self.notes, principal: "anna", reattaches: true)
    #expect(try await again.open(setup).adoptedRows == 5)
    #expect(try await again.status().queued == 5)
    await again.close()
    // It is as any other from here on.
    _ = try await again.open(ClientSetup(schema: Self.notes, principal: "anna"))
    await again.close()
    #expect(access(bench.path + ".salvor-detached", F_OK) != 0)
  }

  @Test("detaching with nothing that waits needs no consent")
  func detachingInStep() async throws {
    let bench = try await bench()
    try await bench.accept(try await bench.store.beginSession(groups: nil))
    let plan = try await bench.store.detach(discarding: false)
    #expect(plan.unsynced == 0)
    #expect(plan.objects > 10)
    #expect(try bench.read("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'salvor%'") == [[0]])
  }
}
