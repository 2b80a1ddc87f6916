import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Rows that the server acknowledged and lost, as the device has them: entries of the archive (`kept`, reason
/// `lost-on-server`), each a request of its own that would bring the row back.
final class LossArchive {
  private let context: StoreContext
  private let record: RecoveryRecord
  private let offers: Offers
  /// The last one given.
  private(set) var counter: Int64
  private(set) var count: Int64 = 0
  /// Why they are not offered.
  private(set) var unoffered: [Unoffered: Int64] = [:]

  init(_ context: StoreContext, _ record: RecoveryRecord, _ offers: Offers, counter: Int64) {
    self.offers = offers
    self.context = context
    self.record = record
    self.counter = counter
  }

  /// - Parameters:
  ///   - was: the device's base; nil: it was deleted.
  ///   - base: the server's row.
  ///   - isOutOfScope: the server has it, where this device does not see it.
  func lost(
    _ table: CapturedTable, _ key: Key, was: SlotRow?, base: SlotRow?, isOutOfScope: Bool = false
  ) throws {
    guard let step = Self.step(table, was: was, now: base) else { return }
    try add(step, table, key, was: was, isOutOfScope: isOutOfScope)
  }

  /// A mass of deletes: one entry, without the rows' values, which are in their tables again.
  func lostDeletes(_ table: CapturedTable, _ keys: [Key]) throws {
    let range = RequestRange(first: counter + 1, last: counter + Int64(keys.count))
    let message =
      "The server acknowledged these \(keys.count) deletes and has them no more: a restore may have been meant to undo them. Reapply them, or delete the entry."
    try context.keep(range, "lost-on-server", message)
    for key in keys {
      counter += 1
      let step = RowTimeline.Step(seq: counter, change: .delete, isJoined: false, before: nil, after: nil)
      try context.archive(step, of: range, table, key)
      try withhold(table, key, was: nil, isForReview: true)
      try record.row(.lost, table, key, step, reason: "lost-on-server")
    }
    count += Int64(keys.count)
  }

  /// A row of a table whose triggers were away: what it was may be what somebody wrote here.
  func unproven(_ table: CapturedTable, _ key: Key, was: SlotRow, base: SlotRow?) throws {
    guard let step = Self.step(table, was: was, now: base) else { return }
    counter += 1
    try context.keepUnproven(step, table, key, counter: counter)
  }

  /// The change that makes a row what it was out of what it is now; nil: it is the same.
  static func step(_ table: CapturedTable, was: SlotRow?, now: SlotRow?) -> RowTimeline.Step? {
    switch (was, now) {
    case (nil, nil): return nil
    case (let was?, nil): return .init(seq: 0, change: .insert(was), isJoined: false, before: nil, after: was)
    case (nil, let now?): return .init(seq: 0, change: .delete, isJoined: false, before: now, after: nil)
    case (let was?, let now?):
      var news: [Int: Value] = [:]
      for slot in table.otherSlots where was[slot] != now[slot] { news[slot] = was[slot] }
      if news.isEmpty { return nil }
      return .init(seq: 0, change: .update(news), isJoined: false, before: now, after: was)
    }
  }

  /// A row that this device deleted and that the server has forgotten, with the delete: a newer copy of the server may bring
  /// it back. Its values are not known any more.
  func gone(_ table: CapturedTable, _ key: Key) throws {
    try add(.init(seq: 0, change: .delete, isJoined: false, before: nil, after: nil), table, key, was: nil)
  }

  private func withhold(
    _ table: CapturedTable, _ key: Key, was: SlotRow?, isForReview: Bool = false, isOutOfScope: Bool = false
  ) throws {
    if isOutOfScope { return unoffered[.outOfScope, default: 0] += 1 }
    let (why, version) = try offers.unoffered(table, key, isForReview: isForReview)
    unoffered[why, default: 0] += 1
    if let version { try context.withhold(counter, table, key, version, was: was) }
  }

  private func add(
    _ step: RowTimeline.Step, _ table: CapturedTable, _ key: Key, was: SlotRow?, isOutOfScope: Bool = false
  ) throws {
    counter += 1
    count += 1
    var entry = step
    entry.seq = counter
    let range = RequestRange(first: counter, last: counter)
    try context.archive(
      entry, of: range, table, key,
      kept: ("lost-on-server", "The server acknowledged this and has lost it. Reapply it, or delete the entry."))
    try withhold(table, key, was: was, isOutOfScope: isOutOfScope)
    try record.row(.lost, table, key, entry, reason: "lost-on-server")
  }
}

extension StoreContext {
  /// Keeps in the archive what a row was that nobody knows the writer of: the triggers were away.
  func keepUnproven(_ step: RowTimeline.Step, _ table: CapturedTable, _ key: Key, counter: Int64) throws {
    var entry = step
    entry.seq = counter
    try archive(
      entry, of: RequestRange(first: counter, last: counter), table, key,
      kept: (
        "unproven",
        "The server has changed this row, and it may have been written here while the triggers of Salvor were away. Reapply what was here, or delete the entry."
      ))
  }

  /// The last line of `salvor_history`, where the archive has rows that the server has lost; else nil.
  func lastHistoryBesideLost() throws -> Int64? {
    guard try anyLost() else { return nil }
    return try connection.integer("SELECT max(id) FROM salvor_history") ?? 0
  }

  /// What the server had lost, and has again as this device had it, leaves the archive: its owner has given it back.
  ///
  /// - Parameter last: lines of `salvor_history` after it are of the download that was applied.
  func forgetGivenBack(after last: Int64) throws {
    let width = max(1, catalog.tables.map(\.keyCount).max() ?? 1)
    let keys = (0..<width).map { "v\($0)" }.joined(separator: ", ")
    let changed = try connection.rows(
      "SELECT DISTINCT t, \(keys) FROM salvor_history h WHERE id > ?1 AND EXISTS (SELECT 1 FROM salvor_archive a WHERE a.t = h.t)",
      [.integer(last)])
    guard !changed.isEmpty else { return }
    let index = try LogIndex(self)
    for row in changed {
      guard let table = row[0].integer.flatMap({ catalog.table(number: $0) }) else { continue }
      let key = Array(row[1...].prefix(table.keyCount))
      let entries = try archived(
        where: "t = ?1 AND key = ?2 AND \(OutstandingTable.isLost)",
        [.integer(table.number), .text(payload(key))])
      guard !entries.isEmpty else { continue }
      let base = try index.timeline(table, key).base
      for entry in entries where entry.isThere(base) { try deleteArchived(entry.range) }
    }
  }
}

extension StoreContext.ArchivedChange {
  /// The server's row is what the change would make it.
  fileprivate func isThere(_ base: SlotRow?) -> Bool {
    guard step.change != .delete else { return base == nil }
    guard let base else { return false }
    return zip(slots, after).allSatisfy { slot, value in slot < base.count && base[slot] == value }
  }
}
