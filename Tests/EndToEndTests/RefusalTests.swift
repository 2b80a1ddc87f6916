import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// The Python service of Plugins/WebhookValidator/README.md, as it stands there: it refuses empty notes.
final class RulesService: Sendable {
  static let secret = "a secret that both of them know"
  let url: String
  private let child: ChildProcess

  init(in directory: URL) async throws {
    let readme = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().appendingPathComponent("Plugins/WebhookValidator/README.md")
    let text = try String(contentsOf: readme, encoding: .utf8)
    let program = try #require(text.components(separatedBy: "```python\n").last?.components(separatedBy: "```").first)
    child = try ChildProcess(
      "python3", ["-c", program], directory: directory, environment: ["RULES_SECRET": Self.secret, "PORT": "0"])
    url = "http://127.0.0.1:\(try await child.line(after: "listening on "))/"
  }

  deinit { child.signal(SIGKILL) }

  func stop() async {
    child.signal(SIGKILL)
    _ = await child.output()
  }
}

/// A refused write is never a dead end: every refusal is an archive entry with reason, status, message and time.
@Suite struct RefusalTests {
  /// `more` and `moreColumns` are what a device has before the server does.
  private static func schema(version: Int, moreColumns: String = "", more: String = "") -> String {
    """
    {
      version: \(version),
      tables: {
        severity: { maintained: "server", primaryKey: "id", columns: { id: "integer", name: "text" } },
        site: { primaryKey: "id", columns: { id: "text", name: "text", seats: "integer = 0" },
                unique: [["name"]], check: ["seats < 100"], conflicts: "server-wins" },
        visit: { primaryKey: "id", columns: { id: "text", site_id: "text", note: "text?" }, references: { site_id: "site" } },
        diary: { primaryKey: "id", columns: { id: "text", owner: "text", text: "text" }, scope: { owner: "principal" } },
        ticket: { primaryKey: "id", columns: { id: "integer", seats: "integer?" }, sameKey: "refuse" },
        asset: { primaryKey: "id", columns: { id: "text", name: "text?"\(moreColumns) } },
        \(more)
      },
    }
    """
  }
  private static let ahead = schema(
    version: 2, moreColumns: ", colour: \"text?\"",
    more: "extra: { primaryKey: \"id\", columns: { id: \"text\" } },")

  /// The application's own tables, older than Salvor: without NOT NULL and CHECK.
  private static let deviceTables = """
    CREATE TABLE site (id TEXT PRIMARY KEY NOT NULL, name TEXT UNIQUE, seats INTEGER DEFAULT 0);
    CREATE TABLE visit (id TEXT PRIMARY KEY NOT NULL, site_id TEXT REFERENCES site (id), note TEXT);
    """

  /// What was in their way came with the answer to the upload, so that they cannot stand in the table (semantics 2).
  private static let displaced = ["site string(\"unique\")", "visit string(\"orphan\")", "site string(\"gone\")"]

  private static func scratch() throws -> URL {
    let folder = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-e2e-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    return folder
  }

  /// A server that asks the service about visits.
  private static func workspace(_ rules: RulesService, schema: String) throws -> Workspace {
    try Workspace(
      schema: schema, serverLimits: "{ rowBytesMax: 4096 }",
      serverOptions: """
        validators: [{ module: "webhook", url: "\(rules.url)", secret: "${RULES_SECRET}", tables: ["visit"],
                       timeoutSeconds: 300, retries: 0 }],
        """)
  }
  private static let environment = ["RULES_SECRET": RulesService.secret]

