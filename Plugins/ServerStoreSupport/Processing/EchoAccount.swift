import SalvorModel
import SalvorStorage
import SalvorWire

/// Finds the rows that an upload must be fed although it wrote them itself: an accepted row is left out of the feed only
/// where the server now holds exactly the client's base plus what it sent (semantics 4). Triggers of the server's own and
/// foreign key actions show as entries of the change log that no request explains.
struct EchoAccount {
  struct Row {
    var table: Int
    var key: Key
  }

  private let connection: any StoreConnection
  private let catalog: Catalog
  private let seeds: [RowHash]
  /// The last entry that is accounted for.
  private var sequence: Int64
  private let first: Int64
  private var rows: [Row] = []
  private var hashes: Set<UInt64> = []
  /// Rows that the upload changed, and those that it changed again.
  private var changed: Set<UInt64> = []
  private var changedAgain: Set<UInt64> = []
  /// Rows that a set left as they were, though its requests had changed them.
  private var changedBack: [UInt64: Row] = [:]
  /// Rows that ordinary deletes found gone, and whether their senders had seen them.
  private var deletesOfNothing: [UInt64: (row: Row, isSeen: Bool)] = [:]
  /// Changes of rows by statements of their own whose entries have no numbers yet: how many of each row.
  private var unnumbered: [UInt64: Int] = [:]
  /// Rows were written as sets: the log does not say what they were in between.
  private(set) var hasSets = false

  init(_ connection: any StoreConnection, _ catalog: Catalog, last: Int64) {
    self.connection = connection
    self.catalog = catalog
    seeds = catalog.tables.map { RowHash(table: $0.name) }
    sequence = last
    first = last
  }

  mutating func feed(_ table: Int, _ key: Key, _ hash: UInt64) {
    if hashes.insert(hash).inserted { rows.append(Row(table: table, key: key)) }
  }

  /// What a statement that changed one row has left in the log.
  enum Trace {
    case entry(Int64)
    /// The row was so already.
    case nothing
    /// The log says it.
    case unknown
  }

  /// The last entry of the log that is accounted for.
  var lastAccounted: Int64 { sequence }

  /// The upload has changed the row, or what is known of it.
  func hasChanged(_ row: UInt64) -> Bool { changed.contains(row) }

  /// A statement has changed one row. A row and its entry in the log are two changes; one is a row that was so already.
  @discardableResult
  mutating func account(from before: Int?, row: UInt64) throws -> Trace {
    noteChange(of: row)
    guard connection.writtenRows != nil else {
      unnumbered[row, default: 0] += 1
      return .unknown
    }
    switch before.flatMap({ before in connection.writtenRows.map { $0 - before } }) {
    case 2?:
      sequence += 1
      return .entry(sequence)
    case 1?: return .nothing
    default:
      try compare([row: 1])
      return .unknown
    }
  }

  /// A statement has changed no row. True: a trigger of the database's own took its place and wrote something; what that was, and the
  /// row as it is, the sender is told.
  mutating func isPassedOver(_ table: Int, _ key: Key, _ hash: UInt64, since before: Int?) throws -> Bool {
    guard let before, let now = connection.writtenRows, now != before else { return false }
    noteChange(of: hash)
    feed(table, key, hash)
    try compare([:])
    return true
  }

  /// One statement has changed these rows as they were sent, one change each.
  mutating func account(rows: [UInt64]) {
    for row in rows {
      noteChange(of: row)
      unnumbered[row, default: 0] += 1
    }
  }

  /// A set of rows was written, one change each. `isDoubled`: they were written twice, and are what was meant.
  mutating func account(_ evaluation: SetEvaluation, isDoubled: Bool) throws {
    hasSets = true
    for hash in evaluation.fed {
      if let row = evaluation.overlay[hash] { feed(row.table, row.key, hash) }
    }
    for hash in evaluation.changed {
      guard let row = evaluation.overlay[hash], row.now != nil, row.before == row.now else { continue }
      changedBack[hash] = Row(table: row.table, key: row.key)
    }
    for (hash, isSeen) in evaluation.deletesOfNothing {
      guard !changed.contains(hash), let row = evaluation.overlay[hash] else { continue }
      deletesOfNothing[hash] = (Row(table: row.table, key: row.key), isSeen)
    }
    var expected: [UInt64: Int] = [:]
    for (hash, row) in evaluation.overlay.entries where row.before != row.now { expected[hash] = isDoubled ? .max : 1 }
    for hash in expected.keys { noteChange(of: hash) }
    changed.formUnion(evaluation.healings.keys)
    guard !expected.isEmpty else { return }
    try compare(expected)
  }

