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
