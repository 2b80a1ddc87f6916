#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// Makes the tables of the change log and the triggers that fill it. Several processes may do so at once: one goes after the
  /// other, by an advisory lock.
  struct LogInstallation {
    let connection: PostgreSQLConnection
    private var settings: ConnectionSettings { connection.settings }

    init(_ connection: PostgreSQLConnection) { self.connection = connection }

    /// - Parameter capturesReplicas: what a logical subscriber writes (`session_replication_role = replica`) is captured, too.
    func run(_ tables: [ServerTable], capturesReplicas: Bool = false) throws {
      try connection.transaction {
        _ = try connection.scalar("SELECT pg_advisory_xact_lock(?1)::text", .integer(PostgreSQLLogDDL.installationLock))
        for statement in PostgreSQLLogDDL.statements(logWidth: Catalog.logWidth(of: tables), settings: settings) {
          try connection.execute(statement)
        }
        for table in tables {
          let capture = ChangeCapture(
            table: table, tablesIn: settings.tablesIn, schema: settings.schema, types: try types(of: table))
          for statement in capture.statements { try connection.execute(statement) }
          for event in ChangeCapture.events where capturesReplicas {
            try connection.execute(
              "ALTER TABLE \(capture.name) ENABLE ALWAYS TRIGGER \(quoted(ChangeCapture.trigger(table.number, event)))")
          }
        }
      }
    }

    /// Of the columns that travel.
    private func types(of table: ServerTable) throws -> [String] {
      var types: [String: String] = [:]
      try connection.query(
        """
        SELECT a.attname, format_type(a.atttypid, NULL) FROM pg_attribute a
        WHERE a.attrelid = to_regclass(?1) AND a.attnum > 0 AND NOT a.attisdropped
        """, [.text("\(quoted(settings.tablesIn)).\(quoted(table.name))")]
      ) { row in
        types[row.string(0)] = row.string(1)
        return true
      }
      return try table.columns.map { column in
        if let type = types[column.name] { return type }
        let what =
          types.isEmpty
          ? "has no table \(settings.tablesIn).\(table.name)"
          : "has no column \(column.name) in \(settings.tablesIn).\(table.name)"
        throw SalvorError(
          .schemaRefused, "The database \(what). Make it, or leave it out of the schema.",
          context: ["table": table.name, "column": column.name])
      }
    }
  }
#endif
