import SQLiteSupport
import SalvorContracts
import SalvorHost
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import StandardModules
import Testing

@Suite("Conflicts, from the devices to the person who resolves them (semantics 7)")
struct ConflictTests {
  private static func schema(_ conflicts: String) -> String {
    """
    { tables: {
        site: { primaryKey: "id", columns: { id: "text", name: "text", seats: "integer = 0" }, conflicts: \(conflicts) },
        visit: { primaryKey: "id", columns: { id: "text", site_id: "text", note: "text?" },
                 references: { site_id: "site" }, conflicts: \(conflicts) } } }
    """
  }

  /// A server with two sites, and two people's devices that have them.
  private func fleet(_ conflicts: String) async throws -> (Fleet, anna: Device, bert: Device) {
    let fleet = try Fleet(schema: Self.schema(conflicts), modules: [LargerNumberPolicy.factory])
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site VALUES ('s1', 'Harbour', 40), ('s2', 'Corner', 12)")
    let anna = try fleet.device("anna"), bert = try fleet.device("bert", credentials: "principal: \"bert\"")
    for device in [anna, bert] { #expect(try await device.sync().error == nil) }
    return (fleet, anna, bert)
  }

  private func resolve(_ fleet: Fleet, _ id: Int64, _ keep: ConflictSide) async throws {
    _ = try await #require(fleet.server).engine.resolveConflict(id, keep: keep, by: "olga")
  }

  @Test("two people rename one site: both names are kept with who made them, and the one chosen reaches everybody")
  func keptAndResolved() async throws {
    let (fleet, anna, bert) = try await fleet("\"keep-versions\"")
    try await anna.write("UPDATE site SET name = 'Anna''s' WHERE id = 's1'")
    try await bert.write(
      "UPDATE site SET name = 'Bert''s' WHERE id = 's1'", "UPDATE site SET seats = 1 WHERE id = 's2'")
    #expect(try await anna.sync().conflicts == 0)
    let report = try await bert.sync()
    #expect(report.error == nil && report.refused == 0)
    #expect(report.uploaded == 2)
    #expect(report.conflicts == 1)
    #expect(try bert.rows("site") == [["s1", "Anna's", 40], ["s2", "Corner", 1]])
    let kept = try fleet.serverConnection().rows(
      "SELECT id, key, client, principal, server_principal, server_commit > made FROM salvor_conflict")
    #expect(kept == [[1, "[\"s1\"]", "{\"name\":\"Bert's\"}", "bert", "anna", 1]])

    try await resolve(fleet, 1, .client)
    for device in [anna, bert] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(["site"], [anna, bert])
    #expect(try fleet.serverRows("site") == [["s1", "Bert's", 40], ["s2", "Corner", 1]])
    await fleet.stop()
  }

  @Test("client-wins overwrites nothing in silence: it is counted, and the name that lost is listed with its author")
  func overwrittenIsListed() async throws {
    let (fleet, anna, bert) = try await fleet("\"client-wins\"")
    try await anna.write("UPDATE site SET name = 'Anna''s' WHERE id = 's1'")
    try await bert.write(
      "UPDATE site SET name = 'Bert''s' WHERE id = 's1'", "UPDATE site SET seats = 1 WHERE id = 's2'")
    #expect(try await anna.sync().conflicts == 0)
    let report = try await bert.sync()
    #expect(report.error == nil && report.refused == 0 && report.uploaded == 2)
    #expect(report.conflicts == 1)
    for device in [anna, bert] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(["site"], [anna, bert])
    #expect(try fleet.serverRows("site") == [["s1", "Bert's", 40], ["s2", "Corner", 1]])
    let listed = try fleet.serverConnection().rows(
      """
      SELECT key, resolution, resolved_by, server ->> 'name', settled ->> 'name', principal, server_principal,
        server_commit > made FROM salvor_conflict
      """)
    #expect(listed == [["[\"s1\"]", "policy", "client-wins", "Anna's", "Bert's", "bert", "anna", 1]])
    await fleet.stop()
  }

  @Test("two people make one site: what only one of them has set stands on every side")
  func mergedInserts() async throws {
    let (fleet, anna, bert) = try await fleet("\"client-wins\"")
    try await anna.write("INSERT INTO visit VALUES ('v1', 's1', 'by Anna')")
    try await bert.write("INSERT INTO visit VALUES ('v1', 's1', NULL)")
    try await anna.write("INSERT INTO site VALUES ('s3', 'New', 7)")
    try await bert.write("INSERT INTO site (id, name) VALUES ('s3', 'New')")
    for device in [anna, bert, anna] {
      let report = try await device.sync()
      #expect(report.error == nil && report.refused == 0 && report.conflicts == 0)
    }
    #expect(try fleet.serverRows("visit") == [["v1", "s1", "by Anna"]])
    #expect(try fleet.serverRows("site") == [["s1", "Harbour", 40], ["s2", "Corner", 12], ["s3", "New", 7]])
    try fleet.expectEqual(["site", "visit"], [anna, bert])
    await fleet.stop()
  }

  @Test("a group in conflict is kept whole, and resolved whole: parent, child and delete")
  func group() async throws {
    let (fleet, anna, bert) = try await fleet("\"keep-versions\"")
    try await anna.write("UPDATE site SET name = 'Anna''s' WHERE id = 's1'")
    try await anna.sync()
    try await bert.write(
      "INSERT INTO salvor_request(tag) VALUES ('visit 17')",
      "INSERT INTO site VALUES ('s3', 'New', 3)", "INSERT INTO visit VALUES ('v1', 's3', 'first')",
      "UPDATE site SET name = 'Bert''s' WHERE id = 's1'", "DELETE FROM site WHERE id = 's2'",
      "DELETE FROM salvor_request")
    let report = try await bert.sync()
    #expect(report.conflicts == 1 && report.refused == 0)
    try fleet.expectEqual(["site", "visit"], [bert])
    #expect(try fleet.serverRows("site") == [["s1", "Anna's", 40], ["s2", "Corner", 12]])
    #expect(try fleet.serverRows("visit") == [])

    try await resolve(fleet, 2, .client)
    for device in [anna, bert] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(["site", "visit"], [anna, bert])
    #expect(try fleet.serverRows("site") == [["s1", "Bert's", 40], ["s3", "New", 3]])
    #expect(try fleet.serverRows("visit") == [["v1", "s3", "first"]])
    await fleet.stop()
  }

  @Test("the sender has changed the row again before somebody resolves: what is newer is a conflict of its own")
  func resolvedUnderNewChanges() async throws {
    let (fleet, anna, bert) = try await fleet("\"keep-versions\"")
    try await anna.write("UPDATE site SET name = 'Anna''s' WHERE id = 's1'")
    try await bert.write("UPDATE site SET name = 'Bert''s' WHERE id = 's1'")
    for device in [anna, bert] { try await device.sync() }
    try await bert.write("UPDATE site SET name = 'Bert''s second' WHERE id = 's1'")
    try await resolve(fleet, 1, .client)
    #expect(try await bert.sync().conflicts == 1)
    for device in [anna, bert] { try await device.sync() }
    #expect(try fleet.serverRows("site")[0] == ["s1", "Bert's", 40])
    try fleet.expectEqual(["site"], [anna, bert])
    try await resolve(fleet, 2, .client)
    for device in [anna, bert] { try await device.sync() }
    #expect(try fleet.serverRows("site")[0] == ["s1", "Bert's second", 40])
    try fleet.expectEqual(["site"], [anna, bert])
    await fleet.stop()
  }

  @Test("a server that is restored has the conflict versions of its backup, open as they were then (semantics 11.2)")
  func restored() async throws {
    let (fleet, anna, bert) = try await fleet("\"keep-versions\"")
    try await anna.write("UPDATE site SET name = 'Anna''s' WHERE id = 's1'")
    try await bert.write("UPDATE site SET name = 'Bert''s' WHERE id = 's1'")
    for device in [anna, bert] { try await device.sync() }
    try await fleet.backup("night")
    try await resolve(fleet, 1, .client)
    for device in [anna, bert] { try await device.sync() }
    #expect(try fleet.serverRows("site")[0] == ["s1", "Bert's", 40])
    try await fleet.restore("night")
    for device in [anna, bert] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(["site"], [anna, bert])
    #expect(try fleet.serverRows("site")[0] == ["s1", "Anna's", 40])
    try await resolve(fleet, 1, .client)
    for device in [anna, bert] { try await device.sync() }
    #expect(try fleet.serverRows("site")[0] == ["s1", "Bert's", 40])
    try fleet.expectEqual(["site"], [anna, bert])
    await fleet.stop()
  }

  // MARK: A policy of somebody else's

  @Test("an outsider's policy, with its option, merges field by field; what it leaves to a person is kept")
  func outsider() async throws {
    let (fleet, anna, bert) = try await fleet("{ module: \"larger-number\", columns: [\"seats\"] }")
    try await anna.write("UPDATE site SET seats = 50, name = 'Anna''s' WHERE id = 's1'")
    try await bert.write(
      "UPDATE site SET seats = 45, name = 'Bert''s' WHERE id = 's1'", "DELETE FROM site WHERE id = 's2'")
    try await anna.sync()
    try fleet.serverConnection().execute("UPDATE site SET seats = 13 WHERE id = 's2'")
    let report = try await bert.sync()
    #expect(report.refused == 0)
    #expect(report.conflicts == 2)
    #expect(try fleet.serverRows("site") == [["s1", "Bert's", 50], ["s2", "Corner", 13]])
    for device in [anna, bert] { try await device.sync() }
    try fleet.expectEqual(["site"], [anna, bert])
    await fleet.stop()
  }

  @Test("a device syncs without knowing the policy; a server that lacks it says so before it starts")
  func unknownPolicy() async throws {
    let (fleet, anna, _) = try await fleet("{ module: \"larger-number\", columns: [\"seats\"] }")
    func load(_ name: String) throws -> HostConfiguration {
      try Host.load(
        fleet.directory + "/" + name,
        modules: StandardModules.all + [fleet.faults.transportFactory(wrapping: StandardModules.all)],
        environment: [:])
    }
    #expect(try load("anna.json5").schema.table("site")?.conflicts == "larger-number")
    let error = #expect(throws: SalvorError.self) { try load("server.json5") }
    #expect(error?.message.contains("\"larger-number\" is no conflict-policy module here") == true)
    #expect(try await anna.sync().error == nil)
    await fleet.stop()
  }

  @Test(
    "the outsider's policy keeps the contract, on the table that it is for", arguments: ConflictPolicyContract.cases)
  func keepsTheContract(_ rule: ConflictPolicyContract.Case) async throws {
    try await rule.run(ConflictPolicySubject(LargerNumberPolicy(columns: ["count", "stars"])))
  }
}
