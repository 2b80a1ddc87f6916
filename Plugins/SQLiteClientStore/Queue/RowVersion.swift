import SQLiteSupport
import SalvorModel
import SalvorStorage

extension StoreContext {
  /// What the newest commit that this device knows to have changed a row did to it, by a download or an acknowledgement. Nil: none is
  /// remembered.
  func newestVersion(
    of table: CapturedTable, _ key: Key
  ) throws -> (version: Int64, isOwn: Bool, base: DeviceRowFacts.Base)? {
    let condition = key.indices.map { "v\($0) IS ?\($0 + 2) COLLATE BINARY" }.joined(separator: " AND ")
    let rows = try connection.rows(
      "SELECT version, own, deleted FROM salvor_history WHERE t = ?1 AND \(condition) ORDER BY version DESC, id DESC LIMIT 1",
      [.integer(table.number)] + key)
    guard let row = rows.first else { return nil }
    let base: DeviceRowFacts.Base =
      switch row[2].integer {
      case 0: .present
      case 2: .left
      default: .deleted
      }
    return (row[0].integer ?? 0, row[1].integer != 0, base)
  }
}
