import Foundation
import SQLiteSupport
import Testing

/// Files of released versions (Tests/Fixtures) are opened by the code of now.
@Suite struct FormatTests {
  static let versions =
    (try? FileManager.default.contentsOfDirectory(
      atPath: Built.root.appendingPathComponent("Tests/Fixtures").path))?.sorted() ?? []

  /// A server and a device that a released version has left: rows on both sides, one refused request in the archive, two that
  /// wait.
  private struct Left {
    let place: Workspace
    let device: URL
    let database: String

    init(_ version: String) async throws {
      place = try Workspace()
      device = place.directory.appendingPathComponent("device")
      database = device.appendingPathComponent("field.db").path
      try FileManager.default.createDirectory(at: device, withIntermediateDirectories: true)
      let archive = Built.root.appendingPathComponent("Tests/Fixtures/\(version)/files.tar.gz").path
      let unpacked = try await ChildProcess("tar", ["-xzf", archive], directory: place.directory).output()
      guard unpacked.code == 0 else { throw Unexpected(unpacked.err) }
      for name in try FileManager.default.contentsOfDirectory(atPath: place.directory.path)
      where name.hasPrefix("field.db") {
        try FileManager.default.moveItem(
          at: place.directory.appendingPathComponent(name), to: device.appendingPathComponent(name))
      }
    }

    func salvor(_ words: String...) async throws -> Output { try await EndToEndTests.salvor(words, in: device) }

    func connect(to url: String) throws {
      let text = """
        { schema: "../schema.json5", client: { storage: { module: "sqlite", path: "field.db" },
          transport: { module: "http", url: "\(url)" }, credentials: { principal: "anna" } } }
        """
      try text.write(to: device.appendingPathComponent("salvor.json5"), atomically: true, encoding: .utf8)
    }
  }

  @Test("There are files of this release")
  func thereAreSome() throws { #expect(FormatTests.versions.contains("0.1.0")) }

  @Test("The files of a release are opened, what waits in them is sent, and both sides are alike", arguments: versions)
  func filesAreOpened(version: String) async throws {
    let left = try await Left(version)
    let url = try await left.place.server.start()
    try left.connect(to: url)
    let before = try await left.salvor("status", "--json").json
    #expect(before["queued"] == 2 && before["inError"] == 1)
    let synced = try await left.salvor("sync", "--json")
    #expect(synced.code == 0, "\(synced.out)\(synced.err)")
    #expect(
      try synced.json["outcome"] == "synchronized" && synced.json["uploaded"] == 2 && synced.json["recovery"] == nil)
    #expect(try await left.salvor("errors", "delete", "--all").code == 0)
    try left.place.server.sqlite().execute("INSERT INTO site (id, name) VALUES ('s9', 'new')")
    #expect(try await left.salvor("sync").code == 0)
    let tables = ["severity", "site", "visit"]
    #expect(try contents(left.database, tables) == contents(left.place.server.database, tables))
    #expect(try await left.salvor("verify", "--json").code == 0)
    #expect(try damage(left.database) == [] && damage(left.place.server.database) == [])
  }

  @Test("Files of a later version are refused by name, and nothing in them is touched")
  func laterFilesAreRefused() async throws {
    let left = try await Left("0.1.0")
    try left.connect(to: "http://127.0.0.1:1")
    #expect(try await left.salvor("status", "--offline").code == 0)
    for (path, table, key) in [
      (left.database, "salvor_state", "name"), (left.place.server.database, "salvor_server", "key"),
    ] {
      let connection = try SQLiteConnection(path)
      try connection.execute("UPDATE \(table) SET value = 999 WHERE \(key) = 'format'")
      #expect(try connection.integer("SELECT changes()") == 1)
      connection.close()
    }
    let before = try Data(contentsOf: URL(fileURLWithPath: left.database))
    for words in [["status", "--offline"], ["sync"], ["queue"]] {
      let refused = try await salvor(words, in: left.device)
      #expect(refused.code == 2 && refused.err.contains("later version of Salvor (format 999"), "\(refused.err)")
    }
    #expect(try Data(contentsOf: URL(fileURLWithPath: left.database)) == before)
    let served = try await left.place.server.salvor("serve")
    #expect(served.code == 2 && served.err.contains("later version of Salvor (format 999"), "\(served.err)")
  }
}
