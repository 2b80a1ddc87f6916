import SalvorModel
import SalvorStorage
import SalvorWire

/// What changed subscriptions add and drop (docs/architecture/feed.md): the rows that are in one scope and not in the other,
/// as they are now. What changes while they are read, the feed from the group's cursor brings.
extension FeedPageMaker {
  /// Rows of one statement at most, so that none has to sort all that come.
  private static var rowsMax: Int { 4096 }

  /// True: this step of the table is through.
  mutating func scanDifference(_ place: Int, isDropping: Bool, after: Key) throws -> Bool {
    let table = catalog.tables[place]
    guard after.isEmpty || after.count == table.keyCount else { throw FeedPosition.foreign }
    guard table.isScoped, let scope = scopes[table.table.group] else { return true }
    let wanted = ScopeFilter(table, scope.wanted, catalog), had = ScopeFilter(table, scope.had, catalog)
    guard let difference = Difference(table, isDropping ? had : wanted, without: isDropping ? wanted : had) else {
      return true
    }
    var after = after
    while true {
      if isFull { return false }
      let statement = try connection.cached(difference.sql(after: after, keysOnly: isDropping))
      try statement.bind(after + difference.values)
      defer { statement.reset() }
      var count = 0
      while try statement.step() {
        if isFull { return false }
        beginTable(place)
        if isDropping {
          writer.beginKey(.dropped, version: position.start.number)
          for key in 0..<table.keyCount { writer.value(of: statement, key, isKey: true) }
          writer.endRow()
        } else {
          try writeRow(table, statement, from: 0, version: position.start.number)
        }
        count += 1
        if isFull || count == Self.rowsMax {
          after = (isDropping ? Array(0..<table.keyCount) : table.keyPlaces).map { statement.value($0) }
          position.scan = (2 * place + (isDropping ? 1 : 0), after)
        }
      }
      if count < Self.rowsMax { return true }
    }
  }

  /// The rows of a table that are in one scope and not in another.
  struct Difference {
    let table: ServerTable
    let conditions: [String]
    let values: [Value]

    /// Nil: there can be none.
    init?(_ table: ServerTable, _ one: ScopeFilter?, without other: ScopeFilter?) {
      guard let other else { return nil }
      self.table = table
      let column = { "x.\(quoted($0))" }
      var conditions: [String] = []
      var values: [Value] = []
      if let one {
        if let added = one.added(to: other, column) {
          if added.sql == "FALSE" { return nil }
          conditions.append("(\(added.sql))")
          values += added.values
        }
        conditions.append(one.sql(column))
        values += one.values
      }
      conditions.append("(\(other.sql(column))) IS NOT TRUE")
      self.conditions = conditions
      self.values = values + other.values
    }

    /// The statement's first parameters are those of `after`.
    func sql(after: Key, keysOnly: Bool) -> String {
      let conditions = (after.isEmpty ? [] : [table.follows("x", after)]) + conditions
      return "SELECT \(keysOnly ? table.keyList("x") : table.columnList("x")) FROM \(table.sql) x "
        + "WHERE \(conditions.joined(separator: " AND ")) ORDER BY \(table.keyList("x")) LIMIT \(FeedPageMaker.rowsMax)"
    }
  }
}
