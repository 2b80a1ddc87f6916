import SalvorModel
import SalvorStorage

/// The synchronized part of a schema as the statements of this store see it. Made at open, never changed.
package struct Catalog: Sendable {
  let schema: Schema
  let dialect: any Dialect
  /// Parents before children.
  package let tables: [ServerTable]
  /// For each table, the references that point to it.
  let children: [[ChildReference]]
  /// For each table, the scopes of others that go through it (`via:`); those that one of its references leads to first.
  let leads: [[ScopeLead]]
  /// The tables whose moves decide what is seen, as places: each after those that its scope asks for.
  let scopeOrder: [Int]
  /// The numbers of tables that the scope of another one asks for.
  let scopeSources: Set<Int64>
  /// How conflicts of each table are settled.
  let policies: [any ConflictPolicy]
  /// A refusal does not say what the database's own constraints and triggers say.
  let withholdsMessages: Bool
  /// Values that an entry of the change log holds at most.
  let logWidth: Int
  /// Dimensions of the scope of the table that has the most.
  let scopeWidth: Int
  /// A foreign key is checked at COMMIT only: a statement that breaks it does not fail by itself.
  let hasDeferrableForeignKeys: Bool
  /// Another one wherever a download's position would mean other tables or columns.
  let fingerprint: String
  /// The places of each group's tables, in the order of their numbers; every group of the schema is there.
  let members: [String: [Int]]
  private let places: [String: Int]
  private let placesByNumber: [Int64: Int]

  struct ChildReference: Sendable {
    var table: Int
    var reference: Reference
  }

  /// A row of a table shows rows of `table` by `join`.
  struct ScopeLead: Sendable {
    var table: Int
    var join: ScopeJoin
    /// By which it references the row that it shows; nil: by none.
    var reference: Reference?
  }

  package init(
    _ schema: Schema, tables: [ServerTable], policies: [any ConflictPolicy], hasDeferrableForeignKeys: Bool,
    withholdsMessages: Bool, dialect: any Dialect
  ) {
    self.dialect = dialect
    self.withholdsMessages = withholdsMessages
    self.schema = schema
    self.tables = tables
    self.policies = policies
    self.hasDeferrableForeignKeys = hasDeferrableForeignKeys
    let places = Dictionary(uniqueKeysWithValues: tables.enumerated().map { ($1.name, $0) })
    self.places = places
    var members = Dictionary(schema.groups.map { ($0.name, [Int]()) }) { first, _ in first }
    for place in tables.indices.sorted(by: { tables[$0].number < tables[$1].number }) {
      members[tables[place].table.group, default: []].append(place)
    }
    self.members = members
    placesByNumber = Dictionary(uniqueKeysWithValues: tables.enumerated().map { ($1.number, $0) })
    children = tables.map { parent in
      tables.enumerated().flatMap { place, child in
        (child.table.references + child.undeclared)
          .filter { $0.table == parent.name && parent.table.primaryKey.count == 1 }
          .map { ChildReference(table: place, reference: $0) }
      }
    }
    leads = tables.map { through in
      let found = tables.enumerated().flatMap { place, table in
        table.alternatives.flatMap(\.joins).filter { $0.reference == nil && $0.table == through.name }.map { join in
          ScopeLead(
            table: place, join: join,
            reference: through.table.references.first { $0.column == join.target && $0.table == table.name })
        }
      }
      return found.filter { $0.reference != nil } + found.filter { $0.reference == nil }
    }
    scopeOrder = Self.scopeOrder(of: tables, places)
    scopeSources = Set(tables.flatMap(\.edges).compactMap { places[$0.table] }.map { tables[$0].number })
    fingerprint = SalvorStorage.digest(
      tables.flatMap { table in Array("\(table.number) \(table.name) \(table.columns.map(\.name))\n".utf8) })
    logWidth = Self.logWidth(of: tables)
    scopeWidth = Self.scopeWidth(of: tables)
  }

  package static func logWidth(of tables: [ServerTable]) -> Int {
    tables.map { $0.keyPlaces.count + $0.relevant.count }.max() ?? 1
  }

  package static func scopeWidth(of tables: [ServerTable]) -> Int { tables.map(\.scopeWidth).max() ?? 0 }

  private static func scopeOrder(of tables: [ServerTable], _ places: [String: Int]) -> [Int] {
    var order: [Int] = []
    var done: Set<Int> = []
    func visit(_ place: Int) {
      guard done.insert(place).inserted else { return }
      for edge in tables[place].edges { if let joined = places[edge.table] { visit(joined) } }
      if tables[place].isTracked { order.append(place) }
    }
    for place in tables.indices { visit(place) }
    return order
  }

  package func place(of name: String) -> Int? { places[name] }
  func place(number: Int64) -> Int? { placesByNumber[number] }
  package func table(_ name: String) -> ServerTable? { places[name].map { tables[$0] } }

  /// The scope of a group, and the generations of its tables: where it changes, the group is fed whole.
  func digest(ofGroup group: String, for scope: ReadScope) -> String {
    let members = members[group] ?? []
    let digest =
      scope.principal.scopeDigest(of: members.map { tables[$0].alternatives })
      + scope.subscriptionDigest(ofGroup: group, in: schema)
    let renewed = members.filter { tables[$0].generation > 0 }.map { "\(tables[$0].number):\(tables[$0].generation)" }
    return renewed.isEmpty ? digest : digest + "-" + renewed.joined(separator: ",")
  }
}

