import SQLiteClientStore
import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

private let tables = ["severity", "site", "visit"]

@Suite("Unproven tables: what was written while the triggers were away is found, and put right (semantics 3)")
struct UnprovenTests {
  private func fleet(schema: String = Fleet.visits, sites: Int = 30) async throws -> (Fleet, Device) {
    let fleet = try Fleet(schema: schema)
    try await fleet.start()
    try fleet.serverConnection().execute(
      """
      INSERT INTO severity VALUES (1, 'minor'), (2, 'crucial');
      WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(sites))
      INSERT INTO site SELECT 's' || i, 'site ' || i, 'Toronto', i % 50 FROM n;
      INSERT INTO visit VALUES ('v1', 's1', 'first', 1), ('v2', 's2', NULL, NULL);
      """)
    let a = try fleet.device("a")
    #expect(try await a.sync().error == nil)
    return (fleet, a)
  }

  /// Another program drops the triggers of a table, writes, and leaves.
  private func withoutTriggers(_ device: Device, _ names: [String], _ sql: String) throws {
    let connection = try device.connection()
    for row in try connection.rows("SELECT name, tbl_name FROM sqlite_schema WHERE type = 'trigger'") {
      guard let name = row[0].string, let table = row[1].string, names.contains(table) else { continue }
      try connection.execute("DROP TRIGGER \(quoted(name))")
    }
    try connection.execute(sql)
  }

