import SalvorModel
import SalvorStorage
import SalvorWire

/// The sessions under way: one for each remote (semantics 4), over all processes that serve the database.
final class SessionTable: Sendable {
  /// A reference: as a value of this size, kept over a suspension within `do … catch`, an optimized build of Swift 6.3
  /// loses it.
  final class Session: Sendable {
    let token: String
    let remote: RemoteID
    let principal: Principal
    let begin: SessionBegin
    /// The device compares these before it downloads.
    let compared: ComparedTables?

    init(token: String, remote: RemoteID, principal: Principal, begin: SessionBegin, compared: ComparedTables? = nil) {
      self.token = token
      self.remote = remote
      self.principal = principal
      self.begin = begin
      self.compared = compared
    }

    var current: SequenceID? { begin.message.current }
  }

  private let keeping: any ConversationKeeping
  private let idleMilliseconds: Int64
  private let perPrincipalMax: Int
  private let clock: any Clock
  private let random: any RandomSource
  private let lastTidied = Mutex<Int64>(0)

  init(
    _ keeping: any ConversationKeeping, idleMilliseconds: Int64,
    perPrincipalMax: Int = Limits().principalSessionsMax, clock: any Clock, random: any RandomSource
  ) {
    self.keeping = keeping
    self.idleMilliseconds = idleMilliseconds
    self.perPrincipalMax = perPrincipalMax
    self.clock = clock
    self.random = random
  }

  private static func name(_ remote: RemoteID) -> String { "session \(remote.text)" }

  /// A new session. A remote has one: another that was seen lately is refused with `session-in-use`, unless this begin
  /// proves to be the same database by the same sequence IDs. (A killed client comes back.) Throws `quota` where the principal
  /// has as many as one may have.
  func open(_ begin: SessionBegin, principal: Principal) async throws -> Session {
    let now = clock.now()
    let token = hexadecimal(random.bytes(16))
    var begin = begin
    // It was checked, and may be long.
    begin.message.history = nil
    let remote = begin.message.remote
    let session = Session(token: token, remote: remote, principal: principal, begin: begin)
    let tidies = isTimeToTidy(now)
    try await keeping.conversing(Self.name(remote)) { [self] desk in
      var others = try desk.all(.session, of: remote)
      try refuseAnother(session.begin.message, others, now)
      if tidies {
        try desk.remove(.session, seenBefore: now - idleMilliseconds)
        others.removeAll { isIdle($0, now) }
      }
      let own = try desk.count(.session, principal: principal.name)
      let replaced = others.count { $0.principal.isSameName(as: principal.name) }
      guard own - replaced < perPrincipalMax else { throw SalvorError.sessionQuota(perPrincipalMax, idleMilliseconds) }
      for other in others { try desk.remove(other.token) }
      try desk.put(
        Conversation(
          kind: .session, token: token, remote: remote, principal: principal.name,
          subject: SessionSubject(begin: session.begin), lastSeen: now))
    }
    return session
  }

  /// Whether the remote has no session, not even one that was left.
  func isFree(_ remote: RemoteID) async throws -> Bool {
    try await keeping.conversing(nil) { try $0.all(.session, of: remote).isEmpty }
  }

  /// Forgets the sessions that nobody continues.
  func tidy() async throws {
    let bound = clock.now() - idleMilliseconds
    try await keeping.conversing(nil) { try $0.remove(.session, seenBefore: bound) }
  }

  /// Once a second at most: with many sessions it costs something.
  private func isTimeToTidy(_ now: Int64) -> Bool {
    lastTidied.withLock { last in
      guard now - last >= 1_000 || now < last else { return false }
      last = now
      return true
    }
  }

  private func isIdle(_ session: Conversation, _ now: Int64) -> Bool { now - session.lastSeen >= idleMilliseconds }

  /// A recovery begins: the session of the same database ends, that of another one with its remote ID is in the way.
  func giveWay(to message: BeginMessage) async throws {
    let now = clock.now()
    try await keeping.conversing(Self.name(message.remote)) { [self] desk in
      let others = try desk.all(.session, of: message.remote)
      try refuseAnother(message, others, now)
      for other in others { try desk.remove(other.token) }
    }
  }

  private func refuseAnother(_ message: BeginMessage, _ others: [Conversation], _ now: Int64) throws {
    for other in others where !isIdle(other, now) {
      let subject = try SessionSubject(other.subject)
      let begun = subject.begin.message
      let isSame = message.current != nil && message.current == begun.current && message.previous == begun.previous
      // One that compares has nothing under way here that another could disturb.
      guard isSame || subject.compared != nil else {
        throw SalvorError(
          .sessionInUse,
          "Another session of this remote ID is under way. Wait for it to end, or for 30 s after it was cut.",
          context: ["remote": message.remote.text],
          retryAfterMilliseconds: min(30_000, max(100, idleMilliseconds - (now - other.lastSeen))))
      }
    }
  }

  /// The session of a token, marked as seen. One that nobody has continued for too long has ended. Its principal is the one
  /// who asks, with the parameters of now: what was taken away from him since the begin is taken away here, too.
  func find(_ token: String, principal: Principal) async throws -> Session {
    let now = clock.now()
    let found = try await keeping.conversing(nil) { [self] desk -> Conversation? in
      guard let found = try desk.find(token), found.kind == .session, found.principal.isSameName(as: principal.name)
      else {
        return nil
      }
      if isIdle(found, now) {
        try desk.remove(token)
        return nil
      }
      try desk.touch(token, at: now)
      return found
    }
    guard let found else { throw Self.unknown }
    LogContext.current?.set("remote", found.remote.text)
    let subject = try SessionSubject(found.subject)
    return Session(
      token: token, remote: found.remote, principal: principal, begin: subject.begin, compared: subject.compared)
  }

  /// It goes on. What fails is said by the next request.
  func touch(_ session: Session) async {
    let now = clock.now()
    try? await keeping.conversing(nil) { try $0.touch(session.token, at: now) }
  }

  /// The principal's devices send blobs, which belong to no session.
  func touch(_ principal: Principal) async {
    let now = clock.now()
    let bound = now - idleMilliseconds
    try? await keeping.conversing(nil) {
      try $0.touch(.session, principal: principal.name, seenAfter: bound, at: now)
    }
  }

  /// Throws `session-unknown` where another begin took the session over.
  func note(_ compared: ComparedTables, of session: Session) async throws {
    let subject = SessionSubject(begin: session.begin, compared: compared)
    let isThere = try await keeping.conversing(Self.name(session.remote)) { desk in
      guard var found = try desk.find(session.token) else { return false }
      found.subject = subject
      try desk.put(found)
      return true
    }
    guard isThere else { throw Self.unknown }
  }

  private static var unknown: SalvorError {
    SalvorError(.sessionUnknown, "This session has ended or was taken over. Begin again; nothing is lost.")
  }

  /// What fails leaves it to `idleMilliseconds`.
  func close(_ session: Session) async {
    try? await keeping.conversing(nil) { try $0.remove(session.token) }
  }

  var count: Int { get async throws { try await keeping.conversing(nil) { try $0.count(.session, principal: nil) } } }

  /// Remotes whose session was seen lately.
  var remotes: [RemoteID] {
    get async throws {
      let bound = clock.now() - idleMilliseconds + 1
      return try await keeping.conversing(nil) { try $0.remotes(.session, seenSince: bound) }
    }
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
