import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

@Suite("An upload of more than a server stages goes in parts")
struct UploadRoomTests {
  private func device(_ limit: String) async throws -> (Fleet, Device) {
    let fleet = try Fleet(
      serverOptions:
        "authentication: { module: \"none\" }, limits: { chunkBytesMax: 8192, chunkBytesTarget: 4096, singleRoundTripBytesMax: 4096, rowBytesMax: 4096, \(limit) },"
    )
    try await fleet.start()
    let device = try fleet.device("a") {
      $0.limits.chunkBytesMax = 8192
      $0.limits.chunkBytesTarget = 4096
      $0.limits.singleRoundTripBytesMax = 1024
      $0.limits.attemptsMax = 1
    }
    #expect(try await device.sync().error == nil)
    return (fleet, device)
  }

  private static let limits = ["principalStagedBytesMax: 20000", "uploadBytesMax: 20000", "uploadChunksMax: 3"]
  /// About 120 KB.
  private static let many =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200) INSERT INTO site (id, name) SELECT 's' || i, hex(randomblob(250)) FROM n"

  @Test(
    "what fits goes with one upload, and the rest with the next ones of the same synchronization", arguments: limits)
  func inParts(limit: String) async throws {
    let (fleet, device) = try await device(limit)
    try await device.write(Self.many, "INSERT INTO visit VALUES ('v', 's200', 'below the last one', NULL)")
    let report = try await device.sync()
    #expect(report.error == nil && report.uploaded == 201, "\(String(describing: report.error))")
    #expect(try await device.open().queue().isEmpty)
    try fleet.expectEqual(["site", "visit"], [device])
    await fleet.stop()
  }

  @Test(
    "a request that has more by itself is named with the limit, and the rest goes when it is withdrawn",
    arguments: limits)
  func tooLargeAlone(limit: String) async throws {
    let (fleet, device) = try await device(limit)
    try await device.write("INSERT INTO site (id, name) VALUES ('first', 'x')")
    try await device.write(
      "INSERT INTO salvor_request (tag) VALUES ('large')", Self.many, "DELETE FROM salvor_request")
    try await device.write("INSERT INTO site (id, name) VALUES ('last', 'x')")
    let error = try await device.sync().error
    let name = String(limit.prefix { $0 != ":" })
    #expect(error?.code == .tooLarge && error?.message.contains("\(name) is ") == true, "\(String(describing: error))")
    #expect(try fleet.serverRows("site").map { $0[0] } == ["first"])
    let client = try await device.open()
    let large = try #require(try await client.queue().first)
    #expect(large.tag == "large" && error?.message.contains("\(large.id)") == true)
    try await client.withdraw(large.id)
    #expect(try await device.sync().error == nil)
    #expect(try fleet.serverRows("site").map { $0[0] } == ["first", "last"])
    await fleet.stop()
  }
}
