import SQLiteSupport
import SalvorModel
import SalvorStorage
import ServerStoreSupport

extension Purge {
  /// With the values of columns that the schema dropped (`ServerEvolution`).
  init(_ connection: SQLiteConnection, _ catalog: Catalog) {
    self.init(connection, catalog) { table, key in
      let prefix = "salvor_dropped_\(table.name)_"
      let names = try connection.rows(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, length(?1)) = ?1", .text(prefix))
      for name in names.compactMap(\.[0].string) {
        guard let shape = try connection.tableShape(name),
          table.table.primaryKey.allSatisfy({ shape.column($0) != nil })
        else { continue }
        try connection.run(
          "DELETE FROM \(quoted(name)) AS x WHERE \(table.keyMatches("x") { "?\($0 + 1)" })", key)
      }
    }
  }

  /// What is deleted is overwritten in the file, as well.
  static func overwriting<Result>(_ connection: SQLiteConnection, _ body: () throws -> Result) throws -> Result {
    try connection.pragma("secure_delete", "ON")
    defer { _ = try? connection.pragma("secure_delete", "OFF") }
    return try body()
  }
}

extension ServerWriter {
  func purge(_ keys: [Key], of table: String) throws -> PurgeReport {
    let (random, now) = (options.random, options.clock.now())
    // What other programs have committed gets its number first, by itself.
    _ = try sweep()
    return try Purge.overwriting(try opened().connection) {
      let report = try transaction(durable: true) { open in
        let place = try Purge.place(of: table, open.catalog)
        let book = try PurgeBook(open.connection).keyed(random)
        var purge = Purge(open.connection, open.catalog)
        for key in keys { try purge.erase(place, key) }
        try purge.forgetOnTheWay()
        let report = try purge.note(in: book, options.isFile ? purgeLedger : nil, at: now, open.opening.serverID)
        _ = try open.log.sweep()
        return report
      }
      try notePurges()
      // The log beside the database still holds what was.
      try? opened().connection.checkpoint(.truncate)
      return report
    }
  }

  func releasePurged(_ keys: [Key], of table: String) throws -> Int64 {
    let now = options.clock.now()
    let count = try transaction(durable: true) { open in
      let place = try Purge.place(of: table, open.catalog)
      let book = try PurgeBook(open.connection)
      let table = open.catalog.tables[place]
      let stored = try keys.map { try Purge.stored($0, in: table, open.connection) }
      return try book.note(
        .release, stored, of: table, at: now, in: options.isFile ? purgeLedger : nil,
        open.opening.serverID)
    }
    try notePurges()
    return count
  }

  /// An act ends when it is so old, and so much older than the oldest copy that may be put back: the copy may have been under way
  /// when the row was erased.
  private static let copyMilliseconds: Int64 = 86_400_000

  /// The acts of the ledger that nobody needs any more leave it: from before the retention, and from before every copy that is listed and
  /// not forgotten, so that none of these has what they erased. The file is written before the transaction commits; where it knows of more
  /// that ended than the database, the next start follows it.
  func endPurges(before milliseconds: Int64) throws {
    try transaction(durable: true) { open in
      let book = try PurgeBook(open.connection)
      guard try book.ending(before: milliseconds) != nil else { return }
      let copies = try BackupBook(open.connection, database: options.isFile ? options.path : nil).all()
      let oldest = copies.filter { !$0.isForgotten }.map(\.time).min()
      let bound = min(milliseconds, oldest.map { $0 - Self.copyMilliseconds } ?? .max)
      guard let end = try book.ending(before: bound) else { return }
      try book.end(end)
      if options.isFile { try book.bring(purgeLedger, open.opening.serverID) }
    }
  }

  /// Beside the database; its path is of no use where that is in memory.
  var purgeLedger: PurgeLedger { PurgeLedger(besides: options.path) }
}

extension PurgeLedger {
  init(besides database: String) {
    let path = database + purgeLedgerSuffix
    self.init(path: path, mode: PrivateFile.mode(at: path))
  }
}

extension SQLiteServerStore: PurgingServerStore {
  public func purge(_ keys: [Key], of table: String) async throws -> PurgeReport {
    try await writer.purge(keys, of: table)
  }

  public func releasePurged(_ keys: [Key], of table: String) async throws -> Int64 {
    try await writer.releasePurged(keys, of: table)
  }
}
