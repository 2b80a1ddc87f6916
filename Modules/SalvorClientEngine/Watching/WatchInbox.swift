import SalvorModel

/// The groups that a watch is to synchronize, put in by those who look, taken out by the one that synchronizes.
final class WatchInbox: Sendable {
  private struct State {
    var due: Set<String> = []
    /// The groups of whose changes the server tells at present.
    var listened: Set<String> = []
    var hasConnected = false
    var isNudged = false
    var waiter: CheckedContinuation<Void, Never>?
  }
  private let state = Mutex(State())
  private let clock: any Clock

  init(clock: any Clock) { self.clock = clock }

  func add(_ groups: Set<String>) {
    guard !groups.isEmpty else { return }
    nudge { $0.due.formUnion(groups) }
  }

  /// What is due, which is not due any more then.
  func take() -> Set<String> {
    state.withLock { state in
      defer { state.due = [] }
      return state.due
    }
  }

  var listened: Set<String> { state.withLock { $0.listened } }

  func setListened(_ groups: Set<String>) {
    nudge { state in
      state.listened = groups
      if !groups.isEmpty { state.hasConnected = true }
    }
  }

  /// Whether the server has begun to tell since the last call.
  func takeConnected() -> Bool {
    state.withLock { state in
      defer { state.hasConnected = false }
      return state.hasConnected
    }
  }

  /// Returns when something has changed here, when the time is over, or when the task is cancelled.
  func wait(milliseconds: Int64) async {
    let timer = Task { if (try? await clock.sleep(milliseconds: milliseconds)) != nil { nudge() } }
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        let isNudged = state.withLock { state in
          defer { state.isNudged = false }
          if !state.isNudged { state.waiter = continuation }
          return state.isNudged
        }
        if isNudged { continuation.resume() }
      }
    } onCancel: {
      nudge()
    }
    timer.cancel()
  }

  private func nudge(_ body: (inout State) -> Void = { _ in }) {
    let waiter = state.withLock { state in
      body(&state)
      defer { state.waiter = nil }
      if state.waiter == nil { state.isNudged = true }
      return state.waiter
    }
    waiter?.resume()
  }
}
