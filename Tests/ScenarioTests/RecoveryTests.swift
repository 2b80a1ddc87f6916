import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

private let tables = ["severity", "site", "visit"]

/// Ten sites on the server, so that no guard against mass deletion speaks up.
private func fleet(serverOptions: String = "authentication: { module: \"none\" },") async throws -> Fleet {
  let fleet = try Fleet(serverOptions: serverOptions)
  try await fleet.start()
  try fleet.serverConnection().execute(
    "INSERT INTO site WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT 's' || i, 'Site ' || i, 'Toronto', 40 FROM n"
  )
  return fleet
}

@Suite("Recovery, end to end (semantics 5, 6, 9)")
struct RecoveryTests {
  @Test(
    "a row that a recovery brought back is looked for again where the server goes back to before the row")
  func backAndFurtherBack() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    let b = try fleet.device("b")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await b.write("INSERT INTO site (id, name) VALUES ('before', 'before')")
    try await b.sync()
    try await a.sync()
    try await fleet.backup("without")
    try await b.write("INSERT INTO site (id, name) VALUES ('new', 'new')")
    try await b.sync()
    try await fleet.backup("with")
    try await b.write("DELETE FROM site WHERE id = 'new'")
    try await b.sync()
    // That the row was there is not in what comes.
    try await a.sync()
    try await fleet.restore("with")
    #expect(try await a.sync().error == nil)
    #expect(try a.rows("site").contains { $0[0] == "new" })
    try await fleet.restore("without")
    for device in [a, a] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(tables, [a])
  }

  // MARK: - time1 … time4 (sap-rbs-synchronize-recovery)

  @Test(
    "time1 … time4: restored to time1 or time4 a device syncs normally, to time2 or time3 it recovers by its strategy",
    arguments: [
      "recover-unsynced-changes", "recover-or-discard-unsynced-changes", "discard-unsynced-changes", "recreate",
      "copy-and-resubscribe",
    ], [1, 2, 3, 4])
  func times(strategy: String, time: Int) async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a", recovery: "strategy: \"\(strategy)\"")
    let b = try fleet.device("b")
    try await b.sync()
    _ = try await a.open()
    // Registered, not synchronized.
    _ = await (try a.open()).attemptSync(groups: ["reference"])
    try await fleet.backup("time1")
    for round in 2...4 {
      try await a.write(
        "INSERT INTO site (id, name, seats) VALUES ('round', 'of a', \(round)) ON CONFLICT DO UPDATE SET seats = excluded.seats"
      )
      #expect(try await a.sync().error == nil)
      try await fleet.backup("time\(round)")
    }
    try await a.write(
      "UPDATE site SET seats = 7 WHERE id = 's2'", "INSERT INTO site (id, name) VALUES ('local', 'made offline')",
      "INSERT INTO draft VALUES ('d1', 'mine')")
    try await fleet.restore("time\(time)")
    let report = try await a.sync()
    #expect(report.error == nil, "\(String(describing: report.error))")
    if time == 4 {
      #expect(report.outcome == .synchronized)
      #expect(report.recovery == nil)
    }
    if time == 2 || time == 3 {
      #expect(report.outcome == .recovered)
      #expect(report.recovery?.reason == .serverRestored)
      #expect(report.recovery?.strategy == strategy)
      #expect(fleet.log.all.contains { $0.contains("[-10400]") && $0.contains("server-restored") })
    }
    #expect(try await a.sync().outcome == .synchronized)
    try fleet.expectEqual(tables, [a])
    let isKept = report.outcome == .synchronized || strategy.hasPrefix("recover-")
    #expect(try fleet.serverRows("site").contains { $0[0] == "local".value } == isKept)
    let kept = try await a.open().errorArchive().filter { $0.state == .kept }
    if !isKept { #expect(Set(kept.compactMap(\.reason)).contains("discarded")) }
    #expect(try a.rows("draft").isEmpty == (strategy == "recreate" && report.outcome == .recovered))
    try await b.sync()
    try fleet.expectEqual(tables, [b])
  }

  // MARK: - Rewind

  @Test("only others' commits are gone: the device rewinds inside a normal sync, and what was lost is in the archive")
  func rewind() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    let b = try fleet.device("b")
    try await a.sync()
    try await b.sync()
    try await fleet.backup("night")
    try await b.write(
      "UPDATE site SET seats = 99 WHERE id = 's3'", "INSERT INTO site (id, name) VALUES ('new', 'of b')",
      "DELETE FROM site WHERE id = 's4'")
    try await b.sync()
    try await a.sync()
    try fleet.expectEqual(tables, [a, b])
    try await a.write("UPDATE site SET seats = 5 WHERE id = 's5'")
    try await fleet.restore("night")
    let report = try await a.sync()
    #expect(report.error == nil, "\(String(describing: report.error))")
    #expect(report.outcome == .synchronized)
    #expect(report.recovery?.strategy == "rewind")
    #expect(report.recovery?.report?.counts.lost == 3)
    try fleet.expectEqual(tables, [a])
    #expect(try fleet.serverRows("site").first { $0[0] == "s5".value }?[3] == 5)
    let kept = try await a.open().errorArchive().filter { $0.reason == "lost-on-server" }
    #expect(Set(kept.map { "\($0.operation.rawValue) \($0.key[0])" }).count == 3)
    #expect(try await a.open().status().inError == 0)
  }

  @Test("a lost row that was edited here and then deleted: the delete stands, and what was edited is in the archive")
  func editedAndDeleted() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a", credentials: "principal: \"a\"")
    let b = try fleet.device("b", credentials: "principal: \"b\"")
    for device in [a, b] { _ = try await device.sync() }
    try await fleet.backup("night")
    try await b.write("INSERT INTO site (id, name) VALUES ('k', 'of b')")
    _ = try await b.sync()
    _ = try await a.sync()
    try await a.write("UPDATE site SET name = 'edit' WHERE id = 'k'")
    try await a.write("DELETE FROM site WHERE id = 'k'")
    try await fleet.restore("night")
    let report = try await a.sync()
    #expect(report.error == nil, "\(String(describing: report.error))")
    let archive = try await a.open().errorArchive()
    #expect(!archive.contains { $0.operation == .delete })
    #expect(archive.contains { $0.operation == .update && $0.key == ["k"] && $0.reason == "row-gone" })
    #expect(try await a.open().status().queued == 0)
    #expect(try fleet.serverRows("site").contains { $0[0] == "k" } == false)
    // Whoever offers the row leaves a conflict version.
    _ = try await b.sync()
    #expect(try fleet.serverRows("site").contains { $0[0] == "k" } == false)
  }

  // MARK: - Merge rules

  @Test("the merge rules 1 to 4, between a device that was offline and a server that lost a day")
  func mergeRules() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    try await a.sync()
    try await a.write("UPDATE site SET seats = 1 WHERE id = 's0'")
    try await a.sync()
    try await fleet.backup("night")
    try await a.write("UPDATE site SET seats = 2 WHERE id = 's0'")
    try await a.sync()
    try await a.write(
      "INSERT INTO site (id, name) VALUES ('mine', 'rule 1')", "UPDATE site SET seats = 77 WHERE id = 's6'",
      "DELETE FROM site WHERE id = 's7'", "UPDATE site SET seats = 88 WHERE id = 's8'")
    try await fleet.restore("night")
    try fleet.serverConnection().execute(
      "DELETE FROM site WHERE id = 's6'; UPDATE site SET city = 'Ottawa' WHERE id = 's7'; UPDATE site SET seats = 3, city = 'Guelph' WHERE id = 's8'"
    )
    let report = try await a.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    try await a.sync()
    try fleet.expectEqual(tables, [a])
    let sites = try fleet.serverRows("site")
    #expect(sites.contains { $0[0] == "mine".value }, "rule 1")
    #expect(!sites.contains { $0[0] == "s6".value }, "rule 2: the delete wins")
    #expect(
      try await a.open().errorArchive().contains { $0.state == .kept && $0.reason == "row-deleted" },
      "rule 2: the change is kept")
    #expect(sites.first { $0[0] == "s8".value }?[3] == 88, "rule 4: the client's field")
    #expect(sites.first { $0[0] == "s8".value }?[2] == "Guelph".value, "rule 4: the server's other field")
  }

  @Test("a lost row that unsynced work needs is made again from the device, up to its parent")
  func lostParent() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    try await a.sync()
    try await a.write("UPDATE site SET seats = 1 WHERE id = 's0'")
    try await a.sync()
    try await fleet.backup("night")
    try await a.write("INSERT INTO site (id, name, seats) VALUES ('lost', 'made after the backup', 12)")
    try await a.sync()
    try await a.write("INSERT INTO site (id, name, seats) VALUES ('edited', 'made after the backup', 13)")
    try await a.sync()
    try await a.write(
      "INSERT INTO visit (id, site_id, note) VALUES ('v1', 'lost', 'offline')",
      "UPDATE site SET seats = 14 WHERE id = 'edited'")
    try await fleet.restore("night")
    let report = try await a.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(report.refused == 0)
    try await a.sync()
    try fleet.expectEqual(tables, [a])
    #expect(try fleet.serverRows("visit").count == 1)
    #expect(try fleet.serverRows("site").first { $0[0] == "lost".value }?[3] == 12)
    #expect(try fleet.serverRows("site").first { $0[0] == "edited".value }?[3] == 14)
  }

  // MARK: - Rewound and cloned devices

  @Test("a device restored from its own backup recovers in place under a new remote ID; nothing is applied twice")
  func clientRewound() async throws {
    for keepsIdentity in [true, false] {
      let fleet = try await fleet()
      let a = try fleet.device("a")
      try await a.sync()
      try await a.write("UPDATE site SET seats = 41 WHERE id = 's1'")
      try await a.sync()
      try await a.write("UPDATE site SET seats = seats + 1 WHERE id = 's2'")
      let old = try await a.open().status().state.remoteID
      await a.close()
      try copyDatabase(a.path, to: fleet.directory + "/device-backup")
      try await a.write("UPDATE site SET seats = 42 WHERE id = 's1'")
      try await a.sync()
      try fleet.serverConnection().execute("UPDATE site SET seats = 1000 WHERE id = 's2'")
      try await a.sync()
      await a.close()
      try copyDatabase(fleet.directory + "/device-backup", to: a.path)
      if !keepsIdentity { removeFile(a.path + ".salvor-identity") }
      let report = try await a.sync()
      #expect(report.outcome == .recovered, "\(String(describing: report.error))")
      #expect(report.recovery?.reason == .clientRewound)
      try await a.sync()
      try fleet.expectEqual(tables, [a])
      #expect(try fleet.serverRows("site")[1][3] == 42)
      #expect(try fleet.serverRows("site")[2][3] == 1000, "what was uploaded before is not applied again")
      #expect(try await a.open().status().state.remoteID != old)
    }
  }

  @Test("two clones that take turns: the second gets a remote ID of its own, nothing is sent twice and nothing is lost")
  func clones() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    try await a.sync()
    try await a.write("INSERT INTO site (id, name) VALUES ('before', 'queued when the file was copied')")
    await a.close()
    let b = try fleet.device("b")
    try copyDatabase(a.path, to: b.path)
    for round in 0..<3 {
      try await a.write("INSERT INTO site (id, name) VALUES ('a\(round)', 'of a')")
      #expect(try await a.sync().error == nil)
      try await b.write("INSERT INTO site (id, name) VALUES ('b\(round)', 'of b')")
      let report = try await b.sync()
      #expect(report.error == nil, "\(String(describing: report.error))")
    }
    try await a.sync()
    try await b.sync()
    try fleet.expectEqual(tables, [a, b])
    #expect(try fleet.serverRows("site").count == 17)
    #expect(try await a.open().status().state.remoteID != b.open().status().state.remoteID)
  }

  @Test(
    "two clones and a server that was restored between them: the one that recovers takes a remote ID of its own, and what the other wrote is another's",
    arguments: ["client-wins", "keep-versions"])
  func clonesOverARestore(policy: String) async throws {
    let fleet = try Fleet(
      schema: Fleet.visits.replacing("site: {", with: "site: { conflicts: \"\(policy)\","))
    try await fleet.start()
    let a = try fleet.device("a")
    try await a.write("INSERT INTO site (id, name) VALUES ('s1', 'one')")
    #expect(try await a.sync().error == nil)
    await a.close()
    let b = try fleet.device("b")
    try copyDatabase(a.path, to: b.path)
    try await fleet.backup("night")
    try await b.write("UPDATE site SET name = 'lost of b' WHERE id = 's1'")
    #expect(try await b.sync().error == nil)
    try await b.write("UPDATE site SET name = 'of b' WHERE id = 's1'")
    try await fleet.restore("night")
    try await a.write("UPDATE site SET name = 'of a' WHERE id = 's1'")
    #expect(try await a.sync().error == nil)
    let report = try await b.sync()
    #expect(report.error == nil && report.recovery?.reason == .serverRestored)
    for device in [b, a, b] { #expect(try await device.sync().error == nil) }
    #expect(try await a.open().status().state.remoteID != b.open().status().state.remoteID)
    let kept = try fleet.serverConnection().rows("SELECT * FROM salvor_conflict").description
    let here = try fleet.serverRows("site").map { $0[1] }
    #expect(here == [policy == "client-wins" ? "of b" : "of a"])
    #expect(kept.contains(policy == "client-wins" ? "of a" : "of b"), "\(kept)")
    try fleet.expectEqual(["site"], [a, b])
  }

  // MARK: - Manual

  @Test("server-replaced is manual: a copy, a token, no sync until recover is called; then the strategy chosen runs")
  func serverReplaced() async throws {
    let fleet = try await fleet()
    let seen = Box<String>()
    let a = try fleet.device("a") { configuration in
      configuration.recovery.manualClientResetHandler = { reset in seen.append(reset.token) }
    }
    try await a.sync()
    try await a.write("INSERT INTO site (id, name) VALUES ('mine', 'offline')")
    await fleet.stop()
    for suffix in ["", "-wal", "-shm", ".salvor-side"] { removeFile(fleet.serverPath + suffix) }
    try await fleet.start()
    let before = try a.rows("site")
    let report = try await a.sync()
    #expect(report.outcome == .recoveryRequired)
    #expect(report.recovery?.reason == .serverReplaced)
    #expect(report.recovery?.strategy == "manual")
    #expect(report.exitCode == 5)
    #expect(try a.rows("site") == before)
    await a.close()
    let status = try await a.open().status()
    #expect(status.recovery.state == .required)
    #expect(seen.values == [status.recovery.token])
    #expect(try await a.open().backups().map(\.id) == [status.recovery.backup])
    // It stays so.
    #expect(try await a.sync().exitCode == 5)
    #expect(seen.values.count == 1)
    let wrong = await (try a.open()).recover(strategy: "recover-unsynced-changes", token: "no")
    #expect(wrong.error?.code == .usage)
    let recovered = await (try a.open())
      .recover(strategy: "recover-unsynced-changes", token: status.recovery.token)
    #expect(recovered.error == nil, "\(String(describing: recovered.error))")
    try await a.sync()
    try fleet.expectEqual(tables, [a])
    #expect(try fleet.serverRows("site").map { $0[0] } == ["mine".value])
    #expect(try await a.open().errorArchive().filter { $0.reason == "lost-on-server" }.count == 10)
  }

  /// A server that lost a hundred rows of 110, and a device that has them: its rows as they are.
  private func lostMost(recovery: String) async throws -> (fleet: Fleet, device: Device, before: [[Value]]) {
    let fleet = try await fleet()
    let a = try fleet.device("a", recovery: recovery)
    try await a.sync()
    try await a.write("UPDATE site SET seats = 1 WHERE id = 's0'")
    try await a.sync()
    try await fleet.backup("night")
    try await a.write(
      "INSERT INTO site WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 199) SELECT 'n' || i, 'New ' || i, NULL, 1 FROM n"
    )
    try await a.sync()
    let before = try a.rows("site")
    try await fleet.restore("night")
    return (fleet, a, before)
  }

  @Test(
    "no guard counts what is offered again: a server that lost most of a table has it back",
    arguments: [
      "recover-unsynced-changes", "discard-unsynced-changes", "recreate", "copy-and-resubscribe",
    ])
  func massLoss(strategy: String) async throws {
    let (fleet, a, before) = try await lostMost(recovery: "strategy: \"\(strategy)\"")
    let report = try await a.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(report.recovery?.report?.counts.offered == 100)
    #expect(report.recovery?.report?.counts.deletes == 0)
    #expect(report.healed == 100)
    try await a.sync()
    #expect(try a.rows("site") == before)
    try fleet.expectEqual(tables, [a])
  }

  @Test("an automatic strategy that would remove more than half of a table's rows stops as manual")
  func massDeletion() async throws {
    let (fleet, a, before) = try await lostMost(recovery: "heal: \"off\"")
    let report = try await a.sync()
    #expect(report.outcome == .recoveryRequired)
    #expect(report.recovery?.fellBackFrom == ["recover-unsynced-changes"])
    #expect(report.recovery?.strategy == "manual")
    #expect(try a.rows("site") == before)
    let token = try await a.open().status().recovery.token
    let recovered = await (try a.open()).recover(token: token)
    #expect(recovered.error == nil, "\(String(describing: recovered.error))")
    try fleet.expectEqual(tables, [a])
    #expect(try await a.open().errorArchive(limit: 1000).filter { $0.reason == "lost-on-server" }.count == 100)
  }

  // MARK: - Compared by digest

  @Test("a device that was away for longer than the tombstones are kept is compared, and only what differs moves")
  func historyTrimmed() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    let server = try fleet.serverConnection()
    try server.execute(
      "INSERT INTO site WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 2099) SELECT 'n' || i, 'Site ' || i, NULL, 1 FROM n"
    )
    let first = try await a.sync()
    try server.execute("DELETE FROM site WHERE id = 'n150'; UPDATE site SET seats = 9 WHERE id = 'n1500'")
    _ = try await fleet.device("b").sync()
    try server.execute("UPDATE site SET seats = 10 WHERE id = 's9'")
    _ = try await fleet.device("c").sync()
    await fleet.server?.engine.trim(retentionMilliseconds: -1000)
    try await a.write("UPDATE site SET seats = 55 WHERE id = 'n1600'", "UPDATE site SET seats = 56 WHERE id = 'n150'")
    let report = try await a.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(report.recovery?.reason == .historyTrimmed)
    #expect(report.recovery?.report?.counts.lost == 0)
    #expect(report.bytesReceived < first.bytesReceived)
    try await a.sync()
    try fleet.expectEqual(tables, [a])
    #expect(try fleet.serverRows("site").first { $0[0] == "n1600".value }?[3] == 55)
  }

  @Test("an operator's reset is recovered from once")
  func operatorRequested() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    try await a.sync()
    let remote = try await a.open().status().state.remoteID
    let store = try #require(fleet.server?.engine)
    #expect(try await store.demandReset(of: remote))
    let report = try await a.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(report.recovery?.reason == .operatorRequested)
    #expect(try await a.sync().recovery == nil)
    try fleet.expectEqual(tables, [a])
  }

  @Test("a group that was never synchronized stays so, also where a person recovers by hand (semantics 1)")
  func groupsByHand() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    try await a.sync(["reference"])
    try await a.write("INSERT INTO site (id, name) VALUES ('mine', 'waits')")
    for strategy in ["recover-unsynced-changes", "discard-unsynced-changes", "copy-and-resubscribe"] {
      #expect(await (try a.open()).recover(strategy: strategy).error == nil)
      let groups = try await a.open().status().state.groups
      #expect(groups.filter(\.isSynchronized).map(\.name) == ["reference"], "\(strategy)")
    }
    #expect(try fleet.serverRows("site").count == 10)
  }

  @Test("an operator's reset, and a device that may delete its remote ID itself: it uploads everything, and recreates")
  func operatorRequestedUpload() async throws {
    let fleet = try await fleet(
      serverOptions: "authentication: { module: \"none\" }, recovery: { selfServiceRemoteDeletion: true },")
    let a = try fleet.device("a", recovery: "strategy: \"upload-then-recreate\"")
    try await a.sync()
    try await a.write("INSERT INTO site (id, name) VALUES ('mine', 'waits')")
    let remote = try await a.open().status().state.remoteID
    #expect(try await #require(fleet.server?.engine).demandReset(of: remote))
    let report = try await a.sync()
    #expect(report.outcome == .recovered, "\(String(describing: report.error))")
    #expect(report.uploaded == 1)
    #expect(try await a.sync().recovery == nil)
    try fleet.expectEqual(tables, [a])
  }
}

/// What callbacks have seen.
final class Box<Element: Sendable>: Sendable {
  private let content = Mutex<[Element]>([])
  func append(_ element: Element) { content.withLock { $0.append(element) } }
  var values: [Element] { content.withLock { $0 } }
}
