import MemoryStore
import SalvorContracts
import SalvorStorage
import Testing

private let memoryServer = StoreSubject<any ServerStore>.inMemory(
  { MemoryServerDatabase() }, open: { MemoryServerStore($0) }, backup: { $0.backup() }, restore: { $0.restore($1) })

private let memoryClient = StoreSubject<any ClientStore> {
  let database = MemoryClientDatabase()
  return { MemoryClientStore(database) }
}

private let pair = StorePairSubject(client: sqliteClient, server: memoryServer)

/// Some histories look into each device's file after every step, too; with `SALVOR_FUZZ_SEED` all do.
private func audited(_ seed: UInt64) -> (LogAudit, StorePairSubject) {
  let audit = LogAudit()
  let isLookedAt = seed % 8 == 1 || environment("SALVOR_FUZZ_SEED") != nil
  return (audit, isLookedAt ? StorePairSubject(client: audit.client, server: memoryServer) : pair)
}
private let specification = StorePairSubject(client: memoryClient, server: memoryServer)

@Suite struct ContractTests {
  @Test("ClientStoreContract", arguments: ClientStoreContract.cases)
  func keepsTheContract(_ rule: ClientStoreContract.Case) async throws {
    try await rule.run(sqliteClient)
  }

  @Test("StorePairContract with the specification's server", arguments: StorePairContract.cases)
  func keepsThePairContract(_ rule: StorePairContract.Case) async throws {
    try await rule.run(pair)
  }

  /// SALVOR_FUZZ_SEED and SALVOR_FUZZ_COMPARISONS choose others; SALVOR_FUZZ_TRACE=1 prints every step.
  static let seeds: [UInt64] = (0..<(environment("SALVOR_FUZZ_COMPARISONS") ?? 40)).map {
    (environment("SALVOR_FUZZ_SEED") ?? 1) &+ $0
  }

  /// And those that differed once.
  private static func seeds(and mended: [UInt64]) -> [UInt64] {
    environment("SALVOR_FUZZ_SEED") == nil ? seeds + mended : seeds
  }

  @Test("random histories give what the specification gives", arguments: seeds)
  func agreesWithTheSpecification(_ seed: UInt64) async throws {
    let (audit, pair) = audited(seed)
    try await StoreComparison(subject: pair, specification: specification).run(seed: seed) { line in
      audit.look(line)
      if environment("SALVOR_FUZZ_TRACE") != nil { print(line) }
    }
  }

  @Test(
    "random histories of flag columns give what the specification gives (semantics 3)",
    arguments: seeds(and: [49, 57, 72, 190, 192, 202, 289]))
  func marksAsTheSpecification(_ seed: UInt64) async throws {
    let (audit, pair) = audited(seed)
    try await StoreComparison(subject: pair, specification: specification, about: .flags).run(seed: seed) { line in
      audit.look(line)
      if environment("SALVOR_FUZZ_TRACE") != nil { print(line) }
    }
  }

  @Test(
    "random histories of subscriptions that change give what the specification gives", arguments: seeds(and: [81, 97]))
  func subscribesAsTheSpecification(_ seed: UInt64) async throws {
    let (audit, pair) = audited(seed)
    try await StoreComparison(subject: pair, specification: specification, about: .subscriptions).run(seed: seed) {
      line in
      audit.look(line)
      if environment("SALVOR_FUZZ_TRACE") != nil { print(line) }
    }
  }

  @Test(
    "random histories with deferred foreign keys give what the specification gives (semantics 7)",
    arguments: seeds(and: [103, 119, 149, 154, 156, 179, 253, 288, 294]))
  func ordersAsTheSpecification(_ seed: UInt64) async throws {
    let (audit, pair) = audited(seed)
    try await StoreComparison(subject: pair, specification: specification, about: .circles).run(seed: seed) { line in
      audit.look(line)
      if environment("SALVOR_FUZZ_TRACE") != nil { print(line) }
    }
  }

  @Test(
    "random histories of servers that go back give what the specification gives (semantics 9)",
    arguments: seeds(and: [130]))
  func recoversAsTheSpecification(_ seed: UInt64) async throws {
    let (audit, pair) = audited(seed)
    try await RecoveryComparison(subject: pair, specification: specification).run(seed: seed) { line in
      audit.look(line)
      if environment("SALVOR_FUZZ_TRACE") != nil { print(line) }
    }
  }

  @Test(
    "random histories of devices that offer what a server lost give what the specification gives",
    arguments: seeds(and: [151, 239, 293, 297]))
  func offersAsTheSpecification(_ seed: UInt64) async throws {
    let (audit, pair) = audited(seed)
    try await RecoveryComparison(subject: pair, specification: specification, about: .healing).run(seed: seed) { line in
      audit.look(line)
      if environment("SALVOR_FUZZ_TRACE") != nil { print(line) }
    }
  }

  @Test(
    "random histories of flag columns and servers that go back give what the specification gives",
    arguments: seeds(and: [49, 53, 72, 84, 169, 295]))
  func recoversMarksAsTheSpecification(_ seed: UInt64) async throws {
    let (audit, pair) = audited(seed)
    try await RecoveryComparison(subject: pair, specification: specification, about: .flags).run(seed: seed) { line in
      audit.look(line)
      if environment("SALVOR_FUZZ_TRACE") != nil { print(line) }
    }
  }
}
