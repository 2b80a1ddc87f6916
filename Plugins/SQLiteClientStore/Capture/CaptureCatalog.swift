import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The tables that are captured, and how wide the log is: what `salvor_table` and `salvor_column` say, with the shapes
/// of the tables themselves.
struct CaptureCatalog: Sendable, Hashable {
  /// By number.
  var tables: [CapturedTable] = []
  /// Value columns and mask columns of `salvor_log`.
  var valueCount = 1
  var maskCount = 1

  func table(_ name: String) -> CapturedTable? { tables.first { $0.name.folded == name.folded } }
  func table(number: Int64) -> CapturedTable? { tables.first { $0.number == number } }

  /// What bringing capture in line with a schema did.
  struct Changes: Sendable, Hashable {
    /// Captured for the first time.
    var newTables: [String] = []
    /// Triggers that were missing or altered, by name, of tables that had been captured before.
    var restoredTriggers: [String] = []
    /// The tables of these triggers, and which of them are altered only: a change of their columns does that, too.
    var unproven: [String] = []
    var altered: Set<String> = []
  }

  /// Makes Salvor's capture tables and the triggers of `tables`, and puts back what is missing or altered. Call it in a
  /// transaction, on a connection with triggers off or on.
  ///
  /// - Parameter tables: the synchronized tables; each exists in the database.
  static func install(_ tables: [Table], on connection: SQLiteConnection) throws -> (CaptureCatalog, Changes) {
    try connection.execute(
      """
      CREATE TABLE IF NOT EXISTS salvor_table (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
      -- unknown: 1, nobody but the server knows what the rows have in it, until the table is compared.
      CREATE TABLE IF NOT EXISTS salvor_column (t INTEGER NOT NULL, slot INTEGER NOT NULL, name TEXT NOT NULL, unknown INTEGER, PRIMARY KEY (t, slot));
      CREATE TABLE IF NOT EXISTS salvor_request (tag TEXT);
      """)
    var changes = Changes()
    for table in tables where try register(table, on: connection) { changes.newTables.append(table.name) }
    let catalog = try found(tables, on: connection)
    try catalog.makeLogTables(on: connection)
    try catalog.makeMarkTables(on: connection)
    try catalog.makeMovingTable(on: connection)
    for table in catalog.tables {
      let triggers = CaptureTriggers(table)
      let isMissing = try isAnyMissing(triggers.triggers + [triggers.replacingTrigger], connection)
      if !isMissing { try logRemoved(table, on: connection) }
      try makePendingTable(table, on: connection)
      try restoreView(table, on: connection)
      let restored =
        try restoreTriggers(
          [triggers.replacingTrigger], onTable: table.replacing, number: table.number, connection)
        + restoreTriggers(triggers.triggers, onTable: table.name, number: table.number, connection)
      guard !changes.newTables.contains(table.name) else { continue }
      changes.restoredTriggers += restored
      if isMissing || !restored.isEmpty { changes.unproven.append(table.name) }
      if !isMissing { changes.altered.insert(table.name) }
    }
    changes.restoredTriggers += try restoreTriggers(
      groupTriggers, onTable: "salvor_request", number: 0, connection)
    if tables.count == changes.newTables.count { changes.restoredTriggers = [] }
    return (catalog, changes)
  }

  private static func isAnyMissing(_ triggers: [CaptureTriggers.Trigger], _ connection: SQLiteConnection) throws -> Bool
  {
    try triggers.contains { trigger in
      try connection.integer("SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = ?1", .text(trigger.name))
        == nil
    }
  }

  /// The captured tables as the database has them. Each has its number, and its columns their slots.
  static func found(_ tables: [Table], on connection: SQLiteConnection) throws -> CaptureCatalog {
    var catalog = CaptureCatalog()
    for table in tables { catalog.tables.append(try captured(table, on: connection)) }
    catalog.linkActions()
    try catalog.link(tables)
    catalog.valueCount = max(1, catalog.tables.map(\.columns.count).max() ?? 1)
    catalog.maskCount = max(1, catalog.tables.map(\.maskCount).max() ?? 1)
    return catalog
  }

