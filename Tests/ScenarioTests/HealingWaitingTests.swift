import SalvorClientEngine
import SalvorHost
import SalvorModel
import SalvorStorage
import Testing

private let tables = ["severity", "site", "visit"]

/// Thirty sites and two devices that have them; a backup named `night` was made then.
private func fleet(
  schema: String = Fleet.visits, server: String = "", recovery: String = ""
) async throws -> (Fleet, Device, Device) {
  let fleet = try Fleet(schema: schema, serverOptions: "authentication: { module: \"none\" }, \(server)")
  try await fleet.start()
  try fleet.serverConnection().execute(
    "INSERT INTO site WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 39) SELECT 's' || i, 'Site ' || i, 'Toronto', 40 FROM n"
  )
  let a = try fleet.device("a", recovery: recovery)
  let b = try fleet.device("b", recovery: recovery)
  for device in [a, b] {
    try await device.write("INSERT INTO site (id, name) VALUES ('\(device.name)', 'of \(device.name)')")
    #expect(try await device.sync().error == nil)
  }
  #expect(try await a.sync().error == nil)
  try await fleet.backup("night")
  return (fleet, a, b)
}

private func count(_ fleet: Fleet, _ what: String) throws -> Int64 {
  try fleet.serverConnection().integer("SELECT count(*) FROM \(what)") ?? -1
}

private let openConflicts = "salvor_conflict WHERE resolution IS NULL"

@Suite("Heal: what waits, what a person decides, and what was kept beside rows (semantics 10)")
struct HealingWaitingTests {
  private static let keeping = Fleet.visits.replacing(
    "seats: \"integer = 0\" } },", "seats: \"integer = 0\" }, conflicts: \"keep-versions\" },")

  @Test("a conflict version that a restore took is one again, and the row is the other's", arguments: [true, false])
  func keptVersions(itsDeviceReturnsFirst: Bool) async throws {
    let (fleet, a, b) = try await fleet(schema: Self.keeping)
    try await b.write("UPDATE site SET seats = 1 WHERE id = 's10'")
    try await synchronize([b], times: 1)
    try await a.write("UPDATE site SET seats = 2 WHERE id = 's10'", "UPDATE site SET seats = 7 WHERE id = 's11'")
    let report = try await a.sync()
    #expect(report.conflicts == 1)
    #expect(try count(fleet, openConflicts) == 1)
    for _ in 1...2 {
      try await fleet.restore("night")
      #expect(try count(fleet, openConflicts) == 0)
      try await synchronize(itsDeviceReturnsFirst ? [a, b] : [b, a], times: 2)
      #expect(try count(fleet, openConflicts) == 1, "once, however often it is offered")
      #expect(try fleet.serverRows("site").first { $0[0] == "s10".value }?[3] == 1)
      #expect(try fleet.serverRows("site").first { $0[0] == "s11".value }?[3] == 7)
      try fleet.expectEqual(tables, [a, b])
      #expect(try await a.open().status().queued == 0)
    }
  }

