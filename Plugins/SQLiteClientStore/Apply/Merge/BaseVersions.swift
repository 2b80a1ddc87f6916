import SQLiteSupport
import SalvorModel
import SalvorStorage

extension StoreContext {
  /// The numbers of the captured tables of some groups.
  func tables(of groups: Set<String>) -> [CapturedTable] {
    catalog.tables.filter { groups.contains(group(of: $0.number)) }
  }

  /// The versions of rows of groups that come whole are those that they come with. Which rows were deleted stays known: a
  /// server that goes back behind a delete has the row again, and nobody else would tell that it was deleted. So does which rows
  /// this device wrote: it offers them to a server that has lost them.
  ///
  /// - Parameter ended: the groups as they are then.
  /// - Returns: the last entry that stays, for `forgetReturned`; 0: none does.
  func forgetVersions(of groups: Set<String>, as ended: [GroupState]) throws -> Int64 {
    var last: Int64 = 0
    for table in tables(of: groups) {
      let keys = table.keySlots.map { "v\($0)" }.joined(separator: ", ")
      let group = group(of: table.number)
      let cursor = ended.first { $0.name == group }?.cursor?.number
      try connection.run(
        """
        DELETE FROM salvor_history WHERE t = ?1 AND id NOT IN (
          SELECT id FROM (
            SELECT id, deleted, row_number() OVER (PARTITION BY \(keys) ORDER BY version DESC, id DESC) AS place,
              max(own AND deleted = 0) OVER (PARTITION BY \(keys)) AS wrote
            FROM salvor_history WHERE t = ?1)
          WHERE place = 1 AND (deleted = 1 OR (deleted = 0 AND wrote = 1 AND ?2)))
        """, .integer(table.number), .integer(cursor == nil ? 0 : 1))
      if let cursor {
        try connection.run(
          "UPDATE salvor_history SET version = ?2, own = \(Self.cameWhole), origin = NULL WHERE t = ?1 AND deleted = 0",
          .integer(table.number), .integer(cursor))
      }
      last = max(
        last, try connection.integer("SELECT max(id) FROM salvor_history WHERE t = ?1", .integer(table.number)) ?? 0)
    }
    return last
  }

  /// `own` of a row that this device wrote and that came whole since: by the commit of its line nobody is known to have changed it.
  static let cameWhole = 2

  /// When the groups have come: a delete is not remembered of a row that the server has.
  func forgetReturned(of groups: Set<String>, upTo last: Int64) throws {
    guard last > 0 else { return }
    let index = try LogIndex(self)
    for table in tables(of: groups) {
      let keys = table.keySlots.map { "v\($0)" }.joined(separator: ", ")
      var returned: [Int64] = []
      try connection.query(
        "SELECT id, \(keys) FROM salvor_history WHERE t = ?1 AND id <= ?2 AND deleted = 1",
        [.integer(table.number), .integer(last)]
      ) { row in
        if try index.timeline(table, row.values(from: 1, count: table.keyCount)).base != nil {
          returned.append(row.int64(0))
        }
        return true
      }
      for id in returned { try connection.run("DELETE FROM salvor_history WHERE id = ?1", .integer(id)) }
    }
  }

  /// What was made on a commit that the server does not have was made on the newest one that it has; what such a commit
  /// changed is not known to be newer than that one.
  ///
  /// - Parameter shared: nil: nothing is shared.
  func cutHistory(to shared: Int64?) throws {
    let bound = Value.integer(shared ?? 0)
    try connection.run("UPDATE salvor_epoch SET number = ?1 WHERE number > ?1", bound)
    try connection.run("UPDATE salvor_leaving SET number = ?1 WHERE number > ?1", bound)
    try connection.run(
      shared == nil ? "DELETE FROM salvor_commit WHERE ?1 = 0" : "DELETE FROM salvor_commit WHERE number > ?1", bound)
    // What grew from a lost commit is of another timeline: the server tells of its own with the next begin.
    try connection.run(
      shared == nil
        ? "DELETE FROM salvor_incarnation WHERE ?1 = 0" : "DELETE FROM salvor_incarnation WHERE first_commit > ?1",
      bound)
    try connection.run(
      shared == nil ? "DELETE FROM salvor_history WHERE ?1 = 0" : "DELETE FROM salvor_history WHERE version > ?1", bound
    )
  }

