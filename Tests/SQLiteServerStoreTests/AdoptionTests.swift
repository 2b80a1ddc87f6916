import Foundation
import SQLiteServerStore
import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

/// Existing databases, damaged ones, and ones that were put back.
@Suite struct AdoptionTests {
  static let note = Schema(tables: [
    Table(
      "no\"te ü", primaryKey: ["i d"],
      columns: [Column("i d", .text), Column("t'x", .text, nullable: true), Column("when", .timestamp, nullable: true)])
  ])
  static let existing = """
    CREATE TABLE "no""te ü" ("i d" TEXT NOT NULL PRIMARY KEY, "own" DEFAULT 7, "t'x" TEXT, "when" TEXT);
    INSERT INTO "no""te ü" ("i d", "t'x") VALUES ('n1', 'a'), ('n2', NULL);
    CREATE TABLE another (x);
    """

  @Test("an existing database is adopted: its rows are commit 0, columns no schema names are left alone (semantics 6)")
  func adopts() async throws {
    let desk = try await ServerDesk(Self.note, before: Self.existing)
    #expect(desk.opening.adoptedRows == 2)
    #expect(desk.opening.createdTables == [])
    let device = try await desk.device()
    #expect(try await device.download() == ["full no\"te ü", "no\"te ü n1 a null", "no\"te ü n2 null null"])
    #expect(device.groups[0].cursor == Commit(number: 0, id: CommitID(unchecked: desk.opening.serverID.text)))
    let results = try await desk.uploaded(
      device,
      [
        .update("no\"te ü", ["n1"], [("t'x", "a", "b")]),
        .insert("no\"te ü", [("i d", "n3"), ("t'x", "c"), ("when", .null)]),
      ])
    #expect(results.acceptedRequests == 2)
    let rows = try desk.other().rows("SELECT * FROM \"no\"\"te ü\" ORDER BY 1")
    #expect(rows == [["n1", 7, "b", .null], ["n2", 7, .null, .null], ["n3", 7, "c", .null]])
    // The application's own column is nobody's change.
    try desk.other().execute("UPDATE \"no\"\"te ü\" SET own = 8")
    #expect(try await device.download() == [])
  }

  @Test(
    "a delete does not cascade to rows that the device did not see, where the schema does not declare it, either, and the operator is told (semantics 7)"
  )
  func undeclaredCascade() async throws {
    let desk = try await ServerDesk(
      Schema(tables: [
        Table("item", primaryKey: ["id"], columns: [Column("id", .text)]),
        Table("part", primaryKey: ["id"], columns: [Column("id", .text), Column("item", .text, nullable: true)]),
        Table("loose", primaryKey: ["id"], columns: [Column("id", .text)]),
      ]),
      before: """
        CREATE TABLE item (id TEXT NOT NULL PRIMARY KEY);
        CREATE TABLE part (id TEXT NOT NULL PRIMARY KEY, item TEXT REFERENCES Item ON DELETE CASCADE);
        CREATE TABLE loose (id TEXT NOT NULL PRIMARY KEY, own TEXT REFERENCES item (id) ON DELETE SET NULL);
        INSERT INTO item VALUES ('a'), ('b'), ('c'), ('d');
        INSERT INTO part VALUES ('p', 'a'), ('q', 'b'); INSERT INTO loose VALUES ('l', 'd');
        """)
    #expect(desk.log.all.contains { $0.contains("part.item is ON DELETE CASCADE to item") }, "\(desk.log.all)")
    #expect(desk.log.all.contains { $0.contains("loose.own is ON DELETE SET NULL to item") }, "\(desk.log.all)")
    let device = try await desk.device()
    try await device.download()
    let results = try await desk.uploaded(
      device,
      [
        .delete("item", ["a"]), .delete("item", ["c"]), .delete("part", ["q"]), .delete("item", ["b"]),
        .delete("item", ["d"]),
      ])
    #expect(results.refused.map(\.reason) == [.conflict, .conflict], "\(results.refused)")
    #expect(try desk.other().rows("SELECT id FROM item ORDER BY id") == [["a"], ["d"]])
    #expect(try desk.other().rows("SELECT id, own FROM loose") == [["l", "d"]])
    #expect(try desk.other().rows("SELECT id FROM part") == [["p"]])
  }

