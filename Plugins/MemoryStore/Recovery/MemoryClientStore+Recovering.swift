import SalvorModel
import SalvorStorage
import SalvorWire

/// Recovery of a device's database (semantics 9).
extension MemoryClientStore: RecoveringClientStore {
  /// Empty: the database has no file.
  public nonisolated var location: String { "" }

  // MARK: What differs

  /// Groups that were never synchronized are left out. `commit` is nil where the whole group must be compared.
  public func recoveryStarts(shared: Commit?, trimmed: Int64) throws -> [GroupStart] {
    let state = try read()
    return state.schema.groups.compactMap { group in
      guard let known = state.groups[group.name], let cursor = known.cursor else { return nil }
      guard let shared else { return GroupStart(name: group.name, commit: nil) }
      let isRewound = cursor.number > shared.number
      let start = isRewound ? shared : cursor
      let isKept = start.number >= trimmed
      // Rows of a group that came whole carry no commit: which of them are newer than the shared one is not known.
      let isKnown = !known.hasMovedTables && (!isRewound || (state.wholeSince[group.name] ?? 0) <= shared.number)
      return GroupStart(name: group.name, commit: isKept && isKnown ? start : nil)
    }
  }

  /// Nil where no row has changed after `place`.
  public func changedKeys(after starts: [GroupStart], place: Int64, limit: Int) throws -> (
    queries: [RowQuery], place: Int64
  )? {
    let state = try read()
    var queries: [RowQuery] = []
    var next = place
    var count = 0
    for (index, change) in state.baseChanges.enumerated() where Int64(index) >= place && count < limit {
      next = Int64(index) + 1
      guard let group = state.schema.table(change.row.table)?.group,
        let start = starts.first(where: { $0.name == group })?.commit, change.version > start.number,
        !state.baseChanges[..<index].contains(where: { $0.row == change.row && $0.version > start.number })
      else { continue }
      count += 1
      if let known = queries.firstIndex(where: { $0.table == change.row.table }) {
        queries[known].keys.append(change.row.key)
      } else {
        queries.append(RowQuery(table: change.row.table, keys: [change.row.key]))
      }
    }
    return queries.isEmpty ? nil : (queries, next)
  }

  /// Tables of these groups that download by key sets or of which rows were left out, where the group was synchronized before; the
  /// latter have `isFed` set.
  public func tablesToCompare(groups: Set<String>) throws -> [TableDigest] {
    let state = try read()
    let lacking = state.current == nil ? state.toCompare : []
    return try state.schema.synchronized.filter { table in
      (table.download == .keySet || lacking.contains(table.name)) && groups.contains(table.group)
        && state.groups[table.group]?.cursor != nil
    }.map { table in
      var digest = try digest(of: table.name)
      digest.isFed = lacking.contains(table.name)
      return digest
    }
  }

  /// Over the bases as the server has them, without what the device has changed. Errors: `usage` where the schema has
  /// no such table.
  public func digest(of name: String) throws -> TableDigest {
    let state = try read()
    guard let table = state.schema.table(name) else {
      throw SalvorError(.usage, "The schema has no table \(name).", context: ["table": name])
    }
    let compared = state.comparedBases
    let keys = compared.sortedKeys(of: name)
    let sum = keys.reduce(UInt64(0)) { $0 &+ RowDigest(table.travelling(compared.rows(of: name)[$1] ?? [])).value }
    return TableDigest(table: name, count: Int64(keys.count), digest: RowDigest.text(sum))
  }

  /// Errors: `inconsistent-download` where the page compares columns that the table does not have here.
  public func differences(from page: RangePage, after: Key?, of table: String) throws -> [RowQuery] {
    let state = try read()
    guard let definition = state.schema.table(table), definition.maintained != .client,
      page.columns.allSatisfy({ definition.columnIndex($0) != nil })
    else {
      throw SalvorError(
        .inconsistentDownload,
        "The server compares columns that \(table) does not have here. Adopt the SyncConfig first."
      )
    }
    var queries: [RowQuery] = []
    var start = after
    let compared = state.comparedBases
    for range in page.ranges {
      let bounds = RowQuery.Range(after: start, last: range.last)
      let keys = compared.sortedKeys(of: table).filter { bounds.contains($0) }
      let digests = keys.map { key in
        RowDigest(page.columns.map { definition.value($0, of: compared[RowName(table: table, key: key)] ?? []) })
      }
      let sum = digests.reduce(UInt64(0)) { $0 &+ $1.value }
      if Int64(keys.count) != range.count || RowDigest.text(sum) != range.digest {
        queries.append(RowQuery(table: table, range: bounds, keys: keys, digests: digests.map(\.text)))
      }
      start = range.last
    }
    return queries
  }

  // MARK: Recovering

