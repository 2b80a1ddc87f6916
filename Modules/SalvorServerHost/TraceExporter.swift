import SalvorModel
import SalvorTransport
import SalvorWire

/// Sends spans to a collector as OTLP over HTTP in JSON (`POST /v1/traces`), in batches, off everybody's path: `take` puts a
/// span into a queue of a bounded length and returns; what does not fit is dropped and counted. A collector that does not
/// answer costs dropped spans and a line of the log, nothing else.
public final class TraceExporter: TraceSink {
  /// The most spans that wait to be sent; others are dropped.
  public static let queueMax = 4096
  static let batchMax = 512
  static let pauseMilliseconds: Int64 = 2000
  private static let answerBytesMax = 1 << 20

  private struct State {
    var queue: [TraceSpan] = []
    var exported: Int64 = 0
    var dropped: Int64 = 0
    var isFailing = false
  }

  private let state = Mutex(State())
  private let transport: any ClientTransport
  private let resource: JSONValue
  private let clock: any Clock
  private let log: Log

  /// - Parameter instance: tells this start of the server from others.
  public init(
    _ transport: any ClientTransport, version: String, instance: String, clock: any Clock = SystemClock(), log: Log
  ) {
    self.transport = transport
    self.clock = clock
    self.log = log
    resource = [
      "attributes": .array([
        Self.attribute("service.name", .text("salvor")), Self.attribute("service.version", .text(version)),
        Self.attribute("service.instance.id", .text(instance)),
      ])
    ]
  }

  /// Puts the span into the queue, or drops it where the queue is full. Called on any thread; does not wait.
  public func take(_ span: TraceSpan) {
    state.withLock { state in
      if state.queue.count < Self.queueMax { state.queue.append(span) } else { state.dropped += 1 }
    }
  }

  /// Spans that the collector took, and spans that it did not take or that there was no room for, since the start.
  public var counts: (exported: Int64, dropped: Int64) { state.withLock { ($0.exported, $0.dropped) } }

  /// Until the task is cancelled; what is left is sent once more then.
  func run() async {
    while !Task.isCancelled {
      await send()
      do { try await clock.sleep(milliseconds: Self.pauseMilliseconds) } catch { break }
    }
  }

  /// What is in the queue, batch by batch, until one does not arrive.
  func send() async {
    while true {
      let batch = state.withLock { state in
        defer { state.queue.removeFirst(min(Self.batchMax, state.queue.count)) }
        return Array(state.queue.prefix(Self.batchMax))
      }
      if batch.isEmpty { return }
      do {
        try await post(batch)
        let isBack = state.withLock { state in
          state.exported += Int64(batch.count)
          defer { state.isFailing = false }
          return state.isFailing
        }
        if isBack { log.notice("The collector of traces takes spans again.") }
      } catch {
        let isFirst = state.withLock { state in
          state.dropped += Int64(batch.count)
          defer { state.isFailing = true }
          return !state.isFailing
        }
        // Once, until it takes some again: what it does not take is counted.
        if isFirst {
          log.warning(
            "The collector of traces (server.traces) does not take spans; they are dropped until it does.",
            ["error": "\((error as? SalvorError)?.code.rawValue ?? "failed")"])
        }
        return
      }
    }
  }

  /// Sends what is left, for at most two seconds: a collector that does not answer holds no server up.
  func close() async {
    let last = Task { await send() }
    let limit = Task {
      try await clock.sleep(milliseconds: Self.pauseMilliseconds)
      await transport.close()
    }
    await last.value
    limit.cancel()
    await transport.close()
  }

  private func post(_ batch: [TraceSpan]) async throws {
    let body = message(batch).bytes
    let response = try await transport.send(
      TransportRequest(
        method: "POST", path: "/v1/traces", headers: ["content-type": "application/json"], body: .bytes(body),
        contentLength: body.count))
    _ = try await response.body.collect(upTo: Self.answerBytesMax)
    guard response.status / 100 == 2 else {
      throw SalvorError(.failed, "The collector answered with status \(response.status).")
    }
  }

  func message(_ batch: [TraceSpan]) -> JSONValue {
    [
      "resourceSpans": [
        [
          "resource": resource,
          "scopeSpans": [["scope": ["name": "salvor"], "spans": .array(batch.map(Self.json))]],
        ]
      ]
    ]
  }

  private static func json(_ span: TraceSpan) -> JSONValue {
    var members: [JSONValue.Member] = [
      .init("traceId", .string(span.traceID)), .init("spanId", .string(span.spanID)),
      .init("name", .string(span.name)), .init("kind", .integer(Int64(span.kind.rawValue))),
      .init("startTimeUnixNano", .string("\(span.began)")), .init("endTimeUnixNano", .string("\(span.ended)")),
      .init(
        "attributes", .array(span.attributes.sorted { $0.key < $1.key }.map { attribute($0.key, $0.value) })),
      .init("status", span.error.map { ["code": 2, "message": .string($0)] } ?? [:]),
    ]
    if let parent = span.parentID { members.append(.init("parentSpanId", .string(parent))) }
    return .object(members)
  }

  private static func attribute(_ name: String, _ value: TraceSpan.Attribute) -> JSONValue {
    let json: JSONValue =
      switch value {
      case .text(let text): ["stringValue": .string(text)]
      // A text, since JSON's numbers are not whole everywhere.
      case .integer(let number): ["intValue": .string("\(number)")]
      }
    return ["key": .string(name), "value": json]
  }
}
