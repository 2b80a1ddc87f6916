#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  extension PostgreSQLServerStore {
    /// The database as it was opened.
    struct View: Sendable {
      var setup: ServerSetup
      var opening: ServerOpening
      var catalog: Catalog
      /// The write-ahead log's place when it was opened: rows that no commit names were there then (`ReadReplica`).
      var place = ""
      /// Those that were there then, its own with them: a history that comes in the place of this one has none that begins after them.
      var incarnations: Set<IncarnationID> = []
      var logWidth: Int { Catalog.logWidth(of: catalog.tables) }
    }
  }
#endif
