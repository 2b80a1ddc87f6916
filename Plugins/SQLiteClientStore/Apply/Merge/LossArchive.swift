import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Rows that the server acknowledged and lost, as the device has them: entries of the archive (`kept`, reason
/// `lost-on-server`), each a request of its own that would bring the row back.
final class LossArchive {
  private let context: StoreContext
  private let record: RecoveryRecord
  /// The last one given.
  private(set) var counter: Int64
  private(set) var count: Int64 = 0

  init(_ context: StoreContext, _ record: RecoveryRecord, counter: Int64) {
    self.context = context
    self.record = record
    self.counter = counter
  }

  /// - Parameters:
  ///   - was: the device's base; nil: it was deleted.
  ///   - base: the server's row.
  func lost(_ table: CapturedTable, _ key: Key, was: SlotRow?, base: SlotRow?) throws {
    let step: RowTimeline.Step
    switch (was, base) {
    case (nil, nil): return
    case (let was?, nil): step = .init(seq: 0, change: .insert(was), isJoined: false, before: nil, after: was)
    case (nil, let base?): step = .init(seq: 0, change: .delete, isJoined: false, before: base, after: nil)
    case (let was?, let base?):
      var news: [Int: Value] = [:]
      for slot in table.otherSlots where was[slot] != base[slot] { news[slot] = was[slot] }
      if news.isEmpty { return }
      step = .init(seq: 0, change: .update(news), isJoined: false, before: base, after: was)
    }
    try add(step, table, key)
  }

  /// A row that this device deleted and that the server has forgotten, with the delete: a newer copy of the server may bring
  /// it back. Its values are not known any more.
  func gone(_ table: CapturedTable, _ key: Key) throws {
    try add(.init(seq: 0, change: .delete, isJoined: false, before: nil, after: nil), table, key)
  }

  private func add(_ step: RowTimeline.Step, _ table: CapturedTable, _ key: Key) throws {
    counter += 1
    count += 1
    var entry = step
    entry.seq = counter
    let range = RequestRange(first: counter, last: counter)
    try context.archive(
      entry, of: range, table, key, state: .kept, reason: "lost-on-server",
      message: "The server acknowledged this and has lost it. Reapply it, or delete the entry.")
    try record.row(.lost, table, key, entry, reason: "lost-on-server")
  }
}
