import CSQLite
import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Compares the bases of one table with the server's ranges of keys (docs/architecture/comparison.md). Memory holds one
/// range, and the answers.
struct RangeComparison {
  let context: StoreContext
  let table: CapturedTable
  /// The slots that a row's digest is made of, in the page's order.
  private let slots: [Int]

  /// - Parameter names: the columns that a row's digest is made of, in their order.
  init(_ context: StoreContext, _ name: String, columns names: [String]) throws {
    self.context = context
    table = try context.captured(name)
    let columns = table.columns
    slots = try names.map { column in
      guard let slot = columns.firstIndex(where: { $0.name.folded == column.folded }) else {
        throw SalvorError(
          .inconsistentDownload,
          "The server compares a column \(column) that \(name) does not have here. Adopt the SyncConfig first.",
          context: ["table": name, "column": column])
      }
      return slot
    }
  }

  /// In a transaction.
  func differences(_ page: RangePage, after: Key?) throws -> [RowQuery] {
    try collectRowsWithRequests()
    defer { _ = try? context.connection.execute("DELETE FROM \(bases)") }
    // A table that is empty on the server has no range.
    var rest = (page.ranges.isEmpty && page.isLast ? [RangeDigest(last: nil, count: 0, digest: "")] : page.ranges)[...]
    var found: [RowQuery] = []
    var start = after
    var keys: [Key] = []
    var digests: [UInt64] = []
    func close(_ range: RangeDigest) {
      let sum = digests.reduce(UInt64(0), &+)
      if Int64(keys.count) != range.count || (range.count > 0 && RowDigest.text(sum) != range.digest) {
        found.append(
          RowQuery(
            table: table.name, range: RowQuery.Range(after: start, last: range.last), keys: keys,
            digests: digests.map(RowDigest.text)))
      }
      start = range.last
      keys = []
      digests = []
    }
    try eachBase(after: after) { key, digest in
      while let range = rest.first, let last = range.last, keyPrecedes(last, key) {
        close(range)
        rest.removeFirst()
      }
      guard !rest.isEmpty else { return false }
      keys.append(key)
      digests.append(digest)
      return true
    }
    for range in rest { close(range) }
    return found
  }

  /// Count and digest of all bases. In a transaction.
  func digest() throws -> TableDigest {
    try collectRowsWithRequests()
    defer { _ = try? context.connection.execute("DELETE FROM \(bases)") }
    var count: Int64 = 0
    var sum: UInt64 = 0
    try eachBase(inOrder: false) { _, digest in
      count += 1
      sum &+= digest
      return true
    }
    return TableDigest(table: table.name, count: count, digest: RowDigest.text(sum))
  }

  private var bases: String { "temp.salvor_base_\(table.columns.count)" }

  /// Rows with requests are what the server last confirmed, not what they show. What is to be left out is there, too.
  private func collectRowsWithRequests() throws {
    let connection = context.connection
    let columns = (0..<table.columns.count).map { "v\($0)" }.joined(separator: ", ")
    // is_there: 0 where the base has no such row, so that what the table shows is left out.
    try connection.execute("CREATE TABLE IF NOT EXISTS \(bases) (\(columns), is_there); DELETE FROM \(bases)")
    let index = try LogIndex(context)
    let slots = (1...table.columns.count + 1).map { "?\($0)" }.joined(separator: ", ")
    let insert = try connection.prepare("INSERT INTO \(bases) VALUES (\(slots))", persistent: true)
    // Nor are those of it that no subscription covers any more, and that wait to go: the server does not compare them.
    let leaving = Set(try LeavingRows(context, index).keys(of: table))
    for key in leaving {
      try insert.bind(key + Array(repeating: .null, count: table.columns.count - key.count) + [.integer(0)])
      try insert.run()
    }
    try index.eachRow(of: table) { key in
      if leaving.contains(key) { return }
      let base = try index.timeline(table, key).base
      let row = base ?? key + Array(repeating: .null, count: table.columns.count - key.count)
      try insert.bind(row + [.integer(base == nil ? 0 : 1)])
      try insert.run()
    }
    let keys = table.keySlots.map { "v\($0)" }.joined(separator: ", ")
    try connection.execute(
      "CREATE INDEX IF NOT EXISTS temp.salvor_base_key_\(table.columns.count)_\(table.keyCount) ON \(bases.dropFirst(5)) (\(keys))"
    )
  }

  /// In the order of keys, whatever the columns' collations.
  private func eachBase(after: Key? = nil, inOrder: Bool = true, _ body: (Key, UInt64) throws -> Bool) throws {
    let all = table.columns.indices
    let shown = all.map(table.tableColumn).joined(separator: ", ")
    let kept = all.map { "b.v\($0)" }.joined(separator: ", ")
    func later(_ column: (Int) -> String) -> String {
      guard after != nil else { return "1" }
      let left = table.keySlots.map { "\(column($0)) COLLATE BINARY" }.joined(separator: ", ")
      let right = table.keySlots.map { "?\($0 + 1)" }.joined(separator: ", ")
      return table.keyCount == 1 ? "\(left) > \(right)" : "(\(left)) > (\(right))"
    }
    let hasRequests = table.keySlots.map { "b.v\($0) = \(table.tableColumn($0)) COLLATE BINARY" }.joined(
      separator: " AND ")
    let order = table.keySlots.map { "\($0 + 1) COLLATE BINARY" }.joined(separator: ", ")
    let sql =
      "SELECT \(shown) FROM \(quoted(table.name)) x WHERE \(later(table.tableColumn))\(table.andHasKey(table.tableColumn))\(table.andUnmarked()) "
      + "AND NOT EXISTS (SELECT 1 FROM \(bases) b WHERE \(hasRequests)) "
      + "UNION ALL SELECT \(kept) FROM \(bases) b WHERE b.is_there = 1 AND \(later { "b.v\($0)" })"
      + (inOrder ? " ORDER BY \(order)" : "")
    try context.connection.query(sql, after ?? []) { row in
      var digest = RowDigest()
      for slot in slots { digest.add(column: slot, of: row) }
      return try body(row.values(from: 0, count: table.keyCount), digest.value)
    }
  }
}

extension RowDigest {
  /// Takes in a column of a statement's current row, from where SQLite has it.
  fileprivate mutating func add(column: Int, of row: SQLiteStatement) {
    switch row.type(column) {
    case SQLITE_INTEGER: add(row.int64(column))
    case SQLITE_FLOAT: add(row.double(column))
    case SQLITE_TEXT: row.withText(column) { addText($0) }
    case SQLITE_BLOB: row.withBlob(column) { addBlob($0) }
    default: addNull()
    }
  }
}
