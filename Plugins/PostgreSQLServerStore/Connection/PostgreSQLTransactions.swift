#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// Two that are equal: nobody has written the table between them, as far as PostgreSQL had heard.
  package struct TableWrites: Sendable, Hashable {
    var count: Int64
    /// They change where a table is emptied or rewritten.
    var files: String
  }

  extension PostgreSQLConnection {
    /// One that holds the head has a snapshot already.
    package func snapshot<Result>(_ body: () throws -> Result) throws -> Result {
      if link.numbered != nil { return try body() }
      return try transaction("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", body)
    }

    /// What PostgreSQL has counted of a table, with those that inherit from it. It hears of a write when its transaction is over, of some up to
    /// ten seconds later.
    func writes(of table: String) throws -> TableWrites {
      let found = try rows(
        """
        WITH RECURSIVE part (id) AS (SELECT oid FROM pg_class WHERE oid = to_regclass(?1)
          UNION SELECT i.inhrelid FROM pg_inherits i JOIN part p ON i.inhparent = p.id)
        SELECT sum(pg_stat_get_tuples_inserted(id) + pg_stat_get_tuples_updated(id) + pg_stat_get_tuples_deleted(id))::int8,
          string_agg(coalesce(pg_relation_filenode(id), 0)::text, ' ' ORDER BY id) FROM part
        """, .text(Array("\(quoted(settings.tablesIn)).\(quoted(table))".utf8)))
      return TableWrites(count: found.first?[0].integer ?? 0, files: found.first?[1].string ?? "")
    }

    /// `TRUNCATE` and an `ALTER TABLE` that rewrites a table show every later look the table of after them, whatever its snapshot. The catalog
    /// has the table's file as of the snapshot, and as it is.
    package func proveMoment(of tables: [String]) throws {
      guard !tables.isEmpty else { return }
      let slots = tables.indices.map { "to_regclass(?\($0 + 1))" }.joined(separator: ", ")
      let names = tables.map { Value.text(Array("\(quoted(settings.tablesIn)).\(quoted($0))".utf8)) }
      let found = try rows(
        """
        WITH RECURSIVE part (id) AS (SELECT oid FROM pg_class WHERE oid IN (\(slots))
          UNION SELECT i.inhrelid FROM pg_inherits i JOIN part p ON i.inhparent = p.id)
        SELECT c.relname::text FROM part JOIN pg_class c ON c.oid = part.id
        WHERE c.relfilenode <> 0 AND c.relfilenode IS DISTINCT FROM pg_relation_filenode(c.oid) LIMIT 1
        """, names)
      guard let table = found.first?[0].string else { return }
      throw SalvorError(
        .storageBusy, "Another program has emptied or rewritten \(table) meanwhile: try again.",
        context: ["sqlstate": "40001"])
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

    /// A key that may be proved later is proved with its statement all the same: who takes a value is known by that.
    package func deferReferences() throws {
      let keys = try scalar(
        """
        SELECT string_agg(DISTINCT format('%I.%I', n.nspname, c.conname), ', ') FROM pg_constraint c
          JOIN pg_namespace n ON n.oid = c.connamespace WHERE c.condeferrable AND c.contype IN ('p', 'u', 'x')
        """)?.string
      try execute("SET CONSTRAINTS ALL DEFERRED\(keys.map { "; SET CONSTRAINTS \($0) IMMEDIATE" } ?? "")")
    }
    package func checkReferences() throws { try execute("SET CONSTRAINTS ALL IMMEDIATE") }
    package var unresolved: SalvorError? {
      get throws {
        do {
          try attempt { try checkReferences() }
          return nil
        } catch let error as SalvorError where refusesRow(error) {
          return error
        }
      }
    }
  }
#endif
