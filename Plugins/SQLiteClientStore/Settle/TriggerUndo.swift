import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What the application's triggers wrote to synchronized tables while Salvor wrote rows is undone before the commit
/// (semantics 2).
extension WorkingRows {
  /// Takes what triggers wrote out of the log, and the rows that they wrote to into work: each is to be what it was before, or
  /// what the move makes of it. They are written with the others, or next.
  ///
  /// - Parameter again: while rows are written plainly: writes those of some tables once more, with triggers off. Nil: none
  ///   was since the triggers were undone last.
  /// - Returns: false: triggers wrote nothing.
  func undoTriggers(again: ((Set<Int64>) throws -> Void)? = nil) throws -> Bool {
    let connection = context.connection
    let own = added.map { " AND seq NOT BETWEEN \($0.lowerBound) AND \($0.upperBound)" }.joined()
    let captured = "salvor_log WHERE seq > ?1 AND op IN \(StoreContext.changeOperations)\(own)"
    guard try connection.integer("SELECT 1 FROM \(captured) LIMIT 1", .integer(counter)) != nil else { return false }
    connection.triggersEnabled = false
    var refs: Set<RowRef> = []
    try connection.query("SELECT \(context.catalog.logColumns) FROM \(captured)", [.integer(counter)]) { row in
      let entry = try context.catalog.entry(from: row)
      if let table = context.catalog.table(number: entry.table) {
        refs.insert(RowRef(table: entry.table, key: entry.key(table)))
      }
      return true
    }
    for ref in refs where rows[ref] == nil {
      guard let table = context.catalog.table(number: ref.table) else { continue }
      // A row that came whole is written whole again; of one that came in part the rest is as it was before the triggers. One with requests
      // is written with the others.
      let isWhole =
        try touched.wasWritten(table, ref.key) && !touched.wasWrittenInPart(table, ref.key)
        && !comesIntoWork(table, ref.key)
      if again != nil && isWhole { continue }
      // In a table that was empty a trigger made it, and a line of the download has taken it since, which nobody captured where the table's
      // triggers are off: it is not there, as before.
      if try touched.isWhole.contains(table.number) && context.currentRow(table, ref.key) == nil
        && !comesIntoWork(table, ref.key)
      {
        continue
      }
      try load(table, ref.key)
      unchecked.insert(ref)
    }
    try connection.run("DELETE FROM salvor_log WHERE seq > ?1\(own)", .integer(counter))
    try context.keepCounter(given)
    try again?(Set(refs.map(\.table)))
    try readShown()
    try context.noteLogChange()
    try context.forgetCopies()
    return true
  }

  /// Undoes what triggers wrote, and writes what was meant.
  func settleTriggers() throws {
    guard try undoTriggers() else { return }
    firesTriggers = false
    defer { firesTriggers = true }
    if let refused = try written(), let culprit = refused.max() { try displace(culprit, .constraint) }
  }
}

extension StoreContext {
  /// Forgets the copies that statements which are done have left behind (`CaptureTriggers`). Of a row that Salvor removes, with
  /// triggers off, a copy would make the next insert look as if it replaced the row with itself: it would not be captured.
  func forgetCopies() throws {
    for table in catalog.tables where try connection.integer("SELECT 1 FROM \(table.pending) LIMIT 1") != nil {
      try connection.execute("DELETE FROM \(table.pending)")
    }
    if try connection.integer("SELECT 1 FROM salvor_moving LIMIT 1") != nil {
      try connection.execute("DELETE FROM salvor_moving")
    }
  }
}
