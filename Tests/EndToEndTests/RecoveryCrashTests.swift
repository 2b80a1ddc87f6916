import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// A recovery that is killed, cut, or overtaken by another restore: the next sync ends it, and nothing is lost.
@Suite(.serialized) struct RecoveryCrashTests {
  static let points: [FaultyProxy.Point] = [
    .request("POST /v1/recovery"), .answered("POST /v1/recovery"), .answered("/rows"), .request("/download"),
    .answered("/download"), .request("/end"),
  ]

  @Test(
    "Reset during reset: the device is killed while it recovers, the server is restored once more; all ends equal",
    arguments: points)
  func resetDuringReset(point: FaultyProxy.Point) async throws {
    let scene = try Inspections(files: try await Days.files())
    try await scene.restoreStopped("time3")
    try await scene.start()
    let device = try scene.device()
    let box = ProcessBox()
    scene.proxy.arm(point) { box.killWhenThere() }
    let child = try device.start("sync", "--json")
    box.put(child)
    #expect(await child.output().code == 128 + SIGKILL)
    #expect(scene.proxy.hasStruck)
    #expect(try damage(device.database) == [])
    try await scene.restore("time2")
    let report = try await device.syncWhenFree()
    #expect(report.code == 0, "\(report.out) \(report.err)")
    #expect(try report.json["outcome"] == "recovered")
    try await scene.expectSettled(device, unsynced: 4, drafts: 1)
    #expect(try Days.found(in: scene.place.server.database) == 4, "what was lost is offered again")
  }

  @Test(
    "Reset during reset: the server is killed while the device recovers, and restored once more; the next sync ends it",
    arguments: [
      #"strategy: "recreate""#, #"strategy: "discard-unsynced-changes""#, #"strategy: "copy-and-resubscribe""#,
    ])
  func serverKilled(recovery: String) async throws {
    let scene = try Inspections(files: try await Days.files())
    try await scene.restoreStopped("time3")
    try await scene.start()
    let device = try scene.place.device(
      "anna", url: scene.proxy.url, limits: "{ attemptsMax: 1 }", recovery: "{ \(recovery) }")
    let server = scene.place.server
    scene.proxy.arm(.answered("/download")) { server.kill() }
    let cut = try await device.salvor("sync", "--json")
    #expect(scene.proxy.hasStruck)
    #expect(cut.code == 3, "\(cut.out) \(cut.err)")
    #expect(try await device.status()["recovery"]["state"] == "unfinished")
    #expect(try Unsynced.found(in: device.database) == 4)
    await server.killAndWait()
    try await scene.restoreStopped("time2")
    try await scene.start()
    let report = try await device.syncWhenFree()
    #expect(report.code == 0, "\(report.out) \(report.err)")
    try await scene.expectSettled(device, unsynced: 0, drafts: recovery.contains("recreate") ? 0 : 1)
    #expect(try await device.kept() == Unsynced.discarded)
    #expect(try Days.found(in: scene.place.server.database) == 4, "what was lost is offered again")
  }

  /// `SALVOR_LONG_TESTS=1`: many more rounds.
  static let rounds = ProcessInfo.processInfo.environment["SALVOR_LONG_TESTS"] == "1" ? 200 : 10

  @Test("The device is killed at any moment of a recovery; the next sync ends it once, and nothing is lost")
  func killedAtAnyMoment() async throws {
    var random = Seeded(state: 20_261_121)
    // One that nobody kills says how long it takes here and now.
    var duration = 0
    for round in 0...Self.rounds {
      let recovery = RecoveryTests.strategies[round % (RecoveryTests.strategies.count - 1)]
      let scene = try Inspections(
        server: "recovery: { selfServiceRemoteDeletion: true },", files: try await Days.filesAtTime2())
      try await scene.start()
      let device = try scene.device(recovery: recovery)
      let start = ContinuousClock.now
      let child = try device.start("sync", "--json")
      if round > 0 {
        try await Task.sleep(for: .milliseconds(Int.random(in: 0..<max(duration, 1), using: &random)))
        child.signal(SIGKILL)
      }
      let first = await child.output()
      if round == 0 { duration = Int((ContinuousClock.now - start) / .milliseconds(1)) }
      #expect(first.code == 0 || (round > 0 && first.code == 128 + SIGKILL), "round \(round): \(first.out)")
      #expect(try damage(device.database) == [])
      let report = try await device.syncWhenFree()
      #expect(report.code == 0, "round \(round), \(recovery): \(report.out) \(report.err)")
      let isOnServer = recovery.contains("\"recover-") || recovery.contains("\"upload-")
      let isRecreated = recovery.hasSuffix("recreate\"")
      try await scene.expectSettled(device, unsynced: isOnServer ? 4 : 0, drafts: isRecreated ? 0 : 1)
      let kept = try await device.kept()
      #expect(kept == (isOnServer ? [] : Unsynced.discarded), "round \(round), \(recovery): \(kept)")
      let found = try Days.found(in: scene.place.server.database)
      #expect(found == 4, "round \(round), \(recovery): what was lost is offered again")
      let recoveries = try await device.salvor("recover", "--list", "--json").json["recoveries"].items
      // What is put on the server's rows before an upload has a report of its own, for each time it was begun.
      #expect(recoveries.filter { $0["strategy"] != "rewind" }.count == 1, "round \(round), \(recovery)")
    }
  }

  /// SplitMix64: the same moments, as shares of the time it takes, each time.
  private struct Seeded: RandomNumberGenerator {
    var state: UInt64
    mutating func next() -> UInt64 {
      state &+= 0x9E37_79B9_7F4A_7C15
      var z = state
      z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
      z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
      return z ^ (z >> 31)
    }
  }
}
