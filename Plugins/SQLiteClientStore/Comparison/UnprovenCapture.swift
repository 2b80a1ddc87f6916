import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// What the comparison of unproven tables found becomes captured changes (semantics 3): the server's row is the base, and
/// what the table shows is a request upon it. Rows that the server has changed since the cursor come with the download as
/// always: which of their values another program wrote here cannot be told, and those that differ are kept in the archive.
///
/// The pieces that say the differences and those of the feed are staged in one download; a line of the feed has a version.
final class UnprovenCapture {
  private let context: StoreContext
  private let lines: StagedLines
  /// Columns whose values nobody here knows, by the table's number: no difference of them was written here.
  private var unknown: [Int64: Set<Int>] = [:]
  /// Tables of which rows were left out, by number: one that is not here need not have been deleted here.
  private var lacking: Set<Int64> = []
  /// How many rows such tables take from the server.
  private var taken: [Int64: Int64] = [:]
  private(set) var captured: Int64 = 0
  private(set) var notices: [String] = []

  private var connection: SQLiteConnection { context.connection }

  init(_ context: StoreContext) {
    self.context = context
    lines = StagedLines(context: context)
  }

  /// Something of what is staged was compared, or has nothing to be compared with and may have been written.
  ///
  /// - Parameter groups: those that are downloaded.
  func isNeeded(_ groups: Set<String>) throws -> Bool {
    try connection.integer("SELECT 1 FROM salvor_staging WHERE compared IS NOT NULL LIMIT 1") != nil
      || !unsettled(groups).isEmpty
  }

  /// Tables that come for the first time, and of whose rows an upload was under way while the triggers were away.
  private func unsettled(_ groups: Set<String>) throws -> [CapturedTable] {
    let unproven = try UnprovenTables(context).changedHere()
    if unproven.isEmpty { return [] }
    let known = try connection.groupStates(context.schema.groups).filter(\.isSynchronized).map(\.name)
    return context.tables(of: groups.subtracting(known)).filter { unproven.contains($0.number) }
  }

  /// Before what is staged is applied, in its transaction. Throws `mass-deletion`, naming the tables, where more than half
  /// of a table's rows would become deletes.
  ///
  /// - Parameters:
  ///   - full: tables that come whole: a change of scope, or one that the feed does not tell of. What the server has
  ///     changed is not known of them.
  ///   - groups: those that are downloaded.
  func run(full: Set<Int64>, _ groups: Set<String>) throws {
    let compared = Set(
      try connection.rows("SELECT DISTINCT compared FROM salvor_staging WHERE compared IS NOT NULL").compactMap {
        $0[0].string
      })
    let first = try unsettled(groups)
    guard !compared.isEmpty || !first.isEmpty else { return }
    let tables = context.schema.parentsFirst(context.schema.synchronized).compactMap { table in
      compared.contains(table.name) ? context.catalog.table(table.name) : nil
    }
    let unproven = UnprovenTables(context)
    let servers = try unproven.servers()
    lacking = try IncompleteTables(context).all()
    try IncompleteTables(context).compared(tables)
    for table in tables { unknown[table.number] = try context.unknownSlots(of: table) }
    try unproven.prove(tables + first)
    let whole = tables.filter { full.contains($0.number) && !servers.contains($0.name) }
    let looked = tables.filter { !full.contains($0.number) && !servers.contains($0.name) }
    let known = try fed(looked)
    defer { try? known.clear() }
    let dropped = try fed(looked, .dropped)
    defer { try? dropped.clear() }
    let start = try connection.lastCounter()
    // A child's delete before its parent's, and a parent's insert before its child's.
    var counts: [Int64: Int64] = [:]
    for table in looked.reversed() { counts[table.number] = try capture(table, deletes: true, known) }
    var written: [Int64: Int64] = [:]
    for table in looked { written[table.number] = try capture(table, deletes: false, known) }
    // Marks take along what is below as it is now.
    for table in looked.reversed() { counts[table.number, default: 0] += try captureMarks(table, known) }
    try guardAgainstMassDeletion(looked, counts)
    for table in looked {
      counts[table.number, default: 0] += written[table.number] ?? 0
      try context.noteDirty(table, after: start)
    }
    captured += try waiting(looked + first)
    let kept = try keepOverwritten(looked, whole, first, dropped)
    for table in whole {
      guard let count = kept[table.number] else { continue }
      notices.append(
        "The table \(table.name) came whole. \(count) of its rows here were not the server's, and may have been written while its triggers were away: their values are in the archive."
      )
    }
    for table in looked + first {
      if let count = kept[table.number] {
        notices.append(
          "\(count) rows of \(table.name) may have been written here while the triggers were away, and the server has changed them, too, or no subscription covers them any more: it is what the server says that stands, and the values that were here are in the archive."
        )
      }
      if let count = taken[table.number] {
        notices.append(
          "\(count) rows of \(table.name) were not here, and come from the server: rows of this table had been left out. One of them that was deleted here while the triggers were away is here again."
        )
      }
      guard let count = counts[table.number], count > 0 else { continue }
      captured += count
      notices.append(
        "While the triggers of \(table.name) were away, \(count) of its rows were written: they wait to be sent.")
    }
  }

