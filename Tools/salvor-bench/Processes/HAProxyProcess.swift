import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// HAProxy before several servers, without stickiness: each request of a synchronization may reach another one.
final class HAProxyProcess {
  let url: String
  private let pid: pid_t
  private let path: String
  private static let programs: [String] = [
    "/usr/sbin/haproxy", "/usr/bin/haproxy", "/usr/local/bin/haproxy", "/opt/homebrew/bin/haproxy",
  ]

  /// - Parameter servers: their URLs.
  init(before servers: [String], configuration path: String) throws {
    guard let program = Self.programs.first(where: { access($0, X_OK) == 0 })
    else { throw SalvorError(.usage, "HAProxy is not installed here. Install the package haproxy.") }
    self.path = path
    let port = try vacantPort()
    url = "http://127.0.0.1:\(port)"
    let lines = servers.enumerated().map { number, server in
      "  server s\(number) \(server.replacing("http://", with: "")) check inter 200ms fall 1 rise 1"
    }
    let text = """
      defaults
        mode http
        timeout connect 2s
        timeout client 60s
        timeout server 60s
      listen front
        bind 127.0.0.1:\(port)
        balance roundrobin
        option httpchk GET /readyz
      \(lines.joined(separator: "\n"))

      """
    guard let file = fopen(path, "w"), fputs(text, file) >= 0, fclose(file) == 0 else {
      throw SalvorError(.failed, "\(path) cannot be written.")
    }
    let arguments = [program, "-db", "-q", "-f", path]
    var argv: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) }
    argv.append(nil)
    defer { argv.forEach { free($0) } }
    var pid: pid_t = 0
    let code = posix_spawn(&pid, program, nil, nil, argv, environ)
    guard code == 0 else {
      throw SalvorError(.failed, "HAProxy could not be started: \(String(cString: strerror(code))).")
    }
    self.pid = pid
    for _ in 0..<400 {
      if isTaken(port) { return }
      usleep(10_000)
    }
    throw SalvorError(.failed, "HAProxy did not start.")
  }

  func end() {
    kill(pid, SIGTERM)
    var status: Int32 = 0
    while waitpid(pid, &status, 0) < 0, errno == EINTR {}
    unlink(path)
  }
}
