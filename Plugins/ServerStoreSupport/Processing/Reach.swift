import SalvorModel
import SalvorStorage

/// Tells whether a change has reached its table. A trigger of the database's own may take the statement's place (`RAISE(IGNORE)`,
/// `RETURN NULL`), or take back what it wrote, and no statement fails. Where the row is as it was before, the request is refused: its
/// sender would learn in no other way that nothing came of it. Where the trigger made something of the row, the sender is fed that.
final class Reach {
  /// Nothing of a change has reached its table.
  struct TakenBack: Error {}

  private let rows: RowReader
  private var connection: any StoreConnection { rows.connection }
  private var catalog: Catalog { rows.catalog }
  /// By the table's place.
  private var triggers: [Int: [String]] = [:]

  init(_ rows: RowReader) { self.rows = rows }

  /// The names of the triggers on a table that are not Salvor's.
  func triggers(of place: Int) throws -> [String] {
    if let known = triggers[place] { return known }
    let query = catalog.dialect.ownTriggers(on: catalog.tables[place].name)
    var names: [String] = []
    try connection.query(query.sql, query.values) {
      names.append($0.string(0))
      return true
    }
    triggers[place] = names
    return names
  }

  /// A synchronized table has triggers of the database's own.
  func hasTriggers() throws -> Bool { try catalog.tables.indices.contains { try !triggers(of: $0).isEmpty } }

  /// Whether a trigger may have set columns of an updated row that the update did not name: the statement answers with what it set
  /// itself.
  func mayAlter(_ plan: ShapePlan) throws -> Bool {
    guard connection.altersRows, plan.operation == .update, let place = plan.place else { return false }
    return try !triggers(of: place).isEmpty
  }

  // MARK: One statement

  /// Whether the statement of one change, which has just run, is to be undone, so that the change is looked at closely.
  ///
  /// - Parameters:
  ///   - changes: how many rows it has changed itself.
  ///   - before: what the connection had written before it.
  ///   - entry: the last entry of the log before it, or an earlier one.
  func isTakenBack(
    _ plan: ShapePlan, _ row: RowItems, changes: Int, since before: Int?, after entry: Int64
  ) throws -> Bool {
    guard let place = plan.place else { return false }
    if let before, let now = connection.writtenRows {
      // The row and its entry; or nothing at all, so that there is nothing to undo.
      if now - before <= 2 * changes { return false }
      let count = try entries(of: plan.key(of: row), in: place, after: entry)
      return try changes == 0 ? count == 0 : count > 1 && isAsBefore(plan, row, place)
    }
    guard try !triggers(of: place).isEmpty else { return false }
    return try changes == 0 || isAsBefore(plan, row, place)
  }

  /// As far as the payload says what the row was.
  private func isAsBefore(_ plan: ShapePlan, _ row: RowItems, _ place: Int) throws -> Bool {
    let present = try rows.row(place, plan.key(of: row))
    switch plan.operation {
    case .insert: return present == nil
    case .delete: return present != nil
    case .update:
      guard let present else { return false }
      return plan.columns.enumerated().allSatisfy { index, column in
        present[column] == row.items[plan.keyItems.count + 2 * index].value
      }
    }
  }

  /// Whether some of the rows that one statement has changed were changed again: such a set is to be undone.
  ///
  /// - Parameter entry: the last entry of the log before the statement.
  func isTakenBack(_ place: Int, rows count: Int, after entry: Int64) throws -> Bool {
    guard try !triggers(of: place).isEmpty else { return false }
    try connection.numberWritten()
    let entries = try connection.integer(
      "SELECT count(*) FROM salvor_change WHERE seq > ?1 AND t = ?2", .integer(entry),
      .integer(catalog.tables[place].number))
    return entries ?? 0 > Int64(count)
  }

  private func entries(of key: Key, in place: Int, after entry: Int64) throws -> Int {
    let table = catalog.tables[place]
    try connection.numberWritten()
    return Int(
      try connection.integer(
        """
        SELECT count(*) FROM salvor_change c\(catalog.dialect.using(index: LogIndex.name(keyCount: table.keyCount)))
        WHERE \(LogIndex.condition(catalog.tables, keyCount: table.keyCount)) AND c.t = \(table.number)
          AND \(table.keyPlaces.indices.map { "c.v\($0) = ?\($0 + 2)" }.joined(separator: " AND ")) AND c.seq > ?1
          AND c.op NOT IN (\(LogOperation.touch), \(LogOperation.scopeMoved), \(LogOperation.differs))
        """, [.integer(entry)] + key) ?? 0)
  }

  // MARK: A set

  /// The rows of a set, just written, of which nothing has reached the tables.
  ///
  /// - Parameters:
  ///   - passedOver: those that no statement has changed.
  ///   - before: what the connection had written before the set.
  ///   - entry: the last entry of the log before the set, or an earlier one.
  func takenBack(
    of changed: [RowOverlay.Entry], passedOver: [RowOverlay.Entry], since before: Int?, after entry: Int64
  ) throws -> [RowOverlay.Entry] {
    let isPlain = before.flatMap { before in connection.writtenRows.map { $0 - before == 2 * changed.count } } ?? false
    if isPlain && passedOver.isEmpty { return [] }
    var found: [RowOverlay.Entry] = []
    for row in passedOver where try rows.row(row.table, row.key) == row.before { found.append(row) }
    guard try Set(changed.map(\.table)).contains(where: { try !triggers(of: $0).isEmpty }) else { return found }
    let known = Set(found.map { "\($0.table) \($0.key)" })
    for row in changed where !known.contains("\(row.table) \(row.key)") {
      // A type that stores the value as it was before is no trigger: that leaves one entry in the log, or none.
      guard try rows.row(row.table, row.key) == row.before, try entries(of: row.key, in: row.table, after: entry) > 1
      else { continue }
      found.append(row)
    }
    return found
  }

  /// What the sender is told.
  func refusal(of place: Int) throws -> RefusalText {
    let name = catalog.tables[place].name
    if catalog.withholdsMessages {
      return RefusalText(.constraint, "A trigger of the server's database refused a row of \(name). Correct the row.")
    }
    let names = try triggers(of: place)
    let what =
      names.isEmpty
      ? "A rule of it"
      : names.count == 1 ? "Its trigger \(names[0])" : "One of its triggers (\(names.joined(separator: ", ")))"
    return RefusalText(
      .constraint,
      "\(name): nothing of the change has reached the server's table. \(what) left it out, or took it back. Correct the row, or withdraw the change."
    )
  }
}
