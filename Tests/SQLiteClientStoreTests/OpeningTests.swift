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

@Suite("An opening looks only where something has changed since the last one (decision 119)")
struct OpeningTests {
  private static let schema = Schema(tables: [
    Table(
      "area", primaryKey: ["id"], columns: [Column("id", .text), Column("name", .text, nullable: true)],
      unique: [["name"]]),
    Table(
      "visit", primaryKey: ["area_id", "line"],
      columns: [
        Column("area_id", .text), Column("line", .integer), Column("note", .text, nullable: true),
        Column("IsDirty", .boolean, nullable: true), Column("IsDeleted", .boolean, nullable: true),
      ],
      references: [Reference(column: "area_id", table: "area", onDelete: .cascade)],
      flags: FlagColumns(dirty: "IsDirty", deleted: "IsDeleted")),
  ])

  private static func open(_ path: String, _ schema: Schema = schema) async throws -> ClientOpening {
    let store = SQLiteClientStore(path: path)
    defer { Task { await store.close() } }
    let opening = try await store.open(ClientSetup(schema: schema, principal: "anna"))
    await store.close()
    return opening
  }

  private static func opened() async throws -> String {
    let path = Scratch.path()
    _ = try await open(path)
    #expect(try isKnown(path))
    return path
  }

  private static func isKnown(_ path: String, _ schema: Schema = schema) throws -> Bool {
    try OpenedBefore.find(schema, on: SQLiteConnection(path)) != nil
  }

  private static func schemaText(_ path: String) throws -> String {
    try SQLiteConnection(path).rows("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").map {
      $0.map(\.description).joined(separator: "|")
    }.joined(separator: "\n")
  }

  @Test("what was written between a quiet session and the next opening of the same store is sent")
  func quietBeforeReopening() async throws {
    let path = try await Self.opened()
    let store = SQLiteClientStore(path: path)
    let setup = ClientSetup(schema: Self.schema, principal: "anna")
    _ = try await store.open(setup)
    #expect(try await store.beginSession(groups: nil).upload == nil)
    await store.endSession()
    await store.close()
    let application = try SQLiteConnection(path)
    try application.execute("INSERT INTO area VALUES ('n', 'north')")
    application.close()
    _ = try await store.open(setup)
    #expect(try await store.beginSession(groups: nil).upload != nil)
    await store.endSession()
    await store.close()
  }

  @Test("a link to a database is the same database: lock, identity file and backups are beside the file it leads to")
  func link() async throws {
    let (path, name) = (Scratch.path(), Scratch.path())
    // The file is not there yet, and a link leads to a link.
    let middle = Scratch.path()
    for (from, to) in [(name, middle), (middle, String(path.split(separator: "/").last ?? ""))] {
      try #require(symlink(to, from) == 0)
    }
    _ = try await Self.open(name)
    #expect(try Self.isKnown(path))
    let byLink = SQLiteClientStore(path: name)
    #expect(byLink.databaseFile == path)
    #expect(SQLiteClientStore(path: path).databaseFile == path)
    // Who has it open by one name keeps others out by the other.
    _ = try await byLink.open(ClientSetup(schema: Self.schema, principal: "anna"))
    let other = SQLiteClientStore(path: path)
    _ = try await other.open(ClientSetup(schema: Self.schema, principal: "anna"))
    _ = try await byLink.beginSession(groups: nil)
    await #expect(throws: SalvorError.self) { _ = try await other.beginSession(groups: nil) }
    #expect(access(SessionLock.path(of: path), F_OK) == 0)
    #expect(access(SessionLock.path(of: name), F_OK) != 0)
    await byLink.close()
    await other.close()
  }

  @Test("an opening of a file in which nothing changed looks at nothing and writes nothing")
  func nothingChanged() async throws {
    let path = try await Self.opened()
    let application = try SQLiteConnection(path)
    try application.execute("INSERT INTO area VALUES ('a', 'north')")
    let version = try application.integer("PRAGMA data_version")
    #expect(try await Self.open(path) == ClientOpening())
    #expect(try application.integer("PRAGMA data_version") == version)
    // What was captured meanwhile is there as ever.
    #expect(try application.integer("SELECT queued_changes FROM salvor_status") == 1)
  }

