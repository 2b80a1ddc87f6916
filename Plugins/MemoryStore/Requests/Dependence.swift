import SalvorModel

/// Which request depends on which (semantics 7, *Depends on*).
struct Dependence: Sendable {
  /// For each request, the places of those it depends on directly: earlier ones, and the later one that makes a row it
  /// references.
  private(set) var direct: [Set<Int>]

  /// - Parameters:
  ///   - tables: the rows before the first request.
  ///   - countsBases: a unique value that the row beneath a request holds is freed by it, too, though it did not see that one.
  init(_ requests: [Request], on tables: MemoryTables, schema: Schema, countsBases: Bool = true) {
    let steps = Self.steps(requests, on: tables, schema: schema)
    direct = requests.map { _ in [] }
    var onRow: [RowName: Set<Int>] = [:]
    var made: [RowName: Set<Int>] = [:]
    var unlinked: [RowName: Set<Int>] = [:]
    var freed: [UniqueValue: Set<Int>] = [:]
    for (index, steps) in steps.enumerated() {
      for step in steps {
        // An earlier request on the same row. An offered update changes none of its columns, and comes before it by effect.
        let isAhead =
          step.change.operation == .update && requests[index].isPlainOffer && tables[step.change.row] != nil
        if !isAhead { direct[index].formUnion(onRow[step.change.row] ?? []) }
        // One that made or relinked a row that this one references.
        for parent in step.targetsAfter { direct[index].formUnion(made[parent] ?? []) }
        // For a delete, an earlier delete or relink of a row that referenced it.
        if step.change.operation == .delete { direct[index].formUnion(unlinked[step.change.row] ?? []) }
        // One that freed a unique value that this one takes.
        for value in step.uniqueAfter.subtracting(step.uniqueBefore) { direct[index].formUnion(freed[value] ?? []) }
      }
      direct[index].remove(index)
      for step in steps {
        onRow[step.change.row, default: []].insert(index)
        if step.makesOrRelinks { made[step.change.row, default: []].insert(index) }
        for parent in step.targetsBefore.subtracting(step.targetsAfter) { unlinked[parent, default: []].insert(index) }
        let held = countsBases ? step.uniqueBefore.union(step.uniqueBeneath) : step.uniqueBefore
        for value in held.subtracting(step.uniqueAfter) { freed[value, default: []].insert(index) }
      }
    }
    addLaterParents(steps, on: tables)
  }

  /// A parent that was captured after its child, as a deferred foreign key allows.
  private mutating func addLaterParents(_ steps: [[Step]], on tables: MemoryTables) {
    var makers: [RowName: Int] = [:]
    for (index, steps) in steps.enumerated() {
      for step in steps where step.change.operation == .insert && makers[step.change.row] == nil {
        makers[step.change.row] = index
      }
    }
    for (index, steps) in steps.enumerated() {
      for parent in steps.flatMap(\.targetsAfter) where tables[parent] == nil {
        if let maker = makers[parent], maker > index { direct[index].insert(maker) }
      }
    }
  }

  /// Each change with the rows before and after it, every request applied in order and nothing checked.
  private static func steps(_ requests: [Request], on tables: MemoryTables, schema: Schema) -> [[Step]] {
    var tables = tables
    return requests.map { request in
      request.changes.compactMap { change in
        guard let table = schema.table(change.row.table) else { return nil }
        let present = tables[change.row]
        let after = change.applied(to: present, of: table)
        tables[change.row] = after
        return Step(
          change: change, table: table, before: change.seen(in: present, of: table), beneath: present, after: after)
      }
    }
  }

  /// `roots` and all that depends on them.
  ///
  /// - Parameter some: nil: of all; else of these, without what others lie between.
  func dependents(of roots: Set<Int>, among some: Set<Int>? = nil) -> Set<Int> {
    closure(roots) { found in
      direct.indices.filter { some?.contains($0) ?? true && !direct[$0].isDisjoint(with: found) }
    }
  }

  /// `roots` and all that they depend on.
  ///
  /// - Parameter some: as of `dependents`.
  func needs(of roots: Set<Int>, among some: Set<Int>? = nil) -> Set<Int> {
    closure(roots) { found in found.flatMap { direct[$0] }.filter { some?.contains($0) ?? true } }
  }

  private func closure(_ roots: Set<Int>, _ next: (Set<Int>) -> [Int]) -> Set<Int> {
    var found = roots
    while true {
      let more = found.union(next(found))
      if more == found { return found }
      found = more
    }
  }

  /// The requests as they are applied: in the client's order, except that one goes after the later one that makes a row it
  /// references, unless that one depends on it in turn. Those that depend on one another, in a circle, are one unit: they
  /// stand or fall together, and keep the client's order.
  var units: [[Int]] {
    let all = direct.indices
    guard all.contains(where: { index in direct[index].contains { $0 > index } }) else { return all.map { [$0] } }
    // Each has itself among them, and those in a circle have the same.
    let needs = all.map { self.needs(of: [$0]) }
    var units: [(members: [Int], place: Int, depth: Int)] = []
    // Whoever needs others has more of them than they have.
    for index in all.sorted(by: { (needs[$0].count, $0) < (needs[$1].count, $1) }) {
      let members = needs[index].filter { needs[$0].contains(index) }.sorted()
      guard index == members[0] else { continue }
      let before = units.filter { needs[index].contains($0.members[0]) }
      units.append((members, needs[index].max() ?? index, 1 + (before.map(\.depth).max() ?? 0)))
    }
    return units.sorted { ($0.place, $0.depth, $0.members[0]) < ($1.place, $1.depth, $1.members[0]) }.map(\.members)
  }
}

/// What a change did to its row, as it stands in the order of the requests.
private struct Step {
  var change: Change
  var table: Table
  var before: Row?
  var beneath: Row?
  var after: Row?

  var targetsBefore: Set<RowName> { targets(of: before) }
  var targetsAfter: Set<RowName> { targets(of: after) }
  var uniqueBefore: Set<UniqueValue> { uniqueValues(of: before) }
  var uniqueBeneath: Set<UniqueValue> { uniqueValues(of: beneath) }
  var uniqueAfter: Set<UniqueValue> { uniqueValues(of: after) }

  /// The change made the row, or changed one of its references.
  var makesOrRelinks: Bool {
    change.operation == .insert || (change.operation == .update && targetsBefore != targetsAfter)
  }

  /// The rows that a row references.
  private func targets(of row: Row?) -> Set<RowName> {
    guard let row else { return [] }
    return Set(
      table.references.compactMap { reference in
        let value = table.value(reference.column, of: row)
        return value.isNull ? nil : RowName(table: reference.table, key: [value])
      })
  }

  /// The unique values that a row holds; none where a column is NULL.
  private func uniqueValues(of row: Row?) -> Set<UniqueValue> {
    guard let row else { return [] }
    return Set(
      table.unique.compactMap { columns in
        let values = columns.map { table.value($0, of: row) }
        return values.contains(.null) ? nil : UniqueValue(table: table.name, columns: columns, values: values)
      })
  }
}

private struct UniqueValue: Hashable {
  var table: String
  var columns: [String]
  var values: [Value]
}
