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
  private var running: [(program: ChildProgram, port: UInt16)] = []
  /// Sockets at the ports of those that were killed.
  private var held: [Int32] = []
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
      let prefix = "listening on http://"
      guard let line = await program.firstLine(), line.hasPrefix(prefix) else {
        program.terminate()
        throw SalvorError(.failed, "A server of the demo did not start; \(fleet.log) says why.")
      }
      running.append((program, line.split(separator: ":").last.flatMap { UInt16($0) } ?? 0))
      lines.append("  server s\(number + 1) \(line.dropFirst(prefix.count)) check inter 200 rise 1 fall 2")
    }
    guard let (vacant, port) = Self.bound(to: 0) else {
      throw SalvorError(.failed, "There is no vacant port on 127.0.0.1.")
    }
    close(vacant)
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

  /// As a power cut does. The balancer finds out. Nobody else gets the port: it would pass for the server that is gone.
  mutating func kill(_ number: Int) async {
    let (program, port) = running.remove(at: number)
    _ = Self.kill(program.pid, SIGKILL)
    _ = await program.result()
    if let (socket, _) = Self.bound(to: port) { held.append(socket) }
  }

  /// True: all that run have ended in order.
  mutating func stop() async -> Bool {
    var isInOrder = true
    for (program, _) in running { program.terminate() }
    for (program, _) in running where await program.result().code != 0 { isInOrder = false }
    running = []
    if let balancer {
      _ = Self.kill(balancer.pid, SIGKILL)
      _ = await balancer.result()
    }
    balancer = nil
    for socket in held { close(socket) }
    held = []
    return isInOrder
  }

  private static func kill(_ process: pid_t, _ signal: Int32) -> Int32 {
    #if canImport(Glibc)
      Glibc.kill(process, signal)
    #else
      Darwin.kill(process, signal)
    #endif
  }

  /// A socket at this port of 127.0.0.1 (0: at a vacant one), at which nobody listens.
  private static func bound(to port: UInt16) -> (socket: Int32, port: UInt16)? {
    #if canImport(Glibc)
      let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    #else
      let descriptor = socket(AF_INET, SOCK_STREAM, 0)
    #endif
    // Connections of who had it before may not be over yet.
    var reuses: Int32 = 1
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &reuses, socklen_t(MemoryLayout<Int32>.size))
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    address.sin_port = port.bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let isBound = withUnsafeMutablePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(descriptor, $0, length) == 0 && getsockname(descriptor, $0, &length) == 0
      }
    }
    guard isBound else {
      close(descriptor)
      return nil
    }
    return (descriptor, UInt16(bigEndian: address.sin_port))
  }
}
