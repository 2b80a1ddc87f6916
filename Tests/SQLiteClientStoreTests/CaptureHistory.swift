import SQLiteSupport
import SalvorModel
import SalvorStorage

@testable import SQLiteClientStore

struct CaptureFault: Error, CustomStringConvertible {
  var description: String
}

/// One random history against one world. After every statement the log since the last is decoded: it must give the
/// tables before it exactly, its replay must give the tables after it, and no change may change nothing.
struct CaptureHistory {
  let world: CaptureWorld
  let connection: SQLiteConnection
  let catalog: CaptureCatalog
  var random: Seeded
  var statements: [String] = []

  /// By table number, then key.
  typealias Tables = [Int64: [Key: SlotRow]]
  struct Point {
    var name: String
    var tables: Tables
    var seq: Int64
  }

  private var before: Tables = [:]
  private var seq: Int64 = 0
  /// The open transaction and its savepoints; empty in autocommit.
  private var points: [Point] = []

  init(seed: UInt64, withoutBeforeInsert: Bool = false) throws {
    random = Seeded(seed)
    world = random.pick(CaptureWorld.all)
    connection = try SQLiteConnection(":memory:")
    try connection.execute(world.sql)
    if !random.oneIn(4) { try connection.execute("PRAGMA foreign_keys = ON") }
    (catalog, _) = try CaptureCatalog.install(world.tables.map(\.table), on: connection)
    try connection.execute(world.later)
    if withoutBeforeInsert {
      for table in catalog.tables { try connection.execute("DROP TRIGGER salvor_bi_\(table.number)") }
    }
    try setRecursiveTriggers()
    before = try readTables()
  }

  mutating func setRecursiveTriggers() throws {
    try connection.execute("PRAGMA recursive_triggers = \(random.below(2))")
  }

  /// Runs `count` statements; throws `CaptureFault` where the log is wrong.
  mutating func run(_ count: Int) throws {
    for _ in 0..<count {
      if random.oneIn(6) {
        try stepTransaction()
      } else {
        let sql = statement()
        statements.append(sql)
        do { try connection.execute(sql) } catch let error as SalvorError {
          // A refused write is the application's affair, unless Salvor refused it.
          if error.message.contains("salvor_") { throw CaptureFault(description: error.message) }
          statements[statements.count - 1] += "  -- \(error.sqliteCode ?? 0)"
        }
        if !points.isEmpty, !connection.isInTransaction {
          try expectBack(to: points[0])
          points = []
        } else {
          try check()
        }
      }
    }
    if connection.isInTransaction {
      do { try connection.execute("COMMIT") } catch { try connection.execute("ROLLBACK") }
    }
  }

  // MARK: Transactions

  mutating func stepTransaction() throws {
    if points.isEmpty {
      if random.oneIn(3) { try setRecursiveTriggers() }
      points.append(Point(name: "", tables: before, seq: seq))
      try run("BEGIN")
      if random.oneIn(3) { try run("PRAGMA defer_foreign_keys = ON") }
      return
    }
    switch random.below(5) {
    case 0, 1:
      let name = "s\(points.count)"
      points.append(Point(name: name, tables: before, seq: seq))
      try run("SAVEPOINT \(name)")
    case 2 where points.count > 1:
      let point = points[points.count - 1]
      try run("ROLLBACK TO \(point.name)")
      try expectBack(to: point)
    case 3 where points.count > 1:
      points.removeLast()
      try run("RELEASE s\(points.count)")
    case 4:
      try run("ROLLBACK")
      try expectBack(to: points[0])
      points = []
    default:
      statements.append("COMMIT")
      do {
        try connection.execute("COMMIT")
      } catch {
        try run("ROLLBACK")
        try expectBack(to: points[0])
      }
      points = []
    }
  }

  mutating func run(_ sql: String) throws {
    statements.append(sql)
    try connection.execute(sql)
  }

  mutating func expectBack(to point: Point) throws {
    let now = try readTables()
    guard now == point.tables, try lastSeq() == point.seq else {
      throw CaptureFault(description: "a rollback left the log or the tables changed")
    }
    before = now
    seq = point.seq
  }

  // MARK: The check

  mutating func check() throws {
    for table in catalog.tables { try CaptureCatalog.logRemoved(table, on: connection) }
    let after = try readTables()
    var entries: [LogEntry] = []
    try connection.query(
      "SELECT \(catalog.logColumns) FROM salvor_log WHERE seq > ?1 ORDER BY seq", [.integer(seq)]
    ) {
      entries.append(try catalog.entry(from: $0))
      return true
    }
    try checkLog(entries, from: before, to: after)
    seq = try lastSeq()
    before = after
  }

