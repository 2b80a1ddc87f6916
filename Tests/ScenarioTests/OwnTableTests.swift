import SQLiteSupport
import SalvorModel
import Testing

/// Tables that are the application's alone, below synchronized ones (semantics 9: wherever Salvor removes a row, client-only rows that
/// reference it follow their own onDelete; without one they are kept aside, named, and come back with the row).
struct OwnTableTests {
  private func fleet(_ own: String) async throws -> (Fleet, Device) {
    let fleet = try Fleet(
      schema: """
        { version: 1, tables: { p: { primaryKey: "id", columns: { id: "text", code: "text?" }, unique: [["code"]] } } }
        """)
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO p VALUES ('1', 'x'), ('2', 'y')")
    let device = try fleet.device("a")
    #expect(try await device.sync().error == nil)
    try await device.write(own)
    return (fleet, device)
  }

  @Test(
    "A synchronized table that the application made stays as it is, however it is written",
    arguments: [
      #""id" VARCHAR(30) NOT NULL PRIMARY KEY, own1 INT DEFAULT 5, "code" TEXT UNIQUE"#,
      #""id" TEXT NOT NULL PRIMARY KEY, own1 INT DEFAULT 5, "code" TEXT UNIQUE"#,
      #""id" TEXT NOT NULL, own1 INT DEFAULT 5, "code" VARCHAR(9), PRIMARY KEY ("id"), UNIQUE ("code")"#,
    ])
  func staysAsItIs(columns: String) async throws {
    let fleet = try Fleet(
      schema: """
        { version: 1, tables: { p: { primaryKey: "id", columns: { id: "text", code: "text?" }, unique: [["code"]] } } }
        """)
    try await fleet.start()
    let device = try fleet.device("a")
    try SQLiteConnection(device.path).execute(#"CREATE TABLE "p"(\#(columns)); INSERT INTO p VALUES ('1', 2, 'x')"#)
    for _ in 1...2 {
      #expect(try await device.sync().error == nil)
      await device.close()
      #expect(
        try device.connection().scalar("SELECT sql FROM sqlite_schema WHERE name = 'p'")?.string
          == #"CREATE TABLE "p"(\#(columns))"#)
    }
    #expect(try fleet.serverRows("p") == [["1", "x"]])
  }

  @Test("A device's own rows of a server-maintained table are the server's to say (decision 244)")
  func referenceData() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO severity VALUES (1, 'minor'), (2, 'major')")
    let device = try fleet.device("a")
    try SQLiteConnection(device.path).execute(
      """
      CREATE TABLE severity (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
      INSERT INTO severity VALUES (1, 'minor'), (2, 'large'), (3, 'of this device');
      CREATE TABLE site (id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL, city TEXT, seats INTEGER NOT NULL DEFAULT 0);
      INSERT INTO site (id, name) VALUES ('s', 'mine');
      CREATE TABLE visit (id TEXT PRIMARY KEY NOT NULL, site_id TEXT NOT NULL REFERENCES site ON DELETE CASCADE, note TEXT, severity_id INTEGER REFERENCES severity);
      INSERT INTO visit VALUES ('v', 's', 'mine', 2);
      """)
    let report = try await device.sync()
    #expect(report.error == nil && (report.uploaded, report.refused) == (2, 0), "\(report)")
    #expect(try await device.sync().error == nil)
    #expect(try fleet.serverRows("visit") == [["v", "s", "mine", 2]])
    try fleet.expectEqual(["severity", "site", "visit"], [device])
    #expect(try await device.open().errorArchive().isEmpty)
    await fleet.stop()
  }

  /// A synchronization that says so of the own table.
  private func syncNoting(_ device: Device) async throws {
    let report = try await device.sync()
    #expect(report.error == nil)
    #expect(report.notices.count { $0.contains("client-only table own") } == 1, "\(report.notices)")
  }

