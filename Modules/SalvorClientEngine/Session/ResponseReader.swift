import SalvorModel
import SalvorTransport
import SalvorWire

/// Takes an answer apart into control lines and the payload lines between them, which stay text.
struct ResponseReader {
  enum Event {
    case control(JSONValue)
    /// A payload line, without its line feed.
    case payload([UInt8])
  }

  private let stream: ByteStream
  private var splitter: LineSplitter
  private let valuesMax: Int
  private var lines: [[UInt8]] = []
  private var nextLine = 0
  private var isAtEnd = false
  private let counter: ByteCounter

  /// Body bytes received so far, as sent.
  var bytesReceived: Int64 { counter.value }

  init(_ response: TransportResponse, _ configuration: ClientConfiguration) {
    let counter = ByteCounter()
    self.counter = counter
    let raw = response.body
    let bytesMax = configuration.limits.downloadBytesMax
    let counted = ByteStream(
      next: {
        let piece = try await raw.next()
        counter.add(piece?.count ?? 0)
        guard counter.value <= Int64(bytesMax) else {
          throw Self.tooLarge(bytesMax)
        }
        return piece
      }, close: raw.close)
    splitter = LineSplitter(lineBytesMax: configuration.limits.rowBytesMax + configuration.limits.chunkBytesMax)
    // A SyncConfig is the longest of them.
    valuesMax = 4 * configuration.limits.valuesMax
    let token = response.headers["content-encoding"]?.lowercased() ?? "identity"
    stream = ResponseReader.decoded(counted, token, configuration)
  }

  private static func decoded(
    _ stream: ByteStream, _ token: String, _ configuration: ClientConfiguration
  ) -> ByteStream {
    if token == "identity" { return stream }
    guard let compression = configuration.compressions.first(where: { $0.token == token }),
      let decoded = try? stream.decompressed(by: compression, limit: configuration.limits.downloadBytesMax)
    else {
      return ByteStream(
        next: {
          throw SalvorError(
            .unsupportedEncoding, "The server answered in a content coding that was not asked for: \(token.prefix(40))."
          )
        }, close: stream.close)
    }
    let bytesMax = configuration.limits.downloadBytesMax
    return ByteStream(
      next: {
        do { return try await decoded.next() } catch let error as SalvorError where error.code == .tooLarge {
          throw tooLarge(bytesMax)
        }
      }, close: decoded.close)
  }

  private static func tooLarge(_ bytesMax: Int) -> SalvorError {
    SalvorError(
      .tooLarge,
      "The server's answer is larger than \(bytesMax) bytes (client.limits.downloadBytesMax). Raise that limit where it is meant to be."
    )
  }

  mutating func next() async throws -> Event? {
    while nextLine >= lines.count {
      if isAtEnd { return nil }
      lines.removeAll(keepingCapacity: true)
      nextLine = 0
      var found: [[UInt8]] = []
      if let piece = try await stream.next() {
        try splitter.split(piece) { found.append($0) }
      } else {
        isAtEnd = true
        await stream.close()
        guard splitter.rest().isEmpty else {
          throw SalvorError(.unreachable, "The server's answer was cut inside a line.")
        }
      }
      lines = found
    }
    defer { nextLine += 1 }
    let line = lines[nextLine]
    if isPayload(line) { return .payload(line) }
    return .control(try JSONValue(parsing: line, valuesMax: valuesMax))
  }

  func close() async { await stream.close() }

  /// By the first key: nothing looks inside a row on its way to staging.
  private func isPayload(_ line: [UInt8]) -> Bool {
    guard line.count > 4 else { return false }
    return payloadKeys.contains { line.starts(with: $0) }
  }
}

private let payloadKeys: [[UInt8]] = ["rows", "version", "table", "deleted", "left", "dropped", "lost", "full"].map {
  Array("{\"\($0)\"".utf8)
}

private final class ByteCounter: Sendable {
  private let count = Mutex<Int64>(0)
  func add(_ more: Int) { count.withLock { $0 += Int64(more) } }
  var value: Int64 { count.withLock { $0 } }
}
