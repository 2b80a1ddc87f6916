import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// The digests of compared tables' bases (`salvor_digest`), kept until a base of the table changes. Whoever changes one says so.
extension StoreContext {
  /// - Parameter columns: that the digest is made of, in their order.
  func notedDigest(of table: String, columns: String) throws -> TableDigest? {
    guard
      let row = try connection.rows(
        "SELECT count, digest FROM salvor_digest WHERE name = ?1 AND columns = ?2", .text(table), .text(columns)
      ).first, let count = row[0].integer, let digest = row[1].string
    else { return nil }
    return TableDigest(table: table, count: count, digest: digest)
  }

  func note(_ digest: TableDigest, columns: String) throws {
    try connection.run(
      "INSERT OR REPLACE INTO salvor_digest (name, columns, count, digest) VALUES (?1, ?2, ?3, ?4)",
      .text(digest.table), .text(columns), .integer(digest.count), .text(digest.digest))
  }

  /// A base of the table changes.
  func forgetDigest(of table: CapturedTable) throws {
    try connection.run("DELETE FROM salvor_digest WHERE name = ?1 COLLATE NOCASE", .text(table.name))
  }

  /// What these changes made becomes part of the bases.
  func forgetDigests(ofChanges range: RequestRange) throws {
    try connection.run(
      "DELETE FROM salvor_digest WHERE name COLLATE NOCASE IN (SELECT t.name FROM salvor_table t WHERE t.id IN (SELECT DISTINCT g.t FROM salvor_log g WHERE g.seq BETWEEN ?1 AND ?2))",
      .integer(range.first), .integer(range.last))
  }

  func forgetDigests() throws { try connection.run("DELETE FROM salvor_digest") }
}
