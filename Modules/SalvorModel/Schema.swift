/// The schema that both databases are made from: `schema.json5`, decoded and checked.
public struct Schema: Sendable, Hashable {
  /// The name of the group of a table that names none.
  public static let defaultGroup = "default"

  /// The application's own number; a difference is judged by the tables, not by it.
  public var version: Int64
  /// Sync parameters that scopes name, in the order of the file.
  public var parameters: [Parameter]
  /// Every group that a synchronized table names, "default" included where one has no group; in the order of the file.
  public var groups: [Group]
  /// In the order of the file.
  public var tables: [Table]
  /// Tables that earlier versions of the schema had, and that are gone on purpose.
  public var dropped: [String]

  /// Version 1 and no parameters where nothing else is given. Groups that synchronized tables name and `groups`
  /// lacks are added at its end, without `serverInitiated`.
  public init(
    version: Int64 = 1, parameters: [Parameter] = [], groups: [Group] = [], tables: [Table], dropped: [String] = []
  ) {
    self.version = version
    self.parameters = parameters
    self.groups = groups
    self.tables = tables
    self.dropped = dropped
    for table in tables where table.maintained != .client && !self.groups.contains(where: { $0.name == table.group }) {
      self.groups.append(Group(name: table.group))
    }
  }

  /// The table of this name, client-only ones included; nil: the schema has none. Upper and lower case differ.
  public func table(_ name: String) -> Table? { tables.first { $0.name == name } }

  /// The tables that travel: all but the client-only ones.
  public var synchronized: [Table] { tables.filter { $0.maintained != .client } }

  /// The schema without its client-only tables, which are none of the server's.
  public var synchronizedPart: Schema {
    Schema(version: version, parameters: parameters, groups: groups, tables: synchronized, dropped: dropped)
  }

  /// The names of the groups of whose changes the server tells.
  public var serverInitiated: Set<String> { Set(groups.filter(\.serverInitiated).map(\.name)) }

  /// The synchronized tables of a group, in the order of the file; empty where no table names it.
  public func tables(inGroup group: String) -> [Table] { synchronized.filter { $0.group == group } }

  /// A sync parameter: devices give it a value with their subscriptions, and scopes compare columns with it.
  public struct Parameter: Sendable, Hashable {
    /// As scopes and subscriptions name it.
    public var name: String
    /// Of the values that it may take.
    public var type: ColumnType
    /// All parts given.
    public init(name: String, type: ColumnType) {
      self.name = name
      self.type = type
    }
  }

  /// Tables that synchronize together, with a cursor of their own (semantics 1).
  public struct Group: Sendable, Hashable {
    /// As tables name it.
    public var name: String
    /// The server tells listening devices of changes in the group's tables; false: they ask at intervals.
    public var serverInitiated: Bool
    /// A group of whose changes the server does not tell, where nothing else is given.
    public init(name: String, serverInitiated: Bool = false) {
      self.name = name
      self.serverInitiated = serverInitiated
    }
  }
}

/// Who writes a table (semantics 1).
public enum Maintained: String, Sendable, Hashable, CaseIterable {
  /// `server`: devices only read it. `dual`: both sides write. `client`: it never leaves the device.
  case server, dual, client
}

/// How a table's changes are found for a download (semantics 4).
public enum DownloadMode: String, Sendable, Hashable, CaseIterable {
  /// From the change log, since the group's cursor.
  case cursor
  /// By comparing digests of keys and rows in every sync, which also finds what was written without any trigger.
  case keySet = "key-set"
}

/// `boolean` is stored as the integers 0 and 1; `timestamp` and `json` are text, kept to the byte on every store.
public enum ColumnType: String, Sendable, Hashable, CaseIterable {
  case text, integer, real, blob, boolean, timestamp, json

  /// The type's name in a `CREATE TABLE` of SQLite. Each has an affinity that keeps a storable value as it is.
  public var sqliteName: String {
    switch self {
    case .text, .timestamp, .json: "TEXT"
    case .integer, .boolean: "INTEGER"
    case .real: "REAL"
    case .blob: "BLOB"
    }
  }

  /// Whether a column of this type stores `value` and gives back the same storage class and bytes. NULL is judged by
  /// `Column.nullable`, not here. An integer is storable as real only where it comes as real.
  public func stores(_ value: Value) -> Bool {
    switch (self, value) {
    case (_, .null): true
    case (.text, .text), (.timestamp, .text), (.json, .text): true
    case (.integer, .integer), (.real, .real), (.blob, .blob): true
    case (.boolean, .integer(let x)): x == 0 || x == 1
    default: false
    }
  }
}

