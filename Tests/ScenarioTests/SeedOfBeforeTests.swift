import SalvorClientEngine
import SalvorModel
import Testing

/// The application was made before the server's schema changed, and brings rows of that time along.
@Suite("A file of client.seed whose tables the server has changed since")
struct SeedOfBeforeTests {
  private static let before = """
    {
      version: 1,
      groups: { stock: {} },
      tables: {
        place: { maintained: "dual", group: "stock", primaryKey: "id", columns: { id: "text", name: "text", city: "text?" } },
        crate: { maintained: "dual", group: "stock", primaryKey: "id", columns: { id: "text", note: "text?" } },
      },
    }
    """

  /// A device whose schema file and `client.seed` are of before `schema`, in its first synchronization.
  private func first(_ schema: String) async throws -> (report: SyncReport, fleet: Fleet, device: Device) {
    let fleet = try Fleet(
      schema: Self.before,
      serverOptions:
        "authentication: { module: \"none\" }, snapshots: { minRows: 10, maxBehind: 100, compression: \"identity\" },")
    try await fleet.start()
    for number in 1...20 {
      try fleet.serverConnection().execute(
        "INSERT INTO place VALUES ('p\(number)', 'name', 'city'); INSERT INTO crate VALUES ('c\(number)', 'note')")
    }
    _ = try await fleet.warm()
    let seed = fleet.directory + "/seed.db"
    try copyDatabase(try fleet.snapshotFile(try #require(fleet.snapshots.first)), to: seed, companions: [""])
    fleet.schemaText = schema
    try await fleet.restart()
    let device = try fleet.device("second", schema: Self.before) { $0.seed = seed }
    return (try await device.sync(), fleet, device)
  }

  private static let changes: [String: (make: @Sendable (String) -> String, tables: [String])] = [
    "a renamed table": (
      { $0.replacing("place: {", with: "spot: { renamedFrom: \"place\",") }, ["spot", "crate"]
    ),
    "a dropped table": (
      {
        $0.replacing("version: 2,", with: "version: 2, dropped: [\"crate\"],")
          .replacing(crate, with: "")
      }, ["place"]
    ),
    "a renamed column": (
      { $0.replacing("city: \"text?\"", with: "town: { type: \"text?\", renamedFrom: \"city\" }") },
      ["place", "crate"]
    ),
    "a dropped column": (
      {
        $0.replacing(", note: \"text?\"", with: "")
          .replacing("crate: {", with: "crate: { dropped: [\"note\"],")
      }, ["place"]
    ),
  ]
  private static let crate =
    "crate: { maintained: \"dual\", group: \"stock\", primaryKey: \"id\", columns: { id: \"text\", note: \"text?\" } },"

  @Test(
    "one that was renamed or dropped comes by rows, all of them, and the sync says so", arguments: changes.keys.sorted()
  )
  func comesByRows(change: String) async throws {
    let (make, tables) = try #require(Self.changes[change])
    let (report, fleet, device) = try await first(make(Self.before.replacing("version: 1", with: "version: 2")))
    #expect(report.error == nil)
    #expect(report.snapshots == 0)
    #expect(report.notices.contains { $0.contains("client.seed") && $0.contains("renamed or dropped") })
    try fleet.expectEqual(tables, [device])
    try fleet.serverConnection().execute("UPDATE \(tables[0]) SET name = 'later' WHERE id = 'p5'")
    #expect(try await device.sync().upserts == 1)
    try fleet.expectEqual(tables, [device])
  }

  @Test("one with a column less than the server's table is taken over")
  func addedColumn() async throws {
    let (report, fleet, device) = try await first(
      Self.before.replacing("version: 1", with: "version: 2")
        .replacing("city: \"text?\"", with: "city: \"text?\", stars: \"integer = 3\""))
    #expect(report.error == nil)
    #expect(report.snapshots == 1)
    #expect(try device.connection().rows("SELECT DISTINCT stars, count(*) FROM place") == [[3, 20]])
    try fleet.expectEqual(["crate"], [device])
  }
}
