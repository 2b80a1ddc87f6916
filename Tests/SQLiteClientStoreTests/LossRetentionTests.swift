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
