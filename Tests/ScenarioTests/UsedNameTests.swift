import SalvorModel
import SalvorStorage
import Testing

/// Names that mean something already when a schema gives them to something else (semantics 3 and 6).
@Suite("A schema gives a name that is used already")
struct UsedNameTests {
  private static func schema(_ version: Int, _ columns: String, _ table: String = "area: {") -> String {
    "{ version: \(version), tables: { \(table) primaryKey: \"id\", columns: { id: \"text\", \(columns) } } } }"
  }

  private func fleet() async throws -> (Fleet, [Device]) {
    let fleet = try Fleet(schema: Self.schema(1, "note: \"text?\""))
    try await fleet.start()
    let devices = try ["a", "b"].map { try fleet.device($0) }
    try await devices[0].write("INSERT INTO area VALUES ('1', 'one'), ('2', 'two'), ('3', 'three')")
    try await synchronize(devices)
    return (fleet, devices)
  }

  private func rows(_ devices: [Device], _ columns: String, of table: String = "area") throws -> [[[Value]]] {
    try devices.map { try $0.connection().rows("SELECT \(columns) FROM \(table) ORDER BY id") }
  }

  @Test(
    "what an application wrote to a column of its own is a change of the synchronized one that gets the name",
    arguments: ["ALTER TABLE area ADD COLUMN remark TEXT", "ALTER TABLE area RENAME COLUMN note TO remark"])
  func ownColumn(_ statement: String) async throws {
    let (fleet, devices) = try await fleet()
    try devices[0].connection().execute(statement)
    #expect(try await devices[0].sync().error == nil)
    try await devices[0].write("UPDATE area SET remark = 'mine' WHERE id = '2'")
    fleet.schemaText = Self.schema(2, "remark: { type: \"text?\", renamedFrom: \"note\" }")
    try await fleet.restart()
    let report = try await devices[0].sync()
    #expect(report.error == nil && report.uploaded == 1)
    #expect(report.notices.contains { $0.contains("area.remark") })
    try await synchronize(devices, times: 2)
    let wanted: [[Value]] = [["one"], ["mine"], ["three"]]
    #expect(try rows(devices, "remark") == [wanted, wanted])
    #expect(try fleet.serverRows("area").map { [$0[1]] } == wanted)
    await fleet.stop()
  }

  @Test("a table of the application's own is not taken for a synchronized one that gets its name; nothing is lost")
  func ownTable() async throws {
    let (fleet, devices) = try await fleet()
    try devices[0].connection().execute(
      "CREATE TABLE place (id TEXT PRIMARY KEY NOT NULL, note TEXT); INSERT INTO place VALUES ('9', 'own')")
    try await devices[0].write("UPDATE area SET note = 'mine' WHERE id = '2'")
    fleet.schemaText = Self.schema(2, "note: \"text?\"", "place: { renamedFrom: \"area\",")
    try await fleet.restart()
    let report = try await devices[0].sync()
    #expect(report.recovery?.reason == .schemaIncompatible)
    let said = "\(report.notices) \(report.error?.message ?? "")"
    #expect(said.contains("place is a table of the application's own"))
    #expect(try rows([devices[0]], "note", of: "place") == [[["own"]]])
    #expect(try rows([devices[0]], "note") == [[["one"], ["mine"], ["three"]]])
    // The way out that it names.
    try devices[0].connection().execute("ALTER TABLE place RENAME TO place_of_mine")
    let token = try #require(report.recovery?.token)
    let strategy = "recover-unsynced-changes"
    let recovered = try await devices[0].open().recover(strategy: strategy, token: token)
    #expect(recovered.error == nil, "\(String(describing: recovered.error))")
    try await synchronize(devices, times: 2)
    #expect(try rows(devices, "note", of: "place")[0] == [["one"], ["mine"], ["three"]])
    #expect(try rows([devices[0]], "note", of: "place_of_mine") == [[["own"]]])
    // Asked once more with the same token, as by a double tap: nothing is recovered again.
    let again = try await devices[0].open().recover(strategy: "recreate", token: token)
    #expect(again.error?.code == .usage && again.recovery == nil)
    await fleet.stop()
  }

  @Test("the server refuses a name that its database has already, by name")
  func takenAtTheServer() async throws {
    let (fleet, _) = try await fleet()
    try fleet.serverConnection().execute("ALTER TABLE area ADD COLUMN remark TEXT; CREATE TABLE place (id TEXT)")
    await fleet.stop()
    for (schema, name) in [
      (Self.schema(2, "remark: { type: \"text?\", renamedFrom: \"note\" }"), "area.remark"),
      (Self.schema(2, "note: \"text?\"", "place: { renamedFrom: \"area\","), "place"),
    ] {
      fleet.schemaText = schema
      let error = await #expect(throws: SalvorError.self) { try await fleet.start() }
      #expect(error?.code == .schemaRefused && error?.message.contains("has \(name) already") == true)
    }
    #expect(try fleet.serverConnection().rows("SELECT note FROM area ORDER BY id").first == ["one"])
  }

  @Test("a column that was dropped and stands there still is not taken for one that gets its name")
  func droppedAtTheServer() async throws {
    let (fleet, devices) = try await fleet()
    fleet.schemaText = Self.schema(2, "n: \"text?\"", "area: { dropped: [\"note\"],")
    try await fleet.restart()
    try await synchronize(devices)
    await fleet.stop()
    fleet.schemaText = Self.schema(3, "note: { type: \"text?\", renamedFrom: \"n\" }")
    let error = await #expect(throws: SalvorError.self) { try await fleet.start() }
    #expect(error?.code == .schemaRefused && error?.message.contains("area.note") == true)
  }

  @Test("an old name that a new column gets says nothing of what was written under it")
  func oldNameForANewColumn() async throws {
    let (fleet, devices) = try await fleet()
    fleet.schemaText = Self.schema(2, "remark: { type: \"text?\", renamedFrom: \"note\" }")
    try await fleet.restart()
    try await synchronize(devices)
    try await devices[0].write("UPDATE area SET remark = 'new' WHERE id = '1'")
    try await synchronize([devices[0]])
    fleet.schemaText = Self.schema(3, "remark: \"text?\", note: \"text?\"")
    try await fleet.restart()
    try await synchronize(devices)
    try await devices[0].write("UPDATE area SET note = 'second' WHERE id = '1'")
    try await synchronize(devices, times: 2)
    #expect(try rows(devices, "remark, note").allSatisfy { $0[0] == ["new", "second"] })
    try fleet.expectEqual(["area"], devices)
    await fleet.stop()
  }
}
