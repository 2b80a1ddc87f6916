import SalvorModel
import SalvorStorage

/// What is in a scope of a table, as a condition of a statement (semantics 7). Its parameters are plain `?`, so it stands
/// after every other parameter.
struct ScopeFilter {
  private let table: ServerTable
  private let catalog: Catalog
  /// By alternative of the table.
  private let demands: [ScopeDemand]
  /// Of `sql`, and of the two conditions on where a row was or came to be: they ask for the same values in the same order.
  let values: [Value]

  /// Nil: every row is in the scope.
  init?(_ table: ServerTable, _ scope: ReadScope, _ catalog: Catalog) {
    let reader = ScopeReader(catalog.schema, scope)
    let isFree = table.alternatives.contains { reader.isFree($0, of: table.name) }
    guard !table.alternatives.isEmpty, !isFree else { return nil }
    self.table = table
    self.catalog = catalog
    demands = table.alternatives.map { ScopeDemand($0, of: table.name, reader, catalog) }
    values = demands.flatMap(\.values)
  }

  /// Subscriptions narrow it.
  var hasChoices: Bool { demands.contains(where: \.hasChoices) }

  /// - Parameter column: how the statement names a column of the row.
  func sql(_ column: (String) -> String) -> String { anyOf(demands.map { condition($0, depth: 1, column) }) }

  /// So deep are conditions within each other; what leads further is joined there. SQLite's parser takes no more than some ten, with the
  /// statement around them.
  private static let nestingMax = 5

  private func condition(_ demand: ScopeDemand, depth: Int, _ column: (String) -> String) -> String {
    var parts = own(demand, column)
    for (join, next) in zip(demand.scope.joins, demand.joins) {
      guard let next else { continue }
      var from: [String] = []
      let terms = joined(join, next, depth, column, &from)
      parts.append(
        "EXISTS (SELECT 1 FROM \(from.joined(separator: " CROSS JOIN ")) WHERE \(terms.joined(separator: " AND ")))")
    }
    return parts.joined(separator: " AND ")
  }

  /// What must hold of the row that a join finds, in the order of `values`.
  ///
  /// - Parameter from: the tables of the statement that asks for it, each with its alias.
  private func joined(
    _ join: ScopeJoin, _ demand: ScopeDemand, _ depth: Int, _ column: (String) -> String, _ from: inout [String]
  ) -> [String] {
    let alias = from.isEmpty ? "p\(depth)" : "p\(depth)_\(from.count)"
    from.append("\(quoted(join.table)) \(alias)")
    let matches = catalog.joined(alias, join, to: column(join.column))
    func named(_ column: String) -> String { "\(alias).\(quoted(column))" }
    if depth < Self.nestingMax {
      let rest = condition(demand, depth: depth + 1, named)
      return [matches] + (rest.isEmpty ? [] : [rest])
    }
    var terms = [matches] + own(demand, named)
    for (join, next) in zip(demand.scope.joins, demand.joins) {
      if let next { terms += joined(join, next, depth + 1, named, &from) }
    }
    return terms
  }

  /// What must hold of the row itself.
  private func own(_ demand: ScopeDemand, _ column: (String) -> String) -> [String] {
    var parts: [String] = []
    for (condition, allowed) in zip(demand.scope.conditions, demand.allowed) {
      if case .value(let value) = condition.source {
        parts.append(catalog.dialect.isSame(column(condition.column), catalog.dialect.literal(value)))
      } else if let allowed {
        let slot = catalog.slot(of: demand.table, condition.column)
        parts.append(catalog.dialect.isAmong(column(condition.column), allowed, slot))
      }
    }
    if let options = demand.options {
      let names = demand.scope.conditions.map(\.column)
      parts.append(isChosen(options) { (column(names[$0]), catalog.slot(of: demand.table, names[$0])) })
    }
    return parts
  }

  /// The same condition on where a row was, or came to be: the dimensions of `salvor_gone` and `salvor_came`.
  func sqlForDimensions(_ alias: String) -> String {
    anyOf(
      demands.enumerated().map { place, demand in
        var dimension = 0
        let parts = conditions(demand, from: &dimension, alias)
        let isWay = demands.count > 1 ? ["\(alias).a = \(place)"] : []
        return (isWay + parts).joined(separator: " AND ")
      })
  }

  private func conditions(_ demand: ScopeDemand, from dimension: inout Int, _ alias: String) -> [String] {
    var parts: [String] = []
    var columns: [Int: String] = [:]
    for (place, condition) in demand.scope.conditions.enumerated() where !condition.source.isFixed {
      let column = "\(alias).d\(dimension)"
      columns[place] = column
      if let allowed = demand.allowed[place] { parts.append(catalog.dialect.isAmong(column, allowed)) }
      dimension += 1
    }
    if let options = demand.options { parts.append(isChosen(options) { (columns[$0] ?? "NULL", "?") }) }
    for (join, next) in zip(demand.scope.joins, demand.joins) {
      if let next {
        parts += conditions(next, from: &dimension, alias)
      } else {
        dimension += join.scope.dimensions.count
      }
    }
    return parts
  }

