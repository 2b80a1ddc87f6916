import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Keeps what a recovery changes, so that it can be put back: the rows as they were, or where that would be more than the
/// rest, or less than everything, a whole copy (semantics 9, *Backup before anything is touched*).
struct BeforeImages {
  /// A larger payload, or more changes that wait or are lost, make a copy: the recorder holds old values in memory.
  static let payloadBytesMax: Int64 = 32 << 20
  static let changesMax: Int64 = 50_000

  let context: StoreContext
  let folder: BackupFolder
  let database: String

  private var connection: SQLiteConnection { context.connection }

  /// Runs a recovery within its transaction, which has not written yet.
  func keep(_ order: RecoveryOrder, _ body: () throws -> RecoveryReport) throws -> RecoveryReport {
    let time = context.clock.now()
    if try needsCopy(order) {
      _ = try folder.copy(database, id: order.id, reason: order.reason.rawValue, time: time)
      return try body()
    }
    let counter = try connection.lastCounter()
    let incarnations = try connection.rows("SELECT id FROM salvor_incarnation").compactMap { $0[0].string }
    let newest = try connection.integer("SELECT max(number) FROM salvor_group") ?? 0
    let recorder = try SQLiteChangeRecorder(
      connection,
      skipping: Set(["salvor_staging", "salvor_recovery_item", "salvor_digest"] + BlobStaging.stagingTables))
    let report = try body()
    let changeset = try recorder.changeset()
    try folder.make()
    try folder.remove(order.id)
    let path = folder.data(order.id, .beforeImages)
    try DurableFile.write(changeset, to: path, "before-images")
    try folder.write(
      BackupFolder.Description(
        backup: Backup(
          id: order.id, time: time, content: .beforeImages, reason: order.reason.rawValue,
          bytes: Int64(changeset.count), path: path), number: try folder.nextNumber(), counter: counter,
        commit: try connection.integer("SELECT max(number) FROM salvor_commit") ?? -1, incarnations: incarnations,
        newest: newest))
    return report
  }

  /// The recorder sees neither changes of the schema, nor tables without a key, nor what virtual tables keep in memory.
  private func needsCopy(_ order: RecoveryOrder) throws -> Bool {
    // Before-images are a file of values as they are; a copy has the database's key.
    if order.rebuild != .nothing || connection.isEncrypted { return true }
    let bytes =
      try connection.integer(
        "SELECT coalesce(sum(length(payload)), 0) + (SELECT coalesce(sum(size), 0) FROM salvor_blob) FROM salvor_staging"
      )
      ?? 0
    let changes = try connection.integer("SELECT count(*) FROM salvor_log") ?? 0
    // Each may be offered.
    let lost =
      order.absence == .lost
      ? try connection.integer("SELECT count(*) FROM salvor_history WHERE version > ?1", .integer(order.shared ?? 0))
      : 0
    if bytes > Self.payloadBytesMax || changes + (lost ?? 0) > Self.changesMax { return true }
    let virtual = try connection.integer(
      "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL%' LIMIT 1")
    if virtual != nil { return true }
    for name in try connection.tableNames() where !name.hasPrefix("salvor_") {
      guard let shape = try connection.tableShape(name) else { continue }
      if shape.primaryKey.isEmpty || !shape.generated.isEmpty { return true }
    }
    return false
  }

  // MARK: Putting back

  /// Undoes recoveries, the newest first. Changes captured since the first of them go to the archive before, since what
  /// they were made on goes. In a transaction, with foreign keys and triggers off.
  func putBack(_ descriptions: [BackupFolder.Description]) throws {
    guard let first = descriptions.last else { return }
    var move = Move()
    move.keptAfter = first.counter
    move.returnsDisplaced = false
    try context.settle(move)
    let last = try connection.lastCounter()
    let watermark = LogOperation.watermark.rawValue
    for description in descriptions {
      guard let bytes = DurableFile.read(description.backup.path) else {
        throw SalvorError(
          .notFound, "The before-images of the recovery \(description.backup.id) are not there any more.",
          context: ["file": description.backup.path])
      }
      let goes = try incarnationsThatGo(with: description)
      if let commit = description.commit, let goes {
        let first = min(goes.map(\.firstCommit).min() ?? .max, commit + 1)
        try forgetLaterVersions(of: bytes, after: first - 1)
        if !goes.isEmpty {
          // Commits heard of since belong to the history that goes: kept, they would pass for the point where both parted.
          try connection.run("DELETE FROM salvor_commit WHERE number >= ?1", .integer(first))
          try UndoneVersions(connection: connection).note(from: first, above: max(commit, description.newest ?? 0))
        }
      } else if let commit = description.commit {
        try connection.run("DELETE FROM salvor_commit WHERE number > ?1", .integer(commit))
        // Kept, versions of rows would pass for lost ones of the history that is put back.
        try connection.run("DELETE FROM salvor_history WHERE version > ?1", .integer(commit))
      }
      // Its lines are not recorded.
      try connection.run(
        "DELETE FROM salvor_recovery_item WHERE recovery IN (SELECT number FROM salvor_recovery WHERE id = ?1)",
        .text(description.backup.id))
      // The recovery may have taken out the change of the highest counter, so that a watermark took its row; where later changes have
      // moved that on, what is put back finds no row.
      try connection.run(
        "INSERT OR IGNORE INTO salvor_log (seq, t, op) SELECT ?1, 0, \(watermark) WHERE ?1 > 0",
        .integer(description.counter))
      try moveLaterVersions(outOfTheWayOf: bytes)
      try connection.undo(bytes)
      for incarnation in goes ?? [] {
        try connection.run("DELETE FROM salvor_incarnation WHERE id = ?1", .text(incarnation.id))
      }
    }
    // Rows that came since are beyond the cursors that are put back: the next recovery compares whole tables.
    try connection.execute("UPDATE salvor_group SET scope = NULL")
    try connection.run("DELETE FROM salvor_log WHERE op = \(watermark)")
    try FormerLog(context: context).bringOver()
    try context.forgetDigests()
    try context.keepCounter(last)
    try context.noteLogChange()
    try prove()
    try connection.setState(.wentBack, .integer(1))
    for table in BlobStaging.stagingTables { try connection.run("DELETE FROM \(table)") }
    try connection.clearStaged()
  }

