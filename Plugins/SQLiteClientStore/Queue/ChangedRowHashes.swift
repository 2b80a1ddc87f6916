import SQLiteSupport
import SalvorModel
import SalvorStorage

extension StoreContext {
  /// Calls `body` with the changes after a counter, in order, each with the hash of its row, as long as it answers true.
  func eachChangedRow(after start: Int64, _ body: (_ hash: UInt64, _ seq: Int64) throws -> Bool) throws {
    let counts = Dictionary(uniqueKeysWithValues: catalog.tables.map { ($0.number, $0.keyCount) })
    let keys = (0..<max(1, counts.values.max() ?? 1)).map { "v\($0)" }.joined(separator: ", ")
    try connection.query(
      "SELECT seq, t, \(keys) FROM salvor_log WHERE seq > ?1 AND op IN \(Self.changeOperations) ORDER BY seq",
      [.integer(start)]
    ) { row in
      try body(rowHash(row, table: 1, firstKey: 2, count: counts[row.int64(1)] ?? 1), row.int64(0))
    }
  }
}
