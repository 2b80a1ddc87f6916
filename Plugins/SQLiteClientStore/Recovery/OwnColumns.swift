import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Columns of the application's own on synchronized tables, while a recovery makes the tables anew: their definitions, and their values by
/// the rows' keys. The server never hears of them.
final class OwnColumns {
  private struct Kept {
    var table: CapturedTable
    var columns: [TableShape.Column]
    /// A temporary table: the key as `k0`, …, the values as `c0`, ….
    var values: String
  }

  private let connection: SQLiteConnection
  private var kept: [Kept] = []

  init(_ connection: SQLiteConnection) { self.connection = connection }

  /// Before the table is dropped.
  ///
  /// - Parameter definition: what the schema says of it; all other columns are the application's.
  func remember(_ table: CapturedTable, _ definition: Table?) throws {
    guard let definition, let shape = try connection.tableShape(table.name) else { return }
    let known = Set(definition.columns.map { $0.name.folded })
    let captured = Set(table.columns.map { $0.name.folded })
    let columns = shape.columns.filter {
      !known.contains($0.name.folded) && !captured.contains($0.name.folded)
    }
    if columns.isEmpty { return }
    let values = "temp.salvor_own_\(table.number)"
    let keys = table.keySlots.map { "\(table.tableColumn($0)) AS k\($0)" }
    let others = columns.enumerated().map { "x.\(quoted($1.name)) AS c\($0)" }
    try connection.execute(
      "DROP TABLE IF EXISTS \(values); CREATE TABLE \(values) AS SELECT \((keys + others).joined(separator: ", ")) FROM \(quoted(table.name)) x"
    )
    let index = table.keySlots.map { "k\($0)" }.joined(separator: ", ")
    try connection.execute(
      "CREATE INDEX temp.salvor_own_key_\(table.number) ON salvor_own_\(table.number) (\(index))")
    kept.append(Kept(table: table, columns: columns, values: values))
  }

  /// When the tables are there again, and before the application's indexes are made.
  func add() throws {
    for one in kept {
      guard let shape = try connection.tableShape(one.table.name) else { continue }
      for column in one.columns where shape.column(column.name) == nil {
        try connection.add(column, to: one.table.name)
      }
    }
  }

  /// When the rows are there: each that was there before has its values again.
  func restore(_ catalog: CaptureCatalog) throws {
    for one in kept {
      defer { try? connection.execute("DROP TABLE \(one.values)") }
      guard let table = catalog.table(one.table.name), let shape = try connection.tableShape(table.name),
        table.key.map({ $0.name.folded }) == one.table.key.map({ $0.name.folded })
      else { continue }
      let places = one.columns.indices.filter { shape.column(one.columns[$0].name) != nil }
      if places.isEmpty { continue }
      let names = places.map { quoted(one.columns[$0].name) }.joined(separator: ", ")
      let values = places.map { "o.c\($0)" }.joined(separator: ", ")
      let isRow = table.keySlots.map { "o.k\($0) = \(table.tableColumn($0))" }.joined(separator: " AND ")
      try connection.run(
        "UPDATE \(quoted(table.name)) AS x SET (\(names)) = (SELECT \(values) FROM \(one.values) o WHERE \(isRow)) "
          + "WHERE EXISTS (SELECT 1 FROM \(one.values) o WHERE \(isRow))")
    }
  }
}
