import SalvorModel
import SalvorStorage
import Testing

@Suite("Schema evolution without a reset: devices of every version go on")
struct EvolutionTests {
  /// `Fleet.visits`, one version on: what is added stands at the places where it would in a file that people write.
  private static let added = """
    {
      version: 2,
      parameters: { city: "text" },
      groups: { reference: {}, visits: {}, media: {} },
      tables: {
        severity: { maintained: "server", group: "reference", primaryKey: "id",
                    columns: { id: "integer", name: "text" } },
        site: { maintained: "dual", group: "visits", primaryKey: "id",
                columns: { id: "text", stars: "integer = 3", name: "text", city: "text?", seats: "integer = 0" } },
        photo: { maintained: "dual", group: "media", primaryKey: "id",
                 columns: { id: "text", visit_id: "text?", city: "text?" },
                 references: { visit_id: "visit" }, scope: { city: "parameter:city" } },
        visit: { maintained: "dual", group: "visits", primaryKey: "id",
                 columns: { id: "text", site_id: "text", note: "text?", severity_id: "integer?" },
                 references: { site_id: { table: "site", onDelete: "cascade" }, severity_id: "severity" } },
        draft: { maintained: "client", primaryKey: "id", columns: { id: "text", body: "text?" } },
      },
    }
    """

  /// `Fleet.visits` with another name for `site`, for its column `name` and for `visit.site_id`; `visit.note` is gone.
  static let renamed = """
    {
      version: 2,
      groups: { reference: {}, visits: {} },
      tables: {
        severity: { maintained: "server", group: "reference", primaryKey: "id",
                    columns: { id: "integer", name: "text" } },
        place: { renamedFrom: "site", maintained: "dual", group: "visits", primaryKey: "id",
                 columns: { id: "text", title: { type: "text", renamedFrom: "name" }, city: "text?",
                            seats: "integer = 0" } },
        visit: { maintained: "dual", group: "visits", primaryKey: "id",
                 columns: { id: "text", place_id: { type: "text", renamedFrom: "site_id" }, severity_id: "integer?" },
                 references: { place_id: { table: "place", onDelete: "cascade" }, severity_id: "severity" },
                 dropped: ["note"] },
        draft: { maintained: "client", primaryKey: "id", columns: { id: "text", body: "text?" } },
      },
    }
    """

