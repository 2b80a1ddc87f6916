import SQLiteSupport
import SalvorModel
import Testing

/// Views and triggers of the application's in which something is wrong: SQLite renames nothing while there is one.
@Suite("Schemas are followed beside views and triggers that do not fit")
struct BrokenViewTests {
  private static func schema(_ version: Int, _ table: String) -> String {
    "{ version: \(version), tables: { \(table) } }"
  }
  private static let before = schema(1, "t: { primaryKey: \"id\", columns: { id: \"text\", n: \"text?\" } }")
  private static let renamedColumn = schema(
    2, "t: { primaryKey: \"id\", columns: { id: \"text\", m: { type: \"text?\", renamedFrom: \"n\" } } }")
  private static let renamedTable = schema(
    2, "t2: { renamedFrom: \"t\", primaryKey: \"id\", columns: { id: \"text\", n: \"text?\" } }")
  private static let dropped = schema(2, "t: { primaryKey: \"id\", columns: { id: \"text\" }, dropped: [\"n\"] }")

  private static let broken = "CREATE VIEW bv AS SELECT q FROM nothere"
  private static let instead =
    "CREATE VIEW v AS SELECT id, n FROM t; CREATE TRIGGER vi INSTEAD OF INSERT ON v BEGIN INSERT INTO t (id, n) VALUES (new.id, new.n); END"

  @Test(
    "a device follows, its unsent changes go up, and a note names what does not fit",
    arguments: [
      (broken, renamedColumn, "view bv"), (broken, renamedTable, "view bv"), (instead, renamedColumn, "trigger vi"),
      (broken, dropped, nil),
    ] as [(String, String, String?)])
  func device(sql: String, later: String, name: String?) async throws {
    let fleet = try Fleet(schema: Self.before)
    try await fleet.start()
    let device = try fleet.device("a")
    try await device.write("INSERT INTO t VALUES ('1', 'x')")
    #expect(try await device.sync().error == nil)
    try device.connection().execute(sql)
    try await device.write("INSERT INTO t VALUES ('2', 'unsent')")
    fleet.schemaText = later
    try await fleet.restart()
    let report = try await device.sync()
    #expect(report.error == nil && report.uploaded == 1, "\(report)")
    if let name {
      #expect(
        report.notices.contains { $0.contains(name) && $0.contains("stays as it was written") }, "\(report.notices)")
    }
    let objects = try device.connection().rows("SELECT name FROM sqlite_schema WHERE name IN ('bv', 'v', 'vi')")
    #expect(objects.count == (sql == Self.broken ? 1 : 2))
    try await device.write("UPDATE \(later == Self.renamedTable ? "t2" : "t") SET id = '3' WHERE id = '2'")
    #expect(try await device.sync().error == nil)
    let table = later == Self.renamedTable ? "t2" : "t"
    #expect(try fleet.serverRows(table).map { $0[0] } == device.rows(table).map { $0[0] })
    if later != Self.dropped { try fleet.expectEqual([table], [device]) }
    await fleet.stop()
  }

  @Test(
    "a server starts with the schema, and so does one whose trigger fits no row any more",
    arguments: [renamedColumn, renamedTable])
  func server(later: String) async throws {
    let fleet = try Fleet(schema: Self.before)
    try await fleet.start()
    let device = try fleet.device("a")
    try await device.write("INSERT INTO t VALUES ('1', 'x')")
    #expect(try await device.sync().error == nil)
    try fleet.serverConnection().execute(Self.broken + "; " + Self.instead)
    fleet.schemaText = later
    try await fleet.restart()
    #expect(try await device.sync().error == nil)
    let table = later == Self.renamedTable ? "t2" : "t"
    try await device.write("UPDATE \(table) SET id = '3'")
    #expect(try await device.sync().error == nil)
    try fleet.expectEqual([table], [device])
    #expect(
      try fleet.serverConnection().rows("SELECT name FROM sqlite_schema WHERE name IN ('bv', 'v', 'vi')").count == 3)
    await fleet.stop()
  }
}
