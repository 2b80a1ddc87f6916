import SalvorClientEngine
import SalvorModel
import Testing

@Suite("salvor verify on a device that has not followed its server's schema yet")
struct VerifyFollowingTests {
  private func changed() async throws -> (Fleet, Device) {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site VALUES ('s1', 'Harbour Kitchen', NULL, 40)")
    let device = try fleet.device("a")
    #expect(try await device.sync().error == nil)
    fleet.schemaText = EvolutionTests.renamed
    try await fleet.restart()
    return (fleet, device)
  }

  @Test("it compares a renamed table under its new name, whether it was named or not", arguments: [true, false])
  func renamed(isNamed: Bool) async throws {
    let (fleet, device) = try await changed()
    let report = try await device.open().verify(tables: isNamed ? ["site"] : nil)
    #expect(report.tables.first { $0.name == "place" }?.rows == 1)
    #expect(report.tables.count == (isNamed ? 1 : 3) && report.remaining == 0)
    await fleet.stop()
  }

  @Test("a table that is in none of the groups that were named is named with its group")
  func otherGroup() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let device = try fleet.device("a")
    #expect(try await device.sync().error == nil)
    let error = await #expect(throws: SalvorError.self) {
      try await device.open().verify(groups: ["reference"], tables: ["site"])
    }
    #expect(error?.code == .usage && error?.message.contains("in the group \"visits\"") == true)
    await fleet.stop()
  }

  @Test("of a dropped table it says that it is not compared")
  func dropped() async throws {
    let (fleet, device) = try await changed()
    fleet.schemaText = """
      { version: 3, dropped: ["severity", "visit"], groups: { visits: {} }, tables: {
          place: { renamedFrom: "site", maintained: "dual", group: "visits", primaryKey: "id",
                   columns: { id: "text", title: { type: "text", renamedFrom: "name" }, city: "text?", seats: "integer = 0" } } } }
      """
    try await fleet.restart()
    let error = await #expect(throws: SalvorError.self) { try await device.open().verify(tables: ["severity"]) }
    #expect(error?.code == .usage && error?.message.contains("dropped the table severity") == true)
    #expect(try await device.open().verify().tables.map(\.name) == ["place"])
    await fleet.stop()
  }
}