extension ColumnType {
  /// The value as a list of this type's parameter has it; nil: it may not have it. A whole number is written as an integer.
  public func listed(_ value: Value) -> Value? {
    if case .integer(let number) = value, self == .real { return .real(Double(number)) }
    guard stores(value) else { return .none }
    return value
  }
}

/// A column of a table. Key columns are not nullable.
public struct Column: Sendable, Hashable {
  /// As in the database. Unique in its table, also where upper and lower case count as one.
  public var name: String
  /// What values it stores.
  public var type: ColumnType
  /// Whether it may hold NULL.
  public var nullable: Bool
  /// `nil`: no default. `.null` is never a default; a nullable column without one starts as NULL anyway.
  public var defaultValue: Value?
  /// What earlier versions of the schema called it, oldest first.
  public var renamedFrom: [String]

  /// Not nullable, without a default and never renamed, where nothing else is given.
  public init(
    _ name: String, _ type: ColumnType, nullable: Bool = false, defaultValue: Value? = nil, renamedFrom: [String] = []
  ) {
    self.name = name
    self.type = type
    self.nullable = nullable
    self.defaultValue = defaultValue
    self.renamedFrom = renamedFrom
  }

  /// Whether somebody has set the column to `value`: NULL and the default count as not set where two inserts of one key
  /// meet (semantics 7).
  public func isSet(_ value: Value) -> Bool { !value.isNull && value != defaultValue }
}

/// What happens to the referencing rows when a row is deleted. The raw value is SQL's.
public enum OnDelete: String, Sendable, Hashable, CaseIterable {
  case noAction = "no action"
  case restrict
  case cascade
  case setNull = "set null"
}

/// A reference of one column to the primary key of another table (or of the same one).
public struct Reference: Sendable, Hashable {
  /// The column that holds the other row's key.
  public var column: String
  /// The referenced table, whose primary key is one column.
  public var table: String
  /// The row has the scope of the row it references.
  public var inheritsScope: Bool
  /// Of the foreign key; `set null` needs a nullable column outside of the key.
  public var onDelete: OnDelete
  /// No foreign key on the device: the parent may be in another scope.
  public var soft: Bool

  /// Scope not inherited, `no action` and a foreign key on the device, where nothing else is given.
  public init(
    column: String, table: String, inheritsScope: Bool = false, onDelete: OnDelete = .noAction, soft: Bool = false
  ) {
    self.column = column
    self.table = table
    self.inheritsScope = inheritsScope
    self.onDelete = onDelete
    self.soft = soft
  }
}

/// What a scope column is compared with (semantics 7).
public enum ScopeSource: Sendable, Hashable {
  /// The name of the principal who reads.
  case principal
  /// The values that the principal may give this sync parameter; any value, where its credential lists none.
  case parameter(String)
  /// A fixed value, the same for everyone.
  case value(Value)
  /// The values that `column` has in the rows of `table` that are themselves in the reader's scope.
  case via(table: String, column: String)
}

/// One condition of a scope: a row is within it where the column has the value, or one of the values, of the
/// source.
public struct ScopeColumn: Sendable, Hashable {
  /// A column of the table itself.
  public var column: String
  /// What the column is compared with.
  public var source: ScopeSource
  /// All parts given.
  public init(column: String, source: ScopeSource) {
    self.column = column
    self.source = source
  }
}

/// Columns of the application's own that say dirty and deleted (semantics 3). They never travel.
public struct FlagColumns: Sendable, Hashable {
  /// The column that Salvor sets while changes of the row wait to be sent; nil: the table has none.
  public var dirty: String?
  /// The column that the application sets to delete a row: any value but NULL and 0 does. Nil: the table has none.
  public var deleted: String?
  /// Neither column where nothing is given.
  public init(dirty: String? = nil, deleted: String? = nil) {
    self.dirty = dirty
    self.deleted = deleted
  }
}

/// What happens to an insert of a key that the server holds (semantics 7).
public enum SameKey: String, Sendable, Hashable, CaseIterable {
  /// `merge`: like an update of that row. `refuse`: the request is refused with `key-exists`.
  case merge, refuse
}

/// A table of the schema, synchronized or client-only.
public struct Table: Sendable, Hashable {
  /// The policy of a table that names none: the client's fields stand (semantics 7).
  public static let defaultConflicts = "client-wins"

