import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The rows that a settlement works on, in values: those whose base or requests change, and the few that are in their way.
/// Clean rows never come here. What the table shows (`shown`) follows what a row is to be (`timeline`) when it is written.
final class WorkingRows {
  typealias Work = WorkingRow

  let context: StoreContext
  let index: LogIndex
  let touched: TouchedRows
  let proof: ReferenceProof
  /// Captured tables with triggers of the application's that are to fire.
  let firing: Set<Int64>
  /// What was captured after it, triggers wrote; what the move itself adds aside.
  let counter: Int64
  /// The changes that the move added to the log, in order.
  private(set) var added: [ClosedRange<Int64>] = []
  /// The highest counter that the move gave.
  private(set) var given: Int64
  private(set) var rows: [RowRef: Work] = [:]
  /// Values have come under requests that no index of the log has.
  private var hasNewBases = false
  /// Bases that are going to be set: what depends on what is as they will have it.
  private var newBases: [RowRef: SlotRow?] = [:]
  /// What depends on what: of the requests that are shown, and with the displaced ones.
  private var dependence: DependenceLookup?
  private var returning: DependenceLookup?
  /// The requests displaced by this settlement, in the order in which they were, and those that returned.
  var displaced: [RequestRange] = []
  var returned: [RequestRange] = []
  /// Rows that went because no subscription covers them and nothing keeps them any more, or because they were left out.
  var swept: Set<RowRef> = []
  /// Rows of the server's that are not shown, because those that they reference did not come.
  var leftOut: [LeftOutRow] = []
  private var writers: [Int64: RowWriter] = [:]
  /// Rows that a trigger of the application's would not let go, and that went without triggers: SQLite's words.
  var forced: [RowRef: String] = [:]
  /// Rows of the server's that their tables refused last, and no request is to blame.
  var unwritable: [(ref: RowRef, cause: LeftOutRow.Cause)] = []
  /// By table: `StoreContext.unknownSlots`, which nothing changes while rows are in work.
  private var unknown: [Int64: Set<Int>] = [:]
  /// Tables whose digest is forgotten.
  private var changedTables: Set<Int64> = []
  /// The application's triggers fire where they are to.
  var firesTriggers = true
  /// Between an acknowledgement and the download that follows it.
  var basesMayBreak = false
  /// `Move.leavesOutdatedOut`.
  var leavesOutdatedOut = false
  /// Tables with rows that were left out by it.
  var outdated: Set<Int64> = []
  /// Where the rows in work stand in each other's way.
  let places: RowPlaces
  /// Rows that have changed since they were looked at.
  var unchecked: Set<RowRef> = []
  /// Rows whose references are looked at although they did not change.
  var doubted: Set<RowRef> = []
  var troubles: [RowRef: [Trouble]] = [:]
  /// Rows with a deleted mark that made room, or whose parent went, in this settlement.
  var markedOut: [RowRef: MarkedOut] = [:]

  /// Tables with rows that have a deleted mark.
  private lazy var marked = Result {
    try Set(
      context.catalog.tables.filter { table in
        try table.deletedFlag != nil
          && context.connection.integer("SELECT 1 FROM salvor_mark WHERE t = ?1 LIMIT 1", .integer(table.number)) != nil
      }.map(\.number))
  }

  /// In a transaction, with foreign keys and triggers off; requests are sorted.
  init(_ context: StoreContext, after counter: Int64? = nil) throws {
    self.context = context
    let counter = try counter ?? context.connection.lastCounter()
    self.counter = counter
    given = counter
    index = try LogIndex(context)
    touched = try TouchedRows(context)
    proof = try ReferenceProof(context, touched)
    places = RowPlaces(context, proof)
    let incomplete = IncompleteTables(context)
    touched.recordsWritten.formUnion(try incomplete.parents(of: incomplete.numbers()).union(incomplete.crowded()))
    touched.recordsRemoved.formUnion(try incomplete.crowded())
    firing = try context.firingTables()
    // What triggers write is told from what was downloaded.
    if !firing.isEmpty { touched.recordsWritten.formUnion(context.catalog.tables.map(\.number)) }
    touched.recordsParts = !firing.isEmpty
  }

  func writer(_ table: CapturedTable) throws -> RowWriter {
    if let writer = writers[table.number] { return writer }
    let writer = try RowWriter(table, context)
    writers[table.number] = writer
    return writer
  }

  /// Sets the triggers for writes to a table.
  func prepareWrite(_ table: CapturedTable) {
    let fires = firesTriggers && firing.contains(table.number)
    if context.connection.triggersEnabled != fires { context.connection.triggersEnabled = fires }
  }

