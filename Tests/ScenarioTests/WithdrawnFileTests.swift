import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import Testing

@Suite("A schema file that was ahead of its server's, and is withdrawn (decision 214)")
struct WithdrawnFileTests {
  private static let later = Fleet.visits.replacing("version: 1", "version: 2").replacing(
    "city: \"text?\",", "city: \"text?\", stars: \"integer = 3\",")
  private static let withTable = Fleet.visits.replacing("version: 1", "version: 2").replacing(
    "draft:",
    "tag: { maintained: \"dual\", group: \"visits\", primaryKey: \"id\", columns: { id: \"text\", label: \"text?\" } },\n        draft:"
  )

  /// A device that has synchronized with `Fleet.visits`, and was then opened with a file that is ahead.
  private func ahead(_ later: String, _ statements: String...) async throws -> Fleet {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site VALUES ('s1', 'Harbour Kitchen', NULL, 40), ('s2', 'Pier', NULL, 2)")
    let before = try fleet.device("a")
    #expect(try await before.sync().error == nil)
    await before.close()
    let updated = try fleet.device("a", schema: later)
    #expect(try await updated.sync().error == nil)
    for statement in statements { try await updated.write(statement) }
    #expect(try await updated.sync().error == nil)
    await updated.close()
    return fleet
  }

  private func withdrawn(_ fleet: Fleet) throws -> Device {
    return try fleet.device("a", schema: Fleet.visits)
  }

  private func change(_ fleet: Fleet, to schema: String) async throws {
    fleet.schemaText = schema
    try await fleet.restart()
  }

  private static let renamed = Fleet.visits.replacing("version: 1", "version: 2")
    .replacing("visit: {", "call: { renamedFrom: \"visit\",")
    .replacing("city: \"text?\"", "town: { type: \"text?\", renamedFrom: \"city\" }")

  @Test(
    "names that a new device had from a withdrawn file are those of before again, with what was written (never 3)",
    arguments: [false, true])
  func takenBackNames(hasSynchronized: Bool) async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site VALUES ('s1', 'Harbour Kitchen', NULL, 40)")
    let new = try fleet.device("a", schema: Self.renamed)
    _ = try await new.open()
    try await new.write(
      "INSERT INTO site (id, name, town) VALUES ('s2', 'Pier', 'Bergen')",
      "INSERT INTO call (id, site_id, note) VALUES ('v1', 's2', 'written')")
    if hasSynchronized { #expect(try await new.sync().error?.code == .schemaAhead) }
    await new.close()
    let a = try withdrawn(fleet)
    let report = try await a.sync()
    #expect(report.error == nil && report.uploaded == 2, "\(report)")
    #expect(try fleet.serverRows("visit") == [["v1", "s2", "written", .null]])
    #expect(try fleet.serverRows("site").map { $0[2] } == [.null, "Bergen"])
    try fleet.expectEqual(["site", "visit"], [a])
    #expect(try await a.sync().queued == 0)
    await fleet.stop()
  }

