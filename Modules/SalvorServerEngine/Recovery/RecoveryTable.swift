import SalvorModel
import SalvorStorage

/// The recoveries under way, over all processes that serve the database. They write nothing on the server, so a remote may have
/// several (a device that was killed and begins again, two copies of one file), but only so many remotes recover at one time: after
/// a restored server all of them come at once, and are told to come back at times spread over a window that grows with their
/// number.
final class RecoveryTable: Sendable {
  /// A reference: as a value of this size, kept over a suspension within `do … catch`, an optimized build of Swift 6.3
  /// loses it.
  final class Recovery: Sendable {
    let token: String
    let remote: RemoteID
    let principal: String
    /// What its rows are compared in.
    let scopes: GroupScopes

    init(token: String, remote: RemoteID, principal: String, scopes: GroupScopes) {
      self.token = token
      self.remote = remote
      self.principal = principal
      self.scopes = scopes
    }
  }

  /// What was decided of a begin.
  enum Opening {
    case open(Recovery, underWay: Int)
    /// - Parameter isFirst: nobody else was waiting.
    case comeBack(afterMilliseconds: Int64, isFirst: Bool)
  }

  private enum Decision {
    case open(underWay: Int)
    case comeBack(afterMilliseconds: Int64, isFirst: Bool)
  }

  private static let perRemoteMax = 4
  /// A device may work on an answer, or apply what it fetched, for so many times the idle time before its token is gone; it
  /// does not count as under way meanwhile.
  private static let lifeFactor: Int64 = 20
  private static let windowMin: Int64 = 2_000
  private static let windowMax: Int64 = 60_000
  /// So many times as many tokens as devices that may recover at once.
  private static let tokensFactor = 16

  private let keeping: any ConversationKeeping
  private let schema: Schema
  private let recoveriesMax: Int
  private let idleMilliseconds: Int64
  private let clock: any Clock
  private let random: any RandomSource
  private let lastTidied = Mutex<Int64>(0)

  init(
    _ keeping: any ConversationKeeping, _ schema: Schema, recoveriesMax: Int, idleMilliseconds: Int64,
    clock: any Clock, random: any RandomSource
  ) {
    self.keeping = keeping
    self.schema = schema
    self.recoveriesMax = max(1, recoveriesMax)
    self.idleMilliseconds = idleMilliseconds
    self.clock = clock
    self.random = random
  }

  /// How many recover is decided by one process at a time.
  private static let name = "recoveries"

  func open(_ remote: RemoteID, principal: String, scopes: GroupScopes) async throws -> Opening {
    let now = clock.now()
    let recovery = Recovery(
      token: hexadecimal(random.bytes(16)), remote: remote, principal: principal, scopes: scopes)
    let lot = random.bytes(8).reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    let tidies = isTimeToTidy(now)
    let decision = try await keeping.conversing(Self.name) { [self] desk -> Decision in
      if tidies { try tidy(desk, now) }
      let others = Set(try desk.remotes(.recovery, seenSince: now - idleMilliseconds + 1)).subtracting([remote])
      guard others.count < recoveriesMax else { return try comeBack(recovery, desk, now, lot) }
      try desk.remove(Self.place(remote))
      for oldest in try desk.all(.recovery, of: remote).dropLast(Self.perRemoteMax - 1) {
        try desk.remove(oldest.token)
      }
      try desk.put(
        Conversation(
          kind: .recovery, token: recovery.token, remote: remote, principal: principal,
          subject: RecoverySubject(scopes: scopes), lastSeen: now))
      return .open(underWay: others.count + 1)
    }
    return switch decision {
    case .open(let underWay): .open(recovery, underWay: underWay)
    case .comeBack(let delay, let isFirst): .comeBack(afterMilliseconds: delay, isFirst: isFirst)
    }
  }

  private static func place(_ remote: RemoteID) -> String { "waiting-\(remote.text)" }

  private func comeBack(
    _ recovery: Recovery, _ desk: any ConversationDesk, _ now: Int64, _ lot: UInt64
  ) throws -> Decision {
    let place = Self.place(recovery.remote)
    let others = try desk.count(.waiting, principal: nil) - (desk.find(place) == nil ? 0 : 1)
    let window = min(Self.windowMax, Self.windowMin * (1 + Int64((others + 1) / recoveriesMax)))
    let delay = 1_000 + Int64(lot % UInt64(window))
    try desk.put(
      Conversation(
        kind: .waiting, token: place, remote: recovery.remote, principal: recovery.principal,
        subject: StoredSubject(bytes: []), lastSeen: now + delay))
    return .comeBack(afterMilliseconds: delay, isFirst: others == 0)
  }

  /// Once a second at most: with many waiting it costs something.
  private func isTimeToTidy(_ now: Int64) -> Bool {
    lastTidied.withLock { last in
      guard now - last >= 1_000 || now < last else { return false }
      last = now
      return true
    }
  }

  /// Forgets tokens that nobody uses any more, and those waiting that did not come back.
  private func tidy(_ desk: any ConversationDesk, _ now: Int64) throws {
    try desk.remove(.recovery, seenBefore: now - idleMilliseconds * Self.lifeFactor)
    try desk.remove(.waiting, seenBefore: now - Self.windowMax)
    try desk.trim(.recovery, to: recoveriesMax * Self.tokensFactor, seenBefore: now - idleMilliseconds)
  }

  /// The recovery of a token, marked as seen.
  func find(_ token: String, principal: Principal) async throws -> Recovery {
    let now = clock.now()
    let found = try await keeping.conversing(nil) { desk -> Conversation? in
      guard let found = try desk.find(token), found.kind == .recovery, found.principal.isSameName(as: principal.name)
      else {
        return nil
      }
      try desk.touch(token, at: now)
      return found
    }
    guard let found else {
      throw SalvorError(.sessionUnknown, "This recovery's session has ended. Begin it again; nothing is lost.")
    }
    return Recovery(
      token: token, remote: found.remote, principal: found.principal,
      scopes: try RecoverySubject(found.subject, in: schema).scopes)
  }

  /// It goes on. What fails is said by the next request.
  func touch(_ token: String) async {
    let now = clock.now()
    try? await keeping.conversing(nil) { try $0.touch(token, at: now) }
  }

  /// What fails leaves it to the idle time.
  func close(_ token: String) async { try? await keeping.conversing(nil) { try $0.remove(token) } }

  /// Remotes that recover, in order.
  var remotes: [RemoteID] {
    get async throws {
      let bound = clock.now() - idleMilliseconds + 1
      return try await keeping.conversing(nil) { try $0.remotes(.recovery, seenSince: bound) }.sorted {
        $0.text < $1.text
      }
    }
  }

  /// Remotes that were told to come back, in order.
  var waiting: [RemoteID] {
    get async throws {
      let bound = clock.now() - Self.windowMax + 1
      return try await keeping.conversing(nil) { try $0.remotes(.waiting, seenSince: bound) }.sorted {
        $0.text < $1.text
      }
    }
  }

  /// Remotes that recover, and remotes that were told to come back.
  var counts: (underWay: Int, waiting: Int) {
    get async throws { (try await remotes.count, try await waiting.count) }
  }
}
