import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

@Suite("An application's schema file that is ahead of its server's (decision 187)")
struct SchemaAheadTests {
  private func started(_ schema: String = Fleet.visits) async throws -> Fleet {
    let fleet = try Fleet(schema: schema)
    try await fleet.start()
    return fleet
  }

  private func change(_ fleet: Fleet, to schema: String) async throws {
    fleet.schemaText = schema
    try await fleet.restart()
  }

  @Test(
    "a device that begins with renames and drops the server does not know waits with all it has, and goes on with the server's schema",
    arguments: [1, 2], [false, true])
  func begins(version: Int64, isOpenedBefore: Bool) async throws {
    let later = EvolutionTests.renamed.replacing("version: 2", with: "version: \(version)")
    let fleet = try await started()
    try fleet.serverConnection().execute("INSERT INTO site VALUES ('s1', 'Harbour Kitchen', NULL, 40)")
    if isOpenedBefore {
      let before = try fleet.device("c")
      try await before.write("INSERT INTO site VALUES ('s2', 'mine', NULL, 1)")
      await before.close()
    }
    let c = try fleet.device("c", schema: later)
    try await c.write("INSERT INTO place VALUES ('s3', 'new', NULL, 2)", "INSERT INTO visit VALUES ('v3', 's3', NULL)")
    for _ in 1...2 {
      let report = try await c.sync()
      #expect(report.error?.code == .schemaAhead && report.recovery == nil)
      #expect(report.exitCode == 3 && report.outcome != .recoveryRequired)
      #expect(report.error?.message.contains("the table site is place") == true)
    }
    try await change(fleet, to: later)
    let report = try await c.sync()
    #expect(report.error == nil && report.uploaded == (isOpenedBefore ? 3 : 2))
    #expect(try fleet.serverRows("place").map { $0[0] } == (isOpenedBefore ? ["s1", "s2", "s3"] : ["s1", "s3"]))
    try fleet.expectEqual(["place"], [c])
  }

  @Test(
    "a synchronized device keeps its server's names under a later file, adds what that adds, and renames with the server"
  )
  func isSynchronized() async throws {
    let later = EvolutionTests.renamed.replacing("city: \"text?\",", with: "city: \"text?\", stars: \"integer = 3\",")
    let fleet = try await started()
    try fleet.serverConnection().execute(
      "INSERT INTO site VALUES ('s1', 'Harbour Kitchen', NULL, 40); INSERT INTO visit VALUES ('v1', 's1', 'wet', NULL)")
    let before = try fleet.device("a")
    #expect(try await before.sync().error == nil)
    try await before.write("UPDATE visit SET note = 'dry'")
    await before.close()
    let a = try fleet.device("a", schema: later)
    try await a.write("UPDATE site SET name = 'mine', stars = 5")
    let report = try await a.sync()
    #expect(report.error == nil && report.uploaded == 1)
    #expect(try fleet.serverRows("visit") == [["v1", "s1", "dry", nil]])
    #expect(try await a.open().queue().map(\.table) == ["site"])
    try await change(fleet, to: later)
    #expect(try await a.sync().error == nil)
    #expect(try fleet.serverConnection().rows("SELECT title, stars FROM place") == [["mine", 5]])
    #expect(try a.connection().rows("SELECT title, stars FROM place") == [["mine", 5]])
    #expect(try await a.open().errorArchive().isEmpty)
  }

  // MARK: Flag columns

