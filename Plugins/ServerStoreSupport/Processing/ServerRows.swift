import SalvorModel
import SalvorStorage

/// Puts the server's rows beside the refusals of an upload, as they are after it, within the sender's scope.
struct ServerRows {
  /// The row of one change.
  struct Place {
    var counter: Int64
    var table: Int
    var key: Key

    /// Nil: of a table that is not there.
    init?(_ change: StagedChange) {
      guard let table = change.table else { return nil }
      counter = change.counter
      self.table = table
      key = change.key
    }
  }

  private let rows: RowReader
  private let principal: Principal
  /// The statement of a table and the values of its scope, made once.
  private var statements: [Int: (sql: String, values: [Value])] = [:]
  private var budget = ServerRowBudget()

  init(_ rows: RowReader, _ principal: Principal) {
    self.rows = rows
    self.principal = principal
  }

  /// The refusals in the order of their counters, each with its rows.
  ///
  /// - Parameter places: where the rows of each refused request stand.
  consuming func joined(to refusals: [Refusal], at places: [RequestID: [Place]]) throws -> [Refusal] {
    var refusals = refusals.sorted { $0.counter < $1.counter }
    for index in refusals.indices {
      for place in places[refusals[index].id] ?? [] {
        guard let values = try values(at: place), budget.takes(values) else { continue }
        refusals[index].serverRows.append(ServerRow(counter: place.counter, values: values))
      }
    }
    return refusals
  }

  private mutating func values(at place: Place) throws -> [NamedValue]? {
    let table = rows.catalog.tables[place.table]
    let statement = statements[place.table] ?? statement(table)
    statements[place.table] = statement
    var found: [NamedValue]?
    try rows.connection.query(statement.sql, place.key + statement.values) { row in
      found = zip(table.columns, row.values()).map { NamedValue($0.name, $1) }
      return false
    }
    return found
  }

  private func statement(_ table: ServerTable) -> (sql: String, values: [Value]) {
    let filter = ScopeFilter(table, ReadScope(principal), rows.catalog)
    var sql = "SELECT \(table.columnList("x")) FROM \(table.sql) x WHERE \(table.keyMatches("x") { "?\($0 + 1)" })"
    if let filter { sql += " AND " + filter.sql { "x.\(quoted($0))" } }
    return (sql, filter?.values ?? [])
  }
}