  /// What changed these rows since the recovery goes: they are not as of those commits any more.
  private func forgetLaterVersions(of changeset: [UInt8], after commit: Int64) throws {
    let tables = try Dictionary(
      uniqueKeysWithValues: context.catalog.tables.map { table in
        let columns = try connection.tableShape(table.name)?.columns.map(\.name.folded) ?? []
        return (table.name.folded, (table, places: table.key.compactMap { columns.firstIndex(of: $0.name.folded) }))
      })
    try connection.eachRow(of: changeset) { row in
      guard let (table, places) = tables[row.table.folded] else { return }
      let values = places.compactMap { row.values[$0] }
      guard values.count == table.keyCount else { return }
      let isRow = table.keySlots.map { "v\($0) = ?\($0 + 3)" }.joined(separator: " AND ")
      try connection.run(
        "DELETE FROM salvor_history WHERE t = ?1 AND version > ?2 AND \(isRow)",
        [.integer(table.number), .integer(commit)] + values)
    }
  }

  /// What was noted of rows since may have the numbers of entries that the recovery removed, or of those that it made and that have gone: what
  /// is put back would take their places, and a version that the server loses would be known of no more.
  private func moveLaterVersions(outOfTheWayOf changeset: [UInt8]) throws {
    let columns = try connection.tableShape("salvor_history")?.columns.map(\.name) ?? []
    guard let place = columns.firstIndex(of: "id") else { return }
    let find = "SELECT \(quotedList(columns)) FROM salvor_history WHERE id = ?1"
    var last = try connection.integer("SELECT max(id) FROM salvor_history") ?? 0
    var later: [Int64] = []
    try connection.eachRow(of: changeset) { row in
      guard row.table == "salvor_history", row.operation != .update, let id = row.values[place]?.integer else { return }
      last = max(last, id)
      guard let entry = try connection.rows(find, .integer(id)).first else { return }
      let made = columns.indices.map { row.values[$0] ?? .null }
      if row.operation == .delete || entry != made { later.append(id) }
    }
    for id in later.sorted() {
      last += 1
      try connection.run("UPDATE salvor_history SET id = ?2 WHERE id = ?1", .integer(id), .integer(last))
    }
  }

  /// The incarnations heard of since, where one of them took the place of what this device had seen: a lost version would pass for one of
  /// theirs. Empty: the server has gone on from where it was. Nil: nothing was written down of it.
  private func incarnationsThatGo(
    with description: BackupFolder.Description
  ) throws -> [(id: String, firstCommit: Int64)]? {
    guard let known = description.incarnations.map(Set.init) else { return nil }
    let new = try connection.rows("SELECT id, first_commit FROM salvor_incarnation")
      .compactMap { row in row[0].string.map { (id: $0, firstCommit: row[1].integer ?? 0) } }
      .filter { !known.contains($0.id) }
    let newest = description.newest ?? .max
    return new.contains { $0.firstCommit <= newest } ? new : []
  }

  /// Every waiting change fits its row, and the file is whole.
  private func prove() throws {
    let index = try LogIndex(context)
    for table in context.catalog.tables {
      do {
        try index.eachRow(of: table) { _ = try index.timeline(table, $0) }
      } catch let error as SalvorError where error.code == .storageCorrupt {
        throw unfit(
          "changes of \(table.name) would not fit their rows, as after a schema that dropped or renamed something")
      }
    }
    let check = try connection.scalar("PRAGMA integrity_check(1)")?.string
    let broken = try connection.rows("PRAGMA foreign_key_check").first?[0].string
    guard check == "ok", broken == nil else {
      throw unfit(broken.map { "rows of \($0) would reference rows that are not there" } ?? "the file would be damaged")
    }
  }

  private func unfit(_ what: String) -> SalvorError {
    SalvorError(
      .cannotStand,
      "The before-images do not fit what was written since: \(what). Nothing was changed. Sync first, or restore a copy instead."
    )
  }
}
