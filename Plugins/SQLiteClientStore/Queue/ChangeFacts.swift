import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What one change did that others may depend on, as the requests stand in order on the bases with nothing checked: an
/// update of a row that is not there does nothing. In the columns that it changes, a change says itself what it saw.
struct ChangeFacts {
  typealias Effect = ChangeEffect<RowRef, UniqueValue>

  /// The request that it is part of.
  var request: RequestRange
  /// What it leaves for later requests, and what it needs of earlier ones.
  var traces: [Effect.Trace]
  var needs: [Effect.Trace]
}

/// The values of a unique constraint's columns, none of them NULL.
struct UniqueValue: Hashable {
  var table: Int64
  var slots: [Int]
  var values: [Value]
}

/// The changes of one row that have not been settled, in order.
struct RowFacts {
  var changes: [ChangeFacts] = []
  /// The request that first makes the row, where the bases have none.
  var maker: RequestRange?

  /// The changes of the requests from one counter on, and before another one.
  func changes(from first: Int64, before end: Int64) -> ArraySlice<ChangeFacts> {
    guard first < end else { return [] }
    return changes[place { $0 >= first }..<place { $0 >= end }]
  }

  /// The first place whose request's first counter meets a condition that holds from there on.
  private func place(_ isReached: (Int64) -> Bool) -> Int {
    var low = 0
    var high = changes.count
    while low < high {
      let middle = (low + high) / 2
      if isReached(changes[middle].request.first) { high = middle } else { low = middle + 1 }
    }
    return low
  }
}

/// How the rows of a table are tied to others: their references, and their unique values.
struct TableLinks {
  let number: Int64
  let references: [(slot: Int, parent: Int64)]
  /// The slots of each unique constraint.
  let uniques: [[Int]]

  init(_ table: CapturedTable, _ context: StoreContext) {
    func slot(_ name: String) -> Int? { table.columns.firstIndex { $0.name.folded == name.folded } }
    let definition = context.table(table)
    number = table.number
    references = (definition?.references ?? []).compactMap { reference in
      guard let slot = slot(reference.column), let parent = context.catalog.table(reference.table) else { return nil }
      return (slot, parent.number)
    }
    uniques = (definition?.unique ?? []).compactMap { columns in
      let slots = columns.compactMap(slot)
      return slots.count == columns.count ? slots : nil
    }
  }

  /// The slots by whose values rows are looked for: of several unique columns the last says most.
  var slots: Set<Int> { Set(references.map(\.slot) + uniques.compactMap(\.last)) }

  private func targets(_ row: SlotRow?) -> Set<RowRef> {
    guard let row, !references.isEmpty else { return [] }
    return Set(
      references.compactMap { row[$0.slot].isNull ? nil : RowRef(table: $0.parent, key: [row[$0.slot]]) })
  }

  private func unique(_ row: SlotRow?) -> Set<UniqueValue> {
    guard let row, !uniques.isEmpty else { return [] }
    return Set(
      uniques.compactMap { slots in
        let values = slots.map { row[$0] }
        return values.contains(.null) ? nil : UniqueValue(table: number, slots: slots, values: values)
      })
  }

  /// - Parameters:
  ///   - ref: the row.
  ///   - timeline: on the base that it is asked for.
  ///   - isOffer: the step is nothing but an offer.
  ///   - request: the request of a step.
  func facts(
    _ ref: RowRef, _ timeline: RowTimeline, isOffer: (RowTimeline.Step) throws -> Bool,
    _ request: (RowTimeline.Step) throws -> RequestRange
  ) rethrows -> RowFacts {
    var facts = RowFacts()
    var present = timeline.base
    for step in timeline.steps {
      let range = try request(step)
      var effect = ChangeFacts.Effect(row: ref, operation: step.change.operation)
      effect.uniqueBeneath = unique(present)
      effect.isAhead =
        try timeline.base != nil && !facts.changes.isEmpty && step.change.operation == .update && isOffer(step)
      var before: SlotRow?
      var after: SlotRow?
      switch step.change {
      case .insert(let row):
        after = row
        if timeline.base == nil, facts.maker == nil { facts.maker = range }
      case .update(let news):
        before = present
        after = present
        for (slot, value) in news {
          before?[slot] = step.saw?[slot] ?? .null
          after?[slot] = value
        }
      case .delete: before = step.saw
      }
      present = after
      effect.targetsBefore = targets(before)
      effect.targetsAfter = targets(after)
      effect.uniqueBefore = unique(before)
      effect.uniqueAfter = unique(after)
      facts.changes.append(ChangeFacts(request: range, traces: effect.traces, needs: effect.needs))
    }
    return facts
  }
}
