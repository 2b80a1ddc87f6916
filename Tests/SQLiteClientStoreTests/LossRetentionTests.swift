import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// What a device keeps for a server that goes back (semantics 10).
@Suite struct LossRetentionTests {
  private let incarnation = IncarnationID(unchecked: String(repeating: "e", count: 32))

  private func versions(_ bench: StoreBench) throws -> [Value] {
    try bench.read("SELECT DISTINCT version FROM salvor_history ORDER BY version").map { $0[0] }
  }

  @Test("versions and keys of deleted rows are forgotten below the floor, once they are also older than the retention")
  func floor() async throws {
    var bench = try await StoreBench(RecoveryTests.notes)
    _ = try await bench.download([("note", ["a", "1", nil])])
    _ = try await bench.download([("note", ["b", "1", nil])])
    _ = try await bench.download(deleted: [("note", ["b"])])
    let all = try versions(bench)
    #expect(all.contains(3))
    func remember(_ floor: Int64?, retention: Int64) async throws {
      _ = try await bench.store.remember(
        HealTerms(incarnation: incarnation, floor: floor), heal: .own, retention: retention)
    }
    // An hour: nothing is that old. Minus an hour: everything is.
    try await remember(3, retention: 3_600_000)
    try await remember(nil, retention: -3_600_000)
    #expect(try versions(bench) == all)
    try await remember(2, retention: -3_600_000)
    #expect(try versions(bench) == all.filter { $0.integer ?? 0 > 2 })
    try await remember(100, retention: -3_600_000)
    #expect(try versions(bench) == [])
  }

  @Test("conflict versions that are withheld are forgotten below the floor, once they are older than the retention")
  func withheldVersions() async throws {
    var bench = try await StoreBench(RecoveryTests.notes)
    for title in ["1", "2", "3"] { _ = try await bench.download([("note", ["a", .text(Array(title.utf8)), nil])]) }
    let now = try #require(try bench.read("SELECT max(at) FROM salvor_commit")[0][0].integer)
    try bench.write(
      """
      INSERT INTO salvor_kept (seq, first, last, stamp, t, op, slots, key, before, after, made, number, incarnation, parting, withheld)
        SELECT n, n, n, '\(String(repeating: "a", count: 32))', 1, 'update', '1', '["a"]', '["1"]', '["2"]', 1, 9, '\(incarnation)', 1,
          CASE n WHEN 100 THEN \(now - 1) WHEN 101 THEN \(now + 3600000) END
        FROM (SELECT 100 AS n UNION ALL SELECT 101 UNION ALL SELECT 102)
      """)
    func remember(_ floor: Int64?, retention: Int64) async throws -> [Value] {
      _ = try await bench.store.remember(
        HealTerms(incarnation: incarnation, floor: floor), heal: .off, retention: retention)
      return try bench.read("SELECT seq FROM salvor_kept ORDER BY seq").map { $0[0] }
    }
    #expect(try await remember(3, retention: 3_600_000) == [100, 101, 102], "younger than the retention")
    #expect(try await remember(nil, retention: -3_600_000) == [100, 101, 102], "no copy is listed")
    // The younger one is not covered, and one that is not withheld goes with the next upload.
    #expect(try await remember(3, retention: -3_600_000) == [101, 102])
  }

  @Test("losses that an earlier release wrote down without their versions are named once; nothing offers them")
  func formerLosses() async throws {
    var bench = try await StoreBench(RecoveryTests.notes)
    _ = try await bench.download([("note", ["a", "1", nil])])
    try bench.write("UPDATE note SET title = 'mine' WHERE id = 'a'")
    try await bench.accept(try await bench.store.beginSession(groups: nil))
    try bench.write(
      """
      INSERT INTO salvor_outstanding (first, last, state, reason, at) VALUES (900, 900, 'kept', 'lost-on-server', 1);
      INSERT INTO salvor_archive (seq, first, t, op, joined, slots, key, before, after)
        VALUES (900, 900, 1, 'update', 0, '1', '["a"]', '["1"]', '["mine"]');
      DROP INDEX salvor_archive_withheld;
      ALTER TABLE salvor_archive DROP COLUMN own;
      ALTER TABLE salvor_archive DROP COLUMN incarnation;
      ALTER TABLE salvor_archive DROP COLUMN number;
      ALTER TABLE salvor_archive DROP COLUMN parting;
      ALTER TABLE salvor_archive DROP COLUMN review;
      ALTER TABLE salvor_archive DROP COLUMN whole;
      """)
    await bench.store.close()
    for _ in 1...2 {
      _ = try await bench.store.open(ClientSetup(schema: bench.schema, principal: "anna"))
      let notes = try await bench.store.notes().map(\.text)
      #expect(notes.count == 1 && notes[0].contains("1 entry of the error archive") && notes[0].contains("reapply"))
      #expect(
        try await !bench.store.remember(HealTerms(incarnation: incarnation), heal: .all, retention: .max / 2))
      await bench.store.close()
    }
  }

  @Test("what the server says to wait is sent again when it holds fewer than this device knows of, and once")
  func sentAgain() async throws {
    let bench = try await StoreBench(RecoveryTests.notes, sql: "")
    try bench.write("INSERT INTO note VALUES ('n1', 'lost', NULL), ('n2', 'mine', NULL)")
    let (_, session) = try await bench.uploadText()
    let upload = try #require(session.upload)
    try bench.write("INSERT INTO salvor_offer (seq, incarnation, number, parting) VALUES (1, '\(incarnation)', 9, 5)")
    let results = UploadResults(commit: nil, acceptedRequests: 1, refused: [], waiting: [1...1])
    let report = try await bench.store.settle(sequence: upload.sequence, results: results)
    await bench.store.endSession()
    #expect([report.accepted, report.waiting] == [1, 1])
    #expect(try await bench.store.queued() == 1)
    func waits(_ count: Int64) async throws -> Bool {
      try await bench.store.remember(HealTerms(incarnation: incarnation, waiting: count), heal: .own, retention: 1)
    }
    #expect(try await !waits(1))
    #expect(try await bench.store.beginSession(groups: nil).upload == nil)
    await bench.store.endSession()
    #expect(try await waits(0))
    #expect(try await !waits(0))
    #expect(try await bench.uploadText().text.contains("lost"))
    await bench.store.endSession()
  }
}
