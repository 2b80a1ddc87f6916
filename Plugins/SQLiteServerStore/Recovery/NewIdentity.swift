import SQLiteSupport
import SalvorModel
import SalvorStorage
import ServerStoreSupport

/// A database gets another server ID, and the ledger of purged rows beside it, too. The database notes the new one first: whoever opens
/// it after a kill between the two completes it (decision 191).
enum NewIdentity {
  private static let key = "new-id"

  /// Nil: it is no server's database.
  static func present(_ connection: SQLiteConnection) throws -> ServerID? {
    guard try connection.tableShape("salvor_server") != nil else { return nil }
    return try connection.scalar("SELECT value FROM salvor_server WHERE key = 'id'")?.string.flatMap { ServerID($0) }
  }

  static func begin(_ new: ServerID, _ connection: SQLiteConnection) throws {
    try connection.run(
      "INSERT OR REPLACE INTO salvor_server (key, value) VALUES (?1, ?2)", .text(key), .text(new.text))
  }

  /// Answers with what it has completed; nil: nothing was begun.
  @discardableResult
  static func complete(_ connection: SQLiteConnection, _ path: String) throws -> ServerRenaming? {
    guard let before = try present(connection) else { return nil }
    return try connection.transaction(.exclusive) {
      guard
        let new = try connection.scalar("SELECT value FROM salvor_server WHERE key = ?1", .text(key))?.string.flatMap({
          ServerID($0)
        })
      else { return nil }
      let ledger = PurgeLedger(besides: path)
      if let content = try ledger.read() { try ledger.write(new, content.key, content.ended, content.entries) }
      try connection.run("UPDATE salvor_server SET value = ?1 WHERE key = 'id'", .text(new.text))
      // The state before the first commit has the server's own name.
      try connection.run("UPDATE salvor_commit SET id = ?1 WHERE number = 0", .text(new.text))
      try connection.run("DELETE FROM salvor_server WHERE key = ?1", .text(key))
      return ServerRenaming(before: before, now: new, database: path)
    }
  }
}
