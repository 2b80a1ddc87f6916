import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

@Suite("salvor_queue before Salvor has looked at the file (remote-database.md)")
struct QueueViewTests {
  private static let schema = Schema(tables: [
    Table("note", primaryKey: ["id"], columns: [Column("id", .text), Column("body", .text, nullable: true)])
  ])

  @Test("the changes of a closed group have one id and its tag as soon as they are committed")
  func closedGroups() async throws {
    let bench = try await StoreBench(Self.schema)
    try bench.write("INSERT INTO note VALUES ('a', NULL)")
    try bench.write(
      "INSERT INTO salvor_request (tag) VALUES ('visit 17'); INSERT INTO note VALUES ('b', NULL); INSERT INTO note VALUES ('c', NULL); DELETE FROM salvor_request; INSERT INTO note VALUES ('d', NULL)"
    )
    try bench.write(
      "INSERT INTO salvor_request (tag) VALUES (NULL); UPDATE note SET body = 'x'; INSERT INTO salvor_request (tag) VALUES ('next'); INSERT INTO note VALUES ('e', NULL); DELETE FROM salvor_request"
    )
    try bench.write("INSERT INTO salvor_request (tag) VALUES ('open'); INSERT INTO note VALUES ('f', NULL)")
    let view = "SELECT id, key, operation, state, tag FROM salvor_queue ORDER BY counter"
    let before = try bench.read(view)
    #expect(before.map { $0[4] } == [nil, "visit 17", "visit 17", nil, nil, nil, nil, nil, "next", nil])
    #expect(Set(before.map { $0[0] }).count == 6)
    // What Salvor finds when it looks is the same.
    _ = try await bench.store.requests(in: [.queued], after: nil, limit: 100)
    #expect(try bench.read(view) == before)
    #expect(try bench.read("SELECT queued_changes FROM salvor_status") == [[10]])
    try bench.write("DELETE FROM salvor_request; INSERT INTO note VALUES ('g', NULL)")
    #expect(try bench.read(view).suffix(2).map { $0[4] } == ["open", nil])
  }
}
