import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import Testing

@testable import SQLiteClientStore

/// SyncConfig is data (semantics 4): its queries stand in `salvor_sync_config`, and any SQLite library runs them.
@Suite struct SyncConfigQueryTests {
  private static let wide = (0..<640).map { Column("it's \($0)", .integer, nullable: true) }
  private static let schema = Schema(tables: [
    Table("order", primaryKey: ["id"], columns: [Column("id", .text), Column("total", .real, nullable: true)]),
    Table(
      "line's", primaryKey: ["order", "no"],
      columns: [Column("order", .text), Column("no", .integer), Column("photo", .blob, nullable: true)] + wide),
    Table("kind", maintained: .server, primaryKey: ["id"], columns: [Column("id", .blob)]),
  ])

  private func run(_ column: String, of table: String, in bench: StoreBench) throws -> JSONValue? {
    let query = try bench.read("SELECT \(column) FROM salvor_sync_config WHERE name = \(literal(table))")[0][0]
    guard let query = query.string else { return nil }
    return try JSONValue(parsing: Array((try bench.read(query)[0][0].string ?? "").utf8))
  }

  private func literal(_ text: String) -> String { "'" + text.replacing("'", with: "''") + "'" }

  @Test func theKeyQueryGivesEveryKeyAsJSON() async throws {
    let bench = try await StoreBench(Self.schema)
    #expect(try run("key_query", of: "order", in: bench) == [])
    try bench.write(
      """
      INSERT INTO "order" (id) VALUES ('a'), ('b "quoted"'); INSERT INTO "line's" ("order", no) VALUES ('a', 1), ('a', 2);
      """)
    #expect(try run("key_query", of: "order", in: bench) == ["a", "b \"quoted\""])
    #expect(try run("key_query", of: "line's", in: bench) == [["a", 1], ["a", 2]])
    #expect(try run("key_query", of: "kind", in: bench) == [])
  }

  @Test func theDirtyQueryGivesTheUnsettledRowsAlone() async throws {
    let bench = try await StoreBench(Self.schema)
    try bench.write(
      """
      INSERT INTO "order" VALUES ('a', 1.5); INSERT INTO "line's" ("order", no, photo, "it's 639") VALUES ('a', 1, x'00ff', 7)
      """)
    try await bench.accept(bench.uploadText().session)
    #expect(try run("dirty_query", of: "order", in: bench) == [])
    try bench.write(
      """
      UPDATE "order" SET total = 2.5; INSERT INTO "order" VALUES ('b', NULL); UPDATE "line's" SET "it's 0" = 3
      """)
    #expect(
      try run("dirty_query", of: "order", in: bench)?.text == #"[{"id":"a","total":2.5},{"id":"b","total":null}]"#)
    let line = try #require(try run("dirty_query", of: "line's", in: bench)?.array?.first)
    #expect(line.members?.count == 643)
    #expect(line["photo"] == "00FF")
    #expect(line["it's 0"] == 3)
    #expect(line["it's 639"] == 7)
    #expect(try run("dirty_query", of: "kind", in: bench) == nil)
    for (value, json) in [("NULL", JSONValue.null), ("x''", "")] {
      try bench.write("UPDATE \"line's\" SET photo = \(value)")
      #expect(try run("dirty_query", of: "line's", in: bench)?.array?.first?["photo"] == json)
    }
  }
}
