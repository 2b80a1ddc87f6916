#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// The ledger stands in the database, and in the folder of each process: none of these goes back with the database.
  extension PostgreSQLServerStore: PurgingServerStore {
    /// Errors: `usage` where no `stateDirectory` is named: after a restore nobody would know of the purge.
    public func purge(_ keys: [Key], of table: String) async throws -> PurgeReport {
      let ledger = try keptLedger()
      let (random, now) = (options.random, options.clock.now())
      let server = try await present().opening.serverID
      // What other programs have committed gets its number first, by itself.
      _ = try await sweep()
      let (report, head) = try await writing { desk in
        let place = try Purge.place(of: table, desk.catalog)
        let keys = desk.catalog.tables[place].canonical(keys)
        let book = try PurgeBook(desk.connection).keyed(random)
        var purge = Purge(desk.connection, desk.catalog)
        for key in keys { try purge.erase(place, key) }
        try purge.forgetOnTheWay()
        let report = try purge.note(in: book, ledger, at: now, server)
        return (report, try desk.log.sweep())
      }
      noteSeen(head)
      return report
    }

    /// Errors: as `purge`.
    public func releasePurged(_ keys: [Key], of table: String) async throws -> Int64 {
      let ledger = try keptLedger()
      let now = options.clock.now()
      let server = try await present().opening.serverID
      return try await writing { desk in
        let place = try Purge.place(of: table, desk.catalog)
        let table = desk.catalog.tables[place]
        let keys = try table.canonical(keys).map { try Purge.stored($0, in: table, desk.connection) }
        return try PurgeBook(desk.connection).note(.release, keys, of: table, at: now, in: ledger, server)
      }
    }

    private func keptLedger() throws -> PurgeLedger {
      if let ledger { return ledger }
      throw SalvorError(
        .usage,
        "A purge has to outlive a restore of the database. Name a folder of this process's own (the option stateDirectory of the storage), in which the ledger of purged rows is kept."
      )
    }

    var ledger: PurgeLedger? {
      besidePrefix.map { PurgeLedger(path: $0 + purgeLedgerSuffix) }
    }

    /// What a restore has brought back of purged rows goes again. In the transaction of an opening.
    func applyLedger(_ desk: Desk, _ server: ServerID, isRestored: Bool) throws -> [String] {
      guard let ledger else {
        return try PurgeBook(desk.connection).key == nil
          ? []
          : [
            "Rows of this database were purged, and this process has no stateDirectory to remember them in: after a restore of the database, start a process first that has one."
          ]
      }
      let (connection, catalog) = (desk.connection, desk.catalog)
      return try PurgeReplay(connection, catalog, server, ledger, isRestored: isRestored, isOneOfSeveral: true) {
        Purge(connection, catalog)
      }.run { try $0() }
    }

    /// Acts of other processes come into this one's file, too.
    func followLedger(_ server: ServerID) async throws {
      guard let ledger else { return }
      // Beside a purge that is under way the file would lose its acts.
      try await writing { desk in
        let book = try PurgeBook(desk.connection)
        guard book.key != nil, try book.lastSeal() != ledger.lastSeal() else { return }
        try book.bring(ledger, server)
      }
    }
  }

  extension ServerTable {
    /// As the database writes them: other spellings of a `uuid` find the same row.
    fileprivate func canonical(_ keys: [Key]) -> [Key] {
      keys.map { key in
        zip(keyPlaces, key).map { place, value in
          guard types[place] == "uuid", case .text(let bytes) = value else { return value }
          return .text(String(decoding: bytes, as: UTF8.self).lowercased())
        }
      }
    }
  }
#endif
