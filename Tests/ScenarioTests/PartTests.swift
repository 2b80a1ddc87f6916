import GzipCompression
import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

/// Of rows that a device has the columns that were changed come (decision 103).
@Suite("Parts of rows: what has changed travels, and every device has the server's rows")
struct PartTests {
  private static let schema = """
    {
      version: 1,
      tables: {
        item: { maintained: "dual", primaryKey: "id",
                columns: { id: "text", a: "text", b: "text", c: "integer", d: "real", e: "text?", f: "text?", g: "integer?",
                           h: "text?", quantity: "integer" } },
      },
    }
    """

  private func fleet() async throws -> Fleet {
    let fleet = try Fleet(schema: Self.schema, serverOptions: "authentication: { module: \"none\" },")
    try await fleet.start()
    try fleet.serverConnection().execute(
      """
      WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
      INSERT INTO item SELECT lower(hex(randomblob(16))), hex(randomblob(8)), hex(randomblob(6)), abs(random() % 100000), i / 7.0,
        hex(randomblob(10)), 'note ' || (random() % 1000), random() % 1000000, NULL, i FROM n
      """)
    return fleet
  }

  /// Of rows at `places`, as the log counts them.
  private func update(_ fleet: Fleet, _ set: String, where condition: String) throws {
    try fleet.serverConnection().execute("UPDATE item SET \(set) WHERE \(condition)")
  }

  @Test("100 updates of one column in rows of ten are at most 4 KB on the wire, and 0.4 of the whole rows")
  func bytes() async throws {
    let fleet = try await fleet()
    let device = try fleet.device("one") { $0.compressions = [GzipCompression()] }
    #expect(try await device.sync().error == nil)
    try update(fleet, "quantity = quantity + 10000", where: "quantity % 20 = 0")
    let part = try await device.sync()
    #expect(part.error == nil)
    #expect(part.upserts == 100)
    // Every column: the rows come whole.
    try update(
      fleet,
      "a = a || 'x', b = b || 'x', c = c + 1, d = d + 1, e = e || 'x', f = f || 'x', g = g + 1, h = 'h', quantity = quantity + 10000",
      where: "quantity > 10000")
    let whole = try await device.sync()
    #expect(whole.upserts == 100)
    #expect(part.bytesReceived <= 4096, "\(part.bytesReceived) bytes of parts")
    #expect(
      Double(part.bytesReceived) <= 0.4 * Double(whole.bytesReceived), "\(part.bytesReceived) of \(whole.bytesReceived)"
    )
    try fleet.expectEqual(["item"], [device])
  }

  @Test("devices that write one another's rows in other columns come to rest with the server's rows")
  func amongDevices() async throws {
    let fleet = try await fleet()
    let one = try fleet.device("one"), two = try fleet.device("two")
    for device in [one, two] { #expect(try await device.sync().error == nil) }
    for round in 0..<4 {
      try await one.write("UPDATE item SET a = 'one \(round)' WHERE quantity <= 20")
      try await two.write("UPDATE item SET b = 'two \(round)', g = \(round) WHERE quantity BETWEEN 10 AND 30")
      try update(fleet, "e = 'server \(round)', a = 'server \(round)'", where: "quantity BETWEEN 15 AND 40")
      if round == 2 { try await one.write("DELETE FROM item WHERE quantity = 12") }
      #expect(try await one.sync().error == nil)
      if round == 1 { try update(fleet, "f = NULL", where: "quantity BETWEEN 5 AND 25") }
      #expect(try await two.sync().error == nil)
    }
    for device in [one, two, one] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(["item"], [one, two])
    #expect(try await two.sync().upserts == 0)
  }

  @Test("a device that lacks a row of which a part comes gets the rows whole, in the same synchronization")
  func lacking() async throws {
    let fleet = try await fleet()
    let device = try fleet.device("one")
    #expect(try await device.sync().error == nil)
    await device.close()
    // A fault that nothing has noticed: the row is gone, and no trigger has seen it.
    let connection = try device.connection()
    let triggers = try connection.rows(
      "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'item'")
    for trigger in triggers { try connection.execute("DROP TRIGGER \(quoted(trigger[0].string ?? ""))") }
    try connection.execute("DELETE FROM item WHERE quantity = 7")
    for trigger in triggers { try connection.execute(trigger[1].string ?? "") }
    connection.close()
    try update(fleet, "a = 'new'", where: "quantity IN (7, 8)")
    #expect(try await device.sync().error == nil)
    try fleet.expectEqual(["item"], [device])
  }
}
