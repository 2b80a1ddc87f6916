import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What a device keeps for a server that goes back is forgotten when no listed copy of the server is that old, and it is older than the
/// retention besides (semantics 10): versions of rows, keys of deleted ones, what it knows to be lost.
struct LossRetention {
  let context: StoreContext
  /// The number of the commit of the server's oldest listed copy.
  let floor: Int64
  /// Milliseconds.
  let retention: Int64

  /// Nothing is written where nothing is that old.
  func forget() throws {
    let connection = context.connection
    let before = context.clock.now() - retention
    // The newest commit that is covered, and old enough.
    guard
      let bound = try connection.integer(
        "SELECT max(number) FROM salvor_commit WHERE number <= ?1 AND at < ?2", .integer(floor), .integer(before)),
      let time = try connection.integer("SELECT max(at) FROM salvor_commit WHERE number = ?1", .integer(bound))
    else { return }
    let history = "salvor_history WHERE version <= ?1"
    let kept = "salvor_kept WHERE incarnation IS NULL AND number <= ?1"
    let withheld = "salvor_kept WHERE withheld <= ?1"
    let hasOld = try [(history, bound), (kept, bound), (withheld, time)].contains { part, value in
      try connection.integer("SELECT 1 FROM \(part) LIMIT 1", .integer(value)) != nil
    }
    guard try hasOld || context.anyLost(until: time) else { return }
    try connection.transaction {
      try connection.run("DELETE FROM \(history)", .integer(bound))
      try connection.run("DELETE FROM \(kept)", .integer(bound))
      for entry in ["salvor_archive WHERE seq", "salvor_outstanding WHERE first"] {
        try connection.run("DELETE FROM \(entry) IN (SELECT seq FROM \(withheld))", .integer(time))
      }
      try connection.run("DELETE FROM \(withheld)", .integer(time))
      try context.forgetLost(until: time)
    }
  }
}
