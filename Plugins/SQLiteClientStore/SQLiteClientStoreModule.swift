import SQLiteSupport
import SalvorModel
import SalvorModuleKit
import SalvorStorage

extension SQLiteClientStore {
  /// What `salvor modules` shows of the module: its options with their defaults, what it guarantees, and the SQLite
  /// that is linked.
  public static let descriptor = ModuleDescriptor(
    kind: .clientStorage, name: "sqlite",
    summary: "The remote database is a SQLite file that any SQLite library reads and writes",
    options: [
      ModuleOption("path", type: "string", default: nil, "the database file, made where it is missing"),
      ModuleOption(
        "key", type: "string", default: "none",
        "what the file is encrypted with, for an SQLite that can encrypt; best from the environment: \"${NAME}\""),
    ],
    guarantees: [
      "captures every write of any stock SQLite of version 3.35 or later, in the writer's own transaction",
      "a reader never sees a half-applied download", "the sequence ID is durable before the first byte is sent",
    ], libraries: sqliteLibrary)

  /// The module `sqlite` of the kind `client-storage`.
  public static let factory = ModuleFactory(descriptor, product: (any ClientStore).self) { reader, context in
    guard let path = reader.path("path") else { return nil }
    let file = context.resolve(path)
    let key = reader.optionalString("key")
    if key?.isEmpty == true {
      reader.report("key", "is empty; give the database's key, or leave it out")
      return nil
    }
    if key != nil, !SQLiteConnection.canEncrypt {
      reader.warn(
        "key",
        "cannot be used here: the SQLite that is linked (\(sqliteLibrary["SQLite"] ?? "")) cannot encrypt, and a device's database is refused with it. Link one that can (docs/guides/encryption.md), or leave the key out."
      )
    }
    return {
      SQLiteClientStore(
        path: file, random: context.random, clock: context.clock, limits: context.limits,
        key: key.map { key in { @Sendable in key } })
    }
  }
}

extension SQLiteClientStore: SchemaExamining, FileDatabase {
  /// Nil: the database is in memory.
  public nonisolated var databaseFile: String? { isFile ? path : nil }

  /// Of all tables, the client's own too: what SQLite refuses, and conditions that would not hold alike in every SQLite.
  /// The store need not be open.
  public nonisolated func problems(in schema: Schema) -> [SchemaProblem] {
    TableTrial.problems(in: schema, ddl: Opening.ddl)
  }
}
