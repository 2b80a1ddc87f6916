import Foundation
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

@Suite("Heal: copies of a server's histories come in turns (semantics 6 and 10)")
struct HealingCopiesTests {
  private func site(_ fleet: Fleet, _ id: String) throws -> [Value]? {
    try fleet.serverRows("site").first { $0[0] == .text(id) }
  }

  /// The device recovers, and does not begin a session after that: its network is gone.
  private func recoverAlone(_ fleet: Fleet, _ device: Device) async throws {
    let before = try await device.open().recoveries(limit: 100).count
    var exchanges = 2
    while try await device.open().recoveries(limit: 100).count == before {
      fleet.faults.pass(exchanges)
      for _ in 0..<10 { fleet.faults.inject(.loseRequest) }
      #expect(try await device.sync().error != nil)
      fleet.faults.clear()
      exchanges += 1
      try #require(exchanges < 20)
    }
    #expect(try await device.open().status().queued > 0, "it has sent nothing")
  }

  @Test("before-images are put back while the offers of their recovery wait, and what was lost is offered after that")
  func imagesBesideOffers() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let a = try fleet.device("a")
    try await a.write("INSERT INTO site (id, name) VALUES ('s0', 'Zero')")
    try await synchronize([a])
    try await fleet.backup("night")
    try await a.write(
      "UPDATE site SET seats = 7 WHERE id = 's0'", "INSERT INTO site (id, name) VALUES ('s1', 'lost')",
      "INSERT INTO visit (id, site_id) VALUES ('v1', 's1')")
    try await synchronize([a])
    await a.close()
    try await fleet.restore("night")
    try fleet.serverConnection().execute("UPDATE site SET city = 'Hull' WHERE id = 's0'")
    try await recoverAlone(fleet, a)
    let rows = try a.rows("visit")
    try await a.write("INSERT INTO visit (id, site_id) VALUES ('v2', 's1')")
    let backup = try #require(try await a.open().backups().first)
    #expect(backup.content == .beforeImages)
    try await a.open().restoreBackup(backup.id)
    #expect(try a.rows("visit") == rows)
    #expect(try await a.open().errorArchive().map(\.key) == [["v2"]])
    // A second reset against one history, with no synchronization between them, is a person's.
    let stopped = try await a.sync()
    #expect(stopped.exitCode == 5)
    let token = stopped.recovery?.token
    #expect(try await a.open().recover(strategy: "recover-unsynced-changes", token: token).error == nil)
    for _ in 0..<3 { try await synchronize([a]) }
    try fleet.expectEqual(["site", "visit"], [a])
    #expect(try site(fleet, "s0") == ["s0", "Zero", "Hull", 7])
    #expect(try site(fleet, "s1") == ["s1", "lost", .null, 0])
    #expect(try fleet.serverRows("visit").map { $0[0] } == ["v1"])
  }

  @Test(
    "copies of two histories come in turns, and a device only recovers from one of them, or synchronizes with each: nothing is forgotten",
    arguments: [true, false])
  func copiesOfTwoHistories(recoversAlone: Bool) async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site (id, name) VALUES ('s0', 'Zero')")
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    for device in [a, b] {
      try await device.write("INSERT INTO site (id, name) VALUES ('\(device.name)', 'of \(device.name)')")
    }
    try await synchronize([a, b])
    try await b.write("UPDATE site SET seats = 1 WHERE id = 's0'")
    try await synchronize([b, a])
    // While the server runs: its next commit is of the same incarnation in both histories' numbers.
    try fleet.serverConnection().execute("VACUUM INTO '\(fleet.directory)/dawn.backup'")
    try await b.write("UPDATE site SET seats = 2 WHERE id = 's0'")
    try await synchronize([b])
    try await fleet.backup("noon")
    try await fleet.restore("dawn")
    try await a.write("INSERT INTO site (id, name) VALUES ('new', 'one')")
    try await synchronize([a])
    try await fleet.backup("evening")
    try await a.write("UPDATE site SET name = 'two' WHERE id = 'new'")
    try await synchronize([a])
    // The other history has no such row, and gets it as it was.
    try await fleet.restore("noon")
    try await synchronize([a])
    #expect(try site(fleet, "new")?[1] == "two")
    // The first one has it as it was before, and is gone again before the device says so.
    try await fleet.restore("evening")
    if recoversAlone { try await recoverAlone(fleet, a) } else { try await synchronize([a]) }
    try await fleet.restore("noon")
    try await synchronize([a, b], times: 2)
    if recoversAlone {
      #expect(try site(fleet, "new")?[1] == "two")
    } else {
      // It has met the value of before as another's, written after the parting: its own is kept beside it.
      let kept = try fleet.serverConnection().integer(
        "SELECT count(*) FROM salvor_conflict WHERE resolution IS NULL AND client LIKE '%two%'")
      #expect(kept == 1)
    }
    #expect(try site(fleet, "s0")?[3] == 2)
    try fleet.expectEqual(["site", "visit"], [a, b])
    let status = try await a.open().status()
    #expect([status.queued, status.inError, status.displaced] == [0, 0, 0])
  }

  @Test(
    "what another program wrote before a copy was made, and nobody had synchronized yet, is of the copy: offers of newer values come back"
  )
  func writtenBeforeTheCopy() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site (id, name) VALUES ('s0', 'Zero')")
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    try await a.write("INSERT INTO site (id, name) VALUES ('a', 'of a')")
    try await synchronize([a, b])
    let imported =
      "UPDATE site SET name = 'imported' WHERE id = 's0'; INSERT INTO site (id, name) VALUES ('s1', 'imported'), ('s2', 'imported')"
    try fleet.serverConnection().execute(imported)
    try await fleet.backup("night")
    try await synchronize([a, b])
    try await a.write("UPDATE site SET name = 'newer' WHERE id IN ('s0', 's1')", "DELETE FROM site WHERE id = 's2'")
    try await synchronize([a, b])
    try await fleet.restore("night")
    // A write after the restore stands.
    try fleet.serverConnection().execute("UPDATE site SET city = 'after' WHERE id = 's1'")
    try await synchronize([a, b], times: 2)
    let expected: [[Value]] = [["a", "of a", .null], ["s0", "newer", .null], ["s1", "newer", "after"]]
    #expect(try fleet.serverRows("site").map { Array($0[..<3]) } == expected)
    #expect(
      try fleet.serverConnection().integer("SELECT count(*) FROM salvor_conflict") == 1,
      "the city, which was written after the restore")
    try fleet.expectEqual(["site"], [a, b])
  }

  @Test("a delete that a newer copy has under another number is its device's, too, where that copy is lost")
  func deleteOfTwoHistories() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    try await a.write("INSERT INTO site (id, name) VALUES ('s1', 'One')")
    try await synchronize([a, b])
    try await fleet.backup("dawn")
    // One history: another program deletes the row, and the device does not hear of it.
    try await a.write("INSERT INTO site (id, name) VALUES ('s2', 'Two')")
    try await synchronize([a])
    for site in 3...5 {
      try fleet.serverConnection().execute("INSERT INTO site (id, name) VALUES ('s\(site)', 'more')")
      try await synchronize([b])
    }
    try await fleet.backup("evening")
    try fleet.serverConnection().execute("DELETE FROM site WHERE id = 's1'")
    try await fleet.backup("night")
    // The other one: the device deletes it, by a commit with a number that the first one has at evening.
    try await fleet.restore("dawn")
    try await synchronize([a])
    try await a.write("DELETE FROM site WHERE id = 's1'")
    try await synchronize([a])
    #expect(try site(fleet, "s1") == nil)
    try await fleet.restore("dawn")
    try await recoverAlone(fleet, a)
    try await fleet.restore("night")
    try await synchronize([a])
    #expect(try a.rows("site").count == 4)
    try await fleet.restore("evening")
    try await synchronize([a, b], times: 2)
    #expect(try site(fleet, "s1") == nil, "it was deleted, and has come back")
    try fleet.expectEqual(["site", "visit"], [a, b])
    let status = try await a.open().status()
    #expect([status.queued, status.inError, status.displaced] == [0, 0, 0])
  }
}
