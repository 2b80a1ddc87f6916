import MemoryStore
import SalvorContracts
import SalvorStorage
import Testing

let memoryServer = StoreSubject<any ServerStore> {
  let database = MemoryServerDatabase()
  return { MemoryServerStore(database) }
}

@Suite struct MemoryServerStoreTests {
  @Test("ServerStoreContract", arguments: ServerStoreContract.cases)
  func keepsTheContract(_ rule: ServerStoreContract.Case) async throws {
    try await rule.run(memoryServer)
  }
}
