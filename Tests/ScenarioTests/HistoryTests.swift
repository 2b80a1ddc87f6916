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

  @Test("time1 … time4: a server restored to an earlier state is found; nothing is touched")
  func times() async throws {
    let (fleet, a) = try await fleet()
    var backups: [String] = []
    func backup() async throws {
      await fleet.stop()
      let path = fleet.directory + "/backup\(backups.count + 1)"
      try copyDatabase(fleet.serverPath, to: path)
      backups.append(path)
      try await fleet.start()
    }
    for round in 1...3 {
      try await a.write("UPDATE site SET seats = \(100 + round) WHERE id = 's1'")
      #expect(try await a.sync().error == nil)
      try await backup()
    }
    // time4 is the present: normal. time2 and time3 are older uploads: the error.
    #expect(try await a.sync().outcome == .synchronized)
    for time in [0, 1] {
      await fleet.stop()
      try copyDatabase(backups[time], to: fleet.serverPath)
      try await fleet.start()
      let before = try a.rows("site")
      let report = try await a.sync()
      #expect(report.outcome == .recoveryRequired)
      #expect(report.reason == .serverRestored)
      #expect(report.exitCode == 5)
      #expect(try a.rows("site") == before)
      #expect(fleet.log.all.contains { $0.contains("[-10400]") && $0.contains("server-restored") })
    }
    await fleet.stop()
    try copyDatabase(backups[2], to: fleet.serverPath)
    try await fleet.start()
    #expect(try await a.sync().outcome == .synchronized)
    try fleet.expectEqual(tables, [a])
  }

  @Test("another server, or an empty new one, is server-replaced")
  func serverReplaced() async throws {
    let (fleet, a) = try await fleet()
    await fleet.stop()
    for suffix in ["", "-wal", "-shm", ".salvor-side"] { removeFile(fleet.serverPath + suffix) }
    try await fleet.start()
    let report = try await a.sync()
    #expect(report.reason == .serverReplaced)
    #expect(report.exitCode == 5)
    #expect(try a.rows("site").count == 1)
  }

  @Test("a device restored from its own backup is client-rewound, by its identity file and by the server")
  func clientRewound() async throws {
    let (fleet, a) = try await fleet()
    try await a.write("UPDATE site SET seats = 41 WHERE id = 's1'")
    try await a.sync()
    await a.close()
    try copyDatabase(a.path, to: fleet.directory + "/device-backup")
    try await a.write("UPDATE site SET seats = 42 WHERE id = 's1'")
    try await a.sync()
    await a.close()
    try copyDatabase(fleet.directory + "/device-backup", to: a.path)
    let local = try await a.sync()
    #expect(local.reason == .clientRewound)
    #expect(local.roundTrips == 0)
    await a.close()
    // Without its identity file the database looks sound; the server remembers P as an older sequence ID.
    try copyDatabase(fleet.directory + "/device-backup", to: a.path)
    removeFile(a.path + ".salvor-identity")
    let remote = try await a.sync()
    #expect(remote.reason == .clientRewound)
    #expect(try fleet.serverRows("site")[0][3] == 42)
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