  private func isChosen(
    _ options: [[ScopeDemand.Part]], _ column: (Int) -> (expression: String, slot: String)
  ) -> String {
    balanced(
      options.map { parts in
        let terms = parts.map { part in
          let column = column(part.place)
          return catalog.dialect.isAmong(column.expression, part.values, column.slot)
        }
        return terms.count == 1 ? terms[0] : "(\(terms.joined(separator: " AND ")))"
      })
  }

  /// An empty condition holds: by such a way the row can be seen by everyone who could see one at all.
  private func anyOf(_ conditions: [String]) -> String {
    let parts = conditions.map { $0.isEmpty ? "TRUE" : $0 }
    return parts.count == 1 ? parts[0] : "(" + parts.map { "(\($0))" }.joined(separator: " OR ") + ")"
  }

  /// Columns of the row itself that the condition looks at.
  var columns: Set<String> {
    var columns: Set<String> = []
    for demand in demands {
      for (condition, allowed) in zip(demand.scope.conditions, demand.allowed) where allowed != nil {
        columns.insert(condition.column)
      }
      for part in demand.options?.flatMap(\.self) ?? [] { columns.insert(demand.scope.conditions[part.place].column) }
      for (join, next) in zip(demand.scope.joins, demand.joins) where next != nil { columns.insert(join.column) }
    }
    return columns
  }

  // MARK: What changed subscriptions add

  /// Which rows may be in this scope and not in `other`, of the same principal, so that an index finds them: their number
  /// is that of the rows that come, whatever the table has. Nil: as good as all.
  ///
  /// A row that comes is in this scope by an alternative by which it was not in the other: so it leads to a row, itself or
  /// a joined one, that an option of the one has chosen and none of the other.
  func added(to other: ScopeFilter, _ column: (String) -> String) -> (sql: String, values: [Value])? {
    var leads: [(sql: String, slot: String, values: [Value], isJoined: Bool)] = []
    for (own, others) in zip(demands, other.demands) {
      guard let found = own.leads(beyond: others) else { return nil }
      for lead in found {
        let sql = start(of: lead, column)
        if let place = leads.firstIndex(where: { $0.sql == sql }) {
          leads[place].values += lead.values
        } else {
          let slot = catalog.slot(of: lead.path.last?.table ?? table.name, lead.column)
          leads.append((sql, slot, lead.values, !lead.path.isEmpty))
        }
      }
    }
    let terms = leads.map { catalog.dialect.isAmong($0.sql, $0.values, $0.slot) + ($0.isJoined ? ")" : "") }
    return (balanced(terms), leads.flatMap { catalog.dialect.bound($0.values) })
  }

  /// Up to the column whose value is looked up.
  private func start(of lead: ScopeDemand.Lead, _ column: (String) -> String) -> String {
    guard let first = lead.path.first else { return column(lead.column) }
    var from = "\(quoted(first.table)) p1"
    for (place, join) in lead.path.enumerated().dropFirst() {
      let alias = "p\(place + 1)"
      from +=
        " JOIN \(quoted(join.table)) \(alias) ON "
        + catalog.joined(alias, join, to: "p\(place).\(quoted(join.column))")
    }
    return "\(column(first.column)) IN (SELECT p1.\(quoted(first.target)) FROM \(from) "
      + "WHERE p\(lead.path.count).\(quoted(lead.column))"
  }
}

extension Catalog {
  private func type(of table: String, _ column: String) -> String {
    self.table(table).flatMap { table in table.place(column).map { table.types[$0] } } ?? ""
  }

  /// A value that a reader's scope asks for in the column; NULL, which no row is equal to, where it is not written as one of the column's.
  func written(_ value: Value, in table: String, _ column: String) -> Value {
    dialect.written(value, type(of: table, column))
  }

  /// The parameter of such a value.
  func slot(of table: String, _ column: String) -> String { dialect.writtenSlot(type(of: table, column)) }

  /// The row `alias` of the joined table is one that the join finds by `expression`.
  func joined(_ alias: String, _ join: ScopeJoin, to expression: String) -> String {
    joined(alias, join.table, join.target, isReference: join.reference != nil, to: expression)
  }

  func joined(
    _ alias: String, _ table: String, _ target: String, isReference: Bool, to expression: String
  ) -> String {
    let column = "\(alias).\(quoted(target))"
    let equal = "\(column) = \(expression)"
    // A column that is no key may compare by any collation.
    let isBinary = isReference && self.table(table)?.keyIsBinary == true
    return isBinary ? equal : "\(equal) AND \(dialect.isSame(column, expression))"
  }
}
