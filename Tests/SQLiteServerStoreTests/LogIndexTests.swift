import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import Testing

@testable import SQLiteServerStore
@testable import ServerStoreSupport

/// An upload's cost follows the upload, not the length of the change log.
@Suite struct LogIndexTests {
  static let schema = Schema(tables: [
    Table("note", primaryKey: ["id"], columns: [Column("id", .text), Column("body", .text)]),
    Table(
      "line", primaryKey: ["visit", "number"],
      columns: [Column("visit", .integer), Column("number", .integer), Column("body", .text)]),
    Table("place", primaryKey: ["id"], columns: [Column("id", .integer), Column("body", .text)]),
  ])

  /// The catalog as the store has it.
  private func catalog(_ connection: SQLiteConnection, _ schema: Schema) throws -> Catalog {
    var installation = Installation(
      connection, ServerSetup(schema: schema), random: SystemRandom(), clock: SystemClock())
    return try connection.transaction { try installation.run() }
  }

  @Test("a row of an upload is looked up in the change log by its key, and ranges of the log are read in its own order")
  func plans() throws {
    let connection = try SQLiteConnection(try freshDatabase())
    let catalog = try catalog(connection, Self.schema)
    func plan(_ sql: String) throws -> [String] {
      try connection.rows("EXPLAIN QUERY PLAN " + sql).compactMap { $0[3].string }
    }
    for table in catalog.tables {
      let steps = try plan(ForeignChanges.lookUp(table, catalog))
      let keys = (0..<table.keyCount).map { "v\($0)=? AND " }.joined()
      let index = LogIndex.name(keyCount: table.keyCount)
      #expect(steps.contains("SEARCH c USING INDEX \(index) (t=? AND \(keys)rowid>? AND rowid<?)"), "\(steps)")
      #expect(!steps.contains { $0.contains("TEMP B-TREE") }, "\(steps)")
      let range = try plan(
        "SELECT max(seq), v0 FROM salvor_change WHERE seq > 1 AND seq <= 9 AND t = \(table.number) GROUP BY v0")
      #expect(range[0] == "SEARCH salvor_change USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)", "\(range)")
    }
    let listed = try plan("SELECT t FROM salvor_change WHERE seq > 1 AND seq <= 9 AND t IN (1, 3)")
    #expect(listed[0] == "SEARCH salvor_change USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)", "\(listed)")
  }

  @Test("one row on an old commit costs the same whatever was written since, in its table or in others")
  func costFollowsTheUpload() async throws {
    let desk = try await ServerDesk(Self.schema)
    let device = try await desk.device()
    let other = try desk.other()
    try other.execute(
      """
      WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
      INSERT INTO note (id, body) SELECT 'n' || i, 'a' FROM n;
      """)
    let head = try await desk.store.sweep()
    try other.execute("UPDATE note SET body = 'b' WHERE id <> 'n7'; UPDATE note SET body = 'c' WHERE id = 'n8'")
    _ = try await desk.store.sweep()
    let connection = try desk.other()
    let catalog = try catalog(connection, Self.schema)
    let note = try #require(catalog.place(of: "note"))
    let last = try CommitLog.state(connection).lastSequence
    var foreign = try ForeignChanges(connection, catalog, besides: device.remote, last: last)
    func isNewer(_ id: String) throws -> Bool {
      try foreign.isNewer(
        RowHash(table: "note").adding([.text(Array(id.utf8))]), than: head.number,
        at: ForeignChanges.Place(table: note, key: [.text(Array(id.utf8))]))
    }
    #expect(try !isNewer("n7"))
    #expect(try isNewer("n8"))
    #expect(try isNewer("n9"))
    #expect(try !isNewer("none"))
    #expect(foreign.entriesRead <= 4)

    // The same through the front door.
    let results = try await desk.uploaded(
      device, [.update("note", ["n7"], [("body", "a", "mine")]), .update("note", ["n8"], [("body", "a", "mine")])],
      made: head.number)
    #expect(results.acceptedRequests == 2)
    // The client's value of n8 stands, and the one that lost is listed.
    #expect(results.conflicts == 1)
    #expect(try other.rows("SELECT id, body FROM note WHERE id IN ('n7', 'n8')") == [["n7", "mine"], ["n8", "mine"]])
  }

