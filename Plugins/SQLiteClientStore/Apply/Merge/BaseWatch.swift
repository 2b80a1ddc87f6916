import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// The rows whose bases a recovery changes, with what they were where the server lost that, or where
/// triggers were away: a temporary table.
///
/// Clean rows that the server has lost stay in their tables until all lines are read: a request may need them.
final class BaseWatch {
  enum Fate: Int64 {
    case row, deleted, left, lost
    /// A row that this device deleted by a commit that the server has lost, and the row with it.
    case gone
    /// A row that is on both sides as this device wrote it by a commit that the server has lost.
    case same
    /// A row of a table that was made anew, which the server has lost: it stands nowhere now.
    case anew

    /// The server has lost the row, and has none.
    static let missing: Set<Fate> = [.lost, .anew]
    static let isMissing = "fate IN (\(missing.map { "\($0.rawValue)" }.sorted().joined(separator: ", ")))"
  }

  struct Entry {
    var table: CapturedTable
    var key: Key
    /// Nil: there was no row, or it was not kept.
    var was: SlotRow?
    var fate: Fate
  }

  let context: StoreContext
  let versions: BaseVersions
  private let order: RecoveryOrder
  private let index: LogIndex
  let keyWidth: Int
  let name: String
  private let note: SQLiteStatement
  private let noteKept: SQLiteStatement
  private let find: SQLiteStatement
  /// Rows that came and were not written plainly.
  private(set) var lines: Int64 = 0
  private var isHolding = false

  init(_ context: StoreContext, _ order: RecoveryOrder, _ versions: BaseVersions, _ index: LogIndex) throws {
    self.context = context
    self.order = order
    self.versions = versions
    self.index = index
    keyWidth = max(1, context.catalog.tables.map(\.keyCount).max() ?? 1)
    let width = context.catalog.valueCount
    let name = "temp.salvor_watch_\(keyWidth)_\(width)"
    self.name = name
    let keys = (0..<keyWidth).map { "k\($0)" }.joined(separator: ", ")
    let values = (0..<width).map { "w\($0)" }.joined(separator: ", ")
    // was: NULL where there was no row, 0 where it need not be kept, 1 where the row is in the columns by slot. settled: nothing is to
    // be archived.
    try context.connection.execute(
      "CREATE TABLE IF NOT EXISTS \(name) (t, \(keys), was, fate, settled, \(values), PRIMARY KEY (t, \(keys))) WITHOUT ROWID; DELETE FROM \(name)"
    )
    func insertion(_ columns: String, _ count: Int) -> String {
      let slots = (1...count).map { "?\($0)" }.joined(separator: ", ")
      return
        "INSERT INTO \(name) (t, \(keys), was, fate\(columns), settled) VALUES (\(slots), 0) ON CONFLICT DO UPDATE SET fate = excluded.fate"
    }
    note = try context.connection.prepare(insertion("", keyWidth + 3), persistent: true)
    noteKept = try context.connection.prepare(insertion(", \(values)", keyWidth + 3 + width), persistent: true)
    let condition = "t = ?1 AND " + (0..<keyWidth).map { "k\($0) = ?\($0 + 2)" }.joined(separator: " AND ")
    find = try context.connection.prepare("SELECT fate, settled FROM \(name) WHERE \(condition)", persistent: true)
  }

  // MARK: While lines are read

  /// A row came whose requests and bases are clean. False: it is there as it came.
  func changes(_ table: CapturedTable, _ key: Key, _ row: SlotRow) throws -> Bool {
    let current = try context.currentRow(table, key)
    if current == row {
      if try isHolding && fate(of: table, key) != nil { try put(table, key, current, .row) }
      return false
    }
    try put(table, key, current, .row)
    return true
  }

  func countLine() { lines += 1 }

  /// A key came. True: the row is clean and lost, and is left where it is for now.
  ///
  /// - Parameter version: the commit that the feed tells of; nil: the line answers a question.
  func holds(_ table: CapturedTable, _ key: Key, _ departure: Departure, _ version: Int64?) throws -> Bool {
    var fate = try fate(departure, version, table, key)
    let hasRequests = try index.mayContain(table, key)
    // What a lost commit brought into the subscriptions is lost with it, and may be given back (decision 232).
    if departure == .dropped, !hasRequests, try versions.isLost(table, key) { fate = .lost }
    if fate == .lost { isHolding = true }
    if hasRequests {
      try put(table, key, nil, fate, keeps: false)
      return false
    }
    try put(table, key, try context.currentRow(table, key), fate)
    return fate == .lost
  }

  /// Lost is not deleted: what a commit made that both have, the server has not lost.
  /// Nor was a row deleted by a commit from before the one that made it, and that the server has lost.
  private func fate(_ departure: Departure, _ version: Int64?, _ table: CapturedTable, _ key: Key) throws -> Fate {
    switch departure {
    case .deleted:
      if let version, let shared = order.shared, version <= shared, try versions.isLost(table, key) {
        .lost
      } else {
        .deleted
      }
    case .left, .dropped: .left
    case .lost: try versions.isLost(table, key) ? .lost : .deleted
    }
  }

