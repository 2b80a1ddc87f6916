import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

@testable import SQLiteClientStore

/// Two syncs of one device are one after the other, whichever processes run them (semantics 4).
@Suite struct TurnTests {
  private func another(_ bench: StoreBench) async throws -> SQLiteClientStore {
    let store = SQLiteClientStore(path: bench.path)
    _ = try await store.open(ClientSetup(schema: bench.schema, principal: "anna"))
    return store
  }

  @Test("who has the turn keeps it over sessions and openings; the other one gets session-in-use until it is given")
  func oneAfterTheOther() async throws {
    let bench = try await StoreBench(ApplyTests.seats)
    let other = try await another(bench)
    try await bench.store.takeTurn()
    func expectRefused() async {
      await #expect { try await other.takeTurn() } throws: { ($0 as? SalvorError)?.code == .sessionInUse }
      await #expect { _ = try await other.beginSession(groups: nil) } throws: {
        ($0 as? SalvorError)?.code == .sessionInUse
      }
    }
    await expectRefused()
    _ = try await bench.store.beginSession(groups: nil)
    await bench.store.endSession()
    await expectRefused()
    // A recovery closes the database and opens it again.
    _ = try await bench.store.open(ClientSetup(schema: bench.schema, principal: "anna"))
    await expectRefused()
    await bench.store.giveTurn()
    try await other.takeTurn()
    await #expect { try await bench.store.takeTurn() } throws: { ($0 as? SalvorError)?.code == .sessionInUse }
    await other.close()
    try await bench.store.takeTurn()
    await bench.store.giveTurn()
  }

  @Test("who gets the turn knows what the one before did to the database")
  func catchesUp() async throws {
    let bench = try await StoreBench(ApplyTests.seats)
    let other = try await another(bench)
    try await bench.store.takeTurn()
    var schema = bench.schema
    schema.tables.append(Table("extra", primaryKey: ["id"], columns: [Column("id", .text)]))
    _ = try await bench.store.adopt(SyncConfig(schema))
    await bench.store.giveTurn()
    try await other.takeTurn()
    #expect(try await other.rows(of: "extra") == [])
    #expect(try await other.status().state.configDigest == bench.store.status().state.configDigest)
    await other.giveTurn()
  }

  @Test("another file in the place of the one that was opened is found")
  func anotherFile() async throws {
    let bench = try await StoreBench(ApplyTests.seats)
    try bench.write("INSERT INTO seat VALUES ('a', 1, NULL)")
    let other = try await StoreBench(ApplyTests.seats)
    let remote = try await other.store.status().state.remoteID
    await other.store.close()
    for suffix in ["", "-wal", "-shm", ".salvor-identity"] { unlink(bench.path + suffix) }
    rename(other.path, bench.path)
    try await bench.store.takeTurn()
    #expect(try await bench.store.status().state.remoteID == remote)
    #expect(try await bench.store.rows(of: "seat") == [])
    await bench.store.giveTurn()
  }

  @Test("a database that cannot be opened anew while somebody holds it is opened by the next call")
  func heldWhileItIsOpenedAnew() async throws {
    let bench = try await StoreBench(ApplyTests.seats)
    try bench.write("INSERT INTO seat VALUES ('a', 1, NULL)")
    // What was open is looked through again.
    try bench.write("CREATE INDEX own_seat ON seat (id)")
    let holder = try SQLiteConnection(bench.path, busyTimeoutMilliseconds: 120_000)
    try holder.execute("BEGIN IMMEDIATE")
    await #expect { try await bench.store.takeTurn() } throws: { ($0 as? SalvorError)?.code == .storageBusy }
    try holder.execute("ROLLBACK")
    #expect(try await bench.store.status().queued == 1)
    try await bench.store.takeTurn()
    await bench.store.giveTurn()
    #expect(try await bench.store.rows(of: "seat").count == 1)
  }
}
