import SalvorModel
import SalvorStorage
import Testing

@Suite("Subscriptions that bring nothing, and too many of them, are told where they are made")
struct SubscriptionLimitTests {
  private func device() async throws -> (Fleet, Device) {
    let fleet = try Fleet(
      schema: """
        { version: 1, parameters: { city: "text" }, groups: { sites: {} },
          tables: { site: { maintained: "dual", group: "sites", primaryKey: "id", columns: { id: "text", city: "text" },
                            scope: { city: "parameter:city" } } } }
        """)
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site VALUES ('s1', 'c1'), ('s2', 'c2')")
    let device = try fleet.device("a")
    try await device.sync()
    return (fleet, device)
  }

  @Test("a row without a value and without a setting brings nothing, and each synchronization says so")
  func withoutValue() async throws {
    let (fleet, device) = try await device()
    #expect(try device.rows("site").count == 2)
    try await device.write(
      "INSERT INTO salvor_subscription (target, id, parameter, value) VALUES ('site', 'm', 'city', NULL)")
    for _ in 1...2 {
      let report = try await device.sync()
      #expect(report.error == nil)
      #expect(report.notices.contains { $0.contains("has neither a value nor a personalization key for city") })
    }
    #expect(try device.rows("site") == [])
    try await device.write("UPDATE salvor_subscription SET value = 'c1'")
    #expect(try await device.sync().notices == [])
    #expect(try device.rows("site") == fleet.serverRows("site").filter { $0[0] == "s1" })
  }

  @Test("a subscription beyond what a server takes is refused where it is made, and synchronizations go on")
  func tooMany() async throws {
    let (fleet, device) = try await device()
    // With their target they are as many as a server takes.
    try await device.write(
      "INSERT INTO salvor_subscription (target, id, parameter, value) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < \(9_999)) SELECT 'site', 'n' || i, 'city', 'c' || i FROM n"
    )
    let client = try await device.open()
    await #expect(throws: SalvorError.self) { try await client.subscribe("site", ["city": .value("more")]) }
    // One that is there already is none more.
    #expect(try await client.subscribe("site", ["city": .value("c1")]) == false)
    let report = try await device.sync()
    #expect(report.error == nil, "\(String(describing: report.error))")
    try fleet.expectEqual(["site"], [device])
  }
}
