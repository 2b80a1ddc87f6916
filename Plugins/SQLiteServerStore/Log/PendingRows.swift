import SQLiteSupport
import SalvorStorage
import ServerStoreSupport

extension ServerTable {
  /// Where it keeps the rows that REPLACE may be about to remove.
  var pending: String { "salvor_pending_\(number)" }
}

extension Catalog {
  /// Removes pending rows that UPSERT and OR IGNORE left behind. What a REPLACE removed without a word is logged.
  func clearPending(_ connection: SQLiteConnection) throws {
    for table in tables where try connection.integer("SELECT EXISTS (SELECT 1 FROM \(table.pending))") == 1 {
      if let shape = try connection.tableShape(table.name),
        let removed = ChangeTriggers(table: table, shape: shape).removed(where: "1")
      {
        try connection.execute(removed)
      }
      try connection.execute("DELETE FROM \(table.pending)")
    }
  }
}
