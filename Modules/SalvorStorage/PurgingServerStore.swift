import SalvorModel
import SalvorWire

/// A consolidated database from which rows are erased for good (semantics 10: purge is stronger than healing).
///
/// Every key that was purged stands in a ledger as a keyed hash. A backup does not hold the ledger: it outlives a restore, and
/// the next start applies it before anybody is answered. With `trim(before:)` acts may leave it: those from before that time, and from
/// before every copy that may still be put back.
public protocol PurgingServerStore: ServerStore {
  /// Deletes the rows of these keys, and those that go with them by foreign keys (`ON DELETE CASCADE`), what conflict versions, staging, blobs and recorded results hold of them, and writes
  /// the keys of all of them into the ledger. Inserts and updates of these keys are refused as `purged` from then on, whoever sends them.
  /// Each device is told to delete its row, as of any delete. Keys without a row are written into the ledger, too. Once more is the same.
  ///
  /// What is staged of uploads is emptied, of every remote: their devices send it again.
  ///
  /// Throws `not-found` where the schema has no synchronized table of this name, and `cannot-stand` where rows of other tables
  /// reference one of them and do not go with it. Nothing is changed then.
  func purge(_ keys: [Key], of table: String) async throws -> PurgeReport

  /// The keys may be used again.
  ///
  /// - Returns: how many of them were purged.
  func releasePurged(_ keys: [Key], of table: String) async throws -> Int64
}

/// What a purge has done.
public struct PurgeReport: Sendable, Hashable {
  /// Rows that were there and are gone.
  public var rows: Int64
  /// Of these, those that were not named, and went with one that was by a foreign key.
  public var along: Int64
  /// Conflict versions that are gone.
  public var conflicts: Int64
  /// Keys that were not in the ledger before.
  public var keys: Int64
  /// By default nothing was purged.
  public init(rows: Int64 = 0, along: Int64 = 0, conflicts: Int64 = 0, keys: Int64 = 0) {
    self.rows = rows
    self.along = along
    self.conflicts = conflicts
    self.keys = keys
  }

  /// Adds the counts of another purge.
  public static func += (sum: inout PurgeReport, other: PurgeReport) {
    sum.rows += other.rows
    sum.along += other.along
    sum.conflicts += other.conflicts
    sum.keys += other.keys
  }

  /// The counts under their names, as the administration and `salvor server purge --json` answer.
  public var json: JSONValue {
    [
      "rows": .integer(rows), "along": .integer(along), "conflicts": .integer(conflicts), "keys": .integer(keys),
    ]
  }
}

/// The words of a refusal.
public enum Purged {
  /// No key stands in it: it is kept in archives and logs.
  public static func message(_ table: String) -> String {
    "This row of \(table) was erased for good on the server, and does not come back. Withdraw the change."
  }
}
