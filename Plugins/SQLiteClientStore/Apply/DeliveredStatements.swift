import CSQLite
import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The statements that a server delivers (semantics 4): a server is trusted with rows, not with this database. Each may
/// touch only its own table, and SQLite's authorizer holds it to that, when it is taken and whenever it is prepared.
enum DeliveredStatements {
  /// Throws `schema-incompatible` where a statement does anything else than write or read its table, and a query, which is
  /// kept for applications to run, anything else than read it and its marks. The tables are there.
  static func check(_ config: SyncConfig, _ connection: SQLiteConnection) throws {
    for entry in config.entries {
      let name = entry.table.name
      try check(entry.upsertStatement, name, "its rows come", connection, writes: true)
      try check(entry.deleteStatement, name, "its rows go", connection, writes: true)
      try check(entry.keyQuery, name, "its keys are read", connection, writes: false)
      if let query = entry.dirtyQuery { try check(query, name, "its changed rows are read", connection, writes: false) }
    }
  }

  private static func check(
    _ text: String, _ table: String, _ what: String, _ connection: SQLiteConnection, writes: Bool
  ) throws {
    do {
      guard text.utf8.count <= textBytesMax else { throw SalvorError(.tooLarge, "The statement is too long.") }
      let touch = writes ? onlyTouch(table) : onlyRead(table)
      var wrote = false
      // Without triggers nothing but the statement itself is looked at: what has another source is a view's or a common
      // table expression's, and could read any table.
      _ = try connection.withTriggers(false) {
        try connection.withAuthorizer({ access in
          guard access.source == nil || (!writes && access.source == marks), touch(access) else { return false }
          switch access.action {
          case SQLITE_INSERT, SQLITE_UPDATE, SQLITE_DELETE: wrote = true
          default: break
          }
          return true
        }) { try connection.prepare(text, alone: true) }
      }
      // Some statements ask for nothing before they run: VACUUM.
      guard wrote == writes else { throw SalvorError(.usage, "The statement writes nothing into its table.") }
    } catch {
      throw SalvorError(
        .schemaIncompatible,
        "The server delivered a statement for the table \(table) (with which \(what)) that is none, or that touches something else. Nothing of it was run or kept. Ask the server's operator what this server is.",
        context: ["table": table, "reason": RecoveryReason.schemaIncompatible.rawValue])
    }
  }

  /// Longer than the query of the widest table.
  private static let textBytesMax = 1 << 20
  /// The view that says which rows are dirty.
  private static let marks = "salvor_row_state"
  /// What the queries of a SyncConfig are made of; statements call nothing.
  private static let functions: Set = ["json", "json_array", "json_group_array", "json_group_object", "hex", "quote"]

  static func onlyTouch(_ name: String) -> (SQLiteAccess) -> Bool {
    { access in
      // What its triggers do is theirs.
      if access.source != nil { return true }
      switch access.action {
      case SQLITE_INSERT, SQLITE_UPDATE, SQLITE_DELETE, SQLITE_READ:
        return access.first?.lowercased() == name.lowercased()
      case SQLITE_SELECT: return true
      default: return false
      }
    }
  }

  private static func onlyRead(_ name: String) -> (SQLiteAccess) -> Bool {
    { access in
      switch access.action {
      case SQLITE_READ:
        return access.source == marks || [name.lowercased(), marks].contains(access.first?.lowercased())
      case SQLITE_SELECT: return true
      case SQLITE_FUNCTION: return access.source == marks || functions.contains(access.second?.lowercased() ?? "")
      default: return false
      }
    }
  }
}
