import SalvorModel
import SalvorStorage
import SalvorWire

/// How the changes of one shape are checked and applied: made once per upload and shape.
///
/// `statement` applies a change in one step where nothing speaks against it: the row is there (or, for an insert, is
/// not), within the principal's scope, and for a delete no row would be taken along. Where it changes no row or breaks a
/// constraint it has done nothing, and the change is looked at closely (`CarefulChanges`).
final class ShapePlan {
  let operation: Operation
  /// Nil: unknown.
  let place: Int?
  let columns: [Int]
  let hasUnknownColumns: Bool
  /// What is wrong with every change of this shape.
  let refusal: RefusalText?
  let itemCount: Int
  /// Which items of the row array are the key.
  let keyItems: [Int]
  /// Where an update gives the key's columns other values: the place in the key, and the item.
  private(set) var keyUpdates: [(place: Int, item: Int)] = []
  /// For each item: the column that must store it; nil for an old value.
  let targets: [Column?]
  /// Their types alone, for the many rows in which nothing is wrong.
  let targetTypes: [ColumnType?]
  /// The items whose new values the schema wants, and the database does not (`ServerTable.lax`), and those of the key.
  let neverNullItems: [Int]
  let seed: RowHash
  /// Of table, operation and columns.
  let contentSeed: RowHash
  /// Of table and operation.
  let insertSeed: RowHash
  /// All items but old values; none of an unknown table's, which are hashed whole.
  let contentItems: [Int]
  /// For an insert: each item with its column and the oldest name of that. What is not set does not count: a
  /// device that sends the insert again may have got a column meanwhile.
  private(set) var insertItems: [(name: Value, item: Int, column: Column)] = []
  /// The items that say which rows the row references afterwards, each with the beginning of their `RowHash`; nil: the
  /// row array does not say it.
  private(set) var targetItems: [(item: Int, seed: RowHash)]?
  /// What an offer of this shape leaves in the book of healing where all of it is applied (`HealBook.Healing`).
  private(set) var healedMask: Int64 = ColumnMask.all
  private(set) var healedEntry: Int64 = ColumnMask.all
  /// The row may have unique values afterwards that it did not have before.
  private(set) var takesUniqueValues = true
  private(set) var statement: (any StoreStatement)?
  /// The same of many rows that are given as a table (`Dialect.rows`): their places come before `answers`, except of an insert's.
  private var setText: String?
  private var setStatement: (any StoreStatement)?
  private var filterValues: [Value] = []
  private let connection: any StoreConnection
  /// Where the database may store something else than it is given, the statement answers with these columns of the row.
  private var answers: [Int] = []
  /// The types of the items (`ServerTable.types`).
  private let types: [String]
  /// Which items are a row's key or the key of another one; empty: nobody has asked.
  private var nameItems: [Bool] = []
  private lazy var mayExclude = types.contains { !$0.isEmpty }
  /// The items bound to the statement's parameters, in order.
  private(set) var parameters: [Int] = []

