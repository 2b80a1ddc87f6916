import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The offers of a recovery, all at once (semantics 10): their changes go into the log, and the values into their tables, from
/// table to table within SQLite. Only those that go apart are in memory.
///
/// *Apart* go the rows with which something else is to be done: those in work already, those that waiting requests change, those whose unique
/// values are others at the server or are taken there, those of tables with marks or with triggers that fire. Each of these is a `WorkingRow`. The counters of
/// all are in one order, of the schema's tables and of the keys.
final class OfferedRows: AddedRequests {
  private typealias Fate = BaseWatch.Fate

  private let context: StoreContext
  private let offers: Offers
  private let versions: BaseVersions
  private let watch: BaseWatch
  private let keyWidth: Int
  /// What is offered: place, t, k…, fate, op, number, review, apart, seq.
  private let name: String
  /// Rows in work: t, k….
  private let busy: String
  /// Tables of which a restore took back a mass of deletes.
  private(set) var mass: Set<Int64> = []
  /// Rows that the server has no more, and that stand here by an offer: not those whose offer was displaced.
  var stayed: Int64 {
    get throws {
      let stay = "(\(Fate.lost.rawValue), \(Fate.deleted.rawValue))"
      return try connection.integer(
        "SELECT count(*) FROM \(name) o WHERE o.fate IN \(stay) AND o.op <> \(Self.deleteOfNothing) AND EXISTS (SELECT 1 FROM salvor_log l WHERE l.seq = o.seq AND l.op IN \(StoreContext.changeOperations))"
      ) ?? 0
    }
  }

  private var connection: SQLiteConnection { context.connection }
  private var keys: String { (0..<keyWidth).map { "k\($0)" }.joined(separator: ", ") }

  init(_ context: StoreContext, _ offers: Offers, _ versions: BaseVersions, _ watch: BaseWatch) throws {
    self.context = context
    self.offers = offers
    self.versions = versions
    self.watch = watch
    keyWidth = watch.keyWidth
    name = "temp.salvor_offering_\(keyWidth)"
    busy = "temp.salvor_busy_\(keyWidth)"
    let keys = (0..<keyWidth).map { "k\($0)" }.joined(separator: ", ")
    try context.connection.execute(
      """
      CREATE TABLE IF NOT EXISTS \(name) (place INTEGER PRIMARY KEY, t, \(keys), fate, op, number, review, apart, seq, origin, undone);
      CREATE INDEX IF NOT EXISTS \(name)_row ON salvor_offering_\(keyWidth) (t, \(keys));
      CREATE TABLE IF NOT EXISTS \(busy) (t, \(keys), PRIMARY KEY (t, \(keys))) WITHOUT ROWID;
      DELETE FROM \(name);
      DELETE FROM \(busy);
      """)
  }

  /// Small tables may lose any share of their rows.
  static let massMin = 20

  /// Lost deletes that a restore was meant to undo: a person looks at them.
  static func isMass(_ deletes: Int64, of table: CapturedTable, _ connection: SQLiteConnection) throws -> Bool {
    guard deletes >= massMin else { return false }
    return deletes * 2 > (try connection.integer("SELECT count(*) FROM \(quoted(table.name))") ?? 0)
  }

  // MARK: Expressions

  /// Two tables' entries are of one row.
  private func sameRow(_ a: String, _ b: String) -> String {
    (["t"] + (0..<keyWidth).map { "k\($0)" }).map { "\(a).\($0) = \(b).\($0)" }.joined(separator: " AND ")
  }

  /// The row (alias `alias`) is in work.
  func isBusy(_ alias: String) -> String { "EXISTS (SELECT 1 FROM \(busy) b WHERE \(sameRow("b", alias)))" }

  /// The same, or requests change it.
  private func isBusy(_ alias: String, _ table: CapturedTable, _ index: LogIndex) -> String {
    let inWork = isBusy(alias)
    return index.tables.contains(table.number)
      ? "(\(inWork) OR \(index.contains(table) { "\(alias).k\($0)" }))" : inWork
  }

