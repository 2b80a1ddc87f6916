import SalvorModel
import SalvorStorage

/// What the declared rules of a schema (`renamedFrom`, `dropped`) make of the tables and columns of an earlier one.
struct DeclaredNames {
  /// By the old name.
  private(set) var tables: [String: String] = [:]
  /// By the table's old name, by the old name of the column.
  private(set) var columns: [String: [String: String]] = [:]
  /// Under their old names: the columns that go, by table, and the tables that go.
  private(set) var droppedColumns: [String: [String]] = [:]
  private(set) var droppedTables: [String] = []

  init(from before: Schema, to after: Schema) {
    for old in before.tables {
      guard let new = after.tables.table(formerly: old.name) else {
        if after.dropped.contains(old.name), old.maintained != .client { droppedTables.append(old.name) }
        continue
      }
      if new.name != old.name, before.table(new.name) == nil { tables[old.name] = new.name }
      for column in old.columns {
        if let now = new.column(formerly: column.name) {
          if now.name != column.name { columns[old.name, default: [:]][column.name] = now.name }
        } else if new.hasDropped(column.name), !old.primaryKey.contains(column.name) {
          droppedColumns[old.name, default: []].append(column.name)
        }
      }
    }
  }

  var isEmpty: Bool { tables.isEmpty && columns.isEmpty && droppedColumns.isEmpty && droppedTables.isEmpty }

  func table(_ name: String) -> String { tables[name] ?? name }
  func column(_ name: String, of table: String) -> String { columns[table]?[name] ?? name }
  func row(_ name: RowName) -> RowName { RowName(table: table(name.table), key: name.key) }

  /// The change under the new names; columns that go are still in it.
  func renamed(_ change: Change) -> Change {
    var change = change
    for place in change.columns.indices {
      change.columns[place].name = column(change.columns[place].name, of: change.row.table)
    }
    for place in change.acknowledged.indices {
      change.acknowledged[place].name = column(change.acknowledged[place].name, of: change.row.table)
    }
    if let written = change.offer?.written {
      change.offer?.written = written.map { column($0, of: change.row.table) }
    }
    change.row = row(change.row)
    return change
  }

  func renamed(_ request: Request) -> Request {
    var request = request
    request.changes = request.changes.map(renamed)
    return request
  }

  /// The schema as it is after the rules, as far as they are compared: names and columns.
  func apply(to schema: inout Schema) {
    schema.tables.removeAll { droppedTables.contains($0.name) }
    for place in schema.tables.indices {
      let old = schema.tables[place].name
      schema.tables[place].columns.removeAll { droppedColumns[old]?.contains($0.name) == true }
      for index in schema.tables[place].columns.indices {
        schema.tables[place].columns[index].name = column(schema.tables[place].columns[index].name, of: old)
      }
      schema.tables[place].primaryKey = schema.tables[place].primaryKey.map { column($0, of: old) }
      schema.tables[place].name = table(old)
    }
  }

  /// - Parameters:
  ///   - schema: of the rows.
  ///   - keepsTables: the rows of tables that go stay under their names.
  func apply(to rows: inout MemoryTables, of schema: Schema, keepsTables: Bool) {
    for table in schema.tables {
      if droppedTables.contains(table.name) {
        if !keepsTables { rows.remove(table.name) }
        continue
      }
      let kept = table.columns.indices.filter { place in
        droppedColumns[table.name]?.contains(table.columns[place].name) != true
      }
      if kept.count < table.columns.count { rows.rewrite(table.name) { row in kept.map { row[$0] } } }
      if let new = tables[table.name] { rows.move(table.name, to: new) }
    }
  }
}
