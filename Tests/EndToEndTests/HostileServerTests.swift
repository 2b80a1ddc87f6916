import Foundation
import SQLiteSupport
import SalvorModel
import Testing

#if canImport(Glibc)
  import Glibc
#endif

/// A server that answers what it likes. Behind it may stand an honest one, whose answers it changes.
final class HostileServer: Sendable {
  enum Reply: Sendable {
    case bytes([UInt8])
    /// The first bytes, then the same piece until nobody takes it.
    case endless([UInt8], [UInt8])
  }

  let url: String
  private let listener: Int32
  private let asked = Asked()

  /// Requests that came.
  var count: Int { asked.count.withLock { $0 } }

  private final class Asked: Sendable { let count = Mutex(0) }

  init(_ upstream: RawHTTP?, _ reply: @escaping @Sendable (RawHTTP.Response?) -> Reply) throws {
    let (descriptor, port) = try Socket.listen()
    listener = descriptor
    url = "http://127.0.0.1:\(port)"
    Thread.detachNewThread { [asked] in
      while true {
        let client = accept(descriptor, nil, nil)
        guard client >= 0 else { return }
        _ = fcntl(client, F_SETFD, FD_CLOEXEC)
        Thread.detachNewThread {
          defer { close(client) }
          guard let request = Self.request(client) else { return }
          asked.count.withLock { $0 += 1 }
          var response: RawHTTP.Response?
          if let upstream {
            let done = DispatchSemaphore(value: 0)
            let found = Box()
            Task {
              found.value.withLock { $0 = nil }
              let answer = try? await upstream.exchange(request)
              found.value.withLock { $0 = answer ?? nil }
              done.signal()
            }
            done.wait()
            response = found.value.withLock { $0 }
          }
          switch reply(response) {
          case .bytes(let bytes): _ = Socket.send(client, bytes)
          case .endless(let first, let piece):
            guard Socket.send(client, first) else { return }
            while Socket.send(client, piece) {}
          }
          shutdown(client, Int32(SHUT_WR))
          while !Socket.receive(client).isEmpty {}
        }
      }
    }
  }

  deinit {
    shutdown(listener, Int32(SHUT_RDWR))
    close(listener)
  }

  private final class Box: Sendable { let value = Mutex<RawHTTP.Response?>(nil) }

  /// One request, whole, as it may go on: without a coding of the answer, and with the connection's end behind it.
  private static func request(_ client: Int32) -> [UInt8]? {
    var all: [UInt8] = []
    while all.firstRange(of: Array("\r\n\r\n".utf8)) == nil {
      let more = Socket.receive(client)
      if more.isEmpty { return nil }
      all += more
    }
    guard let end = all.firstRange(of: Array("\r\n\r\n".utf8)) else { return nil }
    var lines = String(decoding: all[..<end.lowerBound], as: UTF8.self).components(separatedBy: "\r\n")
    let isChunked = lines.contains { $0.lowercased().hasPrefix("transfer-encoding: chunked") }
    let length = lines.first { $0.lowercased().hasPrefix("content-length:") }
      .flatMap { Int($0.dropFirst(15).trimmingCharacters(in: .whitespaces)) }
    var body = Array(all[end.upperBound...])
    while isChunked ? !body.suffix(5).elementsEqual("0\r\n\r\n".utf8) : body.count < length ?? 0 {
      let more = Socket.receive(client)
      if more.isEmpty { return nil }
      body += more
    }
    lines.removeAll {
      let name = $0.lowercased()
      return name.hasPrefix("accept-encoding:") || name.hasPrefix("connection:")
    }
    return Array((lines + ["Connection: close", "", ""]).joined(separator: "\r\n").utf8) + body
  }

  /// An answer with these lines.
  static func answer(_ body: [UInt8], status: String = "200 OK", headers: String = "") -> [UInt8] {
    Array(
      "HTTP/1.1 \(status)\r\ncontent-type: application/jsonl\r\n\(headers)connection: close\r\ncontent-length: \(body.count)\r\n\r\n"
        .utf8) + body
  }
}

