import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import ServerStoreSupport

/// Brings a database in line with a schema: the real tables, Salvor's own tables, the triggers. Runs in one transaction.
struct Installation {
  let connection: SQLiteConnection
  private let setup: ServerSetup
  let schema: Schema
  let random: any RandomSource
  let clock: any Clock
  static let ddl = TableDDL(softForeignKeys: true)
  /// Notices for the operator.
  private(set) var notices: [String] = []
  private(set) var opening: ServerOpening
  private(set) var catalog: Catalog?

  init(_ connection: SQLiteConnection, _ setup: ServerSetup, random: any RandomSource, clock: any Clock) {
    self.connection = connection
    self.setup = setup
    schema = setup.schema.synchronizedPart
    self.random = random
    self.clock = clock
    opening = ServerOpening(serverID: ServerID(from: random), incarnation: IncarnationID(from: random))
  }

  mutating func run() throws -> Catalog {
    try schema.refuseScopeCircles()
    for table in schema.tables { _ = try setup.conflictPolicy(of: table) }
    let isNew = try connection.tableShape("salvor_server") == nil
    if !isNew { try refuseLaterFormat() }
    try connection.execute(ServerDDL.fixed)
    try ServerDDL.renew(connection)
    var evolution = ServerEvolution(connection: connection, schema: schema)
    let known = try evolution.run(try knownTables())
    notices += evolution.notices
    let added = try applyDifferences(known)
    let tables = try makeCatalogTables(known, isNew: isNew, added: added)
    try identify(isNew: isNew)
    try ServerDDL.widen(
      connection, logWidth: Catalog.logWidth(of: tables), keyWidth: tables.map(\.keyCount).max() ?? 1,
      scopeWidth: Catalog.scopeWidth(of: tables))
    try LogIndex.install(tables, connection)
    for table in tables { try installTriggers(table) }
    let deferrable = try connection.integer(
      "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND upper(sql) LIKE '%DEFERRED%')")
    let catalog = Catalog(
      schema, tables: tables, policies: try tables.map { try setup.conflictPolicy(of: $0.table) },
      hasDeferrableForeignKeys: deferrable == 1, withholdsMessages: setup.withholdsMessages, dialect: connection.dialect
    )
    self.catalog = catalog
    return catalog
  }

  private func refuseLaterFormat() throws {
    let format = try connection.integer("SELECT value FROM salvor_server WHERE key = 'format'") ?? 0
    guard format <= ServerDDL.format else {
      throw SalvorError(
        .schemaRefused,
        "The database was written by a later version of Salvor (format \(format), this one knows \(ServerDDL.format)). Update this server."
      )
    }
  }

  private func knownTables() throws -> [String: KnownTable] {
    var known: [String: KnownTable] = [:]
    for row in try connection.rows("SELECT t, name, generation, columns, grouping FROM salvor_table") {
      let columns = (try? JSONValue(parsing: Array((row[3].string ?? "[]").utf8)))?.array?.compactMap(\.string) ?? []
      let number = row[0].integer ?? 0
      known[row[1].string ?? ""] = KnownTable(
        number: number, generation: row[2].integer ?? 0, columns: columns, grouping: row[4].string ?? "",
        triggers: try triggerText(number))
    }
    return known
  }

  /// What is added, as `table` and `table.column`.
  private mutating func applyDifferences(_ known: [String: KnownTable]) throws -> Set<String> {
    var comparison = try SchemaComparison(schema, with: connection, ddl: Self.ddl)
    // A column of an adopted table that no schema ever named is the application's own and stays so.
    comparison.refusals.removeAll { refusal in
      guard let column = refusal.column, let table = schema.table(refusal.table) else { return false }
      if table.hasDropped(column) { return true }
      return !table.columns.contains { $0.name.folded == column.folded } && !column.contains(", ")
        && known[refusal.table]?.columns.contains(column) != true
    }
    // One that the operator has dropped in the database, too, is meant to be gone: devices find it out (semantics 6).
    let dropped = try known.keys.filter { name in
      try !schema.tables.contains { $0.name == name } && !schema.dropped.contains(name)
        && connection.tableShape(name) != nil
    }.sorted()
    if let first = dropped.first {
      throw SalvorError(
        .schemaRefused,
        "The database does not fit the schema: \(dropped.joined(separator: ", ")) was synchronized and is not in the schema, or is client-only there. Put it back as it was, declare what became of it (dropped, renamedFrom), or drop the table in the database.",
        context: ["table": first])
    }
    try refuseUnenforced(&comparison)
    try refuseFoldedReferences(&comparison)
    try comparison.check()
    var added: Set<String> = []
    for addition in comparison.additions {
      switch addition {
      case .table(let table):
        opening.createdTables.append(table.name)
        added.insert(table.name)
      case .column(let column, let table):
        opening.addedColumns.append("\(table.name).\(column.name)")
        added.insert("\(table.name).\(column.name)")
      }
    }
    try comparison.apply(to: connection, schema: schema, ddl: Self.ddl)
    return added
  }

