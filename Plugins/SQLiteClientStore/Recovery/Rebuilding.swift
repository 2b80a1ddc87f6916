import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Makes tables anew within a recovery's transaction: they are empty and unwritten, and what is staged is applied as in a
/// first sync. The application's own indexes and triggers on them come back where they still fit.
final class Rebuilding {
  private let context: StoreContext
  private let order: RecoveryOrder
  private let merge: RecoveryMerge
  private let opening: Opening
  private let own: OwnColumns
  /// The tables before, each with where its keys are kept, and the rows that the server may have lost.
  private var before: [(table: CapturedTable, keys: String, lost: String?)] = []

  private var connection: SQLiteConnection { context.connection }

  init(_ context: StoreContext, _ order: RecoveryOrder, _ merge: RecoveryMerge, _ opening: Opening) {
    self.context = context
    self.order = order
    self.merge = merge
    self.opening = opening
    own = OwnColumns(context.connection)
  }

  // MARK: Before what is staged is applied

  func run() throws {
    try follow()
    for table in context.catalog.tables {
      try rememberKeys(table)
      try own.remember(table, context.schema.table(table.name))
    }
    try showBases()
    for place in before.indices { before[place].lost = try saveLost(before[place].table) }
    let config = order.config ?? context.config
    let added = try KeptAdditions(connection).tables
    let schema = order.config?.schema(own: context.own, added: added) ?? context.schema
    let objects = try dropTables(schema)
    try makeTables(schema, config, objects)
    merge.rebuilt = Set(before.map(\.table.name) + context.catalog.tables.map(\.name))
    try merge.versions.forgetTables()
  }

  /// What the server's schema changes without a reset comes first: a table keeps what is known of its rows under its new name, and what the
  /// application has made beside it follows. Where that cannot be, tables are made anew from what they were.
  private func follow() throws {
    guard let config = order.config else { return }
    do {
      let (adopted, _) = try connection.savepoint("salvor_follow") { try opening.adopt(config, context) }
      (context.schema, context.config, context.catalog) = (adopted.schema, adopted.config, adopted.catalog)
    } catch let error as SalvorError
      where [.schemaIncompatible, .schemaAhead, .schemaRefused, .cannotStand].contains(error.code)
    {}
  }

  private func rememberKeys(_ table: CapturedTable) throws {
    let name = "temp.salvor_keys_\(table.number)"
    let keys = table.keySlots.map { "\(table.tableColumn($0)) AS k\($0)" }.joined(separator: ", ")
    try connection.execute(
      "DROP TABLE IF EXISTS \(name); CREATE TABLE \(name) AS SELECT \(keys) FROM \(quoted(table.name)) x")
    before.append((table, name, nil))
  }

  /// All requests leave for the archive; the application's triggers see that its rows are others then.
  private func showBases() throws {
    var move = Move()
    move.discarded = order.discarded
    move.returnsDisplaced = false
    move.movesClientRows = false
    try context.settle(move)
    let firing = try context.firingTables()
    connection.triggersEnabled = true
    // What an application's index or log has of them goes with the rows.
    for table in context.catalog.tables where firing.contains(table.number) {
      try saveFiring(table)
      try connection.run("DELETE FROM \(quoted(table.name))")
    }
    connection.triggersEnabled = false
    try context.deleteLogRows(where: "op IN \(StoreContext.changeOperations)", [])
    for table in context.catalog.tables { try connection.execute("DELETE FROM \(table.pending)") }
  }

  private var saved: [Int64: String] = [:]

  /// Before the rows of a table whose triggers fire are deleted.
  private func saveFiring(_ table: CapturedTable) throws { saved[table.number] = try copyLost(table) }

  private func saveLost(_ table: CapturedTable) throws -> String? { try saved[table.number] ?? copyLost(table) }

  /// The rows whose versions are commits that the server never made, and those that may have been written while triggers
  /// were away, by slot; behind the last one whether it is the former.
  private func copyLost(_ table: CapturedTable) throws -> String? {
    let lost = merge.versions.lostCondition(table)
    let isUnproven = merge.versions.unproven.contains(table.number)
    guard lost != nil || isUnproven else { return nil }
    let name = "temp.salvor_lost_\(table.number)"
    let columns = table.columns.indices.map { "\(table.tableColumn($0)) AS v\($0)" }.joined(separator: ", ")
    try connection.execute(
      "DROP TABLE IF EXISTS \(name); CREATE TABLE \(name) AS SELECT \(columns), (\(lost ?? "0")) AS is_lost FROM \(quoted(table.name)) x WHERE \(isUnproven ? "1" : lost ?? "0")\(table.andHasKey(table.tableColumn))\(table.andUnmarked())"
    )
    return name
  }

