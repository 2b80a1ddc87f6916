import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

/// What a server accepted without a commit of its own has no number of its own, either (semantics 10).
@Suite("Heal: versions of what made no commit (semantics 10)")
struct HealingVersionTests {
  private static let tables = ["site", "visit"]
  private static let keeping = Fleet.visits.replacing(
    "seats: \"integer = 0\" } },", "seats: \"integer = 0\" }, conflicts: \"keep-versions\" },")

  private func fleet(schema: String = Fleet.visits, recovery: String = "") async throws -> (Fleet, Device, Device) {
    let fleet = try Fleet(schema: schema)
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site (id, name, seats) VALUES ('s0', 'Zero', 0), ('s1', 'One', 0)")
    let (a, b) = (try fleet.device("a"), try fleet.device("b", recovery: recovery))
    for device in [a, b] {
      try await device.write("INSERT INTO site (id, name) VALUES ('\(device.name)', 'of \(device.name)')")
    }
    try await synchronize([a, b], times: 2)
    return (fleet, a, b)
  }

  private func seats(_ fleet: Fleet, _ id: String) throws -> Value? {
    try fleet.serverRows("site").first { $0[0] == .text(id) }?[3]
  }

  private func conflicts(_ fleet: Fleet) throws -> Int64 {
    try fleet.serverConnection().integer("SELECT count(*) FROM salvor_conflict WHERE resolution IS NULL") ?? -1
  }

  @Test("an offer that found its row there is no newer than what was written after it, whoever returns first")
  func offersThatChangedNothing() async throws {
    let (fleet, a, b) = try await fleet(recovery: "heal: \"all\"")
    try await fleet.backup("dawn")
    try await a.write("UPDATE site SET seats = 10 WHERE id = 's0'")
    try await synchronize([a, b])
    try await fleet.restore("dawn")
    // The first one gives the row back, the other finds it there.
    try await synchronize([a])
    let report = try await b.sync()
    #expect(report.error == nil && report.healed == 0)
    // By the next commit, of which the other hears nothing.
    try await a.write("UPDATE site SET seats = 11 WHERE id = 's0'")
    try await synchronize([a])
    try await fleet.restore("dawn")
    try await synchronize([b, a], times: 2)
    #expect(try seats(fleet, "s0") == 11, "the newer one")
    #expect(try conflicts(fleet) == 0, "it was made upon the other")
    try fleet.expectEqual(Self.tables, [a, b])
  }

  @Test(
    "what a server's trigger makes of a row that is given back is no conflict of those that give it back (decision 240)",
    arguments: [false, true])
  func triggersOfTheServer(hasSeen: Bool) async throws {
    let (fleet, a, b) = try await fleet(recovery: "heal: \"all\"")
    try fleet.serverConnection().execute(
      """
      CREATE TRIGGER inserted AFTER INSERT ON site BEGIN UPDATE site SET city = hex(randomblob(8)) WHERE id = NEW.id; END;
      CREATE TRIGGER updated AFTER UPDATE OF name ON site BEGIN UPDATE site SET city = hex(randomblob(8)) WHERE id = NEW.id; END;
      """)
    try await fleet.backup("dawn")
    try await a.write(
      "UPDATE site SET name = 'lost of a' WHERE id = 's0'", "INSERT INTO site (id, name) VALUES ('new', 'lost of a')")
    try await synchronize([a, b], times: 2)
    try await b.write("UPDATE site SET name = 'lost of b' WHERE id = 's0'")
    try await synchronize([b])
    // Else the newer version comes after the older one.
    if hasSeen { try await synchronize([a]) }
    try await fleet.restore("dawn")
    try await synchronize([a, b], times: 2)
    #expect(try conflicts(fleet) == 0)
    let rows = try fleet.serverRows("site")
    #expect(rows.first { $0[0] == "s0" }?[1] == "lost of b")
    #expect(rows.first { $0[0] == "new" }?[1] == "lost of a")
    try fleet.expectEqual(Self.tables, [a, b])
  }

