import MemoryStore
import SalvorContracts
import SalvorStorage
import Testing

let memoryClient = StoreSubject<any ClientStore> {
  let database = MemoryClientDatabase()
  return { MemoryClientStore(database) }
}

@Suite struct MemoryClientStoreTests {
  @Test("ClientStoreContract", arguments: ClientStoreContract.cases)
  func keepsTheContract(_ rule: ClientStoreContract.Case) async throws {
    try await rule.run(memoryClient)
  }
}
