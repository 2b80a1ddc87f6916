import SalvorModel
import SalvorStorage

/// Which rows an uploader could see since his change was made, and cannot see now. Only of them the answer may tell whether
/// they are there; of any other it is that of a row that is not (semantics 7).
struct Departures {
  let rows: RowReader
  let principal: Principal
  /// The last entry of the log before the upload.
  let last: Int64
  let before: RowsBefore

  init(rows: RowReader, principal: Principal, last: Int64) {
    self.rows = rows
    self.principal = principal
    self.last = last
    before = RowsBefore(rows, last: last)
  }

  /// Every row of the table that is there is in his scope.
  func seesAll(_ place: Int) -> Bool {
    ScopeFilter(rows.catalog.tables[place], ReadScope(principal), rows.catalog) == nil
  }

  /// Before the oldest commit that the log still has: nobody can say what he saw.
  func isForgotten(_ made: Int64) throws -> Bool { try made < FeedPageMaker.trimmed(rows.connection) }

  /// The row has left his scope since commit `made`, deleted or moved; or this very upload has written it.
  func hasLeft(_ place: Int, _ key: Key, since made: Int64) throws -> Bool {
    let catalog = rows.catalog
    let table = catalog.tables[place]
    guard let filter = ScopeFilter(table, ReadScope(principal), catalog) else { return true }
    func isKey(_ alias: String) -> String { key.indices.map { "AND \(alias).v\($0) = ?\($0 + 1) " }.joined() }
    let first = key.count + 1
    return try exists(
      "SELECT 1 FROM salvor_change c\(catalog.dialect.using(index: LogIndex.name(keyCount: table.keyCount))) "
        + "WHERE \(LogIndex.condition(catalog.tables, keyCount: table.keyCount)) AND c.t = \(table.number) \(isKey("c"))"
        + "AND c.seq > ?\(first) LIMIT 1", key + [.integer(last)])
      || exists(
        "SELECT 1 FROM salvor_gone g WHERE g.t = \(table.number) \(isKey("g"))AND g.seq > coalesce((SELECT last_seq "
          + "FROM salvor_commit WHERE number <= ?\(first) ORDER BY number DESC LIMIT 1), 0) "
          + "AND g.seq <= ?\(first + 1) AND g.remote IS NULL AND (\(filter.sqlForDimensions("g"))) LIMIT 1",
        key + [.integer(made), .integer(last)] + filter.values)
  }

  private func exists(_ sql: String, _ values: [Value]) throws -> Bool {
    var isThere = false
    try rows.connection.query(sql, values) { _ in
      isThere = true
      return false
    }
    return isThere
  }
}
