import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Rows that no subscription covers any more (`Departure.dropped`): they go when no change of them waits, nor one of a row
/// that references them. Until then their bases stay, so that the changes can stand and be sent (semantics 4). They are fed no
/// more: what is changed of them was made on the commit that they stood at when they were dropped (`number`, decision 9).
final class LeavingRows {
  private let context: StoreContext
  private let index: LogIndex
  private let find: SQLiteStatement
  private let insert: SQLiteStatement
  private let delete: SQLiteStatement
  private(set) var isEmpty: Bool

  init(_ context: StoreContext, _ index: LogIndex) throws {
    self.context = context
    self.index = index
    let connection = context.connection
    isEmpty = try connection.integer("SELECT 1 FROM salvor_leaving LIMIT 1") == nil
    find = try connection.prepare("SELECT 1 FROM salvor_leaving WHERE t = ?1 AND key = ?2", persistent: true)
    insert = try connection.prepare(
      "INSERT OR IGNORE INTO salvor_leaving (t, key, number) VALUES (?1, ?2, ?3)", persistent: true)
    delete = try connection.prepare("DELETE FROM salvor_leaving WHERE t = ?1 AND key = ?2", persistent: true)
  }

  private func bind(_ statement: SQLiteStatement, _ table: CapturedTable, _ key: Key) throws {
    try statement.bind(1, table.number)
    try statement.bind(2, .text(payload(key)))
  }

  func contains(_ table: CapturedTable, _ key: Key) throws -> Bool {
    if isEmpty { return false }
    try bind(find, table, key)
    defer { find.reset() }
    return try find.step()
  }

  /// False: nothing keeps the row, it may go at once.
  ///
  /// - Parameter numberMax: the newest commit that the server has of those that the device knows; nil: all.
  func take(_ table: CapturedTable, _ key: Key, numberMax: Int64? = nil) throws -> Bool {
    guard !index.tables.isEmpty else { return false }
    guard try index.mayContain(table, key) || context.currentRow(table, key) != nil else { return false }
    try bind(insert, table, key)
    // The group's cursor has not moved yet.
    let cursor = try context.connection.integer(
      "SELECT number FROM salvor_group WHERE name = ?1", .text(context.group(of: table.number)))
    try insert.bind(3, min(cursor ?? 0, numberMax ?? .max))
    try insert.run()
    isEmpty = false
    return true
  }

  /// The row came again, or went otherwise.
  func forget(_ table: CapturedTable, _ key: Key) throws {
    if isEmpty { return }
    try bind(delete, table, key)
    try delete.run()
  }

  func keys(of table: CapturedTable) throws -> [Key] {
    if isEmpty { return [] }
    return try context.connection.rows("SELECT key FROM salvor_leaving WHERE t = ?1", .integer(table.number)).map {
      try unpayload($0[0])
    }
  }

  // MARK: Going

  private static let batch = 1000

  /// Calls `remove` with each row that nothing keeps any more.
  func sweep(_ references: ReferenceProof, _ remove: (CapturedTable, Key) throws -> Void) throws {
    if isEmpty { return }
    let kept = try keptRows(references)
    var last: (table: Int64, key: Value) = (0, .text(""))
    while true {
      let rows = try context.connection.rows(
        "SELECT t, key FROM salvor_leaving WHERE (t, key) > (?1, ?2) ORDER BY t, key LIMIT \(Self.batch)",
        .integer(last.table), last.key)
      for row in rows {
        guard let number = row[0].integer else { continue }
        last = (number, row[1])
        let key = try unpayload(row[1])
        if kept.contains(RowRef(table: number, key: key)) { continue }
        try context.connection.run("DELETE FROM salvor_leaving WHERE t = ?1 AND key = ?2", row[0], row[1])
        // A table that was dropped meanwhile has none.
        if let table = context.catalog.table(number: number) { try remove(table, key) }
      }
      if rows.count < Self.batch { return }
    }
  }

  /// The rows with changes in the log, and what those reference, upwards: not more than there are changes.
  private func keptRows(_ references: ReferenceProof) throws -> Set<RowRef> {
    var kept: Set<RowRef> = []
    var open: [(table: CapturedTable, key: Key)] = []
    for number in index.tables {
      guard let table = context.catalog.table(number: number) else { continue }
      try index.eachRow(of: table) { key in
        if try contains(table, key) { kept.insert(RowRef(table: number, key: key)) }
        open.append((table, key))
      }
    }
    while let (table, key) = open.popLast() {
      guard let row = try context.currentRow(table, key) ?? index.timeline(table, key).base else { continue }
      for rule in references.rules where rule.capturedChild?.number == table.number && rule.parentColumnsAreKey {
        guard let parent = rule.capturedParent else { continue }
        let slots = rule.childColumns.compactMap { name in
          table.columns.firstIndex { $0.name.folded == name.folded }
        }
        let reference = slots.map { row[$0] }
        guard reference.count == rule.childColumns.count, !reference.contains(.null), try contains(parent, reference),
          kept.insert(RowRef(table: parent.number, key: reference)).inserted
        else { continue }
        open.append((parent, reference))
      }
    }
    return kept
  }
}