  private func guardAgainstMassDeletion(_ tables: [CapturedTable], _ deletes: [Int64: Int64]) throws {
    let names = try tables.filter { table in
      let gone = deletes[table.number] ?? 0
      let left = "SELECT count(*) FROM \(quoted(table.name)) x WHERE 1\(table.andUnmarked())"
      let before = gone + (try connection.integer(left) ?? 0)
      return before >= RecoveryMerge.guardedRowsMin && 2 * gone > before
    }.map(\.name).joined(separator: ", ")
    guard !names.isEmpty else { return }
    throw SalvorError(
      .massDeletion,
      "While the triggers of Salvor were away, most rows of \(names) were deleted. Nothing was changed or sent. Look at it, and recover by hand.",
      context: ["tables": names])
  }

  /// The keys that the feed names, all or those that went in this way.
  private func fed(_ tables: [CapturedTable], _ departure: Departure? = nil) throws -> RowNames {
    let names = try RowNames(context, departure.map { "fed_\($0)" } ?? "fed")
    let numbers = Set(tables.map(\.number))
    try lines.each("SELECT payload FROM salvor_staging WHERE compared IS NULL ORDER BY id") { line in
      guard line.version != nil, numbers.contains(line.table.number) else { return }
      if departure == nil || line.departure == departure { try names.insert(line.table, line.key) }
    }
    return names
  }

  // MARK: Capturing

  /// The rows that are gone here, or the others.
  ///
  /// - Parameter known: rows that are not to be captured: those of the feed, and captured ones, which may come twice.
  private func capture(_ table: CapturedTable, deletes: Bool, _ known: RowNames) throws -> Int64 {
    var count: Int64 = 0
    let index = try LogIndex(context)
    let leaving = try LeavingRows(context, index)
    var found: [LogEntry] = []
    try lines.each("SELECT payload FROM salvor_staging WHERE compared = ?1 ORDER BY id", [.text(table.name)]) { line in
      guard try context.currentRow(table, line.key) == nil ? deletes : !deletes,
        try !deletes || !context.isMarked(table, line.key)
      else { return }
      guard let entry = try entry(line, index, leaving), try known.insert(table, line.key) else { return }
      if entry.operation == .delete, lacking.contains(table.number) {
        taken[table.number, default: 0] += 1
        return
      }
      found.append(entry)
      count += 1
      if found.count >= 1000 { try write(&found) }
    }
    try write(&found)
    return count
  }