  @Test("a conflict version comes again after a restore of a copy from just before it, whatever was heard since")
  func keptAfterTheCopy() async throws {
    let (fleet, a, b) = try await fleet(schema: Self.keeping)
    try await b.write("UPDATE site SET seats = 5 WHERE id = 's0'")
    try await synchronize([b])
    for seats in 1...3 {
      try await b.write("UPDATE site SET seats = \(seats) WHERE id = 's1'")
      try await synchronize([b])
    }
    try await fleet.backup("noon")
    // Made on a row of long ago; kept beside it, which makes no commit.
    try await a.write("UPDATE site SET seats = 77 WHERE id = 's0'")
    #expect(try await a.sync().conflicts == 1)
    try await b.write("UPDATE site SET seats = 4 WHERE id = 's1'")
    try await synchronize([b])
    for _ in 1...2 {
      try await fleet.restore("noon")
      #expect(try conflicts(fleet) == 0)
      try await synchronize([a, b], times: 2)
      #expect(try conflicts(fleet) == 1, "acknowledged, and there again")
      #expect(try [seats(fleet, "s0"), seats(fleet, "s1")] == [5, 4])
      try fleet.expectEqual(Self.tables, [a, b])
    }
    // A copy that has it has it once.
    try await fleet.backup("evening")
    try await b.write("UPDATE site SET seats = 6 WHERE id = 's1'")
    try await synchronize([b, a])
    try await fleet.restore("evening")
    try await synchronize([a, b], times: 2)
    #expect(try conflicts(fleet) == 1)
  }

  @Test(
    "a delete stands that was made upon a version which another device has given back, whoever returns first",
    arguments: ["server-wins", "keep-versions", "client-wins"], [false, true])
  func deleteOfGivenBack(policy: String, isFirst: Bool) async throws {
    let (fleet, a, b) = try await fleet(
      schema: Fleet.visits.replacing(
        "seats: \"integer = 0\" } },", "seats: \"integer = 0\" }, conflicts: \"\(policy)\" },"))
    try await fleet.backup("dawn")
    try await a.write("INSERT INTO site (id, name, seats) VALUES ('s2', 'Two', 1)")
    try await synchronize([a, b])
    // What b sends is lost with it.
    try await b.write("UPDATE site SET seats = 2 WHERE id = 's0'")
    try await synchronize([b])
    try await fleet.restore("dawn")
    try await b.write("DELETE FROM site WHERE id = 's2'")
    for device in isFirst ? [b, a, b, a] : [a, b, a, b] {
      let report = try await device.sync()
      #expect(report.error == nil && report.refused == 0, "\(device.name)")
    }
    #expect(try fleet.serverRows("site").contains { $0[0] == "s2" } == false, "nobody has written it since b saw it")
    // What is offered after a person's delete is kept beside it (decision 200).
    #expect(try conflicts(fleet) == (isFirst ? 1 : 0))
    try fleet.expectEqual(Self.tables, [a, b])
  }

  @Test(
    "a change that was made upon a lost value stands over it, whoever returns first (decision 236)",
    arguments: ["server-wins", "keep-versions", "client-wins"], [false, true])
  func changeUponALostValue(policy: String, isFirst: Bool) async throws {
    let (fleet, a, b) = try await fleet(
      schema: Fleet.visits.replacing(
        "seats: \"integer = 0\" } },", "seats: \"integer = 0\" }, conflicts: \"\(policy)\" },"))
    try await fleet.backup("dawn")
    try await a.write(
      "INSERT INTO site (id, name, seats) VALUES ('s2', 'Two', 1)", "UPDATE site SET seats = 1 WHERE id = 's1'")
    try await synchronize([a, b])
    // What a alone has seen of a third row is not what b writes upon.
    try await a.write("UPDATE site SET seats = 1 WHERE id = 's0'")
    try await synchronize([a])
    try await fleet.restore("dawn")
    try await b.write("UPDATE site SET seats = 2 WHERE id <> 'b'")
    for device in isFirst ? [b, a, b, a] : [a, b, a, b] { _ = try await device.sync() }
    #expect(try [seats(fleet, "s1"), seats(fleet, "s2")] == [2, 2])
    let rows = try fleet.serverConnection().rows("SELECT key FROM salvor_conflict WHERE resolution IS NULL")
    #expect(rows.allSatisfy { $0 == ["[\"s0\"]"] }, "superseded: \(rows)")
    try fleet.expectEqual(["visit"], [a, b])
  }