  @Test(
    "whatever changes the file's schema makes the next opening look again, and what belongs to Salvor is put back",
    arguments: [
      "DROP TRIGGER salvor_air_1",
      "DROP VIEW salvor_status",
      "DROP TABLE salvor_outstanding",
      "DROP TRIGGER salvor_subscription_insert",
      "CREATE TRIGGER late AFTER INSERT ON area BEGIN SELECT 1; END",
      // SQLite's schema_version stays what it was.
      "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'BEGIN', 'BEGIN SELECT 1;') WHERE name = 'salvor_air_1'",
      "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'salvor_air_1'",
    ])
  func changedSchema(sql: String) async throws {
    let path = try await Self.opened()
    let whole = try Self.schemaText(path)
    try SQLiteConnection(path).execute(sql)
    let altered = try Self.schemaText(path)
    #expect(altered != whole)
    #expect(try !Self.isKnown(path))
    _ = try await Self.open(path)
    #expect(try Self.isKnown(path))
    if !sql.contains("late") { #expect(try Self.schemaText(path) == whole) }
  }

  @Test("a table of the application's own that is altered or made anew is looked at")
  func changedTables() async throws {
    let path = try await Self.opened()
    try SQLiteConnection(path).execute("ALTER TABLE area ADD COLUMN own TEXT")
    #expect(try !Self.isKnown(path))
    _ = try await Self.open(path)
    #expect(try Self.isKnown(path))
    try SQLiteConnection(path).execute("ALTER TABLE area DROP COLUMN own")
    #expect(try !Self.isKnown(path))
    _ = try await Self.open(path)
    try SQLiteConnection(path).execute("DROP TABLE visit")
    #expect(try !Self.isKnown(path))
    #expect(try await Self.open(path).notices.contains { $0.contains("visit") })
  }

  @Test("another configuration, another release and another state of the tables' numbers are looked at")
  func changedOtherwise() async throws {
    let path = try await Self.opened()
    var wider = Self.schema
    wider.tables[0].columns.append(Column("size", .integer, nullable: true))
    #expect(try !Self.isKnown(path, wider))
    #expect(try await Self.open(path, wider).addedColumns == ["area.size"])
    #expect(try Self.isKnown(path, wider))

    let connection = try SQLiteConnection(path)
    let mark = try #require(try connection.text(.opened))
    #expect(mark.hasPrefix(salvorVersion))
    try connection.setState(.opened, "0.0.9" + mark.dropFirst(salvorVersion.count))
    #expect(try !Self.isKnown(path, wider))
    _ = try await Self.open(path, wider)
    #expect(try connection.text(.opened) == mark)

    try connection.execute("UPDATE salvor_column SET name = 'other' WHERE name = 'size'")
    #expect(try !Self.isKnown(path, wider))
  }

  @Test("a file that was written from a dump of another one is looked at, whatever its schema_version is")
  func dumped() async throws {
    let path = try await Self.opened()
    let connection = try SQLiteConnection(path)
    let version = try connection.schemaVersion()
    let triggers = try connection.rows(
      "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'area' ORDER BY rowid")
    // A dump has the triggers in another order: SQLite fires the newest first.
    for row in triggers { try connection.execute("DROP TRIGGER \(row[0].string ?? "")") }
    for row in triggers.reversed() { try connection.execute(row[1].string ?? "") }
    try connection.execute("PRAGMA schema_version = \(version)")
    #expect(try !Self.isKnown(path))
    _ = try await Self.open(path)
    let now = try SQLiteConnection(path).rows(
      "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'area' ORDER BY rowid")
    #expect(now == triggers)
  }

  @Test("what an OR IGNORE left in Salvor's own tables goes with the next opening all the same")
  func leftovers() async throws {
    let path = try await Self.opened()
    let application = try SQLiteConnection(path)
    try application.execute("INSERT INTO area VALUES ('a', 'north'); INSERT OR IGNORE INTO area VALUES ('b', 'north')")
    #expect(try application.integer("SELECT count(*) FROM salvor_pending_1") ?? 0 > 0)
    _ = try await Self.open(path)
    #expect(try application.integer("SELECT count(*) FROM salvor_pending_1") == 0)
  }

  @Test("a table that lacks a constraint, since rows here break it, is tried at each opening")
  func constraints() async throws {
    let path = try await Self.opened()
    try SQLiteConnection(path).execute("INSERT INTO area VALUES ('a', NULL)")
    var stricter = Self.schema
    stricter.tables[0].columns[1].nullable = false
    #expect(try await !Self.open(path, stricter).notices.isEmpty)
    #expect(try !Self.isKnown(path, stricter))
    try SQLiteConnection(path).execute("UPDATE area SET name = 'north'")
    #expect(try await Self.open(path, stricter).notices.isEmpty)
    #expect(try Self.isKnown(path, stricter))
  }

  @Test("how a file is brought in line is what the revision stands for")
  func revision() async throws {
    let path = try await Self.opened()
    let digest = SalvorStorage.digest(Array(try Self.schemaText(path).utf8))
    // Where tables, triggers or views of Salvor's have changed: raise OpenedBefore.revision, and put the digest here.
    #expect("\(OpenedBefore.revision) \(digest)" == "18 b88787482b950dca8de2e5305beca66e")
  }
}