  @Test("a file that was changed without a new version changes nothing here, and a note says so (decision 243)")
  func sameVersion() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site VALUES ('s1', 'Harbour Kitchen', 'Bergen', 40)")
    let before = try fleet.device("a")
    #expect(try await before.sync().error == nil)
    await before.close()
    let changed = Self.renamed.replacing("version: 2", "version: 1").replacing(
      "seats: \"integer = 0\" } }", "}, dropped: [\"seats\"] }")
    let a = try fleet.device("a", schema: changed)
    try await a.write("UPDATE site SET city = 'Oslo'")
    let report = try await a.sync()
    #expect(report.error == nil && report.uploaded == 1, "\(report)")
    #expect(report.notices.contains { $0.contains("Raise the version of the file") }, "\(report.notices)")
    #expect(try fleet.serverRows("site") == [["s1", "Harbour Kitchen", "Oslo", 40]])
    await a.close()
    let again = try withdrawn(fleet)
    #expect(try await again.sync().error == nil)
    try fleet.expectEqual(["site"], [again])
    // The server's decides: with its changed file the device follows.
    await again.close()
    try await change(fleet, to: changed)
    let both = try fleet.device("a", schema: changed)
    #expect(try await both.sync().error == nil)
    #expect(try both.connection().rows("SELECT id, town FROM site") == [["s1", "Oslo"]])
    await fleet.stop()
  }

  @Test("a delete by a mark of a withdrawn file goes up, and its row leaves its table")
  func marks() async throws {
    let flagged = Fleet.visits.replacing("version: 1", "version: 2").replacing(
      "seats: \"integer = 0\" } },",
      "seats: \"integer = 0\", gone: \"boolean = 0\", mine: \"boolean = 0\" }, flags: { dirty: \"mine\", deleted: \"gone\" } },"
    )
    let fleet = try await ahead(flagged)
    let updated = try fleet.device("a", schema: flagged)
    try await updated.write("UPDATE site SET gone = 1 WHERE id = 's1'")
    #expect(try await updated.open().queue().map(\.operation) == [.delete])
    await updated.close()
    let a = try withdrawn(fleet)
    let report = try await a.sync()
    #expect(report.error == nil && report.uploaded == 1)
    #expect(!report.notices.contains { $0.contains("Triggers of Salvor were missing") }, "\(report.notices)")
    #expect(try fleet.serverRows("site").map { $0[0] } == ["s2"])
    #expect(try a.connection().rows("SELECT id FROM site") == [["s2"]])
    await fleet.stop()
  }

  @Test(
    "a column that a withdrawn file alone named stays with its values, is named, and the application of before goes on",
    arguments: [false, true])
  func column(isWritten: Bool) async throws {
    let fleet = try await ahead(Self.later, isWritten ? "UPDATE site SET stars = 5 WHERE id = 's1'" : "SELECT 1")
    let a = try withdrawn(fleet)
    try await a.write(
      "UPDATE site SET seats = 3 WHERE id = 's2'", "INSERT INTO site (id, name) VALUES ('s3', 'new')")
    let report = try await a.sync()
    #expect(report.error == nil && report.uploaded == 2)
    #expect(report.notices.contains { $0.contains("site.stars came with an earlier schema file") })
    #expect(try fleet.serverRows("site").map { $0[3] } == [40, 3, 0])
    #expect(try await a.open().queue().count == (isWritten ? 1 : 0))
    // It is named once.
    #expect(try await a.sync().notices == [])
    // The server's rows do not touch it.
    try fleet.serverConnection().execute("UPDATE site SET seats = 41")
    #expect(try await a.sync().error == nil)
    #expect(
      try a.connection().rows("SELECT seats, stars FROM site ORDER BY id") == [
        [41, isWritten ? 5 : 3], [41, 3], [41, 3],
      ])
    await a.close()
    let again = try withdrawn(fleet)
    #expect(try await again.sync().error == nil)
    // The server gets it: what waited goes up, whatever the file says.
    try await change(fleet, to: Self.later)
    let gone = try await again.sync()
    #expect(gone.error == nil && gone.uploaded == (isWritten ? 1 : 0))
    #expect(
      try fleet.serverConnection().rows("SELECT stars FROM site ORDER BY id") == [[isWritten ? 5 : 3], [3], [3]])
    try fleet.expectEqual(["site"], [again])
    #expect(try await again.open().errorArchive().isEmpty)
  }

  @Test(
    "where the later file is put back, what waited in its column or table waits on, and goes up with the server's schema"
  )
  func fileComesBack() async throws {
    let fleet = try await ahead(Self.withTable, "INSERT INTO tag VALUES ('t1', 'one')")
    let a = try withdrawn(fleet)
    #expect(try await a.sync().uploaded == 0)
    await a.close()
    let back = try fleet.device("a", schema: Self.withTable)
    #expect(try await back.sync().error == nil)
    #expect(try await back.open().queue().map(\.table) == ["tag"])
    try await change(fleet, to: Self.withTable)
    #expect(try await back.sync().uploaded == 1)
    try fleet.expectEqual(["tag"], [back])
  }

  @Test(
    "requests of a table that only a withdrawn file named wait; a group that wrote in it stays one, and none counts as sent"
  )
  func table() async throws {
    let fleet = try await ahead(
      Self.withTable, "INSERT INTO tag VALUES ('t1', 'one'), ('t2', 'two')",
      "INSERT INTO salvor_request (tag) VALUES ('g'); INSERT INTO tag VALUES ('t3', 'three'); UPDATE site SET seats = 7 WHERE id = 's1'; DELETE FROM salvor_request"
    )
    let a = try withdrawn(fleet)
    try await a.write("UPDATE site SET seats = 8 WHERE id = 's2'")
    let report = try await a.sync()
    #expect(report.error == nil && report.uploaded == 1)
    #expect(report.notices.contains { $0.contains("tag came with an earlier schema file") })
    #expect(try await a.open().queue().map(\.table) == ["tag", "tag", "tag", "site"])
    #expect(try fleet.serverRows("site").map { $0[3] } == [40, 8])
    #expect(try a.rows("site").map { $0[3] } == [7, 8])
    try await change(fleet, to: Self.withTable)
    #expect(try await a.sync().uploaded == 3)
    try fleet.expectEqual(["site", "tag"], [a])
    #expect(try a.rows("site").map { $0[3] } == [7, 8] && a.rows("tag").count == 3)
  }

  @Test("a later schema of the server's that drops what a withdrawn file named takes it away, into the archive")
  func dropped() async throws {
    let fleet = try await ahead(
      Self.later.replacing(
        "draft:",
        "tag: { maintained: \"dual\", group: \"visits\", primaryKey: \"id\", columns: { id: \"text\" } },\n        draft:"
      ),
      "UPDATE site SET stars = 5 WHERE id = 's1'; INSERT INTO tag VALUES ('t1')")
    let a = try withdrawn(fleet)
    #expect(try await a.sync().error == nil)
    try await change(
      fleet,
      to: Fleet.visits.replacing("version: 1,", "version: 3, dropped: [\"tag\"],").replacing(
        "seats: \"integer = 0\" }", "seats: \"integer = 0\" }, dropped: [\"stars\"]"))
    #expect(try await a.sync().error == nil)
    let kept = try await a.open().errorArchive()
    #expect(kept.map(\.table).sorted() == ["site", "tag"] && kept.allSatisfy { $0.reason == "schema-dropped" })
    #expect(try a.connection().rows("SELECT name FROM pragma_table_info('site')").count == 4)
    #expect(try await a.open().queue().isEmpty)
  }

  @Test("a later server schema that passes the file's version without its column leaves the column, and names it")
  func passed() async throws {
    let fleet = try await ahead(Self.later, "UPDATE site SET stars = 5 WHERE id = 's1'")
    let a = try fleet.device("a", schema: Self.later)
    try await change(
      fleet,
      to: Fleet.visits.replacing("version: 1", "version: 3").replacing(
        "note: \"text?\"", "note: \"text?\", more: \"text?\""))
    let report = try await a.sync()
    #expect(
      report.error == nil && report.notices.contains { $0.contains("site.stars came with an earlier schema file") })
    #expect(try await a.open().queue().map(\.table) == ["site"])
    #expect(try a.connection().rows("SELECT stars FROM site WHERE id = 's1'") == [[5]])
  }

  @Test("a table that a file loses before the device has met a server stays, and its rows wait")
  func beforeTheFirstSync() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let before = try fleet.device("a", schema: Self.withTable.replacing("version: 2", "version: 1"))
    try await before.write("INSERT INTO tag VALUES ('t1', 'one')", "INSERT INTO site (id, name) VALUES ('s1', 'mine')")
    await before.close()
    let a = try withdrawn(fleet)
    let report = try await a.sync()
    #expect(report.error == nil && report.uploaded == 1)
    #expect(try await a.open().queue().map(\.table) == ["tag"] && a.rows("tag") == [["t1", "one"]])
  }

  @Test(
    "a column that a new device's file loses when it is withdrawn stays with what was written, and goes up once the server has it",
    arguments: [false, true], [false, true])
  func columnBeforeTheFirstSync(hasSynchronized: Bool, isRenamed: Bool) async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let later =
      isRenamed
      ? Self.later.replacing("site: {", "place: { renamedFrom: \"site\",").replacing(
        "table: \"site\"", "table: \"place\"") : Self.later
    let new = try fleet.device("a", schema: later)
    _ = try await new.open()
    let name = isRenamed ? "place" : "site"
    try await new.write(
      "INSERT INTO \(name) (id, name) VALUES ('s1', 'Pier')",
      "INSERT INTO \(name) (id, name, stars) VALUES ('s2', 'Quay', 5)")
    if hasSynchronized { #expect(try await new.sync().error?.code == (isRenamed ? .schemaAhead : nil)) }
    await new.close()
    let a = try withdrawn(fleet)
    #expect(try await a.sync().error == nil)
    // What says something in the column waits for the server to have it.
    #expect(try await a.sync().queued == 1)
    #expect(try fleet.serverRows("site").map { $0[1] } == ["Pier"])
    #expect(try a.connection().rows("SELECT stars FROM site ORDER BY id") == [[3], [5]])
    await a.close()
    // Opened once more, by which time no file is withdrawn any more.
    let again = try withdrawn(fleet)
    try await again.write("UPDATE site SET name = 'Mole' WHERE id = 's1'")
    #expect(try await again.sync().error == nil)
    #expect(try fleet.serverRows("site").map { $0[1] } == ["Mole"])
    await again.close()
    try await change(fleet, to: Self.later)
    let updated = try fleet.device("a", schema: Self.later)
    for _ in 1...2 { #expect(try await updated.sync().error == nil) }
    #expect(try fleet.serverConnection().rows("SELECT stars FROM site ORDER BY id") == [[3], [5]])
    #expect(try await updated.sync().queued == 0)
    let columns = "SELECT id, name, city, stars, seats FROM site ORDER BY id"
    #expect(try updated.connection().rows(columns) == fleet.serverConnection().rows(columns))
    await fleet.stop()
  }

  @Test(
    "a device that skips a version has what is new to it under the names of its server's, and those of its file when the server has them",
    arguments: ["column", "table", "columnOfKnown"], [false, true])
  func skippedVersion(what: String, isWritten: Bool) async throws {
    func schema(_ version: Int, _ tables: String) -> String { "{ version: \(version), tables: { \(tables) } }" }
    let o = "o: { primaryKey: \"id\", columns: { id: \"text\", n: \"text?\" } }"
    let made = what == "columnOfKnown" ? "o" : what == "table" ? "t2" : "t"
    let column = what == "table" ? "c" : "d"
    let (second, third) =
      switch what {
      case "columnOfKnown":
        (
          "o: { primaryKey: \"id\", columns: { id: \"text\", n: \"text?\", c: \"text?\" } }",
          "o: { primaryKey: \"id\", columns: { id: \"text\", n: \"text?\", d: { type: \"text?\", renamedFrom: \"c\" } } }"
        )
      case "table":
        (
          "\(o), t: { primaryKey: \"id\", columns: { id: \"text\", c: \"text?\" } }",
          "\(o), t2: { renamedFrom: \"t\", primaryKey: \"id\", columns: { id: \"text\", c: \"text?\" } }"
        )
      default:
        (
          "\(o), t: { primaryKey: \"id\", columns: { id: \"text\", c: \"text?\" } }",
          "\(o), t: { primaryKey: \"id\", columns: { id: \"text\", d: { type: \"text?\", renamedFrom: \"c\" } } }"
        )
      }
    let fleet = try Fleet(schema: schema(1, o))
    try await fleet.start()
    let before = try fleet.device("a")
    #expect(try await before.sync().error == nil)
    await before.close()
    try await change(fleet, to: schema(2, second))
    let old = what == "columnOfKnown" ? "o" : "t"
    try fleet.serverConnection().execute("INSERT INTO \(old) (id, c) VALUES ('s1', 'the server''s')")
    let a = try fleet.device("a", schema: schema(3, third))
    _ = try await a.open()
    if isWritten { try await a.write("INSERT INTO \(made) (id, \(column)) VALUES ('a1', 'written')") }
    for _ in 1...2 { #expect(try await a.sync().error == nil) }
    try fleet.expectEqual([old, "o"], [a])
    #expect(try fleet.serverRows(old).count == (isWritten ? 2 : 1))
    try await change(fleet, to: schema(3, third))
    for _ in 1...2 { #expect(try await a.sync().error == nil) }
    try fleet.expectEqual([made, "o"], [a])
    #expect(try a.connection().rows("SELECT \(column) FROM \(made) WHERE id = 's1'") == [["the server's"]])
    let status = try await a.open().status()
    #expect(status.queued == 0 && status.inError == 0)
    await fleet.stop()
  }

  @Test("a recovery that rebuilds the tables keeps a withdrawn column with its values and a withdrawn table")
  func recreated() async throws {
    let fleet = try await ahead(Self.later, "UPDATE site SET stars = 5 WHERE id = 's1'")
    let a = try withdrawn(fleet)
    #expect(try await a.sync().error == nil)
    let report = try await a.open().recover(strategy: "recreate")
    #expect(report.error == nil)
    #expect(try await a.sync().error == nil)
    #expect(try a.connection().rows("SELECT count(*), min(stars) FROM site") == [[2, 3]])
  }
}
