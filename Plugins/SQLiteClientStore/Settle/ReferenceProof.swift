import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Proves the references of every touched row before the commit (semantics 2): the store's connection has foreign keys
/// off, so that no cascade fires while rows are made anew.
struct ReferenceProof {
  let context: StoreContext
  let touched: TouchedRows
  let rules: [Rule]
  /// Of rules between the application's own tables and others.
  let referenced: ReferencedValues

  typealias Rule = ReferenceRule

  /// A captured row whose parent is not there.
  struct Violation {
    var rule: Rule
    var table: CapturedTable
    var key: Key
    var reference: [Value]
  }

  init(_ context: StoreContext, _ touched: TouchedRows) throws {
    self.context = context
    self.touched = touched
    var rules: [Rule] = []
    for name in try context.connection.tableNames() where !name.hasPrefix("salvor_") {
      for key in try context.connection.tableShape(name)?.foreignKeys ?? [] {
        let child = context.catalog.table(name)
        let parent = context.catalog.table(key.parent)
        guard let shape = try context.connection.tableShape(key.parent) else { continue }
        let columns = key.parentColumns.isEmpty ? shape.primaryKey : key.parentColumns
        guard columns.count == key.columns.count else { continue }
        rules.append(
          Rule(
            child: name, childColumns: key.columns, parent: shape.name, parentColumns: columns, onDelete: key.onDelete,
            onUpdate: key.onUpdate, capturedChild: child, capturedParent: parent,
            parentColumnsAreKey: columns.map { $0.folded } == shape.primaryKey.map { $0.folded }))
      }
    }
    self.rules = rules
    referenced = try ReferencedValues(context, rules)
    for rule in rules {
      if let child = rule.capturedChild { touched.recordsWritten.insert(child.number) }
      if let parent = rule.capturedParent {
        touched.recordsRemoved.insert(parent.number)
        if !rule.parentColumnsAreKey { touched.recordsWritten.insert(parent.number) }
      }
    }
  }

  /// Rows of captured tables that reference a row that is not there.
  func violations() throws -> [Violation] {
    var found: [Violation] = []
    var dangling: [Int64: Bool] = [:]
    for rule in rules {
      guard let child = rule.capturedChild else { continue }
      if dangling[child.number] == nil { dangling[child.number] = try hasDangling(child) }
      if dangling[child.number] == true {
        let rows = touched.writtenRows(child)
        found += try read(rule, child, "FROM \(rows.from) WHERE \(rows.condition) AND \(rule.isDangling("x"))")
      }
      found += try orphans(rule)
    }
    return found
  }

  /// Whether a written row references a row that is not there: all references of a table in one pass, each parent looked
  /// up by a join, which opens it once and not for every row.
  private func hasDangling(_ child: CapturedTable) throws -> Bool {
    guard try touched.hasWritten(child) else { return false }
    let rows = touched.writtenRows(child)
    var rest = rules.filter { $0.capturedChild?.number == child.number }[...]
    while !rest.isEmpty {
      let some = rest.prefix(joinedParentsMax).enumerated()
      rest = rest.dropFirst(joinedParentsMax)
      let joins = some.map { place, rule in
        let terms = zip(rule.parentColumns, rule.childColumns).map { "p\(place).\(quoted($0)) = x.\(quoted($1))" }
        return " LEFT JOIN \(quoted(rule.parent)) p\(place) ON \(terms.joined(separator: " AND "))"
      }
      let missing = some.map { place, rule in
        let set = rule.childColumns.map { "x.\(quoted($0)) IS NOT NULL" }.joined(separator: " AND ")
        return "(p\(place).\(quoted(rule.parentColumns[0])) IS NULL AND \(set))"
      }
      let query =
        "SELECT 1 FROM \(rows.from)\(joins.joined()) WHERE \(rows.condition) AND (\(missing.joined(separator: " OR "))) LIMIT 1"
      if try context.connection.integer(query) != nil { return true }
    }
    return false
  }

  /// Captured rows that lost the parent they had.
  func orphans(_ rule: Rule) throws -> [Violation] {
    guard let child = rule.capturedChild, let condition = try orphanCondition(rule) else { return [] }
    return try read(rule, child, "FROM \(quoted(rule.child)) x WHERE \(condition)")
  }

  private func read(_ rule: Rule, _ child: CapturedTable, _ source: String) throws -> [Violation] {
    let columns = ((0..<child.keyCount).map(child.tableColumn) + rule.childColumns.map { "x.\(quoted($0))" })
      .joined(separator: ", ")
    return try context.connection.rows("SELECT \(columns) \(source)").map { row in
      Violation(
        rule: rule, table: child, key: Array(row.prefix(child.keyCount)),
        reference: Array(row.dropFirst(child.keyCount)))
    }
  }

  /// Which rows of the child may have lost their parent; nil: none.
  func orphanCondition(_ rule: Rule) throws -> String? {
    guard let parent = rule.capturedParent, rule.capturedChild != nil || rule.child != rule.parent else { return nil }
    let removed = try touched.hasRemoved(parent)
    guard try removed || (!rule.parentColumnsAreKey && touched.hasWritten(parent)) else { return nil }
    guard rule.parentColumnsAreKey, rule.childColumns.count == 1 else { return rule.isDangling("x") }
    return
      "x.\(quoted(rule.childColumns[0])) IN (SELECT k0 FROM \(touched.removed) WHERE t = \(parent.number)) AND \(rule.isDangling("x"))"
  }

  /// Rows of captured tables that reference a row which is not there, since the log's changes of a range: SQLite lets a REPLACE
  /// leave such a reference, and a connection with foreign keys off any.
  func captured(after start: Int64, upTo end: Int64) throws -> [Violation] {
    if rules.isEmpty { return [] }
    var found: [Violation] = []
    let range = "g.seq > \(start) AND g.seq <= \(end)"
    func tables(_ operations: String) throws -> Set<Int64> {
      Set(
        try context.connection.rows("SELECT DISTINCT t FROM salvor_log g WHERE \(range) AND g.op IN \(operations)")
          .compactMap { $0[0].integer })
    }
    let changed = try tables(StoreContext.changeOperations)
    let deleted = try changed.isEmpty ? [] : tables(StoreContext.deleteOperations)
    for rule in rules {
      guard let child = rule.capturedChild else { continue }
      if changed.contains(child.number) {
        found += try read(
          rule, child,
          "FROM salvor_log g CROSS JOIN \(quoted(child.name)) x WHERE \(range) AND g.t = \(child.number) AND g.op IN \(StoreContext.changeOperations) "
            + "AND \(child.rowAt { "g.v\($0)" }) AND \(rule.isDangling("x"))")
      }
      guard let parent = rule.capturedParent, rule.parentColumnsAreKey, deleted.contains(parent.number) else {
        continue
      }
      let references = rule.childColumns.map { "x.\(quoted($0))" }.joined(separator: ", ")
      let keys = parent.keySlots.map { "g.v\($0)" }.joined(separator: ", ")
      found += try read(
        rule, child,
        "FROM \(quoted(child.name)) x WHERE (\(references)) IN (SELECT \(keys) FROM salvor_log g WHERE \(range) AND g.t = \(parent.number) AND g.op IN \(StoreContext.deleteOperations)) "
          + "AND \(rule.isDangling("x"))")
    }
    return found
  }
}

/// SQLite joins 64 tables at most.
private let joinedParentsMax = 32
