import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Makes rows anew after a base has changed or a request has left (semantics 2): decode, change, write, encode.
///
/// It holds the rows that have outstanding requests and were touched, and the few that something is in the way of; clean
/// rows are written as they come. What cannot stand is displaced, the youngest request in the way first, with what depends
/// on it.
final class Remaking {
  /// One row in work.
  struct Work {
    var table: CapturedTable
    var key: Key
    /// The row as the table has it now.
    var shown: SlotRow?
    var timeline: RowTimeline
    /// The steps as they were captured, for the archive.
    var captured: [Int64: RowTimeline.Step]
    /// The log entries must be written again.
    var isChanged = false
    /// The row was removed to be written again.
    var remains: RowWriter.Remains?
  }

  let context: StoreContext
  let index: LogIndex
  let touched: TouchedRows
  private let anySeen: Bool
  private(set) var rows: [RowRef: Work] = [:]
  /// Values have come under requests that no index of the log has.
  private var hasNewBases = false
  /// Bases that are going to be set: what depends on what is as they will have it.
  private var newBases: [RowRef: SlotRow?] = [:]
  /// What depends on what, asked when the first request is displaced.
  private var dependence: DependenceLookup?
  /// The requests displaced now.
  var displaced: [RequestRange] = []
  private var writers: [Int64: RowWriter] = [:]
  /// Rows that a constraint refused, in the order of their refusal.
  private var refused: [RowRef] = []
  private(set) var invalid: Set<RowRef> = []
  /// Of those refused: SQLite's words.
  private var refusals: [RowRef: String] = [:]
  /// Tables whose digest is forgotten.
  private var changedTables: Set<Int64> = []
  /// Sets the triggers for writes to a table.
  var prepareWrite: (CapturedTable) -> Void

  init(
    _ context: StoreContext, index: LogIndex, touched: TouchedRows,
    prepareWrite: @escaping (CapturedTable) -> Void = { _ in }
  ) throws {
    anySeen = try context.anySeen()
    self.context = context
    self.index = index
    self.touched = touched
    self.prepareWrite = prepareWrite
  }

  func writer(_ table: CapturedTable) throws -> RowWriter {
    if let writer = writers[table.number] { return writer }
    let writer = try RowWriter(table, context)
    writers[table.number] = writer
    return writer
  }

  // MARK: Bases

  @discardableResult
  func load(_ table: CapturedTable, _ key: Key) throws -> Work {
    let ref = RowRef(table: table.number, key: key)
    if let work = rows[ref] { return work }
    let timeline = try index.timeline(table, key)
    let work = Work(
      table: table, key: key, shown: timeline.current, timeline: timeline,
      captured: Dictionary(
        uniqueKeysWithValues: try timeline.steps.map { ($0.seq, anySeen ? try context.asCaptured($0) : $0) }))
    rows[ref] = work
    return work
  }

  /// Bases that are going to be set, one by one: requests displaced meanwhile take along what depends on them over all of
  /// these.
  func announce(_ bases: some Sequence<(RowRef, SlotRow?)>) {
    for (ref, base) in bases { newBases[ref] = .some(base) }
  }

  /// The row's base is now `base`; its requests are put upon it, and those that cannot are displaced.
  func setBase(_ table: CapturedTable, _ key: Key, _ base: SlotRow?) throws {
    try load(table, key)
    let ref = RowRef(table: table.number, key: key)
    newBases[ref] = .some(base)
    if changedTables.insert(table.number).inserted { try context.forgetDigest(of: table) }
    try dependence?.rowChanged(ref)
    while let step = rows[ref]?.timeline.rebase(on: base) {
      guard let counter = rows[ref]?.timeline.steps[step].seq else { break }
      try displace(counter)
    }
    newBases[ref] = nil
    rows[ref]?.isChanged = true
    if rows[ref]?.timeline.steps.isEmpty == false { hasNewBases = true }
  }

  /// The changes for which `isAccepted` holds are to become part of the row's base, and leave it: answers that base, which
  /// is to be set next.
  func takeAccepted(_ table: CapturedTable, _ key: Key, _ isAccepted: (Int64) -> Bool) throws -> SlotRow? {
    var work = try load(table, key)
    var base = RowTimeline(base: work.timeline.base, steps: work.timeline.steps.filter { isAccepted($0.seq) })
    _ = base.rebase(on: base.base)
    work.timeline.steps.removeAll { isAccepted($0.seq) }
    let ref = RowRef(table: table.number, key: key)
    try put(work, ref)
    announce([(ref, base.current)])
    return base.current
  }

