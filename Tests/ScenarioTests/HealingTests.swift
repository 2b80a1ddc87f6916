import Foundation
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

private let tables = ["severity", "site", "visit"]

/// Ten sites, and two devices that have them. A backup named `night` was made then.
private func fleet(recovery: String = "") async throws -> (Fleet, Device, Device) {
  let fleet = try Fleet()
  try await fleet.start()
  try fleet.serverConnection().execute(
    "INSERT INTO site WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT 's' || i, 'Site ' || i, 'Toronto', 40 FROM n"
  )
  let a = try fleet.device("a", recovery: recovery)
  let b = try fleet.device("b", recovery: recovery)
  for device in [a, b] {
    // Each has uploaded before: a server that goes back has seen it.
    try await device.write("INSERT INTO site (id, name) VALUES ('\(device.name)', 'of \(device.name)')")
    #expect(try await device.sync().error == nil)
  }
  #expect(try await a.sync().error == nil)
  try await fleet.backup("night")
  return (fleet, a, b)
}

private func site(_ fleet: Fleet, _ id: String) throws -> [Value]? {
  try fleet.serverRows("site").first { $0[0] == .text(id) }
}

@Suite("Heal: the fleet gives a restored server back what it lost (semantics 10)")
struct HealingTests {
  @Test(
    "what was acknowledged after the backup is on the server again, whoever returns first", arguments: [true, false])
  func everythingComesBack(aReturnsFirst: Bool) async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write(
      "UPDATE site SET seats = 99 WHERE id = 's3'", "INSERT INTO site (id, name) VALUES ('new', 'of a')",
      "INSERT INTO visit VALUES ('v1', 'new', 'a note', NULL)", "DELETE FROM site WHERE id = 's4'")
    try await synchronize([a], times: 2)
    try await b.write("UPDATE site SET city = 'Ottawa' WHERE id IN ('s3', 's5')")
    try await synchronize([b, a], times: 2)
    let before = try tables.map { try fleet.serverRows($0) }
    try await fleet.restore("night")
    #expect(try tables.map { try fleet.serverRows($0) } != before)
    let devices = aReturnsFirst ? [a, b] : [b, a]
    // The application sees none of it go.
    let first = try await devices[0].sync()
    #expect(first.error == nil, "\(String(describing: first.error))")
    #expect((first.recovery?.report?.counts.offered ?? 0) > 0)
    #expect(first.healed == first.recovery?.report?.counts.offered)
    try await synchronize(devices, times: 2)
    #expect(try tables.map { try fleet.serverRows($0) } == before)
    try fleet.expectEqual(tables, [a, b])
    for device in devices {
      let status = try await device.open().status()
      #expect([status.queued, status.inError, status.displaced] == [0, 0, 0], "\(device.name)")
      // What another device wrote is that one's to offer.
      let kept = try await device.open().errorArchive()
      #expect(kept.allSatisfy { $0.reason == "lost-on-server" }, "\(device.name)")
    }
  }

  @Test("of one row's lost versions the newest wins, whoever offers it first", arguments: [true, false])
  func newestWins(olderReturnsFirst: Bool) async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write("UPDATE site SET seats = 1 WHERE id = 's0'")
    try await synchronize([a], times: 1)
    try await b.write("UPDATE site SET seats = 2 WHERE id = 's0'")
    // The device b has not seen the change of a when it writes, and wins by the policy; a never sees it.
    try await synchronize([b], times: 1)
    #expect(try site(fleet, "s0")?[3] == 2)
    try await fleet.restore("night")
    try await synchronize(olderReturnsFirst ? [a, b] : [b, a], times: 2)
    #expect(try site(fleet, "s0")?[3] == 2)
    try fleet.expectEqual(tables, [a, b])
  }

  @Test("a column that was written after the restore stands; the others of the row come back")
  func writtenAfterTheRestoreStands() async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write("UPDATE site SET seats = 77, city = 'Guelph', name = 'lost name' WHERE id = 's1'")
    try await synchronize([a], times: 2)
    try await fleet.restore("night")
    try fleet.serverConnection().execute("UPDATE site SET city = 'Office' WHERE id = 's1'")
    try await synchronize([a, b], times: 2)
    #expect(try site(fleet, "s1") == ["s1".value, "lost name".value, "Office".value, 77])
    try fleet.expectEqual(tables, [a, b])
    let conflicts = try fleet.serverConnection().integer(
      "SELECT count(*) FROM salvor_conflict WHERE resolution IS NULL")
    #expect(conflicts == 1, "the offered value that lost is a conflict version")
  }

  @Test("what a device sent with its very first synchronization comes back, too")
  func firstSynchronization() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site (id, name) VALUES ('s1', 'One')")
    try await fleet.backup("night")
    let a = try fleet.device("a")
    try await a.write("INSERT INTO site (id, name) VALUES ('first', 'of a')")
    #expect(try await a.sync().error == nil)
    try await fleet.restore("night")
    #expect(try await a.sync().healed == 1)
    #expect(try fleet.serverRows("site").map { $0[0] } == ["first".value, "s1".value])
    try fleet.expectEqual(tables, [a])
    #expect(try await a.open().errorArchive() == [])
  }

  @Test("a row deleted after the restore stays deleted")
  func deletedAfterTheRestore() async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write("UPDATE site SET seats = 77 WHERE id = 's1'")
    try await synchronize([a], times: 2)
    try await fleet.restore("night")
    try fleet.serverConnection().execute("DELETE FROM site WHERE id = 's1'")
    try await synchronize([a, b], times: 2)
    #expect(try site(fleet, "s1") == nil)
    try fleet.expectEqual(tables, [a, b])
    let conflicts = try fleet.serverConnection().integer(
      "SELECT count(*) FROM salvor_conflict WHERE resolution IS NULL")
    #expect(conflicts == 1, "what was lost is a conflict version")
  }

  @Test("a device's own changes since the restore come after what it offers")
  func ownChangesComeAfter() async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write(
      "UPDATE site SET seats = 1, city = 'lost' WHERE id = 's1'", "INSERT INTO site (id, name) VALUES ('new', 'lost')",
      "UPDATE site SET seats = 1 WHERE id = 's2'")
    try await synchronize([a], times: 2)
    try await a.write(
      "UPDATE site SET seats = 2 WHERE id = 's1'", "UPDATE site SET name = 'written since' WHERE id = 'new'",
      "INSERT INTO visit VALUES ('v1', 'new', 'of today', NULL)", "DELETE FROM site WHERE id = 's2'")
    try await fleet.restore("night")
    try await synchronize([a, b], times: 2)
    #expect(try site(fleet, "s1") == ["s1".value, "Site 1".value, "lost".value, 2])
    #expect(try site(fleet, "new")?[1] == "written since".value)
    #expect(try site(fleet, "s2") == nil)
    #expect(try fleet.serverRows("visit").count == 1)
    try fleet.expectEqual(tables, [a, b])
  }

  @Test("heal off: what was lost stays in the archive")
  func off() async throws {
    let (fleet, a, b) = try await fleet(recovery: "heal: \"off\"")
    try await a.write("UPDATE site SET seats = 99 WHERE id = 's3'")
    try await synchronize([a], times: 2)
    try await fleet.restore("night")
    let report = try await a.sync()
    #expect(report.recovery?.report?.counts.offered == 0)
    #expect(report.healed == 0)
    try await synchronize([a, b], times: 2)
    #expect(try site(fleet, "s3")?[3] == 40)
    #expect(try await a.open().errorArchive().map(\.reason) == ["lost-on-server"])
    try fleet.expectEqual(tables, [a, b])
  }

  @Test("heal all: who only read a row gives it back, too")
  func all() async throws {
    let (fleet, a, b) = try await fleet(recovery: "heal: \"all\"")
    try await a.write(
      "UPDATE site SET seats = 99 WHERE id = 's3'", "INSERT INTO site (id, name) VALUES ('new', 'of a')")
    try await synchronize([a, b], times: 2)
    try await fleet.restore("night")
    // The device a never comes back.
    try await synchronize([b], times: 2)
    #expect(try site(fleet, "s3")?[3] == 99)
    #expect(try site(fleet, "new") != nil)
    try fleet.expectEqual(tables, [b])
    try await synchronize([a], times: 2)
    try fleet.expectEqual(tables, [a, b])
    #expect(try await a.open().status().kept == 0)
  }

  @Test("a value that a later lost write had set back stays set back, whoever returns first", arguments: [true, false])
  func setBack(olderReturnsFirst: Bool) async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write("UPDATE site SET seats = 99 WHERE id = 's3'")
    try await synchronize([a, b], times: 1)
    try await b.write("UPDATE site SET seats = 40 WHERE id = 's3'")
    try await synchronize([b], times: 1)
    try await fleet.restore("night")
    try await synchronize(olderReturnsFirst ? [a, b] : [b, a], times: 2)
    #expect(try site(fleet, "s3")?[3] == 40)
    try fleet.expectEqual(tables, [a, b])
    #expect(try await a.open().status().kept == 0)
  }

  @Test("a row that a later lost commit deleted stays deleted, whoever returns first", arguments: [true, false])
  func deletedLater(olderReturnsFirst: Bool) async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write("INSERT INTO site (id, name) VALUES ('new', 'of a')")
    try await synchronize([a, b], times: 1)
    try await b.write("DELETE FROM site WHERE id = 'new'")
    try await synchronize([b], times: 1)
    try await fleet.restore("night")
    try await synchronize(olderReturnsFirst ? [a, b] : [b, a], times: 2)
    #expect(try site(fleet, "new") == nil)
    try fleet.expectEqual(tables, [a, b])
  }

  @Test("what another device had written leaves the archive when that one has given it back")
  func givenBack() async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write(
      "UPDATE site SET seats = 99 WHERE id = 's3'", "INSERT INTO site (id, name) VALUES ('new', 'of a')")
    try await synchronize([a, b], times: 1)
    try await fleet.restore("night")
    try await synchronize([b], times: 1)
    #expect(try await b.open().status().kept == 2)
    try await synchronize([a, b], times: 1)
    #expect(try await b.open().status().kept == 0)
    try fleet.expectEqual(tables, [a, b])
  }

  @Test("a second restore, to the same backup, in the middle of healing: nothing is missing at the end")
  func twice() async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write(
      "UPDATE site SET seats = 99 WHERE id = 's3'", "INSERT INTO site (id, name) VALUES ('new', 'of a')")
    try await synchronize([a], times: 2)
    try await b.write(
      "UPDATE site SET city = 'Ottawa' WHERE id = 's5'", "UPDATE site SET city = 'Hull' WHERE id = 's3'")
    try await synchronize([b, a], times: 2)
    let before = try tables.map { try fleet.serverRows($0) }
    try await fleet.restore("night")
    try await synchronize([a], times: 1)
    try await fleet.restore("night")
    try await synchronize([b, a], times: 2)
    #expect(try tables.map { try fleet.serverRows($0) } == before)
    try fleet.expectEqual(tables, [a, b])
  }

  /// An older copy is put back, and the device finds what was lost, but does not send it; then a newer copy is put back.
  private func goBackAndForward(_ fleet: Fleet, _ device: Device) async throws {
    try await fleet.restore("night")
    let report = try await device.sync(["reference"])
    #expect(report.error == nil, "\(String(describing: report.error))")
    #expect((report.recovery?.report?.counts.offered ?? 0) + (report.recovery?.report?.counts.merged ?? 0) > 0)
    #expect(try await device.open().status().queued > 0)
    try await fleet.restore("noon")
  }

  @Test("what a device wrote upon a lost row is an ordinary change where a newer copy has the row after all")
  func writtenUponWhatIsThere() async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write("INSERT INTO site (id, name) VALUES ('new', 'of a')")
    try await synchronize([a, b], times: 1)
    try await fleet.backup("noon")
    try await a.write("UPDATE site SET name = 'since' WHERE id = 'new'")
    try await goBackAndForward(fleet, a)
    try fleet.serverConnection().execute("UPDATE site SET city = 'Office' WHERE id = 'new'")
    try await synchronize([a, b], times: 2)
    #expect(try site(fleet, "new") == ["new".value, "since".value, "Office".value, 0])
    try fleet.expectEqual(tables, [a, b])
    let status = try await a.open().status()
    #expect([status.queued, status.inError, status.displaced, status.kept] == [0, 0, 0, 0])
  }

  @Test("what a newer copy had after all, and is lost once more, comes back")
  func lostOnceMore() async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write(
      "UPDATE site SET seats = 99 WHERE id = 's3'", "INSERT INTO site (id, name) VALUES ('new', 'of a')",
      "DELETE FROM site WHERE id = 's4'")
    try await synchronize([a, b], times: 2)
    let before = try tables.map { try fleet.serverRows($0) }
    try await fleet.backup("noon")
    try await goBackAndForward(fleet, a)
    try await synchronize([a], times: 2)
    try await fleet.restore("night")
    try await synchronize([a, b], times: 2)
    #expect(try tables.map { try fleet.serverRows($0) } == before)
    try fleet.expectEqual(tables, [a, b])
  }

  @Test("what was acknowledged of a row comes back although a change of it was refused (decision 231)")
  func besideARefusedChange() async throws {
    let serverWins = Fleet.visits.replacingOccurrences(
      of: "seats: \"integer = 0\" } },", with: "seats: \"integer = 0\" }, conflicts: \"server-wins\" },")
    #expect(serverWins != Fleet.visits)
    let fleet = try Fleet(schema: serverWins)
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site VALUES ('s1', 'One', 'Toronto', 1)")
    let a = try fleet.device("a")
    try await a.write("INSERT INTO site (id, name) VALUES ('a', 'of a')")
    try await synchronize([a], times: 2)
    try await fleet.backup("night")
    try await a.write("UPDATE site SET seats = 2 WHERE id = 's1'")
    try await synchronize([a], times: 1)
    try fleet.serverConnection().execute("UPDATE site SET city = 'Office' WHERE id = 's1'")
    try await a.write("UPDATE site SET city = 'refused' WHERE id = 's1'")
    #expect(try await a.sync().refused == 1)
    try await fleet.restore("night")
    try await synchronize([a], times: 2)
    let whole = ["s1".value, "One".value, "Office".value, 2]
    #expect(try site(fleet, "s1") == whole, "what was acknowledged is back, what a program had written beside it, too")
    #expect(try a.rows("site").first { $0[0] == "s1" } == whole)
    let status = try await a.open().status()
    #expect([status.queued, status.inError] == [0, 0])
    let archive = try await a.open().errorArchive()
    #expect(
      archive.map(\.state) == [.kept] && archive.first?.reason == "conflict", "the refused change is in the archive")
  }

  @Test(
    "a row that left its device because no subscription covers it was not deleted: others give it back",
    arguments: [true, false])
  func unsubscribedRow(authorReturnsFirst: Bool) async throws {
    let scoped = Fleet.visits.replacingOccurrences(
      of: "version: 1,", with: "version: 1, parameters: { city: \"text\" },"
    )
    .replacingOccurrences(
      of: "seats: \"integer = 0\" } }", with: "seats: \"integer = 0\" }, scope: { city: \"parameter:city\" } }"
    ).replacingOccurrences(of: "{ table: \"site\",", with: "{ table: \"site\", scope: \"inherit\",")
    let fleet = try Fleet(schema: scoped)
    try await fleet.start()
    let a = try fleet.device("a")
    let b = try fleet.device("b", recovery: "heal: \"all\"")
    for device in [a, b] { try await device.write("INSERT INTO site VALUES ('\(device.name)', 'of it', 'Toronto', 1)") }
    try await synchronize([a, b], times: 2)
    try await fleet.backup("night")
    try await a.write("INSERT INTO site VALUES ('new', 'of a', 'Toronto', 2)")
    _ = try await a.open().unsubscribe(allOf: "site")
    try await synchronize([a, b], times: 2)
    #expect(try a.rows("site").isEmpty)
    let before = try fleet.serverRows("site")
    try await fleet.restore("night")
    for device in authorReturnsFirst ? [a, b] : [b, a] {
      let report = try await device.sync()
      #expect(report.error == nil, "\(String(describing: report.error))")
      #expect(report.deletes >= 0)
    }
    try await synchronize([a, b], times: 2)
    #expect(try fleet.serverRows("site") == before)
    try fleet.expectEqual(["site"], [b])
  }

  @Test(
    "a strategy that makes tables anew gives rows, values and deletes back; a row whose unique value is taken goes apart",
    arguments: ["recreate", "copy-and-resubscribe"])
  func tablesMadeAnew(strategy: String) async throws {
    let unique = Fleet.visits.replacingOccurrences(
      of: "seats: \"integer = 0\" } }", with: "seats: \"integer = 0\" }, unique: [[\"name\"]] }")
    #expect(unique != Fleet.visits)
    let fleet = try Fleet(schema: unique)
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site (id, name) VALUES ('s3', 'three'), ('s4', 'four'), ('s5', 'five')")
    let a = try fleet.device("a", recovery: "strategy: \"\(strategy)\"")
    try await a.write("INSERT INTO site (id, name) VALUES ('a', 'of a')")
    try await synchronize([a], times: 2)
    try await fleet.backup("night")
    try await a.write(
      "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 49) INSERT INTO site (id, name, city) SELECT 'n' || i, 'name ' || i, 'Hull' FROM n",
      "UPDATE site SET seats = 99 WHERE id = 's3'", "DELETE FROM site WHERE id = 's4'",
      "INSERT INTO visit VALUES ('v1', 'n1', 'a note', NULL)")
    try await synchronize([a], times: 2)
    let sites = try fleet.serverRows("site")
    let visits = try fleet.serverRows("visit")
    try await fleet.restore("night")
    try fleet.serverConnection().execute("INSERT INTO site (id, name) VALUES ('x', 'name 7')")
    let first = try await a.sync()
    #expect(first.error == nil, "\(String(describing: first.error))")
    // 50 inserts, one of them with a value that is taken, an update, a delete, a visit.
    #expect(first.recovery?.report?.counts.offered == 52)
    #expect(first.recovery?.report?.counts.displaced == 1 && first.displaced == 1 && first.exitCode == 0)
    #expect(first.healed == 52)
    try await synchronize([a], times: 2)
    #expect(try fleet.serverRows("site").filter { $0[0] != "x" } == sites.filter { $0[0] != "n7" })
    #expect(try fleet.serverRows("visit") == visits)
    #expect(try a.connection().rows("SELECT id FROM site WHERE name = 'name 7'") == [["x"]])
    let status = try await a.open().status()
    #expect([status.queued, status.inError, status.displaced] == [0, 0, 1])
  }
}

