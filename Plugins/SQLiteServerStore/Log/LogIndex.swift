import SQLiteSupport
import SalvorStorage

/// The indexes of the change log by table and key: one for each number of key columns that a table has, so that an entry is
/// in one index, and the entries of one row stand in their order.
///
/// What they cost whoever writes in the tables is in this folder's README. Statements that read a range of the log must not
/// use them: the condition is one that only a lookup repeats (the `+` keeps SQLite from taking it for a search by table).
enum LogIndex {
  private static let prefix = "salvor_change_key_"

  static func name(keyCount: Int) -> String { "\(prefix)\(keyCount)" }

  /// The index's own condition; a statement that uses it says the same.
  static func condition(_ tables: [ServerTable], keyCount: Int) -> String {
    let numbers = tables.filter { $0.keyCount == keyCount }.map(\.number).sorted()
    return "+t IN (\(numbers.map { "\($0)" }.joined(separator: ", ")))"
  }

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
