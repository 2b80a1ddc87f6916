import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Rows of the application's own tables that reference others: what became of those decides what becomes of them (semantics 9).
extension ReferenceProof {
  typealias Losing = (_ table: String, _ key: Key) throws -> Void

  /// Client-only rows follow their own onDelete and onUpdate; without one they are kept aside (semantics 9).
  ///
  /// - Parameters:
  ///   - rebuilt: parents that were made anew, any row of which may be gone.
  ///   - losing: called for each row that goes with its parent; nil: nobody reports them.
  func settleClientRows(ofParents rebuilt: Set<String> = [], losing: Losing? = nil) throws {
    try referenced.settle()
    for (place, rule) in rules.enumerated() where rule.capturedChild == nil && rebuilt.contains(rule.parent) {
      _ = try referenced.unread(place)
      // Whether a value was changed or taken away, nobody has noted.
      try remove(rule, rule.isDangling("x"), rule.parentColumnsAreKey ? rule.onDelete : "NO ACTION", losing)
    }
    var again = true
    while again {
      again = false
      for (place, rule) in rules.enumerated() where rule.capturedChild == nil {
        if let unread = try referenced.unread(place) {
          try change(rule, unread)
          let isDangling = rule.isDangling("x")
          try remove(rule, "\(unread.matches(rule, .removed)) AND \(isDangling)", rule.onDelete, losing)
          // What went aside comes back: what would go with it goes aside, too.
          let action = rule.onDelete == "CASCADE" ? "NO ACTION" : rule.onDelete
          try remove(rule, "\(unread.matches(rule, .aside)) AND \(isDangling)", action, losing)
          again = true
        } else if !referenced.isNoted(place), let condition = try orphanCondition(rule) {
          let action = rule.parentColumnsAreKey ? rule.onDelete : "NO ACTION"
          if try remove(rule, condition, action, losing) { again = true }
        }
      }
    }
  }

  private func any(_ rule: Rule, _ condition: String) throws -> Bool {
    try context.connection.integer("SELECT 1 FROM \(quoted(rule.child)) x WHERE \(condition) LIMIT 1") != nil
  }

  /// What the table's own rule says of values that are others now, with its triggers. Where that cannot be, rows that reference nothing are
  /// kept aside.
  private func change(_ rule: Rule, _ unread: ReferencedValues.Unread) throws {
    let condition = unread.matches(rule, .changed)
    guard try any(rule, condition) else { return }
    switch rule.onUpdate {
    case "CASCADE": try run("UPDATE \(quoted(rule.child)) AS x SET \(unread.news(rule)) WHERE \(condition)")
    case "SET NULL": try set(rule, condition)
    case "SET DEFAULT": try setDefault(rule, condition)
    default: break
    }
    try remove(rule, "\(condition) AND \(rule.isDangling("x"))", "NO ACTION", nil)
  }

  /// What the table's own rule says, with its triggers. Where that cannot be (a trigger or a constraint is against it), they are kept aside.
  ///
  /// - Returns: false: there are no such rows.
  @discardableResult
  private func remove(_ rule: Rule, _ condition: String, _ action: String, _ losing: Losing?) throws -> Bool {
    guard try any(rule, condition) else { return false }
    switch action {
    case "CASCADE":
      let before = try losing == nil ? [] : keys(rule, condition)
      try run("DELETE FROM \(quoted(rule.child)) AS x WHERE \(condition)")
      if let losing {
        let left = try Set(keys(rule, condition))
        for key in before where !left.contains(key) {
          try losing(context.schema.table(rule.child)?.name ?? rule.child, key)
        }
      }
    case "SET NULL": try set(rule, condition)
    case "SET DEFAULT": try setDefault(rule, condition)
    default: break
    }
    if try any(rule, condition) { try putAside(rule, condition) }
    return true
  }

  private func set(_ rule: Rule, _ condition: String, _ values: [String]? = nil) throws {
    let values = values ?? rule.childColumns.map { _ in "NULL" }
    let sets = zip(rule.childColumns, values).map { "\(quoted($0)) = \($1)" }.joined(separator: ", ")
    try run("UPDATE \(quoted(rule.child)) AS x SET \(sets) WHERE \(condition)")
  }

  /// Where there is a row with the default values, or one of them is NULL.
  private func setDefault(_ rule: Rule, _ condition: String) throws {
    let shape = try context.connection.tableShape(rule.child)
    let values = rule.childColumns.map { "(\(shape?.column($0)?.defaultSQL ?? "NULL"))" }
    let isNull = values.map { "\($0) IS NULL" }.joined(separator: " OR ")
    let isRow = zip(rule.parentColumns, values).map { "p.\(quoted($0)) = \($1)" }.joined(separator: " AND ")
    let stands =
      try context.connection.integer(
        "SELECT \(isNull) OR EXISTS (SELECT 1 FROM \(quoted(rule.parent)) p WHERE \(isRow))") == 1
    if stands { try set(rule, condition, values) }
  }

