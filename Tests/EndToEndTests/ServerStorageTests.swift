import Foundation
import Testing

/// What an operator does with the server's database (docs/reference/cli.md).
@Suite struct ServerStorageTests {
  let place: Workspace

  init() throws { place = try Workspace() }

  private func insert(_ id: String) throws {
    try place.server.sqlite().execute("INSERT INTO site (id, name) VALUES ('\(id)', 'x')")
  }

  private func sites(_ path: String) throws -> [String] {
    try contents(path, ["site"])["site", default: []].compactMap { $0[0].string }
  }

  @Test("a backup beside a running server, a restore that waits for its end, and a start that says so")
  func backupAndRestore() async throws {
    let server = place.server
    let url = try await server.start()
    try insert("one")
    let device = try place.device("anna", url: url)
    try await device.sync()
    let copy = place.directory.appendingPathComponent("copy.db").path
    let backup = try await server.salvor("server", "backup", copy, "--json")
    #expect(backup.code == 0)
    #expect(try backup.json["file"].string == copy)
    #expect(try (backup.json["bytes"].integer ?? 0) > 0)
    let again = try await server.salvor("server", "backup", copy)
    #expect(again.code == 2)
    #expect(again.err.contains("exists already"))
    try insert("two")
    try await device.sync()

    let refused = try await server.salvor("server", "restore", copy)
    #expect(refused.code == 1)
    #expect(refused.err.contains("in use"))
    #expect(try sites(server.database) == ["one", "two"])
    #expect(try await server.stop().code == 0)
    let restored = try await server.salvor("server", "restore", copy, "--json")
    #expect(restored.code == 0)
    let json = try restored.json
    #expect(json["restored"].string == copy)
    #expect((json["remembered"].integer ?? 0) > (json["head"].integer ?? 0))
    #expect(try sites(server.database) == ["one"])
    let before = place.directory.appendingPathComponent(try #require(json["before"].string)).path
    #expect(try sites(before) == ["one", "two"])

    let started = try ChildProcess(Built.salvor, ["serve", "--json"], directory: place.directory)
    let line = try await started.line(after: "{")
    started.signal(SIGTERM)
    let ended = await started.output()
    #expect(try JSON(parsing: "{" + line)["restored"] == true)
    #expect(ended.err.contains("restored from a backup"))
  }

  @Test("a file that is no server's database is not restored")
  func notAServers() async throws {
    let server = place.server
    let url = try await server.start()
    try insert("one")
    let device = try place.device("anna", url: url)
    try await device.sync()
    #expect(try await server.stop().code == 0)
    for file in [device.database, place.directory.appendingPathComponent("schema.json5").path, "nowhere.db"] {
      let refused = try await server.salvor("server", "restore", file)
      #expect(refused.code == 2)
      #expect(refused.err.contains("Nothing was changed"))
    }
    #expect(try sites(server.database) == ["one"])
  }

  @Test("A listed copy that is not as it was written is not restored; a copy of it under another name is")
  func changedCopy() async throws {
    let server = place.server
    _ = try await server.start()
    try insert("Harbour")
    let copy = place.directory.appendingPathComponent("night.db").path
    #expect(try await server.salvor("server", "backup", copy).code == 0)
    #expect(try await server.stop().code == 0)
    var bytes = try Data(contentsOf: URL(fileURLWithPath: copy))
    let place = try #require(bytes.range(of: Data("Harbour".utf8)))
    bytes.replaceSubrange(place, with: Data("Harbowr".utf8))
    try bytes.write(to: URL(fileURLWithPath: copy))
    let refused = try await server.salvor("server", "restore", copy)
    #expect(refused.code == 2 && refused.err.contains("SHA-256"), "\(refused.err)")
    #expect(try sites(server.database) == ["Harbour"])
    try bytes.write(to: URL(fileURLWithPath: copy + ".meant"))
    #expect(try await server.salvor("server", "restore", copy + ".meant").code == 0)
  }

  @Test("a reset is demanded of a remote ID that exists")
  func reset() async throws {
    let server = place.server
    let device = try place.device("anna", url: try await server.start())
    try await device.sync()
    let remotes = try await server.salvor("remotes", "--json").json["remotes"]
    let id = try #require(remotes[0]["id"].string)
    #expect(remotes[0]["resetDemanded"] == false)
    let done = try await server.salvor("remotes", "reset", id, "--json")
    #expect(done.code == 0)
    #expect(try done.json["resetDemanded"].string == id)
    #expect(try await server.salvor("remotes", "show", id, "--json").json["resetDemanded"] == true)
    #expect(try await server.salvor("remotes").out.contains("reset demanded"))
    #expect(try await server.salvor("remotes", "reset", String(repeating: "0", count: 32)).code == 2)
    #expect(try await server.salvor("remotes", "reset", "nobody").code == 2)
  }
}
