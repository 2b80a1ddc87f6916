import SQLiteSupport
import SalvorModel
import SalvorStorage

/// A table that the schema has dropped: what waits in it goes to the archive, and the table goes.
struct DroppedTable {
  let context: StoreContext
  let name: String
  private var connection: SQLiteConnection { context.connection }

  /// Answers what a person should know.
  func drop(_ archive: inout SchemaArchive) throws -> [String] {
    guard let table = context.catalog.table(name) else { return try forgetMissing() }
    let before = archive.count
    let isUnproven = try UnprovenTables(context).changedHere().contains(table.number)
    try keepChanges(of: table, &archive)
    try keepVersions(of: table, &archive)
    try keepDisplaced(of: table)
    try forget(table.number, keyCount: table.keyCount)
    var notices: [String] = []
    if archive.count > before {
      notices.append(
        "\(name) was dropped from the schema: \(archive.count - before) waiting changes are in the archive.")
    }
    return try notices + dropTable(table, keepsRows: isUnproven)
  }

  /// The application has dropped it itself: its changes cannot be decoded without the rows.
  private func forgetMissing() throws -> [String] {
    guard
      let number = try connection.integer("SELECT id FROM salvor_table WHERE name = ?1 COLLATE NOCASE", .text(name))
    else { return [] }
    let changes = try connection.rows("SELECT seq FROM salvor_log WHERE t = ?1", .integer(number)).compactMap {
      $0[0].integer
    }
    try context.takeOut(changes)
    try forget(number, keyCount: 1)
    return changes.isEmpty ? [] : ["\(name) was not there any more: \(changes.count) waiting changes of it are gone."]
  }

  private func keepChanges(of table: CapturedTable, _ archive: inout SchemaArchive) throws {
    let index = try LogIndex(context)
    var changes: [(key: Key, step: RowTimeline.Step)] = []
    try index.eachRow(of: table) { key in
      for step in try index.timeline(table, key).steps { changes.append((key, step)) }
    }
    changes.sort { $0.step.seq < $1.step.seq }
    for change in changes {
      try archive.keep(change.step, table, change.key, "The table \(name) was dropped from the schema.", context)
    }
    try context.takeOut(changes.map(\.step.seq))
  }

  /// What the server keeps beside the table's rows: a server that is put back may have lost it, and has no table for it then. What is withheld is
  /// in the archive already.
  private func keepVersions(of table: CapturedTable, _ archive: inout SchemaArchive) throws {
    try context.eachKeptVersion(where: "t = \(table.number) AND withheld IS NULL") { version in
      let step = context.step(
        version.seq, version.operation, version.slots, before: version.before, after: version.after, table)
      let what = version.review == nil ? "kept this change as a conflict version" : "held this delete for its operator"
      try archive.keep(
        step, table, version.key, "The server had \(what), and the table \(name) was dropped from the schema.", context)
    }
    try connection.run("DELETE FROM salvor_kept WHERE t = ?1", .integer(table.number))
  }

  /// Displaced requests cannot come back.
  private func keepDisplaced(of table: CapturedTable) throws {
    let isOfTable = "state = 'displaced' AND first IN (SELECT first FROM salvor_archive WHERE t = ?1)"
    for request in try context.requestRows(where: isOfTable, .integer(table.number)) {
      try context.change(request.range) { row in
        (row.state, row.stateBefore, row.reason) = (.kept, nil, SchemaArchive.reason)
        row.message = "The table \(name) was dropped from the schema."
      }
    }
  }

  /// Its number and slots stay with what the archive has of it.
  private func forget(_ number: Int64, keyCount: Int) throws {
    try connection.run(
      "INSERT OR REPLACE INTO salvor_retired_table (id, name, keys) VALUES (?1, ?2, ?3)", .integer(number), .text(name),
      .integer(Int64(keyCount)))
    try connection.run("DELETE FROM salvor_unproven WHERE name = ?1 COLLATE NOCASE", .text(name))
    for condition in ["salvor_table WHERE id", "salvor_history WHERE t"] {
      try connection.run("DELETE FROM \(condition) = ?1", .integer(number))
    }
    try connection.execute("DROP TABLE IF EXISTS salvor_pending_\(number)")
  }

  /// Tables of the schema that reference it lose their foreign key; where one of the application's own does, it stays, as a
  /// plain table.
  ///
  /// - Parameter keepsRows: something was written to it while Salvor's triggers were missing, and the server has no rows to compare it with any
  ///   more: its rows stay (decision 210).
  private func dropTable(_ table: CapturedTable, keepsRows: Bool) throws -> [String] {
    var children: [Table] = []
    for child in try connection.tableNames() where child.folded != name.folded {
      let keys = try connection.tableShape(child)?.foreignKeys ?? []
      guard keys.contains(where: { $0.parent.folded == name.folded }) else { continue }
      guard let definition = context.schema.tables.first(where: { $0.name.folded == child.folded }) else {
        return ["\(name) was dropped from the schema. It stays as a plain table, since \(child) references it."]
      }
      children.append(definition)
    }
    var notices: [String] = []
    for child in children { notices += try context.rebuild(child) }
    connection.clearStatementCache()
    guard keepsRows, try !connection.rows("SELECT 1 FROM \(quoted(table.name)) LIMIT 1").isEmpty else {
      try connection.execute("DROP TABLE \(quoted(table.name))")
      return notices
    }
    // Without keys and constraints they are in the way of no other row.
    try TableRebuild.makePlain(table.name, on: connection)
    return notices + [
      "\(name) was dropped from the schema while Salvor's triggers of it were missing. What was written to it meanwhile cannot be told from the server's rows any more, so all of them stay, in a plain table \(name) without keys. Take what is yours, and drop it."
    ]
  }
}

extension StoreContext {
  /// Makes a table anew as the schema has it. Answers what a person should know.
  func rebuild(_ table: Table) throws -> [String] {
    // What is kept aside while a statement runs and Salvor's own triggers come back when capture is brought in line.
    let lost = try TableRebuild(connection, TableDDL.device).run(table, in: schema) {
      $0.folded.hasPrefix("salvor_")
    }
    return lost.map { "\(table.name) was made anew, without \($0), which names what is not there any more." }
  }
}
