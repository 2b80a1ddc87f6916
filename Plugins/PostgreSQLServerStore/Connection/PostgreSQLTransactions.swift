#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  extension PostgreSQLConnection {
    package func snapshot<Result>(_ body: () throws -> Result) throws -> Result {
      try transaction("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", body)
    }

    /// Runs `body` in a transaction: committed where it returns, rolled back where it or the commit throws.
    package func transaction<Result>(
      _ begin: String = "BEGIN ISOLATION LEVEL READ COMMITTED", _ body: () throws -> Result
    ) throws -> Result {
      do {
        // Several statements, perhaps: one that fails leaves the transaction open.
        try link.begin(begin)
        let result = try body()
        try execute("COMMIT")
        return result
      } catch {
        if isInTransaction { try? execute("ROLLBACK") }
        throw error
      }
    }

    package func savepoint<Result>(_ name: String, _ body: () throws -> Result) throws -> Result {
      try execute("SAVEPOINT \(quoted(name))")
      let numbered = link.numbered
      do {
        let result = try body()
        try execute("RELEASE \(quoted(name))")
        return result
      } catch {
        if isInTransaction { try? execute("ROLLBACK TO \(quoted(name)); RELEASE \(quoted(name))") }
        // What was numbered since is in the inbox again.
        link.numbered = numbered
        throw error
      }
    }
  }
#endif
