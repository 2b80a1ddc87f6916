import SalvorModel
import Testing

private let tables = ["severity", "site", "visit"]

@Suite("Sequence and history, end to end (semantics 5 and 6)")
struct HistoryTests {
  private func fleet() async throws -> (Fleet, Device) {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site VALUES ('s1', 'Harbour Kitchen', 'Toronto', 40)")
    let a = try fleet.device("a")
    try await a.sync()
    return (fleet, a)
  }

  @Test("a lost acknowledgement is answered from the record: nothing is applied twice")
  func lostAcknowledgement() async throws {
    let (fleet, a) = try await fleet()
    try await a.write("INSERT INTO site(id, name) VALUES ('s2', 'x')", "UPDATE site SET seats = 41 WHERE id = 's1'")
    fleet.faults.inject(.loseAnswer)
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.uploaded == 2)
    try fleet.expectEqual(tables, [a])
    #expect(try await a.open().status().queued == 0)
  }

  @Test("a lost acknowledgement, a killed client, and edits of the same row meanwhile: the upload is resent as it was")
  func lostAcknowledgementAndKill() async throws {
    let (fleet, a) = try await fleet()
    try await a.write("UPDATE site SET seats = 41 WHERE id = 's1'")
    fleet.faults.inject(.loseAnswer, .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    #expect(try await a.sync().error?.code == .unreachable)
    #expect(try await a.open().queue().map(\.state) == [.unknownOutcome])
    await a.close()
    try await a.write("UPDATE site SET seats = 42 WHERE id = 's1'")
    let report = try await a.sync()
    #expect(report.error == nil)
    try await a.sync()
    #expect(try fleet.serverRows("site")[0][3] == 42)
    try fleet.expectEqual(tables, [a])
  }

  @Test("a remote ID deleted on a server with its history intact: the next sync is normal and nothing is applied twice")
  func remoteDeleted() async throws {
    let (fleet, a) = try await fleet()
    try await a.write("UPDATE site SET seats = 41 WHERE id = 's1'")
    try await a.sync()
    try await a.write("UPDATE site SET seats = 42 WHERE id = 's1'")
    let remote = try await a.open().status().state.remoteID
    fleet.faults.inject(.loseAnswer, .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    _ = try await a.sync()
    #expect(try await fleet.server?.engine.delete(remote: remote) == true)
    try fleet.serverConnection().execute("UPDATE site SET seats = 50 WHERE id = 's1'")
    let report = try await a.sync()
    #expect(report.error == nil)
    try await a.sync()
    // The upload had been committed before: applying it again would have put 42 back.
    #expect(try fleet.serverRows("site")[0][3] == 50)
    try fleet.expectEqual(tables, [a])
  }

  @Test("a server that has forgotten the remote ID is told the history by verify, too")
  func verifyAfterRemoteDeleted() async throws {
    let (fleet, a) = try await fleet()
    try await a.write("UPDATE site SET seats = 41 WHERE id = 's1'")
    try await a.sync()
    let remote = try await a.open().status().state.remoteID
    #expect(try await fleet.server?.engine.delete(remote: remote) == true)
    for _ in 0..<2 { #expect(try await a.open().verify().differences.isEmpty) }
  }

  @Test("a device takes no larger answer than downloadBytesMax, also where it is not compressed")
  func downloadLimit() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000) SELECT 's' || i, hex(randomblob(40)), NULL, i FROM n"
    )
    let whole = try await fleet.device("whole").sync()
    #expect(whole.error == nil)
    let a = try fleet.device("a", limits: "{ downloadBytesMax: \(whole.bytesReceived - 1) }")
    let report = try await a.sync()
    #expect(report.error?.code == .tooLarge)
    #expect(try a.rows("site") == [])
    let b = try fleet.device("b", limits: "{ downloadBytesMax: \(whole.bytesReceived) }")
    #expect(try await b.sync().error == nil)
  }

  @Test("histories part where the first incarnation begins that the other side does not know, also between two cursors")
  func exactParting() async throws {
    let (fleet, a) = try await fleet()
    let writer = try fleet.device("writer")
    try await writer.sync()
    // Commits that the device has never had as a cursor of its own.
    for seats in 1...3 {
      try await writer.write("UPDATE site SET seats = \(seats) WHERE id = 's1'")
      try await writer.sync()
    }
    try await fleet.backup("night")
    let shared = try #require(try fleet.serverConnection().integer("SELECT max(number) FROM salvor_commit"))
    for seats in 4...6 {
      try await writer.write("UPDATE site SET seats = \(seats) WHERE id = 's1'")
      try await writer.sync()
    }
    try await a.sync()
    #expect(try await a.open().status().state.groups.compactMap(\.cursor?.number).max() == shared + 3)
    try await fleet.restore("night")
    // The restored server goes on, beyond what the device has seen.
    for seats in 7...12 {
      try fleet.serverConnection().execute("UPDATE site SET seats = \(seats) WHERE id = 's1'")
      try await fleet.device("other\(seats)").sync()
    }
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.recovery?.strategy == "rewind")
    #expect(fleet.log.all.contains { $0.contains("It rewinds to commit \(shared),") }, "\(fleet.log.all.suffix(5))")
    try fleet.expectEqual(tables, [a])
    // Lost incarnations are forgotten: a later restart and restore are told apart, too.
    try await fleet.restart()
    try fleet.serverConnection().execute("UPDATE site SET seats = 20 WHERE id = 's1'")
    try await a.sync()
    #expect(try await a.sync().recovery == nil)
    try fleet.expectEqual(tables, [a])
  }

  @Test("a delete that a foreign key's cascade made is remembered like any other: after a restore it is in the archive")
  func cascadedDeletes() async throws {
    // The device that made them offers them.
    let healed = try await deletedByCascade(recovery: "")
    for device in healed.devices.reversed() { #expect(try await device.sync().error == nil) }
    #expect(try healed.fleet.serverRows("visit").count == 1)
    try healed.fleet.expectEqual(tables, healed.devices)

    let (fleet, devices) = try await deletedByCascade(recovery: "heal: \"off\"")
    for device in devices {
      let lost = try await device.open().errorArchive().filter { $0.reason == "lost-on-server" }
      #expect(
        Set(lost.map { "\($0.operation.rawValue) \($0.table) \($0.key[0])" })
          == ["delete site s1", "delete visit v1", "delete visit v2"], "\(device.name)")
      try fleet.expectEqual(tables, [device])
    }
    #expect(try fleet.serverRows("visit").count == 3)
  }

  /// Two devices, after a server that was restored has lost what one of them deleted.
  private func deletedByCascade(recovery: String) async throws -> (fleet: Fleet, devices: [Device]) {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute(
      """
      INSERT INTO site VALUES ('s1', 'One', NULL, 1), ('s2', 'Two', NULL, 1);
      INSERT INTO visit VALUES ('v1', 's1', NULL, NULL), ('v2', 's1', NULL, NULL), ('v3', 's2', NULL, NULL)
      """)
    let a = try fleet.device("a", recovery: recovery), b = try fleet.device("b", recovery: recovery)
    for device in [a, b] { try await device.sync() }
    try await fleet.backup("night")
    try await a.write("DELETE FROM site WHERE id = 's1'")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    #expect(try b.rows("visit").count == 1)
    try await fleet.restore("night")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    return (fleet, [a, b])
  }

  @Test("a download that is cut goes on where it was cut")
  func cutDownload() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let server = try fleet.serverConnection()
    try server.transaction(.immediate) {
      let insert = try server.prepare("INSERT INTO site(id, name, city) VALUES (?, ?, ?)")
      for index in 0..<20_000 {
        try insert.bind(["s\(index)".value, "name \(index &* 7919 % 100_003)".value, "city \(index % 97)".value])
        try insert.run()
      }
    }
    let a = try fleet.device("a")
    let whole = try fleet.device("whole")
    let reference = try await whole.sync()
    #expect(reference.error == nil)
    fleet.faults.inject(
      .cutAnswer(after: Int(reference.bytesReceived) * 2 / 3), .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    let cut = try await a.sync()
    #expect(cut.error?.code == .unreachable)
    #expect(try a.rows("site") == [], "a half-applied download is never seen")
    await a.close()
    try server.execute("UPDATE site SET city = 'changed meanwhile' WHERE id = 's5'; DELETE FROM site WHERE id = 's6'")
    let rest = try await a.sync()
    #expect(rest.error == nil)
    #expect(rest.bytesReceived < reference.bytesReceived * 2 / 3)
    try fleet.expectEqual(tables, [a])
  }
}

extension String {
  var value: Value { .text(self) }
}
