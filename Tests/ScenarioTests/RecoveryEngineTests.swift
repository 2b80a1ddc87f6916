import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

private let tables = ["severity", "site", "visit"]

/// A server with ten sites that was put back to the night before, and a device that has gone on since.
private func badDay(
  recovery: String = "", server: String = "authentication: { module: \"none\" },",
  adjust: @escaping @Sendable (inout SalvorClient.Configuration) -> Void = { _ in }
) async throws -> (Fleet, Device) {
  let fleet = try Fleet(serverOptions: server)
  try await fleet.start()
  try fleet.serverConnection().execute(
    "INSERT INTO site WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT 's' || i, 'Site ' || i, 'Toronto', 40 FROM n"
  )
  let a = try fleet.device("a", recovery: recovery, adjust: adjust)
  try await a.sync()
  try await a.write("UPDATE site SET seats = 1 WHERE id = 's0'")
  try await a.sync()
  try await fleet.backup("night")
  try await a.write("UPDATE site SET seats = 2 WHERE id = 's0'")
  try await a.sync()
  try await a.write("INSERT INTO site (id, name) VALUES ('mine', 'offline')", "INSERT INTO draft VALUES ('d', 'own')")
  try await fleet.restore("night")
  return (fleet, a)
}

@Suite("The recovery engine (semantics 9)")
struct RecoveryEngineTests {
  @Test("beforeReset and afterReset are told which reset happened, once each, and the state from before can be read")
  func callbacks() async throws {
    let seen = Box<RecoveryConfiguration.Notice>()
    let (fleet, a) = try await badDay { configuration in
      configuration.clientResetMode = .recoverUnsyncedChanges(
        beforeReset: { seen.append($0) }, afterReset: { seen.append($0) })
    }
    let report = try await a.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(seen.values.map(\.reason) == [.serverRestored, .serverRestored])
    #expect(Set(seen.values.map(\.strategy)) == ["recover-unsynced-changes"])
    #expect(seen.values.map { $0.before == nil } == [true, false])
    #expect(seen.values.allSatisfy { $0.database == a.path })
    let before = try #require(seen.values.last?.before)
    #expect(try rows(of: "site", in: before).first { $0[0] == "s0".value }?[3] == 2)
    #expect(try a.rows("site").first { $0[0] == "s0".value }?[3] == 2, "what was lost is offered again, and stays")
    try await a.sync()
    #expect(seen.values.count == 2)
    try fleet.expectEqual(tables, [a])
  }

  @Test("a failing beforeReset stops the recovery with nothing touched; the next sync tries again")
  func failingBeforeReset() async throws {
    let attempts = Box<Int>()
    let (fleet, a) = try await badDay { configuration in
      configuration.recovery.beforeReset = { _ in
        attempts.append(1)
        if attempts.values.count == 1 { throw SalvorError(.failed, "not now") }
      }
    }
    let before = try a.rows("site")
    let report = try await a.sync()
    #expect(report.exitCode == 5)
    #expect(report.error?.message.contains("not now") == true)
    #expect(try a.rows("site") == before)
    #expect(try await a.sync().outcome == .recovered)
    try await a.sync()
    try fleet.expectEqual(tables, [a])
  }

  @Test("the manual handler of the client comes before the error handler; either alone runs (realm-client-reset-mode)")
  func handlers() async throws {
    for (manual, error) in [(true, true), (true, false), (false, true), (false, false)] {
      let seen = Box<String>()
      let (fleet, a) = try await badDay(recovery: "strategy: \"manual\"") { configuration in
        if manual { configuration.recovery.manualClientResetHandler = { _ in seen.append("manual") } }
        if error { configuration.recovery.errorHandler = { _ in seen.append("error") } }
      }
      let report = try await a.sync()
      #expect(report.outcome == .recoveryRequired, "\(String(describing: report.error))")
      #expect(seen.values == (manual ? ["manual"] : error ? ["error"] : []))
      await fleet.stop()
    }
  }

