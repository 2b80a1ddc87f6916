import SalvorModel
import SalvorStorage
import SalvorWire
import Synchronization

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

  private let sessions = Mutex<[RemoteID: Session]>([:])
  private let idleMilliseconds: Int64
  private let clock: any Clock
  private let random: any RandomSource

  init(idleMilliseconds: Int64, clock: any Clock, random: any RandomSource) {
    self.idleMilliseconds = idleMilliseconds
    self.clock = clock
    self.random = random
  }

  /// A new session. A remote has one: another that was seen lately is refused with `session-in-use`, unless this begin
  /// proves to be the same database by the same sequence IDs. (A killed client comes back.)
  func open(_ begin: SessionBegin, principal: Principal) throws -> Session {
    let now = clock.now()
    let token = hexadecimal(random.bytes(16))
    return try sessions.withLock { sessions in
      let message = begin.message
      try refuseAnother(message, sessions, now)
      let session = Session(
        token: token, remote: message.remote, principal: principal, previous: message.previous,
        current: message.current, begin: begin, lastSeen: now)
      sessions[message.remote] = session
      return session
    }
  }

  /// A recovery begins: the session of the same database ends, that of another one with its remote ID is in the way.
  func giveWay(to message: BeginMessage) throws {
    let now = clock.now()
    try sessions.withLock { sessions in
      try refuseAnother(message, sessions, now)
      sessions[message.remote] = nil
    }
  }

  private func refuseAnother(_ message: BeginMessage, _ sessions: [RemoteID: Session], _ now: Int64) throws {
    guard let other = sessions[message.remote], now - other.lastSeen < idleMilliseconds else { return }
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

  /// The session of a token, marked as seen.
  func find(_ token: String, principal: Principal) throws -> Session {
    let now = clock.now()
    let found = sessions.withLock { sessions -> Session? in
      guard let entry = sessions.first(where: { $0.value.token == token && $0.value.principal.name == principal.name })
      else { return nil }
      sessions[entry.key]?.lastSeen = now
      return entry.value
    }
    guard let found else { throw Self.unknown }
    LogContext.current?.set("remote", found.remote.text)
    return found
  }

  func touch(_ session: Session) {
    let now = clock.now()
    sessions.withLock { sessions in
      if sessions[session.remote]?.token == session.token { sessions[session.remote]?.lastSeen = now }
    }
  }

  /// Throws `session-unknown` where another begin took the session over.
  func note(_ compared: ComparedTables, of session: Session) throws {
    let isThere = sessions.withLock { sessions in
      guard sessions[session.remote]?.token == session.token else { return false }
      sessions[session.remote]?.compared = compared
      return true
    }
    guard isThere else { throw Self.unknown }
  }

  private static var unknown: SalvorError {
    SalvorError(.sessionUnknown, "This session has ended or was taken over. Begin again; nothing is lost.")
  }

  func close(_ session: Session) {
    sessions.withLock { sessions in
      if sessions[session.remote]?.token == session.token { sessions[session.remote] = nil }
    }
  }

  var count: Int { sessions.withLock { $0.count } }

  /// Remotes whose session was seen lately.
  var remotes: [RemoteID] {
    let now = clock.now()
    return sessions.withLock { $0.values.filter { now - $0.lastSeen < idleMilliseconds }.map(\.remote) }
  }
}
