import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// `salvor conflicts`, beside a server that runs (docs/guides/conflicts.md).
@Suite struct ConflictTests {
  private let place: Workspace

  init() throws {
    place = try Workspace(
      schema: Workspace.schema.replacingOccurrences(
        of: #"seats: "integer = 0" } }"#, with: #"seats: "integer = 0" }, conflicts: "keep-versions" }"#))
  }

  /// Two devices that have both renamed a site; anna was first.
  private func meet() async throws -> (anna: Device, ben: Device) {
    let url = try await place.server.start()
    try place.server.sqlite().execute("INSERT INTO site VALUES ('s1', 'Harbour', 4), ('s2', 'Corner', 2)")
    let anna = try place.device("anna", url: url), ben = try place.device("ben", url: url)
    for device in [anna, ben] { try await device.sync() }
    try anna.sqlite().execute("UPDATE site SET name = 'Pier'")
    try await anna.sync()
    try ben.sqlite().execute("UPDATE site SET name = 'Dock'")
    let report = try await ben.sync()
    #expect(report["conflicts"] == 2)
    #expect(report["refused"] == 0)
    return (anna, ben)
  }

  @Test("conflicts are listed and shown, with both sides, while the server runs")
  func listAndShow() async throws {
    _ = try await meet()
    let list = try await place.server.salvor("conflicts", "--limit", "1", "--json")
    #expect(list.code == 0)
    #expect(try list.json["conflicts"].items.count == 1)
    #expect(try list.json["next"] == 1)
    let rest = try await place.server.salvor("conflicts", "list", "--after", "1", "--json").json
    #expect(rest["conflicts"].items.map { $0["id"] } == [2])
    #expect(rest["next"] == nil)
    let shown = try await place.server.salvor("conflicts", "show", "1", "--json").json["conflicts"][0]
    #expect(shown["client"]["principal"] == "ben" && shown["server"]["principal"] == "anna")
    #expect(shown["client"]["before"]["name"] == "Harbour" && shown["client"]["after"]["name"] == "Dock")
    #expect(shown["server"]["row"]["name"] == "Pier" && shown["present"]["seats"] == 4)
    let page = try await place.server.salvor("conflicts", "show", "1").out
    #expect(page.contains("conflict version 1: update of site s1"))
    let names = page.split(separator: "\n").first { $0.hasPrefix("name") }?.split(separator: " ").map(String.init)
    #expect(names == ["name", "Harbour", "Dock", "Pier", "Pier"])
    let table = try await place.server.salvor("conflicts").out
    #expect(table.contains("ben") && table.contains("anna"))
    #expect(try await place.server.salvor("server", "stats").out.contains("2 open"))
  }

  @Test("what is resolved reaches every device, and who resolved it is written down")
  func resolve() async throws {
    let (anna, ben) = try await meet()
    let resolved = try await place.server.salvor("conflicts", "resolve", "1", "--keep", "client", "--json")
    #expect(resolved.code == 0, "\(resolved.err)")
    #expect(try resolved.json["resolved"][0]["resolution"]["keep"] == "client")
    #expect(try await place.server.salvor("conflicts", "resolve", "2", "--keep", "server").code == 0)
    for device in [anna, ben] { try await device.sync() }
    #expect(try place.server.sqlite().rows("SELECT name FROM site ORDER BY id") == [["Dock"], ["Pier"]])
    #expect(try contents(anna.database) == contents(place.server.database))
    #expect(try contents(ben.database) == contents(place.server.database))
    #expect(try await place.server.salvor("conflicts", "--json").json["conflicts"].items.isEmpty)
    let all = try await place.server.salvor("conflicts", "--state", "all", "--json").json["conflicts"].items
    #expect(all.map { $0["state"] } == ["resolved", "resolved"])
    #expect(all[0]["resolution"]["by"].string?.isEmpty == false)
  }

  @Test("--settled lists what a policy overwrote, with the value that lost, and leaves nothing to resolve")
  func settled() async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    try place.server.sqlite().execute("INSERT INTO site VALUES ('s1', 'Harbour', 4)")
    let anna = try place.device("anna", url: url), ben = try place.device("ben", url: url)
    for device in [anna, ben] { try await device.sync() }
    try anna.sqlite().execute("UPDATE site SET name = 'Pier'")
    try await anna.sync()
    try ben.sqlite().execute("UPDATE site SET name = 'Dock'")
    #expect(try await ben.sync()["conflicts"] == 1)
    let listed = try await place.server.salvor("conflicts", "--settled", "--json").json["conflicts"].items
    #expect(listed.count == 1)
    #expect(listed[0]["state"] == "settled" && listed[0]["policy"] == "client-wins")
    #expect(listed[0]["lost"]["server"]["name"] == "Pier" && listed[0]["server"]["principal"] == "anna")
    #expect(listed[0]["client"]["principal"] == "ben" && listed[0]["client"]["after"]["name"] == "Dock")
    let table = try await place.server.salvor("conflicts", "--settled").out
    #expect(table.contains("name=Pier") && table.contains("client-wins"))
    #expect(try await place.server.salvor("conflicts", "--json").json["conflicts"].items.isEmpty)
    #expect(try await place.server.salvor("conflicts", "resolve", "1", "--keep", "server").code == 2)
    #expect(try await place.server.salvor("conflicts", "--settled", "--state", "open").code == 2)
  }

  @Test("what cannot be resolved is a named error, and nothing is changed")
  func errors() async throws {
    _ = try await meet()
    for words in [
      ["resolve", "1"], ["resolve", "1", "--keep", "mine"], ["resolve", "99", "--keep", "client"],
      ["resolve", "one", "--keep", "client"], ["show", "99"], ["--state", "closed"], ["--limit", "0"],
    ] {
      let output = try await salvor(["conflicts"] + words, in: place.directory)
      #expect(output.code == 2, "\(words): \(output.err)")
    }
    try place.server.sqlite().execute("DELETE FROM site WHERE id = 's1'")
    let gone = try await place.server.salvor("conflicts", "resolve", "1", "--keep", "client", "--json")
    #expect(gone.code == 1)
    #expect(try gone.json["error"]["name"] == "conflict-unresolvable")
    #expect(try await place.server.salvor("conflicts", "--json").json["conflicts"].items.count == 2)
    #expect(try await place.server.salvor("conflicts", "resolve", "1", "--keep", "server").code == 0)
    let twice = try await place.server.salvor("conflicts", "resolve", "1", "--keep", "client", "--json")
    #expect(twice.code == 2)
    #expect(try twice.json["error"]["name"] == "conflict-resolved")
  }
}
