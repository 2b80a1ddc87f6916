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

  /// Whether a text may have any bytes: U+0000, and what is no UTF-8. A subject that says no is put through the same cases with texts
  /// that it can hold, and must refuse the others by name (`not-storable`).
  public var holdsAnyText: Bool

  /// Like `makeDatabase`, for histories in which a database goes back in time (`RecoveryComparison`).
  public var makeRestorable: (@Sendable () async throws -> RestorableDatabase<Store>)?

  /// By default the stores recover and hold any text, and no database goes back in time: the histories that need one cannot be run.
  public init(
    recovers: Bool = true, holdsAnyText: Bool = true,
    makeRestorable: (@Sendable () async throws -> RestorableDatabase<Store>)? = nil,
    makeDatabase: @escaping @Sendable () async throws -> Database
  ) {
    self.recovers = recovers
    self.holdsAnyText = holdsAnyText
    self.makeRestorable = makeRestorable
    self.makeDatabase = makeDatabase
  }

  /// Databases that are values in memory: fresh ones, and restorable ones.
  public static func inMemory<Content: Sendable>(
    _ make: @escaping @Sendable () -> Content, open: @escaping @Sendable (Content) -> Store,
    backup: @escaping @Sendable (Content) -> Content, restore: @escaping @Sendable (Content, Content) -> Void
  ) -> StoreSubject<Store> {
    StoreSubject(makeRestorable: {
      let database = make()
      let copies = Mutex<[Int: Content]>([:])
      return RestorableDatabase(
        open: { open(database) }, copy: { slot in copies.withLock { $0[slot] = backup(database) } },
        putBack: { slot in
          restore(database, try expectSome(copies.withLock { $0[slot] }, "a copy of the database"))
        })
    }) {
      let database = make()
      return { open(database) }
    }
  }

  /// The same databases, with every store wrapped: how broken doubles are made.
  public func wrapped(_ wrap: @escaping @Sendable (Store) -> Store) -> StoreSubject<Store> {
    let makeDatabase = makeDatabase
    var subject = StoreSubject(recovers: recovers, holdsAnyText: holdsAnyText) {
      let make = try await makeDatabase()
      return { wrap(try await make()) }
    }
    if let makeRestorable {
      subject.makeRestorable = {
        let database = try await makeRestorable()
        return RestorableDatabase(
          open: { wrap(try await database.open()) }, copy: database.copy, putBack: database.putBack)
      }
    }
    return subject
  }
}

/// A database that can be copied and put back, as a person does with a backup. No store is open meanwhile.
public struct RestorableDatabase<Store: Sendable>: Sendable {
  /// As `StoreSubject.makeDatabase` gives it.
  public var open: StoreSubject<Store>.Database
  /// Copies the database as it is to a slot; what was there is replaced.
  public var copy: @Sendable (_ slot: Int) async throws -> Void
  /// Puts the copy of a slot in place of the database. What stands beside the database stays.
  public var putBack: @Sendable (_ slot: Int) async throws -> Void

  /// All three closures are about one database: a fresh database for each `RestorableDatabase`.
  public init(
    open: @escaping StoreSubject<Store>.Database, copy: @escaping @Sendable (_ slot: Int) async throws -> Void,
    putBack: @escaping @Sendable (_ slot: Int) async throws -> Void
  ) {
    self.open = open
    self.copy = copy
    self.putBack = putBack
  }
}

extension RestorableDatabase where Store == any ServerStore {
  /// A database that its own store copies and puts back (`RecoveringServerStore.backup`, `RestorableServerStore.restore`).
  ///
  /// - Parameter freshPath: gives the path of a file that is not there yet, for a copy.
  public static func backedUp(
    freshPath: @escaping @Sendable () throws -> String, open: @escaping StoreSubject<Store>.Database
  ) -> RestorableDatabase<Store> {
    let copies = Mutex<[Int: String]>([:])
    return RestorableDatabase(
      open: open,
      copy: { slot in
        let path = try freshPath()
        let store = try expectSome(try await open() as? any RecoveringServerStore, "a server's store that backs up")
        try await store.backup(to: path)
        copies.withLock { $0[slot] = path }
      },
      putBack: { slot in
        let path = try expectSome(copies.withLock { $0[slot] }, "a copy of the database")
        let store = try expectSome(try await open() as? any RestorableServerStore, "a server's store that restores")
        _ = try await store.restore(from: path)
      })
  }
}

/// A client's storage and a server's, driven together without a transport.
public struct StorePairSubject: Sendable {
  /// Databases of devices. A case takes one for each device.
  public var client: StoreSubject<any ClientStore>
  /// Databases of servers. A case takes one.
  public var server: StoreSubject<any ServerStore>
  /// Both sides are independent: any client's store goes with any server's.
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
  /// The same seed gives the same numbers.
  public init(_ seed: UInt64) { state = seed }
  /// The next 64 random bits.
  public mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }

  /// A number from 0 to `bound - 1`, each equally likely. `bound` must be above 0.
  public mutating func below(_ bound: Int) -> Int { Int.random(in: 0..<bound, using: &self) }
  /// One of `items`, each equally likely. `items` must not be empty.
  public mutating func pick<Element>(_ items: [Element]) -> Element { items[below(items.count)] }
  /// True in `percent` of 100 cases; `percent` is from 0 to 100.
  public mutating func chance(_ percent: Int) -> Bool { below(100) < percent }
}
