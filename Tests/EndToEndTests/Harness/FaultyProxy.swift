import Foundation
import SalvorModel

#if canImport(Glibc)
  import Glibc
#endif

/// A TCP proxy between device and server that does something at one named point of one exchange, once. It stands at a
/// port that stays while the server behind it is killed and started again.
final class FaultyProxy: Sendable {
  /// Where the fault strikes. `path` is a part of the request line, e.g. `/chunks/1` or `/process`.
  enum Point: Sendable {
    /// The request's head has come from the device; nothing of it was passed on.
    case request(String)
    /// So many bytes of the request were passed on.
    case upload(String, bytes: Int)
    /// The whole request was passed on.
    case sent(String)
    /// The server has answered; nothing of the answer was passed on.
    case answered(String)
    /// So many bytes of the answer were passed on.
    case download(String, bytes: Int)

    var path: String {
      switch self {
      case .request(let path), .upload(let path, _), .sent(let path), .answered(let path), .download(let path, _): path
      }
    }
  }

  private struct State {
    var upstream: UInt16 = 0
    var point: Point?
    var action: (@Sendable () -> Void)?
    var struck = 0
    var requests: [String] = []
  }

  private let state = Mutex(State())
  private let listener: Int32
  let url: String

  init() throws {
    let (descriptor, port) = try Socket.listen()
    listener = descriptor
    url = "http://127.0.0.1:\(port)"
    let accept = { @Sendable [weak self] in
      while true {
        let client = Glibc.accept(descriptor, nil, nil)
        guard client >= 0, let self else { return }
        _ = fcntl(client, F_SETFD, FD_CLOEXEC)
        Thread.detachNewThread { self.serve(client) }
      }
    }
    Thread.detachNewThread(accept)
  }

  deinit {
    shutdown(listener, Int32(SHUT_RDWR))
    close(listener)
  }

  /// Where the server listens now.
  func lead(to url: String) throws {
    let port = try RawHTTP(url).port
    state.withLock { $0.upstream = port }
  }

  /// At `point`, once: `action` runs, and the connection is closed on both sides.
  func arm(_ point: Point, _ action: @escaping @Sendable () -> Void = {}) {
    state.withLock {
      $0.point = point
      $0.action = action
      $0.struck = 0
    }
  }

  /// Whether the fault has struck since it was armed.
  var hasStruck: Bool { state.withLock { $0.struck > 0 } }

  /// The request lines that have come, without the HTTP version.
  var requests: [String] { state.withLock { $0.requests } }

  private func strikes(_ isHere: (Point) -> Bool) -> Bool {
    let action = state.withLock { state -> (@Sendable () -> Void)? in
      guard let point = state.point, isHere(point) else { return nil }
      state.point = nil
      state.struck += 1
      defer { state.action = nil }
      return state.action
    }
    action?()
    return action != nil
  }

  private func serve(_ client: Int32) {
    let port = state.withLock { $0.upstream }
    guard let server = Socket.connect(port) else {
      close(client)
      return
    }
    let exchange = Exchange()
    let finished = DispatchSemaphore(value: 0)
    Thread.detachNewThread {
      self.passDown(server, client, exchange)
      shutdown(client, Int32(SHUT_RDWR))
      shutdown(server, Int32(SHUT_RDWR))
      finished.signal()
    }
    passUp(client, server, exchange)
    shutdown(client, Int32(SHUT_RDWR))
    shutdown(server, Int32(SHUT_RDWR))
    finished.wait()
    close(client)
    close(server)
  }

  /// What one connection is at.
  private final class Exchange: Sendable {
    struct State {
      var line = ""
      var bodyRest = 0
      var passedUp = 0
      var passedDown = 0
    }
    let state = Mutex(State())
    var line: String { state.withLock { $0.line } }
  }

  private func passUp(_ client: Int32, _ server: Int32, _ exchange: Exchange) {
    while true {
      let bytes = Socket.receive(client)
      if bytes.isEmpty { return }
      let begins = exchange.state.withLock { exchange -> Bool in
        guard exchange.bodyRest <= 0, let head = RequestHead(bytes) else {
          exchange.bodyRest -= bytes.count
          return false
        }
        exchange = Exchange.State(line: head.line, bodyRest: head.bodyBytes - (bytes.count - head.count))
        return true
      }
      let line = exchange.line
      if begins { state.withLock { $0.requests.append(line) } }
      if begins, strikes({ if case .request(let path) = $0 { line.contains(path) } else { false } }) { return }
      guard Socket.send(server, bytes) else { return }
      let (passed, rest) = exchange.state.withLock { exchange in
        exchange.passedUp += bytes.count
        return (exchange.passedUp, exchange.bodyRest)
      }
      let isHit = strikes { point in
        guard line.contains(point.path) else { return false }
        switch point {
        case .upload(_, let count): return passed >= count
        case .sent: return rest <= 0
        default: return false
        }
      }
      if isHit { return }
    }
  }

  private func passDown(_ server: Int32, _ client: Int32, _ exchange: Exchange) {
    while true {
      let bytes = Socket.receive(server, max: 4096)
      if bytes.isEmpty { return }
      let line = exchange.line
      if strikes({ if case .answered(let path) = $0 { line.contains(path) } else { false } }) { return }
      guard Socket.send(client, bytes) else { return }
      let passed = exchange.state.withLock { exchange in
        exchange.passedDown += bytes.count
        return exchange.passedDown
      }
      if strikes({
        if case .download(let path, let count) = $0 { line.contains(path) && passed >= count } else { false }
      }) {
        return
      }
    }
  }
}

/// The head of a request, where `bytes` begin with one.
private struct RequestHead {
  var line: String
  var count: Int
  var bodyBytes: Int

  init?(_ bytes: [UInt8]) {
    let methods = ["POST ", "PUT ", "GET ", "DELETE "]
    guard methods.contains(where: { bytes.starts(with: Array($0.utf8)) }),
      let end = bytes.firstRange(of: Array("\r\n\r\n".utf8))
    else { return nil }
    let lines = String(decoding: bytes[..<end.lowerBound], as: UTF8.self).components(separatedBy: "\r\n")
    line = lines[0].components(separatedBy: " HTTP/")[0]
    count = end.upperBound
    let length = lines.first { $0.lowercased().hasPrefix("content-length:") }
    bodyBytes = length.flatMap { Int($0.dropFirst(15).trimmingCharacters(in: .whitespaces)) } ?? 0
  }
}
