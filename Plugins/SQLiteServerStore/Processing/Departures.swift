import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Which rows an uploader could see since his change was made, and cannot see now. Only of them the answer may tell that
/// they are outside of his scope; of any other it is that of a row that is not there (semantics 7).
struct Departures {
  let rows: RowReader
  let principal: Principal
  /// The last entry of the log before the upload.
  let last: Int64

  func hasLeft(_ place: Int, _ key: Key, since made: Int64) throws -> Bool {
    let table = rows.catalog.tables[place]
    guard let filter = ScopeFilter(table, ReadScope(principal), rows.catalog) else { return false }
    let first = key.count + 1
    let sql =
      "SELECT 1 FROM salvor_gone g WHERE g.t = \(table.number) "
      + key.indices.map { "AND g.v\($0) IS ?\($0 + 1) " }.joined()
      + "AND g.seq > coalesce((SELECT last_seq FROM salvor_commit WHERE number <= ?\(first) ORDER BY number DESC LIMIT 1), 0) "
      + "AND g.seq <= ?\(first + 1) AND g.remote IS NULL AND (\(filter.sqlForDimensions("g"))) LIMIT 1"
    var hasLeft = false
    try rows.connection.query(sql, key + [.integer(made), .integer(last)] + filter.values) { _ in
      hasLeft = true
      return false
    }
    return hasLeft
  }
}
