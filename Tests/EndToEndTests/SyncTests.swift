import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// Devices and a server as real processes over real HTTP, the application being any SQLite library.
@Suite struct SyncTests {
  @Test("Rows travel both ways, and all sides are equal in full")
  func rowsTravelBothWays() async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    try place.server.sqlite().execute("INSERT INTO severity VALUES (1, 'minor'), (2, 'crucial')")
    let anna = try place.device("anna", url: url)
    let ben = try place.device("ben", url: url)
    try await anna.sync()
    try await ben.sync()
    try anna.sqlite().execute(
      """
      INSERT INTO site VALUES ('s1', 'Harbour Kitchen', 40), ('s2', 'Corner Bakery', 8);
      INSERT INTO visit VALUES ('v1', 's1', 1, NULL, 2.5, x'00ff10'), ('v2', 's1', NULL, 'äöü 漢字', NULL, NULL);
      INSERT INTO draft VALUES ('d1', 'mine alone');
      """)
    let sent = try await anna.sync()
    #expect(sent["uploaded"] == 4)
    let received = try await ben.sync()
    #expect(received["downloaded"]["upserts"] == 4)
    try ben.sqlite().execute(
      "UPDATE visit SET note = 'seen again' WHERE id = 'v1'; DELETE FROM visit WHERE id = 'v2'")
    try await ben.sync()
    try await anna.sync()
    let all = try contents(place.server.database)
    #expect(try contents(anna.database) == all)
    #expect(try contents(ben.database) == all)
    #expect(all["visit"]?.count == 1)
    // A client-only table never leaves: the server has no such table, the other device no such row.
    #expect(try place.server.sqlite().rows("SELECT name FROM sqlite_master WHERE name = 'draft'").isEmpty)
    #expect(try ben.sqlite().rows("SELECT * FROM draft").isEmpty)
    #expect(try anna.sqlite().rows("SELECT * FROM draft") == [["d1", "mine alone"]])
    for file in [place.server.database, anna.database, ben.database] { #expect(try damage(file) == []) }
  }

  @Test("A small sync is one round trip, and a sync with nothing to do leaves the queue and the rows alone")
  func smallSyncIsOneRoundTrip() async throws {
    let place = try Workspace()
    let proxy = try FaultyProxy()
    try proxy.lead(to: try await place.server.start())
    let device = try place.device("anna", url: proxy.url)
    try await device.sync()
    let before = proxy.requests.count
    try device.sqlite().execute("INSERT INTO site (id, name) VALUES ('s1', 'Harbour')")
    #expect(try await device.sync()["roundTrips"] == 1)
    #expect(try await device.sync()["roundTrips"] == 1)
    #expect(proxy.requests.dropFirst(before) == ["POST /v1/sync", "POST /v1/sync"])
  }

  @Test(
    "A large upload goes in chunks, a large download in pages",
    arguments: ["{ chunkBytesTarget: 1024, singleRoundTripBytesMax: 1024 }"])
  func largeSyncsAreCut(limits: String) async throws {
    let place = try Workspace(serverLimits: limits)
    let proxy = try FaultyProxy()
    try proxy.lead(to: try await place.server.start())
    let anna = try place.device("anna", url: proxy.url, limits: limits)
    let ben = try place.device("ben", url: proxy.url, limits: limits)
    try await anna.sync()
    try insertVisits(anna, count: 500)
    #expect(try await anna.sync()["uploaded"] == 501)
    #expect(proxy.requests.filter { $0.contains("/chunks/") }.count > 10)
    #expect(try await ben.sync()["downloaded"]["upserts"] == 501)
    #expect(try contents(ben.database) == contents(anna.database))
    #expect(try contents(place.server.database) == contents(anna.database))
  }

