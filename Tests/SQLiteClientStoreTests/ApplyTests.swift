import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// What applying does to tables that an application shares (semantics 2 and 4).
@Suite struct ApplyTests {
  @Test(
    "what an application's trigger writes while a request is withdrawn is undone, in the row itself, too",
    arguments: [
      "UPDATE note SET seen = seen + 1 WHERE id = NEW.id", "UPDATE note SET title = title || 'x' WHERE id = NEW.id",
    ])
  func undoesTriggersOfWithdrawals(_ body: String) async throws {
    var bench = try await StoreBench(
      Schema(tables: [
        Table(
          "note", primaryKey: ["id"],
          columns: [Column("id", .text), Column("title", .text), Column("seen", .integer, defaultValue: 0)])
      ]))
    _ = try await bench.download(full: ["note"], [("note", ["a", "1", 0]), ("note", ["b", "1", 0])])
    try bench.write("CREATE TRIGGER mine AFTER UPDATE OF title ON note WHEN length(NEW.title) = 1 BEGIN \(body); END")
    await bench.store.close()
    _ = try await bench.store.open(ClientSetup(schema: bench.schema, principal: "anna"))
    try bench.write("UPDATE note SET title = '2' WHERE id = 'a'")
    while let request = try await bench.store.requests(in: [.queued], after: nil, limit: 1).first {
      _ = try await bench.store.remove(.withdraw(request.id))
    }
    #expect(try bench.read("SELECT * FROM note ORDER BY id") == [["a", "1", 0], ["b", "1", 0]])
    // In a download, too, onto a row with a request of its own.
    try bench.write("UPDATE note SET seen = 5 WHERE id = 'a'")
    _ = try await bench.download([("note", ["a", "9", 0])])
    #expect(try bench.read("SELECT * FROM note ORDER BY id") == [["a", "9", 5], ["b", "1", 0]])
    #expect(try await bench.store.status().queued == 1)
  }

  static let seats = Schema(tables: [
    Table(
      "seat", primaryKey: ["id"],
      columns: [Column("id", .text), Column("place", .integer, nullable: true), Column("note", .text, nullable: true)],
      unique: [["place"]])
  ])

  static let family = Schema(tables: [
    Table("parent", primaryKey: ["id"], columns: [Column("id", .text), Column("name", .text, nullable: true)]),
    Table(
      "child", primaryKey: ["id"], columns: [Column("id", .text), Column("p", .text)],
      references: [Reference(column: "p", table: "parent", onDelete: .cascade)]),
    Table(
      "draft", maintained: .client, primaryKey: ["id"],
      columns: [Column("id", .text), Column("p", .text, nullable: true)],
      references: [Reference(column: "p", table: "parent")]),
  ])

  @Test func swappedUniqueValuesAreAppliedAndRowidsKept() async throws {
    var bench = try await StoreBench(Self.seats)
    _ = try await bench.download([("seat", ["a", 1, nil]), ("seat", ["b", 2, nil]), ("seat", ["c", 3, nil])])
    let before = try bench.read("SELECT rowid, id FROM seat ORDER BY id")
    let report = try await bench.download([
      ("seat", ["a", 2, nil]), ("seat", ["b", 3, nil]), ("seat", ["c", 1, nil]),
    ])
    #expect(report.displaced.isEmpty)
    #expect(try bench.read("SELECT id, place FROM seat ORDER BY id") == [["a", 2], ["b", 3], ["c", 1]])
    #expect(try bench.read("SELECT rowid, id FROM seat ORDER BY id") == before)
    #expect(try await bench.store.status().queued == 0)
  }

  @Test("a row that something is in the way of is there after a download of the whole table, too")
  func swappedUniqueValuesInAWholeTable() async throws {
    var bench = try await StoreBench(Self.seats)
    _ = try await bench.download([("seat", ["a", 1, nil]), ("seat", ["b", 2, nil]), ("seat", ["c", 3, nil])])
    _ = try await bench.download(full: ["seat"], [("seat", ["a", 2, nil]), ("seat", ["b", 1, nil])])
    #expect(try bench.read("SELECT id, place FROM seat ORDER BY id") == [["a", 2], ["b", 1]])
    #expect(try bench.isWhole())
  }

