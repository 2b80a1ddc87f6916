import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// One statement may change one row more than once: by a foreign key's action, or by a trigger of the application's. What came
/// of it is captured, in whatever order SQLite fires the triggers (semantics 3).
@Suite struct CaptureOrderTests {
  private static let tree = Schema(tables: [
    Table(
      "s", primaryKey: ["id"], columns: [Column("id", .text), Column("up", .text, nullable: true)],
      references: [Reference(column: "up", table: "s")])
  ])
  private static let treeSQL =
    "CREATE TABLE s (id TEXT NOT NULL PRIMARY KEY, up TEXT REFERENCES s (id) ON UPDATE CASCADE)"

  private func requests(_ bench: StoreBench) async throws -> [QueuedRequest] {
    try await bench.store.requests(in: [.queued], after: nil, limit: 100)
  }

  @Test("a key change that changes its own row by ON UPDATE CASCADE is a delete and an insert of what is there")
  func keyOfARowThatReferencesItself() async throws {
    var bench = try await StoreBench(Self.tree, sql: Self.treeSQL)
    _ = try await bench.download([("s", ["b", "b"]), ("s", ["d", "b"])])
    try bench.write("UPDATE s SET id = 'c' WHERE id = 'b'")
    let (text, session) = try await bench.uploadText()
    #expect(session.notices == [])
    #expect(text.contains(#","c","c"]"#))
    try await bench.accept(session)
    #expect(try bench.read("SELECT * FROM s ORDER BY id") == [["c", "c"], ["d", "c"]])
    #expect(try bench.read("SELECT count(*) FROM salvor_moving") == [[0]])
    // The next one, while nothing waits and while something does.
    try bench.write("UPDATE s SET id = 'e' WHERE id = 'c'; UPDATE s SET id = 'f' WHERE id = 'e'")
    #expect(try await requests(bench).map(\.operation).contains(.insert))
    let again = try await bench.uploadText()
    #expect(again.text.contains(#","f","f"]"#))
  }

  @Test(
    "an UPDATE OR REPLACE whose cascade takes the updated row along is the delete of both rows",
    arguments: ["label = '1'", "id = 'p'"], [(false, false), (false, true), (true, false)])
  func removedWithItsParent(set: String, way: (isQueued: Bool, isOpenedAgain: Bool)) async throws {
    let schema = Schema(tables: [
      Table(
        "node", primaryKey: ["id"],
        columns: [Column("id", .text), Column("up", .text, nullable: true), Column("label", .text, nullable: true)],
        references: [Reference(column: "up", table: "node", onDelete: .cascade)], unique: [["label"]])
    ])
    var bench = try await StoreBench(schema)
    if way.isQueued {
      try bench.write("INSERT INTO node VALUES ('p', NULL, '1'), ('k', 'p', '2'), ('z', NULL, '9')")
    } else {
      _ = try await bench.download([("node", ["p", nil, "1"]), ("node", ["k", "p", "2"]), ("node", ["z", nil, "9"])])
    }
    try bench.write("UPDATE OR REPLACE node SET \(set) WHERE id = 'k'")
    #expect(try bench.read("SELECT id FROM node") == [["z"]])
    if way.isOpenedAgain {
      await bench.store.close()
      _ = try await bench.store.open(ClientSetup(schema: schema, principal: "anna"))
    }
    let (_, session) = try await bench.uploadText()
    #expect(session.notices == [])
    let sent = try await bench.store.requests(in: [.sent], after: nil, limit: 100)
    #expect(sent.map(\.key).suffix(2) == [["k"], ["p"]] && sent.map(\.operation).suffix(2) == [.delete, .delete])
    #expect(Set(sent.suffix(2).map(\.id)).count == 1)
    try await bench.accept(session)
    #expect(try bench.read("SELECT id FROM node") == [["z"]])
  }

  @Test(
    "a row that a newer trigger of the application's tries to insert again is found by comparing",
    arguments: ["INSERT OR IGNORE INTO s VALUES (NEW.id, NULL)", "INSERT OR REPLACE INTO s VALUES (NEW.id, NEW.id)"],
    [false, true])
  func insertedAgainByATrigger(statement: String, isSynchronized: Bool) async throws {
    var bench = try await StoreBench(Self.tree, sql: Self.treeSQL)
    if isSynchronized { _ = try await bench.download([("s", ["b", nil])]) }
    try bench.write(
      """
      CREATE TRIGGER app AFTER INSERT ON s WHEN NEW.up IS NULL BEGIN \(statement); END;
      INSERT INTO s VALUES ('n', NULL)
      """)
    let (text, session) = try await bench.uploadText()
    #expect(try await bench.store.notes().contains { $0.text.contains("the table is compared") })
    if isSynchronized {
      #expect(try bench.read("SELECT name FROM salvor_unproven") == [["s"]])
      #expect(session.upload == nil)
    } else {
      #expect(text.contains("\"n\","))
    }
    // Salvor's triggers are the newest again.
    try bench.write("INSERT INTO s VALUES ('m', NULL)")
    let queued = try await requests(bench)
    #expect(queued.contains { $0.key == ["m"] && $0.operation == .insert })
  }