  /// Devices enforce what the schema says of a row: one that the server takes all the same could never come to them. A table
  /// that allows NULL where no row has any is adopted as it is.
  private mutating func refuseUnenforced(_ comparison: inout SchemaComparison) throws {
    for table in schema.tables {
      guard let shape = try connection.tableShape(table.name) else { continue }
      let sql = try connection.scalar(
        "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1", .text(shape.name))?.string
      let text = Self.bare(sql ?? "")
      for check in table.check where !text.contains(Self.bare("CHECK (\(check))")) {
        comparison.refusals.append(
          SchemaComparison.Refusal(
            table: table.name,
            what: "has no CHECK (\(check)) in the table; make the table anew with it, or leave it out of the schema"))
      }
      let lax = table.columns.filter { column in
        !column.nullable && !table.primaryKey.contains(column.name) && shape.column(column.name)?.notNull == false
      }
      let open =
        shape.hasRowidKey || shape.withoutRowid ? [] : table.primaryKey.filter { shape.column($0)?.notNull == false }
      if !open.isEmpty {
        let isNull = open.map { "\(quoted($0)) IS NULL" }.joined(separator: " OR ")
        let count = try connection.integer("SELECT count(*) FROM \(quoted(table.name)) WHERE \(isNull)") ?? 0
        if count > 0 {
          comparison.refusals.append(
            SchemaComparison.Refusal(
              table: table.name, column: open.joined(separator: ", "),
              what: "is NULL in \(count) rows, which have no key; give them one, or delete them"))
        } else {
          notices.append(
            "\(table.name): its key (\(open.joined(separator: ", "))) may be NULL in the table. A row without a key reaches no device, and the next start refuses the table: make the table with a key that is NOT NULL."
          )
        }
      }
      if lax.isEmpty { continue }
      let sums = lax.map { "coalesce(sum(\(quoted($0.name)) IS NULL), 0)" }.joined(separator: ", ")
      let nulls = try connection.rows("SELECT \(sums) FROM \(quoted(table.name))").first ?? []
      for (column, count) in zip(lax, nulls) where count.integer ?? 0 > 0 {
        comparison.refusals.append(
          SchemaComparison.Refusal(
            table: table.name, column: column.name,
            what: "is NULL in \(count.integer ?? 0) rows and not nullable in the schema; give them a value"))
      }
      notices.append(
        "\(table.name): \(lax.map(\.name).joined(separator: ", ")) may be NULL in the table and not in the schema; a row that another program writes so could not come to devices."
      )
    }
  }

  /// A key of a table from before may hold text to be the same in another case. Devices go by its bytes: a row that names its parent otherwise
  /// could not come to them.
  private mutating func refuseFoldedReferences(_ comparison: inout SchemaComparison) throws {
    for table in schema.tables {
      for reference in table.references where try connection.tableShape(table.name)?.column(reference.column) != nil {
        guard let parent = schema.table(reference.table), parent.primaryKey.count == 1,
          let shape = try connection.tableShape(parent.name),
          shape.sharedIndexes.contains(where: { $0.isPrimaryKey && $0.columns.contains(where: { !$0.isBinary }) })
        else { continue }
        let (key, column) = ("p.\(quoted(parent.primaryKey[0]))", "c.\(quoted(reference.column))")
        let count =
          try connection.integer(
            "SELECT count(*) FROM \(quoted(table.name)) c JOIN \(quoted(parent.name)) p ON \(key) = \(column) WHERE \(key) <> \(column) COLLATE BINARY"
          ) ?? 0
        if count > 0 {
          comparison.refusals.append(
            SchemaComparison.Refusal(
              table: table.name, column: reference.column,
              what:
                "names its parent in \(parent.name) in other letters in \(count) rows, which the collation of that key holds to be the same and devices do not; write the parent's key as it is"
            ))
        }
        notices.append(
          "\(parent.name).\(parent.primaryKey[0]) has a collation of its own in the table, and devices compare keys by their bytes: a row of \(table.name) whose \(reference.column) another program writes in other letters could not come to devices. Make the table anew without the collation."
        )
      }
    }
  }

