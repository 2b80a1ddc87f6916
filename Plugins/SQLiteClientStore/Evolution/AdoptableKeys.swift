import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What only a device asks of the keys of a table that was there before.
extension SchemaComparison {
  /// The server's keys are compared byte for byte: two of its rows would be one in such a table.
  mutating func refuseCollatedKeys(_ schema: Schema, on connection: SQLiteConnection) throws {
    for table in schema.synchronized {
      guard let key = try connection.tableShape(table.name)?.uniqueIndexes.first(where: \.isPrimaryKey) else {
        continue
      }
      for column in key.columns where column.collation.uppercased() != "BINARY" {
        refusals.append(
          Refusal(
            table: table.name, column: column.name,
            what:
              "is compared as \(column.collation) in the table's primary key, so that rows of the server would be one; make the table anew with a key without COLLATE"
          ))
      }
    }
  }
}

extension StoreContext {
  /// Rows whose key is NULL, by table: they have no identity, and are never sent.
  func rowsWithoutKey(in tables: [CapturedTable]) throws -> [String: Int64] {
    var found: [String: Int64] = [:]
    for table in tables where !table.nullableKeySlots.isEmpty {
      let isNull = table.nullableKeySlots.map { "\(table.tableColumn($0)) IS NULL" }.joined(separator: " OR ")
      let count = try connection.integer("SELECT count(*) FROM \(quoted(table.name)) x WHERE \(isNull)") ?? 0
      if count > 0 { found[table.name] = count }
    }
    return found
  }
}
