import SalvorModel
import SalvorStorage

/// What one statement did to one row.
struct RowChange: Sendable, Hashable {
  var name: RowName
  var before: Row?
  var after: Row?
}

/// Runs an application's statements as SQLite does: each is checked at its end, references at the end of all where that was
/// asked for; a delete carries out the actions of the references to its row. What a caller gets back is in SQLite's own order, a cascaded row before the one it hung on.
struct StatementRunner {
  let constraints: Constraints
  private(set) var tables: MemoryTables
  private var changes: [RowChange] = []
  private var defersReferences = false
  private let tablesBefore: MemoryTables

  init(_ tables: MemoryTables, constraints: Constraints) {
    self.tables = tables
    tablesBefore = tables
    self.constraints = constraints
  }

  /// Runs one statement. A constraint that it breaks throws `storage`, and the rows stay as they were.
  mutating func run(_ write: ApplicationWrite) throws -> [RowChange] {
    let before = tables
    changes = []
    do {
      switch write {
      case .insert(let table, let values): try insert(try known(table), values)
      case .update(let table, let key, let values): try update(try known(table), key, values)
      case .delete(let table, let key): try delete(RowName(table: try known(table).name, key: key))
      case .deferReferences: defersReferences = true
      case .beginRequest, .endRequest: break
      }
      if !changes.isEmpty { try checkConstraints(before, besidesReferences: defersReferences) }
    } catch {
      tables = before
      throw error
    }
    return changes
  }

  /// What a trigger does to a row.
  mutating func set(_ name: RowName, _ row: Row?) { tables[name] = row }

  /// What a trigger deletes. Answers with the rows below that go with it: those that a mark had deleted before.
  mutating func remove(_ name: RowName) -> [RowName] {
    changes = []
    try? delete(name)
    return changes.map(\.name).filter { $0 != name && tables[$0] == nil }
  }

  private func known(_ name: String) throws -> Table {
    guard let table = constraints.schema.table(name) else {
      throw SalvorError(.storage, "There is no table \(name). Name one of the schema.", context: ["table": name])
    }
    return table
  }

  /// The end of the transaction. A reference that leads nowhere throws `storage`: nothing of it is to be kept.
  func commit() throws {
    if defersReferences { try checkConstraints(tablesBefore, besidesReferences: false) }
  }

  private func checkConstraints(_ before: MemoryTables, besidesReferences: Bool) throws {
    let found = constraints.violations(in: tables).subtracting(constraints.violations(in: before))
    guard let violation = found.first(where: { !besidesReferences || !$0.isReference }) else { return }
    throw broken(violation.table, violation.summary)
  }

  private func broken(_ table: String, _ what: String) -> SalvorError {
    SalvorError(
      .storage, "The statement breaks a constraint of the table \(table): \(what). Nothing was changed.",
      context: ["table": table])
  }

  private mutating func insert(_ table: Table, _ values: [NamedValue]) throws {
    let row = try table.row(values.map { ($0.name, $0.value) })
    let name = RowName(table: table.name, key: table.key(of: row))
    if tables[name] != nil { throw broken(table.name, "the primary key is taken") }
    put(name, row)
  }

  private mutating func update(_ table: Table, _ key: Key, _ values: [NamedValue]) throws {
    let name = RowName(table: table.name, key: key)
    guard let old = tables[name] else { return }
    var row = old
    try table.set(values.map { ($0.name, $0.value) }, in: &row)
    let newName = RowName(table: table.name, key: table.key(of: row))
    guard newName != name else {
      if row != old { put(name, row) }
      return
    }
    if tables[newName] != nil { throw broken(table.name, "the primary key is taken") }
    put(name, nil)
    put(newName, row)
  }

  private mutating func delete(_ name: RowName) throws {
    guard let row = tables[name] else { return }
    tables[name] = nil
    for (child, reference) in constraints.references(to: name.table) where name.key.count == 1 {
      for key in tables.sortedKeys(of: child.name) {
        let childName = RowName(table: child.name, key: key)
        guard let childRow = tables[childName], let place = child.columnIndex(reference.column),
          childRow[place] == name.key[0]
        else { continue }
        switch reference.onDelete {
        case .cascade: try delete(childName)
        case .setNull:
          var cleared = childRow
          cleared[place] = .null
          put(childName, cleared)
        case .noAction, .restrict: break  // found at the end of the statement
        }
      }
    }
    changes.append(RowChange(name: name, before: row, after: nil))
  }

  private mutating func put(_ name: RowName, _ row: Row?) {
    changes.append(RowChange(name: name, before: tables[name], after: row))
    tables[name] = row
  }
}

extension Violation {
  /// A message's words; no value of a row.
  var summary: String {
    switch self {
    case .notNull(_, let column): "\(column) must not be NULL"
    case .check(_, let expression): "CHECK (\(expression))"
    case .unique(_, _, let columns): "UNIQUE (\(columns.joined(separator: ", ")))"
    case .missingParent(_, let reference): "\(reference.column) references no row of \(reference.table)"
    }
  }

  var isReference: Bool { if case .missingParent = self { true } else { false } }

  var table: String {
    switch self {
    case .notNull(let name, _), .check(let name, _), .unique(let name, _, _), .missingParent(let name, _): name.table
    }
  }
}
