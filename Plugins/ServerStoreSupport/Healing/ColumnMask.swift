/// A set of a table's columns, as the change log and the ranks of healed rows say it: one bit for each column, by the
/// number that it got when the table had it first, and one for whether the row is there at all.
enum ColumnMask {
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
