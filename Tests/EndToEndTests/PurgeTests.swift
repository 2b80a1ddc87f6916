import Foundation
import Testing

/// Rows that are erased for good (semantics 10; docs/guides/erase.md).
@Suite struct PurgeTests {
  @Test("A purged row leaves server and devices, is refused when it comes again, and its key stands in no log")
  func overHTTP() async throws {
    let place = try Workspace(
      authentication: #"{ module: "tokens", file: "tokens.json5" }"#,
      serverOptions: #"administration: { token: "${OFFICE_SECRET}" },"#)
    var entries = ""
    var tokens: [String: String] = [:]
    for (name, role) in [("anna", []), ("clerk", ["--role", "operator"])] {
      let made = try await salvor(["token", name, "--json"] + role, in: place.directory).json
      entries += try #require(made["line"].string)
      tokens[name] = made["token"].string
    }
    try place.write("{ tokens: [ \(entries) ] }", to: "tokens.json5")
    let environment = ["OFFICE_SECRET": "the-office-secret"]
    let server = try RawHTTP(try await place.server.start(environment: environment))
    func ask(_ body: String, as token: String = "the-office-secret") async throws -> RawHTTP.Response {
      try await server.request(
        "POST", "/admin/v1/purge", headers: ["authorization": "Bearer \(token)"], body: Array(body.utf8))
    }
    let device = try place.device(
      "anna", url: "http://127.0.0.1:\(server.port)", credentials: "{ token: \"\(tokens["anna"] ?? "")\" }")
    try await device.sync()
    try device.sqlite().execute(
      "INSERT INTO site (id, name) VALUES ('person-1077', 'x'), ('stays', 'y'); INSERT INTO visit (id, site_id) VALUES ('v', 'person-1077')"
    )
    try await device.sync()

    #expect(try await ask(#"{"table":"site","keys":["person-1077"]}"#, as: tokens["clerk"] ?? "").status == 403)
    #expect(try await ask(#"{"table":"nothing","keys":["x"]}"#).status == 404)
    #expect(try await ask(#"{"table":"site","keys":[["a","b"]]}"#).status == 400)
    #expect(try await ask(#"{"table":"site","keys":[]}"#).status == 400)
    // A visit needs the site.
    let needed = try await ask(#"{"table":"site","keys":["person-1077"]}"#)
    #expect(needed.status == 409)
    #expect(try needed.json["detail"].string?.contains("Nothing was changed") == true)
    #expect(try await ask(#"{"table":"visit","words":["v"]}"#).json["purged"]["rows"] == 1)
    #expect(try await ask(#"{"table":"site","keys":[["person-1077"]]}"#).json["purged"]["rows"] == 1)
    let report = try await device.sync()
    #expect(report["downloaded"]["deletes"] == 2)
    #expect(try contents(device.database, ["site"])["site"]?.map(\.[0].string) == ["stays"])

    try device.sqlite().execute("INSERT INTO site (id, name) VALUES ('person-1077', 'again')")
    #expect(try await device.sync(expecting: 6)["refused"] == 1)
    let errors = try await device.salvor("errors", "--json").json
    #expect(errors["requests"][0]["reason"] == "purged", "\(errors)")
    #expect(try contents(place.server.database, ["site"])["site"]?.map(\.[0].string) == ["stays"])

    let stopped = try await place.server.stop()
    #expect(stopped.code == 0)
    let audit = try String(contentsOfFile: place.server.database + ".audit.jsonl", encoding: .utf8)
    let ledger = try String(contentsOfFile: place.server.database + ".salvor-purged", encoding: .utf8)
    #expect(audit.contains(#""act":"purge""#))
    for text in [audit, ledger, stopped.err, stopped.out] { #expect(!text.contains("person-1077")) }
    let mode = try FileManager.default.attributesOfItem(atPath: place.server.database + ".salvor-purged")
    #expect(mode[.posixPermissions] as? Int == 0o600)
  }

  @Test("What a restore brings back of a purged row is gone when the server answers; a released key may come again")
  func restored() async throws {
    let place = try Workspace()
    let server = place.server
    let device = try place.device("anna", url: try await server.start())
    try await device.sync()
    try device.sqlite().execute("INSERT INTO site (id, name) VALUES ('gone', 'x'), ('stays', 'y')")
    try await device.sync()
    let copy = place.directory.appendingPathComponent("copy.db").path
    #expect(try await server.salvor("server", "backup", copy).code == 0)
    let wrong = try await server.salvor("server", "purge", "site", "gone", "--url", "http://127.0.0.1:1")
    #expect(wrong.code == 2)
    let purged = try await server.salvor("server", "purge", "site", "gone", "--json")
    #expect(try purged.code == 0 && purged.json["purged"]["rows"] == 1)
    #expect(try await server.stop().code == 0)
    #expect(try await server.salvor("server", "restore", copy).code == 0)
    #expect(try contents(server.database, ["site"])["site"]?.count == 2)

    try device.connect(to: try await server.start())
    #expect(try contents(server.database, ["site"])["site"]?.map(\.[0].string) == ["stays"])
    try await device.sync()
    #expect(try contents(device.database, ["site"])["site"]?.map(\.[0].string) == ["stays"])
    let released = try await server.salvor("server", "purge", "site", "gone", "--release")
    #expect(released.code == 0 && released.out.contains("freed 1"))
    try device.sqlite().execute("INSERT INTO site (id, name) VALUES ('gone', 'again')")
    #expect(try await device.sync()["refused"] == 0)
    #expect(try contents(server.database, ["site"])["site"]?.map(\.[0].string) == ["gone", "stays"])
    let said = try await server.stop()
    #expect(said.err.contains("salvor-purged") && said.err.contains("gone again"), "\(said.err)")
  }
}
