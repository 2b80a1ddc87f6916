import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// A side that is killed at any instruction, a cut line, a lost answer: nothing is lost, nothing is applied twice, and
/// the next sync goes on.
@Suite(.serialized) struct FaultTests {
  /// Chunks of a kilobyte, so that a few hundred rows make a staged upload and a download of many pages.
  static let limits = "{ chunkBytesTarget: 1024, singleRoundTripBytesMax: 1024, attemptsMax: 1 }"

  struct Case: Sendable, CustomTestStringConvertible {
    var testDescription: String
    var point: FaultyProxy.Point
    /// The device has rows to send, else rows to fetch.
    var isUpload: Bool
  }

  static let cases: [Case] = [
    Case(testDescription: "before the begin", point: .request("POST /v1/sync"), isUpload: true),
    Case(testDescription: "during the upload", point: .request("/chunks/7"), isUpload: true),
    Case(testDescription: "inside a chunk", point: .upload("/chunks/3", bytes: 1), isUpload: true),
    Case(testDescription: "a chunk's answer lost", point: .answered("/chunks/5"), isUpload: true),
    Case(testDescription: "before process", point: .request("/process"), isUpload: true),
    Case(testDescription: "during process", point: .sent("/process"), isUpload: true),
    Case(testDescription: "the results lost", point: .answered("/process"), isUpload: true),
    Case(testDescription: "the answer cut at its beginning", point: .answered("POST /v1/sync"), isUpload: false),
    Case(testDescription: "during the download", point: .download("POST /v1/sync", bytes: 9_000), isUpload: false),
  ]

  /// A server, a device that is in step with it, and another device's rows or its own waiting.
  private struct Scene {
    var place: Workspace
    var proxy: FaultyProxy
    var device: Device

    init(_ fault: Case) async throws {
      place = try Workspace(serverLimits: FaultTests.limits)
      proxy = try FaultyProxy()
      try proxy.lead(to: try await place.server.start())
      device = try place.device("anna", url: proxy.url, limits: FaultTests.limits)
      try await device.sync()
      if fault.isUpload {
        try insertVisits(device, count: 400)
        // A counter: applied twice, it would show.
        try device.sqlite().execute("UPDATE site SET seats = seats + 1")
      } else {
        try place.server.sqlite().execute(
          """
          INSERT INTO site VALUES ('s', 'Harbour', 4);
          WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 400)
          INSERT INTO visit SELECT printf('v%06d', i), 's', NULL, hex(randomblob(60)), i / 7.0, randomblob(20) FROM n;
          """)
      }
    }

    /// The next sync goes through, and both sides are whole and equal, with the rows that were written.
    func endsEqual() async throws {
      // A session of the killed process may still count as under way, for sessionIdleMilliseconds at most.
      var report = try await device.salvor("sync", "--json")
      for _ in 0..<120 where report.code != 0 && (try? report.json["error"]["name"]) == "session-in-use" {
        try await Task.sleep(for: .milliseconds(300))
        report = try await device.salvor("sync", "--json")
      }
      #expect(report.code == 0, "\(report.out) \(report.err)")
      #expect(try await device.salvor("sync").code == 0)
      let all = try contents(place.server.database)
      #expect(all["visit"]?.count == 400)
      #expect(all["site"]?.count == 1)
      #expect(try contents(device.database) == all)
      #expect(try await device.salvor("status", "--json").json["queued"] == 0)
      #expect(try damage(device.database) == [])
      #expect(try damage(place.server.database) == [])
    }
  }

  @Test("The server is killed (kill -9); the device reports it with 3, the next sync goes on", arguments: cases)
  func serverKilled(_ fault: Case) async throws {
    let scene = try await Scene(fault)
    let server = scene.place.server
    scene.proxy.arm(fault.point) { server.kill() }
    let cut = try await scene.device.salvor("sync", "--json")
    #expect(scene.proxy.hasStruck)
    #expect(cut.code == 3, "\(cut.out) \(cut.err)")
    await server.killAndWait()
    #expect(try damage(server.database) == [])
    #expect(try damage(scene.device.database) == [])
    try scene.proxy.lead(to: try await server.start())
    try await scene.endsEqual()
  }

  @Test("The device is killed (kill -9); its next sync goes on", arguments: cases)
  func deviceKilled(_ fault: Case) async throws {
    let scene = try await Scene(fault)
    let box = ProcessBox()
    scene.proxy.arm(fault.point) { box.killWhenThere() }
    let child = try scene.device.start("sync", "--json")
    box.put(child)
    let output = await child.output()
    #expect(scene.proxy.hasStruck)
    #expect(output.code == 128 + SIGKILL, "\(output.out) \(output.err)")
    #expect(try damage(scene.device.database) == [])
    try await scene.endsEqual()
  }

  @Test("The line is cut; the same command tries again by itself and goes through", arguments: cases)
  func lineCut(_ fault: Case) async throws {
    let scene = try await Scene(fault)
    let patient = try scene.place.device(
      "anna", url: scene.proxy.url,
      limits: FaultTests.limits.replacingOccurrences(of: "attemptsMax: 1", with: "attemptsMax: 20"))
    scene.proxy.arm(fault.point)
    let output = try await patient.salvor("sync", "--json")
    #expect(scene.proxy.hasStruck)
    #expect(output.code == 0, "\(output.out) \(output.err)")
    try await scene.endsEqual()
  }

