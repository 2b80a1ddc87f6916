import SalvorModel

/// The recoveries under way. They write nothing on the server, so a remote may have several (a device that was killed and
/// begins again, two copies of one file), but only so many remotes recover at one time: after a restored server all of them
/// come at once, and are told to come back at times spread over a window that grows with their number.
final class RecoveryTable: Sendable {
  /// A reference: as a value of this size, kept over a suspension within `do … catch`, an optimized build of Swift 6.3
  /// loses it.
  final class Recovery: Sendable {
    let token: String
    let remote: RemoteID
    let principal: String
    /// What its rows are compared in.
    let scopes: GroupScopes
    /// The number of recoveries begun before it.
    let number: Int64

    init(token: String, remote: RemoteID, principal: String, scopes: GroupScopes, number: Int64) {
      self.token = token
      self.remote = remote
      self.principal = principal
      self.scopes = scopes
      self.number = number
    }
  }

  private struct Entry {
    let recovery: Recovery
    var lastSeen: Int64
  }

  private struct State {
    var recoveries: [String: Entry] = [:]
    /// Who was told to come back, and when.
    var waiting: [RemoteID: Int64] = [:]
    var begun: Int64 = 0
    var lastTidied: Int64 = 0
  }

  /// What was decided of a begin.
  enum Opening {
    case open(Recovery, underWay: Int)
    /// - Parameter isFirst: nobody else was waiting.
    case comeBack(afterMilliseconds: Int64, isFirst: Bool)
  }

  private static let perRemoteMax = 4
  /// A device may work on an answer, or apply what it fetched, for so many times the idle time before its token is gone; it
  /// does not count as under way meanwhile.
  private static let lifeFactor: Int64 = 20
  private static let windowMin: Int64 = 2_000
  private static let windowMax: Int64 = 60_000

  private let state = Mutex(State())
  private let recoveriesMax: Int
  private let idleMilliseconds: Int64
  private let clock: any Clock
  private let random: any RandomSource

  init(recoveriesMax: Int, idleMilliseconds: Int64, clock: any Clock, random: any RandomSource) {
    self.recoveriesMax = max(1, recoveriesMax)
    self.idleMilliseconds = idleMilliseconds
    self.clock = clock
    self.random = random
  }

  func open(_ remote: RemoteID, principal: String, scopes: GroupScopes) -> Opening {
    let now = clock.now()
    let token = hexadecimal(random.bytes(16))
    let lot = random.bytes(8).reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    return state.withLock { state in
      tidy(&state, now)
      let others = remotesUnderWay(state, now).subtracting([remote])
      guard others.count < recoveriesMax else { return comeBack(remote, &state, now, lot) }
      state.waiting[remote] = nil
      let own = state.recoveries.values.map(\.recovery).filter { $0.remote == remote }.sorted { $0.number < $1.number }
      for oldest in own.dropLast(Self.perRemoteMax - 1) { state.recoveries[oldest.token] = nil }
      let recovery = Recovery(
        token: token, remote: remote, principal: principal, scopes: scopes, number: state.begun)
      state.begun += 1
      state.recoveries[token] = Entry(recovery: recovery, lastSeen: now)
      return .open(recovery, underWay: others.count + 1)
    }
  }

  private func comeBack(_ remote: RemoteID, _ state: inout State, _ now: Int64, _ lot: UInt64) -> Opening {
    let isFirst = state.waiting.isEmpty
    state.waiting[remote] = now
    let turns = Int64(state.waiting.count / recoveriesMax)
    let window = min(Self.windowMax, Self.windowMin * (1 + turns))
    let delay = 1_000 + Int64(lot % UInt64(window))
    state.waiting[remote] = now + delay
    return .comeBack(afterMilliseconds: delay, isFirst: isFirst)
  }

  private func remotesUnderWay(_ state: State, _ now: Int64) -> Set<RemoteID> {
    Set(state.recoveries.values.filter { now - $0.lastSeen < idleMilliseconds }.map(\.recovery.remote))
  }

  /// Forgets tokens that nobody uses any more, and those waiting that did not come back. Once a second at most: with many
  /// waiting it costs something.
  private func tidy(_ state: inout State, _ now: Int64) {
    guard now - state.lastTidied >= 1_000 || now < state.lastTidied else { return }
    state.lastTidied = now
    let life = idleMilliseconds * Self.lifeFactor
    state.recoveries = state.recoveries.filter { now - $0.value.lastSeen < life }
    state.waiting = state.waiting.filter { now - $0.value < Self.windowMax }
    let idle = state.recoveries.values.filter { now - $0.lastSeen >= idleMilliseconds }
    let excess = state.recoveries.count - recoveriesMax * 16
    guard excess > 0 else { return }
    for entry in idle.sorted(by: { $0.lastSeen < $1.lastSeen }).prefix(excess) {
      state.recoveries[entry.recovery.token] = nil
    }
  }

  /// The recovery of a token, marked as seen.
  func find(_ token: String, principal: Principal) throws -> Recovery {
    let now = clock.now()
    let found = state.withLock { state -> Recovery? in
      guard let recovery = state.recoveries[token]?.recovery, recovery.principal == principal.name else { return nil }
      state.recoveries[token]?.lastSeen = now
      return recovery
    }
    guard let found else {
      throw SalvorError(.sessionUnknown, "This recovery's session has ended. Begin it again; nothing is lost.")
    }
    return found
  }

  func touch(_ token: String) {
    let now = clock.now()
    state.withLock { $0.recoveries[token]?.lastSeen = now }
  }

  func close(_ token: String) { state.withLock { $0.recoveries[token] = nil } }

  /// Remotes that recover, in order.
  var remotes: [RemoteID] {
    let now = clock.now()
    return state.withLock { remotesUnderWay($0, now) }.sorted { $0.text < $1.text }
  }

  /// Remotes that were told to come back, in order.
  var waiting: [RemoteID] {
    let now = clock.now()
    return state.withLock { state in
      tidy(&state, now)
      return state.waiting.keys.sorted { $0.text < $1.text }
    }
  }

  /// Remotes that recover, and remotes that were told to come back.
  var counts: (underWay: Int, waiting: Int) {
    let now = clock.now()
    return state.withLock { state in
      tidy(&state, now)
      return (remotesUnderWay(state, now).count, state.waiting.count)
    }
  }
}
