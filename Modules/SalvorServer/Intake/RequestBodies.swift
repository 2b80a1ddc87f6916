import SalvorModel
import SalvorTransport
import SalvorWire
import Synchronization

/// What one request holds of the memory for bodies, until it is answered.
final class BodyLease: Sendable {
  /// Of the request that this task answers.
  @TaskLocal static var current: BodyLease?

  private struct Holding {
    var isSmall = false
    var large = 0
  }

  private let budget: BodyBudget
  private let holding = Mutex(Holding())

  init(_ budget: BodyBudget) { self.budget = budget }

  /// A body has grown to `count` bytes, and may grow to `limit`. Waits until there is room.
  func grow(to count: Int, limit: Int) async throws {
    guard count > BodyBudget.freeBytes else { return }
    let held = holding.withLock { $0 }
    guard held.large < count else { return }
    if count <= BodyBudget.smallBytes {
      if held.isSmall { return }
      try await budget.acquireSmall()
      holding.withLock { $0.isSmall = true }
      return
    }
    // All that it can become, at once: two that each wait for a little more would wait for one another.
    let share = try await budget.acquire(max(count, limit) - held.large)
    holding.withLock { $0.large += share }
  }

  /// Everything back; how many bytes that were.
  @discardableResult
  func release() -> Int {
    let held = holding.withLock { holding in
      defer { holding = Holding() }
      return holding
    }
    if held.isSmall { budget.releaseSmall() }
    if held.large > 0 { budget.release(held.large) }
    return held.large
  }
}

/// The memory that the bodies of all requests together may take (`bodiesBytesMax`). A request that needs more than there is
/// waits, first come, first served. A quarter is kept for bodies that are small, so that they never wait for large ones.
final class BodyBudget: Sendable {
  /// Up to this size a body is not counted: there are never more of them than connections.
  static let freeBytes = 16 << 10
  /// Up to this size a body is small: a chunk of an upload is (`chunkBytesTarget`).
  static let smallBytes = 512 << 10

  private struct Waiter {
    var number: Int
    var amount: Int
    var continuation: CheckedContinuation<Void, any Error>
  }

  private struct Pool {
    var left: Int
    var waiters: [Waiter] = []

    /// Those whose turn it is.
    mutating func admit() -> [CheckedContinuation<Void, any Error>] {
      var admitted: [CheckedContinuation<Void, any Error>] = []
      while let first = waiters.first, first.amount <= left {
        left -= first.amount
        admitted.append(first.continuation)
        waiters.removeFirst()
      }
      return admitted
    }
  }

  private struct State {
    var small: Pool
    var large: Pool
    var lastNumber = 0
  }

  private let largeMax: Int
  private let state: Mutex<State>

  init(bytesMax: Int) {
    let small = max(1, bytesMax / 4 / Self.smallBytes)
    largeMax = max(1, bytesMax - bytesMax / 4)
    state = Mutex(State(small: Pool(left: small), large: Pool(left: largeMax)))
  }

  /// Requests that wait for room.
  var waiting: Int { state.withLock { $0.small.waiters.count + $0.large.waiters.count } }
  /// Bytes that requests hold.
  var heldBytes: Int { state.withLock { largeMax - $0.large.left } }

  fileprivate func acquireSmall() async throws { try await acquire(1, from: \.small) }
  fileprivate func releaseSmall() { giveBack(1, to: \.small) }
  fileprivate func release(_ amount: Int) { giveBack(amount, to: \.large) }

  /// Returns what was taken: never more than there is in all.
  fileprivate func acquire(_ amount: Int) async throws -> Int {
    let amount = min(amount, largeMax)
    try await acquire(amount, from: \.large)
    return amount
  }

  private func acquire(_ amount: Int, from pool: any WritableKeyPath<State, Pool> & Sendable) async throws {
    let number = state.withLock { state in
      state.lastNumber += 1
      return state.lastNumber
    }
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let isReady = state.withLock { state -> Bool? in
          if Task.isCancelled { return nil }
          if state[keyPath: pool].waiters.isEmpty, state[keyPath: pool].left >= amount {
            state[keyPath: pool].left -= amount
            return true
          }
          state[keyPath: pool].waiters.append(Waiter(number: number, amount: amount, continuation: continuation))
          return false
        }
        switch isReady {
        case true?: continuation.resume()
        case nil: continuation.resume(throwing: CancellationError())
        default: break
        }
      }
    } onCancel: {
      let (cancelled, admitted) = state.withLock { state in
        let place = state[keyPath: pool].waiters.firstIndex { $0.number == number }
        let cancelled = place.map { state[keyPath: pool].waiters.remove(at: $0).continuation }
        // Whoever stood behind a large one may fit.
        return (cancelled, state[keyPath: pool].admit())
      }
      cancelled?.resume(throwing: CancellationError())
      for next in admitted { next.resume() }
    }
  }

  private func giveBack(_ amount: Int, to pool: WritableKeyPath<State, Pool>) {
    let admitted = state.withLock { state in
      state[keyPath: pool].left += amount
      return state[keyPath: pool].admit()
    }
    for next in admitted { next.resume() }
  }
}

/// Large messages are parsed here, one at a time: the threads that answer other requests stay free.
actor MessageParser {
  func run<Result: Sendable>(_ work: @Sendable () throws -> Result) rethrows -> Result { try work() }
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
        .tooLarge, "The body is larger than \(configuration.limits.bodyBytesMax) bytes (bodyBytesMax).")
    }
    var stream = request.body
    var limit = limit
    if token != "identity" {
      guard let compression = configuration.compressions.first(where: { $0.token == token }) else {
        throw SalvorError(
          .unsupportedEncoding,
          "The content coding \"\(token.prefix(40))\" is not offered here. Use \((configuration.compressions.map(\.token) + ["identity"]).joined(separator: " or "))."
        )
      }
      stream = try stream.decompressed(by: compression, limit: limit)
    } else if let length = request.contentLength {
      guard length <= limit else { throw tooLarge(limit) }
      limit = length
    }
    var all: [UInt8] = []
    var isInHead = headLimit != nil
    do {
      while let piece = try await stream.next() {
        guard all.count + piece.count <= limit else { throw tooLarge(limit) }
        if isInHead, let headLimit {
          let end = piece.firstIndex(of: 0x0A)
          guard all.count + (end ?? piece.count) <= headLimit else {
            throw SalvorError(
              .tooLarge, "The body's first line is longer than \(headLimit) bytes (beginBytesMax). Send a shorter one.",
              context: ["limit": "\(headLimit)"])
          }
          isInHead = end == nil
        }
        try await BodyLease.current?.grow(to: all.count + piece.count, limit: limit)
        all += piece
      }
    } catch {
      await stream.close()
      throw error
    }
    await stream.close()
    return all
  }

  private func tooLarge(_ limit: Int) -> SalvorError {
    SalvorError(
      .tooLarge, "A body is larger than \(limit) bytes. Send it in smaller parts.", context: ["limit": "\(limit)"])
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

  /// What `work` makes of a message of this size.
  func parsed<Result: Sendable>(_ count: Int, _ work: @Sendable () throws -> Result) async throws -> Result {
    count <= BodyBudget.freeBytes ? try work() : try await parser.run(work)
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
