import SalvorModel

/// A set of a table's columns, as the change log and the ranks of healed rows say it: one bit for each column, by the
/// number that it got when the table had it first, and one for whether the row is there at all.
package enum ColumnMask {
  /// A table's columns beyond the 61st share one bit: what is known of one of them is known of all.
  static let shared = 61
  /// The row itself: made, or deleted.
  static let existence = 62
  static let all: Int64 = -1

  static func bit(ofColumn number: Int64) -> Int { Int(min(max(number, 0), Int64(shared))) }

  static func mask(_ bits: some Sequence<Int>) -> Int64 { bits.reduce(0) { $0 | 1 << Int64($1) } }
}

extension Int64 {
  func has(_ bit: Int) -> Bool { self & (1 << Int64(bit)) != 0 }
}

extension ColumnMask {
  /// Each column keeps the number that it got first, through renames, whatever its place is later. A name that a new column gets has another
  /// column's number no more. What an earlier release wrote has each column's oldest name.
  ///
  /// - Parameter before: the columns of the schema of before, under their names of now.
  package static func numbers(
    of table: Table, _ number: Int64, before: [String], _ connection: any StoreConnection
  ) throws -> [String: Int64] {
    var known: [String: Int64] = [:]
    for row in try connection.rows("SELECT origin, number FROM salvor_column WHERE t = ?1", .integer(number)) {
      known[row[0].string ?? ""] = row[1].integer
    }
    var next = (known.values.max() ?? -1) + 1
    var numbers: [String: Int64] = [:]
    for column in table.travelling {
      let found = before.contains(column.name) ? known[column.name] ?? known[column.origin] : nil
      numbers[column.name] = found ?? next
      if found == nil { next += 1 }
      guard known[column.name] != numbers[column.name] else { continue }
      try connection.run(
        "INSERT INTO salvor_column (t, origin, number) VALUES (?1, ?2, ?3) ON CONFLICT (t, origin) DO UPDATE SET number = excluded.number",
        .integer(number), .text(column.name), .integer(numbers[column.name] ?? 0))
    }
    return numbers
  }
}
