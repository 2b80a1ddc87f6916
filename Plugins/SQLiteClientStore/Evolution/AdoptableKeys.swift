import SQLiteSupport
import SalvorModel
import SalvorStorage

extension CapturedTable {
  /// What a person should know of a key that is not compared byte for byte, as the server's is. Capture follows it all the
  /// same (semantics 3); rows of the server whose keys differ in nothing else have no place beside each other.
  var keyNotices: [String] {
    keySlots.indices.compactMap { place in
      let collation = keyCollations[place]
      if collation.uppercased() == "BINARY" { return nil }
      return
        "\(name).\(columns[keySlots[place]].name) is compared as \(collation) in this table's primary key: of the server's rows whose keys differ in nothing else, this table holds one, and the others are left out. To have them all, make the table without the collation."
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
