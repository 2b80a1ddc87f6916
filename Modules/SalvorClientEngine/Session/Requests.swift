import SalvorModel
import SalvorTransport
import SalvorWire

/// Below this size a body is sent as it is.
let compressionBytesMin = 512

extension ClientConfiguration {
  /// One exchange with the server: a problem response is thrown as the error that it tells of.
  ///
  /// - Parameters:
  ///   - isBinary: a part of a blob goes either way, as it is.
  ///   - more: further headers.
  func request(
    _ method: String, _ path: String, _ body: [UInt8], isBinary: Bool = false, more: [String: String] = [:],
    counting report: inout SyncReport
  ) async throws -> TransportResponse {
    var login = try await headersOfLogin()
    while true {
      do {
        return try await request(
          method, path, body, login.merging(more) { $1 }, isBinary: isBinary, counting: &report)
      } catch let error as SalvorError where error.code == .unsupportedEncoding && sending.fallBack() {
        continue
      } catch let error as SalvorError where error.code == .unauthenticated {
        guard let others = try await self.login?.headers(after: login, error) else { throw error }
        login = others
      }
    }
  }

  private func headersOfLogin() async throws -> [String: String] {
    if let login { try await login.headers() } else { credentials }
  }

  private func request(
    _ method: String, _ path: String, _ body: [UInt8], _ login: [String: String], isBinary: Bool,
    counting report: inout SyncReport
  ) async throws -> TransportResponse {
    var headers = login
    var body = body
    headers["content-type"] = isBinary ? "application/octet-stream" : "application/jsonl"
    // Its operator sees which releases are about.
    headers["user-agent"] = "salvor/\(salvorVersion)"
    // The server's log has the same trace; each request is a span of its own.
    if let context = LogContext.current { headers["traceparent"] = context.trace.child().traceparent }
    let codings = isBinary ? [] : compressions.map(\.token)
    if !codings.isEmpty { headers["accept-encoding"] = codings.joined(separator: ", ") }
    if !isBinary, body.count >= compressionBytesMin,
      let compression = sending.coding(uploadCompression, of: compressions)
    {
      body = try await ByteStream.bytes(body).compressed(by: compression).collect(upTo: Int.max)
      headers["content-encoding"] = compression.token
    }
    report.roundTrips += 1
    report.bytesSent += Int64(body.count)
    let response = try await transport.send(
      TransportRequest(method: method, path: path, headers: headers, body: .bytes(body), contentLength: body.count))
    sending.note(response.headers["accept-encoding"], uploadCompression)
    guard response.status / 100 == 2 else {
      let text = try await response.body.collect(upTo: limits.chunkBytesMax)
      report.bytesReceived += Int64(text.count)
      throw Problem.error(
        (try? JSONValue(parsing: text)) ?? .null, status: response.status,
        retryAfter: response.headers["retry-after"], asked: "\(method) \(named(path))")
    }
    return response
  }
}

/// A path for a person: without its query, and without what names a session, a recovery or a blob.
private func named(_ path: String) -> String {
  path.prefix { $0 != "?" }.split(separator: "/").map { part in
    part.utf8.count >= 32 && part.allSatisfy(\.isHexDigit) ? "/…" : "/\(part)"
  }.joined()
}