  /// The slots of columns whose values nobody here knows.
  func unknownSlots(of table: CapturedTable) throws -> Set<Int> {
    if let known = unknown[table.number] { return known }
    let found = try context.unknownSlots(of: table)
    unknown[table.number] = found
    return found
  }

  // MARK: Bases

  /// A new base of the row is not written as it comes: requests change the row, or it has a mark.
  func comesIntoWork(_ table: CapturedTable, _ key: Key) throws -> Bool {
    if try index.mayContain(table, key) { return true }
    return try marked.get().contains(table.number) && context.isMarked(table, key)
  }

  func mayComeIntoWork(_ table: CapturedTable) throws -> Bool {
    try index.tables.contains(table.number) || marked.get().contains(table.number)
  }

  @discardableResult
  func load(_ table: CapturedTable, _ key: Key) throws -> Work {
    let ref = RowRef(table: table.number, key: key)
    if let work = rows[ref] { return work }
    let shown = try context.currentRow(table, key)
    let triggered = firing.isEmpty ? [] : try capturedByTriggers(table, key)
    var timeline = try context.timeline(table, key, shown, try index.entries(table, key) + triggered)
    if !triggered.isEmpty {
      timeline.steps.removeAll { step in triggered.contains { $0.seq == step.seq } }
      timeline.rebase(on: timeline.base)
    }
    let work = Work(table: table, key: key, shown: shown, timeline: timeline)
    rows[ref] = work
    places.put(work, ref)
    return work
  }

  /// What triggers wrote to a row while others were written.
  private func capturedByTriggers(_ table: CapturedTable, _ key: Key) throws -> [LogEntry] {
    let isRow = table.keySlots.map { "v\($0) IS ?\($0 + 3)" }.joined(separator: " AND ")
    var found: [LogEntry] = []
    try context.connection.query(
      "SELECT \(context.catalog.logColumns) FROM salvor_log WHERE seq > ?1 AND t = ?2 AND \(isRow) AND op IN \(StoreContext.changeOperations) ORDER BY seq",
      [.integer(counter), .integer(table.number)] + key
    ) { row in
      let entry = try context.catalog.entry(from: row)
      if !added.contains(where: { $0.contains(entry.seq) }), entry.key(table) == key { found.append(entry) }
      return true
    }
    return found
  }

  /// Bases that are going to be set, one by one: requests that leave meanwhile take along what depends on them over all of
  /// these.
  func announce(_ bases: some Sequence<(RowRef, SlotRow?)>) throws {
    for (ref, base) in bases {
      newBases[ref] = .some(base)
      try dependence?.rowChanged(ref)
    }
  }

  /// The row's base is now `base`, with its requests upon it.
  func setBase(_ table: CapturedTable, _ key: Key, _ base: SlotRow?) throws {
    var work = try load(table, key)
    let ref = RowRef(table: table.number, key: key)
    newBases[ref] = nil
    if changedTables.insert(table.number).inserted { try context.forgetDigest(of: table) }
    if work.timeline.steps.isEmpty == false { hasNewBases = true }
    work.timeline.rebase(on: base)
    try put(work, ref)
  }

  /// The changes for which `isAccepted` holds are to become part of the row's base, and leave it: answers that base, which
  /// is to be set next.
  func takeAccepted(_ table: CapturedTable, _ key: Key, _ isAccepted: (Int64) -> Bool) throws -> SlotRow? {
    var work = try load(table, key)
    var base = RowTimeline(base: work.timeline.base, steps: work.timeline.steps.filter { isAccepted($0.seq) })
    base.rebase(on: base.base)
    work.timeline.steps.removeAll { isAccepted($0.seq) }
    let ref = RowRef(table: table.number, key: key)
    try put(work, ref)
    try announce([(ref, base.current)])
    return base.current
  }

  /// The row is in work as this.
  func put(_ work: Work, _ ref: RowRef) throws {
    rows[ref] = work
    rows[ref]?.isChanged = true
    places.put(work, ref)
    unchecked.insert(ref)
    try dependence?.rowChanged(ref)
    try returning?.rowChanged(ref)
  }

  /// Changes that the move adds to the log, behind those that it has added before.
  func noteAdded(_ counters: ClosedRange<Int64>) {
    given = max(given, counters.upperBound)
    if let last = added.last, last.upperBound + 1 >= counters.lowerBound, last.lowerBound <= counters.lowerBound {
      added[added.count - 1] = last.lowerBound...max(last.upperBound, counters.upperBound)
    } else {
      added.append(counters)
    }
  }