  private func stands(_ alias: String, _ table: CapturedTable) -> String {
    "EXISTS (SELECT 1 FROM \(quoted(table.name)) x WHERE \(table.rowAt { "\(alias).k\($0)" }))"
  }

  /// The row of the table (alias `x`) is offered.
  private func isOffered(_ alias: String) -> String {
    "EXISTS (SELECT 1 FROM \(name) o WHERE \(sameRow("o", alias)))"
  }

  private var told: String { "\(watch.name) w LEFT JOIN \(versions.name) s ON \(sameRow("s", "w"))" }

  /// A lost commit deleted a row that the server has.
  private var isDelete: String {
    "w.fate = \(Fate.row.rawValue) AND w.was IS NULL AND ifnull(s.deleted, 0) = 1"
  }

  // MARK: Offering

  private func isMass(_ table: CapturedTable) throws -> Bool {
    let deletes = try connection.integer(
      "SELECT count(*) FROM \(told) WHERE w.t = \(table.number) AND w.settled = 0 AND \(isDelete)")
    return try Self.isMass(deletes ?? 0, of: table, connection)
  }

  private var known: [CapturedTable] { context.schema.tables.compactMap { context.catalog.table($0.name) } }

  func noteMass() throws { for table in known where try isMass(table) { mass.insert(table.number) } }

  /// When the bases of rows with requests are set.
  func add(to rows: WorkingRows) throws {
    try noteMass()
    guard offers.isOn else { return }
    let tables = known.filter(offers.mayOffer)
    guard !tables.isEmpty else { return }
    try noteBusy(rows)
    for table in tables {
      try noteHeld(table, rows)
      try choose(table, rows)
    }
    var apart = try prepareApart(rows, "apart = 1")
    guard let counters = try number() else { return }
    for table in tables { apart += try offer(table, rows) }
    try offers.markAll(counters, from: name)
    rows.noteAdded(counters)
    try rows.index.addAll("SELECT t, \(keys), seq FROM \(name) WHERE apart = 0")
    for change in apart {
      guard let seq = try connection.integer("SELECT seq FROM \(name) WHERE place = ?1", .integer(change.place)) else {
        continue
      }
      try rows.add(change.change, change.table, change.key, seq)
    }
    try connection.run(
      "UPDATE \(watch.name) AS w SET settled = 1 WHERE EXISTS (SELECT 1 FROM \(name) o WHERE \(sameRow("o", "w")))")
  }

  /// The rows that are in work now.
  func noteBusy(_ rows: WorkingRows) throws {
    let slots = (1...keyWidth + 1).map { "?\($0)" }.joined(separator: ", ")
    let insertion = try connection.prepare("INSERT OR IGNORE INTO \(busy) VALUES (\(slots))")
    for ref in rows.rows.keys {
      try insertion.bind(1, ref.table)
      for place in 0..<keyWidth { try insertion.bind(place + 2, place < ref.key.count ? ref.key[place] : .integer(0)) }
      try insertion.run()
    }
  }