  /// Answers with the statements that make the application's own indexes and triggers.
  private func dropTables(_ schema: Schema) throws -> [String] {
    var objects: [String] = []
    var names = context.schema.synchronized.map(\.name)
    if order.rebuild == .everything {
      try recordGivenUp()
      names += (context.schema.tables + schema.tables).filter { $0.maintained == .client }.map(\.name)
      for name in ["salvor_aside", "salvor_subscription", "salvor_subscribed", "salvor_setting"] {
        try connection.run("DELETE FROM \(name)")
      }
    }
    connection.clearStatementCache()
    for name in names where try connection.tableShape(name) != nil {
      objects += try connection.rows(
        "SELECT sql FROM sqlite_schema WHERE type IN ('index', 'trigger') AND sql IS NOT NULL AND tbl_name = ?1 COLLATE NOCASE AND name NOT LIKE 'salvor\\_%' ESCAPE '\\' ORDER BY rowid",
        .text(name)
      ).compactMap { $0[0].string }
      try connection.execute("DROP TABLE \(quoted(name))")
    }
    try connection.run("DELETE FROM salvor_group")
    try connection.run("DELETE FROM salvor_leaving")
    return objects
  }

  /// Client-only rows, subscriptions and settings, each by name: their values are in the copy that was made before.
  private func recordGivenUp() throws {
    var count: Int64 = 0
    func add(_ item: RecoveryItem) throws {
      try merge.record.givenUp(item)
      count += 1
    }
    func add(_ table: String, _ key: Key) throws {
      try add(
        RecoveryItem(
          fate: .givenUp, request: nil, table: table, key: key, operation: nil, before: [], after: [],
          reason: "client-only"))
    }
    for table in context.schema.tables where table.maintained == .client {
      guard try connection.tableShape(table.name) != nil else { continue }
      let key = quotedList(table.primaryKey)
      try connection.query("SELECT \(key) FROM \(quoted(table.name)) ORDER BY \(key)") { row in
        try add(table.name, row.values())
        return true
      }
    }
    for row in try merge.record.rowsAside(after: 0) { try add(row.table, row.key) }
    for item in try connection.deviceSettings().givenUp { try add(item) }
    var counts = RecoveryCounts()
    counts.givenUp = count
    merge.add(counts)
  }

  private func makeTables(_ schema: Schema, _ config: SyncConfig, _ objects: [String]) throws {
    for table in context.catalog.tables where !Self.keepsSlots(table, schema.table(table.name)) {
      try retire(table)
    }
    var comparison = try SchemaComparison(schema, with: connection, ddl: Opening.ddl)
    comparison.refusals = try opening.refusals(of: comparison)
    try comparison.apply(to: connection, schema: schema, ddl: Opening.ddl)
    try own.add()
    for sql in objects {
      // One that names what is not there any more cannot come back.
      do { try connection.execute(sql) } catch let error as SalvorError where error.code == .storage {}
    }
    let (adopted, _) = try opening.bringInLine(schema, own: context.own, config, before: [])
    if order.config != nil { try opening.write(config, delivered: true) }
    context.schema = adopted.schema
    context.config = adopted.config
    context.catalog = adopted.catalog
  }

  /// The table has the key and the columns that its slots are for, and maybe more.
  private static func keepsSlots(_ table: CapturedTable, _ definition: Table?) -> Bool {
    guard let definition, definition.maintained != .client else { return false }
    let names = Set(definition.travelling.map { $0.name.folded })
    return table.key.map { $0.name.folded } == definition.primaryKey.map { $0.folded }
      && table.columns.allSatisfy { names.contains($0.name.folded) }
  }

  /// Its number and slots stay with what the archive has of it.
  private func retire(_ table: CapturedTable) throws {
    try connection.run(
      "INSERT INTO salvor_retired_table (id, name, keys) VALUES (?1, ?2, ?3)", .integer(table.number),
      .text(table.name), .integer(Int64(table.keyCount)))
    for name in ["salvor_table WHERE id", "salvor_history WHERE t"] {
      try connection.run("DELETE FROM \(name) = ?1", .integer(table.number))
    }
    try connection.execute("DROP TABLE IF EXISTS \(table.pending)")
  }

  // MARK: When it is applied

