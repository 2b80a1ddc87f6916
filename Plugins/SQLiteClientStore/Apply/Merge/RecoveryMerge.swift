import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The rules of a recovery, where a download has none: what becomes of requests whose bases change, and of rows that the
/// server has lost (semantics 9, *Merge rules*).
final class RecoveryMerge: RecoveryRules {
  let context: StoreContext
  let order: RecoveryOrder
  let versions: BaseVersions
  let record: RecoveryRecord
  let offers: Offers
  private(set) var watch: BaseWatch?
  /// Tables that were made anew, by name.
  var rebuilt: Set<String> = []
  /// First counters of requests that make a lost row again.
  private(set) var remade: Set<Int64> = []
  /// Counters of the inserts that a recovery made for the sake of other rows.
  private(set) var remadeParents: Set<Int64> = []
  /// The change makes a lost row again.
  func makesAgain(_ counter: Int64) -> Bool { remade.contains(counter) || remadeParents.contains(counter) }
  /// Rows with requests whose base is another one now.
  private(set) var rebased: Set<RowRef> = []
  private(set) var counts = RecoveryCounts()
  /// The highest counter given, to entries of the archive.
  private(set) var lastCounter: Int64 = 0
  private var rowsBefore: [Int64: Int64] = [:]
  private var offered: OfferedRows?

  private var connection: SQLiteConnection { context.connection }

  init(
    _ context: StoreContext, _ order: RecoveryOrder, _ versions: BaseVersions, _ record: RecoveryRecord,
    _ offers: Offers
  ) {
    self.offers = offers
    self.context = context
    self.order = order
    self.versions = versions
    self.record = record
  }

  // MARK: Before lines are read

  /// A table that is empty, and of which no deleted row is remembered, may be written without looking.
  func mayComeWhole(_ table: CapturedTable) -> Bool {
    order.rebuild != .nothing || !versions.tables.contains(table.number)
  }

  /// In place, and with the requests that wait: a row that they need stays until they are sent.
  var keepsRequests: Bool { order.rebuild == .nothing && order.discarded == nil }

  /// The newest commit that both sides have; nil: any that the device knows.
  var sharedMax: Int64? { order.shared ?? (order.absence == .lost ? 0 : nil) }

  func begin(_ rows: WorkingRows) throws {
    // What is made anew has nothing to watch.
    guard order.rebuild == .nothing else { return }
    if order.removedShareMax != nil {
      for table in context.catalog.tables {
        rowsBefore[table.number] = try connection.integer("SELECT count(*) FROM \(quoted(table.name))") ?? 0
      }
    }
    let watch = try BaseWatch(context, order, versions, rows.index)
    self.watch = watch
    offered = try OfferedRows(context, offers, versions, watch)
    if let discarded = order.discarded { try rows.discardAll(discarded.reason, discarded.message) }
  }

  // MARK: When all lines are read

  func takeBases(_ stream: DownloadStream, _ rows: WorkingRows) throws {
    guard let watch else { return }
    try replaceOlderOffers(stream, rows, watch)
    try keepFailed(stream, rows, watch)
    let changed = try changedBases(stream, rows, watch)
    try nameVersions(changed, rows)
    try takeOutIdle(changed, rows)
    // Which requests stay is known before lost rows are made again for their sake: one that a request makes again counts
    // as there until then.
    try rows.announce(
      try changed.filter { try $0.fate != .lost || !isMadeAgain($0, rows) }.map { ($0.ref, $0.new) })
    for change in changed where change.fate == .row {
      try rows.setBase(change.table, change.key, change.new)
      try forgetOfferedDeletes(change, rows)
    }
    for change in changed where change.fate == .deleted { try deletedWins(change, rows) }
    for change in changed where change.fate == .left { try rows.setBase(change.table, change.key, nil) }
    var plain: [Change] = []
    for change in changed where change.fate == .lost {
      let first = try rows.load(change.table, change.key).timeline.steps.first
      if first == nil, try watch.isHeld(change.table, change.key) {
        plain.append(change)
      } else {
        try takeLoss(change, first, rows, watch)
      }
    }
    try offered?.add(to: rows)
    try captureUnproven(rows, watch)
    if let offered { try makeParentsAgain(rows, watch, offered) }
    for change in plain where try watch.isHeld(change.table, change.key) {
      try rows.setBase(change.table, change.key, nil)
    }
    try watch.each("fate = \(BaseWatch.Fate.lost.rawValue)") { entry in
      // One in work, of which no request is left, is written with the others.
      if try !rows.index.mayContain(entry.table, entry.key) && !rows.isPostponed(entry.table, entry.key) {
        try stream.removeLost(entry.table, entry.key)
      }
    }
  }

