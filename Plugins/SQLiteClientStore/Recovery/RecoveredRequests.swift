import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// What became of each request, when a recovery is through: a line of the report for each of its changes.
final class RecoveredRequests {
  private let context: StoreContext
  private let record: RecoveryRecord
  private let merge: RecoveryMerge
  private let index: LogIndex
  /// First counters of requests in error, and of those that were displaced before.
  private let inError: Set<Int64>
  private let wereDisplaced: Set<Int64>
  private var names: RequestNames
  private var layouts: [Int64: Layout] = [:]
  private var timelines: [RowRef: [Int64: RowTimeline.Step]] = [:]
  private let rowsCachedMax = 1000
  /// A row has more than one change in the log; nil: not looked.
  private var anyRepeats: Bool?
  private var afters: [AfterKey: After] = [:]
  private var counts = RecoveryCounts()

  /// - Parameter index: of the log, with what the recovery has added.
  init(_ context: StoreContext, _ record: RecoveryRecord, _ merge: RecoveryMerge, _ index: LogIndex) throws {
    self.context = context
    self.record = record
    self.merge = merge
    self.index = index
    names = try RequestNames(context)
    inError = Set(try context.failedRequests().map(\.first))
    let displaced = "SELECT first FROM temp.salvor_archive_before WHERE state = 'displaced'"
    wereDisplaced = Set(try context.connection.rows(displaced).compactMap { $0[0].integer })
  }

  func run() throws -> RecoveryCounts {
    try recordArchived()
    try recordQueue()
    return counts
  }

  private func recordArchived() throws {
    let isNew =
      "reason IS NOT 'lost-on-server' AND NOT EXISTS (SELECT 1 FROM temp.salvor_archive_before b WHERE b.first = r.request AND b.state = r.state)"
    var last: Int64?
    for change in try context.archived(where: isNew, []) {
      if change.range.first != last {
        if change.request.state == .displaced { counts.displaced += 1 } else { counts.discarded += 1 }
      }
      last = change.range.first
      // The server has lost it, and does not get it now.
      if change.request.state == .displaced, merge.offers.isOffer(change.step.seq) {
        counts.lost += 1
        counts.offered -= 1
      }
      try record.archived(change)
    }
  }

  /// The log in order, one request at a time.
  private func recordQueue() throws {
    let catalog = context.catalog
    var ranges = try RangeCursor(context, after: 0)
    var request: (range: RequestRange, changes: [OutstandingRequest.Change])?
    try context.connection.query(
      "SELECT \(catalog.logColumns) FROM salvor_log WHERE op IN \(StoreContext.changeOperations) ORDER BY seq"
    ) { row in
      let seq = row.int64(0)
      let known = try ranges.range(of: seq)
      if try known == nil && recordPlainly(row, seq) { return true }
      let entry = try catalog.entry(from: row)
      guard let table = catalog.table(number: entry.table) else { return true }
      let range = known ?? RequestRange(first: seq, last: seq)
      if let done = request, done.range.first != range.first {
        try record(done.range, done.changes)
        request = nil
      }
      guard let step = try step(entry, table) else { return true }
      let change = OutstandingRequest.Change(table: table, key: entry.key(table), step: step)
      request = (range, (request?.changes ?? []) + [change])
      return true
    }
    if let request { try record(request.range, request.changes) }
  }

  private func step(_ entry: LogEntry, _ table: CapturedTable) throws -> RowTimeline.Step? {
    let key = entry.key(table)
    let ref = RowRef(table: table.number, key: key)
    if timelines[ref]?[entry.seq] == nil {
      if timelines.count >= rowsCachedMax { timelines = [:] }
      timelines[ref] = Dictionary(
        uniqueKeysWithValues: try index.timeline(table, key).steps.map { ($0.seq, $0.asCaptured) })
    }
    return timelines[ref]?[entry.seq]
  }

  private func record(_ range: RequestRange, _ changes: [OutstandingRequest.Change]) throws {
    let remade = Int64(changes.count { merge.makesAgain($0.step.seq) })
    counts.lost += remade
    // In place they were taken for rows that go.
    if merge.watch != nil { counts.deletes -= remade }
    if merge.remadeParents.contains(range.first) {
      return try record.request(range, state: .remade, reason: "lost-on-server", changes)
    }
    if merge.remade.contains(range.first) {
      counts.merged += 1
      return try record.request(range, state: .remade, reason: nil, changes)
    }
    if merge.offers.isOffer(range.first) {
      if remade == 0 { counts.lost += 1 }
      return try record.request(range, state: .offered, reason: "lost-on-server", changes)
    }
    if inError.contains(range.first) { return }
    let isRebased = changes.contains { merge.rebased.contains(RowRef(table: $0.table.number, key: $0.key)) }
    let isMerged = isRebased || wereDisplaced.contains(range.first)
    if isMerged { counts.merged += 1 } else { counts.kept += 1 }
    try record.request(range, state: isMerged ? .merged : .kept, reason: nil, changes)
  }

  // MARK: From the log into the line

  /// How the lines of one table begin, and what its columns are called in them.
  private struct Layout {
    var table: CapturedTable
    /// `"name":`, by slot.
    var labels: [[UInt8]]
    var tableName: [UInt8]
  }