  /// P is what the server says now. Both sequence IDs that were P and C are remembered: a server that names one of them as S
  /// went back in time, or came forward again.
  func setPrevious(_ previous: SequenceID?) throws {
    for name in [StateName.previous, .current] {
      guard let old = try connection.text(name), old != previous?.text else { continue }
      try connection.run("INSERT INTO salvor_sequence (sequence) VALUES (?1)", .text(old))
    }
    if let previous {
      try connection.run("DELETE FROM salvor_sequence WHERE sequence = ?1", .text(previous.text))
    }
    try connection.setState(.previous, previous?.text)
  }
}

/// The versions of the rows' bases, as they were before a recovery: which of them are commits that the server never made
/// (semantics 6, *lost is not deleted*).
final class BaseVersions {
  private let context: StoreContext
  private let order: RecoveryOrder
  private var keyWidth: Int
  private(set) var name: String
  private var find: SQLiteStatement
  /// Tables whose rows without a version of their own came with a commit that is not shared.
  private var cameLater: Set<Int64> = []
  /// The commits with which tables came whole, by number.
  private var whole: [Int64: Int64] = [:]
  /// Tables whose triggers were away: what their rows were may have been written here, and is in no log.
  let unproven: Set<Int64>
  /// Tables with rows that have a version of their own.
  private(set) var tables: Set<Int64> = []

  /// Before the history is cut.
  init(_ context: StoreContext, _ order: RecoveryOrder) throws {
    self.context = context
    self.order = order
    let connection = context.connection
    unproven = try UnprovenTables(context).changedHere()
    keyWidth = Self.keyWidth(context)
    (name, find) = try Self.make(keyWidth, connection)
    if order.absence == .lost {
      let values = (0..<keyWidth).map { "coalesce(v\($0), 0)" }.joined(separator: ", ")
      let keys = (0..<keyWidth).map { "k\($0)" }.joined(separator: ", ")
      let named = (0..<keyWidth).map { "coalesce(v\($0), 0) AS k\($0)" }.joined(separator: ", ")
      // Of several entries the newest commit counts, whenever it was heard of, and of one commit's the last one: of a group SQLite
      // takes the other columns from the row that has its only max().
      try connection.run(
        """
        INSERT INTO \(name) SELECT t, \(keys), max(version), deleted, own, sum(wrote) > 0, whole, origin, undone FROM (
          SELECT t, \(named), max(id), CASE WHEN count(origin) = count(*) THEN origin END AS origin, undone, version, deleted, sum(own <> \(StoreContext.cameWhole)) = 0 AS whole, sum(own) > 0 AS own, sum(own AND version > \(order.shared ?? 0)) > 0 AS wrote
          FROM salvor_history GROUP BY t, \(values), version)
        GROUP BY t, \(keys)
        """)
      tables = Set(try connection.rows("SELECT DISTINCT t FROM \(name)").compactMap { $0[0].integer })
    }
    for table in context.catalog.tables {
      let whole = try connection.cameWhole(context.group(of: table.number))
      self.whole[table.number] = whole
      if whole > order.shared ?? 0 { cameLater.insert(table.number) }
    }
  }

  private static func keyWidth(_ context: StoreContext) -> Int {
    max(1, context.catalog.tables.map(\.keyCount).max() ?? 1)
  }

  /// An empty table for keys of this width, and what finds an entry of it.
  private static func make(_ keyWidth: Int, _ connection: SQLiteConnection) throws -> (String, SQLiteStatement) {
    let name = "temp.salvor_versions_\(keyWidth)"
    let keys = (0..<keyWidth).map { "k\($0)" }.joined(separator: ", ")
    try connection.execute(
      "CREATE TABLE IF NOT EXISTS \(name) (t, \(keys), version, deleted, own, wrote, whole, origin, undone, PRIMARY KEY (t, \(keys))) WITHOUT ROWID; DELETE FROM \(name)"
    )
    let condition = "t = ?1 AND " + (0..<keyWidth).map { "k\($0) = ?\($0 + 2)" }.joined(separator: " AND ")
    return (
      name,
      try connection.prepare(
        "SELECT version, deleted, wrote, origin, undone FROM \(name) WHERE \(condition)", persistent: true)
    )
  }

  private struct Entry {
    var version: Int64
    var deleted: Int64
    var wrote: Int64
    var origin: LostVersion.Origin?
    var undone: UndoneVersions.Commit?
  }

