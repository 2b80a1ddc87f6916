import SalvorModel
import SalvorStorage
import ServerStoreSupport

/// What this start of the server knows of offers that wait.
struct HealingState {
  /// Up to this entry of the log it was looked for parents that came; nil: not yet.
  var lookedUpTo: Int64?
  /// False: nothing waits. Nil: not looked.
  var mayWait: Bool?
  /// Rows that may pass now, where the pace is bounded, and when that was counted.
  var allowance: Int64 = 0
  var countedAt: Int64?

  /// What may pass by now: what a second lets pass, at most.
  mutating func allowed(_ pace: HealPace, now: Int64) -> Int64? {
    guard let rate = pace.rowsPerSecond else { return nil }
    let elapsed = min(1000, max(0, now - (countedAt ?? now - 1000)))
    let more = rate * elapsed / 1000
    if more > 0 || countedAt == nil {
      allowance = min(max(1, rate), allowance + more)
      countedAt = now
    }
    return allowance
  }

  mutating func spend(_ rows: Int64) { allowance = max(0, allowance - rows) }
}

/// Offers that wait (`HealingServerStore`).
extension ServerWriter {
  func offerIntake(_ open: Open) throws -> OfferIntake {
    let pace = try WaitingBook(connection: open.connection).pace()
    return OfferIntake(
      reviews: open.setup.reviewsOffers, pace: pace, offersMax: healing.allowed(pace, now: options.clock.now()))
  }

  /// Call it when an upload is processed.
  func noteOffers(_ results: UploadResults, _ intake: OfferIntake) {
    healing.spend(intake.passedCount)
    if !results.waiting.isEmpty { healing.mayWait = true }
  }

  private func settle(_ places: [Int64], _ purpose: OfferIntake.Purpose) throws {
    guard !places.isEmpty else { return }
    let (limits, now) = (options.limits, options.clock.now())
    try transaction(durable: true) { open in
      _ = try open.log.sweep()
      try WaitingBook(connection: open.connection).settle(
        places, purpose, open.catalog, log: open.log, limits: limits, now: now)
    }
  }

  /// Settles some of what may go on. False: nothing more may.
  func settleSomeWaiting() throws -> Bool {
    if healing.mayWait == false { return false }
    _ = try sweep()
    let open = try opened()
    let book = WaitingBook(connection: open.connection)
    if try book.isEmpty() {
      healing.mayWait = false
      return false
    }
    let pace = try book.pace()
    if !pace.isPaused {
      let allowed = healing.allowed(pace, now: options.clock.now())
      let count = Int(min(Int64(WaitingBook.batch), allowed ?? .max))
      let places = try count > 0 ? book.places([.paused, .rate], limit: count) : []
      if !places.isEmpty {
        healing.spend(Int64(places.count))
        try settle(places, .settling)
        return true
      }
    }
    let last = try CommitLog.state(open.connection).lastSequence
    if let looked = healing.lookedUpTo, looked >= last { return false }
    let rows = RowReader(connection: open.connection, catalog: open.catalog)
    let found = try book.placesWithParent(rows, after: healing.lookedUpTo)
    let batch = Array(found.prefix(WaitingBook.batch))
    // What a batch makes may be others' parent: it is looked again.
    if found.count <= batch.count { healing.lookedUpTo = last }
    try settle(batch, .settling)
    return !batch.isEmpty
  }

  /// Settles some of what the operator accepts or rejects; how many, and the last one's place. Nil: there is nothing more.
  func settleChosen(
    _ reasons: [WaitingReason], _ query: WaitingQuery, before time: Int64 = .max, _ purpose: OfferIntake.Purpose
  ) throws -> Int64? {
    let places = try WaitingBook(connection: opened().connection).places(
      reasons, query, before: time, limit: WaitingBook.batch)
    guard !places.isEmpty else { return nil }
    try settle(places, purpose)
    let left = try WaitingBook(connection: opened().connection).places(reasons, query, before: time, limit: 1)
    // Nothing of it could be decided.
    if left.first == places.first { throw SalvorError(.failed, "An offer that waits could not be settled.") }
    return Int64(places.count)
  }

  func waiting<Answer>(_ body: (WaitingBook, RowReader) throws -> Answer) throws -> Answer {
    let open = try opened()
    return try open.connection.transaction(.deferred) {
      try body(
        WaitingBook(connection: open.connection), RowReader(connection: open.connection, catalog: open.catalog))
    }
  }

  func setHealPace(_ pace: HealPace) throws {
    try transaction(durable: true) { try WaitingBook(connection: $0.connection).setPace(pace) }
    healing.countedAt = nil
    healing.allowance = 0
  }
}

extension SQLiteServerStore: HealingServerStore {
  public func waitingOffers(_ query: WaitingQuery, after: Int64, limit: Int) async throws -> [WaitingOffer] {
    try await writer.waiting { try $0.list(query, after: after, limit: limit, $1) }
  }

  public func waitingOffers() async throws -> [WaitingCount] {
    try await writer.waiting { book, _ in try book.counts() }
  }

  public func acceptOffers(_ query: WaitingQuery) async throws -> Int64 {
    try await settle([.review], query, .settling)
  }

  public func rejectOffers(_ query: WaitingQuery) async throws -> Int64 {
    try await settle([.review, .parent], query, .rejecting)
  }

  private func settle(
    _ reasons: [WaitingReason], _ query: WaitingQuery, _ purpose: OfferIntake.Purpose
  ) async throws -> Int64 {
    var count: Int64 = 0
    // Others write in between.
    while let more = try await writer.settleChosen(reasons, query, purpose) { count += more }
    try await settleWaitingOffers()
    return count
  }

  public func settleWaitingOffers() async throws { while try await writer.settleSomeWaiting() {} }

  public func healPace() async throws -> HealPace { try await writer.waiting { book, _ in try book.pace() } }

  public func setHealPace(_ pace: HealPace) async throws {
    try await writer.setHealPace(pace)
    try await settleWaitingOffers()
  }

  /// What has waited since before `milliseconds` becomes conflict versions.
  func giveUpWaiting(before milliseconds: Int64) async throws {
    while try await writer.settleChosen(WaitingReason.allCases, WaitingQuery(), before: milliseconds, .givingUp) != nil
    {}
  }
}
