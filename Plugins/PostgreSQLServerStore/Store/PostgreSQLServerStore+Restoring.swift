#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  extension PostgreSQLServerStore: RestorableServerStore {
    /// Always throws `usage`: PostgreSQL puts its databases back itself, and this module finds out.
    public func restore(from path: String, overAnotherServer: Bool) async throws -> ServerRestoration {
      throw SalvorError(
        .usage,
        "PostgreSQL puts its databases back itself: use pg_restore, or its recovery to a point in time (docs/guides/postgresql.md). The server finds out, also while it runs. Nothing was done with \(path)."
      )
    }

    /// Errors: `storage-busy` where a process has the database open, this one included, `usage` where it is no server's. Nothing was
    /// changed then.
    public func adoptNewID() async throws -> ServerRenaming {
      let new = ServerID(from: options.random)
      guard try await keeper.begin() else {
        // Its own lock is another one's, too.
        if (try? view()) == nil { await keeper.end() }
        throw SalvorError(
          .storageBusy, "A server has the database open. Nothing was changed. Stop each process that serves it first.")
      }
      do {
        let done = try await books.run { connection in
          try connection.transaction { try self.rename(to: new, connection) }
        }
        await books.close()
        await keeper.end()
        return done
      } catch {
        await books.close()
        await keeper.end()
        throw error
      }
    }

    /// Beside processes that serve it, too: one that refuses the tables takes them with its next attempt.
    public func takeRows() async throws -> String {
      let name = try await books.run { connection in
        try connection.transaction {
          let name = try self.requireServer(connection).name
          try connection.run(
            "INSERT INTO salvor_server (key, value) VALUES (?1, '1') ON CONFLICT (key) DO NOTHING",
            .text(Installation.takingRows))
          return name
        }
      }
      if (try? view()) == nil { await books.close() }
      return name
    }

    /// Beside processes that refuse it, too: they take it up with their next attempt.
    public func takeHistory(over timeline: Int64) async throws -> String {
      let name = try await books.run { connection in
        try connection.transaction {
          let name = try self.requireServer(connection).name
          let own = try HistoryFacts(connection).timeline ?? 0
          guard own < timeline else {
            throw SalvorError(
              .usage,
              "The database is of timeline \(own), which \(timeline) was not promoted over. Nothing was changed.")
          }
          try connection.run(
            "INSERT INTO salvor_server (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2",
            .text(HistoryFacts.overKey), .text("\(timeline)"))
          return name
        }
      }
      if (try? view()) == nil { await books.close() }
      return name
    }

    private func rename(to new: ServerID, _ connection: PostgreSQLConnection) throws -> ServerRenaming {
      let (name, before) = try requireServer(connection)
      try connection.run("UPDATE salvor_server SET value = ?1 WHERE key = 'id'", .text(new.text))
      // The state before the first commit has the server's own name.
      try connection.run("UPDATE salvor_commit SET id = ?1 WHERE number = 0", .text(new.text))
      if let ledger { try PurgeBook(connection).bring(ledger, new) }
      return ServerRenaming(before: before, now: new, database: name)
    }

    /// Throws `usage` where the database is no server's.
    private func requireServer(_ connection: PostgreSQLConnection) throws -> (name: String, id: ServerID) {
      let name = try connection.scalar("SELECT current_database()")?.string ?? ""
      let table = Value.text(Array("\(quoted(connection.settings.schema)).salvor_server".utf8))
      guard try connection.integer("SELECT to_regclass(?1) IS NOT NULL", table) == 1,
        let id = try connection.scalar("SELECT value FROM salvor_server WHERE key = 'id'")?.string.flatMap({
          ServerID($0)
        })
      else {
        throw SalvorError(
          .usage,
          "The database \(name) has no server's tables in the schema \(connection.settings.schema). Nothing was changed."
        )
      }
      return (name, id)
    }
  }
#endif
