import Foundation
import Testing

/// `salvor explain`: why a row is here, or not, on either side.
@Suite struct ExplainTests {
  /// Sites by region, and visits below them; the token file says which regions somebody may see.
  private static let schema = """
    {
      version: 1,
      parameters: { region: "text" },
      tables: {
        site: { maintained: "dual", primaryKey: "id", conflicts: "keep-versions",
                columns: { id: "text", name: "text", region: "text" }, scope: { region: "parameter:region" } },
        visit: { maintained: "dual", primaryKey: ["site_id", "line"],
                 columns: { site_id: "text", line: "integer", note: "text?" },
                 references: { site_id: { table: "site", scope: "inherit" } } },
        draft: { maintained: "client", primaryKey: "id", columns: { id: "text", body: "text?" } },
      },
    }
    """

  private final class Fleet {
    let place: Workspace
    let url: String
    private(set) var tokens: [String: String] = [:]

    init() async throws {
      place = try Workspace(
        schema: ExplainTests.schema, authentication: #"{ module: "tokens", file: "tokens.json5" }"#)
      var entries = ""
      for (name, more) in [("anna", #"parameters: { region: ["EU", "AS"] }"#), ("watcher", #"role: "viewer""#)] {
        let made = try await salvor(["token", name, "--json"], in: place.directory).json
        let line = try #require(made["line"].string)
        entries += line.replacingOccurrences(of: " },", with: ", \(more) },")
        tokens[name] = made["token"].string
      }
      try place.write("{ tokens: [ \(entries) ] }", to: "tokens.json5")
      url = try await place.server.start()
      try place.server.sqlite().execute(
        """
        INSERT INTO site (id, name, region) VALUES ('eu', 'one', 'EU'), ('as', 'two', 'AS'), ('us', 'three', 'US'), ('gone', 'x', 'EU');
        INSERT INTO visit (site_id, line) VALUES ('eu', 1), ('us', 1);
        """)
    }

    func device(_ name: String) throws -> Device {
      try place.device(name, url: url, credentials: "{ token: \"\(tokens["anna"] ?? "")\" }")
    }

    /// The codes of the server's reasons, by the running server or by its database.
    func explain(_ words: String..., elsewhere: Bool) async throws -> (codes: [String], told: JSON) {
      let way = elsewhere ? ["--url", url] : ["--server"]
      let output = try await salvor(
        ["explain", "--json"] + words + way, in: place.directory,
        environment: ["SALVOR_ADMIN_TOKEN": tokens["watcher"] ?? ""])
      #expect(output.code == 0, "\(output.err)")
      return (try output.json["reasons"].items.compactMap(\.["code"].string), try output.json)
    }
  }

  private func explain(_ device: Device, _ words: String...) async throws -> (codes: [String], told: JSON) {
    let output = try await salvor(["explain", "--json"] + words, in: device.directory)
    #expect(output.code == 0, "\(output.err)")
    return (try output.json["reasons"].items.compactMap(\.["code"].string), try output.json)
  }

  @Test(
    "A device says of a row whether it came, was made, deleted or refused here, left, was deleted there, or never came")
  func onTheDevice() async throws {
    let fleet = try await Fleet()
    let device = try fleet.device("anna")
    #expect(try await explain(device, "site", "eu").codes == ["never-synchronized"])
    try await device.sync()
    let came = try await explain(device, "site", "eu")
    #expect(came.codes == ["first-download"] && came.told["there"] == true && came.told["group"] == "default")
    #expect(try await explain(device, "visit", "eu", "1").codes == ["first-download"])
    #expect(try await explain(device, "site", "us").codes == ["never-came"])
    try device.sqlite().execute(
      """
      PRAGMA foreign_keys = ON;
      INSERT INTO site (id, name, region) VALUES ('new', 'x', 'EU');
      DELETE FROM site WHERE id = 'as';
      INSERT INTO draft (id) VALUES ('d');
      """)
    let made = try await explain(device, "site", "new")
    #expect(made.codes == ["queued", "made-here"])
    #expect(made.told["requests"].items.first?["operation"] == "insert")
    #expect(try await explain(device, "site", "as").codes == ["queued", "deleted-here"])
    #expect(try await explain(device, "draft", "d").codes == ["client-only"])
    try fleet.place.server.sqlite().execute(
      "DELETE FROM site WHERE id = 'gone'; UPDATE site SET region = 'US' WHERE id = 'eu'; DELETE FROM site WHERE id = 'as'"
    )
    try await device.sync()
    #expect(try await explain(device, "site", "gone").codes.contains("deleted"))
    let left = try await explain(device, "site", "eu")
    #expect(left.codes == ["left-scope"] && left.told["there"] == false)
    let own = try await explain(device, "site", "new")
    #expect(own.codes == ["version"] && own.told["ownVersion"] == true)
    try device.sqlite().execute("INSERT INTO site (id, name, region) VALUES ('bad', 'x', 'US')")
    try await device.sync(expecting: 6)
    let refused = try await explain(device, "site", "bad")
    #expect(refused.codes.first == "refused" && refused.told["there"] == true)
    let queue = try await device.salvor("queue", "--json").json["requests"].items.count
    #expect(queue == 0, "asking changes nothing")
  }

  @Test("Subscriptions: a row that nobody subscribed to is named so, on the device and on the running server")
  func subscriptions() async throws {
    let fleet = try await Fleet()
    let device = try fleet.device("anna")
    #expect(try await device.salvor("subscribe", "site", "region=AS").code == 0)
    try await device.sync()
    #expect(try await explain(device, "site", "eu").codes == ["subscribed", "never-came"])
    let id = try #require(try await device.salvor("status", "--json").json["remoteID"].string)
    #expect(try await fleet.explain("site", "eu", "--remote", id, elsewhere: true).codes.first == "not-subscribed")
    #expect(try await fleet.explain("site", "as", "--remote", id, elsewhere: true).codes.first == "in-scope")
  }

  @Test(
    "The server says for a remote whether its principal may see a row, whether it has it, and who wrote it last",
    arguments: [true, false])
  func onTheServer(elsewhere: Bool) async throws {
    let fleet = try await Fleet()
    let device = try fleet.device("anna")
    try await device.sync()
    let id = try #require(try await device.salvor("status", "--json").json["remoteID"].string)
    try device.sqlite().execute("UPDATE site SET name = 'mine' WHERE id = 'eu'")
    try await device.sync()
    let seen = try await fleet.explain("site", "eu", "--remote", id, elsewhere: elsewhere)
    #expect(seen.codes.contains("in-scope") && seen.codes.contains("last-written"))
    #expect(seen.told["lastChange"]["principal"] == "anna" && seen.told["lastChange"]["remote"].string == id)
    #expect(try await fleet.explain("site", "us", "--remote", id, elsewhere: elsewhere).codes.first == "out-of-scope")
    let child = try await fleet.explain("visit", "us", "1", "--remote", id, elsewhere: elsewhere)
    #expect(child.codes.first == "parent-out-of-scope")
    #expect(try await fleet.explain("site", "never", elsewhere: elsewhere).codes == ["never-there"])
    try fleet.place.server.sqlite().execute("DELETE FROM site WHERE id = 'gone'")
    let gone = try await fleet.explain("site", "gone", "--remote", id, elsewhere: elsewhere)
    #expect(gone.codes.last == "deleted" && gone.told["there"] == false)
    #expect(gone.told["lastChange"]["operation"] == "delete" && gone.told["lastChange"]["remote"] == nil)
    if elsewhere { #expect(gone.codes.first == "behind") }
    // A conflict that waits for a person.
    try device.sqlite().execute("UPDATE site SET name = 'Geheim1' WHERE id = 'as'")
    try fleet.place.server.sqlite().execute("UPDATE site SET name = 'Geheim2' WHERE id = 'as'")
    try await device.sync()
    let conflict = try await fleet.explain("site", "as", elsewhere: elsewhere)
    #expect(conflict.codes.contains("conflict-open") && conflict.told["conflicts"].items.first?["state"] == "open")
    #expect(!"\(conflict.told)".contains("Geheim"), "no value but the key")
  }

  @Test("What cannot be asked is refused by name, with what can be")
  func refusals() async throws {
    let fleet = try await Fleet()
    let device = try fleet.device("anna")
    let table = try await device.salvor("explain", "sites", "x")
    #expect(table.code == 2 && table.err.contains("site, visit, draft"))
    let key = try await device.salvor("explain", "visit", "eu")
    #expect(key.code == 2 && key.err.contains("site_id (text), line (integer)"))
    let number = try await device.salvor("explain", "visit", "eu", "one")
    #expect(number.code == 2 && number.err.contains("line cannot be that"))
    for elsewhere in [["--url", fleet.url], []] {
      let remote = try await salvor(
        ["explain", "site", "x", "--remote", String(repeating: "0", count: 32)] + elsewhere, in: fleet.place.directory,
        environment: ["SALVOR_ADMIN_TOKEN": fleet.tokens["watcher"] ?? ""])
      #expect(remote.code != 0 && remote.err.contains("There is no remote ID"))
    }
  }
}
