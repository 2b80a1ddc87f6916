import SalvorModel
import SalvorTransport
import SalvorWire

/// A body that comes piece by piece.
private struct Collected: Sendable {
  var bytes: [UInt8] = []
  let limit: Int
  /// The body is as long as `limit`.
  let isExact: Bool
  /// Of the first line; nil: it has none of its own.
  let headLimit: Int?
  private var isInHead: Bool

  init(limit: Int, isExact: Bool, headLimit: Int?) {
    (self.limit, self.isExact, self.headLimit) = (limit, isExact, headLimit)
    isInHead = headLimit != nil
  }

  /// False: that was the end.
  mutating func takePiece(of stream: ByteStream) async throws -> Bool {
    guard let piece = try await stream.next() else { return false }
    guard bytes.count + piece.count <= limit else { throw Self.tooLarge(limit) }
    if isInHead, let headLimit {
      let end = piece.firstIndex(of: 0x0A)
      guard bytes.count + (end ?? piece.count) <= headLimit else {
        throw SalvorError(
          .tooLarge, "The body's first line is longer than \(headLimit) bytes (beginBytesMax). Send a shorter one.",
          context: ["limit": "\(headLimit)"])
      }
      isInHead = end == nil
    }
    try await BodyLease.current?.grow(to: isExact ? limit : bytes.count + piece.count, limit: limit)
    bytes += piece
    return true
  }

  static func tooLarge(_ limit: Int) -> SalvorError {
    SalvorError(
      .tooLarge, "A body is larger than \(limit) bytes. Send it in smaller parts.", context: ["limit": "\(limit)"])
  }
}

extension ServerEngine {
  /// Requests that wait for memory for their bodies (`bodiesBytesMax`).
  public var bodiesWaiting: Int { bodies.waiting }

  /// The whole body, decompressed. Compressed and decompressed size are both limited, and memory is there for it.
  ///
  /// - Parameter headLimit: of the first line; nil: the body has no limit of its own for it.
  func decodedBody(_ request: TransportRequest, limit: Int, headLimit: Int? = nil) async throws -> [UInt8] {
    let token = request.headers["content-encoding"]?.lowercased() ?? "identity"
    if let length = request.contentLength, length > configuration.limits.bodyBytesMax {
      throw SalvorError(
        .tooLarge, "The body is larger than \(configuration.limits.bodyBytesMax) bytes (bodyBytesMax).",
        context: ["limit": "\(configuration.limits.bodyBytesMax)"])
    }
    var stream = request.body
    var limit = limit
    var isExact = false
    if token != "identity" {
      guard let compression = configuration.compressions.first(where: { $0.token == token }) else {
        throw SalvorError(
          .unsupportedEncoding,
          "The content coding \"\(token.prefix(40))\" is not offered here. Use \((configuration.compressions.map(\.token) + ["identity"]).joined(separator: " or "))."
        )
      }
      stream = try stream.decompressed(by: compression, limit: limit)
    } else if let length = request.contentLength {
      guard length <= limit else { throw Collected.tooLarge(limit) }
      (limit, isExact) = (length, true)
    }
    var collected = Collected(limit: limit, isExact: isExact, headLimit: headLimit)
    do {
      var goesOn = true
      while goesOn, collected.bytes.count <= BodyBudget.freeBytes {
        goesOn = try await collected.takePiece(of: stream)
      }
      if goesOn {
        // What is large is unpacked where it keeps nobody from an answer, piece by piece in turns with others.
        collected = try await OwnThread.run(on: configuration.bodyReading) { [collected, stream] in
          var collected = collected
          repeat { await Task.yield() } while try await collected.takePiece(of: stream)
          return collected
        }
      }
    } catch {
      await stream.close()
      throw error
    }
    await stream.close()
    return collected.bytes
  }

  /// A begin's line: `beginBytesMax`, and what a history can have that the server asks for.
  var beginLimit: Int {
    configuration.limits.beginBytesMax + 128 * HistoryLimits.entriesMax + 4 * configBytes
  }

  /// The begin of a body.
  func parsedBegin(_ line: [UInt8]) async throws -> BeginMessage {
    let values = configuration.limits.valuesMax + 4 * HistoryLimits.entriesMax + configBytes / 2
    let depth = configuration.limits.depthMax
    return try await parsed(line.count) {
      try BeginMessage(JSONValue(parsing: line, depthMax: depth, valuesMax: values))
    }
  }

  /// What `work` makes of a message of this size. Large ones are parsed one at a time, where that keeps nobody from an
  /// answer; principals take turns.
  func parsed<Result: Sendable>(
    _ count: Int, _ work: @Sendable () throws -> Result
  ) async throws -> Result {
    if count <= BodyBudget.freeBytes { return try work() }
    return try await parsing.run(for: BodyLease.current?.principal ?? "") {
      try await OwnThread.run(on: configuration.bodyParsing) {
        // The task goes there before anything is done.
        await Task.yield()
        return try work()
      }
    }
  }

  /// A body that becomes one JSON value.
  func parsedBody(_ request: TransportRequest, limit: Int) async throws -> JSONValue {
    let body = try await decodedBody(request, limit: min(limit, configuration.limits.chunkBytesMax))
    let (depth, values) = (configuration.limits.depthMax, configuration.limits.valuesMax)
    return try await parsed(body.count) { try JSONValue(parsing: body, depthMax: depth, valuesMax: values) }
  }
}

enum HistoryLimits {
  /// Commits, sequence IDs and incarnations of a begin's history together.
  static let entriesMax = 3 * 10_000
}
