import SalvorModel

/// A table as a simulation draws it: what its statements are made of, and what the oracle knows of it.
public struct DrawnTable: Sendable, Hashable {
  /// The columns of a table's primary key: one `id` of a type, or, for `composite`, a text `id` and an integer `line`.
  public enum KeyKind: String, Sendable, Hashable {
    case text, integer, blob, composite

    /// Of a column that names such a key.
    var type: String {
      switch self {
      case .integer: "integer"
      case .blob: "blob"
      default: "text"
      }
    }
  }

  /// What stands at the end of CREATE TABLE.
  public enum Adoption: String, Sendable, Hashable {
    /// Values must be of their columns' types.
    case strict = " STRICT"
    /// The table has no rowid.
    case withoutRowid = " WITHOUT ROWID"
    /// A table with a rowid, whose columns take values of any type.
    case plain = ""
  }

  /// A foreign key of one column to the `id` of a table.
  public struct Reference: Sendable, Hashable {
    /// The column that references.
    public var column: String
    /// The table referenced: an earlier one of the schema, or the table itself; with `circles` it may be a later one.
    public var table: String
    /// What a delete of the parent does: `no action`, `cascade` or `set null`.
    public var onDelete: String
    /// Whether the column may be NULL. True wherever `onDelete` is `set null`.
    public var isNullable: Bool
  }

  /// Whether the schema has a table.
  public enum Presence: String, Sendable, Hashable {
    /// A later version of the schema has it.
    case later
    case there
    /// A version of the schema has dropped it.
    case dropped
  }

  /// A column of a later version of the schema.
  public struct Extra: Sendable, Hashable {
    /// The column's name.
    public var name: String
    /// As in the schema, e.g. `text?`.
    public var declaration: String
  }

  /// The table's name in a simulation, and in SQL without quotes until it gets another one.
  public var name: String
  /// The names that it got later, oldest first.
  public var laterNames: [String] = []
  /// The names that columns got later, oldest first, by their names in a simulation.
  public var laterColumnNames: [String: [String]] = [:]
  /// Whether the schema has it.
  public var presence = Presence.there
  /// Who has the table: `dual` (both sides), `server` (devices only read it) or `client` (it never leaves the device).
  public var maintained = "dual"
  /// The group of the table; nil: the schema names none for it.
  public var group: String?
  /// What the primary key is made of.
  public var keyKind = KeyKind.text
  /// The table's foreign keys, one column each, and each column once.
  public var references: [Reference] = []
  /// A column `u` with a UNIQUE constraint, which may be NULL.
  public var hasUnique = false
  /// A check that `n` is below 90; `n` is not nullable then, and 0 by default.
  public var hasCheck = false
  /// The column `note` is not nullable, and `-` by default.
  public var hasNotNull = false
  /// The conflict policy: `client-wins`, `server-wins` or `keep-versions`; nil: the schema names none.
  public var policy: String?
  /// What becomes of two rows made under one key: `merge` or `refuse`; nil: the schema does not say.
  public var sameKey: String?
  /// Downloads compare the keys (`download: "key-set"`).
  public var isKeySet = false
  /// The rows of a principal are the principal's own.
  public var hasOwner = false
  /// Only rows with `open = 1` reach devices.
  public var hasOpen = false
  /// Rows reach those whose credential lists their region.
  public var hasRegion = false
  /// Rows reach those whom a row of `member` names.
  public var isJoined = false
  /// Of `member`: devices write it, too.
  public var isOpenMembership = false
  /// The application's own dirty and deleted columns.
  public var hasFlags = false
  /// A blob, which may be large enough to travel beside the payload.
  public var hasPhoto = false
  /// The application's own triggers do not fire when Salvor writes rows on the device.
  public var applicationTriggersOff = false
  /// What devices may give back of it (`heal`); nil: the schema does not say.
  public var heal: String?
  /// The application of a device made the table before Salvor did, so.
  public var adoption: Adoption?
  /// The application of a device has a trigger that writes to the parent of each new row.
  public var touchesParent = false
  /// Columns of later versions of the schema.
  public var extras: [Extra] = []
  /// Names that columns had which a version of the schema dropped.
  public var droppedColumns: [String] = []
  /// Of `member`: the type of the keys that it names.
  public var memberType: String?

