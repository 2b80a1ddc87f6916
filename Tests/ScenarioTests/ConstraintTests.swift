import SQLiteSupport
import SalvorModel
import Testing

@Suite("Constraints that change with the schema (semantics 6)")
struct ConstraintTests {
  /// - Parameters:
  ///   - rules: members of the table.
  ///   - note: its type.
  private static func schema(_ version: Int, _ rules: String, note: String = "text?") -> String {
    """
    {
      version: \(version),
      tables: {
        site: { primaryKey: "id", columns: { id: "text", name: "text", seats: "integer = 0", note: "\(note)" }, \(rules) },
        visit: { primaryKey: "id", columns: { id: "text", site_id: "text" },
                 references: { site_id: { table: "site", onDelete: "cascade" } } },
      },
    }
    """
  }

  private static let strict = "unique: [[\"name\"]], check: [\"seats < 100\"]"

  /// As the operator migrates the server's table, by SQLite's own recipe.
  private func migrate(_ fleet: Fleet, _ constraints: String, note: String = "TEXT") throws {
    let connection = try SQLiteConnection(fleet.serverPath)
    try connection.execute(
      """
      PRAGMA foreign_keys = OFF; PRAGMA legacy_alter_table = ON; BEGIN;
      CREATE TABLE made (id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, seats INTEGER NOT NULL DEFAULT 0, note \(note)\(constraints));
      INSERT INTO made SELECT id, name, seats, note FROM site; DROP TABLE site; ALTER TABLE made RENAME TO site; COMMIT
      """)
  }