  init(
    _ shape: UploadShape, _ connection: any StoreConnection, _ catalog: Catalog, _ principal: Principal
  ) throws {
    self.connection = connection
    operation = shape.operation
    seed = RowHash(table: shape.table)
    let place = catalog.place(of: shape.table)
    self.place = place
    // Under the oldest names: a request that was settled is known again whatever was renamed since.
    let definition = place.map { catalog.tables[$0].table }
    var contentSeed = RowHash(table: definition?.origin ?? shape.table)
    let origins = shape.columns.map { name in definition?.column(formerly: name)?.origin ?? name }
    contentSeed.add(([shape.operation.rawValue] + origins).map { Value.text(Array($0.utf8)) })
    self.contentSeed = contentSeed
    var insertSeed = RowHash(table: definition?.origin ?? shape.table)
    insertSeed.add(Value.text(Array("insert set".utf8)))
    self.insertSeed = insertSeed
    guard let place else {
      columns = []
      hasUnknownColumns = false
      keyItems = []
      targets = []
      targetTypes = []
      types = []
      contentItems = []
      neverNullItems = []
      itemCount = -1
      refusal = RefusalText(
        .unknownTable, "The server has no synchronized table \(shape.table). Check the schema.")
      return
    }
    let table = catalog.tables[place]
    let found = shape.columns.map { name in table.place(name) }
    columns = found.compactMap(\.self)
    hasUnknownColumns = columns.count < found.count
    let keyCount = table.keyCount
    if table.table.maintained != .dual {
      refusal = RefusalText(
        .serverMaintained, "\(table.name) is maintained by the server. Withdraw the change.")
    } else if let unknown = found.firstIndex(where: { $0 == nil }) {
      refusal = RefusalText(
        .unknownColumn, "The server's table \(table.name) has no column \(shape.columns[unknown]). Check the schema.")
    } else if shape.operation == .insert,
      let missing = table.lax.sorted().map({ table.columns[$0] }).first(where: {
        $0.defaultValue == nil && !shape.columns.contains($0.name)
      })
    {
      refusal = RefusalText(
        .constraint, "\(table.name).\(missing.name) is never NULL by the schema. Give it a value.")
    } else {
      refusal = nil
    }
    let types = found.map { $0.map { table.columns[$0] } }
    let keyColumns = table.keyPlaces.map { table.columns[$0] }
    let keyTypes = table.keyPlaces.map { table.types[$0] }
    let columnTypes = found.map { $0.map { table.types[$0] } ?? "" }
    switch shape.operation {
    case .insert: self.types = columnTypes
    case .update: self.types = keyTypes + columnTypes.flatMap { ["", $0] }
    case .delete: self.types = keyTypes
    }
    switch shape.operation {
    case .insert:
      itemCount = shape.columns.count
      targets = types
      keyItems = table.table.primaryKey.compactMap { name in shape.columns.firstIndex(of: name) }
      if !hasUnknownColumns {
        insertItems = columns.enumerated().map { item, column in
          (.text(Array(origins[item].utf8)), item, table.columns[column])
        }
      }
    case .update:
      itemCount = keyCount + 2 * shape.columns.count
      targets = keyColumns + types.flatMap { [nil, $0] }
      keyItems = Array(0..<keyCount)
      keyUpdates = shape.columns.enumerated().compactMap { index, name in
        table.table.primaryKey.firstIndex(of: name).map { (place: $0, item: keyCount + 2 * index + 1) }
      }
    case .delete:
      itemCount = keyCount
      targets = keyColumns
      keyItems = Array(0..<keyCount)
    }
    targetTypes = targets.map { $0?.type }
    let lax = shape.operation == .delete ? [] : found.indices.filter { found[$0].map(table.lax.contains) ?? false }
    // SQLite would draw an integer key where it is NULL, and its sender would not know it.
    neverNullItems =
      lax.map { shape.operation == .insert ? $0 : keyCount + 2 * $0 + 1 }
      + (shape.operation == .insert ? keyItems : keyUpdates.map(\.item))
    switch shape.operation {
    case .insert: healedMask = ColumnMask.mask(columns.map { table.bits[$0] } + [ColumnMask.existence])
    case .update:
      healedMask = ColumnMask.mask(columns.map { table.bits[$0] })
      healedEntry = healedMask
    case .delete: break
    }
    let isUpdate = shape.operation == .update
    contentItems = (0..<itemCount).filter { !isUpdate || $0 < keyCount || ($0 - keyCount) % 2 == 1 }
    readDependence(table, shape)
    // What a row of a table shows that scopes go through is looked at.
    if operation != .delete, !catalog.leads[place].isEmpty { return }
    guard refusal == nil, !catalog.hasDeferrableForeignKeys, keyItems.count == keyCount else { return }
    try makeStatement(table, place, shape, connection, catalog, ScopeFilter(table, ReadScope(principal), catalog))
  }

  /// Whether a row array of `count` items has this shape. Nobody knows that of an unknown table's.
  func fits(_ count: Int, _ catalog: Catalog) -> Bool {
    guard let place else { return true }
    return count == itemCount && keyItems.count == catalog.tables[place].keyCount
  }

  private func readDependence(_ table: ServerTable, _ shape: UploadShape) {
    let places = Dictionary(shape.columns.enumerated().map { ($1, $0) }) { first, _ in first }
    switch operation {
    case .delete:
      targetItems = []
      takesUniqueValues = false
    case .insert: takesUniqueValues = !table.uniqueColumns.isEmpty
    case .update: takesUniqueValues = table.uniqueColumns.contains { $0.contains { places[$0] != nil } }
    }
    guard operation != .delete else { return }
    let found = table.table.references.compactMap { reference in
      places[reference.column].map { place in
        (
          item: operation == .insert ? place : keyItems.count + 2 * place + 1,
          seed: RowHash(table: reference.table)
        )
      }
    }
    if found.count == table.table.references.count { targetItems = found }
  }

