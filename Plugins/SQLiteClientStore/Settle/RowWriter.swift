import CSQLite
import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Writes rows of one captured table, and says which constraint refused one instead of throwing.
final class RowWriter {
  enum Outcome {
    case written
    /// A UNIQUE or PRIMARY KEY constraint: another row is in the way.
    case collides
    /// NOT NULL or CHECK: the row itself cannot stand.
    case invalid
  }

  /// What a row that is removed to be written again takes along: its rowid, and the columns that do not travel.
  struct Remains {
    var rowid: Int64?
    var others: [Value]
  }

  let table: CapturedTable
  let connection: SQLiteConnection
  private let rowidName: String?
  private let others: [String]
  private let insert: SQLiteStatement
  private let reinsert: SQLiteStatement
  private let insertAt: SQLiteStatement?
  /// The highest rowid that a removed row will take again: SQLite would give it to the next new row.
  private var reserved: Int64 = 0
  /// Rows that a trigger would not let go, and that went all the same: SQLite's words.
  private(set) var forced: [Key: String] = [:]
  /// SQLite's words for why a row was not written last.
  private(set) var refusal = ""
  private let update: SQLiteStatement?
  private let delete: SQLiteStatement
  private let remains: SQLiteStatement?
  /// Of a table with a deleted column: writes a row over the marked one under its key; and removes that.
  private let revive: SQLiteStatement?
  private let deleteMarked: SQLiteStatement?
  private let readMarked: SQLiteStatement?

  init(_ table: CapturedTable, _ context: StoreContext) throws {
    self.table = table
    connection = context.connection
    let shape = try connection.tableShape(table.name)
    let captured = Set(table.columns.map { $0.name.folded })
    let others = (shape?.columns.map(\.name) ?? []).filter { !captured.contains($0.folded) }
    self.others = others
    let names = Set(shape?.columns.map { $0.name.folded } ?? [])
    let isKept = !(shape?.withoutRowid ?? true) && !table.hasRowidKey
    let rowid = isKept ? ["rowid", "_rowid_", "oid"].first { !names.contains($0) } : nil
    rowidName = rowid
    let columns = table.columns.map { quoted($0.name) }
    func slots(_ count: Int) -> String { (1...count).map { "?\($0)" }.joined(separator: ", ") }
    insert = try connection.prepare(
      "INSERT INTO \(quoted(table.name)) (\(columns.joined(separator: ", "))) VALUES (\(slots(columns.count)))",
      persistent: true)
    insertAt = try rowid.map { rowid in
      try context.connection.prepare(
        "INSERT INTO \(quoted(table.name)) (\((columns + [rowid]).joined(separator: ", "))) "
          + "VALUES (\(slots(columns.count)), 1 + max(?\(columns.count + 1), coalesce((SELECT max(\(rowid)) FROM \(quoted(table.name))), 0)))",
        persistent: true)
    }
    let more = columns + others.map(quoted) + (rowidName.map { [$0] } ?? [])
    reinsert = try connection.prepare(
      "INSERT INTO \(quoted(table.name)) (\(more.joined(separator: ", "))) VALUES (\(slots(more.count)))",
      persistent: true)
    let sets = (table.keyCount..<columns.count).map { "\(columns[$0]) = ?\($0 + 1)" }.joined(separator: ", ")
    let condition = context.keyCondition(table)
    // A statement that is changed names no alias: `x` is the table itself here.
    update =
      sets.isEmpty
      ? nil
      : try connection.prepare("UPDATE \(quoted(table.name)) AS x SET \(sets) WHERE \(condition)", persistent: true)
    delete = try connection.prepare("DELETE FROM \(quoted(table.name)) AS x WHERE \(condition)", persistent: true)
    let marked = table.rowAt(markedToo: true) { "?\($0 + 1)" }
    revive = try table.deletedFlag.map { deleted in
      let cleared = "\(quoted(deleted)) = 0"
      return try context.connection.prepare(
        "UPDATE \(quoted(table.name)) AS x SET \(sets.isEmpty ? cleared : "\(sets), \(cleared)") WHERE \(marked) AND \(CapturedTable.isSet(deleted, "x"))",
        persistent: true)
    }
    deleteMarked = try table.deletedFlag.map { deleted in
      try context.connection.prepare(
        "DELETE FROM \(quoted(table.name)) AS x WHERE \(marked) AND \(CapturedTable.isSet(deleted, "x"))",
        persistent: true)
    }
    let kept = others.map(quoted) + (rowidName.map { [$0] } ?? [])
    readMarked = try table.deletedFlag.map { deleted in
      try context.connection.prepare(
        "SELECT \((columns + kept).joined(separator: ", ")) FROM \(quoted(table.name)) x WHERE \(marked) AND \(CapturedTable.isSet(deleted, "x"))",
        persistent: true)
    }
    remains =
      kept.isEmpty
      ? nil
      : try connection.prepare(
        "SELECT \(kept.joined(separator: ", ")) FROM \(quoted(table.name)) x WHERE \(condition)", persistent: true)
  }

