import SQLiteSupport
import SalvorModel
import Testing

@Suite("The application's own triggers beside what Salvor writes (semantics 2, 11)")
struct ApplicationTriggerTests {
  private func fleet(_ tables: String) async throws -> (Fleet, Device) {
    let fleet = try Fleet(schema: "{ tables: { \(tables) } }")
    try await fleet.start()
    let device = try fleet.device("a")
    #expect(try await device.sync().error == nil)
    return (fleet, device)
  }

  @Test(
    "A delete of the server's that a trigger of the application's refuses is done without triggers, and a notice names the row and the trigger (semantics 11.4, 11.7)",
    arguments: [
      "CREATE TRIGGER mine AFTER DELETE ON site BEGIN INSERT INTO trash VALUES (OLD.id); END",
      "CREATE TRIGGER mine BEFORE DELETE ON site BEGIN SELECT RAISE(ABORT, 'not this one'); END",
      "CREATE TRIGGER mine BEFORE DELETE ON site BEGIN SELECT RAISE(FAIL, 'not this one'); END",
    ], [false, true])
  func refusesDelete(trigger: String, waits: Bool) async throws {
    let (fleet, device) = try await fleet("site: { primaryKey: \"id\", columns: { id: \"text\", name: \"text?\" } }")
    try await device.write("CREATE TABLE trash (id TEXT PRIMARY KEY); INSERT INTO trash VALUES ('1')", trigger)
    try fleet.serverConnection().execute("INSERT INTO site VALUES ('1', 'x')")
    #expect(try await device.sync().error == nil)
    if waits { try await device.write("UPDATE site SET name = 'mine'") }
    try fleet.serverConnection().execute("DELETE FROM site; INSERT INTO site VALUES ('2', 'y')")
    let report = try await device.sync()
    #expect(report.error == nil)
    let notice = try #require(report.notices.first { $0.contains("deleted here") })
    for part in ["'1'", "mine", "site", "applicationTriggers", trigger.contains("RAISE") ? "not this one" : "trash.id"]
    {
      #expect(notice.contains(part), "\(part) in: \(notice)")
    }
    #expect(try device.rows("site") == [["2", "y"]])
    #expect(try device.rows("trash") == [["1"]])
    _ = try await device.open().remove(.archive(nil))
    #expect(try await device.sync().notices == [])
    try fleet.expectEqual(["site"], [device])
    await fleet.stop()
  }

  @Test("Triggers whose writes are in the way of Salvor's own keep no device from synchronizing (semantics 2)")
  func inTheWay() async throws {
    let (fleet, device) = try await fleet(
      """
      t: { primaryKey: "id", columns: { id: "text", u: "text?", v: "integer?", r: "text?" },
           references: { r: { table: "t", onDelete: "restrict" } }, unique: [["u"], ["v"]] }
      """)
    // A writer without foreign keys, as the shell is.
    let writer = try SQLiteConnection(device.path)
    try writer.execute(
      """
      INSERT INTO t (id, u, v, r) VALUES ('k1', NULL, 0, NULL), ('k6', NULL, NULL, NULL), ('trg', NULL, 1, NULL);
      CREATE TRIGGER counts AFTER INSERT ON t BEGIN UPDATE t SET v = coalesce(v, 0) + 1 WHERE u = NEW.u; END;
      CREATE TRIGGER marks AFTER DELETE ON t WHEN OLD.u IS NOT NULL BEGIN
        INSERT OR REPLACE INTO t (id, u) VALUES ('trg', OLD.u);
      END
      """)
    #expect(try await device.sync().error == nil)
    try writer.execute("UPDATE OR REPLACE t SET v = v + 1, r = 'k1', u = 'b' WHERE 1")
    try writer.execute("INSERT INTO t (id, u, v) VALUES ('k174', 'd', 1)")
    #expect(try await device.sync().error == nil)
    try fleet.serverConnection().execute("INSERT INTO t (id, u, v) VALUES ('s', 's', 99)")
    for _ in 0..<2 { #expect(try await device.sync().error == nil) }
    #expect(try device.rows("t").contains { $0[0] == "s" })
    // What could not stand is in the archive, and goes on a person's word.
    _ = try await device.open().remove(.archive(nil))
    #expect(try await device.sync().error == nil)
    try fleet.expectEqual(["t"], [device])
    await fleet.stop()
  }

  @Test(
    "A row that a trigger makes in an empty table, and that the same download takes, is not there (semantics 2)",
    arguments: ["on", "off"])
  func madeAndTaken(triggers: String) async throws {
    let (fleet, device) = try await fleet(
      """
      visit: { primaryKey: "id", columns: { id: "text", note: "text?" } },
      area: { primaryKey: "id", columns: { id: "text", note: "text?" }, applicationTriggers: "\(triggers)" }
      """)
    let other = try fleet.device("b")
    try await device.write(
      "CREATE TRIGGER makes AFTER INSERT ON visit BEGIN INSERT OR IGNORE INTO area (id) VALUES (NEW.id); END")
    try fleet.serverConnection().execute("INSERT INTO visit VALUES ('k', 'v'); INSERT INTO area VALUES ('k', 'a')")
    #expect(try await other.sync().error == nil)
    try fleet.serverConnection().execute("DELETE FROM area")
    let report = try await device.sync()
    #expect(report.error == nil && report.recovery == nil, "\(String(describing: report.error))")
    try fleet.expectEqual(["visit", "area"], [device])
    #expect(try await device.sync().uploaded == 0)
    await fleet.stop()
  }

  @Test(
    "What a trigger writes over a row with a refused request is undone: row and archive keep the person's value (semantics 2, 11.3)",
    arguments: ["cursor", "key-set"])
  func overARequest(download: String) async throws {
    let (fleet, device) = try await fleet(
      """
      x: { primaryKey: "id", columns: { id: "text", c1: "text?", c2: "text?" }, conflicts: "server-wins",
           download: "\(download)" },
      t: { primaryKey: "id", columns: { id: "text", n: "integer?" } }
      """)
    try await device.write("INSERT INTO x VALUES ('r', 'a', 'a')", "INSERT INTO t VALUES ('1', 1)")
    #expect(try await device.sync().error == nil)
    try await device.write(
      "CREATE TRIGGER i AFTER DELETE ON t BEGIN INSERT OR REPLACE INTO x VALUES ('r', 'trig', 'trig'); END")
    #expect(try await device.sync().error == nil)
    try await device.write("UPDATE x SET c1 = 'mine' WHERE id = 'r'")
    try fleet.serverConnection().execute("UPDATE x SET c1 = 'srv' WHERE id = 'r'; DELETE FROM t WHERE id = '1'")
    for _ in 0..<3 { #expect(try await device.sync().error == nil) }
    #expect(try device.rows("x") == [["r", "mine", "a"]])
    let entry = try #require(try await device.open().errorArchive().first)
    #expect(entry.state == .refused)
    _ = try await device.open().retry([entry.id])
    #expect(try await device.sync().error == nil)
    #expect(try fleet.serverRows("x") == [["r", "mine", "a"]])
    try fleet.expectEqual(["x", "t"], [device])
    await fleet.stop()
  }
}
