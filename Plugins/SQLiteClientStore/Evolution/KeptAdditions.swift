import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Tables and columns that a schema file of the application's added before its server had them. They stay as they are when that file is
/// withdrawn: they are captured, and what is written in them waits, until a server's schema has them or names them in `dropped`
/// (decision 214).
struct KeptAdditions {
  private let connection: SQLiteConnection
  let tables: [Table]
  /// Those that no schema names, as a person was told last.
  private let told: Set<String>

  init(_ connection: SQLiteConnection) throws {
    self.connection = connection
    let known = try connection.text(.added).map { try JSONValue(parsing: Array($0.utf8)) }
    tables = try (known?.optionalArray("tables") ?? []).map(TableDefinition.table)
    told = Set((try known?.optionalArray("withdrawn") ?? []).compactMap(\.string))
  }

  /// Those of a device that has had no SyncConfig: whole tables that its file named until now, and where that was of a later version, which
  /// is withdrawn, columns. A column that a file of no earlier version lacks is refused by name: it may have been renamed.
  ///
  /// - Parameters:
  ///   - own: the application's schema.
  ///   - before: the tables as `last` has defined them.
  ///   - last: the configuration that the tables were brought in line with; nil: the device is new.
  func beside(_ own: Schema, _ before: [Table], last: SyncConfig?) throws -> [Table] {
    let added = try before.filter { table in
      try own.table(table.name) == nil && own.tables.table(formerly: table.name) == nil
        && connection.tableShape(table.name) != nil
    }
    guard let last, own.version < last.schemaVersion else { return tables + added }
    let withdrawn = SyncConfig(own).added(in: Schema(tables: before)).filter {
      own.tables.table(formerly: $0.name) != nil
    }
    return tables + added + withdrawn
  }

  /// Notes what the device has beyond its server's schema. In the transaction that brought the tables in line.
  ///
  /// - Returns: notices, of what no schema names any more since the last time.
  func note(_ context: StoreContext) throws -> [String] {
    let config = context.config
    let added = config.added(in: context.schema)
    guard !added.isEmpty || !tables.isEmpty else { return [] }
    let named = Set(config.addedNames(in: config.schema(own: context.own)))
    let withdrawn = config.addedNames(in: context.schema).filter { !named.contains($0) }
    let noted: JSONValue = [
      "tables": .array(added.map(TableDefinition.json)), "withdrawn": .array(withdrawn.map(JSONValue.string)),
    ]
    try connection.setState(.added, added.isEmpty ? nil : noted.text)
    return withdrawn.filter { !told.contains($0) }.map { name in
      let what = name.contains(".") ? "column" : "table"
      return
        "\(name) came with an earlier schema file of this device's. The present one (version \(context.own.version)) does not have the \(what), and neither does the server's schema (version \(config.schemaVersion)). It stays with its values, and what was written to it waits here (salvor queue lists it) until the server's schema has it. To give it up, name it in `dropped` of a later schema of the server's."
    }
  }
}
