import SalvorModel
import SalvorStorage
import SalvorTransport

/// What the log and the metrics say of one request: made when it comes, told once when its answer has ended.
final class RequestObservation: Sendable {
  private struct State {
    var received: Int64 = 0
    var sent: Int64 = 0
    var isTold = false
    /// Why the request's body did not come whole; the connection ends then, and no answer is sent.
    var cut: String?
  }

  let context: LogContext
  /// The device's step that this request is a part of.
  private let parentID: String?
  private let method: String
  private let route: String
  private let peer: String?
  private let began: ContinuousClock.Instant
  private let configuration: ServerConfiguration
  private let metrics: ServerMetrics
  private let state = Mutex(State())

  init(_ request: TransportRequest, _ configuration: ServerConfiguration, _ metrics: ServerMetrics) {
    let trace = request.headers["traceparent"].flatMap { TraceContext(traceparent: $0) }
    parentID = trace?.spanID
    // Another's trace goes on with a span of this server's.
    context = LogContext(trace?.child() ?? TraceContext())
    if let release = request.headers["user-agent"].flatMap(Self.release) { context.set("release", release) }
    method = Self.methods.contains(request.method) ? request.method : "other"
    route = Self.route(request.path)
    peer = request.peer
    began = .now
    self.configuration = configuration
    self.metrics = metrics
  }

  /// Of a device of ours: `salvor/0.1.0`.
  private static func release(_ agent: String) -> String? {
    guard agent.hasPrefix("salvor/") else { return nil }
    let version = agent.dropFirst(7).prefix { $0 != " " }
    let isVersion = version.utf8.allSatisfy { byte in
      (48...57).contains(byte) || (97...122).contains(byte) || byte == 45 || byte == 46
    }
    return (1...32).contains(version.utf8.count) && isVersion ? String(version) : nil
  }

  private static let methods: Set = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

  /// The path by its form: no identifier, no query. What is no route of this server's is `other`.
  static func route(_ path: String) -> String {
    let parts = path.prefix { $0 != "?" }.split(separator: "/")
    switch (parts.first, parts.count) {
    case ("healthz", 1), ("readyz", 1), ("metrics", 1): return "/\(parts[0])"
    case ("v1", 2) where parts[1] == "sync" || parts[1] == "events" || parts[1] == "recovery": return "/v1/\(parts[1])"
    case ("v1", 3) where parts[1] == "sync": return "/v1/sync/{token}"
    case ("v1", 4) where parts[1] == "sync" && ["process", "ranges", "rows", "download"].contains(parts[3]):
      return "/v1/sync/{token}/\(parts[3])"
    case ("v1", 5) where parts[1] == "sync" && parts[3] == "chunks": return "/v1/sync/{token}/chunks/{index}"
    case ("v1", 3) where parts[1] == "blobs": return "/v1/blobs/{hash}"
    case ("v1", 3) where parts[1] == "snapshots": return "/v1/snapshots/{id}"
    case ("v1", 3) where parts[1] == "recovery": return "/v1/recovery/{token}"
    case ("v1", 4) where parts[1] == "recovery" && ["rows", "ranges", "download", "remote", "end"].contains(parts[3]):
      return "/v1/recovery/{token}/\(parts[3])"
    case ("admin", 3...) where parts[1] == "v1" && administration.contains(parts[2]): return "/admin/v1/\(parts[2])"
    default: return "other"
    }
  }

  private static let administration: Set<Substring> = [
    "remotes", "conflicts", "stats", "overview", "refusals", "recoveries", "configuration", "modules", "schema",
    "backups", "explain", "events", "audit", "log", "restores", "snapshots",
  ]

  /// The request with its body counted.
  func follow(_ request: TransportRequest) -> TransportRequest {
    var request = request
    let body = request.body
    request.body = ByteStream(
      next: {
        do {
          let piece = try await body.next()
          if let piece { self.state.withLock { $0.received += Int64(piece.count) } }
          return piece
        } catch let error as SalvorError where error.code == .timeout || error.code == .unreachable {
          self.state.withLock { $0.cut = error.code.rawValue }
          throw error
        }
      }, close: body.close)
    return request
  }

