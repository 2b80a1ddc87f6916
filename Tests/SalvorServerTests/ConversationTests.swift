import SalvorContracts
import SalvorModel
import SalvorStorage
import SalvorWire
import Testing

@testable import SalvorServerEngine

@Suite("Sessions and recoveries that several processes know (semantics 4, 9)")
struct ConversationTests {
  @Test("ConversationContract", arguments: ConversationContract.cases)
  func keepsTheContract(_ rule: ConversationContract.Case) async throws {
    let memory = ConversationMemory()
    try await rule.run(ConversationContract.Subject(here: memory, there: memory))
  }

  @Test("they end where the store has opened another history")
  func endWithTheHistory() async throws {
    let incarnation = Mutex(IncarnationID(from: SystemRandom()))
    let memory = ConversationMemory { incarnation.withLock { $0 } }
    let table = SessionTable(memory, idleMilliseconds: 30_000, clock: SystemClock(), random: SystemRandom())
    let session = try await table.open(try begin(), principal: anna)
    _ = try await table.find(session.token, principal: anna)
    incarnation.withLock { $0 = IncarnationID(from: SystemRandom()) }
    await #expect(throws: SalvorError.self) { _ = try await table.find(session.token, principal: anna) }
    #expect(try await table.isFree(remote))
  }

  /// Between processes: what is kept comes back as bytes.
  private struct Shared: ConversationKeeping {
    let memory = ConversationMemory()

    func conversing<Answer: Sendable>(
      _ name: String?, _ body: @Sendable (any ConversationDesk) throws -> Answer
    ) async throws -> Answer {
      try await memory.conversing(name) { try body(Desk(desk: $0)) }
    }

    private struct Desk: ConversationDesk {
      let desk: any ConversationDesk
      func find(_ token: String) throws -> Conversation? { try desk.find(token) }
      func all(_ kind: Conversation.Kind, of remote: RemoteID) throws -> [Conversation] {
        try desk.all(kind, of: remote)
      }
      func count(_ kind: Conversation.Kind, principal: String?) throws -> Int {
        try desk.count(kind, principal: principal)
      }
      func remotes(_ kind: Conversation.Kind, seenSince time: Int64) throws -> [RemoteID] {
        try desk.remotes(kind, seenSince: time)
      }
      func put(_ conversation: Conversation) throws {
        var stored = conversation
        stored.subject = StoredSubject(bytes: conversation.subject.bytes)
        try desk.put(stored)
      }
      func touch(_ token: String, at time: Int64) throws { try desk.touch(token, at: time) }
      func touch(_ kind: Conversation.Kind, principal: String, seenAfter bound: Int64, at time: Int64) throws {
        try desk.touch(kind, principal: principal, seenAfter: bound, at: time)
      }
      func remove(_ token: String) throws { try desk.remove(token) }
      func remove(_ kind: Conversation.Kind, seenBefore time: Int64) throws { try desk.remove(kind, seenBefore: time) }
      func trim(_ kind: Conversation.Kind, to count: Int, seenBefore time: Int64) throws {
        try desk.trim(kind, to: count, seenBefore: time)
      }
    }
  }

  private let shared = Shared()
  private let remote = RemoteID(unchecked: String(repeating: "7", count: 32))
  private let anna = Principal(name: "anna", parameters: ["region": ["EU"]])

  private var sessions: SessionTable {
    SessionTable(shared, idleMilliseconds: 30_000, clock: SystemClock(), random: SystemRandom())
  }

  private func begin() throws -> SessionBegin {
    func id<ID: RandomIdentifier>(_ digit: Character) -> ID { ID(unchecked: String(repeating: digit, count: 32)) }
    var message = BeginMessage(
      remote: remote, server: id("1"), previous: id("a"), current: id("b"), schemaVersion: 3, schemaDigest: "digest",
      groups: [
        .init(
          name: "visits", cursor: Commit(number: 41, id: id("c")), scope: "s", subscriptions: ResolvedSubscriptions()),
        .init(name: "sites", cursor: nil, scope: nil),
      ],
      upload: .staged, position: "p", history: nil, compare: [], compared: Commit(number: 40, id: id("d")))
    message.incarnation = id("e")
    message.subscriptions = ResolvedSubscriptions(["site": [["region": "EU"]]])
    return SessionBegin(
      message: message, answersAgain: true, sendsConfig: true,
      incarnations: [Incarnation(id: id("f"), firstCommit: 12)],
      heal: HealTerms(incarnation: id("0"), floor: 7, waiting: 2, settlings: 3))
  }

  @Test("what one process began another goes on with: the begin, what is compared, who asks")
  func goesOn() async throws {
    let first = sessions, second = sessions
    let begin = try begin()
    let opened = try await first.open(begin, principal: anna)
    let compared = ComparedTables(
      head: Commit(number: 9, id: CommitID(unchecked: String(repeating: "9", count: 32))), fed: ["site", "a"],
      whole: ["visit"], ownUpTo: 8)
    try await second.note(compared, of: opened)
    var narrowed = anna
    narrowed.parameters = [:]
    let found = try await second.find(opened.token, principal: narrowed)
    #expect(found.remote == remote)
    #expect(found.principal == narrowed, "the parameters are those of now")
    #expect(found.begin.message == begin.message)
    #expect(found.begin.answersAgain && found.begin.sendsConfig)
    #expect(found.begin.incarnations == begin.incarnations)
    #expect(found.begin.heal == begin.heal)
    #expect(found.compared == compared)
    await #expect(throws: SalvorError.self) { try await second.find(opened.token, principal: Principal(name: "ben")) }
    await first.close(opened)
    await #expect(throws: SalvorError.self) { try await second.find(opened.token, principal: anna) }
  }