/// The device against a server that means harm: nothing is lost, memory is flat, and there is a way on.
@Suite struct HostileServerTests {
  private static let head = Array("HTTP/1.1 200 OK\r\ncontent-type: application/jsonl\r\nconnection: close\r\n".utf8)

  /// What the honest answer becomes.
  private static func reply(_ what: String, _ response: RawHTTP.Response?) -> HostileServer.Reply {
    let text = response?.text ?? ""
    func changed(_ old: String, _ new: String) -> HostileServer.Reply {
      .bytes(HostileServer.answer(Array(text.replacingOccurrences(of: old, with: new).utf8)))
    }
    switch what {
    case "a line without an end":
      return .endless(head + Array("\r\n{\"session\":\"".utf8), [UInt8](repeating: 0x78, count: 1 << 20))
    case "lines without an end":
      let line =
        #"{"table":"site","columns":["id","name","seats"]}"# + "\n" + #"{"version":1,"rows":[["x","y",1]]}"# + "\n"
      let start = text.split(separator: "\n").first.map { $0 + "\n" } ?? ""
      return .endless(
        head + Array(("\r\n" + start).utf8), Array(String(repeating: line, count: 10_000).utf8))
    case "positions without an end":
      let start = text.split(separator: "\n").first.map { $0 + "\n" } ?? ""
      return .endless(
        head + Array(("\r\n" + start).utf8), Array(String(repeating: "{\"position\":\"x\"}\n", count: 50_000).utf8))
    case "a head without an end":
      return .endless(
        Array("HTTP/1.1 200 OK\r\n".utf8),
        Array(String(repeating: "x-more: \(String(repeating: "y", count: 1000))\r\n", count: 100).utf8))
    case "a million groups":
      let groups = (0..<1_000_000).map { "{\"name\":\"g\($0)\"}" }.joined(separator: ",")
      return changed("\"end\":{\"groups\":[", "\"end\":{\"groups\":[\(groups),")
    case "many values":
      return .bytes(
        HostileServer.answer(
          Array(("{\"end\":{\"groups\":[" + String(repeating: "0,", count: 3_000_000) + "0]}}\n").utf8)))
    case "a commit that is far ahead": return changed("\"cursor\":[", "\"cursor\":[9000000000000000")
    case "another server": return changed("\"server\":\"", "\"server\":\"0000")
    case "more accepted than was sent": return changed("\"accepted\":", "\"accepted\":77")
    case "a refusal of what was never sent":
      return changed(
        "\"refused\":[",
        "\"refused\":[{\"id\":\"\(String(repeating: "f", count: 32))-77\",\"reason\":\"conflict\",\"status\":409,\"message\":\"no\"}"
      )
    case "an upload's commit that is none": return changed("\"commit\":[", "\"commit\":[-9")
    case "an older cursor": return changed("\"cursor\":[", "\"cursor\":[-")
    case "results without their upload's end": return changed("\"results\":", "\"nothing\":")
    case "nothing": return .bytes(HostileServer.answer([]))
    case "no JSON": return .bytes(HostileServer.answer(Array("<html>sign in</html>\n".utf8)))
    case "a failure without words": return .bytes(HostileServer.answer(Array("oops".utf8), status: "500 Broken"))
    case "a status that is none": return .bytes(Array("HTTP/1.1 999999 What\r\n\r\n".utf8))
    case "rows of a table of Salvor's":
      return changed(
        "{\"end\":", #"{"table":"salvor_log","columns":["id"]}"# + "\n" + #"{"rows":[[1]]}"# + "\n{\"end\":")
    case "rows of a table that is the device's alone":
      return changed(
        "{\"end\":",
        #"{"table":"draft","columns":["id","body"]}"# + "\n" + #"{"rows":[["d1","stolen"]]}"# + "\n{\"end\":")
    default: return .bytes([])
    }
  }

  @Test(
    "Whatever comes: no row is lost, no table breaks, memory is flat, and the next honest sync goes through",
    arguments: [
      "a line without an end", "lines without an end", "positions without an end", "a head without an end",
      "a million groups", "many values", "a commit that is far ahead", "another server", "nothing", "no JSON",
      "a failure without words", "a status that is none", "rows of a table of Salvor's",
      "rows of a table that is the device's alone", "more accepted than was sent", "a refusal of what was never sent",
      "an upload's commit that is none", "an older cursor", "results without their upload's end",
    ])
  func hostile(what: String) async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    let device = try place.device("anna", url: url, limits: "{ attemptsMax: 1, downloadBytesMax: 16000000 }")
    try await device.sync()
    do {
      let application = try device.sqlite()
      try application.execute(
        "INSERT INTO site (id, name) VALUES ('s1', 'mine'); INSERT INTO draft VALUES ('d1', 'my own')")
    }
    let hostile = try HostileServer(try RawHTTP(url)) { Self.reply(what, $0) }
    try device.connect(to: hostile.url)
    let child = try device.start("sync", "--json")
    var peak = 0
    while child.isRunning {
      peak = max(peak, child.peakKilobytes ?? 0)
      try await Task.sleep(for: .milliseconds(20))
    }
    let output = await child.output()
    #expect(output.code < 128, "\(output.err)")
    #expect(peak < 300_000, "\(peak) kB")
    #expect(hostile.count > 0)
    #expect(try damage(device.database) == [])
    try device.connect(to: url)
    // What was believed of the lie may make the first one a recovery.
    var code: Int32 = -1
    var last = output
    for _ in 0..<3 where code != 0 {
      last = try await device.salvor("sync", "--json")
      code = last.code
    }
    #expect(code == 0, "\(last.out) \(last.err) after \(output.out)")
    let rows = try contents(place.server.database, ["site"])["site"] ?? []
    #expect(rows.contains { $0.contains("s1") && $0.contains("mine") }, "\(rows)")
    let own = try device.sqlite()
    #expect(try own.rows("SELECT body FROM draft WHERE id = 'd1'") == [[.text("my own")]])
    #expect(try own.integer("SELECT count(*) FROM site WHERE id = 's1'") == 1)
  }

  @Test(
    "Digests that are wrong, and ranges and rows that nobody asked for, end a comparison and change nothing",
    arguments: [
      "other digests", "ranges without an end", "ranges backwards", "rows of others", "no answer to the last",
    ])
  func comparison(what: String) async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    try place.server.sqlite().execute(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) INSERT INTO site SELECT 's' || i, 'site ' || i, i FROM n"
    )
    let device = try place.device("anna", url: url, limits: "{ attemptsMax: 1 }")
    try await device.sync()
    do {
      // Something to look for.
      let connection = try device.sqlite()
      connection.triggersEnabled = false
      try connection.execute("UPDATE site SET name = 'altered' WHERE id = 's1000'")
    }
    let before = try contents(device.database)
    let hostile = try HostileServer(try RawHTTP(url)) { response in
      let text = response?.text ?? ""
      let isRanges = text.contains("\"ranges\":[[")
      let isRows = text.contains("\"rows\":[[")
      var changed = text
      switch what {
      case "other digests" where isRanges:
        changed = text.replacing(/"[0-9a-f]{15}([0-9a-f])"/) { "\"0123456789abcde\($0.output.1)\"" }
      case "ranges without an end" where isRanges:
        changed = text.replacingOccurrences(of: "\"last\":true", with: "\"last\":false")
      case "ranges backwards" where isRanges:
        changed = text.replacingOccurrences(of: "\"ranges\":[[", with: "\"ranges\":[[1,\"0123456789abcdef\",[\"a\"]],[")
      case "rows of others" where isRows:
        changed = text.replacingOccurrences(of: "\"rows\":[[", with: "\"rows\":[[\"zz\",\"not asked for\",1],[")
      case "no answer to the last" where isRanges:
        changed = ""
      default: break
      }
      return .bytes(HostileServer.answer(Array(changed.utf8)))
    }
    try device.connect(to: hostile.url)
    let output = try await device.salvor("verify", "--json")
    #expect(output.code < 128, "\(output.err)")
    #expect(hostile.count < 100, "\(hostile.count) questions")
    #expect(try contents(device.database) == before && damage(device.database) == [])
    // The way on.
    try device.connect(to: url)
    let honest = try await device.salvor("verify", "--repair", "--json")
    #expect(try honest.json["differences"].items.count == 1, "\(honest.out) \(honest.err)")
    #expect(try contents(device.database, ["site"]) == contents(place.server.database, ["site"]))
  }

  @Test("A bomb in gzip ends at the limit of a line, with little memory")
  func bomb() async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    let device = try place.device("anna", url: url, limits: "{ attemptsMax: 1 }")
    try await device.sync()
    let made = try await ChildProcess(
      "sh", ["-c", "head -c 1000000000 /dev/zero | gzip -1 > bomb.gz"], directory: place.directory
    ).output()
    #expect(made.code == 0)
    let bytes = try Array(Data(contentsOf: place.directory.appendingPathComponent("bomb.gz")))
    let hostile = try HostileServer(nil) { _ in
      .bytes(HostileServer.answer(bytes, headers: "content-encoding: gzip\r\n"))
    }
    try device.connect(to: hostile.url)
    let child = try device.start("sync", "--json")
    var peak = 0
    while child.isRunning {
      peak = max(peak, child.peakKilobytes ?? 0)
      try await Task.sleep(for: .milliseconds(20))
    }
    let output = await child.output()
    #expect(output.code == 1 && output.out.contains("too-large"), "\(output.out) \(output.err)")
    #expect(peak < 200_000, "\(peak) kB")
  }

  /// A SyncConfig as the honest server delivers it, its entry of the table `site` changed.
  private static func config(_ url: String, _ change: (inout [String: Any]) -> Void) async throws -> String {
    let begin = Array(BadInputTests.begin(upload: "none", more: BadInputTests.history).utf8)
    let answer = try await RawHTTP(url).request("POST", "/v1/sync", body: begin)
    let line = try #require(answer.text.split(separator: "\n").first { $0.hasPrefix("{\"config\":") })
    var json = try #require(JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: [String: Any]])
    var tables = try #require(json["config"]?["tables"] as? [[String: Any]])
    let place = try #require(tables.firstIndex { ($0["definition"] as? [String: Any])?["name"] as? String == "site" })
    change(&tables[place])
    json["config"]?["tables"] = tables
    return String(decoding: try JSONSerialization.data(withJSONObject: json), as: UTF8.self)
  }

  @Test(
    "A SyncConfig with SQL of another kind is refused by name; nothing of it runs or is kept, and there is a way on",
    arguments: [
      ("upsertStatement", "DELETE FROM draft"), ("upsertStatement", "ATTACH '/tmp/loot.db' AS loot"),
      ("deleteStatement", "DELETE FROM site WHERE id = ?1; DROP TABLE draft"),
      ("deleteStatement", "UPDATE salvor_log SET t = 0"),
    ])
  func delivered(member: String, sql: String) async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    let device = try place.device("anna", url: url, limits: "{ attemptsMax: 1 }")
    try await device.sync()
    let own = try device.sqlite()
    try own.execute("INSERT INTO site (id, name) VALUES ('s1', 'mine'); INSERT INTO draft VALUES ('d1', 'my own')")
    let kept = try own.rows("SELECT * FROM salvor_sync_config")
    let config = try await Self.config(url) { $0[member] = sql }
    let hostile = try HostileServer(try RawHTTP(url)) { response in
      var lines = (response?.text ?? "").split(separator: "\n").map(String.init)
      if let place = lines.lastIndex(where: { $0.hasPrefix("{\"session\"") || $0.hasPrefix("{\"results\"") }) {
        lines.insert(config, at: place + 1)
      }
      return .bytes(HostileServer.answer(Array(lines.map { $0 + "\n" }.joined().utf8)))
    }
    try device.connect(to: hostile.url)
    let output = try await device.salvor("sync", "--json")
    #expect(output.code != 0 && output.code < 128, "\(output.out)")
    let error = try output.json["error"]
    #expect(error["code"].string == "schema-incompatible" || error["reason"].string == "schema-incompatible")
    #expect(error["message"].string?.contains("table site") == true, "\(output.out)")
    #expect(try own.rows("SELECT * FROM salvor_sync_config") == kept)
    #expect(try own.rows("SELECT body FROM draft") == [[.text("my own")]])
    #expect(try damage(device.database) == [])
    // The way on: a person who has found out, and the server that it should have been.
    try device.connect(to: url)
    let recovery = try await device.salvor("recover", "--json")
    #expect(recovery.code == 0, "\(recovery.out) \(recovery.err)")
    try await device.sync()
    #expect(try contents(place.server.database, ["site"]) == contents(device.database, ["site"]))
    #expect(try own.integer("SELECT count(*) FROM site WHERE id = 's1'") == 1)
  }

  @Test(
    "The queries of a delivered SyncConfig are not kept: an application runs those that the device makes itself",
    arguments: ["keyQuery", "dirtyQuery"])
  func deliveredQueries(member: String) async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    let device = try place.device("anna", url: url, limits: "{ attemptsMax: 1 }")
    try await device.sync()
    let own = try device.sqlite()
    try own.execute("INSERT INTO site (id, name) VALUES ('s1', 'mine'); INSERT INTO draft VALUES ('d1', 'my own')")
    let kept = try own.rows("SELECT * FROM salvor_sync_config")
    let config = try await Self.config(url) { $0[member] = "SELECT json_group_array(body) FROM draft" }
    let hostile = try HostileServer(try RawHTTP(url)) { response in
      var lines = (response?.text ?? "").split(separator: "\n").map(String.init)
      if let place = lines.lastIndex(where: { $0.hasPrefix("{\"session\"") || $0.hasPrefix("{\"results\"") }) {
        lines.insert(config, at: place + 1)
      }
      return .bytes(HostileServer.answer(Array(lines.map { $0 + "\n" }.joined().utf8)))
    }
    try device.connect(to: hostile.url)
    let output = try await device.salvor("sync", "--json")
    #expect(output.code == 0 && hostile.count > 0, "\(output.out) \(output.err)")
    #expect(try own.rows("SELECT * FROM salvor_sync_config") == kept)
    let query = try own.rows("SELECT key_query FROM salvor_sync_config WHERE name = 'site'")[0][0].string
    #expect(try own.rows(query ?? "") == [[.text(#"["s1"]"#)]])
  }

  @Test(
    "A redirect is not followed: the token stays with the server that was named, and the queue waits for an honest one",
    arguments: [
      "301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect",
    ])
  func redirect(status: String) async throws {
    let place = try Workspace()
    let device = try place.device("anna", url: "http://127.0.0.1:1", credentials: #"{ token: "secret" }"#)
    let other = try HostileServer(nil) { _ in .bytes(HostileServer.answer([])) }
    let location = "location: \(other.url)/v1/sync\r\n"
    let hostile = try HostileServer(nil) { _ in
      .bytes(HostileServer.answer([], status: status, headers: location))
    }
    try device.connect(to: hostile.url)
    let output = try await device.salvor("sync", "--json")
    #expect(output.code == 1 || output.code == 3, "\(output.out)")
    #expect(hostile.count > 0 && other.count == 0)
    #expect(!output.out.contains("secret") && !output.err.contains("secret"))
  }
}
