import SalvorModel
import SalvorStorage
import Testing

@Suite(
  "A row of another program's that is too large, or whose blob is, stops no other row (semantics 11, decision 188)")
struct LargeParentTests {
  private static let limits =
    "limits: { chunkBytesMax: 16384, chunkBytesTarget: 4096, singleRoundTripBytesMax: 16384, rowBytesMax: 8192, blobBytesMax: 40000 },"
  private static let schema = Fleet.visits
    .replacing("seats: \"integer = 0\" }", "seats: \"integer = 0\", photo: \"blob?\" }")
    .replacing(
      "draft: {",
      "photo: { maintained: \"dual\", group: \"reference\", primaryKey: \"id\", columns: { id: \"text\", visit_id: \"text\" }, references: { visit_id: \"visit\" } }, draft: {"
    )
  private static let tables = ["severity", "site", "visit", "photo"]

  private func fleet() async throws -> (Fleet, Device) {
    let fleet = try Fleet(
      schema: Self.schema, serverOptions: "authentication: { module: \"none\" }, " + Self.limits)
    try await fleet.start()
    try fleet.serverConnection().execute(
      """
      INSERT INTO severity VALUES (1, 'x');
      INSERT INTO site (id, name) VALUES ('ok', 'small'), ('other', 'small');
      INSERT INTO visit VALUES ('v1', 'ok', NULL, NULL), ('v2', 'other', NULL, NULL);
      INSERT INTO photo VALUES ('p1', 'v1'), ('p2', 'v2')
      """)
    let device = try fleet.device("a") { $0.limits.attemptsMax = 2 }
    try await device.sync()
    try fleet.expectEqual(Self.tables, [device])
    return (fleet, device)
  }

  private func expectWithout(_ fleet: Fleet, _ device: Device, _ left: Set<String>) throws {
    for table in Self.tables {
      let expected = try fleet.serverRows(table).filter { row in !left.contains(row[0].string ?? "") }
      #expect(try device.rows(table) == expected, "\(table) on \(device.name)")
    }
    #expect(try device.connection().rows("PRAGMA foreign_key_check") == [])
  }

  @Test(
    "the rows below it are left out with it, and named; the rest arrives, and all of them when it fits",
    arguments: ["name = printf('%.30000c', 'x')", "photo = zeroblob(50000)"])
  func belowIt(large: String) async throws {
    let (fleet, device) = try await fleet()
    let server = try fleet.serverConnection()
    try server.execute("UPDATE site SET \(large) WHERE id = 'ok'; UPDATE site SET seats = 7 WHERE id = 'other'")
    let report = try await device.sync()
    #expect(report.error == nil, "\(String(describing: report.error))")
    #expect(report.notices.contains { $0.contains("[ok] of site was left out") })
    #expect(
      report.notices.contains { $0.contains("The row [v1] of visit was left out. It references the row [ok] of site") })
    #expect(report.notices.contains { $0.contains("The row [p1] of photo was left out") })
    try expectWithout(fleet, device, ["ok", "v1", "p1"])
    // More below it, and beside it.
    try server.execute(
      "INSERT INTO visit VALUES ('v3', 'ok', NULL, NULL), ('v4', 'other', NULL, NULL); UPDATE visit SET note = 'n' WHERE id = 'v1'"
    )
    #expect(try await device.sync().error == nil)
    let new = try fleet.device("b") { $0.limits.attemptsMax = 2 }
    #expect(try await new.sync().error == nil)
    for device in [device, new] {
      try expectWithout(fleet, device, ["ok", "v1", "p1", "v3"])
      let idle = try await device.sync()
      #expect((idle.upserts, idle.deletes, idle.roundTrips) == (0, 0, 1))
    }
    try server.execute("UPDATE site SET name = 'fits', photo = NULL WHERE id = 'ok'")
    for device in [device, new] {
      #expect(try await device.sync().error == nil)
      // What is two tables below it comes with the next look.
      try await device.sync()
    }
    try fleet.expectEqual(Self.tables, [device, new])
    let idle = try await device.sync()
    #expect((idle.roundTrips, idle.notices) == (1, []))
  }

  @Test("a change of one below it is in the archive, and comes back with it")
  func changedBelow() async throws {
    let (fleet, device) = try await fleet()
    try await device.write("UPDATE visit SET note = 'mine' WHERE id = 'v1'")
    let server = try fleet.serverConnection()
    try server.execute("UPDATE site SET name = printf('%.30000c', 'x') WHERE id = 'ok'")
    let report = try await device.sync()
    #expect(report.error == nil, "\(String(describing: report.error))")
    try expectWithout(fleet, device, ["ok", "v1", "p1"])
    // It was sent: the server has it.
    #expect(try fleet.serverRows("visit")[0][2] == "mine")
    try server.execute("UPDATE site SET name = 'fits' WHERE id = 'ok'")
    try await device.sync()
    try await device.sync()
    try fleet.expectEqual(Self.tables, [device])
  }

  @Test(
    "a recovery in place beside it leaves no reference open, whether or not the device has a change of it",
    arguments: [true, false])
  func recovery(hasChange: Bool) async throws {
    let (fleet, device) = try await fleet()
    try fleet.serverConnection().execute("UPDATE site SET name = printf('%.30000c', 'x') WHERE id = 'ok'")
    if hasChange { try await device.write("UPDATE site SET city = 'mine' WHERE id = 'ok'") }
    #expect(try await fleet.server?.engine.demandResets(of: nil) == 1)
    let report = try await device.sync()
    #expect(report.error == nil, "\(String(describing: report.error))")
    #expect(report.outcome == .recovered)
    var notices = report.notices
    notices += try await device.sync().notices
    #expect(notices.contains { $0.contains("The row [v1] of visit was left out") }, "\(notices)")
    if hasChange { #expect(try fleet.serverConnection().scalar("SELECT city FROM site WHERE id = 'ok'") == "mine") }
    try expectWithout(fleet, device, ["ok", "v1", "p1"])
    try fleet.serverConnection().execute("UPDATE site SET name = 'fits' WHERE id = 'ok'")
    try await device.sync()
    try await device.sync()
    try fleet.expectEqual(Self.tables, [device])
  }

  @Test("verify --repair names what stays out, and does not say that all is equal")
  func repaired() async throws {
    let (fleet, device) = try await fleet()
    try fleet.serverConnection().execute("UPDATE site SET photo = zeroblob(50000) WHERE id = 'ok'")
    #expect(try await device.sync().error == nil)
    let client = try await device.open()
    var report = try await client.verify(repair: true)
    #expect(report.leftOut.map { "\($0.table) \($0.key[0])" } == ["visit v1", "photo p1"])
    #expect(report.remaining == 2)
    try expectWithout(fleet, device, ["ok", "v1", "p1"])
    try fleet.serverConnection().execute("UPDATE site SET photo = x'00' WHERE id = 'ok'")
    for _ in 0..<2 { #expect(try await device.sync().error == nil) }
    report = try await client.verify(repair: true)
    #expect(report.remaining == 0 && report.repair == nil)
    try fleet.expectEqual(Self.tables, [device])
  }
}
