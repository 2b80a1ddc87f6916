import SalvorContracts
import Testing

/// Groups that come as files, on the stores that make and take them.
@Suite struct SnapshotContractTests {
  @Test("SnapshotContract", arguments: SnapshotContract.cases)
  func keepsTheContract(_ rule: SnapshotContract.Case) async throws {
    try await rule.run(SnapshotSubject(sqliteStores))
  }

  private static func isCaught(_ stores: StorePairSubject) async -> Bool {
    for rule in SnapshotContract.cases {
      do { try await rule.run(SnapshotSubject(stores)) } catch { return true }
    }
    return false
  }

  @Test("the suite catches every server whose snapshots are wrong", arguments: BrokenServerStore.Fault.ofSnapshots)
  func catches(_ fault: BrokenServerStore.Fault) async {
    var stores = sqliteStores
    stores.server = stores.server.wrapped { BrokenServerStore($0, fault) }
    #expect(await Self.isCaught(stores))
  }

  @Test("the suite catches every device that takes them over wrongly", arguments: BrokenClientStore.Fault.ofSnapshots)
  func catches(_ fault: BrokenClientStore.Fault) async {
    var stores = sqliteStores
    stores.client = stores.client.wrapped { BrokenClientStore($0, fault) }
    #expect(await Self.isCaught(stores))
  }
}
