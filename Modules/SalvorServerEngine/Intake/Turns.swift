import SalvorModel

/// Whose turn it is to do what one does at a time (write in the store, parse a large message), fair by principal.
///
/// Who waits waits here, in a list for each principal, and the principals take turns: one with a thousand devices does not
/// keep another one's single device waiting longer than for one of them. Whose turns were long pauses while others come
/// (`TurnAccounts`): a turn that has begun is not ended for anybody's sake. Whoever waits and leaves is taken out of the
/// list; nothing of his request has begun then.
final class Turns: Sendable {
  private struct Waiter {
    var id: Int
    var since: Int64
    var continuation: CheckedContinuation<Void, any Error>
  }

  private struct State {
    var isTaken = false
    /// When the turn under way began; milliseconds since 1970.
    var began: Int64 = 0
    /// Whose it is.
    var taker = ""
    var accounts = TurnAccounts()
    var waiting: [String: [Waiter]] = [:]
    /// Principals that wait, the next one first.
    var order: [String] = []
    var lastID = 0
    /// Cancelled before they could be put into a list.
    var gone: Set<Int> = []
    var isStopped = false
    var watch: Task<Void, Never>?

    var count: Int { waiting.values.reduce(0) { $0 + $1.count } }

    mutating func begin(_ principal: String, at now: Int64) {
      isTaken = true
      began = now
      taker = principal
    }

    mutating func remove(_ place: Int, of principal: String) -> Waiter? {
      let waiter = waiting[principal]?.remove(at: place)
      if waiting[principal]?.isEmpty == true {
        waiting[principal] = nil
        order.removeAll { $0 == principal }
      }
      return waiter
    }

    /// The next one's turn begins, where somebody waits who does not pause.
    mutating func beginNext(at now: Int64) -> Waiter? {
      guard !isTaken, let principal = order.first(where: { !accounts.pauses($0, at: now) }),
        let waiter = remove(0, of: principal)
      else { return nil }
      // Its others wait behind those of everybody else.
      if let place = order.firstIndex(of: principal) { order.append(order.remove(at: place)) }
      begin(principal, at: now)
      return waiter
    }
  }

  private let state = Mutex(State())
  private let clock: any Clock
  /// Who has waited for so long is told to come back.
  private let patienceMilliseconds: Int64
  private static let comeBackMin: Int64 = 1_000
  private static let comeBackMax: Int64 = 30_000
  private static let lookMilliseconds: Int64 = 250

  init(patienceMilliseconds: Int64, clock: any Clock) {
    self.patienceMilliseconds = patienceMilliseconds
    self.clock = clock
  }

  /// Runs `body` when it is the principal's turn. Throws, and runs nothing, where the asker has left meanwhile
  /// (`cancelled`), where it would take too long, and while the server stops (`overloaded`).
  func run<Result>(for principal: String, _ body: () async throws -> Result) async throws -> Result {
    try await take(principal)
    defer { give() }
    try Task.checkCancellation()
    return try await body()
  }

  /// How long the turn under way has lasted; 0: nobody has it.
  var busySeconds: Double {
    let now = clock.now()
    return state.withLock { $0.isTaken ? Double(max(0, now - $0.began)) / 1000 : 0 }
  }

  /// How many wait.
  var count: Int { state.withLock { $0.count } }

  /// Nobody gets a turn any more; the one under way goes on.
  func stop() {
    let waiters = state.withLock { state in
      state.isStopped = true
      defer { (state.waiting, state.order) = ([:], []) }
      return state.waiting.values.flatMap { $0 }
    }
    for waiter in waiters { waiter.continuation.resume(throwing: Self.stopping) }
  }

  // MARK: Taking and giving

  private func take(_ principal: String) async throws {
    let id = state.withLock { state in
      state.lastID += 1
      return state.lastID
    }
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let refusal = state.withLock { state -> Outcome in
          if state.isStopped { return .refused(Self.stopping) }
          if state.gone.remove(id) != nil { return .refused(CancellationError()) }
          let now = clock.now()
          state.accounts.come(principal, at: now)
          if !state.isTaken, state.waiting[principal] == nil, !state.accounts.pauses(principal, at: now) {
            state.begin(principal, at: now)
            return .taken
          }
          if state.waiting[principal, default: []].isEmpty { state.order.append(principal) }
          state.waiting[principal, default: []].append(
            Waiter(id: id, since: now, continuation: continuation))
          if state.watch == nil { state.watch = Task { await self.watch() } }
          return .waits
        }
        switch refusal {
        case .taken: continuation.resume()
        case .waits: break
        case .refused(let error): continuation.resume(throwing: error)
        }
      }
    } onCancel: {
      leave(id, principal)
    }
    state.withLock { _ = $0.gone.remove(id) }
  }

  private enum Outcome {
    case taken, waits
    case refused(any Error)
  }

  private func leave(_ id: Int, _ principal: String) {
    let waiter = state.withLock { state -> Waiter? in
      guard let place = state.waiting[principal]?.firstIndex(where: { $0.id == id }) else {
        // It has not come into the list yet, or has its turn already.
        state.gone.insert(id)
        return nil
      }
      return state.remove(place, of: principal)
    }
    waiter?.continuation.resume(throwing: CancellationError())
  }

  private func give() {
    let now = clock.now()
    let next = state.withLock { state -> Waiter? in
      state.isTaken = false
      state.accounts.spend(now - state.began, of: state.taker, at: now)
      return state.beginNext(at: now)
    }
    next?.continuation.resume()
  }

  // MARK: Patience

  /// Tells those who have waited too long to come back, and lets those go on who have paused long enough, as long as anybody
  /// waits.
  private func watch() async {
    while (try? await clock.sleep(milliseconds: Self.lookMilliseconds)) != nil {
      let now = clock.now()
      let (late, next, error, isOver) = state.withLock { state -> ([Waiter], Waiter?, SalvorError, Bool) in
        // About as long again as it has taken up to now.
        let delay = min(Self.comeBackMax, max(Self.comeBackMin, now - state.began))
        var late: [Waiter] = []
        for (principal, waiters) in state.waiting {
          for waiter in waiters where now - waiter.since >= patienceMilliseconds {
            guard let place = state.waiting[principal]?.firstIndex(where: { $0.id == waiter.id }) else { continue }
            late += state.remove(place, of: principal).map { [$0] } ?? []
          }
        }
        let next = state.beginNext(at: now)
        let isOver = state.waiting.isEmpty
        if isOver { state.watch = nil }
        return (late, next, Self.busy(delay), isOver)
      }
      next?.continuation.resume()
      for waiter in late { waiter.continuation.resume(throwing: error) }
      if isOver { return }
    }
  }

  private static func busy(_ delay: Int64) -> SalvorError {
    SalvorError(
      .overloaded, "The server is busy with other requests. Try again after the time named; nothing is lost.",
      retryAfterMilliseconds: delay)
  }

  static var stopping: SalvorError {
    SalvorError(.overloaded, "The server is stopping. Sync again later.", retryAfterMilliseconds: comeBackMin)
  }
}
