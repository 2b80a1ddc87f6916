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

  @Test(
    "bodyBytesMax below one row's body: that row is refused alone, others and blobs go, in shorter chunks and parts")
  func shortBodies() async throws {
    let fleet = try Fleet(
      schema: Fleet.visits.replacing("seats: \"integer = 0\" }", "seats: \"integer = 0\", photo: \"blob?\" }"),
      serverOptions: "authentication: { module: \"none\" }, limits: { bodyBytesMax: 20000 },")
    try await fleet.start()
    let device = try fleet.device("a") { $0.limits.attemptsMax = 1 }
    try await device.sync()
    try await device.write(
      "INSERT INTO site (id, name) VALUES ('before', 'x')",
      "INSERT INTO site (id, name) VALUES ('large', hex(randomblob(60000)))",
      "INSERT INTO site (id, name, photo) VALUES ('photo', 'x', randomblob(100000))",
      "INSERT INTO site (id, name) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) SELECT 'some' || i, hex(randomblob(100)) FROM n"
    )
    let report = try await device.sync()
    #expect(report.error == nil, "\(String(describing: report.error))")
    #expect((report.uploaded, report.refused) == (302, 1))
    let entries = try await device.open().errorArchive()
    #expect(entries.map { "\($0.reason ?? "") \($0.key[0])" } == ["too-large \("large".value)"])
    #expect(try fleet.serverRows("site").count == 302)
    #expect(try device.connection().integer("SELECT length(photo) FROM site WHERE id = 'photo'") == 100_000)
    #expect(try await device.sync().error == nil)
  }

  @Test(
    "a recovery that asks for large rows by their keys reads them line by line, whatever they have together (never 7)")
  func askedForByKey() async throws {
    let limits = "chunkBytesMax: 65536, chunkBytesTarget: 16384, singleRoundTripBytesMax: 16384, rowBytesMax: 65536"
    let fleet = try Fleet(serverOptions: "authentication: { module: \"none\" }, limits: { \(limits) },")
    try await fleet.start()
    let a = try fleet.device("a", limits: "{ \(limits) }")
    let b = try fleet.device("b", limits: "{ \(limits) }")
    try fleet.serverConnection().execute(
      "INSERT INTO site (id, name) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20) SELECT 's' || i, printf('%.20000c', 'x') FROM n"
    )
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.backup("night")
    try await a.write("UPDATE site SET city = 'acknowledged'")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.restore("night")
    for device in [a, b, a] {
      let report = try await device.sync()
      #expect(
        report.error == nil && report.refused == 0 && report.queued == 0,
        "\(report.outcome.map { "\($0)" } ?? "-") \(report.uploaded) \(report.healed) \(report.queued) \(String(describing: report.error)) \(String(describing: report.recovery?.report?.counts)) \(report.notices)"
      )
    }
    #expect(try Set(fleet.serverRows("site").map { $0[2] }) == ["acknowledged"])
    for device in [a, b] {
      #expect(
        try device.connection().rows("SELECT DISTINCT city, length(name) FROM site") == [["acknowledged", 20_000]])
    }
    await fleet.stop()
  }

  @Test("a change that depends on a refused one and is written later counts as refused, as where both went together")
  func blockedLater() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute(
      "CREATE TRIGGER no BEFORE INSERT ON site WHEN NEW.name = 'bad' BEGIN SELECT RAISE(ABORT, 'bad'); END")
    let device = try fleet.device("a")
    try await device.sync()
    try await device.write("INSERT INTO site (id, name) VALUES ('s', 'bad')")
    #expect(try await device.sync().refused == 1)
    try await device.write("INSERT INTO visit (id, site_id) VALUES ('v', 's')")
    let later = try await device.sync()
    #expect((later.refused, later.queued, later.exitCode) == (1, 0, 6))
    #expect(try await device.open().errorArchive().compactMap(\.reason).sorted() == ["blocked", "constraint"])
    #expect(try await device.sync().exitCode == 0)
  }
}
