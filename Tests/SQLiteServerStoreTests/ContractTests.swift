import Foundation
import MemoryStore
import SQLiteServerStore
import SalvorContracts
import SalvorStorage
import Testing

/// What this run makes; removed at its end, since cases hold their databases until then.
private let scratch: URL = {
  atexit { try? FileManager.default.removeItem(at: scratch) }
  return FileManager.default.temporaryDirectory.appendingPathComponent("salvor-server-" + UUID().uuidString)
}()

/// A fresh directory for each database.
func freshDatabase(_ name: String = "consolidated.db") throws -> String {
  let directory = scratch.appendingPathComponent(UUID().uuidString)
  try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
  return directory.appendingPathComponent(name).path
}

let sqliteServer = StoreSubject<any ServerStore>(makeRestorable: {
  let path = try freshDatabase()
  return RestorableDatabase(
    open: { SQLiteServerStore(SQLiteServerStore.Options(path: path, durability: .normal)) },
    copy: { slot in try replace(path + ".\(slot)", with: path) },
    putBack: { slot in try replace(path, with: path + ".\(slot)") })
}) {
  let path = try freshDatabase()
  return { SQLiteServerStore(SQLiteServerStore.Options(path: path, durability: .normal)) }
}

/// As `cp` does, the write-ahead log included. What else stands beside a database stays.
private func replace(_ path: String, with other: String) throws {
  for suffix in ["", "-wal", "-shm"] {
    if FileManager.default.fileExists(atPath: path + suffix) {
      try FileManager.default.removeItem(atPath: path + suffix)
    }
    if suffix != "-shm", FileManager.default.fileExists(atPath: other + suffix) {
      try FileManager.default.copyItem(atPath: other + suffix, toPath: path + suffix)
    }
  }
}

