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
