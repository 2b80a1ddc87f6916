import SalvorStorage

/// The indexes of the change log by table and key: one for each number of key columns that a table has, so that an entry is
/// in one index, and the entries of one row stand in their order.
///
/// What they cost whoever writes in the tables is in this folder's README. Statements that read a range of the log must not
/// use them: the condition is one that only a lookup repeats (the `+` keeps SQLite from taking it for a search by table).
package enum LogIndex {
  package static let prefix = "salvor_change_key_"

  package static func name(keyCount: Int) -> String { "\(prefix)\(keyCount)" }

  /// The index's own condition; a statement that uses it says the same.
  package static func condition(_ tables: [ServerTable], keyCount: Int) -> String {
    let numbers = tables.filter { $0.keyCount == keyCount }.map(\.number).sorted()
    return "+t IN (\(numbers.map { "\($0)" }.joined(separator: ", ")))"
  }
}