private let memoryServer = StoreSubject<any ServerStore>.inMemory(
  { MemoryServerDatabase() }, open: { MemoryServerStore($0) }, backup: { $0.backup() }, restore: { $0.restore($1) })

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
  static let seeds = chosenSeeds(1...20)
  static let conflictSeeds = chosenSeeds(1...48)
  static let lostSeeds = chosenSeeds(1...5)

  private static func chosenSeeds(_ usual: ClosedRange<UInt64>) -> ClosedRange<UInt64> {
    let bounds = (ProcessInfo.processInfo.environment["SALVOR_SEEDS"] ?? "").split(separator: "-").compactMap {
      UInt64($0)
    }
    return bounds.count == 2 && bounds[0] <= bounds[1] ? bounds[0]...bounds[1] : usual
  }

  @Test("random histories end as the specification says (semantics 11.4)", arguments: seeds)
  func agreesWithTheSpecification(_ seed: UInt64) async throws {
    try await StoreComparison(
      subject: StorePairSubject(client: memoryClient, server: sqliteServer),
      specification: StorePairSubject(client: memoryClient, server: memoryServer)
    ).run(seed: seed) { step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }

  @Test("random histories of conflicts end as the specification says (semantics 7)", arguments: conflictSeeds)
  func settlesAsTheSpecification(_ seed: UInt64) async throws {
    try await StoreComparison(
      subject: StorePairSubject(client: memoryClient, server: sqliteServer),
      specification: StorePairSubject(client: memoryClient, server: memoryServer), about: .conflicts
    ).run(seed: seed) { step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }

  @Test("random histories of memberships end as the specification says (semantics 7)", arguments: seeds)
  func movesAsTheSpecification(_ seed: UInt64) async throws {
    try await StoreComparison(
      subject: StorePairSubject(client: memoryClient, server: sqliteServer),
      specification: StorePairSubject(client: memoryClient, server: memoryServer), about: .membership
    ).run(seed: seed) { step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }

  @Test("random histories of subscriptions that change end as the specification says (semantics 1)", arguments: seeds)
  func subscribesAsTheSpecification(_ seed: UInt64) async throws {
    try await StoreComparison(
      subject: StorePairSubject(client: memoryClient, server: sqliteServer),
      specification: StorePairSubject(client: memoryClient, server: memoryServer), about: .subscriptions
    ).run(seed: seed) { step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }

  /// 81, 97, 99, 141: a download that was cut goes on after an upload of rows that its device does not subscribe to. 54, 68, 93: a
  /// row of a table that is everyone's comes and goes in one transaction of another program. 201, 279: a kept request made a row and
  /// deleted it.
  @Test(
    "histories of subscriptions that ended otherwise once",
    arguments: [54, 68, 81, 93, 97, 99, 141, 201, 279] as [UInt64])
  func subscribesAsTheSpecificationNow(_ seed: UInt64) async throws {
    try await subscribesAsTheSpecification(seed)
  }

  /// 60, 73, 210: a row of a table that is everyone's came and went before anybody looked. 173: an upload changed a row and changed
  /// it back.
  @Test("histories of servers that go back that ended otherwise once", arguments: [60, 73, 173, 210] as [UInt64])
  func recoversAsTheSpecificationNow(_ seed: UInt64) async throws { try await recoversAsTheSpecification(seed) }

  /// A child of an insert that the server holds already, in a refused group.
  @Test("histories of conflicts that ended otherwise once", arguments: [1301] as [UInt64])
  func settlesAsTheSpecificationNow(_ seed: UInt64) async throws { try await settlesAsTheSpecification(seed) }

  /// A conflict version where the specification found no foreign change.
  @Test("histories with deferred foreign keys that ended otherwise once", arguments: [49] as [UInt64])
  func ordersAsTheSpecificationNow(_ seed: UInt64) async throws { try await ordersAsTheSpecification(seed) }

  /// 222, 234: what a device told of lost incarnations was forgotten where its upload was decided as a set.
  @Test("uploads with offers that ended otherwise once", arguments: [222, 234] as [UInt64])
  func healsAsTheSpecificationNow(_ seed: UInt64) async throws { try await healsAsTheSpecification(seed) }

  /// 62: a row that its sender made, hid and deleted in one request. 220, 248: an upload hid a row from its sender, and changed it.
  @Test("histories of memberships that ended otherwise once", arguments: [62, 220, 248] as [UInt64])
  func movesAsTheSpecificationNow(_ seed: UInt64) async throws { try await movesAsTheSpecification(seed) }

  @Test("random histories with deferred foreign keys end as the specification says (semantics 7)", arguments: seeds)
  func ordersAsTheSpecification(_ seed: UInt64) async throws {
    try await StoreComparison(
      subject: StorePairSubject(client: memoryClient, server: sqliteServer),
      specification: StorePairSubject(client: memoryClient, server: memoryServer), about: .circles
    ).run(seed: seed) { step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }

  @Test("random histories of servers that go back end as the specification says (semantics 9)", arguments: seeds)
  func recoversAsTheSpecification(_ seed: UInt64) async throws {
    try await RecoveryComparison(
      subject: StorePairSubject(client: memoryClient, server: sqliteServer),
      specification: StorePairSubject(client: memoryClient, server: memoryServer)
    ).run(seed: seed) { step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }

  @Test(
    "random histories of what a restore has lost end as the specification says (semantics 10)", arguments: lostSeeds)
  func givesBackAsTheSpecification(_ seed: UInt64) async throws {
    try await RecoveryComparison(
      subject: StorePairSubject(client: memoryClient, server: sqliteServer),
      specification: StorePairSubject(client: memoryClient, server: memoryServer), about: .healing
    ).run(seed: seed) { step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }

  @Test("random uploads with offers end as the specification says (semantics 10)", arguments: chosenSeeds(1...60))
  func healsAsTheSpecification(_ seed: UInt64) async throws {
    try await HealComparison(subject: sqliteServer, specification: memoryServer).run(seed: seed) { step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }
}
