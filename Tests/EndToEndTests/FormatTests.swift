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

  /// Columns that earlier layouts did not have.
  private static let newerColumns: [(side: String, table: String, column: String)] = [
    ("server", "salvor_remote", "reset"), ("server", "salvor_remote", "staged_sequence"),
    ("server", "salvor_remote", "staged_bytes"), ("server", "salvor_remote", "staged_chunks"),
    ("server", "salvor_remote", "staged_time"), ("server", "salvor_settled", "contents"),
    ("server", "salvor_conflict", "settled"), ("device", "salvor_unproven", "servers"),
  ]
  private static let newerObjects = """
    DROP INDEX IF EXISTS salvor_remote_staged;
    DROP VIEW IF EXISTS salvor_status; DROP VIEW IF EXISTS salvor_queue;
    DROP VIEW IF EXISTS salvor_error_archive; DROP VIEW IF EXISTS salvor_row_state;
    """

  @Test(
    "Whoever is killed while a file of an older layout is brought up leaves it whole: the next one goes on, and nothing is lost",
    arguments: ["server", "device"])
  func killedWhileBroughtUp(side: String) async throws {
    let isServer = side == "server"
    let left = try await Left("0.1.0")
    try left.connect(to: "http://127.0.0.1:1")
    let folder = isServer ? left.place.directory : left.device
    let database = isServer ? left.place.server.database : left.database
    let words = isServer ? ["server", "stats", "--json"] : ["status", "--offline", "--json"]
    let connection = try SQLiteConnection(database)
    try connection.execute(Self.newerObjects)
    for (_, table, column) in Self.newerColumns.filter({ $0.side == side }) {
      let isThere = try connection.integer(
        "SELECT count(*) FROM pragma_table_info('\(table)') WHERE name = '\(column)'")
      if isThere == 1 { try connection.execute("ALTER TABLE \(table) DROP COLUMN \(column)") }
    }
    try connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    let name = URL(fileURLWithPath: database).lastPathComponent
    func files() throws -> [String: Data] {
      let names = try FileManager.default.contentsOfDirectory(atPath: folder.path).filter { $0.hasPrefix(name) }
      return try Dictionary(
        uniqueKeysWithValues: names.map { ($0, try Data(contentsOf: folder.appendingPathComponent($0))) })
    }
    let older = try files()
    let killed = try await KilledWrites(folder)
    let whole = ProcessInfo.processInfo.environment["SALVOR_LONG_TESTS"] == "1"
    var number = 1
    while true {
      for name in try files().keys { try FileManager.default.removeItem(at: folder.appendingPathComponent(name)) }
      for (name, data) in older { try data.write(to: folder.appendingPathComponent(name)) }
      let output = try await salvor(words, in: folder, environment: killed.environment(at: number))
      let again = try await salvor(words, in: folder)
      #expect(again.code == 0, "after write \(number): \(again.err)")
      #expect(try damage(database) == [], "after write \(number)")
      let told = try again.json
      #expect(isServer ? told["remotes"] == 1 : told["queued"] == 2 && told["inError"] == 1, "after write \(number)")
      if output.code == 0 { break }
      number += whole || number < 4 ? 1 : 9
    }
    #expect(number > 10, "\(number) writes: that is no bringing-over")
  }

  @Test(
    "A device of the last release synchronizes with a server of this one, and the other way round, in both directions",
    .enabled(if: Built.previous != nil), arguments: ["device", "server"])
  func besideTheLastRelease(older: String) async throws {
    let previous = try #require(Built.previous)
    let place = try Workspace()
    let serving = try ChildProcess(
      older == "server" ? previous : Built.salvor, ["serve"], directory: place.directory, environment: [:])
    defer { serving.signal(SIGKILL) }
    let url = try await serving.line(after: "listening on ")
    let device = try place.device("anna", url: url)
    func sync() async throws -> JSON {
      let program = older == "device" ? previous : Built.salvor
      let output = try await ChildProcess(
        program, ["sync", "--json"], directory: device.directory, environment: [:]
      ).output()
      #expect(output.code == 0, "\(output.out)\(output.err)")
      return try output.json
    }
    #expect(try await sync()["outcome"] == "synchronized")
    try device.sqlite().execute("INSERT INTO site (id, name) VALUES ('s1', 'here'), ('s2', 'gone')")
    try place.server.sqlite().execute("INSERT INTO severity VALUES (1, 'minor')")
    #expect(try await sync()["uploaded"] == 2)
    try place.server.sqlite().execute("UPDATE site SET name = 'there' WHERE id = 's1'")
    try device.sqlite().execute("DELETE FROM site WHERE id = 's2'")
    #expect(try await sync()["outcome"] == "synchronized")
    #expect(
      try contents(device.directory.appendingPathComponent("field.db").path) == contents(place.server.database))
  }
}