  struct Change {
    var ref: RowRef
    var table: CapturedTable
    var key: Key
    var old: SlotRow?
    var new: SlotRow?
    var fate: BaseWatch.Fate
    /// It was changed here, and deleted in the end: nobody wants it made again.
    var endsWithDelete: Bool
  }

  /// The rows with requests, in a fixed order.
  static func inOrder(_ stream: DownloadStream) -> [(key: RowRef, value: (table: CapturedTable, row: SlotRow?))] {
    stream.bases.sorted { ($0.key.table, "\($0.key.key)") < ($1.key.table, "\($1.key.key)") }
  }

  /// Rows with requests, in a fixed order, whose base is another one now.
  private func changedBases(_ stream: DownloadStream, _ rows: WorkingRows, _ watch: BaseWatch) throws -> [Change] {
    var changed: [Change] = []
    for (ref, base) in Self.inOrder(stream) {
      let timeline = try rows.load(base.table, ref.key).timeline
      let old = timeline.base
      if old == base.row { continue }
      let fate = base.row != nil ? .row : try watch.fate(of: base.table, ref.key) ?? .left
      try watch.setWas(base.table, ref.key, old, fate)
      // It was deleted here too: nobody misses it, and what the server lost of it is no version beside that delete.
      if fate == .lost || fate == .deleted, timeline.steps.first?.change == .delete || timeline.endsWithDelete {
        try watch.settle(base.table, ref.key)
      }
      changed.append(
        Change(
          ref: ref, table: base.table, key: ref.key, old: old, new: base.row, fate: fate,
          endsWithDelete: timeline.endsWithDelete))
      rebased.insert(ref)
    }
    return changed
  }

  /// Rule 2: what was changed here and deleted on the server stays deleted; the change is in the archive.
  private func deletedWins(_ change: Change, _ rows: WorkingRows) throws {
    try rows.setBase(change.table, change.key, nil)
    while let lost = rows.rows[change.ref]?.timeline.lost {
      for range in try rows.displace(lost, .rowGone) {
        try context.keep(
          range, "row-deleted", "The row was deleted on the server. Reapply the change, or delete the entry.")
      }
    }
  }

  func isMadeAgain(_ change: Change, _ rows: WorkingRows) throws -> Bool {
    guard isWritable(change.table), !change.endsWithDelete,
      case .update? = try rows.load(change.table, change.key).timeline.steps.first?.change
    else { return false }
    return true
  }

  /// A lost row that requests change: an update makes it again, unless the row is deleted after it.
  private func takeLoss(
    _ change: Change, _ first: RowTimeline.Step?, _ rows: WorkingRows, _ watch: BaseWatch
  ) throws {
    if case .update? = first?.change, isWritable(change.table), !change.endsWithDelete {
      try watch.settle(change.table, change.key)
      let version = try offers.neededVersion(change.table, change.key)
      guard let made = try rows.makeAgain(change.table, change.key) else { return }
      remade.insert(made)
      guard let version, let first, case .update(let news) = first.change else { return }
      if try context.isOffer(RequestRange(first: first.seq, last: first.seq)) {
        // It stays of the version that it was of: the row beneath it came since, with another copy of the server.
        offers.keep(first.seq)
      } else {
        let written = news.keys.sorted()
        // Where nothing is offered by itself, whoever takes the change back takes the row along.
        let was = offers.offers(change.table) ? change.old.map { old in written.map { old[$0] } } ?? [] : []
        let isForReview = offers.mode(of: change.table) == .review
        try offers.mark(first.seq, version, written: written, was: was, isForReview: isForReview)
      }
    } else {
      try rows.setBase(change.table, change.key, nil)
    }
  }

