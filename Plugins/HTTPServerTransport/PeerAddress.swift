#if HTTPServer
  import CMicrohttpd

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Darwin)
    import Darwin
  #endif

  /// Whose connection it is, for limits and for named proxies. IPv4 addresses within IPv6 are IPv4 ones.
  struct PeerAddress: Sendable, Hashable {
    /// 4 or 16 bytes.
    let bytes: [UInt8]

    /// What limits count: an IPv6 network of 64 bits is one client, since it has as many addresses as it likes.
    var network: [UInt8] { bytes.count == 16 ? Array(bytes.prefix(8)) : bytes }

    /// Whether only this machine has it.
    var isLoopback: Bool {
      bytes.count == 4 ? bytes[0] == 127 : bytes == [UInt8](repeating: 0, count: 15) + [1]
    }

    private init(four: in_addr) {
      bytes = withUnsafeBytes(of: four.s_addr) { Array($0) }
    }

    private init(six: in6_addr) {
      let all = withUnsafeBytes(of: six) { Array($0) }
      // ::ffff:0:0/96
      let isMapped = all.prefix(12) == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
      bytes = isMapped ? Array(all.suffix(4)) : all
    }

    init?(_ address: UnsafePointer<sockaddr>?) {
      guard let address else { return nil }
      switch Int32(address.pointee.sa_family) {
      case AF_INET:
        self = address.withMemoryRebound(to: sockaddr_in.self, capacity: 1) { Self(four: $0.pointee.sin_addr) }
      case AF_INET6:
        self = address.withMemoryRebound(to: sockaddr_in6.self, capacity: 1) { Self(six: $0.pointee.sin6_addr) }
      default: return nil
      }
    }

    /// An address as a configuration or a proxy writes it: `10.0.0.1`, `2001:db8::1`, also `[2001:db8::1]:443` and
    /// `10.0.0.1:443`.
    init?(_ text: some StringProtocol) {
      var text = String(text.filter { $0 != " " && $0 != "\"" })
      if text.hasPrefix("["), let end = text.firstIndex(of: "]") {
        text = String(text[text.index(after: text.startIndex)..<end])
      } else if text.filter({ $0 == ":" }).count == 1 {
        text = String(text.prefix { $0 != ":" })
      }
      var four = in_addr()
      if inet_pton(AF_INET, text, &four) == 1 {
        self.init(four: four)
        return
      }
      var six = in6_addr()
      guard inet_pton(AF_INET6, text, &six) == 1 else { return nil }
      self.init(six: six)
    }
  }

  /// Whether only this machine can reach `host`: `localhost`, `127.0.0.0/8` or `::1`.
  func isLoopbackHost(_ host: String) -> Bool {
    host.lowercased() == "localhost" || PeerAddress(host)?.isLoopback == true
  }
#endif
