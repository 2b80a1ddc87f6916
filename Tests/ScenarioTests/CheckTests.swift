import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorWire
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

private let tables = ["severity", "site", "visit"]

/// Ten sites on the server.
private func fleet() async throws -> Fleet {
  let fleet = try Fleet()
  try await fleet.start()
  try fleet.serverConnection().execute(
    "INSERT INTO site WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT 's' || i, 'Site ' || i, 'Toronto', 40 FROM n"
  )
  return fleet
}

/// A device whose upload the server has lost: it has another row in its queue.
private func restored(
  recovery: String = "", sites: Int = 1,
  adjust: @escaping @Sendable (inout SalvorClient.Configuration) -> Void = { _ in }
) async throws -> (Fleet, Device) {
  let fleet = try await fleet()
  let a = try fleet.device("a", recovery: recovery, adjust: adjust)
  try await a.sync()
  try await a.write("UPDATE site SET seats = 1 WHERE id = 's0'")
  try await a.sync()
  try await fleet.backup("night")
  try await a.write(
    "INSERT INTO site WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(sites)) SELECT 'n' || i, 'New ' || i, NULL, 1 FROM n"
  )
  try await a.sync()
  try await a.write("INSERT INTO site (id, name) VALUES ('mine', 'offline')")
  try await fleet.restore("night")
  return (fleet, a)
}

@Suite("What the checks say, and what is reported of it (semantics 4, 5, 6, 9)")
struct CheckTests {
  // MARK: - Seed 000, time1

  @Test(
    "time1: restored to before the first sync, a device synchronizes normally, whatever strategy it has and whatever its history shares with the server's",
    arguments: [
      "recover-unsynced-changes", "discard-unsynced-changes", "recreate", "copy-and-resubscribe",
      "upload-then-recreate", "manual",
    ], ["registered", "downloaded a group", "many rows"])
  func time1(strategy: String, before: String) async throws {
    let fleet = try await fleet()
    let called = Box<String>()
    let a = try fleet.device("a", recovery: "strategy: \"\(strategy)\"") { configuration in
      configuration.recovery.beforeReset = { _ in called.append("before") }
      configuration.recovery.afterReset = { _ in called.append("after") }
      configuration.recovery.manualClientResetHandler = { _ in called.append("manual") }
    }
    // As `salvor register` does; or a download that both sides remember.
    #expect(try await a.sync(before == "downloaded a group" ? ["reference"] : []).error == nil)
    try await fleet.backup("time1")
    try await a.write("INSERT INTO site (id, name) VALUES ('first', 'upload')")
    #expect(try await a.sync().error == nil)
    try await a.write(
      "INSERT INTO site WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(before == "many rows" ? 60 : 1)) SELECT 'second' || i, 'upload', NULL, 1 FROM n"
    )
    #expect(try await a.sync().error == nil)
    try await a.write("INSERT INTO site (id, name) VALUES ('mine', 'offline')")
    try await fleet.restore("time1")

    let report = try await a.sync()
    #expect(report.error == nil, "\(String(describing: report.error))")
    #expect(report.outcome == .synchronized)
    #expect(report.exitCode == 0)
    #expect(report.recovery?.strategy == "rewind")
    #expect(called.values == [])
    #expect(report.queued == 0)
    try fleet.expectEqual(tables, [a])
    #expect(try fleet.serverRows("site").contains { $0[0] == "mine".value })
    // What the server lost, the device offers again in the same sync.
    #expect(report.healed == (before == "many rows" ? 61 : 2))
    #expect(try await a.open().errorArchive(limit: 1000) == [])
    #expect(try fleet.serverRows("site").contains { $0[0] == "first".value })
    #expect(try await a.sync().recovery == nil)
    await fleet.stop()
  }