  /// Rows that are on both sides the same, and yet of a lost commit: that they are so is offered, or an older version of
  /// another device would take their place. So are the deletes of rows that neither side has.
  private func noteHeld(_ table: CapturedTable, _ rows: WorkingRows) throws {
    guard let lost = versions.lostEntries(table) else { return }
    let isMine = offers.mode(of: table) == .all ? "1" : "s.wrote = 1"
    let isNew = "NOT EXISTS (SELECT 1 FROM \(watch.name) w WHERE \(sameRow("w", "s")))"
    let condition = "\(lost) AND \(isMine) AND \(offers.isKnown("s.version"))"
    let isBusy = isBusy("s", table, rows.index)
    let key = (0..<keyWidth).map { "s.k\($0)" }.joined(separator: ", ")
    try connection.run(
      "INSERT INTO \(watch.name) (\(watch.keyColumns), was, fate, settled) SELECT s.t, \(key), 0, \(Fate.same.rawValue), 0 FROM \(versions.name) s "
        + "WHERE \(condition) AND s.deleted = 0 AND \(isNew) AND NOT \(isBusy) AND \(stands("s", table))")
    try connection.run(
      "INSERT INTO \(watch.name) (\(watch.keyColumns), was, fate, settled) SELECT s.t, \(key), NULL, \(Fate.gone.rawValue), 0 FROM \(versions.name) s "
        + "WHERE \(condition) AND s.deleted = 1 AND NOT \(isBusy) AND NOT \(stands("s", table)) \(watch.orGone)")
    let ownKeys = table.keySlots.map { "s.k\($0)" }.joined(separator: ", ")
    for row in try connection.rows(
      "SELECT s.deleted, \(ownKeys) FROM \(versions.name) s WHERE \(condition) AND \(isBusy) ORDER BY \(key)")
    {
      let key = Array(row[1...])
      let timeline = try rows.load(table, key).timeline
      guard timeline.steps.isEmpty else { continue }
      if row[0] == 1 {
        if timeline.base == nil { try watch.noteGone(table, key) }
      } else if let base = timeline.base, try watch.fate(of: table, key) == nil {
        try watch.noteSame(table, key, base)
      }
    }
  }

  /// What `op` says of a delete of what the server does not have.
  private static let deleteOfNothing = 0

  /// The rows of the watch that are offered, each with what its change is.
  private func choose(_ table: CapturedTable, _ rows: WorkingRows) throws {
    let (number, isLost) = try versions.lostNumber(table)
    let operation = """
      CASE w.fate WHEN \(Fate.lost.rawValue) THEN CASE WHEN w.was IS NULL THEN \(Self.deleteOfNothing) ELSE 1 END WHEN \(Fate.gone.rawValue) THEN \(Self.deleteOfNothing)
        WHEN \(Fate.deleted.rawValue) THEN 1 WHEN \(Fate.anew.rawValue) THEN 1 WHEN \(Fate.same.rawValue) THEN 2 ELSE CASE WHEN w.was IS NULL THEN 3 ELSE 2 END END
      """
    // What the server has deleted since is offered, too: its values become a conflict version there. A row that left this device
    // because no subscription covers it was not deleted: nothing of it is offered.
    let isOfferable = """
      (w.fate IN (\(Fate.gone.rawValue), \(Fate.anew.rawValue))
        OR (w.fate = \(Fate.lost.rawValue) AND (w.was IS NOT NULL OR ifnull(s.deleted, 0) = 1)) OR (w.fate = \(Fate.deleted.rawValue) AND w.was = 1) OR (\(isDelete))
        OR (\(table.otherSlots.isEmpty ? "0" : "1") AND (w.fate = \(Fate.same.rawValue) OR (w.fate = \(Fate.row.rawValue) AND w.was = 1))))
      """
    let review =
      offers.mode(of: table) == .review
      ? "1" : mass.contains(table.number) ? "CASE WHEN \(isDelete) THEN 1 END" : "NULL"
    let key = (0..<keyWidth).map { "w.k\($0)" }.joined(separator: ", ")
    try connection.run(
      "INSERT INTO \(name) (t, \(keys), fate, op, number, review, apart, origin, undone) SELECT w.t, \(key), w.fate, \(operation), \(number), \(review), \(isApart(table, operation, rows)), s.origin, s.undone "
        + "FROM \(told) WHERE w.t = \(table.number) AND w.settled = 0 AND \(isOfferable) AND \(isLost) AND \(offers.isKnown(number))"
        + "\(offers.mode(of: table) == .all ? "" : " AND s.wrote = 1") ORDER BY \(key)")
  }