  func isWritable(_ table: CapturedTable) -> Bool { context.table(table)?.maintained == .dual }

  /// The rows that requests reference, and that the server has lost with them.
  func makeParentsAgain(_ rows: WorkingRows, _ watch: BaseWatch, _ offered: OfferedRows) throws {
    remadeParents = try LostParents(context, offers, watch, offered).makeAgain(rows)
  }

  /// A row that was made while the triggers were away references a row that the server has lost. The server does not have it, so
  /// it is captured as what it is: an insert that waits, and that needs its parent.
  private func captureUnproven(_ rows: WorkingRows, _ watch: BaseWatch) throws {
    guard !versions.unproven.isEmpty else { return }
    let lost = try watch.lostTables()
    let parents = context.catalog.tables.filter { lost.contains($0.number) }
    for table in context.catalog.tables where versions.unproven.contains(table.number) {
      let isChild = context.references(of: table, to: parents).map { watch.isHeld($1, by: table.tableColumn($0)) }
      guard !isChild.isEmpty else { continue }
      let keys = table.keySlots.map(table.tableColumn).joined(separator: ", ")
      let isLogged = rows.index.contains(table) { table.tableColumn(table.keySlots[$0]) }
      for key in try connection.rows(
        "SELECT \(keys) FROM \(quoted(table.name)) x WHERE (\(isChild.joined(separator: " OR "))) AND NOT \(isLogged) ORDER BY \(keys)"
      )
      where try !watch.isHeld(table, key) && rows.load(table, key).timeline.steps.isEmpty {
        _ = try rows.makeAgainAlone(table, key)
      }
    }
  }

  // MARK: When all rows are written

  func finish(_ stream: DownloadStream, _ rows: WorkingRows) throws {
    guard let watch else {
      counts.upserts += stream.report.upserts
      return
    }
    try guardAgainstMassDeletion(rows)
    let (upserts, deletes) = try watch.counts()
    counts.upserts += upserts + stream.report.upserts - watch.lines
    counts.deletes += try deletes - (offered?.stayed ?? 0)
    lastCounter = try connection.lastCounter()
    let archive = LossArchive(context, record, offers, counter: lastCounter)
    for table in context.catalog.tables { try offered?.noteGone(table, rows) }
    let mass = offered?.mass ?? []
    var massDeletes: [Int64: (table: CapturedTable, keys: [Key])] = [:]
    try watch.each("was = 1 OR (was IS NULL AND fate = 0) OR fate = 4") { entry in
      if entry.fate == .gone { return try archive.gone(entry.table, entry.key) }
      let ref = RowRef(table: entry.table.number, key: entry.key)
      let base = try rows.rows[ref].map(\.timeline.base) ?? context.currentRow(entry.table, entry.key)
      // What left the scope is not lost. What was deleted since is, where this device wrote it: who deleted it need not have seen that.
      let mayBeLost = try entry.fate == .row || entry.fate == .lost || isOwnUnderDelete(entry, ref, rows)
      if let was = entry.was {
        if entry.fate == .left, !rebased.contains(ref), try versions.lost(entry.table, entry.key)?.isOwn == true {
          // What this device wrote is nowhere else, and it may not offer it any more.
          try archive.lost(entry.table, entry.key, was: was, base: nil, isOutOfScope: true)
        } else if try mayBeLost && versions.isLost(entry.table, entry.key) {
          try archive.lost(entry.table, entry.key, was: was, base: base)
        } else if versions.unproven.contains(entry.table.number) {
          try archive.unproven(entry.table, entry.key, was: was, base: base)
        }
      } else if let base, try versions.isLost(entry.table, entry.key), try versions.wasDeleted(entry.table, entry.key) {
        if mass.contains(entry.table.number) {
          massDeletes[entry.table.number, default: (entry.table, [])].keys.append(entry.key)
        } else {
          try archive.lost(entry.table, entry.key, was: nil, base: base)
        }
      }
    }
    for (table, keys) in massDeletes.sorted(by: { $0.key < $1.key }).map(\.value) {
      try archive.lostDeletes(table, keys)
    }
    counts.offered += offers.count
    counts.lost += archive.count
    counts.unoffered.merge(archive.unoffered) { $0 + $1 }
    lastCounter = archive.counter
    try context.keepCounter(lastCounter)
  }