  private func entry(_ table: CapturedTable, _ key: Key) throws -> Entry? {
    tables.contains(table.number) ? try entryBefore(table, key) : nil
  }

  /// The same, also of a table that was rebuilt since.
  private func entryBefore(_ table: CapturedTable, _ key: Key) throws -> Entry? {
    try find.bind(1, table.number)
    for place in 0..<keyWidth { try find.bind(place + 2, place < key.count ? key[place] : .integer(0)) }
    defer { find.reset() }
    guard try find.step() else { return nil }
    return Entry(
      version: find.int64(0), deleted: find.int64(1), wrote: find.int64(2),
      origin: find.value(3).string.flatMap { LostVersion.Origin(text: $0) },
      undone: find.value(4).string.flatMap { UndoneVersions.Commit(text: $0) })
  }

  /// The row's version is a commit that the server never made.
  func isLost(_ table: CapturedTable, _ key: Key) throws -> Bool {
    guard order.absence == .lost else { return false }
    guard let shared = order.shared else { return true }
    return try entry(table, key).map { $0.version > shared } ?? cameLater.contains(table.number)
  }

  /// The lost commit that changed a row last.
  struct Loss {
    var number: Int64
    /// This device wrote the row by a lost commit.
    var isOwn = false
    var origin: LostVersion.Origin?
    /// Of a history that an undone recovery had met: `number` is none of a commit then.
    var undone: UndoneVersions.Commit?
  }

  /// Nil: the row's version is not lost, or is not known.
  func lost(_ table: CapturedTable, _ key: Key) throws -> Loss? {
    guard try isLost(table, key) else { return nil }
    if let entry = try entry(table, key) {
      return Loss(number: entry.version, isOwn: entry.wrote == 1, origin: entry.origin, undone: entry.undone)
    }
    let whole = whole[table.number] ?? 0
    return whole > order.shared ?? 0 ? Loss(number: whole) : nil
  }

  /// The same, whatever is needed or goes to the archive, also where the table was rebuilt.
  func lostCommit(_ table: CapturedTable, _ key: Key) throws -> Loss? {
    guard order.absence == .lost else { return nil }
    let entry = try entryBefore(table, key)
    let number = entry?.version ?? whole[table.number] ?? 0
    guard number > order.shared ?? 0 else { return nil }
    return Loss(number: number, isOwn: entry?.wrote == 1, origin: entry?.origin, undone: entry?.undone)
  }

  /// Which rows of the table (alias `x`) have a version that is lost; nil: none.
  func lostCondition(_ table: CapturedTable) -> String? {
    guard order.absence == .lost else { return nil }
    guard let shared = order.shared else { return "1" }
    let isLater = cameLater.contains(table.number)
    guard isLater || tables.contains(table.number) else { return nil }
    let keys = (0..<keyWidth).map { "s.k\($0) = \($0 < table.keyCount ? table.tableColumn($0) : "0")" }
    return
      "coalesce((SELECT s.version FROM \(name) s WHERE s.t = \(table.number) AND \(keys.joined(separator: " AND "))), \(isLater ? shared + 1 : 0)) > \(shared)"
  }

  /// The lost commits of rows, as `lost` says them: an expression of the entry (alias `s`), and a condition.
  func lostNumber(_ table: CapturedTable) throws -> (number: String, isLost: String) {
    let whole = whole[table.number] ?? 0
    let number = "coalesce(s.version, \(whole))"
    guard let shared = order.shared else { return (number, "(s.version IS NOT NULL OR \(whole) > 0)") }
    return (number, "\(number) > \(shared)")
  }

  /// What entries (alias `s`) a table has of lost commits, as a condition; nil: none.
  func lostEntries(_ table: CapturedTable) -> String? {
    tables.contains(table.number) ? lostEntriesBefore(table) : nil
  }

  /// The same, also of a table that was rebuilt since.
  func lostEntriesBefore(_ table: CapturedTable) -> String? {
    order.absence == .lost ? "s.t = \(table.number) AND s.version > \(order.shared ?? 0)" : nil
  }

  /// Calls `body` with the keys of a table's rows that a request of this device made or changed by a commit that is lost.
  func eachOwn(_ table: CapturedTable, _ body: (Key) throws -> Void) throws {
    guard order.absence == .lost else { return }
    let keys = table.keySlots.map { "k\($0)" }.joined(separator: ", ")
    let found = try context.connection.rows(
      "SELECT \(keys) FROM \(name) WHERE t = ?1 AND deleted = 0 AND own = 1 AND version > ?2 ORDER BY \(keys)",
      [.integer(table.number), .integer(order.shared ?? 0)])
    for key in found { try body(key) }
  }