/// What `heal: "off"` left in the archives, when it is switched on later (decision 162).
@Suite("Heal: what was kept while it was off is given back when it is switched on (semantics 10)")
struct HealingSwitchedOnTests {
  private func again(_ fleet: Fleet, _ device: Device, recovery: String = "") async throws -> Device {
    await device.close()
    return try fleet.device(device.name, recovery: recovery)
  }

  /// Both devices write after the backup, and recover with healing off.
  private func lost() async throws -> (Fleet, Device, Device, [[[Value]]]) {
    let (fleet, a, b) = try await fleet(recovery: "heal: \"off\"")
    try await a.write(
      "UPDATE site SET seats = 99 WHERE id = 's3'", "INSERT INTO site (id, name) VALUES ('new', 'of a')",
      "INSERT INTO visit VALUES ('v1', 'new', 'a note', NULL)", "DELETE FROM site WHERE id = 's4'")
    try await synchronize([a], times: 2)
    try await b.write("UPDATE site SET city = 'Ottawa' WHERE id IN ('s3', 's5')")
    try await synchronize([b, a], times: 2)
    let before = try tables.map { try fleet.serverRows($0) }
    try await fleet.restore("night")
    try await synchronize([a, b], times: 2)
    #expect(try tables.map { try fleet.serverRows($0) } != before)
    try fleet.expectEqual(tables, [a, b])
    return (fleet, a, b, before)
  }

