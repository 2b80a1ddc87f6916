import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Recovery (semantics 9, docs/architecture/recovery.md).
extension SQLiteClientStore: RecoveringClientStore {
  /// The path of the database file; empty for a database in memory.
  public nonisolated var location: String { isFile ? path : "" }

  // MARK: What differs

  public func recoveryStarts(shared: Commit?, trimmed: Int64) throws -> [GroupStart] {
    try ChangedKeys(context: opened()).starts(shared: shared, trimmed: trimmed)
  }

  public func changedKeys(after starts: [GroupStart], place: Int64, limit: Int) throws -> (
    queries: [RowQuery], place: Int64
  )? {
    try ChangedKeys(context: opened()).keys(after: starts, place: place, limit: limit)
  }

  public func differences(from page: RangePage, after: Key?, of table: String) throws -> [RowQuery] {
    let context = try opened()
    let comparison = try RangeComparison(context, table, columns: page.columns)
    return try context.connection.transaction(.deferred) { try comparison.differences(page, after: after) }
  }

  /// The tables of these groups that download by key sets, and those whose rows are not proven the server's; the latter
  /// have `isFed` set.
  public func tablesToCompare(groups: Set<String>) throws -> [TableDigest] {
    let context = try opened()
    var unproven = try UnprovenTables(context).names()
    // A row that goes up in this session is newer than what is compared: these wait for one that takes all of them.
    if try context.connection.state(.current) != nil { unproven.subtract(try UnprovenTables(context).servers()) }
    guard !unproven.isEmpty || context.schema.synchronized.contains(where: { $0.download == .keySet }) else {
      return []
    }
    let synchronized = Set(
      try context.connection.groupStates(context.schema.groups).filter(\.isSynchronized).map(\.name))
    return try context.schema.synchronized.compactMap { table in
      let isUnproven = unproven.contains(table.name)
      guard isUnproven || table.download == .keySet, groups.contains(table.group), synchronized.contains(table.group)
      else { return nil }
      guard isUnproven else { return try notedDigest(of: table, context) }
      var digest = try digest(of: table.name)
      digest.isFed = true
      return digest
    }
  }

  private func notedDigest(of table: Table, _ context: StoreContext) throws -> TableDigest {
    let columns = table.travelling.map { quoted($0.name) }.joined(separator: ", ")
    if let noted = try context.notedDigest(of: table.name, columns: columns) { return noted }
    let digest = try digest(of: table.name)
    try context.connection.transaction { try context.note(digest, columns: columns) }
    return digest
  }

  public func digest(of table: String) throws -> TableDigest {
    let context = try opened()
    let columns = context.schema.table(table)?.travelling.map(\.name) ?? []
    let comparison = try RangeComparison(context, table, columns: columns)
    return try context.connection.transaction(.deferred) { try comparison.digest() }
  }

  // MARK: Recovering

  /// An order that was carried out before returns its report of then, and changes nothing. One transaction, which
  /// outlives a power cut. Errors: `usage` where tables are made anew and requests are to be kept.
  public func recover(_ order: RecoveryOrder) throws -> RecoveryReport {
    let context = try opened()
    if let done = try recorded(order.id, context) { return done }
    try fold(context)
    do {
      let report = try withSnapshots(for: order, context) {
        try durably(context) {
          guard order.keepsBeforeImages, isFile else { return try recovered(order, context) }
          return try BeforeImages(context: context, folder: backupFolder, database: path).keep(order) {
            try recovered(order, context)
          }
        }
      }
      checkedSchema = try context.connection.schemaVersion()
      try writeIdentity(context)
      return report
    } catch {
      // Before-images of what did not happen put nothing back.
      if order.keepsBeforeImages, isFile, try recorded(order.id, context) == nil {
        try? backupFolder.remove(order.id)
      }
      throw error
    }
  }

  /// The payloads of a rehearsal: in a temporary file of SQLite's, not in memory.
  static let rehearsal =
    "CREATE TABLE IF NOT EXISTS temp.salvor_rehearsal (id INTEGER PRIMARY KEY, payload TEXT NOT NULL)"

  /// In a temporary table, which goes with the connection.
  public func keepForRehearsal(_ payload: [UInt8]) throws {
    let context = try opened()
    var taken = payload
    if mentionsBlobs(payload) {
      taken = try LargeBlobs(context: context).taken(of: payload, bytesMax: Int64(limits.blobBytesMax), notes: false)
    }
    try context.connection.execute(Self.rehearsal)
    try context.connection.run("INSERT INTO temp.salvor_rehearsal (payload) VALUES (?1)", .text(taken))
  }

  public func forgetRehearsal() throws {
    let connection = try opened().connection
    try connection.execute(Self.rehearsal)
    try connection.execute("DELETE FROM temp.salvor_rehearsal")
  }

