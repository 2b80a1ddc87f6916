import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// Requests that are taken out, and rows that are made anew (semantics 8): what only a SQLite file shows.
@Suite struct RemovalTests {
  static let chain = Schema(tables: [
    Table(
      "node", primaryKey: ["id"],
      columns: [
        Column("id", .integer), Column("parent", .integer, nullable: true), Column("label", .text, nullable: true),
      ],
      references: [Reference(column: "parent", table: "node")])
  ])

  /// Every link after the first references the one before.
  private func chain(_ count: Int) async throws -> (bench: StoreBench, ids: [RequestID]) {
    let bench = try await StoreBench(Self.chain)
    let inserts = (1...count).map { "INSERT INTO node (id, parent) VALUES (\($0), \($0 == 1 ? "NULL" : "\($0 - 1)"))" }
    try bench.write(inserts.joined(separator: "; "))
    let stamp = try #require(try await bench.store.requests(in: [.queued], after: nil, limit: 1).first?.id.stamp)
    return (bench, (1...count).map { RequestID(stamp: stamp, counter: Int64($0)) })
  }

  @Test func aChainOfAThousandGoesFromTheWithdrawnLinkOn() async throws {
    let (bench, ids) = try await chain(1000)
    let report = try await bench.store.remove(.withdraw(ids[499]))
    #expect(report.requests.map(\.id) == Array(ids[499...]))
    #expect(report.rows.count == 501)
    #expect(try bench.read("SELECT count(*), max(id) FROM node") == [[499, 499]])
    #expect(try await bench.store.status().queued == 499)
    #expect(try bench.isWhole())
  }

  @Test func aChainOfAThousandIsReleasedWhenItsFirstLinkIsAccepted() async throws {
    let (bench, ids) = try await chain(1000)
    let session = try await bench.store.beginSession(groups: nil)
    let refused = ids.map { id in
      Refusal(
        counter: id.counter, stamp: id.stamp, reason: id == ids[0] ? .constraint : .blocked, message: "no",
        blockedBy: id == ids[0] ? nil : ids[0])
    }
    try await bench.accept(session, refusing: refused)
    #expect(try await bench.store.status().inError == 1000)
    _ = try await bench.store.retry([ids[0]])
    let again = try await bench.store.beginSession(groups: nil)
    #expect(again.upload?.lastCounter == 1001)
    try await bench.accept(again)
    #expect(try await bench.store.status().queued == 999)
    #expect(try await bench.store.status().inError == 0)
    let last = try await bench.store.beginSession(groups: nil)
    #expect(last.upload?.lastCounter == 1000)
    try await bench.accept(last)
    #expect(try await bench.store.status().queued == 0)
    #expect(try bench.read("SELECT count(*) FROM node") == [[1000]])
  }

  @Test func theApplicationsTriggersSeeWhatARemovalWrites() async throws {
    let bench = try await StoreBench(Self.chain)
    try bench.write(
      """
      CREATE TABLE seen (what TEXT);
      CREATE TRIGGER label_changes AFTER UPDATE OF label ON node BEGIN
        INSERT INTO seen VALUES (NEW.id || ' ' || ifnull(NEW.label, 'nothing'));
        UPDATE node SET parent = NULL WHERE id = 2 AND NEW.label = 'one';
      END;
      INSERT INTO node (id, label) VALUES (1, 'one'), (2, 'two'); UPDATE node SET parent = 1 WHERE id = 2;
      DELETE FROM seen
      """)
    try bench.write("UPDATE node SET label = 'changed' WHERE id = 1")
    let last = try #require(try await bench.store.requests(in: [.queued], after: nil, limit: 10).last)
    let report = try await bench.store.remove(.withdraw(last.id))
    #expect(report.rows == [RemadeRow(table: "node", key: [1])])
    #expect(try bench.read("SELECT what FROM seen") == [["1 changed"], ["1 one"]])
    // What the trigger wrote to a synchronized table meanwhile is undone.
    #expect(try bench.read("SELECT id, parent, label FROM node ORDER BY id") == [[1, nil, "one"], [2, 1, "two"]])
    #expect(try await bench.store.requests(in: [.queued], after: nil, limit: 10).count == 3)
  }

  @Test func twoProcessesTakeRequestsOutOfOneQueue() async throws {
    let (bench, ids) = try await chain(20)
    let other = SQLiteClientStore(path: bench.path)
    _ = try await other.open(ClientSetup(schema: Self.chain, principal: "anna"))
    #expect(try await other.requests(in: [.queued], after: nil, limit: 100).count == 20)
    _ = try await bench.store.remove(.withdraw(ids[15]))
    try bench.write("INSERT INTO node (id, parent) VALUES (30, 15)")
    let report = try await other.remove(.withdraw(ids[10]))
    #expect(report.requests.map(\.id.counter) == [11, 12, 13, 14, 15, 21])
    #expect(try await bench.store.plan(.withdraw(ids[0])).requests.count == 10)
    await other.close()
  }
}