  @Test("what its own device wrote upon a lost value stands over it, where others offer it, too")
  func ownChangeUponALostValue() async throws {
    let (fleet, a, b) = try await fleet(recovery: "heal: \"all\"")
    try await fleet.backup("dawn")
    try await a.write(
      "INSERT INTO site (id, name, seats) VALUES ('s2', 'Two', 1)",
      "UPDATE site SET seats = 1, name = 'new' WHERE id = 's1'")
    try await synchronize([a, b])
    try await fleet.restore("dawn")
    try await a.write("UPDATE site SET seats = 2 WHERE id IN ('s1', 's2')", "UPDATE site SET seats = 3 WHERE id = 's1'")
    try await synchronize([a, b], times: 2)
    #expect(try [seats(fleet, "s1"), seats(fleet, "s2")] == [3, 2])
    #expect(try conflicts(fleet) == 0)
    try fleet.expectEqual(Self.tables, [a, b])
  }

  private static let owned = """
    { version: 1, tables: { note: { primaryKey: "id", columns: { id: "text", owner: "text", cb: "text?", x: "text?" },
        scope: { owner: "principal" }, conflicts: "keep-versions" } } }
    """

  /// Two devices; b's change of n1 is a conflict version. The copy "dawn" has nothing of the row, the copy "noon" has it.
  private func versionOfOwned() async throws -> (Fleet, Device, Device) {
    let fleet = try Fleet(schema: Self.owned)
    try await fleet.start()
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    try await synchronize([a, b])
    try await fleet.backup("dawn")
    try await a.write("INSERT INTO note VALUES ('n1', 'anna', 'first', 'x')")
    try await synchronize([a, b])
    try await fleet.backup("noon")
    try await a.write("UPDATE note SET cb = 'theirs' WHERE id = 'n1'")
    try await synchronize([a])
    try await b.write("UPDATE note SET cb = 'mine' WHERE id = 'n1'")
    #expect(try await b.sync().conflicts == 1)
    try await synchronize([a, b])
    return (fleet, a, b)
  }

  private func versions(_ fleet: Fleet) throws -> [[Value]] {
    try fleet.serverConnection().rows("SELECT key, client FROM salvor_conflict WHERE resolution IS NULL")
  }

  @Test(
    "a conflict version of a row in a scope is there again, also where its device comes before the one that has the row",
    arguments: [false, true])
  func versionBeforeItsRow(isFirst: Bool) async throws {
    let (fleet, a, b) = try await versionOfOwned()
    let before = try versions(fleet)
    #expect(before.count == 1)
    try await fleet.restore("dawn")
    try await synchronize(isFirst ? [b, a] : [a, b], times: 2)
    #expect(try versions(fleet) == before)
    #expect(try fleet.serverRows("note") == [["n1", "anna", "theirs", "x"]])
    try fleet.expectEqual(["note"], [a, b])
  }

  @Test("a conflict version that the server does not take back is in its device's archive, with the reason")
  func versionRefused() async throws {
    let (fleet, a, b) = try await versionOfOwned()
    try await fleet.restore("noon")
    try fleet.serverConnection().execute("UPDATE note SET owner = 'bert'")
    let report = try await b.sync()
    #expect(report.refused == 1)
    let archive = try b.connection().rows(
      "SELECT state, reason, operation, after, message FROM salvor_error_archive WHERE reason <> 'lost-on-server'")
    #expect(archive.map { Array($0[..<3]) } == [["kept", "out-of-scope", "update"]])
    #expect(archive.first?[3].string?.contains("mine") == true)
    #expect(archive.first?[4].string?.contains("conflict version") == true)
    #expect(try await b.sync().refused == 0)
    try await synchronize([a])
    #expect(try versions(fleet) == [])
  }