/// A foreign key of the database's by which a delete of a parent changes rows of another table.
package struct ActingKey: Sendable {
  package var columns: [String]
  package var parent: String
  package var parentColumns: [String]
  package var onDelete: OnDelete

  package init(columns: [String], parent: String, parentColumns: [String], onDelete: OnDelete) {
    self.columns = columns
    self.parent = parent
    self.parentColumns = parentColumns
    self.onDelete = onDelete
  }

  /// The same, with its parent as the schema spells it.
  func of(_ parent: String) -> ActingKey {
    ActingKey(columns: columns, parent: parent, parentColumns: parentColumns, onDelete: onDelete)
  }
}

extension ServerTable {
  /// Takes in what the database has beside the schema (semantics 7).
  ///
  /// - Returns: of each such key what the operator is told: a device cannot know of it.
  package mutating func note(_ keys: [ActingKey], _ schema: Schema) -> [String] {
    var notices: [String] = []
    for key in keys {
      guard let parent = schema.tables.first(where: { $0.name.folded == key.parent.folded }),
        parent.maintained != .client
      else { continue }
      if key.onDelete == .cascade { cascades.append(key.of(parent.name)) }
      let first = key.columns.first?.folded
      let isDeclared = table.references.contains {
        key.columns.count == 1 && $0.column.folded == first && $0.table == parent.name
          && $0.onDelete == key.onDelete
      }
      if isDeclared { continue }
      let place = "\(table.name).\(key.columns.joined(separator: ", "))"
      let action = key.onDelete.rawValue.uppercased()
      let what = "\(place) is ON DELETE \(action) to \(parent.name) in the table, and not in the schema"
      if key.columns.count == 1,
        key.parentColumns.map({ $0.folded }) == parent.primaryKey.map({ $0.folded })
      {
        undeclared.append(Reference(column: key.columns[0], table: parent.name, onDelete: key.onDelete))
        notices.append(
          "\(what): a device's delete of a row that others reference so is refused (conflict). Declare the reference, and devices delete what belongs to it."
        )
      } else {
        notices.append("\(what): a device's delete takes rows along that it did not see.")
      }
    }
    return notices
  }
}

