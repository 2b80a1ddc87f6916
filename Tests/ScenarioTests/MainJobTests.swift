import SalvorModel
import Testing

private let tables = ["severity", "site", "visit"]

@Suite("The main job: devices and a server stay in step")
struct MainJobTests {
  /// A server with some rows, written by another program.
  private func fleet() async throws -> Fleet {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute(
      """
      INSERT INTO severity VALUES (1, 'minor'), (2, 'crucial');
      INSERT INTO site VALUES ('s1', 'Harbour Kitchen', 'Toronto', 40), ('s2', 'Corner Bakery', NULL, 12);
      INSERT INTO visit VALUES ('v1', 's1', 'floor wet', 1);
      """)
    return fleet
  }

  @Test("offline edits of two devices and the server meet: all sides have the same rows")
  func offlineEdits() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a"), b = try fleet.device("b")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(tables, [a, b])

    try await a.write(
      "INSERT INTO site(id, name) VALUES ('s3', 'New Place')",
      "INSERT INTO visit VALUES ('v2', 's3', 'first visit', 2)",
      "UPDATE site SET seats = 41 WHERE id = 's1'")
    try await b.write("UPDATE site SET city = 'Etobicoke' WHERE id = 's1'", "DELETE FROM site WHERE id = 's2'")
    try fleet.serverConnection().execute("UPDATE visit SET note = 'floor dry' WHERE id = 'v1'")

