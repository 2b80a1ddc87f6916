import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// Tokens and scopes: nobody reads or writes outside their scope, whatever they send.
@Suite struct RightsTests {
  static let schema = """
    {
      version: 1,
      parameters: { region: "text" },
      tables: {
        site: { maintained: "dual", primaryKey: "id", columns: { id: "text", region: "text", name: "text" },
                scope: { region: "parameter:region" } },
        visit: { maintained: "dual", primaryKey: "id", columns: { id: "text", site_id: "text", note: "text?" },
                 references: { site_id: { table: "site", scope: "inherit" } } },
        diary: { maintained: "dual", primaryKey: "id", columns: { id: "text", owner: "text", text: "text" },
                 scope: { owner: "principal" } },
      },
    }
    """
  static let tables = ["site", "visit", "diary"]

  /// A server with two tokens: anna may see region EU, ben region US.
  private struct Scene {
    var place: Workspace
    var url: String
    var anna: Device
    var ben: Device
    var token: String

    init() async throws {
      place = try Workspace(schema: RightsTests.schema, authentication: #"{ module: "tokens", file: "tokens.json5" }"#)
      var lines: [String] = []
      var tokens: [String] = []
      for (name, region) in [("anna", "EU"), ("ben", "US")] {
        let made = try await salvor(["token", name, "--json"], in: place.directory).json
        let line = try #require(made["line"].string)
        let open = try #require(line.lastIndex(of: "}"))
        lines.append(line[..<open] + ", parameters: { region: [\"\(region)\"] } }")
        tokens.append(try #require(made["token"].string))
      }
      try place.write("{ tokens: [\n\(lines.joined(separator: ",\n"))\n] }", to: "tokens.json5")
      url = try await place.server.start()
      try place.server.sqlite().execute(
        """
        INSERT INTO site VALUES ('eu1', 'EU', 'Hafen'), ('us1', 'US', 'Harbor');
        INSERT INTO visit VALUES ('v-eu', 'eu1', 'a'), ('v-us', 'us1', 'b');
        INSERT INTO diary VALUES ('d-anna', 'anna', 'dear diary'), ('d-ben', 'ben', 'nobody reads this');
        """)
      anna = try place.device("anna", url: url, credentials: "{ token: \"${SALVOR_TOKEN}\" }")
      ben = try place.device("ben", url: url, credentials: "{ token: \"\(tokens[1])\" }")
      token = tokens[0]
    }

    var annasEnvironment: [String: String] { ["SALVOR_TOKEN": token] }
  }

  @Test("A device receives the rows of its scope only: by parameter, inherited from the parent, by principal")
  func readsAreScoped() async throws {
    let scene = try await Scene()
    try await scene.anna.sync(environment: scene.annasEnvironment)
    try await scene.ben.sync()
    #expect(
      try contents(scene.anna.database, RightsTests.tables).mapValues { $0.map(\.description).sorted() }.values.joined()
        .contains { $0.contains("us1") || $0.contains("ben") } == false)
    #expect(try scene.anna.sqlite().rows("SELECT id FROM visit") == [["v-eu"]])
    #expect(try scene.anna.sqlite().rows("SELECT id FROM diary") == [["d-anna"]])
    #expect(try scene.ben.sqlite().rows("SELECT id FROM site") == [["us1"]])
    #expect(try scene.ben.sqlite().rows("SELECT id FROM visit") == [["v-us"]])
    #expect(try scene.ben.sqlite().rows("SELECT id FROM diary") == [["d-ben"]])
  }

  @Test("A write outside the scope is refused with out-of-scope and changes nothing; the rest goes through")
  func writesAreScoped() async throws {
    let scene = try await Scene()
    try await scene.anna.sync(environment: scene.annasEnvironment)
    try scene.anna.sqlite().execute(
      """
      INSERT INTO site VALUES ('eu2', 'EU', 'Kai');
      INSERT INTO site VALUES ('us2', 'US', 'Pier');
      INSERT INTO diary VALUES ('forged', 'ben', 'I was here');
      UPDATE site SET region = 'US' WHERE id = 'eu1';
      """)
    let report = try await scene.anna.sync(expecting: 6, environment: scene.annasEnvironment)
    #expect(report["uploaded"] == 1)
    #expect(report["refused"] == 3)
    #expect(
      try scene.place.server.sqlite().rows("SELECT id, region FROM site ORDER BY id") == [
        ["eu1", "EU"], ["eu2", "EU"], ["us1", "US"],
      ])
    #expect(try scene.place.server.sqlite().rows("SELECT id FROM diary ORDER BY id") == [["d-anna"], ["d-ben"]])
    let archive = try await scene.anna.salvor("errors", "--json", environment: scene.annasEnvironment)
    #expect(try Set(archive.json["requests"].items.map { $0["reason"].string }) == ["out-of-scope"])
  }

