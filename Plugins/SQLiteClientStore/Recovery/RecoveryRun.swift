import SQLiteSupport
import SalvorModel
import SalvorStorage

/// One recovery, in one transaction: what is staged becomes the bases, by the order's rules (semantics 9).
struct RecoveryRun {
  let context: StoreContext
  let order: RecoveryOrder
  let opening: Opening
  /// The database is a file that a backup can stand beside.
  let canKeepBackup: Bool

  private var connection: SQLiteConnection { context.connection }

  /// In a transaction, with foreign keys and triggers off. Staging is empty then.
  func run() throws -> RecoveryReport {
    try RequestSorting(context).sort()
    try rememberArchive()
    let aside = try connection.integer("SELECT max(id) FROM salvor_aside") ?? 0
    try context.takeBackUpload(previous: order.previous)
    let versions = try BaseVersions(context, order)
    let record = try RecoveryRecord(context)
    let merge = RecoveryMerge(context, order, versions, record)
    // Tables that are made anew may have other names.
    let full = order.rebuild == .nothing ? try DownloadApply.fullTables(context) : nil
    let whole = wholeGroups(full ?? [])
    let deletes = try cut(whole)
    try beginEpoch()
    let rebuilding = order.rebuild == .nothing ? nil : Rebuilding(context, order, merge, opening)
    try rebuilding?.run()
    let apply = try DownloadApply(context, full: full, recovery: merge)
    try apply.readStaged()
    _ = try apply.finish(Set(order.groups.map(\.name)))
    try rebuilding?.finish()
    try context.forgetReturned(of: whole, upTo: deletes)
    try moveGroups(whole)
    return try finish(merge, record, aside)
  }

  private func finish(_ merge: RecoveryMerge, _ record: RecoveryRecord, _ aside: Int64) throws -> RecoveryReport {
    try takeIdentity()
    merge.add(try RecoveredRequests(context, record).record(merge))
    try record.aside(after: aside)
    let report = RecoveryReport(
      id: order.id, time: context.clock.now(), reason: order.reason, strategy: order.strategy, counts: merge.counts,
      backup: order.keepsBeforeImages && canKeepBackup ? order.id : nil)
    try record.write(report)
    return report
  }

  /// The archive as it was, to tell what this recovery puts there.
  private func rememberArchive() throws {
    try connection.execute(
      """
      CREATE TABLE IF NOT EXISTS temp.salvor_archive_before (first INTEGER PRIMARY KEY, state TEXT);
      DELETE FROM temp.salvor_archive_before;
      INSERT OR IGNORE INTO temp.salvor_archive_before SELECT first, state FROM salvor_archive;
      """)
  }

  /// Groups whose tables were compared, came whole or are made anew: no row keeps a version of its own.
  private func wholeGroups(_ full: Set<Int64>) -> Set<String> {
    let started = Set(order.starts.filter { $0.commit != nil }.map(\.name))
    return Set(order.groups.map(\.name)).subtracting(order.rebuild == .nothing ? started : [])
      .union(full.map { context.group(of: $0) })
  }

  /// Answers as `forgetVersions`.
  private func cut(_ whole: Set<String>) throws -> Int64 {
    if order.shared != nil || order.absence == .lost { try context.cutHistory(to: order.shared) }
    return try context.forgetVersions(of: whole)
  }

  /// What is made or captured from here on has a stamp of its own, and is made on the new cursors.
  private func beginEpoch() throws {
    let next = try connection.lastCounter() + 1
    try connection.run(
      "INSERT OR REPLACE INTO salvor_stamp (first_seq, stamp) VALUES (?1, ?2)", .integer(next),
      .text(RequestStamp(from: context.random).text))
    for group in order.groups {
      guard let cursor = group.cursor else { continue }
      try connection.run(
        "INSERT OR REPLACE INTO salvor_epoch (grp, first_seq, number) VALUES (?1, ?2, ?3)", .text(group.name),
        .integer(next), .integer(cursor.number))
    }
  }

  private func moveGroups(_ whole: Set<String>) throws {
    for group in order.groups {
      if let cursor = group.cursor { try connection.rememberCommit(cursor) }
      try connection.setGroup(group, cameWhole: whole.contains(group.name))
    }
    try connection.run("DELETE FROM salvor_staging")
    for name in [StateName.stagedDownload, .stagedPosition, .wentBack, .recoveryReason, .recoveryMessage] {
      try connection.setState(name, Value?.none)
    }
  }

