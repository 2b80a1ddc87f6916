#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Tells a service manager how the service is: sd_notify(3), by a datagram to the socket that `NOTIFY_SOCKET` names.
/// Without the variable nothing is told.
struct ServiceManager: Sendable {
  private let socketPath: String?
  /// Half of what the manager waits for a sign of life; nil: it waits for none.
  let watchdogMilliseconds: Int64?

  init(environment: [String: String]) {
    let path = environment["NOTIFY_SOCKET"] ?? ""
    socketPath = path.hasPrefix("/") || path.hasPrefix("@") ? path : nil
    let isOwn = environment["WATCHDOG_PID"].flatMap { Int32($0) }.map { $0 == getpid() } ?? true
    watchdogMilliseconds =
      isOwn ? environment["WATCHDOG_USEC"].flatMap { Int64($0) }.map { max(1, $0 / 2000) } : nil
  }

  func tell(_ lines: String...) { send(lines.joined(separator: "\n")) }

  /// Signs of life, as long as `isAlive` says so, until the task is cancelled.
  func keepAlive(_ isAlive: @escaping @Sendable () async -> Bool) -> Task<Void, Never>? {
    guard socketPath != nil, let watchdogMilliseconds else { return nil }
    return Task {
      while !Task.isCancelled {
        if await isAlive() { tell("WATCHDOG=1") }
        try? await Task.sleep(for: .milliseconds(watchdogMilliseconds))
      }
    }
  }

  private func send(_ text: String) {
    #if canImport(Glibc)
      guard let socketPath else { return }
      var address = sockaddr_un()
      address.sun_family = sa_family_t(AF_UNIX)
      var path = Array(socketPath.utf8)
      // An abstract name begins with a zero byte in place of the @.
      if path.first == UInt8(ascii: "@") { path[0] = 0 }
      guard path.count < MemoryLayout.size(ofValue: address.sun_path) else { return }
      withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
      let descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
      guard descriptor >= 0 else { return }
      defer { close(descriptor) }
      let length = socklen_t(MemoryLayout<sa_family_t>.size + path.count)
      _ = withUnsafePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
          Array(text.utf8).withUnsafeBytes {
            sendto(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL), address, length)
          }
        }
      }
    #endif
  }
}
