import SalvorModel

/// Where a client stands (`SalvorClient.state`): what an application shows beside its title.
public enum SyncState: Sendable, Hashable {
  /// No synchronization has ended since the client was made.
  case idle
  /// The last exchange with the server went through.
  case connected
  /// A synchronization runs. Nil: it has told nothing yet.
  case synchronizing(SyncProgress?)
  /// The server was not reached since then; milliseconds since 1970. What is written meanwhile waits.
  case offline(since: Int64)
  /// Somebody has to do something before it goes on: sign in, make room, update. The error says what.
  case waitingForUser(SalvorError)
  /// The database must be recovered first; the reason, where it is known.
  case recoveryRequired(reason: String?)
}

/// A value that everybody can look at and wait for: readers get the present one first, and then the newest.
final class StateBoard: Sendable {
  fileprivate struct State {
    var present = SyncState.idle
    /// What it was before the synchronization that runs.
    var settled = SyncState.idle
    var readers: [Int: AsyncStream<SyncState>.Continuation] = [:]
    var lastNumber = 0
  }
  private let state = Mutex(State())

  var present: SyncState { state.withLock { $0.present } }

  func subscribe() -> AsyncStream<SyncState> {
    // A reader wants to know where things stand, not what it has missed.
    let (states, reader) = AsyncStream.makeStream(of: SyncState.self, bufferingPolicy: .bufferingNewest(1))
    let number = state.withLock { state in
      state.lastNumber += 1
      state.readers[state.lastNumber] = reader
      reader.yield(state.present)
      return state.lastNumber
    }
    reader.onTermination = { [weak self] _ in _ = self?.state.withLock { $0.readers.removeValue(forKey: number) } }
    return states
  }

  /// Another database: nothing is known of it yet.
  func reset() { put { _ in .idle } }

  func progress(_ progress: SyncProgress?) { put { _ in .synchronizing(progress) } }

  /// A synchronization has ended so.
  func ended(_ error: SalvorError?, now: Int64) {
    put { settled in
      switch error {
      case nil: .connected
      case let error? where error.code == .cancelled: settled
      case let error? where error.code.exitCode == 3:
        if case .offline = settled { settled } else { .offline(since: now) }
      case let error? where error.code.exitCode == 5: .recoveryRequired(reason: error.reason)
      case let error?: .waitingForUser(error)
      }
    }
  }

  /// A stream of events has begun (nil) or could not.
  func listening(_ error: SalvorError?, now: Int64) {
    state.withLock { state in
      // A synchronization says it better.
      if case .synchronizing = state.present { return }
      switch (state.present, error) {
      case (.offline, nil): state.set(.connected)
      case (.connected, let error?) where error.code.exitCode == 3: state.set(.offline(since: now))
      default: break
      }
    }
  }

  func finish() {
    let readers = state.withLock { state in
      defer { state.readers = [:] }
      return Array(state.readers.values)
    }
    for reader in readers { reader.finish() }
  }

  private func put(_ next: (SyncState) -> SyncState) { state.withLock { $0.set(next($0.settled)) } }
}

extension StateBoard.State {
  fileprivate mutating func set(_ next: SyncState) {
    if case .synchronizing = next {} else { settled = next }
    guard next != present else { return }
    present = next
    for reader in readers.values { reader.yield(next) }
  }
}
