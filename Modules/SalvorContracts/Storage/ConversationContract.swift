import SalvorModel
import SalvorStorage

/// The rules of a store that keeps conversations for several processes (Conversations.swift).
///
/// ```swift
/// @Test(arguments: ConversationContract.cases)
/// func keepsTheContract(_ rule: ConversationContract.Case) async throws { try await rule.run(subject) }
/// ```
public enum ConversationContract {
  /// The same conversations, as two processes reach them. For a store of one process both are one.
  public struct Subject: Sendable {
    /// The conversations as the first process reaches them.
    public var here: any ConversationKeeping
    /// The conversations as the second process reaches them. What `here` has put is seen here at once.
    public var there: any ConversationKeeping
    /// Both must be empty, and used by no other case: the cases count all that is there.
    public init(here: any ConversationKeeping, there: any ConversationKeeping) {
      self.here = here
      self.there = there
    }
  }

  /// One rule, for two ways to the same conversations.
  public typealias Case = ContractCase<Subject>

  private static func remote(_ digit: Character) -> RemoteID {
    RemoteID(unchecked: String(repeating: digit, count: 32))
  }

  private static func conversation(
    _ kind: Conversation.Kind, _ token: String, of remote: RemoteID = remote("1"), principal: String = "anna",
    subject: String = "{}", seen: Int64 = 1000
  ) -> Conversation {
    Conversation(
      kind: kind, token: token, remote: remote, principal: principal,
      subject: StoredSubject(bytes: Array(subject.utf8)),
      lastSeen: seen)
  }

  private static func tokens(_ keeping: any ConversationKeeping, _ kind: Conversation.Kind) async throws -> [String] {
    try await keeping.conversing(nil) { try $0.all(kind, of: remote("1")).map(\.token) }
  }

  /// One rule each: what is found, counted, touched, trimmed, and that bodies of one name wait for each other.
  public static let cases: [Case] = [
    Case("what one process puts another finds, to the byte", rule: "Conversations.swift, ConversationDesk") { subject in
      let text = #"{"begin":{"remote":"é漢"},"n":9007199254740993}"#
      try await subject.here.conversing("session") {
        try $0.put(conversation(.session, "t1", principal: "an'na\"", subject: text, seen: 1 << 52))
      }
      let found = try expectSome(try await subject.there.conversing(nil) { try $0.find("t1") }, "the conversation")
      try expectEqual(found.kind, .session, "its kind")
      try expectEqual(found.remote, remote("1"), "its remote")
      try expectEqual(found.principal, "an'na\"", "its principal")
      try expectEqual(found.subject.bytes, Array(text.utf8), "its subject")
      try expectEqual(found.lastSeen, 1 << 52, "its time")
      try expect(
        try await subject.there.conversing(nil) { try $0.find("t2") } == nil, "a token that nobody has is found")
    },
    Case("of a remote they come in the order of their beginning, each kind by itself", rule: "Conversations.swift") {
      subject in
      for (place, end) in [subject.here, subject.there, subject.here].enumerated() {
        try await end.conversing("recoveries") { try $0.put(conversation(.recovery, "r\(9 - place)", seen: 5000)) }
      }
      try await subject.there.conversing("session") { try $0.put(conversation(.session, "s")) }
      try expectEqual(try await tokens(subject.there, .recovery), ["r9", "r8", "r7"], "the recoveries")
      // It takes the place of the one with its token, and stays where that was.
      try await subject.there.conversing("recoveries") {
        try $0.put(conversation(.recovery, "r8", subject: "new", seen: 6000))
      }
      try expectEqual(try await tokens(subject.here, .recovery), ["r9", "r8", "r7"], "after one was put again")
      let changed = try await subject.here.conversing(nil) { try $0.find("r8") }
      try expectEqual(changed?.subject.bytes, Array("new".utf8), "the subject that was put again")
      try expectEqual(try await tokens(subject.here, .session), ["s"], "the sessions")
    },
    Case("they are counted by kind and by principal, and remotes are named once", rule: "Conversations.swift") {
      subject in
      try await subject.here.conversing("session") { desk in
        for (place, principal) in ["anna", "anna", "ben"].enumerated() {
          try desk.put(
            conversation(.recovery, "r\(place)", of: remote(place < 2 ? "1" : "2"), principal: principal, seen: 1000))
        }
      }
      let counts = try await subject.there.conversing(nil) { desk in
        try ["anna", "ben", "cleo", nil].map { try desk.count(.recovery, principal: $0) }
      }
      try expectEqual(counts, [2, 1, 0, 3], "of anna, ben, cleo, all")
      let none = try await subject.there.conversing(nil) { try $0.count(.session, principal: nil) }
      try expectEqual(none, 0, "sessions")
      let seen = try await subject.there.conversing(nil) { desk in
        try [1000, 1001].map { Set(try desk.remotes(.recovery, seenSince: $0)) }
      }
      try expectEqual(seen, [[remote("1"), remote("2")], []], "the remotes seen since")
    },
    Case("who is heard of stays, and who is not is forgotten", rule: "Conversations.swift") { subject in
      try await subject.here.conversing("session") { desk in
        for place in 1...4 {
          try desk.put(
            conversation(.session, "s\(place)", principal: place == 4 ? "ben" : "anna", seen: Int64(place) * 1000))
        }
        try desk.put(conversation(.recovery, "r", seen: 1000))
      }
      try await subject.there.conversing(nil) { try $0.touch("s1", at: 9000) }
      try await subject.there.conversing(nil) { try $0.touch(.session, principal: "anna", seenAfter: 2000, at: 9000) }
      try await subject.here.conversing(nil) { try $0.remove(.session, seenBefore: 4000) }
      try expectEqual(try await tokens(subject.there, .session), ["s1", "s3"], "the sessions that are left")
      try expectEqual(try await tokens(subject.there, .recovery), ["r"], "another kind")
      try await subject.there.conversing(nil) { try $0.remove("s3") }
      try await subject.there.conversing(nil) { try $0.remove("s3") }
      try await subject.there.conversing(nil) { try $0.touch("s3", at: 9999) }
      try expectEqual(try await tokens(subject.here, .session), ["s1"], "after one was removed, twice")
    },
    Case("of too many the longest unseen go, and none that was seen since", rule: "Conversations.swift, trim") {
      subject in
      try await subject.here.conversing("recoveries") { desk in
        for place in 1...6 { try desk.put(conversation(.recovery, "r\(place)", seen: Int64(7 - place) * 1000)) }
        try desk.trim(.recovery, to: 4, seenBefore: 3000)
      }
      try expectEqual(try await tokens(subject.there, .recovery), ["r1", "r2", "r3", "r4"], "two too many")
      try await subject.there.conversing("recoveries") { try $0.trim(.recovery, to: 1, seenBefore: 4000) }
      try expectEqual(
        try await tokens(subject.here, .recovery), ["r1", "r2"], "only those that were not seen since go")
    },
    Case("bodies of one name run one after the other, in whichever process", rule: "Conversations.swift, conversing") {
      subject in
      try await withThrowingTaskGroup(of: Void.self) { group in
        for number in 0..<20 {
          let end = number % 2 == 0 ? subject.here : subject.there
          group.addTask {
            try await end.conversing("counting") { desk in
              let count = try desk.count(.waiting, principal: nil)
              try desk.put(conversation(.waiting, "w\(count)", seen: Int64(count)))
            }
          }
        }
        try await group.waitForAll()
      }
      let count = try await subject.here.conversing(nil) { try $0.count(.waiting, principal: nil) }
      try expectEqual(count, 20, "each has met those before it")
    },
  ]
}