  @Test(
    "a conflict version keeps its column when a column before it is dropped; one of the dropped column is in the archive"
  )
  func versionBesideADroppedColumn() async throws {
    let (fleet, a, b) = try await versionOfOwned()
    try await b.write("UPDATE note SET x = 'of a' WHERE id = 'n1'")
    try await synchronize([b, a])
    try await a.write("UPDATE note SET x = 'of a, later' WHERE id = 'n1'")
    try await b.write("UPDATE note SET x = 'of b, later' WHERE id = 'n1'")
    try await synchronize([a])
    #expect(try await b.sync().conflicts == 1)
    try await synchronize([a, b])
    fleet.schemaText = Self.owned.replacing("version: 1", "version: 2").replacing(
      "cb: \"text?\", x: \"text?\" },", "x: \"text?\" }, dropped: [\"cb\"],")
    try await fleet.restore("noon")
    try await synchronize([b, a], times: 2)
    let now = try versions(fleet)
    #expect(now.count == 1)
    #expect(now.first?[1].string?.contains("of b, later") == true && now.first?[1].string?.contains("\"x\"") == true)
    let archive = try b.connection().rows(
      "SELECT reason, after FROM salvor_error_archive WHERE reason = 'schema-dropped'")
    #expect(archive.contains { $0[1].string?.contains("mine") == true })
    for device in [a, b] { #expect(try device.rows("note") == [["n1", "anna", "of a, later"]]) }
    #expect(try fleet.serverConnection().rows("SELECT id, owner, x FROM note") == [["n1", "anna", "of a, later"]])
  }

  /// Both have deleted one row; the server was told by the other one first, and the restored copy is newer than what this one had heard of.
  @Test("who has deleted a row that was gone at the server already offers its delete", arguments: [true, false])
  func deletedByBoth(isDelete: Bool) async throws {
    let (fleet, a, b) = try await fleet(recovery: "heal: \"off\"")
    try await b.write("UPDATE site SET seats = 1 WHERE id = 's1'")
    try await synchronize([b])
    try await fleet.backup("noon")
    let change = isDelete ? "DELETE FROM site WHERE id = 's0'" : "UPDATE site SET seats = 7 WHERE id = 's0'"
    for device in [b, a] {
      try await device.write(change)
      try await synchronize([device])
    }
    let before = try fleet.serverRows("site")
    try await fleet.restore("noon")
    let report = try await a.sync()
    #expect(report.error == nil && report.healed == 1)
    try await synchronize([b, a], times: 2)
    #expect(try fleet.serverRows("site") == before)
    try fleet.expectEqual(Self.tables, [a, b])
  }

  @Test("a conflict version that returns before its row is not fed as a delete of the row")
  func versionBeforeItsRow() async throws {
    let (fleet, a, b) = try await fleet(schema: Self.keeping, recovery: "heal: \"off\"")
    let c = try fleet.device("c", recovery: "heal: \"review\"")
    try await synchronize([c])
    try await fleet.backup("noon")
    try await a.write("INSERT INTO site (id, name) VALUES ('new', 'of a')")
    try await synchronize([a])
    try await c.write("INSERT INTO site (id, name) VALUES ('new', 'of c')")
    #expect(try await c.sync().conflicts == 1)
    try await synchronize([b])
    try await fleet.restore("noon")
    let report = try await c.sync()
    #expect(report.error == nil && report.conflicts == 1 && report.waiting == 1, "the row waits, its version does not")
    // Nobody has deleted it: the server has lost it, and the device says so.
    #expect(try await b.sync().recovery?.report?.counts.lost == 1)
    #expect(try await b.open().errorArchive().map(\.reason) == ["lost-on-server"])
    #expect(try await a.sync().healed == 1)
    try await synchronize([c, b, a], times: 2)
    try fleet.expectEqual(Self.tables, [a, b, c])
    #expect(try fleet.serverRows("site").contains { $0[1] == "of a" })
    #expect(try conflicts(fleet) == 1)
  }
}
