import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What the application's triggers wrote to synchronized tables while Salvor wrote rows is undone before the commit
/// (semantics 2).
extension Remaking {
  /// Puts synchronized tables back to what is intended, with triggers off: rows that only triggers wrote to as they were,
  /// the rows in work as they are to be.
  ///
  /// - Parameters:
  ///   - counter: what was captured after it, triggers wrote.
  ///   - again: writes the rows that are not in work once more.
  func undoTriggers(after counter: Int64, again: () throws -> Void = {}) throws {
    let connection = context.connection
    connection.triggersEnabled = false
    prepareWrite = { _ in }
    var entries: [RowRef: [LogEntry]] = [:]
    try connection.query(
      "SELECT \(context.catalog.logColumns) FROM salvor_log WHERE seq > ?1 AND op IN \(StoreContext.changeOperations) ORDER BY seq",
      [.integer(counter)]
    ) { row in
      let entry = try context.catalog.entry(from: row)
      guard let table = context.catalog.table(number: entry.table) else { return true }
      entries[RowRef(table: entry.table, key: entry.key(table)), default: []].append(entry)
      return true
    }
    let undo = try Remaking(context, index: index, touched: touched)
    for (ref, entries) in entries {
      guard let table = context.catalog.table(number: ref.table), rows[ref] == nil else { continue }
      if try touched.wasWritten(table, ref.key) { continue }
      let timeline = try RowTimeline(current: try context.currentRow(table, ref.key), entries: entries, table: table)
      try undo.restore(table, ref.key, to: timeline.base)
    }
    try undo.write()
    try again()
    try rewriteShown()
    try write()
    try connection.run("DELETE FROM salvor_log WHERE seq > ?1", .integer(counter))
    try context.noteLogChange()
    for table in context.catalog.tables { try connection.execute("DELETE FROM \(table.pending)") }
  }
}
