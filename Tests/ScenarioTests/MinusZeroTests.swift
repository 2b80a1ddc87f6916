import SalvorModel
import Testing

@Suite("-0.0, which SQLite stores as 0.0 in a column of the type REAL")
struct MinusZeroTests {
  @Test("a device whose column keeps it is told what the server made of it: both sides hold the same (semantics 4)")
  func bothSides() async throws {
    let fleet = try Fleet(
      schema:
        "{ version: 1, tables: { size: { maintained: \"dual\", primaryKey: \"id\", columns: { id: \"text\", width: \"real?\", note: \"text?\" } } } }"
    )
    try await fleet.start()
    let a = try fleet.device("a")
    let b = try fleet.device("b")
    // A column without a type keeps what it is given.
    try a.connection().execute("CREATE TABLE size (id TEXT NOT NULL PRIMARY KEY, width, note TEXT)")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await a.write("INSERT INTO size VALUES ('1', 1.5, NULL)", "INSERT INTO size VALUES ('2', -0.0, NULL)")
    #expect(try await a.sync().error == nil)
    #expect(try a.rows("size").map { $0[1] } == [1.5, 0.0])
    try await a.write("UPDATE size SET width = -0.0 WHERE id = '1'")
    #expect(try await a.sync().error == nil)
    #expect(try a.rows("size").map { $0[1] } == [0.0, 0.0])
    // In one request with others.
    try await a.write("UPDATE size SET width = 2.5")
    #expect(try await a.sync().error == nil)
    try await a.write(
      "INSERT INTO salvor_request (tag) VALUES ('both')", "UPDATE size SET width = -0.0, note = 'x'",
      "INSERT INTO size VALUES ('3', -0.0, NULL)", "DELETE FROM salvor_request")
    for device in [a, b, a] { #expect(try await device.sync().error == nil) }
    #expect(try a.rows("size").map { $0[1] } == [0.0, 0.0, 0.0])
    try fleet.expectEqual(["size"], [a, b])
    #expect(try await a.open().verify().remaining == 0)
    let idle = try await a.sync()
    #expect(idle.upserts == 0 && idle.uploaded == 0)
  }
}