  /// As in the database, on both sides. Unique in the schema, also where upper and lower case count as one.
  public var name: String
  /// Who writes it; `client`: it never leaves the device.
  public var maintained: Maintained
  /// The name of its synchronization group.
  public var group: String
  /// How its changes for a download are found.
  public var download: DownloadMode
  /// Names of columns, in the order of the key; none of them is nullable.
  public var primaryKey: [String]
  /// All of them, flag columns included, in the order of the file. Rows have their values in this order.
  public var columns: [Column]
  /// One for each referencing column, in the order of the file.
  public var references: [Reference]
  /// All of it must hold.
  public var scope: [ScopeColumn]
  /// Where there are any, one of them must hold, too, and within it all.
  public var scopeAlternatives: [[ScopeColumn]]
  /// Lists of columns whose values together may occur once, beside the primary key.
  public var unique: [[String]]
  /// SQL conditions that every row must meet, e.g. `seats < 100`.
  public var check: [String]
  /// The name of the conflict policy, a module of the server's (semantics 7).
  public var conflicts: String
  /// The application's own dirty and deleted columns; none where both are nil.
  public var flags: FlagColumns
  /// Nil: by the key's type, `merge` for text and blob keys, `refuse` for integer keys.
  public var sameKeyRule: SameKey?
  /// A client's write may hand a row to another scope.
  public var handover: Bool
  /// The application's own triggers fire when Salvor writes rows on the device.
  public var applicationTriggers: Bool
  /// What of the table a device gives back to a server that lost it, at most: the stricter of this and of the device's own
  /// `client.recovery.heal` holds (semantics 10).
  public var heal: HealMode
  /// What earlier versions of the schema called it, oldest first.
  public var renamedFrom: [String]
  /// Columns that earlier versions of the schema had, and that are gone on purpose.
  public var dropped: [String]

  /// Dual-maintained, in the default group, without scope and constraints, and with `client-wins`, where nothing
  /// else is given.
  public init(
    _ name: String, maintained: Maintained = .dual, group: String = Schema.defaultGroup,
    download: DownloadMode = .cursor, primaryKey: [String], columns: [Column], references: [Reference] = [],
    scope: [ScopeColumn] = [], scopeAlternatives: [[ScopeColumn]] = [], unique: [[String]] = [],
    check: [String] = [],
    conflicts: String = Table.defaultConflicts, flags: FlagColumns = FlagColumns(), sameKey: SameKey? = nil,
    handover: Bool = false, applicationTriggers: Bool = true, heal: HealMode = .all, renamedFrom: [String] = [],
    dropped: [String] = []
  ) {
    self.name = name
    self.maintained = maintained
    self.group = group
    self.download = download
    self.primaryKey = primaryKey
    self.columns = columns
    self.references = references
    self.scope = scope
    self.scopeAlternatives = scopeAlternatives
    self.unique = unique
    self.check = check
    self.conflicts = conflicts
    self.flags = flags
    self.sameKeyRule = sameKey
    self.handover = handover
    self.applicationTriggers = applicationTriggers
    self.heal = heal
    self.renamedFrom = renamedFrom
    self.dropped = dropped
  }

  /// The place of the column among `columns`; nil: the table has no such column.
  public func columnIndex(_ name: String) -> Int? { columns.firstIndex { $0.name == name } }

  /// The places of the key columns among the columns, in the order of the key.
  public var keyIndexes: [Int] { primaryKey.compactMap(columnIndex) }

  /// The key of a row that has a value for each of `columns`.
  public func key(of row: Row) -> Key { keyIndexes.map { row[$0] } }

  /// The columns that travel, in the order of `columns`: all but the flag columns. The key is among them.
  public var travelling: [Column] {
    columns.filter { $0.name != flags.dirty && $0.name != flags.deleted }
  }

  /// The columns of its own that decide its scope, whatever the alternative.
  public var scopeColumns: [ScopeColumn] { scope + scopeAlternatives.flatMap(\.self) }

  /// The tables that its scope asks for, and by which of its columns.
  public var scopeSources: [(column: String, table: String)] {
    references.filter(\.inheritsScope).map { ($0.column, $0.table) }
      + scopeColumns.compactMap { scope in
        if case .via(let table, _) = scope.source { (scope.column, table) } else { nil }
      }
  }

  /// The rule that counts: `sameKeyRule`, or by the key's types where that is nil. `refuse` where every key column
  /// is an integer or a boolean, else `merge`.
  public var sameKey: SameKey {
    if let sameKeyRule { return sameKeyRule }
    let types = primaryKey.compactMap(columnIndex).map { columns[$0].type }
    return types.allSatisfy { $0 == .integer || $0 == .boolean } ? .refuse : .merge
  }
}
