import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import ServerStoreSupport

/// Erases rows, and what the database holds of them besides. Runs in one transaction of the writer's.
///
/// The key of an erased row stays in the change log, with the values that decide who could see it, until the log is trimmed:
/// devices learn of the delete by them.
struct Purge {
  let connection: SQLiteConnection
  let catalog: Catalog
  private(set) var report = PurgeReport()

  init(_ connection: SQLiteConnection, _ catalog: Catalog) {
    self.connection = connection
    self.catalog = catalog
  }

  /// What is deleted is overwritten in the file, as well.
  static func overwriting<Result>(_ connection: SQLiteConnection, _ body: () throws -> Result) throws -> Result {
    try connection.pragma("secure_delete", "ON")
    defer { _ = try? connection.pragma("secure_delete", "OFF") }
    return try body()
  }

  mutating func erase(_ place: Int, _ key: Key) throws {
    let table = catalog.tables[place]
    do {
      try connection.run(
        "DELETE FROM \(table.sql) AS x WHERE \(table.keyMatches("x") { "?\($0 + 1)" })", key)
    } catch let error as SalvorError where error.isConstraintViolation {
      throw SalvorError(
        .cannotStand,
        "A row of \(table.name) cannot be erased: \(error.sqliteDetail). Purge or delete the rows that need it first. Nothing was changed.",
        context: ["table": table.name])
    }
    report.rows += Int64(connection.changes)
    let text = Value.text(JSONValue.array(key.map { JSONValue($0) }).text)
    try connection.run("DELETE FROM salvor_conflict WHERE \"table\" = ?1 AND key = ?2", .text(table.name), text)
    report.conflicts += Int64(connection.changes)
    for name in ["salvor_healed", "salvor_healed_delete"] {
      try connection.run("DELETE FROM \(name) WHERE t = ?1 AND key = ?2", .integer(table.number), text)
    }
    try WaitingBook(connection: connection).forget(table.name, key: text)
    try forgetBlobs(table, text)
    try forgetDroppedColumns(table, key)
  }

  private func forgetBlobs(_ table: ServerTable, _ key: Value) throws {
    try connection.run(
      """
      DELETE FROM salvor_blob_part WHERE blob IN (SELECT id FROM salvor_blob WHERE hash IN
        (SELECT hash FROM salvor_blob_hint WHERE "table" = ?1 AND key = ?2))
      """, .text(table.name), key)
    try connection.run(
      "DELETE FROM salvor_blob WHERE hash IN (SELECT hash FROM salvor_blob_hint WHERE \"table\" = ?1 AND key = ?2)",
      .text(table.name), key)
    try connection.run("DELETE FROM salvor_blob_hint WHERE \"table\" = ?1 AND key = ?2", .text(table.name), key)
  }

  /// The values of columns that the schema dropped (`ServerEvolution`).
  private func forgetDroppedColumns(_ table: ServerTable, _ key: Key) throws {
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

  /// Whoever was sending sends again. The results of uploads keep what was decided, without the rows that stood beside it.
  func forgetOnTheWay() throws {
    try Staging(connection: connection).forgetAll()
    try connection.execute("DELETE FROM salvor_staging")
    var last = ""
    while true {
      // One remote has one result; the larger ones are some hundred KiB.
      let row = try connection.rows(
        "SELECT remote, result FROM salvor_result WHERE remote > ?1 ORDER BY remote LIMIT 1", .text(last)
      ).first
      guard let row, let remote = row[0].string else { return }
      last = remote
      guard var results = try? UploadResults(JSONValue(parsing: Array((row[1].string ?? "").utf8))),
        results.refused.contains(where: { !$0.serverRows.isEmpty })
      else { continue }
      for place in results.refused.indices { results.refused[place].serverRows = [] }
      try connection.run(
        "UPDATE salvor_result SET result = ?2 WHERE remote = ?1", .text(remote), .text(results.json.text))
    }
  }
}

extension ServerWriter {
  func purge(_ keys: [Key], of table: String) throws -> PurgeReport {
    let (random, now) = (options.random, options.clock.now())
    // What other programs have committed gets its number first, by itself.
    _ = try sweep()
    return try Purge.overwriting(try opened().connection) {
      let report = try transaction(durable: true) { open in
        let place = try place(of: table, open.catalog)
        let book = try PurgeBook(open.connection).keyed(random)
        var purge = Purge(open.connection, open.catalog)
        for key in keys { try purge.erase(place, key) }
        try purge.forgetOnTheWay()
        var report = purge.report
        report.keys = Int64(try note(.purge, keys, open.catalog.tables[place], book, open, now: now))
        _ = try open.log.sweep()
        return report
      }
      // The log beside the database still holds what was.
      try? opened().connection.checkpoint(.truncate)
      return report
    }
  }

  func releasePurged(_ keys: [Key], of table: String) throws -> Int64 {
    let now = options.clock.now()
    return try transaction(durable: true) { open in
      let place = try place(of: table, open.catalog)
      let book = try PurgeBook(open.connection)
      guard book.key != nil else { return 0 }
      return Int64(try note(.release, keys, open.catalog.tables[place], book, open, now: now))
    }
  }

  private func place(of table: String, _ catalog: Catalog) throws -> Int {
    if let place = catalog.place(of: table) { return place }
    throw SalvorError(
      .notFound,
      "The schema has no synchronized table \(table). It has \(catalog.tables.map(\.name).joined(separator: ", ")).",
      context: ["table": table])
  }

  /// Writes an act for each key that it is new for, into the database and then into the file, before the transaction commits:
  /// what the file has more than the database is applied at the next start. Answers with how many.
  private func note(
    _ act: PurgeEntry.Act, _ keys: [Key], _ table: ServerTable, _ book: PurgeBook, _ open: Open, now: Int64
  ) throws -> Int {
    guard let secret = book.key else { return 0 }
    var new: [PurgeEntry] = []
    var seal = try book.lastSeal()
    for key in keys {
      let hash = book.hash(table, key)
      if try book.isPurged(hash: hash) == (act == .purge) { continue }
      let entry = PurgeEntry(act, hash, time: now, after: seal, key: secret)
      try book.keep(entry)
      new.append(entry)
      seal = entry.seal
    }
    if options.isFile, !new.isEmpty {
      let ledger = PurgeLedger(path: options.path + purgeLedgerSuffix)
      if Files.exists(ledger.path) {
        try ledger.append(new)
      } else {
        try ledger.write(open.opening.serverID, secret, try book.entries())
      }
    }
    return new.count
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
