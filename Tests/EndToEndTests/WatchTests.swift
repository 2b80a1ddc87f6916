import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// `salvor sync --watch`: devices and a server as real processes, and other programs that write with plain SQLite.
@Suite struct WatchTests {
  private static let schema = Workspace.schema.replacingOccurrences(
    of: "groups: { reference: {}, visits: {} }",
    with: "groups: { reference: { serverInitiated: true }, visits: { serverInitiated: true } }")

  /// Waits, generously: a loaded machine is no failure.
  private func eventually(_ what: String, _ condition: () async throws -> Bool) async throws {
    for _ in 0..<2400 {
      if try await condition() { return }
      try await Task.sleep(for: .milliseconds(50))
    }
    throw Unexpected("in two minutes it did not come about that \(what)")
  }

  private func rows(_ path: String, _ sql: String) throws -> [[Value]] {
    let connection = try SQLiteConnection(path, mode: .readWrite, busyTimeoutMilliseconds: 20_000)
    return try connection.rows(sql)
  }

  @Test(
    "Two devices watch: what either writes, and what is written into the server's database, is everywhere, before and after the server's restart"
  )
  func twoDevicesWatch() async throws {
    let place = try Workspace(schema: Self.schema)
    let proxy = try FaultyProxy()
    try proxy.lead(to: try await place.server.start())
    let anna = try place.device("anna", url: proxy.url), ben = try place.device("ben", url: proxy.url)
    let watches = [try anna.start("sync", "--watch", "--json"), try ben.start("sync", "--watch", "--json")]
    for (device, watch) in zip([anna, ben], watches) {
      try await eventually("the first sync is told") { watch.out.contains("\n") || !watch.isRunning }
      #expect(watch.isRunning)
      #expect(try rows(device.database, "SELECT count(*) FROM site") == [[0]])
    }
    try anna.sqlite().execute("INSERT INTO site VALUES ('s1', 'Harbour Kitchen', 40)")
    try await eventually("anna's site is on ben's device") {
      try rows(ben.database, "SELECT id FROM site") == [["s1"]]
    }
    try ben.sqlite().execute("UPDATE site SET name = 'Harbour' WHERE id = 's1'")
    try await eventually("ben's change is on anna's device") {
      try rows(anna.database, "SELECT name FROM site") == [["Harbour"]]
    }
    try place.server.sqlite().execute("INSERT INTO severity VALUES (1, 'minor')")
    for device in [anna, ben] {
      try await eventually("the server's row is on a device") {
        try rows(device.database, "SELECT count(*) FROM severity") == [[1]]
      }
    }
    // The server ends its streams at once, and comes back elsewhere behind the same address.
    let stopped = try await place.server.stop()
    #expect(stopped.code == 0)
    try anna.sqlite().execute("INSERT INTO site VALUES ('s2', 'Corner Bakery', 8)")
    try place.server.sqlite().execute("UPDATE severity SET name = 'crucial'")
    try proxy.lead(to: try await place.server.start())
    try await eventually("what was written while the server was down is everywhere") {
      let all = try contents(place.server.database)
      return try all["site"]?.count == 2 && contents(anna.database) == all && contents(ben.database) == all
    }
    for (watch, signal) in zip(watches, [SIGINT, SIGTERM]) {
      watch.signal(signal)
      let output = await watch.output()
      #expect(output.code == 0)
      let lines = try output.out.split(separator: "\n").map { try JSON(parsing: String($0)) }
      #expect(lines.count >= 3)
      // While the server was away a line had an error instead.
      #expect(lines.allSatisfy { $0["error"] == nil ? $0["outcome"] == "synchronized" : $0["outcome"] == nil })
      #expect(lines.contains { $0["outcome"] == "synchronized" })
    }
    for file in [place.server.database, anna.database, ben.database] { #expect(try damage(file) == []) }
  }

  @Test("A watch whose output nobody reads any more ends")
  func watchIntoHead() async throws {
    let place = try Workspace(schema: Self.schema)
    let device = try place.device("anna", url: try await place.server.start())
    _ = try await device.sync()
    let shell = try ChildProcess(
      "sh", ["-c", "\"$0\" sync --watch --json | head -n 1", Built.salvor], directory: device.directory)
    try await eventually("the first sync is told") { shell.out.contains("\n") || !shell.isRunning }
    var number = 0
    try await eventually("the watch has ended") {
      number += 1
      try device.sqlite().execute("INSERT INTO site (id, name) VALUES ('s\(number)', 'Harbour')")
      return !shell.isRunning
    }
    let output = await shell.output()
    #expect(try JSON(parsing: output.out)["outcome"] == "synchronized")
  }

  @Test("A watch tells each sync in a line, listens, and keeps to what salvor_setting says while it runs")
  func settings() async throws {
    let place = try Workspace(schema: Self.schema)
    let url = try await place.server.start()
    let anna = try place.device("anna", url: url)
    let watch = try anna.start("sync", "--watch", "--group", "visits")
    try await eventually("it listens") { watch.out.contains("listening for changes of visits") || !watch.isRunning }
    #expect(watch.out.contains("synchronized"))
    try anna.sqlite().execute(
      "INSERT INTO salvor_setting VALUES ('salvor.serverInitiated.visits', 'off'), ('salvor.interval.visits', 0)")
    // Read again within some seconds; the stream of the group ends.
    try await eventually("nobody listens") {
      let metrics = try await RawHTTP(url).request("GET", "/metrics")
      return metrics.text.contains("\nsalvor_event_listeners 0\n")
    }
    try place.server.sqlite().execute("INSERT INTO site VALUES ('s1', 'Harbour Kitchen', 40)")
    try anna.sqlite().execute("INSERT INTO site VALUES ('s2', 'Corner Bakery', 8)")
    try await eventually("a write here still brings both") {
      try rows(anna.database, "SELECT count(*) FROM site") == [[2]]
    }
    watch.signal(SIGTERM)
    #expect(await watch.output().code == 0)
  }

  @Test("A watch ends with the code of what needs a person: a wrong token, an unknown group")
  func needsAPerson() async throws {
    let place = try Workspace(schema: Self.schema, authentication: #"{ module: "tokens", file: "tokens.json5" }"#)
    try place.write("{ tokens: [] }", to: "tokens.json5")
    let url = try await place.server.start()
    let anna = try place.device("anna", url: url, credentials: #"{ token: "wrong" }"#)
    let locked = try await anna.salvor("sync", "--watch", "--json")
    #expect(locked.code == 4)
    #expect(try locked.json["error"]["name"] == "unauthenticated")
    #expect(try await anna.salvor("sync", "--watch", "--group", "nosuch").code == 2)
  }

  @Test("The stream can be followed with a plain HTTP client, and a group that does not tell is refused by name")
  func theStreamByHand() async throws {
    let place = try Workspace(
      schema: Self.schema.replacingOccurrences(of: "reference: { serverInitiated: true }", with: "reference: {}"))
    let url = try await place.server.start()
    let refused = try await RawHTTP(url).request("GET", "/v1/events?groups=reference")
    #expect(refused.status == 400)
    #expect(refused.text.contains("reference"))
    let listening = Task {
      try await RawHTTP(url).request("GET", "/v1/events?groups=visits")
    }
    func metric(_ line: String) async throws -> Bool {
      try await RawHTTP(url).request("GET", "/metrics").text.contains("\n\(line)\n")
    }
    try await eventually("somebody listens") { try await metric("salvor_event_listeners 1") }
    try place.server.sqlite().execute("INSERT INTO site VALUES ('s1', 'Harbour Kitchen', 40)")
    try await eventually("the listener was told") { try await metric("salvor_event_rounds_total 1") }
    // The stop ends the stream.
    _ = try await place.server.stop()
    let stream = try await listening.value
    #expect(stream.status == 200)
    #expect(stream.headers["content-type"] == "text/event-stream")
    #expect(stream.text.contains("event: connected\nid: 0-"))
    #expect(stream.text.contains("event: changed\nid: 1-"))
    #expect(stream.text.contains("data: {\"groups\":[\"visits\"],\"commit\":1}"))
    #expect(!stream.text.contains("Harbour"))
  }
}
