import SalvorModel
import SalvorStorage

/// Transactions of an application with deferred foreign keys: rows come before those that they reference, move to keys that
/// are referenced already, and reference themselves and one another.
extension RandomHistory {
  /// `rows` of one client. The references hold at the end, unless constraints of another kind are in the way.
  mutating func deferredWrites(_ rows: [String: [Row]]) -> [ApplicationWrite] {
    var transaction = Transaction(schema, rows)
    for _ in 0..<2 + random.below(3) { wildWrite(&transaction) }
    for _ in 0..<8 {
      guard let (table, key, reference) = transaction.dangling.first else { break }
      mend(table, key, reference, &transaction)
    }
    var writes = transaction.writes
    if writes.count > 1, random.chance(50) {
      // Some of them are a group, the others single requests.
      let start = random.below(writes.count)
      let end = start + 1 + random.below(writes.count - start)
      writes.insert(.endRequest, at: end)
      writes.insert(.beginRequest(tag: random.chance(50) ? "tag" : nil), at: start)
    }
    return [.deferReferences] + writes
  }

  private mutating func wildWrite(_ transaction: inout Transaction) {
    let table = random.pick(schema.synchronized)
    let keys = transaction.keys(of: table)
    guard !keys.isEmpty, random.chance(60) else {
      return transaction.insert(table, table.columns.map { wildValue($0, table, transaction) })
    }
    let key = random.pick(keys)
    if !transaction.hasDelete, random.chance(15) { return transaction.delete(table, key) }
    let isMove = random.chance(40)
    let column = random.pick(table.columns.filter { table.primaryKey.contains($0.name) == isMove })
    transaction.update(table, key, column, wildValue(column, table, transaction))
  }

  /// A key often is one that is referenced and not there; a reference may lead anywhere.
  private mutating func wildValue(_ column: Column, _ table: Table, _ transaction: Transaction) -> Value {
    if table.primaryKey == [column.name], random.chance(50) {
      let wanted = transaction.dangling.filter { $0.reference.table == table.name }
      if let first = wanted.first { return transaction.value(first.reference.column, first.table, first.key) }
    }
    if column.nullable && random.chance(25) { return .null }
    switch column.type {
    case .integer: return .integer(Int64(random.below(3)))
    default:
      let isScope = table.scopeColumns.contains { $0.column == column.name }
      return .text(random.pick(isScope ? ["EU", "US"] : ["a", "b", "c", "d", "e"]))
    }
  }

  /// A reference that leads nowhere gets its row, or leads to one.
  private mutating func mend(_ table: Table, _ key: Key, _ reference: Reference, _ transaction: inout Transaction) {
    guard let parent = schema.table(reference.table),
      let column = table.columns.first(where: { $0.name == reference.column })
    else { return }
    if random.chance(60) || table.primaryKey.contains(column.name) {
      let wanted = transaction.value(column.name, table, key)
      return transaction.insert(
        parent, parent.columns.map { parent.primaryKey == [$0.name] ? wanted : wildValue($0, parent, transaction) })
    }
    let keys = transaction.keys(of: parent)
    transaction.update(table, key, column, keys.isEmpty ? .null : random.pick(keys)[0])
  }
}

/// What the writes of one transaction come to.
private struct Transaction {
  let schema: Schema
  private var rows: [String: [Key: Row]]
  private(set) var writes: [ApplicationWrite] = []
  /// Triggers cannot tell a child's delete and then its parent's from a cascade: one delete in a transaction.
  private(set) var hasDelete = false

  init(_ schema: Schema, _ rows: [String: [Row]]) {
    self.schema = schema
    self.rows = rows.mapValues { _ in [:] }
    for table in schema.tables {
      for row in rows[table.name] ?? [] { self.rows[table.name]?[table.key(of: row)] = row }
    }
  }

  func keys(of table: Table) -> [Key] { (rows[table.name] ?? [:]).keys.sorted(by: keyPrecedes) }

  func value(_ column: String, _ table: Table, _ key: Key) -> Value {
    guard let row = rows[table.name]?[key], let place = table.columnIndex(column) else { return .null }
    return row[place]
  }

  /// Nothing where the key is taken.
  mutating func insert(_ table: Table, _ row: Row) {
    guard rows[table.name]?[table.key(of: row)] == nil else { return }
    rows[table.name, default: [:]][table.key(of: row)] = row
    writes.append(
      .insert(table: table.name, values: zip(table.columns, row).map { NamedValue($0.name, $1) }))
  }

  /// Nothing where the new key is taken.
  mutating func update(_ table: Table, _ key: Key, _ column: Column, _ value: Value) {
    guard var row = rows[table.name]?[key], let place = table.columnIndex(column.name), row[place] != value else {
      return
    }
    row[place] = value
    let newKey = table.key(of: row)
    guard newKey == key || rows[table.name]?[newKey] == nil else { return }
    rows[table.name]?[key] = nil
    rows[table.name]?[newKey] = row
    writes.append(.update(table: table.name, key: key, values: [NamedValue(column.name, value)]))
  }

  mutating func delete(_ table: Table, _ key: Key) {
    hasDelete = true
    rows[table.name]?[key] = nil
    writes.append(.delete(table: table.name, key: key))
  }

  /// References of a device that lead nowhere, in the order of the schema and of the keys.
  var dangling: [(table: Table, key: Key, reference: Reference)] {
    schema.synchronized.flatMap { table in
      keys(of: table).flatMap { key in
        table.references.filter { reference in
          let value = value(reference.column, table, key)
          return !reference.soft && !value.isNull && rows[reference.table]?[[value]] == nil
        }.map { (table, key, $0) }
      }
    }
  }
}