  private static let plain = """
    { version: 1, tables: {
        form: { maintained: "dual", primaryKey: "id", columns: { id: "text", title: "text?" } },
        answer: { maintained: "dual", primaryKey: "id", columns: { id: "text", form_id: "text?" }, references: { form_id: "form" } },
        draft: { maintained: "client", primaryKey: "id", columns: { id: "text", form_id: "text?" },
                 references: { form_id: { table: "form", onDelete: "set null" } } } } }
    """
  private static let flagged = """
    { version: 2, tables: {
        form: { maintained: "dual", primaryKey: "id",
                columns: { id: "text", title: "text?", IsDirty: "boolean = 0", IsDeleted: "boolean = 0" },
                flags: { dirty: "IsDirty", deleted: "IsDeleted" } },
        answer: { maintained: "dual", primaryKey: "id", columns: { id: "text", form_id: "text?", IsDeleted: "boolean = 0" },
                  references: { form_id: "form" }, flags: { deleted: "IsDeleted" } },
        draft: { maintained: "client", primaryKey: "id", columns: { id: "text", form_id: "text?" },
                 references: { form_id: { table: "form", onDelete: "set null" } } } } }
    """
  private static let rows =
    "INSERT INTO form (id, title) VALUES ('f1', 'one'), ('f2', 'two'); INSERT INTO answer (id, form_id) VALUES ('a1', 'f1')"

  @Test(
    "a column that comes with the application's new file has the server's values, whatever default the file has now")
  func defaultOfBefore() async throws {
    func with(_ version: Int, _ value: String) -> String {
      Fleet.visits.replacing("version: 1", with: "version: \(version)")
        .replacing("city: \"text?\",", with: "city: \"text?\", grade: \"text = '\(value)'\",")
    }
    let fleet = try await started()
    let a = try fleet.device("a")
    try await a.write("INSERT INTO site (id, name) VALUES ('s1', 'one'), ('s2', 'two')")
    #expect(try await a.sync().error == nil)
    await a.close()
    // Two versions while the device is away: the rows have the first one's default.
    try await change(fleet, to: with(2, "low"))
    try await change(fleet, to: with(3, "high"))
    let later = try fleet.device("a", schema: with(3, "high"))
    try await later.write("UPDATE site SET name = 'edited' WHERE id = 's2'")
    for _ in 1...2 { #expect(try await later.sync().error == nil) }
    #expect(
      try later.connection().rows("SELECT id, name, grade FROM site ORDER BY id") == [
        ["s1", "one", "low"], ["s2", "edited", "low"],
      ])
    try fleet.expectEqual(["site"], [later])
    #expect(try await later.open().errorArchive().isEmpty)
  }

  @Test("flag columns that the device knows first are its own matter: a mark deletes on a server that has none")
  func flagsFirst() async throws {
    let fleet = try await started(Self.plain)
    try fleet.serverConnection().execute(Self.rows)
    let before = try fleet.device("a")
    #expect(try await before.sync().error == nil)
    await before.close()
    let a = try fleet.device("a", schema: Self.flagged)
    try await a.write("UPDATE form SET IsDeleted = 1 WHERE id = 'f1'", "UPDATE form SET title = 'mine' WHERE id = 'f2'")
    #expect(try a.connection().rows("SELECT id, IsDirty, IsDeleted FROM form") == [["f1", 1, 1], ["f2", 1, 0]])
    #expect(try await a.sync().error == nil)
    #expect(try fleet.serverRows("form") == [["f2", "mine"]] && fleet.serverRows("answer") == [])
    #expect(try a.connection().rows("SELECT id, IsDirty, IsDeleted FROM form") == [["f2", 0, 0]])
    try await change(fleet, to: Self.flagged)
    try await a.write("UPDATE form SET IsDeleted = 1 WHERE id = 'f2'")
    #expect(try await a.sync().error == nil)
    #expect(try fleet.serverRows("form") == [] && a.rows("form") == [])
  }

