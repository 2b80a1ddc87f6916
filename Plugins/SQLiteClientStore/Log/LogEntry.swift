import SQLiteSupport
import SalvorModel

/// The values of a row's captured columns, by slot.
typealias SlotRow = [Value]

/// One row of `salvor_log`.
struct LogEntry: Sendable, Hashable {
  var seq: Int64
  /// The table's number; 0 for markers.
  var table: Int64
  var operation: LogOperation
  /// For an update: which slots have an old value. For a delete: not empty where the base had no such row; what values it
  /// has then are of a row that went from its table all the same.
  var mask: LogMask
  /// By slot, as many as the table has; what the operation does not fill is NULL.
  var values: SlotRow

  func key(_ table: CapturedTable) -> Key { Array(values.prefix(table.keyCount)) }

  /// What the change saw: of an update the old values of its columns, of a delete the whole row.
  var saw: SlotRow? { operation.isUpdate || (operation.isDelete && mask.isEmpty) ? values : nil }

  /// The slots that the change gives new values.
  func writtenSlots(_ table: CapturedTable) -> [Int] {
    if operation.isUpdate { return mask.slots(below: table.columns.count) }
    return operation == .insert ? Array(table.columns.indices) : []
  }
}

extension CaptureCatalog {
  /// The log's columns in the order that `entry(from:)` reads.
  var logColumns: String {
    (["seq", "t", "op"] + (0..<maskCount).map { "m\($0)" } + (0..<valueCount).map { "v\($0)" })
      .joined(separator: ", ")
  }

  /// Reads the current row of a statement that selects `logColumns`, from column `first` on.
  func entry(from row: SQLiteStatement, first: Int = 0) throws -> LogEntry {
    guard let operation = LogOperation(rawValue: row.int64(first + 2)) else {
      throw SalvorError(.storageCorrupt, "salvor_log has a row of an unknown kind: restore the database from a copy.")
    }
    let number = row.int64(first + 1)
    let table = table(number: number)
    let count = table?.columns.count ?? 1
    // A delete has one where the base had no such row.
    let hasMask = operation.isUpdate || (operation.isDelete && row.int64(first + 3) != 0)
    let masks = (0..<(hasMask ? table?.maskCount ?? 1 : 0)).map { row.int64(first + 3 + $0) }
    return LogEntry(
      seq: row.int64(first), table: number, operation: operation, mask: LogMask(words: masks),
      values: row.values(from: first + 3 + maskCount, count: count))
  }
}