  private func fleet(_ names: [String] = ["a", "b"]) async throws -> (Fleet, [Device]) {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute(
      """
      INSERT INTO severity VALUES (1, 'minor');
      INSERT INTO site VALUES ('s1', 'Harbour Kitchen', 'Toronto', 40), ('s2', 'Corner Bakery', NULL, 12);
      INSERT INTO visit VALUES ('v1', 's1', 'floor wet', 1), ('v2', 's2', NULL, NULL);
      """)
    let devices = try names.map { try fleet.device($0) }
    for device in devices { #expect(try await device.sync().error == nil) }
    return (fleet, devices)
  }

  private func change(_ fleet: Fleet, to schema: String) async throws {
    fleet.schemaText = schema
    try await fleet.restart()
  }

  @Test(
    "a table, a column in the middle, a group and a parameter are added: older devices take them with their next sync")
  func additions() async throws {
    let (fleet, devices) = try await fleet()
    let (a, b) = (devices[0], devices[1])
    try await a.write(
      "UPDATE site SET name = 'mine' WHERE id = 's1'", "INSERT INTO site (id, name) VALUES ('s3', 'new')")
    try await change(fleet, to: Self.added)
    try fleet.serverConnection().execute("INSERT INTO photo VALUES ('p1', 'v1', 'Toronto')")
    let report = try await a.sync()
    #expect(report.error == nil && report.refused == 0 && report.uploaded == 2)
    #expect(try await b.sync().error == nil)
    #expect(
      try a.connection().rows("SELECT id, name, stars FROM site ORDER BY id") == [
        ["s1", "mine", 3], ["s2", "Corner Bakery", 3], ["s3", "new", 3],
      ])
    try fleet.expectEqual(["photo", "visit"], devices)
    // The application of before still writes what it knows.
    try await b.write("INSERT INTO site (id, name) VALUES ('s4', 'older')", "UPDATE site SET seats = 1 WHERE id = 's2'")
    try await a.write("UPDATE site SET stars = 5 WHERE id = 's2'", "INSERT INTO photo VALUES ('p2', 'v2', NULL)")
    for device in [a, b, a] {
      let report = try await device.sync()
      #expect(report.error == nil && report.refused == 0)
    }
    for device in devices {
      #expect(
        try device.connection().rows("SELECT id, seats, stars FROM site ORDER BY id")
          == fleet.serverConnection().rows("SELECT id, seats, stars FROM site ORDER BY id"))
    }
    #expect(
      try fleet.serverConnection().rows("SELECT seats, stars FROM site WHERE id IN ('s2', 's4') ORDER BY id") == [
        [1, 5], [0, 3],
      ])
  }

  @Test(
    "a refused delete has the values of a column that came since, and can be deleted or sent again",
    arguments: [true, false])
  func refusedDelete(retries: Bool) async throws {
    let serverWins = { (text: String) in
      text.replacingOccurrences(
        of: "site: { maintained: \"dual\",", with: "site: { maintained: \"dual\", conflicts: \"server-wins\",")
    }
    let fleet = try Fleet(schema: serverWins(Fleet.visits))
    try await fleet.start()
    let (a, b) = (try fleet.device("a"), try fleet.device("b"))
    try fleet.serverConnection().execute("INSERT INTO site VALUES ('s1', 'Harbour Kitchen', 'Toronto', 40)")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await a.write("DELETE FROM site WHERE id = 's1'")
    try await b.write("UPDATE site SET seats = 5 WHERE id = 's1'")
    #expect(try await b.sync().error == nil)
    #expect(try await a.sync().refused == 1)
    try await change(fleet, to: serverWins(Self.added))
    #expect(try await a.sync().error == nil)
    let client = try await a.open()
    let entry = try #require(try await client.errorArchive().first)
    #expect(entry.before.contains { $0.name == "seats" && $0.value == 40 })
    #expect(entry.before.contains { $0.name == "stars" && $0.value == 3 })
    if retries {
      _ = try await client.retry(nil)
      #expect(try await a.sync().uploaded == 1)
      #expect(try fleet.serverRows("site").isEmpty)
    } else {
      _ = try await client.delete(entry.id)
      #expect(try a.connection().rows("SELECT id, seats, stars FROM site") == [["s1", 5, 3]])
      #expect(try await a.sync().error == nil)
    }
    #expect(try await b.sync().error == nil)
    try fleet.expectEqual(["site"], [a, b])
  }

  @Test("a new column of a large table brings its default without the rows")
  func additionsAreCheap() async throws {
    let (fleet, devices) = try await fleet(["a"])
    try fleet.serverConnection().execute(
      "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) INSERT INTO site (id, name) SELECT 'n' || i, 'site ' || i FROM n"
    )
    #expect(try await devices[0].sync().upserts == 2000)
    try await change(fleet, to: Self.added)
    let report = try await devices[0].sync()
    #expect(report.error == nil)
    #expect(report.notices == [])
    #expect(report.upserts == 0)
    #expect(try devices[0].connection().integer("SELECT count(*) FROM site WHERE stars = 3") == 2002)
  }

  @Test("renames and drops with a declared rule carry queued and archived requests along")
  func renames() async throws {
    let (fleet, devices) = try await fleet()
    let (a, b) = (devices[0], devices[1])
    try fleet.serverConnection().execute("CREATE UNIQUE INDEX one ON site (city)")
    try await a.write("UPDATE site SET city = 'Toronto' WHERE id = 's2'")
    #expect(try await a.sync().refused == 1)
    try await a.write(
      "UPDATE site SET name = 'mine' WHERE id = 's1'",
      "UPDATE visit SET note = 'lost', severity_id = NULL WHERE id = 'v1'",
      "UPDATE visit SET note = 'only' WHERE id = 'v2'", "INSERT INTO site (id, name) VALUES ('s3', 'new')",
      "INSERT INTO visit (id, site_id, note) VALUES ('v3', 's3', 'kept')")
    try await change(fleet, to: Self.renamed)
    try fleet.serverConnection().execute("UPDATE place SET seats = 99 WHERE id = 's1'")
    let report = try await a.sync()
    #expect(report.error == nil)
    #expect(report.refused == 0)
    #expect(report.uploaded == 4)
    #expect(try await b.sync().error == nil)
    let client = try await a.open()
    let archive = try await client.errorArchive()
    #expect(
      archive.map { "\($0.state.rawValue) \($0.reason ?? "") \($0.table) \($0.key) \($0.after)" }.sorted() == [
        #"kept schema-dropped visit [v1] [SalvorStorage.NamedValue(name: "note", value: lost)]"#,
        #"kept schema-dropped visit [v2] [SalvorStorage.NamedValue(name: "note", value: only)]"#,
        #"kept schema-dropped visit [v3] [SalvorStorage.NamedValue(name: "note", value: kept)]"#,
        #"refused constraint place [s2] [SalvorStorage.NamedValue(name: "city", value: Toronto)]"#,
      ])
    #expect(
      try fleet.serverRows("place").filter { $0[0] != "s2" } == [
        ["s1", "mine", "Toronto", 99], ["s3", "new", nil, 0],
      ])
    #expect(
      try a.rows("visit") == [["v1", "s1", nil], ["v2", "s2", nil], ["v3", "s3", nil]])
    try fleet.expectEqual(["place"], [b])
    // The values of before stay on the server.
    #expect(try fleet.serverConnection().rows("SELECT note FROM visit WHERE id = 'v1'") == [["floor wet"]])
    try fleet.serverConnection().execute("DROP INDEX one")
    _ = try await client.retry(nil)
    #expect(try await a.sync().uploaded == 1)
    #expect(try await b.sync().error == nil)
    try fleet.expectEqual(["place"], devices)
    // A restart of both sides changes nothing, and needs no more to be declared than before.
    await a.close()
    try await fleet.restart()
    #expect(try await a.sync().uploaded == 0)
    try fleet.expectEqual(["place"], devices)
  }

  @Test(
    "an upload whose acknowledgement was lost before a rename is not applied a second time", arguments: [false, true])
  func unknownOutcome(isProcessed: Bool) async throws {
    let (fleet, devices) = try await fleet()
    let a = devices[0]
    try await a.write(
      "UPDATE site SET name = 'mine' WHERE id = 's1'", "INSERT INTO site (id, name) VALUES ('s3', 'new')")
    let cut: Faults.Fault = isProcessed ? .loseAnswer : .loseRequest
    fleet.faults.inject(cut, .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    #expect(try await a.sync().error?.code == .unreachable)
    fleet.faults.clear()
    try await change(fleet, to: Self.renamed)
    if isProcessed { try fleet.serverConnection().execute("UPDATE place SET title = 'theirs' WHERE id = 's1'") }
    let report = try await a.sync()
    #expect(report.error == nil && report.refused == 0 && report.conflicts == 0)
    #expect(report.uploaded == 2)
    #expect(try await devices[1].sync().error == nil)
    try fleet.expectEqual(["place"], devices)
    #expect(try fleet.serverRows("place")[0][1] == (isProcessed ? "theirs" : "mine"))
  }

  @Test("an upload in chunks that a new schema interrupts goes on under the new names")
  func interruptedUpload() async throws {
    let fleet = try Fleet()
    try await fleet.start()
    let a = try fleet.device("a") {
      $0.limits.singleRoundTripBytesMax = 0
      $0.limits.chunkBytesTarget = 1024
    }
    #expect(try await a.sync().error == nil)
    try await a.write(
      "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) INSERT INTO site (id, name) SELECT 'n' || i, 'site ' || i FROM n"
    )
    fleet.faults.pass(4)
    fleet.faults.inject(.loseRequest, .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    #expect(try await a.sync().error?.code == .unreachable)
    fleet.faults.clear()
    try await change(fleet, to: Self.renamed)
    let report = try await a.sync()
    #expect(report.error == nil && report.refused == 0, "\(report.error.map { "\($0)" } ?? "no error")")
    #expect(report.uploaded == 300)
    try fleet.expectEqual(["place"], [a])
    #expect(try fleet.serverRows("place").count == 300)
  }

  @Test("a download that a new schema interrupts is whole afterwards")
  func interruptedDownload() async throws {
    let (fleet, _) = try await fleet([])
    try fleet.serverConnection().execute(
      "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) INSERT INTO site (id, name) SELECT 'n' || i, hex(randomblob(20)) FROM n"
    )
    let a = try fleet.device("a")
    fleet.faults.inject(.cutAnswer(after: 500_000), .loseRequest, .loseRequest, .loseRequest, .loseRequest)
    #expect(try await a.sync().error?.code == .unreachable)
    fleet.faults.clear()
    try await change(fleet, to: Self.renamed)
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(["place"], [a])
  }

  @Test("a device of a later version than its server: its additions wait, and go up once the server knows them")
  func laterDevice() async throws {
    let (fleet, devices) = try await fleet(["b"])
    let a = try fleet.device("a", schema: Self.added)
    try await a.write(
      "INSERT INTO site (id, name) VALUES ('s3', 'plain')",
      "INSERT INTO site (id, name, stars) VALUES ('s4', 'rated', 5)",
      "INSERT INTO visit (id, site_id) VALUES ('v4', 's4')", "INSERT INTO photo VALUES ('p1', NULL, 'Toronto')")
    let first = try await a.sync()
    #expect(first.error == nil && first.refused == 0)
    #expect(first.uploaded == 1)
    let second = try await a.sync()
    #expect(second.error == nil && second.uploaded == 0 && second.refused == 0)
    #expect(
      try a.connection().rows("SELECT id, stars FROM site ORDER BY id") == [
        ["s1", 3], ["s2", 3], ["s3", 3], ["s4", 5],
      ])
    #expect(try await devices[0].sync().error == nil)
    #expect(try devices[0].rows("site") == fleet.serverRows("site"))
    // An update of the server's to a row of which the device has changed what only it knows.
    try await a.write("UPDATE site SET stars = 1 WHERE id = 's1'")
    try fleet.serverConnection().execute("UPDATE site SET name = 'theirs' WHERE id = 's1'")
    #expect(try await a.sync().error == nil)
    #expect(try a.connection().rows("SELECT name, stars FROM site WHERE id = 's1'") == [["theirs", 1]])
    try await change(fleet, to: Self.added)
    let third = try await a.sync()
    #expect(third.error == nil && third.refused == 0)
    #expect(third.uploaded == 4)
    #expect(try await devices[0].sync().error == nil)
    let all = "SELECT id, name, stars FROM site ORDER BY id"
    for device in devices + [a] {
      #expect(try device.connection().rows(all) == fleet.serverConnection().rows(all))
    }
    try fleet.expectEqual(["visit", "photo"], devices + [a])
  }

  @Test(
    "The server is put back together with its older schema: what devices have beyond it waits for the schema, and the rest is healed",
    arguments: [false, true], [false, true])
  func schemaPutBack(isReplaced: Bool, isApart: Bool) async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site (id, name) VALUES ('s1', 'one'); INSERT INTO visit (id, site_id) VALUES ('v1', 's1')")
    let recovery = isReplaced ? "reasons: { \"server-replaced\": \"recover-unsynced-changes\" }" : ""
    let later = Fleet.visits.replacing("version: 1", with: "version: 2")
      .replacing(#"seats: "integer = 0" }"#, with: #"seats: "integer = 0", stars: "integer?" }"#)
      .replacing(
        "draft: {",
        with:
          #"photo: { group: "\#(isApart ? "photos" : "visits")", primaryKey: "id", columns: { id: "text", visit_id: "text" }, references: { visit_id: "visit" } }, draft: {"#
      ).replacing("visits: {} }", with: isApart ? "visits: {}, photos: {} }" : "visits: {} }")
    // The application has its schema already.
    let devices = try ["a", "b"].map { try fleet.device($0, schema: later, recovery: recovery) }
    let (a, b) = (devices[0], devices[1])
    for device in devices { #expect(try await device.sync().error == nil) }
    try await fleet.backup("before")
    try await change(fleet, to: later)
    for device in devices { #expect(try await device.sync().error == nil) }
    try await a.write(
      "INSERT INTO site (id, name, stars) VALUES ('s9', 'late', 5)",
      "INSERT INTO visit (id, site_id) VALUES ('v9', 's9')", "INSERT INTO photo VALUES ('p9', 'v9')")
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    fleet.schemaText = Fleet.visits
    if isReplaced {
      await fleet.stop()
      for companion in ["", "-wal", "-shm", ".salvor-side"] { _ = removeFile(fleet.serverPath + companion) }
      try await fleet.start()
    } else {
      try await fleet.restore("before")
    }
    for device in [a, b, a, b] {
      let error = try await device.sync().error
      #expect(error == nil, "\(error.map { "\($0)" } ?? "")")
    }
    // What another server never had is in the archive alone.
    #expect(try a.rows("photo") == (isReplaced ? [] : [["p9", "v9"]]))
    let kept = try a.connection().rows("SELECT 1 FROM salvor_error_archive WHERE \"table\" = 'photo'")
    #expect(kept.isEmpty != isReplaced)
    // The schema comes again.
    try await change(fleet, to: later)
    for device in [a, b, a, b] { #expect(try await device.sync().error == nil) }
    if !isReplaced {
      #expect(try fleet.serverRows("photo") == [["p9", "v9"]])
      #expect(try fleet.serverConnection().rows("SELECT name, stars FROM site WHERE id = 's9'") == [["late", 5]])
    }
    let all = "SELECT id, name, stars FROM site ORDER BY id"
    for device in devices { #expect(try device.connection().rows(all) == fleet.serverConnection().rows(all)) }
    try fleet.expectEqual(["visit", "photo"], devices)
  }

  @Test("a table moves to another group: what waits of it goes up, and rows stay in step")
  func movedTable() async throws {
    let (fleet, devices) = try await fleet()
    let (a, b) = (devices[0], devices[1])
    try await a.write("DELETE FROM visit WHERE id = 'v1'", "UPDATE visit SET note = 'mine' WHERE id = 'v2'")
    var text = Fleet.visits.replacing("version: 1", with: "version: 2")
    text = text.replacing(
      #"visit: { maintained: "dual", group: "visits""#, with: #"visit: { maintained: "dual", group: "later""#)
    text = text.replacing("visits: {} }", with: "visits: {}, later: {} }")
    try await change(fleet, to: text)
    let report = try await a.sync()
    #expect(report.error == nil && report.refused == 0)
    #expect(report.uploaded == 2)
    #expect(try await b.sync().error == nil)
    try fleet.expectEqual(["site", "visit"], devices)
    // A delete that waited over the move, of a row that nobody changed meanwhile.
    try await b.write("DELETE FROM visit WHERE id = 'v2'")
    #expect(try await b.sync().refused == 0)
    #expect(try await a.sync().error == nil)
    try fleet.expectEqual(["site", "visit"], devices)
  }

  @Test(
    "a table that others reference moves to a new group, and devices recover before they have synchronized it: its rows come along",
    arguments: ["recover-unsynced-changes", "discard-unsynced-changes", "copy-and-resubscribe", "recreate"],
    [false, true])
  func movedParent(strategy: String, isKnown: Bool) async throws {
    let fleet = try Fleet()
    try await fleet.start()
    try fleet.serverConnection().execute("INSERT INTO site (id, name) VALUES ('s1', 'one'), ('s2', 'two')")
    let text = Fleet.visits.replacing("version: 1", with: "version: 2")
      .replacing(#"site: { maintained: "dual", group: "visits""#, with: #"site: { maintained: "dual", group: "later""#)
      .replacing("visits: {} }", with: "visits: {}, later: {} }")
    let (a, b) = (try fleet.device("a", recovery: "strategy: \"\(strategy)\""), try fleet.device("b"))
    for device in [a, b] { #expect(try await device.sync().error == nil) }
    try await change(fleet, to: text)
    try fleet.serverConnection().execute(
      "DELETE FROM site WHERE id = 's2'; INSERT INTO site (id, name) VALUES ('new', 'three'); INSERT INTO visit (id, site_id) VALUES ('v', 'new')"
    )
    // The application has been updated, too, or hears of it from the server.
    let updated = isKnown ? try fleet.device("c", schema: text, recovery: "strategy: \"\(strategy)\"") : a
    if isKnown { #expect(try await updated.sync().error == nil) }
    try await updated.write("INSERT INTO visit (id, site_id) VALUES ('mine', 's1')")
    #expect(try await fleet.server?.engine.demandResets(of: nil) ?? 0 > 0)
    for device in [updated, b] {
      let report = try await device.sync()
      #expect(report.error == nil && report.recovery?.reason == .operatorRequested, "\(device.name)")
      #expect(try await device.sync().error == nil)
    }
    #expect(try await updated.sync().error == nil)
    try fleet.expectEqual(["site", "visit"], [updated, b])
    #expect(try updated.rows("visit").count == (strategy.hasPrefix("recover-") ? 2 : 1))
  }

  @Test("a column is NOT NULL with a default from now on: older devices follow")
  func notNullWithADefault() async throws {
    let (fleet, devices) = try await fleet()
    let (a, b) = (devices[0], devices[1])
    try await a.write("UPDATE visit SET severity_id = 1 WHERE id = 'v2'")
    try fleet.serverConnection().execute("UPDATE visit SET note = 'some' WHERE note IS NULL")
    #expect(try await b.sync().error == nil)
    let schema = Fleet.visits.replacing("version: 1", with: "version: 2")
      .replacing(#"note: "text?""#, with: #"note: "text = none""#)
    try await change(fleet, to: schema)
    for device in [b, a, b] {
      let report = try await device.sync()
      #expect(report.error == nil && report.recovery == nil && report.refused == 0)
    }
    try fleet.expectEqual(["visit"], [a, b])
    let rows = try fleet.serverConnection().rows("SELECT note, severity_id FROM visit ORDER BY id")
    #expect(rows == [["floor wet", 1], ["some", 1]])
    let null = "INSERT INTO visit (id, site_id, note) VALUES ('v9', 's1', NULL)"
    await #expect(throws: (any Error).self) { try await b.write(null) }
  }

  @Test("a column is dropped that an index of the application's names: its own columns stay, with their values")
  func ownColumnsBesideADrop() async throws {
    let (fleet, devices) = try await fleet(["a"])
    let a = devices[0]
    try await a.write(
      "ALTER TABLE visit ADD COLUMN \"pinned\" INTEGER NOT NULL DEFAULT 3",
      "UPDATE visit SET pinned = 7 WHERE id = 'v1'", "CREATE INDEX by_note ON visit (note)",
      "CREATE INDEX by_pin ON visit (pinned)")
    try await change(fleet, to: Self.renamed)
    #expect(try await a.sync().error == nil)
    #expect(try await a.sync().error == nil)
    try fleet.serverConnection().execute("INSERT INTO visit (id, place_id) VALUES ('v3', 's1')")
    #expect(try await a.sync().error == nil)
    let rows = try a.connection().rows("SELECT id, pinned FROM visit INDEXED BY by_pin WHERE pinned > 0 ORDER BY id")
    #expect(rows == [["v1", 7], ["v2", 3], ["v3", 3]])
    #expect(try a.connection().tableShape("visit")?.column("note") == nil)
  }

  @Test(
    "tables are made anew where the server has renamed them: what the application has made beside them follows",
    arguments: ["copy-and-resubscribe", "recreate"])
  func renamedWhileMadeAnew(strategy: String) async throws {
    let (fleet, _) = try await fleet([])
    let a = try fleet.device("a", recovery: "strategy: \"\(strategy)\"")
    #expect(try await a.sync().error == nil)
    try await a.write(
      "CREATE TABLE jot (id INTEGER PRIMARY KEY, site TEXT REFERENCES site ON DELETE SET NULL)",
      "INSERT INTO jot (site) VALUES ('s1')", "ALTER TABLE site ADD COLUMN pinned INTEGER",
      "UPDATE site SET pinned = 7 WHERE id = 's1'", "CREATE INDEX by_name ON site (name, pinned)")
    try await change(fleet, to: Self.renamed)
    #expect(try await fleet.server?.engine.demandResets(of: nil) ?? 0 > 0)
    let report = try await a.sync()
    #expect(report.error == nil && report.recovery?.reason == .operatorRequested)
    #expect(try await a.sync().error == nil)
    let connection = try a.connection()
    #expect(try connection.rows("PRAGMA foreign_key_check").isEmpty)
    let joined = try connection.rows("SELECT site, title, pinned FROM jot JOIN place ON place.id = site")
    #expect(joined == [["s1", "Harbour Kitchen", 7]])
    #expect(try connection.rows("SELECT \"table\" FROM pragma_foreign_key_list('jot')") == [["place"]])
    #expect(try connection.rows("SELECT name FROM pragma_index_info('by_name')") == [["title"], ["pinned"]])
    try await a.write("DELETE FROM place WHERE id = 's1'")
    #expect(try connection.rows("SELECT site FROM jot") == [[nil]])
  }

  @Test(
    "such a table, and what the device subscribes to has changed since: a recovery has the rows of both as they were, the next sync brings the difference",
    arguments: [true, false])
  func movedParentOfOthers(subscribes: Bool) async throws {
    let scoped = Fleet.visits.replacing("version: 1,", with: "version: 1, parameters: { city: \"text\" },")
      .replacing(
        "seats: \"integer = 0\" } }", with: "seats: \"integer = 0\" }, scope: { city: \"parameter:city\" } }"
      ).replacing("{ table: \"site\",", with: "{ table: \"site\", scope: \"inherit\",")
    let fleet = try Fleet(schema: scoped)
    try await fleet.start()
    try fleet.serverConnection().execute(
      "INSERT INTO site VALUES ('s1', 'one', 'Toronto', 1), ('s2', 'two', 'Ottawa', 2); INSERT INTO visit (id, site_id) VALUES ('v1', 's1'), ('v2', 's2')"
    )
    let device = try fleet.device("a")
    #expect(try await device.sync().error == nil)
    if subscribes {
      _ = try await device.open().subscribe("site", ["city": .value(.text("Toronto"))])
    } else {
      _ = try await device.open().unsubscribe(allOf: "site")
    }
    let text = scoped.replacing("version: 1", with: "version: 2")
      .replacing(#"site: { maintained: "dual", group: "visits""#, with: #"site: { maintained: "dual", group: "later""#)
      .replacing("visits: {} }", with: "visits: {}, later: {} }")
    try await change(fleet, to: text)
    try fleet.serverConnection().execute(
      "INSERT INTO site VALUES ('s3', 'three', 'Ottawa', 3); INSERT INTO visit (id, site_id) VALUES ('v3', 's3')")
    #expect(try await fleet.server?.engine.demandResets(of: nil) ?? 0 > 0)
    let report = try await device.sync()
    #expect(report.error == nil && report.recovery?.reason == .operatorRequested)
    for _ in 0..<2 { #expect(try await device.sync().error == nil) }
    #expect(try device.connection().rows("SELECT id FROM site") == (subscribes ? [["s1"]] : []))
    #expect(try device.connection().rows("SELECT id FROM visit") == (subscribes ? [["v1"]] : []))
    _ = try await device.open().subscribe("site", [:])
    #expect(try await device.sync().error == nil)
    try fleet.expectEqual(["site", "visit"], [device])
  }

  @Test("a table gets marks and loses a column in one step, while its changes wait")
  func marksAndADrop() async throws {
    let (fleet, devices) = try await fleet()
    let (a, b) = (devices[0], devices[1])
    try await a.write(
      "UPDATE visit SET severity_id = NULL, note = 'mine' WHERE id = 'v1'", "DELETE FROM visit WHERE id = 'v2'")
    let text = Fleet.visits.replacing("version: 1", with: "version: 2")
      .replacing(
        #"columns: { id: "text", site_id: "text", note: "text?", severity_id: "integer?" }"#,
        with:
          #"columns: { id: "text", site_id: "text", severity_id: "integer?", IsDirty: "boolean = 0", IsDeleted: "boolean = 0" }, dropped: ["note"], flags: { dirty: "IsDirty", deleted: "IsDeleted" }"#
      )
    try #require(text.contains("IsDeleted"))
    try await change(fleet, to: text)
    for _ in 0..<2 { for device in [a, b] { #expect(try await device.sync().error == nil, "\(device.name)") } }
    #expect(try await a.open().status().queued == 0)
    let columns = "SELECT id, site_id, severity_id FROM visit ORDER BY id"
    let expected = try fleet.serverConnection().rows(columns)
    #expect(expected == [["v1", "s1", nil]])
    for device in [a, b] { #expect(try device.connection().rows(columns) == expected) }
  }

  @Test("without a declared rule a dropped column is schema-incompatible by name, and nothing is touched")
  func undeclared() async throws {
    let (fleet, devices) = try await fleet(["a"])
    let a = devices[0]
    try await a.write("UPDATE visit SET note = 'mine' WHERE id = 'v1'")
    await fleet.stop()
    // As an operator does, who must take away the triggers that name the column.
    let connection = try fleet.serverConnection()
    for row in try connection.rows("SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'visit'") {
      try connection.execute("DROP TRIGGER \(quoted(row[0].string ?? ""))")
    }
    try connection.execute("ALTER TABLE visit DROP COLUMN note")
    fleet.schemaText = Fleet.visits.replacing(", note: \"text?\"", with: "")
    try await fleet.start()
    let report = try await a.sync()
    #expect(report.recovery?.reason == .schemaIncompatible || report.error?.code == .schemaIncompatible)
    #expect(try a.connection().rows("SELECT note FROM visit WHERE id = 'v1'") == [["mine"]])
  }

  @Test("a column's new name that is another column's until now is refused by name")
  func takenName() async throws {
    let (fleet, _) = try await fleet(["a"])
    await fleet.stop()
    fleet.schemaText = Self.renamed.replacing(
      "title: { type: \"text\", renamedFrom: \"name\" }, city: \"text?\"",
      "name: { type: \"text?\", renamedFrom: \"city\" }")
    let error = await #expect(throws: SalvorError.self) { try await fleet.start() }
    #expect(error?.code == .schemaRefused)
    #expect(error?.message.contains("place.name") == true && error?.message.contains("city") == true)
  }

  @Test("a default that changes after its column came: a device that was away has what the server's rows have")
  func laterDefault() async throws {
    let (fleet, devices) = try await fleet()
    let (a, b) = (devices[0], devices[1])
    try await change(fleet, to: Self.added)
    #expect(try await a.sync().error == nil)
    try await b.write("UPDATE site SET name = 'mine' WHERE id = 's2'")
    try await change(
      fleet, to: Self.added.replacing("version: 2", "version: 3").replacing("integer = 3", "integer = 5"))
    try fleet.serverConnection().execute("INSERT INTO site (id, name) VALUES ('s3', 'new')")
    for device in [a, b] {
      let report = try await device.sync()
      #expect(report.error == nil && report.refused == 0)
      #expect(try device.connection().rows("SELECT stars FROM site WHERE id IN ('s1', 's2')") == [[3], [3]])
      try await device.write("INSERT INTO site (id, name) VALUES ('of \(device.name)', 'new')")
      #expect(try await device.sync().uploaded == 1)
    }
    #expect(try await a.sync().error == nil)
    #expect(try fleet.serverConnection().rows("SELECT DISTINCT stars FROM site WHERE id LIKE 'of %'") == [[5]])
    #expect(try a.connection().scalar("SELECT name FROM site WHERE id = 's2'") == "mine")
  }

  @Test(
    "a table that the application drops, without a word: its rows come back from the server, and none is deleted there")
  func droppedTable() async throws {
    let (fleet, devices) = try await fleet()
    let (a, b) = (devices[0], devices[1])
    try await a.write("UPDATE site SET name = 'mine' WHERE id = 's1'", "UPDATE visit SET note = 'mine' WHERE id = 'v1'")
    await a.close()
    try a.connection().execute("PRAGMA foreign_keys = OFF; DROP TABLE visit")
    let report = try await a.sync()
    #expect(report.error == nil && report.refused == 0)
    for device in [b, a] { #expect(try await device.sync().error == nil) }
    #expect(try fleet.serverRows("visit").count == 2)
    #expect(try fleet.serverRows("site")[0][1] == "mine")
    try fleet.expectEqual(["site", "visit"], [a, b])
  }
}
