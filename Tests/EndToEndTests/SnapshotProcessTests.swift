import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// Several processes of one device that begin to take the same file.
@Suite(.serialized) struct SnapshotProcessTests {
  /// - Parameter pace: bytes a second, slow enough for another to come while one fetches.
  private func place(_ pace: Int = 100_000) async throws -> (Workspace, String) {
    // What the schema names is there for whoever makes a file beside the server, too.
    let schema = Workspace.schema.replacingOccurrences(
      of: #"site: { maintained: "dual","#, with: #"site: { maintained: "dual", conflicts: "keep-versions","#)
    let place = try Workspace(
      schema: schema,
      serverOptions: "snapshots: { minRows: 1, compression: \"identity\", bytesPerSecond: \(pace) },")
    let url = try await place.server.start()
    try place.server.sqlite().execute(
      """
      INSERT INTO severity VALUES (1, 'minor');
      WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 500)
      INSERT INTO site SELECT printf('s%06d', i), hex(randomblob(100)), i FROM n;
      """)
    for group in ["reference", "visits"] {
      let made = try await place.server.salvor("server", "snapshots", "make", group)
      #expect(made.code == 0, "\(made.err)")
    }
    return (place, url)
  }

  private func expectWhole(_ device: Device, _ place: Workspace) throws {
    #expect(try contents(device.database) == contents(place.server.database))
    #expect(try damage(device.database) == [])
    let left = try FileManager.default.contentsOfDirectory(atPath: device.directory.path)
    #expect(left.filter { $0.contains("-snapshot-") } == [])
  }

  @Test("Three processes of one device at once take each file over once; each ends, and the device is whole")
  func atOnce() async throws {
    let (place, url) = try await place()
    let device = try place.device("anna", url: url)
    #expect(try await device.salvor("status").code == 0)
    let children = try (0..<3).map { _ in try device.start("sync", "--json") }
    var taken: Int64 = 0
    for child in children {
      let output = await child.output()
      let report = try output.json
      // Who waited for too long says who is at work.
      #expect(output.code == 0 || report["error"]["name"] == "session-in-use", "\(output.out) \(output.err)")
      taken += report["snapshots"].integer ?? 0
    }
    #expect(taken == 2)
    try await device.sync()
    try expectWhole(device, place)
  }

  @Test("One that is killed with the half of a file leaves it to the next, which waited for it")
  func killed() async throws {
    // The half of a file is there for so long that nobody misses it on a busy machine.
    let (place, url) = try await place(20_000)
    let device = try place.device("anna", url: url)
    #expect(try await device.salvor("status").code == 0)
    let first = try device.start("sync", "--json")
    // It stands still from where it has the half of a file. What it has taken over by then, the second need not.
    var halves: [String] = []
    for _ in 0..<120_000 where halves.isEmpty {
      if try halvesOfFiles(of: device).isEmpty {
        try await Task.sleep(for: .milliseconds(5))
        continue
      }
      first.signal(SIGSTOP)
      halves = try halvesOfFiles(of: device)
      if halves.isEmpty { first.signal(SIGCONT) }
    }
    #expect(halves != [])
    let taken = try #require(try device.sqlite().integer("SELECT count(*) FROM salvor_group WHERE number IS NOT NULL"))
    let second = try device.start("sync", "--json")
    first.signal(SIGKILL)
    _ = await first.output()
    let output = await second.output()
    #expect(output.code == 0, "\(output.out) \(output.err)")
    #expect(try output.json["snapshots"].integer == 2 - taken)
    try expectWhole(device, place)
  }

  private func halvesOfFiles(of device: Device) throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: device.directory.path).filter { $0.hasSuffix(".part") }
  }
}
