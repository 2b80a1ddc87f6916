import SQLiteSupport
import SalvorModel
import Testing

@Suite("Triggers of the server's own that take a change back, or keep it from the change log (semantics 4, 7, 11)")
struct ServerTriggerTests {
  private static let schema = """
    { tables: {
      visit: { primaryKey: "id", columns: { id: "text", note: "text?", seats: "integer = 0" } },
      line: { primaryKey: "id", columns: { id: "text", visit_id: "text" }, references: { visit_id: "visit" } },
    } }
    """

  private func fleet(_ triggers: String, _ rows: String? = nil) async throws -> Fleet {
    let fleet = try Fleet(schema: Self.schema)
    try await fleet.start()
    let connection = try fleet.serverConnection()
    try connection.execute("CREATE TABLE told (what TEXT)")
    if let rows { try connection.execute("INSERT INTO visit VALUES \(rows)") }
    try connection.execute(triggers)
    return fleet
  }

  /// What takes a change back, the change, and the trigger.
  static let cases: [(trigger: String, write: String, name: String)] = [
    (
      "CREATE TRIGGER unwanted BEFORE INSERT ON visit WHEN NEW.note = 'mine' BEGIN SELECT RAISE(IGNORE); END",
      "INSERT INTO visit VALUES ('n', 'mine', 0)", "unwanted"
    ),
    (
      """
      CREATE TRIGGER elsewhere BEFORE INSERT ON visit WHEN NEW.note = 'mine' BEGIN
        INSERT INTO told VALUES ('insert'); SELECT RAISE(IGNORE);
      END
      """, "INSERT INTO visit VALUES ('n', 'mine', 0)", "elsewhere"
    ),
    (
      "CREATE TRIGGER sweeps AFTER INSERT ON visit WHEN NEW.note = 'mine' BEGIN DELETE FROM visit WHERE id = NEW.id; END",
      "INSERT INTO visit VALUES ('n', 'mine', 0)", "sweeps"
    ),
    (
      "CREATE TRIGGER frozen BEFORE UPDATE OF note ON visit BEGIN SELECT RAISE(IGNORE); END",
      "UPDATE visit SET note = 'mine' WHERE id = 'v'", "frozen"
    ),
    (
      """
      CREATE TRIGGER back AFTER UPDATE ON visit WHEN NEW.note = 'mine' BEGIN
        INSERT INTO told VALUES ('update'); UPDATE visit SET note = OLD.note WHERE id = OLD.id;
      END
      """, "UPDATE visit SET note = 'mine' WHERE id = 'v'", "back"
    ),
    (
      "CREATE TRIGGER keeps BEFORE DELETE ON visit BEGIN SELECT RAISE(IGNORE); END", "DELETE FROM visit WHERE id = 'v'",
      "keeps"
    ),
    (
      """
      CREATE TRIGGER again AFTER DELETE ON visit BEGIN
        INSERT INTO visit (id, note, seats) VALUES (OLD.id, OLD.note, OLD.seats);
      END
      """, "DELETE FROM visit WHERE id = 'v'", "again"
    ),
  ]

  @Test(
    "A change of which nothing reaches the server's table is refused, with the trigger's name, and leaves nothing there (semantics 7, 11.2)",
    arguments: 0..<7, [0, 40, 3000])
  func takenBack(which: Int, others: Int) async throws {
    let (trigger, write, name) = Self.cases[which]
    let fleet = try await fleet(trigger, "('v', 'here', 0)")
    let device = try fleet.device("a")
    #expect(try await device.sync().error == nil)
    var writes = [write]
    if others > 0 {
      let rows = (0..<others).map { "('o\($0)', '\(String(repeating: "x", count: 40))', 0)" }
      writes.insert("INSERT INTO visit VALUES \(rows[..<(others / 2)].joined(separator: ", "))", at: 0)
      writes.append("INSERT INTO visit VALUES \(rows[(others / 2)...].joined(separator: ", "))")
    }
    for write in writes { try await device.write(write) }
    let shown = try device.rows("visit")
    let report = try await device.sync()
    #expect(report.refused == 1 && report.uploaded == others)
    let entry = try #require(try await device.open().errorArchive().first)
    #expect(entry.reason == "constraint")
    #expect(entry.message?.contains(name) == true && entry.message?.contains("visit") == true)
    // Nothing that a person wrote is gone: the row shows it, and the archive has it.
    #expect(try device.rows("visit") == shown)
    #expect(try fleet.serverRows("told") == [])
    // Without the trigger it is sent again.
    try fleet.serverConnection().execute("DROP TRIGGER \(name)")
    _ = try await device.open().retry([entry.id])
    #expect(try await device.sync().refused == 0)
    try fleet.expectEqual(["visit"], [device])
    await fleet.stop()
  }