  func checkLog(_ entries: [LogEntry], from before: Tables, to after: Tables) throws {
    var byRow: [Int64: [Key: [LogEntry]]] = [:]
    for entry in entries {
      guard let table = catalog.table(number: entry.table) else { throw CaptureFault(description: "unknown table") }
      byRow[entry.table, default: [:]][entry.key(table), default: []].append(entry)
    }
    var steps: [Int64: RowTimeline.Step] = [:]
    for table in catalog.tables {
      var bases = after[table.number] ?? [:]
      for (key, entries) in byRow[table.number] ?? [:] {
        let timeline: RowTimeline
        do {
          timeline = try RowTimeline(current: after[table.number]?[key], entries: entries, table: table)
        } catch {
          if !world.later.isEmpty {
            // The next look at the file makes one change of it.
            bases[key] = UnfitRows.start(of: entries, current: after[table.number]?[key], table)
            continue
          }
          throw CaptureFault(description: "\(error)")
        }
        bases[key] = timeline.base
        for step in timeline.steps { steps[step.seq] = step }
        try checkEncoding(timeline, key, entries, table)
      }
      guard bases == before[table.number] ?? [:] else {
        throw CaptureFault(
          description:
            "\(table.name): decoded \(bases), was \(before[table.number] ?? [:]), now \(after[table.number] ?? [:])")
      }
    }
    if world.later.isEmpty { try replay(entries, steps, from: before, to: after) }
  }

  /// Applies the changes in the log's order, each with its conditions.
  func replay(_ entries: [LogEntry], _ steps: [Int64: RowTimeline.Step], from before: Tables, to after: Tables) throws {
    var tables = before
    for entry in entries {
      guard let table = catalog.table(number: entry.table), let step = steps[entry.seq] else { continue }
      let key = entry.key(table)
      let row = tables[entry.table]?[key]
      switch step.change {
      case .insert(let new):
        guard row == nil else { throw CaptureFault(description: "\(table.name): insert over a row") }
        tables[entry.table, default: [:]][key] = new
      case .update(let news):
        guard var changed = row, !news.isEmpty else {
          throw CaptureFault(description: "\(table.name): update of nothing")
        }
        for (slot, value) in news {
          guard changed[slot] == entry.values[slot], changed[slot] != value else {
            throw CaptureFault(description: "\(table.name): the old value of slot \(slot) is wrong or does not change")
          }
          changed[slot] = value
        }
        tables[entry.table]?[key] = changed
      case .delete:
        guard let row, row == entry.values else {
          throw CaptureFault(description: "\(table.name): delete of another row")
        }
        tables[entry.table]?[key] = nil
      }
    }
    for table in catalog.tables where tables[table.number] ?? [:] != after[table.number] ?? [:] {
      throw CaptureFault(description: "\(table.name): the replay gives other rows")
    }
  }

  func checkEncoding(_ timeline: RowTimeline, _ key: Key, _ entries: [LogEntry], _ table: CapturedTable) throws {
    var again = timeline
    again.rebase(on: timeline.base)
    guard again.lost == nil, again == timeline, again.steps.map({ $0.entry(table, key) }) == plain(entries),
      again.stored(table).isEmpty
    else {
      throw CaptureFault(description: "\(table.name): encoding gives another log")
    }
  }

  /// Sorted once, a cascade needs no mark of its own.
  private func plain(_ entries: [LogEntry]) -> [LogEntry] {
    entries.map { entry in
      var entry = entry
      if entry.operation == .cascadedDelete { entry.operation = .delete }
      if entry.operation == .cascadedUpdate { entry.operation = .update }
      return entry
    }
  }

  func lastSeq() throws -> Int64 { try connection.integer("SELECT max(seq) FROM salvor_log") ?? 0 }

  func readTables() throws -> Tables {
    var tables: Tables = [:]
    for table in catalog.tables {
      let columns = quotedList(table.columns.map(\.name))
      var rows: [Key: SlotRow] = [:]
      try connection.query("SELECT \(columns) FROM \(quoted(table.name))") {
        let row = $0.values()
        let key = Array(row.prefix(table.keyCount))
        if !key.contains(.null) { rows[key] = row }
        return true
      }
      tables[table.number] = rows
    }
    return tables
  }
}
