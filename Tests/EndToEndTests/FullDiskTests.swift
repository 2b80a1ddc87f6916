import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// A full disk on either side: a named error, nothing half written, and everything goes on when there is room.
@Suite(.serialized) struct FullDiskTests {
  static let limits = "{ chunkBytesTarget: 1024, singleRoundTripBytesMax: 1024, attemptsMax: 1 }"

  @Test("The device's disk is full while it fetches: a named error, nothing of it seen, whole after room is made")
  func deviceDiskFull() async throws {
    let place = try Workspace(serverLimits: FullDiskTests.limits)
    let proxy = try FaultyProxy()
    try proxy.lead(to: try await place.server.start())
    let device = try place.device("anna", url: proxy.url, limits: FullDiskTests.limits)
    let disk = try await FullDisk(device.directory)
    try await device.sync()
    try device.sqlite().execute("INSERT INTO site VALUES ('mine', 'Mill', 3)")
    try place.server.sqlite().execute(
      """
      INSERT INTO site VALUES ('s', 'Harbour', 4);
      WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 400)
      INSERT INTO visit SELECT printf('v%06d', i), 's', NULL, hex(randomblob(60)), i / 7.0, NULL FROM n;
      """)
    let before = try contents(device.database)
    disk.fill()
    let output = try await device.salvor("sync", "--json", environment: disk.environment)
    #expect(output.code == 1, "\(output.out) \(output.err)")
    #expect(try output.json["error"]["name"] == "storage-full")
    #expect(output.err.contains("full"))
    #expect(try contents(device.database) == before)
    #expect(try damage(device.database) == [])
    disk.makeRoom()
    try await device.sync(environment: disk.environment)
    #expect(try contents(device.database) == contents(place.server.database))
    #expect(try place.server.sqlite().integer("SELECT count(*) FROM site") == 2)
  }

  @Test(
    "A device on a read-only medium: a named error, no waiting, nothing changed; everything goes on when it can be written"
  )
  func deviceReadOnly() async throws {
    let place = try Workspace()
    let device = try place.device("anna", url: try await place.server.start())
    let disk = try await FullDisk(device.directory)
    try await device.sync()
    try device.sqlite().execute("INSERT INTO site VALUES ('mine', 'Mill', 3)")
    let before = try contents(device.database)
    let output = try await device.salvor("sync", "--json", environment: disk.readOnlyEnvironment)
    #expect(output.code == 1, "\(output.out) \(output.err)")
    let error = try output.json["error"]
    #expect(error["name"].string?.hasPrefix("storage") == true, "\(output.out)")
    #expect(output.err.contains("field.db"), "\(output.err)")
    #expect(try contents(device.database) == before)
    #expect(try damage(device.database) == [])
    try await device.sync()
    #expect(try place.server.sqlite().integer("SELECT count(*) FROM site") == 1)
  }

  @Test(
    "The server's disk is full while it stages or processes: storage-full, the queue stays, whole after room is made",
    arguments: [400, 3])
  func serverDiskFull(rows: Int) async throws {
    let place = try Workspace(serverLimits: FullDiskTests.limits)
    let disk = try await FullDisk(place.directory)
    let proxy = try FaultyProxy()
    try proxy.lead(to: try await place.server.start(environment: disk.environment))
    let device = try place.device("anna", url: proxy.url, limits: FullDiskTests.limits)
    try await device.sync()
    try insertVisits(device, count: rows)
    let before = try contents(place.server.database)
    disk.fill()
    let output = try await device.salvor("sync", "--json")
    #expect(output.code == 1, "\(output.out) \(output.err)")
    #expect(try output.json["error"]["name"] == "storage-full")
    #expect(try contents(place.server.database) == before)
    #expect(try await device.salvor("status", "--json").json["queued"] != 0)
    disk.makeRoom()
    try await device.sync()
    #expect(try contents(device.database) == contents(place.server.database))
    #expect(try place.server.sqlite().integer("SELECT count(*) FROM visit") == Int64(rows))
    #expect(try damage(place.server.database) == [])
  }
}
