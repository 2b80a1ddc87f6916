import SalvorModel

// How a schema leads on from earlier versions of itself (docs/decisions/0012-declared-schema-evolution.md): additions
// need no rule, renames and drops a declared one (`renamedFrom`, `dropped`).

extension Table {
  /// The oldest name that is known of it: the same whatever it was renamed to since.
  public var origin: String { renamedFrom.first ?? name }

  /// The column that an earlier version of the schema had under `name`; nil: there is none.
  public func column(formerly name: String) -> Column? {
    columns.first { $0.name == name } ?? columns.first { $0.renamedFrom.contains(name) }
  }

  /// Earlier columns that are gone on purpose.
  public func hasDropped(_ name: String) -> Bool {
    dropped.contains { $0.folded == name.folded } && column(formerly: name) == nil
  }
}

extension Column {
  /// The oldest name that is known of it.
  public var origin: String { renamedFrom.first ?? name }
}

extension [Table] {
  /// The table that an earlier version of the schema had under `name`; nil: there is none.
  public func table(formerly name: String) -> Table? {
    first { $0.name == name } ?? first { $0.renamedFrom.contains(name) }
  }
}

extension SyncConfig {
  /// The tables of a device: those that the server delivered, and of the application's `own` schema the client-only ones.
  ///
  /// Where `own` is a later version than the server's, also what it adds: columns and tables that the server will know one
  /// day. Their changes wait until then. Names that `own` has given to the server's tables and columns are not taken
  /// over, and drops neither: these come with the server.
  public func schema(own: Schema) -> Schema {
    let delivered = Set(entries.map { $0.table.name.folded })
    var tables = entries.map(\.table)
    var all = groups
    if own.version > schemaVersion {
      for place in tables.indices {
        let table = tables[place]
        // The application may still call it by a former name, or by the next one already.
        let mine =
          own.table(table.name) ?? own.tables.first { table.renamedFrom.contains($0.name) }
          ?? own.tables.table(formerly: table.name)
        if let mine { tables[place].add(mine) }
      }
      let known = tables
      for table in own.synchronized where !delivered.contains(table.name.folded) {
        // The server has it under its former name or its new one, or has dropped it.
        guard known.table(formerly: table.name) == nil, !dropped.contains(table.name),
          !table.renamedFrom.contains(where: { name in known.contains { $0.name == name } })
        else { continue }
        tables.append(table)
        if !all.contains(where: { $0.name == table.group }),
          let group = own.groups.first(where: { $0.name == table.group })
        {
          all.append(group)
        }
      }
      // A reference to a table that is not here stands in nobody's way.
      let names = Set(tables.map(\.name) + own.tables.filter { $0.maintained == .client }.map(\.name))
      for place in tables.indices { tables[place].references.removeAll { !names.contains($0.table) } }
    }
    tables += own.tables.filter { $0.maintained == .client && !delivered.contains($0.name.folded) }
    return Schema(
      version: schemaVersion, parameters: parameters, groups: all, tables: tables, dropped: dropped)
  }
}

extension SyncConfig {
  /// Why a device whose tables are those of `known` waits for its server (decision 208): this configuration is of an earlier version, and
  /// lacks tables or columns that `known` has and that it does not declare to be dropped. The server was put back to before it had them.
  /// Nil: the device can take it.
  ///
  /// - Parameters:
  ///   - known: the device's synchronized tables, and the version of the schema that they are of.
  ///   - own: the application's schema.
  public func isBehind(_ known: Schema, own: Schema) -> SalvorError? {
    guard schemaVersion < known.version else { return nil }
    let schema = schema(own: own)
    var missing: [String] = []
    for table in known.synchronized where !schema.dropped.contains(table.name) {
      guard let now = schema.tables.table(formerly: table.name), now.maintained != .client else {
        missing.append("the table \(table.name)")
        continue
      }
      for column in table.travelling where now.column(formerly: column.name) == nil && !now.hasDropped(column.name) {
        missing.append("the column \(table.name).\(column.name)")
      }
    }
    guard !missing.isEmpty else { return nil }
    return SalvorError(
      .schemaAhead,
      "The server's schema is of version \(schemaVersion), this device's of version \(known.version), and the server lacks what came since: \(missing.joined(separator: "; ")). Nothing is lost, and what is written waits. Give the server the schema that has it; or, where it is gone for good, one of a higher version than \(known.version) that names it in `dropped`. Then synchronize."
    )
  }
}

extension Table {
  /// Takes the columns of a later version that can be added, and the flag columns, which are nobody else's.
  fileprivate mutating func add(_ later: Table) {
    let names = Set(columns.map(\.name))
    let key = later.primaryKey.map { name in
      column(formerly: name)?.name ?? later.column(formerly: name)?.renamedFrom.last(where: names.contains)
    }
    guard maintained != .client, later.maintained != .client, key == primaryKey else { return }
    for column in later.columns
    where !columns.contains(where: { $0.name.folded == column.name.folded })
      && self.column(formerly: column.name) == nil && !dropped.contains(column.name)
      && !column.renamedFrom.contains(where: { columnIndex($0) != nil })
    {
      guard column.nullable || column.defaultValue != nil else { continue }
      guard column.name != later.flags.dirty, column.name != later.flags.deleted else { continue }
      columns.append(column)
      references += later.references.filter { $0.column == column.name }
    }
    for flag in [\FlagColumns.dirty, \FlagColumns.deleted] where flags[keyPath: flag] == nil {
      guard let name = later.flags[keyPath: flag], let column = later.columns.first(where: { $0.name == name }),
        !columns.contains(where: { $0.name.folded == name.folded }), self.column(formerly: name) == nil,
        !column.renamedFrom.contains(where: { columnIndex($0) != nil })
      else { continue }
      columns.append(column)
      flags[keyPath: flag] = name
    }
  }
}
