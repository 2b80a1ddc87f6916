import Foundation
import SQLiteSupport
import Testing

#if canImport(Glibc)
  import Glibc
#endif

/// `serve` ends when it is told to, whatever waits for it, and what it acknowledged is there.
@Suite(.serialized) struct AvailabilityTests {
  private static let configuration = """
    {
      schema: "schema.json5",
      server: {
        storage: { module: "sqlite", path: "consolidated.db", busyTimeoutMilliseconds: 600000 },
        listen: { module: "http", address: "127.0.0.1", port: 0 },
        authentication: { module: "none" },
        retention: { staging: "1s" },
        limits: { sessionIdleMilliseconds: 1000 },
      },
    }
    """

  @Test("SIGTERM right after the first word ends it with 0, whenever it comes")
  func firstWord() async throws {
    let place = try Workspace()
    for _ in 0..<12 {
      _ = try await place.server.start()
      let output = try await place.server.stop()
      #expect(output.code == 0, "\(output.err)")
    }
  }

  @Test(
    "SIGTERM while another program holds the database and devices wait for it: it ends with 0, acknowledged rows are there"
  )
  func heldDatabase() async throws {
    let place = try Workspace()
    try place.write(Self.configuration, to: "salvor.json5")
    let url = try await place.server.start()
    let devices = try ["anna", "ben", "carl"].map { try place.device($0, url: url, limits: "{ attemptsMax: 1 }") }
    for (index, device) in devices.enumerated() {
      try await device.sync()
      try device.sqlite().execute("INSERT INTO site (id, name) VALUES ('before\(index)', 'x')")
      try await device.sync()
      try device.sqlite().execute("INSERT INTO site (id, name) VALUES ('after\(index)', 'x')")
    }
    let other = try place.server.sqlite()
    try other.execute("BEGIN IMMEDIATE; INSERT INTO site (id, name) VALUES ('other', 'x')")
    let syncs = try devices.map {
      try ChildProcess(Built.salvor, ["sync", "--json"], directory: $0.directory)
    }
    // The server answers, and at least one upload waits for the other program.
    while try await place.metric("salvor_sessions", url) == 0 { try await Task.sleep(for: .milliseconds(20)) }
    let output = try await place.server.stop()
    #expect(output.code == 0, "\(output.err)")
    try other.execute("COMMIT")
    for sync in syncs { #expect(await sync.output().code != 0) }
    let rows = try other.rows("SELECT id FROM site ORDER BY id")
    #expect(rows == [["before0"], ["before1"], ["before2"], ["other"]])
    // Nothing is lost on the devices either: the next sync brings it.
    let again = try await place.server.start()
    for device in devices {
      try device.connect(to: again)
      try await device.sync()
    }
    #expect(try other.integer("SELECT count(*) FROM site") == 7)
    #expect(try await place.server.stop().code == 0)
  }
}

extension Workspace {
  /// A number of `/metrics`.
  fileprivate func metric(_ name: String, _ url: String) async throws -> Int {
    let output = try await ChildProcess("curl", ["-s", "\(url)/metrics"], directory: directory).output()
    let line = output.out.split(separator: "\n").first { $0.hasPrefix("\(name) ") }
    return Int(line?.dropFirst(name.count + 1) ?? "") ?? 0
  }
}
