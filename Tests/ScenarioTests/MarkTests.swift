import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

@Suite("Deleted marks of an application's own, from device to server (semantics 3)")
struct MarkTests {
  private static let schema = """
    {
      version: 1,
      tables: {
        inspection: { maintained: "dual", primaryKey: "id",
                      columns: { id: "text", title: "text?", IsDirty: "boolean = 0", IsDeleted: "boolean = 0" },
                      flags: { dirty: "IsDirty", deleted: "IsDeleted" } },
        answer: { maintained: "dual", primaryKey: "id",
                  columns: { id: "text", inspection_id: "text?", IsDirty: "boolean = 0", IsDeleted: "boolean = 0" },
                  references: { inspection_id: "inspection" }, flags: { dirty: "IsDirty", deleted: "IsDeleted" } },
        photo: { maintained: "dual", primaryKey: "id",
                 columns: { id: "text", inspection_id: "text?", answer_id: "text?" },
                 references: { inspection_id: "inspection", answer_id: "answer" } },
      },
    }
    """
  private static let tables = [
    "inspection": "id, title", "answer": "id, inspection_id", "photo": "id, inspection_id, answer_id",
  ]

  /// With rows that the server has and the devices.
  private func fleet(_ devices: Int = 2, schema: String = Self.schema) async throws -> (Fleet, [Device]) {
    let fleet = try Fleet(schema: schema)
    try await fleet.start()
    try fleet.serverConnection().execute(
      """
      INSERT INTO inspection (id, title) VALUES ('i1', 'one'), ('i2', 'two'), ('i3', 'three');
      INSERT INTO answer (id, inspection_id) VALUES ('a1', 'i1'), ('a2', 'i2');
      INSERT INTO photo VALUES ('p1', 'i1', NULL), ('p2', NULL, 'a1'), ('p3', 'i2', NULL);
      """)
    let made = try (0..<devices).map { try fleet.device("d\($0)") }
    for device in made { #expect(try await device.sync().error == nil) }
    return (fleet, made)
  }

  /// Both sides have the same rows, and no row of a device has a flag.
  private func expectEqual(_ fleet: Fleet, _ devices: [Device], sourceLocation: SourceLocation = #_sourceLocation)
    throws
  {
    for (table, columns) in Self.tables {
      let sql = "SELECT \(columns) FROM \(table) ORDER BY id"
      let wanted = try fleet.serverConnection().rows(sql)
      for device in devices {
        #expect(
          try device.connection().rows(sql) == wanted, "\(table) on \(device.name)", sourceLocation: sourceLocation)
        if table == "photo" { continue }
        #expect(
          try device.connection().rows("SELECT id FROM \(table) WHERE IsDirty OR IsDeleted") == [],
          "flags of \(table) on \(device.name)", sourceLocation: sourceLocation)
      }
    }
  }

  private func ids(_ fleet: Fleet, _ table: String) throws -> [Value] {
    try fleet.serverConnection().rows("SELECT id FROM \(table) ORDER BY id").map { $0[0] }
  }

  @Test("a row below one that was made with the mark is displaced, named, and in nobody's way")
  func madeWithTheMark() async throws {
    let (fleet, devices) = try await fleet(1)
    let a = devices[0]
    try await a.write(
      "INSERT INTO inspection (id, IsDeleted) VALUES ('i9', 1)",
      "INSERT INTO answer (id, inspection_id) VALUES ('a9', 'i9')")
    #expect(try await a.sync().error == nil)
    let status = try await a.open().status()
    #expect(status.displaced == 1 && status.upload == nil)
    try await a.write("INSERT INTO inspection (id, title) VALUES ('i8', 'other')")
    #expect(try await a.sync().uploaded == 1)
    try await a.write("INSERT INTO inspection (id, title) VALUES ('i9', 'made')")
    #expect(try await a.sync().uploaded == 2)
    #expect(try ids(fleet, "inspection") == ["i1", "i2", "i3", "i8", "i9"])
    #expect(try ids(fleet, "answer") == ["a1", "a2", "a9"])
    try expectEqual(fleet, devices)
  }

