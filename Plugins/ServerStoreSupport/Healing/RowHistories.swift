import SalvorModel
import SalvorStorage
import SalvorWire

/// What became of rows since devices parted from this server: ordinary writes by the change log, marks by the log's entries that
/// came by offers and by the lines of `salvor_healed`. One for each upload.
///
/// Its cost follows the offers, or what was written since, whichever is less: a short end of the log is read once; in a longer
/// one the rows of a set are looked up together, and a row that is decided alone is looked up by itself.
final class RowHistories {
  struct History {
    /// Oldest first.
    var writes: [RowStanding.Write] = []
    /// Of entries of the log, in no order.
    var marks: [RowStanding.Mark] = []
    /// Of `salvor_healed`.
    var lines: [RowStanding.Mark] = []
  }

  /// A row that an offer is of.
  struct Row {
    var place: Int
    var key: Key
    var hash: UInt64
  }

  private struct LineKey: Hashable {
    var table: Int64
    var key: String
  }

  private enum Lines {
    case unread
    case all([LineKey: [RowStanding.Mark]])
    case many
  }

  /// An end of the log up to this length is read, however few rows are asked about.
  private static let readAtOnce: Int64 = 1000
  /// So many entries cost about what looking up one row does.
  private static let entriesPerLookup: Int64 = 4
  /// A longer end of the log is never held.
  private static let entriesMax: Int64 = 20_000
  /// More lines are not held.
  private static let linesMax = 1000
  /// Keys that one statement takes.
  private static let keysAtOnce = 100

  private let rows: RowReader
  /// The last entry of the log before the upload.
  private let last: Int64
  /// The upload has written marks: what was read before it does not say them.
  private var hasWritten = false
  private var asked: Int64 = 0
  private var lines = Lines.unread
  /// The log after this entry is in `end`.
  private var endAfter: Int64
  private var end: [UInt64: History] = [:]
  /// The rows of the set at hand that were looked up, and after which entry.
  private var set: [UInt64: History] = [:]
  private var setAfter: Int64 = .max
  private var connection: any StoreConnection { rows.connection }
  private var catalog: Catalog { rows.catalog }

  init(_ rows: RowReader, last: Int64) {
    self.rows = rows
    self.last = last
    endAfter = last
  }

  // MARK: Asking

  /// Nothing is known to have become of the row since the entry, and nothing of it stands in the book. False: or it must be looked up.
  /// What the upload itself has made of the row is not asked.
  func isUntouched(_ hash: UInt64, in place: Int, after sequence: Int64, _ key: () -> Key) throws -> Bool {
    guard let lines = try allLines() else { return false }
    if !lines.isEmpty, lines[line(place, key())] != nil { return false }
    guard sequence < last else { return true }
    guard try isEndRead(after: sequence) else { return false }
    return end[hash] == nil
  }

  func history(of row: Row, after sequence: Int64) throws -> History {
    if let known = set[row.hash], setAfter <= sequence { return known }
    if !hasWritten, let lines = try allLines() {
      var history = History()
      if sequence < last, try isEndRead(after: sequence) {
        history = end[row.hash] ?? history
      } else if sequence < last {
        return try lookUp(row, after: sequence)
      }
      if !lines.isEmpty { history.lines = lines[line(row.place, row.key)] ?? [] }
      return history
    }
    return try lookUp(row, after: sequence)
  }

  /// The rows are going to be decided as a set: what is not known of them is looked up together, until `endSet`.
  func beginSet(_ rows: [Row], after sequence: Int64) throws {
    endSet()
    asked += Int64(rows.count)
    if try !hasWritten && allLines() != nil && (sequence >= last || isEndRead(after: sequence)) { return }
    for (place, rows) in Dictionary(grouping: rows, by: \.place) { try lookUp(rows, in: place, after: sequence) }
    setAfter = sequence
  }

  func endSet() {
    set = [:]
    setAfter = .max
  }

  /// Marks of these rows are written.
  func noteWritten(_ hashes: some Sequence<UInt64>) {
    hasWritten = true
    if !set.isEmpty { for hash in hashes { set[hash] = nil } }
  }

