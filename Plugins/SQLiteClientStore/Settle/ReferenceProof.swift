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

  /// A foreign key of the database, of Salvor's tables and the application's own.
  struct Rule {
    var child: String
    var childColumns: [String]
    var parent: String
    var parentColumns: [String]
    var onDelete: String
    var capturedChild: CapturedTable?
    var capturedParent: CapturedTable?
    var parentColumnsAreKey: Bool

    func parentExists(_ alias: String) -> String {
      let terms = zip(parentColumns, childColumns).map { "p.\(quoted($0)) = \(alias).\(quoted($1))" }
      return "EXISTS (SELECT 1 FROM \(quoted(parent)) p WHERE \(terms.joined(separator: " AND ")))"
    }

    func isDangling(_ alias: String) -> String {
      childColumns.map { "\(alias).\(quoted($0)) IS NOT NULL" }.joined(separator: " AND ")
        + " AND NOT \(parentExists(alias))"
    }
  }

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
            capturedChild: child, capturedParent: parent,
            parentColumnsAreKey: columns.map { $0.lowercased() } == shape.primaryKey.map { $0.lowercased() }))
      }
    }
    self.rules = rules
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
  private func orphanCondition(_ rule: Rule) throws -> String? {
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

  /// Client-only rows that lost their parent follow their own onDelete; without one they are kept aside (semantics 9).
  ///
  /// - Parameters:
  ///   - rebuilt: parents that were made anew, any row of which may be gone.
  ///   - losing: called for each row that goes with its parent; nil: nobody reports them.
  func settleClientRows(
    ofParents rebuilt: Set<String> = [], losing: ((_ table: String, _ key: Key) throws -> Void)? = nil
  ) throws {
    let connection = context.connection
    var parents = rebuilt
    var again = true
    while again {
      again = false
      for rule in rules where rule.capturedChild == nil {
        guard let condition = try orphanCondition(rule) ?? (parents.contains(rule.parent) ? rule.isDangling("x") : nil)
        else { continue }
        guard try connection.integer("SELECT 1 FROM \(quoted(rule.child)) x WHERE \(condition) LIMIT 1") != nil else {
          continue
        }
        try follow(rule, condition, mayBeChanged: !parents.contains(rule.parent), losing)
        parents.insert(rule.child)
        again = true
      }
    }
  }

  /// What the table's own rule says, with its triggers. Where that cannot be (a trigger or a constraint is against it), and where a value
  /// that rows reference was changed and not taken away, they are kept aside.
  ///
  /// - Parameter mayBeChanged: the parent's rows that are there still may have had the value.
  private func follow(
    _ rule: Rule, _ condition: String, mayBeChanged: Bool, _ losing: ((_ table: String, _ key: Key) throws -> Void)?
  ) throws {
    let isRemoval =
      try !mayBeChanged || rule.parentColumnsAreKey || !(rule.capturedParent.map(touched.hasWritten) ?? false)
    let sets = rule.childColumns.map { "\(quoted($0)) = NULL" }.joined(separator: ", ")
    switch rule.onDelete {
    case "CASCADE" where isRemoval:
      let before = try losing == nil ? [] : keys(rule, condition)
      let isDone = try run("DELETE FROM \(quoted(rule.child)) AS x WHERE \(condition)", rule, condition)
      if let losing {
        let left = try Set(isDone ? [] : keys(rule, condition))
        for key in before where !left.contains(key) {
          try losing(context.schema.table(rule.child)?.name ?? rule.child, key)
        }
      }
      if isDone { return }
    case "SET NULL" where isRemoval:
      if try run("UPDATE \(quoted(rule.child)) AS x SET \(sets) WHERE \(condition)", rule, condition) { return }
    default: break
    }
    try putAside(rule, condition)
  }

  private func keys(_ rule: Rule, _ condition: String) throws -> [Key] {
    let key = try context.connection.tableShape(rule.child)?.primaryKey ?? []
    let list = key.isEmpty ? "x.rowid" : key.map { "x.\(quoted($0))" }.joined(separator: ", ")
    return try context.connection.rows(
      "SELECT \(list) FROM \(quoted(rule.child)) x WHERE \(condition) ORDER BY \(list)")
  }

  /// False: rows are left.
  private func run(_ sql: String, _ rule: Rule, _ condition: String) throws -> Bool {
    do {
      try context.connection.savepoint("salvor_client_rows") { try context.connection.run(sql) }
    } catch let error as SalvorError where error.isConstraintViolation && context.connection.isInTransaction {
      return false
    }
    return try context.connection.integer("SELECT 1 FROM \(quoted(rule.child)) x WHERE \(condition) LIMIT 1") == nil
  }

  private func putAside(_ rule: Rule, _ condition: String) throws {
    let columns = try context.connection.tableShape(rule.child)?.columns.map(\.name) ?? []
    let list = columns.map { "x.\(quoted($0))" }.joined(separator: ", ")
    let rows = try context.connection.rows("SELECT \(list) FROM \(quoted(rule.child)) x WHERE \(condition)")
    let what = rows.count == 1 ? "1 row" : "\(rows.count) rows"
    try context.connection.note(
      [
        "\(what) of the client-only table \(rule.child) went aside (salvor_aside): what they reference in \(rule.parent) is gone, or has another key. They come back with it."
      ], at: context.clock.now())
    for row in rows {
      try context.connection.run(
        "INSERT INTO salvor_aside (name, columns, payload) VALUES (?1, ?2, ?3)", .text(rule.child),
        .text(payload(columns.map { Value.text($0) })), .text(payload(row)))
    }
    // No trigger keeps them where they dangle.
    try context.connection.withTriggers(false) {
      try context.connection.run("DELETE FROM \(quoted(rule.child)) AS x WHERE \(condition)")
    }
  }

  /// Rows kept aside come back where all their parents are there again, and nobody has taken their keys.
  func returnAside() throws {
    let connection = context.connection
    for entry in try connection.rows("SELECT id, name, columns, payload FROM salvor_aside ORDER BY id") {
      guard let name = entry[1].string, let shape = try connection.tableShape(name) else { continue }
      let columns = try unpayload(entry[2]).compactMap(\.string)
      let row = try unpayload(entry[3])
      guard columns.allSatisfy({ shape.column($0) != nil }) else { continue }
      let slots = (1...max(1, columns.count)).map { "?\($0)" }.joined(separator: ", ")
      let missing = rules.filter { $0.child == name }.map { $0.isDangling("x") }
      let source =
        "(SELECT " + columns.enumerated().map { "?\($0 + 1) AS \(quoted($1))" }.joined(separator: ", ") + ") x"
      if try !missing.isEmpty
        && connection.rows("SELECT 1 FROM \(source) WHERE \(missing.joined(separator: " OR "))", row).isEmpty == false
      {
        continue
      }
      // A row of the application's own that took its key meanwhile stands, and this one waits on.
      try connection.run(
        "INSERT OR IGNORE INTO \(quoted(name)) (\(quotedList(columns))) VALUES (\(slots))", row)
      if connection.changes > 0 { try connection.run("DELETE FROM salvor_aside WHERE id = ?1", entry[0]) }
    }
  }
}

/// SQLite joins 64 tables at most.
private let joinedParentsMax = 32
