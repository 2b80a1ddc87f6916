import CSQLite
import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Which rows of the log have a later change of the same row, so that their new values are not the row as it is now.
///
/// One pass over the log puts a hash of each row's key into a set of bits of fixed size; keys that may repeat are
/// collected, by a second pass, into an indexed temporary table. Memory is flat, whatever the log's length; a false
/// repetition costs a look-up, never a wrong value. Rows that the application writes meanwhile are added as they come.
final class UploadPlan {
  private let context: StoreContext
  private var seen: BitSet
  private var repeated: BitSet
  private var checkedUpTo: Int64 = 0
  private let keyWidth: Int
  private var cache: [RowRef: [Int64: RowTimeline.Step]] = [:]
  private let cachedRowsMax = 2000

  /// - Parameter bits: nil: some hundred for each change, 2^25 at most.
  init(_ context: StoreContext, bits: Int? = nil) throws {
    self.context = context
    let changes = try bits == nil ? context.connection.integer("SELECT max(seq) - min(seq) FROM salvor_log") ?? 0 : 0
    let bits = bits ?? min(25, max(16, 72 - changes.leadingZeroBitCount))
    seen = BitSet(bits: bits)
    repeated = BitSet(bits: bits)
    keyWidth = max(1, context.catalog.tables.map(\.keyCount).max() ?? 1)
    try context.connection.execute(
      "CREATE TABLE IF NOT EXISTS temp.salvor_chain (h INTEGER, seq INTEGER, PRIMARY KEY (h, seq)) WITHOUT ROWID; DELETE FROM temp.salvor_chain"
    )
    try collect()
  }

  private func eachKey(after start: Int64, _ body: (_ hash: UInt64, _ seq: Int64) throws -> Void) throws {
    let keys = (0..<keyWidth).map { "v\($0)" }.joined(separator: ", ")
    try context.connection.query(
      "SELECT seq, t, \(keys) FROM salvor_log WHERE seq > ?1 AND op IN \(StoreContext.changeOperations) ORDER BY seq",
      [.integer(start)]
    ) { row in
      let count = context.catalog.table(number: row.int64(1))?.keyCount ?? 1
      try body(rowHash(row, table: 1, firstKey: 2, count: count), row.int64(0))
      return true
    }
  }

  private func collect() throws {
    var anyRepeats = false
    try eachKey(after: 0) { hash, seq in
      if seen.insert(hash) {
        repeated.insert(hash)
        anyRepeats = true
      }
      checkedUpTo = seq
    }
    guard anyRepeats else { return }
    let insert = try insertion()
    try eachKey(after: 0) { hash, seq in
      guard seq <= checkedUpTo, repeated.contains(hash) else { return }
      try add(insert, hash, seq)
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
    try eachKey(after: checkedUpTo) { hash, seq in
      seen.insert(hash)
      repeated.insert(hash)
      try add(insert, hash, seq)
      checkedUpTo = seq
    }
  }

  func mayRepeat(_ hash: UInt64) -> Bool { repeated.contains(hash) }

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

/// 2^bits bits.
struct BitSet {
  private var words: [UInt64]
  private let mask: UInt64

  init(bits: Int) {
    words = Array(repeating: 0, count: 1 << max(0, bits - 6))
    mask = 1 << UInt64(bits) - 1
  }

  func contains(_ hash: UInt64) -> Bool {
    let place = hash & mask
    return words[Int(place >> 6)] >> (place & 63) & 1 != 0
  }

  /// Answers whether it was there already.
  @discardableResult
  mutating func insert(_ hash: UInt64) -> Bool {
    let place = hash & mask
    let bit = UInt64(1) << (place & 63)
    let was = words[Int(place >> 6)] & bit != 0
    words[Int(place >> 6)] |= bit
    return was
  }
}

/// A hash of table and key, from the columns of a statement.
func rowHash(_ row: SQLiteStatement, table: Int, firstKey: Int, count: Int) -> UInt64 {
  var hash: UInt64 = 0xCBF2_9CE4_8422_2325
  func mix(_ word: UInt64) {
    hash = (hash ^ word) &* 0x9E37_79B9_7F4A_7C15
    hash ^= hash >> 29
  }
  mix(UInt64(bitPattern: row.int64(table)))
  for column in firstKey..<(firstKey + count) {
    let type = row.type(column)
    mix(UInt64(type))
    switch type {
    case SQLITE_INTEGER: mix(UInt64(bitPattern: row.int64(column)))
    case SQLITE_FLOAT: mix(row.double(column).bitPattern)
    case SQLITE_TEXT: row.withText(column) { mixBytes($0, mix) }
    case SQLITE_BLOB: row.withBlob(column) { mixBytes($0, mix) }
    default: break
    }
  }
  return hash ^ (hash >> 32)
}

private func mixBytes(_ bytes: UnsafeRawBufferPointer, _ mix: (UInt64) -> Void) {
  var offset = 0
  while offset + 8 <= bytes.count {
    mix(bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
    offset += 8
  }
  var rest = UInt64(bytes.count)
  while offset < bytes.count {
    rest = rest << 8 | UInt64(bytes[offset])
    offset += 1
  }
  mix(rest)
}