  // MARK: Reading

  private func line(_ place: Int, _ key: Key) -> LineKey {
    LineKey(table: catalog.tables[place].number, key: key.stored)
  }

  /// As they were before the upload. Nil: they are too many to be held.
  private func allLines() throws -> [LineKey: [RowStanding.Mark]]? {
    switch lines {
    case .all(let lines): return lines
    case .many: return nil
    case .unread: break
    }
    var found: [LineKey: [RowStanding.Mark]] = [:]
    var count = 0
    try connection.query(
      "SELECT t, key, incarnation, number, mask, at FROM salvor_healed LIMIT \(Self.linesMax + 1)"
    ) { row in
      count += 1
      if let mark = Self.mark(row, from: 2, at: row.int64(5)) {
        found[LineKey(table: row.int64(0), key: row.string(1)), default: []].append(mark)
      }
      return true
    }
    lines = count > Self.linesMax ? .many : .all(found)
    return try allLines()
  }

  private static func mark(_ row: any StoreStatement, from first: Int, at: Int64) -> RowStanding.Mark? {
    IncarnationID(row.string(first)).map { incarnation in
      RowStanding.Mark(
        version: LostVersion(incarnation: incarnation, number: row.int64(first + 1), parting: 0),
        mask: row.int64(first + 2), at: at)
    }
  }

  /// False: the end of the log after the entry is longer than is read at once.
  private func isEndRead(after sequence: Int64) throws -> Bool {
    if sequence >= endAfter { return true }
    guard last - sequence <= min(Self.entriesMax, Self.readAtOnce + Self.entriesPerLookup * asked) else { return false }
    end = [:]
    let seeds = catalog.tables.map { RowHash(table: $0.name) }
    let keys = (0..<(catalog.tables.map(\.keyCount).max() ?? 1)).map { "c.v\($0)" }.joined(separator: ", ")
    try connection.query(
      """
      SELECT \(Self.columns), c.t, \(keys) FROM salvor_change c\(Self.joined)
      WHERE c.seq > ?1 AND c.seq <= ?2 AND c.op > \(LogOperation.touch) ORDER BY c.seq
      """, [.integer(sequence), .integer(last)]
    ) { entry in
      guard let place = catalog.place(number: entry.int64(Self.columnCount)) else { return true }
      let hash = seeds[place].adding(catalog.tables[place].logKey(of: entry, from: Self.columnCount + 1))
      take(entry, into: &end[hash, default: History()])
      return true
    }
    endAfter = sequence
    return true
  }

  /// An entry `c` of the log: number, what it changed, what of it came by an offer, its mark, and what the database made of that.
  private static let columns = "c.seq, c.m, c.h, r.incarnation, r.number, r.mask, r.entry, r.altered"
  private static let columnCount = 8
  private static let joined = """
     LEFT JOIN salvor_healed_entry r ON r.first <= c.seq
      AND r.last = (SELECT min(x.last) FROM salvor_healed_entry x WHERE x.last >= c.seq)
    """

  private func take(_ entry: any StoreStatement, into history: inout History) {
    let sequence = entry.int64(0)
    var offered = entry.isNull(2) ? 0 : entry.int64(2)
    if !entry.isNull(3) {
      offered |= entry.int64(6)
      if var mark = Self.mark(entry, from: 3, at: 2 * sequence) {
        mark.altered = entry.isNull(7) ? 0 : entry.int64(7)
        history.marks.append(mark)
      }
    }
    // What the upload itself has written is known otherwise.
    let ordinary = (entry.isNull(1) ? ColumnMask.all : entry.int64(1)) & ~offered
    if ordinary != 0, sequence <= last {
      history.writes.append(RowStanding.Write(sequence: sequence, mask: ordinary))
    }
  }

