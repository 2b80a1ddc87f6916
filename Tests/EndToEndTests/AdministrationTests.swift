import Foundation
import Testing

/// `/admin/v1` (docs/reference/administration.md) of a running server.
@Suite struct AdministrationTests {
  private final class Office {
    let place: Workspace
    private(set) var server: RawHTTP
    private(set) var tokens: [String: String] = [:]

    init(serverOptions: String = "") async throws {
      place = try Workspace(
        authentication: #"{ module: "tokens", file: "tokens.json5" }"#,
        serverOptions: #"administration: { token: "${OFFICE_SECRET}" },"# + serverOptions)
      var entries = ""
      for name in ["anna", "viewer", "operator", "administrator"] {
        let role = name == "anna" ? [] : ["--role", name]
        let made = try await salvor(["token", name, "--json"] + role, in: place.directory).json
        entries += try #require(made["line"].string)
        tokens[name] = made["token"].string
      }
      try place.write("{ tokens: [ \(entries) ] }", to: "tokens.json5")
      server = try RawHTTP(try await place.server.start(environment: ["OFFICE_SECRET": "the-office-secret"]))
    }

    func device(_ name: String) async throws -> Device {
      let device = try place.device(
        name, url: "http://127.0.0.1:\(server.port)", credentials: "{ token: \"\(tokens["anna"] ?? "")\" }")
      try await device.sync()
      return device
    }

    /// The server ends, is put back to `copy`, and starts again, at a port of its own.
    func restore(_ copy: String) async throws {
      let environment = ["OFFICE_SECRET": "the-office-secret"]
      _ = try await place.server.stop()
      let restored = try await salvor(
        ["server", "restore", copy, "--quiet"], in: place.directory, environment: environment)
      guard restored.code == 0 else { throw Unexpected("not restored: \(restored.err)") }
      server = try RawHTTP(try await place.server.start(environment: environment))
    }

    func ask(
      _ method: String, _ path: String, as name: String = "administrator", body: String = "",
      headers: [String: String] = [:]
    ) async throws -> RawHTTP.Response {
      try await server.request(
        method, "/admin/v1/\(path)",
        headers: headers.merging(["authorization": "Bearer \(tokens[name] ?? name)"]) { $1 }, body: Array(body.utf8))
    }
  }

  @Test("Each role may do what it may, and the next one's acts are refused by name")
  func roles() async throws {
    let office = try await Office()
    let device = try await office.device("one")
    let id = try #require(try await device.salvor("status", "--json").json["remoteID"].string)
    #expect(try await office.ask("GET", "remotes", as: "anna").status == 403)
    #expect(try await office.ask("GET", "remotes", as: "nobody").status == 401)
    for name in ["viewer", "operator", "administrator"] {
      #expect(try await office.ask("GET", "remotes/\(id)", as: name).status == 200)
    }
    #expect(try await office.ask("GET", "conflicts", as: "viewer").status == 403)
    #expect(try await office.ask("GET", "conflicts", as: "operator").status == 200)
    #expect(try await office.ask("POST", "remotes/\(id)/reset", as: "viewer").status == 403)
    #expect(try await office.ask("POST", "remotes/\(id)/reset", as: "operator").status == 204)
    let refused = try await office.ask("DELETE", "remotes/\(id)", as: "operator")
    #expect(refused.status == 403)
    #expect(try refused.json["detail"].string?.contains("needs administrator") == true)
    #expect(try await office.ask("DELETE", "remotes/\(id)").status == 204)
    #expect(try await office.ask("GET", "remotes/\(id)").json["state"] == "deleted")
    #expect(try await office.ask("GET", "remotes", as: "the-office-secret").status == 200)
  }

  @Test("A token with a role that is made with --no-sync administrates, and synchronizes nothing")
  func administrationAlone() async throws {
    let office = try await Office()
    let none = try await salvor(["token", "watcher", "--no-sync"], in: office.place.directory)
    #expect(none.code == 2 && none.err.contains("--no-sync needs --role"))
    let made = try await salvor(
      ["token", "watcher", "--role", "viewer", "--no-sync", "--json"], in: office.place.directory
    ).json
    let line = try #require(made["line"].string)
    let tokens = try String(contentsOf: office.place.directory.appendingPathComponent("tokens.json5"), encoding: .utf8)
    try office.place.write(tokens.replacingOccurrences(of: "] }", with: "\(line) ] }"), to: "tokens.json5")
    let token = try #require(made["token"].string)
    #expect(try await office.ask("GET", "remotes", as: token).status == 200)
    let device = try office.place.device(
      "watcher", url: "http://127.0.0.1:\(office.server.port)", credentials: "{ token: \"\(token)\" }")
    let refused = try await device.salvor("sync", "--json")
    #expect(refused.code == 4 && refused.err.contains("for administration alone"), "\(refused)")
  }

