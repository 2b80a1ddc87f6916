import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// Subscriptions by the command line and by the tables of the remote database.
@Suite struct SubscriptionTests {
  private static let schema = """
    {
      version: 1,
      parameters: { region: "text", size: "integer" },
      groups: { places: {}, words: {} },
      tables: {
        site: { maintained: "dual", group: "places", primaryKey: "id",
                columns: { id: "text", region: "text", size: "integer", name: "text" },
                scope: { region: "parameter:region", size: "parameter:size" } },
        visit: { maintained: "dual", group: "places", primaryKey: "id",
                 columns: { id: "text", site_id: "text", note: "text?" },
                 references: { site_id: { table: "site", scope: "inherit" } } },
        word: { maintained: "server", group: "words", primaryKey: "id", columns: { id: "text" } },
      },
    }
    """

  /// A server with 200 sites, half of them in the EU, with a visit each.
  private static func scene(recovery: String = "{}") async throws -> (place: Workspace, device: Device) {
    let place = try Workspace(schema: schema)
    let url = try await place.server.start()
    try place.server.sqlite().execute(
      """
      WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 200)
        INSERT INTO site SELECT printf('s%03d', i), iif(i % 2, 'EU', 'US'), i % 10, 'Site ' || i FROM n;
      INSERT INTO visit SELECT 'v-' || id, id, NULL FROM site;
      INSERT INTO word VALUES ('w');
      """)
    return (place, try place.device("anna", url: url, recovery: recovery))
  }

  private static func counts(_ report: JSON) -> [JSON] {
    [report["downloaded"]["upserts"], report["downloaded"]["deletes"]]
  }

  @Test("subscribe, subscriptions and unsubscribe need no server; the next sync fetches and drops the difference")
  func commandLine() async throws {
    let (place, device) = try await Self.scene()
    await place.server.killAndWait()
    let added = try await device.salvor("subscribe", "site", "region=EU", "size=1", "--json")
    #expect(added.code == 0, "\(added.err)")
    #expect(try added.json["added"] == true)
    #expect(try await device.salvor("subscribe", "site", "size=1", "region=EU", "--json").json["added"] == false)
    let listed = try await device.salvor("subscriptions", "--json").json["subscriptions"]
    let id = try #require(listed[0]["id"].string)
    #expect(listed[0]["target"] == "site")
    #expect(listed[0]["parameters"]["region"] == "EU")
    #expect(listed[0]["parameters"]["size"] == 1)
    #expect(listed[0]["synchronized"] == false)

    try device.connect(to: try await place.server.start())
    #expect(Self.counts(try await device.sync()) == [41, 0])
    #expect(try await device.salvor("subscriptions", "--json").json["subscriptions"][0]["synchronized"] == true)
    _ = try await device.salvor("subscribe", "site", "size=2")
    #expect(Self.counts(try await device.sync()) == [40, 0])
    let rest = try await device.salvor("unsubscribe", id, "--json")
    #expect(rest.code == 0, "\(rest.err)")
    #expect(try rest.json["bringsNothing"] == false)
    #expect(Self.counts(try await device.sync()) == [0, 40])
    #expect(try device.sqlite().rows("SELECT DISTINCT size FROM site") == [[2]])
    let all = try await device.salvor("unsubscribe", "site", "--all", "--json").json
    #expect(all["bringsNothing"] == true)
    #expect(Self.counts(try await device.sync()) == [0, 40])
    #expect(try device.sqlite().rows("SELECT count(*) FROM word") == [[1]])
  }

  @Test("Usage errors name what is near or usable, an unknown subscription is not-found: exit code 2, nothing changed")
  func usage() async throws {
    let (place, device) = try await Self.scene()
    defer { withExtendedLifetime(place) {} }
    for (words, told) in [
      (["subscribe", "sit", "region=EU"], "did you mean \"site\"?"),
      (["subscribe", "site", "regon=EU"], "did you mean \"region\"?"),
      (["subscribe", "visit", "region=EU"], "site"), (["subscribe", "word"], "site"),
      (["subscribe", "site", "size=large"], "integer"), (["subscribe", "site", "EU"], "NAME=VALUE"),
      (["unsubscribe", "site", "region=EU"], "no subscription"),
      (["unsubscribe", "site", "region=EU", "--all"], "--all"),
    ] {
      let output = try await EndToEndTests.salvor(words, in: device.directory)
      #expect(output.code == 2, "\(words)")
      #expect(output.err.contains(told), "\(words): \(output.err)")
    }
    #expect(try await device.salvor("subscriptions", "--json").json["subscriptions"].items.isEmpty)
  }

