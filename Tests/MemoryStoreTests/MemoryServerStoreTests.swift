import MemoryStore
import SalvorContracts
import SalvorStorage
import Synchronization
import Testing

let memoryServer = StoreSubject<any ServerStore>(makeRestorable: {
  let database = MemoryServerDatabase()
  let copies = Mutex<[Int: MemoryServerDatabase]>([:])
  return RestorableDatabase(
    open: { MemoryServerStore(database) },
    copy: { slot in copies.withLock { $0[slot] = database.backup() } },
    putBack: { slot in
      let copy = try #require(copies.withLock { $0[slot] })
      database.restore(copy)
    })
}) {
  let database = MemoryServerDatabase()
  return { MemoryServerStore(database) }
}

@Suite struct MemoryServerStoreTests {
  @Test("ServerStoreContract", arguments: ServerStoreContract.cases)
  func keepsTheContract(_ rule: ServerStoreContract.Case) async throws {
    try await rule.run(memoryServer)
  }
}