  func isPostponed(_ table: CapturedTable, _ key: Key) -> Bool {
    !rows.isEmpty && rows[RowRef(table: table.number, key: key)] != nil
  }

  /// A clean row that something was in the way of: `row` is written when it is gone.
  func postpone(_ table: CapturedTable, _ key: Key, _ row: SlotRow?) throws {
    let ref = RowRef(table: table.number, key: key)
    let work = Work(
      table: table, key: key, shown: try context.currentRow(table, key),
      timeline: RowTimeline(base: row, steps: []))
    rows[ref] = work
    places.put(work, ref)
    unchecked.insert(ref)
  }

  // MARK: What depends on what

  /// Of the requests that are shown.
  func dependenceNow() throws -> DependenceLookup {
    if let dependence { return dependence }
    let made = try dependence(withDisplaced: false)
    dependence = made
    return made
  }

  /// With the displaced requests, each in its place. After the last one was displaced.
  func dependenceOfReturning() throws -> DependenceLookup {
    if let returning { return returning }
    let made = try dependence(withDisplaced: true)
    returning = made
    return made
  }

  private func dependence(withDisplaced: Bool) throws -> DependenceLookup {
    let made = try DependenceLookup(
      context, index, withDisplaced: withDisplaced, overlay: { [unowned self] in try self.announced($0, $1) })
    for ref in Set(rows.keys).union(newBases.keys) { try made.rowChanged(ref) }
    return made
  }

  /// The row as it is in work, on the base that it will have; nil: the log has it.
  private func announced(_ table: CapturedTable, _ key: Key) throws -> RowTimeline? {
    let ref = RowRef(table: table.number, key: key)
    guard rows[ref] != nil || newBases[ref] != nil else { return nil }
    let work = try load(table, key)
    var timeline = work.timeline
    if let base = newBases[ref] { timeline.base = base }
    return timeline
  }

  // MARK: Writing

  /// The requests to blame for rows that the tables refuse; what was written is taken back.
  private struct Refused: Error {
    var culprits: [Int64]
    /// Where no request is to blame.
    var unwritable: [(ref: RowRef, cause: LeftOutRow.Cause)] = []

    /// Those that their table does not take, whatever else is in it; nil: there are none.
    var ofRowsAlone: Refused? {
      let rows = unwritable.filter { if case .refused = $0.cause { true } else { false } }
      return rows.isEmpty ? nil : Refused(culprits: [], unwritable: rows)
    }
  }

  /// Writes every row that is not shown as it should be: all of them, or none.
  ///
  /// - Parameter isProven: looks at the tables as they are then; false takes it back.
  /// - Returns: nil: it is done. Otherwise nothing is: the changes to blame for rows that the tables refuse. Where none is, `unwritable`
  ///   has the rows, or it throws `inconsistent-download`.
  func written(isProven: () throws -> Bool = { true }) throws -> [Int64]? {
    let waiting = rows.filter { $0.value.shown != $0.value.timeline.current }.keys
    unwritable = []
    guard !waiting.isEmpty else { return try isProven() ? nil : [] }
    let before = rows, markedBefore = markedOut
    do {
      try context.connection.savepoint("salvor_write") {
        // In a fixed order, so that a history runs the same way twice.
        let failure = try unlessStuck { try write(Self.inOrder(waiting)) }
        // What a table does not take is in nobody's way: without triggers it would stand where one of them has refused it.
        if let refused = (failure as? Refused)?.ofRowsAlone { throw refused }
        if firesTriggers, try undoTriggers() {
          firesTriggers = false
          defer { firesTriggers = true }
          try write(Self.inOrder(rows.filter { $0.value.shown != $0.value.timeline.current }.keys))
        } else if let failure {
          throw failure
        }
        guard try isProven() else { throw Refused(culprits: []) }
      }
      return nil
    } catch let refused as Refused {
      // What came into work meanwhile was read from tables that are others again.
      for ref in rows.keys where before[ref] == nil { places.remove(ref) }
      rows = before
      markedOut = markedBefore
      unwritable = refused.unwritable
      return refused.culprits
    }
  }

  /// Answers why rows could not be written: what triggers wrote may be in their way.
  private func unlessStuck(_ body: () throws -> Void) throws -> (any Error)? {
    do {
      try body()
      return nil
    } catch let refused as Refused {
      return refused
    } catch let error as SalvorError where error.sqliteCode == nil {
      return error
    }
  }

  private static func inOrder(_ refs: some Sequence<RowRef>) -> [RowRef] {
    refs.map { ($0, "\($0.key)") }.sorted { ($0.0.table, $0.1) < ($1.0.table, $1.1) }.map(\.0)
  }

