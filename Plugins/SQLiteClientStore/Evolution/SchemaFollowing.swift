import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Carries a remote database along with the declared rules of its schema (`renamedFrom`, `dropped`): tables and columns get
/// their new names or go, and the requests that wait or are in the archive go with them. In the transaction that brings the
/// database in line with the schema.
///
/// The log, the archive and the versions name tables and columns by number and slot (`salvor_table`, `salvor_column`): a
/// rename leaves them as they are.
struct SchemaFollowing {
  let connection: SQLiteConnection
  let random: any RandomSource
  let clock: any Clock
  let schema: Schema
  /// The tables as they were defined.
  let before: [Table]

  /// Something was renamed or dropped; the triggers of those tables are gone.
  private(set) var hasChanged = false
  /// Tables, by the schema's names, whose triggers were there and were taken away by this: nothing was written meanwhile.
  private(set) var uncaptured: Set<String> = []
  /// Requests that went to the archive.
  private(set) var keptCount: Int64 = 0
  /// What a person should know: names only.
  private(set) var notices: [String] = []

  init(_ connection: SQLiteConnection, random: any RandomSource, clock: any Clock, schema: Schema, before: [Table]) {
    self.connection = connection
    self.random = random
    self.clock = clock
    self.schema = schema
    self.before = before
  }

  private var hasRules: Bool {
    !schema.dropped.isEmpty
      || schema.tables.contains { table in
        !table.renamedFrom.isEmpty || !table.dropped.isEmpty || table.columns.contains { !$0.renamedFrom.isEmpty }
      }
  }

  mutating func run() throws {
    guard hasRules, try connection.tableShape("salvor_table") != nil else { return }
    try makeRoom()
    let renames = try SchemaRenames(schema, in: connection)
    let drops = try droppedColumns(before: renames)
    let tables = try droppedTables()
    if !renames.isEmpty || !drops.isEmpty || !tables.isEmpty {
      // What was captured up to here is sorted with the tables as they are.
      let context = try known()
      try RequestSorting(context).sort()
      if !drops.isEmpty || !tables.isEmpty {
        try FormerContents(context: context, definitions: before).note(
          columns: drops.map { ($0.former, $0.column) }, tables: tables)
      }
      connection.clearStatementCache()
      hasChanged = true
    }
    for step in renames.steps {
      try removeCapture(of: step.column == nil ? step.old : step.table, nowNamed: step.table)
    }
    notices += try renames.apply(to: connection)
    try renameInCatalog()
    if !drops.isEmpty || !tables.isEmpty { try drop(drops.map { ($0.table, $0.column) }, tables) }
    // Written anew with the names of now.
    if hasChanged { try connection.run("DELETE FROM salvor_error_value") }
  }

  // MARK: Renames

  /// The application may have a table or a column of a new name already. A table is its own, and nothing is renamed over it. What it wrote to a
  /// column is a change of the one that gets the name: captured as such, before its own column goes.
  private mutating func makeRoom() throws {
    for table in schema.synchronized {
      let former = try table.renamedFrom.filter { try schema.table($0) == nil && isCaptured($0) }
      for old in former where old.folded != table.name.folded {
        guard try !isCaptured(table.name), try connection.tableShape(old) != nil,
          try connection.tableShape(table.name) != nil
        else { continue }
        throw SalvorError(
          .schemaRefused,
          "\(table.name) is a table of the application's own here, and the schema renames \(old) to it. Give the application's table another name, then synchronize. Nothing was changed.",
          context: ["table": table.name])
      }
      let name = try isCaptured(table.name) ? table.name : former.last ?? table.name
      guard let shape = try connection.tableShape(name) else { continue }
      for column in table.columns {
        guard let own = shape.column(column.name)?.name, try !isCaptured(name, own) else { continue }
        let old = try column.renamedFrom.reversed().first {
          try table.columnIndex($0) == nil && shape.column($0) != nil && isCaptured(name, $0)
        }
        if let old { try take(own, as: old, of: name) }
      }
    }
  }