  private func keys(_ rule: Rule, _ condition: String) throws -> [Key] {
    let key = try context.connection.tableShape(rule.child)?.primaryKey ?? []
    let list = key.isEmpty ? "x.rowid" : key.map { "x.\(quoted($0))" }.joined(separator: ", ")
    return try context.connection.rows(
      "SELECT \(list) FROM \(quoted(rule.child)) x WHERE \(condition) ORDER BY \(list)")
  }

  /// Nothing is done where a constraint or a trigger refuses it.
  ///
  /// - Returns: the rows that it wrote; those that it left, it left for a trigger.
  @discardableResult
  private func run(_ sql: String, _ values: [Value] = []) throws -> Int64 {
    do {
      return try context.connection.savepoint("salvor_client_rows") {
        try context.connection.run(sql, values)
        return Int64(context.connection.changes)
      }
    } catch let error as SalvorError where error.isConstraintViolation && context.connection.isInTransaction {
      return 0
    }
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
    try referenced.puttingAside(rule.child) {
      try context.connection.withTriggers(false) {
        try context.connection.run("DELETE FROM \(quoted(rule.child)) AS x WHERE \(condition)")
      }
    }
  }

  // MARK: Coming back

  private struct Aside {
    var id: Int64
    var table: String
    var columns: [String]
    var row: [Value]

    /// The row as alias `x`.
    var source: String {
      "(SELECT " + columns.enumerated().map { "?\($0 + 1) AS \(quoted($1))" }.joined(separator: ", ") + ") x"
    }
    /// A row of the application's own that took its key meanwhile stands, and this one waits on.
    var insert: String {
      let slots = (1...max(1, columns.count)).map { "?\($0)" }.joined(separator: ", ")
      return "INSERT OR IGNORE INTO \(quoted(table)) (\(quotedList(columns))) VALUES (\(slots))"
    }
  }

  /// Rows kept aside come back where all their parents are there again, or come back with them, and nobody has taken their keys.
  func returnAside() throws {
    let connection = context.connection
    var returning: [Aside] = []
    var needOthers = false
    for entry in try connection.rows("SELECT id, name, columns, payload FROM salvor_aside ORDER BY id") {
      guard let id = entry[0].integer, let name = entry[1].string, let shape = try connection.tableShape(name) else {
        continue
      }
      let columns = try unpayload(entry[2]).compactMap(\.string)
      let aside = Aside(id: id, table: name, columns: columns, row: try unpayload(entry[3]))
      guard columns.allSatisfy({ shape.column($0) != nil }) else { continue }
      let own = rules.filter { $0.child == name }
      if try dangles(aside, own.filter { $0.capturedParent != nil }) { continue }
      if try dangles(aside, own.filter { $0.capturedParent == nil }) { needOthers = true }
      returning.append(aside)
    }
    if needOthers {
      let standing = try standingTogether(returning)
      returning.removeAll { !standing.contains($0.id) }
    }
    for aside in returning where try run(aside.insert, aside.row) > 0 {
      try connection.run("DELETE FROM salvor_aside WHERE id = ?1", .integer(aside.id))
    }
  }

  private func dangles(_ aside: Aside, _ rules: [Rule]) throws -> Bool {
    if rules.isEmpty { return false }
    let missing = rules.map { "(\($0.isDangling("x")))" }.joined(separator: " OR ")
    return try !context.connection.rows("SELECT 1 FROM \(aside.source) WHERE \(missing)", aside.row).isEmpty
  }

  private struct Tried: Error {
    var standing: Set<Int64>
  }

  /// Those that reference nothing that is missing where all of them are there: rows below each other, and in a circle. It is tried in their
  /// tables, and taken back.
  private func standingTogether(_ all: [Aside]) throws -> Set<Int64> {
    let connection = context.connection
    do {
      return try connection.savepoint("salvor_aside_together") { () -> Set<Int64> in
        try connection.withTriggers(false) {
          var there: [Aside] = []
          for aside in all {
            try connection.run(aside.insert, aside.row)
            if connection.changes > 0 { there.append(aside) }
          }
          var before = there.count + 1
          while there.count < before {
            before = there.count
            there = try there.filter { aside in
              guard try dangles(aside, rules.filter { $0.child == aside.table && $0.capturedParent == nil }) else {
                return true
              }
              let isIt = aside.columns.enumerated().map { "\(quoted($1)) IS ?\($0 + 1)" }.joined(separator: " AND ")
              try connection.run("DELETE FROM \(quoted(aside.table)) WHERE \(isIt)", aside.row)
              return false
            }
          }
          throw Tried(standing: Set(there.map(\.id)))
        }
      }
    } catch let tried as Tried {
      return tried.standing
    }
  }
}