  @Test(
    "One upload with every refusal there is: each is in the archive with reason, status, message and time, the rest is applied",
    .enabled(if: Built.has("python3")))
  func everyRefusal() async throws {
    let folder = try Self.scratch()
    defer { try? FileManager.default.removeItem(at: folder) }
    let rules = try await RulesService(in: folder)
    let place = try Self.workspace(rules, schema: Self.schema(version: 1))
    let url = try await place.server.start(environment: Self.environment)
    let server = try place.server.sqlite()
    try server.execute(
      """
      INSERT INTO severity VALUES (1, 'low');
      INSERT INTO site VALUES ('gone', 'Gone', 1), ('parent', 'Parent', 1), ('clash', 'Clash', 1);
      """)
    let device = try place.device("anna", url: url)
    try device.sqlite().execute(Self.deviceTables)
    try await device.sync()
    try server.execute(
      """
      INSERT INTO site (id, name, seats) VALUES ('theirs', 'Taken', 1);
      INSERT INTO ticket VALUES (1, 7);
      DELETE FROM site WHERE id IN ('gone', 'parent');
      UPDATE site SET seats = 5 WHERE id = 'clash';
      """)

    try device.sqlite().execute(
      """
      INSERT INTO site (id, name, seats) VALUES ('good', 'Good', 3);
      INSERT INTO site (id, name, seats) VALUES ('unique', 'Taken', 3);
      INSERT INTO site (id, name, seats) VALUES ('check', 'Check', 1000);
      INSERT INTO site (id, name, seats) VALUES ('null', NULL, 3);
      INSERT INTO visit VALUES ('orphan', 'parent', 'a note');
      UPDATE site SET seats = 2 WHERE id = 'gone';
      UPDATE site SET seats = 6 WHERE id = 'clash';
      INSERT INTO severity VALUES (9, 'mine');
      INSERT INTO diary VALUES ('d1', 'ben', 'not mine');
      INSERT INTO visit VALUES ('large', 'good', '\(String(repeating: "x", count: 5000))');
      INSERT INTO ticket VALUES (5, 'many');
      INSERT INTO ticket VALUES (1, 8);
      INSERT INTO visit VALUES ('empty', 'good', '');
      INSERT INTO visit VALUES ('child', 'check', 'its parent is refused');
      INSERT INTO visit VALUES ('kept', 'good', 'a note');
      """)
    let before = Date().timeIntervalSince1970 * 1000
    let report = try await device.sync(expecting: 6)
    #expect(report["uploaded"] == 2)
    #expect(report["refused"] == 13)

    let archive = try await device.salvor("errors", "--json").json["requests"].items
    var found: [String: JSON] = [:]
    for entry in archive { found["\(entry["table"].string ?? "") \(entry["key"][0])"] = entry }
    let wanted: [(String, reason: String, status: Int64)] = [
      ("site string(\"unique\")", "constraint", 422), ("site string(\"check\")", "constraint", 422),
      ("site string(\"null\")", "constraint", 422), ("visit string(\"orphan\")", "missing-parent", 422),
      ("site string(\"gone\")", "row-deleted", 409), ("site string(\"clash\")", "conflict", 409),
      ("severity integer(9)", "server-maintained", 403), ("diary string(\"d1\")", "out-of-scope", 403),
      ("visit string(\"large\")", "too-large", 413), ("ticket integer(5)", "not-storable", 422),
      ("ticket integer(1)", "key-exists", 409), ("visit string(\"empty\")", "validator", 422),
      ("visit string(\"child\")", "blocked", 424),
    ]
    #expect(Set(found.keys.map { $0 }) == Set(wanted.map(\.0)))
    for (key, reason, status) in wanted {
      let entry = found[key] ?? .null
      #expect(entry["reason"].string == reason, "\(key): \(entry)")
      #expect(entry["status"].integer == status, "\(key): \(entry)")
      #expect(entry["message"].string?.isEmpty == false, "\(key)")
      let state = Self.displaced.contains(key) ? "displaced" : reason == "blocked" ? "blocked" : "refused"
      #expect(entry["state"].string == state, "\(key)")
    }
    #expect(found["visit string(\"empty\")"]?["message"] == "A visit needs a note.")
    // From SQL, too, with the time of each.
    let times = try device.sqlite().rows("SELECT at FROM salvor_error_archive").map { $0[0].integer ?? 0 }
    #expect(times.count == 13)
    #expect(
      times.allSatisfy { Double($0) >= before - 60_000 && Double($0) <= Date().timeIntervalSince1970 * 1000 + 60_000 })
    // One refusal stopped no other, and nothing refused is there.
    #expect(try server.rows("SELECT id, note FROM visit") == [["kept", "a note"]])
    #expect(try server.rows("SELECT id FROM site ORDER BY id") == [["clash"], ["good"], ["theirs"]])
    #expect(try server.rows("SELECT seats FROM site WHERE id = 'clash'") == [[5]])
    #expect(try server.rows("SELECT * FROM ticket") == [[1, 7]])
    #expect(try server.rows("SELECT count(*) FROM diary") == [[0]])
  }

  @Test(
    "A table and a column that the server does not know yet: their requests wait, the rest is applied; they go up once it does"
  )
  func unknown() async throws {
    let place = try Workspace(schema: Self.schema(version: 1))
    let url = try await place.server.start()
    let device = try place.device("anna", url: url, schema: Self.ahead)
    _ = try await device.salvor("status")
    try device.sqlite().execute(
      """
      INSERT INTO extra VALUES ('e1');
      INSERT INTO asset VALUES ('a1', 'one', 'red');
      INSERT INTO site (id, name) VALUES ('s1', 'one');
      """)
    try await device.sync()
    let waiting = try await device.salvor("queue", "--json").json["requests"].items
    #expect(waiting.map { $0["table"].string } == ["extra", "asset"])
    #expect(waiting.allSatisfy { $0["state"] == "queued" })
    #expect(try await device.salvor("errors", "--json").json["requests"].items.isEmpty)
    #expect(try place.server.sqlite().rows("SELECT id FROM site") == [["s1"]])
    #expect(try place.server.sqlite().rows("SELECT id FROM asset") == [])

    _ = try await place.server.stop()
    try place.write(Self.ahead, to: "schema.json5")
    try device.connect(to: try await place.server.start())
    try await device.sync()
    #expect(try await device.salvor("status", "--json").json["queued"] == 0)
    #expect(try place.server.sqlite().rows("SELECT id, colour FROM asset") == [["a1", "red"]])
    #expect(try place.server.sqlite().rows("SELECT id FROM extra") == [["e1"]])
  }

  @Test(
    "A webhook that is away: the sync can be tried again, nothing is lost, and with the service back it goes through",
    .enabled(if: Built.has("python3")))
  func serviceAway() async throws {
    let folder = try Self.scratch()
    defer { try? FileManager.default.removeItem(at: folder) }
    let rules = try await RulesService(in: folder)
    let place = try Self.workspace(rules, schema: Self.schema(version: 1))
    var url = try await place.server.start(environment: Self.environment)
    let device = try place.device("anna", url: url, limits: "{ attemptsMax: 1 }")
    try await device.sync()
    try device.sqlite().execute(
      """
      INSERT INTO site (id, name) VALUES ('s1', 'one'); INSERT INTO visit VALUES ('v1', 's1', 'a note');
      INSERT INTO visit VALUES ('v2', 's1', '');
      """)
    await rules.stop()
    let report = try await device.sync(expecting: 3)
    #expect(report["error"]["name"].string == "validator-unavailable")
    #expect(try await device.salvor("status", "--json").json["queued"] == 3)
    #expect(try place.server.sqlite().rows("SELECT count(*) FROM site") == [[0]])
    #expect(place.server.child?.err.contains("webhook") == true || place.server.child?.out.contains("webhook") == true)

    let back = try await RulesService(in: folder)
    _ = try await place.server.stop()
    let configuration = place.directory.appendingPathComponent("salvor.json5")
    let text = try String(contentsOf: configuration, encoding: .utf8)
    try place.write(text.replacingOccurrences(of: rules.url, with: back.url), to: "salvor.json5")
    url = try await place.server.start(environment: Self.environment)
    try device.connect(to: url)
    try await device.sync(expecting: 6)
    #expect(try place.server.sqlite().rows("SELECT id FROM visit") == [["v1"]])
    let archive = try await device.salvor("errors", "--json").json["requests"].items
    #expect(archive.map { $0["reason"].string } == ["validator"])
  }

  @Test("salvor check names a validator's mistakes, and tables that it cannot be asked about")
  func check() async throws {
    let place = try Workspace(
      schema: Self.schema(version: 1),
      serverOptions: """
        validators: [
          { module: "webhook", url: "http://rules.example.org/", tables: ["visits", "severity"], onFailure: "later" },
          { module: "webhoop" },
        ],
        """)
    let output = try await place.server.salvor("check")
    #expect(output.code == 2)
    for part in [
      "server.validators[0].url", "allowPlainHTTP", "server.validators[0].onFailure", "allowed: retry-later, accept",
      "server.validators[1].module", "did you mean \"webhook\"",
    ] { #expect(output.err.contains(part) || output.out.contains(part), "\(part): \(output.err)") }
    try place.write(
      try String(contentsOf: place.directory.appendingPathComponent("salvor.json5"), encoding: .utf8)
        .replacingOccurrences(of: "http://rules", with: "https://rules")
        .replacingOccurrences(of: ", onFailure: \"later\"", with: "")
        .replacingOccurrences(of: "{ module: \"webhoop\" },", with: ""), to: "salvor.json5")
    let tables = try await place.server.salvor("check")
    #expect(tables.code == 2)
    for part in ["server.validators[0].tables[0]", "did you mean \"visit\"", "server.validators[0].tables[1]"] {
      #expect(tables.err.contains(part) || tables.out.contains(part), "\(part): \(tables.err)")
    }
  }
}
