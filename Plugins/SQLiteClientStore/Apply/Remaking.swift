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
  /// What depends on what among the outstanding requests; nil: there are too many to tell but by their rows.
  let dependence: OutstandingDependence?
  private let anySeen: Bool
  var rows: [RowRef: Work] = [:]
  /// First counters of the requests displaced now.
  private(set) var displaced: [RequestRange] = []
  private var isDisplaced: Set<Int64> = []
  private var writers: [Int64: RowWriter] = [:]
  /// Rows that a constraint refused, in the order of their refusal.
  private var refused: [RowRef] = []
  private var invalid: Set<RowRef> = []
  /// Sets the triggers for writes to a table.
  let prepareWrite: (CapturedTable) -> Void

  init(
    _ context: StoreContext, index: LogIndex, touched: TouchedRows, dependence: OutstandingDependence? = nil,
    prepareWrite: @escaping (CapturedTable) -> Void = { _ in }
  ) throws {
    self.dependence = dependence
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

  /// The row's base is now `base`; its requests are put upon it, and those that cannot are displaced.
  func setBase(_ table: CapturedTable, _ key: Key, _ base: SlotRow?) throws {
    try load(table, key)
    let ref = RowRef(table: table.number, key: key)
    while let step = rows[ref]?.timeline.rebase(on: base) {
      guard let counter = rows[ref]?.timeline.steps[step].seq else { break }
      try displace(counter)
    }
    rows[ref]?.isChanged = true
  }

  /// The changes for which `isAccepted` holds become part of the base, and their log rows go.
  func accept(_ table: CapturedTable, _ key: Key, _ isAccepted: (Int64) -> Bool) throws {
    let work = try load(table, key)
    var base = RowTimeline(base: work.timeline.base, steps: work.timeline.steps.filter { isAccepted($0.seq) })
    _ = base.rebase(on: base.base)
    for step in base.steps { try context.connection.run("DELETE FROM salvor_log WHERE seq = ?1", .integer(step.seq)) }
    let ref = RowRef(table: table.number, key: key)
    rows[ref]?.timeline.steps.removeAll { isAccepted($0.seq) }
    try setBase(table, key, base.current)
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

  // MARK: Displacing

  /// Takes the request of a change, and every later one on its rows, out of the rows and the log, into the archive.
  func displace(_ counter: Int64) throws {
    var waiting = [try context.range(of: counter)]
    while let range = waiting.popLast() {
      guard isDisplaced.insert(range.first).inserted else { continue }
      displaced.append(range)
      waiting += dependence?.dependents(of: range) ?? []
      for (table, key, first) in try changes(in: range) {
        let work = try load(table, key)
        for step in work.timeline.steps where step.seq >= first && !(range.first...range.last).contains(step.seq) {
          let next = try context.range(of: step.seq)
          if !isDisplaced.contains(next.first) { waiting.append(next) }
        }
      }
    }
    // Triggers may capture meanwhile, and take no counter that was given.
    let last = try context.connection.lastCounter()
    for range in displaced { try takeOut(range) }
    try context.keepCounter(last)
  }

  /// The rows that a request changes, each with its first counter there.
  func changes(in range: RequestRange) throws -> [(CapturedTable, Key, Int64)] {
    var found: [(CapturedTable, Key, Int64)] = []
    try context.connection.query(
      "SELECT \(context.catalog.logColumns) FROM salvor_log WHERE seq BETWEEN ?1 AND ?2 AND op IN \(StoreContext.changeOperations) ORDER BY seq",
      [.integer(range.first), .integer(range.last)]
    ) { row in
      let entry = try context.catalog.entry(from: row)
      guard let table = context.catalog.table(number: entry.table) else { return true }
      let key = entry.key(table)
      if !found.contains(where: { $0.0.number == table.number && $0.1 == key }) {
        found.append((table, key, entry.seq))
      }
      return true
    }
    return found
  }

  private func takeOut(_ range: RequestRange) throws {
    for (ref, work) in rows {
      let gone = work.timeline.steps.filter { (range.first...range.last).contains($0.seq) }
      guard !gone.isEmpty else { continue }
      for step in gone {
        try context.archive(
          work.captured[step.seq] ?? step, of: range, work.table, work.key, needs: dependence?.needs(of: range) ?? [])
        try context.connection.run("DELETE FROM salvor_log WHERE seq = ?1", .integer(step.seq))
      }
      var timeline = work.timeline
      timeline.steps.removeAll { (range.first...range.last).contains($0.seq) }
      _ = timeline.rebase(on: timeline.base)
      rows[ref]?.timeline = timeline
      rows[ref]?.isChanged = true
    }
    try context.closeArchive(of: range)
  }

  /// Puts a step of a displaced request back; false where its row is not there to be updated.
  func putBack(_ step: RowTimeline.Step, _ table: CapturedTable, _ key: Key) throws -> Bool {
    try load(table, key)
    let ref = RowRef(table: table.number, key: key)
    guard var work = rows[ref] else { return false }
    let place = work.timeline.steps.firstIndex { $0.seq > step.seq } ?? work.timeline.steps.count
    work.timeline.steps.insert(step, at: place)
    work.captured[step.seq] = step
    work.isChanged = true
    guard work.timeline.rebase(on: work.timeline.base) == nil else { return false }
    rows[ref] = work
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
    let outcome: RowWriter.Outcome
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
      if outcome == .invalid { invalid.insert(ref) }
    }
    rows[ref] = work
  }

  /// Writes all rows in work, displacing what is in the way. Throws `inconsistent-download` where no request is.
  func write() throws {
    while try !writeRows() {
      var culprits: [Int64] = []
      var unsolvable: CapturedTable?
      for ref in refused {
        if let culprit = try culprit(ref) { culprits.append(culprit) } else { unsolvable = rows[ref]?.table }
      }
      guard let youngest = culprits.max() else {
        throw Self.inconsistent(unsolvable?.name ?? "", "a unique or check constraint")
      }
      try displace(youngest)
    }
  }

  static func inconsistent(_ table: String, _ what: String) -> SalvorError {
    SalvorError(
      .inconsistentDownload,
      "What the server sent breaks \(what) of the table \(table). Discard what is staged and sync again.",
      context: ["table": table])
  }

  /// Writes rows and proves references until both hold, displacing what is in the way.
  ///
  /// - Parameter basesMayBreak: between an acknowledgement and the download that follows it the server may have kept
  ///   something else beside what it accepted; a reference that no request is to blame for is then left to the download.
  func stand(_ proof: ReferenceProof, basesMayBreak: Bool) throws {
    while true {
      try write()
      let violations = try proof.violations()
      guard let youngest = try violations.compactMap({ try culprit($0) }).max() else {
        if !basesMayBreak, let violation = violations.first {
          throw Self.inconsistent(violation.table.name, "a reference to \(violation.rule.parent)")
        }
        return
      }
      try displace(youngest)
    }
  }

  /// The last request that set the reference, else the one that deleted the parent.
  private func culprit(_ violation: ReferenceProof.Violation) throws -> Int64? {
    let names = Set(violation.rule.childColumns.map { $0.lowercased() })
    let slots = violation.table.columns.indices.filter { names.contains(violation.table.columns[$0].name.lowercased()) }
    let setter = try last(violation.table, violation.key) { step in
      switch step.change {
      case .insert: true
      case .update(let news): slots.contains { news[$0] != nil }
      case .delete: false
      }
    }
    if let setter { return setter }
    guard let parent = violation.rule.capturedParent, violation.rule.parentColumnsAreKey else { return nil }
    return try last(parent, violation.reference) { $0.change.operation == .delete }
  }

  /// The youngest request that keeps a row out: of its own requests, or of those of the row that is in its way.
  private func culprit(_ ref: RowRef) throws -> Int64? {
    guard let work = rows[ref], let row = work.timeline.current else { return nil }
    if invalid.contains(ref) { return work.timeline.steps.last { $0.change.operation != .delete }?.seq }
    var found: [Int64] = []
    for unique in work.table.uniques {
      let names = Set(unique.parts.map { $0.name.lowercased() })
      let slots = work.table.columns.indices.filter { names.contains(work.table.columns[$0].name.lowercased()) }
      if let own = lastSetting(slots, work.timeline) { found.append(own) }
      guard slots.count == unique.parts.count else { continue }
      for holder in try holders(of: row, unique, work.table) where holder != work.key {
        let other = try load(work.table, holder)
        if let theirs = lastSetting(slots, other.timeline) { found.append(theirs) }
      }
    }
    return found.max()
  }

  private func lastSetting(_ slots: [Int], _ timeline: RowTimeline) -> Int64? {
    timeline.steps.last { step in
      switch step.change {
      case .insert: true
      case .update(let news): slots.contains { news[$0] != nil }
      case .delete: false
      }
    }?.seq
  }

  /// The keys of the rows that have the unique values of `row`.
  private func holders(of row: SlotRow, _ unique: CapturedTable.Unique, _ table: CapturedTable) throws -> [Key] {
    let keys = (0..<table.keyCount).map(table.tableColumn).joined(separator: ", ")
    var values: [Value] = []
    var terms: [String] = []
    for part in unique.parts {
      guard let slot = table.columns.firstIndex(where: { $0.name.lowercased() == part.name.lowercased() }) else {
        return []
      }
      values.append(row[slot])
      terms.append("x.\(quoted(part.name)) COLLATE \(quoted(part.collation)) = ?\(values.count)")
    }
    return try context.connection.rows(
      "SELECT \(keys) FROM \(quoted(table.name)) x WHERE \(terms.joined(separator: " AND "))", values)
  }

  /// Writes all rows without displacing anything; false where one cannot stand.
  func writeStrictly() throws -> Bool { try writeRows() }

  /// The last change of a row that meets `isMeant`, to name a request in the way of a reference.
  func last(_ table: CapturedTable, _ key: Key, _ isMeant: (RowTimeline.Step) -> Bool) throws -> Int64? {
    try load(table, key).timeline.steps.last(where: isMeant)?.seq
  }

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
    let catalog = context.catalog
    let columns = catalog.logColumns
    let slots = (1...(3 + catalog.maskCount + catalog.valueCount)).map { "?\($0)" }.joined(separator: ", ")
    let insert = try context.connection.prepare("INSERT OR REPLACE INTO salvor_log (\(columns)) VALUES (\(slots))")
    for work in rows.values where work.isChanged {
      for step in work.timeline.steps {
        if let captured = work.captured[step.seq] { try context.remember(captured, now: step) }
      }
      for entry in work.timeline.encode(work.table, key: work.key) {
        insert.clearBindings()
        try insert.bind(1, entry.seq)
        try insert.bind(2, entry.table)
        try insert.bind(3, entry.operation.rawValue)
        for (place, word) in entry.mask.words.enumerated() { try insert.bind(4 + place, word) }
        try insert.bind(entry.values, from: 4 + catalog.maskCount)
        try insert.run()
      }
    }
  }
}