  static let dirtyFlag = "changed"
  static let deletedFlag = "gone"
  static let member = "member"

  /// The table's name in SQL, as this version of the schema has it.
  var sqlName: String { laterNames.last ?? name }

  /// A column's name in SQL.
  func sqlColumn(_ column: String) -> String { laterColumnNames[column]?.last ?? column }

  /// Every name that the table has had, the newest first.
  var everyName: [String] { laterNames.reversed() + [name] }

  /// Every name that a column has had, the newest first.
  func everyName(of column: String) -> [String] { (laterColumnNames[column] ?? []).reversed() + [column] }

  /// Only some rows of it reach a device.
  var hasScope: Bool { hasOwner || hasOpen || hasRegion || isJoined }

  /// The names of the key's columns, in the order of the key.
  public var keyColumns: [String] { keyKind == .composite ? ["id", "line"] : ["id"] }

  /// Every column with its declaration, in order, by the names of the simulation.
  public var columns: [(name: String, declaration: String)] {
    var columns: [(String, String)] = []
    switch keyKind {
    case .text: columns.append(("id", "text"))
    case .integer: columns.append(("id", "integer"))
    case .blob: columns.append(("id", "blob"))
    case .composite: columns += [("id", "text"), ("line", "integer")]
    }
    columns.append(("note", hasNotNull ? "text = '-'" : "text?"))
    columns.append(("n", hasCheck ? "integer = 0" : "integer?"))
    if hasUnique { columns.append(("u", "text?")) }
    if hasOwner { columns.append(("owner", "text")) }
    if hasOpen { columns.append(("open", "boolean = 1")) }
    if hasRegion { columns.append(("region", "text")) }
    if let memberType { columns.append(("subject", memberType)) }
    if hasPhoto { columns.append(("photo", "blob?")) }
    return columns + extras.map { ($0.name, $0.declaration) }
  }

  /// With the columns that never travel.
  func allColumns(_ schema: DrawnSchema) -> [(name: String, declaration: String)] {
    let flags = [(Self.dirtyFlag, "boolean = 0"), (Self.deletedFlag, "boolean = 0")]
    return columnList(schema) + (hasFlags ? flags : [])
  }

  /// The columns that both sides have.
  func columnList(_ schema: DrawnSchema) -> [(name: String, declaration: String)] {
    columns
      + references.map { reference in
        let type = (schema.table(reference.table)?.keyKind ?? .text).type
        return (reference.column, reference.isNullable ? type + "?" : type)
      }
  }
}

/// The schema of a history, as `schema.json5` and as the oracle reads it.
public struct DrawnSchema: Sendable, Hashable {
  /// Grows by one each time that the server's schema gets a column.
  public var version = 1
  /// Parents stand before the tables that reference them.
  public var tables: [DrawnTable]
  /// Triggers of the application's on each device, besides those of `touchesParent`.
  private var code: [String] = []

  var hasCode: Bool { !code.isEmpty }

  /// The server's own indexes and triggers.
  var serverCode: [String] = []

  /// - Parameter tables: parents before the tables that reference them, but for circles.
  init(tables: [DrawnTable]) { self.tables = tables }

  /// The table of this name; nil: there is none.
  public func table(_ name: String) -> DrawnTable? { tables.first { $0.name == name } }

  /// The tables of this version.
  public var present: [DrawnTable] { tables.filter { $0.presence == .there } }

  /// The tables that both sides have: all but those with `maintained` `client`.
  public var synchronized: [DrawnTable] { present.filter { $0.maintained != "client" } }

  /// The table that has this name in SQL, or had it; nil: there is none.
  func table(called name: String) -> DrawnTable? { tables.first { $0.everyName.contains(name) } }

  /// The names of the groups that synchronize.
  var groups: [String] { Set(synchronized.map { $0.group ?? "default" }).sorted() }

