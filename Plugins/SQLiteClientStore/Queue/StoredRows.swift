import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The tables of `StoredRow`: few rows, those under whose requests the base has changed, or whose later requests have left.
extension StoreContext {
  /// Decodes the changes of one row.
  ///
  /// - Parameter current: the row as the table has it.
  func timeline(_ table: CapturedTable, _ key: Key, _ current: SlotRow?, _ entries: [LogEntry]) throws -> RowTimeline {
    try RowTimeline(current: current, entries: entries, stored: stored(table, key, entries.map(\.seq)), table: table)
  }

  func anyStored() throws -> Bool {
    try connection.integer("SELECT EXISTS (SELECT 1 FROM salvor_base) OR EXISTS (SELECT 1 FROM salvor_value)") == 1
  }

  /// New values of the change are stored.
  func hasValues(_ counter: Int64) throws -> Bool {
    try connection.integer("SELECT 1 FROM salvor_value WHERE seq = ?1", .integer(counter)) != nil
  }

  /// Of a row without changes nothing is.
  func stored(_ table: CapturedTable, _ key: Key, _ changes: [Int64]) throws -> StoredRow {
    var stored = StoredRow()
    guard !changes.isEmpty, try anyStored() else { return stored }
    let count = table.columns.count
    for counter in changes {
      try connection.query("SELECT \(valueColumns) FROM salvor_value WHERE seq = ?1", [.integer(counter)]) { row in
        let mask = LogMask(words: (0..<table.maskCount).map { row.int64($0) })
        let values = row.values(from: catalog.maskCount, count: count)
        stored.values[counter] = Dictionary(uniqueKeysWithValues: mask.slots(below: count).map { ($0, values[$0]) })
        return false
      }
    }
    if let base = try storedBase(table, key) { stored.base = .some(base.row) }
    return stored
  }

  /// Nil: walking back leads to it.
  func storedBase(_ table: CapturedTable, _ key: Key) throws -> (id: Int64, row: SlotRow?)? {
    let values = table.columns.indices.map { "v\($0)" }.joined(separator: ", ")
    let isRow = table.keySlots.map { "v\($0) = ?\($0 + 2)" }.joined(separator: " AND ")
    var found: (id: Int64, row: SlotRow?)?
    try connection.query(
      "SELECT id, there, \(values) FROM salvor_base WHERE t = ?1 AND \(isRow)", [.integer(table.number)] + key
    ) { row in
      let base = row.values(from: 2, count: table.columns.count)
      // 1 and 1.0 are equal to an index, but not the same key.
      guard Array(base.prefix(table.keyCount)) == key else { return true }
      found = (row.int64(0), row.int64(1) == 1 ? base : nil)
      return false
    }
    return found
  }

  /// The rows of which something is stored; one may come twice.
  func storedRows() throws -> [(table: CapturedTable, key: Key)] {
    let keys = (0..<max(1, catalog.tables.map(\.keyCount).max() ?? 1)).map { "s.v\($0)" }.joined(separator: ", ")
    return try connection.rows(
      "SELECT s.t, \(keys) FROM salvor_base s UNION ALL SELECT s.t, \(keys) FROM salvor_log s WHERE s.seq IN (SELECT seq FROM salvor_value)"
    ).compactMap { row in
      row[0].integer.flatMap { catalog.table(number: $0) }.map { ($0, Array(row[1...].prefix($0.keyCount))) }
    }
  }

  /// Stores what the log and the table do not say of a row, in the place of what was stored of it.
  func store(_ timeline: RowTimeline, _ table: CapturedTable, _ key: Key) throws {
    let wanted = timeline.stored(table)
    if try wanted.isEmpty && !anyStored() { return }
    for step in timeline.steps { try forgetValues(of: step.seq) }
    try forgetBase(table, key)
    let number = ("t", Value.integer(table.number))
    func insert(_ name: String, _ columns: [(name: String, value: Value)]) throws {
      let slots = (1...columns.count).map { "?\($0)" }.joined(separator: ", ")
      try connection.run(
        "INSERT INTO \(name) (\(columns.map(\.name).joined(separator: ", "))) VALUES (\(slots))", columns.map(\.value))
    }
    for (counter, values) in wanted.values {
      var mask = LogMask(columns: table.columns.count)
      for slot in values.keys { mask[slot] = true }
      let masks = mask.words.enumerated().map { ("m\($0)", Value.integer($1)) }
      try insert("salvor_value", [("seq", .integer(counter)), number] + masks + values.map { ("v\($0)", $1) })
    }
    if let base = wanted.base {
      let there = ("there", Value.integer(base == nil ? 0 : 1))
      try insert("salvor_base", [number, there] + (base ?? key).enumerated().map { ("v\($0)", $1) })
    }
  }

  private var valueColumns: String {
    ((0..<catalog.maskCount).map { "m\($0)" } + (0..<catalog.valueCount).map { "v\($0)" }).joined(separator: ", ")
  }

  // MARK: Leaving

  /// Takes one change out of the log.
  func deleteChange(_ counter: Int64) throws {
    try connection.run("DELETE FROM salvor_log WHERE seq = ?1", .integer(counter))
    try forgetValues(of: counter)
  }

  /// Of a change that has left.
  func forgetValues(of counter: Int64) throws {
    try connection.run("DELETE FROM salvor_value WHERE seq = ?1", .integer(counter))
  }

  /// Of a row whose changes are made anew from its base.
  func forgetBase(_ table: CapturedTable, _ key: Key) throws {
    if let base = try storedBase(table, key) {
      try connection.run("DELETE FROM salvor_base WHERE id = ?1", .integer(base.id))
    }
  }

  func forgetBases(of rows: Set<RowRef>) throws {
    guard try anyStored() else { return }
    for ref in rows {
      if let table = catalog.table(number: ref.table) { try forgetBase(table, ref.key) }
    }
  }

  /// Of changes that have left, and of rows that have none any more: after a step that takes changes out of the log and
  /// leaves their rows as they are.
  func forgetStored() throws {
    guard try anyStored() else { return }
    try connection.run(
      "DELETE FROM salvor_value WHERE seq NOT IN (SELECT seq FROM salvor_log WHERE op IN \(Self.changeOperations))")
    for table in catalog.tables {
      let keys = table.keySlots.map { "v\($0)" }.joined(separator: ", ")
      try connection.run(
        "DELETE FROM salvor_base WHERE t = ?1 AND (\(keys)) NOT IN (SELECT \(keys) FROM salvor_log WHERE t = ?1 AND op IN \(Self.changeOperations))",
        .integer(table.number))
    }
  }
}
