import SalvorModel
import SalvorWire

/// One of the ways by which a row may be in scope: all of it must hold (semantics 7).
public struct ScopeAlternative: Sendable, Hashable {
  /// Of the row itself, with a principal's, a parameter's or a fixed value; never `via`.
  public var conditions: [ScopeColumn]
  /// Rows of other tables that must be in scope with it.
  public var joins: [ScopeJoin]

  /// By default it asks for nothing: every row is in scope by it.
  public init(conditions: [ScopeColumn] = [], joins: [ScopeJoin] = []) {
    self.conditions = conditions
    self.joins = joins
  }

  var isEmpty: Bool { conditions.isEmpty && joins.isEmpty }

  /// What the reader's own values are compared with, in a fixed order: the row's columns, then those of its joins. Fixed
  /// values are none of it.
  public var dimensions: [ScopeSource] {
    conditions.map(\.source).filter { !$0.isFixed } + joins.flatMap(\.scope.dimensions)
  }

  /// Every table besides the row's own that decides.
  public var tables: Set<String> { joins.reduce(into: []) { $0.formUnion($1.scope.tables.union([$1.table])) } }

  /// Nothing of it asks for a row or for a fixed value: a reader without limits sees every row by it.
  public var isOptional: Bool {
    conditions.allSatisfy { !$0.source.isFixed } && joins.allSatisfy { $0.reference != nil && $0.scope.isOptional }
  }

  /// Only columns of the row and of its parents: as scopes were before there were others.
  fileprivate var isPlain: Bool {
    conditions.allSatisfy { !$0.source.isFixed } && joins.allSatisfy { $0.reference != nil && $0.scope.isPlain }
  }
}

/// The rows of `table` that have in `target` what the row has in `column`, and are in scope by `scope`. By a reference it
/// is the parent, and there is one; else there may be many, and any of them will do.
public struct ScopeJoin: Sendable, Hashable {
  /// The column of the row itself.
  public var column: String
  /// The table whose rows are joined.
  public var table: String
  /// The column of `table` that is compared with `column`.
  public var target: String
  /// Nil: many rows may be joined.
  public var reference: Reference?
  /// Which of the alternatives of `table` (`Schema.scopeAlternatives`) is `scope`.
  public var place: Int
  /// What a joined row must fulfil.
  public var scope: ScopeAlternative
}

extension ScopeSource {
  /// The same for everyone.
  public var isFixed: Bool { if case .value = self { true } else { false } }
  /// What subscriptions give values to.
  public var isParameter: Bool { if case .parameter = self { true } else { false } }
}

extension Schema {
  /// The ways by which a row of the table may be in scope, in a fixed order: its own scope columns and every scope that it
  /// inherits. Empty: everyone's.
  public func scopeAlternatives(of table: Table) -> [ScopeAlternative] { alternatives(of: table, on: []) }

  /// - Parameter path: tables whose scope asks for this one's. A circle is refused where a schema is read and opened.
  private func alternatives(of table: Table, on path: [String]) -> [ScopeAlternative] {
    let path = path + [table.name]
    let own =
      table.scopeAlternatives.isEmpty ? [table.scope] : table.scopeAlternatives.map { table.scope + $0 }
    var out: [ScopeAlternative] = []
    for columns in own {
      var built = [ScopeAlternative()]
      for column in columns {
        if case .via(let name, let target) = column.source {
          guard !path.contains(name), let joined = self.table(name) else { continue }
          let found = alternatives(of: joined, on: path)
          let join = ScopeJoin(
            column: column.column, table: name, target: target, place: 0, scope: ScopeAlternative())
          built = join.added(to: built, found.isEmpty ? [ScopeAlternative()] : found)
        } else {
          for place in built.indices { built[place].conditions.append(column) }
        }
      }
      for reference in table.references where reference.inheritsScope {
        guard !path.contains(reference.table), let parent = self.table(reference.table),
          let key = parent.primaryKey.first
        else { continue }
        let found = alternatives(of: parent, on: path)
        let join = ScopeJoin(
          column: reference.column, table: parent.name, target: key, reference: reference, place: 0,
          scope: ScopeAlternative())
        if !found.isEmpty { built = join.added(to: built, found) }
      }
      out += built
    }
    return out.contains(where: \.isEmpty) ? [] : out
  }

  /// How many ways `scopeAlternatives` has for a table, without making them: they multiply through parents and join tables.
  /// Saturates far beyond `scopeWaysMax`.
  public func scopeWays(of table: Table) -> Int {
    var known: [String: Int] = [:]
    return ways(of: table, &known)
  }