  private struct AfterKey: Hashable {
    var table: Int64
    /// Nil: all columns.
    var mask: LogMask?
  }

  /// Selects the columns that a change has written, from the row as it is now.
  private struct After {
    var slots: [Int]
    var current: SQLiteStatement
  }

  private func after(_ table: CapturedTable, _ mask: LogMask?) throws -> After {
    let key = AfterKey(table: table.number, mask: mask)
    if let known = afters[key] { return known }
    let slots = mask?.slots(below: table.columns.count) ?? Array(table.columns.indices)
    // What a change wrote may be a column that is dropped.
    let query = context.rowQuery(table, slots: slots.isEmpty ? [0] : slots)
    let made = After(slots: slots, current: try context.connection.prepare(query, persistent: true))
    if afters.count >= rowsCachedMax { afters = [:] }
    afters[key] = made
    return made
  }

  private func isAlone(_ table: CapturedTable, _ row: SQLiteStatement, firstKey: Int) throws -> Bool {
    let repeats = try anyRepeats ?? index.hasRepeatedRow()
    anyRepeats = repeats
    return try !repeats || index.isAlone(table, row, firstKey: firstKey)
  }

  private func layout(_ number: Int64) throws -> Layout? {
    if let known = layouts[number] { return known }
    guard let table = context.catalog.table(number: number) else { return nil }
    let made = Layout(
      table: table, labels: table.columns.map { jsonText($0.name) + [UInt8(ascii: ":")] },
      tableName: jsonText(table.name))
    layouts[number] = made
    return made
  }

  /// A request of one change, the only one of its row, that stays as it was: the usual case by far, whose values go from
  /// where SQLite has them into the text. False: it is something else.
  private func recordPlainly(_ row: SQLiteStatement, _ seq: Int64) throws -> Bool {
    guard !inError.contains(seq), !wereDisplaced.contains(seq), !merge.makesAgain(seq),
      let layout = try layout(row.int64(1)),
      let operation = LogOperation(rawValue: row.int64(2))
    else { return false }
    let table = layout.table
    let isOffer = merge.offers.isOffer(seq)
    let firstValue = 3 + context.catalog.maskCount
    if !isOffer, !merge.rebased.isEmpty {
      let key = row.values(from: firstValue, count: table.keyCount)
      if merge.rebased.contains(RowRef(table: table.number, key: key)) { return false }
    }
    guard operation == .insert || operation.isUpdate || (operation == .delete && row.int64(3) == 0),
      try isAlone(table, row, firstKey: firstValue)
    else { return false }
    let kind: Operation = operation == .insert ? .insert : operation.isUpdate ? .update : .delete
    var line = try begin(seq, kind, row, firstValue, layout, isOffer ? .offered : .kept)
    func values(_ name: StaticString, _ slots: [Int], _ write: (_ place: Int, _ slot: Int) -> Void) {
      line.raw(name)
      for (place, slot) in slots.enumerated() {
        line.raw(byte: UInt8(ascii: place == 0 ? "{" : ","))
        line.raw(bytes: layout.labels[slot])
        write(place, slot)
      }
      if slots.isEmpty { line.null() } else { line.raw("}") }
    }
    if kind == .delete {
      values(",\"before\":", Array(table.columns.indices)) { line.value(of: row, firstValue + $1) }
      line.raw(",\"after\":null")
    } else {
      let mask = kind == .insert ? nil : LogMask(words: (0..<table.maskCount).map { row.int64(3 + $0) })
      let after = try after(table, mask)
      for slot in 0..<table.keyCount { try after.current.bindInPlace(slot + 1, column: firstValue + slot, of: row) }
      defer { after.current.reset() }
      guard try after.current.step() else { return false }
      values(",\"before\":", kind == .insert ? [] : after.slots) { line.value(of: row, firstValue + $1) }
      values(",\"after\":", after.slots) { place, _ in line.value(of: after.current, place) }
    }
    line.raw(isOffer ? ",\"reason\":\"lost-on-server\"}" : ",\"reason\":null}")
    try record.request(seq: seq, line.bytes)
    if isOffer { counts.lost += 1 } else { counts.kept += 1 }
    return true
  }

  private func begin(
    _ seq: Int64, _ operation: Operation, _ row: SQLiteStatement, _ firstValue: Int, _ layout: Layout,
    _ fate: RecoveryItem.Fate
  ) throws -> PayloadWriter {
    var line = PayloadWriter(capacity: 256)
    line.raw("{\"fate\":")
    line.text(fate.rawValue)
    line.raw(",\"id\":")
    line.text(RequestID(stamp: try names.stamp(of: seq), counter: seq).description)
    line.raw(",\"table\":")
    line.raw(bytes: layout.tableName)
    line.raw(",\"key\":[")
    for slot in 0..<layout.table.keyCount {
      if slot > 0 { line.comma() }
      line.value(of: row, firstValue + slot)
    }
    line.raw("],\"operation\":")
    line.text(operation.rawValue)
    return line
  }
}

private func jsonText(_ text: String) -> [UInt8] {
  var writer = PayloadWriter()
  writer.text(text)
  return writer.bytes
}