  @Test(
    "where flag columns go while deletes by mark wait, the rows are deleted, not shown again", arguments: [false, true])
  func flagsGo(staysAsColumn: Bool) async throws {
    let fleet = try await started(Self.flagged)
    try fleet.serverConnection().execute(Self.rows)
    let a = try fleet.device("a")
    #expect(try await a.sync().error == nil)
    try await a.write(
      "INSERT INTO draft VALUES ('d1', 'f1')", "UPDATE form SET IsDeleted = 1 WHERE id = 'f1'",
      "INSERT INTO form (id) VALUES ('f3')")
    #expect(try a.rows("form").count == 3)
    var after = Self.flagged.replacing("version: 2", with: "version: 3").replacing(
      ",\n            flags: { dirty: \"IsDirty\", deleted: \"IsDeleted\" }", with: ""
    ).replacing(
      ", flags: { deleted: \"IsDeleted\" }", with: "")
    if !staysAsColumn {
      after = after.replacing(", IsDirty: \"boolean = 0\"", with: "").replacing(
        ", IsDeleted: \"boolean = 0\"", with: ""
      )
      .replacing("maintained: \"dual\",", with: "maintained: \"dual\", dropped: [\"IsDirty\", \"IsDeleted\"],")
    }
    try await change(fleet, to: after)
    let report = try await a.sync()
    #expect(report.error == nil && report.refused == 0)
    #expect(try a.connection().rows("SELECT id FROM form ORDER BY 1") == [["f2"], ["f3"]])
    #expect(try a.rows("draft") == [["d1", nil]])
    #expect(try await a.sync().uploaded == 0)
    #expect(try fleet.serverConnection().rows("SELECT id FROM form ORDER BY 1") == [["f2"], ["f3"]])
    #expect(try fleet.serverRows("answer") == [] && a.rows("answer") == [])
  }