  /// The text of `schema.json5`.
  public var text: String {
    let parameters = tables.contains(where: \.hasRegion) ? " parameters: { region: \"text\" }," : ""
    let dropped = tables.filter { $0.presence == .dropped }.flatMap(\.everyName)
    let gone = dropped.isEmpty ? "" : " dropped: [\(list(dropped))],"
    var lines = ["{ version: \(version),\(parameters)\(gone) tables: {"]
    for table in present {
      var members: [String] = ["maintained: \"\(table.maintained)\""]
      if let group = table.group { members.append("group: \"\(group)\"") }
      members.append("primaryKey: [\(list(table.keyColumns))]")
      if !table.laterNames.isEmpty { members.append("renamedFrom: [\(list(table.everyName.dropFirst().reversed()))]") }
      if !table.droppedColumns.isEmpty { members.append("dropped: [\(list(table.droppedColumns))]") }
      let columns = table.allColumns(self).map { name, declaration in
        let names = table.everyName(of: name)
        return names.count == 1
          ? "\(name): \"\(declaration)\""
          : "\(names[0]): { type: \"\(declaration)\", renamedFrom: [\(list(names.dropFirst().reversed()))] }"
      }
      members.append("columns: { \(columns.joined(separator: ", ")) }")
      if !table.references.isEmpty {
        let references = table.references.map {
          "\($0.column): { table: \"\(self.table($0.table)?.sqlName ?? $0.table)\", onDelete: \"\($0.onDelete)\" }"
        }
        members.append("references: { \(references.joined(separator: ", ")) }")
      }
      if table.hasUnique { members.append("unique: [[\"u\"]]") }
      if table.hasCheck { members.append("check: [\"\(table.sqlColumn("n")) < 90\"]") }
      if let policy = table.policy { members.append("conflicts: \"\(policy)\"") }
      if let sameKey = table.sameKey { members.append("sameKey: \"\(sameKey)\"") }
      if table.isKeySet { members.append("download: \"key-set\"") }
      if table.hasOwner { members.append("scope: { owner: \"principal\" }") }
      if table.hasOpen { members.append("scope: { open: { value: 1 } }") }
      if table.hasRegion { members.append("scope: { region: \"parameter:region\" }") }
      if table.isJoined { members.append("scope: { id: \"via:\(DrawnTable.member).subject\" }") }
      if table.isOpenMembership { members.append("membership: \"devices\"") }
      if table.hasFlags {
        members.append("flags: { dirty: \"\(DrawnTable.dirtyFlag)\", deleted: \"\(DrawnTable.deletedFlag)\" }")
      }
      if let heal = table.heal { members.append("heal: \"\(heal)\"") }
      if table.applicationTriggersOff { members.append("applicationTriggers: \"off\"") }
      lines.append("  \(table.sqlName): { \(members.joined(separator: ", ")) },")
    }
    lines.append("} }")
    return lines.joined(separator: "\n")
  }

  private func list(_ names: some Sequence<String>) -> String { names.map { "\"\($0)\"" }.joined(separator: ", ") }

  /// Draws two to five tables; `client-tables` adds `draft`, and `join-scopes` may add `member`.
  public static func draw(_ generator: inout SeededGenerator, _ swarm: Swarm) -> DrawnSchema {
    let names = ["area", "site", "visit", "item", "mark"]
    var schema = DrawnSchema(tables: [])
    for place in 0..<(2 + generator.below(4)) {
      var table = DrawnTable(name: names[place])
      var kinds = [DrawnTable.KeyKind.text, .text]
      if swarm.has(.integerKeys) { kinds.append(.integer) }
      if swarm.has(.blobKeys) { kinds.append(.blob) }
      if swarm.has(.compositeKeys), place > 0 { kinds.append(.composite) }
      table.keyKind = generator.pick(kinds) ?? .text
      if swarm.has(.serverTables), place == 0, generator.chance(50) { table.maintained = "server" }
      if swarm.has(.groups) { table.group = generator.chance(50) ? "first" : "second" }
      if swarm.has(.unique) { table.hasUnique = generator.chance(50) }
      if swarm.has(.checks) { table.hasCheck = generator.chance(50) }
      if swarm.has(.notNull) { table.hasNotNull = generator.chance(50) }
      if swarm.has(.policies) { table.policy = generator.pick(["client-wins", "server-wins", "keep-versions"]) }
      if swarm.has(.sameKey), table.maintained == "dual" {
        table.sameKey = generator.pick(["merge", "refuse"])
      }
      if swarm.has(.keySet), generator.chance(30) { table.isKeySet = true }
      if swarm.has(.applicationTriggers), generator.chance(20) { table.applicationTriggersOff = true }
      if swarm.has(.references), place > 0 {
        for _ in 0..<(1 + generator.below(2)) where generator.chance(70) {
          table.addReference(&generator, swarm, to: schema.tables[generator.below(place)])
        }
      }
      if swarm.has(.selfReferences), table.keyKind != .composite, generator.chance(40) {
        table.references.append(
          .init(
            column: "up", table: table.name, onDelete: action(&generator, swarm, isNullable: true), isNullable: true))
      }
      // Whoever gets a row must get the rows it needs: a table with a scope is referenced by none here.
      if swarm.has(.scopes), table.references.isEmpty, place > 0, generator.chance(50) {
        if generator.chance(50) { table.hasOwner = true } else { table.hasOpen = true }
      }
      schema.tables.append(table)
    }
    if swarm.has(.clientTables) { schema.tables.append(DrawnTable(name: "draft", maintained: "client")) }
    if swarm.has(.circles) { schema.drawCircles(generator.derived(8), swarm) }
    schema.drawApplication(generator.derived(2), swarm)
    schema.drawScopes(generator.derived(3), swarm)
    schema.drawColumns(generator.derived(4), swarm)
    if swarm.has(.partSyncs) { schema.drawGroups(generator.derived(5)) }
    if swarm.has(.furtherCode) { schema.drawCode(generator.derived(6)) }
    if swarm.has(.schemaChanges) { schema.drawLater(generator.derived(7)) }
    if swarm.has(.serverCode) { schema.drawServerCode(generator.derived(9)) }
    return schema
  }