  @Test("the fleet has what it had, whoever is switched on first", arguments: [true, false])
  func everythingComesBack(aIsFirst: Bool) async throws {
    let (fleet, a, b, before) = try await lost()
    let first = try await again(fleet, aIsFirst ? a : b)
    let report = try await first.sync()
    #expect(report.error == nil, "\(String(describing: report.error))")
    #expect(report.healed > 0)
    let second = try await again(fleet, aIsFirst ? b : a)
    try await synchronize([first, second], times: 2)
    #expect(try tables.map { try fleet.serverRows($0) } == before)
    try fleet.expectEqual(tables, [first, second])
    for device in [first, second] {
      let status = try await device.open().status()
      #expect([status.queued, status.inError, status.displaced] == [0, 0, 0], "\(device.name)")
    }
    #expect(try await first.sync().uploaded == 0, "nothing is offered twice")
  }

  @Test("what was written since the restore stands, column by column; what was deleted since stays deleted")
  func writtenSince() async throws {
    let (fleet, a, b, _) = try await lost()
    try fleet.serverConnection().execute("UPDATE site SET seats = 1, name = 'since' WHERE id = 's3'")
    try fleet.serverConnection().execute("DELETE FROM site WHERE id = 's5'")
    try fleet.serverConnection().execute("UPDATE site SET name = 'stays' WHERE id = 's4'")
    try await synchronize([a, b], times: 2)
    let devices = [try await again(fleet, a), try await again(fleet, b)]
    try await synchronize(devices, times: 2)
    #expect(try site(fleet, "s3") == ["s3".value, "since".value, "Ottawa".value, 1])
    #expect(try site(fleet, "s4")?[1] == "stays".value, "a delete takes nothing that was written since")
    #expect(try site(fleet, "s5") == nil)
    #expect(try site(fleet, "new") != nil)
    try fleet.expectEqual(tables, devices)
    let conflicts = try fleet.serverConnection().integer(
      "SELECT count(*) FROM salvor_conflict WHERE resolution IS NULL")
    #expect(conflicts ?? 0 >= 3, "seats of s3, the row s5, the delete of s4")
  }