  /// The row is in work as this.
  func put(_ work: Work, _ ref: RowRef) throws {
    rows[ref] = work
    rows[ref]?.isChanged = true
    try dependence?.rowChanged(ref)
  }

  func dependenceNow() throws -> DependenceLookup {
    if let dependence { return dependence }
    let made = try DependenceLookup(context, index, overlay: { [unowned self] in try self.announced($0, $1) })
    for ref in Set(rows.keys).union(newBases.keys) { try made.rowChanged(ref) }
    dependence = made
    return made
  }

  /// The row as it is in work, on the base that it will have, each step as it was captured; nil: the log has it.
  private func announced(_ table: CapturedTable, _ key: Key) throws -> RowTimeline? {
    let ref = RowRef(table: table.number, key: key)
    guard rows[ref] != nil || newBases[ref] != nil else { return nil }
    let work = try load(table, key)
    var timeline = work.timeline
    timeline.steps = timeline.steps.map { work.captured[$0.seq] ?? $0 }
    if let base = newBases[ref] { timeline.base = base }
    return timeline
  }

  func isPostponed(_ table: CapturedTable, _ key: Key) -> Bool {
    !rows.isEmpty && rows[RowRef(table: table.number, key: key)] != nil
  }

  /// A clean row that something was in the way of: `row` is written when it is gone.
  func postpone(_ table: CapturedTable, _ key: Key, _ row: SlotRow?) throws {
    let ref = RowRef(table: table.number, key: key)
    let shown = try context.currentRow(table, key)
    rows[ref] = Work(
      table: table, key: key, shown: shown, timeline: RowTimeline(base: row, steps: []), captured: [:])
  }

  // MARK: Steps

  /// Puts a step of a displaced request back; false where its row is not there to be updated.
  func putBack(_ step: RowTimeline.Step, _ table: CapturedTable, _ key: Key) throws -> Bool {
    try load(table, key)
    let ref = RowRef(table: table.number, key: key)
    guard var work = rows[ref] else { return false }
    let place = work.timeline.steps.firstIndex { $0.seq > step.seq } ?? work.timeline.steps.count
    work.timeline.steps.insert(step, at: place)
    work.captured[step.seq] = step
    guard work.timeline.rebase(on: work.timeline.base) == nil else { return false }
    try put(work, ref)
    return true
  }

  // MARK: Writing

  /// Writes every row that is not shown as it should be. Rows in the way of each other are removed first and written
  /// after. True: all stand; false: `refused` holds rows that something keeps out.
  private func writeRows() throws -> Bool {
    // In a fixed order, so that a history runs the same way twice.
    var waiting = rows.filter { $0.value.shown != $0.value.timeline.current }.keys
      .sorted { ($0.table, "\($0.key)") < ($1.table, "\($1.key)") }
    while !waiting.isEmpty {
      refused = []
      refusals = [:]
      invalid = []
      for ref in waiting { try write(ref) }
      if refused.count == waiting.count && !refused.contains(where: { rows[$0]?.shown != nil }) {
        return false
      }
      waiting = refused
    }
    return true
  }

  private func write(_ ref: RowRef) throws {
    guard var work = rows[ref] else { return }
    let writer = try writer(work.table)
    prepareWrite(work.table)
    var outcome: RowWriter.Outcome
    switch (work.shown, work.timeline.current) {
    case (nil, nil): return
    case (.some, nil):
      work.remains = try writer.remove(work.key)
      work.shown = nil
      try touched.removed(work.table, work.key)
      rows[ref] = work
      return
    case (nil, let row?): outcome = try writer.insert(row, work.remains)
    case (.some, let row?): outcome = try writer.update(row)
    }
    if outcome == .collides, let row = work.timeline.current, try makeRoom(for: row, work.table) {
      outcome = try work.shown == nil ? writer.insert(row, work.remains) : writer.update(row)
    }
    if outcome == .written {
      work.shown = work.timeline.current
      work.remains = nil
      try touched.written(work.table, work.key)
    } else {
      if work.shown != nil {
        work.remains = try writer.remove(work.key)
        work.shown = nil
        // It leaves its unique values free for others, and may come back elsewhere in this step.
        try touched.removed(work.table, work.key)
      }
      refused.append(ref)
      refusals[ref] = writer.refusal
      if outcome == .invalid { invalid.insert(ref) }
    }
    rows[ref] = work
  }

