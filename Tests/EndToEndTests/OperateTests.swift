import Foundation
import Testing

#if canImport(Glibc)
  import Glibc
#endif

/// A server as its operator meets it: log, metrics, administration, service manager, copies.
@Suite struct OperateTests {
  private static let adminToken = "an-administration-token-of-this-test"

  private func place(_ log: String = #"{ format: "json" }"#) throws -> Workspace {
    try Workspace(
      serverOptions: #"administration: { token: "${OPERATE_TOKEN}" }, log: \#(log),"#)
  }

  private func start(_ place: Workspace, environment: [String: String] = [:]) async throws -> RawHTTP {
    try RawHTTP(
      try await place.server.start(environment: ["OPERATE_TOKEN": Self.adminToken].merging(environment) { $1 }))
  }

  private func lines(_ text: String) throws -> [JSON] {
    try text.split(separator: "\n").map { try JSON(parsing: String($0)) }
  }

  /// The log's lines, once one of them is as it should be.
  private func lines(of child: ChildProcess?, until isThere: (JSON) -> Bool) async throws -> [JSON] {
    for _ in 0..<3000 {
      let text = child?.err ?? ""
      if text.hasSuffix("\n"), let found = try? lines(text), found.contains(where: isThere) { return found }
      try await Task.sleep(for: .milliseconds(20))
    }
    throw Unexpected("the line did not come:\n\(child?.err ?? "")")
  }

  @Test("The lines of one sync have one trace and the remote ID on both ends, and no value of a row")
  func oneTraceOnBothEnds() async throws {
    let place = try place()
    let server = try await start(place)
    let device = try place.device("anna", url: "http://127.0.0.1:\(server.port)")
    let file = device.directory.appendingPathComponent("salvor.json5")
    let text = try String(contentsOf: file, encoding: .utf8)
    try text.replacingOccurrences(of: "client: {", with: "client: { log: { format: \"json\" },")
      .write(to: file, atomically: true, encoding: .utf8)
    try await device.sync()
    try device.sqlite().execute("INSERT INTO site (id, name) VALUES ('s1', 'Geheim Straat 7')")
    let synced = try await device.salvor("sync", "--json")
    #expect(synced.code == 0)
    let own = try #require(try lines(synced.err).first { $0["msg"] == "sync" })
    let trace = try #require(own["trace"].string)
    let remote = try #require(own["remote"].string)
    let found = try await lines(of: place.server.child) {
      $0["msg"] == "request" && $0["trace"].string == trace && $0["route"] == "/v1/sync"
    }
    let request = try #require(found.first { $0["msg"] == "request" && $0["trace"].string == trace })
    #expect(request["remote"].string == remote)
    #expect(request["status"] == "200")
    #expect(request["peer"] == "127.0.0.1")
    #expect(found.contains { $0["msg"] == "upload" && $0["trace"].string == trace && $0["accepted"] == "1" })
    #expect(found.contains { $0["msg"] == "The server has started." })
    let all = (place.server.child?.err ?? "") + synced.err
    for secret in ["Geheim", "Straat", Self.adminToken] { #expect(!all.contains(secret)) }
  }

  @Test("A refused credential is a warning with its address; a flood of them is not a flood of lines")
  func refusedLogins() async throws {
    let place = try place()
    let server = try await start(place)
    for _ in 0..<60 { #expect(try await server.request("POST", "/v1/sync", headers: [:]).status == 401) }
    let found = try await lines(of: place.server.child) { $0["msg"] == "login refused" }
    let refusals = found.filter { $0["msg"] == "login refused" }
    #expect(refusals.first?["peer"] == "127.0.0.1" && refusals.first?["level"] == "warning")
    #expect(try await server.request("GET", "/metrics", headers: [:]).text.contains("salvor_logins_refused_total 60\n"))
  }

  @Test("SIGHUP takes over the level of the log and ends nothing; a file that is wrong changes nothing and is named")
  func reload() async throws {
    let place = try place()
    let server = try await start(place)
    let file = place.directory.appendingPathComponent("salvor.json5")
    let text = try String(contentsOf: file, encoding: .utf8)
    try place.write(
      text.replacingOccurrences(of: #"format: "json""#, with: #"format: "json", level: "debug""#), to: "salvor.json5")
    place.server.child?.signal(SIGHUP)
    let found = try await lines(of: place.server.child) { $0["msg"] == "The configuration was read again." }
    #expect(found.last { $0["msg"] == "The configuration was read again." }?["now"] == "debug")
    #expect(try await server.request("GET", "/healthz", headers: [:]).status == 200)
    _ = try await lines(of: place.server.child) { $0["route"] == "/healthz" && $0["level"] == "debug" }
    try place.write("{ server: { storag: 1 } }", to: "salvor.json5")
    place.server.child?.signal(SIGHUP)
    _ = try await lines(of: place.server.child) { $0["level"] == "error" && $0["mistakes"].string != nil }
    #expect(try await server.request("GET", "/readyz", headers: [:]).status == 200)
    #expect(try await place.server.stop().code == 0)
  }

  @Test("A service manager is told of readiness, of signs of life, of a reload and of the end")
  func serviceManager() async throws {
    let place = try place()
    let path = place.directory.appendingPathComponent("notify").path
    let descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)
    defer { close(descriptor) }
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
    let bound = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    #expect(bound == 0)
    _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
    var told = ""
    func until(_ word: String) async throws {
      for _ in 0..<3000 where !told.contains(word) {
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = recv(descriptor, &buffer, buffer.count, 0)
        if count > 0 {
          told += String(decoding: buffer[..<count], as: UTF8.self) + "\n"
        } else {
          try await Task.sleep(for: .milliseconds(20))
        }
      }
      #expect(told.contains(word), "\(told)")
    }
    _ = try await start(place, environment: ["NOTIFY_SOCKET": path, "WATCHDOG_USEC": "200000"])
    try await until("READY=1\nSTATUS=listening on http")
    try await until("WATCHDOG=1")
    place.server.child?.signal(SIGHUP)
    try await until("RELOADING=1")
    told = ""
    // The kernel keeps few datagrams, and a sign of life comes each 100 ms: the words are read while the server ends.
    let server = place.server
    async let ended = server.stop().code
    try await until("STOPPING=1")
    #expect(try await ended == 0)
  }

  @Test("Metrics follow Prometheus' conventions: help and type before samples, buckets that add up, promtool content")
  func metrics() async throws {
    let place = try place()
    let server = try await start(place)
    let device = try place.device("anna", url: "http://127.0.0.1:\(server.port)")
    try await device.sync()
    try device.sqlite().execute("INSERT INTO severity (id, name) VALUES (1, 'x')")
    try await device.sync(expecting: 6)
    try place.server.sqlite().execute("INSERT INTO site (id, name) VALUES ('s1', 'x')")
    try await device.sync()
    _ = try await server.request("GET", "/nothing?here=1", headers: [:])
    let text = try await server.request("GET", "/metrics", headers: [:]).text
    var types: [String: String] = [:]
    for line in text.split(separator: "\n") {
      let words = line.split(separator: " ", maxSplits: 3).map(String.init)
      if line.hasPrefix("# TYPE") {
        #expect(types[words[2]] == nil)
        types[words[2]] = words[3]
        #expect((words[3] == "counter") == words[2].hasSuffix("_total"), "\(line)")
      } else if !line.hasPrefix("#") {
        let name = String(line.prefix { $0 != "{" && $0 != " " })
        let family = ["_bucket", "_sum", "_count"].reduce(name) { name, end in
          name.hasSuffix(end) && types[String(name.dropLast(end.count))] == "histogram"
            ? String(name.dropLast(end.count)) : name
        }
        #expect(types[family] != nil, "\(line)")
      }
    }
    for expected in [
      #"salvor_http_request_duration_seconds_bucket{route="/v1/sync",le="+Inf"} "#,
      #"salvor_http_answers_total{route="other",method="GET",status="404"} 1"#,
      #"salvor_refusals_total{reason="server-maintained"} 1"#, #"salvor_problems_by_code_total{code="not-found"} 1"#,
      "salvor_storage_bytes ", "salvor_storage_free_bytes ", "salvor_writers_waiting 0",
      "process_resident_memory_bytes ",
      "salvor_log_age_seconds ", #"salvor_build_info{version="0.1.0""#,
    ] { #expect(text.contains(expected), "\(expected)\n\(text)") }
    if Built.has("promtool") {
      try place.write(text, to: "metrics.txt")
      let checked = try await ChildProcess(
        "bash", ["-c", "promtool check metrics < metrics.txt"], directory: place.directory
      ).output()
      #expect(checked.code == 0, "\(checked.out)\(checked.err)")
    }
  }

  @Test("The alert rules fire on a server in trouble and not on a healthy one", .enabled(if: Built.has("promtool")))
  func alerts() async throws {
    let rules = Built.root.appendingPathComponent("Packaging/prometheus")
    let output = try await ChildProcess("promtool", ["test", "rules", "salvor.rules.test.yml"], directory: rules)
      .output()
    #expect(output.code == 0, "\(output.out)\(output.err)")
  }

  @Test("Every metric that the dashboard and the alert rules name is one that a server gives")
  func dashboardNamesWhatThereIs() async throws {
    let place = try place()
    let server = try await start(place)
    let device = try place.device("anna", url: "http://127.0.0.1:\(server.port)")
    try await device.sync()
    try device.sqlite().execute("INSERT INTO severity (id, name) VALUES (1, 'x')")
    try await device.sync(expecting: 6)
    var text = try await server.request("GET", "/metrics", headers: [:]).text
    // Those that come with the first event of their kind only.
    text += " salvor_recoveries_total salvor_problems_by_code_total salvor_resets_by_reason_total"
    for file in ["grafana/salvor.json", "prometheus/salvor.rules.yml"] {
      let named = try String(
        contentsOf: Built.root.appendingPathComponent("Packaging/\(file)"), encoding: .utf8)
      for match in named.matches(of: /(salvor|process)_[a-z_]+[a-z]/) where !match.output.0.hasSuffix("_rules") {
        #expect(text.contains(match.output.0), "\(file): \(match.output.0)")
      }
    }
  }

  @Test("Copies are made whole, and the newest N are kept; nothing else in the folder is touched")
  func rotation() async throws {
    let place = try place()
    _ = try await start(place)
    let folder = place.directory.appendingPathComponent("copies")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    let old = ["salvor-2001-01-01T00-00-00Z.db", "salvor-2002-01-01T00-00-00Z.db", "mine.db", "salvor-2001.db"]
    for name in old { try "x".write(to: folder.appendingPathComponent(name), atomically: false, encoding: .utf8) }
    let made = try await salvor(
      ["server", "backup", "copies", "--keep", "2", "--json"], in: place.directory,
      environment: ["OPERATE_TOKEN": Self.adminToken])
    #expect(made.code == 0, "\(made.err)")
    let file = try #require(try made.json["file"].string)
    #expect(try damage(place.directory.appendingPathComponent(file).path) == [])
    let left = try Set(FileManager.default.contentsOfDirectory(atPath: folder.path))
    #expect(
      left == [
        "salvor-2002-01-01T00-00-00Z.db", "mine.db", "salvor-2001.db", URL(fileURLWithPath: file).lastPathComponent,
      ])
    // A second one in the same second has a name of its own.
    let second = try await salvor(
      ["server", "backup", "copies", "--keep", "2", "--json"], in: place.directory,
      environment: ["OPERATE_TOKEN": Self.adminToken])
    #expect(second.code == 0, "\(second.err)")
    let next = try #require(try second.json["file"].string)
    #expect(file < next)
    for bad in [["copies", "--keep", "0"], ["copies/mine.db/x", "--keep", "1"]] {
      #expect(
        try await salvor(
          ["server", "backup"] + bad, in: place.directory, environment: ["OPERATE_TOKEN": Self.adminToken]
        )
        .code != 0)
    }
  }

  @Test("A copy with a server ID of its own refuses a device of the other one; a database in use is left alone")
  func adopt() async throws {
    let place = try place()
    let environment = ["OPERATE_TOKEN": Self.adminToken]
    func adopt(_ words: String...) async throws -> Output {
      try await salvor(["server", "adopt", "--json"] + words, in: place.directory, environment: environment)
    }
    let server = try await start(place)
    let device = try place.device("anna", url: "http://127.0.0.1:\(server.port)")
    try await device.sync()
    let known = try #require(try await device.salvor("status", "--json").json["serverID"].string)
    let busy = try await adopt("--new-id")
    #expect(busy.code != 0 && busy.err.contains("is in use"), "\(busy.err)")
    _ = try await place.server.stop()
    #expect(try await adopt().code == 2)
    let done = try await adopt("--new-id")
    #expect(done.code == 0, "\(done.err)")
    #expect(try done.json["before"].string == known)
    let again = try await start(place)
    try device.connect(to: "http://127.0.0.1:\(again.port)")
    try device.sqlite().execute("INSERT INTO site (id, name) VALUES ('s1', 'kept')")
    let refused = try await device.sync(expecting: 5)
    #expect(refused["error"]["reason"] == "server-replaced" || refused["recovery"]["reason"] == "server-replaced")
    #expect(try contents(place.server.database, ["site"])["site"] == [])
    #expect(try await device.salvor("status", "--json").json["queued"] == 1)
  }

  @Test("doctor names what is wrong and the way on, and says when all is well")
  func doctor() async throws {
    let place = try place()
    let environment = ["OPERATE_TOKEN": Self.adminToken]
    let server = try await start(place)
    let device = try place.device("anna", url: "http://127.0.0.1:\(server.port)")
    try await device.sync()
    let well = try await device.salvor("doctor", "--json")
    #expect(well.code == 0, "\(well.out)")
    #expect(try well.json["healthy"] == true)
    // Files beside the database have rights, too.
    let beside = device.database + ".salvor-identity"
    try FileManager.default.setAttributes([.posixPermissions: 0o644], ofItemAtPath: beside)
    let open = try await device.salvor("doctor")
    #expect(open.code == 0 && open.out.contains(".salvor-identity can be read by every user"), "\(open.out)")
    try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: beside)
    let reached = try await device.salvor("doctor", "--reach", "--quiet")
    #expect(reached.code == 0 && reached.out == "")
    let server1 = try await salvor(["doctor"], in: place.directory, environment: environment)
    #expect(server1.out.contains("remotes: 1 known"), "\(server1.out)")
    _ = try await place.server.stop()
    let away = try await device.salvor("doctor")
    #expect(away.code == 2 && away.out.contains("bad   server") && away.out.contains("→ start it"), "\(away.out)")
    #expect(try await device.salvor("doctor", "--reach").code == 3)
    let aside = place.server.database + ".aside"
    try FileManager.default.moveItem(atPath: place.server.database, toPath: aside)
    let gone = try await salvor(["doctor"], in: place.directory, environment: environment)
    #expect(
      gone.code == 2 && gone.out.contains("is not there, and") && gone.out.contains("server restore"), "\(gone.out)")
    try FileManager.default.moveItem(atPath: aside, toPath: place.server.database)
    try place.write("{ serve: {} }", to: "salvor.json5")
    let wrong = try await salvor(["doctor"], in: place.directory)
    #expect(wrong.code == 2 && wrong.out.contains("did you mean \"server\""), "\(wrong.out)")
  }

  @Test("status says whether the server answers and what was refused last")
  func status() async throws {
    let place = try place()
    let server = try await start(place)
    let device = try place.device("anna", url: "http://127.0.0.1:\(server.port)")
    try await device.sync()
    try device.sqlite().execute("INSERT INTO severity (id, name) VALUES (1, 'x')")
    try await device.sync(expecting: 6)
    let here = try await device.salvor("status", "--json").json
    #expect(here["server"]["reachable"] == true)
    #expect(here["lastRefusal"]["reason"] == "server-maintained" && here["lastRefusal"]["table"] == "severity")
    #expect(try await device.salvor("capture", "pause").code == 0)
    let paused = try await device.salvor("status", "--json")
    #expect(paused.code == 0 && (try? paused.json["capturePausedSince"].integer) != nil, "\(paused.out)\(paused.err)")
    #expect(try await device.salvor("capture", "resume").code == 0)
    _ = try await place.server.stop()
    let away = try await device.salvor("status", "--json")
    #expect(away.code == 0)
    #expect(try away.json["server"]["reachable"] == false && away.json["server"]["error"] == "unreachable")
    #expect(try await device.salvor("status", "--offline", "--json").json["server"] == nil)
  }

  @Test(
    "doctor says when a certificate ends: well before, soon, and past; and whether the server is reached from outside",
    .enabled(if: Built.has("openssl")))
  func doctorAndTheOutside() async throws {
    let place = try place()
    let path = place.directory.appendingPathComponent("salvor.json5")
    let text = try String(contentsOf: path, encoding: .utf8)
    let server = try await start(place)
    let reached = try await salvor(
      ["doctor", "--json", "--url", "http://127.0.0.1:\(server.port)"], in: place.directory,
      environment: ["OPERATE_TOKEN": Self.adminToken])
    func finding(_ output: Output, _ about: String) throws -> JSON {
      try #require(
        try output.json["findings"].items.first { $0["about"].string == about }, "\(output.out)\(output.err)")
    }
    #expect(try finding(reached, "outside")["state"] == "good")
    #expect(try finding(reached, "libraries")["message"].string?.contains("SQLite") == true)
    _ = try await place.server.stop()
    let port = try Socket.vacantPort()
    let away = try await salvor(
      ["doctor", "--json", "--url", "http://127.0.0.1:\(port)"], in: place.directory,
      environment: ["OPERATE_TOKEN": Self.adminToken])
    #expect(try away.code == 2 && finding(away, "outside")["way"].string?.contains("proxy") == true)
    try place.write(
      text.replacingOccurrences(of: "port: 0", with: "port: 0, tls: { certificate: \"chain.pem\", key: \"key.pem\" }"),
      to: "salvor.json5")
    for (days, state) in [(365, "good"), (10, "note"), (1, "bad")] {
      let made = try await ChildProcess(
        "openssl",
        [
          "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "\(days)",
          "-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "chain.pem",
        ], directory: place.directory
      ).output()
      #expect(made.code == 0, "\(made.err)")
      let output = try await salvor(
        ["doctor", "--json"], in: place.directory, environment: ["OPERATE_TOKEN": Self.adminToken])
      #expect(try finding(output, "certificate")["state"].string == state, "\(days) days: \(output.out)")
    }
  }
}