extension Schema {
  /// The columns of a table that the scopes of others go through (`via:`).
  func exports(of table: Table) -> [String] {
    tables.flatMap(\.scopeColumns).compactMap { scope in
      if case .via(table.name, let column) = scope.source { column } else { nil }
    }.withoutRepetitions
  }

  /// The columns of a table that scopes look at: its own scope's, references that inherit one, and what others go through.
  package func columnsOfScopes(of table: Table) -> [String] {
    let deciding =
      scopeAlternatives(of: table).isEmpty
      ? [] : table.scopeColumns.map(\.column) + table.references.filter(\.inheritsScope).map(\.column)
    return (deciding + exports(of: table)).withoutRepetitions
  }

  /// A table's scope that depends on itself says nothing.
  package func refuseScopeCircles() throws {
    for table in tables {
      var seen: Set<String> = []
      var open = [table.name]
      while let name = open.popLast() {
        for (column, source) in self.table(name)?.scopeSources ?? [] {
          if source == table.name {
            throw SalvorError(
              .schemaRefused,
              "\(name).\(column) makes the scope of \(table.name) depend on itself. Change the schema.",
              context: ["table": name, "column": column])
          }
          if seen.insert(source).inserted { open.append(source) }
        }
      }
    }
  }
}

/// A unique index of a table, as far as it decides which rows are equal.
package struct UniqueIndex: Sendable, Hashable {
  package struct Column: Sendable, Hashable {
    /// Nil: an expression.
    package var name: String?
    /// It compares bytes.
    package var isBinary: Bool
    package init(name: String?, isBinary: Bool) {
      self.name = name
      self.isBinary = isBinary
    }
  }

  package var columns: [Column]
  package var isPrimaryKey: Bool
  package init(columns: [Column], isPrimaryKey: Bool) {
    self.columns = columns
    self.isPrimaryKey = isPrimaryKey
  }
}

