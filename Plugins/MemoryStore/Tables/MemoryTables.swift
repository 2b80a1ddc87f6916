import SalvorModel

/// A row's name: its table and its key.
struct RowName: Sendable, Hashable {
  var table: String
  var key: Key
}

/// The rows of all tables of one database: a value, so a copy is a snapshot and putting a copy back is a rollback.
struct MemoryTables: Sendable, Equatable {
  private var rows: [String: [Key: Row]] = [:]

  subscript(name: RowName) -> Row? {
    get { rows[name.table]?[name.key] }
    set { rows[name.table, default: [:]][name.key] = newValue }
  }

  func rows(of table: String) -> [Key: Row] { rows[table] ?? [:] }

  /// In key order.
  func sortedRows(of table: String) -> [Row] {
    rows(of: table).sorted { keyPrecedes($0.key, $1.key) }.map(\.value)
  }

  func sortedKeys(of table: String) -> [Key] { rows(of: table).keys.sorted(by: keyPrecedes) }

  var names: Set<RowName> { differences(from: MemoryTables()) }

  /// Gives every row of `table` a form of its own: used where columns are added.
  mutating func rewrite(_ table: String, _ change: (Row) -> Row) {
    rows[table] = rows[table]?.mapValues(change)
  }

  mutating func remove(_ table: String) { rows[table] = nil }

  mutating func move(_ table: String, to name: String) {
    rows[name] = rows[table]
    rows[table] = nil
  }

  /// The rows that are not the same in both.
  func differences(from other: MemoryTables) -> Set<RowName> {
    var names: Set<RowName> = []
    for table in Set(rows.keys).union(other.rows.keys) {
      let mine = rows(of: table), theirs = other.rows(of: table)
      for (key, row) in mine where theirs[key] != row { names.insert(RowName(table: table, key: key)) }
      for key in theirs.keys where mine[key] == nil { names.insert(RowName(table: table, key: key)) }
    }
    return names
  }
}

extension Table {
  /// The row of an insert that names some of the columns: the others take their default, or NULL.
  func row(_ values: [NamedColumnValue]) throws -> Row {
    var row = columns.map { $0.defaultValue ?? .null }
    try set(values, in: &row)
    return row
  }

  func set(_ values: [NamedColumnValue], in row: inout Row) throws {
    for value in values {
      guard let index = columnIndex(value.name) else {
        throw SalvorError(
          .storage, "The table \(name) has no column \(value.name). Name one of its columns.",
          context: ["table": name, "column": value.name])
      }
      row[index] = value.value
    }
  }

  /// The values of the columns that travel: what is compared and sent.
  func travelling(_ row: Row) -> [Value] { travelling.compactMap { columnIndex($0.name) }.map { row[$0] } }

  /// The names of the travelling columns in which two rows differ: another storage class or other bytes.
  func changedColumns(_ before: Row, _ after: Row) -> [String] {
    travelling.map(\.name).filter { name in columnIndex(name).map { before[$0] != after[$0] } ?? false }
  }

  func value(_ column: String, of row: Row) -> Value { columnIndex(column).map { row[$0] } ?? .null }
}

typealias NamedColumnValue = (name: String, value: Value)
