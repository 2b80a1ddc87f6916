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
      /// The incarnations that the database had when it was opened, with the one of this opening (decision 245).
      var incarnations: Set<IncarnationID> = []
      var logWidth: Int { Catalog.logWidth(of: catalog.tables) }
    }
  }
#endif
