import SalvorContracts
import Testing

/// Groups that come as files: databases of SQLite on disk, and the specification's, whose files are lines of a download.
@Suite struct SnapshotContractTests {
  @Test("SnapshotContract, SQLite", arguments: SnapshotContract.cases)
  func keepsTheContract(_ rule: SnapshotContract.Case) async throws {
    try await rule.run(SnapshotSubject(sqliteStores))
  }

  @Test("SnapshotContract, the specification", arguments: SnapshotContract.cases)
  func specificationKeepsTheContract(_ rule: SnapshotContract.Case) async throws {
    try await rule.run(SnapshotSubject(memoryStores))
  }

  @Test("a file of another kind of store is refused, and its group comes by rows")
  func refusesOthersFiles() async throws {
    for (server, client) in [(sqliteStores.server, memoryStores.client), (memoryStores.server, sqliteStores.client)] {
      try await SnapshotContract.refusesOthersFiles(SnapshotSubject(StorePairSubject(client: client, server: server)))
    }
  }

  private static func isCaught(_ stores: StorePairSubject) async -> Bool {
    for rule in SnapshotContract.cases {
      do { try await rule.run(SnapshotSubject(stores)) } catch { return true }
    }
    return false
  }

  @Test("the suite catches every server whose snapshots are wrong", arguments: BrokenServerStore.Fault.ofSnapshots)
  func catches(_ fault: BrokenServerStore.Fault) async {
    for var stores in [sqliteStores, memoryStores] {
      stores.server = stores.server.wrapped { BrokenServerStore($0, fault) }
      #expect(await Self.isCaught(stores))
    }
  }

  @Test("the suite catches every device that takes them over wrongly", arguments: BrokenClientStore.Fault.ofSnapshots)
  func catches(_ fault: BrokenClientStore.Fault) async {
    for var stores in [sqliteStores, memoryStores] {
      stores.client = stores.client.wrapped { BrokenClientStore($0, fault) }
      #expect(await Self.isCaught(stores))
    }
  }
}