  private func fleet(_ schema: String) async throws -> (Fleet, Device, Device) {
    let fleet = try Fleet(schema: schema)
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site (id, name) VALUES ('s1', 'a'), ('s2', 'b'); INSERT INTO visit VALUES ('v1', 's1'), ('v2', 's2')"
    )
    let devices = (try fleet.device("a"), try fleet.device("b"))
    #expect(try await devices.0.sync().error == nil)
    #expect(try await devices.1.sync().error == nil)
    return (fleet, devices.0, devices.1)
  }

  @Test("what the schema does not ask for any more does not stand in a row's way on any device")
  func relaxed() async throws {
    let (fleet, a, b) = try await fleet(Self.schema(1, Self.strict, note: "text = 'none'"))
    try await a.write("UPDATE site SET seats = 5 WHERE id = 's2'", "CREATE INDEX own ON site (seats)")
    let rowids = try a.connection().rows("SELECT rowid, id FROM site ORDER BY rowid")
    await fleet.stop()
    try migrate(fleet, "")
    fleet.schemaText = Self.schema(2, "")
    try await fleet.start()
    try fleet.serverConnection().execute(
      "UPDATE site SET seats = 700, note = NULL WHERE id = 's1'; INSERT INTO site (id, name) VALUES ('s3', 'a')")
    for device in [a, b, a] {
      let report = try await device.sync()
      #expect(report.error == nil && report.refused == 0 && report.displaced == 0)
    }
    try fleet.expectEqual(["site", "visit"], [a, b])
    try await a.write("INSERT INTO site (id, name, seats) VALUES ('s4', 'a', 1000)")
    #expect(try await a.sync().uploaded == 1)
    #expect(try await b.sync().error == nil)
    try fleet.expectEqual(["site", "visit"], [a, b])
    // The application's index and the rows' numbers are what they were.
    #expect(try a.connection().rows("SELECT rowid, id FROM site WHERE id < 's3' ORDER BY rowid") == rowids)
    #expect(try a.connection().integer("SELECT count(*) FROM sqlite_schema WHERE name = 'own'") == 1)
  }

  @Test(
    "a table with a column of the application's own follows the constraints, too, and keeps the column",
    arguments: ["extra integer", "\"extra\" INTEGER NOT NULL DEFAULT 7"])
  func relaxedBesideOwnColumns(own: String) async throws {
    let (fleet, a, _) = try await fleet(Self.schema(1, Self.strict, note: "text = 'none'"))
    try await a.write("ALTER TABLE site ADD COLUMN \(own)", "UPDATE site SET extra = 9 WHERE id = 's1'")
    for _ in 0..<2 { #expect(try await a.sync().error == nil) }
    await fleet.stop()
    try migrate(fleet, "")
    fleet.schemaText = Self.schema(2, "")
    try await fleet.start()
    try fleet.serverConnection().execute(
      "UPDATE site SET seats = 700, note = NULL WHERE id = 's1'; INSERT INTO site (id, name) VALUES ('s3', 'a')")
    for _ in 0..<2 { #expect(try await a.sync().error == nil) }
    let rows = "SELECT id, name, seats, note FROM site ORDER BY id"
    #expect(try a.connection().rows(rows) == fleet.serverConnection().rows(rows))
    #expect(try a.connection().rows("SELECT extra FROM site WHERE id = 's1'") == [[9]])
  }

  @Test("what the schema asks for now holds on a device as soon as its rows satisfy it; until then the server refuses")
  func tightened() async throws {
    let (fleet, a, b) = try await fleet(Self.schema(1, ""))
    try await a.write(
      "INSERT INTO site (id, name, seats) VALUES ('s9', 'a', 200)", "INSERT INTO visit VALUES ('v9', 's9')")
    await fleet.stop()
    try migrate(fleet, ", UNIQUE (name), CHECK (seats < 100)")
    fleet.schemaText = Self.schema(2, Self.strict)
    try await fleet.start()
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.refused == 2)
    #expect(report.notices.contains { $0.contains("site") && $0.contains("CHECK (seats < 100)") })
    #expect(try await b.sync().error == nil)
    await #expect(throws: SalvorError.self) { try await b.write("INSERT INTO site (id, name) VALUES ('s8', 'a')") }
    await #expect(throws: SalvorError.self) { try await b.write("UPDATE site SET seats = 100") }
    try await a.write("UPDATE site SET name = 'c', seats = 20 WHERE id = 's9'")
    let fixed = try await a.sync()
    #expect(fixed.error == nil && fixed.refused == 0)
    // The next opening finds rows that satisfy it.
    await a.close()
    await #expect(throws: SalvorError.self) { try await a.write("UPDATE site SET seats = 100") }
    #expect(try await a.sync().error == nil)
    #expect(try await b.sync().error == nil)
    try fleet.expectEqual(["site", "visit"], [a, b])
  }

  @Test("a partial unique index of the application's stands for no constraint of the schema")
  func partialIndex() async throws {
    let (fleet, a, _) = try await fleet(Self.schema(1, ""))
    try await a.write(
      "CREATE UNIQUE INDEX own ON site (name) WHERE seats > 1000", "INSERT INTO site (id, name) VALUES ('s9', 'a')")
    await fleet.stop()
    try migrate(fleet, ", UNIQUE (name)")
    fleet.schemaText = Self.schema(2, "unique: [[\"name\"]]")
    try await fleet.start()
    let report = try await a.sync()
    #expect(report.error == nil && report.refused == 1)
    #expect(report.notices.contains { $0.contains("UNIQUE (name)") })
    #expect(try a.connection().integer("SELECT count(*) FROM sqlite_schema WHERE name = 'own'") == 1)
  }

  @Test("a server does not take a schema that its own tables do not enforce: it is refused by name")
  func unenforced() async throws {
    let (fleet, _, _) = try await fleet(Self.schema(1, ""))
    for (schema, named) in [
      (Self.schema(2, "check: [\"seats < 100\"]"), "CHECK (seats < 100)"),
      (Self.schema(2, "", note: "text"), "site.note"),
    ] {
      await fleet.stop()
      fleet.schemaText = schema
      let error = await #expect(throws: SalvorError.self) { try await fleet.start() }
      #expect(error?.code == .schemaRefused)
      #expect(error?.message.contains(named) == true)
    }
    // What the operator has written by hand counts, however it is spelt.
    try migrate(fleet, ", constraint few check(Seats<100)")
    fleet.schemaText = Self.schema(2, "check: [\"seats < 100\"]")
    try await fleet.start()
  }

  @Test("a device whose own table is in the way of the server's falls through to a person, who is told what to do")
  func inTheWay() async throws {
    let (fleet, _, _) = try await fleet(Self.schema(1, ""))
    let ahead = try fleet.device(
      "ahead", schema: Self.schema(9, "").replacing("note: \"text?\"", "note: \"text?\", phone: \"text?\""))
    #expect(try await ahead.sync().error == nil)
    try await ahead.write("UPDATE site SET phone = '1' WHERE id = 's1'")
    fleet.schemaText = Self.schema(2, "").replacing("note: \"text?\"", "note: \"text?\", phone: \"integer?\"")
    try await fleet.restart()
    let report = try await ahead.sync()
    #expect(report.outcome == .recoveryRequired)
    #expect(report.recovery?.reason == .schemaIncompatible)
    let status = try await ahead.open().status()
    let token = try #require(status.recovery.token)
    #expect(try await ahead.sync().outcome == .recoveryRequired)
    let recovered = await (try ahead.open()).recover(strategy: "recreate", token: token)
    #expect(recovered.error == nil)
    #expect(try ahead.rows("visit") == fleet.serverRows("visit"))
  }

  // MARK: The server's own words

  private static let notes = """
    { tables: { visit: { primaryKey: "id", columns: { id: "text", note: "text?", seats: "integer = 0" } } } }
    """

  /// A server whose own trigger and CHECK, which no device knows, refuse rows.
  private func outspoken(_ options: String) async throws -> (Fleet, Device) {
    let fleet = try Fleet(schema: Self.notes, serverOptions: "authentication: { module: \"none\" }, " + options)
    try SQLiteConnection(fleet.serverPath).execute(
      """
      CREATE TABLE visit (id TEXT NOT NULL PRIMARY KEY, note TEXT, seats INTEGER NOT NULL DEFAULT 0,
        CONSTRAINT few_seats CHECK (seats < 100));
      CREATE TRIGGER own_note BEFORE INSERT ON visit WHEN NEW.note IS NULL BEGIN
        SELECT RAISE(ABORT, 'note is required'); END
      """)
    try await fleet.start()
    let device = try fleet.device("a")
    try await device.write(
      "INSERT INTO visit VALUES ('v1', NULL, 1)", "INSERT INTO visit VALUES ('v2', 'secret', 1000)",
      "INSERT INTO visit VALUES ('v3', 'ok', 2)")
    let report = try await device.sync()
    #expect(report.error == nil && report.uploaded == 1 && report.refused == 2)
    #expect(try fleet.serverRows("visit") == [["v3", "ok", 2]])
    #expect(try device.rows("visit") == [["v1", .null, 1], ["v2", "secret", 1000], ["v3", "ok", 2]])
    return (fleet, device)
  }

  @Test("what the server's own trigger and constraint say is in the archive entry, and no value is (semantics 8)")
  func serverMessages() async throws {
    let (fleet, device) = try await outspoken("")
    let archive = try await device.open().errorArchive()
    #expect(archive.map(\.reason) == ["constraint", "constraint"])
    #expect(archive[0].message?.contains("note is required") == true)
    #expect(archive[1].message?.contains("few_seats") == true)
    #expect(archive.allSatisfy { $0.message?.contains("secret") == false })
    await fleet.stop()
  }

  @Test("messages: \"withhold\" keeps the words of the server's trigger and constraint on the server (semantics 8)")
  func withheldMessages() async throws {
    let (fleet, device) = try await outspoken("messages: \"withhold\",")
    let messages = try await device.open().errorArchive().compactMap(\.message)
    #expect(messages.count == 2)
    #expect(messages.allSatisfy { !$0.contains("note is") && !$0.contains("few_seats") && $0.contains("visit") })
    await fleet.stop()
  }

  @Test("a trigger that rolls the server's transaction back is named with the way out, and nothing is lost")
  func rolledBack() async throws {
    let fleet = try Fleet(schema: Self.notes)
    try SQLiteConnection(fleet.serverPath).execute(
      """
      CREATE TABLE visit (id TEXT NOT NULL PRIMARY KEY, note TEXT, seats INTEGER NOT NULL DEFAULT 0);
      CREATE TRIGGER own_note BEFORE INSERT ON visit WHEN NEW.note IS NULL BEGIN
        SELECT RAISE(ROLLBACK, 'note is required'); END
      """)
    try await fleet.start()
    let device = try fleet.device("a")
    try await device.write("INSERT INTO visit VALUES ('v1', 'ok', 1)", "INSERT INTO visit VALUES ('v2', NULL, 1)")
    let report = try await device.sync()
    #expect(report.error?.message.contains("RAISE(ABORT") == true)
    #expect(try fleet.serverRows("visit") == [])
    try fleet.serverConnection().execute("DROP TRIGGER own_note")
    #expect(try await device.sync().uploaded == 2)
    #expect(try fleet.serverRows("visit") == device.rows("visit"))
    await fleet.stop()
  }
}