  @Test(
    "Python's sqlite3 edits a device's file while sync runs in a loop; all sides end equal",
    .enabled(if: Built.has("python3")))
  func pythonEditsWhileSyncRuns() async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    let anna = try place.device("anna", url: url)
    let ben = try place.device("ben", url: url)
    try await anna.sync()
    try await ben.sync()
    let script = """
      import random, sqlite3, sys, time
      random.seed(int(sys.argv[2]))
      prefix = sys.argv[3]
      db = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)
      db.execute("PRAGMA foreign_keys = ON")
      for n in range(120):
          db.execute("BEGIN IMMEDIATE")
          site = "%s-s%d" % (prefix, n % 17)
          db.execute("INSERT INTO site VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET seats = seats + 1",
                     (site, "Site %d" % n, n))
          db.execute("INSERT OR REPLACE INTO visit VALUES (?, ?, NULL, ?, ?, ?)",
                     ("%s-v%d" % (prefix, random.randrange(60)), site, "note %d" % n, random.random(),
                      random.randbytes(random.randrange(40))))
          if n % 5 == 4:
              db.execute("DELETE FROM visit WHERE id = ?", ("%s-v%d" % (prefix, random.randrange(60)),))
          if n % 11 == 10:
              db.execute("ROLLBACK")
          else:
              db.execute("COMMIT")
          time.sleep(0.01)
      """
    let editors = try [(anna, "1", "a"), (ben, "2", "b")].map { device, seed, prefix in
      try ChildProcess("python3", ["-c", script, device.database, seed, prefix], directory: place.directory)
    }
    while editors.contains(where: \.isRunning) {
      try await anna.sync()
      try await ben.sync()
    }
    for editor in editors {
      let output = await editor.output()
      #expect(output.code == 0, "\(output.err)")
    }
    for device in [anna, ben, anna] { try await device.sync() }
    let all = try contents(place.server.database)
    #expect(all["site"]?.count == 34)
    #expect(try contents(anna.database) == all)
    #expect(try contents(ben.database) == all)
    for device in [anna, ben] {
      #expect(try await device.salvor("status", "--json").json["queued"] == 0)
      #expect(try damage(device.database) == [])
    }
    #expect(try damage(place.server.database) == [])
  }

  @Test(
    "What another program writes in the server's file reaches the devices, deletes too",
    .enabled(if: Built.has("python3")))
  func directServerWritesAreFed() async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    let device = try place.device("anna", url: url)
    try await device.sync()
    func python(_ statement: String) async throws {
      let script = """
        import sqlite3, sys
        db = sqlite3.connect(sys.argv[1], timeout=20)
        db.execute("PRAGMA foreign_keys = ON")
        db.executescript(sys.argv[2])
        """
      let output = try await ChildProcess(
        "python3", ["-c", script, place.server.database, statement], directory: place.directory
      ).output()
      #expect(output.code == 0, "\(output.err)")
    }
    try await python(
      "INSERT INTO severity VALUES (1, 'minor'); INSERT INTO site VALUES ('s1', 'Harbour', 4), ('s2', 'Corner', 2)")
    #expect(try await device.sync()["downloaded"]["upserts"] == 3)
    try await python("UPDATE site SET seats = 5 WHERE id = 's1'; DELETE FROM site WHERE id = 's2'")
    let report = try await device.sync()
    #expect(report["downloaded"]["upserts"] == 1)
    #expect(report["downloaded"]["deletes"] == 1)
    #expect(try contents(device.database) == contents(place.server.database))
    #expect(try device.sqlite().rows("SELECT * FROM site") == [["s1", "Harbour", 5]])
  }

  @Test("Different columns of one row edited on two devices are both kept")
  func columnsMerge() async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    let anna = try place.device("anna", url: url)
    let ben = try place.device("ben", url: url)
    try await anna.sync()
    try anna.sqlite().execute("INSERT INTO site VALUES ('s1', 'Harbour', 4)")
    try await anna.sync()
    try await ben.sync()
    try anna.sqlite().execute("UPDATE site SET name = 'Harbour Kitchen'")
    try ben.sqlite().execute("UPDATE site SET seats = 40")
    for device in [anna, ben, anna] { try await device.sync() }
    let merged: [[Value]] = [["s1", "Harbour Kitchen", 40]]
    for file in [anna.database, ben.database, place.server.database] {
      #expect(try SQLiteConnection(file).rows("SELECT id, name, seats FROM site") == merged)
    }
  }

  @Test("A write to a server-maintained table is refused, readable as such, and ends the sync with 6")
  func serverMaintainedTablesRefuse() async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    try place.server.sqlite().execute("INSERT INTO severity VALUES (1, 'minor')")
    let device = try place.device("anna", url: url)
    try await device.sync()
    try device.sqlite().execute(
      "UPDATE severity SET name = 'mine'; INSERT INTO site VALUES ('s1', 'Harbour', 4)")
    let report = try await device.sync(expecting: 6)
    #expect(report["refused"] == 1)
    #expect(report["uploaded"] == 1)
    #expect(try place.server.sqlite().rows("SELECT * FROM severity") == [[1, "minor"]])
    #expect(try place.server.sqlite().rows("SELECT id FROM site") == [["s1"]])
    #expect(try await device.salvor("status", "--json").json["inError"] == 1)
    let archive = try device.sqlite().rows(#"SELECT * FROM salvor_error_archive"#)
    #expect(archive.count == 1)
    let queue = try await device.salvor("errors", "--json").json["requests"].items
    #expect(queue.map { $0["reason"].string } == ["server-maintained"])
    #expect(queue.map { $0["state"].string } == ["refused"])
  }

  @Test("A table and a column added on the server reach a client that was neither rebuilt nor reconfigured")
  func newTablesReachOldClients() async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    let device = try place.device("anna", url: url, schema: Workspace.schema)
    try await device.sync()
    try device.sqlite().execute("INSERT INTO site VALUES ('s1', 'Harbour', 4)")
    #expect(try await place.server.stop().code == 0)
    try place.write(
      Workspace.schema
        .replacingOccurrences(of: "version: 1,", with: "version: 2,")
        .replacingOccurrences(of: "seats: \"integer = 0\"", with: "seats: \"integer = 0\", phone: \"text?\"")
        .replacingOccurrences(
          of: "draft: {",
          with: """
            equipment: { maintained: "dual", group: "visits", primaryKey: "id",
                         columns: { id: "text", site_id: "text", name: "text" }, references: { site_id: "site" } },
            draft: {
            """), to: "schema.json5")
    let again = try await place.server.start()
    try place.server.sqlite().execute(
      "INSERT INTO site (id, name, phone) VALUES ('s2', 'Corner', '555'); INSERT INTO equipment VALUES ('e1', 's2', 'oven')"
    )
    try device.connect(to: again)
    try await device.sync()
    try device.sqlite().execute(
      "INSERT INTO equipment VALUES ('e2', 's1', 'sink'); UPDATE site SET phone = '556' WHERE id = 's1'")
    try await device.sync()
    let tables = Workspace.tables + ["equipment"]
    let all = try contents(place.server.database, tables)
    #expect(all["equipment"]?.count == 2)
    #expect(try contents(device.database, tables) == all)
  }

  @Test("sync --group sends and fetches that group alone")
  func oneGroupAlone() async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    try place.server.sqlite().execute(
      "INSERT INTO severity VALUES (1, 'minor'); INSERT INTO site VALUES ('s1', 'Harbour', 4)")
    let device = try place.device("anna", url: url)
    #expect(try await device.salvor("sync", "--group", "reference").code == 0)
    #expect(try device.sqlite().rows("SELECT id FROM severity") == [[1]])
    #expect(try device.sqlite().rows("SELECT id FROM site") == [])
    #expect(try await device.salvor("sync", "--group", "visit").code == 2)
    try await device.sync()
    #expect(try contents(device.database) == contents(place.server.database))
  }

  @Test(
    "A remote ID that the administrator deletes registers again, and nothing is applied twice; --block keeps it out")
  func deletedRemotesComeBack() async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    let device = try place.device("anna", url: url)
    try await device.sync()
    try device.sqlite().execute("INSERT INTO site VALUES ('s1', 'Harbour', 4)")
    try await device.sync()
    let id = try #require(try await device.salvor("status", "--json").json["remoteID"].string)
    let listed = try await place.server.salvor("remotes", "list", "--json").json["remotes"].items
    #expect(listed.map { $0["id"].string } == [id])
    #expect(try await place.server.salvor("remotes", "delete", id).code == 0)
    try device.sqlite().execute("UPDATE site SET seats = seats + 1")
    #expect(try await device.sync()["outcome"] == "synchronized")
    #expect(try contents(device.database) == contents(place.server.database))
    #expect(try place.server.sqlite().rows("SELECT seats FROM site") == [[5]])
    #expect(try await place.server.salvor("remotes", "delete", id, "--block").code == 0)
    try device.sqlite().execute("UPDATE site SET seats = seats + 1")
    let blocked = try await device.sync(expecting: 4)
    #expect(blocked["error"]["name"] == "remote-blocked")
    #expect(try await device.salvor("status", "--json").json["queued"] == 1)
    #expect(try await place.server.salvor("remotes", "delete", "nobody").code == 2)
  }
}

/// `count` visits of one site, in one transaction.
func insertVisits(_ device: Device, count: Int, prefix: String = "v") throws {
  let connection = try device.sqlite()
  try connection.execute(
    """
    BEGIN;
    INSERT INTO site VALUES ('\(prefix)-site', 'Harbour', 4);
    WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < \(count))
    INSERT INTO visit SELECT printf('\(prefix)%06d', i), '\(prefix)-site', NULL, hex(randomblob(60)), i / 7.0, randomblob(20) FROM n;
    COMMIT;
    """)
}
