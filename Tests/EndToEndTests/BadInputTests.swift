import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// Bytes that no device would send: each gets a clear error, nothing of it is used, and the server goes on.
@Suite struct BadInputTests {
  static let remote = String(repeating: "a", count: 32)
  static let sequence = String(repeating: "b", count: 32)
  static let stamp = String(repeating: "c", count: 32)

  /// A begin with an upload in the same body.
  static func begin(upload: String = "inline", version: Int = 1, more: String = "") -> String {
    """
    {"begin":{"version":\(version),"remote":"\(remote)","schema":{"version":1,"digest":"none"},"groups":[],\
    "upload":"\(upload)","current":"\(sequence)"\(more)}}
    """ + "\n"
  }

  static func insert(_ table: String, _ columns: [String], _ row: String) -> String {
    let names = columns.map { "\"\($0)\"" }.joined(separator: ",")
    return """
      {"stamp":"\(stamp)"}
      {"shape":0,"table":"\(table)","operation":"insert","columns":[\(names)]}
      {"first":1,"made":0,"changes":[[0,\(row)]]}

      """
  }

  /// A device without tables: an additive difference, so that the begin passes the schema check.
  static let history = #","history":{"sequences":[],"incarnations":[],"commits":[],"tables":[]}"#

  private struct Scene {
    var place: Workspace
    var http: RawHTTP
    var rows: [String: [[Value]]]

    /// Sessions outlive whatever a busy machine does between two requests.
    init(serverLimits: String = "{ sessionIdleMilliseconds: 600000 }") async throws {
      place = try Workspace(serverLimits: serverLimits)
      http = try RawHTTP(try await place.server.start())
      try place.server.sqlite().execute("INSERT INTO site VALUES ('s1', 'Harbour', 4)")
      rows = try contents(place.server.database)
    }

    /// Nothing changed, the file is healthy, and a device synchronizes.
    func isWell() async throws {
      #expect(try contents(place.server.database) == rows)
      #expect(try damage(place.server.database) == [])
      let device = try place.device("anna", url: "http://127.0.0.1:\(http.port)")
      try await device.sync()
      #expect(try contents(device.database) == rows)
      #expect(place.server.child?.isRunning == true)
    }
  }

