import SalvorClientEngine
import SalvorModel
import SalvorRecovery
import SalvorStorage
import Testing

private let tables = ["severity", "site", "visit"]

/// A server that was put back to the night before, and a device that has gone on since: `sites` of its rows are newer.
private func badDay(
  recovery: String = "", server: String = "authentication: { module: \"none\" },", sites: Int = 1,
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
  try await a.write(
    "INSERT INTO site WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(sites)) SELECT 'n' || i, 'New ' || i, NULL, 1 FROM n"
  )
  try await a.sync()
  try await a.write("INSERT INTO site (id, name) VALUES ('mine', 'offline')")
  try await fleet.restore("night")
  return (fleet, a)
}

@Suite("What a recovery reports, and in which order it asks (semantics 9)")
struct RecoveryReportTests {
  @Test(
    "recreate's report names each client-only row, subscription and setting that it does not keep, and its backup",
    arguments: ["recreate", "copy-and-resubscribe"])
  func givenUp(strategy: String) async throws {
    let (fleet, a) = try await badDay(recovery: "strategy: \"\(strategy)\"")
    try await a.write(
      "INSERT INTO draft VALUES ('d2', 'own'), ('d1', 'own')",
      "INSERT INTO salvor_setting VALUES ('inspector', 'anna')",
      "INSERT INTO salvor_subscription (target) VALUES ('visits')")
    let report = try await a.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    let recovery = try #require(report.recovery)
    let backup = try #require(try await a.open().backups().first?.id)
    #expect(recovery.json["backup"] == .string(backup))
    #expect(recovery.report?.backup == backup)
    let record = try #require(try await a.open().recoveries().first)
    #expect(record.backup == backup)
    let items = try await a.open().recoveryItems(record.id).filter { $0.fate == .givenUp }
    let names = items.map { "\($0.reason ?? "") \($0.table) \($0.key[0])" }
    if strategy == "recreate" {
      #expect(
        names == [
          "client-only draft d1", "client-only draft d2", "subscription salvor_subscription visits",
          "setting salvor_setting inspector",
        ])
      #expect(recovery.json["givenUp"] == 4)
      #expect(try a.rows("draft").isEmpty)
    } else {
      #expect(names == [])
      #expect(recovery.json["givenUp"] == 0)
      #expect(try a.rows("draft").count == 2)
    }
    for member in ["reason", "strategy", "fellBackFrom", "chain", "kept", "discarded", "lost", "offered", "healed"] {
      #expect(recovery.json[member] != nil, "\(member)")
    }
    await fleet.stop()
  }

  @Test(
    "the restore's report does not miss a device that went on under another remote ID",
    arguments: ["recreate", "copy-and-resubscribe", "discard-unsynced-changes"])
  func comeUnderAnotherID(strategy: String) async throws {
    let (fleet, a) = try await badDay(recovery: "strategy: \"\(strategy)\"")
    let former = try await a.open().status().state.remoteID
    #expect(try await a.sync().outcome == .recovered)
    #expect(try await (a.open().status().state.remoteID != former) == (strategy != "discard-unsynced-changes"))
    let seen = try fleet.serverConnection().rows("SELECT remote FROM salvor_restore_seen")
    #expect(seen.contains([.text(former.text)]))
    await fleet.stop()
  }

  @Test("a column of the application's own on a client-only table stands through copy-and-resubscribe")
  func ownColumnOfAClientOnlyTable() async throws {
    let (fleet, a) = try await badDay(recovery: "strategy: \"copy-and-resubscribe\"")
    try await a.write(
      "ALTER TABLE draft ADD COLUMN colour TEXT", "INSERT INTO draft (id, body, colour) VALUES ('d1', 'own', 'red')")
    let report = try await a.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(try a.connection().rows("SELECT id, body, colour FROM draft") == [["d1", "own", "red"]])
    await fleet.stop()
  }

  @Test("a general file strategy that a destructive schema change passes over is in the chain, a notice and the plan")
  func passedOver() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let a = try fleet.device("a", recovery: "strategy: \"recreate\"")
    try await a.sync()
    await fleet.stop()
    try fleet.serverConnection().execute(
      "DROP TABLE visit; DROP TABLE site; CREATE TABLE site (id TEXT NOT NULL PRIMARY KEY, title TEXT NOT NULL)")
    fleet.schemaText = """
      { version: 2, groups: { reference: {}, visits: {} }, tables: {
          severity: { maintained: "server", group: "reference", primaryKey: "id", columns: { id: "integer", name: "text" } },
          site: { maintained: "dual", group: "visits", primaryKey: "id", columns: { id: "text", title: "text" } } } }
      """
    try await fleet.start()
    let plan = try await a.open().recoveryPlan()
    #expect(plan.fellBackFrom == ["recreate"])
    #expect(plan.strategy == "manual")
    let report = try await a.sync()
    #expect(report.error?.code == .schemaIncompatible)
    #expect(report.error?.reason == "schema-incompatible")
    #expect(report.exitCode == 5)
    #expect(report.recovery?.strategy == "manual")
    #expect(report.recovery?.json["fellBackFrom"] == "recreate")
    #expect(report.recovery?.json["chain"] == ["recreate"])
    #expect(report.notices.contains { $0.hasPrefix("recreate:") && $0.contains("client.recovery.reasons") })
    await fleet.stop()
  }

  @Test(
    "beforeReset is called only after the guards have passed, and before anything is touched",
    arguments: ["recover-unsynced-changes", "discard-unsynced-changes", "recreate", "upload-then-recreate"])
  func hookAfterGuards(strategy: String) async throws {
    let called = Box<RecoveryConfiguration.Notice>()
    let (fleet, a) = try await badDay(
      recovery: "heal: \"off\", strategy: \"\(strategy)\"",
      server: "authentication: { module: \"none\" }, recovery: { selfServiceRemoteDeletion: true },", sites: 60
    ) { $0.recovery.beforeReset = { called.append($0) } }
    let before = try a.rows("site")
    let stopped = try await a.sync()
    #expect(stopped.exitCode == 5)
    #expect(stopped.recovery?.fellBackFrom == [strategy])
    #expect(called.values == [], "the guard has stopped it")
    #expect(try a.rows("site") == before)
    let token = try await a.open().status().recovery.token
    let done = await (try a.open()).recover(strategy: strategy, token: token)
    #expect(done.error == nil, "\(String(describing: done.error))")
    #expect(called.values.map(\.strategy) == [strategy])
    try await a.sync()
    try fleet.expectEqual(tables, [a])
    let isSent = strategy == "recover-unsynced-changes" || strategy == "upload-then-recreate"
    #expect(try fleet.serverRows("site").contains { $0[0] == "mine".value } == isSent)
  }

  @Test("a beforeReset that fails leaves no copy behind, also of a strategy that copies first")
  func failingHookLeavesNothing() async throws {
    let fails = Box<Bool>()
    let (fleet, a) = try await badDay(recovery: "strategy: \"recreate\"") { configuration in
      configuration.recovery.beforeReset = { _ in
        fails.append(true)
        if fails.values.count < 3 { throw SalvorError(.failed, "the archive's disk is full") }
      }
    }
    let before = try a.rows("site")
    for _ in 1...2 {
      let report = try await a.sync()
      #expect(report.exitCode == 5)
      #expect(report.error?.message.contains("the archive's disk is full") == true)
      #expect(try a.rows("site") == before)
      #expect(try await a.open().backups() == [])
      #expect(try await a.open().status().recovery.state == .none)
      // Exit code 5, and whoever asks is told why.
      #expect(report.recovery?.reason != nil)
      #expect(try await a.open().status().state.recoveryRequired == report.recovery?.reason)
    }
    #expect(try await a.sync().outcome == .recovered)
    #expect(try await a.open().status().state.recoveryRequired == nil)
    try fleet.expectEqual(tables, [a])
  }

  @Test(
    "a client-only row that its own onDelete takes with a discarded row is named in the report",
    arguments: ["discard-unsynced-changes", "copy-and-resubscribe"])
  func cascadedClientRow(strategy: String) async throws {
    let fleet = try Fleet(
      schema: Fleet.visits.replacing(
        "draft: {",
        "label: { maintained: \"client\", primaryKey: \"id\", columns: { id: \"text\", site_id: \"text?\" }, references: { site_id: { table: \"site\", onDelete: \"cascade\" } } }, draft: {"
      ))
    try await fleet.start()
    let a = try fleet.device("a")
    _ = try await a.sync()
    try await a.write(
      "INSERT INTO site (id, name) VALUES ('n', 'mine')",
      "INSERT INTO label VALUES ('below', 'n'), ('alone', NULL)")
    let report = try await a.open().recover(strategy: strategy)
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(try a.rows("label") == [["alone", nil]])
    let record = try #require(try await a.open().recoveries().first)
    let items = try await a.open().recoveryItems(record.id).filter { $0.fate == .givenUp }
    #expect(items.map { "\($0.reason ?? "") \($0.table) \($0.key)" } == ["parent-gone label \(["below".value])"])
    #expect(record.counts.givenUp == 1)
    await fleet.stop()
  }

  @Test("recover-or-discard by hand falls back as its name says; a strategy without a fall-back is an error by hand")
  func fallsBackByHand() async throws {
    let (fleet, a) = try await badDay(
      recovery: "strategy: \"manual\"",
      server: "authentication: { module: \"none\" }, recovery: { clientRecoveryEnabled: false },")
    _ = try await a.sync()
    let token = try await a.open().status().recovery.token
    let refused = await (try a.open()).recover(strategy: "recover-unsynced-changes", token: token)
    #expect(refused.error?.code == .usage)
    #expect(refused.error?.message.contains("clientRecoveryEnabled") == true)
    let report = await (try a.open()).recover(strategy: "recover-or-discard-unsynced-changes", token: token)
    #expect(report.error == nil, "\(String(describing: report.error))")
    #expect(report.recovery?.strategy == "discard-unsynced-changes")
    #expect(report.recovery?.fellBackFrom == ["recover-or-discard-unsynced-changes"])
    try fleet.expectEqual(tables, [a])
    #expect(try await a.open().errorArchive().contains { $0.reason == "discarded" && $0.key == ["mine".value] })
  }

  @Test(
    "upload-then-recreate through a second restore at any exchange: it ends in step, and says so", arguments: 0..<24)
  func uploadThroughASecondRestore(exchanges: Int) async throws {
    let (fleet, a) = try await badDay(
      recovery: "strategy: \"upload-then-recreate\"",
      server: "authentication: { module: \"none\" }, recovery: { selfServiceRemoteDeletion: true },")
    fleet.faults.pass(exchanges)
    fleet.faults.inject(.loseRequest, .loseRequest, .loseRequest, .loseRequest)
    _ = try await a.sync()
    fleet.faults.clear()
    try await fleet.restore("night")
    let report = try await a.sync()
    #expect(report.error == nil, "\(String(describing: report.error))")
    #expect(report.json["outcome"] != .null)
    #expect(report.exitCode == 0)
    #expect(try await a.open().status().recovery.state == .none)
    try await a.sync()
    try fleet.expectEqual(tables, [a])
    let isKept = try await a.open().errorArchive(limit: 1000).contains { $0.key == ["mine".value] }
    #expect(try isKept || fleet.serverRows("site").contains { $0[0] == "mine".value })
    await fleet.stop()
  }

  // MARK: - Guards

  /// In place, with a fall-back of its own.
  private struct Link: RecoveryStrategy {
    let name: String
    let fallBack: String?
    let guarantees = RecoveryGuarantees(
      unsyncedChanges: .kept, clientOnlyTables: .kept, settings: .kept, needsServersConsent: false,
      survivesSchemaChange: false)
    func plan(for incident: Incident) -> RecoveryDecision { .steps([.fetch(.differences), .apply(.keep, .nothing)]) }
  }

  @Test(
    "of four resets against one history of the server, with no sync between them, the second goes to the fall-back and the fourth to a person"
  )
  func fourResets() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site VALUES ('s1', 'One', 'Toronto', 40)")
    let faults = fleet.faults
    let a = try fleet.device("a") { configuration in
      configuration.recovery.strategies += [
        Link(name: "one", fallBack: "two"), Link(name: "two", fallBack: "three"),
        Link(name: "three", fallBack: "four"), Link(name: "four", fallBack: nil),
      ]
      configuration.recovery.strategy = "one"
      // The sync after the reset does not succeed.
      configuration.recovery.afterReset = { _ in faults.inject(.loseRequest, .loseRequest, .loseRequest, .loseRequest) }
    }
    try await a.sync()
    let remote = try await a.open().status().state.remoteID
    var ran: [String] = []
    for _ in 1...4 {
      #expect(try await fleet.server?.engine.demandReset(of: remote) == true)
      let report = try await a.sync()
      ran.append(report.recovery?.strategy ?? "none")
      #expect(report.error?.code == (ran.count == 4 ? .uploadFailedAtServer : .unreachable))
      faults.clear()
    }
    #expect(ran == ["one", "two", "three", "manual"])
    // A sync that succeeds makes the next reset a first one.
    let token = try await a.open().status().recovery.token
    _ = await (try a.open()).recover(strategy: "one", token: token)
    faults.clear()
    #expect(try await a.sync().error == nil)
    #expect(try await fleet.server?.engine.demandReset(of: remote) == true)
    #expect(try await a.sync().recovery?.strategy == "one")
    await fleet.stop()
  }
}
