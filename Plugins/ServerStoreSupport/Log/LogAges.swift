import SalvorModel

/// When the oldest entry of the change log and the oldest tombstone were numbered, in milliseconds since 1970; by the first rows of
/// their indexes.
package struct LogAges: Sendable {
  package let entry: Int64?
  package let tombstone: Int64?

  package init(_ connection: any StoreConnection) throws {
    func time(of sequence: Int64?) throws -> Int64? {
      guard let sequence else { return nil }
      return try connection.integer(
        "SELECT time FROM salvor_commit WHERE last_seq >= ?1 ORDER BY last_seq LIMIT 1", .integer(sequence))
    }
    entry = try time(of: connection.integer("SELECT min(seq) FROM salvor_change"))
    tombstone = try time(of: connection.integer("SELECT min(seq) FROM salvor_gone"))
  }
}