  /// An expression, of the watch (alias `w`).
  private func isApart(_ table: CapturedTable, _ operation: String, _ rows: WorkingRows) -> String {
    if rows.firing.contains(table.number) || table.deletedFlag != nil { return "1" }
    var terms = [
      isBusy("w", table, rows.index), "w.fate = \(Fate.deleted.rawValue)",
      "((\(operation)) = \(Self.deleteOfNothing) OR w.fate = \(Fate.anew.rawValue)) = \(stands("w", table))",
    ]
    if !table.otherSlots.isEmpty {
      // What no column of its type stores is not named.
      terms.append(
        "w.fate = \(Fate.row.rawValue) AND w.was IS 1 AND (\(context.anyUnstored(in: table) { "w.w\($0)" }))")
      terms.append(
        "w.fate = \(Fate.same.rawValue) AND EXISTS (SELECT 1 FROM \(quoted(table.name)) x WHERE \(table.rowAt { "w.k\($0)" }) AND (\(context.anyUnstored(in: table, table.tableColumn))))"
      )
    }
    if !table.uniques.isEmpty {
      let slots = uniqueSlots(table)
      let differs = table.anyDiffers(slots, { "w.w\($0)" }, table.tableColumn)
      terms.append(
        "w.fate = \(Fate.row.rawValue) AND w.was IS 1 AND EXISTS (SELECT 1 FROM \(quoted(table.name)) x WHERE \(table.rowAt { "w.k\($0)" }) AND (\(differs)))"
      )
      terms += table.uniques.compactMap { isTaken($0, table) }.map { "w.fate = \(Fate.anew.rawValue) AND \($0)" }
    }
    return "(" + terms.map { "(\($0))" }.joined(separator: " OR ") + ")"
  }

  /// The server has given the unique values of the row to another one; nil: only the index can tell.
  private func isTaken(_ unique: CapturedTable.Unique, _ table: CapturedTable) -> String? {
    let terms = unique.parts.compactMap { part in
      table.columns.firstIndex { $0.name.folded == part.name.folded }.map { slot in
        "\(table.tableColumn(slot)) COLLATE \(quoted(part.collation)) = w.w\(slot)"
      }
    }
    guard unique.condition == nil, !terms.isEmpty, terms.count == unique.parts.count else { return nil }
    return "EXISTS (SELECT 1 FROM \(quoted(table.name)) x WHERE \(terms.joined(separator: " AND ")))"
  }

  /// The slots that decide about unique values; those of indexes with conditions or expressions: all.
  private func uniqueSlots(_ table: CapturedTable) -> [Int] {
    var slots: Set<Int> = []
    for unique in table.uniques {
      let own = unique.parts.compactMap { part in
        table.columns.firstIndex { $0.name.folded == part.name.folded }
      }
      if own.count != unique.parts.count || own.isEmpty || unique.condition != nil { return Array(table.otherSlots) }
      slots.formUnion(own)
    }
    return slots.filter { $0 >= table.keyCount }.sorted()
  }

  // MARK: Rows apart

  private struct Apart {
    var place: Int64
    var table: CapturedTable
    var key: Key
    var change: RowChange
  }

  /// Those of which nothing is offered after all are taken out.
  private func prepareApart(_ rows: WorkingRows, _ condition: String) throws -> [Apart] {
    var found: [Apart] = []
    let entries = try connection.rows(
      "SELECT place, t, fate, \(keys) FROM \(name) WHERE \(condition) ORDER BY place")
    for entry in entries {
      guard let place = entry[0].integer, let table = entry[1].integer.flatMap({ context.catalog.table(number: $0) })
      else { continue }
      let key = Array(entry[3...].prefix(table.keyCount))
      if let change = try change(table, key, entry[2].integer.flatMap { Fate(rawValue: $0) }, rows) {
        found.append(Apart(place: place, table: table, key: key, change: change))
      } else {
        try connection.run("DELETE FROM \(name) WHERE place = ?1", .integer(place))
      }
    }
    return found
  }

