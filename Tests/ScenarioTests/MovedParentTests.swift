import SalvorModel
import Testing

/// A schema moves a table that others reference into a group of its own, and a row and its parent are written before a device hears of it.
@Suite("Rows whose parents a schema has moved to another group")
struct MovedParentTests {
  private static func schema(_ version: Int, _ group: String) -> String {
    """
    { version: \(version), groups: { others: {} }, tables: {
        area: { \(group) primaryKey: "id", columns: { id: "text", n: "text?" } },
        site: { primaryKey: "id", columns: { id: "text", area_id: "text?" }, references: { area_id: "area" } } } }
    """
  }

  @Test("come with one synchronization, and no notice names them as left out")
  func oneSynchronization() async throws {
    let fleet = try Fleet(schema: Self.schema(1, ""))
    try await fleet.start()
    let device = try fleet.device("a")
    #expect(try await device.sync().error == nil)
    try await device.write("INSERT INTO area VALUES ('1', 'x')", "INSERT INTO site VALUES ('1', '1')")
    #expect(try await device.sync().error == nil)
    fleet.schemaText = Self.schema(2, "group: \"others\",")
    try await fleet.restart()
    try fleet.serverConnection().execute("INSERT INTO area VALUES ('2', 'x'); INSERT INTO site VALUES ('2', '2')")
    let report = try await device.sync()
    #expect(report.error == nil && report.notices == [], "\(report.notices)")
    try fleet.expectEqual(["area", "site"], [device])
    #expect(try await device.sync().roundTrips == 1)
    await fleet.stop()
  }
}