  private func put(_ table: CapturedTable, _ key: Key, _ was: SlotRow?, _ fate: Fate, keeps: Bool = true) throws {
    let kept = try keeps && (versions.unproven.contains(table.number) || versions.isLost(table, key)) ? was : nil
    let statement = kept == nil ? note : noteKept
    // A table may have fewer columns than the one before.
    if kept != nil { statement.clearBindings() }
    try bind(statement, table, key)
    try statement.bind(keyWidth + 2, was == nil ? .null : .integer(kept == nil ? 0 : 1))
    try statement.bind(keyWidth + 3, fate.rawValue)
    if let kept { try statement.bind(kept, from: keyWidth + 4) }
    try statement.run()
  }

  // MARK: When all lines are read

  private func bind(_ statement: SQLiteStatement, _ table: CapturedTable, _ key: Key) throws {
    try statement.bind(1, table.number)
    for place in 0..<keyWidth { try statement.bind(place + 2, place < key.count ? key[place] : .integer(0)) }
  }

  func fate(of table: CapturedTable, _ key: Key) throws -> Fate? {
    try bind(find, table, key)
    defer { find.reset() }
    return try find.step() ? Fate(rawValue: find.int64(0)) : nil
  }

  /// The row as it was; nil: there was none, or it was not kept.
  func was(_ table: CapturedTable, _ key: Key) throws -> SlotRow? {
    let values = table.columns.indices.map { "w\($0)" }.joined(separator: ", ")
    let condition = "t = ?1 AND " + (0..<keyWidth).map { "k\($0) = ?\($0 + 2)" }.joined(separator: " AND ")
    let padded = key + Array(repeating: Value.integer(0), count: keyWidth - key.count)
    return try context.connection.rows(
      "SELECT \(values) FROM \(name) WHERE \(condition) AND was = 1", [.integer(table.number)] + padded
    ).first
  }

  /// Which rows reference (in `column`) one of the table that the server has lost and nothing has made again.
  func isHeld(_ table: CapturedTable, by column: String) -> String {
    let rest = (1..<keyWidth).map { " AND w.k\($0) = 0" }.joined()
    return
      "EXISTS (SELECT 1 FROM \(name) w WHERE w.t = \(table.number) AND w.k0 = \(column)\(rest) AND w.\(Fate.isMissing) AND w.settled = 0)"
  }

  /// The server has lost the row, and nothing has made it again.
  func isHeld(_ table: CapturedTable, _ key: Key) throws -> Bool {
    guard isHolding else { return false }
    try bind(find, table, key)
    defer { find.reset() }
    guard try find.step(), let fate = Fate(rawValue: find.int64(0)) else { return false }
    return Fate.missing.contains(fate) && find.int64(1) == 0
  }

  /// Tables with rows that the server has lost.
  func lostTables() throws -> Set<Int64> {
    guard isHolding else { return [] }
    return Set(
      try context.connection.rows("SELECT DISTINCT t FROM \(name) WHERE \(Fate.isMissing)").compactMap {
        $0[0].integer
      })
  }

  /// The base of a row with requests, which the lines did not touch.
  func setWas(_ table: CapturedTable, _ key: Key, _ was: SlotRow?, _ fate: Fate) throws {
    let condition = (0..<keyWidth).map { "k\($0) = ?\($0 + 2)" }.joined(separator: " AND ")
    let padded = key + Array(repeating: Value.integer(0), count: keyWidth - key.count)
    try context.connection.run(
      "DELETE FROM \(name) WHERE t = ?1 AND \(condition)", [.integer(table.number)] + padded)
    if fate == .lost { isHolding = true }
    try put(table, key, was, fate)
  }

  /// Nothing of the row is lost: a request makes it again, or deletes it.
  func settle(_ table: CapturedTable, _ key: Key) throws {
    let condition = (0..<keyWidth).map { "k\($0) = ?\($0 + 2)" }.joined(separator: " AND ")
    let padded = key + Array(repeating: Value.integer(0), count: keyWidth - key.count)
    try context.connection.run(
      "UPDATE \(name) SET settled = 1 WHERE t = ?1 AND \(condition)", [.integer(table.number)] + padded)
  }

  /// A row that no line touched, and that this device holds as of a lost commit.
  func noteSame(_ table: CapturedTable, _ key: Key, _ row: SlotRow) throws { try put(table, key, row, .same) }

  /// `t` and the key.
  var keyColumns: String { "t, " + (0..<keyWidth).map { "k\($0)" }.joined(separator: ", ") }

  /// Behind an insert of rows that are gone.
  var orGone: String {
    "ON CONFLICT DO UPDATE SET fate = excluded.fate, settled = 0 WHERE was IS NULL OR was = 0"
  }

