import Foundation
import SQLiteSupport
import SalvorModel
import Testing

#if canImport(Glibc)
  import Glibc
#endif

/// Files, certificates and credentials of a real server.
@Suite struct ClearTextTests {
  private func mode(_ path: String) throws -> Int {
    try #require(try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int)
  }

  /// Every file that Salvor made, by its rights.
  private func made(in directory: URL) throws -> [String: Int] {
    var found: [String: Int] = [:]
    let names = try FileManager.default.subpathsOfDirectory(atPath: directory.path)
    for name in names where name.contains(".db") {
      found[name] = try mode(directory.appendingPathComponent(name).path)
    }
    return found
  }

  @Test("Databases, their logs, copies and what stands beside them are their owner's alone, not only by the umask")
  func privateFiles() async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    let device = try place.device("anna", url: url)
    try await device.sync()
    let application = try device.sqlite()
    try application.execute("INSERT INTO site (id, name) VALUES ('s1', 'Harbour')")
    try await device.sync()
    #expect(try await place.server.salvor("server", "backup", "night.db").code == 0)
    let files = try made(in: place.directory)
    for name in [
      "consolidated.db", "consolidated.db-wal", "consolidated.db-shm", "consolidated.db.admin-token", "night.db",
      "anna/field.db", "anna/field.db-wal", "anna/field.db-shm",
    ] { #expect(files[name] == 0o600, "\(name) of \(files)") }
    // Folders of backups apart.
    let open = files.filter { $0.value & 0o077 != 0 }
    #expect(open.isEmpty, "\(open)")
    _ = application
  }

  @Test("In a directory for a group (chmod g+s) the group reads and writes, too")
  func groupFiles() async throws {
    let place = try Workspace()
    #expect(chmod(place.directory.path, 0o2770) == 0)
    _ = try await place.server.start()
    let files = try made(in: place.directory)
    #expect(files["consolidated.db"] == 0o660 && files["consolidated.db-wal"] == 0o660, "\(files)")
    #expect(files["consolidated.db.admin-token"] == 0o600)
  }

  @Test("A proxy of the environment is told nothing in clear text")
  func proxyOfTheEnvironment() async throws {
    let place = try Workspace()
    let url = try await place.server.start()
    let proxy = try HostileServer(nil) { _ in .bytes(HostileServer.answer([])) }
    let device = try place.device("anna", url: url)
    try await device.sync(environment: ["http_proxy": proxy.url, "all_proxy": proxy.url, "no_proxy": ""])
    let file = device.directory.appendingPathComponent("salvor.json5")
    let text = try String(contentsOf: file, encoding: .utf8)
    try text.replacing("\"\(url)\"", with: "\"http://salvor.invalid\", insecure: true").write(
      to: file, atomically: true, encoding: .utf8)
    let output = try await device.salvor(
      "sync", "--json", environment: ["http_proxy": proxy.url, "all_proxy": proxy.url, "no_proxy": ""])
    #expect(output.code == 3, "\(output.out) \(output.err)")
    #expect(proxy.count == 0)
  }

