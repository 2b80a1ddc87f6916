import SalvorModel
import SalvorStorage

/// What a storage suite is run on: a way to get fresh databases of one storage module.
///
/// ```swift
/// let subject = StoreSubject<any ServerStore> {
///   let path = try freshPath()
///   return { SQLiteServerStore(path: path) }
/// }
/// ```
public struct StoreSubject<Store: Sendable>: Sendable {
  /// Gives the closure that makes a store on one database. Each call of that closure is a start of the program: it is
  /// called again, after `close`, where a case is about a restart. The stores are not open yet.
  public typealias Database = @Sendable () async throws -> Store

  /// A database that nobody has used before, and that no other case uses.
  public var makeDatabase: @Sendable () async throws -> Database

  /// Whether the stores recover (`RecoveringClientStore`, `RecoveringServerStore`). A subject that says no is not put
  /// through the cases about recovery, and must have none of it: nothing is left out in silence.
  public var recovers: Bool

  public init(recovers: Bool = true, makeDatabase: @escaping @Sendable () async throws -> Database) {
    self.recovers = recovers
    self.makeDatabase = makeDatabase
  }

  /// The same databases, with every store wrapped: how broken doubles are made.
  public func wrapped(_ wrap: @escaping @Sendable (Store) -> Store) -> StoreSubject<Store> {
    let makeDatabase = makeDatabase
    return StoreSubject(recovers: recovers) {
      let make = try await makeDatabase()
      return { wrap(try await make()) }
    }
  }
}

/// A client's storage and a server's, driven together without a transport.
public struct StorePairSubject: Sendable {
  public var client: StoreSubject<any ClientStore>
  public var server: StoreSubject<any ServerStore>
  public init(client: StoreSubject<any ClientStore>, server: StoreSubject<any ServerStore>) {
    self.client = client
    self.server = server
  }
}

extension ApplicationWrite {
  static func insert(_ table: String, _ values: KeyValuePairs<String, Value>) -> ApplicationWrite {
    .insert(table: table, values: values.map { NamedValue($0.key, $0.value) })
  }

  static func update(_ table: String, _ key: Key, _ values: KeyValuePairs<String, Value>) -> ApplicationWrite {
    .update(table: table, key: key, values: values.map { NamedValue($0.key, $0.value) })
  }

  static func delete(_ table: String, _ key: Key) -> ApplicationWrite { .delete(table: table, key: key) }
}

/// A seeded generator (SplitMix64), so that a random history can be run again.
public struct SeededGenerator: RandomNumberGenerator, Sendable {
  private var state: UInt64
  public init(_ seed: UInt64) { state = seed }
  public mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }

  public mutating func below(_ bound: Int) -> Int { Int.random(in: 0..<bound, using: &self) }
  public mutating func pick<Element>(_ items: [Element]) -> Element { items[below(items.count)] }
  public mutating func chance(_ percent: Int) -> Bool { below(100) < percent }
}
