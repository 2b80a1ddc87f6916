import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

@Suite("Heal: one backup is put back twice (semantics 10, Rank; decisions 199 and 200)")
struct HealingTwiceTests {
  enum Variant: CaseIterable {
    /// Both devices write one column.
    case column
    /// They write columns of their own.
    case columns
    /// One deletes the row, the other makes it again.
    case deleted
  }

  /// Two devices that have a row, and a backup that has it.
  private func backedUp(with site: String = "s1") async throws -> (Fleet, Device, Device) {
    let fleet = try Fleet()
    try await fleet.start()
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    try await a.write("INSERT INTO site (id, name, seats) VALUES ('\(site)', 'old', 1)")
    try await synchronize([a, b])
    try await fleet.backup("night")
    return (fleet, a, b)
  }

  private func site(_ fleet: Fleet) throws -> [Value]? { try fleet.serverRows("site").first { $0[0] == "s1" } }

  @Test(
    "what a device gave back between the restores is no newer by that: another's later value stands",
    arguments: Variant.allCases, [true, false])
  func isAsOldAsItWas(_ variant: Variant, otherFirst: Bool) async throws {
    let (fleet, a, b) = try await backedUp()
    try await a.write(
      variant == .deleted ? "DELETE FROM site WHERE id = 's1'" : "UPDATE site SET name = 'of a' WHERE id = 's1'")
    try await synchronize([a, b])
    switch variant {
    case .column: try await b.write("UPDATE site SET name = 'of b' WHERE id = 's1'")
    case .columns: try await b.write("UPDATE site SET seats = 7 WHERE id = 's1'")
    case .deleted: try await b.write("INSERT INTO site (id, name, seats) VALUES ('s1', 'again', 7)")
    }
    try await synchronize([b])
    let newest = try #require(try site(fleet))
    try await fleet.restore("night")
    try await synchronize([a])
    try await fleet.restore("night")
    if otherFirst { try await synchronize([b, a]) } else { try await synchronize([a, b]) }
    try await synchronize([a, b])
    #expect(try site(fleet) == newest)
    try fleet.expectEqual(["site"], [a, b])
    #expect(try fleet.serverConnection().integer("SELECT count(*) FROM salvor_conflict") == 0)
  }

  @Test(
    "what a device wrote between the restores stands, and the value that it takes the place of is listed",
    arguments: [true, false])
  func laterHistoryStands(otherFirst: Bool) async throws {
    let (fleet, a, b) = try await backedUp()
    try await b.write("UPDATE site SET name = 'of b' WHERE id = 's1'")
    try await synchronize([b, a])
    try await fleet.restore("night")
    try await synchronize([a])
    try await a.write("UPDATE site SET name = 'of a' WHERE id = 's1'")
    try await synchronize([a])
    try await fleet.restore("night")
    if otherFirst { try await synchronize([b, a]) } else { try await synchronize([a, b]) }
    try await synchronize([a, b])
    #expect(try site(fleet)?[1] == "of a")
    try fleet.expectEqual(["site"], [a, b])
    let kept = try fleet.serverConnection().rows("SELECT client, server, settled FROM salvor_conflict")
    #expect(kept.count == 1)
    #expect("\(kept)".contains("of b"))
  }

  @Test(
    "two histories are one up to the copy that the later one began with: what was written after it is kept",
    arguments: [true, false], [true, false])
  func apartAfterTheNewerCopy(otherFirst: Bool, afterCopy: Bool) async throws {
    let (fleet, a, b) = try await backedUp()
    // In the newer copy, or not.
    if afterCopy { try await fleet.backup("noon") }
    try await b.write("UPDATE site SET name = 'of b' WHERE id = 's1'")
    try await synchronize([b, a])
    if !afterCopy { try await fleet.backup("noon") }
    try await b.write("INSERT INTO site (id, name) VALUES ('s2', 'last')")
    try await synchronize([b, a])
    try await fleet.restore("noon")
    try await synchronize([a])
    try await a.write("UPDATE site SET name = 'of a' WHERE id = 's1'")
    try await synchronize([a])
    try await fleet.restore("night")
    if otherFirst { try await synchronize([b, a]) } else { try await synchronize([a, b]) }
    try await synchronize([a, b])
    #expect(try site(fleet)?[1] == "of a")
    try fleet.expectEqual(["site"], [a, b])
    let kept = try fleet.serverConnection().rows("SELECT client, server, settled FROM salvor_conflict")
    #expect(kept.count == (afterCopy ? 1 : 0))
    if afterCopy { #expect("\(kept)".contains("of b")) }
  }

  @Test("a restart of the server between two lost commits makes no conflict of them")
  func restartIsNoOtherHistory() async throws {
    let (fleet, a, b) = try await backedUp()
    try await a.write("UPDATE site SET name = 'first' WHERE id = 's1'")
    try await synchronize([a, b])
    try await fleet.restart()
    try await b.write("UPDATE site SET name = 'second' WHERE id = 's1'")
    try await synchronize([b])
    try await fleet.restore("night")
    try await synchronize([b, a, b])
    #expect(try site(fleet)?[1] == "second")
    try fleet.expectEqual(["site"], [a, b])
    #expect(try fleet.serverConnection().integer("SELECT count(*) FROM salvor_conflict") == 0)
  }

  @Test(
    "the delete of a row that a restore took is offered after the next one, and the row stays away",
    arguments: [true, false])
  func deleteIsOfferedAgain(inGroup: Bool) async throws {
    let (fleet, a, b) = try await backedUp(with: "s0")
    try await b.write("INSERT INTO site (id, name) VALUES ('s1', 'of b')")
    try await synchronize([b, a])
    try await fleet.restore("night")
    if inGroup {
      try await a.write(
        "INSERT INTO salvor_request (tag) VALUES ('both'); INSERT INTO site (id, name) VALUES ('s2', 'of a'); DELETE FROM site WHERE id = 's1'; DELETE FROM salvor_request"
      )
    } else {
      try await a.write("DELETE FROM site WHERE id = 's1'")
    }
    try await synchronize([a])
    try await fleet.restore("night")
    try await synchronize([a, b, a, b])
    #expect(try site(fleet) == nil)
    try fleet.expectEqual(["site"], [a, b])
    let kept = try fleet.serverConnection().integer(
      "SELECT count(*) FROM salvor_conflict WHERE resolution IS NULL AND client LIKE '%of b%'")
    #expect(kept == 1)
  }
}
