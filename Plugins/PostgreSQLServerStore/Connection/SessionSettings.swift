#if PostgreSQL
  import CPQ
  import SalvorModel
  import ServerStoreSupport

  /// What every session of Salvor's sets for itself.
  extension PostgreSQLConnection {
    func sessionSettings() throws -> [String] {
      var values = [
        "TimeZone = 'UTC'", "DateStyle = 'ISO, YMD'", "IntervalStyle = 'iso_8601'", "extra_float_digits = 1",
        "bytea_output = 'hex'", "standard_conforming_strings = on", "quote_all_identifiers = off", "array_nulls = on",
        "search_path = \(try searchPath())",
        "lock_timeout = \(settings.lockTimeout)", "row_security = off", "jit = off",
      ]
      if let timeout = settings.statementTimeout { values.append("statement_timeout = \(timeout)") }
      return values
    }

    /// Salvor's own names first, then those of the database's or the role's path: triggers of the application's name things so. Temporary tables
    /// last: one that somebody has left in a pooled session would take the place of a table.
    private func searchPath() throws -> String {
      let found = try once("SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'search_path'").first?.first
      let theirs = (found ?? nil).flatMap { $0.isEmpty || $0 == "\"\"" ? nil : $0 }
      return ([quotedNames([settings.schema, settings.tablesIn])] + [theirs, "pg_temp"].compactMap { $0 })
        .joined(separator: ", ")
    }

    /// What takes back what a function of the application's has set for its transaction (`set_config(…, true)`), in which other rows of the upload
    /// are written: how values look, which names are found, and whether triggers fire.
    func restoringSettings(_ values: [String], isPooled: Bool) -> String {
      let role = isPooled ? "SET LOCAL ROLE NONE" : "SET LOCAL role TO DEFAULT"
      return
        ([role] + values.filter { !$0.hasPrefix("lock_timeout") }.map { "SET LOCAL \($0)" } + [
          "SELECT pg_catalog.set_config('session_replication_role', 'origin', true) WHERE pg_catalog.current_setting('session_replication_role') <> 'origin'"
        ]).joined(separator: "; ")
    }

    /// Nil: there is none.
    func timeLimit() throws -> Duration? {
      let limit =
        try settings.statementTimeout
        ?? once("SELECT setting FROM pg_catalog.pg_settings WHERE name = 'statement_timeout'").first?.first
        .flatMap { $0.flatMap { Int64($0) } }
      return limit.flatMap { $0 > 0 ? .milliseconds($0) : nil }
    }
  }

  extension PostgreSQLConnection.Link {
    /// After a statement that wrote rows of the application's tables.
    func restoreSettings() throws {
      if firesOthers == nil {
        let result = PQexec(
          try live(),
          "SELECT 1 FROM pg_catalog.pg_trigger WHERE NOT tgisinternal AND tgenabled <> 'D' AND NOT starts_with(tgname::text, '\(ChangeCapture.triggerPrefix)') LIMIT 1"
        )
        try check(result, sql: nil)
        firesOthers = PQntuples(result) > 0
        PQclear(result)
      }
      guard firesOthers == true else { return }
      let result = PQexec(try live(), restoring)
      try check(result, sql: nil)
      PQclear(result)
    }
  }
#endif
