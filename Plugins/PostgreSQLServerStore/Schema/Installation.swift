#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import SalvorWire
  import ServerStoreSupport

  /// Brings a database in line with a schema: the real tables, Salvor's own tables, the triggers. Runs in one transaction, under an
  /// advisory lock: several processes may do so at once, and go one after the other.
  struct Installation {
    let connection: PostgreSQLConnection
    private let setup: ServerSetup
    let schema: Schema
    private let random: any RandomSource
    private let clock: any Clock
    private let capturesReplicas: Bool
    /// The server that this process has seen in the database; nil: none.
    private let expected: ServerID?
    /// It serves that one: another server's database is none to take, or to change.
    private let isServing: Bool
    var settings: ConnectionSettings { connection.settings }
    private var isLater = false
    /// The operator has said that the tables are right as they are (`takeRows`).
    private var takesRows = false
    /// Tables whose columns are others than those that the triggers were made for.
    private var altered: Set<String> = []
    /// Parts that tables have got since their triggers were looked at.
    private var came: [String: [String]] = [:]
    /// Tables whose triggers were away for a while.
    private var interrupted: Set<String> = []
    /// What was seen of tables whose triggers stay.
    private var marks: [String: CaptureMarks] = [:]
    var notices: [String] = []
    private(set) var opening: ServerOpening

    /// What the database has of a table that was synchronized before.
    struct Known {
      var number: Int64
      var generation: Int64
      var columns: [String]
      var grouping: String
    }

    init(
      _ connection: PostgreSQLConnection, _ setup: ServerSetup, random: any RandomSource, clock: any Clock,
      capturesReplicas: Bool = false, expecting expected: ServerID? = nil,
      isServing: Bool = false
    ) {
      self.connection = connection
      self.expected = expected
      self.isServing = isServing
      self.setup = setup
      self.capturesReplicas = capturesReplicas
      schema = setup.schema.synchronizedPart
      self.random = random
      self.clock = clock
      opening = ServerOpening(serverID: ServerID(from: random), incarnation: IncarnationID(from: random))
    }

    /// For how long a process waits, in milliseconds, until another one has installed.
    static let installationWait = 600_000

    /// - Parameter beginsIncarnation: whether a new one begins where the database has this one.
    mutating func run(beginsIncarnation: (IncarnationID) -> Bool) throws -> Catalog {
      try schema.refuseScopeCircles()
      for table in schema.tables { _ = try setup.conflictPolicy(of: table) }
      let problems = try DatabaseCheck(connection).problems()
      if !problems.isEmpty { throw SalvorError(.configuration, problems.joined(separator: " ")) }
      return try connection.transaction {
        // Another process that installs may have many rows to prove; what it waits for itself is limited.
        try connection.execute("SET LOCAL lock_timeout = \(Self.installationWait)")
        _ = try connection.scalar(
          "SELECT pg_advisory_xact_lock(?1)::text", .integer(PostgreSQLTables.installationLock))
        try connection.execute("SET LOCAL lock_timeout = \(settings.lockTimeout)")
        return try install(beginsIncarnation: beginsIncarnation)
      }
    }

    private mutating func install(beginsIncarnation: (IncarnationID) -> Bool) throws -> Catalog {
      let isNew = try !isThere("salvor_server")
      if !isNew {
        try refuseEmpty()
        if isServing { try refuseOtherServer() }
        isLater = try refuseLaterFormat()
      }
      if isNew, let expected {
        throw SalvorError(
          .storageCorrupt,
          "The database has no schema \(settings.schema), and this process has served it as \(expected). Put the database back whole. If a new server is meant, remove postgresql\(sideSuffix) in stateDirectory."
        )
      }
      try once("layout", PostgreSQLTables.statements(settings), isThere: !isNew)
      takesRows = try connection.scalar("DELETE FROM salvor_server WHERE key = '\(Self.takingRows)' RETURNING 1") != nil
      let known = try carry(try knownTables())
      let added = try applyDifferences(known)
      var tables = try makeCatalogTables(known, isNew: isNew, added: added)
      try identify(isNew: isNew, beginsIncarnation: beginsIncarnation)
      connection.logWidth = Catalog.logWidth(of: tables)
      try once(
        "width",
        PostgreSQLTables.widening(
          logWidth: connection.logWidth, keyWidth: tables.map(\.keyCount).max() ?? 1,
          scopeWidth: Catalog.scopeWidth(of: tables)))
      try proveRows(&tables, known)
      for table in tables { try installTriggers(table) }
      return Catalog(
        schema, tables: tables, policies: try tables.map { try setup.conflictPolicy(of: $0.table) },
        // The transactions of uploads check them at once (`Sealing.begin`), and sets at their end.
        hasDeferrableForeignKeys: false, withholdsMessages: setup.withholdsMessages, dialect: connection.dialect)
    }

    /// Before anything is written: its own server may be of an older schema.
    private func refuseOtherServer() throws {
      let found = try connection.scalar("SELECT value FROM salvor_server WHERE key = 'id'")?.string
      guard let found, let expected, found != expected.text else { return }
      throw SalvorError(
        .storage,
        "The database is another server's now (\(found)); this process serves \(expected). Put this server's database back, or start the server again if the other one is meant."
      )
    }

    /// An installation writes who the server is in the transaction that makes the tables: tables without it were put back without their rows.
    private func refuseEmpty() throws {
      guard try connection.scalar("SELECT 1 FROM salvor_server WHERE key = 'id'") == nil else { return }
      throw SalvorError(
        .storageCorrupt,
        "The schema \(settings.schema) is there without its rows: the database is being put back, or was copied without them. No new server was made. Put the database back whole. If a new server is meant, drop the schema \(settings.schema) first."
      )
    }

    /// Of `salvor_server`: the next start takes the tables as they are.
    static let takingRows = "takes-rows"

    /// Refuses rows of another moment than the log's, or has their groups sent whole.
    private mutating func proveRows(_ tables: inout [ServerTable], _ known: [String: Known]) throws {
      var refused: [String] = []
      for place in tables.indices {
        let table = tables[place]
        // What the log could not see since then is sent whole already.
        guard known[table.name]?.generation == table.generation else { continue }
        let count = try RowProof(connection: connection, table: table)
          .disagreeing(tellsDeletes: !needsRowTriggers(table.name))
        let isInterrupted = interrupted.contains(table.name)
        guard count > 0 || isInterrupted else { continue }
        guard takesRows || count == 0 else {
          refused.append("\(table.name) (\(count))")
          continue
        }
        tables[place].generation += 1
        try connection.run(
          "UPDATE salvor_table SET generation = ?2 WHERE t = ?1", .integer(table.number),
          .integer(table.generation + 1))
        let what =
          count > 0 ? "its rows are taken as they are" : "a trigger of the change log was disabled, and enabled again"
        notices.append("\(table.name): \(what); the table's group is sent whole once.")
      }
      guard let first = refused.first else { return }
      throw SalvorError(
        .storageCorrupt,
        "Tables and change log are of different moments. Of the rows that were changed last, some are others than the log says: \(refused.joined(separator: ", ")). Put the database back whole, of one moment. If its rows are right as they are: salvor server adopt --rows.",
        context: ["table": String(first.prefix { $0 != " " })])
    }

    private func isThere(_ table: String) throws -> Bool {
      try connection.integer(
        "SELECT to_regclass(?1) IS NOT NULL", .text(Array("\(quoted(settings.schema)).\(table)".utf8))) == 1
    }

    /// Whether a later release has added to the layout, and leaves it to this one, too.
    private func refuseLaterFormat() throws -> Bool {
      func number(_ key: String) throws -> Int64? {
        try connection.scalar("SELECT value FROM salvor_server WHERE key = ?1", .text(key))?.string.flatMap {
          Int64($0)
        }
      }
      let format = try number("format") ?? 0
      let served = try number("format-served") ?? format
      guard served <= PostgreSQLTables.format else {
        throw SalvorError(
          .schemaRefused,
          "The database was written by a later version of Salvor (format \(format), this one knows \(PostgreSQLTables.format)). Update this server."
        )
      }
      return format > PostgreSQLTables.format
    }

    /// A later release says of its layout what it is.
    private func noteFormat() throws {
      for (key, value) in [("format", PostgreSQLTables.format), ("format-served", PostgreSQLTables.formatServed)] {
        try connection.run(
          "INSERT INTO salvor_server (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2 "
            + "WHERE salvor_server.value IS DISTINCT FROM ?2", .text(key), .text("\(value)"))
      }
    }

    private func knownTables() throws -> [String: Known] {
      var known: [String: Known] = [:]
      for row in try connection.rows("SELECT t, name, generation, columns, grouping FROM salvor_table") {
        let columns = (try? JSONValue(parsing: Array((row[3].string ?? "[]").utf8)))?.array?.compactMap(\.string) ?? []
        known[row[1].string ?? ""] = Known(
          number: row[0].integer ?? 0, generation: row[2].integer ?? 0, columns: columns, grouping: row[4].string ?? "")
      }
      return known
    }

    // MARK: Differences

    func name(_ table: String) -> String { "\(quoted(settings.tablesIn)).\(quoted(table))" }

    /// Renames, as the schema declares them (`renamedFrom`); what is known under the new names.
    private mutating func carry(_ known: [String: Known]) throws -> [String: Known] {
      var carried: [String: Known] = [:]
      var hasChanged = false
      for (old, var facts) in known {
        guard let table = schema.tables.table(formerly: old), known[table.name] == nil || table.name == old else {
          if let table = schema.tables.table(formerly: old), schema.table(old) == nil {
            throw SalvorError.nameUsedBefore(table.name, by: old)
          }
          if schema.dropped.contains(old) { try dropTriggers(facts.number, of: old) }
          carried[old] = facts
          continue
        }
        if table.name != old, try TableFacts(table.name, connection) != nil, try TableFacts(old, connection) != nil {
          throw SalvorError.nameTaken(table.name, by: old, table: table.name)
        }
        if table.name != old, try TableFacts(table.name, connection) == nil {
          try connection.execute("ALTER TABLE \(name(old)) RENAME TO \(quoted(table.name))")
          notices.append("\(old) was renamed to \(table.name).")
        }
        var names: [(old: String, new: String)] = []
        for place in facts.columns.indices {
          let before = facts.columns[place]
          guard let new = table.column(formerly: before)?.name, new != before else { continue }
          guard !facts.columns.contains(new) else {
            throw SalvorError(
              .schemaRefused,
              "\(table.name).\(new) was synchronized until now, and \(before), which the schema calls a former name of it, too. Give the renamed column a name that is free, and declare the other one dropped.",
              context: ["table": table.name, "column": new])
          }
          facts.columns[place] = new
          names.append((before, new))
          let there = try TableFacts(table.name, connection)
          if there?.column(new) != nil, there?.column(before) != nil {
            throw SalvorError.nameTaken("\(table.name).\(new)", by: before, table: table.name)
          }
          if there?.column(new) == nil {
            try connection.execute("ALTER TABLE \(name(table.name)) RENAME COLUMN \(quoted(before)) TO \(quoted(new))")
            notices.append("\(table.name).\(before) was renamed to \(table.name).\(new).")
          }
        }
        if table.name != old || !names.isEmpty {
          hasChanged = true
          try connection.run(
            "UPDATE salvor_table SET name = ?1 WHERE t = ?2", .text(table.name), .integer(facts.number))
          try ConflictBook.rename(from: old, to: table.name, names, connection)
          try WaitingBook.rename(from: old, to: table.name, names, connection)
        }
        carried[table.name] = facts
      }
      // A half-sent upload has the names of before: its device sends it anew.
      if hasChanged { try Staging(connection: connection).forgetAll() }
      return carried
    }

    private func dropTriggers(_ number: Int64, of table: String) throws {
      guard try TableFacts(table, connection) != nil else { return }
      for event in ChangeCapture.triggers {
        try connection.execute(
          "DROP TRIGGER IF EXISTS \(quoted(ChangeCapture.trigger(number, event))) ON \(name(table))")
      }
      try connection.run("DELETE FROM salvor_server WHERE key = ?1", .text("triggers.\(number)"))
    }

    /// What is added, as `table` and `table.column`.
    private mutating func applyDifferences(_ known: [String: Known]) throws -> Set<String> {
      let gone = try known.keys.filter { name in
        try schema.table(name) == nil && !schema.dropped.contains(name) && TableFacts(name, connection) != nil
      }.sorted()
      if let first = gone.first {
        throw SalvorError(
          .schemaRefused,
          "The database does not fit the schema: \(gone.joined(separator: ", ")) was synchronized and is not in the schema, or is client-only there. Put it back as it was, declare what became of it (dropped, renamedFrom), or drop the table in the database.",
          context: ["table": first])
      }
      var adopted: [String: TableFacts] = [:]
      for table in schema.tables { adopted[table.name] = try TableFacts(table.name, connection) }
      if !takesRows, let problem = Self.missing(known.keys.filter { schema.table($0) != nil && adopted[$0] == nil }) {
        throw SalvorError(.storageCorrupt, problem)
      }
      let ddl = PostgreSQLTableDDL(schema: schema, settings: settings, adopted: adopted)
      var statements: [String] = []
      var references: [String] = []
      var refusals: [(place: String, what: String)] = []
      var added: Set<String> = []
      for table in schema.parentsFirst(schema.tables) {
        guard let facts = adopted[table.name] else {
          refusals += try refusalsOfNew(table)
          statements.append(ddl.createTable(table))
          references += ddl.foreignKeys(table)
          opening.createdTables.append(table.name)
          added.insert(table.name)
          continue
        }
        refusals += try self.refusals(of: table, facts, known[table.name])
        for column in table.columns where facts.column(column.name) == nil && isAddable(column, to: table) {
          statements += ddl.addColumn(column, to: table)
          opening.addedColumns.append("\(table.name).\(column.name)")
          added.insert("\(table.name).\(column.name)")
        }
        for column in facts.columns where table.hasDropped(column.name) {
          if known[table.name]?.columns.contains(column.name) == true {
            notices.append(
              "\(table.name).\(column.name) was dropped from the schema: it stays, and is not synchronized.")
          }
          if column.notNull, !column.hasDefault {
            statements.append("ALTER TABLE \(name(table.name)) ALTER COLUMN \(quoted(column.name)) DROP NOT NULL")
            notices.append("\(table.name).\(column.name) may be NULL now: new rows have no value for it.")
          }
        }
      }
      if let first = refusals.first {
        let list = refusals.map(Self.worded).map { $0.hasSuffix(".") ? String($0.dropLast()) : $0 }
        throw SalvorError(
          .schemaRefused,
          "The database does not fit the schema: \(list.joined(separator: "; ")). Change the schema, or migrate the tables.",
          context: ["table": String(first.place.prefix { $0 != "." })])
      }
      try run(statements + references)
      // In the schema's order.
      opening.createdTables = schema.tables.map(\.name).filter { opening.createdTables.contains($0) }
      return added
    }

    /// Nil: each table that was synchronized is there.
    private static func missing(_ tables: [String]) -> String? {
      guard !tables.isEmpty else { return nil }
      return
        "\(tables.sorted().joined(separator: ", ")) was synchronized, and is not in the database. Put the database back whole, or declare the table dropped in the schema. If it is to be made anew, without rows: salvor server adopt --rows."
    }

    /// What is in the way of serving the schema, in words; nothing is changed, and no lock is taken that a writer waits for.
    mutating func examine() throws -> [String] {
      var found = try DatabaseCheck(connection).problems()
      guard try DatabaseCheck(connection).canRead() else { return found }
      var known: [String: Known] = [:]
      if found.isEmpty, try isThere("salvor_server") {
        _ = try refuseLaterFormat()
        known = try knownTables()
        let gone = try known.keys.filter { try schema.table($0) != nil && TableFacts($0, connection) == nil }
        if let problem = Self.missing(gone) { found.append(problem) }
      }
      for table in schema.tables {
        let facts = try TableFacts(table.name, connection)
        if let facts {
          found += try refusals(of: table, facts, known[table.name]).map(Self.worded)
        } else {
          found += try refusalsOfNew(table).map(Self.worded)
        }
      }
      return found
    }

    // MARK: Catalog

    private mutating func makeCatalogTables(
      _ known: [String: Known], isNew: Bool, added: Set<String>
    ) throws -> [ServerTable] {
      var tables: [ServerTable] = []
      var next = (known.values.map(\.number).max() ?? 0) + 1
      for table in schema.parentsFirst(schema.tables) {
        guard let facts = try TableFacts(table.name, connection) else { continue }
        let columns = table.columns.map(\.name)
        var number = next
        var generation: Int64 = 0
        if let before = known[table.name] {
          number = before.number
          generation = before.generation
          if before.columns != columns { altered.insert(table.name) }
          let found = Set(columns).subtracting(before.columns).filter { !added.contains("\(table.name).\($0)") }
          let seen = try DatabaseCheck(connection).marks(of: table.name, number)
          let capture = try DatabaseCheck(connection).capture(
            table.name, number, eachRow: needsRowTriggers(table.name), always: capturesReplicas)
          switch capture {
          case .whole: break
          case .partsCame(let names): came[table.name] = names
          case .interrupted: interrupted.insert(table.name)
          case .replaced:
            altered.insert(table.name)
            notices.append(
              "\(table.name): a column was renamed, and another one has its name now. The table's group is sent whole once."
            )
          case .lacking:
            notices.append(
              "\(table.name): a trigger of the change log was missing, disabled, or one that does not see all that is written, a part of the table is gone, a value of an enum was renamed, or a TRUNCATE did not see all rows. The table's group is sent whole once."
            )
          }
          let isLost = capture == .lacking || capture == .replaced
          if !isLost { marks[table.name] = seen }
          if isLost || !found.isEmpty || before.grouping != table.group { generation += 1 }
        } else {
          next += 1
          if !added.contains(table.name) {
            let rows = try connection.integer("SELECT count(*) FROM \(name(table.name))") ?? 0
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
          table, schema: schema, number: number, generation: generation, uniqueIndexes: facts.sharedIndexes,
          columnNumbers: try ColumnMask.numbers(
            of: table, number, before: known[table.name]?.columns ?? [], connection),
          dialect: connection.dialect,
          types: table.travelling.map { facts.column($0.name)?.type ?? "text" })
        made.lax = made.placesNeverNull { facts.column($0)?.notNull == false }
        made.defersKeys = try DatabaseCheck(connection).defersKeys(table.name)
        made.hasHeirs = try DatabaseCheck(connection).parts(of: table.name, number).contains { !$0.isPartition }
        notices += made.note(facts.actingKeys, schema)
        if table.maintained == .dual, let drawn = table.primaryKey.first(where: { facts.column($0)?.isDrawn == true }) {
          notices.append(
            "\(table.name).\(drawn): the database draws it from a sequence, which does not know the keys that devices bring: another program's insert meets one of them. Have devices draw from a range of their own, or use a text key."
          )
        }
        tables.append(made)
        try indexLookups(of: made)
      }
      return tables
    }

    /// A delete of a parent, the move of a row that others' scopes ask for, and changed subscriptions look rows up by these.
    private func indexLookups(of table: ServerTable) throws {
      let references = table.table.references.filter { schema.table($0.table) != nil }.map(\.column)
      let scopes = table.table.scopeColumns.filter(\.source.isParameter).map(\.column)
      for column in (references + table.edges.map(\.column) + table.exports + scopes).withoutRepetitions {
        guard let place = table.table.columnIndex(column) else { continue }
        let covered = try connection.integer(
          """
          SELECT EXISTS (SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
            WHERE i.indrelid = to_regclass(?1) AND i.indpred IS NULL AND a.attname = ?2)
          """, .text(Array(name(table.name).utf8)), .text(column))
        guard covered == 0 else { continue }
        try connection.execute(
          "CREATE INDEX IF NOT EXISTS salvor_lookup_\(table.number)_\(place) ON \(name(table.name)) (\(quoted(column)))"
        )
      }
    }

    private mutating func identify(isNew: Bool, beginsIncarnation: (IncarnationID) -> Bool) throws {
      if let text = try connection.scalar("SELECT value FROM salvor_server WHERE key = 'id'")?.string {
        guard let id = ServerID(text) else {
          throw SalvorError(
            .storageCorrupt, "The server ID in salvor_server is damaged. Restore the database from a copy.")
        }
        opening.serverID = id
      } else {
        try connection.run(
          "INSERT INTO salvor_server (key, value) VALUES ('id', ?1), ('trimmed', '0')", .text(opening.serverID.text))
        try connection.run(
          "INSERT INTO salvor_commit (number, id, last_seq, time) VALUES (0, ?1, 0, ?2) ON CONFLICT DO NOTHING",
          .text(opening.serverID.text), .integer(clock.now()))
      }
      if !isLater { try noteFormat() }
      let current = try connection.scalar("SELECT value FROM salvor_server WHERE key = 'incarnation'")?.string
      if let present = current.flatMap({ IncarnationID($0) }), !beginsIncarnation(present) {
        opening.incarnation = present
        return
      }
      try connection.run(
        "INSERT INTO salvor_server (key, value) VALUES ('incarnation', ?1) ON CONFLICT (key) DO UPDATE SET value = ?1",
        .text(opening.incarnation.text))
    }

    private func installTriggers(_ table: ServerTable) throws {
      let parts = try DatabaseCheck(connection).parts(of: table.name, table.number, always: capturesReplicas)
      let capture = ChangeCapture(
        table: table, tablesIn: settings.tablesIn, schema: settings.schema, types: table.types,
        eachRow: try needsRowTriggers(table.name), hasParts: !parts.isEmpty)
      var statements = capture.statements
      for event in ChangeCapture.events where capturesReplicas {
        statements.append(
          "ALTER TABLE \(capture.name) ENABLE ALWAYS TRIGGER \(quoted(ChangeCapture.trigger(table.number, event)))")
      }
      try once(
        "triggers.\(table.number)", statements,
        isThere: try !altered.contains(table.name) && isCaptured(table.name, table.number))
      try captureParts(parts, of: table, capture)
      try DatabaseCheck(connection).noteMarks(of: table.name, table.number, seen: marks[table.name])
    }

    /// Parts have triggers of their own, and those that are none any more have none.
    private func captureParts(_ parts: [TablePart], of table: ServerTable, _ capture: ChangeCapture) throws {
      let check = DatabaseCheck(connection)
      // Those that have triggers have them for the columns of before.
      let uncaptured = parts.filter { !$0.isCaptured || altered.contains(table.name) }
      try run(uncaptured.flatMap { capture.statements(of: $0, capturesReplicas: capturesReplicas) })
      try run((came[table.name] ?? []).map(capture.entering))
      for gone in try check.knownParts(table.number) ?? [] where !parts.contains(where: { $0.name == gone }) {
        if try connection.integer("SELECT to_regclass(?1) IS NOT NULL", .text(Array(gone.utf8))) == 1 {
          try run(capture.dropping(gone))
        }
      }
      try check.note(parts, of: table.number)
    }

    private func needsRowTriggers(_ table: String) throws -> Bool {
      try DatabaseCheck(connection).needsRowTriggers(table, capturesReplicas: capturesReplicas)
    }

    private func isCaptured(_ table: String, _ number: Int64) throws -> Bool {
      try DatabaseCheck(connection).isCaptured(
        table, number, eachRow: needsRowTriggers(table), always: capturesReplicas)
    }

    private func run(_ statements: [String]) throws {
      if !statements.isEmpty { try connection.execute(statements.joined(separator: ";\n")) }
    }

    /// Runs statements that make a part of the database, where they are others than those that made it: each takes a lock that
    /// writers wait for, and that waits for every open transaction of theirs, even where nothing is to be made.
    private func once(_ part: String, _ statements: [String], isThere: Bool = true) throws {
      let wanted = digest(Array(statements.joined(separator: "\n").utf8))
      // What a later release made for this schema is right for both.
      if isThere, isLater, part != "width" { return }
      if isThere,
        try connection.scalar("SELECT value FROM salvor_server WHERE key = ?1", .text(part))?.string == wanted
      {
        return
      }
      try run(statements)
      try connection.run(
        "INSERT INTO salvor_server (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2",
        .text(part), .text(wanted))
    }
  }
#endif
