import Foundation
import Testing

/// The command line as a person and a script meet it (docs/reference/cli.md).
@Suite struct CommandLineTests {
  let place: Workspace

  init() throws { place = try Workspace() }

  @Test("init writes files that check finds valid, and never overwrites one")
  func initWritesAValidStart() async throws {
    let made = try await salvor(["init", "start", "--json"], in: place.directory)
    #expect(made.code == 0)
    let folder = place.directory.appendingPathComponent("start")
    #expect(try made.json["files"].items.contains("salvor.json5"))
    let checked = try await salvor(["check", "--json"], in: folder)
    #expect(checked.code == 0)
    #expect(try checked.json["valid"] == true)
    let before = try Data(contentsOf: folder.appendingPathComponent("salvor.json5"))
    let again = try await salvor(["init", "start"], in: place.directory)
    #expect(again.code == 2)
    #expect(again.err.contains("exists already"))
    #expect(try Data(contentsOf: folder.appendingPathComponent("salvor.json5")) == before)
  }

  @Test("check touches nothing")
  func checkTouchesNothing() async throws {
    let before = try names(place.directory)
    #expect(try await salvor(["check"], in: place.directory).code == 0)
    #expect(try names(place.directory) == before)
  }

  @Test("check refuses a bad file as a whole: every mistake at once, with line, key and the nearest right name")
  func checkListsEveryMistake() async throws {
    try place.write(
      """
      {
        schema: "schema.json5",
        server: {
          storage: { module: "sqlit", path: "consolidated.db" },
          listen: { module: "http", adress: "127.0.0.1", port: "8484" },
          authentication: { module: "none" },
        },
        clinet: {},
      }
      """, to: "salvor.json5")
    let output = try await salvor(["check"], in: place.directory)
    #expect(output.code == 2)
    #expect(output.out == "")
    for expected in ["sqlite", "adress", "address", "port", "clinet", "client"] {
      #expect(output.err.contains(expected), "\(output.err)")
    }
    for line in ["salvor.json5:4", "salvor.json5:5", "salvor.json5:8"] {
      #expect(output.err.contains(line), "\(output.err)")
    }
    let json = try await salvor(["check", "--json"], in: place.directory)
    #expect(json.code == 2)
    #expect(try json.json["valid"] == false)
    #expect(try json.json["diagnostics"].items.count >= 4)
    let served = try await salvor(["serve"], in: place.directory)
    #expect(served.code == 2)
    #expect(!FileManager.default.fileExists(atPath: place.server.database))
  }

  @Test("check names mistakes of the schema: duplicate keys, bad types, dangling groups and references")
  func checkReadsTheSchema() async throws {
    try place.write(
      """
      {
        version: 1,
        groups: { visits: {} },
        tables: {
          site: { maintained: "dual", group: "visit", primaryKey: "id", columns: { id: "txt", id: "text" } },
          visit: { maintained: "dual", primaryKey: "key", columns: { id: "text", site_id: "text" },
                   references: { site_id: "sites" } },
        },
      }
      """, to: "schema.json5")
    let output = try await salvor(["check"], in: place.directory)
    #expect(output.code == 2)
    for expected in ["\"visit\"", "txt", "again", "key", "sites"] {
      #expect(output.err.contains(expected), "\(expected) in \(output.err)")
    }
  }