  /// In a transaction that is rolled back; the payloads kept for the rehearsal are gone afterwards.
  public func rehearse(_ order: RecoveryOrder) throws -> RecoveryReport {
    let context = try opened()
    let connection = context.connection
    try connection.execute(Self.rehearsal)
    defer { try? connection.execute("DELETE FROM temp.salvor_rehearsal") }
    if let done = try recorded(order.id, context) { return done }
    let known = (context.schema, context.config, context.catalog)
    // A rebuild makes the tables anew, and is rolled back.
    defer { (context.schema, context.config, context.catalog) = known }
    context.rehearses = true
    defer { context.rehearses = false }
    return try withSnapshots(for: order, context, keepsFiles: true) {
      try connection.rolledBack {
        try settleAsSession(context)
        try connection.run("DELETE FROM salvor_staging")
        try connection.run(
          "INSERT INTO salvor_staging (payload) SELECT payload FROM temp.salvor_rehearsal ORDER BY id")
        return try recovered(order, context)
      }
    }
  }

  /// A recovery follows a session that has begun: what that joins is one request in the plan, too.
  private func settleAsSession(_ context: StoreContext) throws {
    guard try context.connection.state(.current) == nil else { return }
    try straighten(context)
    try RequestSorting(context).sort()
    _ = try settleBeforeUpload(context)
  }

  /// How many rows of synchronized tables have no base: the server does not have them, as far as this device knows.
  public func rowsMadeHere() throws -> Int64 {
    let context = try opened()
    let index = try LogIndex(context)
    var count: Int64 = 0
    for table in context.catalog.tables {
      try index.eachRow(of: table) { key in
        let timeline = try index.timeline(table, key)
        if timeline.base == nil, timeline.current != nil { count += 1 }
      }
    }
    return count
  }

  private func recovered(_ order: RecoveryOrder, _ context: StoreContext) throws -> RecoveryReport {
    guard order.requests == .discard || order.rebuild == .nothing else {
      throw SalvorError(.usage, "Where tables are made anew, unsynced requests cannot be kept: discard them.")
    }
    try straighten(context)
    let opening = Opening(connection: context.connection, random: random, clock: clock)
    var run = RecoveryRun(context: context, order: order, opening: opening, canKeepBackup: isFile)
    return try run.run()
  }

  /// What is known of the tables is as it was where a transaction that makes them anew is rolled back.
  private func unlessThrown<Result>(_ context: StoreContext, _ body: () throws -> Result) throws -> Result {
    let old = (context.schema, context.config, context.catalog)
    do { return try body() } catch {
      (context.schema, context.config, context.catalog) = old
      throw error
    }
  }

  /// A transaction that outlives a power cut: the journal and the identity file go on from it.
  private func durably<Result>(_ context: StoreContext, _ body: () throws -> Result) throws -> Result {
    uploadPlan = nil
    quiet = nil
    try context.connection.pragma("synchronous", "FULL")
    defer { _ = try? context.connection.pragma("synchronous", "NORMAL") }
    return try unlessThrown(context) { try context.connection.transaction { try body() } }
  }

  // MARK: Reports

  private func recorded(_ id: String, _ context: StoreContext) throws -> RecoveryReport? {
    try context.connection.scalar("SELECT report FROM salvor_recovery WHERE id = ?1", .text(id))?.string.map {
      try RecoveryReport(JSONValue(parsing: Array($0.utf8)))
    }
  }

  /// Newest first.
  public func recoveries(limit: Int) throws -> [RecoveryReport] {
    try opened().connection.rows(
      "SELECT report FROM salvor_recovery ORDER BY number DESC LIMIT ?1", .integer(Int64(limit))
    ).compactMap { try $0[0].string.map { try RecoveryReport(JSONValue(parsing: Array($0.utf8))) } }
  }

  /// In their order, those after so many. Empty where no recovery has this ID.
  public func recoveryItems(_ id: String, after place: Int64, limit: Int) throws -> [RecoveryItem] {
    try opened().connection.rows(
      "SELECT item FROM salvor_recovery_item WHERE recovery = (SELECT number FROM salvor_recovery WHERE id = ?1) ORDER BY place LIMIT ?3 OFFSET ?2",
      .text(id), .integer(place), .integer(Int64(limit))
    ).compactMap { try $0[0].string.map { try RecoveryItem(stored: JSONValue(parsing: Array($0.utf8))) } }
  }

  // MARK: Journal

  nonisolated var journalPath: String { path + ".salvor-recovery" }

  /// The file beside the database; nil where there is none. Read where the caller is: a file beside the database is nothing of the connection's.
  public nonisolated func journal() async throws -> [UInt8]? {
    if isFile { DurableFile.read(journalPath) } else { await journalInMemory }
  }

  var hasJournal: Bool { isFile ? DurableFile.read(journalPath) != nil : journalInMemory != nil }

  /// Nil removes the file. Durable when the call returns.
  public func setJournal(_ bytes: [UInt8]?) throws {
    guard isFile else {
      journalInMemory = bytes
      return
    }
    if let bytes {
      try DurableFile.write(bytes, to: journalPath, "recovery journal")
    } else {
      try DurableFile.remove(journalPath, "recovery journal")
    }
  }

  /// Renames the journal, and returns its new path; empty for a database in memory, whose journal is forgotten.
  public func setJournalAside() throws -> String {
    guard isFile else {
      journalInMemory = nil
      return ""
    }
    let aside = "\(journalPath).damaged-\(clock.now())"
    try DurableFile.move(journalPath, to: aside, "recovery journal")
    return aside
  }
}
