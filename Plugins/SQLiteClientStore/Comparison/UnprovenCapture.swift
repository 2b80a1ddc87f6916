import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// What the comparison of unproven tables found becomes captured changes (semantics 3): the server's row is the base, and
/// what the table shows is a request upon it. Rows that the server has changed since the cursor come with the download as
/// always: which of their values another program wrote here cannot be told.
///
/// The pieces that say the differences and those of the feed are staged in one download; a line of the feed has a version.
final class UnprovenCapture {
  private let context: StoreContext
  private let feed: String
  private let keyWidth: Int
  private(set) var captured: Int64 = 0
  private(set) var notices: [String] = []

  private var connection: SQLiteConnection { context.connection }

  init(_ context: StoreContext) {
    self.context = context
    keyWidth = max(1, context.catalog.tables.map(\.keyCount).max() ?? 1)
    feed = "temp.salvor_fed_\(keyWidth)"
  }

  /// Before what is staged is applied, in its transaction. Throws `mass-deletion`, naming the tables, where more than half
  /// of a table's rows would become deletes.
  ///
  /// - Parameter full: tables that come whole: a change of scope, or one that the feed does not tell of. What the server has
  ///   changed is not known of them.
  func run(full: Set<Int64>) throws {
    let compared = Set(
      try connection.rows("SELECT DISTINCT compared FROM salvor_staging WHERE compared IS NOT NULL").compactMap {
        $0[0].string
      })
    guard !compared.isEmpty else { return }
    let tables = context.schema.parentsFirst(context.schema.synchronized).compactMap { table in
      compared.contains(table.name) ? context.catalog.table(table.name) : nil
    }
    try UnprovenTables(context).prove(tables)
    for table in tables where full.contains(table.number) {
      notices.append(
        "The table \(table.name) came whole; what was written into it while its triggers were away is not known.")
    }
    let looked = tables.filter { !full.contains($0.number) }
    try collectFed(looked)
    defer { _ = try? connection.execute("DELETE FROM \(feed)") }
    // A child's delete before its parent's, and a parent's insert before its child's.
    var counts: [Int64: Int64] = [:]
    for table in looked.reversed() { counts[table.number] = try capture(table, deletes: true) }
    try guardAgainstMassDeletion(looked, counts)
    for table in looked { counts[table.number, default: 0] += try capture(table, deletes: false) }
    for table in looked {
      guard let count = counts[table.number], count > 0 else { continue }
      captured += count
      notices.append(
        "While the triggers of \(table.name) were away, \(count) of its rows were written: they wait to be sent.")
    }
  }

  private func guardAgainstMassDeletion(_ tables: [CapturedTable], _ deletes: [Int64: Int64]) throws {
    let names = try tables.filter { table in
      let gone = deletes[table.number] ?? 0
      let before = gone + (try connection.integer("SELECT count(*) FROM \(quoted(table.name))") ?? 0)
      return before >= RecoveryMerge.guardedRowsMin && 2 * gone > before
    }.map(\.name).joined(separator: ", ")
    guard !names.isEmpty else { return }
    throw SalvorError(
      .massDeletion,
      "While the triggers of Salvor were away, most rows of \(names) were deleted. Nothing was changed or sent. Look at it, and recover by hand.",
      context: ["tables": names])
  }

  // MARK: What is staged

  /// The keys that the feed names.
  private func collectFed(_ tables: [CapturedTable]) throws {
    let keys = (0..<keyWidth).map { "k\($0)" }.joined(separator: ", ")
    try connection.execute(
      "CREATE TABLE IF NOT EXISTS \(feed) (t, \(keys), PRIMARY KEY (t, \(keys))) WITHOUT ROWID; DELETE FROM \(feed)")
    let numbers = Set(tables.map(\.number))
    try eachLine("compared IS NULL", []) { line in
      if line.version != nil, numbers.contains(line.table.number) { _ = try note(line.table, line.key) }
    }
  }