  @Test("many rows on an old commit read the log once, and not for each row")
  func manyRows() async throws {
    let desk = try await ServerDesk(Self.schema)
    let device = try await desk.device()
    try desk.other().execute(
      """
      WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
      INSERT INTO place (id, body) SELECT i, 'a' FROM n;
      """)
    let head = try await desk.store.sweep()
    try desk.other().execute("UPDATE place SET body = 'b'")
    _ = try await desk.store.sweep()
    let connection = try desk.other()
    let catalog = try catalog(connection, Self.schema)
    let place = try #require(catalog.place(of: "place"))
    var foreign = try ForeignChanges(
      connection, catalog, besides: device.remote, last: try CommitLog.state(connection).lastSequence)
    for id in 1...3000 {
      let key: Key = [.integer(Int64(id))]
      #expect(
        try foreign.isNewer(
          RowHash(table: "place").adding(key), than: head.number, at: ForeignChanges.Place(table: place, key: key)))
    }
    #expect(foreign.entriesRead < 2 * 3000)
  }

  @Test("looking a row up and reading the log agree, whoever wrote, made, deleted and moved it", arguments: 1...20)
  func agree(_ seed: Int) async throws {
    var random = SeededNumbers(seed: UInt64(seed))
    let desk = try await ServerDesk(Self.schema)
    let devices = [try await desk.device("anna"), try await desk.device("ben")]
    let other = try desk.other()
    func key() -> Int64 { Int64(random.next() % 6) }
    for _ in 0..<30 {
      let id = key()
      switch random.next() % 7 {
      case 0: try other.execute("INSERT OR REPLACE INTO line VALUES (\(id % 2), \(id), 'o\(random.next() % 3)')")
      case 1: try other.execute("UPDATE line SET body = 'u\(random.next() % 100)' WHERE number = \(id)")
      case 2: try other.execute("DELETE FROM line WHERE number = \(id)")
      case 3: try other.execute("UPDATE OR REPLACE line SET number = \(key()) WHERE number = \(id)")
      case 4: _ = try await desk.store.sweep()
      default:
        let device = devices[Int(random.next() % 2)]
        let row: Key = [.integer(id % 2), .integer(id)]
        let body = "d\(random.next() % 100)"
        let change: HandChange =
          switch random.next() % 3 {
          case 0: .insert("line", [("visit", row[0]), ("number", row[1]), ("body", .text(Array(body.utf8)))])
          case 1: .update("line", row, [("body", "x", .text(Array(body.utf8)))])
          default: .delete("line", row)
          }
        _ = try await desk.uploaded(device, [change], made: Int64(random.next() % 20))
      }
    }
    let head = try await desk.store.sweep()
    let connection = try desk.other()
    let catalog = try catalog(connection, Self.schema)
    let line = try #require(catalog.place(of: "line"))
    let last = try CommitLog.state(connection).lastSequence
    for device in devices {
      for made in 0...head.number {
        // New ones each time: what was read on an older commit is known on a newer one.
        var read = try ForeignChanges(connection, catalog, besides: device.remote, last: last, readAtOnce: .max / 2)
        var lookedUp = try ForeignChanges(connection, catalog, besides: device.remote, last: last, readAtOnce: -1000)
        for number in Int64(0)..<6 {
          let row: Key = [.integer(number % 2), .integer(number)]
          let place = ForeignChanges.Place(table: line, key: row)
          let hash = RowHash(table: "line").adding(row)
          #expect(try read.isNewer(hash, than: made, at: place) == lookedUp.isNewer(hash, than: made, at: place))
          #expect(
            try read.newestWrite(of: hash, after: made, at: place)
              == lookedUp.newestWrite(of: hash, after: made, at: place))
        }
      }
    }
  }

  @Test("the indexes follow the schema: a table that comes or goes makes them anew, and nothing else does")
  func followSchema() async throws {
    let desk = try await ServerDesk(Schema(tables: [Self.schema.tables[0]]))
    func indexes() throws -> [String] {
      try desk.other().rows(
        "SELECT name || ' ' || rootpage FROM sqlite_schema WHERE name GLOB 'salvor_change_key_*' ORDER BY name"
      ).compactMap { $0[0].string }
    }
    let before = try indexes()
    #expect(before.map { $0.prefix(19) } == ["salvor_change_key_1"])
    try await desk.restart()
    #expect(try indexes() == before)
    await desk.store.close()
    _ = try await desk.store.open(ServerSetup(schema: Self.schema))
    #expect(try indexes().map { $0.prefix(19) } == ["salvor_change_key_1", "salvor_change_key_2"])
    try desk.other().execute("INSERT INTO line VALUES (1, 1, 'x')")
    #expect(try desk.other().rows("PRAGMA integrity_check") == [["ok"]])
  }
}

/// The same numbers for the same seed.
private struct SeededNumbers {
  private var state: UInt64
  init(seed: UInt64) { state = seed &* 0x9E37_79B9_7F4A_7C15 | 1 }

  mutating func next() -> UInt64 {
    state ^= state << 13
    state ^= state >> 7
    state ^= state << 17
    return state >> 11
  }
}
