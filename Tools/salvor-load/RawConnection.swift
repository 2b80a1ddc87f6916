import Foundation

#if canImport(Glibc)
  import Glibc
#endif

/// A blocking TCP connection to 127.0.0.1 that says exactly what it is told to.
final class RawConnection: @unchecked Sendable {
  private let descriptor: Int32

  /// Attackers have an address of their own: the limits of one address are about them alone.
  static let attackersAddress: UInt32 = 0x7F00_0002

  /// Nil: nobody takes it.
  ///
  /// - Parameter address: whose it is; only Linux has more than one for loopback.
  init?(_ port: UInt16, from source: UInt32? = nil, timeoutSeconds: Int = 10) {
    let made = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    guard made >= 0 else { return nil }
    var time = timeval(tv_sec: timeoutSeconds, tv_usec: 0)
    setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
    setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
    #if os(Linux)
      if let source {
        var own = sockaddr_in()
        own.sin_family = sa_family_t(AF_INET)
        own.sin_addr.s_addr = source.bigEndian
        _ = withUnsafePointer(to: &own) {
          $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            bind(made, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
          }
        }
      }
    #endif
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    let result = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(made, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    guard result == 0 else {
      close(made)
      return nil
    }
    descriptor = made
  }

  deinit { close(descriptor) }

  @discardableResult
  func send(_ bytes: [UInt8]) -> Bool {
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
      guard count > 0 else { return false }
      rest = rest.dropFirst(count)
    }
    return true
  }

  @discardableResult
  func send(_ text: String) -> Bool { send(Array(text.utf8)) }

  func finishSending() { _ = shutdown(descriptor, Int32(SHUT_WR)) }

  /// False: the other side has closed it.
  var isOpen: Bool {
    var byte: UInt8 = 0
    let count = recv(descriptor, &byte, 1, Int32(MSG_DONTWAIT | MSG_PEEK))
    return count > 0 || (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
  }

  /// Until the other side closes, at most `bytesMax`. Nil: it reset the connection, or said nothing for long.
  func receive(bytesMax: Int = 64 << 20) -> [UInt8]? {
    var all: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    while all.count < bytesMax {
      let count = recv(descriptor, &buffer, buffer.count, 0)
      if count < 0 { return all.isEmpty ? nil : all }
      if count == 0 { return all }
      all += buffer[0..<count]
    }
    return all
  }
}

/// An answer, read strictly.
struct RawAnswer {
  var status: Int
  var headers: [String: String]
  var body: [UInt8]

  /// Throws what is not well-formed: the head, the length, the chunks, a problem without its members.
  init(_ bytes: [UInt8], isHead: Bool = false) throws {
    var rest = bytes[...]
    // Interim answers come before the real one.
    while true {
      guard let end = rest.firstRange(of: Array("\r\n\r\n".utf8)) else { throw Failure("no whole head") }
      let lines = String(decoding: rest[..<end.lowerBound], as: UTF8.self).components(separatedBy: "\r\n")
      let first = lines[0].split(separator: " ", maxSplits: 2)
      guard first.count >= 2, first[0] == "HTTP/1.1" || first[0] == "HTTP/1.0", let status = Int(first[1]),
        (100...599).contains(status)
      else { throw Failure("no status line: \(lines[0].prefix(80))") }
      rest = rest[end.upperBound...]
      if status < 200 { continue }
      self.status = status
      headers = [:]
      for line in lines.dropFirst() {
        let parts = line.split(separator: ":", maxSplits: 1)
        guard parts.count == 2 else { throw Failure("no header: \(line.prefix(80))") }
        headers[parts[0].lowercased()] = parts[1].trimmingCharacters(in: .whitespaces)
      }
      break
    }
    if isHead || status == 204 || status == 304 {
      body = []
    } else if headers["transfer-encoding"]?.lowercased() == "chunked" {
      body = try Self.dechunked(&rest)
    } else {
      guard let length = headers["content-length"].flatMap({ Int($0) }), rest.count >= length else {
        throw Failure("the body is not as long as it says")
      }
      body = Array(rest.prefix(length))
      rest = rest.dropFirst(length)
    }
    if status >= 400 { try checkProblem() }
  }

  private func checkProblem() throws {
    guard headers["content-type"] == "application/problem+json",
      let json = try JSONSerialization.jsonObject(with: Data(body)) as? [String: Any],
      json["title"] is String, json["number"] is Int, json["detail"] is String, json["status"] as? Int == status
    else { throw Failure("status \(status) without a problem: \(String(decoding: body.prefix(200), as: UTF8.self))") }
  }

  private static func dechunked(_ rest: inout ArraySlice<UInt8>) throws -> [UInt8] {
    var out: [UInt8] = []
    while true {
      guard let end = rest.firstRange(of: [13, 10]),
        let size = Int(String(decoding: rest[rest.startIndex..<end.lowerBound], as: UTF8.self), radix: 16),
        rest.endIndex - end.upperBound >= size + 2
      else { throw Failure("a chunk is cut") }
      if size == 0 { return out }
      out += rest[end.upperBound..<end.upperBound + size]
      rest = rest[(end.upperBound + size + 2)...]
    }
  }
}

/// Blocking work on a thread of its own, never on the cooperative pool.
///
/// - Parameter isBehind: others get the processor first. Attackers have machines of their own: what they do there is not to be
///   felt by the devices and the server that share this one.
func onThread<Result: Sendable>(isBehind: Bool = false, _ work: @escaping @Sendable () -> Result) async -> Result {
  await withCheckedContinuation { continuation in
    Thread.detachNewThread {
      #if os(Linux)
        // Of the thread alone: 0 is who calls.
        if isBehind { setpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0, 10) }
      #endif
      continuation.resume(returning: work())
    }
  }
}