  @Test(
    "A table that a later schema makes the server's, in a group that has come: what the device had in it is the server's to say",
    arguments: [false, true], [false, true])
  func takenOver(wasClientOnly: Bool, isNewGroup: Bool) async throws {
    let other = "o: { primaryKey: \"id\", columns: { id: \"text\", n: \"text?\" } }"
    func schema(_ version: Int, _ maintained: String?, _ group: String) -> String {
      let table = maintained.map {
        ", t: { maintained: \"\($0)\", \(group) primaryKey: \"id\", columns: { id: \"text\", n: \"text?\" } }"
      }
      return "{ version: \(version), groups: { ref: {} }, tables: { \(other)\(table ?? "") } }"
    }
    let fleet = try Fleet(schema: schema(1, wasClientOnly ? "client" : nil, ""))
    try await fleet.start()
    let device = try fleet.device("a")
    #expect(try await device.sync().error == nil)
    try device.connection().execute(
      """
      CREATE TABLE IF NOT EXISTS t (id TEXT PRIMARY KEY NOT NULL, n TEXT);
      INSERT INTO t VALUES ('a1', 'mine'), ('s1', 'mine');
      """)
    #expect(try await device.sync().error == nil)
    fleet.schemaText = schema(2, "server", isNewGroup ? "group: \"ref\"," : "")
    try await fleet.restart()
    try fleet.serverConnection().execute("INSERT INTO t VALUES ('s1', 'the server''s'), ('s2', 'new')")
    for _ in 1...2 { #expect(try await device.sync().error == nil) }
    #expect(try fleet.serverRows("t").count == 2)
    try fleet.expectEqual(["t"], [device])
    #expect(try await device.open().errorArchive().isEmpty)
    await fleet.stop()
  }

  @Test(
    "A trigger or a constraint of the own table that is against what its onDelete says: its rows are kept aside, and the download ends",
    arguments: [
      "p TEXT REFERENCES p (id) ON DELETE CASCADE); CREATE TRIGGER t BEFORE DELETE ON own BEGIN SELECT RAISE(IGNORE); END",
      "p TEXT REFERENCES p (id)); CREATE TRIGGER t BEFORE DELETE ON own BEGIN SELECT RAISE(ABORT, 'own rows stay'); END",
      "p TEXT REFERENCES p (id) ON DELETE CASCADE); CREATE TRIGGER t BEFORE DELETE ON own BEGIN SELECT RAISE(ABORT, 'own rows stay'); END",
      "p TEXT NOT NULL REFERENCES p (id) ON DELETE SET NULL)",
    ])
  func against(rule: String) async throws {
    let (fleet, device) = try await fleet(
      "CREATE TABLE own (id INTEGER PRIMARY KEY, \(rule); INSERT INTO own VALUES (7, '1'), (8, '2')")
    try fleet.serverConnection().execute("DELETE FROM p WHERE id = '1'")
    try await syncNoting(device)
    #expect(try device.rows("own") == [[8, "2"]])
    try fleet.serverConnection().execute("INSERT INTO p VALUES ('1', 'again')")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("own") == [[7, "1"], [8, "2"]])
    #expect(try device.connection().rows("SELECT * FROM salvor_aside") == [])
  }

