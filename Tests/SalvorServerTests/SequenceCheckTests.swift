import SalvorModel
import SalvorStorage
import SalvorWire
import Testing

@testable import SalvorServerEngine

private func sequence(_ digit: Character) -> SequenceID {
  SequenceID(unchecked: String(repeating: digit, count: 32))
}

/// The table of semantics 5, a line each, and time1 … time4 of the SAP seed.
@Suite("Sequence check (semantics 5)")
struct SequenceCheckTests {
  private let a = sequence("a"), b = sequence("b"), c = sequence("c"), d = sequence("d")

  private func verdict(
    stored: SequenceID?, previous: SequenceID?, current: SequenceID? = nil, isRecorded: Bool = false,
    previousIsOlder: Bool = false, remembered: [SequenceID]? = nil, cursorIsKnown: Bool = false
  ) -> SequenceVerdict {
    checkSequence(
      stored: stored, previous: previous, current: current, isRecorded: isRecorded, previousIsOlder: previousIsOlder,
      remembered: remembered, cursorIsKnown: cursorIsKnown)
  }

  @Test("S = P, or neither exists: in step")
  func inStep() {
    #expect(verdict(stored: a, previous: a) == .inStep)
    #expect(verdict(stored: a, previous: a, current: b) == .inStep)
    #expect(verdict(stored: nil, previous: nil) == .inStep)
    #expect(verdict(stored: nil, previous: nil, current: b) == .inStep)
  }

  @Test("S = C: the acknowledgement was lost, the recorded result is given again")
  func acknowledgementLost() {
    #expect(verdict(stored: b, previous: a, current: b) == .answerAgain)
    #expect(verdict(stored: b, previous: nil, current: b) == .answerAgain)
  }

  @Test("the remote ID was deleted after the upload was committed: nothing is applied twice")
  func acknowledgementLostAndRemoteDeleted() {
    #expect(verdict(stored: nil, previous: a, current: b, isRecorded: true) == .answerAgain)
  }

  @Test("no S, client has P: accepted without an error")
  func remoteForgotten() {
    #expect(verdict(stored: nil, previous: a) == .remoteForgotten)
    #expect(verdict(stored: nil, previous: a, current: b) == .remoteForgotten)
  }

  @Test("S is an older ID that the client remembers: server-restored")
  func serverRestored() {
    #expect(verdict(stored: a, previous: c, remembered: [b, a]) == .reset(.serverRestored))
    #expect(verdict(stored: a, previous: c, current: d, remembered: [b, a]) == .reset(.serverRestored))
  }

  @Test("P is an older ID that the server remembers: client-rewound")
  func clientRewound() {
    #expect(verdict(stored: c, previous: a, previousIsOlder: true) == .reset(.clientRewound))
  }

  @Test("S exists and the client has none: client-rewound")
  func clientHasNone() {
    #expect(verdict(stored: c, previous: nil) == .reset(.clientRewound))
    #expect(verdict(stored: c, previous: nil, current: d) == .reset(.clientRewound))
  }

  @Test("neither knows the other's: the history decides")
  func historyDecides() {
    #expect(verdict(stored: d, previous: c) == .historyNeeded)
    #expect(verdict(stored: d, previous: c, remembered: [b], cursorIsKnown: true) == .reset(.clientRewound))
    #expect(verdict(stored: d, previous: c, remembered: [b], cursorIsKnown: false) == .reset(.serverRestored))
  }

  /// time1: registered, not synchronized; time2: first upload a; time3: second upload b; time4: last upload c.
  @Test(
    "a server restored to time1 or time4 synchronizes, one restored to time2 or time3 raises the error",
    arguments: [(1, true), (2, false), (3, false), (4, true)])
  func times(time: Int, isAccepted: Bool) {
    let stored: SequenceID? = [1: nil, 2: a, 3: b, 4: c][time]!
    let found = verdict(stored: stored, previous: c, current: d, remembered: [b, a])
    #expect(found == (isAccepted ? (time == 1 ? .remoteForgotten : .inStep) : .reset(.serverRestored)))
  }
}

