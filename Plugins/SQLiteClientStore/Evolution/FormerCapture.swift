import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The tables as they were captured before a schema is followed that defines them otherwise, and what of that the new one
/// ends or begins: flag columns, and columns of the application's own that it names.
struct FormerCapture {
  private let connection: SQLiteConnection
  private let before: [Table]
  private let schema: Schema
  /// Nil: nothing is defined otherwise, or nothing was captured.
  private let catalog: CaptureCatalog?
  /// The tables, by number, that have the triggers of that definition: nobody has touched those.
  private let intact: Set<Int64>

  init(_ before: [Table], _ schema: Schema, on connection: SQLiteConnection) throws {
    let before = try KeptFlags.adding(to: before, on: connection)
    self.connection = connection
    self.before = before
    self.schema = schema
    guard before != schema.synchronized, try connection.tableShape("salvor_column") != nil else {
      (catalog, intact) = (nil, [])
      return
    }
    // Those that somebody has dropped since come back with the schema.
    let there = try before.filter { table in
      try connection.tableShape(table.name) != nil
        && connection.integer("SELECT 1 FROM salvor_table WHERE name = ?1 COLLATE NOCASE", .text(table.name)) != nil
    }
    let found = try CaptureCatalog.found(there, on: connection)
    catalog = found
    intact = Set(
      try found.tables.filter { table in
        try CaptureTriggers(table).triggers.allSatisfy { trigger in
          try connection.integer(
            "SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND name = ?1 AND sql = ?2", .text(trigger.name),
            .text(trigger.sql)) != nil
        }
      }.map(\.number))
  }

  /// The table had the triggers that its former definition gives it. That it has others now is the schema's doing.
  func isIntact(_ table: CapturedTable) -> Bool { intact.contains(table.number) }

  // MARK: Flags that go

  /// Marked rows of tables that have no deleted column any more: what waits of them is a delete like any other, and its row is not there.
  /// While the mark can still be read. In a transaction, with triggers and foreign keys off.
  func letMarkedRowsGo(random: any RandomSource, clock: any Clock) throws {
    guard let catalog else { return }
    let ending = catalog.tables.filter { table in
      guard let deleted = table.deletedFlag else { return false }
      // Dropped: its columns are not read by the new schema, which has none of them.
      guard let definition = schema.tables.table(formerly: table.name) else { return true }
      let now = definition.flags.deleted.flatMap { name in definition.columns.first { $0.name == name } }
      return now.map { $0.name.folded != deleted.folded && !$0.renamedFrom.contains(deleted) } ?? true
    }
    guard !ending.isEmpty else { return }
    let former = Schema(tables: before)
    let context = StoreContext(
      connection, random: random, clock: clock, schema: former, own: former, config: SyncConfig(former),
      catalog: catalog)
    var move = Move()
    move.unmarked = Set(ending.map(\.number))
    move.returnsDisplaced = false
    try context.settle(move)
  }

  // MARK: Flags that come

  /// Tables of which the schema makes a deleted column of one that is there already: what is marked in it is found by comparing, as marks are that
  /// were set while the triggers were away.
  func newlyMarked(_ now: CaptureCatalog, besides additions: [SchemaComparison.Addition]) -> [String] {
    guard let catalog else { return [] }
    return now.tables.compactMap { table in
      guard let deleted = table.deletedFlag, let former = catalog.table(number: table.number),
        former.deletedFlag == nil
      else { return nil }
      let isMade = additions.contains {
        if case .column(let column, let of) = $0 {
          of.name == table.name && column.name.folded == deleted.folded
        } else {
          false
        }
      }
      return isMade ? nil : table.name
    }
  }

  // MARK: Columns that the schema names

  /// Columns that were the application's own, and are captured from here on.
  func namedColumns(
    _ now: CaptureCatalog, besides additions: [SchemaComparison.Addition]
  ) -> [(table: CapturedTable, slots: [Int])] {
    guard let catalog else { return [] }
    return now.tables.compactMap { table in
      guard let former = catalog.table(number: table.number) else { return nil }
      let made = additions.compactMap {
        if case .column(let column, let of) = $0, of.name == table.name { column.name.folded } else { nil }
      }
      let definition = schema.table(table.name)
      let known = Set(former.columns.map(\.name.folded))
      let slots = table.otherSlots.filter { slot in
        let name = table.columns[slot].name
        let names = [name] + (definition?.columns.first { $0.name == name }?.renamedFrom ?? [])
        return !made.contains(name.folded) && !names.contains { known.contains($0.folded) }
      }
      return slots.isEmpty ? nil : (table, slots)
    }
  }

  /// What the application wrote into columns of its own that the schema has named now: changes of the default that the server's rows
  /// have there. Of a table that only the server writes its values count.
  func capture(_ named: [(table: CapturedTable, slots: [Int])], _ context: StoreContext) throws {
    for (table, slots) in named {
      let start = try connection.lastCounter()
      for slot in slots {
        let value = context.defaultValue(table, slot)
        if !value.isNull { try connection.fillColumn(slot, of: table, value) }
      }
      func before(_ slot: Int) -> String { literal(context.defaultValue(table, slot)) }
      if context.table(table)?.maintained == .server {
        let differs = table.anyDiffers(slots, before, table.tableColumn)
        if try connection.integer("SELECT 1 FROM \(quoted(table.name)) x WHERE \(differs) LIMIT 1") != nil {
          try UnprovenTables(context).mark([table.name], servers: [table.name])
        }
        continue
      }
      try context.logUpdates(of: table, slots, from: "\(quoted(table.name)) x", before)
      try context.noteDirty(table, after: start)
      if try connection.lastCounter() > start { try context.noteLogChange() }
    }
  }
}

extension StoreContext {
  /// Logs an update of each row (alias `x`) that has another value in one of the slots than it had before.
  ///
  /// - Parameter source: the table's rows, and what they had.
  /// - Returns: how many.
  @discardableResult
  func logUpdates(
    of table: CapturedTable, _ slots: [Int], from source: String, _ before: (Int) -> String
  ) throws -> Int64 {
    let masks = (0..<table.maskCount).map { word in
      CapturedTable.balanced(
        slots.filter { $0 / LogMask.bitsPerColumn == word }.map {
          "((\(table.differs($0, before($0), table.tableColumn($0)))) << \($0 % LogMask.bitsPerColumn))"
        }, "|")
    }
    let olds = slots.map { "CASE WHEN \(table.differs($0, before($0), table.tableColumn($0))) THEN \(before($0)) END" }
    let columns = ["t", "op"] + (0..<table.maskCount).map { "m\($0)" } + (table.keySlots + slots).map { "v\($0)" }
    let values =
      ["\(table.number)", "\(LogOperation.update.rawValue)"] + masks + table.keySlots.map(table.tableColumn) + olds
    try connection.run(
      "INSERT INTO salvor_log (\(columns.joined(separator: ", "))) SELECT \(values.joined(separator: ", ")) FROM \(source) "
        + "WHERE \(table.anyDiffers(slots, before, table.tableColumn))\(table.andUnmarked())\(table.andHasKey(table.tableColumn))"
    )
    return Int64(connection.changes)
  }
}
