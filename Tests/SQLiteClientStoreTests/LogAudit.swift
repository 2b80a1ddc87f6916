import SQLiteSupport
import SalvorContracts
import SalvorModel
import SalvorStorage
import SalvorWire
import Testing

@testable import SQLiteClientStore

/// Looks at a device's file while nobody writes in it: row = base ⊕ requests, what is stored beside the log is the normal form
/// of that and nothing else, and no row of the log was written again since the last look.
final class LogAudit: Sendable {
  private let logs = Mutex<[String: [Int64: [Value]]]>([:])

  /// The stores that a comparison makes, each looked at by `look`.
  var client: StoreSubject<any ClientStore> {
    StoreSubject {
      let path = Scratch.path()
      self.logs.withLock { $0[path] = [:] }
      return { SQLiteClientStore(path: path) }
    }
  }

  /// After a step of a comparison, which traces it.
  func look(_ line: String) {
    guard line.hasPrefix("   specification: ") else { return }
    for path in logs.withLock({ Array($0.keys) }) {
      do { try look(at: path) } catch { Issue.record("\(path): \(error)") }
    }
  }

  func look(at path: String) throws {
    let connection = try SQLiteConnection(path)
    defer { connection.close() }
    guard try connection.tableShape("salvor_base") != nil else { return }
    let context = try Self.context(connection)
    try connection.transaction {
      try compareLog(path, connection)
      try Self.compare(context)
    }
  }

  static func context(_ connection: SQLiteConnection) throws -> StoreContext {
    let tables = try connection.rows("SELECT definition FROM salvor_sync_config ORDER BY place").map { row in
      try TableDefinition.table(JSONValue(parsing: Array((row[0].string ?? "").utf8)))
    }
    let schema = Schema(tables: tables)
    let catalog = try CaptureCatalog.found(schema.synchronized, on: connection)
    return StoreContext(
      connection, random: SystemRandom(), clock: SystemClock(), schema: schema, own: schema, config: SyncConfig(schema),
      catalog: catalog)
  }

  /// Rows come and go; one that was the last stays as a counter. A delete that its mark takes back is none any more, and an update that makes a lost row is an insert.
  private func compareLog(_ path: String, _ connection: SQLiteConnection) throws {
    var now: [Int64: [Value]] = [:]
    for row in try connection.rows("SELECT * FROM salvor_log") { now[row[0].integer ?? 0] = row }
    let before = logs.withLock { logs in
      defer { logs[path] = now }
      return logs[path] ?? [:]
    }
    for (seq, row) in now {
      guard let was = before[seq], was.count == row.count else { continue }
      let (old, new) = (was[2].integer ?? 0, row[2].integer ?? 0)
      if [0, 12, 13].contains(new) || (new == 1 && [2, 11].contains(old)) || old == 0 { continue }
      // A request that comes back from the archive is no cascade any more.
      let plain: [Int64: Int64] = [10: 3, 11: 2]
      #expect((plain[old] ?? old) == (plain[new] ?? new) && zip(was[3...], row[3...]).allSatisfy { same($0, $1) })
    }
  }

  /// A mask of nothing is not there.
  private func same(_ a: Value, _ b: Value) -> Bool { a == b || (a.isNull && b == 0) || (b.isNull && a == 0) }

  static func compare(_ context: StoreContext) throws {
    let index = try LogIndex(context)
    var known: Set<Int64> = []
    var bases: Int64 = 0
    for table in context.catalog.tables {
      try index.eachRow(of: table) { key in
        let entries = try index.entries(table, key)
        guard !entries.isEmpty else { return }
        let timeline = try index.timeline(table, key)
        let row = try context.currentRow(table, key)
        #expect(timeline.current == row, "\(table.name) \(key): base ⊕ requests is another row than the table's")
        let stored = try context.stored(table, key, entries.map(\.seq))
        let wanted = timeline.stored(table)
        // A mark that was taken back leaves what was needed until then; the row's next settlement takes it away.
        let isMore =
          table.isMarked && (stored.base == wanted.base || stored.base == .some(timeline.base))
          && wanted.values.allSatisfy { stored.values[$0.key] == $0.value }
        #expect(stored == wanted || isMore, "\(table.name) \(key): stored is \(stored), not \(wanted)")
        known.formUnion(stored.values.keys)
        if stored.base != nil { bases += 1 }
      }
    }
    guard try context.connection.integer("SELECT 1 FROM salvor_withdrawn LIMIT 1") == nil else { return }
    let connection = context.connection
    #expect(Set(try connection.rows("SELECT seq FROM salvor_value").compactMap { $0[0].integer }) == known)
    #expect(try connection.integer("SELECT count(*) FROM salvor_base") == bases)
  }
}
