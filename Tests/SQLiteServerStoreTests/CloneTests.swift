import SQLiteServerStore
import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

/// Two copies of one device's file share the stamp of their next requests and count on from the same counter, so one request
/// ID may name two different changes: what was settled is known by its content, too (semantics 5).
@Suite struct CloneTests {
  private static let schema = Schema(tables: [
    Table(
      "note", primaryKey: ["id"],
      columns: [
        Column("id", .text), Column("text", .text, nullable: true), Column("seats", .integer, defaultValue: 1),
      ],
      check: ["seats < 100"])
  ])

  private struct Sent {
    var first: Int64
    var changes: [HandChange]
  }

  private func upload(_ desk: ServerDesk, _ stamp: RequestStamp, _ requests: [Sent]) async throws -> UploadResults {
    let device = try await desk.device()
    var writer = UploadChunkWriterBox(stamp: stamp)
    for request in requests {
      if request.changes.count > 1 { writer.group(request.first, request.first + Int64(request.changes.count) - 1) }
      for (place, change) in request.changes.enumerated() { writer.add(change, request.first + Int64(place)) }
    }
    return try await desk.store.process(
      ProcessRequest(
        remote: device.remote, sequence: SequenceID(from: SystemRandom()), principal: device.principal,
        chunks: [writer.chunk()]))
  }

  private func note(_ id: String, _ text: String, seats: Int64 = 1) -> HandChange {
    .insert("note", [("id", .text(id)), ("text", .text(text)), ("seats", .integer(seats))])
  }

  private func single(_ counter: Int64, _ change: HandChange) -> Sent { Sent(first: counter, changes: [change]) }

  private func rows(_ desk: ServerDesk) throws -> [String] {
    try desk.other().rows("SELECT id, text FROM note ORDER BY id").map { "\($0[0]) \($0[1])" }
  }

  @Test("the same ID with another content is a new request; with the same content it is settled, whichever came first")
  func sameID() async throws {
    let desk = try await ServerDesk(Self.schema)
    let stamp = RequestStamp(from: SystemRandom())
    let mine = (1...5).map { single(Int64($0), note("a\($0)", "mine")) }
    var its = (1...5).map { single(Int64($0), note("b\($0)", "its")) }
    // Both made this one before the copy.
    its[2] = mine[2]
    #expect(try await upload(desk, stamp, mine).acceptedRequests == 5)
    #expect(try await upload(desk, stamp, its).acceptedRequests == 5)
    #expect(
      try rows(desk) == ["a1 mine", "a2 mine", "a3 mine", "a4 mine", "a5 mine", "b1 its", "b2 its", "b4 its", "b5 its"])
    try desk.other().execute("DELETE FROM note")
    for requests in [mine, its, mine] {
      #expect(try await upload(desk, stamp, requests).acceptedRequests == 5)
      #expect(try rows(desk) == [])
    }
  }

  @Test("old values and what the change was made on make no difference; the operation, columns and new values do")
  func content() async throws {
    let desk = try await ServerDesk(Self.schema)
    try desk.other().execute("INSERT INTO note (id, text) VALUES ('n', 'before')")
    let stamp = RequestStamp(from: SystemRandom())
    func update(_ old: Value, _ new: Value) -> [Sent] { [single(1, .update("note", ["n"], [("text", old, new)]))] }
    func text() throws -> Value? { try desk.other().scalar("SELECT text FROM note") }
    _ = try await upload(desk, stamp, update("before", "one"))
    #expect(try text() == "one")
    try desk.other().execute("UPDATE note SET text = 'two'")
    _ = try await upload(desk, stamp, update("other", "one"))
    #expect(try text() == "two")
    _ = try await upload(desk, stamp, update("before", "three"))
    #expect(try text() == "three")
    _ = try await upload(desk, stamp, [single(1, .update("note", ["n"], [("seats", 1, 7)]))])
    #expect(try desk.other().scalar("SELECT seats FROM note") == 7)
    _ = try await upload(desk, stamp, [single(1, .delete("note", ["n"]))])
    #expect(try rows(desk) == [])
  }

  @Test("groups, small and large, and refusals: each is known again, and another content is not")
  func groups() async throws {
    let desk = try await ServerDesk(Self.schema)
    let stamp = RequestStamp(from: SystemRandom())
    let first = [
      single(1, note("a", "1")), Sent(first: 2, changes: [note("b", "1"), note("c", "1")]), single(4, note("d", "1")),
      single(5, note("e", "1", seats: 100)),
      Sent(first: 6, changes: (0..<100).map { note("f\($0)", "1") }), single(106, note("g", "1")),
    ]
    let one = try await upload(desk, stamp, first)
    #expect(one.acceptedRequests == 5)
    #expect(one.refused.map(\.counter) == [5])
    try desk.other().execute("DELETE FROM note")
    let again = try await upload(desk, stamp, first)
    #expect(again.acceptedRequests == 5)
    #expect(again.refused == one.refused)
    #expect(try rows(desk) == [])
    let other = try await upload(
      desk, stamp,
      [
        Sent(first: 2, changes: [note("b", "1"), note("c", "2")]), single(5, note("e", "2", seats: 100)),
        Sent(first: 6, changes: (0..<100).map { note("f\($0)", "2") }),
        // Counters within what were groups.
        single(107, note("h", "2")),
      ])
    #expect(other.acceptedRequests == 3)
    #expect(other.refused.map(\.counter) == [5])
    #expect(try rows(desk).count == 103)
    #expect(
      try await upload(desk, stamp, [single(3, note("i", "2")), single(50, note("j", "2"))]).acceptedRequests == 2)
    #expect(try rows(desk).count == 105)
  }

  @Test("many requests in one upload are kept in few rows of four bytes a request")
  func compact() async throws {
    let desk = try await ServerDesk(Self.schema)
    let stamp = RequestStamp(from: SystemRandom())
    let many = (1...70_000).map { single(Int64($0), note("n\($0)", "x")) }
    _ = try await upload(desk, stamp, many)
    let kept = try desk.other().rows("SELECT count(*), sum(length(contents)), max(last) FROM salvor_settled")
    #expect(kept == [[2, 280_000, 70_000]])
    try desk.other().execute("DELETE FROM note")
    #expect(try await upload(desk, stamp, many).acceptedRequests == 70_000)
    #expect(try rows(desk) == [])
  }

  @Test("what an earlier version settled is known by its ID alone")
  func earlierVersion() async throws {
    let desk = try await ServerDesk(Self.schema)
    let stamp = RequestStamp(from: SystemRandom())
    await desk.store.close()
    try desk.other().execute(
      """
      DROP TABLE salvor_settled;
      CREATE TABLE salvor_settled (
        stamp TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, remote TEXT NOT NULL, time INTEGER NOT NULL,
        refusal TEXT, PRIMARY KEY (stamp, first)) WITHOUT ROWID;
      INSERT INTO salvor_settled VALUES ('\(stamp)', 1, 3, 'r', 9000000000000, NULL);
      """)
    try await desk.restart()
    let sent = (2...4).map { single(Int64($0), note("n\($0)", "x")) }
    #expect(try await upload(desk, stamp, sent).acceptedRequests == 3)
    #expect(try rows(desk) == ["n4 x"])
  }
}