  fileprivate static func action(_ generator: inout SeededGenerator, _ swarm: Swarm, isNullable: Bool) -> String {
    var actions = ["no action"]
    if swarm.has(.cascades) { actions += ["cascade", "cascade"] }
    if swarm.has(.setNull), isNullable { actions += ["set null", "set null"] }
    return generator.pick(actions) ?? "no action"
  }
}

extension DrawnTable {
  fileprivate mutating func addReference(
    _ generator: inout SeededGenerator, _ swarm: Swarm, to parent: DrawnTable
  ) {
    guard parent.keyKind != .composite, !parent.hasOwner, !parent.hasOpen else { return }
    let column = parent.name + "_id"
    guard !references.contains(where: { $0.column == column }) else { return }
    let isNullable = generator.chance(70)
    references.append(
      Reference(
        column: column, table: parent.name,
        onDelete: DrawnSchema.action(&generator, swarm, isNullable: isNullable), isNullable: isNullable))
  }
}

extension DrawnSchema {
  /// What the application of each device has besides.
  fileprivate mutating func drawApplication(_ generator: SeededGenerator, _ swarm: Swarm) {
    var generator = generator
    for place in tables.indices {
      let adoption = generator.pick([DrawnTable.Adoption.strict, .withoutRowid, .plain])
      if swarm.has(.adoptedTables), generator.chance(50) { tables[place].adoption = adoption }
      let parents = tables[place].references.compactMap { table($0.table) }
      let touches = generator.chance(50)
      if swarm.has(.applicationCode), parents.contains(where: { $0.maintained == "dual" }) {
        tables[place].touchesParent = touches
      }
    }
  }

  /// Scopes by what a credential lists, and by a join table. Whoever gets a row must get the rows it needs: a table with a
  /// scope is referenced by none.
  fileprivate mutating func drawScopes(_ generator: SeededGenerator, _ swarm: Swarm) {
    var generator = generator
    let referenced = Set(tables.flatMap { $0.references.map(\.table) })
    for place in tables.indices {
      let (isByRegion, isByMember, isOpen) = (generator.chance(60), generator.chance(70), generator.chance(30))
      let table = tables[place]
      guard table.maintained != "client", !table.hasScope, !referenced.contains(table.name) else { continue }
      if swarm.has(.parameterScopes) && isByRegion || swarm.has(.subscriptions) {
        tables[place].hasRegion = true
      } else if swarm.has(.joinScopes), isByMember, table.keyKind != .composite, self.table(DrawnTable.member) == nil {
        tables[place].isJoined = true
        var member = DrawnTable(name: DrawnTable.member, maintained: isOpen ? "dual" : "server", group: table.group)
        (member.hasOwner, member.isOpenMembership, member.memberType) = (true, isOpen, table.keyKind.type)
        tables.append(member)
      }
    }
  }

