import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

@Suite("A table that the server has renamed, on a device whose schema file has its old name")
struct FormerNameTests {
  /// The server has site under the name place, and the device follows with its first synchronization after that.
  private func followed(_ limits: String = "") async throws -> (Fleet, Device) {
    let fleet = try Fleet(serverOptions: "authentication: { module: \"none\" }, \(limits)")
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site VALUES ('s1', 'Harbour Kitchen', NULL, 40)")
    let device = try fleet.device("a") {
      $0.limits.chunkBytesTarget = 4096
      $0.limits.singleRoundTripBytesMax = 1024
      $0.limits.attemptsMax = 1
    }
    #expect(try await device.sync().error == nil)
    fleet.schemaText = EvolutionTests.renamed
    try await fleet.restart()
    #expect(try await device.sync().error == nil)
    return (fleet, device)
  }

  @Test("a conflict version of which the schema has dropped a column is resolved with the others")
  func resolvedWithoutADroppedColumn() async throws {
    let keeping = Fleet.visits.replacing(
      "seats: \"integer = 0\" } },", with: "seats: \"integer = 0\" }, conflicts: \"keep-versions\" },")
    let fleet = try Fleet(schema: keeping)
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site VALUES ('s1', 'one', 'Bern', 1)")
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await a.write("UPDATE site SET name = 'a', city = 'A'")
    try await b.write("UPDATE site SET name = 'b', city = 'B'")
    #expect(try await a.sync().error == nil)
    #expect(try await b.sync().conflicts == 1)
    fleet.schemaText = keeping.replacing("version: 1", with: "version: 2")
      .replacing("city: \"text?\", ", with: "").replacing(
        "conflicts: \"keep-versions\"", with: "conflicts: \"keep-versions\", dropped: [\"city\"]")
    try await fleet.restart()
    #expect(try await fleet.server?.engine.resolveConflict(1, keep: .client, by: "o").count == 1)
    #expect(try fleet.serverConnection().rows("SELECT name FROM site") == [["b"]])
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    #expect(try a.connection().rows("SELECT name FROM site") == [["b"]])
    await fleet.stop()
  }

  @Test("a synchronization names the rows that it wrote by their keys, and a whole table by the name that it has here")
  func changedKeys() async throws {
    let (fleet, device) = try await followed()
    try fleet.serverConnection().execute("UPDATE place SET title = 'new' WHERE id = 's1'")
    #expect(try await device.sync().changes == [TableChange(table: "place", keys: [["s1"]])])
    await fleet.stop()
  }

  @Test("a row that is too large for the server is refused alone there, too")
  func largeRows() async throws {
    let (fleet, device) = try await followed(
      "limits: { chunkBytesMax: 16384, chunkBytesTarget: 16384, singleRoundTripBytesMax: 16384, rowBytesMax: 8192 },")
    try await device.write(
      "INSERT INTO place (id, title) VALUES ('s2', printf('%.40000c', 'x'))",
      "INSERT INTO place (id, title) VALUES ('s3', 'small')")
    let report = try await device.sync()
    #expect(report.error == nil && (report.uploaded, report.refused) == (1, 1), "\(String(describing: report.error))")
    #expect(try fleet.serverRows("place").map { $0[0] } == ["s1", "s3"])
    await fleet.stop()
  }
}
