import Foundation

#if canImport(Glibc)
  import Glibc
  private let streamSocket = Int32(SOCK_STREAM.rawValue)
  private let noSignal = Int32(MSG_NOSIGNAL)
#elseif canImport(Darwin)
  import Darwin
  private let streamSocket = SOCK_STREAM
  private let noSignal: Int32 = 0
#endif

/// A connection that says exactly what a test wants said. A call that hears nothing for ten minutes has failed: other tests of the process may have every thread for long.
final class RawSocket: Sendable {
  private let descriptor: Int32

  init(port: UInt16) throws {
    descriptor = socket(AF_INET, streamSocket, 0)
    Self.limit(descriptor)
    var address = Self.loopback(port)
    let result = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    guard result == 0 else { throw RawSocketError() }
  }

  init(descriptor: Int32) {
    self.descriptor = descriptor
    Self.limit(descriptor)
  }

  deinit { close(descriptor) }

  static func loopback(_ port: UInt16) -> sockaddr_in {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    return address
  }

  private static func limit(_ descriptor: Int32) {
    // A program that another test starts would hold the connection open.
    _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
    var time = timeval(tv_sec: 600, tv_usec: 0)
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
  }

  func send(_ text: String) {
    let bytes = Array(text.utf8)
    // Without a signal: the other end may have closed already.
    _ = bytes.withUnsafeBytes { cSend(descriptor, $0.baseAddress, $0.count, noSignal) }
  }

  func finishSending() { cShutdown(descriptor) }

  /// Reads until `end` was seen, or the other end closed. Nil where it reset the connection or said nothing for long.
  func receive(until end: String? = nil) async -> String? {
    await withCheckedContinuation { continuation in
      Thread.detachNewThread { [self] in continuation.resume(returning: receiveNow(until: end)) }
    }
  }

  /// The same, on this thread.
  func receiveNow(until end: String? = nil) -> String? {
    var text = ""
    var buffer = [UInt8](repeating: 0, count: 4096)
    while end.map({ !text.contains($0) }) ?? true {
      let count = read(descriptor, &buffer, buffer.count)
      if count < 0 { return nil }
      if count == 0 { break }
      text += String(decoding: buffer[0..<count], as: UTF8.self)
    }
    return text
  }
}

struct RawSocketError: Error {}

private func cShutdown(_ descriptor: Int32) { _ = shutdown(descriptor, 1) }
private func cSend(_ descriptor: Int32, _ bytes: UnsafeRawPointer?, _ count: Int, _ flags: Int32) -> Int {
  send(descriptor, bytes, count, flags)
}

/// A server that says exactly what a test wants said, to each connection that comes.
final class RawServer: Sendable {
  let port: UInt16
  private let descriptor: Int32

  init(_ talk: @escaping @Sendable (RawSocket) async -> Void) throws {
    let descriptor = socket(AF_INET, streamSocket, 0)
    _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
    var address = RawSocket.loopback(0)
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let result = withUnsafeMutablePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(descriptor, $0, length) == 0 && listen(descriptor, 16) == 0 && getsockname(descriptor, $0, &length) == 0
      }
    }
    guard result else { throw RawSocketError() }
    self.descriptor = descriptor
    port = UInt16(bigEndian: address.sin_port)
    Thread.detachNewThread {
      while true {
        let connection = accept(descriptor, nil, nil)
        if connection < 0 { return }
        Task { await talk(RawSocket(descriptor: connection)) }
      }
    }
  }

  deinit {
    _ = shutdown(descriptor, 2)
    close(descriptor)
  }
}
