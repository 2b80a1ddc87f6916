import SalvorModel
import SalvorRecovery
import SalvorStorage
import SalvorTransport

/// A recovery strategy, with the stores of both sides that the suite runs it on.
public struct RecoverySubject: Sendable {
  /// The strategy under test. The suite's devices have no other strategy but one that waits.
  public var strategy: any RecoveryStrategy
  /// The client's stores recover (`RecoveringClientStore`). The server's recover, too, and give databases that go back in
  /// time (`StoreSubject.makeRestorable`).
  public var stores: StorePairSubject
  /// Makes the database of a closed client's store one that nobody can read any more (`local-corruption`).
  public var damage: @Sendable (any RecoveringClientStore) async throws -> Void
  /// The names of the strategies that the host has: those that a fall-back can be.
  public var known: Set<String>
  /// Of the places where a recovery can be struck, one in so many is; 1: all of them are.
  public var placeStride: Int

  /// By default no strategy counts as a fall-back but `manual`, and a recovery is struck at every place.
  public init(
    _ strategy: any RecoveryStrategy, stores: StorePairSubject, known: Set<String> = [], placeStride: Int = 1,
    damage: @escaping @Sendable (any RecoveringClientStore) async throws -> Void
  ) {
    self.strategy = strategy
    self.stores = stores
    self.known = known
    self.damage = damage
    self.placeStride = placeStride
  }
}

extension ContractSchemas {
  /// Parents and children, an integer key (the same key is a collision), and a table that never leaves the device.
  static let recovery = recovery(version: 1)

  /// The same after a destructive change: `site.city` is no longer nullable.
  static let recoveryChanged = recovery(version: 2)

  private static func recovery(version: Int64) -> Schema {
    Schema(
      version: version,
      tables: [
        Table(
          "site", primaryKey: ["id"],
          columns: [
            Column("id", .text), Column("name", .text), Column("city", .text, nullable: version == 1),
            Column("seats", .integer, defaultValue: 0),
          ]),
        Table(
          "visit", primaryKey: ["id"],
          columns: [Column("id", .text), Column("site_id", .text), Column("note", .text, nullable: true)],
          references: [Reference(column: "site_id", table: "site", onDelete: .cascade)]),
        Table("ticket", primaryKey: ["id"], columns: [Column("id", .integer), Column("title", .text)]),
        Table(
          "draft", maintained: .client, primaryKey: ["id"],
          columns: [Column("id", .text), Column("body", .text, nullable: true)]),
      ])
  }
}

/// A strategy that waits for a person, for suites whose subject is another one.
struct WaitingStrategy: RecoveryStrategy {
  let name = StrategyChain.manual
  let fallBack: String? = nil
  let guarantees = RecoveryGuarantees(
    unsyncedChanges: .untouched, clientOnlyTables: .untouched, settings: .untouched, needsServersConsent: false,
    survivesSchemaChange: true)
  func plan(for incident: Incident) -> RecoveryDecision { .steps([.copy, .wait]) }
}

/// Whoever asks is the same principal.
struct OnePrincipal: Authentication {
  static let name = "anna"
  func authenticate(_ request: TransportRequest) async throws -> Principal { Principal(name: Self.name) }
  func headers(credentials: [String: String]) throws -> [String: String] { [:] }
}

/// Time passes where somebody waits for it, and at once.
final class JumpingClock: Clock {
  private let offset = Mutex<Int64>(0)
  func now() -> Int64 { SystemClock().now() + offset.withLock { $0 } }
  func sleep(milliseconds: Int64) async throws { offset.withLock { $0 += milliseconds } }
  func pass(milliseconds: Int64) { offset.withLock { $0 += milliseconds } }
}
