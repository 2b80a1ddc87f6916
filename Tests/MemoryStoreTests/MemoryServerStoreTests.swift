import MemoryStore
import SalvorContracts
import SalvorStorage
import Testing

let memoryServer = StoreSubject<any ServerStore>.inMemory(
  { MemoryServerDatabase() }, open: { MemoryServerStore($0) }, backup: { $0.backup() }, restore: { $0.restore($1) })

@Suite struct MemoryServerStoreTests {
  @Test("ServerStoreContract", arguments: ServerStoreContract.cases)
  func keepsTheContract(_ rule: ServerStoreContract.Case) async throws {
    try await rule.run(memoryServer)
  }
}
