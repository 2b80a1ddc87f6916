/// The schema that both databases are made from: `schema.json5`, decoded and checked.
public struct Schema: Sendable, Hashable {
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

  public func table(_ name: String) -> Table? { tables.first { $0.name == name } }

  /// The tables that travel: all but the client-only ones.
  public var synchronized: [Table] { tables.filter { $0.maintained != .client } }

  /// The schema without its client-only tables, which are none of the server's.
  public var synchronizedPart: Schema {
    Schema(version: version, parameters: parameters, groups: groups, tables: synchronized, dropped: dropped)
  }

  /// The names of the groups of whose changes the server tells.
  public var serverInitiated: Set<String> { Set(groups.filter(\.serverInitiated).map(\.name)) }

  public func tables(inGroup group: String) -> [Table] { synchronized.filter { $0.group == group } }

  public struct Parameter: Sendable, Hashable {
    public var name: String
    public var type: ColumnType
    public init(name: String, type: ColumnType) {
      self.name = name
      self.type = type
    }
  }

  public struct Group: Sendable, Hashable {
    public var name: String
    public var serverInitiated: Bool
    public init(name: String, serverInitiated: Bool = false) {
      self.name = name
      self.serverInitiated = serverInitiated
    }
  }
}

/// Who writes a table (semantics 1).
public enum Maintained: String, Sendable, Hashable, CaseIterable {
  case server, dual, client
}

/// How a table's changes are found for a download (semantics 4).
public enum DownloadMode: String, Sendable, Hashable, CaseIterable {
  case cursor
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

public struct Column: Sendable, Hashable {
  public var name: String
  public var type: ColumnType
  public var nullable: Bool
  /// `nil`: no default. `.null` is never a default; a nullable column without one starts as NULL anyway.
  public var defaultValue: Value?
  /// What earlier versions of the schema called it, oldest first.
  public var renamedFrom: [String]

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

public enum OnDelete: String, Sendable, Hashable, CaseIterable {
  case noAction = "no action"
  case restrict
  case cascade
  case setNull = "set null"
}

/// A reference of one column to the primary key of another table (or of the same one).
public struct Reference: Sendable, Hashable {
  public var column: String
  public var table: String
  /// The row has the scope of the row it references.
  public var inheritsScope: Bool
  public var onDelete: OnDelete
  /// No foreign key on the device: the parent may be in another scope.
  public var soft: Bool

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
  case principal
  case parameter(String)
  /// A fixed value, the same for everyone.
  case value(Value)
  /// The values that `column` has in the rows of `table` that are themselves in the reader's scope.
  case via(table: String, column: String)
}

public struct ScopeColumn: Sendable, Hashable {
  public var column: String
  public var source: ScopeSource
  public init(column: String, source: ScopeSource) {
    self.column = column
    self.source = source
  }
}

/// Columns of the application's own that say dirty and deleted (semantics 3). They never travel.
public struct FlagColumns: Sendable, Hashable {
  public var dirty: String?
  public var deleted: String?
  public init(dirty: String? = nil, deleted: String? = nil) {
    self.dirty = dirty
    self.deleted = deleted
  }
}

/// What happens to an insert of a key that the server holds (semantics 7).
public enum SameKey: String, Sendable, Hashable, CaseIterable {
  case merge, refuse
}

public struct Table: Sendable, Hashable {
  /// The policy of a table that names none: the client's fields stand (semantics 7).
  public static let defaultConflicts = "client-wins"

  public var name: String
  public var maintained: Maintained
  public var group: String
  public var download: DownloadMode
  public var primaryKey: [String]
  public var columns: [Column]
  public var references: [Reference]
  /// All of it must hold.
  public var scope: [ScopeColumn]
  /// Where there are any, one of them must hold, too, and within it all.
  public var scopeAlternatives: [[ScopeColumn]]
  public var unique: [[String]]
  public var check: [String]
  /// The name of the conflict policy, a module of the server's (semantics 7).
  public var conflicts: String
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

  public func columnIndex(_ name: String) -> Int? { columns.firstIndex { $0.name == name } }

  /// The places of the key columns among the columns, in the order of the key.
  public var keyIndexes: [Int] { primaryKey.compactMap(columnIndex) }

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

  public var sameKey: SameKey {
    if let sameKeyRule { return sameKeyRule }
    let types = primaryKey.compactMap(columnIndex).map { columns[$0].type }
    return types.allSatisfy { $0 == .integer || $0 == .boolean } ? .refuse : .merge
  }
}
