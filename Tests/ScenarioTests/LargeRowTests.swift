import SalvorModel
import SalvorStorage
import Testing

@Suite("A row that is larger than the server reads does not stop others (semantics 7, decision 120)")
struct LargeRowTests {
  private static let limits =
    "limits: { chunkBytesMax: 16384, chunkBytesTarget: 16384, singleRoundTripBytesMax: 16384, rowBytesMax: 8192 },"

  private func device() async throws -> (Fleet, Device) {
    let fleet = try Fleet(serverOptions: "authentication: { module: \"none\" }, " + Self.limits)
    try await fleet.start()
    let device = try fleet.device("a") {
      $0.limits.chunkBytesTarget = 4096
      $0.limits.singleRoundTripBytesMax = 1024
      $0.limits.attemptsMax = 1
    }
    try await device.sync()
    return (fleet, device)
  }

  @Test(
    "it is refused alone as too-large, also where it is larger than a whole chunk may be; what depends on it is blocked",
    arguments: [9_000, 40_000])
  func refusedAlone(bytes: Int) async throws {
    let (fleet, device) = try await device()
    let large = "printf('%.\(bytes)c', 'x')"
    try await device.write(
      "INSERT INTO site(id, name) VALUES ('s1', 'before')",
      "INSERT INTO site(id, name, city) VALUES ('s2', \(large), 'Toronto')",
      "INSERT INTO visit VALUES ('v2', 's2', 'below it', NULL)", "INSERT INTO site(id, name) VALUES ('s3', 'after')",
      "UPDATE site SET city = \(large) WHERE id = 's3'")
    let report = try await device.sync()
    #expect(report.error == nil)
    #expect((report.uploaded, report.refused) == (2, 3))
    #expect(report.exitCode == 6)
    #expect(try fleet.serverRows("site").map { $0[0] } == ["s1", "s3"])
    let entries = try await device.open().errorArchive()
    #expect(entries.map { $0.reason ?? "" }.sorted() == ["blocked", "too-large", "too-large"])
    #expect(entries.first { $0.reason == "too-large" }?.message?.contains("larger than 8192 bytes") == true)
    // Nothing waits any more, and the row is as the person wrote it.
    #expect(try await device.sync().error == nil)
    #expect(try device.connection().integer("SELECT length(name) FROM site WHERE id = 's2'") == Int64(bytes))
    // Made smaller, it goes.
    try await device.write(
      "UPDATE site SET name = 'small' WHERE id = 's2'", "UPDATE site SET city = NULL WHERE id = 's3'")
    #expect(try await device.sync().refused == 0)
    try fleet.expectEqual(["site", "visit"], [device])
  }
}
