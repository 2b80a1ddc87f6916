import SalvorModel

#if canImport(Glibc)
  import Glibc
  private let streamSocket = Int32(SOCK_STREAM.rawValue)
#elseif canImport(Darwin)
  import Darwin
  private let streamSocket = SOCK_STREAM
#endif

/// A POST on a connection of its own: sent at once, its answer read when it is asked for.
final class RawPost {
  private let descriptor: Int32

  static func port(_ url: String) throws -> UInt16 {
    guard let port = url.split(separator: ":").last.flatMap({ UInt16($0) }) else {
      throw SalvorError(.failed, "\(url) has no port.")
    }
    return port
  }

  init(_ port: UInt16, _ path: String, _ body: [UInt8]) throws {
    descriptor = socket(AF_INET, streamSocket, 0)
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
    let head =
      "POST \(path) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nsalvor-principal: bench\r\nContent-Length: \(body.count)\r\n\r\n"
    let bytes = Array(head.utf8) + body
    var sent = 0
    while sent < bytes.count {
      let count = bytes[sent...].withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
      guard count > 0 else { throw SalvorError(.failed, "The server ended a connection.") }
      sent += count
    }
  }

  deinit { if descriptor >= 0 { close(descriptor) } }

  /// Reads to the end. Throws unless the answer is 200 and holds the text.
  func requireAnswer(_ text: String) throws {
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 16 << 10)
    while true {
      let count = read(descriptor, &buffer, buffer.count)
      guard count > 0 else { break }
      bytes += buffer[..<count]
    }
    let answer = String(decoding: bytes, as: UTF8.self)
    guard answer.hasPrefix("HTTP/1.1 200"), answer.contains(text) else {
      throw SalvorError(.failed, "An answer is not what it should be: \(answer.prefix(400))")
    }
  }
}
