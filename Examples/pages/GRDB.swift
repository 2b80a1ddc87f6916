// What docs/guides/grdb.md uses of GRDB 7, with its names and signatures, and nothing behind them.

struct Configuration: Sendable {
  enum BusyMode: Sendable {
    case immediateError
    case timeout(Double)
  }
  var busyMode = BusyMode.immediateError
}

struct Table: Sendable {
  let name: String
  init(_ name: String) { self.name = name }
}

final class Database {
  func execute(sql: String) throws {}
  func notifyChanges(in table: Table) throws {}
}

final class DatabasePool: Sendable {
  init(path: String, configuration: Configuration = Configuration()) throws {}
  func write<Result>(_ updates: (Database) throws -> Result) throws -> Result { try updates(Database()) }
  func write<Result: Sendable>(_ updates: @Sendable (Database) throws -> Result) async throws -> Result {
    try updates(Database())
  }
}

struct DatabaseMigrator: Sendable {
  func migrate(_ writer: DatabasePool) throws {}
}

struct Visit: Sendable {
  func insert(_ db: Database) throws {}
}