  /// The rows of the table with a commit that is lost, and with an offer that waits: which commit. In order.
  func newerThanOffers(_ table: CapturedTable) throws -> [(key: Key, loss: Loss)] {
    guard let lost = lostEntries(table) else { return [] }
    let keys = table.keySlots.map { "s.k\($0)" }.joined(separator: ", ")
    let isRow = (0..<keyWidth).map { "s.k\($0) = \($0 < table.keyCount ? "l.v\($0)" : "0")" }
    return try context.connection.rows(
      "SELECT DISTINCT s.version, s.origin, s.undone, \(keys) FROM salvor_offer o CROSS JOIN salvor_log l ON l.seq = o.seq CROSS JOIN \(name) s ON s.t = l.t AND \(isRow.joined(separator: " AND ")) "
        + "WHERE o.written IS NULL AND l.op IN \(StoreContext.changeOperations) AND l.t = \(table.number) AND \(lost) AND s.whole = 0 AND s.deleted IN (0, 1) ORDER BY \(keys)"
    ).map { row in
      let origin = row[1].string.flatMap { LostVersion.Origin(text: $0) }
      let undone = row[2].string.flatMap { UndoneVersions.Commit(text: $0) }
      return (Array(row[3...]), Loss(number: row[0].integer ?? 0, origin: origin, undone: undone))
    }
  }

  /// The updates and deletes that wait of rows whose version is lost, and that name none, in order.
  func changesOfLost(_ table: CapturedTable) throws -> [(seq: Int64, operation: LogOperation, key: Key)] {
    guard order.absence == .lost else { return [] }
    let keys = table.keySlots.map { "l.v\($0)" }.joined(separator: ", ")
    let isRow = (0..<keyWidth).map { "s.k\($0) = \($0 < table.keyCount ? "l.v\($0)" : "0")" }
    let whole = whole[table.number] ?? 0
    let isLost =
      order.shared.map { "coalesce(s.version, \(whole)) > \($0)" } ?? "(s.version IS NOT NULL OR \(whole) > 0)"
    return try context.connection.rows(
      "SELECT l.seq, l.op, \(keys) FROM salvor_log l LEFT JOIN \(name) s ON s.t = \(table.number) AND \(isRow.joined(separator: " AND ")) "
        + "WHERE l.t = \(table.number) AND (l.op IN \(StoreContext.updateOperations) OR l.op IN \(StoreContext.deleteOperations)) AND \(isLost) AND NOT EXISTS (SELECT 1 FROM salvor_offer o WHERE o.seq = l.seq) ORDER BY l.seq"
    ).compactMap { row in
      guard let operation = row[1].integer.flatMap({ LogOperation(rawValue: $0) }) else { return nil }
      return (row[0].integer ?? 0, operation, Array(row[2...]))
    }
  }

  /// This device wrote the row by a commit that was lost before, too.
  func noteWrote(_ table: CapturedTable, _ key: Key) throws {
    let isRow = table.keySlots.map { "k\($0) = ?\($0 + 2)" }.joined(separator: " AND ")
    try context.connection.run(
      "UPDATE \(name) SET wrote = 1 WHERE t = ?1 AND \(isRow)", [.integer(table.number)] + key)
  }

  /// The tables are made anew: no row in them has a version. What was lost of those that kept their columns is still known.
  func forgetTables() throws {
    tables = []
    let width = Self.keyWidth(context)
    if width == keyWidth { return }
    let connection = context.connection
    let (old, oldWidth) = (name, keyWidth)
    (name, find) = try Self.make(width, connection)
    keyWidth = width
    let keys = (0..<width).map { $0 < oldWidth ? "k\($0)" : "0" }.joined(separator: ", ")
    let numbers = context.catalog.tables.map { "\($0.number)" }.joined(separator: ", ")
    try connection.run(
      "INSERT INTO \(name) SELECT t, \(keys), version, deleted, own, wrote, whole, origin, undone FROM \(old) WHERE t IN (\(numbers))"
    )
  }

  /// The newest thing known of the row is that it was deleted.
  func wasDeleted(_ table: CapturedTable, _ key: Key) throws -> Bool { try entry(table, key)?.deleted == 1 }
}