  @Test(
    "flag columns that come or go with a schema are nobody's writing: nothing is taken for written unseen, and what a restore took is given back",
    arguments: [false, true])
  func flagsAreNobodysWriting(isUndoneByARestore: Bool) async throws {
    let fleet = try await started(Self.plain)
    try fleet.serverConnection().execute(Self.rows)
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.backup("before")
    if isUndoneByARestore {
      try await change(fleet, to: Self.flagged)
      for device in [a, b] { #expect(try await device.sync().error == nil) }
    }
    try await a.write(
      "UPDATE form SET title = 'later' WHERE id = 'f2'", "INSERT INTO form (id, title) VALUES ('f3', 'new')")
    #expect(try await a.sync().error == nil)
    if isUndoneByARestore {
      fleet.schemaText = Self.plain
      try await fleet.restore("before")
      let report = try await a.sync()
      #expect(report.error == nil && report.healed == 2)
    } else {
      try await change(fleet, to: Self.flagged)
    }
    let report = try await b.sync()
    #expect(report.error == nil && report.notices.isEmpty)
    for device in [a, b] {
      #expect(try await device.sync().error == nil)
      #expect(try await device.open().errorArchive().isEmpty)
      #expect(
        try device.connection().rows("SELECT id, title FROM form ORDER BY 1")
          == [["f1", "one"], ["f2", "later"], ["f3", "new"]])
    }
    #expect(
      try fleet.serverConnection().rows("SELECT id, title FROM form ORDER BY 1")
        == [["f1", "one"], ["f2", "later"], ["f3", "new"]])
  }

  // MARK: Columns of the application's own

  @Test(
    "what an application wrote into a column of its own is sent once the schema names the column, whoever knows it first",
    arguments: [false, true])
  func ownColumn(isDeviceFirst: Bool) async throws {
    let fleet = try await started(Self.plain)
    try fleet.serverConnection().execute(Self.rows)
    let b = try fleet.device("b")
    var a = try fleet.device("a")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try a.connection().execute(
      """
      ALTER TABLE form ADD COLUMN color TEXT; ALTER TABLE form ADD COLUMN size INTEGER NOT NULL DEFAULT 5;
      UPDATE form SET color = 'red' WHERE id = 'f1'; UPDATE form SET size = 6, title = 'mine' WHERE id = 'f2';
      INSERT INTO form VALUES ('f3', 'new', 'blue', 7), ('f4', 'plain', NULL, 5);
      """)
    let later = Self.plain.replacing("version: 1", with: "version: 2").replacing(
      "title: \"text?\"", with: "title: \"text?\", color: \"text?\", size: \"integer = 5\"")
    if isDeviceFirst {
      await a.close()
      a = try fleet.device("a", schema: later)
      #expect(try await a.sync().error == nil)
      #expect(try fleet.serverRows("form").map { $0[0] } == ["f1", "f2", "f3", "f4"])
    }
    try await change(fleet, to: later)
    for _ in 1...2 { #expect(try await a.sync().error == nil) }
    #expect(try await a.open().queue().isEmpty)
    #expect(try await b.sync().error == nil)
    let rows: [[Value]] = [
      ["f1", "one", "red", 5], ["f2", "mine", nil, 6], ["f3", "new", "blue", 7], ["f4", "plain", nil, 5],
    ]
    #expect(try a.rows("form") == rows)
    try fleet.expectEqual(["form"], [a, b])
  }

  // MARK: Names

  @Test("names that differ in the case of letters beyond ASCII are different tables and columns, as SQLite has them")
  func letters() async throws {
    let fleet = try await started(
      """
      { version: 1, tables: {
          "Ölung": { maintained: "dual", primaryKey: "id", columns: { id: "text", "Ä": "text?", "ä": "text?" } },
          "ölung": { maintained: "dual", primaryKey: "ID", columns: { ID: "text", "É": "text?", "o_ID": "text?" },
                     references: { "o_ID": { table: "Ölung", onDelete: "cascade" } } } } }
      """)
    try fleet.serverConnection().execute(
      "INSERT INTO \"Ölung\" VALUES ('1', 'upper', 'lower'); INSERT INTO \"ölung\" VALUES ('1', 'e', '1')")
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await a.write(
      "UPDATE \"Ölung\" SET \"ä\" = 'mine'", "UPDATE \"ölung\" SET \"É\" = 'f'",
      "INSERT INTO \"Ölung\" VALUES ('2', NULL, NULL)", "INSERT INTO \"ölung\" VALUES ('2', 'x', '2')")
    try await b.write("UPDATE \"Ölung\" SET \"Ä\" = 'theirs'")
    for device in [a, b, a] {
      let report = try await device.sync()
      #expect(report.error == nil && report.refused == 0 && report.conflicts == 0)
    }
    #expect(
      try fleet.serverRows("Ölung") == [["1", "theirs", "mine"], ["2", nil, nil]]
        && fleet.serverRows("ölung") == [["1", "f", "1"], ["2", "x", "2"]])
    try fleet.expectEqual(["Ölung", "ölung"], [a, b])
  }

  // MARK: A restore

  @Test("a device that has renamed a column recovers by itself once its server, put back meanwhile, has done so, too")
  func serverPutBack() async throws {
    let fleet = try await started(Self.plain)
    try fleet.serverConnection().execute(Self.rows)
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.backup("before")
    let later = Self.plain.replacing("version: 1", with: "version: 2")
      .replacing("title: \"text?\"", with: "name: { type: \"text?\", renamedFrom: \"title\" }")
    try await change(fleet, to: later)
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await a.write("UPDATE form SET name = 'later' WHERE id = 'f1'")
    #expect(try await a.sync().error == nil)
    try await a.write("UPDATE form SET name = 'waits' WHERE id = 'f2'")
    fleet.schemaText = Self.plain
    try await fleet.restore("before")
    // Its tables are ahead of the server's: it waits, with all it has.
    for _ in 0..<2 { #expect(try await a.sync().error != nil) }
    #expect(try a.rows("form").map { $0[1] } == ["later", "waits"])
    try await change(fleet, to: later)
    for device in [a, b, a, b] {
      let error = try await device.sync().error
      #expect(error == nil, "\(device.name): \(error.map { "\($0)" } ?? "")")
    }
    #expect(try fleet.serverRows("form").map { $0[1] } == ["later", "waits"])
    try fleet.expectEqual(["form"], [a, b])
  }

  @Test(
    "a device that has a column or a table more waits for its server, put back to before it, and loses nothing (decision 208)",
    arguments: [
      ("title: \"text?\"", "title: \"text?\", color: \"text?\"", "UPDATE form SET color = '%' WHERE id = '#'"),
      (
        "title: \"text?\"", "name: { type: \"text?\", renamedFrom: \"title\" }",
        "UPDATE form SET name = '%' WHERE id = '#'"
      ),
      (
        "answer:",
        "paper: { maintained: \"dual\", primaryKey: \"id\", columns: { id: \"text\", note: \"text?\" } },\n        answer:",
        "INSERT INTO paper VALUES ('#', '%')"
      ),
    ], [true, false])
  func serverPutBackToBefore(what: (old: String, new: String, write: String), hasUploaded: Bool) async throws {
    func write(_ key: String, _ value: String) -> String {
      what.write.replacing("#", with: key).replacing("%", with: value)
    }
    let fleet = try await started(Self.plain)
    try fleet.serverConnection().execute(Self.rows)
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    // Then the server that is put back knows the device by an older upload.
    if hasUploaded {
      try await a.write("UPDATE form SET title = 'before' WHERE id = 'f1'")
      for device in [a, b] { #expect(try await device.sync().error == nil) }
    }
    try await fleet.backup("before")
    let later = Self.plain.replacing("version: 1", with: "version: 2").replacing(what.old, with: what.new)
    try await change(fleet, to: later)
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await a.write(write("f1", "later"))
    #expect(try await a.sync().error == nil)
    try await a.write(write("f2", "waits"))
    fleet.schemaText = Self.plain
    try await fleet.restore("before")
    for device in [a, b, a, b] {
      let report = try await device.sync()
      #expect(
        report.error?.code == .schemaAhead && report.exitCode == 3, "\(device.name): \(report.error?.message ?? "")")
      #expect(report.outcome != .recoveryRequired)
    }
    let plan = try await a.open().recoveryPlan()
    #expect(
      plan.waits?.contains("lacks what came since") == true && plan.steps == [] && plan.counts.kept == 1, "\(plan)")
    #expect(
      plan.waits?.contains("salvor recover --plan --strategy copy-and-resubscribe") == true, "\(plan.waits ?? "")")
    let byHand = try await a.open().recoveryPlan(strategy: "recreate")
    #expect(byHand.waits == nil && byHand.counts.discarded == 1 && byHand.steps.contains("apply"))
    try await change(fleet, to: later)
    for device in [a, b, a, b] {
      let error = try await device.sync().error
      #expect(error == nil, "\(device.name): \(error.map { "\($0)" } ?? "")")
    }
    for device in [a, b] {
      let found =
        what.write.hasPrefix("UPDATE")
        ? try device.connection().rows(
          "SELECT id, \(what.write.contains("color") ? "color" : "name") FROM form ORDER BY 1")
        : try device.rows("paper")
      #expect(found == [["f1", "later"], ["f2", "waits"]])
    }
    try fleet.expectEqual(what.write.hasPrefix("UPDATE") ? ["answer"] : ["form", "paper"], [a, b])
  }

  /// When a table moves to another group, beside a restore.
  enum Move: CaseIterable { case afterTheWrites, beforeTheWrites, withTheRestore }

  @Test(
    "a server put back to before a table moved to another group, or with a schema that moves it: what it lost of that table is in the archive, or given back (semantics 6)",
    arguments: ["own", "all"], Move.allCases)
  func serverPutBackBesideAMove(heal: String, move: Move) async throws {
    let fleet = try await started(Self.plain)
    try fleet.serverConnection().execute(Self.rows)
    let (a, b) = (try fleet.device("a", recovery: "heal: \"\(heal)\""), try fleet.device("b"))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.backup("before")
    let moved = Self.plain.replacing("version: 1", with: "version: 2").replacing(
      "form: { maintained: \"dual\",", with: "form: { maintained: \"dual\", group: \"forms\",")
    if move == .beforeTheWrites { try await change(fleet, to: moved) }
    try fleet.serverConnection().execute(
      "INSERT INTO form (id, title) VALUES ('f3', 'lost'); UPDATE form SET title = 'lost' WHERE id = 'f2'")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    if move == .afterTheWrites {
      try await change(fleet, to: moved)
      for device in [a, b] { #expect(try await device.sync().error == nil) }
    }
    fleet.schemaText = move == .withTheRestore ? moved : Self.plain
    try await fleet.restore("before")
    for device in [a, b, a, b] { #expect(try await device.sync().error == nil) }
    let isGivenBack = heal == "all"
    #expect(
      try fleet.serverRows("form")
        == (isGivenBack ? [["f1", "one"], ["f2", "lost"], ["f3", "lost"]] : [["f1", "one"], ["f2", "two"]]))
    try fleet.expectEqual(["form", "answer"], [a, b])
    let kept = try await a.open().errorArchive()
    #expect(kept.count == (isGivenBack ? 0 : 2) && kept.allSatisfy { $0.reason == "lost-on-server" })
  }

  @Test(
    "a table that was in another group for a while, and there in a narrower scope, is whole again after a restore to before that (semantics 6)"
  )
  func serverPutBackToBeforeANarrowerScope() async throws {
    let fleet = try await started(Self.plain)
    try fleet.serverConnection().execute(Self.rows)
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await fleet.backup("before")
    try await change(
      fleet,
      to: Self.plain.replacing("version: 1", with: "version: 2").replacing(
        "answer: { maintained: \"dual\",",
        with: "answer: { maintained: \"dual\", group: \"answers\", scope: { form_id: { value: \"f2\" } },"))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    #expect(try a.rows("answer") == [])
    try fleet.serverConnection().execute("INSERT INTO form (id, title) VALUES ('f3', 'lost')")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    fleet.schemaText = Self.plain
    try await fleet.restore("before")
    for device in [a, b, a, b] { #expect(try await device.sync().error == nil) }
    #expect(try a.rows("answer") == [["a1", "f1"]])
    try fleet.expectEqual(["form", "answer"], [a, b])
  }

  @Test(
    "a restore is recovered where the application's later file renames a table of which the server compares everything")
  func restoredUnderARename() async throws {
    func schema(_ version: Int, _ head: String, _ scope: String) -> String {
      "{ version: \(version), tables: { \(head) primaryKey: \"id\", columns: { id: \"text\", who: \"text?\", c: \"text?\" }\(scope) } } }"
    }
    let scope = ", scope: { who: \"principal\" }"
    let fleet = try await started(schema(1, "t: {", ""))
    let before = try fleet.device("a", credentials: "principal: \"anna\"")
    try await before.write("INSERT INTO t VALUES ('1', 'anna', 'x')")
    #expect(try await before.sync().error == nil)
    try await fleet.backup("night")
    try await before.write("UPDATE t SET c = 'lost' WHERE id = '1'")
    #expect(try await before.sync().error == nil)
    try await change(fleet, to: schema(2, "t: {", scope))
    #expect(try await before.sync().error == nil)
    await before.close()
    try await fleet.restore("night")
    let later = schema(3, "t2: { renamedFrom: \"t\",", scope)
    let a = try fleet.device("a", schema: later, credentials: "principal: \"anna\"")
    try await a.write("INSERT INTO t VALUES ('2', 'anna', 'unsent')")
    let report = try await a.sync()
    #expect(report.error == nil && report.healed == 1, "\(report)")
    #expect(try fleet.serverRows("t").map { $0[2] } == ["lost", "unsent"])
    try await change(fleet, to: later)
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(["t2"], [a])
    await fleet.stop()
  }
}
