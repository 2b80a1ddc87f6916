import SalvorModel
import SalvorStorage

extension SQLiteConnection {
  /// Runs an `ALTER TABLE`, also where SQLite does not for a view or a trigger of the application's that has a mistake in it, or that the new
  /// name does not fit: SQLite reads all of them, whatever they name. Such a one is taken out meanwhile and made again as it was written.
  ///
  /// In a transaction. Throws SQLite's error where it blames something else.
  ///
  /// - Returns: a sentence for each view and trigger that was taken out.
  public func alter(_ statement: String) throws -> [String] {
    var taken: [SchemaObject] = []
    while true {
      do {
        try execute(statement)
        break
      } catch let error as SalvorError where error.code == .storage {
        guard let blamed = try blamed(by: error.message) else { throw error }
        clearStatementCache()
        try execute("DROP \(blamed.object.type) \(quoted(blamed.object.name))")
        taken += [blamed.object] + blamed.triggers
      }
    }
    return try taken.sorted { ($0.type == "trigger" ? 1 : 0, $0.place) < ($1.type == "trigger" ? 1 : 0, $1.place) }.map
    { object in
      let what = "The \(object.type) \(object.name) of the application's"
      return try bringBack(object.sql, of: object.table)
        ? "\(what) does not fit the tables: it names what is not there, or not under that name any more. It stays as it was written; mend it, or drop it."
        : "\(what) does not fit the tables any more, and no row could be written with it: it was dropped. Make it again as it should be."
    }
  }

  /// Makes an index, a trigger or a view again. SQLite finds out only when a trigger would fire that it names what is not there.
  ///
  /// - Parameter table: that it is of.
  /// - Returns: false where it cannot be made, or where no row of its table could be written with it; it is not there then.
  func bringBack(_ sql: String, of table: String) throws -> Bool {
    do {
      try savepoint("salvor_object") {
        try execute(sql)
        guard let shape = try tableShape(table) else { return }
        try withTriggers(true) {
          let columns = quotedList(shape.columns.map(\.name))
          let first = quoted(shape.columns[0].name)
          for statement in [
            "INSERT INTO \(quoted(table)) (\(columns)) SELECT \(columns) FROM \(quoted(table))",
            "UPDATE \(quoted(table)) SET \(first) = \(first)", "DELETE FROM \(quoted(table))",
          ] { _ = try prepare("EXPLAIN \(statement)") }
        }
      }
      return true
    } catch let error as SalvorError where error.code == .storage {
      return false
    }
  }

  private struct SchemaObject {
    var place: Int64
    var type: String
    var name: String
    var table: String
    var sql: String
  }

  /// The view or trigger that SQLite names, with the triggers that go with a view. Nil: it is not the application's.
  private func blamed(by message: String) throws -> (object: SchemaObject, triggers: [SchemaObject])? {
    let objects = try rows(
      "SELECT rowid, type, name, tbl_name, sql FROM sqlite_schema WHERE type IN ('view', 'trigger') AND name NOT LIKE 'salvor\\_%' ESCAPE '\\' ORDER BY length(name) DESC"
    ).compactMap { row -> SchemaObject? in
      guard let place = row[0].integer, let type = row[1].string, let name = row[2].string, let table = row[3].string,
        let sql = row[4].string
      else { return nil }
      return SchemaObject(place: place, type: type, name: name, table: table, sql: sql)
    }
    let found = objects.first { object in
      let head = "error in \(object.type) \(object.name)"
      return message.contains("\(head):") || message.contains("\(head) after ")
    }
    guard let found else { return nil }
    let triggers = objects.filter {
      found.type == "view" && $0.type == "trigger" && $0.table.folded == found.name.folded
    }
    return (found, triggers)
  }
}