  /// - Parameter mayMiss: there may be no row for it.
  private func outcome(_ statement: SQLiteStatement, mayMiss: Bool = false) throws -> Outcome {
    do {
      if mayMiss { try statement.run() } else { try statement.write(on: connection) }
      return .written
    } catch let error as SalvorError {
      refusal = error.sqliteDetail
      switch error.sqliteCode {
      case SQLITE_CONSTRAINT | 8 << 8, SQLITE_CONSTRAINT | 6 << 8, SQLITE_CONSTRAINT | 10 << 8: return .collides
      case SQLITE_CONSTRAINT | 1 << 8, SQLITE_CONSTRAINT | 5 << 8, SQLITE_CONSTRAINT | 7 << 8,
        SQLITE_CONSTRAINT | 12 << 8:
        return .invalid
      default: throw error
      }
    }
  }

  /// Writes `row` where there is none, or one with a deleted mark.
  func insert(_ row: SlotRow, _ kept: Remains?) throws -> Outcome {
    if let revive {
      try revive.bind(update == nil ? Array(row.prefix(table.keyCount)) : row)
      let outcome = try outcome(revive, mayMiss: true)
      if outcome != .written || connection.changes > 0 { return outcome }
    }
    guard let kept else {
      if reserved > 0, let insertAt {
        try insertAt.bind(row)
        try insertAt.bind(row.count + 1, reserved)
        return try outcome(insertAt)
      }
      try insert.bind(row)
      return try outcome(insert)
    }
    try reinsert.bind(row)
    try reinsert.bind(kept.others, from: row.count + 1)
    if rowidName != nil {
      try reinsert.bind(row.count + kept.others.count + 1, kept.rowid.map { Value.integer($0) } ?? .null)
    }
    return try outcome(reinsert)
  }

  func update(_ row: SlotRow) throws -> Outcome {
    guard let update else { return .written }
    try update.bind(row)
    return try outcome(update)
  }

  /// Writes columns of a row with a deleted mark.
  func updateMarked(_ key: Key, _ values: [(slot: Int, value: Value)]) throws -> Outcome {
    guard let deleted = table.deletedFlag else { return .written }
    let sets = values.enumerated().map {
      "\(quoted(table.columns[$1.slot].name)) = ?\(table.keyCount + 1 + $0)"
    }
    let statement = try connection.prepare(
      "UPDATE \(quoted(table.name)) AS x SET \(sets.joined(separator: ", ")) WHERE \(table.rowAt(markedToo: true) { "?\($0 + 1)" }) "
        + "AND \(CapturedTable.isSet(deleted, "x"))")
    try statement.bind(key + values.map(\.value))
    return try outcome(statement)
  }

  /// Removes the row with a deleted mark, and answers what it was. Nil: there is none.
  func removeMarked(_ key: Key) throws -> (row: SlotRow, remains: Remains)? {
    guard let deleteMarked, let readMarked else { return nil }
    try readMarked.bind(key)
    defer { readMarked.reset() }
    guard try readMarked.step() else { return nil }
    let count = table.columns.count
    let found = (
      readMarked.values(from: 0, count: count),
      Remains(
        rowid: rowidName == nil ? nil : readMarked.int64(count + others.count),
        others: readMarked.values(from: count, count: others.count))
    )
    readMarked.reset()
    try deleteMarked.bind(key)
    try deleteMarked.write(on: connection)
    return found
  }

  /// Removes the row and answers what it takes along.
  func remove(_ key: Key) throws -> Remains {
    var kept = Remains(rowid: nil, others: [])
    if let remains {
      try remains.bind(key)
      if try remains.step() {
        kept.others = remains.values(from: 0, count: others.count)
        if rowidName != nil {
          let rowid = remains.int64(others.count)
          kept.rowid = rowid
          reserved = max(reserved, rowid)
        }
      }
      remains.reset()
    }
    try delete.bind(key)
    if let words = try delete.writeDelete(on: connection) { forced[key] = words }
    return kept
  }
}