  /// The server has deleted what this device wrote by a lost commit, and it is not offered. Where a request says what becomes of the row, that
  /// does.
  private func isOwnUnderDelete(_ entry: BaseWatch.Entry, _ ref: RowRef, _ rows: WorkingRows) throws -> Bool {
    guard entry.fate == .deleted, try versions.lost(entry.table, entry.key)?.isOwn == true,
      try offers.version(entry.table, entry.key) == nil
    else { return false }
    return try rows.rows[ref]?.timeline.steps.isEmpty ?? !rows.index.mayContain(entry.table, entry.key)
  }

  /// A client-only row whose own onDelete takes it with its parent. Its values are in what was kept before.
  func clientRowGoes(_ table: String, _ key: Key) throws {
    counts.givenUp += 1
    try record.givenUp(
      RecoveryItem(
        fate: .givenUp, request: nil, table: table, key: key, operation: nil, before: [], after: [],
        reason: "parent-gone"))
  }

  private func guardAgainstMassDeletion(_ rows: WorkingRows) throws {
    guard let share = order.removedShareMax else { return }
    var names: [String] = []
    for table in context.catalog.tables {
      let before = rowsBefore[table.number] ?? 0
      var gone = try rows.touched.goneCount(table)
      guard before >= RecoveryMerge.guardedRowsMin, Double(gone) > share * Double(before) else { continue }
      // What this device deletes, or offers to, was not there before: the recovery brings the server's row and takes it away again.
      try rows.touched.eachGone(table) { key in
        let timeline = try rows.rows[RowRef(table: table.number, key: key)]?.timeline ?? rows.index.timeline(table, key)
        if timeline.steps.last?.change.operation == .delete { gone -= 1 }
      }
      if Double(gone) > share * Double(before) { names.append(table.name) }
    }
    try Self.refuse(names)
  }

  /// Smaller tables may lose any share of their rows.
  static let guardedRowsMin: Int64 = 20

  static func refuse(_ tables: [String]) throws {
    guard !tables.isEmpty else { return }
    let names = tables.joined(separator: ", ")
    throw SalvorError(
      .massDeletion,
      "The recovery would remove most rows of \(names). Nothing was changed. Look at it, and recover by hand.",
      context: ["tables": names])
  }

  func noteDiscarded() { counts.discarded += 1 }
  func noteMerged() { counts.merged += 1 }

  func add(_ more: RecoveryCounts) {
    counts.kept += more.kept
    counts.merged += more.merged
    counts.discarded += more.discarded
    counts.displaced += more.displaced
    counts.lost += more.lost
    counts.offered += more.offered
    counts.givenUp += more.givenUp
    counts.unoffered.merge(more.unoffered) { $0 + $1 }
    counts.upserts += more.upserts
    counts.deletes += more.deletes
  }
}

extension RowTimeline {
  /// The row was changed, and deleted in the end.
  fileprivate var endsWithDelete: Bool {
    guard case .update? = steps.first?.change else { return false }
    return steps.last?.change == .delete
  }
}
