import Foundation
import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

/// Large values travel outside the rows: applications on both sides read and write plain columns.
@Suite("Blobs: large values move outside the rows, once, resumably")
struct BlobTests {
  private static func schema(_ more: String = "") -> String {
    """
    { version: 1, tables: { photo: { maintained: "dual", primaryKey: "id",
        columns: { id: "text", owner: "text?", title: "text?", image: "blob?" }, \(more) } } }
    """
  }

  /// Parts of 64 KiB, and nothing is tried twice.
  @Sendable static func patient(_ configuration: inout SalvorClient.Configuration) {
    configuration.limits.chunkBytesMax = 64 << 10
    configuration.limits.chunkBytesTarget = 32 << 10
    configuration.limits.attemptsMax = 1
  }

  func fleet(_ more: String = "", options: String = "") async throws -> Fleet {
    let fleet = try Fleet(
      schema: Self.schema(more), serverOptions: "authentication: { module: \"none\" }, \(options)")
    try await fleet.start()
    return fleet
  }

  /// Bytes that no compression makes smaller.
  func image(_ seed: UInt64, _ count: Int) -> [UInt8] {
    var state = seed
    return (0..<count).map { _ in
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return UInt8(truncatingIfNeeded: state >> 56)
    }
  }

  func insert(_ device: Device, _ id: String, _ image: [UInt8], title: String = "a") async throws {
    _ = try await device.open()
    try device.connection().run(
      "INSERT INTO photo (id, owner, title, image) VALUES (?1, 'anna', ?2, ?3)", .text(id), .text(title), .blob(image))
  }

  func overwrite(_ device: Device, _ id: String, _ image: [UInt8]) throws {
    try device.connection().run("UPDATE photo SET image = ?2 WHERE id = ?1", .text(id), .blob(image))
  }

  func serverImage(_ fleet: Fleet, _ id: String) throws -> Value? {
    try fleet.serverConnection().scalar("SELECT image FROM photo WHERE id = ?1", .text(id))
  }

  @Test("from a device over the server to another, byte for byte; with nothing large a sync is one round trip")
  func thereAndBack() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a"), b = try fleet.device("b")
    try await insert(a, "p1", image(1, 200_000))
    try await insert(a, "p2", image(2, 32 << 10))
    try await insert(a, "p3", image(3, (32 << 10) - 1))
    let first = try await a.sync()
    #expect(first.error == nil)
    #expect(first.uploaded == 3)
    // What is missing, two blobs, and the sync.
    #expect(first.roundTrips == 4)
    #expect(try await b.sync().error == nil)
    try fleet.expectEqual(["photo"], [a, b])
    #expect(try serverImage(fleet, "p1") == .blob(image(1, 200_000)))