  /// One statement asks for all of them, and SQLite limits its size.
  public static let scopeWaysMax = 64

  /// - Parameter known: of the tables met; one whose scope asks for itself, which is refused elsewhere, counts as one.
  private func ways(of table: Table, _ known: inout [String: Int]) -> Int {
    if let found = known[table.name] { return found }
    known[table.name] = 1
    func product(_ names: [String]) -> Int {
      names.reduce(1) { product, name in
        guard let other = self.table(name) else { return product }
        return min(product * max(ways(of: other, &known), 1), 1 << 20)
      }
    }
    let inherited = product(table.references.filter(\.inheritsScope).map(\.table))
    let own = table.scopeAlternatives.isEmpty ? [table.scope] : table.scopeAlternatives.map { table.scope + $0 }
    let count = own.reduce(0) { sum, columns in
      let joined = columns.compactMap { column in
        if case .via(let name, _) = column.source { name } else { nil }
      }
      return min(sum + min(product(joined) * inherited, 1 << 20), 1 << 20)
    }
    known[table.name] = count
    return count
  }

  /// The groups that must be synchronized with `names`: their rows reference rows of them.
  public func closure(ofGroups names: Set<String>) -> Set<String> {
    var closed = names
    var grew = true
    while grew {
      grew = false
      for table in synchronized where closed.contains(table.group) {
        for reference in table.references where !reference.soft {
          guard let parent = self.table(reference.table), parent.maintained != .client else { continue }
          if closed.insert(parent.group).inserted { grew = true }
        }
      }
    }
    return closed
  }
}

extension ScopeJoin {
  /// Each of `built` with this join by each of the joined table's alternatives.
  fileprivate func added(to built: [ScopeAlternative], _ found: [ScopeAlternative]) -> [ScopeAlternative] {
    built.flatMap { base in
      found.enumerated().map { place, scope in
        var join = self
        join.place = place
        join.scope = scope
        var alternative = base
        alternative.joins.append(join)
        return alternative
      }
    }
  }
}

/// Of tables that are everyone's.
private let everyonesDigest = digest([])

extension Principal {
  /// The values that `source` allows this principal; nil: any. `via` is a join, never a value.
  public func allowedValues(_ source: ScopeSource) -> [Value]? {
    switch source {
    case .principal: [.text(name)]
    case .parameter(let parameter): parameters[parameter]
    case .value(let value): [value]
    case .via: []
    }
  }

  /// Names the scope that this principal has in tables, each with its alternatives: two principals or times with the same
  /// digest see the same rows of the same database.
  public func scopeDigest(of tables: [[ScopeAlternative]]) -> String {
    var writer = PayloadWriter()
    for alternatives in tables {
      if alternatives.count == 1, alternatives[0].isPlain {
        writePlain(alternatives[0], after: [], &writer)
      } else if !alternatives.isEmpty {
        writer.integer(Int64(alternatives.count))
        for alternative in alternatives { write(alternative, &writer) }
      }
    }
    return writer.bytes.isEmpty ? everyonesDigest : digest(writer.bytes)
  }

  /// As it was written before there were alternatives: a cursor outlives an update of the server.
  private func writePlain(_ scope: ScopeAlternative, after steps: [String], _ writer: inout PayloadWriter) {
    for condition in scope.conditions {
      for step in steps { writer.text(step) }
      writer.text(condition.column)
      write(allowedValues(condition.source), &writer)
    }
    for join in scope.joins { writePlain(join.scope, after: steps + [join.column], &writer) }
  }

  private func write(_ scope: ScopeAlternative, _ writer: inout PayloadWriter) {
    writer.integer(Int64(scope.conditions.count))
    for condition in scope.conditions {
      writer.text(condition.column)
      writer.integer(condition.source.isFixed ? 1 : 0)
      write(allowedValues(condition.source), &writer)
    }
    writer.integer(Int64(scope.joins.count))
    for join in scope.joins {
      for name in [join.column, join.table, join.target] { writer.text(name) }
      writer.integer(join.reference == nil ? 1 : 0)
      write(join.scope, &writer)
    }
  }

  private func write(_ values: [Value]?, _ writer: inout PayloadWriter) {
    guard let values else {
      writer.null()
      return
    }
    let texts = values.map { value in
      var one = PayloadWriter()
      one.value(value)
      return String(decoding: one.bytes, as: UTF8.self)
    }
    for text in texts.sorted() { writer.text(text) }
  }
}
