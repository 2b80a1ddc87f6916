import SalvorModel

/// One row of one captured table.
struct RowRef: Sendable, Hashable {
  var table: Int64
  var key: Key
}

/// A request as a run of counters. Everything captured between the two belongs to it.
struct RequestRange: Sendable, Hashable {
  var first: Int64
  var last: Int64
  var tag: String?
}

extension [RequestRange] {
  /// Of ranges in order, the one that a counter lies in.
  func holding(_ counter: Int64) -> RequestRange? {
    var low = 0
    var high = count
    while low < high {
      let middle = (low + high) / 2
      if self[middle].last < counter { low = middle + 1 } else { high = middle }
    }
    return low < count && self[low].first <= counter ? self[low] : nil
  }
}
