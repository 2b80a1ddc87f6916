import Foundation
import GzipCompression
import SalvorModel
import SalvorTransport

/// A request as it was sent.
struct RecordedRequest: Sendable {
  var method: String
  var path: String
  var headers: [String: String]
  var body: [UInt8]

  /// As bytes of a connection that ends with the answer.
  var bytes: [UInt8] {
    var head = "\(method) \(path) HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    for (name, value) in headers.sorted(by: { $0.key < $1.key }) where name != "content-length" {
      head += "\(name): \(value)\r\n"
    }
    return Array((head + "Content-Length: \(body.count)\r\n\r\n").utf8) + body
  }
}

/// Hands requests on and notes them; the answers may be changed on their way back.
final class RecordingTransport: ClientTransport {
  private let base: any ClientTransport
  private let requests = Mutex<[RecordedRequest]>([])
  private let change: Mutex<(@Sendable (TransportResponse) async throws -> TransportResponse)?> = Mutex(nil)

  init(_ base: any ClientTransport) { self.base = base }

  var recorded: [RecordedRequest] { requests.withLock { $0 } }

  func changeAnswers(_ change: (@Sendable (TransportResponse) async throws -> TransportResponse)?) {
    self.change.withLock { $0 = change }
  }

  func send(_ request: TransportRequest) async throws -> TransportResponse {
    var request = request
    let body = try await request.body.collect(upTo: 64 << 20)
    requests.withLock { requests in
      // A few of each route are enough.
      let route = request.path.prefix { $0 != "?" }.split(separator: "/").last ?? ""
      guard requests.filter({ $0.path.contains(route) && $0.method == request.method }).count < 20 else { return }
      requests.append(
        RecordedRequest(method: request.method, path: request.path, headers: request.headers, body: body))
    }
    request.body = .bytes(body)
    request.contentLength = body.count
    let response = try await base.send(request)
    guard let change = change.withLock({ $0 }) else { return response }
    return try await change(response)
  }

  func close() async { await base.close() }
}
