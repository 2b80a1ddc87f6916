import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The time of an application's own migration: its tables are plain ones, and what they held stands aside to be compared
/// afterwards. In transactions of a connection with triggers and foreign keys off.
struct CapturePause {
  let context: StoreContext
  private var connection: SQLiteConnection { context.connection }

  private static func aside(_ number: Int64) -> String { "salvor_paused_\(number)" }

  // MARK: Pausing

  func begin(at time: Int64) throws {
    // What stands in the log up to here is of the tables as they are now.
    try RequestSorting(context).sort()
    for table in context.catalog.tables {
      let name = Self.aside(table.number)
      let values = table.columns.indices.map { "\(table.tableColumn($0)) AS v\($0)" }.joined(separator: ", ")
      let keys = table.keySlots.map { "v\($0)" }.joined(separator: ", ")
      try connection.execute(
        """
        DROP TABLE IF EXISTS \(name);
        CREATE TABLE \(name) AS SELECT \(values) FROM \(quoted(table.name)) x WHERE 1\(table.andUnmarked());
        CREATE INDEX \(name)_key ON \(name) (\(keys));
        """)
    }
    for (kind, pattern) in [("trigger", "salvor\\_%"), ("view", "salvor\\_replacing\\_%")] {
      for row in try connection.rows(
        "SELECT name FROM sqlite_schema WHERE type = ?1 AND name LIKE ?2 ESCAPE '\\'", .text(kind), .text(pattern))
      {
        // Those of Salvor's own tables are in no migration's way.
        guard let name = row[0].string, !StoreTables.triggers.contains(name) else { continue }
        try connection.execute("DROP \(kind.uppercased()) \(quoted(name))")
      }
    }
    try connection.setState(.pausedSince, .integer(time))
  }

  // MARK: Resuming

  /// A table or column that the migration took away without a declared rule would count as empty: it is refused by name.
  func refuseLosses() throws {
    var missing: [String] = []
    for row in try connection.rows("SELECT id, name FROM salvor_table ORDER BY id") {
      guard let number = row[0].integer, let name = row[1].string,
        try connection.tableShape(Self.aside(number)) != nil, !context.schema.dropped.contains(name)
      else { continue }
      let definition = context.schema.tables.table(formerly: name)
      let names = [definition?.name ?? name] + (definition?.renamedFrom ?? [])
      guard let shape = try names.lazy.compactMap({ try connection.tableShape($0) }).first else {
        missing.append(name)
        continue
      }
      for column in try connection.rows("SELECT name FROM salvor_column WHERE t = ?1", .integer(number)) {
        guard let old = column[0].string, definition?.hasDropped(old) != true else { continue }
        let now = definition?.column(formerly: old)
        let names = [now?.name ?? old] + (now?.renamedFrom ?? [])
        if !names.contains(where: { shape.column($0) != nil }) { missing.append("\(name).\(old)") }
      }
    }
    guard let first = missing.first else { return }
    throw SalvorError(
      .schemaRefused,
      "\(missing.joined(separator: ", ")) is not there any more, and the schema that this device has from its server declares no rule for it (renamedFrom, dropped). Put it back as it was, and resume. Where the server's schema declares the rule, the next synchronization renames or drops it here by itself. Capture stays paused.",
      context: ["table": first])
  }

  /// After the tables were brought in line: every row that is another than it was is a change.
  func end() throws -> CaptureResumption {
    var resumption = CaptureResumption()
    // With how many slots each had when capture was paused; a table that is new is adopted instead.
    let tables = try context.schema.parentsFirst(context.schema.synchronized).compactMap { definition in
      try context.catalog.table(definition.name).flatMap { table in
        try connection.tableShape(Self.aside(table.number)).map { (table: table, known: $0.columns.count) }
      }
    }
    let start = try connection.lastCounter()
    for (table, known) in tables {
      try fillLog(table, from: known)
      resumption.inserts += try captureInserts(table)
      resumption.updates += try captureUpdates(table, known: known)
    }
    let written = try connection.lastCounter()
    for (table, known) in tables.reversed() {
      try captureDeletes(table, known: known)
      try captureMarks(table, known: known)
    }
    resumption.deletes =
      try connection.integer("SELECT count(*) FROM salvor_log WHERE seq > ?1", .integer(written)) ?? 0
    for (table, _) in tables {
      try MarkSpreading(connection).noteUnknown(table)
      try context.noteDirty(table, after: start)
    }
    for row in try connection.rows(
      "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'salvor_paused_*'")
    {
      if let name = row[0].string { try connection.execute("DROP TABLE \(quoted(name))") }
    }
    try connection.setState(.pausedSince, Value?.none)
    if resumption.inserts + resumption.updates + resumption.deletes > 0 { try context.noteLogChange() }
    return resumption
  }