  private func makeStatement(
    _ table: ServerTable, _ place: Int, _ shape: UploadShape, _ connection: any StoreConnection, _ catalog: Catalog,
    _ filter: ScopeFilter?
  ) throws {
    switch operation {
    case .insert:
      guard filter?.columns.isSubset(of: shape.columns) ?? true else { return }
      if connection.altersRows { answers = Array(table.columns.indices) }
      parameters = Array(0..<itemCount)
    case .update:
      guard !shape.columns.isEmpty, Set(shape.columns).isDisjoint(with: table.table.primaryKey),
        Set(shape.columns).count == shape.columns.count,
        filter?.columns.isDisjoint(with: shape.columns) ?? true
      else { return }
      parameters = shape.columns.indices.map { keyItems.count + 2 * $0 + 1 } + keyItems
      if connection.altersRows { answers = columns }
    case .delete: parameters = keyItems
    }
    let dialect = catalog.dialect
    let types = parameters.map { self.types[$0] }
    let text = TextOfShape(operation, table, place, shape.columns, answers: answers, filter, catalog)
    let statement = try connection.prepare(
      text.sql(nil, { "?\($0 + 1)" }, typed: { dialect.parameter("?\($0 + 1)", types[$0]) }), persistent: true)
    try statement.bind(filter?.values ?? [], from: parameters.count + 1)
    self.statement = statement
    filterValues = filter?.values ?? []
    setText = dialect.rows(types).map { rows in
      text.sql(
        rows, { dialect.rowValue($0, types[$0]) }, typed: { "CAST(\(dialect.rowValue($0, types[$0])) AS \(types[$0]))" }
      )
    }
  }
}

/// A change of an upload where it stands in the payload.
struct UploadRow {
  let plan: ShapePlan
  let row: RowItems
  let stamp: RequestStamp
  let counter: Int64
  let made: Int64
}

/// The statement of a shape: of one row, or of many.
private struct TextOfShape {
  private let operation: Operation
  private let table: ServerTable
  private let place: Int
  private let names: [String]
  private let answers: [Int]
  private let filter: ScopeFilter?
  private let catalog: Catalog

  init(
    _ operation: Operation, _ table: ServerTable, _ place: Int, _ names: [String], answers: [Int],
    _ filter: ScopeFilter?, _ catalog: Catalog
  ) {
    (self.operation, self.table, self.place, self.names) = (operation, table, place, names)
    (self.answers, self.filter, self.catalog) = (answers, filter, catalog)
  }

  /// - Parameters:
  ///   - rows: the rows as a table; nil: it is one, given by parameters.
  ///   - value: of the parameter's place.
  ///   - typed: the same where nothing else tells its type.
  func sql(_ rows: String?, _ value: (Int) -> String, typed: (Int) -> String) -> String {
    var sql: String
    switch operation {
    case .insert:
      // What a condition looks at is of its column's type in both places, or the database may take it for two: of a domain, and of its base.
      let named = (filter?.columns ?? []).union(table.hasHeirs ? table.table.primaryKey : [])
      let values = names.indices.map { named.contains(names[$0]) ? typed($0) : value($0) }.joined(separator: ", ")
      func typedColumn(_ name: String) -> String { typed(names.firstIndex(of: name) ?? 0) }
      var conditions = filter.map { [$0.sql(typedColumn)] } ?? []
      if table.hasHeirs {
        let isThere = table.keyMatches("h") { typedColumn(table.table.primaryKey[$0]) }
        conditions.append("NOT EXISTS (SELECT 1 FROM \(table.sql) h WHERE \(isThere))")
      }
      sql = "INSERT INTO \(table.sql) (\(quotedNames(names))) \(table.dialect.overriding)"
      sql += conditions.isEmpty && rows == nil ? "VALUES (\(values))" : "SELECT \(values)"
      if let rows { sql += " FROM \(rows)" }
      if !conditions.isEmpty { sql += " WHERE " + conditions.joined(separator: " AND ") }
      if rows != nil { sql += " ORDER BY rows.place" }
      sql = table.insertingFree(sql)
    case .update:
      let sets = names.enumerated().map { "\(quoted($1)) = \(value($0))" }
      sql = "UPDATE \(table.sql) AS x SET \(sets.joined(separator: ", "))\(rows.map { " FROM \($0)" } ?? "") WHERE "
      sql += table.keyMatches("x") { value(names.count + $0) }
      if let filter { sql += " AND " + filter.sql { "x.\(quoted($0))" } }
    case .delete:
      sql = "DELETE FROM \(table.sql) AS x\(rows.map { " USING \($0)" } ?? "") WHERE " + table.keyMatches("x", value)
      for child in catalog.children[place] where child.reference.takesRowsAlong {
        sql += " AND NOT " + catalog.childExists(child, of: place, parentKey: "x.\(quoted(table.table.primaryKey[0]))")
      }
      if let filter { sql += " AND " + filter.sql { "x.\(quoted($0))" } }
    }
    var answered = answers.map { (operation == .insert ? "" : "x.") + quoted(table.columns[$0].name) }
    if rows != nil, operation != .insert { answered.insert("rows.place", at: 0) }
    return answered.isEmpty ? sql : sql + " RETURNING " + answered.joined(separator: ", ")
  }
}

