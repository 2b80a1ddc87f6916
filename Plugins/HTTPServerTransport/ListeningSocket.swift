#if HTTPServer
  import CMicrohttpd
  import SalvorModel

  #if canImport(Glibc)
    import Glibc
    private let streamSocket = Int32(SOCK_STREAM.rawValue)
    private let dontWait = Int32(MSG_DONTWAIT)
  #elseif canImport(Darwin)
    import Darwin
    private let streamSocket = SOCK_STREAM
    private let dontWait = MSG_DONTWAIT
  #endif

  /// Whether only this machine can reach `host`: `localhost`, `127.0.0.0/8` or `::1`.
  func isLoopbackHost(_ host: String) -> Bool {
    if host.lowercased() == "localhost" { return true }
    var four = in_addr()
    if inet_pton(AF_INET, host, &four) == 1 { return UInt32(bigEndian: four.s_addr) >> 24 == 127 }
    var six = in6_addr()
    guard inet_pton(AF_INET6, host, &six) == 1 else { return false }
    return isLoopback(six)
  }

  private func isLoopback(_ address: in6_addr) -> Bool {
    let bytes = withUnsafeBytes(of: address) { Array($0) }
    if bytes == [UInt8](repeating: 0, count: 15) + [1] { return true }
    // IPv4 in IPv6: ::ffff:127.0.0.0/104
    return bytes.prefix(13) == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127]
  }

  func isLoopback(peer: UnsafePointer<sockaddr>?) -> Bool {
    guard let peer else { return false }
    switch Int32(peer.pointee.sa_family) {
    case AF_INET:
      return peer.withMemoryRebound(to: sockaddr_in.self, capacity: 1) {
        UInt32(bigEndian: $0.pointee.sin_addr.s_addr) >> 24 == 127
      }
    case AF_INET6:
      return peer.withMemoryRebound(to: sockaddr_in6.self, capacity: 1) { isLoopback($0.pointee.sin6_addr) }
    default: return false
    }
  }

  /// In figures, without the port.
  func address(of peer: UnsafePointer<sockaddr>?) -> String? {
    guard let peer else { return nil }
    let isSix = Int32(peer.pointee.sa_family) == AF_INET6
    let length = isSix ? MemoryLayout<sockaddr_in6>.size : MemoryLayout<sockaddr_in>.size
    var text = [CChar](repeating: 0, count: Int(NI_MAXHOST))
    guard getnameinfo(peer, socklen_t(length), &text, socklen_t(text.count), nil, 0, NI_NUMERICHOST) == 0 else {
      return nil
    }
    let address = String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    return address.hasPrefix("::ffff:") && address.contains(".") ? String(address.dropFirst(7)) : address
  }

  /// A socket that listens, made here so that what is wrong with an address can be said in the system's words.
  struct ListeningSocket {
    let descriptor: Int32
    let port: UInt16

    /// Errors: `configuration`. Looks names up, so it can block.
    init(address: String, port: UInt16) throws {
      func refuse(_ why: String) -> SalvorError {
        SalvorError(
          .configuration, "Cannot listen on \(address), port \(port): \(why). Choose another address or port.",
          context: ["address": address, "port": "\(port)"])
      }
      var hints = addrinfo()
      hints.ai_socktype = streamSocket
      hints.ai_flags = AI_PASSIVE
      var found: UnsafeMutablePointer<addrinfo>?
      let result = getaddrinfo(address, "\(port)", &hints, &found)
      guard result == 0, let found else { throw refuse(String(cString: gai_strerror(result))) }
      defer { freeaddrinfo(found) }

      let descriptor = socket(found.pointee.ai_family, streamSocket, 0)
      guard descriptor >= 0 else { throw refuse(String(cString: strerror(errno))) }
      var on: Int32 = 1
      setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, socklen_t(MemoryLayout<Int32>.size))
      _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
      _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
      guard bind(descriptor, found.pointee.ai_addr, found.pointee.ai_addrlen) == 0, listen(descriptor, 511) == 0 else {
        let why = String(cString: strerror(errno))
        close(descriptor)
        throw refuse(why)
      }
      self.descriptor = descriptor
      self.port = Self.boundPort(descriptor)
    }

    private static func boundPort(_ descriptor: Int32) -> UInt16 {
      var storage = sockaddr_storage()
      var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
      return withUnsafeMutablePointer(to: &storage) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
          guard getsockname(descriptor, address, &length) == 0 else { return 0 }
          if Int32(address.pointee.sa_family) == AF_INET6 {
            return address.withMemoryRebound(to: sockaddr_in6.self, capacity: 1) {
              UInt16(bigEndian: $0.pointee.sin6_port)
            }
          }
          return address.withMemoryRebound(to: sockaddr_in.self, capacity: 1) { UInt16(bigEndian: $0.pointee.sin_port) }
        }
      }
    }

    /// Refuses new connections from now on; the descriptor stays taken until `close`.
    func refuseConnections() { cmicrohttpd_shut(descriptor) }
  }

  /// Reads what a client still sends on a connection that was answered early, so that the answer is not lost to a
  /// reset: `descriptor` is a duplicate and is closed here.
  func linger(_ descriptor: Int32, bytesMax: Int) async {
    defer { close(descriptor) }
    var left = bytesMax
    for _ in 0..<400 {
      while left > 0 {
        let count = withUnsafeTemporaryAllocation(byteCount: 64 << 10, alignment: 1) {
          recv(descriptor, $0.baseAddress, $0.count, dontWait)
        }
        if count > 0 {
          left -= count
        } else if count < 0, errno == EAGAIN || errno == EINTR {
          break
        } else {
          return
        }
      }
      guard left > 0, (try? await Task.sleep(for: .milliseconds(5))) != nil else { return }
    }
  }
#endif
