import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// One stream of `GET /v1/events`. What it has to say is put together when it is read: a burst of commits that comes
/// meanwhile is one event, and a reader that does not read costs no more than one that does.
final class EventListener: Sendable {
  let remote: RemoteID?
  let groups: [String]
  /// Milliseconds since 1970; the stream ends then.
  let endsAt: Int64
  private let state: Mutex<State>

  private struct State {
    /// The commits up to which the reader knows each group, in their order; nil: it has not begun yet.
    var floors: [Int64]?
    /// What was found before it had begun.
    var early: [GroupChanges] = []
    var changed: [Bool]
    var head: Commit?
    var isGreeted = false
    var isAliveDue = false
    var isEnded = false
    var lastSaid: Int64
    var reader: CheckedContinuation<[UInt8]?, Never>?
  }

  init(groups: [String], remote: RemoteID?, now: Int64, endsAt: Int64) {
    self.groups = groups
    self.remote = remote
    self.endsAt = endsAt
    state = Mutex(State(changed: groups.map { _ in false }, lastSaid: now))
  }

  // MARK: The hub

  /// The stream begins.
  ///
  /// - Parameters:
  ///   - floors: for each group the number of the commit that the reader knows; nil: the newest one.
  ///   - found: what has changed since the oldest of them.
  func begin(floors: [Int64?], _ found: GroupChanges) {
    change { state in
      state.floors = floors.map { $0 ?? found.head.number }
      take(found, &state)
      for early in state.early { take(early, &state) }
      state.early = []
    }
  }

  /// Groups have changed since the last time.
  func tell(_ found: GroupChanges) {
    change { state in
      if state.floors == nil { state.early.append(found) } else { take(found, &state) }
    }
  }

  private func take(_ found: GroupChanges, _ state: inout State) {
    for place in groups.indices {
      guard let floor = state.floors?[place] else { return }
      if let changes = found.changes {
        let newest = changes.first { $0.group == groups[place] }?.newest(besides: remote) ?? 0
        if newest > floor { state.changed[place] = true }
        state.floors?[place] = max(floor, found.head.number)
      } else {
        // Another history, or one too long to tell.
        state.changed[place] = true
        state.floors?[place] = found.head.number
      }
    }
    state.head = found.head
  }

  /// Says that nothing has changed where it has said nothing for `milliseconds`; ends it where its time is over.
  func keepAlive(now: Int64, after milliseconds: Int64) {
    change { state in
      if now >= endsAt { state.isEnded = true }
      if now - state.lastSaid >= milliseconds || now < state.lastSaid {
        state.lastSaid = now
        state.isAliveDue = true
      }
    }
  }

  func end() { change { $0.isEnded = true } }

  // MARK: The reader

  /// The next piece; nil at the end. One reader at a time.
  func next() async -> [UInt8]? {
    await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        change { $0.reader = continuation }
      }
    } onCancel: {
      end()
    }
  }

  /// Changes the state, and gives a waiting reader what there is to say then.
  private func change(_ body: (inout State) -> Void) {
    let wake = state.withLock { state -> (CheckedContinuation<[UInt8]?, Never>, [UInt8]?)? in
      body(&state)
      guard let reader = state.reader else { return nil }
      let piece = said(&state)
      guard piece != nil || state.isEnded else { return nil }
      state.reader = nil
      return (reader, piece)
    }
    wake?.0.resume(returning: wake?.1)
  }

  private func said(_ state: inout State) -> [UInt8]? {
    guard !state.isEnded, let head = state.head else { return nil }
    var bytes: [UInt8] = []
    if !state.isGreeted { bytes += ServerEvent.connected(groups: groups, commit: head).bytes }
    if state.changed.contains(true) {
      let names = zip(groups, state.changed).filter(\.1).map(\.0)
      bytes += ServerEvent.changed(groups: names, commit: head).bytes
    }
    if bytes.isEmpty, state.isAliveDue { bytes = ServerEvent.keepAlive }
    guard !bytes.isEmpty else { return nil }
    state.isGreeted = true
    state.changed = groups.map { _ in false }
    state.isAliveDue = false
    return bytes
  }
}