  /// The rows that were marked: of those that the server has changed since the cursor, too, whose mark is nobody's but the
  /// application's. One that the server does not have is none, and goes with the next look.
  private func captureMarks(_ table: CapturedTable, _ known: RowNames) throws -> Int64 {
    guard table.deletedFlag != nil else { return 0 }
    let index = try LogIndex(context)
    let spreading = MarkSpreading(connection)
    let taken = try RowNames(context, "marked")
    defer { try? taken.clear() }
    var count: Int64 = 0
    func take(_ line: StagedLine, _ row: SlotRow) throws {
      guard line.table.number == table.number, line.departure != .dropped,
        try index.timeline(table, line.key).steps.isEmpty, try taken.insert(table, line.key)
      else { return }
      try spreading.take(table, line.key) { try context.writeLog([try context.deletion(of: row, table)]) }
      count += 1
    }
    try lines.each("SELECT payload FROM salvor_staging WHERE compared = ?1 ORDER BY id", [.text(table.name)]) { line in
      guard let row = line.row, try context.isMarked(table, line.key), try !known.contains(table, line.key) else {
        return
      }
      try take(line, row)
    }
    // What it was before nobody knows.
    try lines.each("SELECT payload FROM salvor_staging WHERE compared IS NULL ORDER BY id") { line in
      guard line.table.number == table.number, line.version != nil, let row = try context.markedRow(table, line.key)
      else { return }
      try take(line, row)
    }
    try spreading.noteUnknown(table, where: "NOT " + index.contains(table) { table.tableColumn(table.keySlots[$0]) })
    return count
  }

  /// Nil: there is nothing to capture. The counter is given when it is written.
  private func entry(_ line: StagedLine, _ index: LogIndex, _ leaving: LeavingRows) throws -> LogEntry? {
    let table = line.table
    let timeline = try index.timeline(table, line.key)
    // The server has it, outside of what the device subscribed to. It may stay here for the sake of a change; else it was written here.
    if line.departure == .dropped, try !timeline.steps.isEmpty || leaving.contains(table, line.key) { return nil }
    var entry = LogEntry(
      seq: 0, table: table.number, operation: .insert, mask: LogMask(columns: table.columns.count),
      values: Array(repeating: .null, count: table.columns.count))
    for slot in table.keySlots { entry.values[slot] = line.key[slot] }
    switch (timeline.current, line.row) {
    case (nil, let row?):
      // What is captured deletes it already, or it is another base.
      guard timeline.steps.isEmpty else { return nil }
      entry.operation = .delete
      entry.values = row
    case (.some, nil):
      guard timeline.steps.isEmpty else {
        try makeInsert(timeline, table, line.key)
        return nil
      }
    case (.some, let row?):
      guard let base = timeline.base else { return nil }
      var known: Set<Int> = []
      for case .update(let news) in timeline.steps.map(\.change) { known.formUnion(news.keys) }
      entry.operation = .update
      known.formUnion(unknown[table.number] ?? [])
      for slot in table.otherSlots where base[slot] != row[slot] && !known.contains(slot) {
        entry.mask[slot] = true
        entry.values[slot] = row[slot]
      }
      if entry.mask.isEmpty { return nil }
    case (nil, nil): return nil
    }
    return entry
  }

  /// The row was made while nobody looked, and changed since: its first change made it.
  private func makeInsert(_ timeline: RowTimeline, _ table: CapturedTable, _ key: Key) throws {
    guard timeline.base != nil else { return }
    var made = timeline
    let first = made.steps[0]
    if let row = first.after {
      made.steps[0].change = .insert(row)
      made.steps[0].saw = nil
      try context.writeLog([made.steps[0].entry(table, key)])
    } else {
      made.steps.removeFirst()
      try context.takeOut([first.seq])
    }
    made.rebase(on: nil)
    try context.store(made, table, key)
    try context.noteLogChange()
  }

  /// How many changes were held back until the tables were compared (`Unsendable`): they go with a session of their own.
  private func waiting(_ tables: [CapturedTable]) throws -> Int64 {
    guard !tables.isEmpty else { return 0 }
    let compared = Set(tables.map(\.number))
    let numbers = UnprovenTables(context).referencing(compared).union(compared).map { "\($0)" }
    return try connection.integer(
      "SELECT count(*) FROM salvor_log g WHERE g.t IN (\(numbers.joined(separator: ", "))) AND g.op IN \(StoreContext.changeOperations) AND NOT EXISTS (SELECT 1 FROM salvor_outstanding s WHERE s.\(OutstandingTable.inError) AND g.seq BETWEEN s.first AND s.last)"
    ) ?? 0
  }