    try await a.write("UPDATE photo SET title = 'b' WHERE id = 'p1'")
    let second = try await a.sync()
    #expect(second.roundTrips == 1)
    #expect(second.bytesSent < 2000)
    // The row comes whole, its blob does not: the device has it.
    let third = try await b.sync()
    #expect(third.roundTrips == 1)
    #expect(third.bytesReceived < 2000)
    try fleet.expectEqual(["photo"], [a, b])
  }

  @Test("one image in three rows is sent once and fetched once")
  func once() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a"), b = try fleet.device("b")
    let shared = image(4, 150_000)
    for id in ["p1", "p2", "p3"] { try await insert(a, id, shared) }
    let up = try await a.sync()
    #expect(up.error == nil)
    #expect(up.bytesSent < 155_000)
    let down = try await b.sync()
    #expect(down.error == nil)
    #expect(down.bytesReceived < 155_000)
    // One more row with it: nothing of it moves.
    try await insert(a, "p4", shared)
    #expect(try await a.sync().bytesSent < 2000)
    #expect(try await b.sync().bytesReceived < 2000)
    try fleet.expectEqual(["photo"], [a, b])
  }

  @Test(
    "the outcome of an upload is unknown and its value was overwritten meanwhile: the same bytes are sent again, then the new ones"
  )
  func overwritten() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a", adjust: Self.patient), b = try fleet.device("b")
    let (before, after) = (image(5, 40_000), image(6, 50_000))
    for (id, fault) in [("p1", Faults.Fault.loseRequest), ("p2", .loseAnswer)] {
      try await insert(a, id, before)
      fleet.faults.pass(id == "p1" ? 2 : 1)
      fleet.faults.inject(fault)
      #expect(try await a.sync().error?.code == .unreachable)
      fleet.faults.clear()
      try overwrite(a, id, after)
      // One sync sends what was written since, too.
      let report = try await a.sync()
      #expect(report.error == nil)
      #expect(report.uploaded == 2)
      #expect(report.queued == 0)
      #expect(try serverImage(fleet, id) == .blob(after))
    }
    #expect(try await b.sync().error == nil)
    try fleet.expectEqual(["photo"], [a, b])
  }

  @Test("a cut in the middle of a blob: the next sync goes on at the last part that arrived")
  func cut() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a", adjust: Self.patient), b = try fleet.device("b", adjust: Self.patient)
    let large = image(7, 400_000)
    try await insert(a, "p1", large)
    // The question, and three parts of 64 KiB.
    fleet.faults.pass(4)
    fleet.faults.inject(.loseRequest)
    #expect(try await a.sync().error?.code == .unreachable)
    fleet.faults.clear()
    await a.close()
    let up = try await a.sync()
    #expect(up.error == nil)
    #expect(up.bytesSent < 400_000 - 3 * 65_536 + 2000)
    #expect(try serverImage(fleet, "p1") == .blob(large))

    fleet.faults.pass(1)
    fleet.faults.inject(.cutAnswer(after: 250_000))
    #expect(try await b.sync().error?.code == .unreachable)
    #expect(try b.rows("photo").isEmpty)
    fleet.faults.clear()
    await b.close()
    let down = try await b.sync()
    #expect(down.error == nil)
    #expect(down.bytesReceived < 150_000 + 4000)
    try fleet.expectEqual(["photo"], [a, b])
  }

  @Test("a large upload in chunks, whose blobs were emptied at the server before it was processed")
  func emptied() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a") {
      Self.patient(&$0)
      $0.limits.chunkBytesTarget = 1024
      $0.limits.singleRoundTripBytesMax = 1024
    }
    for place in 0..<20 { try await insert(a, "p\(place)", image(UInt64(100 + place), 40_000)) }
    fleet.faults.pass(10)
    fleet.faults.inject(.loseRequest)
    #expect(try await a.sync().error?.code == .unreachable)
    fleet.faults.clear()
    try fleet.serverConnection().execute("DELETE FROM salvor_blob; DELETE FROM salvor_blob_part")
    #expect(try await a.sync().error == nil)
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(["photo"], [a])
    #expect(try fleet.serverConnection().integer("SELECT count(*) FROM salvor_blob") == 0)
  }

  @Test("a value that changes between the rows and its bytes: the device ends with the newer one")
  func gone() async throws {
    let fleet = try await fleet()
    let b = try fleet.device("b")
    let (before, after) = (image(8, 60_000), image(9, 70_000))
    try fleet.serverConnection().run(
      "INSERT INTO photo (id, image) VALUES ('p1', ?1), ('p2', ?2)", .blob(before), .blob(image(10, 500)))
    let server = fleet.serverPath
    fleet.faults.pass(1)
    fleet.faults.inject(
      .meanwhile {
        try SQLiteConnection(server).run("UPDATE photo SET image = ?1 WHERE id = 'p1'", .blob(after))
      })
    #expect(try await b.sync().error == nil)
    try fleet.expectEqual(["photo"], [b])
    #expect(try b.rows("photo")[0][3] == .blob(after))
  }

  @Test("a blob above the server's limit is refused and kept in the archive; the others go on")
  func tooLarge() async throws {
    let fleet = try await fleet(options: "limits: { blobBytesMax: 100000 },")
    let a = try fleet.device("a")
    try await insert(a, "p1", image(11, 100_001))
    try await insert(a, "p2", image(12, 100_000))
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.uploaded == 1)
    #expect(report.refused == 1)
    #expect(report.bytesSent < 105_000)
    #expect(try await a.open().errorArchive().map(\.reason) == [RefusalReason.tooLarge.rawValue])
    #expect(try fleet.serverRows("photo").map { $0[0] } == ["p2"])
    // Made smaller, it goes.
    try overwrite(a, "p1", image(13, 90_000))
    #expect(try await a.sync().refused == 0)
    try fleet.expectEqual(["photo"], [a])
  }

  @Test("another principal's image is neither taken for known nor given")
  func scope() async throws {
    let fleet = try await fleet("scope: { owner: \"principal\" },")
    let a = try fleet.device("a"), b = try fleet.device("b", credentials: "principal: \"ben\"")
    let secret = image(14, 80_000)
    try await insert(a, "p1", secret)
    #expect(try await a.sync().error == nil)
    #expect(try await b.sync().upserts == 0)
    _ = try await b.open()
    try b.connection().run("INSERT INTO photo (id, owner, image) VALUES ('p2', 'ben', ?1)", .blob(secret))
    let report = try await b.sync()
    #expect(report.error == nil)
    #expect(report.bytesSent > 80_000)
    #expect(try serverImage(fleet, "p2") == .blob(secret))
  }

  @Test("each side understands both forms, whatever its own limit")
  func limits() async throws {
    let fleet = try await fleet(options: "limits: { blobReferenceBytesMin: 1000000 },")
    let a = try fleet.device("a", limits: "{ blobReferenceBytesMin: 1024 }")
    let b = try fleet.device("b", limits: "{ blobReferenceBytesMin: 10000000 }")
    try await insert(a, "p1", image(15, 2000))
    try await insert(a, "p2", image(16, 200_000))
    #expect(try await a.sync().roundTrips == 4)
    #expect(try await b.sync().roundTrips == 1)
    try await insert(b, "p3", image(17, 150_000))
    #expect(try await b.sync().roundTrips == 1)
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(["photo"], [a, b])
  }

  @Test("both change an image and keep-versions keeps both, with their bytes")
  func versions() async throws {
    let fleet = try await fleet("conflicts: \"keep-versions\",")
    let a = try fleet.device("a"), b = try fleet.device("b")
    try await insert(a, "p1", image(18, 40_000))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try overwrite(a, "p1", image(19, 41_000))
    try overwrite(b, "p1", image(20, 42_000))
    #expect(try await a.sync().conflicts == 0)
    #expect(try await b.sync().conflicts == 1)
    #expect(try await b.sync().error == nil)
    try fleet.expectEqual(["photo"], [a, b])
    #expect(try serverImage(fleet, "p1") == .blob(image(19, 41_000)))
  }

  @Test("a server that lost images gets them back from the device, and another device keeps what it has")
  func restored() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a"), b = try fleet.device("b")
    try await insert(a, "p1", image(21, 50_000))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.backup("night")
    try await insert(a, "p2", image(22, 60_000))
    try overwrite(a, "p1", image(23, 70_000))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.restore("night")
    for device in [a, b, a, b] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(["photo"], [a, b])
    #expect(try serverImage(fleet, "p1") != nil)
  }

  @Test("a device that is made anew fetches the images with its rows")
  func recreated() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a"), b = try fleet.device("b", recovery: "strategy: \"recreate\"")
    try await insert(a, "p1", image(24, 50_000))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.backup("night")
    try await insert(a, "p2", image(25, 60_000))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.restore("night")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(["photo"], [a, b])
  }

  @Test("real images move from one device over the server to another and back after a change, identical")
  func realImages() async throws {
    let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().appendingPathComponent("Examples/images")
    let files = try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)
      .filter { $0.pathExtension == "png" }.sorted { $0.path < $1.path }
    #expect(files.count == 11)
    let images = try files.map { [UInt8](try Data(contentsOf: $0)) }
    let bytes = Int64(images.reduce(0) { $0 + $1.count })
    let fleet = try await fleet()
    let a = try fleet.device("a"), b = try fleet.device("b")
    for (file, image) in zip(files, images) { try await insert(a, file.lastPathComponent, image) }
    for device in [a, b] {
      let report = try await device.sync()
      #expect(report.error == nil)
      #expect(report.bytesSent + report.bytesReceived < bytes + 20_000)
    }
    try fleet.expectEqual(["photo"], [a, b])
    #expect(try b.connection().rows("SELECT image FROM photo ORDER BY id") == images.map { [.blob($0)] })
    // Every image moves on to the next row: no byte of them moves between the sides.
    let write = try b.connection()
    try write.transaction {
      for (place, file) in files.enumerated() {
        try write.run(
          "UPDATE photo SET image = ?2 WHERE id = ?1", .text(file.lastPathComponent),
          .blob(images[(place + 1) % images.count]))
      }
    }
    let up = try await b.sync()
    #expect(up.error == nil)
    #expect(up.bytesSent < 20_000)
    let down = try await a.sync()
    #expect(down.error == nil)
    #expect(down.bytesReceived < 20_000)
    try fleet.expectEqual(["photo"], [a, b])
  }
}