  @Test("time1 excepts a server with another ID: that one is server-replaced")
  func time1Replaced() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    try await a.write("INSERT INTO site (id, name) VALUES ('first', 'upload')")
    try await a.sync()
    await fleet.stop()
    for suffix in ["", "-wal", "-shm", ".salvor-side"] { removeFile(fleet.serverPath + suffix) }
    try await fleet.start()
    let report = try await a.sync()
    #expect(report.exitCode == 5)
    #expect(report.error?.reason == "server-replaced")
    await fleet.stop()
  }

  // MARK: - The error

  @Test(
    "-10400, its name and the reason reach the application, also where the strategy is manual; later it is recovery-required"
  )
  func uploadFailedAtServer() async throws {
    let told = Box<SalvorError>()
    let (fleet, a) = try await restored(recovery: "strategy: \"manual\"") { configuration in
      configuration.recovery.manualClientResetHandler = { told.append($0.error) }
    }
    let report = try await a.sync()
    #expect(report.error?.code == .uploadFailedAtServer)
    #expect(report.error?.reason == "server-restored")
    let error = try #require(report.json["error"])
    #expect(error["code"] == -10400)
    #expect(error["name"] == "UPLOAD_FAILED_AT_SERVER")
    #expect(error["reason"] == "server-restored")
    #expect(error["message"]?.string?.contains("salvor recover --token") == true)
    #expect(report.json["outcome"] == "recovery-required")
    #expect(report.exitCode == 5)
    #expect(report.json["queued"] == 1)
    #expect(report.json["queuedReason"] == "recovery-required")
    #expect(told.values.map(\.code) == [.uploadFailedAtServer])
    await a.close()
    for _ in 1...2 {
      let later = try await a.sync()
      #expect(later.error?.code == .recoveryRequired)
      #expect(later.error?.reason == "server-restored")
      #expect(later.exitCode == 5)
    }
    #expect(told.values.count == 1)
    await fleet.stop()
  }

  @Test("a reason that this release does not know stops the sync with that error, and touches nothing")
  func unknownReason() async throws {
    let (fleet, a) = try await restored()
    let before = try a.rows("site")
    fleet.faults.inject(
      .problem(
        status: 409,
        json: #"{"code": "UPLOAD_FAILED_AT_SERVER", "detail": "No.", "reason": "moon-phase", "number": -10400}"#))
    let report = try await a.sync()
    #expect(report.error?.code == .uploadFailedAtServer)
    #expect(report.error?.reason == "moon-phase")
    #expect(report.error?.message.contains("moon-phase") == true)
    #expect(report.exitCode == 5)
    #expect(report.json["outcome"] == .null)
    #expect(report.roundTrips == 1)
    #expect(try a.rows("site") == before)
    let status = try await a.open().status()
    #expect(status.queued == 1)
    #expect(status.recovery.state == .none)
    #expect(status.state.recoveryRequired == nil)
    #expect(try await a.open().backups() == [])
    // The server's next word is one that it knows.
    #expect(try await a.sync().outcome == .recovered)
    try fleet.expectEqual(tables, [a])
  }

  @Test("an error code that this release does not know stops the sync with that error, and touches nothing")
  func unknownCode() async throws {
    let (fleet, a) = try await restored()
    let before = try a.rows("site")
    fleet.faults.inject(.problem(status: 503, json: #"{"code": "moon-phase", "detail": "Not today."}"#))
    let report = try await a.sync()
    #expect(report.error?.context["unknown"] == "moon-phase")
    #expect(report.error?.message.contains("\"moon-phase\"") == true)
    #expect(report.roundTrips == 1, "it is not tried again")
    #expect(try a.rows("site") == before)
    #expect(try await a.open().status().recovery.state == .none)
    #expect(try await a.sync().outcome == .recovered)
    try fleet.expectEqual(tables, [a])
  }

  // MARK: - The journal

  @Test("a journal that cannot be read is set aside and named, and the recovery begins anew", arguments: [1, 40, 200])
  func damagedJournal(length: Int) async throws {
    let (fleet, a) = try await restored()
    // The recovery is cut in its middle.
    fleet.faults.pass(4)
    fleet.faults.inject(.loseRequest, .loseRequest, .loseRequest, .loseRequest)
    #expect(try await a.sync().error?.code == .unreachable)
    fleet.faults.clear()
    #expect(try await a.open().status().recovery.state == .unfinished)
    await a.close()
    let path = a.path + ".salvor-recovery"
    let whole = try #require(try read(path))
    try writeText(String(whole.prefix(length)), to: path)
    #expect(try await a.open().status().recovery.step == "journal-unreadable")
    _ = try await a.open().backups()

    let report = try await a.sync()
    #expect(report.error == nil, "\(String(describing: report.error))")
    let notice = try #require(report.notices.first { $0.contains("set aside") })
    let aside = try #require(notice.split(separator: " ").first { $0.hasPrefix(path) }).dropLast()
    #expect(try read(String(aside)) == String(whole.prefix(length)))
    try await a.sync()
    try fleet.expectEqual(tables, [a])
    #expect(try fleet.serverRows("site").contains { $0[0] == "mine".value })
    #expect(try await a.open().status().recovery.state == .none)
  }

  // MARK: - One sync

  @Test(
    "one sync goes on until nothing that can be sent is left: what was written since a lost acknowledgement goes up, too"
  )
  func nothingIsLeft() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    try await a.sync()
    try await a.write("UPDATE site SET seats = 41 WHERE id = 's1'")
    fleet.faults.inject(.loseAnswer, .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    let cut = try await a.sync()
    #expect(cut.error?.code == .unreachable)
    #expect(cut.json["queued"] == 1)
    #expect(cut.json["queuedReason"] == "sync-failed")
    fleet.faults.clear()
    await a.close()
    try await a.write("UPDATE site SET seats = 42 WHERE id = 's1'", "INSERT INTO site (id, name) VALUES ('new', 'one')")
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.uploaded == 3)
    #expect(report.json["queued"] == 0)
    #expect(report.json["queuedReason"] == .null)
    #expect(try fleet.serverRows("site").first { $0[0] == "s1".value }?[3] == 42)
    try fleet.expectEqual(tables, [a])
  }

  @Test("a request that one sync sees refused, and sends again with a later edit, is counted as the archive has it")
  func refusedIsCountedNet() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    try await a.sync()
    try fleet.serverConnection().execute(
      "CREATE TRIGGER no BEFORE UPDATE ON site WHEN NEW.seats > 90 BEGIN SELECT RAISE(ABORT, 'too many'); END")
    for (seats, refused) in [(91, Int64(1)), (41, 0)] {
      try await a.write("UPDATE site SET seats = 99 WHERE id = 's1'")
      fleet.faults.inject(.loseAnswer, .loseRequest, .loseRequest, .loseRequest, .loseRequest)
      #expect(try await a.sync().error?.code == .unreachable)
      fleet.faults.clear()
      await a.close()
      try await a.write("UPDATE site SET seats = \(seats) WHERE id = 's1'")
      let report = try await a.sync()
      #expect(report.error == nil)
      #expect(report.refused == refused)
      #expect(try await a.open().status().inError == refused)
    }
  }

  @Test("what waits after a sync of one group is counted, and said why")
  func queuedOfOtherGroups() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    try await a.sync()
    try await a.write("UPDATE site SET seats = 41 WHERE id = 's1'")
    let report = try await a.sync(["reference"])
    #expect(report.error == nil)
    #expect(report.json["queued"] == 1)
    #expect(report.json["queuedReason"] == "other-groups")
    #expect(try await a.sync().json["queued"] == 0)
  }

  // MARK: - Waiting

  @Test("a server that stays busy is tried attemptsMax times, no wait is longer than a minute, and the exit code is 3")
  func staysBusy() async throws {
    let fleet = try await fleet()
    let clock = HurriedClock()
    let a = try fleet.device("a") { $0.clock = clock }
    try await a.sync()
    for answer in [
      Faults.Fault.answer(status: 503, headers: ["retry-after": "3600"]), .answer(status: 503),
      .problem(status: 503, json: #"{"code": "overloaded", "detail": "Busy.", "retryAfterMilliseconds": 7200000}"#),
    ] {
      fleet.faults.clear()
      for _ in 1...20 { fleet.faults.inject(answer) }
      clock.forget()
      let told = Box<ErrorCode>()
      let report = await (try a.open()).attemptSync { progress in
        if case .waiting(let code, _, _) = progress { told.append(code) }
      }
      #expect(report.error?.code == .overloaded)
      #expect(report.exitCode == 3)
      #expect(fleet.faults.left == 16)
      #expect(clock.waits.count == 3)
      #expect(clock.waits.allSatisfy { $0 <= 60_000 })
      #expect(told.values == [.overloaded, .overloaded, .overloaded])
    }
  }

  @Test("a sync that waits for its turn says so, and one that does not get it ends with session-in-use")
  func sessionInUse() async throws {
    let fleet = try await fleet()
    let clock = HurriedClock()
    let a = try fleet.device("a") { $0.clock = clock }
    try await a.sync()
    let lock = try #require(fopen(a.path + ".salvor-lock", "r+"))
    defer { fclose(lock) }
    try #require(flock(fileno(lock), LOCK_EX | LOCK_NB) == 0)
    let told = Box<ErrorCode>()
    let report = await (try a.open()).attemptSync { progress in
      if case .waiting(let code, _, _) = progress { told.append(code) }
    }
    #expect(report.error?.code == .sessionInUse)
    #expect(report.exitCode == 3)
    #expect(report.error?.retryAfterMilliseconds.map { $0 <= 30_000 } == true)
    #expect(report.json["error"]?["retryAfterMilliseconds"] == 1000)
    #expect(told.values == [.sessionInUse, .sessionInUse, .sessionInUse])
    flock(fileno(lock), LOCK_UN)
    #expect(try await a.sync().error == nil)
  }

  // MARK: - Many devices at once

  @Test(
    "a restore that takes most rows of a table stops every device; one command on the server releases the whole fleet")
  func releasedFleet() async throws {
    let fleet = try await fleet()
    let devices = try ["a", "b", "c"].map { try fleet.device($0, recovery: "heal: \"off\"") }
    let late = try fleet.device("late", recovery: "heal: \"off\"")
    for device in devices + [late] {
      try await device.sync()
      try await device.write("INSERT INTO site (id, name) VALUES ('\(device.name)', 'of \(device.name)')")
      try await device.sync()
    }
    try await fleet.backup("night")
    try await devices[0].write(
      "INSERT INTO site WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) SELECT 'n' || i, 'New ' || i, NULL, 1 FROM n"
    )
    for device in devices + [late] {
      try await device.sync()
      try await device.write("UPDATE site SET seats = 7 WHERE id = 's\(device.name == "a" ? 1 : 2)'")
      try await device.sync()
    }
    try await devices[0].sync()
    try await fleet.restore("night")
    for device in devices {
      let stopped = try await device.sync()
      #expect(stopped.exitCode == 5)
      #expect(stopped.error?.message.contains("newer than the server's backup") == true)
      #expect(stopped.error?.message.contains("salvor remotes reset --all") == true)
      #expect(stopped.recovery?.fellBackFrom.isEmpty == false)
      #expect(try await device.sync().error?.code == .recoveryRequired, "it waits")
    }
    #expect(try await fleet.server?.engine.demandResets(of: nil) == 4)
    // One that comes only now is not stopped at all.
    for device in devices + [late] {
      let report = try await device.sync()
      #expect(report.error == nil, "\(String(describing: report.error))")
      #expect(report.outcome == .recovered)
      #expect(try await device.open().status().recovery.state == .none)
      #expect(try await device.sync().recovery == nil)
    }
    for device in devices + [late] { try await device.sync() }
    try fleet.expectEqual(tables, devices + [late])
    #expect(try await devices[0].open().errorArchive(limit: 1000).count { $0.reason == "lost-on-server" } >= 500)
  }

  @Test("the operator's release does not decide for a device whose configuration says manual")
  func manualIsNotReleased() async throws {
    let (fleet, a) = try await restored(recovery: "strategy: \"manual\"")
    _ = try await a.sync()
    let token = try await a.open().status().recovery.token
    #expect(try await fleet.server?.engine.demandResets(of: "anna") == 1)
    #expect(try await a.sync().error?.code == .recoveryRequired)
    #expect(try await a.open().status().recovery.token == token)
    #expect(try await fleet.server?.engine.demandResets(of: "ben") == 0)
    #expect(await (try a.open()).recover(strategy: "recover-unsynced-changes", token: token).error == nil)
    #expect(try await a.sync().recovery == nil, "the demand is met")
    try fleet.expectEqual(tables, [a])
  }
}

/// Does not wait, and remembers how long it was to.
private final class HurriedClock: SalvorModel.Clock {
  private let state = Mutex<[Int64]>([])
  var waits: [Int64] { state.withLock { $0 } }
  func forget() { state.withLock { $0 = [] } }
  func now() -> Int64 { SystemClock().now() }
  func sleep(milliseconds: Int64) async throws { state.withLock { $0.append(milliseconds) } }
}

private func read(_ path: String) throws -> String? {
  guard let file = fopen(path, "r") else { return nil }
  defer { fclose(file) }
  var buffer = [UInt8](repeating: 0, count: 1 << 16)
  let count = fread(&buffer, 1, buffer.count, file)
  return String(decoding: buffer.prefix(count), as: UTF8.self)
}