  @Test("a table that the schema drops before it was compared stays, with what was written to it (decision 210)")
  func droppedBefore() async throws {
    let (fleet, a) = try await fleet()
    try withoutTriggers(a, ["visit"], "INSERT INTO visit VALUES ('v9', 's1', 'made silently', NULL)")
    await fleet.stop()
    fleet.schemaText = """
      { version: 2, groups: { reference: {}, visits: {} }, dropped: ["visit"], tables: {
          severity: { maintained: "server", group: "reference", primaryKey: "id", columns: { id: "integer", name: "text" } },
          site: { group: "visits", primaryKey: "id", columns: { id: "text", name: "text", city: "text?", seats: "integer = 0" } },
          draft: { maintained: "client", primaryKey: "id", columns: { id: "text", body: "text?" } } } }
      """
    try await fleet.start()
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.notices.contains { $0.contains("all of them stay, in a plain table visit") })
    #expect(try a.connection().rows("SELECT note FROM visit ORDER BY id") == [["first"], [nil], ["made silently"]])
    // It is in nobody's way.
    try fleet.serverConnection().execute("DROP TABLE visit; DELETE FROM site WHERE id = 's1'")
    #expect(try await a.sync().error == nil)
    #expect(try a.connection().rows("SELECT count(*) FROM site WHERE id = 's1'") == [[0]])
    #expect(try a.connection().rows("PRAGMA foreign_key_check").isEmpty)
  }

  @Test("inserts, updates and deletes become requests with the base as old values, and are sent with the same sync")
  func captured() async throws {
    let (fleet, a) = try await fleet()
    try withoutTriggers(
      a, ["site", "visit"],
      """
      UPDATE site SET name = 'written silently', seats = 1000 WHERE id = 's5';
      DELETE FROM visit WHERE id = 'v2'; DELETE FROM site WHERE id = 's2';
      INSERT INTO site VALUES ('new', 'made silently', NULL, 2); INSERT INTO visit VALUES ('v9', 'new', 'child', 1);
      """)
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.uploaded == 5)
    #expect(report.notices.contains { $0.contains("triggers of site were away, 3 of its rows") })
    #expect(try fleet.serverRows("site").contains(["s5", "written silently", "Toronto", 1000]))
    #expect(try !fleet.serverRows("site").contains { $0[0] == "s2" })
    #expect(try fleet.serverRows("visit").contains(["v9", "new", "child", 1]))
    try fleet.expectEqual(tables, [a])
    let quiet = try await a.sync()
    #expect(quiet.roundTrips == 1)
    #expect(quiet.notices == [])
  }

  @Test(
    "a table that has moved to a new group meanwhile comes whole: what was written into it silently is in the archive")
  func movedMeanwhile() async throws {
    let (fleet, a) = try await fleet()
    fleet.schemaText = Fleet.visits.replacing("version: 1", with: "version: 2")
      .replacing(#"site: { maintained: "dual", group: "visits""#, with: #"site: { maintained: "dual", group: "later""#)
      .replacing("visits: {} }", with: "visits: {}, later: {} }")
    try await fleet.restart()
    try withoutTriggers(
      a, ["site"],
      "INSERT INTO site VALUES ('new', 'made silently', NULL, 2); UPDATE site SET seats = 1000 WHERE id = 's5'")
    try await a.write("UPDATE visit SET note = 'mine' WHERE id = 'v1'")
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.notices.contains { $0.contains("2 rows of site may have been written here") }, "\(report.notices)")
    // What references the table waited for it.
    #expect(try await report.uploaded + a.sync().uploaded == 1)
    try fleet.expectEqual(tables, [a])
    let kept = try await a.open().errorArchive()
    #expect(kept.map(\.state) == [.kept, .kept] && kept.allSatisfy { $0.reason == "unproven" })
    #expect(Set(kept.map(\.key)) == [["new"], ["s5"]])
    for entry in kept { _ = try await a.open().reapply(entry.id) }
    #expect(try await a.sync().uploaded == 2)
    #expect(try fleet.serverRows("site").contains(["new", "made silently", nil, 2]))
    #expect(try fleet.serverRows("site").contains(["s5", "site 5", "Toronto", 1000]))
    try fleet.expectEqual(tables, [a])
  }

  @Test("a captured change carries the server's row as the old values")
  func oldValues() async throws {
    let (fleet, a) = try await fleet()
    try withoutTriggers(a, ["severity"], "UPDATE severity SET name = 'mine' WHERE id = 1")
    let report = try await a.sync()
    // Nobody may write this table here: the archive has both values.
    #expect(report.refused == 1)
    let entry = try #require(try await a.open().errorArchive().first)
    #expect(entry.before.map(\.value) == ["minor"])
    #expect(entry.after.map(\.value) == ["mine"])
    try fleet.expectEqual(["site", "visit"], [a])
  }

  @Test("triggers that were away while nothing was written: the table is proven, and nothing is sent")
  func nothingWritten() async throws {
    let (fleet, a) = try await fleet()
    try withoutTriggers(a, ["site"], "")
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.uploaded == 0)
    #expect(report.notices.contains { $0.contains("were missing or altered") })
    #expect(try await a.sync().roundTrips == 1)
    try fleet.expectEqual(tables, [a])
  }

  @Test("found when the database is opened, too, and kept until the comparison is applied")
  func foundAtOpening() async throws {
    let (fleet, a) = try await fleet()
    await a.close()
    try withoutTriggers(a, ["site"], "UPDATE site SET seats = 77 WHERE id = 's3'")
    _ = try await a.open()
    await a.close()
    fleet.faults.pass(2)
    fleet.faults.inject(.loseRequest, .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    #expect(try await a.sync().error != nil)
    fleet.faults.clear()
    await a.close()
    let report = try await a.sync()
    #expect(report.uploaded == 1)
    try fleet.expectEqual(tables, [a])
    #expect(try fleet.serverRows("site").contains(["s3", "site 3", "Toronto", 77]))
  }

  @Test("a row that was made while the triggers were away, and changed when they were back, is sent whole")
  func madeAndChangedLater() async throws {
    let (fleet, a) = try await fleet()
    await a.close()
    try withoutTriggers(
      a, ["site"],
      "INSERT INTO site VALUES ('new', 'made silently', 'Ottawa', 2), ('gone', 'made silently', NULL, 1)")
    // Something opens it: the triggers are back. Then there is no server.
    _ = try await a.open()
    try await a.write(
      "UPDATE site SET seats = 3 WHERE id = 'new'", "UPDATE site SET seats = 4 WHERE id = 's4'",
      "DELETE FROM site WHERE id = 'gone'", "INSERT INTO visit VALUES ('v9', 'new', 'child', 1)")
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.refused == 0)
    #expect(try fleet.serverRows("site").contains(["new", "made silently", "Ottawa", 3]))
    #expect(try fleet.serverRows("site").contains(["s4", "site 4", "Toronto", 4]))
    #expect(try fleet.serverRows("visit").contains(["v9", "new", "child", 1]))
    #expect(try await a.open().errorArchive().isEmpty)
    #expect(try await a.open().status().queued == 0)
    try fleet.expectEqual(tables, [a])
  }

  @Test("what was here of a row that the server has changed, too, is kept in the archive")
  func overwrittenIsKept() async throws {
    let (fleet, a) = try await fleet()
    try withoutTriggers(a, ["site"], "UPDATE site SET seats = 500 WHERE id IN ('s8', 's9')")
    try fleet.serverConnection().execute(
      "UPDATE site SET name = 'theirs' WHERE id = 's8'; DELETE FROM site WHERE id = 's9'")
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.notices.contains { $0.contains("2 rows of site") && $0.contains("in the archive") })
    let archive = try await a.open().errorArchive()
    #expect(archive.map(\.state) == [.kept, .kept])
    #expect(archive.map(\.key) == [["s8"], ["s9"]])
    #expect(archive[0].after.map(\.value) == ["site 8", 500])
    #expect(archive[1].after.map(\.value) == ["s9", "site 9", "Toronto", 500])
    try fleet.expectEqual(tables, [a])
  }

  @Test("while another process has its turn, a sync ends with session-in-use and leaves everything alone")
  func notItsTurn() async throws {
    let (fleet, a) = try await fleet()
    try await a.write("UPDATE site SET seats = 3 WHERE id = 's1'")
    let other = SQLiteClientStore(path: a.path)
    try await other.takeTurn()
    #expect(try await a.sync().error?.code == .sessionInUse)
    #expect(try await a.open().recoverError()?.code == .sessionInUse)
    await other.giveTurn()
    #expect(try await a.sync().uploaded == 1)
    try fleet.expectEqual(tables, [a])
  }

  @Test("rows that the server has changed since the cursor come as always")
  func changedOnTheServer() async throws {
    let (fleet, a) = try await fleet()
    try withoutTriggers(a, ["site"], "UPDATE site SET seats = 5 WHERE id IN ('s7', 's8')")
    try fleet.serverConnection().execute(
      "UPDATE site SET name = 'theirs' WHERE id IN ('s8', 's9'); DELETE FROM site WHERE id = 's10'")
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.uploaded == 1)
    #expect(try fleet.serverRows("site").contains(["s7", "site 7", "Toronto", 5]))
    #expect(try fleet.serverRows("site").contains(["s8", "theirs", "Toronto", 8]))
    try fleet.expectEqual(tables, [a])
  }

  @Test("rows with requests: what was written besides becomes a request of its own; what does not fit any more goes")
  func rowsWithRequests() async throws {
    let (fleet, a) = try await fleet()
    try await a.write(
      "UPDATE site SET seats = 1 WHERE id IN ('s11', 's12')", "INSERT INTO site VALUES ('i1', 'x', NULL, 1)",
      "DELETE FROM site WHERE id = 's13'")
    try withoutTriggers(
      a, ["site"],
      "UPDATE site SET city = 'Ottawa' WHERE id = 's11'; DELETE FROM site WHERE id IN ('s12', 'i1'); INSERT INTO site VALUES ('s13', 'again', NULL, 9)"
    )
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(tables, [a])
    let rows = try fleet.serverRows("site")
    #expect(rows.contains(["s11", "site 11", "Ottawa", 1]))
    #expect(!rows.contains { $0[0] == "s12" || $0[0] == "i1" })
    #expect(rows.contains(["s13", "again", nil, 9]))
  }

  @Test("a table of which most rows were deleted is a person's to decide; nothing is sent or brought back before")
  func massDeletion() async throws {
    let (fleet, a) = try await fleet()
    try withoutTriggers(a, ["site", "visit"], "DELETE FROM visit; DELETE FROM site WHERE id <> 's1'")
    let report = try await a.sync()
    #expect(report.outcome == .recoveryRequired)
    #expect(report.recovery?.strategy == "manual")
    #expect(report.exitCode == 5)
    #expect(try fleet.serverRows("site").count == 30)
    #expect(try a.rows("site").count == 1)
    #expect(try await a.sync().outcome == .recoveryRequired)
    let token = try await a.open().status().recovery.token
    let recovered = await (try a.open()).recover(strategy: "recover-unsynced-changes", token: token)
    #expect(recovered.error == nil)
    try fleet.expectEqual(tables, [a])
    #expect(try await a.sync().roundTrips == 1)
  }

  private static let regions = """
    {
      version: 1, parameters: { region: "text" },
      tables: { site: { primaryKey: "id", columns: { id: "text", region: "text", note: "text?" },
                scope: { region: "parameter:region" }, sameKey: "refuse" } },
    }
    """

  private func regionFleet() async throws -> (Fleet, Device) {
    let fleet = try Fleet(
      schema: Self.regions, serverOptions: "authentication: { module: \"tokens\", file: \"tokens.json5\" },",
      principals: "token: \"anna-token\"")
    try writeText(
      "{ tokens: [ { sha256: \"c3cdf8b93111159d4a078d5b124d961890ae85d5aa9a955cfbe670c1d85f98ff\", principal: \"anna\", parameters: { region: [\"UK\", \"US\"] } } ] }",
      to: fleet.directory + "/tokens.json5")
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site VALUES ('s1', 'UK', 'a'), ('s2', 'US', 'b'), ('s3', 'US', 'c'), ('s4', 'US', 'd')")
    let a = try fleet.device("a")
    #expect(try await a.sync().error == nil)
    return (fleet, a)
  }

  @Test("what may have been written of rows that a changed subscription takes along is kept in the archive")
  func droppedBySubscription() async throws {
    let (fleet, a) = try await regionFleet()
    _ = try await a.open().subscribe("site", ["region": .value(.text("UK"))])
    try withoutTriggers(
      a, ["site"],
      """
      UPDATE site SET note = 'mine' WHERE id = 's3';
      INSERT INTO site VALUES ('s9', 'US', 'made here');
      UPDATE site SET note = 'sent' WHERE id = 's1';
      """)
    try fleet.serverConnection().execute(
      "INSERT INTO site VALUES ('s9', 'US', 'made there'); UPDATE site SET note = 'theirs' WHERE id = 's4'")
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(
      report.notices.contains { $0.contains("3 rows of site") && $0.contains("in the archive") }, "\(report.notices)")
    #expect(try a.rows("site") == [["s1", "UK", "sent"]])
    let archive = try await a.open().errorArchive()
    // Nobody knows who wrote the note of s4.
    #expect(archive.map(\.key) == [["s3"], ["s4"], ["s9"]])
    #expect(archive.contains { $0.key == ["s9"] && $0.after.map(\.value).contains("made here") })
    #expect(archive.contains { $0.key == ["s3"] && $0.after.map(\.value).contains("mine") })
    #expect(try fleet.serverRows("site").contains(["s1", "UK", "sent"]))
    #expect(try fleet.serverRows("site").contains(["s9", "US", "made there"]))
    #expect(try await a.sync().roundTrips == 1)
  }

  @Test(
    "a row with the key of one that a subscription took along before, made while the triggers were away, is an insert")
  func madeAnewOutsideOfTheSubscription() async throws {
    let (fleet, a) = try await regionFleet()
    _ = try await a.open().subscribe("site", ["region": .value(.text("UK"))])
    #expect(try await a.sync().error == nil)
    #expect(try a.rows("site") == [["s1", "UK", "a"]])
    try withoutTriggers(a, ["site"], "INSERT INTO site VALUES ('s2', 'US', 'made here')")
    #expect(try await a.sync().error == nil)
    #expect(try await a.sync().error == nil)
    // Its key is taken: the server refuses it, and nothing of it is lost.
    let entry = try #require(try await a.open().errorArchive().first)
    #expect(entry.key == ["s2"])
    #expect(entry.after.map(\.value).contains("made here"))
    #expect(try fleet.serverRows("site").contains(["s2", "US", "b"]))
    #expect(try a.rows("site") == [["s1", "UK", "a"], ["s2", "US", "made here"]])
    _ = try await a.open().delete(entry.id)
    #expect(try await a.sync().error == nil)
    #expect(try a.rows("site") == [["s1", "UK", "a"]])
  }

  @Test("a group that was never synchronized: every row that is there was made here")
  func neverSynchronized() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let a = try fleet.device("a")
    _ = try await a.open()
    await a.close()
    try withoutTriggers(
      a, ["site", "visit"],
      "INSERT INTO site VALUES ('f1', 'filled', NULL, 1); INSERT INTO visit VALUES ('w1', 'f1', NULL, NULL)")
    #expect(try await a.sync().uploaded == 2)
    try fleet.expectEqual(tables, [a])
    #expect(try fleet.serverRows("visit") == [["w1", "f1", nil, nil]])
  }

  @Test(
    "before the first download, a row that was sent and then written while the triggers were away: what was written is kept, whether the server has the upload or not",
    arguments: [Faults.Fault.loseRequest, .loseAnswer])
  func underWayBeforeTheFirstDownload(_ fault: Faults.Fault) async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let a = try fleet.device("a")
    _ = try await a.open()
    try await a.write(
      "INSERT INTO site VALUES ('k5', 'sent', NULL, 1), ('k6', 'sent', NULL, 2)",
      "INSERT INTO visit VALUES ('v5', 'k5', 'sent', NULL)")
    fleet.faults.inject(fault, .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    #expect(try await a.sync().error?.code == .unreachable)
    try withoutTriggers(
      a, ["site", "visit"],
      "UPDATE site SET name = 'silently' WHERE id = 'k5'; INSERT INTO visit VALUES ('v6', 'k6', 'made silently', NULL)")
    for _ in 0..<2 { #expect(try await a.sync().error == nil) }
    try fleet.expectEqual(tables, [a])
    #expect(try fleet.serverRows("visit") == [["v5", "k5", "sent", nil], ["v6", "k6", "made silently", nil]])
    // What the server has as it was sent was in nobody's way.
    let archive = try await a.open().errorArchive()
    if case .loseAnswer = fault {
      #expect(archive.map(\.key) == [["k5"]])
      #expect(archive.map(\.state) == [.kept])
      #expect(archive.first?.after.map(\.value) == ["silently"])
    } else {
      #expect(archive.isEmpty)
      #expect(try fleet.serverRows("site").contains(["k5", "silently", nil, 1]))
    }
    #expect(try await a.open().status().queued == 0)
    #expect(try await a.sync().roundTrips == 1)
  }

  @Test(
    "rows whose changes are under way to the server, deleted while the triggers are away: deleted on all sides, whether the server has the upload or not",
    arguments: [Faults.Fault.loseRequest, .loseAnswer])
  func underWay(_ fault: Faults.Fault) async throws {
    let (fleet, a) = try await fleet()
    try await a.write(
      "INSERT INTO visit VALUES ('v5', 's1', 'sent', 1)", "UPDATE site SET seats = 77 WHERE id = 's3'",
      "UPDATE site SET seats = 78 WHERE id = 's4'")
    fleet.faults.inject(fault, .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    #expect(try await a.sync().error?.code == .unreachable)
    try withoutTriggers(
      a, ["site", "visit"], "DELETE FROM visit WHERE id = 'v5'; DELETE FROM site WHERE id = 's3'")
    for _ in 0..<2 { #expect(try await a.sync().error == nil) }
    #expect(try !fleet.serverRows("visit").contains { $0[0] == "v5" })
    #expect(try !fleet.serverRows("site").contains { $0[0] == "s3" })
    #expect(try fleet.serverRows("site").contains(["s4", "site 4", "Toronto", 78]))
    try fleet.expectEqual(tables, [a])
    #expect(try await a.sync().roundTrips == 1)
  }

  @Test(
    "a person may take back or retry requests while the triggers are away: the client that runs puts them back first")
  func takenBackMeanwhile() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let a = try fleet.device("a")
    let client = try await a.open()
    try await a.write("INSERT INTO site VALUES ('k5', 'made', NULL, 1), ('k7', 'made', NULL, 1)")
    try withoutTriggers(a, ["site"], "UPDATE site SET id = 'k6' WHERE id = 'k5'")
    let queue = try await client.queue()
    #expect(queue.map(\.key) == [["k7"], ["k6"]])
    try withoutTriggers(a, ["site"], "UPDATE site SET id = 'k8' WHERE id = 'k7'")
    _ = try await client.withdraw(try #require(queue.last).id)
    #expect(try await client.retry().requests.isEmpty)
    #expect(try await a.sync().error == nil)
    #expect(try fleet.serverRows("site").map { $0[0] } == ["k8"])
    try fleet.expectEqual(["site"], [a])
  }

  @Test("a pause of capture is not the end of what was written without triggers before it")
  func beforePause() async throws {
    let (fleet, a) = try await fleet()
    let client = try await a.open()
    try withoutTriggers(a, ["site"], "UPDATE site SET seats = 77 WHERE id = 's3'")
    _ = try await client.pauseCapture()
    try a.connection().execute("UPDATE site SET seats = 78 WHERE id = 's4'")
    _ = try await client.resumeCapture()
    #expect(try await a.sync().uploaded == 2)
    #expect(try fleet.serverRows("site").contains(["s3", "site 3", "Toronto", 77]))
    try fleet.expectEqual(tables, [a])
  }

  @Test("what was written without triggers is found when the table gets another name before it is compared, too")
  func renamedMeanwhile() async throws {
    let (fleet, a) = try await fleet()
    try withoutTriggers(
      a, ["site"], "UPDATE site SET seats = 77 WHERE id = 's3'; INSERT INTO site VALUES ('k', 'made', NULL, 1)")
    fleet.schemaText = Fleet.visits.replacing("site: { maintained", with: "place: { renamedFrom: \"site\", maintained")
      .replacing("table: \"site\"", with: "table: \"place\"").replacing("version: 1", with: "version: 2")
    try await fleet.restart()
    for _ in 0..<2 { #expect(try await a.sync().error == nil) }
    let rows = try fleet.serverRows("place")
    #expect(rows.contains(["s3", "site 3", "Toronto", 77]))
    #expect(rows.contains(["k", "made", nil, 1]))
    try fleet.expectEqual(["severity", "place", "visit"], [a])
  }

  @Test("a row that was written without triggers, and whose parent a restored server has lost, is sent with its parent")
  func lostParent() async throws {
    let (fleet, a) = try await fleet()
    let b = try fleet.device("b")
    try await a.write("INSERT INTO site (id, name) VALUES ('of a', 'seen before')")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.backup("night")
    try await b.write("INSERT INTO site (id, name) VALUES ('new', 'of b')")
    for device in [b, a] { #expect(try await device.sync().error == nil) }
    try await fleet.restore("night")
    try withoutTriggers(a, ["visit"], "INSERT INTO visit VALUES ('v8', 'new', 'silent', 1)")
    for _ in 0..<2 {
      let report = try await a.sync()
      #expect(report.error == nil, "\(String(describing: report.error))")
    }
    #expect(try fleet.serverRows("visit").contains(["v8", "new", "silent", 1]))
    #expect(try await b.sync().error == nil)
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(tables, [a, b])
    #expect(try await a.open().errorArchive().isEmpty)
  }

  @Test("a table that comes whole, since its scope is another one: what was written without triggers is in the archive")
  func comesWhole() async throws {
    let scoped = Fleet.visits.replacing("version: 1,", with: "version: 1, parameters: { city: \"text\" },")
      .replacing("seats: \"integer = 0\" } }", with: "seats: \"integer = 0\" }, scope: { city: \"parameter:city\" } }")
      .replacing("{ table: \"site\",", with: "{ table: \"site\", scope: \"inherit\",")
    let (fleet, a) = try await fleet(schema: scoped)
    try withoutTriggers(
      a, ["site"], "INSERT INTO site VALUES ('k', 'made', 'Toronto', 1); UPDATE site SET seats = 77 WHERE id = 's3'")
    fleet.schemaText = scoped.replacing("version: 1", with: "version: 2").replacing(
      "draft: {",
      with: """
        photo: { maintained: "dual", group: "visits", primaryKey: "id", columns: { id: "text", visit_id: "text?" },
                 references: { visit_id: { table: "visit", scope: "inherit" } } },
        draft: {
        """)
    try await fleet.restart()
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.notices.contains { $0.contains("site came whole. 2 of its rows") })
    let client = try await a.open()
    let kept = try await client.errorArchive()
    #expect(
      kept.map { "\($0.state.rawValue) \($0.operation.rawValue) \($0.key)" }.sorted() == [
        "kept insert [k]", "kept update [s3]",
      ])
    #expect(kept.contains { $0.after.map(\.value) == [77] })
    for entry in kept { _ = try await client.reapply(entry.id) }
    #expect(try await a.sync().uploaded == 2)
    #expect(try fleet.serverRows("site").contains(["k", "made", "Toronto", 1]))
    #expect(try fleet.serverRows("site").contains(["s3", "site 3", "Toronto", 77]))
    try fleet.expectEqual(tables, [a])
  }

  @Test("a key-set table is compared anyway: while it is unproven, differences of the device's become requests")
  func keySetTable() async throws {
    let (fleet, a) = try await fleet(schema: KeySetTests.schema)
    try withoutTriggers(
      a, ["site"], "UPDATE site SET seats = 5 WHERE id = 's7'; INSERT INTO site VALUES ('k', 'made', NULL, 1)")
    try fleet.serverConnection().execute("UPDATE site SET name = 'theirs' WHERE id = 's9'")
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.uploaded == 2)
    try fleet.expectEqual(tables, [a])
    #expect(try fleet.serverRows("site").contains(["s7", "site 7", "Toronto", 5]))
  }
}

extension SalvorClient {
  fileprivate func recoverError() async -> SalvorError? { await recover().error }
}
