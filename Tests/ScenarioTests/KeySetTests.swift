import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import Testing

private let tables = ["severity", "site", "visit"]

@Suite("Key-set download: bases and rows are compared by digest (semantics 4)")
struct KeySetTests {
  /// Two tables of three are compared; `visit` is fed by cursor and references both.
  static let schema = Fleet.visits
    .replacing(
      "severity: { maintained: \"server\",", with: "severity: { maintained: \"server\", download: \"key-set\","
    )
    .replacing("site: { maintained: \"dual\",", with: "site: { maintained: \"dual\", download: \"key-set\",")

  /// A server with 4,000 sites, and a device that has them.
  private func fleet(sites: Int = 4_000, schema: String = Self.schema) async throws -> (Fleet, Device) {
    let fleet = try Fleet(schema: schema)
    try await fleet.start()
    try fleet.serverConnection().execute(
      """
      INSERT INTO severity VALUES (1, 'minor'), (2, 'crucial');
      WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(sites))
      INSERT INTO site SELECT 's' || i, 'site ' || i, 'Toronto', i % 50 FROM n;
      INSERT INTO visit VALUES ('v1', 's1', 'first', 1), ('v2', 's2', NULL, NULL);
      """)
    let a = try fleet.device("a")
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(tables, [a])
    return (fleet, a)
  }

  /// Another program whose connection fires no triggers: the change log hears of nothing.
  private func silently(_ fleet: Fleet, _ sql: String) throws {
    let connection = try fleet.serverConnection()
    connection.triggersEnabled = false
    try connection.execute(sql)
  }

  /// Seed 36 of `groups`: what was compared in a group's second synchronization went straight into its empty table, with another group's
  /// first rows, and had no version.
  @Test(
    "a row that came with another group's first download, and that the server loses, is in the archive (semantics 9)")
  func lostBesideAFirstDownload() async throws {
    let fleet = try Fleet(schema: Self.schema)
    try await fleet.start()
    let a = try fleet.device("a")
    #expect(try await a.sync(["reference"]).error == nil)
    try await fleet.backup("noon")
    try fleet.serverConnection().execute("INSERT INTO severity VALUES (1, 'minor')")
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(tables, [a])
    try await fleet.restore("noon")
    let report = try await a.sync()
    #expect(report.error == nil && report.recovery?.reason == .serverRestored)
    try fleet.expectEqual(tables, [a])
    let entries = try await a.open().errorArchive()
    #expect(entries.map(\.table) == ["severity"] && entries.map(\.reason) == ["lost-on-server"])
  }

  @Test("a sync with nothing new is one round trip, and brings no row")
  func nothingNew() async throws {
    let (fleet, a) = try await fleet()
    for _ in 1...2 {
      let report = try await a.sync()
      #expect(report.error == nil)
      #expect(report.roundTrips == 1)
      #expect(report.upserts == 0)
      #expect(report.bytesReceived < 1_000)
    }
    try fleet.expectEqual(tables, [a])
  }

