import SalvorModel
import SalvorStorage

/// Rows of which the device gets the changed columns alone (decision 103).
extension FeedPageMaker {
  struct PartColumns {
    /// Of a row's entries in a window of the log: the `ColumnMask` of all that they changed; 0: the row comes whole, since an
    /// entry is no plain update, or does not say what it changed.
    let mask: String
    let keys: [Int]
    let bits: [Int]

    /// The places of the key and of the changed columns; nil: the row comes whole.
    func columns(_ mask: Int64) -> [Int]? {
      guard mask != 0 else { return nil }
      let columns = bits.indices.filter { mask.has(bits[$0]) || keys.contains($0) }
      return columns.count == bits.count || columns.count == keys.count ? nil : columns
    }
  }

  /// Nil: rows of the table come whole. Only a device that has had the table up to its cursor, in the scope of now, has every row
  /// that was nothing but updated since: a row that came into its scope has an entry that says so.
  func partColumns(_ place: Int) -> PartColumns? {
    let table = catalog.tables[place]
    guard request.takesParts, request.compared == nil, !wholeRows.contains(table.number),
      !position.isScanned(table.table),
      !position.hasAnotherScope(table.table), table.bits.count > table.keyCount
    else { return nil }
    // SQLite has no aggregate for it: each bit by itself.
    let bits = Set(table.bits).sorted().map { "max(s.m & \(Int64(1) << Int64($0)))" }
    let isPlain = "min(s.op) = \(LogOperation.update) AND max(s.op) = \(LogOperation.update) AND count(s.m) = count(*)"
    return PartColumns(
      mask: "CASE WHEN \(isPlain) THEN \(balanced(bits, by: "|")) ELSE 0 END", keys: table.keyPlaces, bits: table.bits)
  }
}