  private func change(_ table: CapturedTable, _ key: Key, _ fate: Fate?, _ rows: WorkingRows) throws -> RowChange? {
    switch fate {
    case .lost:
      if try !watch.isHeld(table, key) { return nil }
      let timeline = try rows.load(table, key).timeline
      // What a request has made of it since is that request's.
      guard timeline.steps.isEmpty else { return nil }
      try rows.setBase(table, key, nil)
      return try rows.change(table, key, as: timeline.base)
    case .same: return try rows.change(table, key, as: rows.load(table, key).timeline.base)
    case .gone: return try rows.change(table, key, as: nil)
    default: return try rows.change(table, key, as: watch.was(table, key))
    }
  }

  // MARK: The rows that are left

  /// Gives each its counter. Nil: nothing is offered.
  ///
  /// Deletes after what is made again, and rows before those that they reference: who may see a row is asked of its parent.
  private func number() throws -> ClosedRange<Int64>? {
    let last = try connection.lastCounter()
    let order = context.schema.deleteOrder
    let places = known.map { "WHEN \($0.number) THEN \(1 + (order[$0.name] ?? 0))" }.joined(separator: " ")
    let isFirst = "CASE WHEN op IN (\(Self.deleteOfNothing), 3) THEN CASE t \(places) END ELSE 0 END"
    try connection.run(
      "UPDATE \(name) AS o SET seq = ?1 + n.number FROM (SELECT place, row_number() OVER (ORDER BY \(isFirst), place) AS number FROM \(name)) n WHERE n.place = o.place",
      .integer(last))
    let count = try connection.integer("SELECT count(*) FROM \(name)") ?? 0
    return count == 0 ? nil : last + 1...last + count
  }

  /// Answers with those that turned out to go apart: a table may have rules that only it knows.
  private func offer(_ table: CapturedTable, _ rows: WorkingRows) throws -> [Apart] {
    let mine = "o.t = \(table.number) AND o.apart = 0"
    guard try connection.integer("SELECT 1 FROM \(name) o WHERE \(mine) LIMIT 1") != nil else { return [] }
    var apart: [Apart] = []
    do { try connection.savepoint("salvor_offer") { try write(table, mine, rows) } } catch let error as SalvorError
      where error.isConstraintViolation
    {
      try connection.run(
        "UPDATE \(name) AS o SET apart = 2 WHERE \(mine) AND o.fate IN (\(Fate.row.rawValue), \(Fate.anew.rawValue))")
      apart = try prepareApart(rows, "apart = 2 AND t = \(table.number)")
      try write(table, mine, rows)
    }
    let touched =
      "SELECT o.t, \((0..<keyWidth).map { "o.k\($0)" }.joined(separator: ", ")) FROM \(name) o WHERE \(mine)"
    try rows.touched.writtenAll(table, "\(touched) AND o.op IN (1, 2)")
    try rows.touched.removedAll(table, "\(touched) AND o.op = 3")
    try context.noteDirty(table, after: rows.counter)
    return apart
  }

