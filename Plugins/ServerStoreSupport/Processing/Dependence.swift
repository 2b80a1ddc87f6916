import SalvorModel
import SalvorStorage
import SalvorWire

/// What requests left, or would have left, for others (`ChangeEffect`): of each trace the first request that left it.
struct Footprints {
  private var traces: [Step.Effect.Trace: Int] = [:]
  /// By row: the first request that makes it, where the tables did not have it.
  private var makers: [UInt64: Int] = [:]
  private var anyLinked = false
  private var anyFreed = false

  var isEmpty: Bool { traces.isEmpty }

  mutating func add(_ steps: [Step], by ordinal: Int) {
    for step in steps {
      for trace in step.effect.traces {
        traces[trace] = min(traces[trace] ?? ordinal, ordinal)
        if case .linked = trace { anyLinked = true }
        if case .freed = trace { anyFreed = true }
      }
      if step.makes { makers[step.effect.row] = min(makers[step.effect.row] ?? ordinal, ordinal) }
    }
  }

  /// Of the request's own rows nothing is known here any more. True: it left something of others.
  mutating func forgetRows(_ steps: [Step], by ordinal: Int) -> Bool {
    var hasMore = false
    for step in steps {
      for trace in step.effect.traces {
        switch trace {
        case .changed, .linked: if traces[trace] == ordinal { traces[trace] = nil }
        case .unlinked, .freed: hasMore = true
        }
      }
      if makers[step.effect.row] == ordinal { makers[step.effect.row] = nil }
    }
    return hasMore
  }

  /// The first of the requests here that one depends on: earlier ones, and later ones that make a row which it references.
  func first(neededBy steps: [Step], of request: Int) -> Int? {
    if isEmpty { return nil }
    let earlier = steps.flatMap { $0.effect.needs.compactMap { traces[$0] } }.filter { $0 < request }
    return (earlier + steps.flatMap { $0.effect.targetsAfter.compactMap { makers[$0] } }).min()
  }

  /// False where a change of this shape, as it stands in the payload, certainly depends on none of the requests here:
  /// nearly always, and without reading its row.
  func mayConcern(_ plan: ShapePlan, _ items: [PayloadReader.Item], row: UInt64) -> Bool {
    if isEmpty { return false }
    if traces[.changed(row)] != nil || plan.operation == .delete && traces[.unlinked(row)] != nil { return true }
    if anyFreed && plan.takesUniqueValues { return true }
    if !anyLinked { return false }
    guard let targets = plan.targetItems else { return true }
    return targets.contains { target in
      var hash = target.seed
      hash.add(items[target.item])
      return traces[.linked(hash.value)] != nil
    }
  }
}

/// What a change does to its row, as far as it and the server's row say.
struct Step {
  /// Rows and unique values by `RowHash`. What the server's rows hold beneath a request, its device did not see.
  typealias Effect = ChangeEffect<UInt64, UInt64>

  var effect: Effect
  /// The tables have the row.
  var isThere = false
  /// The row after it, had everything before been accepted.
  var after: Row?

  init(row: UInt64, operation: Operation) { effect = Effect(row: row, operation: operation) }

  /// It makes a row that the tables do not have.
  var makes: Bool { effect.operation == .insert && !isThere }
}

/// Works out the steps of requests, each over the server's rows and over the ones before it.
struct StepReader {
  let rows: RowReader
  private let refused: [UInt64: Row?]
  /// As the steps so far leave them; apart, so that what was refused is not copied for each request.
  private var present: [UInt64: Row?] = [:]
  private var catalog: Catalog { rows.catalog }

  /// - Parameter refused: the rows that refused requests changed, as they would be.
  init(_ rows: RowReader, over refused: [UInt64: Row?]) {
    self.rows = rows
    self.refused = refused
  }

  mutating func steps(of request: StagedRequest) throws -> [Step] {
    var steps: [Step] = []
    for change in request.changes {
      var step = Step(row: change.hash, operation: change.operation)
      if let place = change.table {
        let table = catalog.tables[place]
        let known = present[change.hash] ?? refused[change.hash]
        let row = try known ?? rows.row(place, change.key)
        if change.operation == .insert {
          step.isThere = try known == nil ? row != nil : rows.row(place, change.key) != nil
        }
        if change.operation == .update, change.offer?.written.isEmpty == true {
          step.effect.isAhead = try (known == nil ? row : rows.row(place, change.key)) != nil
        }
        var before = change.operation == .insert ? nil : row
        var after = change.operation == .delete ? nil : row
        if change.operation == .insert && after == nil { after = table.columns.map { $0.defaultValue ?? .null } }
        for (index, column) in change.columns.enumerated() {
          if change.operation == .update { before?[column] = change.old[index] }
          after?[column] = change.new[index]
        }
        present[change.hash] = .some(after)
        step.after = after
        step.effect.targetsBefore = targets(before, table)
        step.effect.targetsAfter = targets(after, table)
        step.effect.uniqueBefore = uniques(before, table)
        step.effect.uniqueAfter = uniques(after, table)
      }
      steps.append(step)
    }
    return steps
  }

  private func targets(_ row: Row?, _ table: ServerTable) -> Set<UInt64> {
    guard let row else { return [] }
    return Set(
      table.table.references.compactMap { reference in
        guard let place = table.place(reference.column), !row[place].isNull else { return nil }
        return RowHash(table: reference.table).adding(CollectionOfOne(row[place]))
      })
  }

  private func uniques(_ row: Row?, _ table: ServerTable) -> Set<UInt64> {
    guard let row else { return [] }
    return Set(
      table.uniqueColumns.enumerated().compactMap { index, names in
        let values = names.compactMap(table.place).map { row[$0] }
        guard values.count == names.count, !values.contains(.null) else { return nil }
        return RowHash(table: "\(index) \(table.name)").adding(values)
      })
  }
}

/// Reads single rows of the real tables.
package struct RowReader {
  let connection: any StoreConnection
  let catalog: Catalog

  package init(connection: any StoreConnection, catalog: Catalog) {
    self.connection = connection
    self.catalog = catalog
  }

  /// The travelling columns.
  func row(_ place: Int, _ key: Key) throws -> Row? {
    var row: Row?
    try connection.query(catalog.tables[place].rowByKey, key) {
      row = $0.values()
      return false
    }
    return row
  }

  /// The rows that have `value` in a column, until `body` answers false.
  func each(_ place: Int, _ column: String, _ value: Value, _ body: (Row) throws -> Bool) throws {
    let table = catalog.tables[place]
    let column = "x.\(quoted(column))"
    try connection.query(
      "SELECT \(table.columnList("x")) FROM \(table.sql) x WHERE \(column) = ?1 AND \(catalog.dialect.isSame(column, "?1"))",
      [value]
    ) { try body($0.values()) }
  }

  /// The rows that a join finds by `value` and whose own columns the principal may see.
  func rows(_ place: Int, by join: ScopeJoin, _ value: Value, _ principal: Principal) throws -> [Row] {
    let table = catalog.tables[place]
    var conditions = [catalog.joined("x", join, to: "?1")]
    var values = [value]
    for condition in join.scope.conditions {
      guard let allowed = principal.allowedValues(condition.source) else { continue }
      conditions.append(catalog.dialect.isAmong("x.\(quoted(condition.column))", allowed))
      values += catalog.dialect.bound(allowed)
    }
    var found: [Row] = []
    try connection.query(
      "SELECT \(table.columnList("x")) FROM \(table.sql) x WHERE \(conditions.joined(separator: " AND "))", values
    ) {
      found.append($0.values())
      return true
    }
    return found
  }
}
