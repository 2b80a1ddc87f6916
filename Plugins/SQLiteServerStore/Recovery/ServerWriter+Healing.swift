import SalvorModel
import SalvorStorage
import ServerStoreSupport

/// Offers that wait (`HealingServerStore`).
extension ServerWriter {
  func offerIntake(_ open: Open) throws -> OfferIntake {
    healing.intake(
      try WaitingBook(connection: open.connection).pace(), reviews: open.setup.reviewsOffers, now: options.clock.now())
  }

  /// In a transaction of its own: others write in between.
  func settle(_ places: [Int64], _ purpose: OfferIntake.Purpose) throws {
    guard !places.isEmpty else { return }
    let (limits, now) = (options.limits, options.clock.now())
    try transaction(durable: true) { open in
      _ = try open.log.sweep()
      try WaitingBook(connection: open.connection).settle(
        places, purpose, open.catalog, log: open.log, limits: limits, now: now)
    }
  }

  /// Settles some of what may go on at a time. False: nothing more may.
  func settleSomeWaiting(at now: Int64) throws -> Bool {
    if healing.mayWait == false { return false }
    _ = try sweep()
    let open = try opened()
    let places = try healing.due(RowReader(connection: open.connection, catalog: open.catalog), now: now)
    try settle(places, .settling)
    return !places.isEmpty
  }

  func waiting<Answer>(_ body: (WaitingBook, RowReader) throws -> Answer) throws -> Answer {
    let open = try opened()
    return try open.connection.transaction(.deferred) {
      try body(
        WaitingBook(connection: open.connection), RowReader(connection: open.connection, catalog: open.catalog))
    }
  }

  func withdraw(_ ids: [RequestID], of remote: RemoteID) throws -> Int64 {
    let count = try transaction(durable: true) { open in
      try WaitingBook(connection: open.connection).withdraw(ids, of: remote)
    }
    healing.countAgain()
    return count
  }

  func setHealPace(_ pace: HealPace) throws {
    try transaction(durable: true) { try WaitingBook(connection: $0.connection).setPace(pace) }
    healing.countAgain()
  }
}

extension SQLiteServerStore: HealingServerStore {
  public func waitingOffers(_ query: WaitingQuery, after: Int64, limit: Int) async throws -> [WaitingOffer] {
    try await writer.waiting { try $0.list(query, after: after, limit: limit, $1) }
  }

  public func waitingOffers() async throws -> [WaitingCount] {
    try await writer.waiting { book, _ in try book.counts() }
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
    if try await writer.waiting({ book, _ in try book.isEmpty() }) { return 0 }
    return try await writer.withdraw(ids, of: remote)
  }

  private func settle(
    _ reasons: [WaitingReason], _ query: WaitingQuery, before time: Int64 = .max, _ purpose: OfferIntake.Purpose
  ) async throws -> Int64 {
    var count: Int64 = 0
    var places: [Int64] = []
    repeat {
      let last = places
      places = try await writer.waiting { book, _ in try book.chosen(reasons, query, before: time, after: last) }
      try await writer.settle(places, purpose)
      count += Int64(places.count)
    } while !places.isEmpty
    return count
  }

  /// In several short transactions, until none is left that can be settled now. What a bounded pace lets pass meanwhile is the next
  /// call's: nobody waits here for as long as all of it takes.
  public func settleWaitingOffers() async throws {
    let now = options.clock.now()
    while try await writer.settleSomeWaiting(at: now) {}
  }

  public func healPace() async throws -> HealPace { try await writer.waiting { book, _ in try book.pace() } }

  /// Settles what the new pace lets pass before the call returns. Where another process that has the database open writes all the
  /// time, that one settles it.
  public func setHealPace(_ pace: HealPace) async throws {
    try await writer.setHealPace(pace)
    do {
      try await settleWaitingOffers()
    } catch let error as SalvorError where error.code == .storageBusy {}
  }

  /// What has waited since before `milliseconds` becomes conflict versions.
  func giveUpWaiting(before milliseconds: Int64) async throws {
    _ = try await settle(WaitingReason.allCases, WaitingQuery(), before: milliseconds, .givingUp)
  }
}