  private func takeIdentity() throws {
    if let remote = order.remoteID {
      try connection.setState(.remote, remote.text)
      // The old ID stays with whoever still uses it: its identity file says nothing of this database.
      try connection.setState(.fileStamp, hexadecimal(context.random.bytes(16)))
    }
    if try connection.text(.server) != order.server.text { try connection.run("DELETE FROM salvor_incarnation") }
    try connection.setState(.server, order.server.text)
  }
}

/// What became of each request, when a recovery is through.
struct RecoveredRequests {
  let context: StoreContext
  let record: RecoveryRecord
  private let rowsCachedMax = 1000

  init(_ context: StoreContext, _ record: RecoveryRecord) {
    self.context = context
    self.record = record
  }

  func record(_ merge: RecoveryMerge) throws -> RecoveryCounts {
    var counts = RecoveryCounts()
    try recordArchived(&counts)
    try recordQueue(merge, &counts)
    return counts
  }

  private func recordArchived(_ counts: inout RecoveryCounts) throws {
    let isNew =
      "reason IS NOT 'lost-on-server' AND NOT EXISTS (SELECT 1 FROM temp.salvor_archive_before b WHERE b.first = salvor_archive.first AND b.state = salvor_archive.state)"
    var last: Int64?
    for change in try context.archived(where: isNew, []) {
      if change.range.first != last { counts.discarded += 1 }
      last = change.range.first
      try record.archived(change)
    }
  }

  /// The log in order, one request at a time.
  private func recordQueue(_ merge: RecoveryMerge, _ counts: inout RecoveryCounts) throws {
    let index = try LogIndex(context)
    let anySeen = try context.anySeen()
    let catalog = context.catalog
    var ranges = try RangeCursor(context, after: 0)
    var timelines: [RowRef: [Int64: RowTimeline.Step]] = [:]
    var request: (range: RequestRange, changes: [OutstandingRequest.Change])?
    try context.connection.query(
      "SELECT \(catalog.logColumns) FROM salvor_log WHERE op IN \(StoreContext.changeOperations) ORDER BY seq"
    ) { row in
      let entry = try catalog.entry(from: row)
      guard let table = catalog.table(number: entry.table) else { return true }
      let range = try ranges.range(of: entry.seq) ?? RequestRange(first: entry.seq, last: entry.seq)
      if let done = request, done.range.first != range.first {
        try record(done.range, done.changes, merge, &counts)
        request = nil
      }
      let key = entry.key(table)
      let ref = RowRef(table: table.number, key: key)
      if timelines[ref]?[entry.seq] == nil {
        if timelines.count >= rowsCachedMax { timelines = [:] }
        timelines[ref] = Dictionary(uniqueKeysWithValues: try index.timeline(table, key).steps.map { ($0.seq, $0) })
      }
      guard let step = timelines[ref]?[entry.seq] else { return true }
      let change = OutstandingRequest.Change(
        table: table, key: key, step: anySeen ? try context.asCaptured(step) : step)
      request = (range, (request?.changes ?? []) + [change])
      return true
    }
    if let request { try record(request.range, request.changes, merge, &counts) }
  }

  private func record(
    _ range: RequestRange, _ changes: [OutstandingRequest.Change], _ merge: RecoveryMerge,
    _ counts: inout RecoveryCounts
  ) throws {
    if merge.remadeParents.contains(range.first) {
      return try record.request(range, state: .remade, reason: "lost-on-server", changes)
    }
    if merge.remade.contains(range.first) {
      counts.merged += 1
      return try record.request(range, state: .remade, reason: nil, changes)
    }
    let first = Value.integer(range.first)
    guard try context.connection.integer("SELECT 1 FROM salvor_request_state WHERE first = ?1", first) == nil else {
      return
    }
    let wasDisplaced = try context.connection.integer(
      "SELECT 1 FROM temp.salvor_archive_before WHERE first = ?1 AND state = 'displaced'", first)
    let isRebased = changes.contains { merge.rebased.contains(RowRef(table: $0.table.number, key: $0.key)) }
    if wasDisplaced != nil || isRebased { counts.merged += 1 } else { counts.kept += 1 }
    try record.request(range, state: wasDisplaced != nil || isRebased ? .merged : .kept, reason: nil, changes)
  }
}