  @Test(
    "A value that own rows reference is changed: they follow their own onUpdate, whatever their onDelete says",
    arguments: [
      ("ON UPDATE CASCADE", [[7, "z"], [8, "y"], [9, "x"]]),
      ("ON UPDATE SET NULL", [[7, .null], [8, "y"], [9, .null]]),
      ("DEFAULT 'y' ON UPDATE SET DEFAULT", [[7, "y"], [8, "y"], [9, "y"]]),
    ] as [(String, [[Value]])])
  func changedValue(rule: String, expected: [[Value]]) async throws {
    let declared = rule.replacing("DEFAULT 'y' ", with: "")
    let (fleet, device) = try await fleet(
      "CREATE TABLE own (id INTEGER PRIMARY KEY, code TEXT \(rule == declared ? "" : "DEFAULT 'y'") REFERENCES p (code) ON DELETE CASCADE \(declared))"
    )
    try fleet.serverConnection().execute("INSERT INTO p VALUES ('3', 'w')")
    #expect(try await device.sync().error == nil)
    try await device.write("INSERT INTO own VALUES (7, 'x'), (8, 'y'), (9, 'w')")
    // One of the values is another row's then.
    try fleet.serverConnection().execute(
      "UPDATE p SET code = 'z' WHERE id = '1'; UPDATE p SET code = 'x' WHERE id = '3'")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("own") == expected)
    #expect(try device.connection().rows("SELECT * FROM salvor_aside") == [])
    #expect(try device.connection().rows("PRAGMA foreign_key_check") == [])
  }

  @Test(
    "A value that own rows reference is changed, and no onUpdate says what they do: they are kept aside, whatever their onDelete says",
    arguments: ["ON DELETE CASCADE", "ON DELETE SET NULL ON UPDATE RESTRICT", "DEFAULT 'gone' ON UPDATE SET DEFAULT"])
  func changedValueAside(rule: String) async throws {
    let value = rule.hasPrefix("DEFAULT") ? "DEFAULT 'gone'" : ""
    let (fleet, device) = try await fleet(
      "CREATE TABLE own (id INTEGER PRIMARY KEY, code TEXT \(value) REFERENCES p (code) \(rule.replacing("DEFAULT 'gone' ", with: ""))); INSERT INTO own VALUES (7, 'x')"
    )
    try fleet.serverConnection().execute("UPDATE p SET code = 'z' WHERE id = '1'; DELETE FROM p WHERE id = '2'")
    try await syncNoting(device)
    #expect(try device.rows("own") == [])
    try fleet.serverConnection().execute("UPDATE p SET code = 'x' WHERE id = '1'")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("own") == [[7, "x"]])
  }

  @Test(
    "A removed row whose value own rows reference: they follow their own onDelete, and rows that referenced nothing before stay"
  )
  func removedValue() async throws {
    let (fleet, device) = try await fleet(
      "CREATE TABLE own (id INTEGER PRIMARY KEY, code TEXT REFERENCES p (code) ON DELETE CASCADE); INSERT INTO own VALUES (7, 'x'), (8, 'y')"
    )
    try SQLiteConnection(device.path).execute("PRAGMA foreign_keys = OFF; INSERT INTO own VALUES (9, 'never there')")
    try fleet.serverConnection().execute("UPDATE p SET code = 'z' WHERE id = '2'; DELETE FROM p WHERE id = '1'")
    try await syncNoting(device)
    #expect(try device.rows("own") == [[9, "never there"]])
    #expect(try device.connection().rows("SELECT payload FROM salvor_aside").count == 1)
  }

  @Test(
    "A removed row below which own rows say onDelete set default: they get it where there is such a row, else they are kept aside"
  )
  func setDefault() async throws {
    let (fleet, device) = try await fleet(
      """
      CREATE TABLE fits (id INTEGER PRIMARY KEY, p TEXT DEFAULT '2' REFERENCES p (id) ON DELETE SET DEFAULT); INSERT INTO fits VALUES (7, '1');
      CREATE TABLE none (id INTEGER PRIMARY KEY, p TEXT REFERENCES p (id) ON DELETE SET DEFAULT); INSERT INTO none VALUES (7, '1');
      CREATE TABLE own (id INTEGER PRIMARY KEY, p TEXT DEFAULT '9' REFERENCES p (id) ON DELETE SET DEFAULT); INSERT INTO own VALUES (7, '1');
      """)
    try fleet.serverConnection().execute("DELETE FROM p WHERE id = '1'")
    try await syncNoting(device)
    #expect(try device.rows("fits") == [[7, "2"]])
    #expect(try device.rows("none") == [[7, .null]])
    #expect(try device.rows("own") == [])
    try fleet.serverConnection().execute("INSERT INTO p VALUES ('1', 'again')")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("own") == [[7, "1"]])
  }

  @Test("Own rows below own rows: a change goes on below, and what is below a row kept aside is kept aside with it")
  func chain() async throws {
    let (fleet, device) = try await fleet(
      """
      CREATE TABLE own (code TEXT PRIMARY KEY REFERENCES p (code) ON UPDATE CASCADE) WITHOUT ROWID; INSERT INTO own VALUES ('x'), ('y');
      CREATE TABLE below (id INTEGER PRIMARY KEY, code TEXT REFERENCES own ON DELETE CASCADE ON UPDATE CASCADE); INSERT INTO below VALUES (7, 'x'), (8, 'y');
      """)
    try fleet.serverConnection().execute("UPDATE p SET code = 'z' WHERE id = '1'; DELETE FROM p WHERE id = '2'")
    try await syncNoting(device)
    #expect(try device.rows("own") == [["z"]])
    #expect(try device.rows("below") == [[7, "z"]])
    try fleet.serverConnection().execute("INSERT INTO p VALUES ('2', 'y')")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("own") == [["y"], ["z"]])
    #expect(try device.rows("below") == [[7, "z"], [8, "y"]])
    #expect(try device.connection().rows("SELECT * FROM salvor_aside") == [])
  }

  @Test("Own rows that reference each other in a circle, or themselves, come back with what they were kept aside for")
  func circle() async throws {
    let (fleet, device) = try await fleet(
      """
      CREATE TABLE own (id INTEGER PRIMARY KEY, p TEXT REFERENCES p (id), up INTEGER REFERENCES own (id) DEFERRABLE INITIALLY DEFERRED);
      INSERT INTO own VALUES (1, '1', 2), (2, NULL, 1), (3, '1', 3), (4, '2', 3), (5, NULL, 4), (6, '2', NULL);
      CREATE TABLE lg (id); CREATE TRIGGER t AFTER INSERT ON own BEGIN INSERT INTO lg VALUES (NEW.id); END;
      """)
    let rows = try device.rows("own")
    try fleet.serverConnection().execute("DELETE FROM p WHERE id = '1'")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("own") == [[6, "2", .null]])
    // Not all of what they need is there.
    try fleet.serverConnection().execute("DELETE FROM p WHERE id = '2'; INSERT INTO p VALUES ('1', 'again')")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("own") == Array(rows.prefix(3)))
    try fleet.serverConnection().execute("INSERT INTO p VALUES ('2', 'again too')")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("own") == rows)
    #expect(try device.connection().rows("SELECT * FROM salvor_aside") == [])
    #expect(try device.connection().rows("SELECT id FROM lg ORDER BY id") == [[1], [2], [3], [4], [5], [6]])
  }

  @Test("A trigger of the own table that refuses rows that come back: they wait on, and the download is applied")
  func refusedReturn() async throws {
    let (fleet, device) = try await fleet(
      "CREATE TABLE own (id INTEGER PRIMARY KEY, p TEXT REFERENCES p (id)); INSERT INTO own VALUES (7, '1'); CREATE TRIGGER t BEFORE INSERT ON own BEGIN SELECT RAISE(ABORT, 'closed'); END"
    )
    try fleet.serverConnection().execute("DELETE FROM p WHERE id = '1'")
    try await syncNoting(device)
    try fleet.serverConnection().execute("INSERT INTO p VALUES ('1', 'again')")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("p") == [["1", "again"], ["2", "y"]])
    #expect(try device.rows("own") == [])
    try await device.write("DROP TRIGGER t")
    try fleet.serverConnection().execute("UPDATE p SET code = 'once more' WHERE id = '1'")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("own") == [[7, "1"]])
  }

  @Test(
    "A row kept aside whose key was used again is lost neither when its parent comes back nor, unsaid, by a detachment")
  func usedKey() async throws {
    let (fleet, device) = try await fleet(
      "CREATE TABLE own (id INTEGER PRIMARY KEY, p TEXT REFERENCES p (id), body TEXT); INSERT INTO own VALUES (7, '1', 'first')"
    )
    try fleet.serverConnection().execute("DELETE FROM p WHERE id = '1'")
    #expect(try await device.sync().error == nil)
    try await device.write("INSERT INTO own VALUES (7, '2', 'second')")
    try fleet.serverConnection().execute("INSERT INTO p VALUES ('1', 'again')")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("own") == [[7, "2", "second"]])
    #expect(try await device.open().planDetachment().aside == 1)
    await #expect(throws: SalvorError.self) { _ = try await device.open().detach(discarding: false) }
    try await device.write("UPDATE own SET id = 8")
    try fleet.serverConnection().execute("UPDATE p SET code = 'other' WHERE id = '1'")
    #expect(try await device.sync().error == nil)
    #expect(try device.rows("own") == [[7, "1", "first"], [8, "2", "second"]])
    #expect(try await device.open().planDetachment().aside == 0)
  }
}