  @Test("a mass of deletes that a restore undid waits for a person; its device has the rows again meanwhile")
  func massDeletes() async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write("DELETE FROM site WHERE id LIKE 's%'", "INSERT INTO site (id, name) VALUES ('new', 'of a')")
    try await synchronize([a, b], times: 2)
    #expect(try count(fleet, "site") == 3)
    try await fleet.restore("night")
    let report = try await a.sync()
    #expect(report.error == nil)
    try await synchronize([a, b], times: 2)
    #expect(try count(fleet, "site") == 33, "the rows stand, and what was inserted since the backup is back")
    try fleet.expectEqual(tables, [a, b])
    #expect(try await a.open().status().queued == 0)
    let groups = try fleet.serverConnection().rows(
      "SELECT reason, operation, count(*) FROM salvor_heal_waiting GROUP BY 1, 2")
    #expect(groups == [["review".value, "delete".value, 30]])
    // The other device, which had only read of it, has one entry in its archive.
    #expect(try await b.open().errorArchive().count { $0.reason == "lost-on-server" } == 30)
    #expect(try b.connection().integer("SELECT count(DISTINCT first) FROM salvor_archive") == 1)
    // Nobody has decided yet, and the server goes back once more: they wait again, and again.
    for _ in 1...2 {
      try await fleet.restore("night")
      try await synchronize([a, b], times: 2)
      #expect(try count(fleet, "site") == 33)
      #expect(try count(fleet, "salvor_heal_waiting") == 30)
      try fleet.expectEqual(tables, [a, b])
    }
    let engine = try #require(fleet.server?.engine)
    #expect(try await engine.acceptOffers(WaitingQuery()) == 30)
    try await synchronize([a, b], times: 2)
    #expect(try count(fleet, "site") == 3)
    try fleet.expectEqual(tables, [a, b])
  }

  @Test("where the operator reviews, rows stay on their device until he accepts them", arguments: [true, false])
  func review(onTheServer: Bool) async throws {
    let (fleet, a, b) = try await fleet(
      server: onTheServer ? "recovery: { heal: \"review\" }," : "", recovery: onTheServer ? "" : "heal: \"review\"")
    try await a.write(
      "UPDATE site SET seats = 99 WHERE id = 's10'", "INSERT INTO site (id, name) VALUES ('new', 'of a')",
      "INSERT INTO visit VALUES ('v1', 'new', 'a note', NULL)")
    try await synchronize([a], times: 1)
    try await fleet.restore("night")
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.waiting == 3)
    #expect(report.healed == 0)
    #expect(report.queuedReason == .waiting)
    // Nothing of it is seen to go, and what waits is not sent again and again.
    try await a.write("INSERT INTO visit VALUES ('v2', 'new', 'of today', NULL)")
    let second = try await a.sync()
    #expect(second.error == nil)
    #expect(second.bytesSent < 4000)
    #expect(try a.rows("site").contains { $0[0] == "new".value })
    #expect(try a.rows("visit").count == 2)
    #expect(try count(fleet, "site WHERE id = 'new' OR seats = 99") == 0)
    let engine = try #require(fleet.server?.engine)
    #expect(try await engine.acceptOffers(WaitingQuery(table: "site")) == 2)
    try await synchronize([a, b], times: 2)
    #expect(try await engine.acceptOffers(WaitingQuery()) <= 1)
    try await synchronize([a, b], times: 2)
    #expect(try count(fleet, "site WHERE id = 'new' OR seats = 99") == 2)
    #expect(try count(fleet, "visit") == 2)
    try fleet.expectEqual(tables, [a, b])
    #expect(try await a.open().status().queued == 0)
    #expect(try count(fleet, "salvor_heal_waiting") == 0)
  }

  @Test("where nearly all that is here waits, what needs it waits with it, and the rest goes on", arguments: [2, 40])
  func fewBesideManyThatWait(offers: Int) async throws {
    let (fleet, a, b) = try await fleet(server: "recovery: { heal: \"review\" },")
    try await a.write(
      "INSERT INTO site (id, name) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(offers)) SELECT 'n' || i, 'of a' FROM n"
    )
    try await synchronize([a], times: 1)
    try await fleet.restore("night")
    #expect(try await a.sync().waiting == Int64(offers))
    try await a.write(
      "INSERT INTO visit VALUES ('v1', 'n1', 'needs an offer', NULL)",
      "UPDATE visit SET note = 'needs one that does' WHERE id = 'v1'",
      "INSERT INTO visit VALUES ('v2', 's10', 'needs none', NULL)",
      "UPDATE visit SET note = 'needs none either' WHERE id = 'v2'", "UPDATE site SET seats = 5 WHERE id = 'n2'")
    for _ in 1...2 {
      let report = try await a.sync()
      #expect(report.error == nil && report.waiting == Int64(offers))
      #expect(try fleet.serverRows("visit").map { [$0[0], $0[2]] } == [["v2", "needs none either"]])
      #expect(report.queuedReason == .waiting)
      #expect(try await a.open().status().queued == Int64(offers) + 3)
    }
    #expect(try await fleet.server?.engine.acceptOffers(WaitingQuery()) == Int64(offers))
    let settled = try await a.sync()
    #expect(settled.error == nil && settled.uploaded == Int64(offers) + 3)
    try await synchronize([a, b], times: 2)
    #expect(try fleet.serverRows("visit").map { $0[0] } == ["v1", "v2"])
    #expect(try count(fleet, "site WHERE seats = 5") == 1)
    try fleet.expectEqual(tables, [a, b])
    #expect(try await a.open().status().queued == 0)
  }

  @Test("what waits is settled, and the schema drops a column: the device adopts it, and sends what needed its offers")
  func settledOverADrop() async throws {
    let (fleet, a, b) = try await fleet(server: "recovery: { heal: \"review\" },")
    try await a.write("INSERT INTO site (id, name) VALUES ('new', 'of a')")
    try await synchronize([a], times: 1)
    try await fleet.restore("night")
    #expect(try await a.sync().waiting == 1)
    try await a.write("INSERT INTO visit VALUES ('v1', 'new', 'needs the offer', NULL)")
    #expect(try await a.sync().queuedReason == .waiting)
    #expect(try await fleet.server?.engine.acceptOffers(WaitingQuery()) == 1)
    fleet.schemaText = Fleet.visits.replacing("version: 1", with: "version: 2").replacing(
      #"city: "text?", seats: "integer = 0" }"#, with: #"city: "text?" }, dropped: ["seats"]"#)
    try #require(fleet.schemaText.contains("dropped"))
    try await fleet.restart()
    let report = try await a.sync()
    #expect(report.error == nil && report.uploaded > 0, "\(String(describing: report.error))")
    try await synchronize([a, b], times: 2)
    for sites in [try fleet.serverConnection(), try a.connection(), try b.connection()] {
      #expect(try sites.integer("SELECT count(*) FROM visit JOIN site ON site.id = site_id WHERE site.id = 'new'") == 1)
    }
  }

  @Test("an offer that waits is taken back by its device: the server holds it no longer, and nobody gets it")
  func takenBack() async throws {
    let (fleet, a, b) = try await fleet(server: "recovery: { heal: \"review\" },")
    try await a.write(
      "INSERT INTO site (id, name) VALUES ('new', 'of a'), ('kept', 'of a')",
      "UPDATE site SET seats = 99 WHERE id = 's10'", "INSERT INTO visit VALUES ('v1', 'new', 'a note', NULL)")
    try await synchronize([a], times: 1)
    try await fleet.restore("night")
    #expect(try await a.sync().waiting == 4)
    // The parent takes its child along. An update is taken back as an entry of the archive would be.
    let queue = try await a.open().queue()
    let parent = try #require(queue.first { $0.key == ["new"] })
    let report = try await a.open().remove(.withdraw(parent.id))
    #expect(report.requests.flatMap(\.changes).map(\.table) == ["site", "visit"])
    let update = try #require(queue.first { $0.key == ["s10"] })
    _ = try await a.open().remove(.kept(update.id))
    #expect(try a.rows("visit").isEmpty)
    #expect(try a.rows("site").first { $0[0] == "s10" }?[3] == 40)
    // Killed before it told the server, and told twice.
    await a.close()
    #expect(try count(fleet, "salvor_heal_waiting") == 4)
    for _ in 1...2 {
      let told = try await a.sync()
      #expect(told.error == nil && told.waiting == 1)
      #expect(try count(fleet, "salvor_heal_waiting") == 1)
    }
    #expect(try await fleet.server?.engine.acceptOffers(WaitingQuery()) == 1)
    try await synchronize([a, b], times: 2)
    #expect(try count(fleet, "site WHERE id = 'new' OR seats = 99") == 0)
    #expect(try count(fleet, "site WHERE id = 'kept'") == 1)
    try fleet.expectEqual(tables, [a, b])
    #expect(try await a.open().status().queued == 0)
  }

  @Test("an offer that was accepted before the server hears that it was taken back stays, and comes to its device, too")
  func takenBackTooLate() async throws {
    let (fleet, a, b) = try await fleet(server: "recovery: { heal: \"review\" },")
    try await a.write("INSERT INTO site (id, name) VALUES ('new', 'of a')")
    try await synchronize([a], times: 1)
    try await fleet.restore("night")
    #expect(try await a.sync().waiting == 1)
    let held = try #require(try await a.open().queue().first)
    _ = try await a.open().remove(.withdraw(held.id))
    #expect(try await fleet.server?.engine.acceptOffers(WaitingQuery()) == 1)
    try await synchronize([a, b], times: 2)
    #expect(try count(fleet, "site WHERE id = 'new'") == 1)
    try fleet.expectEqual(tables, [a, b])
    #expect(try await a.open().status().queued == 0)
  }

  @Test("what the operator rejects is in its device's archive, and nowhere else")
  func rejected() async throws {
    let (fleet, a, b) = try await fleet(server: "recovery: { heal: \"review\" },")
    try await a.write("INSERT INTO site (id, name) VALUES ('new', 'of a')")
    try await synchronize([a], times: 1)
    try await fleet.restore("night")
    try await synchronize([a], times: 1)
    #expect(try await fleet.server?.engine.rejectOffers(WaitingQuery()) == 1)
    let report = try await a.sync()
    #expect(report.refused == 1)
    #expect(try await a.open().errorArchive().map(\.reason) == ["rejected"])
    try await synchronize([b], times: 2)
    #expect(try count(fleet, "site WHERE id = 'new'") == 0)
  }

  @Test("of deletes of one table the operator settles some, and their device hears of it with its next synchronization")
  func someDeletesSettled() async throws {
    let (fleet, a, _) = try await fleet(server: "recovery: { heal: \"review\" },")
    try await a.write("DELETE FROM site WHERE id = 's10'")
    try await synchronize([a], times: 1)
    try await fleet.restore("night")
    #expect(try await a.sync().waiting == 1)
    try await fleet.backup("later")
    try await a.write("DELETE FROM site WHERE id = 's11'")
    try await synchronize([a], times: 1)
    try await fleet.restore("later")
    #expect(try await a.sync().waiting == 2)
    let newest = try fleet.serverConnection().integer("SELECT max(restore) FROM salvor_heal_waiting")
    #expect(try await fleet.server?.engine.rejectOffers(WaitingQuery(restore: newest)) == 1)
    let report = try await a.sync()
    #expect(report.refused == 1 && report.waiting == 1)
    #expect(try await a.open().errorArchive().map(\.key) == [["s11"]])
  }

  @Test(
    "a child whose parent waits for a person waits with it, over a restart and one more restore, and comes behind it")
  func childWaits() async throws {
    let reviewed = Fleet.visits.replacing(
      "seats: \"integer = 0\" } },", "seats: \"integer = 0\" }, heal: \"review\" },")
    let (fleet, a, b) = try await fleet(schema: reviewed)
    try await a.write(
      "INSERT INTO site (id, name) VALUES ('new', 'of a')", "INSERT INTO visit VALUES ('v1', 'new', 'a note', NULL)",
      "INSERT INTO visit VALUES ('v2', 's10', 'another', NULL)")
    try await synchronize([a, b], times: 2)
    for _ in 1...2 {
      try await fleet.restore("night")
      let report = try await a.sync()
      #expect(report.error == nil)
      // A server that drops the child says that two of three are settled.
      #expect(report.waiting == 2)
      #expect(report.healed == 1)
      #expect(try count(fleet, "salvor_heal_waiting WHERE reason = 'parent' AND \"table\" = 'visit'") == 1)
      #expect(try fleet.serverRows("visit").map { $0[0] } == ["v2"])
    }
    try await fleet.restart()
    try await synchronize([a, b], times: 2)
    #expect(try a.rows("visit").map { $0[0] } == ["v1", "v2"])
    let engine = try #require(fleet.server?.engine)
    #expect(try await engine.acceptOffers(WaitingQuery(table: "site")) == 1)
    // The child goes on by itself.
    #expect(try fleet.serverRows("visit").map { $0[0] } == ["v1", "v2"])
    #expect(try count(fleet, "salvor_heal_waiting") == 0)
    try await synchronize([a, b], times: 2)
    try fleet.expectEqual(tables, [a, b])
    #expect(try await a.open().status().queued == 0)
  }
}
