import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

/// A lost row that a change of its device makes again is an offer, with that change upon it (decision 230).
@Suite("Heal: lost rows that a waiting change makes again, and who has to consent to them (semantics 10)")
struct HealingConsentTests {
  private func sites(_ fleet: Fleet) throws -> [[Value]] { try fleet.serverRows("site").map { Array($0[..<3]) } }

  private func archive(_ device: Device) throws -> [[Value]] {
    try device.connection().rows("SELECT state, reason, operation FROM salvor_error_archive ORDER BY state, operation")
  }

  /// Two devices with the site s0; the copy "dawn" is of then. What `a` wrote since, s9 and s8, the server has acknowledged.
  private func fleet(server: String = "", a: String = "", b: String = "") async throws -> (Fleet, Device, Device) {
    let fleet = try Fleet(serverOptions: "authentication: { module: \"none\" }, \(server)")
    try await fleet.start()
    let devices = (try fleet.device("a", recovery: a), try fleet.device("b", recovery: b))
    try fleet.serverConnection().execute("INSERT INTO site (id, name, city) VALUES ('s0', 'Zero', 'Berne')")
    try await synchronize([devices.0, devices.1], times: 1)
    try await fleet.backup("dawn")
    try await devices.0.write(
      "INSERT INTO site (id, name, city) VALUES ('s9', 'Nine', 'Ottawa'), ('s8', 'Eight', 'Bonn')")
    try await synchronize([devices.0, devices.1], times: 1)
    return (fleet, devices.0, devices.1)
  }

  private func reviewed(onTheServer: Bool = true) async throws -> (Fleet, Device, Device) {
    let mode = "heal: \"review\""
    return try await onTheServer ? fleet(server: "recovery: { \(mode) },") : fleet(a: mode, b: mode)
  }

  private static let before: [[Value]] = [["s0", "Zero", "Berne"]]

  @Test(
    "what the operator has not consented to does not come back for a change of it, and both come when he has",
    arguments: [true, false])
  func accepted(onTheServer: Bool) async throws {
    let (fleet, a, b) = try await reviewed(onTheServer: onTheServer)
    try await a.write("UPDATE site SET name = 'changed' WHERE id = 's9'")
    try await fleet.restore("dawn")
    for _ in 1...2 {
      let report = try await a.sync()
      #expect(report.error == nil && report.waiting == 2 && report.refused == 0 && report.queuedReason == .waiting)
      #expect(try sites(fleet) == Self.before)
    }
    // What is written since waits behind it.
    try await a.write(
      "UPDATE site SET city = 'Quebec' WHERE id = 's9'", "INSERT INTO visit (id, site_id) VALUES ('v1', 's9')")
    #expect(try await a.sync().waiting == 2)
    #expect(try sites(fleet) == Self.before)
    #expect(try await fleet.server?.engine.acceptOffers(WaitingQuery()) == 2)
    try await synchronize([a, b], times: 2)
    #expect(try sites(fleet) == Self.before + [["s8", "Eight", "Bonn"], ["s9", "changed", "Quebec"]])
    try fleet.expectEqual(["site", "visit"], [a, b])
    #expect(try archive(a) == [])
    #expect(try await a.open().status().queued == 0)
  }

  @Test("deletes that waited for consent wait again after one more restore, all of them, and are done when it is given")
  func deletesAfterTwoRestores() async throws {
    let (fleet, a, b) = try await fleet(a: "heal: \"review\"")
    try await a.write("INSERT INTO site (id, name) VALUES ('s1', 'x'), ('s2', 'x'), ('s3', 'x')")
    try await synchronize([a, b], times: 2)
    try await fleet.backup("dawn")
    try await a.write("DELETE FROM site WHERE id IN ('s1', 's2', 's3')")
    try await synchronize([a, b], times: 2)
    for _ in 1...3 {
      try await fleet.restore("dawn")
      try await synchronize([a, b], times: 2)
      #expect(try fleet.serverConnection().integer("SELECT count(*) FROM salvor_heal_waiting") == 3)
      #expect(try await a.open().status().waiting == 3)
    }
    #expect(try await fleet.server?.engine.acceptOffers(WaitingQuery()) == 3)
    try await synchronize([a, b], times: 2)
    #expect(try fleet.serverConnection().integer("SELECT count(*) FROM site WHERE id IN ('s1', 's2', 's3')") == 0)
    try fleet.expectEqual(["site"], [a, b])
    #expect(try await a.open().status().waiting == 0)
    await fleet.stop()
  }

