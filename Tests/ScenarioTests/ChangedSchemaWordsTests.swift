import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

@Suite("Words of a schema that changes under devices that subscribe, wait or have a file of their own")
struct ChangedSchemaWordsTests {
  private static let chosen = """
    { version: 1, parameters: { region: "text", area: "text" },
      tables: { site: { primaryKey: "id", columns: { id: "text", region: "text", area: "text = 'N'", open: "integer = 0" },
                        scope: { region: "parameter:region" } } } }
    """

  private func subscribed() async throws -> (Fleet, Device) {
    let fleet = try Fleet(schema: Self.chosen)
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site (id, region) VALUES ('s1', 'EU'), ('s2', 'US'), ('s3', 'EU')")
    let a = try fleet.device("a")
    try await a.open().subscribe("site", ["region": .value("EU")])
    #expect(try await a.sync().error == nil)
    #expect(try a.rows("site").count == 2)
    return (fleet, a)
  }

  private func change(_ fleet: Fleet, to schema: String) async throws {
    fleet.schemaText = schema
    try await fleet.restart()
  }

  @Test(
    "a subscription whose table is not chosen by anything any more says so with the rows that come, and counts for nothing"
  )
  func scopeGoes() async throws {
    let (fleet, a) = try await subscribed()
    try await change(
      fleet,
      to: Self.chosen.replacing("version: 1", "version: 2").replacing(
        ",\n                    scope: { region: \"parameter:region\" }", ""))
    for _ in 1...2 {
      let report = try await a.sync()
      #expect(report.error == nil)
      #expect(report.notices.count { $0.contains("site region=EU counts for nothing, and every row comes") } == 1)
      #expect(try a.rows("site").count == 3)
    }
    let client = try await a.open()
    #expect(try await client.subscriptions.map(\.isOutdated) == [true])
    try await client.unsubscribe("site", ["region": .value("EU")])
    #expect(try await client.emptyTargets == [])
    #expect(try await a.sync().notices == [])
    try fleet.expectEqual(["site"], [a])
  }

  @Test(
    "a subscription whose table is chosen by another parameter now says so with the rows that go, and names that parameter"
  )
  func scopeChanges() async throws {
    let (fleet, a) = try await subscribed()
    try await change(
      fleet,
      to: Self.chosen.replacing("version: 1", "version: 2").replacing(
        "scope: { region: \"parameter:region\" }", "scope: { area: \"parameter:area\" }"))
    let report = try await a.sync()
    #expect(
      report.error == nil
        && report.notices.contains { $0.contains("brings nothing") && $0.contains("subscribe by area") })
    #expect(try a.rows("site") == [])
    let client = try await a.open()
    #expect(try await client.subscriptions.map(\.isOutdated) == [true])
    try await client.unsubscribe("site", ["region": .value("EU")])
    #expect(try await client.emptyTargets == ["site"])
  }

  @Test("a device whose own schema file changed is not told that the server's did, and goes on with the file put back")
  func ownFile() async throws {
    let (fleet, a) = try await subscribed()
    await a.close()
    let changed = try fleet.device("a", schema: Self.chosen.replacing("open: \"integer = 0\"", "open: \"boolean = 0\""))
    let report = try await changed.sync()
    await changed.close()
    if let error = report.error {
      #expect(error.code == .schemaIncompatible || error.code == .recoveryRequired)
      #expect(!error.message.contains("The server's schema has changed"))
    }
    let back = try fleet.device("a", schema: Self.chosen)
    #expect(try await back.sync().error == nil)
  }

  @Test("a server whose schema makes a synchronized table client-only says that such a table does not count")
  func clientOnly() async throws {
    let (fleet, _) = try await subscribed()
    await fleet.stop()
    fleet.schemaText = Self.chosen.replacing("version: 1", "version: 2").replacing(
      "site: { primaryKey", "site: { maintained: \"client\", primaryKey"
    ).replacing(",\n                    scope: { region: \"parameter:region\" }", "")
    let error = await #expect(throws: SalvorError.self) { try await fleet.start() }
    #expect(error?.message.contains("client-only there") == true)
  }
}
