import SQLiteSupport
import SalvorModel
import SalvorStorage

/// One recovery, in one transaction: what is staged becomes the bases, by the order's rules (semantics 9).
struct RecoveryRun {
  let context: StoreContext
  private(set) var order: RecoveryOrder
  let opening: Opening
  /// The database is a file that a backup can stand beside.
  let canKeepBackup: Bool

  private var connection: SQLiteConnection { context.connection }

  /// In a transaction, with foreign keys and triggers off. Staging is empty then.
  mutating func run() throws -> RecoveryReport {
    try UnprovenTables(context).takeMarks()
    try RequestSorting(context).sort()
    try context.forgetDigests()
    try rememberArchive()
    let aside = try connection.integer("SELECT max(id) FROM salvor_aside") ?? 0
    try context.setPrevious(order.previous)
    try context.takeBackUpload()
    order = try OfferedVersions(context: context).takeBack(for: order)
    try UndoneVersions(connection: connection).forgetStanding(order)
    let versions = try BaseVersions(context, order)
    let record = try RecoveryRecord(context)
    let offers = try Offers(context, order, versions)
    let merge = RecoveryMerge(context, order, versions, record, offers)
    // Tables that are made anew may have other names.
    let full = order.rebuild == .nothing ? try DownloadApply.fullTables(context) : nil
    let whole = wholeGroups(full ?? [])
    let deletes = try cut(whole)
    try beginEpoch()
    let rebuilding = order.rebuild == .nothing ? nil : Rebuilding(context, order, merge, opening)
    try context.namingTriggers { try rebuilding?.run() }
    // What was asked for by its key comes without a version. It was so at the commit from which the feed goes on, or the feed
    // says more of it: a server that goes back further is asked again.
    let fed = rebuilding == nil ? order.groups.filter { !whole.contains($0.name) }.map(atStart) : []
    let apply = try DownloadApply(context, full: full, ends: fed, recovery: merge)
    try apply.readStaged()
    let settlement = try context.settle(try apply.end(Set(order.groups.map(\.name))))
    let notices = try settlement.notices + LargeBlobs(context: context).takeNotices()
    try connection.note(notices, at: context.clock.now())
    try merge.finish(apply.stream, apply.rows)
    try apply.rows.touched.clear()
    try rebuilding?.finish()
    try context.forgetReturned(of: whole, upTo: deletes)
    try moveGroups(whole)
    return try finish(merge, record, aside, rebuilding == nil ? apply.rows.index : LogIndex(context))
  }

  private func finish(
    _ merge: RecoveryMerge, _ record: RecoveryRecord, _ aside: Int64, _ index: LogIndex
  ) throws -> RecoveryReport {
    try takeIdentity()
    merge.add(try RecoveredRequests(context, record, merge, index).run())
    merge.add(try merge.offers.recordDroppedValues(record))
    merge.add(try merge.offers.recordVersions(record))
    try record.aside(after: aside)
    let report = RecoveryReport(
      id: order.id, time: context.clock.now(), reason: order.reason, strategy: order.strategy, counts: merge.counts,
      backup: order.keepsBeforeImages && canKeepBackup ? order.id : order.copy, snapshots: Int64(context.files.count))
    try record.write(report)
    return report
  }

  /// The archive as it was, to tell what this recovery puts there.
  private func rememberArchive() throws {
    try connection.execute(
      """
      CREATE TABLE IF NOT EXISTS temp.salvor_archive_before (first INTEGER PRIMARY KEY, state TEXT);
      DELETE FROM temp.salvor_archive_before;
      INSERT OR IGNORE INTO temp.salvor_archive_before SELECT first, state FROM salvor_outstanding WHERE \(OutstandingTable.isArchived);
      """)
  }

  /// Groups whose tables were compared, came whole or are made anew: no row keeps a version of its own.
  private func wholeGroups(_ full: Set<Int64>) -> Set<String> {
    let started = Set(order.starts.filter { $0.commit != nil }.map(\.name))
    return Set(order.groups.map(\.name)).subtracting(order.rebuild == .nothing ? started : [])
      .union(full.map { context.group(of: $0) })
  }

  private func atStart(_ group: GroupState) -> GroupState {
    var group = group
    if let commit = order.starts.first(where: { $0.name == group.name })?.commit { group.cursor = commit }
    return group
  }

  /// Answers as `forgetVersions`.
  private func cut(_ whole: Set<String>) throws -> Int64 {
    if order.shared != nil || order.absence == .lost { try context.cutHistory(to: order.shared) }
    return try context.forgetVersions(of: whole, as: order.groups)
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
      if let cursor = group.cursor { try connection.rememberCommit(cursor, at: context.clock.now()) }
      try connection.setGroup(group, cameWhole: whole.contains(group.name))
    }
    try UnprovenTables(context).prove(context.tables(of: whole))
    try BlobStaging(context: context).finish()
    try connection.clearStaged()
    for name in [StateName.wentBack, .recoveryReason, .recoveryMessage] {
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
    try context.remember(order.incarnations)
  }
}
