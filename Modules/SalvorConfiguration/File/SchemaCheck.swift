import SalvorModel
import SalvorModuleKit

/// Checks a schema as a whole: names, keys, columns, groups; `ScopeCheck.swift` has references and scopes.
///
/// Where a thing stands in the file but could not be read, its reader has said so, and nothing that follows from its
/// absence is reported again.
struct SchemaCheck {
  let schema: Schema
  /// Nil where the schema declares no groups: then any name of a group will do.
  let declaredGroups: [String]?
  let limits: Limits
  let source: SourcePlaces
  private(set) var diagnostics: [Diagnostic] = []

  init(schema: Schema, declaredGroups: [String]?, limits: Limits, source: SourcePlaces) {
    self.schema = schema
    self.declaredGroups = declaredGroups
    self.limits = limits
    self.source = source
  }

  mutating func run() {
    checkParameters()
    checkGroups()
    checkTableNames()
    for table in schema.tables {
      checkColumns(table)
      checkKey(table)
      checkConstraints(table)
      checkFlags(table)
      checkKeysWithoutMeaning(table)
      checkReferences(table)
      checkScope(table)
      checkMembership(table)
    }
    checkInheritance()
    checkEvolution()
  }

  // MARK: Reporting

  mutating func report(_ keys: [String], _ message: String) {
    diagnostics.append(
      Diagnostic(file: source.file, line: source.line(keys), path: source.path(keys), message: message))
  }

  mutating func warn(_ keys: [String], _ message: String) {
    diagnostics.append(
      Diagnostic(
        severity: .warning, file: source.file, line: source.line(keys), path: source.path(keys), message: message))
  }

  func place(_ table: Table, _ keys: String...) -> [String] { ["tables", table.name] + keys }

  /// The column that is named at `keys`, or nil and reported.
  mutating func column(_ name: String, of table: Table, namedAt keys: [String]) -> Column? {
    if let index = table.columnIndex(name) { return table.columns[index] }
    if case .object = source.value(place(table, "columns"))?.content, !source.has(place(table, "columns", name)) {
      let names = table.columns.map(\.name)
      report(keys, "names the column \"\(name)\", which the table does not have\(suggestion(name, among: names))")
    }
    return nil
  }

  // MARK: Names

  private mutating func checkParameters() {
    for parameter in schema.parameters {
      let keys = ["parameters", parameter.name]
      if parameter.name.isEmpty { report(keys, "has no name") }
      if parameter.name.contains("=") {
        report(keys, "has = in its name; subscriptions give values as NAME=VALUE")
      }
      let isUsed = schema.tables.contains { $0.scopeColumns.contains { $0.source == .parameter(parameter.name) } }
      if !isUsed { warn(keys, "is used by no scope") }
    }
  }

  private mutating func checkGroups() {
    for group in declaredGroups ?? [] {
      if group.isEmpty { report(["groups", group], "has no name") } else { checkName(group, ["groups", group]) }
      if schema.tables(inGroup: group).isEmpty { warn(["groups", group], "is a group without a table") }
    }
    for table in schema.synchronized {
      let keys = place(table, "group")
      if table.group.isEmpty { report(keys, "has no name") }
      guard let declaredGroups, table.group != Schema.defaultGroup, !declaredGroups.contains(table.group) else {
        continue
      }
      report(
        keys,
        "is \"\(table.group)\", which is not declared under groups; declared: \(list(declaredGroups))"
          + suggestion(table.group, among: declaredGroups + [Schema.defaultGroup]))
    }
  }

  private mutating func checkTableNames() {
    var seen: [String: String] = [:]
    for table in schema.tables {
      checkName(table.name, place(table))
      let folded = table.name.folded
      for prefix in ["salvor_", "sqlite_"] where folded.hasPrefix(prefix) {
        report(place(table), "begins with \(prefix); such names are not the application's")
      }
      if let other = seen[folded] {
        report(place(table), "is the same table as \"\(other)\" for SQLite, which does not tell A from a in names")
      }
      seen[folded] = seen[folded] ?? table.name
    }
  }

  /// Of tables, columns and groups.
  private static let nameBytesMax = 1024

  private mutating func checkName(_ name: String, _ keys: [String]) {
    if name.isEmpty { report(keys, "has no name") }
    if name.unicodeScalars.contains("\0") {
      report(keys, "has the character U+0000 in its name, which SQLite cannot keep")
    }
    if name.utf8.count > Self.nameBytesMax {
      report(keys, "has a name of more than \(Self.nameBytesMax) bytes, which no message can hold")
    }
  }

