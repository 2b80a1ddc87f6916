import ContentHash
import SalvorModel
import SalvorStorage
import SalvorWire

/// The ledger as the database holds it: the same acts in the same order, with an index by hash. A database that was put back
/// has fewer of them than the file beside it. `n` counts all acts that ever were, also those that ended.
package struct PurgeBook {
  let connection: any StoreConnection
  /// Nil: nothing was ever purged.
  package let key: [UInt8]?

  package static let table = """
    CREATE TABLE IF NOT EXISTS salvor_purge (
      n INTEGER PRIMARY KEY, act TEXT NOT NULL, hash TEXT NOT NULL, time INTEGER NOT NULL, seal TEXT NOT NULL);
    CREATE INDEX IF NOT EXISTS salvor_purge_hash ON salvor_purge (hash, n);
    """

  package init(_ connection: any StoreConnection) throws {
    self.connection = connection
    key =
      switch try connection.scalar("SELECT value FROM salvor_server WHERE key = 'purge-key'") {
      case .blob(let bytes)?: bytes
      case .text(let digits)?: PurgeLedger.key(String(decoding: digits, as: UTF8.self))
      default: nil
      }
  }

  private init(_ connection: any StoreConnection, key: [UInt8]) {
    self.connection = connection
    self.key = key
  }

  /// The book with its key, which the first purge draws.
  package func keyed(_ random: any RandomSource) throws -> PurgeBook {
    key == nil ? try keyed(random.bytes(32)) : self
  }

  package func keyed(_ key: [UInt8]) throws -> PurgeBook {
    try connection.run(
      "INSERT INTO salvor_server (key, value) VALUES ('purge-key', ?1) ON CONFLICT (key) DO UPDATE SET value = ?1",
      connection.dialect.untyped(.blob(key)))
    return PurgeBook(connection, key: key)
  }

  package func entries() throws -> [PurgeEntry] {
    try connection.rows("SELECT act, hash, time, seal FROM salvor_purge ORDER BY n").compactMap { row in
      PurgeEntry([
        "act": .string(row[0].string ?? ""), "hash": .string(row[1].string ?? ""),
        "time": .integer(row[2].integer ?? 0), "seal": .string(row[3].string ?? ""),
      ])
    }
  }

  package func lastSeal() throws -> String {
    try connection.scalar("SELECT seal FROM salvor_purge ORDER BY n DESC LIMIT 1")?.string ?? ended().seal
  }

  /// How many acts there ever were, and the seal of the last of them.
  package func last() throws -> PurgeEnd {
    let last = try connection.rows("SELECT n, seal FROM salvor_purge ORDER BY n DESC LIMIT 1").first
    return try last.map { PurgeEnd(count: $0[0].integer ?? 0, seal: $0[1].string ?? "") } ?? ended()
  }

  /// Whether what was the last act once is here, or has ended.
  package func has(_ last: PurgeEnd) throws -> Bool {
    if try ended().count >= last.count { return true }
    return try connection.scalar("SELECT seal FROM salvor_purge WHERE n = ?1", .integer(last.count))?.string
      == last.seal
  }

  /// The acts that stand here no more.
  package func ended() throws -> PurgeEnd {
    PurgeEnd(
      count: try connection.integer("SELECT value FROM salvor_server WHERE key = 'purge-ended'") ?? 0,
      seal: try connection.scalar("SELECT value FROM salvor_server WHERE key = 'purge-ended-seal'")?.string ?? "")
  }

  /// What has ended when all acts before this time have. Nil: no more than before.
  ///
  /// - Parameter milliseconds: since 1970.
  package func ending(before milliseconds: Int64) throws -> PurgeEnd? {
    let last = try connection.integer(
      """
      SELECT coalesce((SELECT min(n) - 1 FROM salvor_purge WHERE time >= ?1), (SELECT max(n) FROM salvor_purge))
      """, .integer(milliseconds))
    guard let last,
      let seal = try connection.scalar("SELECT seal FROM salvor_purge WHERE n = ?1", .integer(last))?.string
    else { return nil }
    return PurgeEnd(count: last, seal: seal)
  }

  /// The acts that ended leave.
  package func end(_ end: PurgeEnd) throws {
    try connection.run("DELETE FROM salvor_purge WHERE n <= ?1", .integer(end.count))
    for (key, value) in [("purge-ended", Value.integer(end.count)), ("purge-ended-seal", .text(end.seal))] {
      try connection.run(
        "INSERT INTO salvor_server (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2", .text(key),
        value)
    }
  }

  package func keep(_ entry: PurgeEntry) throws {
    try connection.run(
      "INSERT INTO salvor_purge (n, act, hash, time, seal) VALUES ((SELECT coalesce(max(n), ?5) + 1 FROM salvor_purge), ?1, ?2, ?3, ?4)",
      .text(entry.act.rawValue), .text(entry.hash), .integer(entry.time), .text(entry.seal),
      .integer(ended().count))
  }

  /// Writes an act for each key, and then into the file, before the transaction commits: what the file has more than the database is
  /// applied at the next start. A key that was purged before is written once more: another program may have brought the row back, into a
  /// copy that was made since. A key that was not purged is not released.
  ///
  /// - Parameter ledger: nil: the database is in memory.
  /// - Returns: for how many keys it is new.
  package func note(
    _ act: PurgeEntry.Act, _ keys: [Key], of table: ServerTable, at now: Int64, in ledger: PurgeLedger?,
    _ server: ServerID
  ) throws -> Int64 {
    guard let key else { return 0 }
    var acts: [PurgeEntry] = []
    var count: Int64 = 0
    let before = try lastSeal()
    for row in keys {
      let hash = hash(table, row)
      let isNew = try isPurged(hash: hash) != (act == .purge)
      if !isNew, act == .release { continue }
      if isNew { count += 1 }
      let entry = PurgeEntry(act, hash, time: now, after: acts.last?.seal ?? before, key: key)
      try keep(entry)
      acts.append(entry)
    }
    guard let ledger, !acts.isEmpty else { return count }
    if try ledger.lastSeal() == before { try ledger.append(acts) } else { try bring(ledger, server) }
    return count
  }

  /// The file has what the database has, and nothing else.
  package func bring(_ ledger: PurgeLedger, _ server: ServerID) throws {
    guard let key else { return }
    try ledger.write(server, key, try ended(), try entries())
  }

  /// An act of a ledger that the database lacks. One that does not follow `seal` gets a seal that does; none where it changes nothing.
  ///
  /// - Parameter seal: of the last act here.
  /// - Returns: of the last one then.
  func take(_ entry: PurgeEntry, after seal: String) throws -> String {
    guard let key else { return seal }
    var entry = entry
    if !entry.follows(seal, key: key) {
      guard try isPurged(hash: entry.hash) != (entry.act == .purge) else { return seal }
      entry = PurgeEntry(entry.act, entry.hash, time: entry.time, after: seal, key: key)
    }
    try keep(entry)
    return entry.seal
  }

  package func isPurged(hash: String) throws -> Bool {
    var act: String?
    let statement = try connection.cached("SELECT act FROM salvor_purge WHERE hash = ?1 ORDER BY n DESC LIMIT 1")
    try statement.bind([.text(hash)])
    // One that stands on its row would hold the connection to what the database was then.
    defer { statement.reset() }
    if try statement.step() { act = statement.string(0) }
    return act == PurgeEntry.Act.purge.rawValue
  }

  /// Of a row, under the oldest name of its table.
  package func hash(_ table: ServerTable, _ key: Key) -> String {
    let values = zip(table.keyPlaces, key).map { place, value in
      // A whole number is stored as a real one there.
      if table.columns[place].type == .real, case .integer(let whole) = value { return Value.real(Double(whole)) }
      // A negative zero likewise as zero.
      return value == .real(0) ? .real(0) : value
    }
    let text = JSONValue.array([.string(table.table.origin)] + values.map { JSONValue($0) })
    return hexadecimal(hmacSHA256(text.bytes, key: self.key ?? []))
  }

  package func isPurged(_ table: ServerTable, _ key: Key) throws -> Bool {
    self.key == nil ? false : try isPurged(hash: hash(table, key))
  }
}
