import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What a recovery does to requests (semantics 9, *Merge rules*).
extension WorkingRows {
  /// The server lost a row that requests change: the first of them, an update, becomes an insert of the whole row, under
  /// its own ID. Answers the first counter of that request.
  func makeAgain(_ table: CapturedTable, _ key: Key) throws -> Int64? {
    let ref = RowRef(table: table.number, key: key)
    var work = try load(table, key)
    guard var row = work.timeline.base, let step = work.timeline.steps.first, case .update(let news) = step.change
    else { return nil }
    for (slot, value) in news { row[slot] = value }
    let made = RowTimeline.Step(
      seq: step.seq, change: .insert(row), isJoined: step.isJoined, before: nil, after: row)
    work.timeline.steps[0] = made
    try context.writeLog([made.entry(table, key)])
    try put(work, ref)
    try setBase(table, key, nil)
    return try context.range(of: step.seq).first
  }

  /// The server lost a row that stands here: it becomes a queued insert of its own. Answers its counter.
  func makeAgainAlone(_ table: CapturedTable, _ key: Key) throws -> Int64? {
    guard let row = try load(table, key).timeline.current else { return nil }
    try setBase(table, key, nil)
    return try makeAgain(table, key, as: row)
  }

  /// The server lost what a row was: it becomes that again, by a request of its own upon its base. What requests change in it
  /// stays theirs. Answers the request's counter; nil: there is nothing to change.
  ///
  /// It names every column, also one that is as the server has it: an older version, of another device, must not take its
  /// place. So does a delete of a row that the server has no more.
  ///
  /// - Parameters:
  ///   - was: nil: it was deleted.
  ///   - left: slots that the request does not name.
  func makeAgain(_ table: CapturedTable, _ key: Key, as was: SlotRow?, but left: Set<Int> = []) throws -> Int64? {
    guard var change = try change(table, key, as: was) else { return nil }
    if case .update(let news) = change, !left.isEmpty {
      let rest = news.filter { !left.contains($0.key) }
      if rest.isEmpty { return nil }
      change = .update(rest)
    }
    let counter = try context.connection.lastCounter() + 1
    try add(change, table, key, counter)
    return counter
  }

  /// The change of such a request.
  func change(_ table: CapturedTable, _ key: Key, as was: SlotRow?) throws -> RowChange? {
    let work = try load(table, key)
    let unknown = try unknownSlots(of: table)
    let change: RowChange =
      switch (was, work.timeline.base) {
      case (nil, _): .delete
      case (let was?, nil): .insert(was)
      case (let was?, .some):
        .update(
          Dictionary(
            uniqueKeysWithValues: table.otherSlots.filter {
              context.isStored(was[$0], in: $0, of: table) && !unknown.contains($0)
            }
            .map { ($0, was[$0]) }))
      }
    if case .update(let news) = change, news.isEmpty { return nil }
    if work.timeline.steps.isEmpty { return change }
    guard case .update(var news) = change else { return nil }
    for step in work.timeline.steps {
      guard case .update(let others) = step.change else { return nil }
      for slot in others.keys { news[slot] = nil }
    }
    return news.isEmpty ? nil : .update(news)
  }

  /// A request of one change, upon those of its row.
  func add(_ change: RowChange, _ table: CapturedTable, _ key: Key, _ counter: Int64) throws {
    let ref = RowRef(table: table.number, key: key)
    var work = try load(table, key)
    let step = RowTimeline.Step(
      seq: counter, change: change, isJoined: false, before: nil, after: nil,
      saw: change.operation == .insert ? nil : work.timeline.current)
    try context.writeLog([step.entry(table, key)])
    noteAdded(counter...counter)
    try index.add(table, key, seq: counter)
    work.timeline.steps.append(step)
    work.timeline.rebase(on: work.timeline.base)
    try put(work, ref)
    // One that stands in its table already is not written.
    if work.shown == work.timeline.current, work.shown != nil { try touched.written(table, key) }
  }

  /// A request that only deletes rows which the server does not have either leaves: there is nothing left for it to do.
  func takeOutIdle(_ range: RequestRange) throws {
    for (table, key, _) in try context.rows(changedBy: range) {
      var work = try load(table, key)
      work.timeline.steps.removeAll { (range.first...range.last).contains($0.seq) }
      try put(work, RowRef(table: table.number, key: key))
    }
    try context.deleteLogRows(
      where: "seq BETWEEN ?1 AND ?2", [.integer(range.first), .integer(range.last)])
    try context.forgetStored()
    try context.forgetRequests(from: range.first, to: range.first)
  }
}

extension StoreContext {
  /// The column's type stores the value. Another program on the server may have written one that it does not: no device can send that.
  func isStored(_ value: Value, in slot: Int, of table: CapturedTable) -> Bool {
    type(of: slot, of: table)?.stores(value) ?? true
  }

  /// The same, of an expression: there is a slot whose value is not stored.
  func anyUnstored(in table: CapturedTable, _ value: (Int) -> String) -> String {
    let terms = table.otherSlots.compactMap { slot -> String? in
      guard let type = type(of: slot, of: table) else { return nil }
      let value = value(slot)
      let kind =
        switch type {
        case .text, .timestamp, .json: "text"
        case .integer, .boolean: "integer"
        case .real: "real"
        case .blob: "blob"
        }
      let isOther = "typeof(\(value)) NOT IN ('\(kind)', 'null')"
      return type == .boolean ? "\(isOther) OR \(value) NOT IN (0, 1)" : isOther
    }
    return terms.isEmpty ? "0" : terms.joined(separator: " OR ")
  }

  private func type(of slot: Int, of table: CapturedTable) -> ColumnType? {
    let name = table.columns[slot].name.folded
    return self.table(table)?.columns.first { $0.name.folded == name }?.type
  }
}