  @Test("what check finds sound, serve starts with; what it refuses, serve refuses in the same words and makes nothing")
  func checkSaysWhatServeSays() async throws {
    let sound = try String(contentsOf: place.directory.appendingPathComponent("salvor.json5"), encoding: .utf8)
    let mistakes = [
      (
        Workspace.schema.replacingOccurrences(
          of: "seats: \"integer = 0\" }", with: "seats: \"integer = 0\" }, check: [\"seat < 9\"]"),
        sound, "schema.json5:8: tables.site.check[0]: is not a condition for the table's rows: no such column: seat"
      ),
      (
        Workspace.schema, sound.replacingOccurrences(of: "127.0.0.1", with: "0.0.0.0"),
        "server.authentication: is \"none\", which is for callers on this machine only"
      ),
      (
        Workspace.schema, sound.replacingOccurrences(of: "consolidated.db", with: "none/consolidated.db"),
        "server.storage: names ./none/consolidated.db, but ./none is not there"
      ),
      (
        Workspace.schema, sound.replacingOccurrences(of: "server: {", with: "plugins: [\"./libMine.so\"], server: {"),
        "plugins[0]: names the library ./libMine.so, which cannot be read"
      ),
    ]
    for (schema, configuration, expected) in mistakes {
      try place.write(schema, to: "schema.json5")
      try place.write(configuration, to: "salvor.json5")
      let before = try names(place.directory)
      for command in ["check", "serve"] {
        let output = try await salvor([command], in: place.directory)
        #expect(output.code == 2, "\(command): \(output.err)")
        #expect(output.err.contains(expected), "\(command): \(output.err)")
        #expect(output.out == "")
      }
      #expect(try names(place.directory) == before)
    }
  }

  @Test("check warns of integer keys on tables that are written on both sides")
  func checkWarnsOfIntegerKeys() async throws {
    let folder = Built.root.appendingPathComponent("Examples/dinesafe")
    let output = try await salvor(["check", "--json"], in: folder)
    #expect(output.code == 0)
    let warnings = try output.json["diagnostics"].items.filter { $0["severity"] == "warning" }
    #expect(warnings.contains { $0["path"].string?.contains("inspection") == true })
  }

