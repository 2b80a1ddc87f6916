import ContentHash
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorTransport
import SalvorWire

/// Asks a service of the application over HTTP (module `webhook`, kind `validator`). The exchange is written down in this
/// folder's README. Contract: `ValidatorContract`.
public final class WebhookValidator: RequestValidator {
  /// Where the service is, and how long and how often it is asked.
  public struct Options: Sendable {
    /// Path and query of the service, as they go into the request.
    public var path: String
    /// Both sides know it; nil: batches are not signed.
    public var secret: [UInt8]?
    /// One try, from the connection to the last byte of the answer.
    public var timeoutMilliseconds: Int64 = 10_000
    /// More tries after the first one.
    public var retries = 2
    /// The longest answer, in bytes; a longer one throws `too-large`.
    public var responseBytesMax = 1 << 20

    /// 10 seconds for a try, two more tries and answers of at most 1 MiB, where nothing else is set.
    public init(path: String, secret: [UInt8]? = nil) {
      self.path = path
      self.secret = secret
    }
  }

  private let options: Options
  private let transport: any ClientTransport
  private let clock: any Clock
  private let random: any RandomSource

  /// - Parameter transport: the way to the service; `close` closes it.
  public init(
    _ options: Options, transport: any ClientTransport, clock: any Clock = SystemClock(),
    random: any RandomSource = SystemRandom()
  ) {
    self.options = options
    self.transport = transport
    self.clock = clock
    self.random = random
  }

  /// Closes the transport. No batch can be validated afterwards.
  public func close() async { await transport.close() }

  /// Errors: `unreachable`, `timeout`, `failed` (the service answered with a status that is no answer), `malformed`,
  /// `too-large`, `cancelled`.
  public func validate(_ batch: ValidationBatch) async throws -> [ValidationRefusal] {
    let message = WebhookMessage(batch)
    var attempt = 0
    while true {
      do {
        let answer = try await ask(message)
        return try WebhookMessage.refusals(in: answer)
      } catch let error as SalvorError where error.isWorthAnotherTry && attempt < options.retries {
        try await clock.sleep(milliseconds: delay(after: attempt))
        attempt += 1
      }
    }
  }

  /// A random part of a time that doubles, so that many do not come back together.
  private func delay(after attempt: Int) -> Int64 {
    let ceiling = min(Int64(200) << Int64(min(attempt, 5)), 5000)
    let part = random.bytes(2).reduce(0) { $0 << 8 | Int64($1) }
    return ceiling / 2 + ceiling / 2 * part / 0xFFFF
  }

  /// One try; nil: an answer without a body.
  private func ask(_ message: WebhookMessage) async throws -> [UInt8]? {
    try await withThrowingTaskGroup(of: [UInt8]?.self) { group in
      group.addTask { try await self.exchange(message) }
      group.addTask { [clock, options] in
        try await clock.sleep(milliseconds: options.timeoutMilliseconds)
        throw SalvorError(
          .timeout, "The service did not answer within \(options.timeoutMilliseconds) ms (timeoutSeconds).")
      }
      defer { group.cancelAll() }
      return try await group.next() ?? nil
    }
  }

  private func exchange(_ message: WebhookMessage) async throws -> [UInt8]? {
    let timestamp = "\(clock.now() / 1000)"
    var headers = [
      "content-type": "application/json", "accept": "application/json", "salvor-delivery": message.delivery,
      "salvor-timestamp": timestamp,
    ]
    // The service's own traces join the sync's.
    if let context = LogContext.current { headers["traceparent"] = context.trace.child().traceparent }
    if let secret = options.secret {
      headers["salvor-signature"] = "sha256=" + signature(of: message.body, at: timestamp, secret)
    }
    let response = try await transport.send(
      TransportRequest(
        method: "POST", path: options.path, headers: headers, body: .bytes(message.body),
        contentLength: message.body.count))
    let body = try await response.body.collect(upTo: options.responseBytesMax)
    switch response.status {
    case 200: return body
    case 204: return nil
    case 408, 429, 500...599:
      throw SalvorError(
        .overloaded, "The service answered with status \(response.status).", context: ["status": "\(response.status)"])
    default:
      throw SalvorError(
        .failed, "The service answered with status \(response.status), which is no answer; 200 or 204 is.",
        context: ["status": "\(response.status)"])
    }
  }
}

/// HMAC-SHA-256 of the timestamp, a full stop and the body, in hexadecimal digits.
func signature(of body: [UInt8], at timestamp: String, _ secret: [UInt8]) -> String {
  hexadecimal(hmacSHA256(Array(timestamp.utf8) + [UInt8(ascii: ".")] + body, key: secret))
}

extension SalvorError {
  fileprivate var isWorthAnotherTry: Bool { code == .unreachable || code == .timeout || code == .overloaded }
}
