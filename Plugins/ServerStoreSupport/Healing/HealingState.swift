import SalvorModel
import SalvorStorage

/// What this start of a server knows of offers that wait (`HealingServerStore`): which of them may go on.
package struct HealingState: Sendable {
  /// Up to this entry of the log it was looked for parents that came; nil: not yet.
  private var lookedUpTo: Int64?
  /// Until it was looked through everything that waits for a parent, after a start: where that is, and the last entry of the log as
  /// it began.
  private var beginning: (place: Int64, log: Int64)?
  /// So much is looked at in one go.
  private static let lookMax = 10_000
  /// False: nothing waits. Nil: not looked.
  package var mayWait: Bool?
  /// Rows that may pass now, where the pace is bounded, and when that was counted.
  private var allowance: Int64 = 0
  private var countedAt: Int64?

  package init() {}

  /// What may pass by now: what a second lets pass, at most.
  private mutating func allowed(_ pace: HealPace, now: Int64) -> Int64? {
    guard let rate = pace.rowsPerSecond else { return nil }
    let elapsed = min(1000, max(0, now - (countedAt ?? now - 1000)))
    let more = rate * elapsed / 1000
    if more > 0 || countedAt == nil {
      allowance = min(max(1, rate), allowance + more)
      countedAt = now
    }
    return allowance
  }

  private mutating func spend(_ rows: Int64) { allowance = max(0, allowance - rows) }

  /// Another pace holds from here on.
  package mutating func countAgain() {
    countedAt = nil
    allowance = 0
  }

  /// What becomes of an upload's offers.
  package mutating func intake(_ pace: HealPace, reviews: Bool, now: Int64) -> OfferIntake {
    OfferIntake(reviews: reviews, pace: pace, offersMax: allowed(pace, now: now))
  }

  /// An upload was processed.
  package mutating func note(_ results: UploadResults, _ intake: OfferIntake) {
    spend(intake.passedCount)
    if !results.waiting.isEmpty { mayWait = true }
  }

  /// The places of some offers that may go on now: the pace lets them, or their parent is there. Empty: none may. What other
  /// programs have committed has its number.
  package mutating func due(_ rows: RowReader, now: Int64) throws -> [Int64] {
    let book = WaitingBook(connection: rows.connection)
    if try book.isEmpty() {
      mayWait = false
      return []
    }
    let pace = try book.pace()
    if !pace.isPaused {
      let allowed = allowed(pace, now: now)
      let count = Int(min(Int64(WaitingBook.batch), allowed ?? .max))
      let places = try count > 0 ? book.places([.paused, .rate], limit: count) : []
      if !places.isEmpty {
        spend(Int64(places.count))
        return places
      }
    }
    return try dueWithParent(rows, book)
  }

  /// In portions, so that neither a long log nor many that wait are held.
  private mutating func dueWithParent(_ rows: RowReader, _ book: WaitingBook) throws -> [Int64] {
    let last = try CommitLog.state(rows.connection).lastSequence
    while true {
      if let looked = lookedUpTo {
        if looked >= last { return [] }
        let end = min(last, looked + Int64(Self.lookMax))
        let found = try book.placesWithParent(rows, after: looked, to: end)
        let batch = Array(found.prefix(WaitingBook.batch))
        // What is left of these is looked for again.
        if found.count <= batch.count { lookedUpTo = end }
        if !batch.isEmpty { return batch }
      } else {
        let (place, log) = beginning ?? (0, last)
        let (found, next) = try book.placesWithParent(rows, from: place, limit: Self.lookMax)
        let batch = Array(found.prefix(WaitingBook.batch))
        if found.count > batch.count, let reached = batch.last {
          beginning = (reached, log)
        } else if let next {
          beginning = (next, log)
        } else {
          (beginning, lookedUpTo) = (nil, log)
        }
        if !batch.isEmpty { return batch }
      }
    }
  }
}

extension WaitingBook {
  /// The places of some of what the operator accepts or rejects; `last`: those of the time before, of which nothing may be left.
  package func chosen(
    _ reasons: [WaitingReason], _ query: WaitingQuery, before time: Int64 = .max, after last: [Int64]
  ) throws -> [Int64] {
    let places = try places(reasons, query, before: time, limit: Self.batch)
    // Nothing of it could be decided.
    if let first = places.first, first == last.first {
      throw SalvorError(.failed, "An offer that waits could not be settled.")
    }
    return places
  }
}