  @Test("modules lists every module with its kind, name and options")
  func modulesAreListed() async throws {
    let output = try await salvor(["modules", "--json"], in: place.directory)
    #expect(output.code == 0)
    let modules = try output.json["modules"].items
    let found = Set(modules.map { "\($0["kind"].string ?? "") \($0["name"].string ?? "")" })
    let expected: Set<String> = [
      "client-storage sqlite", "server-storage sqlite", "client-transport http", "server-transport http",
      "compression gzip", "compression identity", "authentication tokens", "authentication none",
    ]
    #expect(found.isSuperset(of: expected))
    for module in modules { #expect(module["summary"].string?.isEmpty == false) }
    let table = try await salvor(["modules"], in: place.directory)
    #expect(table.out.contains("server-transport") && table.out.contains("port"))
  }

  @Test("Usage mistakes end with 2, the message on standard error, and the nearest right name")
  func usageMistakes() async throws {
    let command = try await salvor(["snyc"], in: place.directory)
    #expect(command.code == 2)
    #expect(command.err.contains("\"sync\""))
    #expect(command.out == "")
    let option = try await salvor(["sync", "--jsn"], in: place.directory)
    #expect(option.code == 2)
    #expect(option.err.contains("--json") || option.err.contains("\"json\""))
    let missing = try await salvor(["status", "--config", "nowhere.json5"], in: place.directory)
    #expect(missing.code == 2)
    #expect(missing.err.contains("nowhere.json5"))
    let json = try await salvor(["sync", "--jsn", "--json"], in: place.directory)
    #expect(json.code == 2)
    #expect(try json.json["error"]["name"] == "usage")
  }

  @Test("A word that begins several commands lists them; a token has an owner; --version says which version this is")
  func helpOnTheWay() async throws {
    let family = try await salvor(["capture"], in: place.directory)
    #expect(family.code == 2 && family.out == "")
    #expect(family.err.contains("salvor capture pause ") && family.err.contains("salvor capture resume "))
    #expect(try await salvor(["capture", "--help"], in: place.directory).code == 0)
    for owner in ["", " "] {
      let nobody = try await salvor(["token", owner], in: place.directory)
      #expect(nobody.code == 2 && nobody.out == "" && nobody.err.contains("needs an owner"))
    }
    let version = try await salvor(["--version"], in: place.directory)
    #expect(version.code == 0)
    for expected in ["salvor ", "protocol", "SQLite", "libcurl", "libmicrohttpd", "Swift"] {
      #expect(version.out.contains(expected), "\(version.out)")
    }
    let json = try await salvor(["--version", "--json"], in: place.directory).json
    #expect(json.keys == ["salvor", "protocol", "libraries", "swift"])
  }

  @Test("A list that is cut says so and where it goes on; a value is never a command to the terminal")
  func listsAreCut() async throws {
    let device = try place.device("anna", url: "http://127.0.0.1:9")
    #expect(try await device.salvor("queue", "--json").json["requests"].items.isEmpty)
    try device.sqlite().execute(
      "INSERT INTO site (id, name) VALUES ('s' || char(10) || char(27) || '[31m', 'Harbour'), ('s2', 'Bakery'), ('s3', 'Bar')"
    )
    let first = try await device.salvor("queue", "--limit", "2", "--json").json
    #expect(first["requests"].items.count == 2)
    let next = try #require(first["next"].string)
    let second = try await device.salvor("queue", "--after", next, "--json").json
    #expect(second["requests"].items.map { $0["key"].items.first?.string } == ["s3"])
    #expect(second["next"] == nil)
    let cut = try await device.salvor("queue", "--limit", "2").out
    #expect(cut.contains("there are more: --after \(next)"))
    #expect(cut.contains("s\\u{A}\\u{1B}[31m") && !cut.contains("\u{1B}"))
    let whole = try await device.salvor("queue", "--limit", "3").out
    #expect(!whole.contains("there are more"))
    let shown = try await device.salvor("queue", "show", next).out
    #expect(shown.contains("insert site s2"))
  }

  @Test(
    "An ID that is not there is not-found and ends with 2",
    arguments: [
      ["backups", "restore", "x"], ["backups", "delete", "x"], ["recover", "--report", "x"],
      ["queue", "show", "00000000000000000000000000000000-1"],
      ["queue", "withdraw", "00000000000000000000000000000000-1"],
      ["errors", "show", "00000000000000000000000000000000-1"],
      ["errors", "delete", "00000000000000000000000000000000-1"],
      ["errors", "retry", "00000000000000000000000000000000-1"], ["unsubscribe", "site"],
    ])
  func unknownIDs(words: [String]) async throws {
    let device = try place.device("anna", url: "http://127.0.0.1:9")
    let output = try await salvor(words + ["--json"], in: device.directory)
    #expect(output.code == 2)
    #expect(try output.json["error"]["name"] == "not-found", "\(output.out)")
  }

  @Test(
    "Output that cannot be written is an error on standard error, with exit code 1; one that nobody reads any more is none (semantics 11.7)",
    arguments: ["token anna --json", "token anna", "modules", "check --json", "modules --json", "--version"])
  func unwrittenOutput(command: String) async throws {
    for output in ["> /dev/full", ">&-"] {
      let result = try await ChildProcess(
        "sh", ["-c", "\"$0\" \(command) \(output)", Built.salvor], directory: place.directory
      ).output()
      #expect(result.code == 1 && result.out == "", "\(command) \(output): \(result.code)")
      #expect(result.err.contains("Standard output could not be written: "), "\(result.err)")
    }
    let unread = try await ChildProcess(
      "sh", ["-c", "{ \"$0\" \(command); echo $? >&2; } | true", Built.salvor], directory: place.directory
    ).output()
    #expect(unread.err.contains("could not be written") == false, "\(unread.err)")
  }

  @Test("recover with a token where none is waited for says so, and does nothing")
  func recoverWithATokenForNothing() async throws {
    let url = try await place.server.start()
    let device = try place.device("anna", url: url)
    _ = try await device.sync()
    let output = try await device.salvor("recover", "--token", "0123456789abcdef", "--json")
    #expect(output.code == 2)
    #expect(try output.json["error"]["name"] == "usage", "\(output.out)")
    #expect(try await device.salvor("recover", "--list", "--json").json["recoveries"].items.isEmpty)
  }

  @Test(
    "Every command explains itself with --help",
    arguments: [
      "init", "check", "modules", "serve", "register", "sync", "status", "queue", "remotes", "remotes list",
      "remotes delete", "demo", "token",
    ])
  func everyCommandHasHelp(command: String) async throws {
    let output = try await salvor(command.split(separator: " ").map(String.init) + ["--help"], in: place.directory)
    #expect(output.code == 0)
    #expect(output.out.contains("Usage: salvor \(command)"))
    for option in ["--config", "--json", "--quiet"] { #expect(output.out.contains(option)) }
  }

  @Test("A server that is not there ends a sync with 3, and the queue stays")
  func unreachableServerIs3() async throws {
    let device = try place.device("anna", url: "http://127.0.0.1:9", limits: "{ attemptsMax: 1 }")
    let first = try await device.salvor("sync", "--json")
    #expect(first.code == 3)
    #expect(try first.json["error"]["name"] == "unreachable")
    #expect(try first.json["outcome"] == nil)
    try device.sqlite().execute("INSERT INTO site (id, name) VALUES ('s1', 'Harbour')")
    let second = try await device.salvor("sync")
    #expect(second.code == 3)
    #expect(second.out == "")
    #expect(second.err.contains("reach"))
    #expect(try await device.salvor("status", "--json").json["queued"] == 1)
  }

  @Test("--json has the keys that scripts rely on, --quiet says nothing")
  func stableKeys() async throws {
    let url = try await place.server.start()
    let device = try place.device("anna", url: url)
    let report = try await device.sync()
    #expect(
      report.keys.isSuperset(of: [
        "outcome", "uploaded", "downloaded", "refused", "conflicts", "bytesSent", "bytesReceived", "roundTrips",
        "recovery", "error",
      ]))
    #expect(report["downloaded"].keys == ["upserts", "deletes"])
    #expect(report["outcome"] == "synchronized")
    #expect(report["recovery"] == nil)
    #expect(report["error"] == nil)
    let status = try await device.salvor("status", "--json")
    #expect(status.code == 0)
    #expect(
      try status.json.keys.isSuperset(of: [
        "remoteID", "principal", "schemaVersion", "queued", "inError", "displaced", "kept", "groups", "recovery",
      ]))
    #expect(try status.json["principal"] == "anna")
    let groups = try status.json["groups"].items
    #expect(Set(groups.compactMap { $0["name"].string }) == ["reference", "visits"])
    for group in groups { #expect(group["synchronized"] == true) }
    #expect(try status.json["recovery"]["state"] == "none")
    try device.sqlite().execute(
      "INSERT INTO site (id, name) VALUES ('s1', 'Harbour'); UPDATE site SET name = 'Harbour Kitchen'")
    let queue = try await device.salvor("queue", "--json")
    let requests = try queue.json["requests"].items
    #expect(requests.count == 2)
    for request in requests {
      #expect(
        request.keys.isSuperset(of: [
          "id", "table", "key", "operation", "before", "after", "state", "reason", "status", "message", "dependents",
          "tag",
        ]))
    }
    #expect(requests.map { $0["operation"].string } == ["insert", "update"])
    #expect(requests.map { $0["state"].string } == ["queued", "queued"])
    let quiet = try await device.salvor("sync", "--quiet")
    #expect(quiet.code == 0)
    #expect(quiet.out == "" && quiet.err == "")
  }

  @Test("serve ends with 0 after SIGTERM, and refuses a port that is taken")
  func serveEndsInOrder() async throws {
    _ = try await place.server.start()
    let stopped = try await place.server.stop()
    #expect(stopped.code == 0, "\(stopped.err)")
    let (descriptor, port) = try Socket.listen()
    defer { close(descriptor) }
    let text = try String(contentsOf: place.directory.appendingPathComponent("salvor.json5"), encoding: .utf8)
    try place.write(text.replacingOccurrences(of: "port: 0", with: "port: \(port)"), to: "salvor.json5")
    let output = try await salvor(["serve"], in: place.directory)
    #expect(output.code != 0)
    #expect(output.err.contains("\(port)"), "\(output.err)")
  }

  private func names(_ directory: URL) throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted()
  }
}
