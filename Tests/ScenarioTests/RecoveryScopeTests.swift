import SalvorModel
import Testing

@Suite("A recovery reads what the principal may see now (semantics 7)")
struct RecoveryScopeTests {
  private static let schema = """
    {
      version: 1, parameters: { region: "text" },
      tables: {
        free: { primaryKey: "id", columns: { id: "text", note: "text?" } },
        site: { primaryKey: "id", columns: { id: "text", region: "text?", note: "text?" },
                scope: { region: "parameter:region" } },
        visit: { primaryKey: "id", columns: { id: "text", site_id: "text", note: "text?" },
                 references: { site_id: { table: "site", scope: "inherit" } } },
      },
    }
    """

  /// `anna-token` may read one region.
  private func allow(_ region: String, _ fleet: Fleet) throws {
    try writeText(
      "{ tokens: [ { sha256: \"c3cdf8b93111159d4a078d5b124d961890ae85d5aa9a955cfbe670c1d85f98ff\", principal: \"anna\", parameters: { region: [\"\(region)\"] } } ] }",
      to: fleet.directory + "/tokens.json5")
  }

  @Test(
    "what this device wrote, and the server lost, of a row that it does not see any more is in its archive, and counted"
  )
  func lostOutOfScope() async throws {
    let fleet = try Fleet(
      schema: Self.schema, serverOptions: "authentication: { module: \"tokens\", file: \"tokens.json5\" },",
      principals: "token: \"anna-token\"")
    try allow("UK", fleet)
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site VALUES ('s1', 'UK', 'a'), ('s2', 'UK', 'b')")
    let device = try fleet.device("anna")
    #expect(try await device.sync().error == nil)
    try await fleet.backup("night")
    try await device.write(
      "UPDATE site SET note = 'mine' WHERE id = 's1'", "UPDATE site SET note = 'too' WHERE id = 's2'")
    #expect(try await device.sync().error == nil)
    try await fleet.restore("night")
    try fleet.serverConnection().execute("UPDATE site SET region = 'US' WHERE id = 's1'")
    let report = try await device.sync()
    #expect(report.error == nil)
    #expect(report.recovery?.report?.counts.unoffered == [.outOfScope: 1])
    #expect(try device.rows("site") == [["s2", "UK", "too"]])
    let entry = try #require(try await device.open().errorArchive().first)
    #expect(entry.reason == "lost-on-server" && entry.key == ["s1"])
    #expect(entry.after.contains { $0.name == "note" && $0.value == "mine" })
    #expect(try fleet.serverRows("site") == [["s1", "US", "a"], ["s2", "UK", "too"]])
    #expect(try await device.sync().error == nil)
  }

  private static let members = """
    {
      version: 1,
      tables: {
        member: { maintained: "server", primaryKey: "id", columns: { id: "text", project_id: "text", person: "text" },
                  scope: { person: "principal" } },
        project: { primaryKey: "id", columns: { id: "text", name: "text?" }, scope: { id: "via:member.project_id" } },
      },
    }
    """

  @Test(
    "a change of a row that is out of scope after a recovery waits until it is sent, as in any sync: nobody deleted the row (semantics 9)",
    arguments: [false, true])
  func changedOutOfScope(isReset: Bool) async throws {
    let fleet = try Fleet(schema: Self.members)
    try await fleet.start()
    try fleet.serverConnection().execute(
      """
      INSERT INTO member VALUES ('m1', 'p1', 'anna'), ('m2', 'p2', 'anna'), ('m3', 'p3', 'anna');
      INSERT INTO project VALUES ('p1', 'one'), ('p2', 'two'), ('p3', 'three');
      """)
    let device = try fleet.device("anna", credentials: "principal: \"anna\"")
    #expect(try await device.sync().error == nil)
    let remote = try await device.open().status().state.remoteID
    try await device.write("UPDATE project SET name = 'mine' WHERE id = 'p1'", "DELETE FROM project WHERE id = 'p2'")
    try fleet.serverConnection().execute("DELETE FROM member WHERE id IN ('m1', 'm2')")
    if isReset { #expect(try await fleet.server?.engine.demandReset(of: remote) == true) }
    let report = try await device.sync()
    #expect((report.recovery != nil) == isReset)
    #expect(report.refused == 2)
    let archive = try await device.open().errorArchive()
    #expect(archive.map(\.reason) == ["out-of-scope", "out-of-scope"])
    #expect(try device.rows("project").contains(["p3", "three"]))
    // They are in their rows when these come again.
    try fleet.serverConnection().execute("INSERT INTO member VALUES ('m1', 'p1', 'anna'), ('m2', 'p2', 'anna')")
    _ = try await device.sync()
    _ = try await device.open().retry()
    #expect(try await device.sync().error == nil)
    #expect(try fleet.serverRows("project") == [["p1", "mine"], ["p3", "three"]])
    #expect(try device.rows("project") == [["p1", "mine"], ["p3", "three"]])
  }

  @Test(
    "a credential's list that has changed since the backup: rows come and go by what it allows now",
    arguments: ["recover-unsynced-changes", "discard-unsynced-changes", "copy-and-resubscribe"], [false, true])
  func changedList(strategy: String, uploads: Bool) async throws {
    let fleet = try Fleet(
      schema: Self.schema, serverOptions: "authentication: { module: \"tokens\", file: \"tokens.json5\" },",
      principals: "token: \"anna-token\"")
    try allow("UK", fleet)
    try await fleet.start()
    try fleet.serverConnection().execute(
      """
      INSERT INTO site VALUES ('s0', 'UK', 'a'), ('s1', 'US', 'b'), ('s2', 'US', 'c');
      INSERT INTO visit VALUES ('v0', 's0', 'a'), ('v1', 's1', 'b');
      INSERT INTO free VALUES ('f', '1');
      """)
    let device = try fleet.device("anna", recovery: "strategy: \"\(strategy)\"")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("site").map { $0[0] } == ["s0"])
    try await fleet.backup("night")
    // An acknowledged upload that is lost raises the error, a lost commit alone is rewound.
    if uploads {
      try await device.write("UPDATE free SET note = 'mine'")
    } else {
      try fleet.serverConnection().execute("UPDATE free SET note = '2'")
    }
    #expect(try await device.sync().error == nil)
    try allow("US", fleet)
    try await fleet.restore("night")
    try fleet.serverConnection().execute("UPDATE visit SET note = 'later' WHERE id = 'v1'")
    let report = try await device.sync()
    #expect(report.error == nil)
    #expect(report.recovery != nil)
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("site") == [["s1", "US", "b"], ["s2", "US", "c"]])
    #expect(try device.rows("visit") == [["v1", "s1", "later"]])
  }
}