  /// Rows without a request that the server has changed since the cursor, or that go with a changed subscription, and rows of a table
  /// that comes whole or for the first time: which of their values were written here while nobody looked is not known. What the
  /// download takes away is kept.
  ///
  /// - Returns: how many, by the number of the table.
  private func keepOverwritten(
    _ tables: [CapturedTable], _ whole: [CapturedTable], _ first: [CapturedTable], _ dropped: RowNames
  ) throws -> [Int64: Int64] {
    let (numbers, whenFirst) = (Set(tables.map(\.number)), Set(first.map(\.number)))
    let seen = try RowNames(context, "overwritten")
    defer { try? seen.clear() }
    let came = try RowNames(context, "came")
    defer { try? came.clear() }
    let index = try LogIndex(context)
    var counter = try connection.lastCounter()
    var counts: [Int64: Int64] = [:]
    func keep(_ line: StagedLine) throws {
      guard let row = try context.currentRow(line.table, line.key), try !index.mayContain(line.table, line.key),
        let step = LossArchive.step(
          line.table, was: withKnown(row, line.table, else: line.row), now: line.row),
        try seen.insert(line.table, line.key)
      else { return }
      counter += 1
      try context.keepUnproven(step, line.table, line.key, counter: counter)
      counts[line.table.number, default: 0] += 1
    }
    try lines.each("SELECT payload FROM salvor_staging WHERE compared IS NULL ORDER BY id") { line in
      let (number, isDropped) = (line.table.number, line.departure == .dropped)
      if line.version != nil && numbers.contains(number) && !isDropped || whenFirst.contains(number) { try keep(line) }
      if whenFirst.contains(number) { _ = try came.insert(line.table, line.key) }
    }
    // What a first download does not name goes with it: rows of a table that moved to another group while nobody looked.
    let inFiles = try context.tablesInFiles()
    for table in first where !inFiles.contains(table.number) {
      let isLogged = index.contains(table) { table.tableColumn(table.keySlots[$0]) }
      let keys = table.keySlots.map(table.tableColumn).joined(separator: ", ")
      let rows = try connection.rows(
        "SELECT \(keys) FROM \(quoted(table.name)) x WHERE NOT \(isLogged)\(table.andHasKey(table.tableColumn)) AND NOT \(came.condition(table))"
      )
      for key in rows { try keep(StagedLine(table: table, key: key, row: nil)) }
    }
    // The feed has no values of these: the comparison has.
    for table in tables {
      try lines.each("SELECT payload FROM salvor_staging WHERE compared = ?1 ORDER BY id", [.text(table.name)]) {
        line in
        if line.departure != .dropped, try dropped.contains(table, line.key) { try keep(line) }
      }
    }
    for table in whole {
      try lines.each("SELECT payload FROM salvor_staging WHERE compared = ?1 ORDER BY id", [.text(table.name)]) {
        line in
        // The server has such a row, outside of what the device is to have: nothing was written here.
        if line.departure != .dropped, line.departure != .left { try keep(line) }
      }
    }
    try context.keepCounter(counter)
    return counts
  }

  /// Of columns whose values nobody here knows it has the server's.
  private func withKnown(_ row: SlotRow, _ table: CapturedTable, else server: SlotRow?) -> SlotRow {
    guard let server else { return row }
    var known = row
    for slot in unknown[table.number] ?? [] { known[slot] = server[slot] }
    return known
  }

  private func write(_ entries: inout [LogEntry]) throws {
    guard !entries.isEmpty else { return }
    var counter = try connection.lastCounter()
    for place in entries.indices {
      counter += 1
      entries[place].seq = counter
    }
    try context.writeLog(entries)
    entries = []
  }
}

extension StoreContext {
  /// Writes rows of the log, or writes them again.
  func writeLog(_ entries: some Sequence<LogEntry>) throws {
    let slots = (1...(3 + catalog.maskCount + catalog.valueCount)).map { "?\($0)" }.joined(separator: ", ")
    let insert = try connection.cached("INSERT OR REPLACE INTO salvor_log (\(catalog.logColumns)) VALUES (\(slots))")
    for entry in entries {
      insert.clearBindings()
      try insert.bind(1, entry.seq)
      try insert.bind(2, entry.table)
      try insert.bind(3, entry.operation.rawValue)
      for (place, word) in entry.mask.words.enumerated() { try insert.bind(4 + place, word) }
      try insert.bind(entry.values, from: 4 + catalog.maskCount)
      try insert.run()
    }
  }
}
