import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

@Suite("A file that was large once gives its space back (semantics 8)")
struct SpaceTests {
  private static let schema = Schema(tables: [
    Table("note", primaryKey: ["id"], columns: [Column("id", .text), Column("text", .text, nullable: true)])
  ])

  /// 2,000 unsent inserts of 2 KB each that a recovery discards: they are kept entries of the archive.
  private func keepingBench(sql: String = "") async throws -> (bench: StoreBench, pages: Int64) {
    let bench = try await StoreBench(Self.schema, sql: sql)
    try bench.write(
      "WITH n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) INSERT INTO note SELECT 'n' || i, hex(randomblob(1000)) FROM n"
    )
    _ = try await bench.recover([.full(["note"])], bench.order(requests: .discard, shared: nil))
    #expect(try await bench.store.requests(in: [.kept], after: nil, limit: 3000).count == 2000)
    return (bench, try pages(bench))
  }

  private func pages(_ bench: StoreBench) throws -> Int64 { try bench.read("PRAGMA page_count")[0][0].integer ?? 0 }

  @Test("errors delete --kept gives the space of what it deletes back to the system")
  func emptiedArchive() async throws {
    let (bench, pages) = try await keepingBench()
    _ = try await bench.store.remove(.allKept)
    #expect(try self.pages(bench) < pages)
    #expect(try bench.read("PRAGMA integrity_check") == [["ok"]])
  }

  @Test("what a session leaves free goes back at its end")
  func sessions() async throws {
    let (bench, pages) = try await keepingBench()
    try bench.write("DELETE FROM salvor_archive")
    #expect(try self.pages(bench) == pages)
    _ = try await bench.store.beginSession(groups: nil)
    await bench.store.endSession()
    #expect(try self.pages(bench) < pages)
  }

  @Test("a file that the application has made is not made smaller: its rows stay where they are")
  func filesOfApplications() async throws {
    let (bench, pages) = try await keepingBench(sql: "CREATE TABLE own (id INTEGER PRIMARY KEY)")
    _ = try await bench.store.remove(.allKept)
    #expect(try self.pages(bench) >= pages)
  }
}