  private mutating func noteChange(of row: UInt64) {
    deletesOfNothing[row] = nil
    if !changed.insert(row).inserted { changedAgain.insert(row) }
  }

  /// Rows of accepted requests that have no entry in the log, since a set was written squashed. By parts of the upload they would have
  /// some: what a commit changed must not depend on how it was written.
  var rowsChangedBack: [Row] {
    changedBack.filter { !changed.contains($0.key) }.sorted { $0.key < $1.key }.map(\.value)
  }

  /// Rows that the server lost, and whose deletes it has accepted as ordinary ones: without an entry in the log nobody could tell that they
  /// were deleted, nor that a restore has taken the delete.
  var goneRows: [(row: Row, isSeen: Bool)] {
    deletesOfNothing.sorted { $0.key < $1.key }.map(\.value)
  }

  /// A row that the upload made and deleted again was never there for anyone: its entries go.
  func removeNeverThere() throws {
    guard !changedAgain.isEmpty else { return }
    var found: [UInt64: (place: Int, key: Key, isMade: Bool, entries: [Int64])] = [:]
    let keys = (0..<(catalog.tables.map(\.keyCount).max() ?? 1)).map { "v\($0)" }.joined(separator: ", ")
    try connection.query("SELECT seq, t, op, \(keys) FROM salvor_change WHERE seq > ?1 ORDER BY seq", [.integer(first)])
    { row in
      guard let place = catalog.place(number: row.int64(1)) else { return true }
      let key = catalog.tables[place].logKey(of: row, from: 3)
      let hash = seeds[place].adding(key)
      guard changedAgain.contains(hash) else { return true }
      found[hash, default: (place, key, row.int64(2) == LogOperation.insert, [])].entries.append(row.int64(0))
      return true
    }
    let reader = RowReader(connection: connection, catalog: catalog)
    for row in found.values where row.isMade {
      if try reader.row(row.place, row.key) != nil { continue }
      // Their numbers may be given again.
      try HealBook.forget(entries: row.entries, connection)
      for entry in row.entries { try connection.run("DELETE FROM salvor_change WHERE seq = ?1", .integer(entry)) }
    }
  }

  /// Feeds the rows of the entries since the last account that are more than expected.
  private mutating func compare(_ expected: [UInt64: Int]) throws {
    var left = expected.merging(unnumbered) { $0 == .max ? .max : $0 + $1 }
    unnumbered = [:]
    try connection.numberWritten()
    var last = sequence
    let keys = (0..<(catalog.tables.map(\.keyCount).max() ?? 1)).map { "v\($0)" }.joined(separator: ", ")
    var extra: [(Int, Key, UInt64)] = []
    try connection.query("SELECT seq, t, \(keys) FROM salvor_change WHERE seq > ?1 ORDER BY seq", [.integer(sequence)])
    { row in
      last = row.int64(0)
      guard let place = catalog.place(number: row.int64(1)) else { return true }
      let key = catalog.tables[place].logKey(of: row, from: 2)
      let hash = seeds[place].adding(key)
      if let count = left[hash], count > 0 {
        left[hash] = count - 1
      } else {
        extra.append((place, key, hash))
      }
      return true
    }
    sequence = last
    for (place, key, hash) in extra { feed(place, key, hash) }
  }

  /// What statements of their own have written is accounted for.
  mutating func settle() throws { if !unnumbered.isEmpty { try compare([:]) } }

  /// The rows, and what came to the log since the last account.
  mutating func rowsToFeed() throws -> [Row] {
    try compare([:])
    return rows
  }
}
