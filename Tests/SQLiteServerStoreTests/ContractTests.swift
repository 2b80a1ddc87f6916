import Foundation
import MemoryStore
import SQLiteServerStore
import SalvorContracts
import SalvorStorage
import Testing

/// A fresh directory for each database; what a run leaves is the operating system's to clear.
func freshDatabase(_ name: String = "consolidated.db") throws -> String {
  let directory = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-server-" + UUID().uuidString)
  try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
  return directory.appendingPathComponent(name).path
}

let sqliteServer = StoreSubject<any ServerStore> {
  let path = try freshDatabase()
  return { SQLiteServerStore(SQLiteServerStore.Options(path: path, durability: .normal)) }
}

private let memoryServer = StoreSubject<any ServerStore> {
  let database = MemoryServerDatabase()
  return { MemoryServerStore(database) }
}

private let memoryClient = StoreSubject<any ClientStore> {
  let database = MemoryClientDatabase()
  return { MemoryClientStore(database) }
}

@Suite struct ContractTests {
  @Test("ServerStoreContract", arguments: ServerStoreContract.cases)
  func keepsTheContract(_ rule: ServerStoreContract.Case) async throws {
    try await rule.run(sqliteServer)
  }

  @Test("StorePairContract", arguments: StorePairContract.cases)
  func keepsThePairsContract(_ rule: StorePairContract.Case) async throws {
    try await rule.run(StorePairSubject(client: memoryClient, server: sqliteServer))
  }

  /// `SALVOR_SEEDS=from-to` runs others.
  static let seeds: ClosedRange<UInt64> = {
    let bounds = (ProcessInfo.processInfo.environment["SALVOR_SEEDS"] ?? "").split(separator: "-").compactMap {
      UInt64($0)
    }
    return bounds.count == 2 && bounds[0] <= bounds[1] ? bounds[0]...bounds[1] : 1...20
  }()

  @Test("random histories end as the specification says (semantics 11.4)", arguments: seeds)
  func agreesWithTheSpecification(_ seed: UInt64) async throws {
    try await StoreComparison(
      subject: StorePairSubject(client: memoryClient, server: sqliteServer),
      specification: StorePairSubject(client: memoryClient, server: memoryServer)
    ).run(seed: seed) { step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }
}
