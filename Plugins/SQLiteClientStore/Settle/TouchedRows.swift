import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The rows that a step wrote and removed, for the proof of references: temporary tables, or the note that a table is
/// looked at as a whole.
final class TouchedRows {
  let context: StoreContext
  private let keyWidth: Int
  let written: String
  let removed: String
  /// Rows of which a part was written, where triggers fire.
  private let parted: String
  private let insertWritten: SQLiteStatement
  private let insertRemoved: SQLiteStatement
  private let insertParted: SQLiteStatement
  /// Tables whose written rows are asked for: they have references, come whole, or fire triggers.
  var recordsWritten: Set<Int64> = []
  /// Tables whose removed rows are asked for: they are referenced.
  var recordsRemoved: Set<Int64> = []
  /// Triggers fire: what they wrote to a row of which a part came must be undone in its other columns, too.
  var recordsParts = false
  /// Tables that were empty before: all their rows were written.
  var isWhole: Set<Int64> = []

  init(_ context: StoreContext) throws {
    self.context = context
    keyWidth = max(1, context.catalog.tables.map(\.keyCount).max() ?? 1)
    let keys = (0..<keyWidth).map { "k\($0)" }.joined(separator: ", ")
    written = "temp.salvor_written_\(keyWidth)"
    removed = "temp.salvor_removed_\(keyWidth)"
    parted = "temp.salvor_parted_\(keyWidth)"
    for name in [written, removed, parted] {
      try context.connection.execute(
        "CREATE TABLE IF NOT EXISTS \(name) (t, \(keys), PRIMARY KEY (t, \(keys))) WITHOUT ROWID; DELETE FROM \(name)")
    }
    let slots = (1...(keyWidth + 1)).map { "?\($0)" }.joined(separator: ", ")
    insertWritten = try context.connection.prepare(
      "INSERT OR IGNORE INTO \(written) VALUES (\(slots))", persistent: true)
    insertRemoved = try context.connection.prepare(
      "INSERT OR IGNORE INTO \(removed) VALUES (\(slots))", persistent: true)
    insertParted = try context.connection.prepare(
      "INSERT OR IGNORE INTO \(parted) VALUES (\(slots))", persistent: true)
  }

  private func insert(_ statement: SQLiteStatement, _ table: CapturedTable, _ key: Key) throws {
    try statement.bind(1, table.number)
    for place in 0..<keyWidth {
      if place < key.count {
        try statement.bind(place + 2, key[place])
      } else {
        try statement.bind(place + 2, Int64(0))
      }
    }
    try statement.run()
  }

  func written(_ table: CapturedTable, _ key: Key) throws {
    guard recordsWritten.contains(table.number), !isWhole.contains(table.number) else { return }
    try insert(insertWritten, table, key)
  }

  /// The same of all that a query selects: the table's number, and keys as wide as the widest.
  func writtenAll(_ table: CapturedTable, _ query: String) throws {
    guard recordsWritten.contains(table.number), !isWhole.contains(table.number) else { return }
    try context.connection.run("INSERT OR IGNORE INTO \(written) \(query)")
  }

  func removedAll(_ table: CapturedTable, _ query: String) throws {
    guard recordsRemoved.contains(table.number) else { return }
    try context.connection.run("INSERT OR IGNORE INTO \(removed) \(query)")
  }

  /// A part of a row was written.
  func writtenPart(_ table: CapturedTable, _ key: Key) throws {
    try written(table, key)
    if recordsParts { try insert(insertParted, table, key) }
  }

  func removed(_ table: CapturedTable, _ key: Key) throws {
    guard recordsRemoved.contains(table.number) else { return }
    try insert(insertRemoved, table, key)
  }

  /// The row (alias `x` of the table) is among the written ones.
  func wasWritten(_ table: CapturedTable) -> String { exists(written, table) }

  private func exists(_ name: String, _ table: CapturedTable) -> String {
    let keys = (0..<keyWidth).map { place in
      place < table.keyCount ? "s.k\(place) = \(table.tableColumn(place))" : "s.k\(place) = 0"
    }
    return "EXISTS (SELECT 1 FROM \(name) s WHERE s.t = \(table.number) AND \(keys.joined(separator: " AND ")))"
  }

  /// What gives the written rows of a table, as alias `x`: behind `FROM`, and behind `WHERE`.
  func writtenRows(_ table: CapturedTable) -> (from: String, condition: String) {
    if isWhole.contains(table.number) { return ("\(quoted(table.name)) x", "1") }
    return (
      "\(written) s CROSS JOIN \(quoted(table.name)) x", "s.t = \(table.number) AND " + table.rowAt { "s.k\($0)" }
    )
  }

  func hasWritten(_ table: CapturedTable) throws -> Bool {
    if isWhole.contains(table.number) { return true }
    return try context.connection.integer("SELECT 1 FROM \(written) WHERE t = ?1 LIMIT 1", .integer(table.number))
      != nil
  }

  func hasRemoved(_ table: CapturedTable) throws -> Bool {
    try context.connection.integer("SELECT 1 FROM \(removed) WHERE t = ?1 LIMIT 1", .integer(table.number)) != nil
  }

  /// How many rows of a table were removed and are not there again.
  func goneCount(_ table: CapturedTable) throws -> Int64 {
    try context.connection.integer(
      "SELECT count(*) FROM \(removed) s WHERE s.t = ?1 AND NOT EXISTS (SELECT 1 FROM \(quoted(table.name)) x WHERE \(table.rowAt { "s.k\($0)" }))",
      .integer(table.number)) ?? 0
  }

  /// Their keys.
  func eachGone(_ table: CapturedTable, _ body: (Key) throws -> Void) throws {
    let keys = (0..<table.keyCount).map { "s.k\($0)" }.joined(separator: ", ")
    try context.connection.query(
      "SELECT \(keys) FROM \(removed) s WHERE s.t = ?1 AND NOT EXISTS (SELECT 1 FROM \(quoted(table.name)) x WHERE \(table.rowAt { "s.k\($0)" }))",
      [.integer(table.number)]
    ) { row in
      try body(row.values(from: 0, count: table.keyCount))
      return true
    }
  }

  func wasWritten(_ table: CapturedTable, _ key: Key) throws -> Bool { try has(written, table, key) }

  /// A part of it was, and nothing else may have been.
  func wasWrittenInPart(_ table: CapturedTable, _ key: Key) throws -> Bool {
    try recordsParts && has(parted, table, key)
  }

  private func has(_ name: String, _ table: CapturedTable, _ key: Key) throws -> Bool {
    let condition = (0..<keyWidth).map { "k\($0) = ?\($0 + 2)" }.joined(separator: " AND ")
    let padded = key + Array(repeating: Value.integer(0), count: keyWidth - key.count)
    return try context.connection.integer(
      "SELECT 1 FROM \(name) WHERE t = ?1 AND \(condition)", [.integer(table.number)] + padded) != nil
  }

  func clear() throws {
    try context.connection.execute("DELETE FROM \(written); DELETE FROM \(removed); DELETE FROM \(parted)")
  }
}