  @Test(
    "a referenced key with a collation of its own is adopted with a notice; a row that names its parent in other letters is refused by name"
  )
  func foldedKeys() async throws {
    let schema = Schema(tables: [
      Table("t", primaryKey: ["id"], columns: [Column("id", .text)]),
      Table(
        "k", primaryKey: ["id"], columns: [Column("id", .text), Column("t_id", .text, nullable: true)],
        references: [Reference(column: "t_id", table: "t")]),
    ])
    let desk = try await ServerDesk(
      schema,
      before:
        "CREATE TABLE t (id TEXT NOT NULL COLLATE NOCASE PRIMARY KEY); CREATE TABLE k (id TEXT NOT NULL PRIMARY KEY, t_id TEXT REFERENCES t (id)); INSERT INTO t VALUES ('Berlin'); INSERT INTO k VALUES ('1', 'Berlin')"
    )
    #expect(desk.log.all.contains { $0.contains("t.id has a collation of its own") })
    try desk.other().execute("INSERT INTO k VALUES ('2', 'berlin')")
    await #expect {
      try await desk.restart()
    } throws: { "\($0)".contains("k.t_id") && "\($0)".contains("in 1 rows") }
  }

  @Test("a DATETIME column for timestamp is named at each start, with what fits")
  func numericTimestamps() async throws {
    let schema = Schema(tables: [
      Table("t", primaryKey: ["id"], columns: [Column("id", .text), Column("made", .timestamp, nullable: true)])
    ])
    let desk = try await ServerDesk(schema, before: "CREATE TABLE t (id TEXT NOT NULL PRIMARY KEY, made DATETIME)")
    func named() -> Int {
      desk.log.all.count {
        $0.contains("t.made is DATETIME in the server's table") && $0.contains("Declare the column TEXT")
      }
    }
    #expect(named() == 1, "\(desk.log.all)")
    try await desk.restart()
    #expect(named() == 2, "\(desk.log.all)")
  }

  @Test("a table that joins the schema later with rows brings its group whole; an empty one brings nothing")
  func laterTable() async throws {
    let desk = try await ServerDesk(Schema(tables: [Table("a", primaryKey: ["id"], columns: [Column("id", .text)])]))
    let device = try await desk.device()
    try await device.download()
    await desk.store.close()
    try desk.other().execute("CREATE TABLE b (id TEXT NOT NULL PRIMARY KEY); INSERT INTO b VALUES ('old')")
    let more = Schema(
      tables: desk.schema.tables + [
        Table("b", primaryKey: ["id"], columns: [Column("id", .text)]),
        Table("c", primaryKey: ["id"], columns: [Column("id", .text)]),
      ])
    let opening = try await desk.store.open(ServerSetup(schema: more))
    #expect(opening.createdTables == ["c"])
    #expect(opening.adoptedRows == 1)
    #expect(try await device.download() == ["full a,b,c", "b old"])
    #expect(try await device.download() == [])
  }

  @Test("triggers that another program dropped are put back while the server runs; the group is fed whole")
  func droppedTriggers() async throws {
    let desk = try await ServerDesk(Self.note, before: Self.existing)
    let device = try await desk.device()
    try await device.download()
    let other = try desk.other()
    try other.execute("DROP TRIGGER salvor_1_ad; DELETE FROM \"no\"\"te ü\" WHERE \"i d\" = 'n1'")
    _ = try await desk.store.admit(AdmissionQuery(remote: device.remote, previous: nil, current: nil, cursors: []))
    #expect(try await device.download() == ["full no\"te ü", "no\"te ü n2 null null"])
    #expect(desk.log.all.count == 1)
    try other.execute("DELETE FROM \"no\"\"te ü\"")
    #expect(try await device.download() == ["-no\"te ü n2"])
  }

  @Test("a database put back from a backup is known at once, and never repeats a history (semantics 6)")
  func restored() async throws {
    let desk = try await ServerDesk(Self.note, before: Self.existing)
    let device = try await desk.device()
    _ = try await desk.uploaded(device, [.delete("no\"te ü", ["n1"])])
    try await device.download()
    let kept = try #require(device.groups[0].cursor)
    await desk.store.close()
    try FileManager.default.copyItem(atPath: desk.path, toPath: desk.path + ".backup")
    try await desk.restart()
    #expect(!desk.opening.isRestored)
    _ = try await desk.uploaded(device, [.delete("no\"te ü", ["n2"])])
    try await device.download()
    let lost = try #require(device.groups[0].cursor)
    await desk.store.close()
    for suffix in ["", "-wal", "-shm"] { try? FileManager.default.removeItem(atPath: desk.path + suffix) }
    try FileManager.default.copyItem(atPath: desk.path + ".backup", toPath: desk.path)
    try await desk.restart()
    #expect(desk.opening.isRestored)
    // It writes on: the same number, another commit.
    try desk.other().execute("INSERT INTO \"no\"\"te ü\" (\"i d\") VALUES ('n9')")
    let admission = try await desk.store.admit(
      AdmissionQuery(remote: device.remote, previous: nil, current: nil, cursors: [kept, lost], commits: [lost, kept]))
    #expect(admission.cursors == [.known, .unknown])
    #expect(admission.lastShared == kept)
    #expect(admission.head.number == lost.number)
    try await desk.restart()
    #expect(!desk.opening.isRestored)
  }

  @Test("a download that began in a lost state cannot go on")
  func lostPosition() async throws {
    let desk = try await ServerDesk(Self.note, before: Self.existing)
    let device = try await desk.device()
    await desk.store.close()
    try FileManager.default.copyItem(atPath: desk.path, toPath: desk.path + ".backup")
    try await desk.restart()
    try desk.other().execute("UPDATE \"no\"\"te ü\" SET \"t'x\" = 'later'")
    let page = try await desk.store.page(
      PageRequest(
        remote: device.remote, principal: device.principal, groups: device.groups, position: nil, bytesTarget: 1))
    await desk.store.close()
    for suffix in ["", "-wal", "-shm"] { try? FileManager.default.removeItem(atPath: desk.path + suffix) }
    try FileManager.default.copyItem(atPath: desk.path + ".backup", toPath: desk.path)
    try await desk.restart()
    await #expect(throws: SalvorError.self) {
      _ = try await desk.store.page(
        PageRequest(
          remote: device.remote, principal: device.principal, groups: device.groups, position: page.position,
          bytesTarget: 1))
    }
  }

  @Test("a file that is no database is storage-corrupt, and stays as it is")
  func corrupt() async throws {
    let path = try freshDatabase()
    let bytes = Data(repeating: 0x2A, count: 8192)
    try bytes.write(to: URL(fileURLWithPath: path))
    let store = SQLiteServerStore(path: path)
    let error = await #expect(throws: SalvorError.self) { try await store.open(ServerSetup(schema: Self.note)) }
    #expect(error?.code == .storageCorrupt)
    #expect(try Data(contentsOf: URL(fileURLWithPath: path)) == bytes)
  }

  @Test("another program's long transaction: storage-busy, nothing lost, and it works afterwards")
  func busy() async throws {
    let desk = try await ServerDesk(Self.note, before: Self.existing, busyTimeoutMilliseconds: 50)
    let device = try await desk.device()
    let other = try desk.other()
    try other.execute("BEGIN IMMEDIATE; UPDATE \"no\"\"te ü\" SET \"t'x\" = 'theirs' WHERE \"i d\" = 'n2'")
    let change = HandChange.update("no\"te ü", ["n1"], [("t'x", "a", "b")])
    let error = await #expect(throws: SalvorError.self) { try await desk.uploaded(device, [change]) }
    #expect(error?.code == .storageBusy)
    #expect(error?.isRetryable == true)
    // Readers are not kept waiting.
    #expect(try await device.download().count == 3)
    try other.execute("COMMIT")
    #expect(try await desk.uploaded(device, [change]).acceptedRequests == 1)
    #expect(try await desk.store.rows(of: "no\"te ü") == [["n1", "b", .null], ["n2", "theirs", .null]])
  }

  @Test("scope inheritance in a circle is refused by name")
  func circle() async throws {
    let store = SQLiteServerStore(path: try freshDatabase())
    let schema = Schema(tables: [
      Table(
        "t", primaryKey: ["id"], columns: [Column("id", .text), Column("up", .text, nullable: true)],
        references: [Reference(column: "up", table: "t", inheritsScope: true)])
    ])
    let error = await #expect(throws: SalvorError.self) { try await store.open(ServerSetup(schema: schema)) }
    #expect(error?.code == .schemaRefused)
    #expect(error?.message.contains("t.up") == true)
  }
}
