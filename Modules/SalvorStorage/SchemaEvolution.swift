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
  ///
  /// - Parameter added: what the device's tables have beyond its server's since an earlier file of the application's named it
  ///   (`added(in:)`). It stays when that file is withdrawn (decision 214). Where the server brings it under a name of before, it has that name
  ///   until the server's schema renames it.
  public func schema(own: Schema, added: [Table] = []) -> Schema {
    var schema = Schema(
      version: schemaVersion, parameters: parameters, groups: groups, tables: entries.map(\.table), dropped: dropped)
    let isLater = own.version > schemaVersion
    if isLater { schema.add(own) }
    if !added.isEmpty {
      schema.add(Schema(groups: added.map { Schema.Group(name: $0.group) }, tables: added))
    }
    if isLater || !added.isEmpty {
      // A reference to a table that is not here stands in nobody's way.
      let names = Set(schema.tables.map(\.name) + own.tables.filter { $0.maintained == .client }.map(\.name))
      for place in schema.tables.indices { schema.tables[place].references.removeAll { !names.contains($0.table) } }
    }
    let synchronized = Set(schema.tables.map { $0.name.folded })
    schema.tables += own.tables.filter { $0.maintained == .client && !synchronized.contains($0.name.folded) }
    return schema.takingBackNames(of: added)
  }

  /// Tables and columns that a device's schema has and this configuration does not have: whole tables, and others with their key and
  /// those columns alone.
  public func added(in schema: Schema) -> [Table] {
    schema.synchronized.compactMap { table in
      guard let known = entries.first(where: { $0.table.name.folded == table.name.folded })?.table else { return table }
      let names = Set(known.columns.map { $0.name.folded })
      let columns = table.travelling.filter { !names.contains($0.name.folded) }
      guard !columns.isEmpty else { return nil }
      var rest = Table(
        table.name, maintained: table.maintained, group: table.group, primaryKey: table.primaryKey,
        columns: table.columns.filter { table.primaryKey.contains($0.name) } + columns)
      rest.references = table.references.filter { reference in columns.contains { $0.name == reference.column } }
      return rest
    }
  }

  /// The names of what `schema` has and this configuration does not have: `table`, or `table.column`.
  public func addedNames(in schema: Schema) -> [String] {
    added(in: schema).flatMap { table -> [String] in
      guard entries.contains(where: { $0.table.name.folded == table.name.folded }) else { return [table.name] }
      return table.columns.filter { !table.primaryKey.contains($0.name) }.map { "\(table.name).\($0.name)" }
    }
  }
}

extension Schema {
  /// A device has made tables or columns under the names of a later file, which no server of its has yet: what that renamed gets its name of here
  /// back.
  ///
  /// - Parameter later: the tables as that file defined them.
  public func takingBackNames(of later: [Table]) -> Schema {
    var schema = self
    for place in tables.indices {
      let table = tables[place]
      let same = later.first { $0.name.folded == table.name.folded }
      let renamed = later.first { $0.renamedFrom.holds(table.name) && self.table($0.name) == nil }
      guard let mine = same ?? renamed else { continue }
      if same == nil, !table.renamedFrom.holds(mine.name) { schema.tables[place].renamedFrom.append(mine.name) }
      for number in table.columns.indices {
        let name = table.columns[number].name
        guard !mine.columns.contains(where: { $0.name.folded == name.folded }),
          let other = mine.columns.first(where: { column in
            column.renamedFrom.holds(name) && !table.columns[number].renamedFrom.holds(column.name)
              && !table.columns.contains { $0.name.folded == column.name.folded }
          })
        else { continue }
        schema.tables[place].columns[number].renamedFrom.append(other.name)
      }
    }
    return schema
  }

  /// Takes what a later version of the application's has more.
  fileprivate mutating func add(_ later: Schema) {
    for place in tables.indices {
      let table = tables[place]
      // The application may still call it by a former name, or by the next one already.
      let mine =
        later.table(table.name) ?? later.tables.first { table.renamedFrom.contains($0.name) }
        ?? later.tables.table(formerly: table.name)
      if let mine { tables[place].add(mine) }
    }
    let known = tables
    for table in later.synchronized where !known.contains(where: { $0.name.folded == table.name.folded }) {
      // The server has it under its former name or its new one, or has dropped it.
      guard known.table(formerly: table.name) == nil, !dropped.contains(table.name),
        !table.renamedFrom.contains(where: { name in known.contains { $0.name == name } })
      else { continue }
      tables.append(table)
      if !groups.contains(where: { $0.name == table.group }),
        let group = later.groups.first(where: { $0.name == table.group })
      {
        groups.append(group)
      }
    }
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
  ///   - added: what the device has beyond the schema of its server's until now.
  public func isBehind(_ known: Schema, own: Schema, added: [Table] = []) -> SalvorError? {
    guard schemaVersion < known.version else { return nil }
    let schema = schema(own: own, added: added)
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

extension [String] {
  fileprivate func holds(_ name: String) -> Bool { contains { $0.folded == name.folded } }
}
