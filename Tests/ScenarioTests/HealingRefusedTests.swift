import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

/// row = base ⊕ offers ⊕ requests: what a server lost of a row comes back, whatever becomes of the changes upon it (semantics 10).
@Suite("Heal: lost rows with changes that were refused or taken back (semantics 10)")
struct HealingRefusedTests {
  /// The server takes no site of the name "wrong", and deletes none called "Nine". The copy "dawn" has the site s0 alone.
  private func fleet() async throws -> (Fleet, Device, Device) {
    let fleet = try Fleet()
    try await fleet.start()
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    try fleet.serverConnection().execute(
      """
      INSERT INTO site (id, name, city) VALUES ('s0', 'Zero', 'Berne');
      CREATE TRIGGER names BEFORE INSERT ON site WHEN NEW.name = 'wrong' BEGIN SELECT RAISE(ABORT, 'no such name'); END;
      CREATE TRIGGER renames BEFORE UPDATE ON site WHEN NEW.name = 'wrong' BEGIN SELECT RAISE(ABORT, 'no such name'); END;
      CREATE TRIGGER stays BEFORE DELETE ON site WHEN OLD.name = 'Nine' BEGIN SELECT RAISE(ABORT, 'it stays'); END;
      """)
    try await synchronize([a, b])
    try await fleet.backup("dawn")
    try await a.write("INSERT INTO site (id, name, city) VALUES ('s9', 'Nine', 'Ottawa')")
    try await synchronize([a, b])
    return (fleet, a, b)
  }

  private func sites(_ fleet: Fleet) throws -> [[Value]] { try fleet.serverRows("site").map { Array($0[..<3]) } }

  private func archive(_ device: Device) throws -> [[Value]] {
    try device.connection().rows("SELECT state, reason, operation, key FROM salvor_error_archive ORDER BY state, key")
  }

  private static let whole: [[Value]] = [["s0", "Zero", "Berne"], ["s9", "Nine", "Ottawa"]]

  @Test("a lost row of which a change is refused comes back as it was acknowledged, and the change is in the archive")
  func refusedAfterwards() async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write("UPDATE site SET name = 'wrong' WHERE id = 's9'")
    try await fleet.restore("dawn")
    #expect(try await a.sync().refused == 1)
    try await synchronize([a, b], times: 2)
    #expect(try sites(fleet) == Self.whole)
    try fleet.expectEqual(["site"], [a, b])
    let archive = try a.connection().rows("SELECT state, operation, after FROM salvor_error_archive")
    #expect(archive.count == 1 && archive[0][0] == "kept" && archive[0][1] == "update")
    #expect(archive.first?[2].string?.contains("wrong") == true)
  }

  @Test("the same where later changes of the row wait, and where the change is one of several in a request")
  func refusedWithOthers() async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write(
      "INSERT INTO salvor_request (tag) VALUES ('both')", "UPDATE site SET name = 'wrong' WHERE id = 's9'",
      "INSERT INTO site (id, name, city) VALUES ('s8', 'Eight', 'Bonn')", "DELETE FROM salvor_request",
      "UPDATE site SET city = 'Quebec' WHERE id = 's9'")
    try await fleet.restore("dawn")
    #expect(try await a.sync().refused == 1, "the later change goes with the row")
    try await synchronize([a, b], times: 2)
    #expect(try sites(fleet) == [["s0", "Zero", "Berne"], ["s9", "Nine", "Quebec"]])
    try fleet.expectEqual(["site"], [a, b])
    #expect(
      try archive(a).map { Array($0[..<3]) } == [["kept", "constraint", "insert"], ["kept", "constraint", "update"]])
  }

  @Test(
    "what was refused before a restore goes to the archive with its reason, and the row comes back",
    arguments: [
      "UPDATE site SET name = 'wrong' WHERE id = 's9'", "UPDATE site SET name = 'wrong', city = 'Rome' WHERE id = 's9'",
      "DELETE FROM site WHERE id = 's9'",
    ])
  func refusedBefore(statement: String) async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write(statement)
    #expect(try await a.sync().refused == 1)
    try await fleet.restore("dawn")
    try await synchronize([a, b], times: 2)
    #expect(try sites(fleet) == Self.whole)
    try fleet.expectEqual(["site"], [a, b])
    #expect(try archive(a).map { Array($0[..<2]) } == [["kept", "constraint"]])
  }

  @Test(
    "what a refused change had blocked is not sent by itself: no acknowledged value is overwritten in silence (never 3)"
  )
  func blockedBefore() async throws {
    let (fleet, a, b) = try await fleet()
    try await b.write("UPDATE site SET city = 'A' WHERE id = 's9'")
    try await synchronize([b])
    try await a.write("UPDATE site SET name = 'mine' WHERE id = 's9'")
    try await synchronize([a, b])
    try await a.write(
      "UPDATE site SET name = 'wrong', city = 'B' WHERE id = 's9'",
      "UPDATE site SET city = 'C' WHERE id = 's9'")
    #expect(try await a.sync().refused == 2)
    try await fleet.restore("dawn")
    try await synchronize([a, b], times: 2)
    #expect(try sites(fleet) == [["s0", "Zero", "Berne"], ["s9", "mine", "A"]])
    try fleet.expectEqual(["site"], [a, b])
    #expect(try Set(archive(a).map { Array($0[..<2]) }) == [["kept", "blocked"], ["kept", "constraint"]])
    #expect(try fleet.serverConnection().integer("SELECT count(*) FROM salvor_conflict") == 0)
  }

  @Test("whoever takes back a change of a lost row leaves the row as it was acknowledged")
  func takenBack() async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write(
      "INSERT INTO site (id, name) VALUES ('s7', 'wrong')", "INSERT INTO salvor_request (tag) VALUES ('both')",
      "UPDATE site SET city = 'Quebec' WHERE id = 's9'", "INSERT INTO visit (id, site_id) VALUES ('v1', 's7')",
      "DELETE FROM salvor_request")
    try await fleet.restore("dawn")
    #expect(try await a.sync().refused == 2)
    #expect(try sites(fleet) == [["s0", "Zero", "Berne"]])
    let client = try await a.open()
    let refused = try #require(try await client.errorArchive().first { $0.state == .refused })
    let report = try await client.delete(refused.id)
    #expect(report.requests.count == 2, "what depends on it goes along")
    try await synchronize([a, b], times: 2)
    #expect(try sites(fleet) == Self.whole)
    try fleet.expectEqual(["site", "visit"], [a, b])
    #expect(try archive(a) == [])
  }
}