  @Test("a trigger of a child's that writes to the parent while its key changes is part of the key change")
  func childTriggerDuringAKeyChange() async throws {
    var bench = try await StoreBench(
      Schema(tables: [
        Table("p", primaryKey: ["id"], columns: [Column("id", .text), Column("n", .integer, nullable: true)]),
        Table(
          "c", primaryKey: ["id"], columns: [Column("id", .text), Column("p", .text, nullable: true)],
          references: [Reference(column: "p", table: "p")]),
      ]),
      sql: """
        CREATE TABLE p (id TEXT NOT NULL PRIMARY KEY, n INTEGER);
        CREATE TABLE c (id TEXT NOT NULL PRIMARY KEY, p TEXT REFERENCES p (id) ON UPDATE CASCADE);
        CREATE TRIGGER app AFTER UPDATE OF p ON c BEGIN UPDATE p SET n = coalesce(n, 0) + 1 WHERE id = NEW.p; END;
        """)
    _ = try await bench.download([("p", ["a", 1]), ("c", ["x", "a"])])
    try bench.write("UPDATE p SET id = 'b' WHERE id = 'a'")
    let (text, session) = try await bench.uploadText()
    #expect(session.notices == [])
    #expect(text.contains(#","b",2]"#))
  }

  @Test(
    "triggers that fire before Salvor's: the row's changes are one, the table is compared, and a note names it",
    arguments: ["CREATE TRIGGER", "CREATE TEMP TRIGGER"])
  func triggersThatFireFirst(create: String) async throws {
    var bench = try await StoreBench(ApplyTests.seats)
    _ = try await bench.download([("seat", ["old", 9, "base"]), ("seat", ["back", 8, "base"])])
    try bench.write(
      """
      \(create) app_insert AFTER INSERT ON seat WHEN NEW.note IS NULL BEGIN UPDATE seat SET note = 'stamped' WHERE id = NEW.id; END;
      \(create) app_gone AFTER INSERT ON seat WHEN NEW.note = 'never' BEGIN DELETE FROM seat WHERE id = NEW.id; END;
      \(create) app_update AFTER UPDATE OF place ON seat WHEN NEW.place = 0 BEGIN DELETE FROM seat WHERE id = NEW.id; END;
      \(create) app_delete AFTER DELETE ON seat WHEN OLD.id = 'back' BEGIN INSERT INTO seat VALUES ('back', 8, 'resurrected'); END;
      INSERT INTO seat VALUES ('a', 1, NULL); INSERT INTO seat VALUES ('n', 2, 'never');
      UPDATE seat SET place = 0 WHERE id = 'old'; DELETE FROM seat WHERE id = 'back';
      """)
    let found = try await requests(bench)
    #expect(found.map(\.operation) == [.insert, .delete, .update])
    #expect(found.map(\.key) == [["a"], ["old"], ["back"]])
    #expect(found[0].after.map(\.value) == ["a", 1, "stamped"])
    #expect(found[1].before.map(\.value) == ["old", 9, "base"])
    #expect(found[2].before.map(\.value) == ["base"])
    #expect(found[2].after.map(\.value) == ["resurrected"])
    let session = try await bench.store.beginSession(groups: nil)
    await bench.store.endSession()
    #expect(session.state.remoteID == (try await bench.store.status().state.remoteID))
    #expect(
      try await bench.store.notes().contains {
        $0.text.hasPrefix("seat: a trigger of the application's wrote to 4 rows")
      })
    #expect(try bench.read("SELECT name FROM salvor_unproven") == [["seat"]])
    #expect(try bench.read("SELECT id FROM seat ORDER BY id") == [["a"], ["back"]])
  }

  @Test(
    "copies that a statement leaves beside a table stay of use where the table gets a column", arguments: [false, true])
  func copiesOfBefore(isRemoved: Bool) async throws {
    var node = Table(
      "node", primaryKey: ["id"],
      columns: [Column("id", .text), Column("up", .text, nullable: true), Column("label", .text, nullable: true)],
      references: [Reference(column: "up", table: "node", onDelete: .cascade)], unique: [["label"]])
    var bench = try await StoreBench(Schema(tables: [node]))
    _ = try await bench.download([("node", ["p", nil, "1"]), ("node", ["k", "p", "2"]), ("node", ["z", nil, "9"])])
    // An upsert, or a REPLACE that takes along the row which it updates.
    try bench.write(
      isRemoved
        ? "UPDATE OR REPLACE node SET label = '1' WHERE id = 'k'"
        : "INSERT INTO node VALUES ('z', NULL, '8') ON CONFLICT (id) DO UPDATE SET label = excluded.label")
    #expect(try bench.read("SELECT count(*) FROM salvor_pending_1") != [[0]])
    node.columns.append(Column("note", .text, defaultValue: "-"))
    _ = try await bench.store.adopt(SyncConfig(Schema(tables: [node])))
    #expect(
      try bench.read("SELECT id, note FROM node ORDER BY id")
        == (isRemoved ? [["z", "-"]] : [["k", "-"], ["p", "-"], ["z", "-"]]))
    #expect(try await bench.store.requests(in: [.queued], after: nil, limit: 100).count == (isRemoved ? 2 : 1))
  }

  // MARK: In the middle of a session

  private static let notes = Schema(tables: [
    Table("n", primaryKey: ["id"], columns: [Column("id", .text), Column("v", .text, nullable: true)])
  ])
  private static let again =
    "CREATE TRIGGER app AFTER INSERT ON n WHEN NEW.v <> 'made' BEGIN DELETE FROM n WHERE id = NEW.id; INSERT INTO n VALUES (NEW.id, 'made'); END"

  @Test("what a REPLACE removed while a device synchronizes is not taken for what triggers wrote to a download's rows")
  func removedDuringASession() async throws {
    let schema = Schema(tables: [
      Table(
        "node", primaryKey: ["id"],
        columns: [Column("id", .text), Column("up", .text, nullable: true), Column("label", .text, nullable: true)],
        references: [Reference(column: "up", table: "node", onDelete: .cascade)], unique: [["label"]])
    ])
    var bench = try await StoreBench(schema)
    _ = try await bench.download([("node", ["p", nil, "1"]), ("node", ["k", "p", "2"]), ("node", ["z", nil, "9"])])
    _ = try await bench.store.beginSession(groups: nil)
    try bench.write("UPDATE OR REPLACE node SET label = '1' WHERE id = 'k'")
    _ = try await bench.download([("node", ["z", nil, "8"])])
    #expect(try bench.read("SELECT * FROM node") == [["z", nil, "8"]])
    #expect(try await requests(bench).map(\.key) == [["k"], ["p"]])
    #expect(try await requests(bench).allSatisfy { $0.operation == .delete })
  }

  @Test(
    "a trigger that an application makes while its device synchronizes, and that deletes and inserts rows again, ends no session"
  )
  func madeDuringASession() async throws {
    var bench = try await StoreBench(Self.notes)
    _ = try await bench.download([("n", ["a", "one"]), ("n", ["b", "two"])])
    try bench.write("UPDATE n SET v = 'mine' WHERE id = 'a'")
    let session = try await bench.store.beginSession(groups: nil)
    // The upload's row, a clean one and a new one.
    try bench.write(
      "\(Self.again); DELETE FROM n WHERE id = 'a'; INSERT INTO n VALUES ('a', 'x'), ('c', 'y'); REPLACE INTO n VALUES ('b', 'z')"
    )
    let chunk = try await bench.store.uploadChunk(after: 0, bytesTarget: 1 << 20)
    #expect(chunk.map { String(decoding: $0.bytes, as: UTF8.self) }?.contains("\"a\"") == true)
    let upload = try #require(session.upload)
    let commit = Commit(number: 100, id: CommitID(unchecked: String(repeating: "b", count: 32)))
    _ = try await bench.store.settle(
      sequence: upload.sequence, results: UploadResults(commit: commit, acceptedRequests: 1, refused: []))
    // What triggers write beside the rows that come is undone, in whatever order they fire.
    try bench.write(
      "CREATE TRIGGER more AFTER INSERT ON n WHEN NEW.v = 'four' BEGIN INSERT INTO n VALUES (NEW.id || '2', 'z'); END")
    _ = try await bench.download([("n", ["d", "four"]), ("n", ["b", "later"])])
    await bench.store.endSession()
    #expect(
      try bench.read("SELECT * FROM n WHERE id <> 'b' ORDER BY id") == [["a", "made"], ["c", "made"], ["d", "four"]])
    #expect(try await bench.store.notes().contains { $0.text.contains("the table is compared") })
    #expect(Set(try await requests(bench).map(\.key)).isSuperset(of: [["a"], ["c"]]))
    #expect(try await requests(bench).allSatisfy { $0.key != ["d"] } && bench.isWhole())
  }
}