  @Test("What needs a row that the server's trigger left out is blocked, not displaced (semantics 7)")
  func blocked() async throws {
    let fleet = try await fleet(Self.cases[0].trigger)
    let device = try fleet.device("a")
    try await device.write("INSERT INTO visit VALUES ('n', 'mine', 0)", "INSERT INTO line VALUES ('l', 'n')")
    let report = try await device.sync()
    #expect(report.refused == 2 && report.displaced == 0)
    #expect(try await device.open().errorArchive().map(\.state) == [.refused, .blocked])
    #expect(try device.rows("line") == [["l", "n"]])
    await fleet.stop()
  }

  @Test(
    "What the server's trigger made of a row in the statement's place is fed to its sender (semantics 4, 11.3)",
    arguments: [1, 40, 3000])
  func inTheStatementsPlace(count: Int) async throws {
    let fleet = try await fleet(
      """
      CREATE TRIGGER soft BEFORE DELETE ON visit BEGIN
        UPDATE visit SET seats = seats + 1 WHERE id = OLD.id; INSERT INTO told VALUES ('delete'); SELECT RAISE(IGNORE);
      END;
      CREATE TRIGGER stamps AFTER UPDATE OF note ON visit BEGIN UPDATE visit SET seats = 7 WHERE id = NEW.id; END
      """)
    let device = try fleet.device("a")
    let insert = (0..<count).flatMap { number in ["d", "u"].map { "('\($0)\(number)', 'here', 0)" } }
    try await device.write("INSERT INTO visit VALUES " + insert.joined(separator: ", "))
    #expect(try await device.sync().refused == 0)
    try await device.write("DELETE FROM visit WHERE id LIKE 'd%'", "UPDATE visit SET note = 'mine' WHERE id LIKE 'u%'")
    #expect(try await device.sync().refused == 0)
    // Each took its place once.
    #expect(try fleet.serverRows("told").count == count)
    #expect(try device.rows("visit").filter { $0[2] == 1 }.count == count)
    #expect(try device.rows("visit").filter { $0[1] == "mine" && $0[2] == 7 }.count == count)
    try fleet.expectEqual(["visit"], [device])
    await fleet.stop()
  }

  @Test(
    "A trigger of the server's that is newer than Salvor's keeps no change out of the log: Salvor's are made anew, and fire first (interfaces, 11.4)",
    arguments: [false, true])
  func firesFirst(restarts: Bool) async throws {
    let fleet = try await fleet("", "('1', 'x', 0), ('2', 'y', 0), ('3', 'z', 0)")
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    let own = "CREATE TRIGGER own AFTER UPDATE ON visit WHEN NEW.seats = 9 BEGIN SELECT RAISE(IGNORE); END"
    try fleet.serverConnection().execute(own)
    // Written before the server looks at the triggers again.
    try fleet.serverConnection().execute("UPDATE visit SET note = 'unseen', seats = 9 WHERE id = '3'")
    if restarts { try await fleet.restart() }
    #expect(try await b.sync().error == nil)
    try fleet.expectEqual(["visit"], [b])
    try fleet.serverConnection().execute("UPDATE visit SET note = 'program', seats = 9 WHERE id = '2'")
    try await a.write("UPDATE visit SET note = 'device', seats = 9 WHERE id = '1'")
    for device in [a, b, a] { #expect(try await device.sync().refused == 0) }
    try fleet.expectEqual(["visit"], [a, b])
    // The order is put right once.
    let before = try fleet.serverConnection().integer("PRAGMA schema_version")
    #expect(try await b.sync().error == nil)
    #expect(try fleet.serverConnection().integer("PRAGMA schema_version") == before)
    await fleet.stop()
  }
}
