import CSQLite
import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The statements that a server delivers (semantics 4): a server is trusted with rows, not with this database. Each may
/// touch only its own table, and SQLite's authorizer holds it to that, when it is taken and whenever it is prepared.
enum DeliveredStatements {
  /// Throws `schema-incompatible` where a statement does anything else than write or read its table. The tables are there.
  static func check(_ config: SyncConfig, _ connection: SQLiteConnection) throws {
    for entry in config.entries {
      try check(entry.upsertStatement, entry.table.name, "its rows come", connection)
      try check(entry.deleteStatement, entry.table.name, "its rows go", connection)
    }
  }

  private static func check(
    _ text: String, _ table: String, _ what: String, _ connection: SQLiteConnection
  ) throws {
    do {
      guard text.utf8.count <= textBytesMax else { throw SalvorError(.tooLarge, "The statement is too long.") }
      let touch = onlyTouch(table)
      var writes = false
      // Without triggers nothing but the statement itself is looked at: what has another source is a view's or a common
      // table expression's, and could read any table.
      _ = try connection.withTriggers(false) {
        try connection.withAuthorizer({ access in
          guard access.source == nil, touch(access) else { return false }
          switch access.action {
          case SQLITE_INSERT, SQLITE_UPDATE, SQLITE_DELETE: writes = true
          default: break
          }
          return true
        }) { try connection.prepare(text, alone: true) }
      }
      // Some statements ask for nothing before they run: VACUUM.
      guard writes else { throw SalvorError(.usage, "The statement writes nothing into its table.") }
    } catch {
      throw SalvorError(
        .schemaIncompatible,
        "The server delivered a statement for the table \(table) (with which \(what)) that is none, or that touches something else. Nothing of it was run or kept. Ask the server's operator what this server is.",
        context: ["table": table, "reason": RecoveryReason.schemaIncompatible.rawValue])
    }
  }

  private static let textBytesMax = 1 << 20

  static func onlyTouch(_ name: String) -> (SQLiteAccess) -> Bool {
    { access in
      // What its triggers do is theirs.
      if access.source != nil { return true }
      switch access.action {
      case SQLITE_INSERT, SQLITE_UPDATE, SQLITE_DELETE, SQLITE_READ:
        return access.first?.folded == name.folded
      // It calls no function.
      case SQLITE_SELECT: return true
      default: return false
      }
    }
  }
}