  @Test(
    "a plan writes nothing and says what then happens",
    arguments: ["recover-unsynced-changes", "discard-unsynced-changes"])
  func plan(strategy: String) async throws {
    let (fleet, a) = try await badDay(recovery: "strategy: \"\(strategy)\"")
    let before = try a.rows("site")
    let plan = try await a.open().recoveryPlan()
    #expect(plan.reason == .serverRestored)
    #expect(plan.strategy == strategy)
    #expect(try a.rows("site") == before)
    #expect(try await a.open().status().recovery.state == .none)
    #expect(try await a.open().backups() == [])
    let report = try await a.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(report.recovery?.report?.counts == plan.counts)
    try await a.sync()
    try fleet.expectEqual(tables, [a])
    #expect(try await a.open().recoveryPlan().reason == nil)
  }

  @Test("a plan right after an edit writes nothing into the file", arguments: ["recover-unsynced-changes", "recreate"])
  func planAfterAnEdit(strategy: String) async throws {
    let (fleet, a) = try await badDay(recovery: "strategy: \"\(strategy)\"")
    await a.close()
    try await a.write("UPDATE site SET name = 'edited' WHERE id = 's2'", "DELETE FROM site WHERE id = 's4'")
    let watcher = try SQLiteConnection(a.path)
    let before = try watcher.integer("PRAGMA data_version")
    let plan = try await a.open().recoveryPlan()
    #expect(plan.strategy == strategy)
    await a.close()
    #expect(try watcher.integer("PRAGMA data_version") == before)
    watcher.close()
    #expect(try await a.sync().outcome == .recovered)
    try await a.sync()
    try fleet.expectEqual(tables, [a])
  }

  @Test("recover with a wrong token, or without one, does nothing and says that a recovery is required")
  func wrongToken() async throws {
    let (fleet, a) = try await badDay(recovery: "strategy: \"manual\"")
    _ = try await a.sync()
    let before = try a.rows("site")
    let status = try await a.open().status().recovery
    for token in ["wrong", nil] {
      let report = try await a.open().recover(strategy: "recreate", token: token)
      #expect(report.exitCode == 2)
      #expect(report.outcome == .recoveryRequired)
      #expect(report.error?.code == .usage)
      #expect(report.recovery?.reason == .serverRestored)
    }
    #expect(try a.rows("site") == before)
    #expect(try await a.open().status().recovery == status)
    await fleet.stop()
  }