  @Test("a second restore while it is still off: all comes back when it is switched on")
  func twoRestores() async throws {
    let (fleet, a, b, _) = try await lost()
    try await b.write("UPDATE site SET city = 'later' WHERE id = 's6'")
    try await a.write("UPDATE site SET seats = 5 WHERE id = 's7'")
    try await synchronize([a, b], times: 2)
    try await fleet.restore("night")
    try await synchronize([a, b], times: 2)
    #expect(try site(fleet, "s6")?[2] != "later".value)
    let devices = [try await again(fleet, a), try await again(fleet, b)]
    try await synchronize(devices, times: 2)
    #expect(try site(fleet, "s3") == ["s3".value, "Site 3".value, "Ottawa".value, 99])
    #expect(try site(fleet, "s6")?[2] == "later".value)
    #expect(try site(fleet, "s7")?[3] == 5)
    #expect(try site(fleet, "s4") == nil)
    #expect(try fleet.serverRows("visit").count == 1)
    try fleet.expectEqual(tables, devices)
  }

  @Test("switched on before a second restore, which comes before the device has offered anything")
  func restoredBeforeItIsOffered() async throws {
    let (fleet, a, b, before) = try await lost()
    try await fleet.restore("night")
    let devices = [try await again(fleet, a), try await again(fleet, b)]
    try await synchronize(devices, times: 3)
    #expect(try tables.map { try fleet.serverRows($0) } == before)
    try fleet.expectEqual(tables, devices)
  }