  private func isCaptured(_ table: String, _ column: String? = nil) throws -> Bool {
    try connection.integer(
      """
      SELECT 1 FROM salvor_table t WHERE name = ?1 COLLATE NOCASE
        AND (?2 IS NULL OR EXISTS (SELECT 1 FROM salvor_column c WHERE c.t = t.id AND c.name = ?2 COLLATE NOCASE))
      """, .text(table), column.map { .text($0) } ?? .null) != nil
  }

  /// The values of a column of the application's own, where it has any, are its values of a synchronized one.
  private mutating func take(_ own: String, as old: String, of table: String) throws {
    do {
      let count = try connection.withTriggers(true) {
        try connection.run(
          "UPDATE \(quoted(table)) SET \(quoted(old)) = \(quoted(own)) WHERE \(quoted(own)) IS NOT NULL AND \(quoted(own)) IS NOT \(quoted(old))"
        )
        return connection.changes
      }
      notices += try connection.alter("ALTER TABLE \(quoted(table)) DROP COLUMN \(quoted(own))")
      hasChanged = true
      notices.append(
        "\(table).\(own) was a column of the application's own, and the schema gives its name to \(old): it is that column now, with \(count == 1 ? "1 value" : "\(count) values") of the application's own."
      )
    } catch let error as SalvorError where error.code == .storage {
      throw SalvorError(
        .schemaRefused,
        "\(table).\(own) is a column of the application's own here, and the schema gives its name to \(old). It cannot take its place: \(error.message) Remove what uses it, or give it another name, then synchronize. Nothing was changed.",
        context: ["table": table, "column": own])
    }
  }

  /// What the catalogue has under former names: also where the application has renamed its table itself.
  private mutating func renameInCatalog() throws {
    for table in schema.tables where try connection.tableShape(table.name) != nil {
      for old in table.renamedFrom where schema.table(old) == nil {
        try connection.run(
          "UPDATE salvor_table SET name = ?1 WHERE name = ?2 COLLATE NOCASE AND NOT EXISTS (SELECT 1 FROM salvor_table WHERE name = ?1 COLLATE NOCASE)",
          .text(table.name), .text(old))
        if connection.changes > 0 { hasChanged = true }
        try renameTarget(old, to: table.name)
        try UnprovenTables.rename(old, to: table.name, on: connection)
      }
      for column in table.columns {
        for old in column.renamedFrom where table.columnIndex(old) == nil {
          try connection.run(
            """
            UPDATE salvor_column SET name = ?1 WHERE name = ?2 COLLATE NOCASE
              AND t = (SELECT id FROM salvor_table WHERE name = ?3 COLLATE NOCASE)
              AND NOT EXISTS (SELECT 1 FROM salvor_column o WHERE o.t = salvor_column.t AND o.name = ?1 COLLATE NOCASE)
            """, .text(column.name), .text(old), .text(table.name))
          if connection.changes > 0 { hasChanged = true }
        }
      }
    }
  }

  /// What was subscribed to, and what the groups' cursors were made with.
  private func renameTarget(_ old: String, to new: String) throws {
    for table in ["salvor_subscription", "salvor_subscribed"] {
      try connection.run("UPDATE OR IGNORE \(table) SET target = ?1 WHERE target = ?2", .text(new), .text(old))
    }
    try connection.run("DELETE FROM salvor_subscribed WHERE target = ?1", .text(old))
    for row in try connection.rows("SELECT name, subscriptions FROM salvor_group WHERE subscriptions IS NOT NULL") {
      guard case .text(let json) = row[1] else { continue }
      let renamed = try ResolvedSubscriptions(JSONValue(parsing: json)).renamed { $0 == old ? new : $0 }
      try connection.run(
        "UPDATE salvor_group SET subscriptions = ?2 WHERE name = ?1", row[0], .text(renamed.json.bytes))
    }
  }

