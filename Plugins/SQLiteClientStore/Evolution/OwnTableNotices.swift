import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What Salvor says of a table that the application made, when it first captures it: what the table does and the schema does not say.
extension Opening {
  /// - Parameter tables: names.
  func ownTableNotices(_ tables: [String], _ schema: Schema) throws -> [String] {
    var notices: [String] = []
    for table in schema.synchronized where tables.contains(table.name) {
      guard let shape = try connection.tableShape(table.name) else { continue }
      for key in shape.foreignKeys {
        guard let parent = schema.synchronized.first(where: { $0.name.folded == key.parent.folded }),
          !table.declares(key.columns, parent.name),
          key.columns.allSatisfy({ name in table.travelling.contains { $0.name.folded == name.folded } })
        else { continue }
        let columns = key.columns.joined(separator: ", ")
        notices.append(
          "\(table.name) (\(columns)) references \(parent.name) in this device's table, and the schema does not say so: where the server deletes a row of \(parent.name), this device loses the rows of \(table.name) that reference it, and the server keeps them. Declare it in the schema (references), or make the table here without it (between salvor capture pause and resume)."
        )
      }
      notices += shape.numericTimestamps(of: table, in: "this device's table", other: "the server keeps")
    }
    return notices
  }
}

extension Table {
  /// The schema has a reference of this column that is a foreign key on devices.
  func declares(_ columns: [String], _ parent: String) -> Bool {
    references.contains { reference in
      columns.map { $0.folded } == [reference.column.folded] && reference.table.folded == parent.folded
        && !reference.soft
    }
  }
}
