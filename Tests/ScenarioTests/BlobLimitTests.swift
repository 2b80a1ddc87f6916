import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import Testing

/// What is too long for an address, and too much for the server's staging.
extension BlobTests {
  private static let room = "limits: { blobStagingBytesMax: 250000 },"

  @Test("the image of a row with a key of 40,000 bytes comes down, and goes up", arguments: ["k", "字", "&=%"])
  func longKey(unit: String) async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a"), b = try fleet.device("b")
    let (key, other) = (String(repeating: unit, count: 40_000 / unit.utf8.count), String(repeating: unit, count: 700))
    try await insert(a, key, image(1, 40_000))
    try await insert(a, other, image(2, 50_000))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(["photo"], [a, b])
    #expect(try b.rows("photo").count == 2)
  }

  @Test("more blobs than the server stages at a time go up in several uploads, in order, and downloads go on")
  func severalUploads() async throws {
    let fleet = try await fleet(options: Self.room)
    let a = try fleet.device("a"), b = try fleet.device("b")
    for place in 0..<5 { try await insert(a, "p\(place)", image(UInt64(30 + place), 90_000)) }
    try await a.write("INSERT INTO photo (id) VALUES ('plain')", "UPDATE photo SET title = 'later' WHERE id = 'p0'")
    try fleet.serverConnection().execute("INSERT INTO photo (id) VALUES ('theirs')")
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.uploaded == 7)
    #expect(report.refused == 0)
    // None went more than twice.
    #expect(report.bytesSent < 2 * 5 * 90_000)
    #expect(try await b.sync().error == nil)
    try fleet.expectEqual(["photo"], [a, b])
    #expect(try a.rows("photo").count == 7)
    #expect(try fleet.serverConnection().integer("SELECT count(*) FROM salvor_blob") == 0)
  }

  @Test("in chunks, too: an upload of many chunks is taken back and goes up in parts")
  func severalChunkedUploads() async throws {
    let fleet = try await fleet(options: Self.room)
    let a = try fleet.device("a") {
      $0.limits.chunkBytesTarget = 1024
      $0.limits.singleRoundTripBytesMax = 1024
    }
    for place in 0..<60 { try await insert(a, "p\(place)", image(UInt64(100 + place), 40_000), title: "a long title") }
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.uploaded == 60)
    try fleet.expectEqual(["photo"], [a])
    #expect(try fleet.serverConnection().integer("SELECT count(*) FROM salvor_blob") == 0)
  }

  @Test("a request whose blobs the server can never stage together is refused too-large; the others go on")
  func oneTooLarge() async throws {
    let fleet = try await fleet(options: Self.room)
    let a = try fleet.device("a")
    _ = try await a.open()
    let connection = try a.connection()
    try connection.transaction {
      try connection.execute("INSERT INTO salvor_request (tag) VALUES ('album')")
      for place in 0..<3 {
        try connection.run(
          "INSERT INTO photo (id, image) VALUES (?1, ?2)", .text("album\(place)"),
          .blob(image(UInt64(40 + place), 90_000)))
      }
      try connection.execute("DELETE FROM salvor_request")
    }
    try await a.write("UPDATE photo SET title = 'depends' WHERE id = 'album1'")
    for place in 0..<4 { try await insert(a, "p\(place)", image(UInt64(50 + place), 80_000)) }
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.uploaded == 4)
    let archive = try await a.open().errorArchive()
    #expect(archive.first?.reason == RefusalReason.tooLarge.rawValue)
    #expect(archive.first?.message?.contains("blobStagingBytesMax") == true)
    #expect(archive.first?.tag == "album")
    #expect(try fleet.serverRows("photo").map { $0[0] } == ["p0", "p1", "p2", "p3"])
    // Taken apart, it goes.
    try await a.write("UPDATE photo SET image = NULL WHERE id = 'album2'")
    #expect(try await a.sync().error == nil)
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(["photo"], [a])
    #expect(try a.rows("photo").count == 7)
  }

  @Test(
    "a row with a blob above the device's own blobBytesMax is left out, by name; the rest arrives, and the row comes when the limit is raised"
  )
  func aboveTheOwnLimit() async throws {
    let fleet = try await fleet(
      "}, album: { maintained: \"dual\", primaryKey: \"id\", columns: { id: \"text\", photo_id: \"text?\" }, references: { photo_id: \"photo\" }"
    )
    let a = try fleet.device("a"), b = try fleet.device("b", limits: "{ blobBytesMax: 40000 }")
    try await insert(a, "p1", image(1, 50_000))
    try await insert(a, "p2", image(2, 39_000))
    try await a.write("INSERT INTO album VALUES ('a1', 'p1'), ('a2', 'p2')")
    #expect(try await a.sync().error == nil)
    var report = try await b.sync()
    #expect(report.error == nil)
    let notice = report.notices.first { $0.contains("of photo was left out") } ?? ""
    for part in ["photo", "image", "p1", "50000 bytes", "client.limits.blobBytesMax 40000"] {
      #expect(notice.contains(part), "\(part) in: \(notice)")
    }
    #expect(try b.rows("photo").map { $0[0] } == ["p2"])
    #expect(try b.rows("album").map { $0[0] } == ["a2"])
    // Small once, and large again; its title alone changes, too.
    try overwrite(a, "p1", image(3, 30_000))
    #expect(try await a.sync().error == nil)
    for _ in 0..<2 { #expect(try await b.sync().error == nil) }
    try fleet.expectEqual(["photo", "album"], [a, b])
    try overwrite(a, "p1", image(4, 60_000))
    #expect(try await a.sync().error == nil)
    try await b.write("UPDATE photo SET title = 'mine' WHERE id = 'p1'")
    report = try await b.sync()
    #expect(report.error == nil && report.notices.contains { $0.contains("60000 bytes") })
    #expect(try b.rows("photo").map { $0[0] } == ["p2"])
    try await a.write("UPDATE photo SET title = 'later' WHERE id = 'p2'")
    #expect(try await a.sync().error == nil)
    #expect(try await b.sync().error == nil)
    // Nothing is asked for until then: a synchronization with nothing to do is one round trip.
    #expect(try await b.sync().roundTrips == 1)
    await b.close()
    let larger = try fleet.device("b")
    for _ in 0..<2 { #expect(try await larger.sync().error == nil) }
    try fleet.expectEqual(["photo", "album"], [larger])
    #expect(try larger.rows("album").count == 2)
    #expect(try await larger.sync().roundTrips == 1)
  }

  @Test("a device's own blob above its limit stays where the server feeds its row again")
  func ownAboveTheLimit() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a", limits: "{ blobBytesMax: 40000 }"), b = try fleet.device("b")
    try await insert(a, "p1", image(1, 50_000))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await b.write("UPDATE photo SET title = 'theirs' WHERE id = 'p1'")
    #expect(try await b.sync().error == nil)
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(["photo"], [a, b])
  }

  @Test("what a device that went away has staged makes room for another of the same principal")
  func makesRoom() async throws {
    let fleet = try await fleet(options: Self.room)
    let a = try fleet.device("a", adjust: Self.patient), b = try fleet.device("b")
    for place in 0..<3 { try await insert(a, "a\(place)", image(UInt64(60 + place), 60_000)) }
    // The question, and a part of each blob; the upload itself is lost.
    fleet.faults.pass(4)
    fleet.faults.inject(.loseRequest)
    #expect(try await a.sync().error?.code == .unreachable)
    fleet.faults.clear()
    #expect(try fleet.serverConnection().integer("SELECT sum(received) FROM salvor_blob") == 180_000)
    for place in 0..<3 { try await insert(b, "b\(place)", image(UInt64(70 + place), 70_000)) }
    let report = try await b.sync()
    #expect(report.error == nil)
    #expect(report.uploaded == 3)
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(["photo"], [a, b])
    #expect(try a.rows("photo").count == 6)
  }

  @Test("an answer that explains nothing names what was asked, and where to look")
  func unexplained() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    // As often as a sync tries: such an answer may be another one soon.
    fleet.faults.inject(.answer(status: 502), .answer(status: 502), .answer(status: 502), .answer(status: 502))
    let error = try await a.sync().error
    #expect(error?.code == .unreachable)
    #expect(error?.message.hasPrefix("POST /v1/sync was answered with status 502 and no explanation") == true)
    #expect(error?.message.contains("a proxy on the way") == true)
    try await insert(a, "p1", image(1, 40_000))
    fleet.faults.pass(1)
    fleet.faults.inject(.answer(status: 414))
    #expect(try await a.sync().error?.message.hasPrefix("PUT /v1/blobs/… was answered with status 414") == true)
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(["photo"], [a])
  }
}
