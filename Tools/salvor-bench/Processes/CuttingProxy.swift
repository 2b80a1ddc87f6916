import Dispatch
import SalvorModel

#if canImport(Glibc)
  import Glibc
  private let streamSocket = Int32(SOCK_STREAM.rawValue)
#elseif canImport(Darwin)
  import Darwin
  private let streamSocket = SOCK_STREAM
#endif

/// A network between a device and its server that is cut when it has carried so many bytes to the device. What was on its way then
/// is lost, and counted.
final class CuttingProxy: @unchecked Sendable {
  private struct State {
    var carried: Int64 = 0
    var cuts: [Int64] = []
  }

  private static let pieceBytes = 16 << 10
  private let listener: Int32
  private let server: UInt16
  private let state = Mutex(State())
  let url: String

  /// In front of the server at 127.0.0.1 whose URL this is.
  init(before server: String) throws {
    self.server = try RawPost.port(server)
    let listener = socket(AF_INET, streamSocket, 0)
    _ = fcntl(listener, F_SETFD, FD_CLOEXEC)
    var address = Self.address(0)
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let port = withUnsafeMutablePointer(to: &address) { pointer -> UInt16? in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(listener, $0, length) == 0 && listen(listener, 64) == 0 && getsockname(listener, $0, &length) == 0
      } ? UInt16(bigEndian: pointer.pointee.sin_port) : nil
    }
    self.listener = listener
    guard let port else { throw SalvorError(.failed, "No port to listen on: \(String(cString: strerror(errno))).") }
    url = "http://127.0.0.1:\(port)"
    DispatchQueue(label: "salvor-bench.proxy").async { [self] in accepting() }
  }

  func end() {
    shutdown(listener, Int32(SHUT_RDWR))
    close(listener)
  }

  /// Bytes to the device since the last call of this; cuts when it has carried each of `cuts`, from 0 on.
  func count(cuts: [Int64] = []) -> Int64 {
    state.withLock { state in
      defer { state = State(carried: 0, cuts: cuts.sorted()) }
      return state.carried
    }
  }

  private static func address(_ port: UInt16) -> sockaddr_in {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    return address
  }

  private func accepting() {
    while true {
      let device = accept(listener, nil, nil)
      guard device >= 0 else { return }
      let upstream = socket(AF_INET, streamSocket, 0)
      var address = Self.address(server)
      let result = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          connect(upstream, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
        }
      }
      for descriptor in [device, upstream] { _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC) }
      guard result == 0 else {
        close(device)
        close(upstream)
        continue
      }
      // A line carries little at once: what a cut loses is what is in it.
      var room = Int32(4 * Self.pieceBytes)
      setsockopt(device, SOL_SOCKET, SO_SNDBUF, &room, socklen_t(MemoryLayout<Int32>.size))
      let ends = DispatchGroup()
      DispatchQueue(label: "salvor-bench.up").async(group: ends) { Self.pump(device, upstream) { _ in true } }
      DispatchQueue(label: "salvor-bench.down").async(group: ends) { [self] in
        Self.pump(upstream, device, isCounted: carry)
      }
      ends.notify(queue: .global()) {
        close(device)
        close(upstream)
      }
    }
  }

  /// False: here it is cut.
  private func carry(_ count: Int) -> Bool {
    state.withLock { state in
      state.carried += Int64(count)
      guard let cut = state.cuts.first, state.carried >= cut else { return true }
      state.cuts.removeFirst()
      return false
    }
  }

  private static func pump(_ source: Int32, _ target: Int32, isCounted: (Int) -> Bool) {
    var bytes = [UInt8](repeating: 0, count: pieceBytes)
    while true {
      let count = read(source, &bytes, bytes.count)
      guard count > 0 else { break }
      var sent = 0
      while sent < count {
        let written = bytes[sent..<count].withUnsafeBytes { write(target, $0.baseAddress, $0.count) }
        guard written > 0 else { break }
        sent += written
      }
      guard sent == count else { break }
      if !isCounted(count) {
        // Nothing of what waits is delivered.
        var none = linger(l_onoff: 1, l_linger: 0)
        setsockopt(target, SOL_SOCKET, SO_LINGER, &none, socklen_t(MemoryLayout<linger>.size))
        break
      }
    }
    shutdown(source, Int32(SHUT_RDWR))
    shutdown(target, Int32(SHUT_RDWR))
  }
}
