import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

/// What operators and devices meet after a restore that takes most rows back (semantics 9 and 10).
@Suite("Restores that take most rows back: the guard, its plan, and what children need")
struct BadDayTests {
  /// Two sites that a backup has, and `count` that it does not have: another device wrote these.
  private func fleet(
    _ recovery: String, rows count: Int = 40, serverOptions: String = "authentication: { module: \"none\" },"
  ) async throws -> (Fleet, Device, Device) {
    let fleet = try Fleet(serverOptions: serverOptions)
    try await fleet.start()
    let a = try fleet.device("a", recovery: recovery)
    let b = try fleet.device("b")
    for device in [a, b] {
      try await device.write("INSERT INTO site (id, name) VALUES ('\(device.name)', 'of \(device.name)')")
      #expect(try await device.sync().error == nil)
    }
    try await fleet.backup("night")
    try await b.write(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(count)) INSERT INTO site (id, name) SELECT 'n' || i, 'late' FROM n"
    )
    // It has sent something since the backup: the server finds that it was restored.
    try await a.write("UPDATE site SET seats = 1 WHERE id = 'a'")
    for device in [b, a] { #expect(try await device.sync().error == nil) }
    return (fleet, a, b)
  }

  @Test(
    "a lost row of one's own comes back with the lost row of another device that it references, whatever the strategy, as planned",
    arguments: ["recover-unsynced-changes", "discard-unsynced-changes", "recreate", "copy-and-resubscribe"])
  func lostParentOfAnother(strategy: String) async throws {
    let (fleet, a, b) = try await fleet("strategy: \"\(strategy)\"", rows: 3)
    try await a.write("INSERT INTO visit (id, site_id, note) VALUES ('v', 'n2', 'of a')")
    #expect(try await a.sync().error == nil)
    await b.close()
    try await fleet.restore("night")
    let plan = try await a.open().recoveryPlan()
    let report = try await a.sync()
    #expect(report.error == nil, "\(String(describing: report.error))")
    let counts = try #require(report.recovery?.report?.counts)
    // The visit and the change are its own, and the site goes along; the other two sites are for their device to offer.
    #expect(counts.offered == 3)
    #expect(counts.unoffered == [.notOwn: 2])
    #expect([plan.counts.offered, plan.counts.lost] == [counts.offered, counts.lost])
    #expect(plan.counts.unoffered == counts.unoffered)
    #expect(try fleet.serverRows("visit") == [["v", "n2", "of a", .null]])
    #expect(try fleet.serverRows("site").map { $0[0] } == ["a", "b", "n2"])
    try fleet.expectEqual(["site", "visit"], [a])
    let status = try await a.open().status()
    #expect([status.queued, status.inError, status.displaced] == [0, 0, 0])
    // Whose site it is gives the others back, and changes nothing of this one.
    #expect(try await b.sync().error == nil)
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(["site", "visit"], [a, b])
    #expect(try fleet.serverRows("site").count == 5)
    #expect(try fleet.serverConnection().integer("SELECT count(*) FROM salvor_conflict WHERE resolution IS NULL") == 0)
  }

  @Test(
    "the plan says that the guard would stop the next synchronization, in the words of that; by hand, or demanded, it goes through",
    arguments: ["recover-unsynced-changes", "recreate", "upload-then-recreate"])
  func planKnowsTheGuard(strategy: String) async throws {
    let (fleet, a, _) = try await fleet("strategy: \"\(strategy)\"")
    try await fleet.restore("night")
    let plan = try await a.open().recoveryPlan()
    let byHand = try await a.open().recoveryPlan(strategy: strategy)
    #expect(byHand.guarded == nil)
    #expect(byHand.strategy == strategy)
    #expect(byHand.counts.deletes == 40)
    let stopped = try await a.sync()
    #expect(stopped.outcome == .recoveryRequired)
    #expect(plan.strategy == stopped.recovery?.strategy)
    #expect(plan.fellBackFrom == stopped.recovery?.fellBackFrom)
    let message = try #require(plan.guarded)
    #expect(stopped.error?.message.hasPrefix(message) == true)
    #expect(plan.notes.contains { $0.hasPrefix("\(strategy): \(message)") })
    #expect(plan.json["guard"]?["name"] == "mass-deletion")
    #expect(plan.steps == ["copy", "wait"])
    #expect(try a.rows("site").count == 42, "nothing was changed")
    // What waits for a person is planned as by hand.
    #expect(try await a.open().recoveryPlan().guarded == nil)
    #expect(try await fleet.server?.engine.demandResets(of: nil) == 2)
    #expect(try await a.open().recoveryPlan().guarded == nil)
    await fleet.stop()
  }

