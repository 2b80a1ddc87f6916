import SalvorModel
import SalvorStorage

/// The uploads that validators are asked about, one for each remote.
///
/// Asking goes on when the device that waited for it is gone, and what came of it is kept for a while: the device comes
/// back with the same upload, and finds the answer. So a slow validator never begins anew for a device that hangs up
/// before it has ended. What is in staging cannot be changed between being judged and being processed, by no process: each says
/// in a conversation that it judges or stages, and an answer counts only as long as its conversation stands.
final class ValidationTable: Sendable {
  private struct Entry {
    var upload: JudgedUpload
    /// Of its conversation.
    var token: String
    var task: Task<[Refusal], any Error>
    /// Requests of the protocol that wait for it, or process what it found.
    var users = 1
    /// Milliseconds since 1970, when the last user left.
    var left: Int64 = 0
  }

  private struct State {
    var entries: [RemoteID: Entry] = [:]
    var isClosed = false
  }

  /// What another process needs to know of one that judges.
  private enum Use: String {
    /// A request waits for it, or processes what it found.
    case inUse
    /// The answer is kept for a device that has hung up.
    case kept
  }

  private let state = Mutex(State())
  private let keeping: any ConversationKeeping
  private let idleMilliseconds: Int64
  private let clock: any Clock
  private let random: any RandomSource
  /// How long an answer is kept for a device that has hung up.
  static let keptMilliseconds: Int64 = 600_000

  init(
    _ keeping: any ConversationKeeping, idleMilliseconds: Int64, clock: any Clock, random: any RandomSource
  ) {
    self.keeping = keeping
    self.idleMilliseconds = idleMilliseconds
    self.clock = clock
    self.random = random
  }

  private static func name(_ remote: RemoteID) -> String { "upload \(remote.text)" }

  /// Runs `body` with what `judge` finds of the upload: begun here, under way, or kept. The upload counts as under way
  /// until `body` has ended; where it ends well, nothing is kept. Throws `session-in-use` while another process judges or processes
  /// one of the remote, or somebody stages.
  func judged<Result: Sendable>(
    _ upload: JudgedUpload, judge: @escaping @Sendable () async throws -> [Refusal],
    body: @Sendable ([Refusal]) async throws -> Result
  ) async throws -> Result {
    let entry = try await enter(upload, judge)
    return try await goingOn(entry.token) {
      do {
        let result = try await body(try await entry.task.value)
        await leave(entry, isDone: true)
        return result
      } catch {
        await leave(entry, isDone: false)
        throw error
      }
    }
  }

  private func conversation(
    _ kind: Conversation.Kind, _ token: String, _ remote: RemoteID, _ use: Use, _ now: Int64
  ) -> Conversation {
    Conversation(
      kind: kind, token: token, remote: remote, principal: "", subject: StoredSubject(bytes: Array(use.rawValue.utf8)),
      lastSeen: now)
  }

  /// Somebody waits for it. A process that was killed says so no longer.
  private func isUnderWay(_ conversation: Conversation, _ now: Int64) -> Bool {
    conversation.subject.bytes == Array(Use.inUse.rawValue.utf8) && now - conversation.lastSeen < idleMilliseconds
  }