  fileprivate mutating func drawColumns(_ generator: SeededGenerator, _ swarm: Swarm) {
    var generator = generator
    for place in tables.indices {
      let (hasFlags, hasPhoto) = (generator.chance(70), generator.chance(50))
      tables[place].hasFlags = swarm.has(.flags) && hasFlags && tables[place].maintained == "dual"
      tables[place].hasPhoto = swarm.has(.blobs) && hasPhoto
    }
  }

  /// Draws the groups again: three, one of which has no name of its own. Most schemas put the first tables together, and the tables that
  /// reference them into another group.
  fileprivate mutating func drawGroups(_ generator: SeededGenerator) {
    var generator = generator
    let groups = ["first", "second", nil]
    let isSplit = generator.chance(60)
    let (split, first) = (1 + generator.below(2), generator.below(3))
    for place in tables.indices where tables[place].maintained != "client" {
      tables[place].group =
        isSplit ? groups[(first + (place < split ? 0 : 1)) % 3] : generator.pick(groups) ?? nil
    }
  }

  /// Draws references to later tables, most of them to one that references this one.
  fileprivate mutating func drawCircles(_ generator: SeededGenerator, _ swarm: Swarm) {
    var generator = generator
    for place in tables.indices where tables[place].maintained == "dual" {
      for later in tables.dropFirst(place + 1) where later.maintained == "dual" && !later.hasScope {
        guard later.keyKind != .composite,
          generator.chance(later.references.contains { $0.table == tables[place].name } ? 70 : 20)
        else { continue }
        let isNullable = generator.chance(85)
        tables[place].references.append(
          .init(
            column: later.name + "_id", table: later.name,
            onDelete: Self.action(&generator, swarm, isNullable: isNullable), isNullable: isNullable))
      }
    }
  }

  /// Draws unique indexes and triggers of the server's own. None of them fires another one of its kind, and none writes a note.
  fileprivate mutating func drawServerCode(_ generator: SeededGenerator) {
    var generator = generator
    func add(_ percent: Int, _ what: String, _ text: String) {
      if generator.chance(percent) { serverCode.append("CREATE \(what) IF NOT EXISTS \(text)") }
    }
    for table in synchronized where table.memberType == nil {
      let name = table.name
      let own = table.keyColumns.map { "\($0) = NEW.\($0)" }.joined(separator: " AND ")
      add(30, "UNIQUE INDEX", "own_n_\(name) ON \(name) (n) WHERE n > 8")
      add(
        25, "TRIGGER",
        """
        own_rule_\(name) BEFORE UPDATE ON \(name) WHEN NEW.n = 7
        BEGIN SELECT RAISE(ABORT, 'own constraint failed: \(name)'); END
        """)
      add(
        35, "TRIGGER",
        """
        own_count_\(name) AFTER UPDATE OF note ON \(name) WHEN NEW.n < 4
        BEGIN UPDATE \(name) SET n = NEW.n + 1 WHERE \(own); END
        """)
      for reference in table.references where reference.table != name {
        add(
          30, "TRIGGER",
          """
          own_up_\(name)_\(reference.column) AFTER INSERT ON \(name)
          BEGIN UPDATE \(reference.table) SET n = 6 WHERE id = NEW.\(reference.column); END
          """)
      }
      for other in synchronized
      where other.name != name && other.keyKind == table.keyKind && other.keyKind != .composite {
        guard !other.hasScope, other.references.allSatisfy(\.isNullable), other.memberType == nil else { continue }
        add(
          15, "TRIGGER",
          "own_makes_\(name)_\(other.name) AFTER INSERT ON \(name) BEGIN INSERT OR IGNORE INTO \(other.name) (id) VALUES (NEW.id); END"
        )
      }
    }
  }

  /// Draws a table of a later version of the schema.
  fileprivate mutating func drawLater(_ generator: SeededGenerator) {
    var generator = generator
    var table = DrawnTable(name: "later")
    table.presence = .later
    table.group = generator.pick(tables)?.group
    if generator.chance(60),
      let parent = tables.first(where: { $0.keyKind != .composite && !$0.hasScope && $0.maintained != "client" })
    {
      table.references.append(
        .init(
          column: parent.name + "_id", table: parent.name,
          onDelete: generator.pick(["no action", "cascade", "set null"]) ?? "cascade", isNullable: true))
    }
    table.hasUnique = generator.chance(30)
    tables.append(table)
  }

