import SQLiteSupport
import SalvorModel
import SalvorStorage

/// A lost row that a request of its device changes goes up as one insert, of what was acknowledged and of the change (`Offers.mark`). Where that
/// request leaves, refused by the server or taken back by a person, the row is offered as it was acknowledged (decision 219).
struct GivingBack {
  private let context: StoreContext
  private let rows: WorkingRows

  init(_ context: StoreContext, _ rows: WorkingRows) {
    self.context = context
    self.rows = rows
  }

  private struct Lost {
    var table: CapturedTable
    var key: Key
    /// The lost version: incarnation, number, parting, origin, and whether the server's operator has to consent.
    var version: [Value]
  }

  /// The request was refused: it goes to the archive. False: it makes no lost row again.
  func run(_ range: RequestRange) throws -> Bool {
    // What was accepted has left the log.
    _ = try LogIndex(context)
    let lost = try takeApart([range])
    guard !lost.isEmpty else { return false }
    let refused = try context.row(of: range)
    try rows.displaceForGood(range.first, withFailed: false)
    try offer(lost, rejected: refused.reason == RefusalReason.rejected.rawValue ? refused : nil)
    return true
  }

  /// Takes requests out for good.
  ///
  /// - Parameter leaving: in order.
  func remove(_ leaving: [RequestRange]) throws {
    let lost = try takeApart(leaving)
    try rows.remove(leaving)
    try offer(lost)
  }

  /// Inserts that make lost rows again are the changes that they were, upon what was acknowledged.
  private func takeApart(_ leaving: [RequestRange]) throws -> [Lost] {
    var lost: [Lost] = []
    for range in leaving {
      let marks = try context.connection.rows(
        "SELECT seq, written, was, incarnation, number, parting, origin, review FROM salvor_offer WHERE seq BETWEEN ?1 AND ?2 AND was IS NOT NULL",
        .integer(range.first), .integer(range.last))
      if marks.isEmpty { continue }
      for (table, key, _) in try context.rows(changedBy: range) {
        var work = try rows.load(table, key)
        guard work.timeline.base == nil, let first = work.timeline.steps.first, case .insert(let made) = first.change,
          let mark = marks.first(where: { $0[0].integer == first.seq })
        else { continue }
        let slots = (mark[1].string ?? "").split(separator: ",").compactMap { Int($0) }
        var was = made
        for (slot, value) in zip(slots, try unpayload(mark[2])) { was[slot] = value }
        work.timeline.steps[0] = RowTimeline.Step(
          seq: first.seq, change: .update(Dictionary(uniqueKeysWithValues: slots.map { ($0, made[$0]) })),
          isJoined: first.isJoined, before: was, after: made, saw: was)
        try rows.put(work, RowRef(table: table.number, key: key))
        try rows.setBase(table, key, was)
        try context.connection.run("DELETE FROM salvor_offer WHERE seq = ?1", .integer(first.seq))
        lost.append(Lost(table: table, key: key, version: Array(mark[3...])))
      }
    }
    return lost
  }

  /// By a request of its own, or with the change that is the row's first one now.
  ///
  /// - Parameter rejected: the server's operator does not take the rows back: a row by itself is not sent again until a person asks.
  private func offer(_ lost: [Lost], rejected: RequestRow? = nil) throws {
    for row in lost {
      let timeline = try rows.load(row.table, row.key).timeline
      guard let was = timeline.base else { continue }
      switch timeline.steps.first?.change {
      case .update(let news):
        _ = try rows.makeAgain(row.table, row.key)
        let written = news.keys.sorted()
        try mark(timeline.steps[0].seq, row, written: written, was: written.map { was[$0] })
      case .delete:
        try rows.setBase(row.table, row.key, nil)
        try mark(timeline.steps[0].seq, row, written: Array(row.table.columns.indices))
      case .insert: try rows.setBase(row.table, row.key, nil)
      case nil:
        guard let counter = try rows.makeAgainAlone(row.table, row.key) else { continue }
        try mark(counter, row)
        if var request = rejected {
          (request.range, request.stamp) = (RequestRange(first: counter, last: counter), nil)
          (request.since, request.history, request.former) = (nil, [], [])
          try context.store(request)
        }
      }
    }
  }

  private func mark(_ counter: Int64, _ row: Lost, written: [Int] = [], was: [Value] = []) throws {
    try context.connection.run(
      "INSERT OR REPLACE INTO salvor_offer (seq, written, was, incarnation, number, parting, origin, review) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
      [
        .integer(counter), written.isEmpty ? .null : .text(written.map(String.init).joined(separator: ",")),
        was.isEmpty ? .null : .text(payload(was)),
      ] + row.version)
  }
}

extension StoreContext {
  /// The request makes a lost row again, and changes it.
  func makesLostRowAgain(_ range: RequestRange) throws -> Bool {
    try connection.integer(
      "SELECT 1 FROM salvor_offer WHERE seq BETWEEN ?1 AND ?2 AND was IS NOT NULL LIMIT 1", .integer(range.first),
      .integer(range.last)) != nil
  }
}