  /// The triggers of a table, and the view beside it: SQLite would rewrite them, and they are made anew.
  private mutating func removeCapture(of name: String, nowNamed table: String) throws {
    for row in try connection.rows(
      "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE AND name LIKE 'salvor\\_%' ESCAPE '\\'",
      .text(name))
    {
      if let trigger = row[0].string { try connection.execute("DROP TRIGGER \(quoted(trigger))") }
      uncaptured.insert(table)
    }
    if let number = try connection.integer("SELECT id FROM salvor_table WHERE name = ?1 COLLATE NOCASE", .text(name)) {
      try connection.execute("DROP VIEW IF EXISTS salvor_replacing_\(number)")
    }
  }

  // MARK: Drops

  /// Columns that are gone on purpose and are still there: the table, its former name, and the column's.
  private func droppedColumns(
    before renames: SchemaRenames
  ) throws -> [(table: Table, former: String, column: String)] {
    var found: [(Table, String, String)] = []
    for table in schema.synchronized where !table.dropped.isEmpty {
      let name = renames.steps.first { $0.table == table.name && $0.column == nil }?.old ?? table.name
      guard let shape = try connection.tableShape(name) else { continue }
      for column in table.dropped where table.hasDropped(column) {
        if let there = shape.column(column) { found.append((table, name, there.name)) }
      }
    }
    return found
  }

  private func droppedTables() throws -> [String] {
    try schema.dropped.filter { name in
      try schema.table(name) == nil
        && connection.integer("SELECT 1 FROM salvor_table WHERE name = ?1 COLLATE NOCASE", .text(name)) != nil
    }
  }

  private mutating func drop(_ columns: [(table: Table, column: String)], _ tables: [String]) throws {
    let counter = try connection.lastCounter()
    var archive = SchemaArchive(connection: connection, counter: counter)
    for (table, column) in columns {
      try removeCapture(of: table.name, nowNamed: table.name)
      notices += try DroppedColumn(context: try known(), table: table, column: column).drop(&archive)
    }
    for (table, column) in columns {
      notices += try DroppedColumn(context: try known(), table: table, column: column).dropColumn()
    }
    for name in tables {
      try removeCapture(of: name, nowNamed: name)
      notices += try DroppedTable(context: try known(), name: name).drop(&archive)
    }
    keptCount = archive.count
    let context = try known()
    try context.noteLogChange()
    try context.keepCounter(max(counter, archive.counter))
  }

  /// The tables that are captured, as the database has them at this moment.
  private func known() throws -> StoreContext {
    StoreContext(
      connection, random: random, clock: clock, schema: schema, own: schema, config: SyncConfig(schema),
      catalog: try CaptureCatalog.asTheyAre(on: connection, schema))
  }
}

extension CaptureCatalog {
  /// What `salvor_table` and `salvor_column` say of the tables that are there, with the columns that they have.
  ///
  /// - Parameter schema: says which columns are flags.
  static func asTheyAre(on connection: SQLiteConnection, _ schema: Schema) throws -> CaptureCatalog {
    var catalog = CaptureCatalog()
    for row in try connection.rows("SELECT id, name FROM salvor_table ORDER BY id") {
      guard let number = row[0].integer, let name = row[1].string, let shape = try connection.tableShape(name) else {
        continue
      }
      let slots = try connection.rows("SELECT name FROM salvor_column WHERE t = ?1 ORDER BY slot", .integer(number))
        .compactMap { $0[0].string }
      // Those that the schema has just got are not there yet; what it renames has its name of before.
      let table = schema.tables.table(formerly: name)
      func here(_ flag: String?) -> String? {
        guard let flag else { return nil }
        let former = table?.columns.first { $0.name == flag }?.renamedFrom ?? []
        return ([flag] + former).lazy.compactMap { shape.column($0)?.name }.first
      }
      var flags = table?.flags ?? FlagColumns()
      (flags.dirty, flags.deleted) = (here(flags.dirty), here(flags.deleted))
      catalog.tables.append(
        CapturedTable(
          number: number, slots: slots, keyCount: shape.primaryKey.count, shape: shape, actions: [], flags: flags))
    }
    let columns = try connection.tableShape("salvor_log")?.columns.map(\.name) ?? []
    catalog.valueCount = max(1, columns.count { $0.hasPrefix("v") })
    catalog.maskCount = max(1, columns.count { $0.hasPrefix("m") })
    return catalog
  }
}