  /// An order that was carried out before returns its report of then, and changes nothing.
  public func recover(_ order: RecoveryOrder) throws -> RecoveryReport {
    var state = try read()
    if let done = state.recoveries.first(where: { $0.report.id == order.id }) { return done.report }
    let before = state
    let payloads = state.staged.map(\.bytes)
    let recovery = try recovered(state, order, filePayloads(order, payloads, state) + payloads)
    let report = report(of: recovery)
    state = recovery.content
    state.recoveries.insert((report, recovery.items), at: 0)
    writeIdentity(&state)
    if !files.isEmpty { closeSnapshots(removing: true) }
    if let id = report.backup {
      let changed = recovery.content.view.differences(from: before.view)
      keep(
        before, id: id, .beforeImages, reason: order.reason.rawValue,
        bytes: changed.reduce(0) { $0 + byteCount(before.view[$1] ?? []) })
    }
    return report
  }

  public func keepForRehearsal(_ payload: [UInt8]) throws {
    var state = try read()
    database.besides.rehearsal.append(try state.taken(of: payload, bytesMax: Int64(limits.blobBytesMax)))
  }

  public func forgetRehearsal() { database.besides.rehearsal = [] }

  /// Changes nothing but the payloads kept for the rehearsal, which are gone afterwards.
  public func rehearse(_ order: RecoveryOrder) throws -> RecoveryReport {
    var state = try read()
    state.rehearses = true
    let payloads = database.besides.rehearsal
    database.besides.rehearsal = []
    if let done = state.recoveries.first(where: { $0.report.id == order.id }) { return done.report }
    // A recovery follows a session that has begun: what that joins is one request here, too.
    if state.current == nil {
      _ = state.splitOpenGroup()
      state.offerWithheld()
      let budget = UploadBudget(bytesMin: limits.blobReferenceBytesMin, room: UploadRoom())
      _ = try state.chooseOutgoing(nil, budget, try constraints(state))
      state.takeUploadBack()
    }
    return report(of: try recovered(state, order, filePayloads(order, payloads, state) + payloads))
  }

  /// Rows of this table with changes that are not settled; each row counts once.
  public func dirtyRows(of table: String) throws -> Int64 {
    Int64(Set(try read().outstanding.flatMap(\.rows)).count { $0.table == table })
  }

  /// Compares what was kept for the rehearsal with the bases; what was kept is gone afterwards. With an order, repairs
  /// the rows that differ and have no unsettled change. Errors: `inconsistent-download` where a table's scope has
  /// changed meanwhile.
  public func examine(repairing order: RecoveryOrder?) throws -> Examination {
    var state = try read()
    let arrivals = try state.arrivals(in: database.besides.rehearsal)
    database.besides.rehearsal = []
    let notices = state.leftOutBlobs?.notices ?? []
    state.leftOutBlobs?.notices = []
    guard arrivals.full.isEmpty else {
      throw SalvorError(
        .inconsistentDownload,
        "The scope of \(arrivals.full.sorted().joined(separator: ", ")) has changed meanwhile. Synchronize, and verify again."
      )
    }
    let changed = Set(arrivals.versions.map(\.row))
    let dirty = Set(state.outstanding.flatMap(\.rows))
    var examination = Examination(differences: [])
    examination.notices = notices
    for table in state.schema.synchronized {
      for name in Set(arrivals.unversioned).sorted(by: { keyPrecedes($0.key, $1.key) })
      where name.table == table.name && !changed.contains(name) {
        let difference = RowDifference(
          table: table, key: name.key, here: state.bases[name].map { table.travelling($0) },
          there: arrivals.rows[name].map { table.travelling($0) }, isDirty: dirty.contains(name))
        if let difference { examination.differences.append(difference) }
      }
    }
    guard let order, examination.differences.contains(where: { !$0.isDirty }) else { return examination }
    var writer = DownloadChunkWriter()
    for difference in examination.differences where !difference.isDirty {
      guard let table = state.schema.table(difference.table) else { continue }
      let row = arrivals.rows[RowName(table: table.name, key: difference.key)]
      writer.table(table.name, columns: table.travelling.map(\.name))
      if row == nil { writer.beginKey(.lost, version: nil) } else { writer.beginRow(version: nil) }
      for value in row.map({ table.travelling($0) }) ?? difference.key { writer.value(value) }
      writer.endRow()
    }
    state.staged = [StagedChunk(download: order.id, bytes: writer.finish(), position: "")]
    state.stagedDownload = order.id
    database.state = state
    examination.repair = try recover(order)
    let after = try read().bases
    examination.leftOut = examination.differences.filter { difference in
      guard let table = state.schema.table(difference.table), !difference.isDirty else { return false }
      let name = RowName(table: table.name, key: difference.key)
      return after[name].map { table.travelling($0) } != arrivals.rows[name].map { table.travelling($0) }
    }
    return examination
  }