@Suite("History and schema check (semantics 6)")
struct HistoryCheckTests {
  @Test("another server ID is server-replaced")
  func serverReplaced() {
    let own = ServerID(unchecked: String(repeating: "1", count: 32))
    let other = ServerID(unchecked: String(repeating: "2", count: 32))
    #expect(checkServer(known: other, own: own) == .reset(.serverReplaced))
    #expect(checkServer(known: own, own: own) == .inStep)
    #expect(checkServer(known: nil, own: own) == .inStep)
  }

  @Test(
    "a known cursor is in step, an unknown one asks for the history, a trimmed one is history-trimmed; with a shared commit the histories parted"
  )
  func cursors() {
    let shared = Commit(number: 7, id: CommitID(unchecked: String(repeating: "7", count: 32)))
    #expect(checkHistory(cursors: [], historyIsGiven: false, shared: nil) == .inStep)
    #expect(checkHistory(cursors: [.known, .known], historyIsGiven: true, shared: shared) == .inStep)
    #expect(checkHistory(cursors: [.known, .unknown], historyIsGiven: false, shared: nil) == .historyNeeded)
    #expect(checkHistory(cursors: [.unknown], historyIsGiven: true, shared: nil) == .reset(.serverRestored))
    #expect(checkHistory(cursors: [.unknown], historyIsGiven: true, shared: shared) == .parted(shared))
    #expect(checkHistory(cursors: [.trimmed], historyIsGiven: true, shared: shared) == .reset(.historyTrimmed))
  }

  private let base = Table(
    "t", primaryKey: ["id"], columns: [Column("id", .text), Column("a", .integer, nullable: true)])

  private func differences(_ change: (inout Table) -> Void, deviceVersion: Int64 = 1) -> [String] {
    var new = base
    change(&new)
    return compare([base], deviceVersion: deviceVersion, with: [new]).destructive
  }

  private func compare(
    _ device: [Table], deviceVersion: Int64 = 1, with server: [Table], dropped: [String] = []
  ) -> SchemaDifferences {
    SchemaDifferences(
      device: device, deviceVersion: deviceVersion, server: server, dropped: dropped, serverVersion: 1)
  }

  @Test("a new nullable or defaulted column and a new table are additive")
  func additive() {
    #expect(differences { $0.columns.append(Column("b", .text, nullable: true)) } == [])
    #expect(differences { $0.columns.append(Column("b", .integer, defaultValue: 0)) } == [])
    #expect(compare([], with: [base]) == SchemaDifferences())
  }

  @Test("dropped tables and columns, other types and keys and a new NOT NULL are destructive, and named")
  func destructive() {
    #expect(compare([base], with: []).destructive.count == 1)
    #expect(differences { $0.columns.remove(at: 1) } == ["table t, column a: dropped or renamed"])
    #expect(differences { $0.columns[1].type = .text } == ["table t, column a: was integer, is text"])
    #expect(differences { $0.columns[1].nullable = false }.count == 1)
    #expect(differences { $0.primaryKey = ["id", "a"] }.count == 1)
    #expect(differences { $0.columns.append(Column("b", .text)) }.count == 1)
  }

  @Test("what a newer device has and the server has not yet is no destructive difference")
  func newerDevice() {
    #expect(differences({ $0.columns.remove(at: 1) }, deviceVersion: 2) == [])
  }

  @Test("with a declared rule a rename or drop is followed, once the device has adopted it")
  func declared() {
    var renamed = base
    renamed.name = "u"
    renamed.renamedFrom = ["s", "t"]
    renamed.columns[1] = Column("b", .integer, nullable: true, renamedFrom: ["a"])
    var found = compare([base], with: [renamed])
    #expect(found.destructive == [] && found.needsAdoption)
    renamed.columns[1].type = .text
    #expect(compare([base], with: [renamed]).destructive == ["table t, column a: was integer, is text"])
    var less = base
    less.columns.remove(at: 1)
    less.dropped = ["a"]
    found = compare([base], with: [less])
    #expect(found.destructive == [] && found.needsAdoption)
    found = compare([base], with: [], dropped: ["t"])
    #expect(found.destructive == [] && found.needsAdoption)
  }

