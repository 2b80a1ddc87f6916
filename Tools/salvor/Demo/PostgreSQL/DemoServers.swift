import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Several `salvor serve` of one database, and HAProxy before them: each request goes to the next one.
struct DemoServers: Sendable {
  private let fleet: DemoFleet
  private let proxy: String
  private var running: [ChildProgram] = []
  private var balancer: ChildProgram?

  init(_ count: Int, _ fleet: DemoFleet, url: String) throws {
    guard
      let proxy = ChildProgram.find("haproxy") ?? (access("/usr/sbin/haproxy", X_OK) == 0 ? "/usr/sbin/haproxy" : nil)
    else { throw SalvorError(.usage, "HAProxy is not installed here. Install it (Debian's package haproxy).") }
    self.proxy = proxy
    self.fleet = fleet
    for number in 0..<count {
      try fleet.makeFolder("\(fleet.directory)/server-\(number + 1)")
      try fleet.configureServer(
        "server-\(number + 1)",
        storage: #"{ module: "postgresql", url: "\#(url)", connections: 5, stateDirectory: "." }"#)
    }
  }

  /// All of them, and the balancer. Returns its URL.
  mutating func start(_ count: Int) async throws -> String {
    var lines: [String] = []
    for number in 0..<count {
      let program = try ChildProgram(
        fleet.executable,
        ["serve", "--quiet", "--config", "\(fleet.directory)/server-\(number + 1)/salvor.json5"], log: fleet.log)
      running.append(program)
      let prefix = "listening on http://"
      guard let line = await program.firstLine(), line.hasPrefix(prefix) else {
        throw SalvorError(.failed, "A server of the demo did not start; \(fleet.log) says why.")
      }
      lines.append("  server s\(number + 1) \(line.dropFirst(prefix.count)) check inter 200 rise 1 fall 2")
    }
    let port = try Self.vacantPort()
    let text = """
      defaults
        mode http
        retries 3
        option redispatch
        retry-on conn-failure
        timeout connect 5s
        timeout client 60s
        timeout server 60s
      frontend devices
        bind 127.0.0.1:\(port)
        default_backend salvor
      backend salvor
        balance roundrobin
        option httpchk GET /readyz
      \(lines.joined(separator: "\n"))

      """
    try fleet.write(Array(text.utf8), to: "haproxy.cfg")
    balancer = try ChildProgram(proxy, ["-db", "-f", "\(fleet.directory)/haproxy.cfg"], log: fleet.log)
    return "http://127.0.0.1:\(port)"
  }

  /// As a power cut does. The balancer finds out.
  mutating func kill(_ number: Int) async {
    _ = Self.kill(running[number].pid, SIGKILL)
    _ = await running.remove(at: number).result()
  }

  /// True: all that run have ended in order.
  mutating func stop() async -> Bool {
    var isInOrder = true
    for program in running { program.terminate() }
    for program in running where await program.result().code != 0 { isInOrder = false }
    running = []
    if let balancer {
      _ = Self.kill(balancer.pid, SIGKILL)
      _ = await balancer.result()
    }
    balancer = nil
    return isInOrder
  }

  private static func kill(_ process: pid_t, _ signal: Int32) -> Int32 {
    #if canImport(Glibc)
      Glibc.kill(process, signal)
    #else
      Darwin.kill(process, signal)
    #endif
  }

  /// One that nobody listens at now.
  private static func vacantPort() throws -> UInt16 {
    #if canImport(Glibc)
      let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    #else
      let descriptor = socket(AF_INET, SOCK_STREAM, 0)
    #endif
    defer { close(descriptor) }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let isBound = withUnsafeMutablePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(descriptor, $0, length) == 0 && getsockname(descriptor, $0, &length) == 0
      }
    }
    guard isBound else { throw SalvorError(.failed, "There is no vacant port on 127.0.0.1.") }
    return UInt16(bigEndian: address.sin_port)
  }
}
