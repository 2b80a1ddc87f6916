import SQLiteSupport
import SalvorModel
import SalvorStorage

/// A request keeps what it saw apart from the base (semantics 2). The log's old values follow the base, so that rows can
/// be decoded; where the two differ, the values that were captured stand in `salvor_seen`.
extension StoreContext {
  func anySeen() throws -> Bool { try connection.integer("SELECT 1 FROM salvor_seen LIMIT 1") != nil }

  /// The step with the old values it was captured with.
  func asCaptured(_ step: RowTimeline.Step) throws -> RowTimeline.Step {
    guard let text = try connection.scalar("SELECT before FROM salvor_seen WHERE seq = ?1", .integer(step.seq)) else {
      return step
    }
    let values = try unpayload(text)
    var step = step
    switch step.change {
    case .insert: break
    case .update(let news):
      for (slot, value) in zip(news.keys.sorted(), values) { step.before?[slot] = value }
    case .delete: step.before = values
    }
    return step
  }

  /// Remembers what a step saw, where its row before is not that any more.
  func remember(_ captured: RowTimeline.Step, now step: RowTimeline.Step) throws {
    let slots: [Int]
    switch step.change {
    case .insert: return
    case .update(let news): slots = news.keys.sorted()
    case .delete: slots = captured.before.map { Array($0.indices) } ?? []
    }
    guard let before = captured.before else { return }
    if let now = step.before, slots.allSatisfy({ $0 < now.count && before[$0] == now[$0] }) {
      try connection.run("DELETE FROM salvor_seen WHERE seq = ?1", .integer(step.seq))
    } else {
      try connection.run(
        "INSERT INTO salvor_seen (seq, before) VALUES (?1, ?2) ON CONFLICT (seq) DO UPDATE SET before = excluded.before",
        .integer(step.seq), .text(payload(slots.map { before[$0] })))
    }
  }

  /// Of requests that have left.
  func forgetSeen() throws {
    try connection.run(
      "DELETE FROM salvor_seen WHERE seq NOT IN (SELECT seq FROM salvor_log WHERE op IN \(Self.changeOperations))")
  }
}
