import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The log by row: a temporary table, made where a step has to find the changes of single rows, and kept for the next one
/// (`IndexedUpTo`). The log itself has no index, which would cost each application write as much again.
final class LogIndex {
  let context: StoreContext
  private let name: String
  let keyWidth: Int
  private let find: SQLiteStatement
  private let read: SQLiteStatement
  /// Tables with changes in the log.
  private(set) var tables: Set<Int64> = []

  init(_ context: StoreContext) throws {
    self.context = context
    let connection = context.connection
    keyWidth = max(1, context.catalog.tables.map(\.keyCount).max() ?? 1)
    let keys = (0..<keyWidth).map { "k\($0)" }.joined(separator: ", ")
    name = "temp.salvor_index_\(keyWidth)"
    try connection.execute(
      "CREATE TABLE IF NOT EXISTS \(name) (t, \(keys), seq, PRIMARY KEY (t, \(keys), seq)) WITHOUT ROWID")
    try Self.extend(name, keyWidth, context)
    for table in context.catalog.tables
    where try connection.integer("SELECT 1 FROM \(name) WHERE t = ?1 LIMIT 1", .integer(table.number)) != nil {
      tables.insert(table.number)
    }
    let condition = "t = ?1 AND " + (0..<keyWidth).map { "k\($0) = ?\($0 + 2)" }.joined(separator: " AND ")
    find = try connection.prepare("SELECT seq FROM \(name) WHERE \(condition) ORDER BY seq", persistent: true)
    read = try connection.prepare(
      "SELECT \(context.catalog.logColumns) FROM salvor_log WHERE seq = ?1", persistent: true)
  }

  /// Takes in what the log has got since; all of it, where it is not known what became of the rest.
  private static func extend(_ name: String, _ keyWidth: Int, _ context: StoreContext) throws {
    let connection = context.connection
    let indexed = try IndexedUpTo(context, name)
    let shape = context.catalog.tables.map { "\($0.number):\($0.keyCount)" }.joined(separator: ",")
    let last = try connection.lastCounter()
    let known = try indexed.known(shape)
    if known == last { return }
    if known == nil { try connection.execute("DELETE FROM \(name)") }
    // Keys are never NULL; what a shorter key leaves free is 0.
    for (count, tables) in Dictionary(grouping: context.catalog.tables, by: \.keyCount) {
      let own = (0..<keyWidth).map { $0 < count ? "v\($0)" : "0" }.joined(separator: ", ")
      let numbers = tables.map { "\($0.number)" }.joined(separator: ", ")
      try connection.run(
        "INSERT OR IGNORE INTO \(name) SELECT t, \(own), seq FROM salvor_log "
          + "WHERE seq > ?1 AND t IN (\(numbers)) AND op IN \(StoreContext.changeOperations)", .integer(known ?? 0))
    }
    try indexed.set(last, shape)
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

  /// An expression: the row of the table has changes in the log.
  ///
  /// - Parameter key: how the statement names a column of the row's key, by its place.
  func contains(_ table: CapturedTable, key: (Int) -> String) -> String {
    let keys = (0..<keyWidth).map { "i.k\($0) = \($0 < table.keyCount ? key($0) : "0")" }
    return "EXISTS (SELECT 1 FROM \(name) i WHERE i.t = \(table.number) AND \(keys.joined(separator: " AND ")))"
  }

  /// A row has several changes in the log.
  func hasRepeatedRow() throws -> Bool {
    let keys = (0..<keyWidth).map { "k\($0)" }.joined(separator: ", ")
    let found = try context.connection.integer(
      "SELECT 1 FROM \(name) GROUP BY t, \(keys) HAVING count(*) > 1 LIMIT 1")
    return found != nil
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
    try context.timeline(table, key, try context.currentRow(table, key), try entries(table, key))
  }

  /// Calls `body` with each row of a table that has changes in the log.
  ///
  /// - Parameter condition: of the index (alias `i`).
  func eachRow(of table: CapturedTable, where condition: String = "1", _ body: (Key) throws -> Void) throws {
    let keys = (0..<table.keyCount).map { "i.k\($0)" }.joined(separator: ", ")
    for row in try context.connection.rows(
      "SELECT DISTINCT \(keys) FROM \(name) i WHERE i.t = ?1 AND \(condition) ORDER BY \(keys)", .integer(table.number))
    { try body(row) }
  }

  /// Rows with several changes in the log, in the order of their first.
  func repeatedRows() throws -> [(table: CapturedTable, key: Key)] {
    let keys = (0..<keyWidth).map { "k\($0)" }.joined(separator: ", ")
    return try context.connection.rows(
      "SELECT t, min(seq), \(keys) FROM \(name) GROUP BY t, \(keys) HAVING count(*) > 1 ORDER BY min(seq)"
    ).compactMap { row in
      row[0].integer.flatMap { context.catalog.table(number: $0) }.map { ($0, Array(row[2...].prefix($0.keyCount))) }
    }
  }

  /// A change that comes back into the log.
  func add(_ table: CapturedTable, _ key: Key, seq: Int64) throws {
    let slots = (1...(keyWidth + 2)).map { "?\($0)" }.joined(separator: ", ")
    try context.connection.run("INSERT OR IGNORE INTO \(name) VALUES (\(slots))", place(table, key, seq))
    tables.insert(table.number)
  }

  /// Changes that were added to the log: what a query selects, the table's number, the key and the counter.
  func addAll(_ query: String) throws {
    let connection = context.connection
    try connection.run("INSERT OR IGNORE INTO \(name) \(query)")
    for row in try connection.rows("SELECT DISTINCT t FROM \(name)") {
      if let number = row[0].integer { tables.insert(number) }
    }
  }

  /// Deletes the changes of a request from the log and from here: `noteLogChange(isFollowed: true)` when all are out.
  func deleteChanges(of request: RequestRange) throws {
    let keys = (0..<keyWidth).map { "v\($0)" }.joined(separator: ", ")
    let bounds: [Value] = [.integer(request.first), .integer(request.last)]
    let condition = "seq BETWEEN ?1 AND ?2 AND op IN \(StoreContext.changeOperations)"
    for row in try context.connection.rows("SELECT seq, t, \(keys) FROM salvor_log WHERE \(condition)", bounds) {
      guard let seq = row[0].integer, let table = row[1].integer.flatMap({ context.catalog.table(number: $0) }) else {
        continue
      }
      try remove(table, Array(row[2...].prefix(table.keyCount)), seq: seq)
    }
    try context.connection.run("DELETE FROM salvor_log WHERE \(condition)", bounds)
    try context.connection.run("DELETE FROM salvor_value WHERE seq BETWEEN ?1 AND ?2", bounds)
  }

  /// A change that leaves the log: `noteLogChange(isFollowed: true)` when all are out.
  func remove(_ table: CapturedTable, _ key: Key, seq: Int64) throws {
    let keys = (0..<keyWidth).map { "k\($0) = ?\($0 + 2)" }.joined(separator: " AND ")
    try context.connection.run(
      "DELETE FROM \(name) WHERE t = ?1 AND \(keys) AND seq = ?\(keyWidth + 2)", place(table, key, seq))
  }

  private func place(_ table: CapturedTable, _ key: Key, _ seq: Int64) -> [Value] {
    [.integer(table.number)] + key + Array(repeating: .integer(0), count: keyWidth - key.count) + [.integer(seq)]
  }
}
