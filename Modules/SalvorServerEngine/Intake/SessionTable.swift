import SalvorModel
import SalvorStorage
import SalvorWire

/// The sessions under way: one for each remote (semantics 4).
final class SessionTable: Sendable {
  struct Session: Sendable {
    var token: String
    var remote: RemoteID
    var principal: Principal
    var previous: SequenceID?
    var current: SequenceID?
    var begin: SessionBegin
    /// The device compares these before it downloads.
    var compared: ComparedTables?
    var lastSeen: Int64
  }

  private struct State {
    var sessions: [RemoteID: Session] = [:]
    /// By token.
    var remotes: [String: RemoteID] = [:]
    var lastTidied: Int64 = 0

    mutating func set(_ session: Session?, of remote: RemoteID) {
      if let before = sessions[remote] { remotes[before.token] = nil }
      sessions[remote] = session
      if let session { remotes[session.token] = remote }
    }
  }

  private let state = Mutex(State())
  private let idleMilliseconds: Int64
  private let perPrincipalMax: Int
  private let clock: any Clock
  private let random: any RandomSource

  init(
    idleMilliseconds: Int64, perPrincipalMax: Int = Limits().principalSessionsMax, clock: any Clock,
    random: any RandomSource
  ) {
    self.idleMilliseconds = idleMilliseconds
    self.perPrincipalMax = perPrincipalMax
    self.clock = clock
    self.random = random
  }

  /// A new session. A remote has one: another that was seen lately is refused with `session-in-use`, unless this begin
  /// proves to be the same database by the same sequence IDs. (A killed client comes back.) Throws `quota` where the principal
  /// has as many as one may have.
  func open(_ begin: SessionBegin, principal: Principal) throws -> Session {
    let now = clock.now()
    let token = hexadecimal(random.bytes(16))
    var begin = begin
    // It was checked, and may be long.
    begin.message.history = nil
    return try state.withLock { [begin] state in
      let message = begin.message
      try refuseAnother(message, state, now)
      tidy(&state, now)
      if state.sessions.count >= perPrincipalMax, state.sessions[message.remote]?.principal.name != principal.name {
        let own = state.sessions.values.count { $0.principal.name == principal.name }
        guard own < perPrincipalMax else { throw SalvorError.sessionQuota(perPrincipalMax, idleMilliseconds) }
      }
      let session = Session(
        token: token, remote: message.remote, principal: principal, previous: message.previous,
        current: message.current, begin: begin, lastSeen: now)
      state.set(session, of: message.remote)
      return session
    }
  }

  /// Forgets the sessions that nobody continues.
  func tidy() {
    let now = clock.now()
    state.withLock { state in
      state.lastTidied = 0
      tidy(&state, now)
    }
  }

  /// Once a second at most: with many sessions it costs something.
  private func tidy(_ state: inout State, _ now: Int64) {
    guard now - state.lastTidied >= 1_000 || now < state.lastTidied else { return }
    state.lastTidied = now
    for session in state.sessions.values where isIdle(session, now) { state.set(nil, of: session.remote) }
  }

  private func isIdle(_ session: Session, _ now: Int64) -> Bool { now - session.lastSeen >= idleMilliseconds }

  /// A recovery begins: the session of the same database ends, that of another one with its remote ID is in the way.
  func giveWay(to message: BeginMessage) throws {
    let now = clock.now()
    try state.withLock { state in
      try refuseAnother(message, state, now)
      state.set(nil, of: message.remote)
    }
  }

  private func refuseAnother(_ message: BeginMessage, _ state: State, _ now: Int64) throws {
    guard let other = state.sessions[message.remote], !isIdle(other, now) else { return }
    let isSame = message.current != nil && message.current == other.current && message.previous == other.previous
    // One that compares has nothing under way here that another could disturb.
    guard isSame || other.compared != nil else {
      throw SalvorError(
        .sessionInUse,
        "Another session of this remote ID is under way. Wait for it to end, or for 30 s after it was cut.",
        context: ["remote": message.remote.text],
        retryAfterMilliseconds: min(30_000, max(100, idleMilliseconds - (now - other.lastSeen))))
    }
  }

  /// The session of a token, marked as seen. One that nobody has continued for too long has ended. Its principal is the one
  /// who asks, with the parameters of now: what was taken away from him since the begin is taken away here, too.
  func find(_ token: String, principal: Principal) throws -> Session {
    let now = clock.now()
    let found = state.withLock { state -> Session? in
      guard let remote = state.remotes[token], var session = state.sessions[remote],
        session.principal.name == principal.name
      else { return nil }
      if isIdle(session, now) {
        state.set(nil, of: remote)
        return nil
      }
      session.lastSeen = now
      session.principal = principal
      state.sessions[remote] = session
      return session
    }
    guard let found else { throw Self.unknown }
    LogContext.current?.set("remote", found.remote.text)
    return found
  }

  func touch(_ session: Session) {
    let now = clock.now()
    state.withLock { state in
      if state.remotes[session.token] != nil { state.sessions[session.remote]?.lastSeen = now }
    }
  }

  /// The principal's devices send blobs, which belong to no session.
  func touch(_ principal: Principal) {
    let now = clock.now()
    state.withLock { state in
      for session in state.sessions.values where session.principal.name == principal.name && !isIdle(session, now) {
        state.sessions[session.remote]?.lastSeen = now
      }
    }
  }

  /// Throws `session-unknown` where another begin took the session over.
  func note(_ compared: ComparedTables, of session: Session) throws {
    let isThere = state.withLock { state in
      guard state.remotes[session.token] != nil else { return false }
      state.sessions[session.remote]?.compared = compared
      return true
    }
    guard isThere else { throw Self.unknown }
  }

  private static var unknown: SalvorError {
    SalvorError(.sessionUnknown, "This session has ended or was taken over. Begin again; nothing is lost.")
  }

  func close(_ session: Session) {
    state.withLock { state in
      if state.remotes[session.token] != nil { state.set(nil, of: session.remote) }
    }
  }

  var count: Int { state.withLock { $0.sessions.count } }

  /// Remotes whose session was seen lately.
  var remotes: [RemoteID] {
    let now = clock.now()
    return state.withLock { state in state.sessions.values.filter { !isIdle($0, now) }.map(\.remote) }
  }
}

extension SalvorError {
  fileprivate static func sessionQuota(_ limit: Int, _ delay: Int64) -> SalvorError {
    SalvorError(
      .quota,
      "Your principal has \(limit) sessions under way (principalSessionsMax). They end by themselves; try again later.",
      context: ["limit": "principalSessionsMax"], retryAfterMilliseconds: min(30_000, max(100, delay)))
  }
}