  @Test("tables that were made anew while it was off give back what they kept")
  func madeAnew() async throws {
    let (fleet, a, b) = try await fleet(recovery: "heal: \"off\", strategy: \"recreate\"")
    try await a.write(
      "UPDATE site SET seats = 99 WHERE id = 's3'", "INSERT INTO site (id, name) VALUES ('new', 'of a')",
      "INSERT INTO visit VALUES ('v1', 'new', 'a note', NULL)", "DELETE FROM site WHERE id = 's4'")
    try await synchronize([a, b], times: 2)
    let before = try tables.map { try fleet.serverRows($0) }
    try await fleet.restore("night")
    try await synchronize([a, b], times: 2)
    let devices = [try await again(fleet, a), try await again(fleet, b)]
    try await synchronize(devices, times: 2)
    #expect(try tables.map { try fleet.serverRows($0) } == before)
    try fleet.expectEqual(tables, devices)
  }

  @Test("a device that the restored server does not know gives back what it kept")
  func unknownToTheServer() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site (id, name) VALUES ('s1', 'One')")
    try await fleet.backup("night")
    var a = try fleet.device("a", recovery: "heal: \"off\"")
    try await a.write("INSERT INTO site (id, name) VALUES ('first', 'of a')")
    try await synchronize([a], times: 2)
    try await fleet.restore("night")
    try await synchronize([a], times: 2)
    #expect(try fleet.serverRows("site").count == 1)
    a = try await again(fleet, a)
    #expect(try await a.sync().healed == 1)
    #expect(try fleet.serverRows("site").map { $0[0] } == ["first".value, "s1".value])
    try fleet.expectEqual(tables, [a])
    #expect(try await a.open().errorArchive() == [])
  }

  @Test(
    "rows that came with a first download are offered where tables are made anew, too",
    arguments: ["recreate", "copy-and-resubscribe", "recover-unsynced-changes"])
  func firstDownload(strategy: String) async throws {
    let (fleet, a, _) = try await fleet()
    try await a.write("INSERT INTO site (id, name) VALUES ('new', 'of a')", "UPDATE site SET seats = 1 WHERE id = 's3'")
    try await synchronize([a], times: 2)
    let before = try fleet.serverRows("site")
    let c = try fleet.device("c", recovery: "heal: \"all\"")
    try await synchronize([c], times: 1)
    try await fleet.restore("night")
    #expect(try await c.open().recover(strategy: strategy).error == nil)
    try await synchronize([c], times: 2)
    #expect(try fleet.serverRows("site") == before)
    try fleet.expectEqual(["site"], [c])
    #expect(try await c.open().errorArchive() == [])
  }
}