/// One synchronized table.
package struct ServerTable: Sendable {
  package let table: Table
  /// Its number in the change log; never another table's.
  package let number: Int64
  /// Counts what the change log could not see of the table; see `Catalog.digest`.
  package var generation: Int64
  /// The columns that travel.
  package let columns: [Column]
  /// Of the key's columns among `columns`, in the order of the key.
  package let keyPlaces: [Int]
  /// The ways by which a row may be in scope; empty: everyone's.
  package let alternatives: [ScopeAlternative]
  /// The tables and columns that the ways ask for.
  package let edges: [ScopeEdge]
  /// Its columns that the scopes of other tables go through.
  package let exports: [String]
  /// The columns whose old values decide where a row was, and where it led others: own scope columns, references that
  /// inherit, and `exports`.
  package let relevant: [String]
  /// The key's and the others.
  let uniqueIndexes: [UniqueIndex]
  let dialect: any Dialect
  /// The bit of each of `columns` in a `ColumnMask`.
  package let bits: [Int]
  /// What the database calls the type of each of `columns`; empty where values say their type themselves.
  package let types: [String]
  /// The row with the key `?1`, …, as `x`: a statement that a condition may follow.
  let rowByKey: String
  /// It has a unique value that may be proved later than its statement: the database says of none that it is free.
  package var defersKeys = false
  /// The places of columns that are never NULL by the schema or as a part of the key, and may be in a table from before Salvor: nobody else
  /// refuses what no device could take.
  package var lax: Set<Int> = []

  /// - Parameter isLax: whether the database takes NULL in the column of this name.
  package func placesNeverNull(_ isLax: (String) -> Bool) -> Set<Int> {
    Set(
      columns.indices.filter { place in
        (!columns[place].nullable || keyPlaces.contains(place)) && isLax(columns[place].name)
      })
  }

  /// Other tables inherit from it: their keys are none of its own index, and its rows are those of all.
  package var hasHeirs = false

  /// What its foreign keys say in the database and the schema does not: a delete of the parent changes rows of it. They refer to the parent's key.
  package var undeclared: [Reference] = []

  /// The foreign keys of the database by which its rows go with a row of a synchronized table, declared or not.
  package var cascades: [ActingKey] = []

  /// An `INSERT` into it that does nothing where a unique value is another row's already, if the database can say so.
  func insertingFree(_ insert: String) -> String { defersKeys ? insert : dialect.insertingFree(insert) }

  /// - Parameter columnNumbers: of its columns, by name (`ColumnMask.numbers`).
  package init(
    _ table: Table, schema: Schema, number: Int64, generation: Int64, uniqueIndexes: [UniqueIndex],
    columnNumbers: [String: Int64], dialect: any Dialect, types: [String] = []
  ) {
    self.types = types.isEmpty ? table.travelling.map { _ in "" } : types
    bits = table.travelling.map { ColumnMask.bit(ofColumn: columnNumbers[$0.name] ?? .max) }
    self.table = table
    self.number = number
    self.generation = generation
    self.dialect = dialect
    let columns = table.travelling
    // As the schema spells its columns: a table of before may spell them otherwise.
    self.uniqueIndexes = uniqueIndexes.map { index in
      var index = index
      for (place, column) in index.columns.enumerated() {
        index.columns[place].name =
          columns.first { $0.name.folded == column.name?.folded }?.name ?? column.name
      }
      return index
    }
    self.columns = columns
    keyPlaces = table.primaryKey.compactMap { name in columns.firstIndex { $0.name == name } }
    alternatives = schema.scopeAlternatives(of: table)
    edges = alternatives.flatMap(\.joins).map(ScopeEdge.init).withoutRepetitions
    exports = schema.exports(of: table)
    relevant = schema.columnsOfScopes(of: table)
    let folds = uniqueIndexes.filter(\.isPrimaryKey).contains { $0.columns.contains { !$0.isBinary } }
    let isKey = table.primaryKey.enumerated().map { place, name in
      let column = "x.\(quoted(name))", slot = "?\(place + 1)"
      return folds ? "\(column) = \(slot) AND \(dialect.isSame(column, slot))" : "\(column) = \(slot)"
    }
    let names = columns.map { "x.\(quoted($0.name))" }.joined(separator: ", ")
    rowByKey = "SELECT \(names) FROM \(quoted(table.name)) x WHERE \(isKey.joined(separator: " AND "))"
  }

  package var name: String { table.name }
  /// The name as SQL takes it.
  package var sql: String { quoted(table.name) }
  var isScoped: Bool { !alternatives.isEmpty }
  /// What becomes of its rows decides what is seen, of it or of others.
  var isTracked: Bool { isScoped || !exports.isEmpty }
  /// The ways by which one of its rows counts for others; of a table that is everyone's there is one, and it asks nothing.
  var ways: [ScopeAlternative] { alternatives.isEmpty ? [ScopeAlternative()] : alternatives }
  /// Dimensions of the way that has the most.
  var scopeWidth: Int { alternatives.map(\.dimensions.count).max() ?? 0 }
  package var keyCount: Int { keyPlaces.count }

  package func place(_ column: String) -> Int? { columns.firstIndex { $0.name == column } }

  /// `x."id", x."line"`; without an alias where it is nil.
  package func keyList(_ alias: String? = nil) -> String {
    table.primaryKey.map { (alias.map { "\($0)." } ?? "") + quoted($0) }.joined(separator: ", ")
  }

  /// The row's key comes after `key` in the order of the table's key. Its parameters are plain `?`.
  func follows(_ alias: String, _ key: Key) -> String {
    let keys = keyList(alias)
    return keyCount == 1 ? "\(keys) > ?" : "(\(keys)) > (\(key.map { _ in "?" }.joined(separator: ", ")))"
  }

  package func columnList(_ alias: String? = nil) -> String {
    columns.map { (alias.map { "\($0)." } ?? "") + quoted($0.name) }.joined(separator: ", ")
  }

  /// `v0, v1`: the columns of the key in an entry of the change log; `e.v0, e.v1` with an alias: its values.
  func logKey(_ alias: String? = nil) -> String {
    (0..<keyCount).map { place in alias.map { logValue("\($0).v\(place)", place) } ?? "v\(place)" }
      .joined(separator: ", ")
  }

  /// A value of a key, as the real column compares it.
  private func logValue(_ expression: String, _ place: Int) -> String {
    dialect.unlogged(expression, types[keyPlaces[place]])
  }

  /// The key in an entry of the change log that a statement reads whatever its table is, from the column `first` on.
  func logKey(of entry: any StoreStatement, from first: Int) -> Key {
    keyPlaces.enumerated().map { place, column in dialect.unlogged(entry.value(first + place), types[column]) }
  }

  /// A column of the row `alias` of the real table, as the change log holds it.
  func logged(_ column: String, _ alias: String) -> String {
    dialect.logged("\(alias).\(quoted(column))", place(column).map { types[$0] } ?? "")
  }

  /// A value of the change log as the real column compares it.
  func unlogged(_ expression: String, _ column: String) -> String {
    dialect.unlogged(expression, place(column).map { types[$0] } ?? "")
  }

  /// The row `row` of the table has the key that `other` names in `v0`, …
  package func keyMatches(_ row: String, log other: String) -> String {
    keyMatches(row) { logValue("\(other).v\($0)", $0) }
  }

  /// The row `row` of the table has the key that the expressions give, byte for byte.
  package func keyMatches(_ row: String, _ expression: (Int) -> String) -> String {
    table.primaryKey.enumerated().map { place, name in
      let column = row.isEmpty ? quoted(name) : "\(row).\(quoted(name))"
      let equal = "\(column) = \(expression(place))"
      return keyIsBinary ? equal : "\(equal) AND \(dialect.isSame(column, expression(place)))"
    }.joined(separator: " AND ")
  }

  /// Whether equal keys are the same bytes: no collation folds them.
  var keyIsBinary: Bool {
    uniqueIndexes.filter(\.isPrimaryKey).allSatisfy { $0.columns.allSatisfy(\.isBinary) }
  }

  /// The unique indexes besides the key's, by their columns.
  var uniqueColumns: [[String]] {
    uniqueIndexes.filter { !$0.isPrimaryKey }.map { $0.columns.compactMap(\.name) }
  }
}

