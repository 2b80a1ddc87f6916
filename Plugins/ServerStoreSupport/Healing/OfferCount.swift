import SalvorModel
import SalvorStorage

/// What became of offers, by the table's place.
struct OfferCount {
  struct Count {
    /// Brought something back.
    var healed: Int64 = 0
    /// Found all of it there, or newer.
    var superseded: Int64 = 0
    /// Left a conflict version.
    var conflicts: Int64 = 0
    var refused: Int64 = 0
    /// Refused, since the row is purged.
    var purged: Int64 = 0
  }

  private(set) var tables: [Int: Count] = [:]

  subscript(table: Int) -> Count {
    get { tables[table] ?? Count() }
    set { tables[table] = newValue }
  }

  var healed: Int64 { tables.values.reduce(0) { $0 + $1.healed } }
  var superseded: Int64 { tables.values.reduce(0) { $0 + $1.superseded } }
  var conflicts: Int64 { tables.values.reduce(0) { $0 + $1.conflicts } }

  mutating func noteRefused(_ request: StagedRequest, _ reason: RefusalReason) {
    for change in request.changes where change.offer != nil {
      guard let table = change.table else { continue }
      if reason == .purged { self[table].purged += 1 } else { self[table].refused += 1 }
    }
  }

  static func += (count: inout OfferCount, other: OfferCount) {
    for (table, more) in other.tables {
      count[table].healed += more.healed
      count[table].superseded += more.superseded
      count[table].conflicts += more.conflicts
      count[table].refused += more.refused
      count[table].purged += more.purged
    }
  }
}
