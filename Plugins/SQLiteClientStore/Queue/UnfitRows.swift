import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Rows whose changes in the log do not lead to the row that is there. They are cut to what is left of them: the one change
/// from the row that they were made upon to the row as it is.
///
/// The table was written while the triggers were away (`UnprovenTables`), or a trigger of the application's that fires
/// before Salvor's (a newer one, or a TEMP one) wrote to the very row that a statement was changing: what it wrote is in the
/// log before the change that fired it.
struct UnfitRows {
  let context: StoreContext

  /// The row that the changes were made upon; nil: there was none.
  ///
  /// How many inserts and deletes there are says whether there was one, in whatever order they stand. Of its columns the
  /// entry that stands first says most: a row changed by a trigger stands before the change that fired it.
  static func start(of entries: [LogEntry], current: SlotRow?, _ table: CapturedTable) -> SlotRow? {
    var was = current == nil ? 0 : 1
    var row = current
    var waiting: [LogEntry] = []
    func put(_ entry: LogEntry, into row: inout SlotRow) {
      for slot in entry.mask.slots(below: table.columns.count) { row[slot] = entry.values[slot] }
    }
    for entry in entries.reversed() {
      switch entry.operation {
      case .insert: was -= 1
      case .delete, .joinedDelete, .cascadedDelete:
        guard entry.mask.isEmpty else { break }
        was += 1
        var whole = entry.values
        for update in waiting { put(update, into: &whole) }
        waiting = []
        row = whole
      case .update, .cascadedUpdate:
        if var changed = row {
          put(entry, into: &changed)
          row = changed
        } else {
          waiting.append(entry)
        }
      case .watermark, .open, .close, .withdrawn, .withdrawnJoined: break
      }
    }
    return was > 0 ? row : nil
  }

  /// Nil: nothing is left.
  ///
  /// - Parameter before: the row that the changes were made upon.
  static func left(
    of entries: [LogEntry], key: Key, from before: SlotRow?, to current: SlotRow?, _ table: CapturedTable
  ) -> LogEntry? {
    guard var entry = entries.last else { return nil }
    entry.mask = LogMask(columns: table.columns.count)
    entry.values = key + Array(repeating: .null, count: table.columns.count - key.count)
    switch (before, current) {
    case (nil, nil): return nil
    case (nil, .some):
      // Where the row was made: those that reference it come later.
      entry.seq = entries[0].seq
      entry.operation = .insert
    case (let row?, nil):
      entry.operation = entry.operation.isJoined ? .joinedDelete : .delete
      entry.values = row
    case (let row?, let now?):
      entry.operation = .update
      for slot in table.otherSlots where row[slot] != now[slot] {
        entry.mask[slot] = true
        entry.values[slot] = row[slot]
      }
      if entry.mask.isEmpty { return nil }
    }
    return entry
  }

  /// - Parameters:
  ///   - entries: of one row, oldest first.
  ///   - areAll: it has no others. Its base is what is known of it then.
  func cut(_ entries: [LogEntry], key: Key, _ table: CapturedTable, areAll: Bool) throws {
    let current = try context.currentRow(table, key)
    let stored = areAll ? try context.storedBase(table, key) : nil
    let before = stored.map { $0.row } ?? Self.start(of: entries, current: current, table)
    let left = Self.left(of: entries, key: key, from: before, to: current, table)
    for entry in entries { try context.deleteChange(entry.seq) }
    if areAll { try context.forgetBase(table, key) }
    if let left { try context.writeLog([left]) }
  }
}
