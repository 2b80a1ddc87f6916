import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// The log says what applications did, and nobody writes it again (docs/architecture/settlement.md, *The log*).
@Suite struct LogTests {
  @Test(
    "the log stays, and what it does not say is stored, on random histories", arguments: 1...25 as ClosedRange<UInt64>)
  func theLogStays(_ seed: UInt64) async throws {
    let audit = LogAudit()
    var history = try await History(seed)
    // Longer where nothing was stored yet.
    for step in 0..<120 where step < 40 || history.storedRows == 0 {
      try await history.step()
      try audit.look(at: history.bench.path)
      if step % 8 == 7 { try await history.passesThroughTheFormerFormat() }
    }
    #expect(try history.bench.read("PRAGMA integrity_check") == [["ok"]])
    #expect(history.storedRows > 0)
  }

  @Test(
    "a mark whose row has changed at the server is taken back as what it is now, in a file of format 1, too",
    arguments: [false, true])
  func aMarkOverAnotherBase(former: Bool) async throws {
    var bench = try await StoreBench(inspectionTables)
    _ = try await bench.download([
      ("inspection", ["i", "x", nil]), ("answer", ["a", "i", "1"]), ("comment", ["c", "a", "t"]),
      ("comment", ["d", "a", "t"]),
    ])
    try bench.write("UPDATE inspection SET IsDeleted = 1 WHERE id = 'i'")
    // Of what the mark took along one row is another one at the server, and one is gone.
    _ = try await bench.download(
      [("inspection", ["i", "y", nil]), ("comment", ["c", "a", "u"])], deleted: [("comment", ["d"])])
    #expect(try bench.read("SELECT count(*) FROM salvor_base")[0][0] == 3)
    if former {
      try await bench.store.writeFormerFormat()
      await bench.store.close()
      _ = try await bench.store.open(ClientSetup(schema: inspectionTables, principal: "anna"))
      #expect(try bench.read("SELECT notes FROM salvor_status") == [[nil]])
    }
    try bench.write("UPDATE inspection SET IsDeleted = 0 WHERE id = 'i'")
    #expect(try bench.read("SELECT id, title FROM inspection") == [["i", "y"]])
    #expect(try bench.read("SELECT id, note FROM answer") == [["a", "1"]])
    #expect(try bench.read("SELECT id, text FROM comment") == [["c", "u"]])
    _ = try await bench.store.beginSession(groups: nil)
    await bench.store.endSession()
    #expect(try bench.read("SELECT operation, \"key\" FROM salvor_queue") == [["delete", "d"]])
    try LogAudit().look(at: bench.path)
  }

  @Test("a file of format 1 opens with a schema that drops a column on which others wait")
  func aColumnIsDropped() async throws {
    var bench = try await StoreBench(DependenceTests.schema)
    _ = try await bench.download([("node", [1, nil, 1]), ("node", [2, nil, 2])])
    try bench.write("UPDATE node SET up = 1, rank = 3 WHERE id = 1; DELETE FROM node WHERE id = 2")
    _ = try await bench.download([("node", [1, 1, 4])])
    try await bench.store.writeFormerFormat()
    await bench.store.close()
    var schema = DependenceTests.schema
    schema.tables[0].columns.remove(at: 1)
    schema.tables[0].references = []
    schema.tables[0].dropped = ["up"]
    _ = try await bench.store.open(ClientSetup(schema: schema, principal: "anna"))
    let waiting = try await bench.store.requests(in: [.queued], after: nil, limit: .max)
    #expect(waiting.map(\.before) == [[NamedValue("rank", 1)], [NamedValue("id", 2), NamedValue("rank", 2)]])
    #expect(waiting.map(\.after) == [[NamedValue("rank", 3)], []])
    let timelines = try await bench.store.timelines()
    #expect(
      timelines.values.compactMap(\.base).sorted { $0[0].integer ?? 0 < $1[0].integer ?? 0 } == [[1, 4], [2, 2]])
  }

  /// Writes, downloads, uploads of which some are refused, deleted errors and retries.
  private struct History {
    var bench: StoreBench
    var random: Seeded
    var storedRows: Int64 = 0

    init(_ seed: UInt64) async throws {
      random = Seeded(seed)
      bench = try await StoreBench(DependenceTests.schema)
    }

    mutating func step() async throws {
      let store = bench.store
      switch random.below(10) {
      case 0...3: write()
      case 4, 5: try await download()
      case 6, 7:
        write()
        let session = try await bench.uploadText(bytesTarget: 200).session
        // What is written, and what comes, while the upload is under way.
        write()
        let sent = try await store.requests(in: [.sent], after: nil, limit: .max)
        var random = random
        let refused = Dictionary(grouping: sent, by: \.id).keys.sorted { $0.counter < $1.counter }.filter { _ in
          random.oneIn(3)
        }
        self.random = random
        try await bench.accept(
          session,
          refusing: refused.map { Refusal(counter: $0.counter, stamp: $0.stamp, reason: .constraint, message: "no") })
      case 8:
        let waiting = try await store.requests(in: [.queued], after: nil, limit: .max)
        _ = try? await store.remove(
          waiting.last.map { random.oneIn(2) ? .withdraw($0.id) : .archive(nil) } ?? .archive(nil))
      default: _ = try? await store.retry(nil)
      }
      storedRows +=
        try bench.read("SELECT (SELECT count(*) FROM salvor_base) + (SELECT count(*) FROM salvor_value)")[0][0].integer
        ?? 0
    }

    private mutating func write() {
      for _ in 0..<3 {
        let statements = (0...random.below(3)).map { _ in DependenceTests.statement(&random) }
        // A reference may be broken: then nothing is written.
        try? bench.write(statements.joined(separator: "; "))
      }
    }

    private mutating func download() async throws {
      func number() -> Value { .integer(Int64(1 + random.below(6))) }
      var rows: [(String, Row)] = []
      for _ in 0..<random.below(3) { rows.append(("node", [number(), .null, random.oneIn(2) ? .null : number()])) }
      let deleted: [(String, Key)] = random.oneIn(3) ? [("node", [number()])] : []
      do {
        _ = try await bench.download(rows, deleted: deleted.filter { key in !rows.contains { $0.1[0] == key.1[0] } })
      } catch let error as SalvorError where error.code == .inconsistentDownload {
        try await bench.store.discardStaged()
      }
    }

    /// What format 1 said in another way is read as the same.
    mutating func passesThroughTheFormerFormat() async throws {
      let before = try await bench.store.timelines()
      let views = ["salvor_queue", "salvor_error_archive", "salvor_status", "salvor_row_state"]
      let said = try views.map { try bench.read("SELECT * FROM \($0)") }
      try await bench.store.writeFormerFormat()
      await bench.store.close()
      _ = try await bench.store.open(ClientSetup(schema: DependenceTests.schema, principal: "anna"))
      let after = try await bench.store.timelines()
      for ref in Set(before.keys).union(after.keys) { #expect(after[ref] == before[ref]) }
      #expect(try views.map { try bench.read("SELECT * FROM \($0)") } == said)
      try LogAudit().look(at: bench.path)
    }
  }
}
