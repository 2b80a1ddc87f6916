import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

/// Who may see a row is asked of its parent: what is given back goes in an order in which that can be told.
@Suite("Heal: rows whose scope is that of their parents (semantics 7 and 10)")
struct HealingScopeTests {
  private static let tables = ["area", "leaf", "site"]
  private static let schema = """
    {
      version: 1,
      tables: {
        area: { primaryKey: "id", columns: { id: "text", owner: "text = anna" }, scope: { owner: "principal" } },
        leaf: { primaryKey: "id", columns: { id: "text", site_id: "text" },
                references: { site_id: { table: "site", onDelete: "cascade", scope: "inherit" } } },
        site: { primaryKey: "id", columns: { id: "text", area_id: "text", code: "text?" }, unique: [["code"]],
                references: { area_id: { table: "area", onDelete: "cascade", scope: "inherit" } } },
      },
    }
    """

  /// What a device writes after the backup, with three areas, a site in each, and a leaf of each.
  private static let stories: [(name: String, statements: [String])] = [
    ("a parent is deleted with what is below it", ["DELETE FROM area WHERE id = '1'"]),
    (
      "rows are deleted one after the other",
      ["DELETE FROM leaf WHERE id = 'l1'", "DELETE FROM site WHERE id = 's1'", "DELETE FROM area WHERE id = '1'"]
    ),
    (
      "a row gets another parent, and the former one goes",
      ["UPDATE site SET area_id = '2' WHERE id = 's1'", "DELETE FROM area WHERE id = '1'"]
    ),
    (
      "a unique value moves from a deleted row to another one",
      [
        "DELETE FROM area WHERE id = '1'", "UPDATE site SET code = 'c1' WHERE id = 's2'",
        "INSERT INTO site VALUES ('s4', '3', 'c2')",
      ]
    ),
    (
      "a row is deleted, and made again with another parent",
      [
        "DELETE FROM site WHERE id = 's1'", "INSERT INTO site VALUES ('s1', '2', 'again')",
        "DELETE FROM area WHERE id = '1'",
      ]
    ),
  ]

  @Test(
    "deletes come back with the rows that they belong to, also when healing is switched on late",
    arguments: stories.indices, [true, false])
  func deletes(story: Int, isLate: Bool) async throws {
    let fleet = try Fleet(schema: Self.schema, principals: "principal: \"anna\"")
    try await fleet.start()
    let a = try fleet.device("a", recovery: isLate ? "heal: \"off\"" : "")
    let b = try fleet.device("b", recovery: "heal: \"off\"")
    try await a.write("INSERT INTO area (id) VALUES ('1'), ('2'), ('3')")
    try await a.write("INSERT INTO site VALUES ('s1', '1', 'c1'), ('s2', '2', 'c2'), ('s3', '3', NULL)")
    try await a.write("INSERT INTO leaf VALUES ('l1', 's1'), ('l2', 's2'), ('l3', 's3')")
    try await synchronize([a, b], times: 2)
    try await fleet.backup("noon")
    for statement in Self.stories[story].statements {
      try await a.write(statement)
      try await synchronize([a])
    }
    let before = try Self.tables.map { try fleet.serverRows($0) }
    try await fleet.restore("noon")
    var device = a
    if isLate {
      try await synchronize([a, b])
      await a.close()
      device = try fleet.device("a")
    }
    let report = try await device.sync()
    #expect(report.error == nil && report.healed > 0 && report.conflicts == 0 && report.refused == 0)
    try await synchronize([b, device], times: 2)
    #expect(try Self.tables.map { try fleet.serverRows($0) } == before)
    try fleet.expectEqual(Self.tables, [device, b])
  }

  private static let regions = """
    {
      version: 1,
      parameters: { region: "text" },
      tables: {
        area: { primaryKey: "id", columns: { id: "text", note: "text?", region: "text" },
                scope: { region: "parameter:region" }, handover: true },
      },
    }
    """

  /// Another device moved the row into what this one subscribes to, and does not come back.
  @Test(
    "what a lost commit brought into the subscriptions is given back, or is in the archive",
    arguments: ["all", "own", "off"])
  func broughtBySomebody(heal: String) async throws {
    let fleet = try Fleet(schema: Self.regions, principals: "principal: \"anna\"")
    try await fleet.start()
    let (a, b) = (try fleet.device("a"), try fleet.device("b", recovery: "heal: \"\(heal)\""))
    try await b.open().subscribe("area", ["region": .value("US")])
    try await a.write("INSERT INTO area VALUES ('1', 'x', 'EU'), ('2', 'y', 'US')")
    try await synchronize([a, b])
    try await fleet.backup("noon")
    try await a.write("UPDATE area SET note = 'moved', region = 'US' WHERE id = '1'")
    try await synchronize([a, b])
    #expect(try b.rows("area").count == 2)
    try await fleet.restore("noon")
    let report = try await b.sync()
    #expect(report.error == nil && report.recovery?.report?.counts.lost == 1)
    try await synchronize([b])
    let kept = try await b.open().errorArchive()
    let moved: [Value] = ["1", "moved", "US"]
    if heal == "all" {
      #expect(report.healed == 1 && kept.isEmpty)
      #expect(try fleet.serverRows("area").first == moved)
      #expect(try b.rows("area").count == 2)
    } else {
      #expect(kept.map(\.reason) == ["lost-on-server"])
      #expect(try fleet.serverRows("area").first == ["1", "x", "EU"])
      #expect(try b.rows("area").count == 1)
    }
  }
}
