import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// What people and their scripts read and write beside a synchronization: keys, the log, what a check says.
@Suite struct OperatorWordsTests {
  @Test(
    "A key is taken as the queue shows it: a blob, an infinite number, a text with U+0000 (interfaces, Command line)")
  func keys() async throws {
    let place = try Workspace(
      schema: """
        { tables: {
          bl: { primaryKey: "id", columns: { id: "blob", n: "text?" } },
          re: { primaryKey: "id", columns: { id: "real", n: "text?" } },
          tx: { primaryKey: "id", columns: { id: "text", n: "text?", r: "real?" } } } }
        """)
    let device = try place.device("anna", url: try await place.server.start())
    try await device.sync()
    try device.sqlite().execute(
      """
      INSERT INTO bl VALUES (x'00ff1011121314151617181920212223242526', 'n'); INSERT INTO re VALUES (-9e999, 'n');
      INSERT INTO tx VALUES ('nul' || char(0) || 'x', 'n', 9e999), ('-1', 'n', NULL), ('a\\u{0}b', 'n', 1.5)
      """)
    let queue = try await device.salvor("queue").out
    // As JSON, too, whatever is in the rows.
    let query = try #require(
      try device.sqlite().scalar("SELECT dirty_query FROM salvor_sync_config WHERE name = 'tx'")?.string)
    let dirty = try JSON(parsing: try #require(try device.sqlite().scalar(query)?.string))
    #expect(Set(dirty.items.map { $0["r"].string ?? "-" }) == ["inf", "-"])
    try await device.sync()
    let keys = [
      ("bl", "x'00ff1011121314151617181920212223242526'"), ("re", "-inf"), ("tx", "nul\\u{0}x"), ("tx", "-1"),
      ("tx", "a\\u{5C}u{0}b"),
    ]
    for (table, key) in keys {
      if !key.contains("5C") { #expect(queue.contains(key), "\(key) in \(queue)") }
      let told = try await device.salvor("explain", "--", table, key)
      #expect(told.code == 0 && told.out.contains("is there"), "\(key): \(told.out)\(told.err)")
      #expect(try await place.server.salvor("server", "purge", "--", table, key).out.contains("erased 1 row"), "\(key)")
    }
    #expect(try place.server.sqlite().integer("SELECT count(*) FROM tx") == 0)
    let dashed = try await device.salvor("explain", "tx", "-1")
    #expect(dashed.code == 2 && dashed.err.contains("comes after --"))
    let blob = try await device.salvor("explain", "bl", "x'0'")
    #expect(blob.code == 2 && blob.err.contains("x'00ff'"))
    _ = try await place.server.stop()
  }

  @Test("A body that stops or is cut gets no answer, and the access line says so, with the reason (protocol, Requests)")
  func cutBody() async throws {
    let place = try Workspace(serverLimits: "{ idleTimeoutMilliseconds: 2000 }")
    let front = try RawHTTP(try await place.server.start())
    let head = "POST /v1/sync HTTP/1.1\r\nHost: x\r\nsalvor-principal: anna\r\nContent-Length: 100000\r\n\r\n{ "
    #expect(try await front.exchange(Array(head.utf8)) == nil)
    #expect(try await front.exchange(Array(head.utf8), closesAfterSending: true) == nil)
    // A whole one is answered, and its line says it.
    #expect(try await front.request("GET", "/v1/nothing").status == 404)
    let log = try await place.server.stop().err
    let lines = log.split(separator: "\n").filter { $0.contains("route=/v1/sync") && $0.contains("status=") }
    #expect(lines.count == 2, "\(log)")
    #expect(lines.allSatisfy { $0.contains("status=none") && $0.contains("cut=") && $0.contains("out=0") }, "\(lines)")
    #expect(lines.last?.contains("cut=unreachable") == true, "\(lines)")
    #expect(log.contains("status=404") && log.contains("GET"))
  }

  @Test("A server that hangs is named within ten seconds, with a way on, and times have their zone (cli, doctor)")
  func hangs() async throws {
    let place = try Workspace()
    let device = try place.device("anna", url: try await place.server.start())
    try await device.sync()
    #expect(try await device.salvor("status").out.contains(" UTC"))
    place.server.child?.signal(SIGSTOP)
    let reached = try await device.salvor("doctor", "--reach")
    place.server.child?.signal(SIGCONT)
    #expect(
      reached.code == 3 && reached.out.contains("has not answered within 10000 ms") && reached.out.contains("hangs"))
    _ = try await place.server.stop()
  }

  @Test(
    "A table of the application's with the name of Salvor's view is refused by name (interfaces, The remote database)")
  func nameOfAView() async throws {
    let place = try Workspace()
    let device = try place.device("anna", url: try await place.server.start())
    let other = try SQLiteConnection(device.database)
    try other.execute("CREATE TABLE salvor_status (x)")
    let output = try await device.salvor("sync", "--json")
    #expect(output.code == 2, "\(output.out)")
    #expect(try output.json["error"]["name"] == "schema-refused")
    #expect(
      try output.json["error"]["message"].string?.contains("table of the application's that is named salvor_status")
        == true)
    try other.execute("DROP TABLE salvor_status")
    try await device.sync()
    // There are no copies yet, and no folder for them: that is no error.
    #expect(try await place.server.salvor("server", "backups").code == 0)
    _ = try await place.server.stop()
  }
}
