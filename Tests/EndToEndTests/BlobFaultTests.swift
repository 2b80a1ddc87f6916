import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// A large value on its way, and either side is killed or the line is cut: the next sync goes on in the middle of it.
@Suite(.serialized) struct BlobFaultTests {
  static let limits = "{ chunkBytesMax: 65536, chunkBytesTarget: 1024, singleRoundTripBytesMax: 1024, attemptsMax: 1 }"
  static let imageBytes = 3_000_000

  enum Victim: String, Sendable, CaseIterable {
    case server, device
  }

  private struct Scene {
    var place: Workspace
    var proxy: FaultyProxy
    var device: Device

    init() async throws {
      place = try Workspace()
      proxy = try FaultyProxy()
      try proxy.lead(to: try await place.server.start())
      device = try place.device("anna", url: proxy.url, limits: BlobFaultTests.limits)
      try await device.sync()
    }

    static let insert = """
      INSERT INTO site VALUES ('s', 'Harbour', 4);
      INSERT INTO visit (id, site_id, photo) VALUES ('v1', 's', randomblob(\(BlobFaultTests.imageBytes))), ('v2', 's', randomblob(100));
      """

    /// - Parameter ready: waited for before the device is killed.
    func strike(
      _ victim: Victim, at point: FaultyProxy.Point, ready: @escaping @Sendable () -> Void = {}
    ) async throws {
      let server = place.server
      let box = ProcessBox()
      proxy.arm(point) {
        switch victim {
        case .server: server.kill()
        case .device:
          ready()
          box.killWhenThere()
        }
      }
      let child = try device.start("sync", "--json")
      box.put(child)
      let output = await child.output()
      #expect(proxy.hasStruck)
      #expect(output.code == (victim == .device ? 128 + SIGKILL : 3), "\(output.out) \(output.err)")
      if victim == .server {
        await server.killAndWait()
        try proxy.lead(to: try await server.start())
      }
      for file in [device.database, server.database] { #expect(try damage(file) == []) }
    }

    /// The report of the next sync that goes through; both sides have the same rows then.
    func goesOn() async throws -> JSON {
      var report = try await device.salvor("sync", "--json")
      for _ in 0..<120 where report.code != 0 && (try? report.json["error"]["name"]) == "session-in-use" {
        try await Task.sleep(for: .milliseconds(300))
        report = try await device.salvor("sync", "--json")
      }
      #expect(report.code == 0, "\(report.out) \(report.err)")
      let all = try contents(place.server.database)
      #expect(all["visit"]?.count == 2)
      #expect(try contents(device.database) == all)
      for (file, tables) in [
        (place.server.database, ["salvor_blob", "salvor_blob_part"]),
        (device.database, ["salvor_blob", "salvor_blob_part", "salvor_blob_wanted"]),
      ] {
        let connection = try SQLiteConnection(file)
        for table in tables { #expect(try connection.integer("SELECT count(*) FROM \(table)") == 0) }
      }
      return try report.json
    }
  }

  @Test("kill -9 in the middle of a blob that is sent", arguments: Victim.allCases)
  func sent(_ victim: Victim) async throws {
    let scene = try await Scene()
    try scene.device.sqlite().execute(Scene.insert)
    try await scene.strike(victim, at: .request("&offset=1966080"))
    #expect(try scene.place.server.sqlite().integer("SELECT count(*) FROM visit") == 0)
    let sent = try #require(try await scene.goesOn()["bytesSent"].integer)
    #expect(sent < Int64(Self.imageBytes) - 1_900_000)
  }

  @Test("kill -9 in the middle of a blob that is fetched", arguments: Victim.allCases)
  func fetched(_ victim: Victim) async throws {
    let scene = try await Scene()
    try scene.place.server.sqlite().execute(Scene.insert)
    // What the proxy has passed on may still be on its way: two parts of 1 MiB must have arrived.
    let database = scene.device.database
    try await scene.strike(victim, at: .download("GET /v1/blobs", bytes: 2_500_000)) {
      for _ in 0..<6000 {
        let received = try? SQLiteConnection(database, mode: .readWrite).integer(
          "SELECT max(received) FROM salvor_blob")
        if (received.flatMap { $0 } ?? 0) >= 2 << 20 { return }
        usleep(10_000)
      }
    }
    #expect(try scene.device.sqlite().integer("SELECT count(*) FROM visit") == 0)
    let received = try #require(try await scene.goesOn()["bytesReceived"].integer)
    #expect(received < Int64(Self.imageBytes) - 2_000_000)
  }
}