  @Test("what is added, changed and deleted on the server comes, and nothing else: ranges of keys are compared first")
  func differences() async throws {
    let (fleet, a) = try await fleet()
    try fleet.serverConnection().execute(
      """
      INSERT INTO site VALUES ('s0', 'new', NULL, 1); UPDATE site SET seats = 99 WHERE id IN ('s77', 's3001');
      DELETE FROM site WHERE id = 's500'; UPDATE severity SET name = 'grave' WHERE id = 2;
      INSERT INTO severity VALUES (3, 'none'); INSERT INTO visit VALUES ('v3', 's0', 'of the new one', 3);
      UPDATE visit SET severity_id = 2 WHERE id = 'v1';
      """)
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.upserts == 3 + 2 + 2)
    #expect(report.deletes == 1)
    #expect(report.bytesReceived < 40_000)
    #expect(Set(report.changes.map(\.table)) == ["severity", "site", "visit"])
    try fleet.expectEqual(tables, [a])
    #expect(try await a.sync().roundTrips == 1)
    // A table that was compared and is equal is not named.
    try fleet.serverConnection().execute("UPDATE visit SET note = 'alone' WHERE id = 'v1'")
    #expect(try await a.sync().changes.map(\.table) == ["visit"])
    try fleet.serverConnection().execute("UPDATE site SET seats = 98 WHERE id = 's77'")
    #expect(try await a.sync().changes.map(\.table) == ["site"])
  }

  @Test("what another program writes on the server without any trigger is found, and moves no cursor")
  func withoutTriggers() async throws {
    let (fleet, a) = try await fleet()
    try silently(
      fleet,
      "UPDATE site SET name = 'silent' WHERE id = 's9'; DELETE FROM site WHERE id = 's10'; INSERT INTO site VALUES ('z', 'new', NULL, 2); UPDATE severity SET name = 'silent' WHERE id = 2"
    )
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(tables, [a])
    #expect(try await a.sync().upserts == 0)
  }

  @Test("what both sides remember of a table holds as long as nothing was written, by whomever")
  func remembered() async throws {
    let (fleet, a) = try await fleet(sites: 300)
    let b = try fleet.device("b")
    try await b.sync()
    for round in 1...3 {
      try silently(fleet, "UPDATE site SET name = 'silent \(round)' WHERE id = 's\(round)'")
      for device in [a, b, a, b] { #expect(try await device.sync().error == nil) }
      try fleet.expectEqual(tables, [a, b])
      try await a.write(
        "UPDATE site SET seats = \(round) WHERE id IN ('s1', 's40')",
        "INSERT INTO site VALUES ('a\(round)', 'x', NULL, 1)")
      for device in [a, b, a] { #expect(try await device.sync().error == nil) }
      try fleet.expectEqual(tables, [a, b])
      #expect(try await a.sync().roundTrips == 1)
      await b.close()
    }
    #expect(
      try a.connection().rows("SELECT name, count FROM salvor_digest ORDER BY name") == [
        ["severity", 2], ["site", 303],
      ])
  }

  @Test("a dirty row is never deleted or overwritten: its base changes, its request stays and is sent")
  func dirtyRows() async throws {
    let (fleet, a) = try await fleet()
    try await a.write(
      "UPDATE site SET seats = 7 WHERE id = 's3'", "INSERT INTO site VALUES ('mine', 'made here', NULL, 3)")
    // The change of another column comes under the device's own; the upload is lost, so that the rows stay dirty.
    try silently(fleet, "UPDATE site SET name = 'renamed' WHERE id = 's3'; DELETE FROM site WHERE id = 's4'")
    fleet.faults.pass(1)
    fleet.faults.inject(.loseRequest, .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    _ = try await a.sync()
    #expect(try a.connection().rows("SELECT id, name, seats FROM site WHERE id IN ('s3', 'mine')").count == 2)
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(try fleet.serverRows("site").contains(["s3", "renamed", "Toronto", 7]))
    #expect(try fleet.serverRows("site").contains(["mine", "made here", nil, 3]))
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(tables, [a])
  }

  @Test("a refused change stays in its row while the base under it changes")
  func refusedRow() async throws {
    let (fleet, a) = try await fleet()
    try await a.write("UPDATE severity SET name = 'mine' WHERE id = 1")
    #expect(try await a.sync().refused == 1)
    try fleet.serverConnection().execute("UPDATE severity SET name = 'theirs' WHERE id = 1")
    #expect(try await a.sync().error == nil)
    #expect(try a.rows("severity")[0] == [1, "mine"])
    #expect(try await a.sync().roundTrips == 1, "the base is compared, not what the row shows")
    let client = try await a.open()
    _ = try await client.delete(try #require(try await client.errorArchive().first).id)
    #expect(try a.rows("severity")[0] == [1, "theirs"])
  }

  @Test("no tombstone is needed: a group of compared tables is never trimmed")
  func trimmed() async throws {
    let (fleet, a) = try await fleet()
    try fleet.serverConnection().execute("DELETE FROM severity WHERE id = 2; INSERT INTO severity VALUES (5, 'five')")
    let b = try fleet.device("b")
    try await b.sync()
    await fleet.server?.engine.trim(retentionMilliseconds: -1000)
    let report = try await a.sync(["reference"])
    #expect(report.error == nil)
    #expect(report.outcome == .synchronized)
    #expect(try a.rows("severity") == [[1, "minor"], [5, "five"]])
  }

  @Test("rows that leave the scope leave, rows that come into it come")
  func scopes() async throws {
    let scoped = Self.schema.replacing(
      "site: { maintained: \"dual\", download: \"key-set\",",
      with: "site: { maintained: \"dual\", download: \"key-set\", scope: { city: \"principal\" },"
    ).replacing("references: { site_id: {", with: "references: { site_id: { scope: \"inherit\",")
    let fleet = try Fleet(schema: scoped)
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site VALUES ('s1', 'x', 'anna', 1), ('s2', 'x', 'anna', 1), ('s3', 'x', 'berta', 1); INSERT INTO visit VALUES ('v1', 's1', NULL, NULL), ('v3', 's3', NULL, NULL)"
    )
    let a = try fleet.device("a")
    try await a.sync()
    #expect(try a.rows("site").map { $0[0] } == ["s1", "s2"])
    try fleet.serverConnection().execute(
      "UPDATE site SET city = 'berta' WHERE id = 's1'; UPDATE site SET city = 'anna' WHERE id = 's3'")
    #expect(try await a.sync().error == nil)
    #expect(try a.rows("site").map { $0[0] } == ["s2", "s3"])
    #expect(try a.rows("visit").map { $0[0] } == ["v3"])
  }

  @Test("a comparison that is cut, and a killed device: the next sync goes on, and applies all of it at once")
  func cut() async throws {
    let (fleet, a) = try await fleet()
    try fleet.serverConnection().execute(
      "UPDATE site SET name = 'other' WHERE seats = 7; INSERT INTO severity VALUES (9, 'nine'); UPDATE visit SET note = 'x', severity_id = 9 WHERE id = 'v2'"
    )
    let before = try tables.map { try a.rows($0) }
    for exchange in 1...4 {
      fleet.faults.pass(exchange)
      fleet.faults.inject(.loseAnswer, .loseRequest, .loseRequest, .loseRequest, .loseRequest, .loseRequest)
      let report = try await a.sync()
      fleet.faults.clear()
      #expect(report.error?.code == .unreachable)
      #expect(try tables.map { try a.rows($0) } == before, "nothing of it is seen")
      await a.close()
      // Meanwhile what was compared changes once more.
      try fleet.serverConnection().execute("UPDATE site SET name = 'again \(exchange)' WHERE id IN ('s7', 's57', 's1')")
    }
    let report = try await a.sync()
    #expect(report.error == nil)
    try fleet.expectEqual(tables, [a])
  }

  @Test("an upload after a cut comparison: what was staged before it does not take it back")
  func uploadAfterCut() async throws {
    let (fleet, a) = try await fleet()
    try fleet.serverConnection().execute("UPDATE site SET name = 'other' WHERE id IN ('s7', 's8', 's9')")
    fleet.faults.pass(4)
    fleet.faults.inject(.loseRequest, .loseRequest, .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    #expect(try await a.sync().error?.code == .unreachable)
    fleet.faults.clear()
    await a.close()
    try await a.write("UPDATE site SET seats = 44, name = 'mine' WHERE id = 's8'")
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.uploaded == 1)
    try fleet.expectEqual(tables, [a])
    #expect(try fleet.serverRows("site").contains(["s8", "mine", "Toronto", 44]))
  }

  @Test("a table that is empty on one side comes, or goes, whole")
  func emptied() async throws {
    let (fleet, a) = try await fleet()
    try fleet.serverConnection().execute("DELETE FROM visit; DELETE FROM site; DELETE FROM severity")
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(tables, [a])
    try fleet.serverConnection().execute(
      "INSERT INTO site VALUES ('s1', 'back', NULL, 1); INSERT INTO visit VALUES ('v', 's1', NULL, NULL)")
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(tables, [a])
  }

  @Test("the same table is switched to cursor and back: whole, and cheap")
  func switches() async throws {
    let (fleet, a) = try await fleet()
    try silently(fleet, "UPDATE site SET name = 'silent' WHERE id = 's9'")
    for (schema, row) in [(Fleet.visits, "s20"), (Self.schema, "s21"), (Fleet.visits, "s22")] {
      fleet.schemaText = schema
      try await fleet.restart()
      try fleet.serverConnection().execute("UPDATE site SET name = 'switched' WHERE id = '\(row)'")
      let report = try await a.sync()
      #expect(report.error == nil)
      // Of a table that is fed by cursor again the compared row comes once more.
      #expect(report.upserts <= 3)
      #expect(report.bytesReceived < 60_000)
      try fleet.expectEqual(tables, [a])
      try fleet.serverConnection().execute("UPDATE site SET seats = seats + 1 WHERE id = '\(row)'")
      #expect(try await a.sync().upserts == 1)
      try fleet.expectEqual(tables, [a])
    }
  }

  @Test("several devices write what is compared: all have the server's rows after quiet syncs")
  func fleetOfDevices() async throws {
    let (fleet, a) = try await fleet(sites: 200)
    let b = try fleet.device("b")
    try await b.sync()
    for round in 1...6 {
      try await a.write("UPDATE site SET seats = seats + 1 WHERE id = 's\(round)'")
      try await b.write(
        "DELETE FROM site WHERE id = 's\(100 + round)'", "INSERT INTO site VALUES ('b\(round)', 'b', NULL, 0)")
      try await a.sync()
      try await b.sync()
      try silently(fleet, "UPDATE site SET city = 'Ottawa \(round)' WHERE id IN ('s\(round)', 'b\(round)')")
    }
    for device in [a, b, a, b] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(tables, [a, b])
  }
}