  private func write(_ table: CapturedTable, _ mine: String, _ rows: WorkingRows) throws {
    try writeLog(table, mine)
    rows.prepareWrite(table)
    let unknown = try context.unknownSlots(of: table)
    let sets = table.otherSlots.filter { !unknown.contains($0) }
      .map { "\(quoted(table.columns[$0].name)) = w.w\($0)" }.joined(separator: ", ")
    if !sets.isEmpty {
      try connection.run(
        "UPDATE \(quoted(table.name)) AS x SET \(sets) FROM \(name) o CROSS JOIN \(watch.name) w "
          + "WHERE \(mine) AND o.op = 2 AND o.fate = \(Fate.row.rawValue) AND \(sameRow("w", "o")) AND \(table.rowAt { "o.k\($0)" })"
      )
    }
    let all = table.columns.map { quoted($0.name) }.joined(separator: ", ")
    try connection.run(
      "INSERT INTO \(quoted(table.name)) (\(all)) SELECT \(table.columns.indices.map { "w.w\($0)" }.joined(separator: ", ")) FROM \(name) o CROSS JOIN \(watch.name) w "
        + "WHERE \(mine) AND o.fate = \(Fate.anew.rawValue) AND \(sameRow("w", "o")) ORDER BY o.place")
    guard try connection.integer("SELECT 1 FROM \(name) o WHERE \(mine) AND o.op = 3 LIMIT 1") != nil else { return }
    let columns = table.keySlots.map(table.tableColumn).joined(separator: ", ")
    let keys = table.keySlots.map { "o.k\($0)" }.joined(separator: ", ")
    try connection.run(
      "DELETE FROM \(quoted(table.name)) AS x WHERE (\(columns)) IN (SELECT \(keys) FROM \(name) o WHERE \(mine) AND o.op = 3)"
    )
  }

  /// Old values are those of the server's rows, which their tables have yet.
  private func writeLog(_ table: CapturedTable, _ mine: String) throws {
    var mask = LogMask(columns: table.columns.count)
    let unknown = try context.unknownSlots(of: table)
    for slot in table.otherSlots where !unknown.contains(slot) { mask[slot] = true }
    let columns =
      ["seq", "t", "op"] + mask.words.indices.map { "m\($0)" } + table.columns.indices.map { "v\($0)" }
    let nothing = LogMask.nothing.words[0]
    let masks = mask.words.enumerated().map { place, word in
      "CASE o.op WHEN 2 THEN \(word)\(place == 0 ? " WHEN \(Self.deleteOfNothing) THEN \(nothing)" : "") END"
    }
    let kind = "CASE o.op WHEN \(Self.deleteOfNothing) THEN \(LogOperation.delete.rawValue) ELSE o.op END"
    let olds = table.otherSlots.map { "CASE WHEN o.op IN (2, 3) THEN \(table.tableColumn($0)) END" }
    let values = ["o.seq", "o.t", kind] + masks + table.keySlots.map { "o.k\($0)" } + olds
    try connection.run(
      "INSERT INTO salvor_log (\(columns.joined(separator: ", "))) SELECT \(values.joined(separator: ", ")) FROM \(name) o LEFT JOIN \(quoted(table.name)) x ON \(table.rowAt { "o.k\($0)" }) WHERE \(mine) ORDER BY o.place"
    )
  }

  // MARK: What is not offered

  /// Rows that this device deleted by lost commits, that neither side has, and whose delete is not offered.
  func noteGone(_ table: CapturedTable, _ rows: WorkingRows) throws {
    guard let lost = versions.lostEntries(table) else { return }
    let condition = "\(lost) AND s.deleted = 1 AND s.own = 1 AND NOT \(isOffered("s"))"
    let key = (0..<keyWidth).map { "s.k\($0)" }.joined(separator: ", ")
    var isBusy = "0"
    if rows.index.tables.contains(table.number) {
      isBusy = rows.index.contains(table) { "s.k\($0)" }
      let ownKeys = table.keySlots.map { "s.k\($0)" }.joined(separator: ", ")
      for key in try connection.rows(
        "SELECT \(ownKeys) FROM \(versions.name) s WHERE \(condition) AND \(isBusy) ORDER BY \(key)")
      where try rows.load(table, key).timeline.base == nil { try watch.noteGone(table, key) }
    }
    try connection.run(
      "INSERT INTO \(watch.name) (\(watch.keyColumns), was, fate, settled) SELECT s.t, \(key), NULL, \(Fate.gone.rawValue), 0 FROM \(versions.name) s "
        + "WHERE \(condition) AND NOT \(isBusy) AND NOT \(stands("s", table)) \(watch.orGone)")
  }
}