/// A table that scopes ask for: by which column of the row, and which column of its own.
package struct ScopeEdge: Sendable, Hashable {
  package let column: String
  let table: String
  let target: String
  /// A parent; else many rows may be joined.
  let isReference: Bool

  init(_ join: ScopeJoin) {
    column = join.column
    table = join.table
    target = join.target
    isReference = join.reference != nil
  }
}

extension StoreConnection {
  /// Of all its tables.
  package func proveMoment(of catalog: Catalog) throws { try proveMoment(of: catalog.tables.map(\.name)) }
}

extension Array where Element: Hashable {
  /// Each element once, where it stands first.
  package var withoutRepetitions: [Element] {
    var seen: Set<Element> = []
    return filter { seen.insert($0).inserted }
  }
}

extension SalvorError {
  /// Of a table or a column, `TABLE.COLUMN`, to which the schema renames another one.
  package static func nameTaken(_ name: String, by old: String, table: String) -> SalvorError {
    SalvorError(
      .schemaRefused,
      "The database has \(name) already, which is another one, and the schema renames \(old) to it. Drop it there or give it another name, or choose another one in the schema. Nothing was changed.",
      context: ["table": table])
  }

  /// Of a table that another one is renamed to.
  package static func nameUsedBefore(_ name: String, by old: String) -> SalvorError {
    SalvorError(
      .schemaRefused,
      "The schema renames \(old) to \(name), and \(name) was another synchronized table before. Give \(old) a name that no table had. Nothing was changed.",
      context: ["table": name])
  }
}
