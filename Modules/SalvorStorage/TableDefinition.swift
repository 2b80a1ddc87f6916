import SalvorModel
import SalvorWire

/// A table of the schema as JSON, for the SyncConfig and the schema check. Defaults are left out, keys stand in a fixed
/// order: equal tables give equal text.
public enum TableDefinition {
  /// The definition; `table(_:)` reads it back.
  public static func json(_ table: Table) -> JSONValue {
    var members: [JSONValue.Member] = [
      .init("name", .string(table.name)),
      .init("maintained", .string(table.maintained.rawValue)),
      .init("group", .string(table.group)),
      .init("download", .string(table.download.rawValue)),
      .init("primaryKey", .array(table.primaryKey.map(JSONValue.string))),
      .init("columns", .array(table.columns.map(json))),
    ]
    func add(_ key: String, _ value: JSONValue?) {
      if let value { members.append(.init(key, value)) }
    }
    func list(_ items: [JSONValue]) -> JSONValue? { items.isEmpty ? nil : .array(items) }
    add("references", list(table.references.map(json)))
    add("scope", list(table.scope.map(json)))
    add("scopeAlternatives", list(table.scopeAlternatives.map { .array($0.map(json)) }))
    add("unique", list(table.unique.map { .array($0.map(JSONValue.string)) }))
    add("check", list(table.check.map(JSONValue.string)))
    add("conflicts", .string(table.conflicts))
    add("dirtyFlag", table.flags.dirty.map(JSONValue.string))
    add("deletedFlag", table.flags.deleted.map(JSONValue.string))
    add("sameKey", table.sameKeyRule.map { .string($0.rawValue) })
    if table.handover { add("handover", true) }
    if !table.applicationTriggers { add("applicationTriggers", false) }
    if table.heal != .all { add("heal", .string(table.heal.rawValue)) }
    add("renamedFrom", list(table.renamedFrom.map(JSONValue.string)))
    add("dropped", list(table.dropped.map(JSONValue.string)))
    return .object(members)
  }

  private static func json(_ column: Column) -> JSONValue {
    var members: [JSONValue.Member] = [
      .init("name", .string(column.name)), .init("type", .string(column.type.rawValue)),
    ]
    if column.nullable { members.append(.init("nullable", true)) }
    if let value = column.defaultValue { members.append(.init("default", JSONValue(value))) }
    if !column.renamedFrom.isEmpty {
      members.append(.init("renamedFrom", .array(column.renamedFrom.map(JSONValue.string))))
    }
    return .object(members)
  }

  private static func json(_ reference: Reference) -> JSONValue {
    var members: [JSONValue.Member] = [
      .init("column", .string(reference.column)), .init("table", .string(reference.table)),
    ]
    if reference.inheritsScope { members.append(.init("inheritsScope", true)) }
    if reference.onDelete != .noAction { members.append(.init("onDelete", .string(reference.onDelete.rawValue))) }
    if reference.soft { members.append(.init("soft", true)) }
    return .object(members)
  }

  private static func json(_ scope: ScopeColumn) -> JSONValue {
    let source: JSONValue.Member =
      switch scope.source {
      case .principal: .init("principal", true)
      case .parameter(let name): .init("parameter", .string(name))
      case .value(let value): .init("value", JSONValue(value))
      case .via(let table, let column): .init("via", .array([.string(table), .string(column)]))
      }
    return .object([.init("column", .string(scope.column)), source])
  }

  private static func scopeColumns(_ entries: [JSONValue]) throws(SalvorError) -> [ScopeColumn] {
    var out: [ScopeColumn] = []
    for entry in entries {
      let source: ScopeSource
      if let name = try entry.optionalString("parameter") {
        source = .parameter(name)
      } else if let text = entry["value"] {
        guard let value = text.rowValue else { throw unknown("value") }
        source = .value(value)
      } else if let via = try entry.optionalArray("via") {
        guard via.count == 2, let table = via[0].string, let column = via[1].string else { throw unknown("via") }
        source = .via(table: table, column: column)
      } else {
        source = .principal
      }
      out.append(ScopeColumn(column: try entry.string("column"), source: source))
    }
    return out
  }

  /// The table that a definition describes. Throws `malformed` where a member is missing or has a value that is not
  /// known; members that are not known are passed over.
  public static func table(_ json: JSONValue) throws(SalvorError) -> Table {
    var columns: [Column] = []
    for column in try json.array("columns") {
      var defaultValue: Value?
      if let text = column["default"] {
        guard let value = text.rowValue else { throw unknown("default") }
        defaultValue = value
      }
      columns.append(
        Column(
          try column.string("name"), try raw(column, "type"), nullable: column["nullable"]?.bool ?? false,
          defaultValue: defaultValue, renamedFrom: try strings(column["renamedFrom"] ?? [])))
    }
    var references: [Reference] = []
    for reference in try json.optionalArray("references") ?? [] {
      references.append(
        Reference(
          column: try reference.string("column"), table: try reference.string("table"),
          inheritsScope: reference["inheritsScope"]?.bool ?? false,
          onDelete: reference["onDelete"] == nil ? .noAction : try raw(reference, "onDelete"),
          soft: reference["soft"]?.bool ?? false))
    }
    var alternatives: [[ScopeColumn]] = []
    for entry in try json.optionalArray("scopeAlternatives") ?? [] {
      alternatives.append(try scopeColumns(entry.array ?? []))
    }
    var unique: [[String]] = []
    for entry in try json.optionalArray("unique") ?? [] { unique.append(try strings(entry)) }
    return Table(
      try json.string("name"), maintained: try raw(json, "maintained"), group: try json.string("group"),
      download: try raw(json, "download"), primaryKey: try strings(json["primaryKey"] ?? .null), columns: columns,
      references: references, scope: try scopeColumns(json.optionalArray("scope") ?? []),
      scopeAlternatives: alternatives, unique: unique, check: try strings(json["check"] ?? []),
      conflicts: try json.string("conflicts"),
      flags: FlagColumns(dirty: try json.optionalString("dirtyFlag"), deleted: try json.optionalString("deletedFlag")),
      sameKey: json["sameKey"] == nil ? nil : try raw(json, "sameKey"), handover: json["handover"]?.bool ?? false,
      applicationTriggers: json["applicationTriggers"]?.bool ?? true,
      heal: json["heal"] == nil ? .all : try raw(json, "heal"),
      renamedFrom: try strings(json["renamedFrom"] ?? []), dropped: try strings(json["dropped"] ?? []))
  }

  private static func unknown(_ key: String) -> SalvorError {
    SalvorError(.malformed, "A table definition has an unknown \"\(key)\".")
  }

  private static func raw<T: RawRepresentable>(_ json: JSONValue, _ key: String) throws(SalvorError) -> T
  where T.RawValue == String {
    guard let value = T(rawValue: try json.string(key)) else { throw unknown(key) }
    return value
  }

  private static func strings(_ json: JSONValue) throws(SalvorError) -> [String] {
    guard let items = json.array else { throw unknown("list of names") }
    var out: [String] = []
    for item in items {
      guard let text = item.string else { throw unknown("list of names") }
      out.append(text)
    }
    return out
  }
}
