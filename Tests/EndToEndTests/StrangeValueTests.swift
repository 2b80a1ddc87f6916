import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// Names and values at the edges: each travels from a device to the server and to another device unchanged.
@Suite struct StrangeValueTests {
  static let columnNames = (0..<200).map { "c\($0)" }

  static let schema = """
    {
      version: 1,
      tables: {
        'the "odd" table': { primaryKey: ["größe", "order"],
          columns: { "größe": "text", order: "integer", "select": "text?", "it's": "real?", "Ⅷ 列": "blob?" } },
        tree: { primaryKey: "id", columns: { id: "text", parent: "text?" }, references: { parent: "tree" } },
        wide: { primaryKey: "id", columns: { id: "text", \(columnNames.map { "\($0): \"text?\"" }.joined(separator: ", ")) } },
        empty: { primaryKey: "id", columns: { id: "text" } },
      },
    }
    """
  static let tables = ["the \"odd\" table", "tree", "wide", "empty"]

  @Test(
    "Odd names, 64-bit integers, infinities, NaN, blobs, broken UTF-8, composite keys, self-references, 200 columns")
  func oddThingsTravelUnchanged() async throws {
    let place = try Workspace(schema: StrangeValueTests.schema)
    let url = try await place.server.start()
    let anna = try place.device("anna", url: url)
    let ben = try place.device("ben", url: url)
    try await anna.sync()
    let connection = try anna.sqlite()
    let odd = #"INSERT INTO "the ""odd"" table" VALUES (?, ?, ?, ?, ?)"#
    let rows: [[Value]] = [
      ["max", .integer(.max), nil, nil, nil],
      ["max", .integer(.min), nil, nil, nil],
      ["2^53", 9_007_199_254_740_993, "\u{0}\u{1}\"\\\n\t\u{2028}😀", .real(.infinity), .blob([])],
      ["", 0, "", .real(-.infinity), .blob([0, 255, 0])],
      ["nan", 1, nil, .real(.nan), .blob([UInt8](repeating: 0xAB, count: 3_000_000))],
      ["tiny", 2, .text([0xC3, 0x28, 0xFF, 0x00]), .real(.leastNonzeroMagnitude), nil],
      ["zero", 3, .text([UInt8](repeating: 0x61, count: 2_000_000)), .real(-0.0), nil],
      ["e\u{301}", 4, "decomposed", .real(0.1), nil], ["\u{e9}", 4, "composed", .real(1e300), nil],
    ]
    for row in rows { try connection.run(odd, row) }
    try connection.execute(
      """
      PRAGMA foreign_keys = OFF;
      INSERT INTO tree VALUES ('child', 'root'), ('root', NULL), ('self', 'self'), ('grandchild', 'child');
      INSERT INTO wide (id, c0, c199) VALUES ('w1', 'first', 'last'), ('w2', NULL, NULL);
      """)
    #expect(try await anna.sync()["refused"] == 0)
    try await ben.sync()
    let all = try contents(anna.database, StrangeValueTests.tables)
    #expect(all["the \"odd\" table"]?.count == rows.count)
    #expect(all["tree"]?.count == 4)
    #expect(all["empty"]?.isEmpty == true)
    #expect(try contents(place.server.database, StrangeValueTests.tables) == all)
    #expect(try contents(ben.database, StrangeValueTests.tables) == all)
    try ben.sqlite().execute(
      #"""
      UPDATE "the ""odd"" table" SET "order" = "order" - 1, "it's" = NULL WHERE "größe" = 'max' AND "order" > 0;
      UPDATE wide SET c100 = 'middle';
      DELETE FROM tree WHERE id = 'grandchild';
      """#)
    #expect(try await ben.sync()["refused"] == 0)
    try await anna.sync()
    let after = try contents(ben.database, StrangeValueTests.tables)
    #expect(after != all)
    #expect(try contents(place.server.database, StrangeValueTests.tables) == after)
    #expect(try contents(anna.database, StrangeValueTests.tables) == after)
    for file in [anna.database, ben.database, place.server.database] { #expect(try damage(file) == []) }
  }
}
