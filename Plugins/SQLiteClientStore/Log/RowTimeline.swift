import SalvorModel

/// What one change does to one row, with its new values.
enum RowChange: Sendable, Hashable {
  /// The whole new row.
  case insert(SlotRow)
  /// New values by slot.
  case update([Int: Value])
  case delete

  var operation: Operation {
    switch self {
    case .insert: .insert
    case .update: .update
    case .delete: .delete
    }
  }

  /// Both say something of the same part of the row: one column, or whether it is there.
  func meets(_ other: RowChange) -> Bool {
    guard case .update(let news) = self, case .update(let others) = other else { return true }
    return news.keys.contains { others[$0] != nil }
  }
}

/// The changes of one row, from its base to the row as it is now (semantics 2: row = base ⊕ requests).
///
/// The log has old values only, as they were captured, and nobody rewrites it. A change's new values are what its *lender*
/// gives: the next change of the row that has an old value of the column, or, after the last one, the row in its table. An
/// insert lends nothing. Walking back from the row and putting the old values in leads to the base. Where either is not
/// so, since a base has changed or a request has left, `StoredRow` has what cannot be read off.
struct RowTimeline: Sendable, Hashable {
  struct Step: Sendable, Hashable {
    var seq: Int64
    var change: RowChange
    /// It is one request with the log's next row.
    var isJoined: Bool
    /// The row before and after, on the base as it is now; nil: not there.
    var before: SlotRow?
    var after: SlotRow?
    /// What the change saw: of an update the old values of its columns, of a delete the whole row. Nil: an insert, or a
    /// delete of what was not there.
    var saw: SlotRow?

    /// The step on what it saw, for whoever is told of the change.
    var asCaptured: Step {
      var step = self
      switch change {
      case .insert: break
      case .update(let news):
        if before == nil { step.before = saw }
        for slot in news.keys { step.before?[slot] = saw?[slot] ?? .null }
      case .delete: step.before = saw
      }
      return step
    }
  }

  /// Nil: the base has no such row.
  var base: SlotRow?
  var steps: [Step]
  /// The row as the table has it, or is to have it.
  var current: SlotRow? { steps.isEmpty ? base : steps[steps.count - 1].after }

  init(base: SlotRow?, steps: [Step]) {
    self.base = base
    self.steps = steps
  }

  /// Decodes the entries of one row, oldest first.
  ///
  /// - Parameter stored: what they and the row do not say.
  init(current: SlotRow?, entries: [LogEntry], stored: StoredRow = StoredRow(), table: CapturedTable) throws {
    var walk = Walk(current, table)
    steps = []
    steps.reserveCapacity(entries.count)
    for entry in entries.reversed() {
      var news: [Int: Value] = [:]
      for slot in entry.writtenSlots(table) {
        guard let value = stored.values[entry.seq]?[slot] ?? walk.lent[slot] else { throw Self.unfit(table, entry) }
        news[slot] = value
      }
      let change: RowChange
      switch entry.operation {
      case .insert: change = .insert(table.columns.indices.map { news[$0] ?? .null })
      case .update, .cascadedUpdate: change = .update(news)
      case .delete, .joinedDelete, .cascadedDelete: change = .delete
      case .watermark, .open, .close, .withdrawn, .withdrawnJoined: throw Self.unfit(table, entry)
      }
      let step = Step(
        seq: entry.seq, change: change, isJoined: entry.operation.isJoined, before: nil, after: nil, saw: entry.saw)
      walk.pass(step)
      if case .unfit = walk.state, stored.base == nil { throw Self.unfit(table, entry) }
      steps.append(step)
    }
    steps.reverse()
    rebase(on: try stored.base ?? walk.row(steps, table))
    if stored.base != nil, let current, steps.allSatisfy({ $0.change.operation == .update }), var row = base {
      // What no change touches is in the base as it is in the row, whoever wrote it.
      let touched = Set(entries.flatMap { $0.mask.slots(below: row.count) })
      for slot in row.indices where !touched.contains(slot) { row[slot] = current[slot] }
      rebase(on: row)
    }
    guard (self.current == nil) == (current == nil) else { throw Self.unfit(table, entries.last) }
  }

