import SalvorClient

// docs/guides/grdb.md

func open(path: String, schemaPath: String, session: Session) throws -> (DatabasePool, SalvorClient) {
  var configuration = Configuration()
  configuration.busyMode = .timeout(30)
  let pool = try DatabasePool(path: path, configuration: configuration)

  let client = try SalvorClient(
    database: path, schema: schemaPath, server: "https://sync.example.org",
    credentials: { Credentials(token: try await session.freshToken()) })
  return (pool, client)
}

func show(_ client: SalvorClient, _ pool: DatabasePool) -> Task<Void, any Error> {
  Task {
    for await event in client.events {
      guard case .rowsChanged(let changes) = event else { continue }
      try await pool.write { db in
        for change in changes { try db.notifyChanges(in: Table(change.table)) }
      }
    }
  }
}

func migrate(_ client: SalvorClient, _ migrator: DatabaseMigrator, _ pool: DatabasePool) async throws {
  try await client.withCapturePaused { try migrator.migrate(pool) }
}

func write(_ visit: Visit, _ lines: [Visit], _ pool: DatabasePool) throws {
  try pool.write { db in
    try db.execute(sql: "INSERT INTO salvor_request (tag) VALUES ('visit 17')")
    try visit.insert(db)
    for line in lines { try line.insert(db) }
    try db.execute(sql: "DELETE FROM salvor_request")
  }
}