  /// A row as it was, in the slots of now (alias `p`): a column that is new had its default.
  private func was(_ table: CapturedTable, _ slot: Int, known: Int) -> String {
    slot < known ? "p.v\(slot)" : literal(context.defaultValue(table, slot))
  }

  /// Whole rows in the log have the default of a column that the application added itself.
  private func fillLog(_ table: CapturedTable, from count: Int) throws {
    for slot in count..<max(count, table.columns.count) {
      let value = context.defaultValue(table, slot)
      guard !value.isNull else { continue }
      try connection.fillColumn(slot, of: table, value)
    }
  }

  private func captureInserts(_ table: CapturedTable) throws -> Int64 {
    let keys = table.keySlots.map(table.tableColumn).joined(separator: ", ")
    let missing = "NOT EXISTS (SELECT 1 FROM \(Self.aside(table.number)) p WHERE \(atKey(table)))"
    try connection.run(
      "INSERT INTO salvor_log (t, op, \(table.logColumns(table.keySlots))) SELECT \(table.number), \(LogOperation.insert.rawValue), \(keys) "
        + "FROM \(quoted(table.name)) x WHERE \(missing)\(table.andUnmarked())\(table.andHasKey(table.tableColumn))")
    return Int64(connection.changes)
  }

  /// A change of the key is a delete and an insert.
  private func captureUpdates(_ table: CapturedTable, known: Int) throws -> Int64 {
    let others = Array(table.otherSlots)
    guard !others.isEmpty else { return 0 }
    func before(_ slot: Int) -> String { was(table, slot, known: known) }
    return try context.logUpdates(
      of: table, others, from: "\(quoted(table.name)) x JOIN \(Self.aside(table.number)) p ON \(atKey(table))", before)
  }

  private func captureDeletes(_ table: CapturedTable, known: Int) throws {
    try connection.run(
      "\(logOfDeletes(table, known: known)) WHERE NOT EXISTS (SELECT 1 FROM \(quoted(table.name)) x WHERE \(table.rowAt(markedToo: true) { "p.v\($0)" }))"
        + table.andHasKey { "p.v\($0)" })
  }

  /// Rows that are still there and were marked, with what is below them as it is now.
  private func captureMarks(_ table: CapturedTable, known: Int) throws {
    guard let deleted = table.deletedFlag else { return }
    let keys = table.keySlots.map { "p.v\($0)" }.joined(separator: ", ")
    let isMarked =
      "EXISTS (SELECT 1 FROM \(quoted(table.name)) x WHERE \(table.rowAt(markedToo: true) { "p.v\($0)" }) AND \(CapturedTable.isSet(deleted, "x")))"
    let atKey = table.keySlots.map { table.same($0, "p.v\($0)", "?\($0 + 1)") }.joined(separator: " AND ")
    for key in try connection.rows(
      "SELECT \(keys) FROM \(Self.aside(table.number)) p WHERE \(isMarked)\(table.andHasKey { "p.v\($0)" })")
    {
      try MarkSpreading(connection).take(table, key) {
        try connection.run("\(logOfDeletes(table, known: known)) WHERE \(atKey)", key)
      }
    }
  }

  /// Logs deletes of rows kept aside (alias `p`), with their values.
  private func logOfDeletes(_ table: CapturedTable, known: Int) -> String {
    let values = table.columns.indices.map { was(table, $0, known: known) }.joined(separator: ", ")
    return
      "INSERT INTO salvor_log (t, op, \(table.logColumns(table.columns.indices))) SELECT \(table.number), \(LogOperation.delete.rawValue), \(values) "
      + "FROM \(Self.aside(table.number)) p"
  }

  /// The row kept aside (alias `p`) has the key of the table's row (alias `x`), byte for byte.
  private func atKey(_ table: CapturedTable) -> String {
    table.keySlots.map { table.same($0, "p.v\($0)", table.tableColumn($0)) }.joined(separator: " AND ")
  }
}

extension SQLiteConnection {
  /// When capture was paused, in milliseconds since 1970; nil: it is not.
  func pausedSince() throws -> Int64? { try state(.pausedSince)?.integer }

  /// A slot of what is kept aside closes, as in the log.
  func closePausedSlot(_ number: Int64, _ slot: Int, of count: Int) throws {
    let name = "salvor_paused_\(number)"
    guard try tableShape(name)?.column("v\(slot)") != nil else { return }
    try execute("ALTER TABLE \(name) DROP COLUMN v\(slot)")
    for place in (slot + 1)..<max(slot + 1, count) where try tableShape(name)?.column("v\(place)") != nil {
      try execute("ALTER TABLE \(name) RENAME COLUMN v\(place) TO v\(place - 1)")
    }
  }
}