  /// Writes all rows in work, displacing what is in the way. Throws `inconsistent-download` where no request is.
  func write() throws {
    while try !writeRows() {
      var culprits: [Int64] = []
      var unsolvable: RowRef?
      for ref in refused {
        if let culprit = try culprit(ref) { culprits.append(culprit) } else { unsolvable = ref }
      }
      guard let youngest = culprits.max() else {
        let table = unsolvable.flatMap { rows[$0]?.table }
        throw Self.inconsistent(table?.name ?? "", unsolvable?.key, unsolvable.flatMap { refusals[$0] } ?? "")
      }
      try displace(youngest)
    }
  }

  /// A row of the server's that this device's table does not take.
  ///
  /// - Parameter what: the constraint in SQLite's words.
  static func inconsistent(_ table: String, _ key: Key?, _ what: String) -> SalvorError {
    let row = key.map { "the server's row [\($0.map { "\($0)" }.joined(separator: ", "))]" } ?? "a row of the server's"
    return SalvorError(
      .inconsistentDownload,
      "The table \(table) of this device does not take \(row): \(what). A constraint that the schema does not have is this device's own: take it out of the table (salvor capture pause and resume), or give it to the schema. Then sync again.",
      context: ["table": table])
  }

  private static func dangling(_ violation: ReferenceProof.Violation) -> SalvorError {
    func text(_ key: Key) -> String { "[\(key.map { "\($0)" }.joined(separator: ", "))]" }
    return SalvorError(
      .inconsistentDownload,
      "The server's row \(text(violation.key)) of \(violation.table.name) references \(text(violation.reference)) of \(violation.rule.parent), which did not come: the server does not have it, or a recovery or repair left it out. Mend it at the server (PRAGMA foreign_key_check there names such rows: another program wrote with foreign keys off), then sync again.",
      context: ["table": violation.table.name])
  }

  /// Writes rows and proves references until both hold, displacing what is in the way.
  ///
  /// - Parameter basesMayBreak: between an acknowledgement and the download that follows it the server may have kept
  ///   something else beside what it accepted; a reference that no request is to blame for is then left to the download.
  func stand(_ proof: ReferenceProof, basesMayBreak: Bool) throws {
    while true {
      try write()
      try removeDanglingMarked(proof)
      let violations = try proof.violations()
      guard let youngest = try violations.compactMap({ try culprit($0) }).max() else {
        if !basesMayBreak, let violation = violations.first {
          throw Self.dangling(violation)
        }
        return
      }
      try displace(youngest)
    }
  }

  /// Writes all rows without displacing anything; false where one cannot stand.
  func writeStrictly() throws -> Bool { try writeRows() }

  /// Rows are shown as they should be again, whatever a trigger did to them meanwhile.
  func rewriteShown() throws {
    for ref in rows.keys {
      guard let work = rows[ref] else { continue }
      rows[ref]?.shown = try context.currentRow(work.table, work.key)
    }
  }

  /// Rows whose base is put in place of what a trigger wrote.
  func restore(_ table: CapturedTable, _ key: Key, to row: SlotRow?) throws {
    let ref = RowRef(table: table.number, key: key)
    guard rows[ref] == nil else { return }
    let shown = try context.currentRow(table, key)
    rows[ref] = Work(
      table: table, key: key, shown: shown, timeline: RowTimeline(base: row, steps: []), captured: [:])
  }

  // MARK: Encoding

  /// Writes the log entries of the rows in work again. After all else, since writes may be captured until then.
  func encode() throws {
    if hasNewBases { try context.noteLogChange() }
    for work in rows.values where work.isChanged {
      if work.table.dirtyFlag != nil { try context.noteDirty(work.table, work.key) }
      for step in work.timeline.steps {
        if let captured = work.captured[step.seq] { try context.remember(captured, now: step) }
      }
      try context.writeLog(work.timeline.encode(work.table, key: work.key))
    }
  }
}