  @Test(
    "the guard stops upload-then-recreate before the server has forgotten the device: its operator releases it",
    arguments: [true, false])
  func uploadThenRecreate(isSelfService: Bool) async throws {
    let (fleet, a, _) = try await fleet(
      "strategy: \"upload-then-recreate\"",
      serverOptions:
        "authentication: { module: \"none\" }, recovery: { selfServiceRemoteDeletion: \(isSelfService) },")
    try await a.write("INSERT INTO site (id, name) VALUES ('mine', 'waits')")
    try await fleet.restore("night")
    #expect(try await a.sync().outcome == .recoveryRequired)
    #expect(try a.rows("site").count == 43)
    let remote = try await a.open().status().state.remoteID
    let isKnown = "SELECT deleted = 0 FROM salvor_remote WHERE id = ?1"
    #expect(try fleet.serverConnection().integer(isKnown, .text(remote.text)) == 1)
    #expect(try await a.sync().outcome == .recoveryRequired, "it waits for a person")
    #expect(try await fleet.server?.engine.demandReset(of: remote) == true)
    var report = try await a.sync()
    if !isSelfService {
      #expect(report.error?.message.contains("salvor remotes delete \(remote)") == true)
      #expect(try await fleet.server?.engine.delete(remote: remote, block: false) == true)
      report = try await a.sync()
    }
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    // What waited, and what the server has lost of its own.
    #expect(report.uploaded == 2)
    #expect(try fleet.serverRows("site").map { $0[0] } == ["a", "b", "mine"])
    try fleet.expectEqual(["site"], [a])
    await fleet.stop()
  }

  @Test("a device that waits for a person, and whose remote ID was deleted then, is released by a demand of its reset")
  func demandOfADeletedRemote() async throws {
    let (fleet, a, _) = try await fleet("")
    try await fleet.restore("night")
    #expect(try await a.sync().outcome == .recoveryRequired)
    let remote = try await a.open().status().state.remoteID
    #expect(try await fleet.server?.engine.delete(remote: remote, block: false) == true)
    #expect(try await a.sync().outcome == .recoveryRequired)
    #expect(try await fleet.server?.engine.demandReset(of: remote) == true)
    let report = try await a.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(["site"], [a])
    #expect(try fleet.serverConnection().integer("SELECT sum(reset) FROM salvor_remote") == 0)
    await fleet.stop()
  }

  @Test("changes whose log somebody has dropped are found by comparing with the server, and a note says what is lost")
  func droppedLog() async throws {
    let (fleet, a, b) = try await fleet("", rows: 30)
    try await a.write("INSERT INTO site (id, name) VALUES ('sent', 'before')")
    #expect(try await a.sync().error == nil)
    try await a.write(
      "INSERT INTO site (id, name) VALUES ('mine', 'unsent')", "UPDATE site SET seats = 7 WHERE id = 'n1'",
      "DELETE FROM site WHERE id = 'n2'")
    await a.close()
    try a.connection().execute("DROP TABLE salvor_log")
    try await b.write("UPDATE site SET seats = 5 WHERE id = 'n3'")
    #expect(try await b.sync().error == nil)
    let first = try await a.sync()
    #expect(first.error == nil, "\(String(describing: first.error))")
    #expect(first.notices.contains { $0.hasPrefix("The table salvor_log was not there any more") })
    #expect(try await a.sync().notices == [])
    #expect(try fleet.serverRows("site").contains(["mine", "unsent", .null, 0]))
    #expect(try fleet.serverRows("site").first { $0[0] == "n1" }?[3] == 7)
    #expect(try !fleet.serverRows("site").contains { $0[0] == "n2" })
    try fleet.expectEqual(["site"], [a])
    let status = try await a.open().status()
    #expect([status.queued, status.inError, status.displaced] == [0, 0, 0])
    // The application's writes are captured as before.
    try await a.write("UPDATE site SET seats = 8 WHERE id = 'mine'")
    #expect(try await a.sync().uploaded == 1)
    try fleet.expectEqual(["site"], [a])
    await fleet.stop()
  }
}
