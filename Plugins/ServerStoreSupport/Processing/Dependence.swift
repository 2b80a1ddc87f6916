import SalvorModel
import SalvorStorage
import SalvorWire

/// What requests did, or would have done, that others depend on (semantics 7, *Depends on*). Each set names, by
/// `RowHash`, the first request that did it.
struct Footprints {
  /// Rows that were changed at all.
  private var rows: [UInt64: Int] = [:]
  /// Rows that were made, or given another parent.
  private var made: [UInt64: Int] = [:]
  /// Those that were made and that the tables did not have.
  private var makers: [UInt64: Int] = [:]
  /// Parents that rows were taken away from.
  private var unlinked: [UInt64: Int] = [:]
  /// Unique values that rows gave up.
  private var freed: [UInt64: Int] = [:]

  var isEmpty: Bool { rows.isEmpty }

  mutating func add(_ steps: [Step], by ordinal: Int) {
    func note(_ hash: UInt64, _ set: inout [UInt64: Int]) { set[hash] = min(set[hash] ?? ordinal, ordinal) }
    for step in steps {
      note(step.row, &rows)
      if step.makesOrRelinks { note(step.row, &made) }
      if step.makes { note(step.row, &makers) }
      for parent in step.targetsBefore.subtracting(step.targetsAfter) { note(parent, &unlinked) }
      for value in step.uniqueBefore.subtracting(step.uniqueAfter) { note(value, &freed) }
    }
  }

  /// The first of the requests here that one depends on: earlier ones, and later ones that make a row which it references.
  func first(neededBy steps: [Step], of request: Int) -> Int? {
    if isEmpty { return nil }
    var earlier: [Int] = []
    var makers: [Int] = []
    for step in steps {
      if let ordinal = rows[step.row] { earlier.append(ordinal) }
      earlier += step.targetsAfter.compactMap { made[$0] }
      makers += step.targetsAfter.compactMap { self.makers[$0] }
      if step.operation == .delete, let ordinal = unlinked[step.row] { earlier.append(ordinal) }
      earlier += step.uniqueAfter.subtracting(step.uniqueBefore).compactMap { freed[$0] }
    }
    return (earlier.filter { $0 < request } + makers).min()
  }

  /// False where a change of this shape, as it stands in the payload, certainly depends on none of the requests here:
  /// nearly always, and without reading its row.
  func mayConcern(_ plan: ShapePlan, _ items: [PayloadReader.Item], row: UInt64) -> Bool {
    if rows.isEmpty { return false }
    if rows[row] != nil || plan.operation == .delete && unlinked[row] != nil { return true }
    if !freed.isEmpty && plan.takesUniqueValues { return true }
    if made.isEmpty { return false }
    guard let targets = plan.targetItems else { return true }
    return targets.contains { target in
      var hash = target.seed
      hash.add(items[target.item])
      return made[hash.value] != nil
    }
  }
}

/// What a change does to its row, as far as it and the server's row say.
struct Step {
  var row: UInt64
  var operation: Operation
  /// The tables have the row.
  var isThere = false
  /// The row after it, had everything before been accepted.
  var after: Row?
  var targetsBefore: Set<UInt64> = []
  var targetsAfter: Set<UInt64> = []
  var uniqueBefore: Set<UInt64> = []
  var uniqueAfter: Set<UInt64> = []

  /// It makes a row that the tables do not have.
  var makes: Bool { operation == .insert && !isThere }
  var makesOrRelinks: Bool {
    operation == .insert || (operation == .update && targetsBefore != targetsAfter)
  }
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
        var before = change.operation == .insert ? nil : row
        var after = change.operation == .delete ? nil : row
        if change.operation == .insert && after == nil { after = table.columns.map { $0.defaultValue ?? .null } }
        for (index, column) in change.columns.enumerated() {
          if change.operation == .update { before?[column] = change.old[index] }
          after?[column] = change.new[index]
        }
        present[change.hash] = .some(after)
        step.after = after
        step.targetsBefore = targets(before, table)
        step.targetsAfter = targets(after, table)
        step.uniqueBefore = uniques(before, table)
        step.uniqueAfter = uniques(after, table)
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
    let table = catalog.tables[place]
    var row: Row?
    try connection.query(
      "SELECT \(table.columnList("x")) FROM \(table.sql) x WHERE \(table.keyMatches("x") { "?\($0 + 1)" })", key
    ) {
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
      let slots = allowed.indices.map { "?\(values.count + $0 + 1)" }.joined(separator: ", ")
      conditions.append("\(catalog.dialect.bytewise("x.\(quoted(condition.column))")) IN (\(slots))")
      values += allowed
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