  /// A problem that the request is answered with.
  func note(_ error: SalvorError) {
    context.set("code", error.code.rawValue)
    // Its transport has given the request up.
    if error.code == .cancelled { state.withLock { $0.cut = $0.cut ?? ErrorCode.unreachable.rawValue } }
    metrics.problems.add(1)
    metrics.problemsByCode.add(MetricsText.label("code", error.code.rawValue))
    let log = configuration.log
    switch error.code {
    case .failed, .storage, .storageFull, .storageCorrupt:
      log.error("A request failed inside the server.", ["route": route, "error": "\(error)"])
    case .unauthenticated, .forbidden, .remoteBlocked, .remoteOfAnother:
      metrics.loginsRefused.add(1)
      log.warning("login refused", ["code": error.code.rawValue, "route": route, "peer": peer ?? "-"])
    case .overloaded, .storageBusy, .validatorUnavailable, .tooManyListeners:
      log.warning("A request was put off.", ["code": error.code.rawValue, "route": route])
    default: break
    }
  }

  /// The answer, observed to its end.
  func follow(_ response: TransportResponse) -> TransportResponse {
    var response = response
    response.headers["x-request-id"] = context.trace.spanID
    let status = response.status
    if let length = response.contentLength, length <= pieceBytesMax {
      state.withLock { $0.sent = Int64(length) }
      tell(status)
      return response
    }
    let body = response.body
    response.body = ByteStream(
      next: {
        let piece = try await body.next()
        if let piece { self.state.withLock { $0.sent += Int64(piece.count) } }
        return piece
      },
      close: {
        await body.close()
        self.tell(status)
      })
    return response
  }

  private func tell(_ answered: Int) {
    let (received, written, cut, isFirst) = state.withLock { state in
      defer { state.isTold = true }
      return (state.received, state.sent, state.cut, !state.isTold)
    }
    guard isFirst else { return }
    let (status, sent) = cut == nil ? ("\(answered)", written) : ("none", 0)
    let duration = ContinuousClock.now - began
    let seconds = Double(duration.components.seconds) + Double(duration.components.attoseconds) / 1e18
    let label = MetricsText.label("route", route)
    metrics.answers.add("\(label),\(MetricsText.label("method", method)),\(MetricsText.label("status", status))")
    metrics.requestBytes.observe(Double(received), label)
    metrics.responseBytes.observe(Double(sent), label)
    // A stream of events lasts as long as somebody listens.
    let isStream = route == "/v1/events" || route == "/admin/v1/events"
    if !isStream {
      metrics.durations.observe(seconds, label)
      if seconds * 1000 > Double(configuration.slowMilliseconds) { metrics.slow.add(1) }
    }
    // Checks come each few seconds and are part of nothing.
    let isCheck = route == "/healthz" || route == "/readyz" || route == "/metrics"
    if !isCheck, !isStream { trace(answered, received, sent, duration) }
    guard configuration.accessLog else { return }
    LogContext.$current.withValue(context) {
      configuration.log.write(
        isCheck ? .debug : .info, "request",
        [
          "method": method, "route": route, "status": status, "cut": cut,
          "ms": "\((seconds * 10_000).rounded() / 10)", "in": "\(received)", "out": "\(sent)", "peer": peer,
        ])
    }
  }
}

extension RequestObservation {
  private func trace(_ status: Int, _ received: Int64, _ sent: Int64, _ duration: Duration) {
    guard let traces = configuration.traces, context.trace.isSampled else { return }
    var attributes: [String: TraceSpan.Attribute] = [
      "http.request.method": .text(method), "http.route": .text(route),
      "http.response.status_code": .integer(Int64(status)), "http.request.body.size": .integer(received),
      "http.response.body.size": .integer(sent),
    ]
    attributes["client.address"] = peer.map { .text($0) }
    attributes["salvor.remote"] = context["remote"].map { .text($0) }
    attributes["error.type"] = context["code"].map { .text($0) }
    traces.take(
      TraceSpan(
        context.trace, parentID: parentID, name: "\(method) \(route)", kind: .server,
        endedMilliseconds: configuration.clock.now(), duration: duration, attributes: attributes,
        error: status >= 500 ? context["code"] ?? "\(status)" : nil))
  }
}