  @Test("Monitoring can have an address of its own: there without a credential, and not where devices are")
  func monitoringApart() async throws {
    let (descriptor, port) = try Socket.listen()
    close(descriptor)
    let place = try Workspace(serverOptions: "monitoring: { module: \"http\", address: \"127.0.0.1\", port: \(port) },")
    let http = try RawHTTP(try await place.server.start())
    let apart = try RawHTTP("http://127.0.0.1:\(port)")
    for path in ["/metrics", "/readyz"] {
      #expect(try await http.request("GET", path, headers: [:]).status == 404)
      #expect(try await apart.request("GET", path, headers: [:]).status == 200)
    }
    #expect(try await apart.request("GET", "/metrics", headers: [:]).text.contains("salvor_remotes 0"))
    for server in [http, apart] { #expect(try await server.request("GET", "/healthz", headers: [:]).status == 200) }
    // Nothing else is there, whoever asks.
    for path in ["/v1/events", "/admin/v1/remotes", "/metrics/more", "/"] {
      #expect(try await apart.request("GET", path, headers: ["salvor-principal": "admin"]).status == 404, "\(path)")
    }
    #expect(try await apart.request("POST", "/v1/sync").status == 404)
    #expect(try await place.server.stop().code == 0)
    // Clear text for others is refused there, too.
    let open = try Workspace(serverOptions: "monitoring: { module: \"http\", address: \"0.0.0.0\", port: \(port) },")
    let refused = try await open.server.salvor("check")
    #expect(refused.code == 2 && refused.err.contains("server.monitoring"), "\(refused.err)")
  }

  @Test("Monitoring wants the administration credential where that is said; health checks never do")
  func monitoring() async throws {
    let place = try Workspace(serverOptions: "administration: { monitoringNeedsCredential: true },")
    let http = try RawHTTP(try await place.server.start())
    #expect(try await http.request("GET", "/healthz", headers: [:]).status == 200)
    for path in ["/metrics", "/readyz"] {
      #expect(try await http.request("GET", path, headers: [:]).status == 401)
      #expect(try await http.request("GET", path).status == 403)
    }
    let token = try String(contentsOfFile: place.server.database + ".admin-token", encoding: .utf8)
      .trimmingCharacters(in: .whitespacesAndNewlines)
    for path in ["/metrics", "/readyz", "/admin/v1/remotes"] {
      #expect(try await http.request("GET", path, headers: ["authorization": "Bearer \(token)"]).status == 200)
    }
    // The next server takes the same.
    #expect(try await place.server.stop().code == 0)
    let file = place.server.database + ".admin-token"
    let again = try RawHTTP(try await place.server.start())
    #expect(try await again.request("GET", "/metrics", headers: ["authorization": "Bearer \(token)"]).status == 200)
    #expect(try await place.server.stop().code == 0)
    // One that others may have read is worth nothing any more.
    #expect(chmod(file, 0o644) == 0)
    let last = try RawHTTP(try await place.server.start())
    #expect(try await last.request("GET", "/metrics", headers: ["authorization": "Bearer \(token)"]).status != 200)
    let renewed = try String(contentsOfFile: file, encoding: .utf8).trimmingCharacters(in: .whitespacesAndNewlines)
    #expect(try await last.request("GET", "/metrics", headers: ["authorization": "Bearer \(renewed)"]).status == 200)
  }

  @Test(
    "SIGHUP takes a renewed certificate into use without a restart; a wrong one leaves the old one; TLS 1.1 is not spoken"
  )
  func renewedCertificate() async throws {
    let place = try Workspace()
    func certificate(_ name: String) async throws {
      let made = try await ChildProcess(
        "openssl",
        [
          "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
          "/CN=\(name)", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key.new", "-out",
          "chain.new",
        ], directory: place.directory
      ).output()
      #expect(made.code == 0, "\(made.err)")
      for file in ["key", "chain"] {
        #expect(
          rename(
            place.directory.appendingPathComponent("\(file).new").path,
            place.directory.appendingPathComponent("\(file).pem").path) == 0)
      }
    }
    try await certificate("first")
    let path = place.directory.appendingPathComponent("salvor.json5")
    let text = try String(contentsOf: path, encoding: .utf8)
      .replacingOccurrences(of: "port: 0", with: "port: 0, tls: { certificate: \"chain.pem\", key: \"key.pem\" }")
    try text.write(to: path, atomically: true, encoding: .utf8)
    let url = try await place.server.start()
    #expect(url.hasPrefix("https://"))
    let port = try #require(URL(string: url)?.port)
    func subject(_ more: String...) async throws -> Output {
      try await ChildProcess(
        "sh",
        [
          "-c",
          "openssl s_client -connect 127.0.0.1:\(port) \(more.joined(separator: " ")) </dev/null 2>/dev/null | openssl x509 -noout -subject",
        ], directory: place.directory
      ).output()
    }
    #expect(try await subject().out.contains("first"))
    #expect(try await subject("-tls1_2").out.contains("first"))
    #expect(try await subject("-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0").code != 0)

    let child = try #require(place.server.child)
    try await certificate("second")
    child.signal(SIGHUP)
    while !(try await subject().out.contains("second")) { try await Task.sleep(for: .milliseconds(50)) }
    // A file that is none: what was in force stays in force, and the log says so.
    try place.write("no certificate", to: "chain.pem")
    child.signal(SIGHUP)
    while !child.err.contains("could not be read again") { try await Task.sleep(for: .milliseconds(50)) }
    #expect(try await subject().out.contains("second"))
    #expect(try await place.server.stop().code == 0)
  }
}
