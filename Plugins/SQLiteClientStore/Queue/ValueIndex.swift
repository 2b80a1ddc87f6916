import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Rows with changes in the log, by the values that they have, had or saw in some columns: a temporary table, made where
/// the rows that reference a row, or hold a unique value, have to be found, and kept for the next one (`IndexedUpTo`). It
/// may name more rows than are meant.
final class ValueIndex {
  private let context: StoreContext
  private let name: String
  private let keyWidth: Int
  private let insert: SQLiteStatement
  private let find: SQLiteStatement

  /// - Parameter slots: by the table's number, the columns whose values are looked for.
  init(_ context: StoreContext, _ index: LogIndex, slots: [Int64: Set<Int>]) throws {
    self.context = context
    keyWidth = index.keyWidth
    name = "temp.salvor_value_\(keyWidth)"
    let keys = (0..<keyWidth).map { "k\($0)" }.joined(separator: ", ")
    let connection = context.connection
    try connection.execute(
      "CREATE TABLE IF NOT EXISTS \(name) (t, slot, value, \(keys), PRIMARY KEY (t, slot, value, \(keys))) WITHOUT ROWID"
    )
    let places = (1...(keyWidth + 3)).map { "?\($0)" }.joined(separator: ", ")
    insert = try connection.prepare("INSERT OR IGNORE INTO \(name) VALUES (\(places))", persistent: true)
    find = try connection.prepare(
      "SELECT \(keys) FROM \(name) WHERE t = ?1 AND slot = ?2 AND value = ?3", persistent: true)
    try extend(index, slots)
  }

  /// Takes in what the log has got since; all of it, where it is not known what became of the rest.
  private func extend(_ index: LogIndex, _ slots: [Int64: Set<Int>]) throws {
    let indexed = try IndexedUpTo(context, name)
    let shape = slots.keys.sorted().map { "\($0):\((slots[$0] ?? []).sorted())" }.joined(separator: ",")
    let last = try context.connection.lastCounter()
    let known = try indexed.known(shape)
    if known == last { return }
    if known == nil { try context.connection.execute("DELETE FROM \(name)") }
    for table in context.catalog.tables where index.tables.contains(table.number) {
      for slot in (slots[table.number] ?? []).sorted() { try read(table, slot, after: known ?? 0) }
    }
    // What is stored is there only since another base was put under changes, or since changes have left.
    if try known == nil && context.anyStored() { try readStored(slots) }
    try indexed.set(last, shape)
  }

  private func read(_ table: CapturedTable, _ slot: Int, after counter: Int64) throws {
    let values: [Value] = [.integer(table.number), .integer(Int64(slot)), .integer(counter)]
    let own = (0..<keyWidth).map { $0 < table.keyCount ? "g.v\($0)" : "0" }.joined(separator: ", ")
    let entries = "g.seq > ?3 AND g.t = ?1 AND g.op IN \(StoreContext.changeOperations)"
    try context.connection.run(
      "INSERT OR IGNORE INTO \(name) SELECT ?1, ?2, g.v\(slot), \(own) FROM salvor_log g WHERE \(entries) AND g.v\(slot) IS NOT NULL",
      values)
    let column = table.tableColumn(slot)
    try context.connection.run(
      "INSERT OR IGNORE INTO \(name) SELECT ?1, ?2, \(column), \(own) FROM salvor_log g CROSS JOIN \(quoted(table.name)) x "
        + "WHERE \(entries) AND \(table.rowAt { "g.v\($0)" }) AND \(column) IS NOT NULL", values)
  }

  private func readStored(_ slots: [Int64: Set<Int>]) throws {
    for table in context.catalog.tables {
      for slot in (slots[table.number] ?? []).sorted() {
        func read(_ sql: String, _ alias: String) throws {
          let own = (0..<keyWidth).map { $0 < table.keyCount ? "\(alias).v\($0)" : "0" }.joined(separator: ", ")
          try context.connection.run(
            "INSERT OR IGNORE INTO \(name) SELECT ?1, ?2, s.v\(slot), \(own) FROM \(sql) AND s.v\(slot) IS NOT NULL",
            .integer(table.number), .integer(Int64(slot)))
        }
        try read("salvor_base s WHERE s.t = ?1", "s")
        try read("salvor_value s JOIN salvor_log g ON g.seq = s.seq WHERE s.t = ?1", "g")
      }
    }
  }

  /// A state of a row that neither the log nor its table has.
  func add(_ table: CapturedTable, _ key: Key, _ row: SlotRow, _ slots: Set<Int>) throws {
    for slot in slots where slot < row.count && !row[slot].isNull {
      try insert.bind(1, table.number)
      try insert.bind(2, Int64(slot))
      try insert.bind(3, row[slot])
      for place in 0..<keyWidth { try insert.bind(place + 4, place < key.count ? key[place] : .integer(0)) }
      try insert.run()
    }
  }

  func rows(_ table: CapturedTable, _ slot: Int, _ value: Value) throws -> [RowRef] {
    try find.bind([.integer(table.number), .integer(Int64(slot)), value])
    defer { find.reset() }
    var found: [RowRef] = []
    while try find.step() {
      found.append(RowRef(table: table.number, key: find.values(count: table.keyCount)))
    }
    return found
  }
}