  /// Empties what holds rows only while a statement runs: those of changes that OR IGNORE took back stay in it.
  func clearLeftovers(on connection: SQLiteConnection) throws {
    let names = tables.map(\.pending) + ["salvor_moving"]
    let isThere = names.map { "EXISTS (SELECT 1 FROM \($0))" }.joined(separator: ", ")
    for (name, value) in zip(names, try connection.rows("SELECT \(isThere)").first ?? []) where value == 1 {
      if let table = tables.first(where: { $0.pending == name }) { try Self.logRemoved(table, on: connection) }
      try connection.execute("DELETE FROM \(name)")
    }
  }

  private static func number(of table: Table, on connection: SQLiteConnection) throws -> Int64? {
    try connection.integer("SELECT id FROM salvor_table WHERE name = ?1 COLLATE NOCASE", .text(table.name))
  }

  private static func slots(of number: Int64, on connection: SQLiteConnection) throws -> [String] {
    try connection.rows("SELECT name FROM salvor_column WHERE t = ?1 ORDER BY slot", .integer(number))
      .compactMap { $0[0].string }
  }

  /// Gives the table its number and each captured column its slot, where they have none. A column that is new in a table
  /// with log rows takes its default in the whole rows there. True: the table is new.
  private static func register(_ table: Table, on connection: SQLiteConnection) throws -> Bool {
    let known = try number(of: table, on: connection)
    var number = known ?? 0
    if known == nil {
      try connection.run(
        "INSERT INTO salvor_table (id, name) SELECT 1 + max(coalesce((SELECT max(id) FROM salvor_table), 0), coalesce((SELECT max(t) FROM salvor_column), 0)), ?1",
        .text(table.name))
      number = connection.lastInsertRowID
    }
    var slots = try slots(of: number, on: connection)
    let names = table.primaryKey + table.travelling.map(\.name).filter { !table.primaryKey.contains($0) }
    for name in names where !slots.contains(where: { $0.folded == name.folded }) {
      try connection.run(
        "INSERT INTO salvor_column (t, slot, name) VALUES (?1, ?2, ?3)", .integer(number), .integer(Int64(slots.count)),
        .text(name))
      slots.append(name)
    }
    return known == nil
  }

  private static func captured(_ table: Table, on connection: SQLiteConnection) throws -> CapturedTable {
    guard let number = try number(of: table, on: connection), let shape = try connection.tableShape(table.name) else {
      throw SalvorError(
        .storage, "The table \(table.name) is missing: open the database again.", context: ["table": table.name])
    }
    let actions = try shape.foreignKeys.compactMap { key -> CapturedTable.Action? in
      guard [key.onDelete, key.onUpdate].contains(where: { $0 != "NO ACTION" && $0 != "RESTRICT" }),
        let parent = try connection.tableShape(key.parent)
      else { return nil }
      let columns = key.parentColumns.isEmpty ? parent.primaryKey : key.parentColumns
      guard columns.count == key.columns.count else { return nil }
      return CapturedTable.Action(columns: key.columns, parent: parent.name, parentColumns: columns)
    }
    return CapturedTable(
      number: number, slots: try slots(of: number, on: connection), keyCount: table.primaryKey.count, shape: shape,
      actions: actions, flags: table.flags, definition: table)
  }

  /// Of foreign keys that act by themselves those count whose parent is captured too, and known by its primary key.
  private mutating func linkActions() {
    var parents: Set<Int64> = []
    for place in tables.indices {
      tables[place].actions = tables[place].actions.compactMap { action in
        guard let parent = table(action.parent), action.parentColumns.count == parent.keyCount else { return nil }
        var known = action
        known.columns = parent.key.compactMap { key in
          zip(action.parentColumns, action.columns).first { $0.0.folded == key.name.folded }?.1
        }
        guard known.columns.count == parent.keyCount else { return nil }
        known.number = parent.number
        known.collations = parent.keyCollations
        parents.insert(parent.number)
        return known
      }
    }
    for place in tables.indices { tables[place].isParentOfActions = parents.contains(tables[place].number) }
  }

