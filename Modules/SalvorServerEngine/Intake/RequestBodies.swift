import SalvorModel
import SalvorTransport
import SalvorWire

/// What one request holds of the memory for bodies, until it is answered.
final class BodyLease: Sendable {
  /// Of the request that this task answers.
  @TaskLocal static var current: BodyLease?

  private struct Holding {
    /// Whose request it is; "" until its credential was looked at.
    var principal = ""
    var isSmall = false
    var large = 0
  }

  private let budget: BodyBudget
  private let holding = Mutex(Holding())

  init(_ budget: BodyBudget) { self.budget = budget }

  var principal: String {
    get { holding.withLock { $0.principal } }
    set { holding.withLock { $0.principal = newValue } }
  }

  /// A body has grown to `count` bytes, and may grow to `limit`. Waits until there is room.
  func grow(to count: Int, limit: Int) async throws {
    guard count > BodyBudget.freeBytes else { return }
    let held = holding.withLock { $0 }
    guard held.large < count else { return }
    if count <= BodyBudget.smallBytes {
      if held.isSmall { return }
      try await budget.acquireSmall(for: held.principal)
      holding.withLock { $0.isSmall = true }
      return
    }
    // All that it can become, at once: two that each wait for a little more would wait for one another.
    let share = try await budget.acquire(max(count, limit) - held.large, for: held.principal)
    holding.withLock {
      $0.large += share
      $0.isSmall = false
    }
    if held.isSmall { budget.releaseSmall(of: held.principal) }
  }

  /// Everything back; how many bytes that were.
  @discardableResult
  func release() -> Int {
    let held = holding.withLock { holding in
      defer { (holding.isSmall, holding.large) = (false, 0) }
      return holding
    }
    if held.isSmall { budget.releaseSmall(of: held.principal) }
    if held.large > 0 { budget.release(held.large, of: held.principal) }
    return held.large
  }
}

/// The memory that the bodies of all requests together may take (`bodiesBytesMax`). A request that needs more than there is
/// waits. A quarter is kept for bodies that are small, so that they do not wait for large ones; and who has a body there already
/// gets no more than half of either part, so that one who sends all that he may keeps nobody else waiting.
final class BodyBudget: Sendable {
  /// Up to this size a body is not counted: there are never more of them than connections.
  static let freeBytes = 16 << 10
  /// Up to this size a body is small: a chunk of an upload is (`chunkBytesTarget`).
  static let smallBytes = 512 << 10

  private struct Waiter {
    var number: Int
    var principal: String
    var amount: Int
    var continuation: CheckedContinuation<Void, any Error>
  }

  private struct Pool {
    let size: Int
    var left: Int
    var held: [String: Int] = [:]
    /// In the order in which they came.
    var waiters: [Waiter] = []

    init(_ size: Int) { (self.size, left) = (size, size) }

    private func mayHave(_ principal: String, _ amount: Int) -> Bool {
      let own = held[principal] ?? 0
      return amount <= left && (own == 0 || own + amount <= size / 2)
    }

    /// Takes it, where nobody waits who could have it.
    mutating func take(_ amount: Int, for principal: String) -> Bool {
      guard mayHave(principal, amount), !waiters.contains(where: { $0.principal == principal }) else { return false }
      left -= amount
      held[principal, default: 0] += amount
      return true
    }

    mutating func give(_ amount: Int, of principal: String) {
      left += amount
      let rest = (held[principal] ?? 0) - amount
      held[principal] = rest > 0 ? rest : nil
    }

    /// Those whose turn it is: of the principal who has least, who came first.
    mutating func admit() -> [CheckedContinuation<Void, any Error>] {
      var admitted: [CheckedContinuation<Void, any Error>] = []
      while let place = next() {
        let waiter = waiters.remove(at: place)
        left -= waiter.amount
        held[waiter.principal, default: 0] += waiter.amount
        admitted.append(waiter.continuation)
      }
      return admitted
    }

    private func next() -> Int? {
      var best: (place: Int, held: Int)?
      var seen: Set<String> = []
      for (place, waiter) in waiters.enumerated() where seen.insert(waiter.principal).inserted {
        let own = held[waiter.principal] ?? 0
        // One who may have no more now is not waited for.
        if own > 0, own + waiter.amount > size / 2 { continue }
        if own < best?.held ?? Int.max { best = (place, own) }
      }
      return best.flatMap { mayHave(waiters[$0.place].principal, waiters[$0.place].amount) ? $0.place : nil }
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
    largeMax = max(1, bytesMax - bytesMax / 4)
    state = Mutex(State(small: Pool(max(1, bytesMax / 4 / Self.smallBytes)), large: Pool(largeMax)))
  }

  /// Requests that wait for room.
  var waiting: Int { state.withLock { $0.small.waiters.count + $0.large.waiters.count } }
  /// Bytes that requests hold.
  var heldBytes: Int { state.withLock { largeMax - $0.large.left } }

  fileprivate func acquireSmall(for principal: String) async throws {
    try await acquire(1, for: principal, from: \.small)
  }
  fileprivate func releaseSmall(of principal: String) { giveBack(1, of: principal, to: \.small) }
  fileprivate func release(_ amount: Int, of principal: String) { giveBack(amount, of: principal, to: \.large) }

  /// Returns what was taken: never more than there is in all.
  fileprivate func acquire(_ amount: Int, for principal: String) async throws -> Int {
    let amount = min(amount, largeMax)
    try await acquire(amount, for: principal, from: \.large)
    return amount
  }

  private func acquire(
    _ amount: Int, for principal: String, from pool: any WritableKeyPath<State, Pool> & Sendable
  ) async throws {
    let number = state.withLock { state in
      state.lastNumber += 1
      return state.lastNumber
    }
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let isReady = state.withLock { state -> Bool? in
          if Task.isCancelled { return nil }
          if state[keyPath: pool].take(amount, for: principal) { return true }
          state[keyPath: pool].waiters.append(
            Waiter(number: number, principal: principal, amount: amount, continuation: continuation))
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

  private func giveBack(_ amount: Int, of principal: String, to pool: WritableKeyPath<State, Pool>) {
    let admitted = state.withLock { state in
      state[keyPath: pool].give(amount, of: principal)
      return state[keyPath: pool].admit()
    }
    for next in admitted { next.resume() }
  }
}

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
        .tooLarge, "The body is larger than \(configuration.limits.bodyBytesMax) bytes (bodyBytesMax).")
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
