import SQLiteSupport
import SalvorModel
import SalvorStorage

/// A lost row that a request of its device changes goes up as one insert, of what was acknowledged and of the change (`Offers.mark`). Where the
/// server refuses that, the change goes to the archive, and the row is offered as it was acknowledged (decision 219).
struct GivingBack {
  private let context: StoreContext
  private let rows: WorkingRows

  init(_ context: StoreContext, _ rows: WorkingRows) {
    self.context = context
    self.rows = rows
  }

  /// False: the request is no such one any more, or others stand upon it.
  func run(_ range: RequestRange, _ refusal: Refusal) throws -> Bool {
    guard
      let mark = try context.connection.rows(
        "SELECT written, was, incarnation, number, parting, origin FROM salvor_offer WHERE seq = ?1 AND was IS NOT NULL",
        .integer(range.first)
      ).first, let change = try context.rows(changedBy: range).first
    else { return false }
    let (table, key) = (change.0, change.1)
    // What was accepted has left the log.
    _ = try LogIndex(context)
    let steps = try rows.load(table, key).timeline.steps
    guard steps.count == 1, steps[0].seq == range.first, case .insert(let made) = steps[0].change else { return false }
    let slots = (mark[0].string ?? "").split(separator: ",").compactMap { Int($0) }
    var was = made
    for (slot, value) in zip(slots, try unpayload(mark[1])) { was[slot] = value }
    var refused = steps[0]
    refused.change = .update(Dictionary(uniqueKeysWithValues: slots.map { ($0, made[$0]) }))
    refused.before = was
    try rows.remove([range])
    try context.archive(refused, of: range, table, key, kept: (refusal.reason.rawValue, refusal.message))
    guard let counter = try rows.makeAgain(table, key, as: was) else { return true }
    try context.connection.run(
      "INSERT OR REPLACE INTO salvor_offer (seq, incarnation, number, parting, origin) VALUES (?1, ?2, ?3, ?4, ?5)",
      [.integer(counter), mark[2], mark[3], mark[4], mark[5]])
    return true
  }
}

extension StoreContext {
  /// The request makes a lost row again, and changes it.
  func wasAcknowledged(_ range: RequestRange) throws -> Bool {
    try range.first == range.last
      && connection.integer("SELECT 1 FROM salvor_offer WHERE seq = ?1 AND was IS NOT NULL", .integer(range.first))
        != nil
  }
}
