import Foundation
import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// Files of format 2 say in six tables what is known of one request; an opening makes it one row.
@Suite struct FormerRequestsTests {
  private static let schema = DependenceTests.schema
  private static let tables = [
    "salvor_range", "salvor_request_state", "salvor_upload_excluded", "salvor_restamped", "salvor_request_note",
    "salvor_request_history",
  ]

  /// Requests of each kind, and an upload under way that goes without those of one group.
  private func bench() async throws -> StoreBench {
    var bench = try await StoreBench(Self.schema)
    _ = try await bench.download((1...8).map { ("node", [.integer($0), .null, .integer($0)]) })
    // Refused, and blocked by it; one that is sent again at once, and one that is released by it.
    try bench.write("UPDATE node SET rank = 21 WHERE id = 1")
    try bench.write("UPDATE node SET rank = 22 WHERE id = 2")
    try bench.write("INSERT INTO node VALUES (12, 2, NULL)")
    let session = try await bench.store.beginSession(groups: nil)
    let sent = try await bench.store.requests(in: [.sent], after: nil, limit: 10)
    func refusal(_ place: Int, _ reason: RefusalReason, by: Int? = nil) -> Refusal {
      Refusal(
        counter: sent[place].id.counter, stamp: sent[place].id.stamp, reason: reason, message: "no",
        blockedBy: by.map { sent[$0].id })
    }
    try await bench.accept(
      session, refusing: [refusal(0, .constraint), refusal(1, .constraint), refusal(2, .blocked, by: 1)])
    _ = try await bench.store.retry([sent[1].id])
    let again = try await bench.store.beginSession(groups: nil)
    try await bench.accept(again)
    // A group with a tag, and a cascade.
    try bench.write("INSERT INTO salvor_request VALUES ('two rows'); UPDATE node SET rank = 23 WHERE id = 3")
    try bench.write("UPDATE node SET rank = 24 WHERE id = 4; DELETE FROM salvor_request")
    try bench.write("INSERT INTO node VALUES (13, 5, NULL); DELETE FROM node WHERE id = 5")
    try bench.write("INSERT INTO leaf VALUES (7, 1, NULL, 'a'); UPDATE node SET rank = 26 WHERE id = 6")
    try bench.write("UPDATE node SET rank = 27 WHERE id = 7")
    // What the server has now is in the way of one of them.
    _ = try await bench.download([("node", [20, nil, 26])])
    _ = try await bench.store.beginSession(groups: ["one"])
    return bench
  }

  private static func said(at path: String) throws -> [[[Value]]] {
    let connection = try SQLiteConnection(path)
    defer { connection.close() }
    return try ["salvor_queue", "salvor_error_archive", "salvor_status", "salvor_row_state"].map {
      try connection.rows("SELECT * FROM \($0)")
    }
  }

  private static func copy(_ path: String) throws -> String {
    let target = Scratch.path()
    for suffix in ["", "-wal"] where FileManager.default.fileExists(atPath: path + suffix) {
      try FileManager.default.copyItem(atPath: path + suffix, toPath: target + suffix)
    }
    return target
  }

  /// Opens a file and goes on with its upload: what is sent, and what is in the archive after its answer.
  private static func goOn(_ path: String) async throws -> [String] {
    let store = SQLiteClientStore(path: path)
    let opening = try await store.open(ClientSetup(schema: schema, principal: "anna"))
    #expect(opening == ClientOpening())
    var found: [String] = []
    func upload(refusing: Bool) async throws {
      let session = try await store.beginSession(groups: nil)
      guard let upload = session.upload else { return }
      let chunk = try #require(try await store.uploadChunk(after: 0, bytesTarget: 1 << 20))
      found.append(String(decoding: chunk.bytes, as: UTF8.self))
      let first = try await store.requests(in: [.sent, .unknownOutcome], after: nil, limit: 1)
      let commit = Commit(number: 100, id: CommitID(unchecked: String(repeating: "b", count: 32)))
      _ = try await store.settle(
        sequence: upload.sequence,
        results: UploadResults(
          commit: commit, acceptedRequests: 0,
          refused: refusing
            ? first.map { Refusal(counter: $0.id.counter, stamp: $0.id.stamp, reason: .constraint, message: "no") } : []
        ))
      await store.endSession()
    }
    try await upload(refusing: true)
    try await upload(refusing: false)
    let connection = try SQLiteConnection(path)
    for view in ["salvor_queue", "salvor_error_archive"] {
      // Requests that are released have a stamp of their own, which is drawn.
      let columns =
        "\"table\", key, operation, state, tag, counter, attempts"
        + (view == "salvor_queue" ? "" : ", reason, status, message, blocked_by, before, after")
      found += try connection.rows("SELECT \(columns) FROM \(view)").map { "\($0)" }
    }
    await store.close()
    return found
  }

