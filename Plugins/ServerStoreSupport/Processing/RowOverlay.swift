import SalvorModel
import SalvorStorage
import SalvorWire

/// What rows are to be, over what the tables have. Nothing is written; `SetWriter` does that.
struct RowOverlay {
  struct Entry {
    var table: Int
    var key: Key
    /// As the tables have it.
    let before: Row?
    var now: Row?
  }

  let rows: RowReader
  /// By `RowHash`.
  private(set) var entries: [UInt64: Entry] = [:]

  init(_ rows: RowReader) { self.rows = rows }

  subscript(hash: UInt64) -> Entry? { entries[hash] }

  /// Takes a row up as the tables have it, unless it is here already.
  mutating func row(_ place: Int, _ key: Key, _ hash: UInt64) throws -> (row: Row?, isNew: Bool) {
    if let known = entries[hash] { return (known.now, false) }
    let row = try rows.row(place, key)
    entries[hash] = Entry(table: place, key: key, before: row, now: row)
    return (row, true)
  }

  /// The row must have been taken up.
  mutating func set(_ hash: UInt64, to row: Row?) { entries[hash]?.now = row }

  /// Without looking what the tables have.
  mutating func put(_ place: Int, _ key: Key, _ hash: UInt64, _ row: Row?) {
    entries[hash] = Entry(table: place, key: key, before: row, now: row)
  }

  /// A row as it would be, without taking it up.
  func peek(_ place: Int, _ key: Key) throws -> Row? {
    let hash = RowHash(table: rows.catalog.tables[place].name).adding(key)
    if let known = entries[hash] { return known.now }
    return try rows.row(place, key)
  }

  /// The rows that have `value` in a column, as they would be, until `body` answers false.
  func each(_ place: Int, _ column: String, _ value: Value, _ body: (Row) throws -> Bool) throws {
    let table = rows.catalog.tables[place]
    guard let target = table.place(column) else { return }
    for entry in entries.values where entry.table == place {
      if let now = entry.now, now[target] == value, try !body(now) { return }
    }
    let seed = RowHash(table: table.name)
    try rows.each(place, column, value) { row in
      guard entries[seed.adding(table.keyPlaces.map { row[$0] })] == nil else { return true }
      return try body(row)
    }
  }

  /// The rows that a join finds by `value`, as they would be; those that its own conditions keep away aside.
  func rows(_ place: Int, by join: ScopeJoin, _ value: Value, _ principal: Principal) throws -> [Row] {
    let table = rows.catalog.tables[place]
    guard let target = table.place(join.target) else { return [] }
    let seed = RowHash(table: table.name)
    var found = try rows.rows(place, by: join, value, principal).filter { row in
      entries[seed.adding(table.keyPlaces.map { row[$0] })] == nil
    }
    for entry in entries.values where entry.table == place {
      if let now = entry.now, now[target] == value { found.append(now) }
    }
    return found
  }
}
