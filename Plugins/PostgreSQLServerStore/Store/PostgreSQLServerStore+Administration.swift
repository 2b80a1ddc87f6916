#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// What operators ask and decide; what is older than the retention goes.
  extension PostgreSQLServerStore: FilesBesideDatabase {
    public var besidePrefix: String? { options.stateDirectory.map { $0 + "/postgresql" } }
  }

  extension PostgreSQLServerStore {
    public func remotes() async throws -> [RemoteRecord] {
      try await reading { connection, _ in try RemoteBook(connection: connection).all() }
    }

    public func remotes(_ query: RemoteQuery) async throws -> [RemoteRecord] {
      try await reading { connection, _ in try RemoteBook(connection: connection).page(query) }
    }

    public func remote(_ id: RemoteID) async throws -> RemoteRecord? {
      try await reading { connection, _ in try RemoteBook(connection: connection).remote(id) }
    }

    /// Whom an administrator keeps out, in the folder of this process. Nil: no folder is named.
    var blockList: BlockList? {
      besidePrefix.map { BlockList(path: $0 + blockListSuffix) }
    }

    public func deleteRemote(_ remote: RemoteID, block: Bool) async throws -> Bool {
      let now = options.clock.now()
      let (list, server) = (blockList, try await present().opening.serverID)
      let isDeleted = try await updating(remote.text) {
        guard let list else { return try RemoteBook(connection: $0).delete(remote, block: block, now: now) }
        return try list.delete(remote, block: block, $0, of: server, now: now)
      }
      try await removeLeftOver(remote)
      return isDeleted
    }

    public func conflicts(after id: Int64, limit: Int, state: ConflictState?) async throws -> [ConflictVersion] {
      try await reading { connection, catalog in
        try ConflictBook(RowReader(connection: connection, catalog: catalog)).list(
          after: id, limit: limit, state: state)
      }
    }

    public func conflict(_ id: Int64) async throws -> [ConflictRow] {
      try await reading { connection, catalog in
        try ConflictBook(RowReader(connection: connection, catalog: catalog)).rows(of: id)
      }
    }

    public func resolveConflict(_ id: Int64, keep: ConflictSide, by: String) async throws -> [ConflictVersion] {
      let now = options.clock.now()
      return try await writing { desk in
        // What it writes is numbered by the next look, as another program's.
        try Sealing(connection: desk.connection).leaveToOthers()
        return try ConflictBook(RowReader(connection: desk.connection, catalog: desk.catalog)).resolve(
          id, keep: keep, by: by, now: now)
      }
    }

    public func trim(before milliseconds: Int64) async throws {
      try await giveUpWaiting(before: milliseconds)
      try await writing { desk in
        _ = try desk.log.sweep()
        try Trimming(connection: desk.connection).begin(before: milliseconds)
        try BlobStaging(connection: desk.connection).forget(before: milliseconds)
        try ConflictBook(RowReader(connection: desk.connection, catalog: desk.catalog)).trim(before: milliseconds)
      }
      while try await writing({ try Trimming(connection: $0.connection).removeSome(before: milliseconds) }) {}
    }

    public func trimSettledConflicts(before milliseconds: Int64) async throws {
      try await writing { desk in
        try ConflictBook(RowReader(connection: desk.connection, catalog: desk.catalog)).trimSettled(
          before: milliseconds)
      }
    }
  }
#endif