  @Test(
    "a device that has renamed or dropped what the server still has waits for the server's schema, whatever the versions",
    arguments: [1, 2])
  func renamedTooEarly(version: Int64) {
    func ahead(_ server: [Table]? = nil, _ change: (inout Table) -> Void) -> SchemaDifferences {
      var later = base
      change(&later)
      return compare([later], deviceVersion: version, with: server ?? [base])
    }
    var found = ahead { ($0.name, $0.renamedFrom) = ("u", ["t"]) }
    #expect(found.destructive == [] && found.ahead == ["the table t is u"])
    found = ahead { $0.columns[1] = Column("b", .integer, nullable: true, renamedFrom: ["a"]) }
    #expect(found.destructive == [] && found.ahead == ["the column t.a is t.b"])
    found = ahead {
      $0.columns[0] = Column("key", .text, renamedFrom: ["id"])
      $0.primaryKey = ["key"]
    }
    #expect(found.destructive == [] && found.ahead == ["the column t.id is t.key"])
    var needing = base
    needing.columns.append(Column("c", .integer))
    found = ahead([needing]) { $0.dropped = ["c"] }
    #expect(found.destructive == [] && found.ahead == ["the column t.c is dropped"])
    // The server has renamed it back.
    var back = base
    back.renamedFrom = ["u"]
    found = ahead([back]) { ($0.name, $0.renamedFrom) = ("u", ["t"]) }
    #expect(found.destructive == [] && found.ahead == [] && found.needsAdoption)
  }
}

@Suite("One session per remote (semantics 4)")
struct SessionTableTests {
  private final class TestClock: Clock {
    nonisolated(unsafe) var time: Int64 = 1_000_000
    func now() -> Int64 { time }
    func sleep(milliseconds: Int64) async throws {}
  }

  private let clock = TestClock()
  private let remote = RemoteID(unchecked: String(repeating: "7", count: 32))

  private func begin(current: SequenceID?) -> SessionBegin {
    SessionBegin(
      message: BeginMessage(
        remote: remote, server: nil, previous: nil, current: current, schemaVersion: 1, schemaDigest: "", groups: [],
        upload: .none, position: nil, history: nil))
  }

  @Test("a second session is refused with session-in-use and a retry-after of at most 30 s")
  func second() async throws {
    let table = SessionTable(ConversationMemory(), idleMilliseconds: 30_000, clock: clock, random: SystemRandom())
    _ = try await table.open(begin(current: nil), principal: Principal(name: "anna"))
    let error = await #expect(throws: SalvorError.self) {
      try await table.open(begin(current: sequence("b")), principal: Principal(name: "anna"))
    }
    #expect(error?.code == .sessionInUse)
    #expect((1...30_000).contains(error?.retryAfterMilliseconds ?? 0))
  }

  @Test("a begin without a current sequence ID proves nothing: it does not take over a running session")
  func withoutCurrent() async throws {
    let table = SessionTable(ConversationMemory(), idleMilliseconds: 30_000, clock: clock, random: SystemRandom())
    let first = try await table.open(begin(current: nil), principal: Principal(name: "anna"))
    let error = await #expect(throws: SalvorError.self) {
      try await table.open(begin(current: nil), principal: Principal(name: "anna"))
    }
    #expect(error?.code == .sessionInUse)
    await #expect(throws: SalvorError.self) { try await table.giveWay(to: begin(current: nil).message) }
    #expect(try await table.find(first.token, principal: Principal(name: "anna")).token == first.token)
  }

  @Test("a begin that proves the same database takes over its own")
  func takeOver() async throws {
    let table = SessionTable(ConversationMemory(), idleMilliseconds: 30_000, clock: clock, random: SystemRandom())
    let first = try await table.open(begin(current: sequence("b")), principal: Principal(name: "anna"))
    let second = try await table.open(begin(current: sequence("b")), principal: Principal(name: "anna"))
    await #expect(throws: SalvorError.self) { try await table.find(first.token, principal: Principal(name: "anna")) }
    #expect(try await table.find(second.token, principal: Principal(name: "anna")).token == second.token)
    await #expect(throws: SalvorError.self) {
      try await table.find(second.token, principal: Principal(name: "mallory"))
    }
  }

  @Test("a session that nobody continues is given up")
  func idle() async throws {
    let table = SessionTable(ConversationMemory(), idleMilliseconds: 30_000, clock: clock, random: SystemRandom())
    _ = try await table.open(begin(current: nil), principal: Principal(name: "anna"))
    clock.time += 30_001
    _ = try await table.open(begin(current: nil), principal: Principal(name: "anna"))
    #expect(try await table.count == 1)
  }
}