  func finish() throws {
    let watch = try BaseWatch(context, order, merge.versions, LogIndex(context))
    for entry in before { try note(entry.table, entry.lost, watch) }
    let offered = try OfferedRows(context, merge.offers, merge.versions, watch)
    try offered.noteMass()
    if merge.offers.isOn, try !watch.isEmpty {
      var move = Move()
      move.offers = RebuiltOffers(merge: merge, watch: watch, offered: offered)
      move.basesMayBreak = false
      try context.settle(move)
    }
    try own.restore(context.catalog)
    var counts = RecoveryCounts()
    let archive = try archiveLost(watch, offered.mass)
    (counts.lost, counts.unoffered) = (archive.count, archive.unoffered)
    counts.offered = merge.offers.count
    var names: [String] = []
    for entry in before {
      let count = try connection.integer("SELECT count(*) FROM \(entry.keys)") ?? 0
      let missing = try missingCount(entry.table, entry.keys, count)
      counts.deletes += missing
      if let share = order.removedShareMax, count >= RecoveryMerge.guardedRowsMin,
        Double(missing) > share * Double(count)
      {
        names.append(entry.table.name)
      }
    }
    try RecoveryMerge.refuse(names)
    merge.add(counts)
    for entry in before {
      try connection.execute("DROP TABLE \(entry.keys)")
      if let lost = entry.lost { try connection.execute("DROP TABLE \(lost)") }
    }
  }

  private func missingCount(_ old: CapturedTable, _ keys: String, _ count: Int64) throws -> Int64 {
    guard let table = context.catalog.table(old.name), table.keyCount == old.keyCount,
      table.key.map(\.name) == old.key.map(\.name)
    else { return count }
    return try connection.integer(
      "SELECT count(*) FROM \(keys) o WHERE NOT EXISTS (SELECT 1 FROM \(quoted(table.name)) x WHERE \(table.rowAt { "o.k\($0)" }))"
    ) ?? 0
  }

  /// The table, if it kept its key and columns.
  private func now(_ old: CapturedTable) -> CapturedTable? {
    context.catalog.table(old.name).flatMap { $0.number == old.number ? $0 : nil }
  }

  /// What is lost of a table's rows and deletes goes into the watch, as it does in a recovery in place.
  private func note(_ old: CapturedTable, _ lost: String?, _ watch: BaseWatch) throws {
    guard let table = now(old) else { return }
    if let lost { try watch.noteRows(table, in: lost, slots: old.columns.count) }
    let offers = merge.offers
    let isOffered = offers.mayOffer(table) ? (offers.mode(of: table) == .all ? "1" : "s.wrote = 1") : "0"
    try watch.noteDeletes(table, isOwn: "(s.own = 1 OR \(isOffered))")
  }

  /// Rows and deletes that are not offered, in the order of the tables and of their keys.
  private func archiveLost(_ watch: BaseWatch, _ mass: Set<Int64>) throws -> LossArchive {
    let archive = LossArchive(context, merge.record, merge.offers, counter: try connection.lastCounter())
    var massDeletes: [Int64: (table: CapturedTable, keys: [Key])] = [:]
    try watch.each { entry in
      let base = try context.currentRow(entry.table, entry.key)
      if let was = entry.was {
        if entry.fate == .left { return try archive.unproven(entry.table, entry.key, was: was, base: base) }
        try archive.lost(entry.table, entry.key, was: was, base: base)
      } else if entry.fate == .gone {
        try archive.gone(entry.table, entry.key)
      } else if mass.contains(entry.table.number) {
        massDeletes[entry.table.number, default: (entry.table, [])].keys.append(entry.key)
      } else {
        try archive.lost(entry.table, entry.key, was: nil, base: base)
      }
    }
    for (table, keys) in massDeletes.sorted(by: { $0.key < $1.key }).map(\.value) {
      try archive.lostDeletes(table, keys)
    }
    for entry in before where now(entry.table) == nil {
      guard let lost = entry.lost else { continue }
      try archiveRetired(entry.table, lost, archive)
    }
    try context.keepCounter(archive.counter)
    return archive
  }

  /// A table with other columns has no row of this kind.
  private func archiveRetired(_ table: CapturedTable, _ lost: String, _ archive: LossArchive) throws {
    let columns = table.columns.indices.map { "v\($0)" }.joined(separator: ", ")
    let keys = table.keySlots.map { "v\($0)" }.joined(separator: ", ")
    try connection.query("SELECT is_lost, \(columns) FROM \(lost) ORDER BY \(keys)") { row in
      let was = row.values(from: 1, count: table.columns.count)
      let key = Array(was.prefix(table.keyCount))
      if row.int64(0) == 1 {
        try archive.lost(table, key, was: was, base: nil)
      } else {
        try archive.unproven(table, key, was: was, base: nil)
      }
      return true
    }
  }
}

/// What a rebuild offers, with the lost rows of others that it needs.
private final class RebuiltOffers: AddedRequests {
  private let merge: RecoveryMerge
  private let watch: BaseWatch
  private let offered: OfferedRows

  init(merge: RecoveryMerge, watch: BaseWatch, offered: OfferedRows) {
    self.merge = merge
    self.watch = watch
    self.offered = offered
  }

  func add(to rows: WorkingRows) throws {
    try offered.add(to: rows)
    try merge.makeParentsAgain(rows, watch, offered)
  }
}
