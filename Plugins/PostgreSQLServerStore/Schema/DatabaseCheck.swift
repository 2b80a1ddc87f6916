#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import SalvorWire
  import ServerStoreSupport

  extension ServerTable {
    /// As `salvor_table` has the columns.
    var columnNames: String { JSONValue.array(table.columns.map { .string($0.name) }).text }
  }

  /// What keeps a database from being the consolidated one, each by name and with the way on.
  struct DatabaseCheck {
    let connection: PostgreSQLConnection
    private var settings: ConnectionSettings { connection.settings }

    init(_ connection: PostgreSQLConnection) { self.connection = connection }

    /// The oldest release whose interfaces are used.
    private static let oldestVersion = 130_000
    /// PostgreSQL cuts longer names without a word.
    static let nameBytesMax = 63

    /// Of the database and the module's role.
    func problems() throws -> [String] {
      var problems: [String] = []
      let version = try connection.integer("SELECT current_setting('server_version_num')::bigint") ?? 0
      if version < Self.oldestVersion {
        problems.append("PostgreSQL 13 or later is needed; this is \(version / 10_000).")
      }
      for name in [settings.schema, settings.tablesIn] where name.utf8.count > Self.nameBytesMax {
        problems.append(
          "\(name): the name of the schema has more than \(Self.nameBytesMax) bytes, and PostgreSQL would cut it. Give a shorter one."
        )
      }
      if try holds("SELECT pg_is_in_recovery()") {
        problems.append("The database is a standby and takes no writes. Name the primary, or all hosts, in url.")
      }
      if try !holds("SELECT to_regnamespace(?1) IS NOT NULL", quoted(settings.tablesIn)) {
        problems.append("The database has no schema \(settings.tablesIn). Make it, or name another one in tablesIn.")
      }
      if try holds("SELECT NOT has_schema_privilege(to_regnamespace(?1), 'USAGE')", quoted(settings.tablesIn)) {
        problems.append("The role may not use the schema \(settings.tablesIn): GRANT USAGE ON SCHEMA.")
      }
      let hasOwn = try holds("SELECT to_regnamespace(?1) IS NOT NULL", quoted(settings.schema))
      if !hasOwn, try !holds("SELECT has_database_privilege(current_database(), 'CREATE')") {
        problems.append(
          "The role may not make the schema \(settings.schema): GRANT CREATE ON DATABASE, or make it for the role.")
      }
      if hasOwn, try !holds("SELECT has_schema_privilege(?1, 'CREATE, USAGE')", settings.schema) {
        problems.append("The role may not make tables in the schema \(settings.schema): GRANT CREATE, USAGE ON SCHEMA.")
      }
      if try !holds("SELECT has_database_privilege(current_database(), 'TEMPORARY')") {
        problems.append("The role may not make temporary tables: GRANT TEMPORARY ON DATABASE.")
      }
      return problems
    }

    /// Whether the application's schema is there and the role may use it.
    func canRead() throws -> Bool {
      try holds(
        "SELECT coalesce(has_schema_privilege(to_regnamespace(?1), 'USAGE'), FALSE)", quoted(settings.tablesIn))
    }

    /// Whether the role may make tables beside the application's.
    func canMakeTables() throws -> Bool {
      try holds(
        "SELECT coalesce(has_schema_privilege(to_regnamespace(?1), 'CREATE'), TRUE)", quoted(settings.tablesIn))
    }

    /// Whether the role may alter the table.
    func owns(_ table: Table) throws -> Bool {
      try holds(
        "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(?1)",
        "\(quoted(settings.tablesIn)).\(quoted(table.name))")
    }

    /// Of a table that is to be synchronized as it is.
    func problems(of table: Table) throws -> [String] {
      let names = [table.name] + table.columns.map(\.name)
      if let long = names.first(where: { $0.utf8.count > Self.nameBytesMax }) {
        return [
          "\(long): the name has more than \(Self.nameBytesMax) bytes, and PostgreSQL would cut it. Give a shorter one."
        ]
      }
      let name = "\(quoted(settings.tablesIn)).\(quoted(table.name))"
      guard try holds("SELECT to_regclass(?1) IS NOT NULL", name) else {
        return ["\(table.name): the schema \(settings.tablesIn) has no such table."]
      }
      var problems = try missingRights(table, name)
      let unlogged = try ([name] + parts(of: table.name, 0).map(\.name)).filter {
        try holds("SELECT relpersistence <> 'p' FROM pg_class WHERE oid = to_regclass(?1)", $0)
      }
      problems += unlogged.map {
        "\(table.name): PostgreSQL empties it when it crashes: ALTER TABLE \($0) SET LOGGED."
      }
      let key = try key(of: name)
      if key.map(\.name) != table.primaryKey {
        problems.append(
          "\(table.name): its primary key is \(key.isEmpty ? "none" : key.map(\.name).joined(separator: ", ")), and \(table.primaryKey.joined(separator: ", ")) in the schema."
        )
      }
      for column in key where !column.isDeterministic {
        problems.append(
          "\(table.name).\(column.name): its collation or type holds keys equal that are not the same bytes. Give the key another one, such as COLLATE \"C\"."
        )
      }
      if try holds("SELECT relrowsecurity FROM pg_class WHERE oid = to_regclass(?1)", name),
        try !holds("SELECT rolbypassrls OR rolsuper FROM pg_roles WHERE rolname = current_user")
      {
        problems.append(
          "\(table.name): it has row level security, and the role does not bypass it: ALTER ROLE … BYPASSRLS.")
      }
      return try problems + refusedWrites(table.name, name)
    }

    /// What PostgreSQL refuses of every device, whatever the row.
    private func refusedWrites(_ table: String, _ name: String) throws -> [String] {
      var problems = try connection.rows(
        "SELECT rulename::text FROM pg_rewrite WHERE ev_class = to_regclass(?1) AND ev_type IN ('2', '3') AND ev_enabled <> 'D' ORDER BY 1",
        .text(Array(name.utf8))
      ).compactMap { $0[0].string }.map {
        "\(table): it has the rule \($0). PostgreSQL takes no row of a device (INSERT … ON CONFLICT) for a table with a rule for INSERT or UPDATE: make it a trigger."
      }
      let publication = try connection.rows(
        "SELECT p.pubname::text FROM pg_publication p JOIN pg_class c ON c.oid = to_regclass(?1) WHERE c.relreplident = 'n' AND p.pubupdate AND (p.puballtables OR EXISTS (SELECT 1 FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid)) ORDER BY 1",
        .text(Array(name.utf8))
      ).first?[0].string
      if let publication {
        problems.append(
          "\(table): the publication \(publication) has its updates, and it has no replica identity, so that PostgreSQL refuses each update: ALTER TABLE \(name) REPLICA IDENTITY DEFAULT."
        )
      }
      return problems
    }

    private func missingRights(_ table: Table, _ name: String) throws -> [String] {
      let rights = ["SELECT", "INSERT", "UPDATE", "DELETE", "TRIGGER"]
      let missing = try rights.filter { try !holds("SELECT has_table_privilege(?1, ?2)", name, $0) }
      if !missing.isEmpty {
        return ["\(table.name): the role has no right to \(missing.joined(separator: ", ")): GRANT it on the table."]
      }
      let closed = try parts(of: table.name, 0).filter {
        // Its owner alone can put a trigger of Salvor's there back.
        try !holds("SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass(?1)", $0.name)
      }
      return closed.map {
        "\(table.name): the role does not own its part \($0.name), and cannot make triggers there: ALTER TABLE \($0.name) OWNER TO the role, or to one that it belongs to."
      }
    }

    /// In the key's order.
    private func key(of name: String) throws -> [(name: String, isDeterministic: Bool)] {
      try connection.rows(
        """
        SELECT a.attname::text, coalesce(l.collisdeterministic, true) AND format_type(a.atttypid, NULL) <> 'citext'
        FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY k (number, place)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
        LEFT JOIN pg_collation l ON l.oid = a.attcollation
        WHERE i.indrelid = to_regclass(?1) AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place
        """, .text(Array(name.utf8))
      ).map { ($0[0].string ?? "", $0[1].integer == 1) }
    }

    /// `INSERT … ON CONFLICT` is refused where the table has a unique key or an exclusion that may be proved later.
    func defersKeys(_ table: String) throws -> Bool {
      try holds(
        """
        SELECT EXISTS (SELECT 1 FROM pg_index WHERE indrelid = to_regclass(?1) AND NOT indimmediate
          AND (indisunique OR indisexclusion))
        """, name(table))
    }

    /// The synchronized tables whose triggers somebody has dropped, disabled or altered: what was written meanwhile is in no entry
    /// of the log. And those that lack a column, or whose keys are proved at another moment now.
    func uncaptured(_ tables: [ServerTable], capturesReplicas: Bool) throws -> [String] {
      try tables.filter { table in
        let eachRow = try needsRowTriggers(table.name, capturesReplicas: capturesReplicas)
        return try capture(table.name, table.number, eachRow: eachRow, always: capturesReplicas) != .whole
          || defersKeys(table.name) != table.defersKeys || lacksColumn(table)
      }.map(\.name)
    }

    /// The tables that another process of the same schema has sent whole since these were read.
    func renewed(_ tables: [ServerTable]) throws -> [String] {
      let now = try connection.rows("SELECT t, generation, columns, grouping FROM salvor_table")
      return tables.filter { table in
        now.contains { row in
          row[0] == .integer(table.number) && row[1] != .integer(table.generation)
            && row[2].string == table.columnNames && row[3].string == table.table.group
        }
      }.map(\.name)
    }

    /// PostgreSQL lets columns be renamed that a trigger's function names.
    private func lacksColumn(_ table: ServerTable) throws -> Bool {
      let found = try connection.rows(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(?1) AND attnum > 0 AND NOT attisdropped",
        .text(Array(name(table.name).utf8)))
      return !Set(table.columns.map(\.name)).isSubset(of: found.compactMap { $0[0].string })
    }

    /// - Parameters:
    ///   - number: of the table in the change log.
    ///   - eachRow: its triggers must fire for each row (`needsRowTriggers`); those that need not may.
    ///   - always: they must fire for what a logical subscriber writes, too. `ENABLE TRIGGER` takes that from them.
    func isCaptured(_ table: String, _ number: Int64, eachRow: Bool, always: Bool) throws -> Bool {
      let events = ChangeCapture.events.map {
        "('\(ChangeCapture.trigger(number, $0))', 'salvor_\(number)_\($0)')"
      }.joined(separator: ", ")
      let isOurs = "(g.tgname, p.proname) IN (\(events)) AND \(Self.fires(always: always))"
      let ofRows = "count(*) FILTER (WHERE \(isOurs) AND (g.tgtype & 1 = 1 OR g.tgtype & 32 = 32))"
      let guardian = "bool_or(g.tgname = '\(ChangeCapture.trigger(number, ChangeCapture.guarding))')"
      return try connection.integer(
        """
        SELECT CASE WHEN \(ofRows) = \(ChangeCapture.events.count)
          \(eachRow ? "" : "OR count(*) FILTER (WHERE \(isOurs)) = \(ChangeCapture.events.count) AND \(guardian)") THEN 1 END
        FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid
        WHERE g.tgrelid = to_regclass(?1) AND p.pronamespace = to_regnamespace(?2)
        """, .text(Array(name(table).utf8)), .text(Array(quoted(settings.schema).utf8))) == 1
    }

    /// Of a trigger `g`: it is not disabled.
    static func fires(always: Bool) -> String { always ? "g.tgenabled = 'A'" : "g.tgenabled IN ('O', 'A')" }

    /// 1,664 columns are in a row of a query at most: those before, and those after.
    private static let columnsOfStatements = 800

    /// Whether each row of the table must fire triggers of its own. A statement's would not see what is written through a parent of
    /// the table, and by a logical subscriber; and they fire after the application's triggers of each row, so that what such a
    /// trigger makes of a row would be told before the row itself. And a foreign key that changes keys along may change a row twice in
    /// one statement. A statement's update joins the rows before and after, and PostgreSQL has an end of columns there.
    func needsRowTriggers(_ table: String, capturesReplicas: Bool) throws -> Bool {
      if capturesReplicas { return true }
      return try holds(
        """
        SELECT relkind <> 'r' OR relnatts > \(Self.columnsOfStatements)
          OR EXISTS (SELECT 1 FROM pg_inherits i WHERE i.inhrelid = c.oid OR i.inhparent = c.oid)
          OR EXISTS (SELECT 1 FROM pg_trigger g WHERE g.tgrelid = c.oid AND NOT g.tgisinternal AND g.tgtype & 67 = 1
            AND NOT starts_with(g.tgname::text, '\(ChangeCapture.triggerPrefix)'))
          OR EXISTS (SELECT 1 FROM pg_constraint k LEFT JOIN pg_constraint p ON p.conrelid = c.oid AND p.contype = 'p'
            WHERE k.conrelid = c.oid AND k.confupdtype IN ('c', 'n', 'd')
              AND (k.confrelid = c.oid OR k.conkey && p.conkey))
        FROM pg_class c WHERE c.oid = to_regclass(?1)
        """, name(table))
    }

    private func name(_ table: String) -> String { "\(quoted(settings.tablesIn)).\(quoted(table))" }

    private func holds(_ sql: String, _ values: String...) throws -> Bool {
      try connection.integer(sql, values.map { .text(Array($0.utf8)) }) == 1
    }
  }
#endif