  @Test("requests of a file of format 2 are what they were, and what is sent of them is the same")
  func sameAsBefore() async throws {
    let bench = try await bench()
    let before = try Self.said(at: bench.path)
    let present = try Self.copy(bench.path)
    try await bench.store.writeFormerRequests()
    await bench.store.close()
    for table in Self.tables { #expect(try bench.read("SELECT count(*) FROM \(table)")[0][0] != 0, "\(table)") }
    let former = try Self.copy(bench.path)
    let store = SQLiteClientStore(path: bench.path)
    #expect(try await store.open(ClientSetup(schema: Self.schema, principal: "anna")) == ClientOpening())
    await store.close()
    #expect(try Self.said(at: bench.path) == before)
    for table in Self.tables { #expect(try SQLiteConnection(bench.path).tableShape(table) == nil) }
    #expect(try bench.isWhole())
    let sent = try await Self.goOn(former)
    #expect(sent.count > 6)
    #expect(try await sent == Self.goOn(present))
  }

  @Test("a process that is killed while it brings a file over leaves it as it was")
  func killed() async throws {
    let bench = try await bench()
    let before = try Self.said(at: bench.path)
    try await bench.store.writeFormerRequests()
    await bench.store.close()
    let dying = try SQLiteConnection(bench.path)
    // What is written goes to the disk at once.
    try dying.execute("PRAGMA cache_size = 1; BEGIN IMMEDIATE")
    try dying.execute(StoreTables.tables)
    try FormerRequests(connection: dying).bringOver()
    let path = try Self.copy(bench.path)
    #expect((try FileManager.default.attributesOfItem(atPath: path + "-wal")[.size] as? Int ?? 0) > 0)
    try dying.execute("ROLLBACK")
    dying.close()
    #expect(try SQLiteConnection(path).tableShape("salvor_outstanding") == nil)
    let store = SQLiteClientStore(path: path)
    #expect(try await store.open(ClientSetup(schema: Self.schema, principal: "anna")) == ClientOpening())
    await store.close()
    #expect(try Self.said(at: path) == before)
  }

  @Test("a file of format 2 follows a schema that renames a table with marks beside it")
  func renamed() async throws {
    var bench = try await StoreBench(inspectionTables)
    _ = try await bench.download([("inspection", ["i", "x", nil]), ("answer", ["a", "i", "1"])])
    try bench.write("UPDATE inspection SET IsDeleted = 1 WHERE id = 'i'")
    try await bench.store.writeFormerRequests()
    await bench.store.close()
    var schema = inspectionTables
    schema.tables[2].name = "remark"
    schema.tables[2].renamedFrom = ["comment"]
    let opening = try await bench.store.open(ClientSetup(schema: schema, principal: "anna"))
    #expect(opening.restoredTriggers == [] && opening.adoptedRows == 0)
    #expect(try bench.read("SELECT notes FROM salvor_status") == [[nil]])
    try bench.write("UPDATE inspection SET IsDeleted = 0 WHERE id = 'i'")
    _ = try await bench.store.beginSession(groups: nil)
    await bench.store.endSession()
    #expect(try bench.read("SELECT count(*) FROM salvor_queue") == [[0]])
  }

  @Test("a file of format 2 whose capture is paused is brought over, and goes on")
  func paused() async throws {
    let bench = try await bench()
    await bench.store.endSession()
    _ = try await bench.store.pauseCapture()
    let before = try Self.said(at: bench.path)
    try await bench.store.writeFormerRequests()
    await bench.store.close()
    _ = try await bench.store.open(ClientSetup(schema: Self.schema, principal: "anna"))
    #expect(try Self.said(at: bench.path) == before)
    _ = try await bench.store.resumeCapture()
    #expect(try Self.said(at: bench.path)[0] == before[0])
  }
}
