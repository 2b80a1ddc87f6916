#if PostgreSQL
  import Foundation
  import MemoryStore
  import SQLiteClientStore
  import SalvorContracts
  import SalvorModel
  import SalvorStorage
  import Testing

  @testable import PostgreSQLServerStore

  /// The folder of one process, which remembers over restarts; gone with whoever has it.
  final class StateFolder: Sendable {
    let path: String
    init() throws {
      let place = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-state-\(UUID().uuidString)")
      try FileManager.default.createDirectory(at: place, withIntermediateDirectories: true)
      path = place.path
    }
    deinit { try? FileManager.default.removeItem(atPath: path) }
  }

  /// A database of its own each time. PostgreSQL stores no U+0000. It is copied and put back as a whole, while nobody has it open; the process's folder stays.
  let postgreSQLServer = StoreSubject<any ServerStore>(
    holdsAnyText: false,
    makeRestorable: {
      let cluster = try PrivateCluster.shared ?? PrivateCluster.another()
      let (database, folder) = (try PrivateDatabase(in: cluster), try StateFolder())
      return RestorableDatabase(
        open: {
          PostgreSQLServerStore(.init(url: database.settings.url, connections: 4, stateDirectory: folder.path))
        }, copy: { try cluster.copy(database.settings, to: "copy\($0)") },
        putBack: { try cluster.putBack(database.settings, from: "copy\($0)") })
    }
  ) {
    let database = try PrivateDatabase(in: PrivateCluster.shared ?? PrivateCluster.another())
    return { PostgreSQLServerStore(PostgreSQLServerStore.Options(url: database.settings.url, connections: 4)) }
  }

  private let memoryServer = StoreSubject<any ServerStore>.inMemory(
    { MemoryServerDatabase() }, open: { MemoryServerStore($0) }, backup: { $0.backup() }, restore: { $0.restore($1) })

  private let memoryClient = StoreSubject<any ClientStore> {
    let database = MemoryClientDatabase()
    return { MemoryClientStore(database) }
  }

  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"), .serialized)
  struct ContractTests {
    @Test("ServerStoreContract", arguments: ServerStoreContract.cases)
    func keepsTheContract(_ rule: ServerStoreContract.Case) async throws {
      try await rule.run(postgreSQLServer)
    }

    @Test("StorePairContract", arguments: StorePairContract.cases)
    func keepsThePairsContract(_ rule: StorePairContract.Case) async throws {
      try await rule.run(StorePairSubject(client: memoryClient, server: postgreSQLServer))
    }

    @Test("SnapshotContract", arguments: SnapshotContract.cases)
    func keepsTheContractOfSnapshots(_ rule: SnapshotContract.Case) async throws {
      let place = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-files-\(UUID().uuidString)")
      try FileManager.default.createDirectory(at: place, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(at: place) }
      let devices = StoreSubject<any ClientStore> {
        let path = place.appendingPathComponent(UUID().uuidString + ".db").path
        return { SQLiteClientStore(path: path) }
      }
      try await rule.run(
        SnapshotSubject(StorePairSubject(client: devices, server: postgreSQLServer)) {
          place.appendingPathComponent("snapshots").path
        })
    }

    /// `SALVOR_SEEDS=from-to` runs others.
    static let seeds: ClosedRange<UInt64> = {
      let bounds = (ProcessInfo.processInfo.environment["SALVOR_SEEDS"] ?? "").split(separator: "-").compactMap {
        UInt64($0)
      }
      return bounds.count == 2 && bounds[0] <= bounds[1] ? bounds[0]...bounds[1] : 1...3
    }()

    private func compare(_ seed: UInt64, about subject: StoreComparison.Theme) async throws {
      try await StoreComparison(
        subject: StorePairSubject(client: memoryClient, server: postgreSQLServer),
        specification: StorePairSubject(client: memoryClient, server: memoryServer), about: subject
      ).run(seed: seed) { step in
        if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
      }
    }

    @Test("random histories end as the specification says (semantics 11.4)", arguments: seeds)
    func agreesWithTheSpecification(_ seed: UInt64) async throws { try await compare(seed, about: .everything) }

    @Test("random histories of conflicts end as the specification says (semantics 7)", arguments: seeds)
    func settlesAsTheSpecification(_ seed: UInt64) async throws { try await compare(seed, about: .conflicts) }

    @Test("random histories of memberships end as the specification says (semantics 7)", arguments: seeds)
    func movesAsTheSpecification(_ seed: UInt64) async throws { try await compare(seed, about: .membership) }

    @Test("random histories of subscriptions that change end as the specification says (semantics 1)", arguments: seeds)
    func subscribesAsTheSpecification(_ seed: UInt64) async throws { try await compare(seed, about: .subscriptions) }

    @Test("random histories with references in circles end as the specification says (semantics 7)", arguments: seeds)
    func ordersAsTheSpecification(_ seed: UInt64) async throws { try await compare(seed, about: .circles) }

    private func compareRecovering(_ seed: UInt64, about subject: RecoveryComparison.Theme) async throws {
      try await RecoveryComparison(
        subject: StorePairSubject(client: memoryClient, server: postgreSQLServer),
        specification: StorePairSubject(client: memoryClient, server: memoryServer), about: subject
      ).run(seed: seed) { step in
        if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
      }
    }

    @Test(
      "random histories of a database that is put back and trimmed end as the specification says (semantics 5, 6)",
      arguments: seeds)
    func recoversAsTheSpecification(_ seed: UInt64) async throws {
      try await compareRecovering(seed, about: .everything)
    }

    @Test("random histories of what a restore has lost end as the specification says (semantics 10)", arguments: seeds)
    func healsAsTheSpecification(_ seed: UInt64) async throws { try await compareRecovering(seed, about: .healing) }
  }
#endif
