import Foundation
import Synchronization

#if canImport(Glibc)
  import Glibc
#endif

/// A second HTTP server, which has the files of a server's snapshots at an address of its own: a cache, or an object store.
final class FileServer: Sendable {
  /// What it answers instead of the file, or how it gives it.
  enum Manner: String, Sendable, CaseIterable {
    case asAsked, ignoresRange, otherRange, gone, failing, redirect, cut, garbage, longer, closes
  }

  /// A request that came.
  struct Request: Sendable {
    var target: String
    /// By lower-case name.
    var headers: [String: String]
  }

  let port: UInt16
  private let listener: Int32
  private let state = Mutex(State())

  private struct State {
    var folder = ""
    var manner = Manner.asAsked
    var requests: [Request] = []
  }

  init() throws {
    (listener, port) = try Socket.listen()
    Thread.detachNewThread { [weak self, listener] in
      while true {
        let client = accept(listener, nil, nil)
        guard client >= 0 else { return }
        _ = fcntl(client, F_SETFD, FD_CLOEXEC)
        self?.answer(client)
        close(client)
      }
    }
  }

  deinit {
    shutdown(listener, Int32(SHUT_RDWR))
    close(listener)
  }

  /// - Parameter folder: of the files, `ID.gzip`.
  func serve(_ folder: String) { state.withLock { $0.folder = folder } }

  /// Begins a new count of requests.
  func behave(_ manner: Manner) {
    state.withLock {
      $0.manner = manner
      $0.requests = []
    }
  }

  /// Since `behave`.
  var requests: [Request] { state.withLock { $0.requests } }

  private func answer(_ client: Int32) {
    var bytes: [UInt8] = []
    while bytes.firstRange(of: Array("\r\n\r\n".utf8)) == nil {
      let more = Socket.receive(client)
      if more.isEmpty { return }
      bytes += more
    }
    let lines = String(decoding: bytes, as: UTF8.self).components(separatedBy: "\r\n")
    var headers: [String: String] = [:]
    for line in lines.dropFirst() {
      let parts = line.split(separator: ":", maxSplits: 1)
      if parts.count == 2 { headers[parts[0].lowercased()] = parts[1].trimmingCharacters(in: .whitespaces) }
    }
    let words = lines[0].split(separator: " ").map(String.init)
    guard words.count == 3, words[0] == "GET" else { return }
    let request = Request(target: words[1], headers: headers)
    let (manner, folder) = state.withLock { state in
      state.requests.append(request)
      return (state.manner, state.folder)
    }
    let id = words[1].split(separator: "?")[0].split(separator: "/").last ?? ""
    let file = FileManager.default.contents(atPath: "\(folder)/\(id).gzip").map { Array($0) } ?? []
    let asked = headers["range"]?.dropFirst("bytes=".count).split(separator: "-").first.flatMap { Int($0) }
    switch manner {
    case .closes: return
    case .gone: send(client, "404 Not Found", "", Array("no such file".utf8))
    case .failing: send(client, "500 Internal Server Error", "", file)
    case .redirect: send(client, "302 Found", "location: http://127.0.0.1:\(port)/elsewhere\r\n", file)
    case .cut: send(client, "200 OK", "", file, count: file.count / 2)
    case .garbage: send(client, "200 OK", "", file.map { $0 ^ 0x5A })
    case .longer: send(client, "200 OK", "", file + file)
    case .otherRange:
      send(
        client, "206 Partial Content", "content-range: bytes 1-\(file.count - 1)/\(file.count)\r\n", Array(file[1...]))
    case .asAsked, .ignoresRange:
      guard let asked, manner == .asAsked else { return send(client, "200 OK", "", file) }
      send(
        client, "206 Partial Content", "content-range: bytes \(asked)-\(file.count - 1)/\(file.count)\r\n",
        Array(file[asked...]))
    }
  }

  /// - Parameter count: it breaks off after so many bytes of the body.
  private func send(_ client: Int32, _ status: String, _ headers: String, _ body: [UInt8], count: Int? = nil) {
    let head = "HTTP/1.1 \(status)\r\n\(headers)content-length: \(body.count)\r\nconnection: close\r\n\r\n"
    _ = Socket.send(client, Array(head.utf8) + body.prefix(count ?? body.count))
    shutdown(client, Int32(SHUT_WR))
    while !Socket.receive(client).isEmpty {}
  }
}
