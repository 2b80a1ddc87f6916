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
}

/// The changes of one row, from its base to the row as it is now (semantics 2: row = base ⊕ requests).
///
/// The log has old values only. Decoding walks from the current row back through its log entries: an insert's new values
/// are the row there, an update's are the row's values in the masked columns; then the old values are put in, and at the
/// start stands the base. Encoding is the same forwards from a base. Both ways lose nothing.
struct RowTimeline: Sendable, Hashable {
  struct Step: Sendable, Hashable {
    var seq: Int64
    var change: RowChange
    /// It is one request with the log's next row.
    var isJoined: Bool
    /// The row before and after; nil: not there.
    var before: SlotRow?
    var after: SlotRow?
    /// Of a delete of what the base does not have: the row that went from its table.
    var gone: SlotRow?
  }

  /// Nil: the base has no such row.
  var base: SlotRow?
  var steps: [Step]
  /// The row as the table has it, or is to have it.
  var current: SlotRow? { steps.isEmpty ? base : steps[steps.count - 1].after }

  /// Decodes the entries of one row, oldest first.
  init(current: SlotRow?, entries: [LogEntry], table: CapturedTable) throws {
    var state = current
    var reversed: [Step] = []
    reversed.reserveCapacity(entries.count)
    for entry in entries.reversed() {
      let after = state
      let change: RowChange
      switch entry.operation {
      case .insert, .insertOverRow:
        guard let row = state else { throw Self.unfit(table, entry) }
        change = .insert(row)
        state = entry.operation == .insert ? nil : entry.values
      case .update, .cascadedUpdate:
        guard var row = state else { throw Self.unfit(table, entry) }
        var news: [Int: Value] = [:]
        for slot in entry.mask.slots(below: table.columns.count) {
          news[slot] = row[slot]
          row[slot] = entry.values[slot]
        }
        change = .update(news)
        state = row
      case .delete, .joinedDelete, .cascadedDelete:
        guard state == nil else { throw Self.unfit(table, entry) }
        change = .delete
        state = entry.values
      case .deleteOfNothing, .joinedDeleteOfNothing:
        guard state == nil else { throw Self.unfit(table, entry) }
        change = .delete
      case .watermark, .open, .close, .withdrawn, .withdrawnJoined: throw Self.unfit(table, entry)
      }
      reversed.append(
        Step(
          seq: entry.seq, change: change, isJoined: entry.operation.isJoined, before: state, after: after,
          gone: entry.operation == .joinedDeleteOfNothing && !entry.mask.isEmpty ? entry.values : nil))
    }
    base = state
    steps = reversed.reversed()
  }

  init(base: SlotRow?, steps: [Step]) {
    self.base = base
    self.steps = steps
  }

  private static func unfit(_ table: CapturedTable, _ entry: LogEntry) -> SalvorError {
    SalvorError(
      .storageCorrupt,
      "The change \(entry.seq) of the table \(table.name) does not fit its row: something wrote while the triggers of Salvor were missing. Recover, or restore a copy.",
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

  /// The log entries of the steps. An update keeps all the columns it names, also where the base has the same value
  /// meanwhile.
  func encode(_ table: CapturedTable, key: Key) -> [LogEntry] {
    steps.map { step in
      var entry = LogEntry(
        seq: step.seq, table: table.number, operation: .insert, mask: LogMask(words: []),
        values: Array(repeating: .null, count: table.columns.count))
      switch step.change {
      case .insert:
        entry.operation = step.before == nil ? .insert : .insertOverRow
        if let before = step.before { entry.values = before }
      case .update(let news):
        entry.operation = .update
        entry.mask = LogMask(columns: table.columns.count)
        for slot in news.keys {
          entry.mask[slot] = true
          entry.values[slot] = step.before?[slot] ?? .null
        }
      case .delete:
        entry.operation =
          step.before == nil
          ? (step.isJoined ? .joinedDeleteOfNothing : .deleteOfNothing) : (step.isJoined ? .joinedDelete : .delete)
        if let row = step.before ?? step.gone { entry.values = row }
        if step.before == nil, step.gone != nil {
          entry.mask = LogMask(columns: table.columns.count)
          entry.mask[0] = true
        }
      }
      for slot in 0..<table.keyCount { entry.values[slot] = key[slot] }
      return entry
    }
  }
}
