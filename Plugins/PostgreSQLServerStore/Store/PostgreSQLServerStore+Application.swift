#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// What another program does in the real tables, for tests and the contract.
  extension PostgreSQLServerStore {
    /// In the order of the primary key; empty for a client-only table. Errors: `usage` where the schema has no such
    /// table.
    public func rows(of table: String) async throws -> [Row] {
      let schema = try await present().setup.schema
      return try await reading { connection, catalog in
        guard let found = catalog.table(table) else {
          // A client-only table is none of the server's.
          if schema.table(table) != nil { return [] }
          throw Self.unknown(table)
        }
        return try connection.rows(
          "SELECT \(quotedNames(found.table.columns.map(\.name))) FROM \(found.sql) ORDER BY \(found.keyList())")
      }
    }

    /// Writes as a program beside Salvor, in one transaction. Errors: `usage` where the schema has no such synchronized
    /// table.
    public func write(_ writes: [ApplicationWrite]) async throws {
      let catalog = try await present().catalog
      try await books.run { connection in
        try connection.transaction { for write in writes { try Self.run(write, connection, catalog) } }
      }
    }

    private static func run(_ write: ApplicationWrite, _ connection: PostgreSQLConnection, _ catalog: Catalog) throws {
      func table(_ name: String) throws -> ServerTable {
        guard let table = catalog.table(name) else { throw unknown(name) }
        return table
      }
      switch write {
      case .insert(let name, let values):
        let slots = values.indices.map { "?\($0 + 1)" }.joined(separator: ", ")
        let target = try table(name).sql
        try connection.run(
          values.isEmpty
            ? "INSERT INTO \(target) DEFAULT VALUES"
            : "INSERT INTO \(target) (\(quotedNames(values.map(\.name)))) VALUES (\(slots))", values.map(\.value))
      case .update(let name, let key, let values):
        let table = try table(name)
        guard !values.isEmpty else { return }
        let sets = values.enumerated().map { "\(quoted($1.name)) = ?\($0 + 1)" }.joined(separator: ", ")
        let matches = table.keyMatches("x") { "?\(values.count + $0 + 1)" }
        try connection.run("UPDATE \(table.sql) AS x SET \(sets) WHERE \(matches)", values.map(\.value) + key)
      case .delete(let name, let key):
        let table = try table(name)
        try connection.run("DELETE FROM \(table.sql) AS x WHERE \(table.keyMatches("x") { "?\($0 + 1)" })", key)
      case .deferReferences: try connection.deferReferences()
      case .beginRequest, .endRequest: break
      }
    }

    private static func unknown(_ name: String) -> SalvorError {
      SalvorError(.usage, "The server has no synchronized table \(name). Check the name.", context: ["table": name])
    }
  }
#endif
