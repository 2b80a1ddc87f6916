import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What the steps of a store work on: its connection and what is synchronized. It lives inside the store's actor.
final class StoreContext {
  let connection: SQLiteConnection
  let random: any RandomSource
  let clock: any Clock
  var schema: Schema
  /// The application's own schema, as it was opened with.
  let own: Schema
  var config: SyncConfig
  var catalog: CaptureCatalog { didSet { rowQueries = [:] } }
  private var rowQueries: [Int64: String] = [:]
  /// A table lacks constraints that the schema has for it, and that rows here break: each opening tries again.
  var triesConstraints = false
  /// A recovery is tried and rolled back: blobs that are not here are not fetched for it.
  var rehearses = false
  /// Attached while a download is applied, in the place of the rows of their groups.
  var files: [AttachedSnapshot] = []

  init(
    _ connection: SQLiteConnection, random: any RandomSource, clock: any Clock, schema: Schema, own: Schema,
    config: SyncConfig,
    catalog: CaptureCatalog
  ) {
    self.connection = connection
    self.random = random
    self.clock = clock
    self.schema = schema
    self.own = own
    self.config = config
    self.catalog = catalog
  }

  func captured(_ name: String) throws -> CapturedTable {
    guard let table = catalog.table(name) else {
      throw SalvorError(
        .inconsistentDownload, "The table \(name) is not synchronized here. Adopt the SyncConfig first.",
        context: ["table": name])
    }
    return table
  }

  func table(_ captured: CapturedTable) -> Table? { schema.table(captured.name) }

  func group(of number: Int64) -> String {
    catalog.table(number: number).flatMap { schema.table($0.name)?.group } ?? Schema.defaultGroup
  }

  // MARK: Rows

  /// `key = ?n …` for a captured table, byte for byte.
  func keyCondition(_ table: CapturedTable, firstParameter: Int = 1) -> String {
    table.rowAt { "?\($0 + firstParameter)" }
  }

  /// Selects the row with a key as the table has it, by slot.
  func rowQuery(_ table: CapturedTable) -> String {
    if let known = rowQueries[table.number] { return known }
    let made = rowQuery(table, slots: Array(table.columns.indices))
    rowQueries[table.number] = made
    return made
  }

  /// The same of some of its columns.
  func rowQuery(_ table: CapturedTable, slots: [Int]) -> String {
    let columns = slots.map(table.tableColumn).joined(separator: ", ")
    return "SELECT \(columns) FROM \(quoted(table.name)) x WHERE \(keyCondition(table))"
  }

  /// The row as the table has it, by slot.
  func currentRow(_ table: CapturedTable, _ key: Key) throws -> SlotRow? {
    var row: SlotRow?
    try connection.query(rowQuery(table), key) {
      row = $0.values()
      return false
    }
    return row
  }

  // MARK: Requests' names

  func stamp(of counter: Int64) throws -> RequestStamp {
    let text =
      try ownStamp(of: counter)
      ?? connection.scalar(
        "SELECT stamp FROM salvor_stamp WHERE first_seq <= ?1 ORDER BY first_seq DESC LIMIT 1", .integer(counter))?
      .string
    guard let stamp = text.flatMap({ RequestStamp($0) }) else {
      throw SalvorError(.storageCorrupt, "salvor_stamp has no stamp for a request: restore the database from a copy.")
    }
    return stamp
  }

  func requestID(first: Int64) throws -> RequestID { RequestID(stamp: try stamp(of: first), counter: first) }

  /// The number of the commit that the group's rows stood at when the change was made (decision 1).
  func made(_ counter: Int64, group: String) throws -> Int64 {
    try connection.integer(
      "SELECT number FROM salvor_epoch WHERE grp = ?1 AND first_seq <= ?2 ORDER BY first_seq DESC LIMIT 1",
      .text(group), .integer(counter)) ?? 0
  }

  /// Deletes log rows, keeping the highest counter.
  ///
  /// - Parameters:
  ///   - areMarkers: no changes are among them.
  ///   - areAccepted: they need no request in error.
  func deleteLogRows(
    where condition: String, _ values: [Value], areMarkers: Bool = false, areAccepted: Bool = false
  ) throws {
    let last = try connection.lastCounter()
    try connection.run("DELETE FROM salvor_log WHERE \(condition)", values)
    if !areMarkers, connection.changes > 0 { try noteLogChange(isAcceptance: areAccepted) }
    try keepCounter(last)
  }

  /// The highest counter given before stays in the log: no counter is given twice. At the end of every step that takes
  /// rows out of the log.
  func keepCounter(_ last: Int64) throws {
    guard last > 0, try connection.lastCounter() < last else { return }
    let watermark = LogOperation.watermark.rawValue
    if let old = try connection.state(.watermark)?.integer {
      try connection.run("DELETE FROM salvor_log WHERE seq = ?1 AND op = \(watermark)", .integer(old))
    } else {
      try connection.run("DELETE FROM salvor_log WHERE op = \(watermark)")
    }
    try connection.setState(.watermark, .integer(last))
    try connection.run(
      "INSERT INTO salvor_log (seq, t, op) VALUES (?1, 0, \(watermark))", .integer(last))
  }

  static let changeOperations = "(1, 2, 3, 6, 10, 11)"
  static let deleteOperations = "(3, 6, 10)"
  static let updateOperations = "(2, 11)"
}

extension StoreContext {
  /// The tables that come whole by files, by number.
  func tablesInFiles() throws -> [Int64] {
    try files.flatMap { file in try file.tables.map { try captured($0.name).number } }
  }
}