  @Test("a conflict version that an accepted offer has become is given back after one more restore (decision 94)")
  func conflictOfAnAcceptedOffer() async throws {
    let (fleet, a, b) = try await fleet(b: "heal: \"review\"")
    try await b.write("UPDATE site SET name = 'of b' WHERE id = 's0'")
    try await synchronize([b], times: 1)
    try await fleet.restore("dawn")
    try await a.write("UPDATE site SET name = 'of a' WHERE id = 's0'")
    try await synchronize([a], times: 1)
    #expect(try await b.sync().waiting == 1)
    for _ in 1...2 {
      _ = try await fleet.server?.engine.acceptOffers(WaitingQuery())
      try await synchronize([b, a], times: 2)
      #expect(try sites(fleet).first?[1] == "of a")
      let open = try fleet.serverConnection().rows("SELECT client FROM salvor_conflict WHERE resolution IS NULL")
      #expect(open.count == 1 && open[0][0].string?.contains("of b") == true)
      try await fleet.restore("dawn")
      for device in [a, b] { #expect(try await device.sync().error == nil) }
    }
    await fleet.stop()
  }

  @Test("what the operator rejects is named, the row and the change, each with its values")
  func rejected() async throws {
    let (fleet, a, b) = try await reviewed()
    try await a.write(
      "UPDATE site SET name = 'changed' WHERE id = 's9'", "INSERT INTO visit (id, site_id) VALUES ('v1', 's9')")
    try await fleet.restore("dawn")
    #expect(try await a.sync().waiting == 2)
    #expect(try await fleet.server?.engine.rejectOffers(WaitingQuery()) == 2)
    let told = try await a.sync()
    #expect(told.refused == 3 && told.waiting == 0)
    #expect(try await a.open().status().waiting == 0)
    try await synchronize([a, b], times: 2)
    #expect(try sites(fleet) == Self.before)
    #expect(
      try archive(a) == [
        ["blocked", "blocked", "insert"], ["kept", "rejected", "update"], ["refused", "rejected", "insert"],
        ["refused", "rejected", "insert"],
      ])
    let change = try a.connection().rows("SELECT before, after FROM salvor_error_archive WHERE state = 'kept'").first
    #expect(change?[0].string?.contains("Nine") == true && change?[1].string?.contains("changed") == true)
    #expect(try a.rows("site").map { $0[1] } == ["Zero", "Eight", "Nine"])
    // Whoever gives it up does so for good.
    let client = try await a.open()
    let first = try #require(try await client.errorArchive().first { $0.state == .refused })
    _ = try await client.delete(first.id)
    _ = try await client.remove(.allKept)
    try await synchronize([a, b], times: 2)
    try fleet.expectEqual(["site", "visit"], [a, b])
    #expect(try await a.open().status().queued == 0)
  }

  @Test(
    "where the change is one of several in a request it goes to the archive, and the row waits as it was acknowledged")
  func group() async throws {
    let (fleet, a, b) = try await reviewed()
    try await a.write(
      "INSERT INTO salvor_request (tag) VALUES ('both')", "UPDATE site SET name = 'changed' WHERE id = 's9'",
      "INSERT INTO site (id, name) VALUES ('s7', 'Seven')", "DELETE FROM salvor_request")
    try await fleet.restore("dawn")
    let report = try await a.sync()
    #expect(report.error == nil && report.waiting == 2 && report.refused == 1)
    #expect(try sites(fleet) == Self.before)
    #expect(try archive(a) == [["kept", "row-deleted", "insert"], ["kept", "row-deleted", "update"]])
    #expect(try await fleet.server?.engine.acceptOffers(WaitingQuery()) == 2)
    try await synchronize([a, b], times: 2)
    #expect(try sites(fleet) == Self.before + [["s8", "Eight", "Bonn"], ["s9", "Nine", "Ottawa"]])
    let client = try await a.open()
    let kept = try #require(try await client.errorArchive().first)
    _ = try await client.reapply(kept.id)
    try await synchronize([a, b], times: 2)
    #expect(
      try sites(fleet)
        == Self.before + [["s7", "Seven", .null], ["s8", "Eight", "Bonn"], ["s9", "changed", "Ottawa"]])
    try fleet.expectEqual(["site"], [a, b])
  }

  @Test("whoever takes back a change that waits with its row leaves the row, as it was acknowledged, to wait")
  func takenBack() async throws {
    let (fleet, a, b) = try await reviewed()
    try await a.write("UPDATE site SET name = 'changed' WHERE id = 's9'")
    try await fleet.restore("dawn")
    #expect(try await a.sync().waiting == 2)
    let client = try await a.open()
    let change = try #require(try await client.queue().first { $0.key == ["s9"] })
    _ = try await client.withdraw(change.id)
    #expect(try await a.sync().waiting == 2)
    #expect(try await fleet.server?.engine.acceptOffers(WaitingQuery()) == 2)
    try await synchronize([a, b], times: 2)
    #expect(try sites(fleet) == Self.before + [["s8", "Eight", "Bonn"], ["s9", "Nine", "Ottawa"]])
    try fleet.expectEqual(["site"], [a, b])
    #expect(try await a.open().status().queued == 0)
  }

  @Test(
    "the older copy of a device that heals nothing does not stand over a newer one, where its change does not write",
    arguments: [true, false])
  func olderCopy(comesFirst: Bool) async throws {
    let (fleet, a, b) = try await fleet(a: "heal: \"off\"")
    try await b.write("UPDATE site SET name = 'newer', city = 'Quebec' WHERE id = 's9'")
    try await synchronize([b], times: 1)
    try await a.write("UPDATE site SET name = 'changed' WHERE id = 's9'")
    try await fleet.restore("dawn")
    try await synchronize(comesFirst ? [a, b] : [b, a], times: 2)
    #expect(try sites(fleet) == Self.before + [["s9", "changed", "Quebec"]])
    try await synchronize([a, b], times: 2)
    try fleet.expectEqual(["site"], [a, b])
    // Nobody offers s8; where the newer version of s9 was there already, what is below it is named, too.
    let lost: [[Value]] = [["kept", "lost-on-server", "insert"], ["kept", "lost-on-server", "update"]]
    #expect(try archive(a) == (comesFirst ? Array(lost.prefix(1)) : lost))
  }
}
