import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

@Suite("A backup that is put into the database of a running server (semantics 6 and 10)")
struct RestoredInPlaceTests {
  private func sync(_ devices: [Device]) async throws -> [SyncReport] {
    var reports: [SyncReport] = []
    for device in devices {
      let report = try await device.sync()
      #expect(report.error == nil, "\(device.name): \(String(describing: report.error))")
      reports.append(report)
    }
    return reports
  }

  @Test("what it lost is offered and comes back, as after a restart, also twice")
  func comesBack() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    try await a.write("INSERT INTO site (id, name) VALUES ('a', 'of a')")
    _ = try await sync([a, b])
    try fleet.serverConnection().execute("VACUUM INTO '\(fleet.directory)/noon.backup'")
    for round in 1...2 {
      try await a.write("UPDATE site SET seats = \(round) WHERE id = 'a'")
      try await a.write("INSERT INTO site (id, name) VALUES ('a\(round)', 'lost')")
      _ = try await sync([a, b])
      try fleet.restoreInPlace("noon")
      try await b.write("INSERT INTO site (id, name) VALUES ('b\(round)', 'not sent')")
      let reports = try await sync([a, b])
      #expect(reports.map { $0.recovery?.reason } == [.serverRestored, .serverRestored])
      #expect(reports[0].healed == 1 + Int64(round), "what was lost twice is offered again")
      _ = try await sync([a, b])
      try fleet.expectEqual(["site", "visit"], [a, b])
    }
    #expect(try fleet.serverRows("site").map { $0[0] } == ["a", "a1", "a2", "b1", "b2"])
    #expect(try fleet.serverRows("site").first?[3] == 2)
    #expect(try fleet.serverConnection().integer("SELECT count(*) FROM salvor_restore") == 1)
  }

  @Test("the same file put back, or a later copy of the same history, is no restore")
  func theSame() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let a = try fleet.device("a")
    try await a.write("INSERT INTO site (id, name) VALUES ('a', 'of a')")
    _ = try await sync([a])
    try fleet.serverConnection().execute("VACUUM INTO '\(fleet.directory)/now.backup'")
    try fleet.restoreInPlace("now")
    try await a.write("INSERT INTO site (id, name) VALUES ('b', 'of a')")
    let reports = try await sync([a, a])
    #expect(reports.allSatisfy { $0.outcome == .synchronized && $0.recovery == nil })
    try fleet.expectEqual(["site", "visit"], [a])
  }
}
