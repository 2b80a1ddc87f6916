import SalvorModel

/// What a schema has more than another; where it has less, or something else under the same name, there is none.
struct SchemaDifference {
  private(set) var newTables: [String] = []
  private(set) var newColumns: [(table: String, column: Column)] = []
  private let before: Schema
  private let after: Schema

  /// Throws `code` with every difference named that is not an addition. Tables that `after` does not name are the
  /// application's own, except those in `mustStay`.
  init(from before: Schema, to after: Schema, mustStay: [String] = [], code: ErrorCode) throws {
    self.before = before
    self.after = after
    var refused: [String] = mustStay.filter { after.table($0) == nil }.map { "\($0): the table is no longer there" }
    for table in after.tables {
      guard let known = before.table(table.name) else {
        newTables.append(table.name)
        continue
      }
      refused += Self.refusals(table, known)
      for column in table.columns where known.columnIndex(column.name) == nil {
        if column.nullable || column.defaultValue != nil {
          newColumns.append((table.name, column))
        } else {
          refused.append("\(table.name).\(column.name): new, and neither nullable nor has a default")
        }
      }
    }
    if !refused.isEmpty {
      throw SalvorError(
        code,
        "The database does not fit the schema: \(refused.joined(separator: "; ")). Change the schema, or migrate the tables."
      )
    }
  }

  private static func refusals(_ table: Table, _ known: Table) -> [String] {
    var refused: [String] = []
    if table.primaryKey != known.primaryKey { refused.append("\(table.name): another primary key") }
    for column in known.columns {
      guard let index = table.columnIndex(column.name) else {
        refused.append("\(table.name).\(column.name): no longer there")
        continue
      }
      if table.columns[index].type.sqliteName != column.type.sqliteName {
        refused.append("\(table.name).\(column.name): another type")
      }
    }
    return refused
  }

  /// Gives the rows of `tables` the new columns, with their defaults, in the new order.
  func apply(to tables: inout MemoryTables) {
    for table in after.tables {
      guard let known = before.table(table.name), known.columns.map(\.name) != table.columns.map(\.name) else {
        continue
      }
      tables.rewrite(table.name) { row in
        table.columns.map { column in known.columnIndex(column.name).map { row[$0] } ?? column.defaultValue ?? .null }
      }
    }
  }
}