extension ShapePlan {
  /// Whether many rows are written by one statement.
  var writesSets: Bool { setText != nil }

  /// Runs the statement of sets. The places of those rows that are not what was sent; nil: not every row was changed.
  func runSet(_ rows: ArraySlice<UploadRow>, _ catalog: Catalog) throws -> [Int]? {
    guard let setText, let place else { return nil }
    let statement = try setStatement ?? connection.prepare(setText, persistent: true)
    if setStatement == nil {
      try statement.bind(filterValues, from: parameters.count + 1)
      setStatement = statement
    }
    for (index, item) in parameters.enumerated() {
      try statement.bindColumn(index + 1, count: rows.count) { rows[rows.startIndex + $0].row.items[item] }
    }
    defer { statement.reset() }
    let table = catalog.tables[place]
    let sent = answers.map { column in
      sentItem(of: column).map(Sent.item) ?? .value(table.columns[column].defaultValue ?? .null)
    }
    let first = operation == .insert ? 0 : 1
    var others: [Int] = []
    var count = 0
    while try statement.step() {
      let row = operation == .insert ? count : Int(statement.int64(0)) - 1
      count += 1
      guard row < rows.count else { return nil }
      let items = rows[rows.startIndex + row].row.items
      let isAsSent = sent.enumerated().allSatisfy { index, sent in
        switch sent {
        case .item(let item): statement.holds(items[item], first + index)
        case .value(let value): statement.value(first + index) == value
        }
      }
      if !isAsSent { others.append(row) }
    }
    return count == rows.count ? others : nil
  }

  private enum Sent {
    case item(Int)
    case value(Value)
  }

  /// The item that gives the column its value.
  private func sentItem(of column: Int) -> Int? {
    columns.firstIndex(of: column).map { operation == .update ? keyItems.count + 2 * $0 + 1 : $0 }
  }

  /// Runs the statement: whether the row, if there is one, is what was sent, and the columns that are not, as far as the statement tells.
  func run(_ row: RowItems, _ catalog: Catalog) throws -> (isAsSent: Bool, altered: Int64) {
    guard let statement, let place else { return (false, 0) }
    let items = row.items
    for (index, item) in parameters.enumerated() { try statement.bind(index + 1, items[item]) }
    if answers.isEmpty {
      try statement.run()
      return (!row.holdsMinusZero, 0)
    }
    defer { statement.reset() }
    guard try statement.step() else { return (true, 0) }
    let table = catalog.tables[place]
    let altered = answers.enumerated().filter { index, column in
      let isAsSent =
        sentItem(of: column).map { statement.holds(items[$0], index) }
        ?? (statement.value(index) == table.columns[column].defaultValue ?? .null)
      return !isAsSent
    }
    return (altered.isEmpty, ColumnMask.mask(altered.map { table.bits[$0.element] }))
  }

  /// What the database could not compare or store, whatever it is asked.
  func excluded(_ row: RowItems, _ catalog: Catalog) -> RefusalText? {
    guard let place, mayExclude else { return nil }
    if nameItems.isEmpty {
      let table = catalog.tables[place].table
      nameItems = targets.map { target in
        target.map { column in
          table.primaryKey.contains(column.name) || table.references.contains { $0.column == column.name }
        } ?? false
      }
    }
    for (index, item) in row.items.enumerated()
    where index < types.count && catalog.dialect.excludes(item, types[index], names: nameItems[index]) {
      let (column, advice) = (targets[index].map { ".\($0.name)" } ?? "", catalog.dialect.wanted(item, types[index]))
      return RefusalText(
        .notStorable,
        "\(catalog.tables[place].name)\(column): the server's database cannot store the value as \(types[index]). \(advice)"
      )
    }
    return nil
  }
}

extension Reference {
  /// A delete of the parent changes the child by itself.
  var takesRowsAlong: Bool { onDelete == .cascade || onDelete == .setNull }
}

extension Catalog {
  /// A row other than the parent itself references it.
  func childExists(_ child: ChildReference, of parent: Int, parentKey: String) -> String {
    let table = tables[child.table]
    let itself =
      child.table == parent ? " AND \(dialect.differs("c.\(quoted(table.table.primaryKey[0]))", parentKey))" : ""
    return "EXISTS (SELECT 1 FROM \(table.sql) c WHERE c.\(quoted(child.reference.column)) = \(parentKey)\(itself))"
  }
}
