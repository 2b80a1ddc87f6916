import MemoryStore
import SalvorContracts
import Testing

let memoryPair = StorePairSubject(client: memoryClient, server: memoryServer)

@Suite struct MemoryPairTests {
  @Test("StorePairContract", arguments: StorePairContract.cases)
  func keepsTheContract(_ rule: StorePairContract.Case) async throws {
    try await rule.run(memoryPair)
  }
}