  @Test(
    "one session of a remote over all processes: another begin is refused, and the same database takes its own over")
  func oneSession() async throws {
    let first = sessions, second = sessions
    let begin = try begin()
    let opened = try await first.open(begin, principal: anna)
    var another = begin
    another.message.current = SequenceID(unchecked: String(repeating: "9", count: 32))
    let refused = await #expect(throws: SalvorError.self) { try await second.open(another, principal: anna) }
    #expect(refused?.code == .sessionInUse)
    let taken = try await second.open(begin, principal: anna)
    await #expect(throws: SalvorError.self) { try await first.find(opened.token, principal: anna) }
    #expect(try await first.find(taken.token, principal: anna).remote == remote)
    #expect(try await first.count == 1)
  }

  @Test("so many devices recover at once over all processes, and each of them goes on in any")
  func recoveries() async throws {
    let schema = Schema(tables: [])
    func table() -> RecoveryTable {
      RecoveryTable(
        shared, schema, recoveriesMax: 2, idleMilliseconds: 30_000, clock: SystemClock(), random: SystemRandom())
    }
    let first = table(), second = table()
    let scopes = GroupScopes(["visits": ResolvedSubscriptions(["site": [["region": "EU"]]])], in: schema)
    var tokens: [String] = []
    for (place, digit) in ["1", "2", "3"].enumerated() {
      let id = RemoteID(unchecked: String(repeating: digit, count: 32))
      switch try await (place % 2 == 0 ? first : second).open(id, principal: "anna", scopes: scopes) {
      case .open(let recovery, _): tokens.append(recovery.token)
      case .comeBack(_, let isFirst): #expect(place == 2 && isFirst)
      }
    }
    #expect(tokens.count == 2)
    for token in tokens {
      let found = try await second.find(token, principal: anna)
      #expect(found.scopes.subscriptions == scopes.subscriptions)
    }
    #expect(try await first.counts == (2, 1))
  }

  private var validations: ValidationTable {
    ValidationTable(shared, idleMilliseconds: 30_000, clock: SystemClock(), random: SystemRandom())
  }

  private struct Gone: Error {}

  /// A validator that counts how often it is asked, and waits where somebody has closed the gate.
  private final class Judge: Sendable {
    private let asked = Mutex(0)
    private let gate = AsyncStream.makeStream(of: Void.self)
    var count: Int { asked.withLock { $0 } }
    func open() { gate.continuation.yield() }

    @Sendable func ask() -> [Refusal] {
      asked.withLock { $0 += 1 }
      return []
    }

    @Sendable func askAndWait() async -> [Refusal] {
      asked.withLock { $0 += 1 }
      for await _ in gate.stream { break }
      return []
    }
  }

  @Test(
    "an upload is judged by one process at a time, nobody stages meanwhile, and an answer counts until somebody has staged"
  )
  func judging() async throws {
    let first = validations, second = validations
    let upload = JudgedUpload(
      remote: remote, principal: anna, sequence: SequenceID(unchecked: String(repeating: "5", count: 32)))
    let validator = Judge()
    let judging = Task { try await first.judged(upload, judge: validator.askAndWait) { _ in } }
    while validator.count == 0 { await Task.yield() }
    var refused = await #expect(throws: SalvorError.self) {
      try await second.judged(upload, judge: validator.ask) { _ in }
    }
    #expect(refused?.code == .sessionInUse)
    for table in [first, second] {
      refused = await #expect(throws: SalvorError.self) { try await table.staging(remote) {} }
      #expect(refused?.code == .sessionInUse)
    }
    validator.open()
    try await judging.value
    try await second.staging(remote) {}
    #expect(validator.count == 1)
    // The device hangs up before it is processed, and comes back.
    for _ in 0..<2 {
      await #expect(throws: Gone.self) { try await first.judged(upload, judge: validator.ask) { _ in throw Gone() } }
      #expect(validator.count == 2, "what came of it is kept")
    }
    try await second.staging(remote) {}
    await #expect(throws: Gone.self) { try await first.judged(upload, judge: validator.ask) { _ in throw Gone() } }
    #expect(validator.count == 3, "another process has staged since")
    try await second.judged(upload, judge: validator.ask) { _ in }
    #expect(validator.count == 4)
    try await second.staging(remote) {
      let refused = await #expect(throws: SalvorError.self) {
        try await first.judged(upload, judge: validator.ask) { _ in }
      }
      #expect(refused?.code == .sessionInUse)
    }
    // A process that was killed is not waited for.
    let now = SystemClock().now()
    for (kind, token) in [(Conversation.Kind.judging, "killed"), (.staging, "killed, too")] {
      try await shared.conversing(nil) { [remote] desk in
        try desk.put(
          Conversation(
            kind: kind, token: token, remote: remote, principal: "", subject: StoredSubject(bytes: Array("inUse".utf8)),
            lastSeen: now - 30_000))
      }
    }
    try await first.judged(upload, judge: validator.ask) { _ in }
    try await second.staging(remote) {}
    for kind in [Conversation.Kind.judging, .staging] {
      #expect(try await shared.conversing(nil) { try $0.count(kind, principal: nil) } == 0)
    }
  }
}
