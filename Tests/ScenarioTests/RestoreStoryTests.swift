import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import Testing

@Suite("Stories of restores that were seen to go wrong once (semantics 4, 5, 9)")
struct RestoreStoryTests {
  /// Ten sites, and devices in step with them.
  private func fleet(_ names: String...) async throws -> (Fleet, [Device]) {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT 's' || i, 'Site ' || i, 'Toronto', 40 FROM n"
    )
    let devices = try names.map { try fleet.device($0) }
    for device in devices { try await device.sync() }
    return (fleet, devices)
  }

  @Test("two processes of one device at once just after a restore: one after the other, and the rows are the server's")
  func twoProcessesAfterARestore() async throws {
    for _ in 0..<5 {
      let (fleet, devices) = try await fleet("a", "b")
      let (a, b) = (devices[0], devices[1])
      try await fleet.backup("night")
      try await b.write(
        "INSERT INTO site (id, name) VALUES ('c', 'made after the backup')",
        "UPDATE site SET seats = 1 WHERE id = 's0'",
        "DELETE FROM site WHERE id = 's1'")
      try await b.sync()
      try await a.sync()
      await a.close()
      try await fleet.restore("night")
      let (one, other) = (try await fleet.device("a").open(), try await fleet.device("a").open())
      async let first = one.attemptSync()
      async let second = other.attemptSync()
      for report in await [first, second] {
        #expect(report.error == nil || report.error?.code == .sessionInUse, "\(String(describing: report.error))")
      }
      await one.close()
      await other.close()
      for device in [a, b, a, b] { #expect(try await device.sync().error == nil) }
      try fleet.expectEqual(["site", "visit"], [a, b])
      // Who made the changes has them to give back.
      let rows = try fleet.serverRows("site")
      #expect(rows.contains(["c", "made after the backup", .null, 0]))
      #expect(rows.contains(["s0", "Site 0", "Toronto", 1]))
      #expect(!rows.contains { $0[0] == "s1" })
    }
  }

  @Test(
    "what was acknowledged since a recovery whose before-images are put back is offered to a server that has lost it",
    arguments: [true, false])
  func beforeImagesAndARestore(imagesFirst: Bool) async throws {
    let (fleet, devices) = try await fleet("a")
    let a = devices[0]
    try await fleet.backup("night")
    #expect(try await fleet.server?.engine.demandResets(of: nil) == 1)
    try await a.sync()
    let backup = try #require(try await a.open().backups().first)
    #expect(backup.content == .beforeImages)
    try await a.write(
      "INSERT INTO site (id, name) VALUES ('c', 'acknowledged')", "UPDATE site SET seats = 1 WHERE id = 's0'")
    try await a.sync()
    if !imagesFirst { try await fleet.restore("night") }
    try await a.open().restoreBackup(backup.id)
    if imagesFirst { try await fleet.restore("night") }
    for _ in 0..<3 { #expect(try await a.sync().error == nil) }
    try fleet.expectEqual(["site"], [a])
    let rows = try fleet.serverRows("site")
    #expect(rows.contains(["c", "acknowledged", .null, 0]))
    #expect(rows.contains(["s0", "Site 0", "Toronto", 1]))
    await fleet.stop()
  }

  @Test(
    "a row that before-images put back is as of its own commit: a restored server does not take its older values for newer ones"
  )
  func olderThanItsNewestCommit() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site (id, name, seats) VALUES ('s0', 'Zero', 40)")
    let a = try fleet.device("a", recovery: "heal: \"all\"")
    let b = try fleet.device("b", recovery: "heal: \"all\"")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.backup("night")
    // A recovery that changes the row.
    try await b.write("UPDATE site SET seats = 1 WHERE id = 's0'")
    try await b.sync()
    #expect(try await fleet.server?.engine.demandReset(of: try await a.open().status().state.remoteID) == true)
    #expect(try await a.sync().outcome == .recovered)
    let backup = try #require(try await a.open().backups().first)
    #expect(backup.content == .beforeImages)
    try await b.write("UPDATE site SET seats = 2 WHERE id = 's0'")
    try await b.sync()
    try await a.sync()
    try await a.open().restoreBackup(backup.id)
    try await fleet.restore("night")
    for _ in 0..<3 { for device in [a, b] { #expect(try await device.sync().error == nil) } }
    try fleet.expectEqual(["site"], [a, b])
    #expect(try fleet.serverRows("site").first { $0[0] == "s0" }?[3] == 2)
    await fleet.stop()
  }

  @Test(
    "a row of another device that was edited and deleted offline stays deleted after a restore, whoever comes first",
    arguments: [["a", "b"], ["b", "a"]], [true, false])
  func deletedOffline(order: [String], edits: Bool) async throws {
    let (fleet, devices) = try await fleet("a", "b")
    let (a, b) = (devices[0], devices[1])
    try await fleet.backup("night")
    try await b.write("INSERT INTO site (id, name) VALUES ('k', 'of b')")
    try await b.sync()
    try await a.sync()
    if edits { try await a.write("UPDATE site SET name = 'edited' WHERE id = 'k'") }
    try await a.write("DELETE FROM site WHERE id = 'k'")
    try await fleet.restore("night")
    for name in order + order { #expect(try await (name == "a" ? a : b).sync().error == nil) }
    try await a.sync()
    try fleet.expectEqual(["site"], [a, b])
    #expect(try !fleet.serverRows("site").contains { $0[0] == "k" })
    #expect(try await a.open().status().queued == 0)
    await fleet.stop()
  }

  @Test(
    "a device and its clone with one queue, each recovered by hand: merge rule 4 decides, and the report names what was merged"
  )
  func cloneWithTheSameQueue() async throws {
    let (fleet, devices) = try await fleet("a")
    let a = devices[0]
    try await a.write("UPDATE site SET seats = 1 WHERE id = 's0'")
    await a.close()
    let b = try fleet.device("b")
    try copyDatabase(a.path, to: b.path)
    await fleet.stop()
    for suffix in ["", "-wal", "-shm", ".salvor-side"] { removeFile(fleet.serverPath + suffix) }
    try await fleet.start()
    func recover(_ device: Device) async throws {
      let stopped = try await device.sync()
      let report = try await device.open().recover(
        strategy: "recover-unsynced-changes", token: stopped.recovery?.token)
      #expect(report.error == nil, "\(device.name): \(String(describing: report.error))")
    }
    try await recover(a)
    try await a.write("UPDATE site SET seats = 2 WHERE id = 's0'")
    #expect(try await a.sync().error == nil)
    try await recover(b)
    for device in [a, b, a] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(["site"], [a, b])
    let merged = [try await b.open().recoveries(limit: 1)[0], try await a.open().recoveries(limit: 1)[0]]
    let seats = try fleet.serverRows("site").first { $0[0] == "s0" }?[3]
    // Decision 158: the new database knows nothing of the one queue, and the clone's change is merged as its own.
    #expect(seats == 1)
    #expect(merged.map(\.counts.merged) == [1, 1])
    // Decision 180: the second one leaves the remote ID to the first, which is not taken for a copy of it.
    #expect(try await a.open().recoveries(limit: 5).count == 1)
    let lines = try await b.open().recoveryItems(try #require(merged.first).id, after: 0, limit: 10)
    #expect(lines.filter { $0.fate == .merged }.map(\.key) == [["s0"]])
  }

  @Test(
    "a device that comes once the change log of before a restore is trimmed gives back what it had acknowledged: it is beside the rows, and lost in silence nowhere (decision 213)",
    arguments: ["own", "off"])
  func trimmedSince(heal: String) async throws {
    let (fleet, devices) = try await fleet("b", "c")
    let (b, c) = (devices[0], devices[1])
    let a = try fleet.device("a", recovery: "heal: \"\(heal)\"")
    try await a.sync()
    try await fleet.backup("night")
    try await a.write(
      "INSERT INTO site (id, name) VALUES ('new', 'acknowledged')", "UPDATE site SET seats = 1 WHERE id = 's0'")
    try await a.sync()
    try await b.sync()
    try await fleet.restore("night")
    for place in 1...3 {
      try await c.write("UPDATE site SET seats = \(place) WHERE id = 's9'")
      try await c.sync()
    }
    await fleet.server?.engine.trim(retentionMilliseconds: -1000)
    let report = try await a.sync()
    #expect(
      report.error == nil && report.recovery?.reason == .historyTrimmed && report.recovery?.report?.counts.lost == 2)
    for device in [b, c, a, b] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(["site"], [a, b, c])
    // Nobody knows what became of these rows since: a person decides.
    let kept = try fleet.serverConnection().rows("SELECT key FROM salvor_conflict ORDER BY key")
    #expect(kept == (heal == "own" ? [[#"["new"]"#], [#"["s0"]"#]] : []))
    #expect(try await a.open().errorArchive().count == (heal == "own" ? 0 : 2))
    // Who had only read them has them in his archive.
    #expect(try await b.open().errorArchive().count { $0.reason == "lost-on-server" } == 2)
  }
}
