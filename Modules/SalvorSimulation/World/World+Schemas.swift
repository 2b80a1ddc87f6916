import SalvorModel

/// Versions of the server's schema, and what applications make of their own tables.
extension World {
  /// The server starts with the next version of its schema.
  func changeSchema(_ change: SchemaChange, number: Int) async throws {
    if serverSchema.version < newestSchema.version {
      coverage.meet("schema that was there before the restore")
      return try await startServer(with: newestSchema)
    }
    guard let next = serverSchema.changed(change, number: number) else { return }
    coverage.meet("schema \("\(change)".prefix { $0 != "(" })")
    try await startServer(with: next)
  }

  private func startServer(with next: DrawnSchema) async throws {
    await stopServer()
    for table in serverSchema.present where next.table(table.name)?.presence != .there { oracle.dropped(table.name) }
    serverSchema = next
    try await startServer()
  }

  /// Before the server starts on the copy of a slot: with the schema of then, as an operator does who puts back all that he has.
  func takeBackSchema(of slot: Int) {
    guard history.swarm.has(.schemaChanges), let then = backups[slot], then != serverSchema, generator.chance(50) else {
      return
    }
    coverage.meet("restore with the schema of then")
    serverSchema = then
  }

  /// A device has met a later schema than the server has now: it waits.
  var isBehind: Set<ErrorCode> { serverSchema.version < newestSchema.version ? [.schemaAhead] : [] }

  /// What tables and columns are called in a database; nil: as in the simulation.
  func names(in database: any SimulatedDatabase) throws -> SQLNames? {
    history.swarm.has(.schemaChanges) || history.swarm.has(.rebuilds) ? try SQLNames(database, newestSchema) : nil
  }

  /// Statements as a database takes them. What it has no table or column for is left out.
  func adapted(_ statements: [String], _ database: any SimulatedDatabase) throws -> [String] {
    guard let names = try names(in: database) else { return statements }
    return statements.compactMap(names.adapted)
  }

  /// An application rebuilds a table, as SQLite's documentation says, or changes a column of it.
  func rebuild(_ device: SimulatedDevice, _ table: Int, _ kind: Step.Rebuilding, pauses: Bool, number: Int) async throws
  {
    guard try device.isMade() else { return }
    let database = try device.database()
    guard let there = try names(in: database)?.tables[device.schema.tables[table].name] else { return }
    let triggers = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND name LIKE 'salvor%'"
    let count = try database.rows(triggers)
    let (before, statements) = (try device.contents(), try rebuilding(there, kind, database, number))
    try await expecting(device, allowing: [.usage, .recoveryRequired]) { client in
      if pauses { _ = try await client.pauseCapture() }
      do {
        // A transaction cannot switch them.
        try database.execute("PRAGMA foreign_keys = OFF")
        try database.execute("BEGIN IMMEDIATE")
        for statement in statements { try database.execute(statement) }
        try database.execute("COMMIT")
        coverage.meet("rebuilding \(kind.rawValue)\(pauses ? " with capture paused" : "")")
      } catch {
        trace.add("  \(device.name): \(shown(error))")
        if database.isInTransaction { try database.execute("ROLLBACK") }
      }
      try database.execute("PRAGMA foreign_keys = ON")
      guard pauses else { return }
      do {
        _ = try await client.resumeCapture()
      } catch let error as SalvorError where error.code == .schemaRefused && kind == .renamesColumn {
        trace.add("  \(device.name): \(shown(error))")
        try database.execute("ALTER TABLE \(there.name) RENAME COLUMN own\(number) TO \(there.columns["n"] ?? "n")")
        _ = try await client.resumeCapture()
      }
    }
    if try database.rows(triggers) != count { oracle.lostTriggers(device.number) }
    trace.add("  \(device.name): \(before.count) rows before, \(try device.contents().count) after")
  }

  private func rebuilding(
    _ table: SQLNames.Table, _ kind: Step.Rebuilding, _ database: any SimulatedDatabase, _ number: Int
  ) throws -> [String] {
    let column = table.columns["n"] ?? "n"
    switch kind {
    case .renamesColumn: return ["ALTER TABLE \(table.name) RENAME COLUMN \(column) TO own\(number)"]
    case .dropsColumn: return ["ALTER TABLE \(table.name) DROP COLUMN \(column)"]
    case .addsGenerated:
      return [
        "ALTER TABLE \(table.name) ADD COLUMN own\(number) TEXT GENERATED ALWAYS AS (upper(\(table.columns["note"] ?? "note"))) VIRTUAL"
      ]
    case .rebuildsTable:
      let query = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = '\(table.name)'"
      guard let sql = try database.rows(query).first?.first?.string, let parenthesis = sql.firstIndex(of: "(") else {
        return []
      }
      let columns = try database.rows("SELECT name FROM pragma_table_info('\(table.name)')").map {
        "\"\($0[0].description)\""
      }.joined(separator: ", ")
      return [
        "CREATE TABLE rebuilt \(sql[parenthesis...])",
        "INSERT INTO rebuilt (\(columns)) SELECT \(columns) FROM \(table.name)", "DROP TABLE \(table.name)",
        "ALTER TABLE rebuilt RENAME TO \(table.name)",
      ]
    }
  }
}