  private func enter(
    _ upload: JudgedUpload, _ judge: @escaping @Sendable () async throws -> [Refusal]
  ) async throws -> Entry {
    let (now, remote) = (clock.now(), upload.remote)
    let (own, all) = try state.withLock { state in
      guard !state.isClosed else { throw SalvorError(.overloaded, "The server is stopping. Sync again later.") }
      let known = state.entries[remote]
      return (known?.upload == upload ? known?.token : nil, Set(state.entries.values.map(\.token)))
    }
    let token = own ?? "judging-" + hexadecimal(random.bytes(16))
    let stands = try await keeping.conversing(Self.name(remote)) { [self] desk in
      for staging in try desk.all(.staging, of: remote) where isUnderWay(staging, now) { throw Self.inUse(remote) }
      for other in try desk.all(.judging, of: remote) where other.token != token {
        // Of this process's own this table decides.
        guard all.contains(other.token) || !isUnderWay(other, now) else { throw Self.inUse(remote) }
        try desk.remove(other.token)
      }
      let stands = try desk.find(token) != nil
      try desk.put(conversation(.judging, token, remote, .inUse, now))
      return stands
    }
    var left: [String] = []
    defer { if !left.isEmpty { forget(left) } }
    return state.withLock { state in
      let old = state.entries.filter { $0.value.users == 0 && now - $0.value.left >= Self.keptMilliseconds }
      for (remote, entry) in old where entry.token != token {
        state.entries[remote] = nil
        left.append(entry.token)
      }
      if var known = state.entries[remote], known.upload == upload, known.token == token ? stands : known.users > 0 {
        known.users += 1
        state.entries[remote] = known
        // Another request of this process was first.
        if known.token != token { left.append(token) }
        return known
      }
      state.entries[remote]?.task.cancel()
      let entry = Entry(upload: upload, token: token, task: Task { try await judge() })
      state.entries[remote] = entry
      return entry
    }
  }

  private func leave(_ left: Entry, isDone: Bool) async {
    let (now, remote) = (clock.now(), left.upload.remote)
    let use: Use?? = state.withLock { state in
      guard var entry = state.entries[remote], entry.task == left.task else { return .some(nil) }
      entry.users -= 1
      entry.left = now
      state.entries[remote] = isDone && entry.users == 0 ? nil : entry
      return entry.users > 0 ? nil : isDone ? .some(nil) : .kept
    }
    guard let use else { return }
    // What fails is found out by the next one: it is judged anew, or waits until this one counts as left.
    try? await keeping.conversing(nil) { [self] desk in
      guard let use else { return try desk.remove(left.token) }
      if try desk.find(left.token) != nil { try desk.put(conversation(.judging, left.token, remote, use, now)) }
    }
  }

  /// What failed is asked anew by the next one.
  func forget(_ upload: JudgedUpload) {
    state.withLock { state in
      if state.entries[upload.remote]?.upload == upload { state.entries[upload.remote] = nil }
    }
  }

  private func forget(_ tokens: [String]) {
    Task { [keeping] in try? await keeping.conversing(nil) { for token in tokens { try $0.remove(token) } } }
  }

  /// Runs `body`, which puts a chunk into staging. Throws `session-in-use` while an upload of the remote is judged or
  /// processed.
  func staging(_ remote: RemoteID, body: @Sendable () async throws -> Void) async throws {
    let now = clock.now()
    let token = "staging-" + hexadecimal(random.bytes(16))
    try await keeping.conversing(Self.name(remote)) { [self] desk in
      for judging in try desk.all(.judging, of: remote) {
        if isUnderWay(judging, now) { throw Self.inUse(remote) }
        try desk.remove(judging.token)
      }
      try desk.remove(.staging, seenBefore: now - idleMilliseconds)
      try desk.put(conversation(.staging, token, remote, .inUse, now))
    }
    try await goingOn(token) {
      do {
        try await body()
        try? await keeping.conversing(nil) { try $0.remove(token) }
      } catch {
        try? await keeping.conversing(nil) { try $0.remove(token) }
        throw error
      }
    }
  }

  /// Says now and then that the conversation is under way.
  private func goingOn<Result>(_ token: String, _ body: () async throws -> Result) async rethrows -> Result {
    let saying = Task { [keeping, clock, idleMilliseconds] in
      while (try? await clock.sleep(milliseconds: max(1, idleMilliseconds / 3))) != nil {
        let now = clock.now()
        try? await keeping.conversing(nil) { try $0.touch(token, at: now) }
      }
    }
    defer { saying.cancel() }
    return try await body()
  }

  private static func inUse(_ remote: RemoteID) -> SalvorError {
    SalvorError(
      .sessionInUse, "An upload of this remote ID is being looked at. Wait for it to end.",
      context: ["remote": remote.text], retryAfterMilliseconds: 500)
  }

  /// Ends what is under way.
  func close() {
    let entries = state.withLock { state in
      state.isClosed = true
      defer { state.entries = [:] }
      return state.entries
    }
    for entry in entries.values { entry.task.cancel() }
  }
}
