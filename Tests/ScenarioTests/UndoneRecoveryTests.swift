import Testing

/// A recovery that is undone by `restoreBackup`, and a server that is put back once more before the device comes (decision 239).
@Suite("recoveries that are undone before the server is put back once more")
struct UndoneRecoveryTests {
  @Test(
    "what the session of the recovery had sent is lost, and given back: an update, an insert and a delete (never 2)",
    arguments: [false, true])
  func sentByTheSession(isNewer: Bool) async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site (id, name) VALUES ('p1', 'old'), ('p2', 'old'), ('p3', 'old'), ('p4', 'old')")
    let a = try fleet.device("a", credentials: "principal: \"a\"")
    let b = try fleet.device("b", credentials: "principal: \"b\"")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.backup("night")
    for count in 1...6 {
      try await a.write("UPDATE site SET name = 'lost \(count)' WHERE id = 'p2'")
      #expect(try await a.sync().error == nil)
    }
    try await fleet.backup("noon")
    try await fleet.restore("night")
    try await a.write(
      "UPDATE site SET name = 'mine' WHERE id = 'p1'", "INSERT INTO site (id, name) VALUES ('new', 'mine')",
      "DELETE FROM site WHERE id = 'p3'")
    let rewound = try await a.sync()
    #expect(rewound.outcome == .synchronized)
    let backup = try #require(rewound.recovery?.backup)
    try await a.write("UPDATE site SET name = 'later' WHERE id = 'p4'")
    #expect(try await a.sync().uploaded == 1)
    let server = try fleet.serverRows("site")
    try await a.open().restoreBackup(backup)
    // The newer copy has more commits than the server had when the device was there.
    try await fleet.restore(isNewer ? "noon" : "night")
    let report = try await a.sync()
    #expect(report.error == nil && report.refused == 0, "\(report)")
    #expect(report.recovery?.report?.counts.lost == (isNewer ? 4 : 5))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    #expect(try fleet.serverRows("site") == server)
    try fleet.expectEqual(["site"], [a, b])
    #expect(try await a.open().errorArchive().isEmpty)
    await fleet.stop()
  }

  @Test("of two devices that hold such a version it is given back once: it is one version, and no conflict")
  func heldByTwo() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site (id, name) VALUES ('p1', 'old'), ('p2', 'old')")
    let a = try fleet.device("a", credentials: "principal: \"a\"", recovery: "heal: \"all\"")
    let b = try fleet.device("b", credentials: "principal: \"b\"", recovery: "heal: \"all\"")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.backup("night")
    try await a.write("UPDATE site SET name = 'lost' WHERE id = 'p2'")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.restore("night")
    try await a.write("UPDATE site SET name = 'mine' WHERE id = 'p1'")
    let backup = try #require(try await a.sync().recovery?.backup)
    #expect(try await b.sync().error == nil)
    let server = try fleet.serverRows("site")
    try await a.open().restoreBackup(backup)
    try await fleet.restore("night")
    for device in [a, b, a] {
      let report = try await device.sync()
      #expect(report.error == nil && report.refused == 0)
    }
    #expect(try fleet.serverRows("site") == server)
    try fleet.expectEqual(["site"], [a, b])
    #expect(try fleet.serverConnection().integer("SELECT count(*) FROM salvor_conflict") == 0)
    await fleet.stop()
  }
}