  private func lookUp(_ row: Row, after sequence: Int64) throws -> History {
    var history = History()
    let table = catalog.tables[row.place]
    let seed = RowHash(table: table.name)
    asked += 1
    try connection.query(
      """
      SELECT \(Self.columns), \(table.logKey("c"))
      FROM salvor_change c\(connection.dialect.using(index: LogIndex.name(keyCount: table.keyCount)))\(Self.joined)
      WHERE \(LogIndex.condition(catalog.tables, keyCount: table.keyCount)) AND c.t = \(table.number)
        AND \(table.keyPlaces.indices.map { "c.v\($0) = ?\($0 + 2)" }.joined(separator: " AND "))
        AND c.seq > ?1 AND c.op > \(LogOperation.touch)
      ORDER BY c.seq
      """, [.integer(sequence)] + row.key
    ) { entry in
      if seed.adding(entry.values(from: Self.columnCount, count: table.keyCount)) == row.hash {
        take(entry, into: &history)
      }
      return true
    }
    try connection.query(
      "SELECT incarnation, number, mask, at FROM salvor_healed WHERE t = ?1 AND key = ?2",
      [.integer(table.number), .text(row.key.stored)]
    ) { line in
      if let mark = Self.mark(line, from: 0, at: line.int64(3)) { history.lines.append(mark) }
      return true
    }
    return history
  }

  /// The keys of one table as a temporary table, joined with the log and with the lines.
  private func lookUp(_ rows: [Row], in place: Int, after sequence: Int64) throws {
    let table = catalog.tables[place]
    let values = (0..<table.keyCount).map { "v\($0)" }
    let name = "salvor_asked_\(table.keyCount)"
    for statement in connection.dialect.temporaryTable(
      name, (["k"] + values).map { TemporaryColumn($0, .value) }, indexes: [])
    {
      try connection.execute(statement)
    }
    let asked = connection.dialect.temporary(name)
    var hashes: [String: UInt64] = [:]
    for row in rows {
      let text = row.key.stored
      hashes[text] = row.hash
      set[row.hash] = History()
    }
    var start = 0
    let keys = hashes.isEmpty ? [] : rows
    while start < keys.count {
      let some = keys[start..<min(keys.count, start + Self.keysAtOnce)]
      let width = table.keyCount + 1
      let slots = some.indices.map { index in
        "(" + (1...width).map { "?\((index - start) * width + $0)" }.joined(separator: ", ") + ")"
      }
      try connection.run(
        "INSERT INTO \(asked) (k, \(values.joined(separator: ", "))) VALUES \(slots.joined(separator: ", "))",
        some.flatMap { [.text($0.key.stored)] + $0.key })
      start += some.count
    }
    let seed = RowHash(table: table.name)
    try connection.query(
      """
      SELECT \(Self.columns), \(table.logKey("c"))
      FROM \(asked) k \(connection.dialect.orderedJoin) salvor_change c\(connection.dialect.using(index: LogIndex.name(keyCount: table.keyCount)))
        ON \(values.map { "c.\($0) = k.\($0)" }.joined(separator: " AND "))\(Self.joined)
      WHERE \(LogIndex.condition(catalog.tables, keyCount: table.keyCount)) AND c.t = \(table.number)
        AND c.seq > ?1 AND c.op > \(LogOperation.touch)
      """, [.integer(sequence)]
    ) { entry in
      let hash = seed.adding(entry.values(from: Self.columnCount, count: table.keyCount))
      if set[hash] != nil { take(entry, into: &set[hash, default: History()]) }
      return true
    }
    try connection.query(
      """
      SELECT k.k, h.incarnation, h.number, h.mask, h.at FROM \(asked) k
      \(connection.dialect.orderedJoin) salvor_healed h ON h.t = ?1 AND h.key = k.k
      """, [.integer(table.number)]
    ) { line in
      if let hash = hashes[line.string(0)], let mark = Self.mark(line, from: 1, at: line.int64(4)) {
        set[hash, default: History()].lines.append(mark)
      }
      return true
    }
    try connection.run("DELETE FROM \(asked)")
    for row in rows { set[row.hash]?.writes.sort { $0.sequence < $1.sequence } }
  }
}