  @Test("an upload in which nothing is left is settled all the same, and what waits goes with the next one")
  func emptiedUpload() async throws {
    let (fleet, devices) = try await fleet(1)
    let a = devices[0]
    try await a.write("INSERT INTO inspection (id, title) VALUES ('i9', 'lost')")
    fleet.faults.inject(.loseRequest, .loseRequest, .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    #expect(try await a.sync().error != nil)
    fleet.faults.clear()
    await a.close()
    // By a program that should not.
    let connection = try a.connection()
    try connection.execute("DELETE FROM inspection WHERE id = 'i9'; DELETE FROM salvor_log WHERE op IN (1, 3)")
    try await a.write("INSERT INTO inspection (id, title) VALUES ('i8', 'waits')")
    for _ in 0..<2 { #expect(try await a.sync().error == nil) }
    #expect(try await a.open().status().upload == nil)
    #expect(try ids(fleet, "inspection") == ["i1", "i2", "i3", "i8"])
    try expectEqual(fleet, devices)
  }

  // MARK: Marks that no trigger saw

  private static let marks = """
    UPDATE inspection SET IsDeleted = 1 WHERE id = 'i1';
    UPDATE inspection SET IsDeleted = 1, title = 'written' WHERE id = 'i3';
    INSERT INTO inspection (id, IsDeleted) VALUES ('i7', 1)
    """

  /// What the marks above do: each a request with all that is below, and the rows go when the server has deleted them.
  private func expectDeleted(_ fleet: Fleet, _ devices: [Device]) async throws {
    for device in devices { for _ in 0..<2 { #expect(try await device.sync().error == nil) } }
    for device in devices { #expect(try await device.open().status().inError == 0) }
    #expect(try ids(fleet, "inspection") == ["i2"])
    #expect(try ids(fleet, "answer") == ["a2"])
    #expect(try ids(fleet, "photo") == ["p3"])
    try expectEqual(fleet, devices)
  }

  @Test("a mark that is set while triggers are away takes along what is below it", arguments: [true, false])
  func withoutTriggers(_ all: Bool) async throws {
    let (fleet, devices) = try await fleet()
    let connection = try devices[0].connection()
    for row in try connection.rows(
      "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name \(all ? "NOT LIKE 'salvor%'" : "= 'inspection'")"
    ) {
      if let name = row[0].string { try connection.execute("DROP TRIGGER \(quoted(name))") }
    }
    try connection.execute(Self.marks)
    // A mark is the application's own word, also where the server has another row meanwhile.
    try fleet.serverConnection().execute("UPDATE inspection SET title = 'theirs' WHERE id = 'i3'")
    try await expectDeleted(fleet, devices)
  }

  @Test("a mark that is set on a row that was never sent, while triggers are away, deletes it")
  func withoutTriggersUnsent() async throws {
    let (fleet, devices) = try await fleet(1)
    let a = devices[0]
    try await a.write(
      "INSERT INTO inspection (id) VALUES ('i9')", "INSERT INTO answer (id, inspection_id) VALUES ('a9', 'i9')")
    let connection = try a.connection()
    for row in try connection.rows("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'inspection'")
    {
      if let name = row[0].string { try connection.execute("DROP TRIGGER \(quoted(name))") }
    }
    try connection.execute(Self.marks + "; UPDATE inspection SET IsDeleted = 1 WHERE id = 'i9'")
    try await expectDeleted(fleet, devices)
  }

  @Test(
    "a mark that is set while triggers are away, before a recovery, is a delete all the same, also in a table that comes as a set of keys",
    arguments: ["cursor", "key-set"])
  func withoutTriggersBeforeRecovery(_ download: String) async throws {
    let schema = Self.schema.replacing(
      "maintained: \"dual\",", with: "maintained: \"dual\", download: \"\(download)\",")
    let (fleet, devices) = try await fleet(schema: schema)
    try await fleet.backup("night")
    try await devices[0].write("UPDATE inspection SET title = 'after the backup' WHERE id = 'i2'")
    #expect(try await devices[0].sync().error == nil)
    try await fleet.restore("night")
    let connection = try devices[0].connection()
    for row in try connection.rows("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'inspection'")
    {
      if let name = row[0].string { try connection.execute("DROP TRIGGER \(quoted(name))") }
    }
    try connection.execute(Self.marks)
    let report = try await devices[0].sync()
    #expect(report.recovery != nil)
    try await expectDeleted(fleet, devices)
    // Nothing comes again with every synchronization.
    #expect(try await devices[0].sync().roundTrips == 1)
  }

  @Test(
    "a mark that is set while capture is paused takes along what is below it; one from before the pause stays one delete"
  )
  func whilePaused() async throws {
    let (fleet, devices) = try await fleet()
    let a = devices[0]
    try fleet.serverConnection().execute("INSERT INTO inspection (id) VALUES ('i0'), ('i00')")
    #expect(try await a.sync().error == nil)
    try await a.write("UPDATE inspection SET IsDeleted = 1 WHERE id IN ('i0', 'i00')")
    let client = try await a.open()
    _ = try await client.pauseCapture()
    try a.connection().execute(
      Self.marks
        + "; UPDATE inspection SET IsDeleted = 0 WHERE id = 'i00'; UPDATE inspection SET title = 'x' WHERE id = 'i0'")
    let found = try await client.resumeCapture()
    #expect(found.inserts == 1 && found.updates == 0 && found.deletes == 5)
    #expect(
      try a.connection().rows("SELECT id, IsDirty, IsDeleted FROM answer ORDER BY id") == [
        ["a1", 1, 1], ["a2", 0, 0],
      ])
    for device in devices { for _ in 0..<2 { #expect(try await device.sync().error == nil) } }
    #expect(try ids(fleet, "inspection") == ["i00", "i2"])
    #expect(try ids(fleet, "photo") == ["p3"])
    try expectEqual(fleet, devices)
  }

  @Test("a mark that was set while capture was paused is taken back with what it took along")
  func takenBackAfterPause() async throws {
    let (fleet, devices) = try await fleet(1)
    let client = try await devices[0].open()
    _ = try await client.pauseCapture()
    try devices[0].connection().execute("UPDATE inspection SET IsDeleted = 1 WHERE id = 'i1'")
    _ = try await client.resumeCapture()
    try await devices[0].write("UPDATE inspection SET IsDeleted = 0 WHERE id = 'i1'")
    let report = try await devices[0].sync()
    #expect(report.error == nil && report.uploaded == 0)
    #expect(try ids(fleet, "photo") == ["p1", "p2", "p3"])
    try expectEqual(fleet, devices)
  }

  // MARK: A database from before

  /// With marks on what the server has (`i1`) and on what it never had (`n`), each with rows below that are not marked.
  private static let before = """
    CREATE TABLE inspection (id TEXT PRIMARY KEY NOT NULL, title TEXT, IsDirty INTEGER NOT NULL DEFAULT 0, IsDeleted INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE answer (id TEXT PRIMARY KEY NOT NULL, inspection_id TEXT REFERENCES inspection (id), IsDirty INTEGER NOT NULL DEFAULT 0, IsDeleted INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE photo (id TEXT PRIMARY KEY NOT NULL, inspection_id TEXT REFERENCES inspection (id), answer_id TEXT REFERENCES answer (id));
    INSERT INTO inspection VALUES ('i1', 'device', 0, 1), ('n', 'new', 1, 1), ('k', 'kept', 0, 0);
    INSERT INTO answer VALUES ('a1', 'i1', 0, 0), ('na', 'n', 0, 0), ('ka', 'k', 0, 0);
    INSERT INTO photo VALUES ('p1', 'i1', NULL), ('p2', NULL, 'a1'), ('np', 'n', NULL), ('nq', NULL, 'na'), ('kp', 'k', 'ka');
    """

  private func adopted() async throws -> (Fleet, Device) {
    let (fleet, _) = try await fleet(1)
    let device = try fleet.device("old")
    try SQLiteConnection(device.path).execute(Self.before)
    return (fleet, device)
  }

  @Test("marks in a database from before take along what is below them, also where no column can say it")
  func adoptedMarks() async throws {
    let (fleet, device) = try await adopted()
    let report = try await device.sync()
    #expect(report.error == nil && report.refused == 0 && report.displaced == 0)
    #expect(try await device.sync().roundTrips == 1)
    #expect(try ids(fleet, "inspection") == ["i2", "i3", "k"])
    #expect(try ids(fleet, "answer") == ["a2", "ka"])
    #expect(try ids(fleet, "photo") == ["kp", "p3"])
    try expectEqual(fleet, [device])
  }

  @Test("such a mark that is taken back before the first sync brings back all that it took along")
  func adoptedAndTakenBack() async throws {
    let (fleet, device) = try await adopted()
    try await device.write("UPDATE inspection SET IsDeleted = 0")
    #expect(try device.rows("photo").count == 5)
    let report = try await device.sync()
    #expect(report.error == nil && report.refused == 0 && report.displaced == 0)
    #expect(try await device.sync().error == nil)
    #expect(try ids(fleet, "inspection") == ["i1", "i2", "i3", "k", "n"])
    #expect(try ids(fleet, "photo") == ["kp", "np", "nq", "p1", "p2", "p3"])
    try expectEqual(fleet, [device])
  }

  /// The tables of a circle have no order but that of a schema, and the one that the server delivers has another.
  @Test("the server's schema puts no triggers back where tables reference each other in a circle")
  func circle() async throws {
    func schema(_ version: Int) -> String {
      """
      {
        version: \(version),
        tables: {
          area: { maintained: "dual", primaryKey: "id",
                  columns: { id: "text", visit_id: "text?", IsDeleted: "boolean = 0"\(version == 1 ? "" : ", note: \"text?\"") },
                  references: { visit_id: "visit" }, flags: { deleted: "IsDeleted" } },
          site: { maintained: "dual", group: "first", primaryKey: "id",
                  columns: { id: "text", area_id: "text?" }, references: { area_id: "area" } },
          visit: { maintained: "dual", primaryKey: "id",
                   columns: { id: "text", area_id: "text?" }, references: { area_id: "area" } },
        },
      }
      """
    }
    let fleet = try Fleet(schema: schema(1))
    try await fleet.start()
    let device = try fleet.device("a")
    #expect(try await device.sync().error == nil)
    fleet.schemaText = schema(2)
    try await fleet.restart()
    for round in 1...3 {
      try await device.write("INSERT INTO visit (id) VALUES ('v\(round)')")
      let report = try await device.sync()
      #expect(report.error == nil && report.uploaded == 1 && report.queued == 0 && report.notices == [])
      await device.close()
    }
    try fleet.expectEqual(["area", "site", "visit"], [device])
  }

  @Test("a delete by a mark that waits goes to the archive with a table that the schema drops, and the rest goes up")
  func droppedTable() async throws {
    let (fleet, made) = try await fleet(1)
    let device = made[0]
    try await device.write(
      "UPDATE answer SET IsDeleted = 1 WHERE id = 'a2'", "UPDATE inspection SET title = 'mine' WHERE id = 'i3'")
    let i = try #require(Self.schema.range(of: "answer: {"))
    let j = try #require(Self.schema.range(of: "photo: {"))
    fleet.schemaText = String(Self.schema[..<i.lowerBound] + Self.schema[j.lowerBound...])
      .replacing("version: 1", with: "version: 2").replacing(", answer_id: \"answer\"", with: "")
      .replacing("tables: {", with: "dropped: [\"answer\"], tables: {")
    try await fleet.restart()
    let report = try await device.sync()
    #expect(report.error == nil && report.uploaded == 1, "\(String(describing: report.error))")
    #expect(
      try device.connection().rows("SELECT operation, state, reason FROM salvor_error_archive") == [
        ["delete", "kept", "schema-dropped"]
      ])
    #expect(try fleet.serverConnection().rows("SELECT title FROM inspection WHERE id = 'i3'") == [["mine"]])
    await fleet.stop()
  }

  @Test("what is marked already in a column that the schema makes a deleted column is a delete")
  func columnsOfBefore() async throws {
    let plain = Self.schema.replacing(#/,\s*flags: \{[^}]*\}/#, with: "")
      .replacing(", IsDirty: \"boolean = 0\", IsDeleted: \"boolean = 0\"", with: "")
    let (fleet, made) = try await fleet(2, schema: plain)
    let (a, b) = (made[0], made[1])
    for table in ["inspection", "answer"] {
      for column in ["IsDirty", "IsDeleted"] {
        try await a.write("ALTER TABLE \(table) ADD COLUMN \(column) INTEGER NOT NULL DEFAULT 0")
      }
    }
    try await a.write("UPDATE inspection SET IsDeleted = 1 WHERE id = 'i3'")
    #expect(try await a.sync().error == nil)
    fleet.schemaText = Self.schema.replacing("version: 1", with: "version: 2")
    try await fleet.restart()
    for device in [a, a, b] { #expect(try await device.sync().error == nil) }
    #expect(try fleet.serverConnection().rows("SELECT id FROM inspection ORDER BY id") == [["i1"], ["i2"]])
    try expectEqual(fleet, [a, b])
    await fleet.stop()
  }
}
