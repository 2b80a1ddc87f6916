import SalvorModel
import SalvorStorage

/// The conversations of a server that is one process. They end where its store has opened another history: what was checked and
/// staged in them was of the one before.
final class ConversationMemory: ConversationKeeping {
  private let desk = Mutex(Desk())
  private let incarnation: @Sendable () -> IncarnationID?

  /// - Parameter incarnation: of the database as it is open now.
  init(_ incarnation: @escaping @Sendable () -> IncarnationID? = { nil }) { self.incarnation = incarnation }

  func conversing<Answer: Sendable>(
    _ name: String?, _ body: @Sendable (any ConversationDesk) throws -> Answer
  ) async throws -> Answer {
    let incarnation = incarnation()
    return try desk.withLock { desk in
      if desk.incarnation != incarnation { desk = Desk(incarnation) }
      return try body(desk)
    }
  }

  /// Guarded by the lock above.
  private final class Desk: ConversationDesk, @unchecked Sendable {
    private struct Place: Hashable {
      var kind: Conversation.Kind
      var remote: RemoteID
    }

    private struct Owner: Hashable {
      var kind: Conversation.Kind
      var principal: String
    }

    let incarnation: IncarnationID?
    private var known: [Conversation.Kind: [String: Conversation]] = [:]
    private var kinds: [String: Conversation.Kind] = [:]
    /// Tokens, in the order of their beginning.
    private var ofRemote: [Place: [String]] = [:]
    private var counts: [Owner: Int] = [:]

    init(_ incarnation: IncarnationID? = nil) { self.incarnation = incarnation }

    func find(_ token: String) -> Conversation? { kinds[token].flatMap { known[$0]?[token] } }

    func all(_ kind: Conversation.Kind, of remote: RemoteID) -> [Conversation] {
      (ofRemote[Place(kind: kind, remote: remote)] ?? []).compactMap { known[kind]?[$0] }
    }

    func count(_ kind: Conversation.Kind, principal: String?) -> Int {
      principal.map { counts[Owner(kind: kind, principal: $0)] ?? 0 } ?? known[kind]?.count ?? 0
    }

    func remotes(_ kind: Conversation.Kind, seenSince time: Int64) -> [RemoteID] {
      Array(Set((known[kind] ?? [:]).values.lazy.filter { $0.lastSeen >= time }.map(\.remote)))
    }

    func put(_ conversation: Conversation) {
      let token = conversation.token
      if kinds[token] == nil {
        ofRemote[Place(kind: conversation.kind, remote: conversation.remote), default: []].append(token)
        counts[Owner(kind: conversation.kind, principal: conversation.principal), default: 0] += 1
        kinds[token] = conversation.kind
      }
      known[conversation.kind, default: [:]][token] = conversation
    }

    func touch(_ token: String, at time: Int64) {
      if let kind = kinds[token] { known[kind]?[token]?.lastSeen = time }
    }

    func touch(_ kind: Conversation.Kind, principal: String, seenAfter bound: Int64, at time: Int64) {
      guard count(kind, principal: principal) > 0 else { return }
      for (token, found) in known[kind] ?? [:] where found.principal.isSameName(as: principal) && found.lastSeen > bound
      {
        touch(token, at: time)
      }
    }

    func remove(_ token: String) {
      guard let kind = kinds.removeValue(forKey: token), let gone = known[kind]?.removeValue(forKey: token) else {
        return
      }
      let place = Place(kind: kind, remote: gone.remote)
      ofRemote[place]?.removeAll { $0 == token }
      if ofRemote[place]?.isEmpty == true { ofRemote[place] = nil }
      let owner = Owner(kind: kind, principal: gone.principal)
      let left = (counts[owner] ?? 1) - 1
      counts[owner] = left > 0 ? left : nil
    }

    func remove(_ kind: Conversation.Kind, seenBefore time: Int64) {
      for (token, found) in known[kind] ?? [:] where found.lastSeen <= time { remove(token) }
    }

    func trim(_ kind: Conversation.Kind, to count: Int, seenBefore time: Int64) {
      let excess = self.count(kind, principal: nil) - count
      guard excess > 0, let all = known[kind] else { return }
      let old = all.values.filter { $0.lastSeen <= time }.sorted { ($0.lastSeen, $0.token) < ($1.lastSeen, $1.token) }
      for gone in old.prefix(excess) { remove(gone.token) }
    }
  }
}
