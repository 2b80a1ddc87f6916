import Foundation
import SQLiteSupport
import Testing

/// Examples/modules: a module for each seam, in a host that has them; Examples/module-program: programs as modules.
@Suite struct ModuleExampleTests {
  private static let host = URL(fileURLWithPath: Built.salvor).deletingLastPathComponent()
    .appendingPathComponent("example-modules").path
  private static let programs = Built.root.appendingPathComponent("Examples/module-program").path

  @Test(
    "Each module of the guide keeps the contract of its kind",
    arguments: [
      ["recovery-strategy", "gentle", "--only", "plan"], ["recovery-strategy", "gentle", "--only", "restored"],
      ["conflict-policy", "larger", "--options", "{ columns: ['count'] }"], ["validator", "short-texts"],
      ["compression", "framed"],
      ["client-storage", "user-folder", "--options", "{ path: '{file}' }", "--only", "open"],
    ])
  func contracts(_ arguments: [String]) async throws {
    let folder = FileManager.default.temporaryDirectory
    let output = try await ChildProcess(Self.host, ["contract"] + arguments, directory: folder).output()
    #expect(output.code == 0, "\(output.out) \(output.err)")
    #expect(output.err.contains("cases passed") || output.out.contains("cases passed"))
  }

  @Test("A device and a server run on them: transport, coding, storage, validator and policy of one's own")
  func together() async throws {
    let place = try Workspace()
    let file = place.directory.appendingPathComponent("salvor.json5")
    let text = try String(contentsOf: file, encoding: .utf8)
    try text.replacingOccurrences(of: "[\"gzip\"]", with: "[\"framed\"]")
      .replacingOccurrences(of: "limits: {}", with: "validators: [{ module: \"short-texts\", charactersMax: 10 }]")
      .write(to: file, atomically: true, encoding: .utf8)
    let server = try ChildProcess(Self.host, ["serve"], directory: place.directory)
    defer { server.signal(SIGKILL) }
    let url = try await server.line(after: "listening on ")
    let device = try place.device("anna", url: url)
    try """
    { schema: "../schema.json5", client: {
        storage: { module: "user-folder", path: "device", user: "anna" },
        transport: { module: "signed", header: "field", url: "\(url)", compression: "framed" },
        credentials: { principal: "anna" }, recovery: { strategy: "gentle" } } }
    """.write(to: device.directory.appendingPathComponent("salvor.json5"), atomically: true, encoding: .utf8)
    func run(_ words: String...) async throws -> Output {
      try await ChildProcess(Self.host, words, directory: device.directory).output()
    }
    let first = try await run("sync")
    try #require(first.code == 0, "\(first.out) \(first.err)")
    let rows = try SQLiteConnection(device.directory.appendingPathComponent("device-anna.db").path)
    try rows.execute("INSERT INTO site (id, name) VALUES ('s1', 'short'), ('s2', 'much too long a text')")
    #expect(try await run("sync").code == 6)
    let archive = try await run("errors", "--json").json
    #expect(archive["requests"].items.map { $0["key"][0] } == ["s2"])
    #expect(archive["requests"][0]["message"].string?.contains("more than 10 characters") == true)
    #expect(try place.server.sqlite().rows("SELECT id FROM site") == [["s1"]])
  }

  @Test("A strategy and a policy in Python, by the command line's contract", .enabled(if: Built.has("python3")))
  func programs() async throws {
    let folder = FileManager.default.temporaryDirectory
    let options = "{ path: '\(Self.programs)/plan.py', timeoutSeconds: 300, unsyncedChanges: 'kept' }"
    for only in ["plan", "restored", "consent"] {
      let output = try await salvor(
        ["contract", "recovery-strategy", "program", "--options", options, "--only", only], in: folder)
      #expect(output.code == 0, "\(output.out) \(output.err)")
    }
    let policy = try await salvor(
      [
        "contract", "conflict-policy", "program", "--options",
        "{ path: '\(Self.programs)/settle.py', timeoutSeconds: 300 }",
      ], in: folder)
    #expect(policy.code == 0, "\(policy.out) \(policy.err)")
  }

  @Test("Two devices' notes on one row are merged by the program of the server", .enabled(if: Built.has("python3")))
  func merges() async throws {
    let schema = Workspace.schema.replacingOccurrences(
      of: "references: { site_id: \"site\",",
      with:
        "conflicts: { module: \"program\", path: \"\(Self.programs)/settle.py\", timeoutSeconds: 300, answers: [\"merged\", \"both\"] }, references: { site_id: \"site\","
    )
    let place = try Workspace(schema: schema)
    let url = try await place.server.start()
    let devices = try ["anna", "bert"].map { try place.device($0, url: url) }
    try place.server.sqlite().execute("INSERT INTO site (id, name) VALUES ('s1', 'Harbour')")
    try place.server.sqlite().execute("INSERT INTO visit (id, site_id, note) VALUES ('v1', 's1', 'dry')")
    for device in devices { try await device.sync() }
    for (device, note) in zip(devices, ["wet", "cold"]) {
      try device.sqlite().execute("UPDATE visit SET note = '\(note)' WHERE id = 'v1'")
    }
    for device in devices + devices { try await device.sync() }
    #expect(try place.server.sqlite().rows("SELECT note FROM visit") == [["wet\ncold"]])
    for device in devices { #expect(try contents(device.database) == contents(place.server.database)) }
  }
}