  private mutating func checkColumns(_ table: Table) {
    if source.value(place(table, "columns"))?.content == .object([]) {
      report(place(table, "columns"), "has no column")
    }
    if table.maintained != .client, table.travelling.count > limits.columnsMax {
      report(
        place(table, "columns"),
        "has \(table.travelling.count) columns; at most \(limits.columnsMax) travel (limits.columnsMax)")
    }
    var seen: [String: String] = [:]
    for column in table.columns {
      let keys = place(table, "columns", column.name)
      checkName(column.name, keys)
      let folded = column.name.folded
      if let other = seen[folded] {
        report(keys, "is the same column as \"\(other)\" for SQLite, which does not tell A from a in names")
      }
      seen[folded] = seen[folded] ?? column.name
    }
  }

  // MARK: Keys and constraints

  private mutating func checkKey(_ table: Table) {
    let keys = place(table, "primaryKey")
    if source.value(keys)?.content == .array([]) { report(keys, "names no column") }
    if let twice = firstRepeated(table.primaryKey) { report(keys, "names the column \"\(twice)\" twice") }
    for name in Set(table.primaryKey).sorted() {
      guard let column = column(name, of: table, namedAt: keys) else { continue }
      if column.nullable {
        report(
          place(table, "columns", name), "is nullable (?) and in the primary key; a key column always has a value")
      }
    }
    if table.maintained == .dual, table.sameKeyRule == nil, table.sameKey == .refuse, !table.primaryKey.isEmpty,
      table.primaryKey.allSatisfy({ table.columnIndex($0) != nil })
    {
      warn(
        keys,
        "is an integer key on a table that both sides write: two devices make the same key for different rows, and the "
          + "second is refused. Use a text key (a UUID), or say sameKey: \"merge\" or \"refuse\"")
    }
  }

  private mutating func checkConstraints(_ table: Table) {
    for (index, names) in table.unique.enumerated() {
      let keys = place(table, "unique")
      if let twice = firstRepeated(names) { report(keys, "names the column \"\(twice)\" twice, at [\(index)]") }
      for name in names {
        guard column(name, of: table, namedAt: keys) != nil else { continue }
        if isFlag(name, of: table) { report(keys, "names the flag column \"\(name)\", which never travels") }
      }
    }
    for (index, expression) in table.check.enumerated() where !expression.contains(where: { !$0.isWhitespace }) {
      report(place(table, "check"), "has no condition at [\(index)]")
    }
  }

  func isFlag(_ name: String, of table: Table) -> Bool { name == table.flags.dirty || name == table.flags.deleted }

  private mutating func checkFlags(_ table: Table) {
    for (key, name) in [("dirty", table.flags.dirty), ("deleted", table.flags.deleted)] {
      let keys = place(table, "flags", key)
      guard let name, let column = column(name, of: table, namedAt: keys) else { continue }
      guard column.type == .boolean else {
        report(keys, "names the column \"\(name)\", which is \(column.type), not boolean")
        continue
      }
      if table.primaryKey.contains(name) { report(keys, "names the column \"\(name)\", which is in the primary key") }
      if let value = column.defaultValue, value != .integer(0) {
        report(place(table, "columns", name), "is a flag; its default can only be 0")
      } else if !column.nullable, column.defaultValue == nil {
        report(
          place(table, "columns", name),
          "is a flag, which never travels: it needs the default 0 for rows that come from the server: \"boolean = 0\"")
      }
    }
    if let dirty = table.flags.dirty, dirty == table.flags.deleted {
      report(place(table, "flags"), "names the column \"\(dirty)\" for both dirty and deleted")
    }
  }

  /// Keys that nothing acts on for this kind of table.
  private mutating func checkKeysWithoutMeaning(_ table: Table) {
    let without: [String]
    switch table.maintained {
    case .dual: return
    case .server: without = ["conflicts", "sameKey", "handover", "flags", "heal"]
    case .client:
      without = ["group", "download", "conflicts", "sameKey", "handover", "flags", "applicationTriggers", "heal"]
    }
    let kind = table.maintained == .server ? "server-maintained" : "client-only"
    for key in without where source.has(place(table, key)) {
      warn(place(table, key), "has no effect on a \(kind) table")
    }
  }
}

func firstRepeated(_ names: [String]) -> String? {
  var seen: Set<String> = []
  return names.first { !seen.insert($0).inserted }
}

func list(_ names: [String]) -> String { names.isEmpty ? "none" : names.joined(separator: ", ") }
