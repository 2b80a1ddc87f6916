#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport
  import SnapshotFiles

  extension PostgreSQLServerStore: SnapshotServerStore {
    public func changes(since commit: Commit, limit: Int64) async throws -> Int64? {
      try await ask(ReadScope(Principal(name: ""))) {
        try FeedPageMaker.changes($0.connection, since: commit, limit: limit)
      }
    }

    /// Errors: `configuration` where `path` is nil: the database has no file to stand beside.
    public func snapshotFolder(at path: String?) throws -> any SnapshotFolder {
      guard let path else {
        throw SalvorError(
          .configuration,
          "A database in PostgreSQL has no file that snapshots could stand beside. Name a folder: server.snapshots.path."
        )
      }
      return try SnapshotDirectory(path)
    }
  }
#endif