  @Test(
    "a recovery by hand waits for what passes and goes on, as a sync does: a busy server, a token that has ended, a cut network"
  )
  func byHandTriesAgain() async throws {
    let busy = Faults.Fault.problem(status: 503, json: #"{"code": "storage-busy", "detail": "It opens."}"#)
    let ended = Faults.Fault.problem(status: 404, json: #"{"code": "session-unknown", "detail": "It has ended."}"#)
    for place in 0..<4 {
      let (fleet, a) = try await badDay(recovery: "strategy: \"manual\"")
      #expect(try await a.sync().exitCode == 5)
      let token = try #require(try await a.open().status().recovery.token)
      fleet.faults.pass(place)
      fleet.faults.inject(busy, ended, .loseAnswer)
      let report = await (try a.open()).recover(strategy: "recover-unsynced-changes", token: token)
      #expect(report.error == nil, "\(String(describing: report.error))")
      #expect(fleet.faults.left == 0)
      try await a.sync()
      try fleet.expectEqual(tables, [a])
      #expect(try fleet.serverRows("site").contains { $0[0] == "mine".value })
      await fleet.stop()
    }
    // What does not pass is told.
    let (fleet, a) = try await badDay(recovery: "strategy: \"manual\"")
    _ = try await a.sync()
    let token = try #require(try await a.open().status().recovery.token)
    fleet.faults.inject(busy, busy, busy, busy, busy, busy, busy, busy, busy, busy, busy, busy)
    #expect(await (try a.open()).recover(strategy: "recreate", token: token).error?.code == .overloaded)
    #expect(fleet.faults.left > 0)
    fleet.faults.clear()
    #expect(try await a.open().status().recovery.state == .required)
    await fleet.stop()
  }

  @Test("upload-then-recreate waits for the administrator, uploads everything, and recreates")
  func uploadThenRecreate() async throws {
    for selfService in [false, true] {
      let (fleet, a) = try await badDay(
        recovery:
          "strategy: \"upload-then-recreate\", options: { \"upload-then-recreate\": { then: \"copy-and-resubscribe\" } }",
        server:
          "authentication: { module: \"none\" }, recovery: { selfServiceRemoteDeletion: \(selfService) },")
      let old = try await a.open().status().state.remoteID
      if !selfService {
        let waiting = try await a.sync()
        #expect(waiting.exitCode == 5)
        #expect(waiting.error?.message.contains("salvor remotes delete \(old)") == true)
        #expect(try await a.open().status().recovery.state == .unfinished)
        #expect(try await a.open().status().recovery.step == "forget")
        #expect(try await a.sync().exitCode == 5)
        #expect(try await fleet.server?.engine.delete(remote: old) == true)
      }
      let report = try await a.sync()
      #expect(report.outcome == .recovered, "\(String(describing: report.error))")
      #expect(report.uploaded == 2, "what waited, and what the server had lost")
      #expect(report.healed == 1)
      try await a.sync()
      try fleet.expectEqual(tables, [a])
      #expect(try fleet.serverRows("site").contains { $0[0] == "mine".value })
      #expect(try a.rows("draft").count == 1)
      #expect(try await a.open().status().state.remoteID != old)
    }
  }

  @Test("a recovery that waits goes on as it began, whatever the configuration says by then, and says so (semantics 9)")
  func goesOnAsItBegan() async throws {
    let (fleet, a) = try await badDay(
      recovery:
        "strategy: \"upload-then-recreate\", options: { \"upload-then-recreate\": { then: \"copy-and-resubscribe\" } }")
    let old = try await a.open().status().state.remoteID
    #expect(try await a.sync().exitCode == 5)
    await a.close()
    // With the strategy its options are gone, too: alone it would recreate.
    let changed = try fleet.device("a", recovery: "strategy: \"recover-unsynced-changes\"")
    let waiting = try await changed.sync()
    #expect(waiting.exitCode == 5)
    #expect(waiting.error?.message.contains("salvor recover --strategy recover-unsynced-changes") == true)
    let plan = try await changed.open().recoveryPlan()
    #expect(plan.strategy == "upload-then-recreate" && plan.notes.first?.contains("has begun") == true)
    #expect(try await fleet.server?.engine.delete(remote: old) == true)
    let report = try await changed.sync()
    #expect(report.recovery?.strategy == "upload-then-recreate", "\(String(describing: report.error))")
    #expect(try changed.rows("draft").count == 1, "what only the device has is kept, as both configurations say")
    await fleet.stop()
  }

  @Test("a recovery that waits for the administrator does not go on at another server: that is manual")
  func anotherServerMeanwhile() async throws {
    let (fleet, a) = try await badDay(
      recovery: "strategy: \"upload-then-recreate\", reasons: { \"server-replaced\": \"manual\" }")
    #expect(try await a.sync().exitCode == 5)
    #expect(try await a.open().status().recovery.step == "forget")
    await fleet.stop()
    for suffix in ["", "-wal", "-shm", ".salvor-side"] { removeFile(fleet.serverPath + suffix) }
    try await fleet.start()
    let before = try a.rows("site")
    let plan = try await a.open().recoveryPlan()
    #expect(plan.reason == .serverReplaced)
    #expect(plan.strategy == "manual")
    for _ in 0..<2 {
      let report = try await a.sync()
      #expect(report.exitCode == 5)
      #expect(report.recovery?.reason == .serverReplaced)
      #expect(report.uploaded == 0)
    }
    #expect(try fleet.serverRows("site") == [])
    #expect(try a.rows("site") == before)
    #expect(try a.rows("draft").count == 1)
    await fleet.stop()
  }

  @Test("what a person decides about one server is not done at another: he is asked again")
  func decidedAboutAnotherServer() async throws {
    let (fleet, a) = try await badDay(recovery: "strategy: \"manual\"")
    #expect(try await a.sync().exitCode == 5)
    let token = try #require(try await a.open().status().recovery.token)
    await fleet.stop()
    for suffix in ["", "-wal", "-shm", ".salvor-side"] { removeFile(fleet.serverPath + suffix) }
    try await fleet.start()
    let before = try a.rows("site")
    #expect(try await a.open().recoveryPlan().reason == .serverReplaced)
    let report = await (try a.open()).recover(strategy: "recover-unsynced-changes", token: token)
    #expect(report.exitCode == 5)
    #expect(report.recovery?.reason == .serverReplaced)
    #expect(try fleet.serverRows("site") == [])
    #expect(try a.rows("site") == before)
    let second = try #require(try await a.open().status().recovery.token)
    #expect(second != token)
    let done = await (try a.open()).recover(strategy: "recover-unsynced-changes", token: second)
    #expect(done.outcome == .recovered, "\(String(describing: done.error))")
    #expect(try fleet.serverRows("site").map { $0[0] } == ["mine"])
    await fleet.stop()
  }

  @Test("where the server's operator has switched client recovery off, the recover strategies fall through")
  func clientRecoveryDisabled() async throws {
    for (strategy, outcome) in [
      ("recover-unsynced-changes", SyncReport.Outcome.recoveryRequired),
      ("recover-or-discard-unsynced-changes", .recovered),
    ] {
      let (fleet, a) = try await badDay(
        recovery: "strategy: \"\(strategy)\"",
        server: "authentication: { module: \"none\" }, recovery: { clientRecoveryEnabled: false },")
      let report = try await a.sync()
      #expect(report.outcome == outcome)
      #expect(report.recovery?.fellBackFrom == [strategy])
      if outcome == .recoveryRequired {
        // Whoever looks later is told of the switch, too.
        #expect(try await a.sync().error?.message.contains("clientRecoveryEnabled") == true)
        #expect(try await a.open().status().state.recoveryMessage?.contains("clientRecoveryEnabled") == true)
      }
      guard outcome == .recovered else { continue }
      #expect(report.recovery?.strategy == "discard-unsynced-changes")
      try fleet.expectEqual(tables, [a])
      #expect(try await a.open().errorArchive().contains { $0.reason == "discarded" && $0.key == ["mine".value] })
    }
  }

  @Test("an upload that was acknowledged, and a server restored to before the first one: the loss is found")
  func lossBeforeTheFirstUpload() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site VALUES ('s1', 'One', 'Toronto', 40)")
    let a = try fleet.device("a")
    try await a.sync()
    try await fleet.backup("night")
    try await a.write("UPDATE site SET seats = 1 WHERE id = 's1'")
    fleet.faults.inject(.cutAnswer(after: 400), .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    _ = try await a.sync()
    fleet.faults.clear()
    try await fleet.restore("night")
    try await a.sync()
    try await a.sync()
    try fleet.expectEqual(tables, [a])
    let lost = try await a.open().errorArchive().contains { $0.reason == "lost-on-server" }
    #expect(try lost || fleet.serverRows("site").first?[3] == 1)
  }

  @Test("the line is cut at every exchange of a recovery: the next sync goes on, nothing is lost or sent twice")
  func cutAtEveryExchange() async throws {
    for place in 0..<16 {
      let (fleet, a) = try await badDay()
      fleet.faults.pass(place / 2)
      // The request, or the answer, is lost, and so is every attempt after it.
      fleet.faults.inject(place % 2 == 0 ? .loseRequest : .loseAnswer, .loseRequest, .loseRequest, .loseRequest)
      let cut = try await a.sync()
      #expect(cut.error == nil || cut.error?.code == .unreachable)
      fleet.faults.clear()
      await a.close()
      let report = try await a.sync()
      #expect(report.error == nil, "\(place): \(String(describing: report.error))")
      try await a.sync()
      try fleet.expectEqual(tables, [a])
      #expect(try fleet.serverRows("site").contains { $0[0] == "mine".value })
    }
  }

  @Test("the server is restored again in the middle of a recovery")
  func restoredAgain() async throws {
    let (fleet, a) = try await badDay()
    fleet.faults.pass(4)
    fleet.faults.inject(.loseRequest, .loseRequest, .loseRequest, .loseRequest)
    #expect(try await a.sync().error?.code == .unreachable)
    #expect(try await a.open().status().recovery.state == .unfinished)
    fleet.faults.clear()
    let b = try fleet.device("b")
    try await b.sync()
    try await b.write("UPDATE site SET city = 'Guelph' WHERE id = 's3'")
    try await b.sync()
    try await fleet.restore("night")
    let report = try await a.sync()
    #expect(report.error == nil, "\(String(describing: report.error))")
    // The second device gives back what the server lost of it, and the first one gets that.
    for device in [a, b, a] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(tables, [a, b])
    #expect(try fleet.serverRows("site").first { $0[0] == "s3".value }?[2] == "Guelph".value)
  }

  @Test(
    "a destructive schema change: in-place strategies name it and fall through; recreate succeeds on the new schema")
  func schemaChange() async throws {
    for strategy in ["recover-unsynced-changes", "recreate", "copy-and-resubscribe"] {
      let fleet = try Fleet()
      try await fleet.start()
      let a = try fleet.device("a", recovery: "reasons: { \"schema-incompatible\": \"\(strategy)\" }")
      try await a.sync()
      try await a.write("INSERT INTO site (id, name) VALUES ('s1', 'one')")
      try await a.sync()
      try await a.write("UPDATE site SET name = 'two' WHERE id = 's1'")
      await fleet.stop()
      try fleet.serverConnection().execute(
        "DROP TABLE visit; DROP TABLE site; CREATE TABLE site (id TEXT NOT NULL PRIMARY KEY, title TEXT NOT NULL); INSERT INTO site VALUES ('s9', 'nine')"
      )
      fleet.schemaText = """
        { version: 2, groups: { reference: {}, visits: {} }, tables: {
            severity: { maintained: "server", group: "reference", primaryKey: "id", columns: { id: "integer", name: "text" } },
            site: { maintained: "dual", group: "visits", primaryKey: "id", columns: { id: "text", title: "text" } },
            draft: { maintained: "client", primaryKey: "id", columns: { id: "text", body: "text?" } } } }
        """
      try await fleet.start()
      let report = try await a.sync()
      if strategy == "recover-unsynced-changes" {
        #expect(report.outcome == .recoveryRequired)
        #expect(report.recovery?.fellBackFrom == [strategy])
        #expect(report.notices.contains { $0.contains("site, column name") })
        continue
      }
      #expect(report.outcome == .recovered, "\(String(describing: report.error))")
      #expect(try a.rows("site") == [["s9".value, "nine".value]])
      #expect(try await a.open().errorArchive().contains { $0.state == .kept })
      try await a.write("INSERT INTO site VALUES ('s10', 'ten')")
      #expect(try await a.sync().error == nil)
      #expect(try fleet.serverRows("site").count == 2)
    }
  }

  @Test("an additive schema change is adopted by a recovery in place, and a plan says that it comes first")
  func additiveChange() async throws {
    let (fleet, a) = try await badDay()
    await fleet.stop()
    let connection = try fleet.serverConnection()
    try connection.execute("ALTER TABLE site ADD COLUMN phone TEXT")
    connection.close()
    fleet.schemaText = fleet.schemaText.replacing(
      "seats: \"integer = 0\"", with: "seats: \"integer = 0\", phone: \"text?\"")
    try await fleet.start()
    try fleet.serverConnection().execute("UPDATE site SET phone = '555' WHERE id = 's3'")
    #expect(try await a.open().recoveryPlan().notes.count == 1)
    let report = try await a.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    try await a.sync()
    try fleet.expectEqual(tables, [a])
    #expect(try a.rows("site").first { $0[0] == "s3".value }?[4] == "555".value)
    #expect(try fleet.serverRows("site").contains { $0[0] == "mine".value })
  }

  @Test("a damaged file that no strategy is named for: a person is told, and nothing is touched")
  func unhandledCorruption() async throws {
    let told = Box<RecoveryReason>()
    let (fleet, a) = try await badDay { configuration in
      configuration.recovery.manualClientResetHandler = { told.append($0.reason) }
    }
    await a.close()
    for suffix in ["-wal", "-shm"] { removeFile(a.path + suffix) }
    try writeText(String(repeating: "this is no database. ", count: 1000), to: a.path)
    let report = try await a.sync()
    #expect(report.exitCode == 5)
    #expect(report.outcome == .recoveryRequired)
    #expect(report.error?.code == .storageCorrupt)
    #expect(report.notices.contains { $0.contains("--strategy recreate") })
    #expect(told.values == [.localCorruption])
    await fleet.stop()
  }

  @Test("a damaged file: recreate, where it is named for local-corruption, sets it aside and makes a new one")
  func localCorruption() async throws {
    let (fleet, a) = try await badDay(recovery: "reasons: { \"local-corruption\": \"recreate\" }")
    await a.close()
    for suffix in ["-wal", "-shm"] { removeFile(a.path + suffix) }
    try writeText(String(repeating: "this is no database. ", count: 1000), to: a.path)
    let report = try await a.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(report.recovery?.reason == .localCorruption)
    try fleet.expectEqual(tables, [a])
    let backup = try #require(try await a.open().backups().first)
    await #expect(throws: SalvorError.self) { try await a.open().restoreBackup(backup.id) }
    try fleet.expectEqual(tables, [a])
  }

  @Test(
    "a recovery that discarded is undone after further changes: each request is in the queue again, and goes up",
    arguments: [1, 2, 3])
  func undoneAfterChanges(count: Int) async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site (id, name) VALUES ('x', 'x'), ('y', 'y')")
    let a = try fleet.device("a", recovery: "reasons: { \"client-rewound\": \"recover-unsynced-changes\" }")
    _ = try await a.sync()
    for place in 1...count { try await a.write("INSERT INTO site (id, name) VALUES ('new\(place)', 'mine')") }
    try await a.write("UPDATE site SET seats = 32 WHERE id = 'x'")
    let before = try a.rows("site")
    let report = try await a.open().recover(strategy: "discard-unsynced-changes")
    #expect(report.recovery?.report?.counts.discarded == Int64(count) + 1)
    try await a.write("UPDATE site SET seats = 13 WHERE id = 'y'")
    let backup = try #require(report.recovery?.backup)
    try await a.open().restoreBackup(backup)
    #expect(try a.rows("site") == before)
    #expect(try await a.open().status().queued == Int64(count) + 1)
    let again = try await a.sync()
    #expect(again.error == nil && again.uploaded == Int64(count) + 1)
    try fleet.expectEqual(["site"], [a])
    #expect(try fleet.serverRows("site").count == count + 2)
  }

  @Test("what a server loses after an earlier recovery of the device was undone is offered all the same")
  func lostAfterUndo() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let a = try fleet.device("a")
    _ = try await a.sync()
    try fleet.serverConnection().execute("INSERT INTO site (id, name) VALUES ('s1', 'office')")
    _ = try await a.sync()
    let remote = try await a.open().status().state.remoteID
    #expect(try await fleet.server?.engine.demandReset(of: remote) == true)
    let backup = try #require(try await a.sync().recovery?.backup)
    try await fleet.backup("night")
    try await a.write("INSERT INTO site (id, name) VALUES ('s2', 'acknowledged')")
    #expect(try await a.sync().uploaded == 1)
    try await fleet.restore("night")
    try await a.open().restoreBackup(backup)
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.recovery?.report?.counts.lost == 1)
    #expect(try fleet.serverRows("site").map { $0[0] } == ["s1", "s2"])
    try fleet.expectEqual(["site"], [a])
    await fleet.stop()
  }

  @Test(
    "a rewind is undone after further syncs: no row of the server that is there passes for one that the other had lost")
  func rewindUndoneAfterSyncs() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site (id, name) VALUES ('p1', '1'), ('p2', '2'), ('p3', '3')")
    let a = try fleet.device("a", credentials: "principal: \"a\"")
    let b = try fleet.device("b", credentials: "principal: \"b\"")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.backup("night")
    try await a.write("UPDATE site SET name = 'lost' WHERE id = 'p2'")
    _ = try await a.sync()
    try await fleet.restore("night")
    let rewound = try await a.sync()
    #expect(rewound.outcome == .synchronized && rewound.changes.contains { $0.table == "site" && $0.keys == nil })
    let backup = try #require(rewound.recovery?.backup)
    for count in 1...5 {
      try await a.write("UPDATE site SET name = 'a\(count)' WHERE id IN ('p1', 'p3')")
      #expect(try await a.sync().error == nil)
    }
    #expect(try await b.sync().error == nil)
    try await b.write("UPDATE site SET name = 'b' WHERE id = 'p1'", "DELETE FROM site WHERE id = 'p3'")
    #expect(try await b.sync().error == nil)
    let server = try fleet.serverRows("site")
    try await a.open().restoreBackup(backup)
    let report = try await a.sync()
    #expect(report.error == nil && report.refused == 0)
    #expect(try await a.sync().error == nil)
    #expect(try fleet.serverRows("site") == server)
    try fleet.expectEqual(["site"], [a])
  }

  @Test(
    "a recovery by hand is undone after further syncs, and the server has lost those: what it lost is offered (never 3)",
    arguments: [false, true])
  func undoneByHandAndRestored(isRestored: Bool) async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site (id, name) VALUES ('p1', '1'), ('p2', '2'), ('p3', '3'), ('p4', '4')")
    let a = try fleet.device("a", credentials: "principal: \"a\"")
    let b = try fleet.device("b", credentials: "principal: \"b\"")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    // The recovery takes something back, which is put back later.
    try fleet.serverConnection().execute("UPDATE site SET name = 'theirs' WHERE id = 'p4'")
    let recovered = try await a.open().recover(strategy: "recover-unsynced-changes")
    let backup = try #require(recovered.recovery?.backup)
    try await fleet.backup("night")
    try await a.write(
      "INSERT INTO site (id, name) VALUES ('new', 'acknowledged')",
      "UPDATE site SET name = 'acknowledged' WHERE id = 'p1'",
      "DELETE FROM site WHERE id = 'p2'")
    try fleet.serverConnection().execute("UPDATE site SET name = 'of a program' WHERE id = 'p3'")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    let server = try fleet.serverRows("site")
    if isRestored { try await fleet.restore("night") }
    try await a.open().restoreBackup(backup)
    for device in [a, a, b, b] {
      let report = try await device.sync()
      #expect(report.error == nil && report.refused == 0)
    }
    try fleet.expectEqual(["site"], [a, b])
    let now = try fleet.serverRows("site")
    #expect(now == server.map { isRestored && $0[1] == "of a program" ? [$0[0], "3"] + $0.dropFirst(2) : $0 })
  }

  @Test("a backup of a recovery puts the database back; the next sync finds it rewound and recovers it")
  func restoringABackup() async throws {
    for strategy in ["recover-unsynced-changes", "copy-and-resubscribe"] {
      let (fleet, a) = try await badDay(
        recovery: "strategy: \"\(strategy)\", reasons: { \"client-rewound\": \"recover-unsynced-changes\" }")
      let before = try a.rows("site")
      let report = try await a.sync()
      #expect(report.outcome == .recovered, "\(String(describing: report.error))")
      let id = try #require(report.recovery?.backup)
      try await a.open().restoreBackup(id)
      #expect(try a.rows("site") == before)
      let again = try await a.sync()
      #expect(again.error == nil, "\(String(describing: again.error))")
      #expect(again.recovery?.reason == .clientRewound)
      #expect(!again.notices.contains { $0.contains("There was a database here") })
      try await a.sync()
      try fleet.expectEqual(tables, [a])
    }
  }
}

private func rows(of table: String, in path: String) throws -> [[Value]] {
  try SQLiteConnection(path, mode: .readOnly).rows("SELECT * FROM \(quoted(table)) ORDER BY 1")
}
