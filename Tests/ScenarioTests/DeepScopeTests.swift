import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

@Suite("Scopes that lead through many tables (semantics 7)")
struct DeepScopeTests {
  private static let depth = 16

  /// A chain: each table's rows have the scope of those above, by reference or by value.
  private static func schema(inherits: Bool) -> String {
    let top =
      "t0: { maintained: \"server\", primaryKey: \"id\", columns: { id: \"text\", owner: \"text\" }, scope: { owner: \"principal\" } }"
    let below = (1..<depth).map { place in
      let isLast = place == depth - 1
      let lead =
        inherits
        ? "references: { above: { table: \"t\(place - 1)\", scope: \"inherit\" } }"
        : "scope: { above: \"via:t\(place - 1).id\" }"
      return
        "t\(place): { maintained: \"\(isLast ? "dual" : "server")\", primaryKey: \"id\", columns: { id: \"text\", above: \"text\", v: \"text?\" }, \(lead) }"
    }
    return "{ version: 1, tables: { \(([top] + below).joined(separator: ",\n")) } }"
  }

  @Test(
    "rows at the end of a long chain come, are written, and leave with the row at its beginning",
    arguments: [true, false])
  func chain(inherits: Bool) async throws {
    let fleet = try Fleet(schema: Self.schema(inherits: inherits))
    try await fleet.start()
    let server = try fleet.serverConnection()
    try server.execute("INSERT INTO t0 VALUES ('a', 'anna'), ('b', 'bert')")
    for place in 1..<Self.depth {
      try server.execute("INSERT INTO t\(place) (id, above) VALUES ('a', 'a'), ('b', 'b')")
    }
    let a = try fleet.device("a")
    #expect(try await a.sync().error == nil)
    let last = "t\(Self.depth - 1)"
    #expect(try a.rows(last) == [["a", "a", nil]])
    try await a.write("UPDATE \(last) SET v = 'mine'", "INSERT INTO \(last) VALUES ('c', 'a', 'new')")
    let report = try await a.sync()
    #expect(report.error == nil && report.refused == 0 && report.uploaded == 2)
    #expect(try fleet.serverRows(last) == [["a", "a", "mine"], ["b", "b", nil], ["c", "a", "new"]])
    if !inherits {
      // A write beyond the scope is refused.
      try await a.write("INSERT INTO \(last) VALUES ('d', 'b', NULL)")
      #expect(try await a.sync().refused == 1)
    }
    try server.execute("UPDATE t0 SET owner = 'bert'")
    #expect(try await a.sync().error == nil)
    #expect(try a.connection().rows("SELECT id FROM \(last) WHERE id <> 'd'").isEmpty && a.rows("t7").isEmpty)
  }
}