  @Test(
    "The device is killed while it applies what it has fetched: it has all or nothing of it",
    arguments: [0, 5, 10, 20, 40])
  func deviceKilledWhileApplying(milliseconds: Int) async throws {
    let scene = try await Scene(FaultTests.cases.last!)
    let child = try scene.device.start("sync", "--json")
    while child.isRunning, !scene.proxy.requests.dropFirst().contains("POST /v1/sync") {
      try await Task.sleep(for: .milliseconds(1))
    }
    try await Task.sleep(for: .milliseconds(milliseconds))
    child.signal(SIGKILL)
    _ = await child.output()
    #expect(try damage(scene.device.database) == [])
    let rows = try scene.device.sqlite().integer("SELECT count(*) FROM visit")
    #expect(rows == 0 || rows == 400)
    try await scene.endsEqual()
  }

  /// `SALVOR_LONG_TESTS=1`: many more rounds.
  static let rounds = ProcessInfo.processInfo.environment["SALVOR_LONG_TESTS"] == "1" ? 150 : 12

  @Test("Either side is killed at any moment while both write; nothing is lost, nothing is applied twice")
  func killedAtAnyMoment() async throws {
    let place = try Workspace(serverLimits: FaultTests.limits)
    let proxy = try FaultyProxy()
    try proxy.lead(to: try await place.server.start())
    let devices = try ["anna", "ben"].map { try place.device($0, url: proxy.url, limits: FaultTests.limits) }
    for device in devices { try await device.sync() }
    try devices[0].sqlite().execute("INSERT INTO site VALUES ('shared', 'Harbour', 0)")
    for device in devices { try await device.sync() }
    for round in 0..<FaultTests.rounds {
      for (place, device) in devices.enumerated() {
        try insertVisits(device, count: Int.random(in: 1...150), prefix: "d\(place)r\(round)-")
        try device.sqlite().execute("DELETE FROM visit WHERE id LIKE '%3' AND id LIKE 'd\(place)%'")
      }
      let syncs = try devices.map { try $0.start("sync", "--quiet") }
      try await Task.sleep(for: .milliseconds(Int.random(in: 0...250)))
      switch round % 3 {
      case 0:
        await place.server.killAndWait()
        try proxy.lead(to: try await place.server.start())
      case 1: syncs[0].signal(SIGKILL)
      default: syncs[1].signal(SIGKILL)
      }
      for sync in syncs { _ = await sync.output() }
      for file in [place.server.database] + devices.map(\.database) { #expect(try damage(file) == []) }
    }
    for device in devices + devices { try await finish(device) }
    let all = try contents(place.server.database)
    #expect(all["site"]?.count == 1 + 2 * FaultTests.rounds)
    for device in devices { #expect(try contents(device.database) == all) }
  }

  /// Synchronizes; a session that a killed process left is waited for, at most sessionIdleMilliseconds.
  private func finish(_ device: Device) async throws {
    for _ in 0..<120 {
      let output = try await device.salvor("sync", "--json")
      if output.code == 0 { return }
      #expect(try output.json["error"]["name"] == "session-in-use", "\(output.out) \(output.err)")
      try await Task.sleep(for: .milliseconds(300))
    }
    Issue.record("the session never ended")
  }

  @Test(
    "The writing application is killed inside its transaction: what it committed is sent, the rest never was",
    .enabled(if: Built.has("python3")))
  func applicationKilled() async throws {
    let place = try Workspace()
    let device = try place.device("anna", url: try await place.server.start())
    try await device.sync()
    let script = """
      import os, signal, sqlite3, sys
      db = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)
      db.execute("INSERT INTO site VALUES ('s1', 'Harbour', 4)")
      db.execute("BEGIN")
      db.execute("INSERT INTO salvor_request(tag) VALUES ('visit 17')")
      db.execute("INSERT INTO site VALUES ('s2', 'Corner', 2)")
      os.kill(os.getpid(), signal.SIGKILL)
      """
    let output = try await ChildProcess(
      "python3", ["-c", script, device.database], directory: place.directory
    ).output()
    #expect(output.code == 128 + SIGKILL)
    #expect(try await device.sync()["uploaded"] == 1)
    #expect(try place.server.sqlite().rows("SELECT id FROM site") == [["s1"]])
    #expect(try contents(device.database) == contents(place.server.database))
  }

  @Test("SIGTERM lets the exchange in flight finish")
  func gracefulStop() async throws {
    let scene = try await Scene(FaultTests.cases[5])
    let server = scene.place.server
    scene.proxy.arm(.sent("/chunks/3")) { server.child?.signal(SIGTERM) }
    let cut = try await scene.device.salvor("sync", "--json")
    #expect(cut.code == 3)
    let stopped = try #require(await server.child?.output())
    #expect(stopped.code == 0, "\(stopped.err)")
    try scene.proxy.lead(to: try await server.start())
    try await scene.endsEqual()
  }

  @Test("Two syncs of one database at once: one goes through, the other waits or says so; nothing is applied twice")
  func twoSessionsOfOneRemote() async throws {
    let scene = try await Scene(FaultTests.cases[0])
    let children = try (0..<4).map { _ in try scene.device.start("sync", "--json") }
    var codes: [Int32] = []
    for child in children {
      let output = await child.output()
      codes.append(output.code)
      if output.code != 0 {
        let name = try output.json["error"]["name"].string ?? ""
        #expect(["session-in-use", "storage-busy", "overloaded"].contains(name), "\(output.out) \(output.err)")
      }
    }
    #expect(codes.contains(0))
    try await scene.endsEqual()
    #expect(try scene.place.server.sqlite().rows("SELECT seats FROM site") == [[5]])
  }
}

/// A process that a fault kills, perhaps before the test has it in hand.
final class ProcessBox: @unchecked Sendable {
  private let condition = NSCondition()
  private var child: ChildProcess?

  func put(_ child: ChildProcess) {
    condition.lock()
    self.child = child
    condition.broadcast()
    condition.unlock()
  }

  func killWhenThere() {
    condition.lock()
    while child == nil { condition.wait() }
    let child = child
    condition.unlock()
    child?.signal(SIGKILL)
  }
}
