import SQLiteSupport
import SalvorModel
import Testing

/// What was sent is in the file again, as if it had not been (semantics 11.1).
@Suite("A device's file is put back from a copy, with a queue that was sent")
struct CopiedDeviceTests {
  /// `Fleet.visits` without `site.city` and the table `visit`.
  private static let shorter = """
    {
      version: 2, dropped: ["visit"],
      groups: { reference: {}, visits: {} },
      tables: {
        severity: { maintained: "server", group: "reference", primaryKey: "id",
                    columns: { id: "integer", name: "text" } },
        site: { maintained: "dual", group: "visits", primaryKey: "id", dropped: ["city"],
                columns: { id: "text", name: "text", seats: "integer = 0" } },
        draft: { maintained: "client", primaryKey: "id", columns: { id: "text", body: "text?" } },
      },
    }
    """

  @Test(
    "the schema drops a column and a table that its requests wrote: they are not applied a second time",
    arguments: [false, true])
  func dropped(isKnown: Bool) async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site VALUES ('s1', 'one', 'Toronto', 40), ('s2', 'two', NULL, 12)")
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await a.write(
      "UPDATE site SET name = 'mine', city = 'Ottawa' WHERE id = 's1'",
      "INSERT INTO site (id, name, city) VALUES ('s3', 'three', 'Hull')", "UPDATE site SET seats = 13 WHERE id = 's2'",
      "INSERT INTO salvor_request (tag) VALUES ('both')", "UPDATE site SET seats = 14 WHERE id = 's2'",
      "INSERT INTO visit (id, site_id) VALUES ('v1', 's2')", "DELETE FROM salvor_request")
    await a.close()
    try copyDatabase(a.path, to: a.path + ".copy")
    #expect(try await a.sync().uploaded == 4)
    await a.close()
    // The others go on, and the schema, too.
    #expect(try await b.sync().error == nil)
    try await b.write(
      "UPDATE site SET name = 'later' WHERE id = 's1'", "DELETE FROM site WHERE id = 's3'",
      "UPDATE site SET seats = 99 WHERE id = 's2'")
    #expect(try await b.sync().uploaded == 3)
    fleet.schemaText = Self.shorter
    try await fleet.restart()
    try copyDatabase(a.path + ".copy", to: a.path)
    let c = isKnown ? try fleet.device("c", schema: Self.shorter) : a
    if isKnown { try copyDatabase(a.path + ".copy", to: c.path) }
    for _ in 0..<3 { #expect(try await c.sync().error == nil) }
    let rows: [[Value]] = [["s1", "later", 40], ["s2", "two", 99]]
    let onServer = try fleet.serverConnection().rows("SELECT id, name, seats FROM site ORDER BY id")
    #expect(onServer == rows)
    #expect(try c.rows("site") == rows)
    #expect(try c.connection().rows("SELECT 1 FROM salvor_queue").isEmpty)
    // What is made from here on is another request.
    try await c.write("UPDATE site SET name = 'again' WHERE id = 's1'")
    #expect(try await c.sync().uploaded == 1)
    #expect(try fleet.serverConnection().scalar("SELECT name FROM site WHERE id = 's1'") == "again")
  }

  @Test(
    "what the server may have settled and no longer remembers is in the archive as outcome-unknown, and what others deleted is not lost (semantics 9, client-rewound)",
    arguments: [false, true])
  func olderThanMemory(isKnown: Bool) async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site VALUES ('s1', 'one', NULL, 40), ('s2', 'two', NULL, 12), ('s3', 'three', NULL, 3)")
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    try await a.write("INSERT INTO site (id, name) VALUES ('s4', 'four')")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await a.write("UPDATE site SET seats = 41 WHERE id = 's1'", "INSERT INTO site (id, name) VALUES ('s5', 'five')")
    await a.close()
    try copyDatabase(a.path, to: a.path + ".copy")
    #expect(try await a.sync().uploaded == 2)
    await a.close()
    #expect(try await b.sync().error == nil)
    try await b.write("UPDATE site SET seats = 99 WHERE id = 's1'", "DELETE FROM site WHERE id IN ('s3', 's4', 's5')")
    #expect(try await b.sync().error == nil)
    let rows: [[Value]] = [["s1", 99], ["s2", 12]]
    #expect(try fleet.serverConnection().rows("SELECT id, seats FROM site ORDER BY id") == rows)
    await fleet.server?.engine.trim(retentionMilliseconds: -1000)

    try copyDatabase(a.path + ".copy", to: a.path)
    let c = isKnown ? try fleet.device("c") : a
    if isKnown { try copyDatabase(a.path + ".copy", to: c.path) }
    let report = try await c.sync()
    #expect(report.recovery?.reason == .clientRewound)
    #expect(report.recovery?.report?.counts.discarded == 2)
    #expect(report.recovery?.report?.counts.lost == 0)
    for _ in 0..<2 { #expect(try await c.sync().error == nil) }
    #expect(try fleet.serverConnection().rows("SELECT id, seats FROM site ORDER BY id") == rows)
    #expect(try c.connection().rows("SELECT id, seats FROM site ORDER BY id") == rows)
    let archived = try await c.open().errorArchive()
    #expect(archived.map(\.reason) == ["outcome-unknown", "outcome-unknown"])
    #expect(Set(archived.map(\.key)) == [["s1"], ["s5"]])
    // A person who has compared the row sends it all the same.
    let entry = try #require(archived.first { $0.key == ["s1"] })
    _ = try await c.open().reapply(entry.id)
    #expect(try await c.sync().error == nil)
    #expect(try fleet.serverConnection().scalar("SELECT seats FROM site WHERE id = 's1'") == 41)
  }
}