  private static func unfit(_ table: CapturedTable, _ entry: LogEntry?) -> SalvorError {
    SalvorError(
      .storageCorrupt,
      "The change \(entry?.seq ?? 0) of the table \(table.name) does not fit its row: something wrote while the triggers of Salvor were missing. Recover, or restore a copy.",
      context: ["table": table.name])
  }

  /// Puts the steps on another base: their changes stay, the rows before and after them are others. An update of a row
  /// that is not there does nothing (`lost`).
  mutating func rebase(on newBase: SlotRow?) {
    var state = newBase
    for index in steps.indices {
      steps[index].before = state
      switch steps[index].change {
      case .insert(let row): state = row
      case .update(let news): for (slot, value) in news { state?[slot] = value }
      case .delete: state = nil
      }
      steps[index].after = state
    }
    base = newBase
  }

  /// The last change that cannot stand: an update of a row that is not there.
  var lost: Int64? { steps.last { $0.before == nil && $0.change.operation == .update }?.seq }

  /// What the log and the row as it is now do not say: a normal form, of what is and not of what led to it.
  func stored(_ table: CapturedTable) -> StoredRow {
    var walk = Walk(current, table)
    var stored = StoredRow()
    for step in steps.reversed() {
      var values: [Int: Value] = [:]
      switch step.change {
      case .insert(let row): for slot in row.indices where walk.lent[slot] != row[slot] { values[slot] = row[slot] }
      case .update(let news): for (slot, value) in news where walk.lent[slot] != value { values[slot] = value }
      case .delete:
        // A mark that is taken back asks what its delete deletes.
        if table.isMarked, step.before != step.saw {
          stored.values[step.seq] = Dictionary(uniqueKeysWithValues: (step.before ?? []).enumerated().map { ($0, $1) })
        }
      }
      if !values.isEmpty { stored.values[step.seq] = values }
      walk.pass(step)
    }
    if !steps.isEmpty, walk.state != base.map(Walk.State.row) ?? .absent { stored.base = .some(base) }
    return stored
  }

  /// The way back through a row's changes: what may be borrowed, and what the row was.
  private struct Walk {
    enum State: Hashable {
      case row(SlotRow)
      case absent
      /// The change found something else: only a base that is stored says what was there.
      case unfit
    }

    var state: State
    /// By slot; nil: nobody lends it.
    var lent: [Value?]

    init(_ row: SlotRow?, _ table: CapturedTable) {
      state = row.map(State.row) ?? .absent
      lent = row?.map(Optional.some) ?? Array(repeating: nil, count: table.columns.count)
    }

    mutating func pass(_ step: Step) {
      switch (step.change, state) {
      case (.insert, .row): state = .absent
      case (.update(let news), .row(var row)):
        for slot in news.keys { row[slot] = step.saw?[slot] ?? .null }
        state = .row(row)
      case (.delete, .absent): state = step.saw.map(State.row) ?? .absent
      default: state = .unfit
      }
      switch step.change {
      case .update(let news): for slot in news.keys { lent[slot] = step.saw?[slot] ?? .null }
      case .insert, .delete:
        lent = step.saw?.map(Optional.some) ?? Array(repeating: nil, count: lent.count)
      }
    }

    /// The base that the walk has led to.
    func row(_ steps: [Step], _ table: CapturedTable) throws -> SlotRow? {
      switch state {
      case .row(let row): row
      case .absent: nil
      case .unfit: throw RowTimeline.unfit(table, nil)
      }
    }
  }
}

extension RowTimeline.Step {
  /// The step as the log has it.
  func entry(_ table: CapturedTable, _ key: Key) -> LogEntry {
    var entry = LogEntry(
      seq: seq, table: table.number, operation: .insert, mask: LogMask(words: []),
      values: Array(repeating: .null, count: table.columns.count))
    switch change {
    case .insert: break
    case .update(let news):
      entry.operation = .update
      entry.mask = LogMask(columns: table.columns.count)
      for slot in news.keys {
        entry.mask[slot] = true
        entry.values[slot] = saw?[slot] ?? .null
      }
    case .delete:
      entry.operation = isJoined ? .joinedDelete : .delete
      if let saw { entry.values = saw } else { entry.mask = .nothing }
    }
    for slot in 0..<table.keyCount { entry.values[slot] = key[slot] }
    return entry
  }
}