  @Test func aNewRowDoesNotTakeTheRowidOfOneThatIsWrittenAgain() async throws {
    var bench = try await StoreBench(Self.seats)
    _ = try await bench.download([("seat", ["a", 1, nil]), ("seat", ["b", 2, nil])])
    // b is removed to make room for a, c comes new, b is written again.
    let report = try await bench.download([
      ("seat", ["a", 2, nil]), ("seat", ["c", 1, nil]), ("seat", ["b", 3, nil]),
    ])
    #expect(report.displaced.isEmpty)
    #expect(
      try bench.read("SELECT rowid, id, place FROM seat ORDER BY 1") == [[1, "a", 2], [2, "b", 3], [3, "c", 1]])
  }

  @Test func aParentWrittenAnewTakesNoChildAlong() async throws {
    var bench = try await StoreBench(Self.family)
    _ = try await bench.download([("parent", ["p", "x"]), ("child", ["c", "p"])])
    _ = try await bench.download([("parent", ["p", "y"])])
    #expect(try bench.read("SELECT * FROM child") == [["c", "p"]])
    #expect(try bench.read("SELECT * FROM parent") == [["p", "y"]])
    #expect(try bench.isWhole())
  }

  @Test func aRowThatReferencesNothingIsLeftOutAndTheRestIsApplied() async throws {
    var bench = try await StoreBench(Self.family)
    _ = try await bench.download([("parent", ["p", "x"])])
    let report = try await bench.download([("parent", ["p", "y"]), ("child", ["c", "none"])])
    #expect(report.leftOut == 1)
    #expect(report.notices.contains { $0.contains("The row [c] of child was left out") })
    #expect(try bench.read("SELECT * FROM parent") == [["p", "y"]])
    #expect(try bench.read("SELECT * FROM child") == [])
    #expect(try await bench.store.status().state.groups[0].cursor?.number == 2)
    #expect(try bench.isWhole())
  }

  @Test func clientOnlyRowsAreKeptAsideAndComeBack() async throws {
    var bench = try await StoreBench(Self.family)
    _ = try await bench.download([("parent", ["p", "x"])])
    try bench.write("INSERT INTO draft VALUES ('d', 'p')")
    _ = try await bench.download(deleted: [("parent", ["p"])])
    #expect(try bench.read("SELECT * FROM draft") == [])
    #expect(try bench.isWhole())
    _ = try await bench.download([("parent", ["p", "again"])])
    #expect(try bench.read("SELECT * FROM draft") == [["d", "p"]])
  }

  @Test func theApplicationsTriggersFireAndWhatTheyWriteIsUndone() async throws {
    let schema = Schema(tables: [
      Table("t", primaryKey: ["id"], columns: [Column("id", .text), Column("v", .integer, nullable: true)]),
      Table("total", primaryKey: ["id"], columns: [Column("id", .text), Column("n", .integer)]),
    ])
    var bench = try await StoreBench(
      schema,
      sql: """
        CREATE TABLE t (id TEXT NOT NULL PRIMARY KEY, v INTEGER);
        CREATE TABLE total (id TEXT NOT NULL PRIMARY KEY, n INTEGER NOT NULL);
        CREATE TABLE words (id TEXT);
        CREATE TRIGGER a AFTER INSERT ON t BEGIN INSERT INTO words VALUES (NEW.id); UPDATE total SET n = n + 1; END;
        CREATE TRIGGER b AFTER UPDATE ON t WHEN NEW.v < 100 BEGIN UPDATE t SET v = 1000 + NEW.v WHERE id = NEW.id; END;
        """)
    _ = try await bench.download([("total", ["all", 5]), ("t", ["x", 1])])
    _ = try await bench.download([("t", ["x", 2]), ("t", ["y", 3])])
    #expect(try bench.read("SELECT * FROM t ORDER BY id") == [["x", 2], ["y", 3]])
    #expect(try bench.read("SELECT * FROM total") == [["all", 5]])
    #expect(try bench.read("SELECT * FROM words ORDER BY id") == [["x"], ["y"]])
    #expect(try await bench.store.status().queued == 0)
    // An application's own write still reaches both.
    try bench.write("INSERT INTO t VALUES ('z', 9)")
    #expect(try bench.read("SELECT n FROM total") == [[6]])
    #expect(try await bench.store.status().queued == 2)
  }

  @Test("what the application's triggers write to a row of which a part came is undone, in whichever column")
  func undoesTriggersBesideAPart() async throws {
    let schema = Schema(tables: [
      Table(
        "t", primaryKey: ["id"],
        columns: [
          Column("id", .text), Column("v", .integer), Column("w", .integer), Column("x", .text, nullable: true),
        ]),
      Table("total", primaryKey: ["id"], columns: [Column("id", .text), Column("n", .integer), Column("name", .text)]),
    ])
    var bench = try await StoreBench(
      schema,
      sql: """
        CREATE TABLE t (id TEXT NOT NULL PRIMARY KEY, v INTEGER NOT NULL, w INTEGER NOT NULL, x TEXT);
        CREATE TABLE total (id TEXT NOT NULL PRIMARY KEY, n INTEGER NOT NULL, name TEXT NOT NULL);
        CREATE TABLE words (id TEXT);
        CREATE TRIGGER a AFTER UPDATE OF v ON t WHEN NEW.v < 100
          BEGIN UPDATE t SET w = w + 1, v = 1000 + NEW.v WHERE id = NEW.id; UPDATE total SET n = n + 1; END;
        CREATE TRIGGER b AFTER UPDATE OF v ON t WHEN NEW.v < 100 BEGIN INSERT INTO words VALUES (NEW.id); END;
        """)
    _ = try await bench.download(
      full: ["t", "total"], [("total", ["all", 5, "one"]), ("t", ["p", 1, 1, "x"]), ("t", ["q", 1, 1, "y"])])
    let parts: [(table: String, values: [(String, Value)])] = [
      ("total", [("id", "all"), ("name", "two")]), ("t", [("id", "p"), ("v", 2)]), ("t", [("id", "q"), ("v", 3)]),
      ("t", [("id", "p"), ("v", 4)]), ("t", [("id", "q"), ("x", "z")]),
    ]
    _ = try await bench.download(parts: parts)
    #expect(try bench.read("SELECT * FROM t ORDER BY id") == [["p", 4, 1, "x"], ["q", 3, 1, "z"]])
    #expect(try bench.read("SELECT * FROM total") == [["all", 5, "two"]])
    #expect(try await bench.store.status().queued == 0)
    // Over a request of the device's own, too.
    try bench.write("UPDATE t SET x = 'mine' WHERE id = 'p'")
    _ = try await bench.download(parts: [("t", [("id", "p"), ("v", 5)]), ("t", [("id", "q"), ("v", 6)])])
    #expect(try bench.read("SELECT * FROM t ORDER BY id") == [["p", 5, 1, "mine"], ["q", 6, 1, "z"]])
    #expect(try await bench.store.status().queued == 1)
    // What is there as it came fires nothing.
    let words = try bench.read("SELECT count(*) FROM words")
    _ = try await bench.download(parts: [("t", [("id", "q"), ("v", 6)])])
    #expect(try bench.read("SELECT count(*) FROM words") == words)
  }

  @Test func twoDevicesAndOneUniqueValueLeaveTheBase() async throws {
    var bench = try await StoreBench(Self.seats)
    try bench.write("INSERT INTO seat VALUES ('mine', 7, 'keep me')")
    let report = try await bench.download([("seat", ["theirs", 7, nil])])
    #expect(report.displaced.count == 1)
    #expect(try bench.read("SELECT id FROM seat") == [["theirs"]])
    let entry = try #require(try await bench.store.requests(in: [.displaced], after: nil, limit: 10).first)
    #expect(entry.after.contains(NamedValue("note", "keep me")))
    _ = try await bench.download([("seat", ["theirs", 8, nil])])
    #expect(try bench.read("SELECT id, note FROM seat ORDER BY id") == [["mine", "keep me"], ["theirs", nil]])
    #expect(try await bench.store.status().queued == 1)
  }

  @Test func versionsAreKeptForWhatIsNewerThanTheSnapshotOnly() async throws {
    var bench = try await StoreBench(Self.seats)
    _ = try await bench.download([("seat", ["a", 1, nil]), ("seat", ["b", 2, nil])], versioned: false)
    #expect(try bench.read("SELECT count(*) FROM salvor_history") == [[0]])
    _ = try await bench.download([("seat", ["a", 5, nil])], deleted: [("seat", ["b"])])
    #expect(
      try bench.read("SELECT v0, version, deleted FROM salvor_history ORDER BY id") == [["a", 2, 0], ["b", 2, 1]])
    #expect(
      try bench.read("SELECT \"key\", dirty, version FROM salvor_row_state ORDER BY 1") == [["a", 0, 2], ["b", 0, 2]])
  }

  @Test func aTableThatComesWholeLosesWhatDoesNotCome() async throws {
    var bench = try await StoreBench(Self.seats)
    _ = try await bench.download([("seat", ["a", 1, nil]), ("seat", ["b", 2, nil]), ("seat", ["c", 3, nil])])
    try bench.write("INSERT INTO seat VALUES ('new', 9, NULL); DELETE FROM seat WHERE id = 'c'")
    let report = try await bench.download(full: ["seat"], [("seat", ["b", 4, nil])])
    #expect(report.displaced.isEmpty)
    #expect(try bench.read("SELECT id, place FROM seat ORDER BY id") == [["b", 4], ["new", 9]])
    #expect(try await bench.store.status().queued == 2)
  }
}