  @Test("Any SQLite library may subscribe; a personalization key as a value is taken anew at each sync")
  func tables() async throws {
    let (place, device) = try await Self.scene()
    defer { withExtendedLifetime(place) {} }
    _ = try await device.salvor("status")
    try device.sqlite().execute(
      """
      INSERT INTO salvor_subscription (target, parameter, value) VALUES ('site', 'region', 'US');
      INSERT INTO salvor_subscription (target, id, parameter, setting)
        VALUES ('site', 'mine', 'region', 'home'), ('site', 'mine', 'size', 'favourite');
      """)
    let first = try await device.sync()
    #expect(Self.counts(first) == [201, 0])
    #expect(first["notices"][0].string?.contains("home, favourite") == true)
    try device.sqlite().execute("INSERT INTO salvor_setting VALUES ('home', 'EU'), ('favourite', 1)")
    #expect(Self.counts(try await device.sync()) == [40, 0])
    try device.sqlite().execute(
      "UPDATE salvor_setting SET value = 3 WHERE name = 'favourite'; DELETE FROM salvor_subscription WHERE id = ''")
    #expect(Self.counts(try await device.sync()) == [40, 240])
    #expect(try device.sqlite().rows("SELECT DISTINCT region, size FROM site") == [["EU", 3]])
  }

  @Test("An unsubscribed row with an unsynced change is sent by the next sync, and goes then with its parent")
  func unsynced() async throws {
    let (place, device) = try await Self.scene()
    _ = try await device.salvor("subscribe", "site", "region=EU")
    try await device.sync()
    _ = try await device.salvor("unsubscribe", "site", "region=EU")
    try device.sqlite().execute(
      """
      UPDATE site SET name = 'mine' WHERE id = 's001';
      INSERT INTO visit VALUES ('v-new', 's003', 'mine'), ('v-us', 's003', NULL);
      DELETE FROM visit WHERE id = 'v-s005';
      """)
    let report = try await device.sync()
    #expect(report["uploaded"] == 4)
    #expect(report["displaced"] == 0)
    #expect(try device.sqlite().rows("SELECT (SELECT count(*) FROM site), (SELECT count(*) FROM visit)") == [[0, 0]])
    let server = try place.server.sqlite()
    #expect(try server.rows("SELECT name FROM site WHERE id = 's001'") == [["mine"]])
    #expect(
      try server.rows("SELECT id FROM visit WHERE site_id IN ('s003', 's005') ORDER BY id") == [
        ["v-new"], ["v-s003"], ["v-us"],
      ])
    #expect(try await device.sync()["uploaded"] == 0)
  }

  @Test(
    "A recovery keeps the subscriptions and fetches nothing that they do not cover",
    arguments: ["recover-unsynced-changes", "copy-and-resubscribe"])
  func recovers(_ strategy: String) async throws {
    let (place, device) = try await Self.scene(recovery: "{ strategy: \"\(strategy)\" }")
    _ = try await device.salvor("subscribe", "site", "region=EU", "size=1")
    try await device.sync()
    let remote = try #require(try await device.salvor("status", "--json").json["remoteID"].string)
    try device.sqlite().execute("UPDATE site SET name = 'mine' WHERE id = 's001'")
    _ = try await device.salvor("subscribe", "site", "region=US", "size=2")
    #expect(try await place.server.salvor("remotes", "reset", remote).code == 0)
    #expect(try await device.sync()["outcome"] == "recovered")
    #expect(
      try device.sqlite().rows("SELECT region, size, count(*) FROM site GROUP BY 1, 2 ORDER BY 1") == [
        ["EU", 1, 20], ["US", 2, 20],
      ])
    #expect(try device.sqlite().rows("SELECT count(*) FROM visit") == [[40]])
    #expect(try await device.salvor("subscriptions", "--json").json["subscriptions"].items.count == 2)
    #expect(try place.server.sqlite().rows("SELECT count(*) FROM site") == [[200]])
    #expect(Self.counts(try await device.sync()) == [0, 0])
  }
}
