import SalvorModel

@testable import SQLiteClientStore

/// Which request depends on which, of all requests at once and as plainly as the specification says it: what the look-ups
/// of `DependenceLookup` are compared with.
struct FullDependence {
  /// For each request, the places of those it depends on directly.
  private(set) var direct: [Set<Int>]
  let requests: [RequestRange]

  private struct Step {
    var row: RowRef
    var operation: Operation
    var before: SlotRow?
    var after: SlotRow?
    var targetsBefore: Set<RowRef> = []
    var targetsAfter: Set<RowRef> = []
    var uniqueBefore: Set<[Value]> = []
    var uniqueBeneath: Set<[Value]> = []
    var uniqueAfter: Set<[Value]> = []
  }

  init(_ context: StoreContext) throws {
    let index = try LogIndex(context)
    let outstanding = try context.outstanding()
    requests = outstanding.map(\.range)
    direct = requests.map { _ in [] }
    var bases: [RowRef: SlotRow] = [:]
    for change in outstanding.flatMap(\.changes) {
      bases[RowRef(table: change.table.number, key: change.key)] = try index.timeline(change.table, change.key).base
    }
    var rows = bases
    let steps = outstanding.map { request in
      request.changes.map { change -> Step in
        let ref = RowRef(table: change.table.number, key: change.key)
        let step = Self.step(change, ref, rows[ref], context)
        rows[ref] = step.after
        return step
      }
    }
    for (index, mine) in steps.enumerated() {
      for (other, theirs) in steps.enumerated() where other != index {
        let isNeeded = mine.contains { step in
          theirs.contains { other < index ? Self.depends(step, on: $0) : false }
            || step.targetsAfter.contains { parent in
              other > index && bases[parent] == nil
                && other == steps.firstIndex { $0.contains { $0.row == parent && $0.operation == .insert } }
            }
        }
        if isNeeded { direct[index].insert(other) }
      }
    }
  }

  private static func depends(_ step: Step, on earlier: Step) -> Bool {
    let made =
      earlier.operation == .insert
      || (earlier.operation == .update && earlier.targetsBefore != earlier.targetsAfter)
    let unlinked = earlier.targetsBefore.subtracting(earlier.targetsAfter)
    let freed = earlier.uniqueBefore.union(earlier.uniqueBeneath).subtracting(earlier.uniqueAfter)
    return step.row == earlier.row || (made && step.targetsAfter.contains(earlier.row))
      || (step.operation == .delete && unlinked.contains(step.row))
      || !freed.isDisjoint(with: step.uniqueAfter.subtracting(step.uniqueBefore))
  }

  private static func step(
    _ change: OutstandingRequest.Change, _ ref: RowRef, _ present: SlotRow?, _ context: StoreContext
  ) -> Step {
    var step = Step(row: ref, operation: change.step.change.operation)
    switch change.step.change {
    case .insert(let row): step.after = row
    case .update(let news):
      step.before = present
      step.after = present
      for (slot, value) in news {
        step.before?[slot] = change.step.before?[slot] ?? .null
        step.after?[slot] = value
      }
    case .delete: step.before = change.step.before
    }
    step.targetsBefore = targets(step.before, change.table, context)
    step.targetsAfter = targets(step.after, change.table, context)
    step.uniqueBefore = uniques(step.before, change.table, context)
    step.uniqueBeneath = uniques(present, change.table, context)
    step.uniqueAfter = uniques(step.after, change.table, context)
    return step
  }

  private static func value(_ column: String, _ row: SlotRow, _ table: CapturedTable) -> Value {
    table.columns.firstIndex { $0.name == column }.map { row[$0] } ?? .null
  }

  private static func targets(_ row: SlotRow?, _ table: CapturedTable, _ context: StoreContext) -> Set<RowRef> {
    guard let row else { return [] }
    return Set(
      (context.table(table)?.references ?? []).compactMap { reference in
        let value = value(reference.column, row, table)
        guard !value.isNull, let parent = context.catalog.table(reference.table) else { return nil }
        return RowRef(table: parent.number, key: [value])
      })
  }

  /// Each with its table and columns.
  private static func uniques(_ row: SlotRow?, _ table: CapturedTable, _ context: StoreContext) -> Set<[Value]> {
    guard let row else { return [] }
    return Set(
      (context.table(table)?.unique ?? []).compactMap { columns in
        let values = columns.map { value($0, row, table) }
        return values.contains(.null) ? nil : [.text(table.name)] + columns.map { .text($0) } + values
      })
  }

  func dependents(of root: Int) -> [RequestRange] {
    closure(root) { found in direct.indices.filter { !direct[$0].isDisjoint(with: found) } }
  }

  func needs(of root: Int) -> [RequestRange] { closure(root) { found in found.flatMap { direct[$0] } } }

  private func closure(_ root: Int, _ next: (Set<Int>) -> [Int]) -> [RequestRange] {
    var found: Set<Int> = [root]
    while true {
      let more = found.union(next(found))
      if more == found { return found.sorted().map { requests[$0] } }
      found = more
    }
  }
}