  /// Rows in the way of each other are removed first and written after.
  private func write(_ refs: [RowRef]) throws {
    var waiting = refs
    while !waiting.isEmpty {
      var refused: [RowRef] = []
      var refusals: [RowRef: (outcome: RowWriter.Outcome, words: String)] = [:]
      var isProgress = false
      for ref in waiting {
        let wasShown = rows[ref]?.shown != nil
        guard let refusal = try write(ref) else { continue }
        refused.append(ref)
        refusals[ref] = refusal
        if wasShown { isProgress = true }
      }
      if refused.count == waiting.count, !isProgress {
        var culprits: [Int64] = []
        for ref in refused { if let culprit = try culprit(ref, refusals[ref]?.outcome) { culprits.append(culprit) } }
        guard !culprits.isEmpty else {
          let unwritable = try unwritable(of: refused.map { ($0, refusals[$0]) })
          if !unwritable.isEmpty { throw Refused(culprits: [], unwritable: unwritable) }
          let ref = refused[refused.count - 1]
          let words = refusals[ref]?.words ?? ""
          throw basesMayBreak
            ? Self.outdated(rows[ref]?.table.name ?? "", ref.key, words)
            : Self.inconsistent(rows[ref]?.table.name ?? "", ref.key, words)
        }
        throw Refused(culprits: culprits)
      }
      waiting = refused
    }
  }

  /// Of refused rows those that the tables do not take, or that others of the server's are in the way of: not before the download has said
  /// what those are now. In a fixed order.
  private func unwritable(of refused: [(ref: RowRef, refusal: (outcome: RowWriter.Outcome, words: String)?)]) throws
    -> [(ref: RowRef, cause: LeftOutRow.Cause)]
  {
    try refused.compactMap { ref, refusal in
      guard let refusal, let work = rows[ref], work.timeline.base != nil, let row = work.timeline.current else {
        return nil
      }
      if refusal.outcome == .invalid {
        let triggers = context.triggersThatFire(on: work.table.name)
        return (ref, .refused(constraint: refusal.words, triggers: triggers))
      }
      if basesMayBreak, !leavesOutdatedOut { return nil }
      var holder: Key?
      for unique in work.table.uniques where holder == nil {
        holder = try holders(of: row, unique, work.table).first { $0 != ref.key }
      }
      return (ref, .collides(with: holder.map { RowPlace(table: work.table.name, key: $0) }, constraint: refusal.words))
    }
  }

  /// Nil: the row is written, or removed.
  private func write(_ ref: RowRef) throws -> (outcome: RowWriter.Outcome, words: String)? {
    guard var work = rows[ref] else { return nil }
    let writer = try writer(work.table)
    prepareWrite(work.table)
    var outcome: RowWriter.Outcome
    switch (work.shown, work.timeline.current) {
    case (nil, nil): return nil
    case (.some, nil):
      work.remains = try writer.remove(work.key)
      work.shown = nil
      try touched.removed(work.table, work.key)
      rows[ref] = work
      return nil
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
    } else if work.shown != nil {
      work.remains = try writer.remove(work.key)
      work.shown = nil
      // It leaves its unique values free for others, and may come back elsewhere in this step.
      try touched.removed(work.table, work.key)
    }
    rows[ref] = work
    return outcome == .written ? nil : (outcome, writer.refusal)
  }

  /// Rows of the server's that are not there any more although a trigger of the application's refused it.
  func forcedDeletes() throws -> [ForcedDelete] {
    var words = forced
    for (number, writer) in writers {
      for (key, refusal) in writer.forced { words[RowRef(table: number, key: key)] = refusal }
    }
    return try words.compactMap { ref, words in
      guard let table = context.catalog.table(number: ref.table), try context.currentRow(table, ref.key) == nil else {
        return nil
      }
      return ForcedDelete(
        row: RowPlace(table: table.name, key: ref.key), words: words,
        triggers: context.triggersThatFire(on: table.name))
    }
  }

  /// What the tables show of the rows in work, whatever a trigger did to them meanwhile.
  func readShown() throws {
    for ref in rows.keys {
      guard let work = rows[ref] else { continue }
      rows[ref]?.shown = try context.currentRow(work.table, work.key)
    }
  }

  // MARK: Encoding

  /// Stores what the log does not say of the rows in work. After all else, since writes may be captured until then.
  func encode() throws {
    if hasNewBases { try context.noteLogChange() }
    for work in rows.values where work.isChanged { try encode(work) }
  }

  func encode(_ work: Work) throws {
    if work.table.dirtyFlag != nil { try context.noteDirty(work.table, work.key) }
    try context.store(work.timeline, work.table, work.key)
  }
}