  /// The log, and what it does not say (`StoredRow`), each with the columns that the widest table needs.
  func makeLogTables(on connection: SQLiteConnection) throws {
    // At once as wide as they have to be: a column that is added later makes SQLite read the whole schema again.
    let masks = (0..<maskCount).map { "m\($0)" }
    let values = (0..<valueCount).map { "v\($0)" }
    let (all, whole) = ((masks + values).joined(separator: ", "), values.joined(separator: ", "))
    try connection.execute(
      """
      CREATE TABLE IF NOT EXISTS salvor_log (seq INTEGER PRIMARY KEY, t INTEGER, op INTEGER, \(all));
      -- New values of changes that no later change and no table has; of a delete what it deletes, where it saw something else.
      CREATE TABLE IF NOT EXISTS salvor_value (seq INTEGER PRIMARY KEY, t INTEGER, \(all));
      -- Bases that walking back through the log does not lead to. there = 0: the base has no such row.
      CREATE TABLE IF NOT EXISTS salvor_base (id INTEGER PRIMARY KEY, t INTEGER, there INTEGER, \(whole));
      CREATE INDEX IF NOT EXISTS salvor_base_row ON salvor_base (t, v0);
      """)
    for (table, wanted) in [("salvor_log", masks + values), ("salvor_value", masks + values), ("salvor_base", values)] {
      let names = Set(try connection.tableShape(table)?.columns.map(\.name) ?? [])
      for name in wanted where !names.contains(name) {
        try connection.execute("ALTER TABLE \(table) ADD COLUMN \(name)")
      }
    }
  }

  /// Key changes under way: where the log stood when each began, and whether another row stood under the new key. Rows are
  /// there only while a statement runs, and those of changes that OR IGNORE took back.
  private func makeMovingTable(on connection: SQLiteConnection) throws {
    let width = max(1, tables.map(\.keyCount).max() ?? 1)
    let columns =
      ["id", "t", "seq", "stood"] + (0..<width).map { "k\($0)" } + (0..<width).map { "n\($0)" }
    if try connection.tableShape("salvor_moving")?.columns.map(\.name) == columns {
      // An opening that changes nothing writes nothing.
      if try connection.integer("SELECT 1 FROM salvor_moving LIMIT 1") != nil {
        try connection.execute("DELETE FROM salvor_moving")
      }
      return
    }
    try connection.execute(
      "DROP TABLE IF EXISTS salvor_moving; CREATE TABLE salvor_moving (id INTEGER PRIMARY KEY, \(columns.dropFirst().joined(separator: ", ")))"
    )
  }

  /// Rows that a REPLACE removed and no trigger told of (`TriggerParts.removed`).
  static func logRemoved(_ table: CapturedTable, on connection: SQLiteConnection) throws {
    guard table.mayRemoveItself, try connection.integer("SELECT 1 FROM \(table.pending) LIMIT 1") != nil else { return }
    // Copies from before the table got a column do not have it.
    let found = Set(try connection.tableShape(table.pending)?.columns.map(\.name) ?? [])
    for name in table.columns.indices.map({ "v\($0)" }) where !found.contains(name) {
      try connection.execute("ALTER TABLE \(table.pending) ADD COLUMN \(name)")
    }
    try connection.run(TriggerParts(table).removed(where: "1"))
    try connection.execute("DELETE FROM \(table.pending)")
  }