  func noteGone(_ table: CapturedTable, _ key: Key) throws {
    let slots = (1...keyWidth + 1).map { "?\($0)" }.joined(separator: ", ")
    try context.connection.run(
      "INSERT INTO \(name) (\(keyColumns), was, fate, settled) VALUES (\(slots), NULL, \(Fate.gone.rawValue), 0) \(orGone)",
      [.integer(table.number)] + key + Array(repeating: .integer(0), count: keyWidth - key.count))
  }

  // MARK: Tables that were made anew

  /// Rows that a table had, and that it has not as they were, now that the server's are there.
  ///
  /// - Parameters:
  ///   - kept: a table: the old row by slot in `v…`, and `is_lost`: else it may have been written while triggers were away.
  ///   - count: how many slots the old table had. A slot that is new has the server's value, or its default.
  func noteRows(_ table: CapturedTable, in kept: String, slots count: Int) throws {
    isHolding = true
    let isThere = "\(table.tableColumn(0)) IS NOT NULL"
    let defaults = context.padded(Array(repeating: .null, count: count), table)
    let values = table.columns.indices.map { slot in
      slot < count
        ? "l.v\(slot)" : "CASE WHEN \(isThere) THEN \(table.tableColumn(slot)) ELSE ?\(slot - count + 1) END"
    }
    let keys = (0..<keyWidth).map { $0 < table.keyCount ? "l.v\($0)" : "0" }.joined(separator: ", ")
    let differs = table.anyDiffers(table.keyCount..<count, { "l.v\($0)" }, table.tableColumn)
    try context.connection.run(
      "INSERT INTO \(name) (\(keyColumns), was, fate, settled, \(table.columns.indices.map { "w\($0)" }.joined(separator: ", "))) "
        + "SELECT \(table.number), \(keys), 1, CASE WHEN l.is_lost = 0 THEN \(Fate.left.rawValue) WHEN \(isThere) THEN \(Fate.row.rawValue) ELSE \(Fate.anew.rawValue) END, 0, \(values.joined(separator: ", ")) "
        + "FROM \(kept) l LEFT JOIN \(quoted(table.name)) x ON \(table.rowAt { "l.v\($0)" }) WHERE NOT (\(isThere)) OR (\(differs)) ON CONFLICT DO NOTHING",
      Array(defaults.dropFirst(count)))
  }

  /// Rows that lost commits deleted: those that the server has, and of the others those for which `isOwn` holds.
  ///
  /// - Parameter isOwn: a condition of the entry of `versions` (alias `s`).
  func noteDeletes(_ table: CapturedTable, isOwn: String) throws {
    guard let lost = versions.lostEntriesBefore(table) else { return }
    let stands = "EXISTS (SELECT 1 FROM \(quoted(table.name)) x WHERE \(table.rowAt { "s.k\($0)" }))"
    let keys = (0..<keyWidth).map { "s.k\($0)" }.joined(separator: ", ")
    try context.connection.run(
      "INSERT INTO \(name) (\(keyColumns), was, fate, settled) SELECT s.t, \(keys), NULL, CASE WHEN \(stands) THEN \(Fate.row.rawValue) ELSE \(Fate.gone.rawValue) END, 0 "
        + "FROM \(versions.name) s WHERE \(lost) AND s.deleted = 1 AND (\(isOwn) OR \(stands)) ON CONFLICT DO NOTHING")
  }

  var isEmpty: Bool { get throws { try context.connection.integer("SELECT 1 FROM \(name) LIMIT 1") == nil } }

  /// Calls `body` with each row that is not settled, in the order of the schema's tables and of the keys.
  func each(_ condition: String = "1", _ body: (Entry) throws -> Void) throws {
    let order = context.schema.tables.compactMap { context.catalog.table($0.name) }
    for table in order {
      let keys = (0..<keyWidth).map { "k\($0)" }.joined(separator: ", ")
      let values = table.columns.indices.map { "w\($0)" }.joined(separator: ", ")
      try context.connection.query(
        "SELECT was, fate, \(keys), \(values) FROM \(name) WHERE t = ?1 AND settled = 0 AND (\(condition)) ORDER BY \(keys)",
        [.integer(table.number)]
      ) { row in
        try body(
          Entry(
            table: table, key: row.values(from: 2, count: table.keyCount),
            was: row.int64(0) == 1 ? row.values(from: 2 + keyWidth, count: table.columns.count) : nil,
            fate: Fate(rawValue: row.int64(1)) ?? .row))
        return true
      }
    }
  }

  /// Rows that were there or are there, without those of requests: written, removed.
  func counts() throws -> (upserts: Int64, deletes: Int64) {
    func count(_ condition: String) throws -> Int64 {
      try context.connection.integer("SELECT count(*) FROM \(name) WHERE \(condition)") ?? 0
    }
    return (try count("fate = 0"), try count("fate NOT IN (0, \(Fate.same.rawValue)) AND was IS NOT NULL"))
  }
}