  /// Draws triggers that write `n`, make rows and delete some. None of them fires another one of its kind.
  fileprivate mutating func drawCode(_ generator: SeededGenerator) {
    var generator = generator
    let writable = tables.filter { $0.maintained == "dual" && $0.memberType == nil }
    func add(_ name: String, _ event: String, _ body: String) {
      guard generator.chance(40) else { return }
      code.append("CREATE TRIGGER IF NOT EXISTS own_\(name) \(event) BEGIN \(body); END")
    }
    for table in writable {
      let name = table.name
      let own = table.keyColumns.map { "\($0) = NEW.\($0)" }.joined(separator: " AND ")
      add("self_\(name)", "AFTER UPDATE OF note ON \(name)", "UPDATE \(name) SET n = 12 WHERE \(own)")
      for reference in table.references
      where reference.table != name && writable.contains(where: { $0.name == reference.table }) {
        let (parent, column) = (reference.table, reference.column)
        add("gone_\(name)_\(column)", "AFTER DELETE ON \(name)", "UPDATE \(parent) SET n = 13 WHERE id = OLD.\(column)")
        add(
          "below_\(name)_\(column)", "AFTER UPDATE OF note ON \(parent)",
          "UPDATE \(name) SET n = 14 WHERE \(column) = NEW.id")
        add("with_\(name)_\(column)", "BEFORE DELETE ON \(parent)", "DELETE FROM \(name) WHERE \(column) = OLD.id")
      }
      for other in writable where other.name != name && other.keyKind == table.keyKind && other.keyKind != .composite {
        if !other.hasScope, other.references.allSatisfy(\.isNullable) {
          add(
            "makes_\(name)_\(other.name)", "AFTER INSERT ON \(name)",
            "INSERT OR IGNORE INTO \(other.name) (id) VALUES (NEW.id)")
        }
        add(
          "takes_\(name)_\(other.name)", "AFTER INSERT ON \(name)",
          "DELETE FROM \(other.name) WHERE id = NEW.id AND n = 3")
      }
    }
  }

  /// What the application makes in a new file, before Salvor has seen it.
  func applicationTables() -> [String] {
    present.compactMap { table in
      guard let adoption = table.adoption else { return nil }
      var parts = table.allColumns(self).map { "\(table.sqlColumn($0.name)) \(sql($0.declaration))" }
      parts.append("PRIMARY KEY (\(table.keyColumns.joined(separator: ", ")))")
      if table.hasUnique { parts.append("UNIQUE (u)") }
      if table.hasCheck { parts.append("CHECK (\(table.sqlColumn("n")) < 90)") }
      parts += table.references.map {
        "FOREIGN KEY (\($0.column)) REFERENCES \(self.table($0.table)?.sqlName ?? $0.table) (id)\($0.onDelete == "no action" ? "" : " ON DELETE \($0.onDelete)")"
      }
      return "CREATE TABLE \(table.sqlName) (\(parts.joined(separator: ", ")))\(adoption.rawValue)"
    }
  }

  /// The application's triggers, for tables that are there.
  func applicationTriggers() -> [String] {
    code
      + tables.filter(\.touchesParent).flatMap { child in
        child.references.filter { table($0.table)?.maintained == "dual" && $0.table != child.name }.map {
          """
          CREATE TRIGGER IF NOT EXISTS own_\(child.name)_\($0.column) AFTER INSERT ON \(child.name)
          BEGIN UPDATE \($0.table) SET n = 11 WHERE id = NEW.\($0.column); END
          """
        }
      }
  }

  /// A column's declaration as SQL: `text?`, `integer = 0`.
  private func sql(_ declaration: String) -> String {
    let parts = declaration.split(separator: " ")
    let type = parts.first.map { $0.hasSuffix("?") ? $0.dropLast() : $0 } ?? "text"
    let name = type == "boolean" ? "INTEGER" : type.uppercased()
    let isNullable = parts.first?.hasSuffix("?") ?? false
    return name + (isNullable ? "" : " NOT NULL") + (parts.count == 3 ? " DEFAULT \(parts[2])" : "")
  }
}