  /// For comparing: without blanks and the quotes of names, in lower case.
  private static func bare(_ sql: String) -> String {
    sql.folded.filter { !$0.isWhitespace && !"\"`[]".contains($0) }
  }

  private mutating func makeCatalogTables(
    _ known: [String: KnownTable], isNew: Bool, added: Set<String>
  ) throws -> [ServerTable] {
    var tables: [ServerTable] = []
    var next = (known.values.map(\.number).max() ?? 0) + 1
    for table in schema.parentsFirst(schema.tables) {
      guard let shape = try connection.tableShape(table.name) else { continue }
      let columns = table.columns.map(\.name)
      var number = next
      var generation: Int64 = 0
      if let before = known[table.name] {
        number = before.number
        generation = before.generation
        let found = Set(columns).subtracting(before.columns).filter { !added.contains("\(table.name).\($0)") }
        let triggers = try connection.scalar(
          "SELECT value FROM salvor_server WHERE key = ?1", .text("triggers.\(number)"))
        if triggers?.string != digest(Array(before.triggers.utf8)) {
          notices.append(
            "\(table.name): a trigger of the change log was missing or altered. It was put back; the table's group is fed whole once."
          )
          generation += 1
        } else if let name = try silencing(number, table.name) {
          notices.append(
            "\(table.name): the trigger \(name) with RAISE(IGNORE) is newer than those of the change log, and may have kept changes out of it. Those of the change log were made again, so that they fire first; the table's group is fed whole once."
          )
          generation += 1
        } else if !found.isEmpty || before.grouping != table.group {
          generation += 1
        }
      } else {
        next += 1
        if !added.contains(table.name) {
          let rows = try connection.integer("SELECT count(*) FROM \(quoted(table.name))") ?? 0
          opening.adoptedRows += rows
          // Its rows are in no entry of the log: whoever has the group already must see them all the same.
          if !isNew && rows > 0 { generation = 1 }
        }
      }
      try connection.run(
        "INSERT INTO salvor_table (t, name, generation, columns, grouping) VALUES (?1, ?2, ?3, ?4, ?5) "
          + "ON CONFLICT (t) DO UPDATE SET generation = ?3, columns = ?4, grouping = ?5",
        .integer(number), .text(table.name), .integer(generation),
        .text(JSONValue.array(columns.map(JSONValue.string)).text), .text(table.group))
      var made = ServerTable(
        table, schema: schema, number: number, generation: generation, uniqueIndexes: shape.sharedIndexes,
        columnNumbers: try ColumnMask.numbers(of: table, number, before: known[table.name]?.columns ?? [], connection),
        dialect: connection.dialect)
      notices += made.note(shape.actingKeys(schema), schema)
      notices += shape.numericTimestamps(of: table, in: "the server's table", other: "devices keep")
      let isOpen = !shape.hasRowidKey && !shape.withoutRowid
      made.lax = made.placesNeverNull { name in
        shape.column(name)?.notNull == false && (isOpen || !table.primaryKey.contains(name))
      }
      tables.append(made)
      try indexReferences(of: made)
      try indexScope(of: made)
    }
    return tables
  }

  /// A delete of a parent, and the move of a row that others' scopes ask for, look for those others; whether a row is in
  /// scope is looked up by the column that its scope goes through.
  private func indexReferences(of table: ServerTable) throws {
    let references = table.table.references.filter { schema.table($0.table) != nil }.map(\.column)
    let columns = references + table.edges.map(\.column) + table.exports
    for name in columns.withoutRepetitions {
      let covered = try connection.integer(
        """
        SELECT EXISTS (SELECT 1 FROM pragma_index_list(?1) l JOIN pragma_index_info(l.name) i
          WHERE l.partial = 0 AND i.seqno = 0 AND i.name = ?2 COLLATE NOCASE)
        """, .text(table.name), .text(name))
      let isRowid = table.table.primaryKey == [name]
      guard covered == 0, !isRowid, table.table.columnIndex(name) != nil else { continue }
      let index = quoted("salvor_reference_\(table.number)_\(name)")
      try connection.execute("CREATE INDEX IF NOT EXISTS \(index) ON \(table.sql) (\(quoted(name)))")
    }
  }