  @Test("A row that leaves the scope leaves the device; on the server it stays")
  func rowsLeaveTheScope() async throws {
    let scene = try await Scene()
    try await scene.anna.sync(environment: scene.annasEnvironment)
    try await scene.ben.sync()
    try scene.place.server.sqlite().execute("UPDATE site SET region = 'US' WHERE id = 'eu1'")
    try await scene.anna.sync(environment: scene.annasEnvironment)
    try await scene.ben.sync()
    #expect(try scene.anna.sqlite().rows("SELECT id FROM site") == [])
    #expect(try scene.anna.sqlite().rows("SELECT id FROM visit") == [])
    #expect(try scene.ben.sqlite().rows("SELECT id FROM site ORDER BY id") == [["eu1"], ["us1"]])
    #expect(try scene.ben.sqlite().rows("SELECT id FROM visit ORDER BY id") == [["v-eu"], ["v-us"]])
    #expect(try scene.place.server.sqlite().integer("SELECT count(*) FROM visit") == 2)
  }

  @Test("A wrong or missing token ends with 4 and leaves the queue; a token file that changes is read again")
  func tokensAreChecked() async throws {
    let scene = try await Scene()
    try await scene.anna.sync(environment: scene.annasEnvironment)
    try scene.anna.sqlite().execute("INSERT INTO diary VALUES ('d2', 'anna', 'more')")
    let wrong = try await scene.anna.sync(expecting: 4, environment: ["SALVOR_TOKEN": "wrong"])
    #expect(wrong["error"]["name"] == "unauthenticated")
    let missing = try await scene.anna.salvor("sync", "--json")
    #expect(missing.code == 2, "\(missing.out) \(missing.err)")
    #expect(missing.err.contains("SALVOR_TOKEN"))
    #expect(
      try await scene.anna.salvor("status", "--json", environment: scene.annasEnvironment).json["queued"] == 1)
    try scene.place.write("{ tokens: [] }", to: "tokens.json5")
    #expect(try await scene.ben.sync(expecting: 4)["error"]["name"] == "unauthenticated")
  }

  @Test("check warns of a token without a list of a scope's parameter, ends with 0 and prints no token (semantics 7)")
  func checkWarnsOfAParameterWithoutAList() async throws {
    let scene = try await Scene()
    let environment = scene.annasEnvironment
    let silent = try await salvor(["check", "--json"], in: scene.place.directory, environment: environment)
    #expect(silent.code == 0)
    #expect(try silent.json["diagnostics"].items.isEmpty)

    let made = try await salvor(["token", "carl", "--json"], in: scene.place.directory).json
    let (line, token) = (try #require(made["line"].string), try #require(made["token"].string))
    let file = scene.place.directory.appendingPathComponent("tokens.json5")
    let tokens = try String(contentsOf: file, encoding: .utf8)
    try scene.place.write(
      tokens.replacingOccurrences(of: "{ tokens: [", with: "{ tokens: [\n\(line)"), to: "tokens.json5")

    let json = try await salvor(["check", "--json"], in: scene.place.directory, environment: environment)
    #expect(json.code == 0, "\(json.out) \(json.err)")
    #expect(try json.json["valid"] == true)
    let found = try json.json["diagnostics"].items
    #expect(found.map { $0["severity"].string } == ["warning"])
    #expect(found.first?["path"].string?.hasSuffix("parameters.region") == true)
    let text = try await salvor(["check"], in: scene.place.directory, environment: environment)
    #expect(text.code == 0, "\(text.out) \(text.err)")
    for output in [json.out, text.out + text.err] {
      #expect(output.contains("site") && output.contains("carl") && !output.contains("anna") && !output.contains("ben"))
      let hash = try #require(line.split(separator: "\"").dropFirst().first)
      #expect(hash.count == 64 && !output.contains(hash) && !output.contains(token))
    }
  }

  @Test("A database is never sent as another principal's")
  func aQueueBelongsToItsPrincipal() async throws {
    let scene = try await Scene()
    try await scene.anna.sync(environment: scene.annasEnvironment)
    try scene.anna.sqlite().execute("INSERT INTO diary VALUES ('d2', 'anna', 'more')")
    let bens = try scene.place.device("anna", url: scene.url, credentials: scene.ben.credentials)
    let output = try await bens.salvor("sync", "--json")
    #expect(output.code == 4, "\(output.out) \(output.err)")
    #expect(try scene.place.server.sqlite().integer("SELECT count(*) FROM diary") == 2)
    try scene.anna.connect(to: scene.url)
    try await scene.anna.sync(environment: scene.annasEnvironment)
    #expect(try scene.place.server.sqlite().rows("SELECT owner FROM diary WHERE id = 'd2'") == [["anna"]])
  }
}
