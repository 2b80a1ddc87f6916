import CSQLite
import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Triggers of the application's that keep Salvor from writing: which one it is, and what to do (11.7). SQLite's message names neither the
/// trigger nor its table: it stands with whatever statement would have fired it.
extension StoreContext {
  /// Does what `body` does. In a transaction.
  func namingTriggers<Result>(_ body: () throws -> Result) throws -> Result {
    do {
      return try body()
    } catch let error as SalvorError where Self.isTriggers(error) {
      guard connection.isInTransaction, let named = try? brokenTrigger(error) else { throw error }
      throw named
    }
  }

  /// With foreign keys off nothing but a trigger refuses a DELETE by a constraint.
  private static func isTriggers(_ error: SalvorError) -> Bool {
    guard let code = error.sqliteCode.map({ $0 & 0xff }) else { return false }
    return code == SQLITE_ERROR
      || (code == SQLITE_CONSTRAINT && error.context["sql"]?.hasPrefix("DELETE FROM ") == true)
  }

  private struct Trigger {
    var name: String
    var table: String
    var sql: String
  }

  private struct Tried: Error {
    var found: SalvorError?
  }

  /// A constraint or a trigger of the device's refused a row: the triggers that may have done it.
  func triggersThatFire(on table: String) -> [String] {
    let names = ((try? triggers()) ?? []).filter { $0.table.folded == table.folded }.map(\.name)
    guard !names.isEmpty, catalog.table(table).map({ (try? firingTables().contains($0.number)) ?? true }) ?? true else {
      return []
    }
    return names
  }

  private func triggers() throws -> [Trigger] {
    try connection.rows(
      "SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'trigger' AND name NOT LIKE 'salvor\\_%' ESCAPE '\\' ORDER BY rowid"
    ).compactMap { row in
      guard let name = row[0].string, let table = row[1].string, let sql = row[2].string else { return nil }
      return Trigger(name: name, table: table, sql: sql)
    }
  }

  /// The first trigger that cannot be compiled. Each is tried without the others, so that it is not another one that it fires. All of it is
  /// taken back. Nil: all of them can.
  private func brokenTrigger(_ error: SalvorError) throws -> SalvorError? {
    let all = try triggers()
    guard !all.isEmpty else { return nil }
    do {
      return try connection.savepoint("salvor_triggers") { () -> SalvorError? in
        for trigger in all { try connection.execute("DROP TRIGGER \(quoted(trigger.name))") }
        for trigger in all {
          if let detail = try trouble(trigger) { throw Tried(found: Self.broken(trigger, detail)) }
        }
        throw Tried(found: failed(error, all))
      }
    } catch let tried as Tried {
      return tried.found
    }
  }

  /// SQLite's words.
  private func trouble(_ trigger: Trigger) throws -> String? {
    do {
      try connection.execute(trigger.sql)
      defer { _ = try? connection.execute("DROP TRIGGER \(quoted(trigger.name))") }
      let table = quoted(trigger.table)
      let columns = try connection.rows("SELECT name FROM pragma_table_info(?1)", .text(trigger.table))
        .compactMap { $0[0].string }
      let sets = columns.map { "\(quoted($0)) = \(quoted($0))" }.joined(separator: ", ")
      try connection.withTriggers(true) {
        for statement in [
          "INSERT INTO \(table) (\(quotedList(columns))) SELECT \(quotedList(columns)) FROM \(table)",
          "UPDATE \(table) SET \(sets)", "DELETE FROM \(table)",
        ] {
          do {
            _ = try connection.prepare("EXPLAIN \(statement)")
          } catch let error as SalvorError where error.sqliteDetail.hasPrefix("cannot modify") {
            // A view, and the trigger is for something else.
          }
        }
      }
      return nil
    } catch let error as SalvorError where error.sqliteCode != nil {
      return error.sqliteDetail
    }
  }

  private static func broken(_ trigger: Trigger, _ detail: String) -> SalvorError {
    SalvorError(
      .storage,
      "The application's trigger \(trigger.name) on \(trigger.table) of this device cannot run: \(detail). Nothing was applied. \(wayOn) Then sync again.",
      context: ["table": trigger.table, "trigger": trigger.name, "detail": detail])
  }

  private static var wayOn: String {
    "Drop the trigger, or make it anew with what is there now (a column may have been renamed or dropped by the schema; functions that an application defines are not there for other programs); or say applicationTriggers: \"off\" for the table in the schema."
  }

  /// It fails when it runs: which one of the table's, SQLite does not say.
  private func failed(_ error: SalvorError, _ all: [Trigger]) -> SalvorError? {
    let sql = error.context["sql"] ?? ""
    guard
      let table = catalog.tables.first(where: { table in
        ["INSERT INTO ", "UPDATE ", "DELETE FROM "].contains { sql.hasPrefix($0 + quoted(table.name)) }
      })
    else { return nil }
    let names = all.filter { $0.table.folded == table.name.folded }.map(\.name)
    guard !names.isEmpty else { return nil }
    return SalvorError(
      .storage,
      "A trigger of the application's on \(table.name) of this device fails (\(names.joined(separator: ", "))): \(error.sqliteDetail). Nothing was applied. \(Self.wayOn) Then sync again.",
      context: ["table": table.name, "trigger": names.joined(separator: ", "), "detail": error.sqliteDetail])
  }
}
