import SalvorClientEngine
import SalvorModel
import Testing

@Suite("Two rows that a device's own unique index takes for one (decision 209)")
struct OwnCollationTests {
  private static let schema = """
    { version: 1, tables: {
        person: { maintained: "dual", primaryKey: "id", columns: { id: "text", email: "text?", note: "text?" }, unique: [["email"]] },
        card: { maintained: "dual", primaryKey: "id", columns: { id: "text", person_id: "text?" }, references: { person_id: "person" } },
        other: { maintained: "dual", primaryKey: "id", columns: { id: "text" } } } }
    """

  /// Both devices have the application's own table, whose index does not tell upper case from lower case.
  private func fleet() async throws -> (Fleet, Device, Device) {
    let fleet = try Fleet(schema: Self.schema)
    try await fleet.start()
    let devices = try ["a", "b"].map { try fleet.device($0) }
    for device in devices {
      try device.connection().execute(
        "CREATE TABLE person (id TEXT NOT NULL PRIMARY KEY, email TEXT COLLATE NOCASE UNIQUE, note TEXT)")
      #expect(try await device.sync().error == nil)
    }
    return (fleet, devices[0], devices[1])
  }

  @Test("the one that comes is left out and named, with what references it; all others arrive, on both devices")
  func leavesOut() async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write("INSERT INTO person VALUES ('1', 'Ann@example.org', NULL)", "INSERT INTO card VALUES ('c1', '1')")
    try await b.write("INSERT INTO person VALUES ('2', 'ann@example.org', NULL)", "INSERT INTO other VALUES ('here')")
    #expect(try await a.sync().error == nil)
    for (device, left, other) in [(b, "1", "2"), (a, "2", "1")] {
      let report = try await device.sync()
      #expect(report.error == nil, "\(String(describing: report.error))")
      #expect(
        report.notices.contains {
          $0.contains("The row [\(left)] of person was left out") && $0.contains("the row [\(other)] of person for one")
        }, "\(report.notices)")
    }
    #expect(try a.rows("other") == [["here"]])
    #expect(try b.rows("card") == [])
    for device in [a, b] {
      #expect(try device.connection().rows("PRAGMA foreign_key_check") == [])
      let report = try await device.sync()
      #expect(report.error == nil && report.upserts == 0 && report.roundTrips == 1)
    }
    // What comes after is no reason to stop either, and brings no loop.
    try fleet.serverConnection().execute(
      "INSERT INTO person VALUES ('3', 'other', NULL); UPDATE person SET note = 'n' WHERE id = '1'")
    for device in [a, b] {
      let report = try await device.sync()
      #expect(report.error == nil)
      #expect(try device.rows("person").map { $0[0] } == (device === a ? ["1", "3"] : ["2", "3"]))
    }
  }

  @Test(
    "a row whose key the device's own index takes for another row's is left out and named, and writes nothing there")
  func keys() async throws {
    let fleet = try Fleet(schema: Self.schema)
    try await fleet.start()
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    try a.connection().execute(
      "CREATE TABLE person (id TEXT NOT NULL PRIMARY KEY COLLATE NOCASE, email TEXT UNIQUE, note TEXT)")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await a.write("INSERT INTO person VALUES ('b', NULL, 'two')")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await b.write("INSERT INTO person VALUES ('B', NULL, 'of b')")
    #expect(try await b.sync().error == nil)
    let report = try await a.sync()
    #expect(
      report.error == nil && report.notices.contains { $0.contains("The row [B] of person was left out") }, "\(report)")
    #expect(try a.rows("person") == [["b", .null, "two"]])
    // The server's row is changed in parts, and then deleted: neither is done to the other one.
    try await b.write("UPDATE person SET note = 'once more' WHERE id = 'B'")
    for device in [b, a] { #expect(try await device.sync().error == nil) }
    try await a.write("UPDATE person SET note = note || ' +a' WHERE id = 'b'")
    for device in [a, b, a] { #expect(try await device.sync().error == nil) }
    #expect(try fleet.serverRows("person") == [["B", .null, "once more"], ["b", .null, "two +a"]])
    #expect(try a.rows("person") == [["b", .null, "two +a"]])
    try await b.write("DELETE FROM person WHERE id = 'B'")
    for device in [b, a] { #expect(try await device.sync().error == nil) }
    #expect(try a.rows("person") == [["b", .null, "two +a"]])
    // It comes when its place is free.
    try await b.write("INSERT INTO person VALUES ('B', NULL, 'again')", "DELETE FROM person WHERE id = 'b'")
    for device in [b, a, a] { #expect(try await device.sync().error == nil) }
    #expect(try a.rows("person") == [["B", .null, "again"]])
    try fleet.expectEqual(["person"], [a, b])
    // And a device that comes later leaves one of two out.
    let c = try fleet.device("c")
    try c.connection().execute(
      "CREATE TABLE person (id TEXT NOT NULL PRIMARY KEY COLLATE NOCASE, email TEXT UNIQUE, note TEXT)")
    try await b.write("INSERT INTO person VALUES ('b', NULL, 'two')")
    #expect(try await b.sync().error == nil)
    let first = try await c.sync()
    #expect(first.error == nil && first.notices.contains { $0.contains("of person was left out") }, "\(first)")
    #expect(try c.rows("person").count == 1)
    await fleet.stop()
  }

  @Test("it comes when the other one has another value, wherever that is given", arguments: [true, false])
  func comesBack(isHere: Bool) async throws {
    let (fleet, a, b) = try await fleet()
    try await a.write("INSERT INTO person VALUES ('1', 'Ann', NULL)", "INSERT INTO card VALUES ('c1', '1')")
    try await b.write("INSERT INTO person VALUES ('2', 'ann', NULL)")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    #expect(try b.rows("person").map { $0[0] } == ["2"])
    if isHere {
      try await b.write("UPDATE person SET email = 'bob' WHERE id = '2'")
    } else {
      try fleet.serverConnection().execute("UPDATE person SET email = 'bob' WHERE id = '2'")
    }
    for _ in 0..<2 { for device in [b, a] { #expect(try await device.sync().error == nil) } }
    try fleet.expectEqual(["person", "card"], [a, b])
  }
}
