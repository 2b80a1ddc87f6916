import ContentHash
import SalvorModel
import SalvorStorage
import SalvorWire

/// The ledger as the database holds it: the same acts in the same order, with an index by hash. A database that was put back
/// has fewer of them than the file beside it.
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
      if case .blob(let bytes) = try connection.scalar("SELECT value FROM salvor_server WHERE key = 'purge-key'") {
        bytes
      } else { nil }
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
      .blob(key))
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
    try connection.scalar("SELECT seal FROM salvor_purge ORDER BY n DESC LIMIT 1")?.string ?? ""
  }

  package func keep(_ entry: PurgeEntry) throws {
    try connection.run(
      "INSERT INTO salvor_purge (act, hash, time, seal) VALUES (?1, ?2, ?3, ?4)", .text(entry.act.rawValue),
      .text(entry.hash), .integer(entry.time), .text(entry.seal))
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
      return value
    }
    let text = JSONValue.array([.string(table.table.origin)] + values.map { JSONValue($0) })
    return hexadecimal(hmacSHA256(text.bytes, key: self.key ?? []))
  }

  package func isPurged(_ table: ServerTable, _ key: Key) throws -> Bool {
    self.key == nil ? false : try isPurged(hash: hash(table, key))
  }
}
