import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

@Suite(
  "Columns that come back: an application that migrates without a word, and a server whose schema goes back (semantics 3, 11)"
)
struct OwnMigrationTests {
  private static let columns = "SELECT id, name, city, seats FROM site ORDER BY 1"

  private func fleet(schema: String = Fleet.visits) async throws -> (Fleet, a: Device, b: Device) {
    let fleet = try Fleet(schema: schema)
    try await fleet.start()
    try fleet.serverConnection().execute(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30) INSERT INTO site SELECT 's' || i, 'site ' || i, 'Toronto', i FROM n"
    )
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    return (fleet, a, b)
  }

  private func expectEqual(_ fleet: Fleet, _ devices: [Device], sourceLocation: SourceLocation = #_sourceLocation)
    throws
  {
    let expected = try fleet.serverConnection().rows(Self.columns)
    for device in devices {
      let found = try device.connection().rows(Self.columns)
      #expect(found == expected, "\(device.name)", sourceLocation: sourceLocation)
    }
  }

  /// SQLite's way to rebuild a table, as ORMs do it.
  private func rebuild(_ device: Device, _ columns: String, _ values: String, _ further: String = "") throws {
    let connection = try SQLiteConnection(device.path)
    try connection.execute(
      """
      PRAGMA foreign_keys = OFF; BEGIN;
      CREATE TABLE new_site (\(columns)); INSERT INTO new_site SELECT \(values) FROM site;
      DROP TABLE site; ALTER TABLE new_site RENAME TO site; \(further) COMMIT;
      """)
  }

  @Test(
    "a column that a migration takes away is empty nowhere else: it is named, and comes back with the server's values",
    arguments: [false, true])
  func dropped(isOpen: Bool) async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write(
      "UPDATE site SET seats = 500, city = 'Ottawa' WHERE id = 's3'",
      "UPDATE site SET city = 'Kingston' WHERE id = 's4'")
    try fleet.serverConnection().execute("UPDATE site SET seats = 77 WHERE id = 's5'")
    if !isOpen { await a.close() }
    try rebuild(
      a, "id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL, seats INTEGER NOT NULL DEFAULT 0", "id, upper(name), seats",
      "INSERT INTO site VALUES ('new', 'made by the migration', 9); DELETE FROM site WHERE id = 's9';")
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(
      report.notices.contains { $0.contains("site.city was not there any more") && $0.contains("2 waiting changes") })
    for device in [a, b, a] { #expect(try await device.sync().error == nil) }
    try expectEqual(fleet, [a, b])
    let rows = try fleet.serverConnection().rows(Self.columns)
    #expect(rows.count { $0[2] == "Toronto" } == 29)
    #expect(rows.contains(["s3", "SITE 3", "Toronto", 500]) && rows.contains(["s5", "site 5", "Toronto", 77]))
    #expect(rows.contains(["new", "made by the migration", nil, 9]) && !rows.contains { $0[0] == "s9" })
    // From here on it is a column as before.
    try await a.write("UPDATE site SET city = 'Hamilton' WHERE id = 's3'")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    #expect(try b.connection().scalar("SELECT city FROM site WHERE id = 's3'") == "Hamilton")
    try expectEqual(fleet, [a, b])
  }

  @Test(
    "a column that the application calls otherwise keeps its values, also those that wait, and the sync says so",
    arguments: [false, true])
  func renamed(isOpen: Bool) async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write("UPDATE site SET city = 'Ottawa' WHERE id = 's3'")
    if !isOpen { await a.close() }
    let application = try a.connection()
    try application.execute(
      "ALTER TABLE site RENAME COLUMN city TO town; UPDATE site SET town = 'Kingston' WHERE id = 's4'")
    let report = try await a.sync()
    #expect(report.error == nil && report.uploaded == 2)
    #expect(report.notices.contains { $0.contains("site.city is called town here now") }, "\(report.notices)")
    // Nothing that the application does fails.
    try application.execute(
      "UPDATE site SET town = 'Hamilton' WHERE id = 's5'; INSERT INTO site (id, name, town) VALUES ('x', 'x', 'y')")
    for device in [a, b, a] { #expect(try await device.sync().error == nil) }
    try expectEqual(fleet, [a, b])
    let rows = try fleet.serverConnection().rows(Self.columns)
    #expect(rows.contains(["s3", "site 3", "Ottawa", 3]) && rows.contains(["s4", "site 4", "Kingston", 4]))
    #expect(rows.count { $0[2] == "Toronto" } == 28)
  }

  @Test(
    "a NULL in a column that the application calls otherwise is NULL everywhere, also where the column has a default")
  func renamedNull() async throws {
    let fleet = try Fleet(schema: Fleet.visits.replacing("city: \"text?\"", with: "city: \"text? = 'Toronto'\""))
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site VALUES ('s1', 'x', NULL, 1), ('s2', 'y', 'Ottawa', 2)")
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    await a.close()
    try a.connection().execute("ALTER TABLE site RENAME COLUMN city TO town")
    for device in [a, b, a] {
      let report = try await device.sync()
      #expect(report.error == nil && report.uploaded == 0)
    }
    #expect(
      try fleet.serverConnection().rows("SELECT id, city FROM site ORDER BY 1") == [["s1", nil], ["s2", "Ottawa"]])
    try expectEqual(fleet, [a, b])
  }

  private static let without = Fleet.visits.replacing("version: 1", with: "version: 2")
    .replacing(#"city: "text?", seats: "integer = 0" } }"#, with: #"seats: "integer = 0" }, dropped: ["city"] }"#)

  @Test(
    "a server that is restored to before a column was dropped: devices take the column's values, and give none back",
    arguments: [1, 3])
  func restoredBeforeDrop(version: Int) async throws {
    let (fleet, a, b) = try await fleet()
    try await fleet.backup("before")
    fleet.schemaText = Self.without
    try await fleet.restart()
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await a.write("UPDATE site SET name = 'acknowledged' WHERE id = 's3'")
    #expect(try await a.sync().uploaded == 1)
    try await a.write("UPDATE site SET name = 'waiting' WHERE id = 's4'")
    fleet.schemaText = Fleet.visits.replacing("version: 1", with: "version: \(version)")
    try await fleet.restore("before")
    for device in [a, b, a, b] { #expect(try await device.sync().error == nil) }
    try expectEqual(fleet, [a, b])
    let rows = try fleet.serverConnection().rows(Self.columns)
    #expect(rows.allSatisfy { $0[2] == "Toronto" })
    #expect(rows.contains(["s3", "acknowledged", "Toronto", 3]) && rows.contains(["s4", "waiting", "Toronto", 4]))
  }

  private static var noVisits: String {
    var lines = Fleet.visits.split(separator: "\n", omittingEmptySubsequences: false)
    if let first = lines.firstIndex(where: { $0.contains("visit: {") }) { lines.removeSubrange(first..<first + 3) }
    return lines.joined(separator: "\n").replacing("version: 1", with: "version: 2")
      .replacing("tables: {", with: #"dropped: ["visit"], tables: {"#)
  }

  @Test("a server that is restored to before a table was dropped: devices have its rows again")
  func restoredBeforeTableDrop() async throws {
    let (fleet, a, b) = try await fleet()
    try fleet.serverConnection().execute("INSERT INTO visit VALUES ('v1', 's1', 'wet', NULL)")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.backup("before")
    fleet.schemaText = Self.noVisits
    try await fleet.restart()
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    fleet.schemaText = Fleet.visits
    try await fleet.restore("before")
    for device in [a, b, a, b] { #expect(try await device.sync().error == nil) }
    #expect(try b.rows("visit") == [["v1", "s1", "wet", nil]])
    try fleet.expectEqual(["site", "visit"], [a, b])
  }

  @Test(
    "a device that must recover after a table was renamed or dropped follows the schema, and recovers",
    arguments: [false, true], [false, true])
  func recoversAcross(isRename: Bool, isDemanded: Bool) async throws {
    let (fleet, a, b) = try await fleet()
    try fleet.serverConnection().execute(
      "INSERT INTO visit VALUES ('v1', 's1', 'wet', NULL), ('v2', 's1', 'dry', NULL)")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await a.write("UPDATE site SET name = 'mine' WHERE id = 's1'")
    try await b.write("DELETE FROM visit WHERE id = 'v2'")
    #expect(try await b.sync().error == nil)
    let old = fleet.schemaText
    fleet.schemaText =
      isRename
      ? old.replacing("version: 1", with: "version: 2")
        .replacing(#"visit: { maintained"#, with: #"call: { renamedFrom: "visit", maintained"#) : Self.noVisits
    try await fleet.restart()
    if isDemanded {
      #expect(try await fleet.server?.engine.demandResets(of: nil) == 2)
    } else {
      await fleet.server?.engine.trim(retentionMilliseconds: -1000)
    }
    for _ in 1...2 { #expect(try await a.sync().error == nil) }
    #expect(try fleet.serverRows("site").contains(["s1", "mine", "Toronto", 1]))
    try fleet.expectEqual(isRename ? ["site", "call"] : ["site"], [a])
  }
}
