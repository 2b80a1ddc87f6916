#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// Offers that wait.
  extension PostgreSQLServerStore: HealingServerStore {
    public func waitingOffers(_ query: WaitingQuery, after: Int64, limit: Int) async throws -> [WaitingOffer] {
      try await reading { connection, catalog in
        try WaitingBook(connection: connection).list(
          query, after: after, limit: limit, RowReader(connection: connection, catalog: catalog))
      }
    }

    public func waitingOffers() async throws -> [WaitingCount] {
      try await reading { connection, _ in try WaitingBook(connection: connection).counts() }
    }

    /// Of the chosen offers only those that wait for a review, in several transactions. Returns how many were chosen.
    public func acceptOffers(_ query: WaitingQuery) async throws -> Int64 {
      let count = try await settle([.review], query, .settling)
      try await settleWaitingOffers()
      return count
    }

    /// The chosen offers, whatever they wait for, in several transactions. Returns how many
    /// were chosen.
    public func rejectOffers(_ query: WaitingQuery) async throws -> Int64 {
      let count = try await settle(WaitingReason.allCases, query, .rejecting)
      try await settleWaitingOffers()
      return count
    }

    /// Nothing is written where none of them waits. Returns how many waited, deletes aside.
    public func withdrawOffers(_ ids: [RequestID], of remote: RemoteID) async throws -> Int64 {
      if try await reading({ connection, _ in try WaitingBook(connection: connection).isEmpty() }) { return 0 }
      let count = try await writing { try WaitingBook(connection: $0.connection).withdraw(ids, of: remote) }
      healing.withLock { $0.countAgain() }
      return count
    }

    private func settle(
      _ reasons: [WaitingReason], _ query: WaitingQuery, before time: Int64 = .max, _ purpose: OfferIntake.Purpose
    ) async throws -> Int64 {
      var count: Int64 = 0
      var places: [Int64] = []
      repeat {
        let last = places
        places = try await reading { connection, _ in
          try WaitingBook(connection: connection).chosen(reasons, query, before: time, after: last)
        }
        try await settle(places, purpose)
        count += Int64(places.count)
      } while !places.isEmpty
      return count
    }

    /// In a transaction of its own: others write in between.
    private func settle(_ places: [Int64], _ purpose: OfferIntake.Purpose) async throws {
      guard !places.isEmpty else { return }
      let (limits, now) = (options.limits, options.clock.now())
      try await writing { desk in
        _ = try desk.log.sweep()
        try WaitingBook(connection: desk.connection).settle(
          places, purpose, desk.catalog, log: desk.log, limits: limits, now: now)
      }
    }

    /// Another process may have made an offer wait: it is looked each time.
    public func settleWaitingOffers() async throws {
      let now = options.clock.now()
      while try await !looking({ try WaitingBook(connection: $0).isEmpty() }) {
        _ = try await sweep()
        let places = try await reading { connection, catalog in
          try self.healing.withLock { try $0.due(RowReader(connection: connection, catalog: catalog), now: now) }
        }
        if places.isEmpty { return }
        try await settle(places, .settling)
      }
    }

    public func healPace() async throws -> HealPace {
      try await looking { try WaitingBook(connection: $0).pace() }
    }

    /// Settles what the new pace lets pass before the call returns.
    public func setHealPace(_ pace: HealPace) async throws {
      try await updating("pace") { try WaitingBook(connection: $0).setPace(pace) }
      healing.withLock { $0.countAgain() }
      try await settleWaitingOffers()
    }

    /// What has waited since before `milliseconds` becomes conflict versions.
    func giveUpWaiting(before milliseconds: Int64) async throws {
      _ = try await settle(WaitingReason.allCases, WaitingQuery(), before: milliseconds, .givingUp)
    }
  }
#endif