  static let malformed: [(String, String, Int, String)] = [
    ("nothing", "", 400, "malformed"),
    ("not JSON", "hello\n", 400, "malformed"),
    ("truncated JSON", #"{"begin":{"version":1,"remote":"aa"#, 400, "malformed"),
    ("another message", #"{"end":{}}"# + "\n", 400, "malformed"),
    ("a list", "[1,2,3]\n", 400, "malformed"),
    ("nested too deeply", String(repeating: "[", count: 100_000), 400, "malformed"),
    ("nested too deeply inside", #"{"begin":{"x":"# + String(repeating: #"{"x":"#, count: 5000), 400, "malformed"),
    ("a wrong version", begin(version: 2), 400, "protocol-version"),
    ("a wrong type", #"{"begin":{"version":"one"}}"# + "\n", 400, "malformed"),
    (
      "an identifier that is none",
      #"{"begin":{"version":1,"remote":"'; DROP TABLE site; --","schema":{"version":1,"digest":""},"groups":[],"upload":"none"}}"#
        + "\n", 400, "malformed"
    ),
    (
      "an upload without a sequence ID", begin().replacingOccurrences(of: "\"current\"", with: "\"nothing\""), 400,
      "malformed"
    ),
    ("an unknown kind of upload", begin(upload: "carrier pigeon"), 400, "malformed"),
    (
      "a position that no server gave",
      begin(upload: "none", more: history + #","position":"{\"fed\":-9223372036854775808}""#)
        .replacingOccurrences(of: #""groups":[]"#, with: #""groups":[{"name":"visits"}]"#), 400, "inconsistent-download"
    ),
    ("text that is not UTF-8", "\u{0}\u{1}\u{7F}", 400, "malformed"),
  ]

  @Test("A begin that is none is refused, and nothing changes", arguments: malformed.indices)
  func badBegins(index: Int) async throws {
    let (what, body, status, code) = BadInputTests.malformed[index]
    let scene = try await Scene()
    let response = try await scene.http.request("POST", "/v1/sync", body: Array(body.utf8))
    #expect(response.status == status, "\(what): \(response.text)")
    #expect(response.headers["content-type"] == "application/problem+json")
    #expect(try response.json["code"].string == code, "\(what)")
    #expect(try response.json["status"].integer == Int64(status))
    #expect(try response.json["detail"].string?.isEmpty == false)
    try await scene.isWell()
  }

  static let badUploads: [(String, String)] = [
    ("not a line", "rubbish\n"),
    ("cut inside a row", String(insert("site", ["id", "name", "seats"], #""s9","x",1"#).dropLast(6))),
    ("a change before its stamp", #"{"first":1,"made":0,"changes":[[0,"x"]]}"# + "\n"),
    ("an unknown shape", #"{"stamp":"\#(stamp)"}"# + "\n" + #"{"first":1,"made":0,"changes":[[7,"x"]]}"# + "\n"),
    ("an unknown line", #"{"whatever":1}"# + "\n"),
    ("a deep value", insert("site", ["id", "name", "seats"], #""s9",[[[[[[1]]]]]],1"#)),
    ("an operation that is none", #"{"shape":0,"table":"site","operation":"truncate","columns":["id"]}"# + "\n"),
  ]

  @Test("An upload that is not of the protocol is refused as a whole", arguments: badUploads.indices)
  func badUploadsAreRefused(index: Int) async throws {
    let (what, upload) = BadInputTests.badUploads[index]
    let scene = try await Scene()
    let body = BadInputTests.begin(more: BadInputTests.history) + upload
    let response = try await scene.http.request("POST", "/v1/sync", body: Array(body.utf8))
    #expect(response.status == 400, "\(what): \(response.status) \(response.text)")
    #expect(try response.json["code"].string == "malformed", "\(what): \(response.text)")
    try await scene.isWell()
  }

  static let badRequests: [(String, String, String)] = [
    ("an unknown table", insert("sqlite_master", ["id"], #""x""#), "unknown-table"),
    ("a table of Salvor's own", insert("salvor_remote", ["id"], #""x""#), "unknown-table"),
    ("an unknown column", insert("site", ["id", "name", "colour"], #""s9","x","red""#), "unknown-column"),
    ("a wrong type", insert("site", ["id", "name", "seats"], #""s9","x","many""#), "not-storable"),
    ("NULL where none may be", insert("site", ["id", "name", "seats"], #""s9",null,1"#), "not-storable"),
    ("a missing parent", insert("visit", ["id", "site_id"], #""v9","nowhere""#), "missing-parent"),
    ("a server-maintained table", insert("severity", ["id", "name"], #"9,"mine""#), "server-maintained"),
  ]

  @Test("A well-formed request that cannot be is refused by name and changes nothing", arguments: badRequests.indices)
  func badRequestsAreRefused(index: Int) async throws {
    let (what, upload, reason) = BadInputTests.badRequests[index]
    let scene = try await Scene()
    let body = BadInputTests.begin(more: BadInputTests.history) + upload
    let response = try await scene.http.request("POST", "/v1/sync", body: Array(body.utf8))
    #expect(response.status == 200, "\(what): \(response.text)")
    let results = try response.lines.first { $0["results"] != nil }?["results"]
    let refused = try #require(results?["refused"].items, "\(what): \(response.text)")
    let reasons = refused.map { $0["reason"].string ?? "" }
    // A NULL may be found by the value check or by the table's own constraint.
    let allowed = what.hasPrefix("NULL") ? [reason, "constraint"] : [reason]
    #expect(reasons.count == 1 && allowed.contains(reasons[0]), "\(what): \(response.text)")
    try await scene.isWell()
  }

  @Test("A body over its limit is refused with 413 before it is read whole")
  func oversizedBodies() async throws {
    let scene = try await Scene(
      serverLimits:
        "{ bodyBytesMax: 20000, chunkBytesMax: 20000, chunkBytesTarget: 4000, singleRoundTripBytesMax: 4000 }")
    let body = Array(BadInputTests.begin().utf8) + [UInt8](repeating: 0x20, count: 30_000)
    let whole = try await scene.http.request("POST", "/v1/sync", body: body)
    #expect(whole.status == 413, "\(whole.text)")
    // The length alone is enough: the body is never sent.
    let announced = try await scene.http.request(
      "POST", "/v1/sync", headers: ["salvor-principal": "anna", "content-length": "1000000000000"])
    #expect(announced.status == 413, "\(announced.text)")
    try await scene.isWell()
  }

  @Test("A gzip bomb is refused at the limit after decompression, and costs little memory")
  func bombs() async throws {
    let scene = try await Scene()
    let bomb = scene.place.directory.appendingPathComponent("bomb.gz")
    let made = try await ChildProcess(
      "sh", ["-c", "head -c 2000000000 /dev/zero | gzip -1 > bomb.gz"], directory: scene.place.directory
    ).output()
    #expect(made.code == 0)
    let bytes = try Array(Data(contentsOf: bomb))
    #expect(bytes.count < 60_000_000)
    let response = try await scene.http.request(
      "POST", "/v1/sync", headers: ["salvor-principal": "anna", "content-encoding": "gzip"], body: bytes)
    #expect(response.status == 413, "\(response.text)")
    #expect(try response.json["code"].string == "too-large")
    let peak = try #require(scene.place.server.child?.peakKilobytes)
    #expect(peak < 300_000)
    try await scene.isWell()
  }

  @Test("A second session of one remote is refused with session-in-use and a retry-after of at most 30 s")
  func secondSession() async throws {
    let scene = try await Scene()
    let first = BadInputTests.begin(upload: "staged", more: BadInputTests.history)
    let staged = try await scene.http.request("POST", "/v1/sync", body: Array(first.utf8))
    #expect(staged.status == 200, "\(staged.text)")
    #expect(try staged.json["session"]["token"].string?.count == 32)
    let other = first.replacingOccurrences(of: BadInputTests.sequence, with: String(repeating: "d", count: 32))
    let refused = try await scene.http.request("POST", "/v1/sync", body: Array(other.utf8))
    #expect(refused.status == 423, "\(refused.text)")
    #expect(try refused.json["code"] == "session-in-use")
    let delay = try #require(refused.headers["retry-after"].flatMap { Int($0) })
    #expect((1...30).contains(delay))
    // The same sequence IDs prove the same database: a killed device takes over its own session.
    let again = try await scene.http.request("POST", "/v1/sync", body: Array(first.utf8))
    #expect(again.status == 200)
    let token = try #require(staged.json["session"]["token"].string)
    let late = try await scene.http.request("POST", "/v1/sync/\(token)/process")
    #expect(late.status == 404)
    #expect(try late.json["code"] == "session-unknown")
    try await scene.isWell()
  }

  @Test("Chunks that leave a gap are refused with chunk-missing, and nothing is applied")
  func missingChunks() async throws {
    let scene = try await Scene()
    let begin = BadInputTests.begin(upload: "staged", more: BadInputTests.history)
    let staged = try await scene.http.request("POST", "/v1/sync", body: Array(begin.utf8))
    let token = try #require(staged.json["session"]["token"].string)
    let chunk = Array(BadInputTests.insert("site", ["id", "name", "seats"], #""s9","x",1"#).utf8)
    let gap = try await scene.http.request("PUT", "/v1/sync/\(token)/chunks/3?first=9&last=9", body: chunk)
    #expect(gap.status == 409, "\(gap.text)")
    #expect(try gap.json["code"] == "chunk-missing")
    let early = try await scene.http.request("PUT", "/v1/sync/\(token)/chunks/0?first=1&last=1", body: chunk)
    #expect(early.status == 204, "\(early.text)")
    let process = try await scene.http.request("POST", "/v1/sync/\(token)/process")
    #expect(process.status == 409, "\(process.text)")
    #expect(try process.json["code"] == "chunk-missing")
    try await scene.isWell()
  }

  @Test("A body that is not what its Content-Encoding says is refused", arguments: ["gzip", "br", "gzip, gzip"])
  func wrongEncodings(token: String) async throws {
    let scene = try await Scene()
    let response = try await scene.http.request(
      "POST", "/v1/sync", headers: ["salvor-principal": "anna", "content-encoding": token],
      body: Array(BadInputTests.begin().utf8))
    #expect(response.status == (token == "gzip" ? 400 : 415), "\(response.text)")
    try await scene.isWell()
  }

  @Test("A gzip body that is cut is refused")
  func cutGzip() async throws {
    let scene = try await Scene()
    let begin = BadInputTests.begin(more: BadInputTests.history)
    try scene.place.write(begin + String(repeating: " ", count: 5000), to: "begin")
    let made = try await ChildProcess("gzip", ["-k", "begin"], directory: scene.place.directory).output()
    #expect(made.code == 0)
    let bytes = try Array(Data(contentsOf: scene.place.directory.appendingPathComponent("begin.gz")))
    let response = try await scene.http.request(
      "POST", "/v1/sync", headers: ["salvor-principal": "anna", "content-encoding": "gzip"],
      body: Array(bytes.dropLast(12)))
    #expect(response.status == 400, "\(response.text)")
    try await scene.isWell()
  }

  @Test("A request cut inside its body leaves nothing behind")
  func cutBody() async throws {
    let scene = try await Scene()
    let body =
      BadInputTests.begin(more: BadInputTests.history)
      + BadInputTests.insert("site", ["id", "name", "seats"], #""s9","x",1"#)
    let head =
      "POST /v1/sync HTTP/1.1\r\nHost: x\r\nsalvor-principal: anna\r\ncontent-length: \(body.utf8.count + 100)\r\n\r\n"
    _ = try await scene.http.exchange(Array((head + body).utf8), closesAfterSending: true)
    try await scene.isWell()
  }

  @Test(
    "Paths and methods that are not there get 404 or 400, and no authentication gets 401",
    arguments: [
      ("GET", "/v1/sync", 404), ("POST", "/v2/sync", 400), ("GET", "/", 404), ("GET", "/etc/passwd", 404),
      ("POST", "/v1/sync/../../admin", 404), ("PUT", "/v1/sync/nobody/chunks/0?first=1&last=1", 404),
      ("PUT", "/v1/sync/nobody/chunks/-1?first=1&last=1", 404), ("POST", "/v1/sync/nobody/process", 404),
    ])
  func strangePaths(method: String, path: String, status: Int) async throws {
    let scene = try await Scene()
    let response = try await scene.http.request(method, path)
    #expect(response.status == status, "\(response.text)")
    #expect(response.headers["content-type"] == "application/problem+json")
    let nobody = try await scene.http.request("POST", "/v1/sync", headers: [:], body: Array(BadInputTests.begin().utf8))
    #expect(nobody.status == 401)
    let administration = try await scene.http.request("GET", "/admin/v1/remotes")
    #expect([401, 403].contains(administration.status), "\(administration.text)")
  }

  @Test("Health, readiness and metrics answer")
  func healthAndMetrics() async throws {
    let scene = try await Scene()
    #expect(try await scene.http.request("GET", "/healthz", headers: [:]).status == 200)
    #expect(try await scene.http.request("GET", "/readyz", headers: [:]).status == 200)
    try await scene.isWell()
    let metrics = try await scene.http.request("GET", "/metrics", headers: [:])
    #expect(metrics.status == 200)
    #expect(metrics.text.contains("\nsalvor_registrations_total 1\n"), "\(metrics.text)")
    #expect(metrics.text.contains("# TYPE salvor_head_commit gauge"))
  }
}
