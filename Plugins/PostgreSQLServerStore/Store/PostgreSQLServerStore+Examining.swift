#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// What installing would refuse, told without installing.
  extension PostgreSQLServerStore: ExaminableServerStore {
    /// On a connection of its own: the store need not be open.
    public func examine(_ setup: ServerSetup) async throws -> StorageExamination {
      let options = options
      return try await StoreSession("examination", options.settings, StoreInterruption(), look: { _ in }).run {
        connection in
        defer { connection.close() }
        var installation = Installation(connection, setup, random: options.random, clock: options.clock)
        let facts = try connection.rows(
          "SELECT current_setting('server_version'), current_database()::text, current_user::text")[0]
        let (version, database, role) = (facts[0].description, facts[1].description, facts[2].description)
        return StorageExamination(
          description: "PostgreSQL \(version), database \(database), role \(role)",
          problems: try installation.examine())
      }
    }
  }
#endif
