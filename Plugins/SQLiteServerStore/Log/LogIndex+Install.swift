import SQLiteSupport
import SalvorStorage
import ServerStoreSupport

extension LogIndex {
  /// Makes what is missing and drops what is not for these tables. Reads the whole log where it makes one.
  static func install(_ tables: [ServerTable], _ connection: SQLiteConnection) throws {
    var wanted: [String: String] = [:]
    for keyCount in Set(tables.map(\.keyCount)) {
      let keys = (0..<keyCount).map { ", v\($0)" }.joined()
      wanted[name(keyCount: keyCount)] =
        "CREATE INDEX \(name(keyCount: keyCount)) ON salvor_change (t\(keys)) WHERE \(condition(tables, keyCount: keyCount))"
    }
    for row in try connection.rows(
      "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND name GLOB ?1", .text(prefix + "*"))
    {
      guard let name = row[0].string else { continue }
      if wanted[name] == row[1].string {
        wanted[name] = nil
      } else {
        try connection.execute("DROP INDEX \(quoted(name))")
      }
    }
    for sql in wanted.values.sorted() { try connection.execute(sql) }
  }
}
