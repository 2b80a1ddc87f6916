import SQLiteSupport
import SalvorModel

// What the tests of copies and restores do with the table `site` of `RecoveryQueryTests.schema`.

/// Another program writes a site, and the store sees it.
func writeSite(_ desk: ServerDesk, _ id: String) async throws {
  try desk.other().execute("INSERT INTO site VALUES ('\(id)', 'anna', NULL)")
  _ = try await desk.store.sweep()
}

/// The IDs of the sites in a database, in order.
func sites(_ path: String) throws -> [String] {
  try SQLiteConnection(path, mode: .readWrite).rows("SELECT id FROM site ORDER BY id").compactMap { $0[0].string }
}