  private static func makePendingTable(_ table: CapturedTable, on connection: SQLiteConnection) throws {
    let columns = ["gone"] + (0..<table.columns.count).map { "v\($0)" }
    let found = try connection.tableShape(table.pending)?.columns.map(\.name)
    if found == ["id"] + columns {
      try connection.execute("DELETE FROM \(table.pending)")
      return
    }
    // It holds rows only while a statement runs, and copies that no one asks for.
    try connection.execute(
      "DROP TABLE IF EXISTS \(table.pending); CREATE TABLE \(table.pending) (id INTEGER PRIMARY KEY, \(columns.joined(separator: ", ")))"
    )
  }

  /// Makes the view anew unless it is there, unaltered. Its trigger goes with it, and is found missing then.
  private static func restoreView(_ table: CapturedTable, on connection: SQLiteConnection) throws {
    let found = try connection.scalar(
      "SELECT sql FROM sqlite_schema WHERE type = 'view' AND name = ?1", .text(table.replacing))
    if found?.string == table.replacingSQL { return }
    try connection.execute("DROP VIEW IF EXISTS \(table.replacing); \(table.replacingSQL)")
  }

  /// Makes the triggers of one table anew unless all of them are there, unaltered, in order, and newer than all others
  /// of the table: SQLite fires the newest first, and what an application's trigger writes must be logged after the
  /// change that fired it. Answers the names of those that were missing or altered.
  static func restoreTriggers(
    _ triggers: [CaptureTriggers.Trigger], onTable table: String, number: Int64, _ connection: SQLiteConnection
  ) throws -> [String] {
    let found = try connection.rows(
      "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE ORDER BY rowid",
      .text(table)
    ).map { CaptureTriggers.Trigger(name: $0[0].string ?? "", sql: $0[1].string ?? "") }
    if Array(found.suffix(triggers.count)) == triggers, !found.dropLast(triggers.count).contains(where: isOurs) {
      return []
    }
    for trigger in found where isOurs(trigger) { try connection.execute("DROP TRIGGER \(quoted(trigger.name))") }
    for trigger in triggers {
      // Of another table's name, where the application has moved it there.
      try connection.execute("DROP TRIGGER IF EXISTS \(quoted(trigger.name))")
      try connection.execute(trigger.sql)
    }
    return triggers.filter { !found.contains($0) }.map(\.name)
  }

  /// SQLite fires the newest trigger first. If the application has made a newer one, this drops Salvor's triggers and creates them again. It
  /// changes nothing if a trigger of Salvor's is missing or altered.
  static func putTriggersLast(of table: CapturedTable, on connection: SQLiteConnection) throws {
    let triggers = CaptureTriggers(table).triggers
    let areThere = try triggers.allSatisfy { trigger in
      try connection.integer(
        "SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = ?1 AND sql = ?2", .text(trigger.name),
        .text(trigger.sql)) != nil
    }
    if areThere { _ = try restoreTriggers(triggers, onTable: table.name, number: table.number, connection) }
  }

  private static func isOurs(_ trigger: CaptureTriggers.Trigger) -> Bool {
    trigger.name.folded.hasPrefix("salvor_")
  }

  /// A group is a pair of markers in the log. It is the file's: a second insert closes the first, whoever made it.
  static let groupTriggers = [
    CaptureTriggers.Trigger(
      name: "salvor_request_bi",
      sql: "CREATE TRIGGER salvor_request_bi BEFORE INSERT ON salvor_request\nBEGIN\n  DELETE FROM salvor_request;\nEND"
    ),
    CaptureTriggers.Trigger(
      name: "salvor_request_ai",
      sql: "CREATE TRIGGER salvor_request_ai AFTER INSERT ON salvor_request\nBEGIN\n"
        + "  INSERT INTO salvor_log (t, op, v0) VALUES (0, \(LogOperation.open.rawValue), NEW.tag);\nEND"),
    CaptureTriggers.Trigger(
      name: "salvor_request_ad",
      sql: "CREATE TRIGGER salvor_request_ad AFTER DELETE ON salvor_request\nBEGIN\n"
        + "  INSERT INTO salvor_log (t, op) VALUES (0, \(LogOperation.close.rawValue));\nEND"),
  ]
}