  /// What a subscription adds and drops is found by the values of its parameters, compared byte for byte.
  private func indexScope(of table: ServerTable) throws {
    let columns = table.table.scopeColumns.filter(\.source.isParameter).map(\.column)
    for name in columns.withoutRepetitions where table.table.columnIndex(name) != nil {
      let covered = try connection.integer(
        """
        SELECT EXISTS (SELECT 1 FROM pragma_index_list(?1) l JOIN pragma_index_xinfo(l.name) i
          WHERE l.partial = 0 AND i.seqno = 0 AND i.name = ?2 COLLATE NOCASE AND i.coll = 'BINARY')
        """, .text(table.name), .text(name))
      guard covered == 0, table.table.primaryKey != [name] else { continue }
      let index = quoted("salvor_scope_\(table.number)_\(name)")
      try connection.execute(
        "CREATE INDEX IF NOT EXISTS \(index) ON \(table.sql) (\(quoted(name)) COLLATE BINARY)")
    }
  }

  private mutating func identify(isNew: Bool) throws {
    if let text = try connection.scalar("SELECT value FROM salvor_server WHERE key = 'id'")?.string {
      guard let id = ServerID(text) else {
        throw SalvorError(
          .storageCorrupt, "The server ID in salvor_server is damaged. Restore the database from a copy.")
      }
      opening.serverID = id
      return
    }
    try connection.run(
      "INSERT INTO salvor_server (key, value) VALUES ('format', ?1), ('id', ?2), ('trimmed', 0)",
      .integer(ServerDDL.format), .text(opening.serverID.text))
    try connection.run(
      "INSERT OR IGNORE INTO salvor_commit (number, id, last_seq, time) VALUES (0, ?1, 0, ?2)",
      .text(opening.serverID.text), .integer(clock.now()))
  }

  private func triggerText(_ number: Int64) throws -> String {
    try connection.rows(
      "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND name GLOB ?1 ORDER BY name",
      .text("salvor_\(number)_*")
    ).map { "\($0[0].string ?? ""): \($0[1].string ?? "")" }.joined(separator: "\n")
  }

  /// The newest trigger fires first. Those of the database's own that are newer than one of Salvor's, with their statements.
  private func newer(_ number: Int64, on table: String) throws -> [(name: String, sql: String)] {
    try connection.rows(
      """
      SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?2 COLLATE NOCASE AND name NOT GLOB 'salvor_*'
        AND rowid > (SELECT min(rowid) FROM sqlite_schema WHERE type = 'trigger' AND name GLOB ?1) ORDER BY rowid DESC
      """, .text("salvor_\(number)_*"), .text(table)
    ).map { (name: $0[0].string ?? "", sql: $0[1].string ?? "") }
  }

  /// The name of a newer one that may have left Salvor's out. Before the change it leaves out the change, too.
  private func silencing(_ number: Int64, _ table: String) throws -> String? {
    try newer(number, on: table).first { trigger in
      let sql = Self.bare(trigger.sql)
      return sql.contains("after") && sql.contains("raise(ignore)")
    }?.name
  }

  private func installTriggers(_ table: ServerTable) throws {
    try connection.execute(ServerDDL.pendingTable(table))
    guard let pending = try connection.tableShape(table.pending), let shape = try connection.tableShape(table.name)
    else {
      return
    }
    for place in table.columns.indices where pending.column("c\(place)") == nil {
      try connection.execute("ALTER TABLE \(table.pending) ADD COLUMN c\(place)")
    }
    let triggers = ChangeTriggers(table: table, shape: shape).all
    let wanted = triggers.sorted { $0.name < $1.name }.map { "\($0.name): \($0.sql)" }.joined(separator: "\n")
    // Else one of them could leave Salvor's out (RAISE(IGNORE)).
    if try triggerText(table.number) != wanted || !newer(table.number, on: table.name).isEmpty {
      for trigger in triggers {
        try connection.execute("DROP TRIGGER IF EXISTS \(trigger.name)")
        try connection.execute(trigger.sql)
      }
    }
    try connection.run(
      "INSERT OR REPLACE INTO salvor_server (key, value) VALUES (?1, ?2)", .text("triggers.\(table.number)"),
      .text(digest(Array(try triggerText(table.number).utf8))))
  }
}