  @Test("A body that says a thing twice, or by a value of another kind, does nothing: no row is erased")
  func ambiguousBodies() async throws {
    let office = try await Office()
    _ = try await office.device("one")
    for body in [
      #""keys":[["s1"]],"release":"true""#, #""keys":[["s1"]],"release":1"#, #""keys":[["s1"]],"release":null"#,
      #""keys":[["s1"]],"keys":[["s2"]]"#,
    ] {
      let answer = try await office.ask("POST", "purge", body: "{\"table\":\"site\",\(body)}")
      #expect(answer.status == 400, "\(body): \(answer.status)")
    }
  }

  @Test("An act that the list of acts cannot hold is done, and its answer says both")
  func unwrittenActs() async throws {
    let office = try await Office()
    let list = URL(fileURLWithPath: "\(office.place.server.database).audit.jsonl")
    try? FileManager.default.removeItem(at: list)
    try FileManager.default.createDirectory(at: list, withIntermediateDirectories: false)
    let answer = try await office.ask("PUT", "restores/pace", body: #"{"paused":true}"#)
    #expect(answer.status == 200 && answer.headers["salvor-warning"]?.contains("is not in the list of acts") == true)
    #expect(try await office.ask("GET", "restores/pace").json["paused"] == true)
  }

  @Test("A principal with any name is found by the query of a request, as the command line writes it")
  func encodedNames() async throws {
    let office = try await Office()
    let answer = try await office.ask("POST", "remotes/reset?principal=anna%40example.org")
    #expect(answer.status == 200)
    _ = try await office.device("one")
    #expect(try await office.ask("POST", "remotes/reset?principal=%61nna").json["resetsDemanded"] == 1)
  }

  @Test("Remotes come in pages by key and by state, and one of them whole with what the server has seen")
  func remotes() async throws {
    let office = try await Office()
    var ids: [String] = []
    for name in ["a", "b", "c"] {
      let device = try await office.device(name)
      ids.append(try #require(try await device.salvor("status", "--json").json["remoteID"].string))
    }
    ids.sort()
    let first = try await office.ask("GET", "remotes?limit=2").json
    #expect(first["remotes"].items.map(\.["id"].string) == ids.prefix(2).map { $0 })
    let second = try await office.ask("GET", "remotes?limit=2&after=\(first["next"].string ?? "")").json
    #expect(second["remotes"].items.map(\.["id"].string) == [ids[2]] && second["next"] == nil)
    #expect(try await office.ask("GET", "remotes?principal=nobody").json["remotes"].items == [])
    #expect(try await office.ask("DELETE", "remotes/\(ids[0])?block=true").status == 204)
    #expect(try await office.ask("POST", "remotes/\(ids[1])/reset").status == 204)
    for (state, expected) in [
      ("blocked", [ids[0]]), ("deleted", []), ("known", [ids[1], ids[2]]), ("reset-demanded", [ids[1]]),
      ("in-step", [ids[1], ids[2]]), ("waiting", []), ("recovering", []), ("absent&days=0", [ids[1], ids[2]]),
      ("absent&days=1", []),
    ] {
      let found = try await office.ask("GET", "remotes?state=\(state)").json["remotes"].items.map(\.["id"].string)
      #expect(found == expected, "\(state)")
    }
    let whole = try await office.ask("GET", "remotes/\(ids[2])").json
    #expect(whole["seen"]["lastBegin"].integer != nil && whole["seen"]["lastError"] == nil)
    #expect(whole["seen"]["lastDownload"].integer != nil && whole["seen"]["behind"] == 0)
    #expect(whole["seen"]["recoveries"] == 0 && whole["seen"]["lastRecovery"] == nil)
    #expect(whole["principal"] == "anna")
    for bad in [
      "remotes?state=lost", "remotes?limit=0", "remotes?limit=x", "remotes?after=1", "remotes?state=absent&days=-1",
    ] {
      #expect(try await office.ask("GET", bad).status == 400, "\(bad)")
    }
    #expect(try await office.ask("GET", "remotes/nonsense").status == 404)
    #expect(try await office.ask("GET", "nothing").status == 404)
  }

  @Test(
    "An act with an Idempotency-Key is done once, and each act is written down with who, from where and what came of it"
  )
  func actsAreWrittenDown() async throws {
    let office = try await Office()
    let device = try await office.device("one")
    let id = try #require(try await device.salvor("status", "--json").json["remoteID"].string)
    let key = ["idempotency-key": "one"]
    for _ in 0..<2 { #expect(try await office.ask("DELETE", "remotes/\(id)", headers: key).status == 204) }
    #expect(try await office.ask("DELETE", "remotes/\(id)").status == 404)
    #expect(try await office.ask("POST", "remotes/\(id)/reset", headers: key).status == 400)
    // What is asked for is the body's, too.
    let other = ["idempotency-key": "two"]
    let pace = #"{"paused":false,"rowsPerSecond":7}"#
    for _ in 0..<2 {
      #expect(try await office.ask("PUT", "restores/pace", body: pace, headers: other).status == 200)
    }
    #expect(try await office.ask("PUT", "restores/pace", body: #"{"paused":true}"#, headers: other).status == 400)
    _ = try await salvor(
      ["remotes", "delete", id, "--block"], in: office.place.directory,
      environment: ["OFFICE_SECRET": "x", "USER": "mona"])
    let acts = try await office.ask("GET", "audit", as: "viewer").json["acts"].items
    #expect(
      acts.map { [$0["who"].string, $0["act"].string, $0["result"].string, $0["from"].string] } == [
        ["user:mona", "remotes.block", "done", "local"], ["administrator", "restores.pace", "done", "127.0.0.1"],
        ["administrator", "remotes.delete", "not-found", "127.0.0.1"],
        ["administrator", "remotes.delete", "done", "127.0.0.1"],
      ])
    let file = office.place.server.database + ".audit.jsonl"
    let rights = try FileManager.default.attributesOfItem(atPath: file)[.posixPermissions] as? Int
    #expect(rights == 0o600)
  }

  @Test(
    "What waits for consent after a restore is listed, accepted and rejected over HTTP by whoever may; the pace holds")
  func consent() async throws {
    let office = try await Office(serverOptions: #"recovery: { heal: "review" },"#)
    let device = try await office.device("one")
    let copy = office.place.directory.appendingPathComponent("night.db").path
    let made = try await salvor(
      ["server", "backup", copy, "--quiet"], in: office.place.directory,
      environment: ["OFFICE_SECRET": "the-office-secret"])
    #expect(made.code == 0, "\(made.err)")
    try device.sqlite().execute(
      "INSERT INTO site (id, name) VALUES ('s1', 'One'), ('s2', 'Two'); INSERT INTO visit (id, site_id) VALUES ('v1', 's2')"
    )
    try await device.sync()
    try await office.restore(copy)
    try device.connect(to: "http://127.0.0.1:\(office.server.port)")
    #expect(try await device.sync()["waiting"] == 3)

    #expect(try await office.ask("GET", "restores", as: "anna").status == 403)
    let id = try #require(try await office.ask("GET", "restores", as: "viewer").json["restores"][0]["id"].integer)
    #expect(try await office.ask("GET", "restores/\(id)/waiting", as: "viewer").status == 403, "it holds values")
    let first = try await office.ask("GET", "restores/\(id)/waiting?limit=2", as: "operator").json
    #expect(first["waiting"].items.count == 2)
    let rest = try await office.ask("GET", "restores/\(id)/waiting?after=\(first["next"].integer ?? 0)", as: "operator")
    #expect(try rest.json["waiting"].items.count == 1)
    #expect(try rest.json["next"] == nil)

    for (path, body, status) in [
      ("restores/\(id)/accept", "{", 400), ("restores/\(id)/accept", #"{"table":7}"#, 400),
      ("restores/\(id)/reject", #"{"remote":"nonsense"}"#, 400), ("restores/x/accept", "{}", 404),
      ("restores/\(id + 1)/accept", "{}", 404), ("restores/\(id + 1)/reject", "{}", 404),
      ("restores/\(id)/accept", #"{"table":"nothing"}"#, 404),
    ] {
      #expect(try await office.ask("POST", path, as: "operator", body: body).status == status, "\(path) \(body)")
    }
    #expect(try await office.ask("GET", "restores/\(id + 1)/waiting", as: "operator").status == 404)
    for words in [["accept", "\(id + 1)"], ["reject", "\(id + 1)"], ["waiting", "\(id + 1)"], ["accept", "x"]] {
      let told = try await salvor(
        ["server", "restores"] + words, in: office.place.directory,
        environment: ["OFFICE_SECRET": "the-office-secret"])
      #expect(told.code == 2 && told.err.contains("There is no restore"), "\(words): \(told.code) \(told.err)")
    }
    let unknown = String(repeating: "0", count: 32)
    for remote in ["zz", unknown] {
      for action in ["accept", "reject", "waiting"] {
        let told = try await salvor(
          ["server", "restores", action, "\(id)", "--remote", remote], in: office.place.directory,
          environment: ["OFFICE_SECRET": "the-office-secret"])
        #expect(
          told.code == 2 && told.err.contains("There is no remote ID"), "\(action) \(remote): \(told.code) \(told.err)")
      }
    }
    #expect(
      try await office.ask("POST", "restores/\(id)/reject", as: "operator", body: "{\"remote\":\"\(unknown)\"}").status
        == 404)
    let reject = #"{"table":"visit"}"#
    #expect(try await office.ask("POST", "restores/\(id)/reject", as: "viewer", body: reject).status == 403)
    #expect(
      try await office.ask("POST", "restores/\(id)/reject", as: "operator", body: reject).json["rejected"] == 1)
    // A misspelt condition would be none.
    let misspelt = try await office.ask("POST", "restores/\(id)/accept", as: "operator", body: #"{"tables":"visit"}"#)
    #expect(misspelt.status == 400 && misspelt.text.contains("tables"), "\(misspelt.text)")
    for path in ["remotes/\(unknown)?block=yes", "remotes/\(unknown)?blok=true", "remotes/\(unknown)?block"] {
      #expect(try await office.ask("DELETE", path, as: "administrator").status == 400, "\(path)")
    }
    for path in [
      "remotes?limt=1", "conflicts?stat=open", "audit?limit=1&limit=2", "restores/\(id)/waiting?tabel=visit",
    ] {
      #expect(try await office.ask("GET", path, as: "operator").status == 400, "\(path)")
    }
    // One row a second: what is accepted beyond that waits on, and goes as time goes on.
    for bad in ["0", "1.5", #""fast""#, "2000000"] {
      #expect(
        try await office.ask("PUT", "restores/pace", as: "operator", body: "{\"rowsPerSecond\":\(bad)}").status == 400)
    }
    #expect(try await office.ask("PUT", "restores/pace", as: "viewer", body: #"{"paused":true}"#).status == 403)
    let paused = try await office.ask(
      "PUT", "restores/pace", as: "operator", body: #"{"paused":true,"rowsPerSecond":1}"#)
    #expect(try paused.json["paused"] == true)
    #expect(try await office.ask("GET", "restores/pace", as: "viewer").json["rowsPerSecond"] == 1)
    let accepted = try await office.ask("POST", "restores/\(id)/accept", as: "operator", body: "{}")
    #expect(try accepted.json["accepted"] == 2)
    let resumed = try await office.ask(
      "PUT", "restores/pace", as: "operator", body: #"{"paused":false,"rowsPerSecond":null}"#)
    #expect(try resumed.json["rowsPerSecond"] == nil)
    #expect(try await office.ask("POST", "restores/\(id)/accept", as: "operator", body: "{}").json["accepted"] == 0)
    let report = try await device.sync(expecting: 6)
    #expect(report["refused"] == 1)
    #expect(try contents(office.place.server.database)["site"]?.count == 2)
    #expect(try contents(office.place.server.database)["visit"]?.count == 0)
    let acts = try await office.ask("GET", "audit", as: "viewer").json["acts"].items.compactMap { $0["act"].string }
    for act in ["restores.accept", "restores.reject", "restores.pace"] { #expect(acts.contains(act)) }
  }

  @Test("Overview, configuration without its secrets, modules, schema, and the log's level")
  func reading() async throws {
    let office = try await Office()
    let device = try await office.device("one")
    try device.sqlite().execute("INSERT INTO severity (id, name) VALUES (1, 'x')")
    try await device.sync(expecting: 6)
    let overview = try await office.ask("GET", "overview").json
    #expect(overview["storage"]["remotes"] == 1 && overview["refused"] == 1)
    #expect(try await office.ask("GET", "refusals").json["requests"]["server-maintained"] == 1)
    let configuration = try await office.ask("GET", "configuration", as: "viewer")
    #expect(try configuration.json["server"]["administration"]["token"] == "***")
    #expect(try configuration.json["server"]["storage"]["path"] == "consolidated.db")
    for text in [configuration.text, try await office.ask("GET", "modules").text] {
      #expect(!text.contains("the-office-secret"))
    }
    #expect(try await office.ask("GET", "schema").text.contains("severity"))
    #expect(try await office.ask("GET", "log").json["level"] == "info")
    #expect(try await office.ask("PUT", "log", as: "viewer", body: #"{"level":"debug"}"#).status == 403)
    #expect(try await office.ask("PUT", "log", as: "operator", body: #"{"level":"loud"}"#).status == 400)
    #expect(try await office.ask("PUT", "log", as: "operator", body: #"{"level":"debug"}"#).status == 200)
    #expect(try await office.ask("GET", "log").json["level"] == "debug")
  }

  @Test("The command line works on a server elsewhere with --url, with a token's rights and no more")
  func elsewhere() async throws {
    let office = try await Office()
    let device = try await office.device("one")
    let id = try #require(try await device.salvor("status", "--json").json["remoteID"].string)
    let url = "http://127.0.0.1:\(office.server.port)"
    let empty = office.place.directory.appendingPathComponent("one")
    func run(_ words: [String], as name: String?) async throws -> Output {
      let token = name.flatMap { office.tokens[$0] }.map { ["SALVOR_ADMIN_TOKEN": $0] } ?? [:]
      return try await salvor(["remotes"] + words + ["--url", url, "--json"], in: empty, environment: token)
    }
    #expect(try await run([], as: "viewer").json["remotes"][0]["id"].string == id)
    #expect(try await run(["show", id], as: "viewer").json["seen"]["lastBegin"].integer != nil)
    #expect(try await run(["delete", id], as: "viewer").code == 4)
    #expect(try await run(["reset", id], as: "operator").code == 0)
    #expect(try await run(["delete", id], as: "administrator").code == 0)
    #expect(try await run([], as: nil).code == 2)
  }

  @Test(
    "Copies are made and listed over HTTP, the newest kept; who may only read makes none; without a folder it is named")
  func backups() async throws {
    let office = try await Office(serverOptions: #"backups: { directory: "copies", keep: 2 },"#)
    _ = try await office.device("one")
    #expect(try await office.ask("GET", "backups").json["backups"].items == [])
    #expect(try await office.ask("POST", "backups", as: "viewer").status == 403)
    var made: [String] = []
    for _ in 0..<3 {
      let answer = try await office.ask("POST", "backups", as: "operator")
      #expect(answer.status == 201, "\(answer.text)")
      made.append(try #require(try answer.json["made"]["name"].string))
    }
    let listed = try await office.ask("GET", "backups", as: "viewer").json
    #expect(listed["backups"].items.map(\.["name"].string) == [made[2], made[1]] && listed["keep"] == 2)
    #expect(listed["backups"].items.allSatisfy { ($0["bytes"].integer ?? 0) > 0 && ($0["time"].integer ?? 0) > 0 })
    let copy = office.place.directory.appendingPathComponent("copies/\(made[2])")
    #expect(try damage(copy.path) == [])
    let rights = try FileManager.default.attributesOfItem(atPath: copy.path)[.posixPermissions] as? Int
    #expect(rights.map { $0 & 0o077 } == 0)
    let here = try await salvor(
      ["server", "backups", "--json"], in: office.place.directory,
      environment: ["OFFICE_SECRET": "the-office-secret"]
    ).json
    #expect(here["backups"].items.map(\.["name"].string) == [made[2], made[1]])
    #expect(try await office.ask("GET", "audit").json["acts"].items.filter { $0["act"] == "server.backup" }.count >= 3)
    let none = try await Office()
    let others = try await none.ask("GET", "backups")
    #expect(others.status == 200)
    #expect(try others.json["backups"].items.isEmpty && others.json["recorded"].items.isEmpty)
    let refused = try await none.ask("POST", "backups")
    #expect(refused.status == 404)
    #expect(try refused.json["detail"].string?.contains("server.backups.directory") == true)
  }

  @Test("The overview and a remote say which release of Salvor a device has")
  func releases() async throws {
    let office = try await Office()
    let device = try await office.device("one")
    let id = try #require(try await device.salvor("status", "--json").json["remoteID"].string)
    let version = try #require(try await device.salvor("--version", "--json").json["salvor"].string)
    #expect(try await office.ask("GET", "overview").json["releases"][version] == 1)
    #expect(try await office.ask("GET", "remotes/\(id)").json["seen"]["release"].string == version)
  }
}