    for device in [a, b, a, b] {
      let report = try await device.sync()
      #expect(report.error == nil)
      #expect(report.refused == 0)
      #expect(report.roundTrips == 1)
    }
    try fleet.expectEqual(tables, [a, b])
    #expect(
      try fleet.serverRows("site") == [
        ["s1", "Harbour Kitchen", "Etobicoke", 41], ["s3", "New Place", nil, 0],
      ])
    #expect(try fleet.serverRows("visit") == [["v1", "s1", "floor dry", 1], ["v2", "s3", "first visit", 2]])
  }

  @Test("a second sync with nothing to do sends and writes nothing, and an accepted row is not fed back (no echo)")
  func noEcho() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    try await a.sync()
    try await a.write("UPDATE site SET seats = 99 WHERE id = 's1'")
    let first = try await a.sync()
    #expect(first.uploaded == 1)
    #expect(first.upserts == 0)
    let second = try await a.sync()
    #expect(second.uploaded == 0)
    #expect(second.upserts == 0)
    #expect(second.roundTrips == 1)
    try fleet.expectEqual(tables, [a])
  }

  @Test("the same field changed on two devices: the later upload stands (client-wins)")
  func sameField() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a"), b = try fleet.device("b")
    for device in [a, b] { try await device.sync() }
    try await a.write("UPDATE site SET name = 'From A', seats = 1 WHERE id = 's1'")
    try await b.write("UPDATE site SET name = 'From B' WHERE id = 's1'")
    for device in [a, b, a] { #expect(try await device.sync().error == nil) }
    #expect(try fleet.serverRows("site")[0] == ["s1", "From B", "Toronto", 1])
    try fleet.expectEqual(tables, [a, b])
  }

  @Test("a write to a server-maintained table is refused by the server, readable as such, and stays in its row")
  func serverMaintained() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    try await a.sync()
    try await a.write("UPDATE severity SET name = 'mine' WHERE id = 1", "UPDATE site SET seats = 7 WHERE id = 's2'")
    let report = try await a.sync()
    #expect(report.refused == 1)
    #expect(report.uploaded == 1)
    #expect(report.exitCode == 6)
    let archive = try await a.open().errorArchive()
    #expect(archive.map(\.reason) == ["server-maintained"])
    #expect(archive[0].before.map(\.value) == ["minor"])
    #expect(archive[0].after.map(\.value) == ["mine"])
    #expect(try a.rows("severity")[0] == [1, "mine"])
    #expect(try fleet.serverRows("severity")[0] == [1, "minor"])
    #expect(try a.connection().rows("SELECT \"table\" FROM salvor_error_archive") == [["severity"]])
  }

  @Test("requests that depend on a refused one are not tried: they are blocked by it")
  func blocked() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    try await a.sync()
    try fleet.serverConnection().execute("DELETE FROM visit; DELETE FROM site WHERE id = 's1'")
    try await a.write(
      "INSERT INTO visit VALUES ('v9', 's1', 'orphan', NULL)", "UPDATE visit SET note = 'again' WHERE id = 'v9'",
      "INSERT INTO visit VALUES ('v10', 's2', 'fine', NULL)")
    let report = try await a.sync()
    #expect(report.uploaded == 1)
    #expect(report.refused == 2)
    let archive = try await a.open().errorArchive()
    #expect(archive.map(\.reason).contains("missing-parent"))
    #expect(try fleet.serverRows("visit") == [["v10", "s2", "fine", nil]])
  }

  @Test(
    "A table has as many columns as columnsMax allows: it is opened, changed here and there, and its errors can be read (semantics 3, 8)"
  )
  func widestTable() async throws {
    let names = (1..<Limits().columnsMax).map { "c\($0)" }
    let fleet = try Fleet(
      schema: """
        { version: 1, tables: { w: { primaryKey: "id", conflicts: "server-wins", columns: { id: "text", \(names.map { "\($0): \"text?\"" }.joined(separator: ", ")) } } } }
        """)
    try await fleet.start()
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await a.write("INSERT INTO w (id, c1, c999) VALUES ('1', 'first', 'last'), ('2', 'second', 'of two')")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try fleet.expectEqual(["w"], [a, b])
    try await b.write("UPDATE w SET c63 = 'b', c999 = 'b' WHERE id = '1'", "DELETE FROM w WHERE id = '2'")
    try await a.write("UPDATE w SET c63 = 'a', c500 = 'a' WHERE id = '1'")
    for device in [b, a] { _ = try await device.sync() }
    #expect(
      try a.connection().rows("SELECT operation, \"before\", \"after\" FROM salvor_error_archive")
        == [["update", "c63 = NULL, c500 = NULL", "c63 = 'a', c500 = 'a'"]])
    _ = try await a.open().remove(.archive(nil))
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(["w"], [a, b])
  }

  @Test("client-only tables never leave the device")
  func clientOnly() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    try await a.write("INSERT INTO draft VALUES ('d1', 'secret')", "CREATE TABLE own(x)", "INSERT INTO own VALUES (1)")
    let report = try await a.sync()
    #expect(report.uploaded == 0)
    #expect(try a.rows("draft") == [["d1", "secret"]])
    let names = try fleet.serverConnection().rows("SELECT name FROM sqlite_schema WHERE name IN ('draft', 'own')")
    #expect(names == [])
  }

  @Test("a table added on the server reaches an existing client that was not rebuilt (SyncConfig is data)")
  func addedTable() async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    try await a.sync()
    fleet.schemaText = fleet.schemaText.replacing(
      "draft:", with: "photo: { primaryKey: \"id\", columns: { id: \"text\", data: \"blob\" } },\n        draft:")
    try await fleet.restart()
    try fleet.serverConnection().execute("INSERT INTO photo VALUES ('p1', x'00ff')")
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(try a.rows("photo") == [["p1", .blob([0, 0xFF])]])
    try await a.write("INSERT INTO photo VALUES ('p2', x'')")
    try await a.sync()
    try fleet.expectEqual(tables + ["photo"], [a])
  }

  @Test("an existing database with data in it is adopted on both sides without losing a row")
  func adoption() async throws {
    let fleet = try Fleet()
    let create = """
      CREATE TABLE site(id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, city TEXT, seats INTEGER NOT NULL DEFAULT 0);
      """
    let server = try fleet.serverConnection()
    try server.execute(create + "INSERT INTO site VALUES ('s1', 'server''s', NULL, 1), ('s2', 'both', NULL, 2)")
    server.close()
    try await fleet.start()
    let a = try fleet.device("a")
    let application = try a.connection()
    try application.execute(create + "INSERT INTO site VALUES ('s2', 'both', NULL, 2), ('s3', 'device''s', 'X', 3)")
    application.close()
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.refused == 0)
    try await a.sync()
    #expect(try fleet.serverRows("site").map { $0[0] } == ["s1", "s2", "s3"])
    try fleet.expectEqual(["site"], [a])
  }

  @Test(
    "a parent that the server deleted and this device changed, in a sync of its group alone: its children go with it")
  func childrenElsewhere() async throws {
    let fleet = try Fleet(
      schema: """
        {
          version: 1, groups: { places: {}, work: {} },
          tables: {
            site: { group: "places", primaryKey: "id", columns: { id: "text", name: "text?" } },
            visit: { group: "work", primaryKey: "id", columns: { id: "text", site_id: "text" },
                     references: { site_id: { table: "site", onDelete: "cascade" } } },
          },
        }
        """)
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site VALUES ('s1', 'a'), ('s2', 'b'); INSERT INTO visit VALUES ('v1', 's1'), ('v2', 's2')")
    let a = try fleet.device("a")
    #expect(try await a.sync().error == nil)
    try await a.write("UPDATE site SET name = 'mine' WHERE id = 's1'")
    try fleet.serverConnection().execute("DELETE FROM site WHERE id = 's1'")
    let report = try await a.sync(["places"])
    #expect(report.error == nil && report.refused == 1)
    #expect(try await a.sync().error == nil)
    _ = try await a.open().remove(.archive(nil))
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(["site", "visit"], [a])
  }

  @Test(
    "A parent that the server deleted, in a sync of its group alone: the rows below its children stay (semantics 2, 11.5)",
    arguments: ["DELETE FROM site", "UPDATE visit SET site_id = 's2'; DELETE FROM site WHERE id = 's1'"], [false, true])
  func belowChildrenElsewhere(change: String, waits: Bool) async throws {
    let fleet = try Fleet(
      schema: """
        {
          version: 1, groups: { places: {}, work: {} },
          tables: {
            site: { group: "places", primaryKey: "id", columns: { id: "text" } },
            visit: { group: "work", primaryKey: "id", columns: { id: "text", site_id: "text?", note: "text?" },
                     references: { site_id: { table: "site", onDelete: "set null" } } },
            item: { group: "work", primaryKey: "id", columns: { id: "text", visit_id: "text", note: "text?" },
                    references: { visit_id: "visit" } },
          },
        }
        """)
    try await fleet.start()
    try fleet.serverConnection().execute(
      """
      INSERT INTO site VALUES ('s1'), ('s2'); INSERT INTO visit (id, site_id) VALUES ('v1', 's1'), ('v2', 's2');
      INSERT INTO item (id, visit_id) VALUES ('i1', 'v1'), ('i2', 'v2')
      """)
    let a = try fleet.device("a")
    #expect(try await a.sync().error == nil)
    if waits { try await a.write("UPDATE visit SET note = 'mine'", "UPDATE item SET note = 'mine'") }
    try fleet.serverConnection().execute("PRAGMA foreign_keys = ON; " + change)
    #expect(try await a.sync(["places"]).error == nil)
    #expect(try a.rows("site") == fleet.serverRows("site"))
    #expect(try a.rows("visit", order: "id").map { $0[1] } == fleet.serverRows("visit", order: "id").map { $0[1] })
    #expect(try a.rows("item").count == 2)
    #expect(try await a.sync().error == nil)
    #expect(try await a.open().status().inError == 0)
    try fleet.expectEqual(["site", "visit", "item"], [a])
  }

  @Test(
    "A trigger of the application's on the device that takes a statement's place (RAISE(IGNORE)) keeps no row of the server's back (semantics 2, 11.4)",
    arguments: [false, true])
  func triggerInTheStatementsPlace(waits: Bool) async throws {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    #expect(try await a.sync().error == nil)
    if waits { try await a.write("UPDATE site SET seats = 7") }
    try await a.write(
      """
      CREATE TRIGGER keep BEFORE DELETE ON site BEGIN SELECT RAISE(IGNORE); END;
      CREATE TRIGGER frozen BEFORE UPDATE OF name ON site BEGIN SELECT RAISE(IGNORE); END;
      CREATE TRIGGER unwanted BEFORE INSERT ON site WHEN NEW.name = 'unwanted' BEGIN SELECT RAISE(IGNORE); END
      """)
    try fleet.serverConnection().execute(
      """
      PRAGMA foreign_keys = ON; UPDATE site SET name = 'theirs'; DELETE FROM site WHERE id = 's2';
      INSERT INTO site (id, name) VALUES ('new', 'unwanted')
      """)
    #expect(try await a.sync().error == nil)
    _ = try await a.open().remove(.archive(nil))
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(tables, [a])
    try await a.write(
      "CREATE TRIGGER back BEFORE UPDATE ON site BEGIN SELECT RAISE(ROLLBACK, 'not here'); END")
    try fleet.serverConnection().execute("UPDATE site SET city = 'x'")
    let error = try #require(await a.sync().error)
    #expect(error.message.contains("not here") && error.message.contains("RAISE(ABORT"), "\(error.message)")
    try await a.write("DROP TRIGGER back")
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(tables, [a])
  }

  @Test(
    "A trigger of the application's on the device that cannot run: the error names it, its table and a way on, and nothing is applied (semantics 11.7)",
    arguments: [
      ("CREATE TRIGGER bad AFTER UPDATE ON site BEGIN UPDATE visit SET renamed = 1; END", "bad", "site", "renamed"),
      (
        "CREATE TRIGGER bad AFTER UPDATE OF city ON site BEGIN SELECT unknown_here(NEW.city); END", "bad", "site",
        "unknown_here"
      ),
      (
        "CREATE TRIGGER to_lg AFTER UPDATE ON site BEGIN INSERT INTO lg VALUES (1); END; CREATE TRIGGER bad AFTER INSERT ON lg BEGIN DELETE FROM dropped; END",
        "bad", "lg", "dropped"
      ), ("CREATE TRIGGER bad AFTER UPDATE ON site BEGIN SELECT json('{'); END", "fine, bad", "site", "malformed JSON"),
    ], [false, true])
  func triggerThatCannotRun(_ bad: (sql: String, name: String, table: String, detail: String), waits: Bool) async throws
  {
    let fleet = try await fleet()
    let a = try fleet.device("a")
    #expect(try await a.sync().error == nil)
    if waits { try await a.write("UPDATE site SET seats = 7") }
    let seats = try fleet.serverConnection().rows("SELECT seats FROM site ORDER BY id")
    try await a.write(
      "CREATE TABLE lg (x NOT NULL); CREATE TRIGGER fine AFTER UPDATE ON site BEGIN INSERT INTO lg VALUES (2); END; \(bad.sql)"
    )
    let before = try a.connection().rows("SELECT * FROM lg")
    try fleet.serverConnection().execute("UPDATE site SET city = 'x'")
    let error = try #require(await a.sync().error)
    for part in [bad.name, bad.table, bad.detail, "Drop", "make it anew", "applicationTriggers"] {
      #expect(error.message.lowercased().contains(part.lowercased()), "\(part) in: \(error.message)")
    }
    #expect(try a.rows("site").allSatisfy { !$0.contains("x") })
    #expect(try a.connection().rows("SELECT * FROM lg") == before)
    #expect(
      try a.connection().rows("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name IN ('fine', 'bad')").count
        == 2)
    if waits { #expect(try fleet.serverConnection().rows("SELECT seats FROM site ORDER BY id") != seats) }
    try await a.write("DROP TRIGGER bad")
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(tables, [a])
  }

  @Test("what the application's triggers write while Salvor writes rows is undone (semantics 2)")
  func triggersUndone() async throws {
    for withdraws in [true, false] {
      let fleet = try await fleet()
      let a = try fleet.device("a")
      #expect(try await a.sync().error == nil)
      try await a.write(
        """
        CREATE TRIGGER own AFTER UPDATE OF name ON site BEGIN UPDATE site SET seats = seats + 1 WHERE id = NEW.id; END
        """)
      #expect(try await a.sync().error == nil)
      if withdraws {
        try await a.write("UPDATE site SET name = 'mine' WHERE id = 's1'")
        // The trigger's update depends on it, and goes along.
        let first = try #require(try await a.open().queue().first)
        _ = try await a.open().withdraw(first.id)
        #expect(try await a.open().status().queued == 0)
      } else {
        // The row has a request in error when the server's name comes.
        try fleet.serverConnection().execute(
          "CREATE TRIGGER no BEFORE UPDATE ON site WHEN NEW.seats = 99 BEGIN SELECT RAISE(ABORT, 'no'); END")
        try await a.write("UPDATE site SET seats = 99 WHERE id = 's1'")
        #expect(try await a.sync().refused == 1)
        try fleet.serverConnection().execute("UPDATE site SET name = 'theirs' WHERE id = 's1'")
        #expect(try await a.sync().error == nil)
        #expect(try a.rows("site")[0] == ["s1", "theirs", "Toronto", 99])
        _ = try await a.open().remove(.archive(nil))
      }
      #expect(try await a.sync().error == nil)
      try fleet.expectEqual(tables, [a])
      #expect(try a.rows("site")[0][3] == 40)
    }
  }
}
