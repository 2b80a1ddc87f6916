import SalvorModel
import SalvorWire

#if canImport(Glibc)
  import Glibc
  private let streamSocket = Int32(SOCK_STREAM.rawValue)
#elseif canImport(Darwin)
  import Darwin
  private let streamSocket = SOCK_STREAM
#endif

/// Many streams of `GET /v1/events` to which nothing is said but that nothing has changed: what each costs the server.
struct IdleListeners {
  var count: Int

  private static let bytesEachMax = 48.0 * 1024
  private static let watchedSeconds: UInt32 = 10

  func run(_ bench: Bench) throws -> WorkloadResult {
    let path = bench.path("listeners-server.db")
    defer { bench.discard(path) }
    try PlainDatabase.seed(path, .records(RecordData(), count: 1000))
    let server = try ChildProcess(role: "server", [path, "record-telling"])
    defer { server.end() }
    let url = try server.answer(to: "start").string("url")
    guard let port = url.split(separator: ":").last.flatMap({ UInt16($0) }) else {
      throw SalvorError(.failed, "\(url) has no port.")
    }
    allowDescriptors(count + 256)
    bench.say("idle-listeners: \(grouped(count)) connections")
    // The first ones make what all share: threads, caches, the first allocations.
    var sockets = try (0..<20).map { _ in try listen(port) }
    defer { for socket in sockets { close(socket) } }
    let before = try server.call("usage").integer("resident")
    for _ in 0..<count { sockets.append(try listen(port)) }
    let after = try server.call("usage")
    let cpu = try after.real("cpu")
    sleep(Self.watchedSeconds)
    let later = try server.call("usage")
    let resident = max(try after.integer("resident"), try later.integer("resident"))
    return WorkloadResult(
      name: "idle-listeners", title: "\(grouped(count)) listeners",
      figures: [
        Figure(
          name: "memory of the server", value: Double(resident - before) / Double(count), unit: .bytesEach,
          target: .value(atMost: Self.bytesEachMax),
          details: [("before", .integer(before)), ("with", .integer(resident))]
        ),
        Figure(
          name: "CPU of the server in a second",
          value: (try later.real("cpu") - cpu) / Double(Self.watchedSeconds), unit: .seconds),
      ])
  }

  /// A stream whose first event was read.
  private func listen(_ port: UInt16) throws -> Int32 {
    let descriptor = socket(AF_INET, streamSocket, 0)
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    let result = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    guard descriptor >= 0, result == 0 else {
      throw SalvorError(.failed, "No connection with the server: \(String(cString: strerror(errno))).")
    }
    let request = Array("GET /v1/events HTTP/1.1\r\nHost: localhost\r\nsalvor-principal: bench\r\n\r\n".utf8)
    _ = request.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
    var buffer = [UInt8](repeating: 0, count: 4096)
    var text = ""
    while !text.contains("event: connected") {
      let count = read(descriptor, &buffer, buffer.count)
      guard count > 0 else { throw SalvorError(.failed, "A stream of events was not begun: \(text.prefix(200))") }
      text += String(decoding: buffer[..<count], as: UTF8.self)
    }
    return descriptor
  }

  private func allowDescriptors(_ wanted: Int) {
    var limit = rlimit()
    #if canImport(Glibc)
      let files = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    #else
      let files = RLIMIT_NOFILE
    #endif
    guard getrlimit(files, &limit) == 0, limit.rlim_cur < rlim_t(wanted) else { return }
    limit.rlim_cur = min(rlim_t(wanted), limit.rlim_max)
    _ = setrlimit(files, &limit)
  }
}
