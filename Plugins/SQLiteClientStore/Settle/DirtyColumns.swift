import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Brings the application's dirty columns in line with the requests (semantics 3): a row is dirty exactly while it has
/// requests. By the rows that were noted, not by the tables.
struct DirtyColumns {
  let context: StoreContext
  private var connection: SQLiteConnection { context.connection }

  init(_ context: StoreContext) { self.context = context }

  /// In a transaction, with foreign keys and triggers off, after the requests have changed.
  func set() throws {
    guard context.catalog.tables.contains(where: { $0.dirtyFlag != nil }),
      try connection.integer("SELECT 1 FROM salvor_dirty LIMIT 1") != nil
    else { return }
    try connection.run("DELETE FROM salvor_dirty WHERE t NOT IN (SELECT id FROM salvor_table)")
    let index = try LogIndex(context)
    for table in context.catalog.tables {
      guard let dirty = table.dirtyFlag else { continue }
      let keys = table.keySlots.map { "d.k\($0)" }.joined(separator: ", ")
      let columns = table.keySlots.map { "x.\(quoted(table.columns[$0].name))" }
      let row = columns.count == 1 ? columns[0] : "(\(columns.joined(separator: ", ")))"
      let isOutstanding = index.contains(table) { "d.k\($0)" }
      func set(_ value: String, where condition: String) throws {
        try connection.run(
          "UPDATE \(quoted(table.name)) AS x SET \(quoted(dirty)) = \(value) WHERE \(row) IN "
            + "(SELECT \(keys) FROM salvor_dirty d WHERE d.t = \(table.number) AND \(condition)) AND \(CapturedTable.isSet(dirty, "x")) <> \(value)"
        )
      }
      try set("0", where: "NOT \(isOutstanding)")
      try set("1", where: isOutstanding)
      try connection.run("DELETE FROM salvor_dirty AS d WHERE d.t = \(table.number) AND NOT \(isOutstanding)")
    }
  }
}

extension StoreContext {
  /// The row is in its table, with a deleted mark.
  func isMarked(_ table: CapturedTable, _ key: Key) throws -> Bool { try markedRow(table, key) != nil }

  /// The row as the table has it, by slot, where it has a deleted mark.
  func markedRow(_ table: CapturedTable, _ key: Key) throws -> SlotRow? {
    guard let deleted = table.deletedFlag else { return nil }
    let condition = table.rowAt(markedToo: true) { "?\($0 + 1)" }
    let columns = table.columns.indices.map(table.tableColumn).joined(separator: ", ")
    return try connection.rows(
      "SELECT \(columns) FROM \(quoted(table.name)) x WHERE \(condition) AND \(CapturedTable.isSet(deleted, "x"))", key
    ).first
  }

  /// A delete of a row, as the log's next row.
  func deletion(of row: SlotRow, _ table: CapturedTable) throws -> LogEntry {
    LogEntry(
      seq: try connection.lastCounter() + 1, table: table.number, operation: .delete, mask: LogMask(words: []),
      values: row)
  }

  /// The row's dirty column is to be looked at.
  func noteDirty(_ table: CapturedTable, _ key: Key) throws {
    let keys = table.keySlots.map { "k\($0)" }.joined(separator: ", ")
    let slots = table.keySlots.map { "?\($0 + 2)" }.joined(separator: ", ")
    try connection.run(
      "INSERT INTO salvor_dirty (t, \(keys)) VALUES (?1, \(slots))", [.integer(table.number)] + key)
  }

  /// The same of all rows whose changes the engine logged after a counter.
  ///
  /// - Parameter onlyClean: those whose column does not say so.
  func noteDirty(_ table: CapturedTable, after counter: Int64, onlyClean: Bool = false) throws {
    guard let dirty = table.dirtyFlag else { return }
    let keys = table.keySlots.map { "k\($0)" }.joined(separator: ", ")
    let values = table.keySlots.map { "v\($0)" }.joined(separator: ", ")
    let isClean =
      " AND EXISTS (SELECT 1 FROM \(quoted(table.name)) x WHERE \(table.rowAt(markedToo: true) { "l.v\($0)" }) AND NOT \(CapturedTable.isSet(dirty, "x")))"
    try connection.run(
      "INSERT INTO salvor_dirty (t, \(keys)) SELECT DISTINCT t, \(values) FROM salvor_log l WHERE seq > ?1 AND t = ?2 AND op IN \(Self.changeOperations)\(onlyClean ? isClean : "")",
      .integer(counter), .integer(table.number))
  }

  /// Marks and dirty columns are the engine's matter while it writes rows with the application's triggers on. In a
  /// transaction.
  func holdFlags() throws { try connection.run("INSERT INTO salvor_marking (t) VALUES (0)") }
  func releaseFlags() throws { try connection.run("DELETE FROM salvor_marking WHERE t = 0") }
}
