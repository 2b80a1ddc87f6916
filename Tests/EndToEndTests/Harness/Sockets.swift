import Foundation
import Synchronization

#if canImport(Glibc)
  import Glibc
#endif

/// Blocking TCP sockets on 127.0.0.1, for threads of their own.
enum Socket {
  /// - Parameter port: 0: one that the system chooses.
  static func listen(_ port: UInt16 = 0) throws -> (descriptor: Int32, port: UInt16) {
    let descriptor = socket(AF_INET, stream, 0)
    var yes: Int32 = 1
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
    var address = loopback(port)
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let bound = withUnsafeMutablePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(descriptor, $0, length) == 0 && Glibc.listen(descriptor, 64) == 0
          && getsockname(descriptor, $0, &length) == 0
      }
    }
    guard bound else {
      let reason = errno
      close(descriptor)
      throw Unexpected("no port is free: errno \(reason)")
    }
    return (descriptor, UInt16(bigEndian: address.sin_port))
  }

  /// A port that nobody listens at, for a server that is started later. Below those that the system gives to outgoing
  /// connections: one of these takes such a port before the server comes to it.
  static func vacantPort() throws -> UInt16 {
    for _ in 0..<1000 {
      let port = UInt16.random(in: 10_000..<30_000)
      guard vacant.withLock({ $0.insert(port).inserted }) else { continue }
      if let descriptor = try? listen(port).descriptor {
        close(descriptor)
        return port
      }
    }
    throw Unexpected("no port between 10000 and 30000 is free")
  }

  /// The ports that this process has told of.
  private static let vacant = Mutex<Set<UInt16>>([])

  /// Nil: nobody listens there.
  static func connect(_ port: UInt16) -> Int32? {
    let descriptor = socket(AF_INET, stream, 0)
    var address = loopback(port)
    let connected = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
      }
    }
    guard connected else {
      close(descriptor)
      return nil
    }
    return descriptor
  }

  /// False: the other side is gone.
  static func send(_ descriptor: Int32, _ bytes: [UInt8]) -> Bool {
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = rest.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
      guard count > 0 else { return false }
      rest = rest.dropFirst(count)
    }
    return true
  }

  /// Empty: the other side has finished.
  static func receive(_ descriptor: Int32, max: Int = 64 << 10) -> [UInt8] {
    var buffer = [UInt8](repeating: 0, count: max)
    let count = recv(descriptor, &buffer, max, 0)
    return count > 0 ? Array(buffer[..<count]) : []
  }

  /// Not inherited by children: an open copy there would keep a connection alive.
  private static let stream = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)

  private static func loopback(_ port: UInt16) -> sockaddr_in {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    return address
  }
}

/// Sends bytes as they are and reads what comes back until the server closes or the response is whole.
struct RawHTTP: Sendable {
  var port: UInt16

  struct Response: Sendable {
    var status: Int
    var headers: [String: String]
    var body: [UInt8]
    var text: String { String(decoding: body, as: UTF8.self) }
    var json: JSON { get throws { try JSON(parsing: text) } }
    var lines: [JSON] { get throws { try text.split(separator: "\n").map { try JSON(parsing: String($0)) } } }
  }

  init(_ url: String) throws {
    guard let port = URL(string: url)?.port else { throw Unexpected("\(url) has no port") }
    self.port = UInt16(port)
  }

  /// `finishes` false: the sending half stays open, as with a slow or dead client.
  func exchange(_ bytes: [UInt8], closesAfterSending: Bool = false) async throws -> Response? {
    let port = port
    return try await onThread {
      guard let descriptor = Socket.connect(port) else { throw Unexpected("nobody listens at port \(port)") }
      defer { close(descriptor) }
      var limit = timeval(tv_sec: 30, tv_usec: 0)
      setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
      // A server that refuses early closes while we send: what it said is still there to be read.
      _ = Socket.send(descriptor, bytes)
      if closesAfterSending { shutdown(descriptor, Int32(SHUT_WR)) }
      var received: [UInt8] = []
      while true {
        let more = Socket.receive(descriptor)
        if more.isEmpty { break }
        received += more
      }
      return RawHTTP.parse(received)
    }
  }

  /// A whole request with a body; `Connection: close`, so that the response ends with the connection.
  func request(
    _ method: String, _ path: String, headers: [String: String] = ["salvor-principal": "anna"], body: [UInt8] = []
  ) async throws -> Response {
    var head = "\(method) \(path) HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    for (name, value) in headers { head += "\(name): \(value)\r\n" }
    if headers["content-length"] == nil { head += "content-length: \(body.count)\r\n" }
    guard let response = try await exchange(Array((head + "\r\n").utf8) + body) else {
      throw Unexpected("\(method) \(path) got no response")
    }
    return response
  }

  private static func parse(_ bytes: [UInt8]) -> Response? {
    guard let end = bytes.firstRange(of: Array("\r\n\r\n".utf8)) else { return nil }
    let head = String(decoding: bytes[..<end.lowerBound], as: UTF8.self).components(separatedBy: "\r\n")
    guard let status = head[0].split(separator: " ").dropFirst().first.flatMap({ Int($0) }) else { return nil }
    var headers: [String: String] = [:]
    for line in head.dropFirst() {
      let parts = line.split(separator: ":", maxSplits: 1)
      if parts.count == 2 { headers[parts[0].lowercased()] = parts[1].trimmingCharacters(in: .whitespaces) }
    }
    var body = Array(bytes[end.upperBound...])
    if headers["transfer-encoding"]?.lowercased() == "chunked" { body = dechunked(body) }
    return Response(status: status, headers: headers, body: body)
  }

  private static func dechunked(_ bytes: [UInt8]) -> [UInt8] {
    var out: [UInt8] = []
    var rest = bytes[...]
    while let end = rest.firstRange(of: Array("\r\n".utf8)) {
      let text = String(decoding: rest[rest.startIndex..<end.lowerBound], as: UTF8.self)
      guard let size = Int(text, radix: 16), size > 0, rest.endIndex - end.upperBound >= size else { break }
      out += rest[end.upperBound..<end.upperBound + size]
      rest = rest[(end.upperBound + size)...].dropFirst(2)
    }
    return out
  }
}

/// Runs blocking work on a thread of its own, never on the cooperative pool.
func onThread<Result: Sendable>(_ work: @escaping @Sendable () throws -> Result) async throws -> Result {
  try await withCheckedThrowingContinuation { continuation in
    Thread.detachNewThread {
      continuation.resume(with: Swift.Result { try work() })
    }
  }
}