  /// False: it was noted before.
  private func note(_ table: CapturedTable, _ key: Key) throws -> Bool {
    let slots = (1...keyWidth + 1).map { "?\($0)" }.joined(separator: ", ")
    try connection.run(
      "INSERT OR IGNORE INTO \(feed) VALUES (\(slots))",
      [.integer(table.number)] + key + Array(repeating: .integer(0), count: keyWidth - key.count))
    return connection.changes > 0
  }

  private struct Line {
    var table: CapturedTable
    var key: Key
    /// Nil: the server has no such row.
    var row: SlotRow?
    var version: Int64?
  }

  private func eachLine(_ condition: String, _ values: [Value], _ body: (Line) throws -> Void) throws {
    try connection.query("SELECT payload FROM salvor_staging WHERE \(condition) ORDER BY id", values) { piece in
      try piece.withText(0) { text in
        var reader = DownloadChunkReader(
          UnsafeBufferPointer(start: text.baseAddress?.assumingMemoryBound(to: UInt8.self), count: text.count))
        var table: CapturedTable?
        var slots: [Int?] = []
        while let event = try reader.next() {
          switch event {
          case .full: continue
          case .table(let name, let columns):
            let found = try context.captured(name)
            table = found
            slots = columns.map { column in
              found.columns.firstIndex { $0.name.lowercased() == column.lowercased() }
            }
          case .row(let version):
            guard let table else { continue }
            var row = try defaults(table)
            var place = 0
            while let item = try reader.item() {
              if place < slots.count, let slot = slots[place] { row[slot] = item.value }
              place += 1
            }
            try body(Line(table: table, key: Array(row.prefix(table.keyCount)), row: row, version: version))
          case .key(_, let version):
            guard let table else { continue }
            var key: Key = []
            while let item = try reader.item() { key.append(item.value) }
            try body(Line(table: table, key: key, row: nil, version: version))
          }
        }
      }
      return true
    }
  }

  private func defaults(_ table: CapturedTable) throws -> SlotRow {
    let columns = context.table(table)?.columns ?? []
    return table.columns.map { column in
      columns.first { $0.name.lowercased() == column.name.lowercased() }?.defaultValue ?? .null
    }
  }

  // MARK: Capturing

  /// The rows that are gone here, or the others.
  private func capture(_ table: CapturedTable, deletes: Bool) throws -> Int64 {
    var count: Int64 = 0
    let index = try LogIndex(context)
    var found: [LogEntry] = []
    try eachLine("compared = ?1", [.text(table.name)]) { line in
      guard try context.currentRow(table, line.key) == nil ? deletes : !deletes else { return }
      guard let entry = try entry(line, index), try note(table, line.key) else { return }
      found.append(entry)
      count += 1
      if found.count >= 1000 { try write(&found) }
    }
    try write(&found)
    return count
  }

  /// Nil: there is nothing to capture. The counter is given when it is written.
  private func entry(_ line: Line, _ index: LogIndex) throws -> LogEntry? {
    let table = line.table
    let timeline = try index.timeline(table, line.key)
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
      guard timeline.steps.isEmpty else { return nil }
    case (.some, let row?):
      guard let base = timeline.base else { return nil }
      var known: Set<Int> = []
      for case .update(let news) in timeline.steps.map(\.change) { known.formUnion(news.keys) }
      entry.operation = .update
      for slot in table.otherSlots where base[slot] != row[slot] && !known.contains(slot) {
        entry.mask[slot] = true
        entry.values[slot] = row[slot]
      }
      if entry.mask.isEmpty { return nil }
    case (nil, nil): return nil
    }
    return try isFed(line) ? nil : entry
  }

  private func isFed(_ line: Line) throws -> Bool {
    let condition = (0..<keyWidth).map { "k\($0) = ?\($0 + 2)" }.joined(separator: " AND ")
    return try connection.integer(
      "SELECT 1 FROM \(feed) WHERE t = ?1 AND \(condition)",
      [.integer(line.table.number)] + line.key + Array(repeating: .integer(0), count: keyWidth - line.key.count)) != nil
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
