import Foundation

#if canImport(Glibc)
  import Glibc
#endif

/// nginx with the lines of the guide to snapshots, as a cache at an address of its own.
struct Nginx {
  static let isThere = Built.has("nginx")

  let port: UInt16
  private let folder: URL

  /// - Parameter directory: what it writes goes into a folder there.
  init(in directory: URL) throws {
    port = try Socket.vacantPort()
    folder = directory.appendingPathComponent("nginx")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
  }

  /// What `server.snapshots.url` is.
  var url: String { "http://127.0.0.1:\(port)/salvor" }

  /// The lines between the fences of the guide, without TLS.
  private func lines(to server: String) throws -> String {
    let guide = try String(
      contentsOf: Built.root.appendingPathComponent("docs/guides/snapshots.md"), encoding: .utf8)
    let parts = guide.components(separatedBy: "```nginx\n")
    guard parts.count == 2, let block = parts[1].components(separatedBy: "\n```").first else {
      throw Unexpected("the guide has not one block for nginx")
    }
    return block.components(separatedBy: "\n").filter { !$0.contains("ssl_certificate") }.joined(separator: "\n")
      .replacingOccurrences(of: "listen 443 ssl;", with: "listen 127.0.0.1:\(port);")
      .replacingOccurrences(of: "https://sync.example.org", with: server)
      .replacingOccurrences(of: "/var/cache/nginx/salvor", with: "\(folder.path)/cache")
  }

  /// Starts it before a server, and waits until it answers.
  func start(before server: String) async throws -> ChildProcess {
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
      .map { "\($0)_temp_path \(folder.path)/\($0);" }.joined(separator: " ")
    try """
    daemon off; worker_processes 1; pid \(folder.path)/pid; error_log \(folder.path)/error.log;
    \(getuid() == 0 ? "user root;" : "")
    events {}
    http {
    access_log off; \(temporary)
    \(try lines(to: server))
    }

    """.write(to: folder.appendingPathComponent("nginx.conf"), atomically: true, encoding: .utf8)
    let child = try ChildProcess(
      "nginx", ["-p", folder.path, "-e", "\(folder.path)/error.log", "-c", "\(folder.path)/nginx.conf"],
      directory: folder)
    let front = try RawHTTP("http://127.0.0.1:\(port)")
    for _ in 0..<400 {
      if (try? await front.request("GET", "/", headers: [:])) != nil { return child }
      try await Task.sleep(for: .milliseconds(50))
    }
    child.signal(SIGKILL)
    throw Unexpected("nginx does not answer: \(await child.output().err)")
  }
}