  /// How many rows of synchronized tables have no base: the server does not have them, as far as this device knows.
  public func rowsMadeHere() throws -> Int64 {
    let state = try read()
    return state.schema.synchronized.reduce(0) { sum, table in
      sum
        + Int64(state.view.rows(of: table.name).keys.count { state.bases[RowName(table: table.name, key: $0)] == nil })
    }
  }

  private func recovered(
    _ state: ClientContent, _ order: RecoveryOrder, _ payloads: [[UInt8]]
  ) throws -> ClientRecovery {
    var recovery = ClientRecovery(order, on: state, stamp: RequestStamp(from: random))
    try recovery.run(payloads)
    return recovery
  }

  private func report(of recovery: ClientRecovery) -> RecoveryReport {
    RecoveryReport(
      id: recovery.order.id, time: clock.now(), reason: recovery.order.reason, strategy: recovery.order.strategy,
      counts: recovery.counts, backup: recovery.order.keepsBeforeImages ? recovery.order.id : recovery.order.copy)
  }

  /// Newest first.
  public func recoveries(limit: Int) throws -> [RecoveryReport] {
    try read().recoveries.prefix(limit).map(\.report)
  }

  /// The items after the first `place` of them, at most `limit`. Empty where no recovery has this ID.
  public func recoveryItems(_ id: String, after place: Int64, limit: Int) throws -> [RecoveryItem] {
    guard let items = try read().recoveries.first(where: { $0.report.id == id })?.items else { return [] }
    return Array(items.dropFirst(Int(clamping: place)).prefix(limit))
  }

  // MARK: Journal and backups

  /// Nil: no recovery is under way.
  public func journal() -> [UInt8]? { database.besides.journal }

  /// Nil: the recovery has ended.
  public func setJournal(_ bytes: [UInt8]?) { database.besides.journal = bytes }

  /// A copy in memory, with `bytes` the sum of the values' lengths. A backup of the same ID is replaced.
  public func makeCopy(id: String, reason: String) throws -> Backup {
    let state = try read()
    var bytes: Int64 = 0
    for table in state.schema.tables {
      for row in state.view.rows(of: table.name).values { bytes += byteCount(row) }
    }
    return keep(state, id: id, .copy, reason: reason, bytes: bytes)
  }

  @discardableResult
  private func keep(
    _ content: ClientContent?, id: String, _ kind: Backup.Content, reason: String, bytes: Int64
  ) -> Backup {
    let backup = Backup(id: id, time: clock.now(), content: kind, reason: reason, bytes: bytes, path: "")
    var beside = database.besides
    beside.backups.removeAll { $0.backup.id == id }
    beside.backups.insert((backup, content), at: 0)
    database.besides = beside
    return backup
  }

  private func byteCount(_ row: Row) -> Int64 {
    row.reduce(0) { sum, value in
      switch value {
      case .null: sum
      case .integer, .real: sum + 8
      case .text(let bytes), .blob(let bytes): sum + Int64(bytes.count)
      }
    }
  }

  /// Closes the store and leaves an empty database. A damaged database gives a backup that cannot be restored.
  public func setAside(id: String, reason: String) -> Backup {
    isOpen = false
    let content = database.state
    database.state = nil
    database.isDamaged = false
    return keep(content, id: id, .copy, reason: reason, bytes: 0)
  }

  /// Nobody can read its database any more.
  public nonisolated func damage() { database.damage() }

  /// Newest first.
  public func backups() -> [Backup] { database.besides.backups.map(\.backup) }

  /// False where no backup has this ID.
  public func deleteBackup(_ id: String) -> Bool {
    let isThere = database.besides.backups.contains { $0.backup.id == id }
    database.besides.backups.removeAll { $0.backup.id == id }
    return isThere
  }

  /// Copies the content, and puts the backup's in its place; a download that was under way is forgotten. Errors: `not-found` where no
  /// backup has this ID, `storage-corrupt` where the backup is a damaged database. A damaged database is set aside in the copy's place.
  public func restoreBackup(_ id: String, copyID: String) throws -> Backup? {
    if !database.isDamaged { _ = try read() }
    guard let backup = database.besides.backups.first(where: { $0.backup.id == id }) else {
      throw SalvorError(.notFound, "There is no backup with this ID. List the backups.")
    }
    guard var content = backup.content else {
      throw SalvorError(.storageCorrupt, "The backup is a damaged database that was set aside. Take another one.")
    }
    let before =
      database.isDamaged
      ? setAside(id: copyID, reason: "damaged, before backups restore \(id)")
      : try makeCopy(id: copyID, reason: "before backups restore \(id)")
    content.staged = []
    content.stagedDownload = nil
    database.state = content
    return before
  }
}

extension RowQuery.Range {
  func contains(_ key: Key) -> Bool {
    (after.map { keyPrecedes($0, key) } ?? true) && (last.map { !keyPrecedes($0, key) } ?? true)
  }
}
