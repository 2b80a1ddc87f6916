import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The log by row: a temporary table, made where a step has to find the changes of single rows. The log itself has no
/// index, which would cost each application write as much again.
final class LogIndex {
  let context: StoreContext
  private let name: String
  private let place: Int
  let keyWidth: Int
  private let find: SQLiteStatement
  private let read: SQLiteStatement
  /// Tables with changes in the log.
  private(set) var tables: Set<Int64>

  init(_ context: StoreContext) throws {
    self.context = context
    let connection = context.connection
    keyWidth = max(1, context.catalog.tables.map(\.keyCount).max() ?? 1)
    let keys = (0..<keyWidth).map { "k\($0)" }.joined(separator: ", ")
    // Each has a table of its own, since one may be made while another is in use; tables are used again.
    place = context.takeIndex()
    name = "temp.salvor_index_\(keyWidth)_\(place)"
    try connection.execute(
      "CREATE TABLE IF NOT EXISTS \(name) (t, \(keys), seq, PRIMARY KEY (t, \(keys), seq)) WITHOUT ROWID; DELETE FROM \(name)"
    )
    // Keys are never NULL; what a shorter key leaves free is 0.
    for table in context.catalog.tables {
      let own = (0..<keyWidth).map { $0 < table.keyCount ? "v\($0)" : "0" }.joined(separator: ", ")
      try connection.run(
        "INSERT INTO \(name) SELECT t, \(own), seq FROM salvor_log WHERE t = ?1 AND op IN \(StoreContext.changeOperations)",
        .integer(table.number))
    }
    tables = Set(try connection.rows("SELECT DISTINCT t FROM \(name)").compactMap { $0[0].integer })
    let condition = "t = ?1 AND " + (0..<keyWidth).map { "k\($0) = ?\($0 + 2)" }.joined(separator: " AND ")
    find = try connection.prepare("SELECT seq FROM \(name) WHERE \(condition) ORDER BY seq", persistent: true)
    read = try connection.prepare(
      "SELECT \(context.catalog.logColumns) FROM salvor_log WHERE seq = ?1", persistent: true)
  }

  /// What gives the rows of a table that have changes in the log, as alias `x`, some more than once: behind `FROM`, and
  /// behind `WHERE`; the key is `s.k0` and so on.
  func rows(_ table: CapturedTable) -> (from: String, condition: String) {
    (
      "\(name) s CROSS JOIN \(quoted(table.name)) x", "s.t = \(table.number) AND " + table.rowAt { "s.k\($0)" }
    )
  }

  private func bind(_ table: CapturedTable, _ key: Key) throws {
    try find.bind(1, table.number)
    for place in 0..<keyWidth {
      if place < table.keyCount { try find.bind(place + 2, key[place]) } else { try find.bind(place + 2, Int64(0)) }
    }
  }

  /// Whether the row has changes in the log, or another one that its index could hold equal.
  func mayContain(_ table: CapturedTable, _ key: Key) throws -> Bool {
    guard tables.contains(table.number) else { return false }
    try bind(table, key)
    defer { find.reset() }
    return try find.step()
  }

  /// Whether a change is the only one of its row.
  ///
  /// - Parameters:
  ///   - row: of the log.
  ///   - firstKey: its column with the first value of the key.
  func isAlone(_ table: CapturedTable, _ row: SQLiteStatement, firstKey: Int) throws -> Bool {
    try find.bind(1, table.number)
    for place in 0..<keyWidth {
      if place < table.keyCount {
        try find.bind(place + 2, column: firstKey + place, of: row)
      } else {
        try find.bind(place + 2, Int64(0))
      }
    }
    defer { find.reset() }
    guard try find.step() else { return false }
    return try !find.step()
  }

  /// The row's log entries, oldest first.
  func entries(_ table: CapturedTable, _ key: Key) throws -> [LogEntry] {
    guard tables.contains(table.number) else { return [] }
    try bind(table, key)
    var counters: [Int64] = []
    while try find.step() { counters.append(find.int64(0)) }
    find.reset()
    var entries: [LogEntry] = []
    for counter in counters {
      try read.bind(1, counter)
      if try read.step() {
        let entry = try context.catalog.entry(from: read)
        // 1 and 1.0 are equal to an index, but not the same key.
        if entry.key(table) == key { entries.append(entry) }
      }
      read.reset()
    }
    return entries
  }

  func timeline(_ table: CapturedTable, _ key: Key) throws -> RowTimeline {
    try RowTimeline(current: try context.currentRow(table, key), entries: try entries(table, key), table: table)
  }

  /// Calls `body` with each row of a table that has changes in the log.
  func eachRow(of table: CapturedTable, _ body: (Key) throws -> Void) throws {
    let keys = (0..<table.keyCount).map { "k\($0)" }.joined(separator: ", ")
    for row in try context.connection.rows(
      "SELECT DISTINCT \(keys) FROM \(name) WHERE t = ?1", .integer(table.number))
    { try body(row) }
  }

  /// A change that comes back into the log.
  func add(_ table: CapturedTable, _ key: Key, seq: Int64) throws {
    let slots = (1...(keyWidth + 2)).map { "?\($0)" }.joined(separator: ", ")
    let padded = key + Array(repeating: Value.integer(0), count: keyWidth - key.count)
    try context.connection.run(
      "INSERT OR IGNORE INTO \(name) VALUES (\(slots))", [.integer(table.number)] + padded + [.integer(seq)])
    tables.insert(table.number)
  }

  deinit { context.giveBackIndex(place) }
}
