import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Which rows of the log have a later change of the same row, so that their new values are not the row as it is now.
///
/// One pass over the log puts a hash of each row's key into a sketch of fixed size; keys that may repeat are
/// collected, by a second pass where there are some, into an indexed temporary table. Memory is flat, whatever the log's length; a
/// false repetition costs a look-up, never a wrong value. Rows that the application writes meanwhile are added as they come.
final class UploadPlan {
  private let context: StoreContext
  private var repeated: RowSketch
  /// False: each row of the log is another one.
  private(set) var anyRepeats = false
  private var checkedUpTo: Int64 = 0
  private var cache: [RowRef: [Int64: RowTimeline.Step]] = [:]
  private let cachedRowsMax = 2000

  /// - Parameter bits: of the sketches; nil: some dozens for each change.
  init(_ context: StoreContext, bits: Int? = nil) throws {
    self.context = context
    let changes = try bits == nil ? context.connection.integer("SELECT max(seq) - min(seq) FROM salvor_log") ?? 0 : 0
    repeated = bits.map { RowSketch(bits: $0) } ?? RowSketch(rows: changes)
    try context.connection.execute(
      "CREATE TABLE IF NOT EXISTS temp.salvor_chain (h INTEGER, seq INTEGER, PRIMARY KEY (h, seq)) WITHOUT ROWID; DELETE FROM temp.salvor_chain"
    )
    try collect()
  }

  private func collect() throws {
    var (seen, repeated, anyRepeats, last) = (self.repeated, self.repeated, false, Int64(0))
    try context.eachChangedRow(after: 0) { hash, seq in
      if seen.insert(hash) {
        repeated.insert(hash)
        anyRepeats = true
      }
      last = seq
      return true
    }
    (self.repeated, self.anyRepeats, checkedUpTo) = (repeated, anyRepeats, last)
    guard anyRepeats else { return }
    let insert = try insertion()
    try context.eachChangedRow(after: 0) { hash, seq in
      if seq <= last, repeated.contains(hash) { try add(insert, hash, seq) }
      return true
    }
  }

  private func insertion() throws -> SQLiteStatement {
    try context.connection.cached("INSERT OR IGNORE INTO temp.salvor_chain VALUES (?1, ?2)")
  }

  private func add(_ insert: SQLiteStatement, _ hash: UInt64, _ seq: Int64) throws {
    try insert.bind(1, Int64(bitPattern: hash))
    try insert.bind(2, seq)
    try insert.run()
  }

  /// Takes in what was captured since: those rows count as repeating.
  func catchUp() throws {
    guard try context.connection.lastCounter() > checkedUpTo else { return }
    cache = [:]
    let insert = try insertion()
    try context.eachChangedRow(after: checkedUpTo) { hash, seq in
      anyRepeats = true
      repeated.insert(hash)
      try add(insert, hash, seq)
      checkedUpTo = seq
      return true
    }
  }

  func mayRepeat(_ hash: UInt64) -> Bool { anyRepeats && repeated.contains(hash) }

  /// The change `seq` of a row, decoded from the row's other changes.
  func step(_ seq: Int64, _ table: CapturedTable, _ key: Key, _ hash: UInt64) throws -> RowTimeline.Step {
    let ref = RowRef(table: table.number, key: key)
    if let step = cache[ref]?[seq] { return step }
    var counters = try context.connection.rows(
      "SELECT seq FROM temp.salvor_chain WHERE h = ?1", .integer(Int64(bitPattern: hash))
    ).compactMap { $0[0].integer }
    if !counters.contains(seq) { counters.append(seq) }
    var entries: [LogEntry] = []
    for counter in counters.sorted() {
      try context.connection.query(
        "SELECT \(context.catalog.logColumns) FROM salvor_log WHERE seq = ?1", [.integer(counter)]
      ) { row in
        let entry = try context.catalog.entry(from: row)
        // A delete that was withdrawn meanwhile is none.
        if entry.operation.isChange, entry.table == table.number, entry.key(table) == key { entries.append(entry) }
        return false
      }
    }
    let timeline = try context.timeline(table, key, try context.currentRow(table, key), entries)
    if cache.count >= cachedRowsMax { cache = [:] }
    cache[ref] = Dictionary(uniqueKeysWithValues: timeline.steps.map { ($0.seq, $0) })
    guard let step = cache[ref]?[seq] else { throw unfit(table) }
    return step
  }

  func unfit(_ table: CapturedTable) -> SalvorError {
    SalvorError(
      .storageCorrupt,
      "A change of the table \(table.name) has no row: something wrote while the triggers of Salvor were missing. Recover, or restore a copy.",
      context: ["table": table.name])
  }
}
