import SalvorModel

/// What happens to a device's synchronization (`SalvorClient.events`).
public enum SyncEvent: Sendable {
  /// The server tells of changes of these groups from here on.
  case listening(groups: Set<String>)
  /// It does not, or not any more: groups are polled until it does. Nil: the stream ended in good order.
  case notListening(SalvorError?)
  /// The server says that these groups have changed, with the number of its newest commit.
  case changed(groups: Set<String>, commit: Int64)
  /// Applications have written tables of these groups.
  case captured(groups: Set<String>)
  /// What a person has to know and nobody has seen yet, found when the database was opened.
  case noted([String])
  /// A synchronization, a recovery or a backup that was put back has written or removed rows of these tables. An application that
  /// shows them reads them again, e.g. by GRDB's `notifyChanges(in:)`. Told before `synchronized` or `failed`.
  case rowsChanged([TableChange])
  /// A synchronization has ended, well or in part.
  case synchronized(SyncReport)
  /// A synchronization has ended with `error` in its report. A watch tries again, unless it needs a person.
  case failed(SyncReport)
}

/// Gives each event to everybody who has asked for them.
final class EventBroadcast: Sendable {
  private struct State {
    var readers: [Int: AsyncStream<SyncEvent>.Continuation] = [:]
    var lastNumber = 0
  }
  private let state = Mutex(State())

  /// A reader that does not read loses the oldest ones beyond this.
  static let heldMax = 1000

  func subscribe() -> AsyncStream<SyncEvent> {
    let (events, reader) = AsyncStream.makeStream(
      of: SyncEvent.self, bufferingPolicy: .bufferingNewest(EventBroadcast.heldMax))
    let number = state.withLock { state in
      state.lastNumber += 1
      state.readers[state.lastNumber] = reader
      return state.lastNumber
    }
    reader.onTermination = { [weak self] _ in _ = self?.state.withLock { $0.readers.removeValue(forKey: number) } }
    return events
  }

  func send(_ event: SyncEvent) {
    for reader in state.withLock({ Array($0.readers.values) }) { reader.yield(event) }
  }

  func finish() {
    let readers = state.withLock { state in
      defer { state.readers = [:] }
      return Array(state.readers.values)
    }
    for reader in readers { reader.finish() }
  }
}
