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

  @Test("The device's disk is full while a snapshot comes: a named error, and the file is taken when there is room")
  func deviceDiskFullForSnapshots() async throws {
    let place = try Workspace(serverOptions: "snapshots: { minRows: 1 },")
    let url = try await place.server.start()
    try fillServer(place)
    for group in ["reference", "visits"] {
      #expect(try await place.server.salvor("server", "snapshots", "make", group).code == 0)
    }
    let device = try place.device("anna", url: url, limits: "{ attemptsMax: 1 }")
    let disk = try await FullDisk(device.directory)
    // The database is made, with nothing in it.
    #expect(try await device.salvor("status").code == 0)
    disk.fill()
    let output = try await device.salvor("sync", "--json", environment: disk.environment)
    #expect(output.code == 1, "\(output.out) \(output.err)")
    #expect(try output.json["error"]["name"] == "storage-full")
    #expect(try device.sqlite().integer("SELECT count(*) FROM site") == 0)
    #expect(try damage(device.database) == [])
    disk.makeRoom()
    #expect(try await device.sync(environment: disk.environment)["snapshots"] == 2)
    #expect(try contents(device.database) == contents(place.server.database))
  }

  @Test(
    "The server's disk is full while it makes a snapshot: devices get rows, nothing is left, and it is made when there is room"
  )
  func serverDiskFullForSnapshots() async throws {
    let place = try Workspace(serverOptions: "snapshots: { minRows: 1, path: \"files\" },")
    let folder = place.directory.appendingPathComponent("files")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    let disk = try await FullDisk(folder)
    let url = try await place.server.start(environment: disk.environment)
    // What signs the links is there already.
    let before = try FileManager.default.contentsOfDirectory(atPath: folder.path).sorted()
    disk.fill()
    try place.server.sqlite().execute(
      "INSERT INTO severity VALUES (1, 'minor'); INSERT INTO site VALUES ('s', 'Harbour', 4)")
    let refused = try await salvor(
      ["server", "snapshots", "make", "visits"], in: place.directory, environment: disk.environment)
    #expect(refused.code != 0)
    #expect(refused.err.contains("full"), "\(refused.err)")
    let first = try place.device("first", url: url)
    #expect(try await first.sync()["snapshots"] == 0)
    #expect(try contents(first.database) == contents(place.server.database))
    // The server tries by itself, and gives up.
    let front = try RawHTTP(url)
    for _ in 0..<1200 {
      if try await front.request("GET", "/metrics").text.contains("\nsalvor_snapshot_failures_total 2") { break }
      try await Task.sleep(for: .milliseconds(50))
    }
    #expect(try await front.request("GET", "/metrics").text.contains("\nsalvor_snapshot_failures_total 2"))
    #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path).sorted() == before)
    disk.makeRoom()
    for group in ["reference", "visits"] {
      let made = try await place.server.salvor("server", "snapshots", "make", group)
      #expect(made.code == 0, "\(made.err)")
    }
    let second = try place.device("second", url: url)
    #expect(try await second.sync()["snapshots"] == 2)
    #expect(try contents(second.database) == contents(place.server.database))
  }

  @Test(
    "The server's disk is full at one step of a snapshot's making: an error that says it, nothing is left, devices get rows",
    arguments: [".db", ".coded", ".json.new"])
  func serverDiskFullForSnapshots(at step: String) async throws {
    let place = try Workspace(serverOptions: "snapshots: { minRows: 1, path: \"files\" },")
    let folder = place.directory.appendingPathComponent("files")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    let disk = try await FullDisk(folder)
    let url = try await place.server.start(environment: disk.environment)
    try fillServer(place)
    let before = try FileManager.default.contentsOfDirectory(atPath: folder.path).sorted()
    disk.fill(step)
    let refused = try await salvor(
      ["server", "snapshots", "make", "visits"], in: place.directory, environment: disk.environment)
    #expect(refused.code != 0)
    #expect(refused.err.contains("full") || refused.err.contains("No space left"), "\(refused.err)")
    #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path).sorted() == before)
    let first = try place.device("first", url: url)
    #expect(try await first.sync()["snapshots"] == 0)
    #expect(try contents(first.database) == contents(place.server.database))
    disk.makeRoom()
    for group in ["reference", "visits"] {
      let made = try await place.server.salvor("server", "snapshots", "make", group)
      #expect(made.code == 0, "\(made.err)")
    }
    // What is there already needs no room.
    disk.fill()
    let second = try place.device("second", url: url)
    #expect(try await second.sync()["snapshots"] == 2)
    #expect(try contents(second.database) == contents(place.server.database))
  }

  private func fillServer(_ place: Workspace) throws {
    try place.server.sqlite().execute(
      """
      INSERT INTO severity VALUES (1, 'minor');
      WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 400)
      INSERT INTO site SELECT printf('s%06d', i), hex(randomblob(60)), i FROM n;
      """)
  }

  @Test(
    "The server's disk is full while it stages or processes: storage-full, the queue stays, whole after room is made",
    arguments: [400, 3])
  func serverDiskFull(rows: Int) async throws {
    let place = try Workspace(serverLimits: FullDiskTests.limits)
    let disk = try await FullDisk(place.directory)
    let proxy = try FaultyProxy()
    let url = try await place.server.start(environment: disk.environment)
    try proxy.lead(to: url)
    let device = try place.device("anna", url: proxy.url, limits: FullDiskTests.limits)
    try await device.sync()
    try insertVisits(device, count: rows)
    let before = try contents(place.server.database)
    disk.fill()
    let output = try await device.salvor("sync", "--json")
    #expect(output.code == 1, "\(output.out) \(output.err)")
    #expect(try output.json["error"]["name"] == "storage-full")
    // It is not the device's own disk.
    #expect(output.err.contains("The server's disk is full"), "\(output.err)")
    #expect(try contents(place.server.database) == before)
    #expect(try await device.salvor("status", "--json").json["queued"] != 0)
    // A balancer is told, too, with the reason.
    let ready = try await RawHTTP(url).request("GET", "/readyz")
    #expect(ready.status == 503)
    #expect(try ready.json["detail"].string?.contains("disk") == true, "\(ready.text)")
    disk.makeRoom()
    try await device.sync()
    #expect(try await RawHTTP(url).request("GET", "/readyz").status == 200)
    #expect(try contents(device.database) == contents(place.server.database))
    #expect(try place.server.sqlite().integer("SELECT count(*) FROM visit") == Int64(rows))
    #expect(try damage(place.server.database) == [])
  }

  @Test(
    "The disk is full while the first `serve` makes its administration token: no file is left, and the next one makes it"
  )
  func tokenOnAFullDisk() async throws {
    let place = try Workspace()
    let disk = try await FullDisk(place.directory)
    disk.fill(".admin-token")
    let refused = try await salvor(["serve"], in: place.directory, environment: disk.environment)
    #expect(refused.code == 1, "\(refused.err)")
    #expect(refused.err.contains("admin-token") && refused.err.contains("No space left"), "\(refused.err)")
    #expect(!FileManager.default.fileExists(atPath: place.server.database + ".admin-token"))
    disk.makeRoom()
    let url = try await place.server.start(environment: disk.environment)
    #expect(try await RawHTTP(url).request("GET", "/readyz").status == 200)
    #expect(try String(contentsOfFile: place.server.database + ".admin-token", encoding: .utf8).utf8.count > 32)
  }
}
